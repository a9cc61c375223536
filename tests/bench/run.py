# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Measure what scheduling and building cost: seconds and peak memory on synthetic fleets.

Each row runs in a process of its own. `load` is the time to read the fleet from documents; `first` is the first call of
the scheduler, which compiles every selector, `best` the best of three; `MiB` is the peak memory of the process. `gang`
is the number of nodes of each replica; where it is more than the 4 of a pool, the pools of a cluster share a fabric and
every replica is spread over several. The second table is of whole runs from manifests to a build folder (`builds.py`),
in seconds of CPU with and without the cache of the user, and as multiples of the cost of libyaml for the manifests and
the state. Its first row is of a gateway in mode Model with CallerPolicies. The next tables are of losses of clusters
(`survival.py`), in seconds of CPU, of exact placement beside the sequential answer (`exactness.py`), and of live
clusters (`live.py`). The last figures are of 1,000 plans whose pods a real kube-scheduler binds (`binding.py`).
"""

from __future__ import annotations

import itertools
import json
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / ".collections"))

FLEETS = ((10, 2), (100, 3), (1_000, 5), (5_000, 5))
REPLICAS = (10, 100, 1_000)
OTHERS = (0, 1_000)
# (clusters, pools, deployments, replicas in all): a thousand deployments that all ask for something else.
MANY = ((100, 3, 1_000, 1_000), (1_000, 5, 1_000, 1_000), (1_000, 5, 2_000, 20_000))
# (clusters, pools, deployments, replicas in all, nodes of a gang); of the last, half find no room.
GANGS = ((100, 3, 10, 100, 10), (1_000, 5, 10, 1_000, 10), (1_000, 5, 1_000, 1_000, 10), (100, 5, 100, 200, 15))
# (clusters, pools, deployments and as many services, replicas); the last is only planned. Before them is one whose
# gateway is in mode Model, with as many CallerPolicies.
POLICIES = (1_000, 5, 1_000, 1_000)
BUILDS = ((30, 5, 100, 100), (100, 5, 100, 1_000), (1_000, 5, 1_000, 10_000), (10_000, 5, 1_000, 10_000))
# (clusters, services of a deployment each that have to survive the loss of any cluster): of the second, GPUs are taken
# to the last one, so that no loss leaves room for what it displaces.
SURVIVALS = ((300, 2_000), (300, 2_133))
NODES = 4
KINDS = (
    ("L4", 1, "23034Mi"),
    ("L40S", 4, "46068Mi"),
    ("A100", 8, "81920Mi"),
    ("H100", 8, "81559Mi"),
    ("H200", 8, "143771Mi"),
)


def measure(clusters: int, pools: int, deployments: int, replicas: int, others: int, gang: int) -> dict[str, float]:
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
    fleet = [cluster(number, pools, joined=gang > 1) for number in range(clusters)]
    loaded = time.perf_counter() - begin
    memory = 'device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("{}Mi")) >= 0'

    def engine(number: int) -> Engine:
        if gang > 1:
            asked = (Request("gpu", 8, (memory.format(40_000 + number),)),)
            return Engine("main", (Member("Leader", 1, asked), Member("Worker", gang - 1, asked)))
        asked = (Request("gpu", 1 + number % 4, (memory.format(40_000 + number),)),)
        return Engine("main", (Member("Standalone", 1, asked),), 1 + number % 2)

    desired = [
        Deployment("ml-team", f"model-{number:04}", replicas // deployments, (engine(number),))
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
        decided = schedule(desired, fleet, running)
        seconds.append(time.perf_counter() - begin)
    return {
        "load": loaded,
        "first": seconds[0],
        "best": min(seconds),
        "placed": len(decided.placements),
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def cluster(number: int, pools: int, *, joined: bool):
    """A cluster as it comes from its manifest, with its own copy of everything. `joined`: all pools have the same
    devices and share a fabric."""
    from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
    from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling import adapters

    kinds = itertools.islice(itertools.cycle(KINDS[-1:] if joined else KINDS), pools)
    fabric = {"fabric": {"type": "InfiniBand", "name": "rail"}} if joined else {}
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
                    "nodes": NODES,
                    **fabric,
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
    return adapters.cluster(api.parse(document), {}, _CATALOGUE.setdefault("it", adapters.DeviceCatalogue()))


_CATALOGUE: dict = {}


HEADING = (
    "clusters",
    "pools",
    "deployments",
    "replicas",
    "others",
    "gang",
    "placed",
    "load s",
    "first s",
    "best s",
    "MiB",
)
WIDTHS = (8, 5, 11, 8, 6, 4, 6, 8, 8, 8, 6)
BUILD_HEADING = (
    *("clusters", "pools", "deployments", "replicas", "files", "first s", "MiB"),
    *("nothing s", "MiB", "uncached s", "MiB", "change s", "MiB", "uncached s", "MiB"),
    *("libyaml s", "times", "uncached", "folder MiB"),
)
BUILD_WIDTHS = (8, 5, 11, 8, 7, 7, 5, 9, 5, 10, 5, 8, 5, 10, 5, 9, 5, 8, 10)
SURVIVAL_HEADING = ("clusters", "services", "losses", "unmet", "plan s", "losses s", "MiB")
SURVIVAL_WIDTHS = (8, 8, 6, 6, 8, 8, 6)


def row(cells: Sequence[object], widths: Sequence[int]) -> str:
    return " ".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))


def measured(script: str, *arguments: int | str) -> dict[str, Any]:
    """Return what a script that runs by itself found."""
    command = [sys.executable, script, *map(str, arguments)]
    found: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found


def build_row(sizes: Sequence[int], *, is_plan: bool = False, policies: bool = False) -> list[str]:
    """Return the cells of a fleet that is built, or only planned."""
    options = [*(["--plan"] if is_plan else []), *(["--policies"] if policies else [])]
    found: dict[str, Any] = measured(str(Path(__file__).with_name("builds.py")), *sizes, *options)
    cells = [f"{number:,}" for number in (*sizes, found["files"])]
    for step in ("first", "nothing", "nothing_uncached", "change", "change_uncached"):
        cells += [
            f"{found[step][name]:.{digits}f}" if step in found else "" for name, digits in (("cpu", 1), ("memory", 0))
        ]
    if is_plan:
        return [*cells, "", "", "", ""]
    bare = found["libyaml"]["cpu"]
    times = (f"{found[step]['cpu'] / bare:.1f}" for step in ("nothing", "nothing_uncached"))
    return [*cells, f"{bare:.2f}", *times, f"{found['folder']:.0f}"]


def main() -> int:
    print(row(HEADING, WIDTHS))
    rows = [
        (clusters, pools, 10, replicas, others, 1)
        for (clusters, pools), replicas, others in itertools.product(FLEETS, REPLICAS, OTHERS)
    ]
    rows += [(*many, 0, 1) for many in MANY]
    rows += [(*spread, 0, gang) for *spread, gang in GANGS]
    for arguments in rows:
        found = measured(__file__, *arguments)
        times = (f"{found[name]:.3f}" for name in ("load", "first", "best"))
        counts = (f"{number:,}" for number in (*arguments, found["placed"]))
        print(row((*counts, *times, f"{found['memory']:.0f}"), WIDTHS), flush=True)
    print()
    print(row(BUILD_HEADING, BUILD_WIDTHS))
    print(row(build_row(POLICIES, policies=True), BUILD_WIDTHS), flush=True)
    for sizes in BUILDS:
        print(row(build_row(sizes, is_plan=sizes == BUILDS[-1]), BUILD_WIDTHS), flush=True)
    print()
    print(row(SURVIVAL_HEADING, SURVIVAL_WIDTHS))
    for clusters, deployments in SURVIVALS:
        found = measured(str(Path(__file__).with_name("survival.py")), clusters, deployments)
        counts = (f"{number:,}" for number in (clusters, deployments, found["losses"], found["unmet"]))
        print(
            row((*counts, f"{found['plan']:.1f}", f"{found['survey']:.1f}", f"{found['memory']:.0f}"), SURVIVAL_WIDTHS)
        )
    for script in ("exactness.py", "live.py", "binding.py"):
        print(flush=True)
        found = subprocess.run([sys.executable, str(Path(__file__).with_name(script))], check=False)
        if found.returncode:
            return found.returncode
    return 0


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure(*(int(word) for word in sys.argv[1:]))))
    else:
        sys.exit(main())
