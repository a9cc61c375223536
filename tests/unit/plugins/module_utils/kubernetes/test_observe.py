# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Observations of clusters: requests, results, and what happens when something may not be seen."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.observation import (
    Observed,
    ObservedBudget,
    budget_wire,
    parse,
    wire,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.expected import (
    Expected,
    ExpectedCluster,
    expected,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.workloads import event_failures
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.connection import Connection
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.errors import (
    ApiError,
    Forbidden,
    Unreachable,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.observe import (
    ClusterSnapshot,
    observe_cluster,
    selectors,
    unreachable,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.observe_control import (
    ControlSnapshot,
    no_control,
    observe_control,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.observe_fleet import (
    FleetSnapshot,
    observe_fleet,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases import watch
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.status import sightings as seen
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.kubernetes.memory import MemoryClient

EAST = expected([seen.EKS, seen.CLASS]).cluster("east")
ENGINE = seen.available(seen.parts(seen.replica())["engine"])
PICKER = seen.available(seen.parts(seen.replica())["picker"])
ROUTE = seen.showing(seen.parts(seen.replica())["route"], parents=[])
LABELS = {"modelplane.ai/replica": "qwen3-8b-6e732e38e8", "modelplane.ai/namespace": "ml-team"}
DEVICE_CLASS = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu.nvidia.com"}}
DENIED = Forbidden("it is forbidden", cluster="east", action="list", code=403)
KEYED = seen.endpoint("https://api.example.com/v1", credential={"apiKey": {"secretRef": {"name": "key"}}})


def settled(value: Any) -> Any:
    """With all counts of a workload whose pods are all ready."""
    value = deepcopy(value)
    copies = value["spec"]["replicas"]
    value["status"].update(replicas=copies, readyReplicas=copies, updatedReplicas=copies)
    return value


def gateway(programmed: str = "True", listeners: Sequence[Any] = ()) -> Any:
    value = seen.edge_gateway("192.0.2.7", listeners=listeners)
    value["status"]["conditions"] = seen.conditions(Programmed=programmed)
    return value


def node(name: str, pool: str = "gpu-l4", ready: str = "True") -> dict[str, Any]:
    metadata = {"name": name, "labels": {"modelplane.ai/pool": pool} if pool else {}}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": metadata,
        "status": {"conditions": seen.conditions(Ready=ready)},
    }


def slices(node: str, count: int = 1) -> dict[str, Any]:
    spec = {
        "driver": "gpu.nvidia.com",
        "nodeName": node,
        "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": f"gpu-{index}"} for index in range(count)],
    }
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": node}, "spec": spec}


def pod(name: str, labels: dict[str, str] = LABELS, namespace: str = seen.WORKLOADS, **status: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace, "labels": labels, "creationTimestamp": "2020-01-01T00:00:00Z"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "status": status}


WHOLE = [settled(ENGINE), settled(PICKER), ROUTE, gateway(), node("n1"), slices("n1"), DEVICE_CLASS]


def test_a_cluster_where_all_is_well() -> None:
    client = MemoryClient(WHOLE)
    snapshot = observe_cluster(client, EAST)
    assert snapshot.entry["stack"] == {"ready": True, "message": ""}
    assert snapshot.entry["nodes"] == {"gpu-l4": 1}
    assert snapshot.entry["provisioned"] == {"ready": True, "message": ""}
    assert [value["kind"] for value in snapshot.entry["objects"]] == [
        "Deployment",
        "Deployment",
        "Gateway",
        "HTTPRoute",
    ]
    assert (snapshot.version, snapshot.gateway, snapshot.failing_pods, snapshot.warnings) == (
        "1.36",
        "192.0.2.7",
        [],
        [],
    )
    assert [(entry["name"], entry["ready"]) for entry in snapshot.workloads] == [
        (ENGINE["metadata"]["name"], True),
        (PICKER["metadata"]["name"], True),
    ]
    assert parse({"clusters": {"east": snapshot.entry}}).clusters["east"].stack.ready
    assert not any(kind in ("Pod", "Event") for _, kind, *_ in client.asked)
    assert snapshot.requests == sum(client.requests.values()) == 12
    assert snapshot.summary == ""
    client.warnings = ("TLS is not verified",)
    assert observe_cluster(client, EAST).warnings == ["TLS is not verified"]


def test_foreign_objects_are_not_read() -> None:
    foreign = deepcopy(settled(ENGINE))
    del foreign["metadata"]["labels"]["app.kubernetes.io/managed-by"]
    snapshot = observe_cluster(MemoryClient([foreign, pod("p", {"app": "web"}, phase="Pending")]), EAST)
    assert snapshot.entry["objects"] == []


def test_pods_of_workloads_that_are_not_ready() -> None:
    conditions = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no node"}]
    pods = [
        pod("bad", phase="Pending", conditions=conditions),
        {**pod("good", phase="Running", conditions=seen.conditions(Ready="True")), "spec": {"nodeName": "n1"}},
        pod("other", {**LABELS, "modelplane.ai/replica": "another"}, phase="Pending", conditions=conditions),
    ]
    snapshot = observe_cluster(MemoryClient([seen.available(ENGINE, 0), settled(PICKER), *pods]), EAST)
    assert snapshot.failing_pods == [
        {"namespace": seen.WORKLOADS, "name": "bad", "reasons": ["Unschedulable: no node"]}
    ]
    assert snapshot.summary.endswith("; 1 of 2 workloads not ready")
    assert [value["metadata"]["name"] for value in snapshot.entry["objects"] if value["kind"] == "Pod"] == ["bad"]


def test_ready_pods_whose_engine_hung_are_kept() -> None:
    """Only the probe of engines that restart sets the message of a terminated container."""
    wire = seen.replica()
    wire["spec"]["engines"][0]["stall"] = {"action": "Restart"}
    verdict = "modelplane: the engine hangs: no response within 20 s\n"

    def restarted(name: str, message: str) -> dict[str, Any]:
        last = {"exitCode": 137, "message": message, "startedAt": "t", "finishedAt": "2026-01-01T10:00:00Z"}
        container = {"name": "engine", "ready": True, "restartCount": 1, "lastState": {"terminated": last}}
        ready = seen.conditions(Ready="True")
        return pod(name, phase="Running", conditions=ready, containerStatuses=[container])

    engine = settled(seen.available(seen.parts(wire)["engine"]))
    pods = [restarted("hung", verdict), restarted("crashed", "out of memory")]
    snapshot = observe_cluster(MemoryClient([engine, settled(PICKER), *pods]), EAST)
    assert snapshot.failing_pods == []
    (kept,) = (value for value in snapshot.entry["objects"] if value["kind"] == "Pod")
    assert kept["status"]["containerStatuses"] == [
        {
            "name": "engine",
            "ready": True,
            "restartCount": 1,
            "lastState": {"terminated": {"exitCode": 137, "message": verdict, "finishedAt": "2026-01-01T10:00:00Z"}},
        }
    ]


def test_ready_pods_that_mount_a_volume_are_kept_while_others_are_not_ready() -> None:
    volumes = [{"name": "weights", "persistentVolumeClaim": {"claimName": "qwen"}}, {"name": "shm", "emptyDir": {}}]
    old = {**pod("old", phase="Running", conditions=seen.conditions(Ready="True")), "spec": {"volumes": volumes}}
    snapshot = observe_cluster(MemoryClient([seen.available(ENGINE, 0), old]), EAST)
    (kept,) = (value for value in snapshot.entry["objects"] if value["kind"] == "Pod")
    assert kept["spec"] == {"volumes": volumes[:1]}
    assert snapshot.failing_pods == []


def test_events_report_what_nothing_else_does() -> None:
    silent = pod("silent", phase="Pending", conditions=seen.conditions(PodScheduled="True"))
    young = deepcopy(silent)
    young["metadata"].update(name="young", creationTimestamp="2999-01-01T00:00:00Z")
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "silent.1", "namespace": seen.WORKLOADS},
        "involvedObject": {"kind": "Pod", "name": "silent"},
        "type": "Warning",
        "reason": "FailedMount",
        "message": 'secret "ca" not found',
    }
    other = {**event, "involvedObject": {"kind": "Pod", "name": "young"}}
    client = MemoryClient([seen.available(ENGINE, 0), silent, young, event, other])
    snapshot = observe_cluster(client, EAST)
    reasons = ['FailedMount: secret "ca" not found']
    assert snapshot.failing_pods == [{"namespace": seen.WORKLOADS, "name": "silent", "reasons": reasons}]
    parse({"clusters": {"east": snapshot.entry}})
    refused = MemoryClient(client.objects, failures={"Event": DENIED})
    assert observe_cluster(refused, EAST).failing_pods == []


