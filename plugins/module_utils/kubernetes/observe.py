# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Snapshots of inference clusters: entries of `clusters` in an observation (`core/observation.py`), and notes for
users.

A snapshot requires one LIST for each kind, by the label of the fleet, and reads single objects by name. Pods are listed
only if a workload has pods that are not ready, or restarts engines that hang. Events are listed only for pods without
another reason for their state. Nothing is written.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from ..core import names, observation
from ..core.applying.deletion import deletion, is_stuck
from ..core.applying.inventory import REPLICAS_NOTE, Key
from ..core.compose import constants
from ..core.compose.endpoint import gateway_url
from ..core.compose.engine_scripts import restarts_hanging_engine
from ..core.compose.model_gateway.parts import ENVOY_API
from ..core.compose.workload_cluster import WORKLOADS
from ..core.observation import UnavailableNode
from ..core.status import route_policies
from ..core.status.devices import DeviceKey, PublishedDevices, mismatches
from ..core.status.expected import ExpectedCluster
from ..core.status.projection import trim, with_events
from ..core.status.route import admitted_host, is_routed, why_not_admitted
from ..core.status.unavailable_nodes import (
    allocated,
    pod_key,
    replica_of,
    stranded_replicas,
    unavailable_nodes,
    with_lost_node,
)
from ..core.status.workloads import availability, engine_stalls, failures, unsettled
from ..core.text import count, cut, some
from ..core.wire import Object, entries, fields, first_address, is_true, label, text
from .client import Client
from .errors import ApiError, Forbidden, NotServed, Unexpected
from .inventory import RecordStore
from .labelled_objects import OURS
from .openshift import gateway_route, is_openshift

JOB_LABEL = "batch.kubernetes.io/job-name"

_ROUTE = (f"{constants.GATEWAY_GROUP}/v1", "HTTPRoute")
_GATEWAY = (f"{constants.GATEWAY_GROUP}/v1", "Gateway")
_AI_ROUTE = (f"{constants.AI_GROUP}/v1beta1", "AIGatewayRoute")
_GANG = ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet")
_DEVICE_CLASS = ("resource.k8s.io/v1", "DeviceClass")
_SLICE = ("resource.k8s.io/v1", "ResourceSlice")
_CLAIM = ("resource.k8s.io/v1", "ResourceClaim")
_TAINT_RULES = (("resource.k8s.io/v1", "DeviceTaintRule"), ("resource.k8s.io/v1beta2", "DeviceTaintRule"))
"""Kind of Kubernetes 1.37, and of 1.36 with its feature gate. Both have the same selector."""
_KINDS = (
    ("apps/v1", "Deployment"),
    _GANG,
    ("batch/v1", "Job"),
    ("v1", "PersistentVolumeClaim"),
    _ROUTE,
)
"""Kinds of objects on inference clusters with a status that runs read."""
_STACK = (_GATEWAY, _ROUTE, (f"{constants.POOL_GROUP}/v1", "InferencePool"), _GANG, _SLICE, _DEVICE_CLASS)
_MOST_VALUES = 40
"""Maximum number of names in a label selector. Longer URLs exceed the limit of some proxies (8 KiB)."""
_MOST_EVENTS = 5
"""Number of pods, and of volume claims, per cluster with events that runs read."""
_PATIENCE = {"Pending": 60.0, "Running": 900.0}
"""Usual maximum duration in seconds by phase, before events are read: Pending until containers or the volume exist,
Running until the engine responds. An engine must first load its weights."""


@dataclass(frozen=True)
class Nodes:
    """Node counts of a pool. `cordoned`: names of the cordoned Ready nodes."""

    ready: int
    total: int
    cordoned: tuple[str, ...] = ()


