# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Bind the plans of random fleets by hand: `python -m …tests.oracle.binding --plans 100 --orders 3`."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from ansible_collections.modelplane.fleet.tests.kube.binaries import find
from ansible_collections.modelplane.fleet.tests.kube.control_plane import ControlPlane
from ansible_collections.modelplane.fleet.tests.oracle.binding import heterogeneous, trial


def main(arguments: Sequence[str] | None = None) -> int:
    """Print each order that strands a pod, and figures; 1 when there is one that the plan does not mention."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--plans", type=int, default=100)
    parser.add_argument("--orders", type=int, default=3)
    parser.add_argument("--patience", type=float, default=6.0, help="seconds without a pod that gets a node")
    parser.add_argument("--unbound", action="store_true", help="compose as if nothing was planned but pools")
    parser.add_argument("--heterogeneous", action="store_true", help="devices that lack attributes, large pods")
    given = parser.parse_args(arguments)
    plans = orders = pods = stranded = unbound = warned = silent = 0
    with tempfile.TemporaryDirectory() as folder, ControlPlane(find(), "binding", Path(folder)) as plane:
        trial.prepare(plane)
        for number in range(given.first, given.first + given.plans):
            before = orders
            worst = 0
            warns = is_silent = False
            for order in range(given.orders):
                name = f"t{number}-{order}"
                if given.heterogeneous:
                    # Every second order is that of a fleet that grew.
                    planned = trial.staged if order % 2 else trial.plan
                    tried = planned(heterogeneous.generate(given.seed, number), name, bound=not given.unbound)
                else:
                    tried = trial.trial(given.seed, number, name, bound=not given.unbound)
                if not tried.pods:
                    break
                since = time.monotonic()
                left = trial.run(plane, tried, random.Random(f"{given.seed}/{number}/{order}"), patience=given.patience)
                orders, pods = orders + 1, pods + tried.pods
                if left:
                    unbound += len(left)
                    print(
                        f"plan {number} order {order}: {len(left)} of {tried.pods} pods have no node: {left}",
                        flush=True,
                    )
                    if not worst:
                        print(trial.shapes(tried.placements))
                worst = max(worst, len(left))
                warns = warns or bool(tried.may_strand)
                is_silent = is_silent or (bool(left) and not tried.may_strand)
                print(f"plan {number} order {order}: {time.monotonic() - since:.1f} s", file=sys.stderr, flush=True)
            plans += orders > before
            stranded += worst > 0
            warned += warns
            silent += is_silent
    print(f"{plans} plans, {orders} orders, {pods} pods; {stranded} plans strand a pod, {unbound} pods unbound")
    print(f"{warned} plans say that a pod may find no node, {silent} strand one and do not say so")
    return int(silent > 0)


if __name__ == "__main__":
    sys.exit(main())
