# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Random small fleets on which packing is hard. A fleet depends on its seed and number alone, not on the scheduler."""

from __future__ import annotations

import copy
import random
from collections.abc import Mapping
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import Cluster, Deployment
from ansible_collections.modelplane.fleet.tests.oracle.placement import rules
from ansible_collections.modelplane.fleet.tests.oracle.placement.written import Written, read

# Sizes that leave gaps: 3+3+2 and 5+3 on eight, 3+1 and 2+2 on four.
SIZES = (1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 5, 5, 8)


def generate(seed: int, number: int) -> Written:
    """Return a fleet. Every second one has replicas that run already, and was edited since they were placed."""
    chance = random.Random(f"{seed}/{number}")
    fleet = _tight(chance) if chance.random() < 0.4 else _mixed(chance)
    if chance.random() < 0.5:
        return fleet
    fleet["running"] = running_replicas(chance, fleet)
    for _ in range(chance.choice((1, 1, 2))):
        chance.choice(_EDITS)(chance, fleet)
    return fleet


def _tight(chance: random.Random) -> Written:
    """Many replicas of one priority for about as many devices as there are; which go together decides."""
    clusters = [_cluster(chance, name) for name in "abc"[: chance.choice((1, 2, 2, 3))]]
    for cluster in clusters:
        cluster.pop("taints", None)
        cluster["pools"] = [_plain_pool(chance, f"p{place}") for place in range(chance.choice((1, 2)))]
    fleet: Written = {"accounting": chance.choice(("Devices",) * 4 + ("Nodes",)), "clusters": clusters}
    nodes = sum(pool["nodes"] for cluster in clusters for pool in cluster["pools"])
    room = nodes * (8 if fleet["accounting"] == "Devices" else 1)
    fleet["deployments"] = []
    while room > 0 and len(fleet["deployments"]) < 6:
        deployment = _tight_deployment(chance, f"d{len(fleet['deployments'])}")
        size = sum(
            engine["copies"] * member.get("pods", 1) * (member["requests"]["gpu"][0] if room > nodes else 1)
            for engine in deployment["engines"]
            for member in engine["members"]
        )
        room -= size * deployment["replicas"]
        fleet["deployments"].append(deployment)
    fleet["running"] = []
    return fleet


def _plain_pool(chance: random.Random, name: str) -> Written:
    devices: list[Written] = [{"name": "gpu", "count": chance.choice((4, 8, 8))}]
    if chance.random() < 0.3:
        devices.append({"name": "little", "count": chance.choice((2, 4)), "memory": "24Gi"})
        chance.shuffle(devices)
    return {"name": name, "nodes": chance.choice((1, 1, 2, 3)), "devices": devices, "fabric": "rail"}


def _tight_deployment(chance: random.Random, name: str) -> Written:
    requests = {"gpu": [chance.choice((1, 2, 2, 3, 3, 4, 5)), chance.choice(("gpu", "gpu", "large"))]}
    members: list[Written] = [{"role": "Standalone", "requests": requests}]
    if chance.random() < 0.4:
        leader = {**members[0], "role": "Leader"}
        members = [leader, {**copy.deepcopy(members[0]), "role": "Worker", "pods": chance.choice((1, 1, 2, 3))}]
    engines = [{"name": "one", "copies": chance.choice((1, 1, 1, 2)), "members": members}]
    if chance.random() < 0.2:
        engines.append(
            {"name": "two", "copies": 1, "members": [{"role": "Standalone", "requests": {"gpu": [2, "gpu"]}}]}
        )
    selector = {"selector": {"region": chance.choice(("east", "west"))}} if chance.random() < 0.4 else {}
    return {"name": name, "replicas": chance.choice((1, 2, 2, 3)), **selector, "engines": engines}


def _mixed(chance: random.Random) -> Written:
    """All that the rules know: kinds and classes of devices, constraints, fabrics, taints, priorities."""
    return {
        "accounting": chance.choice(("Devices", "Devices", "Devices", "Nodes")),
        "clusters": [_cluster(chance, name) for name in "abcd"[: chance.choice((2, 2, 3, 4))]],
        "deployments": [
            random_deployment(chance, f"d{place}") for place in range(chance.choice((1, 2, 3, 3, 4, 5, 6)))
        ],
        "running": [],
    }


def _cluster(chance: random.Random, name: str) -> Written:
    style = chance.choice(("plain", "plain", "kinds", "kinds", "classes", "roots", "unpublished"))
    cluster: Written = {"name": name, "labels": {"region": chance.choice(("east", "west"))}}
    cluster["pools"] = [_pool(chance, f"p{place}", style) for place in range(chance.choice((1, 1, 2, 2, 3)))]
    if chance.random() < 0.08:
        cluster["taints"] = {"busy": "NoSchedule"}
    return cluster


