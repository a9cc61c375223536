# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Lower bounds for the needs of engines on a cluster, compared with the free capacity of its pools.

Only a search proves that several engines do not fit together, unless the sum of their needs exceeds the capacity.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .capacity import Ledger
from .matching import Vector

# Kinds of devices, with the position of their pool. Pods that can use only these kinds compete for them.
Kinds = frozenset[tuple[int, int]]

# Limit on compared unions. The engines of a query rarely have more combinations of kinds.
_MOST_UNIONS = 16


@dataclass(frozen=True)
class Need:
    """Pods of all copies of an engine, and the alternatives of each pod: pool positions with vectors of devices."""

    pods: int
    options: tuple[tuple[int, Vector], ...]

    @property
    def kinds(self) -> Kinds:
        """Return the kinds of devices that a pod can use."""
        return frozenset(
            (pool_index, kind) for pool_index, vector in self.options for kind, count in enumerate(vector) if count
        )

    def least(self, kinds: Kinds) -> int:
        """Return the minimum number of devices of these kinds that the pods use, on any pools."""
        return self.pods * min(
            (
                sum(count for kind, count in enumerate(vector) if (pool_index, kind) in kinds)
                for pool_index, vector in self.options
            ),
            default=0,
        )


class Totals:
    """Sums of the needs of ordered engines, for each set of device kinds that the engines compete for."""

    def __init__(self, engines: Sequence[Sequence[Need]], pools: int) -> None:
        """Compute the sums. `pools`: number of pools of the cluster."""
        self._sums = []
        for kinds in _sets(list(dict.fromkeys(need.kinds for needs in engines for need in needs))):
            by_engine = [sum(need.least(kinds) for need in needs) for needs in engines]
            cumulative_needs = list(itertools.accumulate(reversed(by_engine), initial=0))[::-1]
            by_pool = [tuple(sorted(kind for pool_index, kind in kinds if pool_index == pool)) for pool in range(pools)]
            self._sums.append((by_pool, cumulative_needs))

    def exceed(self, position: int, ledgers: Sequence[Ledger]) -> bool:
        """Return True if the engines from a position on need more devices than the pools have free."""
        return any(
            cumulative_needs[position]
            > sum(ledger.left(kinds) for ledger, kinds in zip(ledgers, by_pool, strict=True) if kinds)
            for by_pool, cumulative_needs in self._sums
        )


def _sets(competing: Sequence[Kinds]) -> Iterator[Kinds]:
    """Return the kinds of each need, the kinds at one position, and unions of needs. Pools of one class have the same
    kinds at one position."""
    by_position = [
        frozenset((pool_index, kind) for pool_index, kind in kinds if kind == position)
        for kinds in competing
        for position in sorted({kind for __, kind in kinds})
    ]
    unions = (
        frozenset[tuple[int, int]]().union(*some)
        for size in range(2, len(competing) + 1)
        for some in itertools.combinations(competing, size)
    )
    kind_sets = dict.fromkeys([*competing, *by_position])
    kind_sets.update(dict.fromkeys(itertools.islice(unions, _MOST_UNIONS)))
    return iter(kind_sets)
