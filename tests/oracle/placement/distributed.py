# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Random small fleets with spread, minAvailable, preferences, return, preemption, surge replicas, limits on cost, and
services that survive losses of clusters."""

from __future__ import annotations

import random

from ansible_collections.modelplane.fleet.tests.oracle.placement.generator import (
    generate,
    random_deployment,
    running_replicas,
)
from ansible_collections.modelplane.fleet.tests.oracle.placement.written import Written

CLUSTER = "modelplane.ai/cluster"
_TERMS = ({"tier": "best"}, {"tier": "good"}, {"region": "east"}, {CLUSTER: "a"})


def generate_distributed(seed: int, number: int) -> Written:
    """Return a fleet of `generate` whose deployments also ask for a distribution of their replicas."""
    fleet = generate(seed, number)
    chance = random.Random(f"distributed {seed}/{number}")
    for cluster in fleet["clusters"]:
        _label(chance, cluster)
    for deployment in fleet["deployments"]:
        _distribute(chance, deployment)
    kind = chance.random()
    if kind < 0.7:
        _fill(chance, fleet)
    if kind < 0.2:
        for pool in [pool for cluster in fleet["clusters"] for pool in cluster["pools"]]:
            pool["nodes"] += chance.choice((0, 1))
    elif kind < 0.7:
        for place in range(chance.choice((1, 1, 2))):
            high = random_deployment(chance, f"high{place}")
            _distribute(chance, high)
            fleet["deployments"].append({**high, "priority": chance.choice((1, 3)), "preempts": True})
    if chance.random() < 0.15:
        chance.choice(fleet["deployments"]).setdefault("cost", {})
    if chance.random() < 0.05:
        fleet["survive"] = chance.choice((1, 1, 2))
        for deployment in fleet["deployments"]:
            if chance.random() < 0.3:
                deployment.setdefault("minimum", {})[""] = chance.choice((1, 1, 2))
    return fleet


def _label(chance: random.Random, cluster: Written) -> None:
    labels = cluster.setdefault("labels", {})
    labels["rack"] = chance.choice("12")
    if chance.random() < 0.7:
        labels["tier"] = chance.choice(("best", "good"))
    if chance.random() < 0.1:
        cluster["silent"] = True
    for pool in cluster["pools"]:
        if chance.random() < 0.9:
            pool["price"] = chance.choice(("1", "2", "2.5", "7"))
        if chance.random() < 0.2:
            pool["spot"] = True


def _fill(chance: random.Random, fleet: Written) -> None:
    """Have many replicas run, and as many desired."""
    for deployment in fleet["deployments"]:
        deployment["replicas"] = 5
    fleet["running"] = running_replicas(chance, fleet)
    for deployment in fleet["deployments"]:
        running = sum(one["deployment"] == deployment["name"] for one in fleet["running"])
        deployment["replicas"] = max(1, running + chance.choice((-1, 0, 0, 0, 0, 1)))
        deployment.pop("surge", None)


def _distribute(chance: random.Random, deployment: Written) -> None:
    deployment["priority"] = chance.choice((-1, 0, 0, 1, 2))
    if chance.random() < 0.5:
        deployment["preempts"] = True
    if chance.random() < 0.35:
        key = chance.choice(("region", "rack", CLUSTER))
        deployment["spread"] = [[key, chance.choice((1, 1, 2)), chance.random() < 0.75]]
        if chance.random() < 0.2:
            deployment["spread"].append(["tier", 1, True])
    if chance.random() < 0.2:
        deployment["minimum"] = {chance.choice(("region", "rack", CLUSTER)): chance.choice((1, 1, 2))}
    if chance.random() < 0.5:
        terms = chance.sample(_TERMS, chance.choice((1, 2)))
        deployment["preferences"] = terms
        deployment["returns"] = chance.random() < 0.8
    if chance.random() < 0.1:
        deployment["surge"] = 1
        deployment["replicas"] += 1
    if chance.random() < 0.1:
        deployment["cost"] = chance.choice(({}, {"ceiling": "3"}, {"ceiling": "9", "spot": 1}, {"on-demand": 1}))
    if chance.random() < 0.04:
        deployment["hold"] = True
