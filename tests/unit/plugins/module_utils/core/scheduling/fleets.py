# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Small fleets for the scheduler's tests, written shortly, and random ones."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from ansible_collections.modelplane.fleet.plugins.module_utils.core.devices.device import Device
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling import adapters
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.fabric import fabrics_of
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import (
    Cluster,
    Deployment,
    Engine,
    Member,
    Options,
    PlacedEngine,
    Placement,
    Pool,
    Replica,
    Request,
    Schedule,
    Taint,
    Toleration,
)
from hypothesis import strategies as st

GPU = "gpu.nvidia.com"
ANY = f'device.driver == "{GPU}"'


EFA = 'device.driver == "fabric.modelplane.ai" && device.attributes["fabric.modelplane.ai"].type == "EFA"'


def at_least(memory: str) -> str:
    return f'device.capacity["{GPU}"].memory.compareTo(quantity("{memory}")) >= 0'


def gpu(memory: str = "80Gi", count: int = 1, name: str = "gpu", claim: str = "DRA", device_class: str = GPU) -> Device:
    return Device.from_wire(
        {
            "name": name,
            "driver": GPU,
            "deviceClassName": device_class,
            "claim": claim,
            "count": count,
            "capacity": {"memory": {"value": memory}},
        }
    )


def nic(count: int = 8) -> Device:
    return Device.from_wire(
        {
            "name": "nic",
            "driver": "nic.nvidia.com",
            "claim": "Synthetic",
            "count": count,
            "attributes": {"linkType": {"string": "infiniband"}},
        }
    )


def pool(name: str = "gpu", nodes: int = 1, *devices: Device) -> Pool:
    return Pool(name, nodes, devices or (gpu(),))


def fabric_device(kind: str, name: str = "") -> Device:
    wire = adapters.fabric_device({"fabric": {"type": kind, "name": name}})
    assert wire
    return Device.from_wire(wire)


def on_fabric(pool: Pool, name: str = "rail", kind: str = "EFA") -> Pool:
    """The pool with a fabric, as it comes from a manifest."""
    devices = (*pool.devices, fabric_device(kind, name))
    return Pool(pool.name, pool.nodes, devices, fabrics_of(devices))


def cluster(name: str, *pools: Pool, **more: object) -> Cluster:
    return Cluster(name, pools or (pool(),), gateway_address=str(more.pop("gateway_address", "192.0.2.1")), **more)  # type: ignore[arg-type]


def ask(count: int = 1, *selectors: str, name: str = "gpu") -> Request:
    return Request(name, count, selectors or (ANY,))


def standalone(*requests: Request, copies: int = 1, name: str = "main") -> Engine:
    return Engine(name, (Member("Standalone", 1, requests or (ask(),)),), copies)


def gang(followers: int, *requests: Request, copies: int = 1, name: str = "main") -> Engine:
    desired = requests or (ask(),)
    return Engine(name, (Member("Leader", 1, desired), Member("Worker", followers, desired)), copies)


def deployment(name: str, replicas: int, *engines: Engine, **more: object) -> Deployment:
    return Deployment(str(more.pop("namespace", "ml-team")), name, replicas, engines or (standalone(),), **more)  # type: ignore[arg-type]


def replicas_of(decided: Schedule | Iterable[Placement]) -> list[Replica]:
    """Return what the next run finds when the placements were carried out."""
    placements = decided.placements if isinstance(decided, Schedule) else decided
    return [
        Replica(
            f"{placement.deployment}-{placement.cluster}-{placement.index}",
            placement.namespace,
            placement.deployment,
            placement.cluster,
            placement.index,
            placement.engines,
        )
        for placement in placements
    ]


def where(decided: Schedule) -> list[tuple[str, str, int]]:
    return [(placement.deployment, placement.cluster, placement.index) for placement in decided.placements]


def pools_of(engines: Sequence[PlacedEngine]) -> list[list[str]]:
    return [[member.pool for member in engine.members] for engine in engines]


MEMORIES = ("24Gi", "40Gi", "80Gi")


@st.composite
def device_lists(draw: st.DrawFn) -> tuple[Device, ...]:
    first = gpu(draw(st.sampled_from(MEMORIES)), draw(st.sampled_from((0, 1, 2, 4, 4, 8, 8))))
    more = draw(
        st.sampled_from(
            (
                (),
                (nic(),),
                (gpu("80Gi", 2, name="big"),),
                (gpu("80Gi", 1, name="amd", device_class="other"),),
                (gpu("80Gi", 9, name="pretend", claim="Synthetic"),),
            )
        )
    )
    return (first, *more)


@st.composite
def fabric_of_pool(draw: st.DrawFn, pool: Pool) -> Pool:
    name = draw(st.sampled_from((None, "rail", "rail", "rail", "other", "")))
    return pool if name is None else on_fabric(pool, name)


@st.composite
def clusters(draw: st.DrawFn) -> list[Cluster]:
    found = []
    for number in range(draw(st.integers(1, 4))):
        pools = tuple(
            draw(fabric_of_pool(Pool(f"pool-{position}", draw(st.integers(0, 6)), draw(device_lists()))))
            for position in range(draw(st.integers(1, 3)))
        )
        taints = draw(st.sampled_from((*[()] * 6, (Taint("busy", "NoSchedule"),), (Taint("drain", "NoExecute"),))))
        found.append(
            Cluster(
                f"c{number}",
                pools,
                labels={"region": draw(st.sampled_from(("east", "west")))},
                taints=taints,
                gateway_address=draw(st.sampled_from((*["192.0.2.1"] * 8, ""))),
                not_ready=draw(st.sampled_from((*[""] * 8, "is not Ready"))),
            )
        )
    return found


@st.composite
def requests(draw: st.DrawFn, least: int = 1) -> tuple[Request, ...]:
    names = ("gpu", "second")[: draw(st.sampled_from((least, 1, 1, 2)))]
    desired = tuple(
        Request(name, draw(st.sampled_from((1, 1, 2, 3, 4))), (at_least(draw(st.sampled_from(MEMORIES))),))
        for name in names
    )
    return (*desired, Request("fabric", 1, (EFA,))) if draw(st.integers(0, 4)) == 0 else desired


@st.composite
def engines(draw: st.DrawFn) -> tuple[Engine, ...]:
    found = []
    for position in range(draw(st.integers(1, 2))):
        if draw(st.booleans()):
            members: tuple[Member, ...] = (Member("Standalone", 1, draw(requests())),)
        else:
            members = (
                Member("Leader", 1, draw(requests(least=0))),
                Member("Worker", draw(st.integers(1, 5)), draw(requests())),
            )
        found.append(Engine(f"e{position}", members, draw(st.sampled_from((1, 1, 2, 3)))))
    return tuple(found)


@st.composite
def deployments(draw: st.DrawFn, most: int = 4) -> list[Deployment]:
    return [
        Deployment(
            draw(st.sampled_from(("a", "b"))),
            f"d{number}",
            draw(st.integers(0, 5)),
            draw(engines()),
            cluster_selector=draw(st.sampled_from(({}, {}, {"region": "east"}))),
            tolerations=draw(st.sampled_from(((), (Toleration("busy", "Exists"),), (Toleration(operator="Exists"),)))),
            priority=draw(st.integers(-1, 1)),
        )
        for number in range(draw(st.integers(1, most)))
    ]


OPTIONS = [
    Options(accounting, search)  # type: ignore[arg-type]
    for accounting, search in itertools.product(("Devices", "Nodes"), ("Exact", "Greedy"))
]
