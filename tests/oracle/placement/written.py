# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Small fleets as plain values: short to write, to print and to cut down, and what they are for the scheduler."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.core.devices.device import Device
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import (
    Cluster,
    Constraint,
    CostLimits,
    Deployment,
    Engine,
    Fabric,
    Member,
    Minimum,
    Options,
    PlacedEngine,
    PlacedMember,
    Pool,
    Replica,
    Request,
    Spread,
    Taint,
    Toleration,
)

Written = dict[str, Any]
"""A fleet of lists, mappings, texts and numbers; `tests` here have examples of each key."""

GPU, NIC, FABRIC = "gpu.nvidia.com", "dra.net", "fabric.modelplane.ai"
ROOT = "resource.kubernetes.io/pcieRoot"
NAMESPACE = "ml-team"
_MEMORY = f'device.capacity["{GPU}"].memory.compareTo(quantity("40Gi"))'
SELECTORS: Mapping[str, tuple[str, ...]] = {
    "gpu": (f'device.driver == "{GPU}"',),
    "large": (f'device.driver == "{GPU}"', f"{_MEMORY} >= 0"),
    "small": (f'device.driver == "{GPU}" && {_MEMORY} < 0',),
    "nic": (f'device.driver == "{NIC}"',),
    "fabric": (f'device.driver == "{FABRIC}" && device.attributes["{FABRIC}"].type == "EFA"',),
}
"""Selectors of the requests of a written fleet, by what they ask for."""


@dataclass(frozen=True)
class Fleet:
    """The arguments of `placement.schedule`."""

    clusters: tuple[Cluster, ...]
    deployments: tuple[Deployment, ...]
    running: tuple[Replica, ...]
    options: Options
    # The number of clusters whose loss the services of all deployments survive; 0 without such services.
    survive: int = 0


def read(fleet: Written) -> Fleet:
    return Fleet(
        tuple(map(_cluster, fleet["clusters"])),
        tuple(map(_deployment, fleet["deployments"])),
        tuple(map(_replica, fleet.get("running", ()))),
        Options(fleet.get("accounting", "Devices")),
        fleet.get("survive", 0),
    )


def text(fleet: Written) -> str:
    """The fleet as YAML, a line for each pool and engine."""
    return yaml.dump(fleet, Dumper=_Dumper, sort_keys=False, default_flow_style=False, width=1000)


class _Dumper(yaml.SafeDumper):
    def represent_mapping(self, tag: str, mapping: Any, flow_style: bool | None = None) -> yaml.MappingNode:
        in_lines = not {"clusters", "pools", "engines"} & set(mapping)
        return super().represent_mapping(tag, mapping, in_lines or flow_style)

    def ignore_aliases(self, data: Any) -> bool:
        del data
        return True


def _cluster(cluster: Written) -> Cluster:
    return Cluster(
        cluster["name"],
        tuple(pool(one) for one in cluster["pools"]),
        labels=cluster.get("labels", {}),
        taints=tuple(Taint(key, effect) for key, effect in cluster.get("taints", {}).items()),
        gateway_address="192.0.2.1" if cluster.get("gateway", True) else "",
        not_ready="" if cluster.get("ready", True) else "is not Ready",
        silent=cluster.get("silent", False),
    )


def pool(pool: Written) -> Pool:
    devices = [_device(json.dumps(one)) for one in pool["devices"]]
    fabric = pool.get("fabric")
    if fabric is not None:
        devices.append(fabric_device(fabric))
    return Pool(
        pool["name"],
        pool["nodes"],
        tuple(devices),
        (Fabric("EFA", fabric),) if fabric else (),
        Decimal(pool["price"]) if "price" in pool else None,
        pool.get("spot", False),
    )


def fabric_device(name: str) -> Device:
    """Return the device by which a pool publishes its fabric."""
    return _device(json.dumps({"name": "fabric", "count": 64, "fabric": name}))


@functools.cache
def _device(written: str) -> Device:
    device = json.loads(written)
    if "fabric" in device:
        driver, attributes = FABRIC, {"type": {"string": "EFA"}}
        if device["fabric"]:
            attributes["name"] = {"string": device["fabric"]}
    else:
        driver = NIC if device.get("nic") else GPU
        attributes = {ROOT: {"string": device["root"]}} if "root" in device else {}
    synthetic = driver == FABRIC or device.get("synthetic")
    return Device.from_wire(
        {
            "name": device["name"],
            "driver": driver,
            "claim": "Synthetic" if synthetic else "DRA",
            "deviceClassName": None if synthetic else device.get("class", driver),
            "count": device["count"],
            "attributes": attributes,
            "capacity": {"memory": {"value": device.get("memory", "80Gi")}} if driver == GPU else {},
        }
    )


def _deployment(deployment: Written) -> Deployment:
    return Deployment(
        NAMESPACE,
        deployment["name"],
        deployment["replicas"],
        tuple(map(_engine, deployment["engines"])),
        cluster_selector=deployment.get("selector", {}),
        tolerations=tuple(Toleration(key, "Exists") for key in deployment.get("tolerates", ())),
        priority=deployment.get("priority", 0),
        created=deployment.get("created", ""),
        hold="its cache is gone" if deployment.get("hold") else "",
        spread=tuple(Spread(key, skew, required) for key, skew, required in deployment.get("spread", ())),
        minimum=tuple(Minimum(least, key) for key, least in deployment.get("minimum", {}).items()),
        preferences=tuple(deployment.get("preferences", ())),
        returns=deployment.get("returns", False),
        preempts=deployment.get("preempts", False),
        cost=_cost(deployment["cost"]) if "cost" in deployment else None,
        surge=deployment.get("surge", 0),
    )


def _cost(cost: Written) -> CostLimits:
    ceiling = Decimal(cost["ceiling"]) if "ceiling" in cost else None
    return CostLimits(ceiling, "USD", most_spot=cost.get("spot"), least_on_demand=cost.get("on-demand", 0))


def _engine(engine: Written) -> Engine:
    return Engine(engine["name"], tuple(map(_member, engine["members"])), engine.get("copies", 1))


def _member(member: Written) -> Member:
    requests = member["requests"]
    return Member(
        member["role"],
        member.get("pods", 1),
        tuple(Request(name, count, SELECTORS[kind]) for name, (count, kind) in requests.items()),
        (Constraint(ROOT, tuple(member["together"])),) if "together" in member else (),
    )


def _replica(replica: Written) -> Replica:
    name = f"{replica['deployment']}-{replica['cluster']}-{replica['index']}"
    engines = tuple(
        PlacedEngine(engine["name"], tuple(map(_placed, engine["members"])), engine.get("copies", 1))
        for engine in replica["engines"]
    )
    return Replica(name, NAMESPACE, replica["deployment"], replica["cluster"], replica["index"], engines)


def _placed(member: Written) -> PlacedMember:
    shares = tuple(member["pods"].items())
    claims = member["claims"]
    together = [name for name in member.get("together", ()) if name in claims]
    return PlacedMember(
        shares[0][0],
        tuple(
            {
                "name": name,
                "deviceClassName": device_class,
                "count": count,
                "selectors": [{"cel": selector} for selector in SELECTORS[kind]],
            }
            for name, (count, kind, device_class) in claims.items()
        ),
        member["role"],
        sum(pods for _, pods in shares),
        shares if len(shares) > 1 else (),
        ({"requests": together, "matchAttribute": ROOT},) if together else (),
    )
