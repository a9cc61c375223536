# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Tests of what a real API server lets into the namespaces that are composed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api import ModelDeployment, parse
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.pod_security import (
    BASELINE_CAPABILITIES,
    IPC_LOCK,
    SelinuxOptions,
    Sysctl,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.shape import fields_of
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.client import Client
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.errors import Forbidden
from ansible_collections.modelplane.fleet.tests.kube.control_plane import ControlPlane
from ansible_collections.modelplane.fleet.tests.written import replica_objects

Object = dict[str, Any]

COMPLETE = Path(__file__).parents[2] / "data" / "api" / "complete.yaml"


@pytest.fixture(scope="module")
def admitted(cluster: ControlPlane, client: Client) -> Iterator[Callable[[Object, Object], bool]]:
    """Yield whether pods of a spec are let into a namespace with the labels of another one."""
    made: list[str] = []

    def ask(namespace: Object, spec: Object) -> bool:
        name = f"admits-{len(made)}"
        cluster.create_namespace(name, namespace["metadata"]["labels"])
        made.append(name)
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "engine", "namespace": name}, "spec": spec}
        refused = ""
        try:
            client.create(pod, dry_run=True)
        except Forbidden as error:
            refused = str(error)
        assert not refused or "violates PodSecurity" in refused
        return not refused

    yield ask
    for name in made:
        cluster.objects.delete("v1", "Namespace", name)


def replica(container: Object, pod: Object, device_class: str = "gpu.nvidia.com") -> Object:
    template = {"spec": {**pod, "containers": [{"name": "engine", "image": "x", **container}]}}
    request = {"name": "device", "deviceClassName": device_class, "count": 1}
    member = {"role": "Standalone", "nodePoolName": "gpu", "deviceRequests": [request], "template": template}
    return {
        "apiVersion": "modelplane.ai/v1alpha1",
        "kind": "ModelReplica",
        "metadata": {"name": "r", "namespace": "team"},
        "spec": {"clusterName": "east", "engines": [{"name": "main", "members": [member]}]},
    }


def composed(value: Object) -> tuple[Object, Object]:
    """The Namespace of a replica, and the spec of its pods."""
    parse(value)
    objects = replica_objects(value)
    return objects[0], objects[2]["spec"]["template"]["spec"]


def everything() -> tuple[Object, Object]:
    """Of the container's and the pod's securityContext all that may be said, each field with each of its values."""
    (document,) = [each for each in yaml.safe_load_all(COMPLETE.read_text()) if each["kind"] == "ModelDeployment"]
    assert isinstance(parse(document), ModelDeployment)
    spec = document["spec"]["template"]["spec"]["engines"][0]["members"][0]["template"]["spec"]
    container, pod = spec["containers"][0]["securityContext"], spec["securityContext"]
    container["capabilities"] = {"add": list(BASELINE_CAPABILITIES)}
    pod["sysctls"] = [{"name": name, "value": "1"} for name in choices(Sysctl, "name")]
    return container, pod


def choices(model: Any, field: str) -> list[str]:
    """The values that a pattern of the form ^(a|b)$ takes."""
    pattern = fields_of(model)[field].shape.pattern
    return pattern.removeprefix("^(").removesuffix(")$").replace("[.]", ".").split("|")


def test_all_that_a_template_may_say_is_let_in(admitted: Callable[[Object, Object], bool]) -> None:
    container, pod = everything()
    for selinux in choices(SelinuxOptions, "type"):
        pod["seLinuxOptions"] = {"type": selinux}
        namespace, spec = composed(replica({"securityContext": container}, {"securityContext": pod}))
        assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "baseline"
        assert admitted(namespace, spec)


def test_who_pins_memory_is_let_in_where_the_namespace_was_made_for_it(
    admitted: Callable[[Object, Object], bool],
) -> None:
    plain, _ = composed(replica({}, {}))
    for value in (
        replica({"securityContext": {"capabilities": {"add": [IPC_LOCK]}}}, {}),
        replica({}, {}, "efa.networking.k8s.aws"),
    ):
        namespace, spec = composed(value)
        assert spec["containers"][0]["securityContext"]["capabilities"]["add"] == [IPC_LOCK]
        assert admitted(namespace, spec)
        assert not admitted(plain, spec)


def test_the_models_list_of_capabilities_is_the_servers(admitted: Callable[[Object, Object], bool]) -> None:
    plain, spec = composed(replica({}, {}))
    for capability in ("NET_RAW", "SYS_ADMIN", "SYS_PTRACE"):
        spec["containers"][0]["securityContext"]["capabilities"] = {"add": [capability], "drop": ["ALL"]}
        assert not admitted(plain, spec)


@pytest.mark.parametrize(
    "probes",
    [
        {},
        {
            "livenessProbe": {"exec": {"command": ["healthy"]}, "terminationGracePeriodSeconds": 5},
            "startupProbe": {"grpc": {"port": 8000, "service": "engine"}, "failureThreshold": 720},
        },
    ],
)
def test_engines_with_probes_and_a_sidecar_are_let_in(
    admitted: Callable[[Object, Object], bool], probes: Object
) -> None:
    value = replica({"image": "vllm/vllm-openai:v0.23.0", **probes}, {})
    (engine,) = value["spec"]["engines"]
    phases = [{**engine, "name": phase.lower(), "phase": phase} for phase in ("Prefill", "Decode")]
    value["spec"] |= {"serving": {"mode": "PrefillDecode"}, "engines": phases}
    parse(value)
    namespace, *objects = replica_objects(value)
    specs = [each["spec"]["template"]["spec"] for each in objects if each["kind"] == "Deployment"]
    assert [len(spec.get("initContainers", ())) for spec in specs] == [0, 1, 0]
    for spec in specs[:2]:
        assert admitted(namespace, spec)
