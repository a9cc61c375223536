# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Tests of what the pods of engines may do, and which pods their namespaces let in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.model_replica import ResolvedDeviceRequest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.pod_security import (
    claims_network_devices,
    laxer,
)
from ansible_collections.modelplane.fleet.tests.written import replica_objects

Make = Callable[..., dict[str, Any]]
Object = dict[str, Any]

LEAST = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
EFA = {"name": "nic", "deviceClassName": "efa.networking.k8s.aws", "count": 4}
BASELINE = {"pod-security.kubernetes.io/enforce": "baseline", "pod-security.kubernetes.io/warn": "restricted"}
PRIVILEGED = {**BASELINE, "pod-security.kubernetes.io/enforce": "privileged"}


def pods(replica: Object) -> Iterator[Object]:
    """The specs of all pods of engines."""
    for value in replica_objects(replica):
        if value["kind"] == "Deployment" and not value["metadata"]["name"].endswith("-epp"):
            yield value["spec"]["template"]["spec"]
        elif value["kind"] == "LeaderWorkerSet":
            group = value["spec"]["leaderWorkerTemplate"]
            yield group["leaderTemplate"]["spec"]
            yield group["workerTemplate"]["spec"]


def enforced(replica: Object) -> dict[str, str]:
    labels = replica_objects(replica)[0]["metadata"]["labels"]
    return {key: value for key, value in labels.items() if key.startswith("pod-security")}


def test_engines_and_sidecars_get_the_least(make_replica: Make, gang: Object, pair: tuple[Object, Object]) -> None:
    shapes = [make_replica(), make_replica(gang), make_replica(*pair, serving={"mode": "PrefillDecode"})]
    found = [pod for replica in shapes for pod in pods(replica)]
    assert sorted(len(pod.get("initContainers", ())) for pod in found) == [0, 0, 0, 0, 1]
    for pod in found:
        assert pod["automountServiceAccountToken"] is False
        # No user, so that images may run as root and OpenShift picks a number by itself.
        assert pod["securityContext"] == {"seccompProfile": {"type": "RuntimeDefault"}}
        containers = [*pod["containers"], *pod.get("initContainers", ())]
        assert [container["securityContext"] for container in containers] == [LEAST] * len(containers)
    assert [enforced(replica) for replica in shapes] == [BASELINE] * 3


def test_what_a_template_says_wins(make_replica: Make) -> None:
    replica = make_replica(
        container={
            "securityContext": {
                "runAsUser": 1000,
                "allowPrivilegeEscalation": True,
                "capabilities": {"add": ["NET_BIND_SERVICE"], "drop": ["NET_RAW"]},
            }
        }
    )
    template = replica["spec"]["engines"][0]["members"][0]["template"]["spec"]
    template["securityContext"] = {"fsGroup": 5, "seccompProfile": {"type": "Localhost", "localhostProfile": "x.json"}}
    before = deepcopy(replica)
    (pod,) = pods(replica)
    assert pod["securityContext"] == template["securityContext"]
    assert pod["containers"][0]["securityContext"] == {
        "runAsUser": 1000,
        "allowPrivilegeEscalation": True,
        "capabilities": {"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]},
    }
    assert enforced(replica) == BASELINE
    assert replica == before


def test_who_claims_a_network_device_may_pin_memory(make_replica: Make, gang: Object) -> None:
    gang["members"][1]["deviceRequests"].append(EFA)
    leader, worker = pods(make_replica(gang))
    assert leader["containers"][0]["securityContext"] == LEAST
    assert worker["containers"][0]["securityContext"]["capabilities"] == {"add": ["IPC_LOCK"], "drop": ["ALL"]}
    assert enforced(make_replica(gang)) == PRIVILEGED


def test_who_asks_to_pin_memory_gets_it_once(make_replica: Make, make_member: Make, make_engine: Make) -> None:
    member = make_member(securityContext={"capabilities": {"add": ["CHOWN", "IPC_LOCK"]}})
    (asked,) = pods(make_replica(make_engine("main", member)))
    member["deviceRequests"].append(EFA)
    (claimed,) = pods(make_replica(make_engine("main", member)))
    for pod in (asked, claimed):
        assert pod["containers"][0]["securityContext"]["capabilities"]["add"] == ["CHOWN", "IPC_LOCK"]
    assert enforced(make_replica(make_engine("main", member))) == PRIVILEGED


@pytest.mark.parametrize(
    ("device_class", "cel", "network"),
    [
        ("gpu.nvidia.com", None, False),
        ("gpu.nvidia.com", 'device.driver == "gpu.nvidia.com"', False),
        ("gpu.nvidia.com", 'device.driver != "dra.net"', False),
        ("gpu.nvidia.com", 'device.attributes["hydra.net"].x', False),
        ("efa.networking.k8s.aws", None, True),
        ("mrdma.google.com", None, True),
        ("roce.example.com", 'device.driver == "dra.net"', True),
        ("roce.example.com", "'dra.net' == device.driver", True),
        ("roce.example.com", 'device.attributes["dra.net"].rdma', True),
        ("roce.example.com", '"dra.net" in device.attributes', True),
    ],
)
def test_network_devices_are_reported_by_class_or_driver(device_class: str, cel: str | None, network: bool) -> None:
    request = {"name": "nic", "deviceClassName": device_class, "selectors": [{"cel": cel}] if cel else []}
    assert claims_network_devices([ResolvedDeviceRequest.model_validate(request)]) is network


def test_of_two_formats_of_a_namespace_the_one_that_lets_in_all_pods_is_built() -> None:
    def namespace(level: str | None) -> Object:
        labels = {"pod-security.kubernetes.io/enforce": level} if level else {}
        return {"kind": "Namespace", "metadata": {"name": "a", "labels": labels}}

    for one, other in (("baseline", "privileged"), ("privileged", "baseline"), ("privileged", None)):
        found = laxer(namespace(one), namespace(other))["metadata"]["labels"]
        assert found == {"pod-security.kubernetes.io/enforce": "privileged"}
    assert laxer(namespace(None), namespace("baseline"))["metadata"]["labels"]
