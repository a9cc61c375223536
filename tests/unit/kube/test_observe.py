# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Observations of a real API server, where the real scheduler and controllers say what is the matter."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api import KINDS
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.crd import crd
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.control import system_namespace
from ansible_collections.modelplane.fleet.plugins.module_utils.core.observation import parse
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.expected import Expected, expected
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.route_policies import conflict, contested
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.workloads import failures
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import identity
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.connection import Connection, connect
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.errors import Forbidden
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.observe import (
    ClusterSnapshot,
    observe_cluster,
    selectors,
    troubled_pods,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.observe_control import observe_control
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.observe_fleet import observe_fleet
from ansible_collections.modelplane.fleet.tests.kube import stages
from ansible_collections.modelplane.fleet.tests.kube.control_plane import (
    GATEWAY_API,
    INFERENCE_EXTENSION,
    ControlPlane,
)
from ansible_collections.modelplane.fleet.tests.kube.model_gateways import definitions
from ansible_collections.modelplane.fleet.tests.unit.kube.places import settle
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.status import sightings as seen
from ansible_collections.modelplane.fleet.tests.written import replica_objects, replica_state

ROLES = Path(__file__).parents[3] / "roles"
DRIVER = "gpu.nvidia.com"
EAST = expected([seen.EXISTING, seen.CLASS]).cluster("east")
NODE = "gpu-l4-0"
READS = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list"]}]
PLAIN = ["deployments", "leaderworkersets", "jobs", "persistentvolumeclaims", "pods", "nodes", "gateways", "httproutes"]


def reader(plane: ControlPlane, user: str, **rights: Any) -> Connection:
    return Connection("east", kubeconfig=str(plane.user_kubeconfig(user, **rights)), retries=1)


def observe_once(connection: Connection) -> ClusterSnapshot:
    with connect(connection, write_cache=False) as client:
        return observe_cluster(client, EAST)


def seen_when(
    plane: ControlPlane, connection: Connection, what: str, reported: Callable[[ClusterSnapshot], Any]
) -> ClusterSnapshot:
    """The first observation of which something is true."""

    def ask() -> ClusterSnapshot | None:
        found = observe_once(connection)
        return found if reported(found) else None

    answer: ClusterSnapshot = plane.wait_for(what, ask, seconds=300)
    return answer


def alone(found: ClusterSnapshot, reason: str) -> bool:
    """Return whether one pod fails, for this reason."""
    return len(found.failing_pods) == 1 and reason in str(found.failing_pods)


@pytest.fixture(scope="module")
def stack(cluster: ControlPlane) -> ControlPlane:
    """A cluster with all that replicas need but a driver that publishes devices."""
    settle(cluster)
    cluster.install_crds(GATEWAY_API, INFERENCE_EXTENSION)
    cluster.add_device_class(DRIVER, f'device.driver == "{DRIVER}"')
    cluster.add_nodes("gpu-l4", 1, labels={"modelplane.ai/pool": "gpu-l4"})
    gateway = deepcopy(seen.edge_gateway())
    del gateway["status"]
    listener = {"name": "http", "port": 80, "protocol": "HTTP"}
    gateway["spec"] = {"gatewayClassName": "any", "listeners": [listener]}
    cluster.apply([system_namespace(), gateway])
    return cluster


@pytest.fixture
def replica(stack: ControlPlane) -> Iterator[list[dict[str, Any]]]:
    """The objects of a replica as they are composed; they are gone afterwards."""
    desired = [dict(value) for value in replica_objects(seen.replica())]
    stack.create_namespace(seen.WORKLOADS)
    yield desired
    for value in reversed(desired):
        if value["kind"] != "Namespace":
            stack.objects.delete(value["apiVersion"], value["kind"], value["metadata"]["name"], seen.WORKLOADS)
    stack.wait_for("the pods are gone", lambda: not stack.objects.list("v1", "Pod", seen.WORKLOADS), seconds=300)


def test_from_no_device_to_a_replica_that_serves(stack: ControlPlane, replica: list[dict[str, Any]]) -> None:
    connection = reader(stack, "reader", rules=READS)
    stack.publish_devices(NODE, DRIVER, [])
    stack.apply(replica)
    since = stack.audit_position()
    # The scheduler may not know the node yet when it sees the first pods.
    stuck = seen_when(stack, connection, "the scheduler says no", lambda found: alone(found, "cannot allocate"))
    (engine,) = stuck.failing_pods
    assert engine["reasons"][0].startswith("Unschedulable: 0/")
    assert "cannot allocate all claims" in engine["reasons"][0]
    assert "no node has enough free devices of the kind that its ResourceClaim requests" in engine["reasons"][0]
    assert "preemption" not in engine["reasons"][0]
    assert stuck.warnings == [
        f"pool gpu-l4, node {NODE}: no ResourceSlice of driver {DRIVER}: is the DRA driver running there?"
    ]
    assert stuck.entry["nodes"] == {"gpu-l4": 1}
    state = replica_state(seen.replica(), replica, parse({"clusters": {"east": stuck.entry}}).clusters["east"])
    assert (state.accepted, state.ready) == (True, False)
    assert "no node has enough free devices" in state.message

    stack.publish_devices(NODE, DRIVER, [{"name": "gpu-0"}])
    done = seen_when(stack, connection, "all is ready", lambda found: all(entry["ready"] for entry in found.workloads))
    assert (done.failing_pods, done.warnings) == ([], [])
    assert [value["kind"] for value in done.entry["objects"]] == ["Deployment", "Deployment", "Gateway", "HTTPRoute"]
    state = replica_state(seen.replica(), replica, parse({"clusters": {"east": done.entry}}).clusters["east"])
    assert (state.accepted, state.ready, state.message) == (True, True, "")
    assert observe_once(connection).entry == done.entry
    assert stack.write_requests(since) == []


@pytest.mark.parametrize(
    ("fate", "reason"),
    [
        (stages.IMAGE_PULL, "ImagePullBackOff"),
        (stages.OUT_OF_MEMORY, "OOMKilled: it needs more memory than its limit"),
    ],
)
def test_pods_that_fail(stack: ControlPlane, replica: list[dict[str, Any]], fate: str, reason: str) -> None:
    stack.publish_devices(NODE, DRIVER, [{"name": "gpu-0"}])
    failing = deepcopy(replica)
    for value in failing:
        if value["kind"] == "Deployment" and not value["metadata"]["name"].endswith("-epp"):
            value["spec"]["template"]["metadata"]["annotations"] = {stages.FATE: fate}
    stack.apply(failing)
    connection = reader(stack, "reader", rules=READS)
    seen_when(stack, connection, reason, lambda found: alone(found, reason))


def test_events_are_found_by_their_object(stack: ControlPlane) -> None:
    stack.create_namespace("mp-silent")
    labels = {"modelplane.ai/replica": "silent"}
    container = {"name": "engine", "image": "example.com/engine:1"}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "silent", "namespace": "mp-silent", "labels": labels},
        "spec": {"schedulerName": "no-scheduler", "containers": [container]},
    }
    (made,) = stack.apply([pod])

    def event(name: str, about: str, message: str) -> dict[str, Any]:
        time = "2026-01-01T00:00:00Z"
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": "mp-silent"},
            "involvedObject": {"apiVersion": "v1", "kind": "Pod", "name": about, "namespace": "mp-silent"},
            "type": "Warning",
            "reason": "FailedMount",
            "message": message,
            "firstTimestamp": time,
            "lastTimestamp": time,
        }

    stack.apply([event("a", "silent", 'secret "ca" not found'), event("b", "other", "of another user")])
    created = datetime.fromisoformat(made["metadata"]["creationTimestamp"])

    def reported(seconds: int) -> list[str]:
        with connect(reader(stack, "reader", rules=READS), write_cache=False) as client:
            desired = selectors("modelplane.ai/replica", ["silent"])
            (found,) = troubled_pods(client, desired, lambda: created + timedelta(seconds=seconds))
        return list(map(str, failures(found)))

    assert reported(30) == []
    assert reported(90) == ['FailedMount: secret "ca" not found']


