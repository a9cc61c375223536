# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Plans of random fleets on a real control plane: what is composed, in a random order, until every pod has a node.

kube-scheduler and its allocation of devices are real. All clusters of a fleet are node pools of the one control plane.
Each order has nodes and a namespace of its own, so that the next one need not wait for the end of the one before.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core import api, compose, names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.binding import bind
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import (
    Cluster,
    Deployment,
    Placement,
    Pool,
    Replica,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.placement import schedule
from ansible_collections.modelplane.fleet.tests.kube import workers
from ansible_collections.modelplane.fleet.tests.kube.client import Object
from ansible_collections.modelplane.fleet.tests.kube.control_plane import ControlPlane
from ansible_collections.modelplane.fleet.tests.oracle.placement.generator import generate
from ansible_collections.modelplane.fleet.tests.oracle.placement.written import GPU, NIC, ROOT, Fleet, read
from ansible_collections.modelplane.fleet.tests.written import parsed

OTHER = "other.example.com"
_SAME_DRIVER = f'device.driver == "{GPU}"'
_IS_OTHER = f'"other" in device.attributes["{GPU}"]'
DEVICE_CLASSES: Mapping[str, tuple[str, ...]] = {
    GPU: (_SAME_DRIVER, f"!({_IS_OTHER})"),
    OTHER: (_SAME_DRIVER, _IS_OTHER),
    NIC: (f'device.driver == "{NIC}"',),
}
"""The DeviceClasses that generated fleets claim through. They have no device in common."""

STRANDING = (44, 45, 56, 72, 86, 104)
"""Numbers of plans of seed 1 that strand a pod unless it is limited to what is planned."""

_WITH_PODS = frozenset({"Deployment", "LeaderWorkerSet"})
_POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Trial:
    """A plan on nodes and in a namespace of its own. `loads`: the objects of each replica in the order of the plan.

    `may_strand`: pools of which the plan says that a pod may find no node.
    """

    name: str
    clusters: tuple[Cluster, ...]
    placements: tuple[Placement, ...]
    loads: tuple[tuple[Object, ...], ...]
    may_strand: tuple[str, ...] = ()

    @property
    def namespace(self) -> str:
        return names.workload_namespace(self.name)

    @property
    def pods(self) -> int:
        """Number of pods that claim devices."""
        return sum(map(_claiming, self.placements))


def _claiming(placement: Placement) -> int:
    return sum(
        engine.copies * member.pods
        for engine in placement.engines
        for member in engine.members
        if member.device_requests
    )


def trial(seed: int, number: int, name: str, *, bound: bool = True) -> Trial:
    """Return the plan for a random fleet, whose pools and namespace have names of this trial. Without `bound`, pods
    and claims are not limited to what is planned."""
    written = generate(seed, number)
    return plan(read({**written, "running": []}), name, bound=bound)


def plan(fleet: Fleet, name: str, *, bound: bool = True, running: Sequence[Replica] = ()) -> Trial:
    """Return the plan for a fleet on pools and in a namespace of its own, where replicas run of an earlier plan."""
    clusters = tuple(
        replace(one, pools=tuple(_renamed(pool, name, one.name) for pool in one.pools)) for one in fleet.clusters
    )
    deployments = [replace(one, namespace=name) for one in fleet.deployments]
    decided = schedule(deployments, clusters, running, fleet.options)
    if bound:
        decided = bind(decided, clusters, running, fleet.options)
    by_name = {one.name: one for one in deployments}
    loads = tuple(_objects(by_name[one.deployment], one) for one in decided.placements)
    return Trial(name, clusters, decided.placements, loads, tuple(map(str, decided.may_strand)))


def staged(fleet: Fleet, name: str, *, bound: bool = True) -> Trial:
    """Return the plan for a fleet where the replicas of the first deployments run."""
    first = plan(replace(fleet, deployments=fleet.deployments[: len(fleet.deployments) // 2]), name, bound=bound)
    both = plan(fleet, name, bound=bound, running=ran(first))
    return replace(both, may_strand=(*first.may_strand, *both.may_strand))


def ran(tried: Trial) -> list[Replica]:
    """Return the replicas of a plan as the next plan finds them."""
    return [
        Replica(f"{one.deployment}-{one.index}", tried.name, one.deployment, one.cluster, one.index, one.engines)
        for one in tried.placements
    ]


def _renamed(pool: Pool, name: str, cluster: str) -> Pool:
    return replace(pool, name=f"{name}-{cluster}-{pool.name}")


def _objects(deployment: Deployment, placement: Placement) -> tuple[Object, ...]:
    """Return what the pods of a replica with claims are made of."""
    replica = compose.model_replica(_manifest(deployment), placement.cluster, placement.index, placement.engines)
    return tuple(
        each
        for each in compose.replica_objects(replica)
        if each["kind"] in {"ResourceClaimTemplate", "LeaderWorkerSet"}
        or (each["kind"] == "Deployment" and "resourceClaims" in each["spec"]["template"]["spec"])
    )


def _manifest(deployment: Deployment) -> Any:
    """Return the ModelDeployment of which this is the scheduler's form."""
    # Requests large enough for kube-scheduler to see which node is the emptiest, as those of real engines are.
    resources = {"requests": {"cpu": "1"}}
    container = {"name": "engine", "image": "registry.example.com/engine:v1", "resources": resources}
    engines = [
        {
            "name": engine.name,
            "copies": engine.copies,
            "members": [
                {
                    "role": member.role,
                    **({"worker": {"nodes": member.pods}} if member.role == "Worker" else {}),
                    "template": {"spec": {"containers": [container]}},
                }
                for member in engine.members
            ],
        }
        for engine in deployment.engines
    ]
    spec = {"replicas": deployment.replicas, "template": {"spec": {"engines": engines}}}
    metadata = {"name": deployment.name, "namespace": deployment.namespace}
    return parsed({"metadata": metadata, "spec": spec}, api.ModelDeployment)


def prepare(plane: ControlPlane) -> None:
    """Give a control plane the DeviceClasses."""
    for name, expressions in DEVICE_CLASSES.items():
        plane.add_device_class(name, *expressions)


def forget(plane: ControlPlane) -> None:
    """Remove the DeviceClasses."""
    for name in DEVICE_CLASSES:
        plane.objects.delete("resource.k8s.io/v1", "DeviceClass", name)


def run(
    plane: ControlPlane, tried: Trial, chance: random.Random | None, *, patience: float, trusting: bool = False
) -> list[str]:
    """Apply a plan in an order of chance, without it in its own, each replica once the one before has its nodes.

    Return the pods without a node once none got one for `patience` seconds or, when `trusting`, once kube-scheduler
    says of each that no node has room for it.
    """
    plane.objects.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": tried.namespace}}])
    plane.objects.apply(list(_nodes(tried.clusters)))
    replicas = list(zip(tried.placements, tried.loads, strict=True))
    if chance:
        chance.shuffle(replicas)
        # Replicas that run have nodes before new ones are created.
        replicas.sort(key=lambda entry: entry[0].state == "new")
    applied = 0
    try:
        for placement, load in replicas:
            claims = [each for each in load if each["kind"] not in _WITH_PODS]
            workloads = [each for each in load if each["kind"] in _WITH_PODS]
            if chance:
                chance.shuffle(workloads)
            plane.objects.apply([*claims, *workloads])
            applied += _claiming(placement)
            if not chance:
                _unbound(plane, tried.namespace, applied, patience, trusting)
        return _unbound(plane, tried.namespace, applied, patience, trusting)
    finally:
        _remove(plane, tried)


def _unbound(plane: ControlPlane, namespace: str, pods: int, patience: float, trusting: bool) -> list[str]:
    since, before = time.monotonic(), -1
    while True:
        found = plane.objects.list("v1", "Pod", namespace, labels=f"{names.REPLICA_LABEL}")
        claiming = [pod for pod in found if pod["spec"].get("resourceClaims")]
        bound = sum("nodeName" in pod["spec"] for pod in claiming)
        if bound == pods == len(claiming):
            return []
        if bound != before:
            since, before = time.monotonic(), bound
        missing = pods - len(claiming)
        refused = sum(map(_is_refused, claiming))
        if time.monotonic() - since > patience or (trusting and not missing and bound + refused == pods):
            waiting = [
                f"{pod['metadata']['name']}: {_message(pod)}" for pod in claiming if "nodeName" not in pod["spec"]
            ]
            return [*waiting, *(f"missing-{number}" for number in range(missing))]
        time.sleep(_POLL_SECONDS)


def _is_refused(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions", [])
    return "nodeName" not in pod["spec"] and any(each.get("reason") == "Unschedulable" for each in conditions)


def _message(pod: Object) -> str:
    """Return what kube-scheduler says of a pod without a node."""
    conditions = pod.get("status", {}).get("conditions", [])
    return next((str(each.get("message", "")) for each in conditions if each["type"] == "PodScheduled"), "")


def _nodes(clusters: Iterable[Cluster]) -> Iterator[Object]:
    """Return the nodes of all pools, with what their drivers publish: devices first, so that they are there in time."""
    for pool in (pool for cluster in clusters for pool in cluster.pools):
        made = workers.nodes(pool.name, pool.nodes, labels={names.POOL_LABEL: pool.name}, taints=(), capacity={})
        for node in made:
            name = node["metadata"]["name"]
            for driver in sorted({device.driver for device in pool.devices if device.claim == "DRA"}):
                devices = list(_published(pool, driver))
                # kube-scheduler tries devices in the order of the ResourceSlice.
                random.Random(f"{name}/{driver}").shuffle(devices)
                yield from workers.slices(name, driver, devices, 1)
        yield from made


def _published(pool: Pool, driver: str) -> Iterator[Object]:
    for device in pool.devices:
        if device.claim != "DRA" or device.driver != driver:
            continue
        attributes: dict[str, Any] = {name: _attribute(value) for name, value in device.attributes.items()}
        # A node has one root where the class does not publish it: then all its devices go together.
        attributes.setdefault(ROOT, {"string": "only"})
        if device.device_class_name == OTHER:
            attributes["other"] = {"bool": True}
        capacity = {name: {"value": str(value)} for name, value in device.capacity.items()}
        for number in range(device.count):
            yield {"name": f"{device.name}-{number}", "attributes": attributes, "capacity": capacity}


def _attribute(value: object) -> Object:
    """Return the wire form of an attribute."""
    if isinstance(value, bool):
        return {"bool": value}
    if isinstance(value, int):
        return {"int": value}
    return {"string": value} if isinstance(value, str) else {"version": str(value)}


def _remove(plane: ControlPlane, tried: Trial) -> None:
    plane.objects.delete("v1", "Namespace", tried.namespace)
    for each in reversed(list(_nodes(tried.clusters))):
        plane.objects.delete(each["apiVersion"], each["kind"], each["metadata"]["name"])


def shapes(placements: Sequence[Placement]) -> str:
    """Return what is placed, a line for each replica."""
    return "\n".join(
        f"  {one.deployment} {one.index} on {one.cluster}: "
        + "; ".join(
            f"{engine.name} x{engine.copies} "
            + ", ".join(
                f"{member.role} {member.pods} pods of "
                + "+".join(f"{entry['count']} {entry['name']}" for entry in member.device_requests)
                + f" on {', '.join(pool for pool, __ in member.pods_by_pool)} {member.planned_nodes or ''}"
                for member in engine.members
            )
            for engine in one.engines
        )
        for one in placements
    )
