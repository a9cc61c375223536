# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Random fleets with devices of several kinds, of which some lack attributes and capacities, and with pods that claim
up to 64 devices. In every fourth fleet, pods claim parts of large nodes. A fleet depends only on its seed and
number."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core.devices.device import Device
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import (
    Cluster,
    Constraint,
    Deployment,
    Engine,
    Member,
    Options,
    Pool,
    Request,
)
from ansible_collections.modelplane.fleet.tests.oracle.placement.written import GPU, NIC, ROOT, Fleet

MOST_DEVICES = 64
_ATTRIBUTES: dict[str, Sequence[dict[str, Any]]] = {
    "productName": ({"string": "H100"}, {"string": "H200"}, {"string": "A100"}),
    "sxm": ({"bool": True}, {"bool": False}),
    "slot": ({"int": 1}, {"int": 5}),
    "driverVersion": ({"version": "580.1.0"}, {"version": "570.0.0"}),
    "roce.example.com/zone": ({"string": "a"}, {"string": "b"}),
}
_MEMORY = ("24Gi", "80Gi", "141Gi")


def generate(seed: int, number: int) -> Fleet:
    """Return a fleet of one or two clusters, and deployments that mostly fit on it."""
    if number % 4 == 0:
        return large_nodes(seed, number)
    chance = random.Random(f"heterogeneous/{seed}/{number}")
    clusters = tuple(_cluster(chance, name) for name in "ab"[: chance.choice((1, 1, 2))])
    nodes = [pool.devices for cluster in clusters for pool in cluster.pools]
    deployments = tuple(
        _deployment(chance, f"d{index}", chance.choice(nodes)) for index in range(chance.choice((1, 2, 2, 3)))
    )
    return Fleet(clusters, deployments, (), Options("Devices"))


def large_nodes(seed: int, number: int) -> Fleet:
    """Return a pool of nodes with 24 to 64 devices, and deployments whose pods claim different parts of a node."""
    chance = random.Random(f"large/{seed}/{number}")
    gpus = _device(chance, "gpu", GPU, chance.choice((8, 16, 32, 64)))
    cards = [_device(chance, "nic", NIC, chance.choice((16, 32)))] * (gpus.count < 32)
    devices = chance.sample([gpus, *cards], 1 + len(cards))
    pool = Pool("p", chance.choice((1, 2, 2, 3, 4)), tuple(devices))
    deployments = []
    for index in range(chance.choice((2, 3, 4))):
        parts = [chance.choice((1, 2, 4, 5, 6, 7, 8, 8)) for _ in devices]
        requests = [
            Request(device.name, device.count * part // 8, (f'device.driver == "{device.driver}"',))
            for device, part in zip(devices, parts, strict=True)
            if device.count * part // 8
        ]
        if len(requests) > 1 and chance.random() < 0.3:
            requests = requests[:1]
        engine = Engine("one", (Member("Standalone", 1, tuple(requests), ()),), 1)
        deployments.append(Deployment("ml-team", f"d{index}", chance.choice((1, 1, 2, 3)), (engine,)))
    cluster = Cluster("a", (pool,), gateway_address="192.0.2.1")
    return Fleet((cluster,), tuple(deployments), (), Options(chance.choice(("Devices", "Devices", "Devices", "Nodes"))))


def _cluster(chance: random.Random, name: str) -> Cluster:
    pools = tuple(_pool(chance, f"p{number}") for number in range(chance.choice((1, 1, 2))))
    return Cluster(name, pools, gateway_address="192.0.2.1")


def _pool(chance: random.Random, name: str) -> Pool:
    gpus = [
        _device(chance, f"gpu-{kind}", GPU, chance.choice((1, 2, 4, 8))) for kind in range(chance.choice((1, 2, 3)))
    ]
    cards = [
        _device(chance, f"nic-{kind}", NIC, chance.choice((8, 16, 32, 32, 56)))
        for kind in range(chance.choice((0, 1, 1, 2)))
    ]
    devices = gpus + cards
    chance.shuffle(devices)
    return Pool(name, chance.choice((1, 2, 3)), tuple(devices))


def _device(chance: random.Random, name: str, driver: str, count: int) -> Device:
    attributes = {key: chance.choice(values) for key, values in _ATTRIBUTES.items() if chance.random() < 0.6}
    if chance.random() < 0.3:
        attributes[ROOT] = {"string": chance.choice("rs")}
    return Device.from_wire(
        {
            "name": name,
            "driver": driver,
            "deviceClassName": driver,
            "count": count,
            "attributes": attributes,
            "capacity": {"memory": {"value": chance.choice(_MEMORY)}} if chance.random() < 0.7 else {},
        }
    )


def _deployment(chance: random.Random, name: str, kinds: Sequence[Device]) -> Deployment:
    member = _member(chance, kinds)
    members: tuple[Member, ...] = (Member("Standalone", 1, *member),)
    if chance.random() < 0.3:
        members = (Member("Leader", 1, *member), Member("Worker", chance.choice((1, 2)), *member))
    copies = chance.choice((1, 1, 2))
    return Deployment("ml-team", name, chance.choice((1, 2)), (Engine("one", members, copies),))


def _member(chance: random.Random, kinds: Sequence[Device]) -> tuple[tuple[Request, ...], tuple[Constraint, ...]]:
    """Return requests for more than one claim in half of the cases, if there are so many devices."""
    requests: list[Request] = []
    left = MOST_DEVICES
    for kind in chance.sample(kinds, min(len(kinds), chance.choice((1, 2, 3, 3)))):
        parts = 2 if kind.count >= 8 and chance.random() < 0.3 else 1
        desired = chance.choice((1, max(1, kind.count // 2), kind.count, kind.count, kind.count, kind.count))
        count = min(left, desired) // parts
        for _ in range(parts):
            if count:
                requests.append(Request(f"r{len(requests)}", count, tuple(_selectors(chance, kind))))
                left -= count
    constraints: tuple[Constraint, ...] = ()
    if len(requests) > 1 and chance.random() < 0.3:
        constraints = (Constraint(ROOT, (requests[0].name, requests[1].name)),)
    return tuple(requests), constraints


def _selectors(chance: random.Random, kind: Device) -> Iterator[str]:
    """Yield selectors that mostly match a kind of device. They read attributes and capacities that others may lack."""
    conditions = [_condition(key, value) for key, value in kind.attributes.items() if key != ROOT]
    domain = f'device.capacity["{kind.driver}"]'
    conditions += [f'{domain}.memory.compareTo(quantity("{chance.choice(_MEMORY)}")) >= 0'] * bool(kind.capacity)
    chance.shuffle(conditions)
    driver = f'device.driver == "{kind.driver}"'
    form = chance.choice(("and", "split", "or", "not", "alone"))
    if not conditions:
        yield driver
    elif form == "and":
        yield " && ".join([driver, *conditions[:2]])
    elif form == "split":
        yield driver
        yield from conditions[:3]
    elif form == "or":
        yield f"{driver} && ({' || '.join(conditions[:2])})"
    elif form == "not":
        yield f"{driver} && !({conditions[0]}) || {conditions[-1]}"
    else:
        yield conditions[0]


def _condition(key: str, value: object) -> str:
    domain, name = key.split("/")
    read = f'device.attributes["{domain}"].{name}'
    if isinstance(value, bool):
        return read if value else f"!{read}"
    if isinstance(value, int):
        return f"{read} <= {value}"
    if isinstance(value, str):
        return f'{read} == "{value}"'
    return f'{read}.isGreaterThan(semver("560.0.0"))'