def test_a_stack_that_is_not_programmed(stack: ControlPlane) -> None:
    found = observe_once(reader(stack, "reader", rules=READS))
    assert found.entry["stack"]["ready"] is False
    assert found.entry["stack"]["message"].startswith(
        "Gateway modelplane-system/inference-gateway is not programmed yet"
    )


def test_policies_on_the_routes_of_a_gateway_in_mode_model(stack: ControlPlane, tmp_path: Path) -> None:
    for definition in definitions():
        (tmp_path / f"{definition['metadata']['name']}.json").write_text(json.dumps(definition))
    stack.install_crds(tmp_path)
    for namespace in ("mp-ml-team", "elsewhere"):
        stack.create_namespace(namespace)
    target = {"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "chat"}

    def policy(name: str, namespace: str, **labels: str) -> dict[str, Any]:
        return {
            "apiVersion": "gateway.envoyproxy.io/v1alpha1",
            "kind": "SecurityPolicy",
            "metadata": {"name": name, "namespace": namespace, "labels": labels},
            "spec": {"targetRefs": [target], "authorization": {"defaultAction": "Allow"}},
        }

    ours = policy("chat", "mp-ml-team", **{"app.kubernetes.io/managed-by": "modelplane.fleet"})
    stack.apply([ours, policy("theirs", "mp-ml-team"), policy("theirs", "elsewhere")])
    said = {
        "type": "Accepted",
        "status": "False",
        "reason": "Conflicted",
        "message": "Unable to target HTTPRoute",
        "lastTransitionTime": "2026-03-05T10:00:00Z",
        "observedGeneration": 1,
    }
    ancestor = {"ancestorRef": {"name": "inference-gateway"}, "controllerName": "a.b/c", "conditions": [said]}
    stack.objects.patch(
        "gateway.envoyproxy.io/v1alpha1",
        "SecurityPolicy",
        "chat",
        {"status": {"ancestors": [ancestor]}},
        "mp-ml-team",
        subresource="status",
    )
    rights = yaml.safe_load_all((ROLES / "control_plane/files/rbac/workload-cluster.yaml").read_text())
    granted = next(each["rules"] for each in rights if each["kind"] == "ClusterRole")
    with connect(reader(stack, "fleet", rules=granted), write_cache=False) as client:
        snapshot = observe_cluster(client, replace(EAST, hosts_gateway=True))
    objects = parse({"clusters": {"east": snapshot.entry}}).clusters["east"].objects
    assert [identity(value)[2:] for value in objects.of_kind("SecurityPolicy")] == [
        ("mp-ml-team", "chat"),
        ("mp-ml-team", "theirs"),
    ]
    route = {"metadata": {"name": "chat", "namespace": "mp-ml-team"}}
    assert conflict(contested(objects), [route]) == (
        "SecurityPolicy mp-ml-team/chat is not accepted: Conflicted: Unable to target HTTPRoute; SecurityPolicy "
        "mp-ml-team/theirs, which is not of the fleet, is attached to a route or gateway of it, and may take the place "
        "of keys, rights and budgets there: remove it"
    )


def test_a_user_who_may_not_see_all(stack: ControlPlane) -> None:
    allowed = [{"apiGroups": ["*"], "resources": PLAIN, "verbs": ["get", "list"]}]
    partly = observe_once(reader(stack, "half-blind", rules=allowed))
    assert len(partly.warnings) == 2
    assert "DeviceClasses were not read" in partly.warnings[0]
    assert "devices were not compared with the classes" in partly.warnings[1]
    blind = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]
    with pytest.raises(Forbidden):
        observe_once(reader(stack, "blind", rules=blind))
    seen_so = observe_fleet([reader(stack, "blind", rules=blind)], None, [], others=["west"], write_cache=False)
    assert "deployments" in seen_so.clusters["east"].unreachable
    observed = parse(seen_so.document())
    assert observed.clusters["west"].unreachable == "not part of this run"
    assert observed.clusters["east"].unreachable