def test_events_of_few_pods_are_read() -> None:
    pods = [pod(f"p{index:02}", phase="Pending") for index in range(30)]
    client = MemoryClient([seen.available(ENGINE, 0), *pods])
    observe_cluster(client, EAST)
    assert sum(kind == "Event" for _, kind, *_ in client.asked) == 5


def test_jobs_that_download() -> None:
    claim, job = seen.cache_parts()
    labels = {"batch.kubernetes.io/job-name": job["metadata"]["name"]}
    killed = {"name": "hydrate", "state": {"terminated": {"reason": "OOMKilled", "exitCode": 137}}}
    running = [claim, seen.showing(job, active=1), pod("d", labels, phase="Failed", containerStatuses=[killed])]
    snapshot = observe_cluster(MemoryClient(running), EAST)
    assert [(entry["kind"], entry["ready"], entry["message"]) for entry in snapshot.workloads] == [
        ("Job", False, "it is not done yet")
    ]
    assert snapshot.failing_pods[0]["reasons"] == ["container hydrate: OOMKilled: it needs more memory than its limit"]
    lost = seen.showing(job, conditions=seen.conditions(Failed="True"))
    assert observe_cluster(MemoryClient([lost]), EAST).workloads[0]["message"] == "it failed: Failed is True"
    done = MemoryClient([claim, seen.showing(job, conditions=seen.conditions(Complete="True"))])
    assert [entry["ready"] for entry in observe_cluster(done, EAST).workloads] == [True]
    assert ("list", "Pod") not in [asked[:2] for asked in done.asked]