@dataclass(frozen=True)
class ClusterSnapshot:
    """Snapshot of a cluster."""

    entry: Mapping[str, Any]
    """Entry of the cluster in `clusters` of an observation."""
    version: str = ""
    nodes: Mapping[str, Nodes] = field(default_factory=dict)
    gateway: str = ""
    workloads: Sequence[Mapping[str, Any]] = ()
    failing_pods: Sequence[Mapping[str, Any]] = ()
    warnings: Sequence[str] = ()
    """Warnings for users."""
    requests: int = 0
    traffic_policies: Sequence[Object] | None = None
    """BackendTrafficPolicies of the fleet, None if they were not read."""

    @property
    def unreachable(self) -> str:
        """Return the reason for a missing response, or "" after a response."""
        return str(self.entry.get("unreachable") or "")

    @property
    def summary(self) -> str:
        """Return the problems of the cluster in one line, or "" without problems."""
        if self.unreachable:
            return self.unreachable
        unready = sum(not workload["ready"] for workload in self.workloads)
        missing = sum(nodes.total - nodes.ready for nodes in self.nodes.values())
        cordoned = [name for nodes in self.nodes.values() for name in nodes.cordoned]
        return "; ".join(
            problem
            for problem in (
                self.entry["stack"]["message"],
                f"{missing} of {sum(nodes.total for nodes in self.nodes.values())} nodes not ready" if missing else "",
                f"{count(len(cordoned), 'node')} cordoned: {some(cordoned)}" if cordoned else "",
                f"{unready} of {len(self.workloads)} workloads not ready" if unready else "",
            )
            if problem
        )


def unreachable(why: ApiError | str) -> ClusterSnapshot:
    """Return the snapshot of a cluster that cannot be read. Its known state is kept."""
    return ClusterSnapshot({"unreachable": reason(why) if isinstance(why, ApiError) else why})


def reason(error: ApiError) -> str:
    """Return the message without the name of the cluster, because the reader knows it."""
    return str(error).removeprefix(f"cluster {error.cluster}: ")


def observe_cluster(client: Client, cluster: ExpectedCluster, fleet: str = "") -> ClusterSnapshot:
    """Return the snapshot of a cluster, with the inventory of `fleet` unless it is empty. Raise ApiError if the
    cluster is unreachable or denies access to our objects, because missing objects would count as deleted."""
    version = ".".join(map(str, client.version()))
    inventory, unread_inventory = read_inventory(client, fleet, client.name)
    owners = inventory.others if inventory else {}
    live = [value for value in _composed(client) if Key.of(value) not in owners]
    pods = _pods(client, live)
    composed = _trimmed(client, live)
    deletable = [*composed, *listed_if_allowed(client, "v1", "Namespace")]
    nodes = client.list("v1", "Node", labels=constants.POOL_LABEL).items
    pods = [with_lost_node(pod, nodes) if is_stuck(pod, clock()) else pod for pod in pods]
    gateway = client.get(*_GATEWAY, constants.WORKLOAD_GATEWAY, constants.WORKLOAD_GATEWAY_NAMESPACE)
    route = gateway_route(client) if is_routed(gateway) else None
    gateway_objects = _of_model_gateways(client, cluster, gateway)
    policies, unread = _policies(client) if _hosts_gateway(cluster, gateway) else ({}, [])
    missing, warnings = _missing_from_stack(client, cluster, gateway, version)
    if is_routed(gateway) and not admitted_host(route):
        route_name = f"Route {constants.ENVOY_NAMESPACE}/{constants.WORKLOAD_GATEWAY}"
        missing.append(f"{route_name}: {why_not_admitted(route) if route else 'it is not there'}")
    published, unread_devices = _published_devices(client, cluster)
    unavailable = _unavailable(client, cluster, nodes, published)
    warnings += [*_mismatches(cluster, nodes, published), *unread_devices, *unavailable.warnings]
    warnings += [*unread, *unread_inventory]
    warnings += deletion_warnings(deletable)
    pools = {pool: _nodes(members) for pool, members in sorted(_by_pool(nodes).items())}
    entry: dict[str, Any] = {
        "unreachable": "",
        "stack": {"ready": not missing, "message": "; ".join(missing)},
        "nodes": {pool: counts.ready for pool, counts in pools.items()},
        "version": version,
        "unavailable": unavailable.nodes,
        **({"stranded": unavailable.stranded} if unavailable.stranded else {}),
        "objects": sorted(
            [
                *composed,
                *pods,
                *(trim(value) for value in (gateway, route, *gateway_objects) if value),
                *(route_policies.trim_policy(value) for values in policies.values() for value in values),
            ],
            key=_order,
        ),
    }
    secrets = secret_keys(client, ((reference.namespace, reference.name) for reference in cluster.secrets))
    if secrets:
        entry["secrets"] = [
            {"namespace": namespace, "name": name, "keys": sorted(keys)} for (namespace, name), keys in secrets.items()
        ]
    if inventory is not None:
        entry["applied"] = inventory.notes.get(REPLICAS_NOTE) or {}
    if is_openshift(client):
        entry["openshift"] = True
    if cluster.provisioned:
        # The fleet created the cluster, and its API server responds.
        entry["provisioned"] = {"ready": True, "message": ""}
    try:
        # An invalid observation would fail the build for all clusters; here it fails only this cluster.
        observation.parse({"clusters": {client.name: entry}})
    except observation.ObservationError as error:
        raise Unexpected(f"answers with what no API server says: {error}", cluster=client.name) from None
    return ClusterSnapshot(
        entry=entry,
        version=version,
        nodes=pools,
        gateway=admitted_host(route) if is_routed(gateway) else first_address(gateway),
        workloads=[workload_state(value) for value in composed if value["kind"] in (*WORKLOADS, "Job")],
        failing_pods=failing_pods(pods),
        warnings=[*client.warnings, *warnings],
        requests=sum(client.requests.values()),
        traffic_policies=policies.get(route_policies.TRAFFIC),
    )