def _pool(chance: random.Random, name: str, style: str) -> Written:
    devices: list[Written] = [{"name": "gpu", "count": chance.choice((4, 8, 8, 8))}]
    if style == "plain" and chance.random() < 0.3:
        devices[0]["memory"] = "24Gi"
    if style == "kinds":
        devices.append({"name": "little", "count": chance.choice((1, 2, 4, 8)), "memory": "24Gi"})
        if chance.random() < 0.3:
            devices[1]["synthetic"] = True
        chance.shuffle(devices)
    if style == "classes":
        devices.append({"name": "other", "count": chance.choice((1, 2, 4)), "class": "other.example.com"})
        chance.shuffle(devices)
    if style == "roots":
        devices = [{"name": f"gpu-{root}", "count": chance.choice((2, 4, 4)), "root": root} for root in "rs"]
        devices.append({"name": "nic-s", "nic": True, "count": chance.choice((1, 2, 4)), "root": "s"})
    if style == "unpublished":
        devices.append({"name": "nic", "nic": True, "count": chance.choice((1, 2, 4))})
        if chance.random() < 0.3:
            devices[1]["synthetic"] = True
    pool: Written = {"name": name, "nodes": chance.choice((1, 2, 2, 3, 3, 4, 4)), "devices": devices}
    if chance.random() < 0.6:
        pool["fabric"] = chance.choice(("rail", "rail", "rail", "other", ""))
    return pool


def random_deployment(chance: random.Random, name: str) -> Written:
    deployment: Written = {
        "name": name,
        "replicas": chance.choice((1, 1, 2, 3, 4)),
        "priority": chance.choice((0, 0, 1)),
        "created": chance.choice(("2025", "2026")),
    }
    if chance.random() < 0.25:
        deployment["selector"] = {"region": chance.choice(("east", "west"))}
    if chance.random() < 0.15:
        deployment["tolerates"] = ["busy"]
    names = ("one", "two") if chance.random() < 0.25 else ("one",)
    deployment["engines"] = [_engine(chance, engine) for engine in names]
    return deployment


def _engine(chance: random.Random, name: str) -> Written:
    if chance.random() < 0.6:
        members = [_member(chance, "Standalone")]
    else:
        leader = _member(chance, "Leader") if chance.random() < 0.85 else {"role": "Leader", "requests": {}}
        same = {key: value for key, value in leader.items() if key != "role"}
        worker = {"role": "Worker", **same} if same["requests"] and chance.random() < 0.6 else _member(chance, "Worker")
        members = [leader, {**copy.deepcopy(worker), "pods": chance.choice((1, 1, 2, 2, 3, 4))}]
    return {"name": name, "copies": chance.choice((1, 1, 1, 1, 2, 3)), "members": members}


def _member(chance: random.Random, role: str) -> Written:
    requests: dict[str, list[Any]] = {
        "gpu": [chance.choice(SIZES), chance.choice(("gpu", "gpu", "gpu", "large", "large", "small"))]
    }
    member: Written = {"role": role, "requests": requests}
    more = chance.random()
    if more < 0.15:
        requests["nic"] = [chance.choice((1, 1, 2)), "nic"]
        requests["gpu"][0] = min(4, requests["gpu"][0])
        if chance.random() < 0.7:
            member["together"] = ["gpu", "nic"]
    elif more < 0.3:
        requests["more"] = [chance.choice((1, 1, 2, 3)), chance.choice(("gpu", "large", "small"))]
    elif more < 0.4:
        requests["fabric"] = [1, "fabric"]
    return member


def running_replicas(chance: random.Random, fleet: Written) -> list[Written]:
    """Put replicas at random where the rules let them be, each pod on a node that has room."""
    model = read(fleet)
    free = {
        (cluster.name, pool.name): [[device.count for device in pool.devices] for _ in range(pool.nodes)]
        for cluster in model.clusters
        for pool in cluster.pools
    }
    found = []
    for written, deployment in zip(fleet["deployments"], model.deployments, strict=True):
        for index in range(chance.randint(0, deployment.replicas)):
            clusters = [one for one in model.clusters if not rules.ineligible(deployment, one)]
            chance.shuffle(clusters)
            for cluster in clusters:
                engines = _placed(chance, deployment, written, cluster, free, fleet["accounting"])
                if engines:
                    place = {"deployment": deployment.name, "cluster": cluster.name, "index": index}
                    found.append({**place, "engines": engines})
                    break
    return found