@pytest.mark.parametrize(
    ("objects", "unserved", "message"),
    [
        ([DEVICE_CLASS], (), "Gateway modelplane-system/inference-gateway is not there"),
        (
            [DEVICE_CLASS, gateway("False")],
            (),
            "Gateway modelplane-system/inference-gateway is not programmed yet: Programmed is False",
        ),
        ([gateway()], (), "DeviceClass gpu.nvidia.com is not there"),
        (
            [DEVICE_CLASS, gateway(listeners=[{"name": "raw", "protocol": "TCP", "port": 80}])],
            (),
            "Gateway modelplane-system/inference-gateway has no listener that endpoints can be reached by: add one for "
            "HTTP without a hostname, or one for HTTPS with a hostname that has no '*'",
        ),
        (
            [DEVICE_CLASS, gateway()],
            ("LeaderWorkerSet", "InferencePool"),
            "the cluster does not serve InferencePool (inference.networking.k8s.io/v1), "
            "LeaderWorkerSet (leaderworkerset.x-k8s.io/v1)",
        ),
        (
            [gateway()],
            ("ResourceSlice", "DeviceClass"),
            "the cluster does not serve ResourceSlice (resource.k8s.io/v1), DeviceClass (resource.k8s.io/v1); "
            "devices need Kubernetes 1.34 or newer, this is 1.36",
        ),
        (
            [],
            ("Gateway", "HTTPRoute"),
            "the cluster does not serve Gateway (gateway.networking.k8s.io/v1), "
            "HTTPRoute (gateway.networking.k8s.io/v1); DeviceClass gpu.nvidia.com is not there",
        ),
    ],
)
def test_what_the_stack_lacks(objects: list[Any], unserved: tuple[str, ...], message: str) -> None:
    snapshot = observe_cluster(MemoryClient(objects, unserved), EAST)
    assert snapshot.entry["stack"] == {"ready": False, "message": message}


def test_listeners_by_which_endpoints_are_reached_are_reported() -> None:
    listener = {"protocol": "HTTPS", "port": 443, "hostname": "east.example.com"}
    shown = gateway(listeners=[{**listener, "name": "https", "tls": {"certificateRefs": [{"name": "east"}]}}])
    snapshot = observe_cluster(MemoryClient([DEVICE_CLASS, shown]), EAST)
    assert snapshot.entry["stack"]["ready"] is True
    (found,) = (value for value in snapshot.entry["objects"] if value["kind"] == "Gateway")
    assert found["spec"]["listeners"] == [listener]


def test_devices_are_compared_on_ready_nodes_of_pools() -> None:
    nodes = [node("n1"), node("n2", ready="False"), node("n3", pool="cpu"), node("n4", pool="")]
    snapshot = observe_cluster(MemoryClient([*nodes, slices("n1", 0), gateway(), DEVICE_CLASS]), EAST)
    assert snapshot.entry["nodes"] == {"cpu": 1, "gpu-l4": 1}
    assert [(name, counts.ready, counts.total) for name, counts in snapshot.nodes.items()] == [
        ("cpu", 1, 1),
        ("gpu-l4", 1, 2),
    ]
    assert snapshot.warnings == [
        "pool gpu-l4, node n1: no ResourceSlice of driver gpu.nvidia.com: is the DRA driver running there?"
    ]


