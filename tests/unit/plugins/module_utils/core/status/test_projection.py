# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Tests of what is kept of what was seen: enough for every status, and nothing that changes by itself."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core.observation import (
    Component,
    ObservedCluster,
    parse,
    wire,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.projection import trim
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Objects
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.status import sightings as seen
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.status import (
    test_any_observation as anything,
)
from hypothesis import given


@given(anything.sightings(anything.WORKLOADS), anything.sightings(anything.CONTROL))
def test_statuses_are_those_of_the_whole_objects(workloads: list[Any], controls: list[Any]) -> None:
    def reported(workloads: list[Any], controls: list[Any]) -> anything.Reported:
        up = Component(True)
        return anything.evaluate(ObservedCluster("", up, up, Objects(workloads)), Objects(controls), None, anything.NOW)

    small = [trim(value) for value in workloads], [trim(value) for value in controls]
    assert reported(*small) == reported(workloads, controls)
    assert [[trim(value) for value in values] for values in small] == list(small)
    document = {"control": {"objects": small[1]}, "clusters": {"east": {"objects": small[0]}}}
    assert parse(wire(parse(document))) == parse(document)


def test_a_second_observation_of_a_crashing_pod_is_equal() -> None:
    def pod(seconds: int) -> dict[str, Any]:
        ended = {"exitCode": 1, "reason": "Error", "startedAt": f"{seconds}", "finishedAt": f"{seconds}"}
        state = {
            "waiting": {"reason": "CrashLoopBackOff", "message": f"back-off {seconds}s restarting failed container"}
        }
        container = {"name": "engine", "state": state, "lastState": {"terminated": ended}, "restartCount": seconds}
        condition = {"type": "Ready", "status": "False", "lastTransitionTime": f"{seconds}", "lastProbeTime": None}
        metadata = {
            "name": "p",
            "namespace": "mp-x",
            "resourceVersion": f"{seconds}",
            "managedFields": [{"time": seconds}],
        }
        status = {
            "phase": "Running",
            "conditions": [condition],
            "containerStatuses": [container],
            "podIP": f"10.0.0.{seconds}",
        }
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"nodeName": "n"}, "status": status}

    assert trim(pod(20)) == trim(pod(40))


def test_templates_are_not_kept_but_the_claims_that_they_mount() -> None:
    engine = deepcopy(seen.parts(seen.replica(gang=True))["engine"])
    claim = {"name": "weights", "persistentVolumeClaim": {"claimName": "qwen"}}
    for template in engine["spec"]["leaderWorkerTemplate"].values():
        if isinstance(template, dict):
            template["spec"]["volumes"] = [{"name": "shm", "emptyDir": {}}, claim]
            template["spec"]["containers"][0]["env"] = [{"name": "PASSWORD", "value": "hunter2"}]
    engine["metadata"]["annotations"] = {
        "kubectl.kubernetes.io/last-applied-configuration": "hunter2",
        "modelplane.ai/artifact": "x",
    }
    kept = trim(engine)
    assert "hunter2" not in str(kept)
    template = {"spec": {"volumes": [claim]}}
    assert kept["spec"] == {
        "replicas": 1,
        "leaderWorkerTemplate": {"leaderTemplate": template, "workerTemplate": template},
    }
    assert kept["metadata"]["annotations"] == {"modelplane.ai/artifact": "x"}


def test_own_resources_keep_spec_status_and_age() -> None:
    metadata = {**seen.CACHE["metadata"], "creationTimestamp": "2026-01-01T00:00:00Z", "resourceVersion": "7"}
    status = {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}
    kept = trim({**seen.CACHE, "metadata": metadata, "status": status})
    assert kept["spec"] == seen.CACHE["spec"]
    assert kept["status"] == status
    assert kept["metadata"] == {**seen.CACHE["metadata"], "creationTimestamp": "2026-01-01T00:00:00Z"}