def deletion_warnings(values: Iterable[Object]) -> list[str]:
    """Return a warning for each object that has been terminating for long."""
    return [f"{Key.of(value)} {deletion(value, clock())}" for value in values if is_stuck(value, clock())]


def read_inventory(client: Client, fleet: str, scope: str) -> tuple[RecordStore | None, list[str]]:
    """Return the inventory of a fleet, None if it was not read, and warnings."""
    if not fleet:
        return None, []
    store = RecordStore(client, fleet, scope)
    try:
        store.read()
    except Forbidden as error:
        return None, [f"the inventory of the fleet was not read: {reason(error)}"]
    return store, [store.error] if store.error else []


def listed(client: Client, api_version: str, kind: str, **selection: str) -> Sequence[Object]:
    """Return the objects of a kind with the fleet label (or another selection), or none for an unserved kind."""
    try:
        return client.list(api_version, kind, **(selection or {"labels": OURS})).items
    except NotServed:
        return ()


def listed_if_allowed(client: Client, api_version: str, kind: str) -> Sequence[Object]:
    """Return the objects of a kind with our label, none if access is denied."""
    try:
        return listed(client, api_version, kind)
    except Forbidden:
        return ()


def secret_keys(client: Client, places: Iterable[tuple[str, str]]) -> dict[tuple[str, str], frozenset[str]]:
    """Return the keys with a value of each Secret, by namespace and name. Missing Secrets have no keys.

    Unreadable Secrets are left out because RBAC of inference clusters grants access only in some namespaces."""
    keys_by_secret = {}
    for namespace, name in sorted(set(places)):
        with contextlib.suppress(Forbidden):
            secret = client.get("v1", "Secret", name, namespace)
            keys = (key for key, value in fields(secret, "data").items() if value) if secret else ()
            keys_by_secret[namespace, name] = frozenset(keys)
    return keys_by_secret


def workload_state(value: Object) -> dict[str, Any]:
    """Return a Deployment, LeaderWorkerSet, or Job as readable fields."""
    metadata = fields(value, "metadata")
    state = {
        "kind": value["kind"],
        "namespace": text(metadata, "namespace"),
        "name": text(metadata, "name"),
        "replica": text(metadata, "labels", names.REPLICA_LABEL),
    }
    if value["kind"] == "Job":
        done = is_true(value, "Complete")
        why = condition_message(value, "Failed", "True")
        message = f"it failed{why}" if is_true(value, "Failed") else "it is not done yet"
        return {**state, "ready": done, "message": "" if done else message}
    workload_availability = availability(value, value)
    return {**state, "ready": workload_availability.available, "message": workload_availability.message}


def failing_pods(pods: Iterable[Object]) -> list[dict[str, Any]]:
    """Return the pods with failures, as readable fields."""
    return [
        {"namespace": text(pod, "metadata", "namespace"), "name": text(pod, "metadata", "name"), "reasons": reasons}
        for pod in pods
        if (reasons := list(map(str, failures(pod))))
    ]