def test_unavailable_nodes_get_no_pods() -> None:
    nodes = [node("n1"), node("n2"), node("n3", ready="False"), node("n4", pool="cpu"), node("n5", pool="")]
    for each in (nodes[1], nodes[2], nodes[4]):
        each["spec"] = {"unschedulable": True}
    snapshot = observe_cluster(MemoryClient([*nodes, gateway(), DEVICE_CLASS]), EAST)
    assert snapshot.entry["nodes"] == {"cpu": 1, "gpu-l4": 2}
    assert "1 node cordoned: n2" in snapshot.summary
    observed = parse({"clusters": {"east": snapshot.entry}}).clusters["east"]
    assert (observed.schedulable("gpu-l4"), observed.schedulable("cpu"), observed.schedulable("no")) == (1, 1, 0)
    assert (observed.existing("gpu-l4"), observed.existing("no")) == (3, 0)
    unavailable = [
        {"name": "n1", "reason": "no devices of driver gpu.nvidia.com", "closed": False, "devices": {"gpu": 1}},
        {"name": "n2", "reason": "cordoned", "closed": True, "devices": {"gpu": 1}},
        {"name": "n3", "reason": "not Ready", "closed": True, "devices": {"gpu": 1}},
    ]
    assert wire(Observed(clusters={"east": observed}))["clusters"]["east"]["unavailable"] == {"gpu-l4": unavailable}


def test_the_devices_of_replicas_on_cordoned_nodes_are_unavailable_to_others() -> None:
    cordon = {**node("n1"), "spec": {"unschedulable": True}}
    engine = pod("engine")
    engine["spec"] = {"nodeName": "n1", "resourceClaims": [{"name": "devices"}]}
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "engine-devices", "namespace": seen.WORKLOADS},
        "status": {
            "allocation": {
                "devices": {
                    "results": [{"driver": "gpu.nvidia.com", "pool": "n1", "device": "gpu-0", "request": "gpu"}]
                }
            },
            "reservedFor": [{"resource": "pods", "name": "engine", "uid": "1"}],
        },
    }
    objects = [cordon, slices("n1"), gateway(), DEVICE_CLASS, claim]
    stranded = observe_cluster(MemoryClient([*objects, engine]), EAST).entry
    assert [(each["namespace"], each["replica"]) for each in stranded["stranded"]] == [
        (seen.WORKLOADS, LABELS["modelplane.ai/replica"])
    ]
    assert [each["devices"] for each in stranded["unavailable"]["gpu-l4"]] == [{"gpu": 1}]
    other = {
        **engine,
        "metadata": {**engine["metadata"], "name": "other"},
        "spec": {**engine["spec"], "nodeName": "n2"},
    }
    spread = observe_cluster(MemoryClient([*objects, engine, other, node("n2"), slices("n2")]), EAST).entry
    assert spread["stranded"] == stranded["stranded"]
    denied = MemoryClient([*objects, engine], failures={"ResourceClaim": DENIED})
    unread = observe_cluster(denied, EAST)
    assert [each["devices"] for each in unread.entry["unavailable"]["gpu-l4"]] == [{}]
    assert any("devices of replicas" in warning for warning in unread.warnings)


def test_why_a_volume_is_not_there() -> None:
    claim, _ = seen.cache_parts()
    waits = seen.showing(claim, phase="Pending")
    waits["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z"
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e", "namespace": seen.WORKLOADS},
        "involvedObject": {"kind": "PersistentVolumeClaim", "name": claim["metadata"]["name"]},
        "type": "Warning",
        "reason": "ProvisioningFailed",
        "message": 'storageclass.storage.k8s.io "rwx" not found',
    }
    (found,) = observe_cluster(MemoryClient([waits, event]), EAST).entry["objects"]
    assert list(map(str, event_failures(found))) == ['ProvisioningFailed: storageclass.storage.k8s.io "rwx" not found']
    bound = MemoryClient([{**waits, "status": {"phase": "Bound"}}, event])
    assert event_failures(observe_cluster(bound, EAST).entry["objects"][0]) == []
    assert not any(kind == "Event" for _, kind, *_ in bound.asked)


@pytest.mark.parametrize("kind", ["ResourceSlice", "DeviceClass"])
def test_what_may_be_missed_is_a_warning(kind: str) -> None:
    snapshot = observe_cluster(MemoryClient(WHOLE, failures={kind: DENIED}), EAST)
    assert snapshot.entry["stack"]["ready"]
    assert len(snapshot.warnings) == 1
    assert "list: it is forbidden" in snapshot.warnings[0]