def test_the_control_cluster(stack: ControlPlane) -> None:
    stack.apply([crd(kind) for kind in KINDS.values()])
    for kind in KINDS.values():
        stack.wait_for(f"{kind.KIND} is served", lambda kind=kind: stack.objects.knows(kind.group_version(), kind.KIND))
    stack.create_namespace("ml-team")
    credential = {"apiKey": {"secretRef": {"name": "key"}}}
    endpoint = seen.endpoint("https://api.example.com/v1", credential=credential)
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "key", "namespace": "ml-team"},
        "stringData": {"apiKey": "hunter2"},
    }
    stack.apply([seen.CLASS, seen.EXISTING, seen.GATEWAY, seen.CACHE, endpoint, secret])
    with connect(reader(stack, "reader", rules=READS), write_cache=False) as client:
        found = observe_control(client, Expected())
    assert found.entry["secrets"] == [{"namespace": "ml-team", "name": "key", "keys": ["apiKey"]}]
    assert found.entry["controller"] == {
        "ready": False,
        "message": "traefik is not installed in namespace traefik-system",
    }
    own = {value["kind"] for value in found.entry["objects"] if "modelplane.ai" in value["apiVersion"]}
    assert own == {"InferenceClass", "InferenceCluster", "InferenceGateway", "ModelCache", "ModelEndpoint"}
    assert "hunter2" not in str(found)
    assert "aHVudGVyMg" not in str(found)
    assert parse({"control": found.entry}).secret_keys == {("ml-team", "key"): frozenset({"apiKey"})}
    # What is on the control cluster says what to read on the others.
    stack.publish_devices(NODE, DRIVER, [])
    both = observe_fleet(
        [reader(stack, "reader", rules=READS)], reader(stack, "reader", rules=READS), [], write_cache=False
    )
    assert both.clusters["east"].warnings == [
        f"pool gpu-l4, node {NODE}: no ResourceSlice of driver {DRIVER}: is the DRA driver running there?"
    ]
    no_secrets = [{"apiGroups": ["*"], "resources": [*PLAIN, "*"], "verbs": ["list"]}]
    gets = [{"apiGroups": ["gateway.networking.k8s.io"], "resources": ["*"], "verbs": ["get"]}]
    with connect(reader(stack, "lister", rules=[*no_secrets, *gets]), write_cache=False) as client:
        refused = observe_control(client, Expected())
    assert {entry["name"] for entry in refused.entry["secrets"]} == {"hf-token", "key"}
    assert len(refused.warnings) == 2