def troubled_pods(client: Client, selectors: Iterable[str], now: Callable[[], datetime]) -> list[dict[str, Any]]:
    """Return trimmed pods that match any of these label selectors, if they are not ready, mount a volume claim, or have
    an engine that hung. Some pods without another reason for their state have their events."""
    pods: dict[tuple[str, str], dict[str, Any]] = {}
    silent = []
    for selector in selectors:
        for pod in client.list("v1", "Pod", labels=selector).items:
            small, ready = trim(pod), is_true(pod, "Ready")
            # A pod with an old revision might be the last pod that mounts a volume.
            if ready and "volumes" not in fields(small, "spec") and not engine_stalls([small]):
                continue
            pods[_place(pod)] = small
            if not ready and not failures(small) and _waits(pod, now()):
                silent.append(_place(pod))
    explained = _with_events(client, {key: pods[key] for key in silent})
    return [{**pods, **explained}[key] for key in sorted(pods)]


def selectors(label: str, values: Iterable[str]) -> list[str]:
    """Return label selectors for objects with any of these values, or, for many values, all objects with the label."""
    desired = sorted(set(values) - {""})
    if not desired:
        return []
    return [f"{label} in ({','.join(desired)})" if len(desired) <= _MOST_VALUES else label]


def clock() -> datetime:
    return datetime.now(UTC)


