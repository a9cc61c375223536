# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Measure what exact placement costs beside the sequential answer, on fleets that are nearly full.

    PYTHONPATH=.collections .venv/bin/python tests/bench/exactness.py

The sequential answer takes the first place that fits and never searches (`search_budget` 0). `first` is a plan of an
empty fleet, `second` the plan after it; both are CPU seconds. `room` is the devices of the fleet over those that all
replicas ask for together. `undecided` are the deployments that a search at its bound leaves pending.
"""

from __future__ import annotations

import random
import resource
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / ".collections"))

# (clusters, room in percent)
FLEETS = ((10, 200), (10, 100), (100, 200), (100, 100), (100, 60), (1_000, 200), (1_000, 100), (10_000, 200))
KINDS = ("24Gi", "40Gi", "80Gi", "141Gi", "192Gi")
REPLICAS = 10
WIDTHS = (8, 6, 11, 8, 8, 9, 9, 8, 9, 6)
HEADING = ("clusters", "room %", "answer", "placed", "pending", "undecided", "first s", "second s", "same", "MiB")


def fleet(clusters: int, room: int):
    """Return clusters of five pools of different sizes, as many deployments, and the replicas of all."""
    from ansible_collections.modelplane.fleet.plugins.module_utils.core.devices.device import Device
    from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import (
        Cluster,
        Deployment,
        Engine,
        Member,
        Pool,
        Request,
    )

    chance = random.Random(1)
    devices = [
        (
            Device.from_wire(
                {
                    "name": "gpu",
                    "driver": "gpu.nvidia.com",
                    "deviceClassName": "gpu.nvidia.com",
                    "count": 8,
                    "capacity": {"memory": {"value": memory}},
                }
            ),
        )
        for memory in KINDS
    ]
    deployments = []
    asked = 0
    for number in range(clusters):
        count = chance.choice((1, 2, 3, 4, 5, 8))
        memory = f'device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("{chance.choice(KINDS[:4])}")) >= 0'
        request = (Request("gpu", count, (memory,)),)
        gang = chance.random() < 0.2
        members = (
            (Member("Leader", 1, request), Member("Worker", 1, request))
            if gang
            else (Member("Standalone", 1, request),)
        )
        region = {"region": f"r{chance.randrange(7)}"} if chance.random() < 0.3 else {}
        deployments.append(
            Deployment(
                "ml", f"m{number:05}", REPLICAS, (Engine("main", members),), region, priority=chance.randrange(2)
            )
        )
        asked += count * len(members) * REPLICAS
    left = asked * room // (100 * 8)
    found = []
    for number in range(clusters):
        pools = []
        for position, kind in enumerate(devices):
            share = left / ((clusters - number) * len(devices) - position)
            nodes = min(left, int(share * 2 * chance.random() + chance.random()))
            left -= nodes
            pools.append(Pool(f"pool-{position}", nodes, kind))
        labels = {"region": f"r{number % 7}"}
        found.append(Cluster(f"c{number:05}", tuple(pools), labels, gateway_address="192.0.2.1"))
    return found, deployments


def measure(clusters: int, room: int, budget: int) -> list[object]:
    """Return the cells of one answer."""
    from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import Options, Replica
    from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.placement import schedule

    capacity, desired = fleet(clusters, room)
    options = Options(search_budget=budget)
    begin = time.process_time()
    first = schedule(desired, capacity, [], options)
    middle = time.process_time()
    running = [
        Replica(
            f"{each.deployment}-{each.cluster}-{each.index}",
            each.namespace,
            each.deployment,
            each.cluster,
            each.index,
            each.engines,
        )
        for each in first.placements
    ]
    again = time.process_time()
    second = schedule(desired, capacity, running, options)
    end = time.process_time()
    undecided = sum(any("bound" in each.reason for each in entry.refusals) for entry in first.pending)
    same = [each.engines for each in second.placements] == [each.engines for each in first.placements]
    return [
        f"{len(first.placements):,}",
        f"{sum(entry.count for entry in first.pending):,}",
        undecided,
        f"{middle - begin:.2f}",
        f"{end - again:.2f}",
        "yes" if same else "NO",
        f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f}",
    ]


def line(cells: list[object]) -> str:
    return " ".join(f"{cell:>{width}}" for cell, width in zip(cells, WIDTHS, strict=True))


def main() -> int:
    from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.search_budget import SEARCH_BUDGET

    print(line(list(HEADING)), flush=True)
    for clusters, room in FLEETS:
        for answer, budget in (("sequential", 0), ("exact", SEARCH_BUDGET)):
            command = [sys.executable, __file__, str(clusters), str(room), str(budget), answer]
            subprocess.run(command, check=True)
    return 0


if __name__ == "__main__":
    if len(sys.argv) > 1:
        clusters, room, budget = map(int, sys.argv[1:4])
        print(line([f"{clusters:,}", room, sys.argv[4], *measure(clusters, room, budget)]), flush=True)
    else:
        sys.exit(main())