@pytest.mark.parametrize("kind", ["Deployment", "LeaderWorkerSet", "Node", "Gateway", ""])
@pytest.mark.parametrize("error", [DENIED, Unreachable("connection refused", cluster="east")])
def test_half_an_observation_is_none(kind: str, error: ApiError) -> None:
    with pytest.raises(ApiError) as caught:
        observe_cluster(MemoryClient(WHOLE, failures={kind: error}), EAST)
    snapshot = unreachable(caught.value)
    assert snapshot.unreachable == str(error).removeprefix("cluster east: ")
    assert parse({"clusters": {"east": snapshot.entry}}).clusters["east"].unreachable


def test_many_names_are_asked_for_by_the_label_alone() -> None:
    assert selectors("l", []) == selectors("l", [""]) == []
    assert selectors("l", ["b", "a", "b"]) == ["l in (a,b)"]
    assert selectors("l", map(str, range(41))) == ["l"]


# The control cluster


def secret(name: str = "key", **data: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "ml-team"}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}


def traefik(up: int = 2) -> Any:
    labels = {"app.kubernetes.io/name": "traefik"}
    metadata = {"name": "mp-traefik", "namespace": "traefik-system", "labels": labels}
    value = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": {"replicas": 2}}
    return seen.available(value, up)


CONTROL = [seen.GATEWAY, KEYED, seen.CACHE, *seen.endpoint_parts(KEYED), *seen.control_gateway(), traefik()]


def test_the_control_cluster() -> None:
    client = MemoryClient([*CONTROL, secret(apiKey="aHVudGVyMg==", empty=""), secret("other", x="aHVudGVyMg==")])
    snapshot = observe_control(client, Expected())
    assert snapshot.entry["controller"] == {"ready": True, "message": ""}
    assert snapshot.entry["secrets"] == [{"namespace": "ml-team", "name": "key", "keys": ["apiKey"]}]
    kinds = {value["kind"] for value in snapshot.entry["objects"]}
    assert {"InferenceGateway", "ModelEndpoint", "ModelCache", "Gateway", "GatewayClass", "Service"} <= kinds
    assert "Secret" not in kinds
    assert "aHVudGVyMg" not in str(snapshot)
    observed = parse({"control": snapshot.entry})
    assert observed.secret_keys == {("ml-team", "key"): frozenset({"apiKey"})}
    assert sorted(asked[3] for asked in client.asked if asked[1] == "Secret") == ["hf-token", "key"]


def test_a_secret_that_may_not_be_read_is_taken_to_be_there() -> None:
    snapshot = observe_control(MemoryClient(CONTROL, failures={"Secret": DENIED}), expected([KEYED]))
    assert snapshot.entry["secrets"] == [
        {"namespace": "ml-team", "name": "hf-token", "keys": ["HF_TOKEN"]},
        {"namespace": "ml-team", "name": "key", "keys": ["apiKey"]},
    ]
    assert len(snapshot.warnings) == 2
    assert "Secret ml-team/key is taken to have apiKey: list: it is forbidden" in snapshot.warnings[1]


def test_a_control_cluster_without_custom_kinds() -> None:
    client = MemoryClient([], unserved=["ModelEndpoint", "Gateway", "HTTPRoute", "InferenceGateway"])
    snapshot = observe_control(client, expected([KEYED]))
    assert snapshot.entry == {
        "objects": [],
        "secrets": [],
        "controller": {"ready": False, "message": "there is no InferenceGateway"},
    }


def test_why_the_controller_is_not_ready() -> None:
    def message(*objects: Any) -> str:
        entry = observe_control(MemoryClient([seen.GATEWAY, *objects]), Expected()).entry
        assert entry["controller"]["ready"] is False
        return str(entry["controller"]["message"])

    assert message() == "traefik is not installed in namespace traefik-system"
    stuck = {"name": "traefik", "state": {"waiting": {"reason": "ErrImagePull"}}}
    labels = {"app.kubernetes.io/name": "traefik"}
    broken = pod("t", labels, "traefik-system", phase="Pending", containerStatuses=[stuck])
    assert message(traefik(0), broken) == (
        "Deployment mp-traefik: 0 of 2 available; pod t: container traefik: ErrImagePull"
    )
    refused = MemoryClient([seen.GATEWAY], failures={})
    refused.failures["Deployment"] = DENIED
    with pytest.raises(Forbidden):
        observe_control(refused, Expected())


NODE_PORT = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "traefik", "namespace": "traefik-system"},
    "spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": 30080}]},
}


