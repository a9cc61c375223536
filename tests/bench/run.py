#!/usr/bin/env python3
# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""What scheduling costs: seconds and peak memory on synthetic fleets.

Each row runs in a process of its own. `load` is the time to read the fleet from documents; `first` is the first call of
the scheduler, which compiles every selector, `best` the best of three; `MiB` is the peak memory of the process.
"""

from __future__ import annotations

import itertools
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / ".collections"))

FLEETS = ((10, 2), (100, 3), (1_000, 5), (5_000, 5))
REPLICAS = (10, 100, 1_000)
OTHERS = (0, 1_000)
# (clusters, pools, deployments, replicas in all): a thousand deployments that all ask for something else.
MANY = ((100, 3, 1_000, 1_000), (1_000, 5, 1_000, 1_000), (1_000, 5, 2_000, 20_000))
KINDS = (
    ("L4", 1, "23034Mi"),
    ("L40S", 4, "46068Mi"),
    ("A100", 8, "81920Mi"),
    ("H100", 8, "81559Mi"),
    ("H200", 8, "143771Mi"),
)


def measure(clusters: int, pools: int, deployments: int, replicas: int, others: int) -> dict[str, float]:
    from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import (
        Deployment,
        Engine,
        Member,
        PlacedEngine,
        PlacedMember,
        Replica,
        Request,
    )
    from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.placement import schedule

    begin = time.perf_counter()
    fleet = [cluster(number, pools) for number in range(clusters)]
    loaded = time.perf_counter() - begin
    memory = 'device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("{}Mi")) >= 0'
    wanted = [
        Deployment(
            "ml-team",
            f"model-{number:04}",
            replicas // deployments,
            (
                Engine(
                    "main",
                    (Member("Standalone", 1, (Request("gpu", 1 + number % 4, (memory.format(40_000 + number),)),)),),
                    1 + number % 2,
                ),
            ),
        )
        for number in range(deployments)
    ]
    claim = {
        "name": "gpu",
        "deviceClassName": "gpu.nvidia.com",
        "count": 1,
        "selectors": [{"cel": memory.format(40_000)}],
    }
    running = [
        Replica(
            f"other-{number}",
            "others",
            "other",
            f"cluster-{number % clusters:05}",
            number // clusters,
            (PlacedEngine("main", (PlacedMember(f"pool-{1 % pools}", (claim,)),)),),
        )
        for number in range(others)
    ]
    seconds = []
    for _ in range(3):
        begin = time.perf_counter()
        decided = schedule(wanted, fleet, running)
        seconds.append(time.perf_counter() - begin)
    return {
        "load": loaded,
        "first": seconds[0],
        "best": min(seconds),
        "placed": len(decided.placements),
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def cluster(number: int, pools: int):
    """A cluster as it comes from its manifest, with its own copy of everything."""
    from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
    from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling import translate

    kinds = itertools.islice(itertools.cycle(KINDS), pools)
    document = {
        "apiVersion": "modelplane.ai/v1alpha1",
        "kind": "InferenceCluster",
        "metadata": {"name": f"cluster-{number:05}", "labels": {"modelplane.ai/region": f"region-{number % 20}"}},
        "spec": {"cluster": {"source": "EKS", "eks": {"region": "us-west-2"}}},
        "status": {
            "gateway": {"address": "192.0.2.1"},
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
            "gpuPools": [
                {
                    "name": f"pool-{position}",
                    "nodes": 4,
                    "devices": [
                        {
                            "name": "gpu",
                            "claim": "DRA",
                            "driver": "gpu.nvidia.com",
                            "deviceClassName": "gpu.nvidia.com",
                            "count": count,
                            "attributes": {"productName": {"string": name}},
                            "capacity": {"memory": {"value": memory}},
                        }
                    ],
                }
                for position, (name, count, memory) in enumerate(kinds)
            ],
        },
    }
    return translate.cluster(api.parse(document), {}, _CATALOGUE.setdefault("it", translate.DeviceCatalogue()))


_CATALOGUE: dict = {}


HEADING = ("clusters", "pools", "deployments", "replicas", "others", "placed", "load s", "first s", "best s", "MiB")
WIDTHS = (8, 5, 11, 8, 6, 6, 8, 8, 8, 6)


def row(*cells: object) -> str:
    return " ".join(f"{cell:>{width}}" for cell, width in zip(cells, WIDTHS, strict=True))


def main() -> int:
    print(row(*HEADING))
    rows = [
        (clusters, pools, 10, replicas, others)
        for (clusters, pools), replicas, others in itertools.product(FLEETS, REPLICAS, OTHERS)
    ]
    rows += [(*many, 0) for many in MANY]
    for arguments in rows:
        command = [sys.executable, __file__, *map(str, arguments)]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        times = (f"{found[name]:.3f}" for name in ("load", "first", "best"))
        counts = (f"{number:,}" for number in (*arguments, found["placed"]))
        print(row(*counts, *times, f"{found['memory']:.0f}"), flush=True)
    return 0


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure(*(int(word) for word in sys.argv[1:]))))
    else:
        sys.exit(main())