def _with_events(client: Client, values: Mapping[tuple[str, str], Object]) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the first few of these (trimmed, by namespace and name) with their events."""
    objects_with_events = {}
    for namespace, name in sorted(values)[:_MOST_EVENTS]:
        value = values[namespace, name]
        desired = f"involvedObject.kind={value['kind']},involvedObject.name={name},type=Warning"
        try:
            events = client.list("v1", "Event", namespace=namespace, fields=desired).items
        except Forbidden:
            # Whoever may not read events still learns all the rest.
            break
        objects_with_events[namespace, name] = with_events(value, events)
    return objects_with_events


def _waits(value: Object, now: datetime) -> bool:
    """Return True for an object that has been in progress for longer than usual."""
    patience = _PATIENCE.get(text(value, "status", "phase"))
    if patience is None:
        return False
    try:
        created = datetime.fromisoformat(text(value, "metadata", "creationTimestamp"))
        return (now - created).total_seconds() > patience
    except (TypeError, ValueError):
        return False


def _composed(client: Client) -> list[Object]:
    """Return the live objects that the fleet composed."""
    return [value for api_version, kind in _KINDS for value in listed(client, api_version, kind)]


def _trimmed(client: Client, live: Iterable[Object]) -> list[dict[str, Any]]:
    """Return trimmed objects. A PersistentVolumeClaim that waits for a long time has its events."""
    trimmed, waiting = [], {}
    for value in live:
        trimmed.append(trim(value))
        if value["kind"] == "PersistentVolumeClaim" and _waits(value, clock()):
            waiting[_place(value)] = trimmed[-1]
    explained = _with_events(client, waiting)
    return [
        explained.get(_place(value), value) if value["kind"] == "PersistentVolumeClaim" else value for value in trimmed
    ]


def _of_model_gateways(client: Client, cluster: ExpectedCluster, gateway: Object | None) -> list[Object | None]:
    """Read the objects of a cluster that Model gateways depend on: the address of its gateway, CA certificates, and
    the routes of a hosted Model gateway."""
    namespace, gateway_objects = constants.SYSTEM_NAMESPACE, list[Object | None]()
    if cluster.has_cluster_gateway:
        gateway_objects.append(client.get(*_GATEWAY, constants.CLUSTER_GATEWAY, namespace))
        gateway_objects.append(client.get("v1", "ConfigMap", constants.CLUSTER_GATEWAY_CA, namespace))
    if _hosts_gateway(cluster, gateway):
        gateway_objects.append(client.get("v1", "ConfigMap", constants.MODEL_GATEWAY_CA, namespace))
        gateway_objects += listed(client, *_AI_ROUTE)
    return gateway_objects


def _hosts_gateway(cluster: ExpectedCluster, gateway: Object | None) -> bool:
    """Return True if a cluster has a Model gateway, including a gateway that was removed from the manifests."""
    return cluster.hosts_gateway or bool(label(gateway, names.GATEWAY_LABEL))


def _policies(client: Client) -> tuple[dict[str, list[Object]], list[str]]:
    """Return all policies in namespaces of the fleet by kind, and warnings about unreadable kinds."""
    policies_by_kind: dict[str, list[Object]] = {}
    unread = []
    for kind in route_policies.KINDS:
        try:
            values = client.list(ENVOY_API, kind).items
        except NotServed:
            continue
        except Forbidden as error:
            unread.append(f"it is not known whether gateways accept objects of kind {kind}: {reason(error)}")
            continue
        policies_by_kind[kind] = [
            value for value in values if names.is_fleet_namespace(text(value, "metadata", "namespace"))
        ]
    return policies_by_kind, unread


def _place(value: Object) -> tuple[str, str]:
    return text(value, "metadata", "namespace"), text(value, "metadata", "name")


def _pods(client: Client, live: Iterable[Object]) -> list[dict[str, Any]]:
    """Return the pods of workloads that have unready pods or restart engines that hang."""
    replicas, jobs = set(), set()
    for value in live:
        if value["kind"] == "Job" and unsettled(value):
            jobs.add(text(value, "metadata", "name"))
        elif value["kind"] in WORKLOADS and (unsettled(value) or _restarts_engines(value)):
            replicas.add(text(value, "metadata", "labels", names.REPLICA_LABEL))
    desired = [*selectors(names.REPLICA_LABEL, replicas), *selectors(JOB_LABEL, jobs)]
    return troubled_pods(client, desired, clock)


def _restarts_engines(workload: Object) -> bool:
    """Return True if the stall probe of a Deployment restarts engines. LeaderWorkerSet replaces such pods instead."""
    containers = entries(workload, "spec", "template", "spec", "containers")
    return any(restarts_hanging_engine(fields(container, "livenessProbe")) for container in containers)


def _by_pool(nodes: Iterable[Object]) -> dict[str, list[Object]]:
    """Return the nodes of each pool."""
    by_pool: dict[str, list[Object]] = {}
    for node in nodes:
        pool = text(node, "metadata", "labels", constants.POOL_LABEL)
        # A label may be empty, and a pool has a name.
        if pool:
            by_pool.setdefault(pool, []).append(node)
    return by_pool


def _nodes(nodes: Sequence[Object]) -> Nodes:
    ready = [node for node in nodes if is_true(node, "Ready")]
    # `kubectl cordon` sets the field, and a controller adds the taint.
    cordoned = (text(node, "metadata", "name") for node in ready if fields(node, "spec").get("unschedulable") is True)
    return Nodes(len(ready), len(nodes), tuple(sorted(cordoned)))


def _missing_from_stack(
    client: Client, cluster: ExpectedCluster, gateway: Object | None, version: str
) -> tuple[list[str], list[str]]:
    """Return the missing components of the serving stack, and the read errors."""
    warnings = []
    absent = [(api_version, kind) for api_version, kind in _STACK if not client.serves(api_version, kind)]
    missing = []
    if absent:
        kinds = ", ".join(f"{kind} ({api_version})" for api_version, kind in absent)
        missing.append(f"the cluster does not serve {kinds}")
        if _SLICE in absent:
            missing.append(f"devices need Kubernetes 1.34 or newer, this is {version}")
    if _DEVICE_CLASS not in absent:
        try:
            unknown = [name for name in cluster.device_classes if client.get(*_DEVICE_CLASS, name) is None]
            missing += [f"DeviceClass {name} is not there" for name in unknown]
        except Forbidden as error:
            warnings.append(f"DeviceClasses were not read: {reason(error)}")
    # A Model gateway replaces the gateway of the stack, and has its own status.
    if _GATEWAY not in absent and not cluster.hosts_gateway:
        name = f"Gateway {constants.WORKLOAD_GATEWAY_NAMESPACE}/{constants.WORKLOAD_GATEWAY}"
        if gateway is None:
            missing.append(f"{name} is not there")
        elif not is_true(gateway, "Programmed"):
            unmet = ("False", "Unknown")
            why = condition_message(gateway, "Accepted", *unmet) or condition_message(gateway, "Programmed", *unmet)
            missing.append(f"{name} is not programmed yet{why}")
        elif not gateway_url(entries(gateway, "spec", "listeners"), "any"):
            missing.append(
                f"{name} has no listener that endpoints can be reached by: add one for HTTP without a hostname, or one "
                "for HTTPS with a hostname that has no '*'"
            )
    return missing, warnings


def condition_message(value: Object, kind: str, *statuses: str) -> str:
    """Return `: ` with the message of a condition that has one of these statuses, or "" without one."""
    for entry in entries(value, "status", "conditions"):
        if entry.get("type") == kind and entry.get("status") in statuses and text(entry, "message"):
            return f": {cut(text(entry, 'message'))}"
    return ""


def taint_rules(client: Client) -> Sequence[Object]:
    """Return the DeviceTaintRules of a cluster, none if the cluster does not serve the kind. Raise Forbidden."""
    served = next((kind for kind in _TAINT_RULES if client.serves(*kind)), None)
    return client.list(*served).items if served else ()


def _published_devices(client: Client, cluster: ExpectedCluster) -> tuple[PublishedDevices | None, list[str]]:
    """Return the devices that the drivers publish, None if they were not read, and warnings."""
    if not client.serves(*_SLICE):
        return None, []
    try:
        slices = [
            value for driver in cluster.drivers for value in listed(client, *_SLICE, fields=f"spec.driver={driver}")
        ]
    except Forbidden as error:
        return None, [f"devices were not compared with the classes: {reason(error)}"]
    try:
        return PublishedDevices(slices, taint_rules(client) if slices else ()), []
    except Forbidden as error:
        return PublishedDevices(slices), [f"DeviceTaintRules were not read: {reason(error)}"]


def _mismatches(cluster: ExpectedCluster, nodes: Iterable[Object], published: PublishedDevices | None) -> list[str]:
    """Return warnings about nodes with other published devices than the classes of the pools promise."""
    if published is None:
        return []
    ready = {pool: [node for node in members if is_true(node, "Ready")] for pool, members in _by_pool(nodes).items()}
    return [str(mismatch) for mismatch in mismatches(cluster.promises, ready, published)]


@dataclass(frozen=True)
class _Unavailable:
    """Unavailable nodes of each pool, replicas on nodes that accept no new pods, and warnings, all in written form."""

    nodes: Mapping[str, Sequence[Mapping[str, Any]]]
    stranded: Sequence[Mapping[str, Any]] = ()
    warnings: Sequence[str] = ()


def _unavailable(
    client: Client, cluster: ExpectedCluster, nodes: Iterable[Object], published: PublishedDevices | None
) -> _Unavailable:
    """Return the unavailable nodes. Pods and ResourceClaims of replicas are read only if a node is unavailable."""
    pools = _by_pool(nodes)
    unavailable = unavailable_nodes(cluster.promises, pools, published, {})
    if not unavailable:
        return _Unavailable({})
    try:
        pods = {pod_key(pod): pod for pod in client.list("v1", "Pod", labels=names.REPLICA_LABEL).items}
        claims = listed(client, *_CLAIM, labels="") if published is not None else ()
    except Forbidden as error:
        unavailable = unavailable_nodes(cluster.promises, pools, published, None)
        warning = f"devices of replicas on unavailable nodes were not read: {reason(error)}"
        return _Unavailable(_written(unavailable), warnings=[warning])
    devices = allocated(claims, pods.keys())
    taints = published.taints if published is not None else {}
    closed = (node for members in unavailable.values() for node in members)
    stranded = stranded_replicas(closed, pods.values(), devices, taints)
    in_use: dict[DeviceKey, str] = {}
    of_stranded: dict[DeviceKey, str] = {}
    for key, pod in devices.items():
        claimed = of_stranded if replica_of(pods[pod]) in stranded else in_use
        claimed[key] = text(pods[pod], "spec", "nodeName")
    unavailable = unavailable_nodes(cluster.promises, pools, published, in_use, of_stranded)
    replica_entries = [
        {"namespace": namespace, "replica": replica, "reason": why}
        for (namespace, replica), why in sorted(stranded.items())
    ]
    return _Unavailable(_written(unavailable), replica_entries)


def _written(pools: Mapping[str, Iterable[UnavailableNode]]) -> dict[str, list[dict[str, Any]]]:
    return {pool: [node.wire for node in nodes] for pool, nodes in sorted(pools.items())}


def _order(value: Object) -> tuple[str, str, str]:
    return text(value, "kind"), text(value, "metadata", "namespace"), text(value, "metadata", "name")