def test_a_gateway_without_an_address_is_reached_at_ports_of_nodes() -> None:
    reached = node("n1")
    reached["status"] = {
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
        "conditions": [{"type": "Ready", "status": "True"}],
    }

    def observe_gateway(*objects: Any, **failures: Any) -> tuple[MemoryClient, Any]:
        client = MemoryClient([seen.GATEWAY, reached, *objects], failures=failures)
        return client, observe_control(client, Expected())

    client, snapshot = observe_gateway(NODE_PORT, *seen.control_gateway())
    assert parse({"control": snapshot.entry}).controller.addresses == ("10.0.0.1:30080",)
    # With an address of its own, or another Service, nodes are not read.
    for objects in ([NODE_PORT, *seen.control_gateway("True", "198.51.100.7")], seen.control_gateway(), [NODE_PORT]):
        client, snapshot = observe_gateway(*objects)
        assert "addresses" not in snapshot.entry["controller"]
        assert "Node" not in {asked[1] for asked in client.asked}
    _, snapshot = observe_gateway(NODE_PORT, *seen.control_gateway(), Node=DENIED)
    assert "addresses" not in snapshot.entry["controller"]
    assert "the address of the gateway was not read" in snapshot.warnings[0]


def test_pods_of_egress_proxies() -> None:
    proxy = next(value for value in seen.endpoint_parts(KEYED) if value["kind"] == "Deployment")
    labels = {"modelplane.ai/endpoint": "together"}
    stuck = {"name": "envoy", "state": {"waiting": {"reason": "ErrImagePull"}}}
    broken = pod("envoy", labels, "ml-team", phase="Pending", containerStatuses=[stuck])
    snapshot = observe_control(MemoryClient([seen.available(proxy, 0), broken]), Expected())
    assert [entry["name"] for entry in snapshot.failing_pods] == ["envoy"]
    assert "Pod" in {value["kind"] for value in snapshot.entry["objects"]}


def test_no_one_observes_the_control_cluster() -> None:
    observed = parse({"control": no_control().entry})
    assert observed.seen is None
    assert not observed.lacks("ml-team", "key", "apiKey"), "unknown"


def test_a_cluster_that_no_one_expects_anything_of() -> None:
    snapshot = observe_cluster(MemoryClient([gateway(), node("n1")]), ExpectedCluster("west"))
    assert snapshot.entry["stack"]["ready"]
    assert "provisioned" not in snapshot.entry


# Gateways in mode Model

SYSTEM = "modelplane-system"


def of_system(api_version: str, kind: str, name: str, **content: Any) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": SYSTEM}, **content}


def of_models(name: str) -> list[dict[str, Any]]:
    """The gateway of a cluster, and the certificate of its CA with what trust-manager could put beside it."""
    data = {"ca.crt": f"certificate of {name}", "trust.jks": "more"}
    return [
        of_system("gateway.networking.k8s.io/v1", "Gateway", name),
        of_system("v1", "ConfigMap", f"{name}-ca", data=data),
    ]


MODELS = [
    *WHOLE,
    *of_models("cluster-gateway"),
    of_models("inference-gateway")[1],
    {
        "apiVersion": "aigateway.envoyproxy.io/v1beta1",
        "kind": "AIGatewayRoute",
        "metadata": {
            "name": "chat",
            "namespace": "mp-a",
            "labels": {"app.kubernetes.io/managed-by": "modelplane.fleet"},
        },
        "spec": {"rules": []},
        "status": {"conditions": seen.conditions(Accepted="True")},
    },
]


def read_names(client: MemoryClient) -> list[str]:
    """Return kinds and names that were read beside those of every cluster."""
    usual = MemoryClient(WHOLE)
    observe_cluster(usual, EAST)
    left = list(client.asked)
    for each in usual.asked:
        left.remove(each)
    return [" ".join(filter(None, (each[1], each[3] if each[0] == "get" else ""))) for each in left]


def test_what_gateways_in_mode_model_know_of_a_cluster() -> None:
    client = MemoryClient(MODELS)
    entry = observe_cluster(client, replace(EAST, has_cluster_gateway=True)).entry
    assert read_names(client) == ["Gateway cluster-gateway", "ConfigMap cluster-gateway-ca"]
    objects = parse({"clusters": {"east": entry}}).clusters["east"].objects
    authority = objects.find("ConfigMap", SYSTEM, "cluster-gateway-ca")
    assert authority
    assert authority["data"] == {"ca.crt": "certificate of cluster-gateway"}
    assert objects.find("Gateway", SYSTEM, "cluster-gateway")
    assert not objects.find("ConfigMap", SYSTEM, "inference-gateway-ca")