def _placed(
    chance: random.Random,
    deployment: Deployment,
    written: Written,
    cluster: Cluster,
    free: dict[rules.PoolKey, list[list[int]]],
    accounting: str,
) -> list[Written] | None:
    before = copy.deepcopy(free)
    engines = []
    for engine, one in zip(deployment.engines, written["engines"], strict=True):
        layouts = list(rules.layouts_of(engine, cluster))
        chance.shuffle(layouts)
        # A single pool is what running replicas have where they can.
        layouts.sort(key=lambda layout: len(layout.pools))
        chosen = next((one for one in layouts[:6] if _takes(chance, one, engine.copies, free, accounting)), None)
        if chosen is None:
            free.clear()
            free.update(before)
            return None
        members = [
            _placed_member(member, dict(shares), classes)
            for member, (shares, classes) in zip(one["members"], chosen.members, strict=True)
        ]
        engines.append({"name": engine.name, "copies": engine.copies, "members": members})
    return engines


def _placed_member(member: Written, pods: Mapping[str, int], classes: rules.Classes) -> Written:
    claims = {
        name: [*asked, device_class]
        for (name, asked), device_class in zip(member["requests"].items(), classes, strict=True)
        if device_class
    }
    together = {"together": member["together"]} if "together" in member else {}
    return {"role": member["role"], "pods": pods, "claims": claims, **together}


def _takes(
    chance: random.Random,
    layout: rules.Layout,
    copies: int,
    free: dict[rules.PoolKey, list[list[int]]],
    accounting: str,
) -> bool:
    """Take the devices of all pods of an engine from random nodes; whether they are there."""
    before = {pool: copy.deepcopy(free[pool]) for pool, _ in layout.charged}
    for pool, pods in layout.charged:
        for _ in range(copies):
            order = list(range(len(free[pool])))
            chance.shuffle(order)
            for charges in [charges for charges, count in pods for _ in range(count)]:
                node = next((node for node in order if _take(free[pool][node], charges, accounting)), None)
                if node is None:
                    free.update(before)
                    return False
                order.remove(node)
    return True


def _take(node: list[int], charges: rules.Charges, accounting: str) -> bool:
    for vector in charges:
        if all(have >= need for have, need in zip(node, vector, strict=True)) and (
            accounting == "Devices" or any(node)
        ):
            taken = node if accounting == "Nodes" else vector
            node[:] = [have - need for have, need in zip(node, taken, strict=True)]
            return True
    return False


def _scale(chance: random.Random, fleet: Written) -> None:
    for deployment in fleet["deployments"]:
        if chance.random() < 0.5:
            deployment["replicas"] = chance.choice((0, 1, 2, 3, 4))


def _add_deployments(chance: random.Random, fleet: Written) -> None:
    for place in range(chance.choice((1, 2))):
        fleet["deployments"].append(random_deployment(chance, f"new{place}" + "x" * len(fleet["deployments"])))


def _remove_deployment(chance: random.Random, fleet: Written) -> None:
    if len(fleet["deployments"]) > 1:
        fleet["deployments"].remove(chance.choice(fleet["deployments"]))


def _shrink_pool(chance: random.Random, fleet: Written) -> None:
    pool = chance.choice(chance.choice(fleet["clusters"])["pools"])
    pool["nodes"] = max(1, pool["nodes"] - 1)


def _grow_pool(chance: random.Random, fleet: Written) -> None:
    pool = chance.choice(chance.choice(fleet["clusters"])["pools"])
    pool["nodes"] = min(4, pool["nodes"] + 1)


def _change_copies(chance: random.Random, fleet: Written) -> None:
    engine = chance.choice(chance.choice(fleet["deployments"])["engines"])
    engine["copies"] = chance.choice((1, 2, 3))


def _change_workers(chance: random.Random, fleet: Written) -> None:
    for deployment in fleet["deployments"]:
        for engine in deployment["engines"]:
            if len(engine["members"]) > 1 and chance.random() < 0.5:
                engine["members"][1]["pods"] = chance.choice((1, 2, 3, 4))


def _taint(chance: random.Random, fleet: Written) -> None:
    chance.choice(fleet["clusters"])["taints"] = {"busy": chance.choice(("NoSchedule", "NoExecute"))}


def _stop(chance: random.Random, fleet: Written) -> None:
    chance.choice(fleet["clusters"])[chance.choice(("ready", "gateway"))] = False


_EDITS = (
    _scale,
    _scale,
    _add_deployments,
    _add_deployments,
    _remove_deployment,
    _shrink_pool,
    _grow_pool,
    _change_copies,
    _change_workers,
    _taint,
    _stop,
)
