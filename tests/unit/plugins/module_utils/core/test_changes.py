# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Replicas that a run changes."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.observation import (
    Component,
    Observed,
    ObservedCluster,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output.changes import replica_changes
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output.plan import table
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning import Plan, plan
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning.fleet import written
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object, Objects
from ansible_collections.modelplane.fleet.tests.written import parsed

GPU = "gpu.nvidia.com"
REMAINS = "the cluster still has its objects, but the fleet has no such ModelReplica"


def deployment(replicas: int) -> api.ModelDeployment:
    request = {"name": "gpu", "count": 1, "selectors": [{"cel": f'device.driver == "{GPU}"'}]}
    container = {"name": "engine", "image": "registry.example.com/engine:v1"}
    member = {"nodeSelector": {"devices": [request]}, "template": {"spec": {"containers": [container]}}}
    spec = {"replicas": replicas, "template": {"spec": {"engines": [{"name": "main", "members": [member]}]}}}
    made: api.ModelDeployment = parsed(
        {"metadata": {"name": "chat", "namespace": "team"}, "spec": spec}, api.ModelDeployment
    )
    return made


def platform() -> list[api.Resource]:
    device = {"name": "gpu", "driver": GPU, "deviceClassName": GPU, "count": 4}
    source = {"source": "Existing", "existing": {"secretRef": {"name": "east", "key": "kubeconfig"}}}
    pools = [{"name": "gpu", "className": "h100", "nodeCount": 1, "maxNodeCount": 1}]
    spec = {"cluster": source, "nodePools": pools}
    return [
        parsed({"metadata": {"name": "h100"}, "spec": {"devices": [device]}}, api.InferenceClass),
        parsed({"metadata": {"name": "east"}, "spec": spec}, api.InferenceCluster),
    ]


@pytest.fixture(scope="module")
def before() -> Plan:
    return plan([*platform(), deployment(3)])


def run(before: Plan, known: int, *, desired: int = 1, objects: list[Any] | None = None, **cluster: Any) -> Plan:
    """Plan when the state of the fleet has only this number of ModelReplicas, and the cluster all objects."""
    existing = [parsed(written(replica), api.ModelReplica) for replica in before.replicas[:known]]
    live = list(before.workloads["east"]) if objects is None else objects
    east = ObservedCluster(objects=Objects(live), nodes={"gpu": 1}, stack=Component(ready=True), **cluster)
    resources = [*platform(), deployment(desired)]
    statuses = {resource.ref: {"gateway": {"address": "192.0.2.1"}} for resource in platform()}
    return plan(resources, existing, observed=Observed(clusters={"east": east}), statuses=statuses)


def names_of(before: Plan) -> list[str]:
    return [replica.name for replica in before.replicas]


def test_replicas_without_a_modelreplica_are_named(before: Plan) -> None:
    changes = replica_changes(run(before, 1))
    expected = [("team", "chat", name, "east", "removed", REMAINS) for name in sorted(names_of(before)[1:])]
    assert [
        (each.namespace, each.deployment, each.replica, each.cluster, each.action, each.reason) for each in changes
    ] == expected


def test_a_replica_keeps_its_reason_in_later_rounds(before: Plan) -> None:
    # The first round removes two ModelReplicas, and the second one still observes their objects.
    first, second = run(before, 3), run(before, 1)
    lines = "\n".join(table(second, 200, [first]))
    assert lines.count("removed") == 2
    assert REMAINS not in lines


def is_of(value: Object, name: str) -> bool:
    return bool(value["metadata"]["name"].startswith(name))


def test_objects_that_are_being_deleted_are_no_change(before: Plan) -> None:
    kept = names_of(before)[0]
    objects = [
        value
        if is_of(value, kept)
        else {**value, "metadata": {**value["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
        for value in before.workloads["east"]
    ]
    assert replica_changes(run(before, 1, objects=objects)) == []


def test_nothing_is_removed_from_a_cluster_that_does_not_answer(before: Plan) -> None:
    assert replica_changes(run(before, 1, unreachable="connection refused")) == []


def test_a_replica_that_the_plan_creates_again_is_new(before: Plan) -> None:
    changes = replica_changes(run(before, 1, desired=3))
    assert [change.action for change in changes] == ["new", "new"]