def test_what_is_read_of_a_cluster_with_a_gateway_in_mode_model() -> None:
    client = MemoryClient(MODELS)
    entry = observe_cluster(client, replace(EAST, has_cluster_gateway=True, hosts_gateway=True)).entry
    names = ["Gateway cluster-gateway", "ConfigMap cluster-gateway-ca", "ConfigMap inference-gateway-ca"]
    policies = ["BackendTrafficPolicy", "ClientTrafficPolicy", "SecurityPolicy"]
    assert read_names(client) == [*names, "AIGatewayRoute", *policies]
    objects = parse({"clusters": {"east": entry}}).clusters["east"].objects
    route = objects.find("AIGatewayRoute", "mp-a", "chat")
    assert route
    assert route["status"] == {"conditions": seen.conditions(Accepted="True")}


def envoy_policy(kind: str, name: str, namespace: str, *, ours: bool) -> dict[str, Any]:
    labels = {"app.kubernetes.io/managed-by": "modelplane.fleet"} if ours else {"team": "a"}
    accepted = {"type": "Accepted", "status": "False", "reason": "Conflicted", "lastTransitionTime": "2026-01-01"}
    return {
        "apiVersion": "gateway.envoyproxy.io/v1alpha1",
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": namespace,
            "generation": 2,
            "labels": labels,
            "annotations": {"a": "b"},
        },
        "spec": {"targetRefs": [{"kind": "HTTPRoute", "name": "chat"}], "oidc": {"clientID": "hunter2"}},
        "status": {"ancestors": [{"ancestorRef": {"name": "inference-gateway"}, "conditions": [accepted]}]},
    }


HOSTING = replace(EAST, hosts_gateway=True)


def test_policies_of_others_are_seen_by_their_targets_alone() -> None:
    kind = "SecurityPolicy"
    places = {"own": ("mp-a", True), "foreign": ("mp-a", False), "elsewhere": ("team-a", False)}
    policies = [envoy_policy(kind, name, place, ours=ours) for name, (place, ours) in places.items()]
    entry = observe_cluster(MemoryClient([*MODELS, *policies]), HOSTING).entry
    found = {value["metadata"]["name"]: value for value in entry["objects"] if value["kind"] == kind}
    assert "hunter2" not in str(found)
    spec = {"targetRefs": [{"kind": "HTTPRoute", "name": "chat"}]}
    assert found.pop("foreign") == {
        "apiVersion": "gateway.envoyproxy.io/v1alpha1",
        "kind": kind,
        "metadata": {"name": "foreign", "namespace": "mp-a"},
        "spec": spec,
    }
    (own,) = found.values()
    assert (own["metadata"]["generation"], own["spec"]) == (2, spec)
    (ancestor,) = own["status"]["ancestors"]
    assert ancestor["conditions"] == [{"type": "Accepted", "status": "False", "reason": "Conflicted"}]


def test_policies_that_may_not_be_read_are_a_warning() -> None:
    failures = {"SecurityPolicy": Forbidden("may not list SecurityPolicies", cluster="east")}
    unread = MemoryClient(MODELS, unserved=["ClientTrafficPolicy"], failures=failures)
    snapshot = observe_cluster(unread, HOSTING)
    (warning,) = snapshot.warnings
    assert warning.startswith("it is not known whether gateways accept objects of kind SecurityPolicy: may not list")
    assert snapshot.unreachable == ""


def test_a_gateway_in_mode_model_is_no_part_of_the_serving_stack() -> None:
    without = [value for value in WHOLE if value["kind"] != "Gateway"]
    assert "Gateway" in observe_cluster(MemoryClient(without), EAST).entry["stack"]["message"]
    hosting = replace(EAST, has_cluster_gateway=True, hosts_gateway=True)
    # Nor is the AI gateway: what it lacks, objects say that are applied.
    entry = observe_cluster(MemoryClient(without, unserved=["AIGatewayRoute"]), hosting).entry
    assert entry["stack"] == {"ready": True, "message": ""}


CALLERS = {
    "apiVersion": "modelplane.ai/v1alpha1",
    "kind": "InferenceGateway",
    "metadata": {"name": "eu"},
    "spec": {
        "clusterName": "east",
        "auth": {"method": "APIKey", "apiKey": {"secretSelector": {"matchLabels": {"keys": "eu", "a": "b"}}}},
    },
}


def keys_of(name: str, labels: dict[str, str], **data: str) -> dict[str, Any]:
    value = of_system("v1", "Secret", name, data=data)
    value["metadata"]["labels"] = labels
    return value


def test_which_callers_have_keys_and_not_the_keys() -> None:
    labels = {"keys": "eu", "a": "b", "team": "search"}
    secrets = [
        keys_of("team-b", labels, carol="aHVudGVyMg==", empty=""),
        keys_of("team-a", {**labels, "team": "ads"}, alice="aHVudGVyMg=="),
        keys_of("others", {"keys": "us", "a": "b"}, mallory="aHVudGVyMg=="),
    ]
    client = MemoryClient([*CONTROL, CALLERS, *secrets])
    snapshot = observe_control(client, expected([CALLERS]))
    assert [asked for asked in client.asked if asked[:2] == ("list", "Secret")] == [
        ("list", "Secret", SYSTEM, "a=b,keys=eu", "")
    ]
    observed = parse({"control": snapshot.entry})
    assert observed.secret_labels == {
        (SYSTEM, "team-a"): {"a": "b", "keys": "eu", "team": "ads"},
        (SYSTEM, "team-b"): labels,
    }
    assert observed.secret_keys[SYSTEM, "team-b"] == {"carol"}
    assert "aHVudGVyMg" not in str(snapshot)


def test_new_values_in_secrets_are_changes_that_show_no_value() -> None:
    keyed = {"metadata": {"name": "key", "namespace": "ml-team", "resourceVersion": "7"}, "data": {"apiKey": "aHVu"}}
    callers = keys_of("team-a", {"keys": "eu", "a": "b"}, alice="aHVudGVyMg==")
    callers["metadata"]["resourceVersion"] = "5"
    secrets = {"key": {"apiVersion": "v1", "kind": "Secret", **keyed}, "callers": callers}

    def part(**versions: str) -> Mapping[str, str]:
        there = deepcopy(secrets)
        for name, version in versions.items():
            there[name]["metadata"]["resourceVersion"] = version
        control = observe_control(MemoryClient([CALLERS, *there.values()]), expected([CALLERS, KEYED]))
        assert "aHVu" not in str(control)
        return watch.of_snapshot(FleetSnapshot(control, {}))

    before = part()
    assert watch.changed(before, part()) == []
    assert watch.changed(before, part(callers="6")) == ["control"]
    assert watch.changed(before, part(key="8")) == ["control"]
    assert "aHVu" not in str(before)


def test_requests_that_are_counted_are_no_change() -> None:
    def parts(use: int, resets: str, version: str = "v1.36.0") -> Mapping[str, str]:
        budget = ObservedBudget("ml-team", "team", "minute", {"acme": use}, resets)
        entry = {"nodes": {}, "version": version, "objects": [], "budgets": [budget_wire(budget)]}
        return watch.of_snapshot(FleetSnapshot(ControlSnapshot({"objects": []}), {"hub": ClusterSnapshot(entry)}))

    before = parts(10, "2026-01-01T00:01:00Z")
    assert watch.changed(before, parts(11, "2026-01-01T00:01:00Z")) == []
    assert watch.changed(before, parts(0, "2026-01-01T00:02:00Z")) == [], "a new window"
    assert watch.changed(before, parts(10, "2026-01-01T00:01:00Z", "v1.36.1")) == ["cluster hub"]


def test_callers_whose_keys_may_not_be_read_are_unknown_not_gone() -> None:
    snapshot = observe_control(MemoryClient([CALLERS], failures={"Secret": DENIED}), expected([CALLERS]))
    assert parse({"control": snapshot.entry}).unread.startswith("list: it is forbidden")
    assert "callers keep the rights that they have" in snapshot.warnings[0]


# Many clusters


@pytest.fixture
def silent() -> Connection:
    """A way to a server that is not there."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    return Connection("gone", server=f"https://127.0.0.1:{port}", token="hunter2", timeout=5, retries=0)


@pytest.mark.integration
def test_a_cluster_that_does_not_answer_is_seen_as_such(silent: Connection) -> None:
    unusable = Connection("odd", kubeconfig="/nowhere/kubeconfig")
    given = {"others": ["west", "gone", "lab"], "declared": ["lab", "gone"]}
    snapshot = observe_fleet([silent, unusable], None, [KEYED], **given, write_cache=False)
    assert list(snapshot.clusters) == ["gone", "odd"]
    assert silent.server in snapshot.clusters["gone"].unreachable
    assert "/nowhere/kubeconfig" in snapshot.clusters["odd"].unreachable
    assert "hunter2" not in str(snapshot)
    observed = parse(snapshot.document())
    assert {name: bool(cluster.unreachable) for name, cluster in observed.clusters.items()} == {
        "gone": True,
        "lab": False,
        "odd": True,
        "west": True,
    }
    assert observed.clusters["lab"].declared
    assert observed.clusters["west"].unreachable == "not part of this run"
    assert observed.seen is None


@pytest.mark.integration
def test_nothing_is_seen_without_the_control_cluster(silent: Connection) -> None:
    with pytest.raises(Unreachable):
        observe_fleet([], silent, [], write_cache=False)
