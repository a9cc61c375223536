# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Bounds: sums of what engines need at least on a cluster, beside what its pools have left.

That several engines have no room beside each other takes a search to show, unless their sum shows it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .capacity import Ledger
from .matching import Vector

# Kinds of devices by the position of their pool: pods that may take nothing else compete for them.
Kinds = frozenset[tuple[int, int]]

# More unions are not compared: engines of a question rarely differ so much.
_MOST_UNIONS = 16


@dataclass(frozen=True)
class Need:
    """Pods of an engine, all copies together, and what each may take: positions of pools with vectors of devices."""

    pods: int
    options: tuple[tuple[int, Vector], ...]

    @property
    def kinds(self) -> Kinds:
        """Return the kinds of devices of which a pod may take some."""
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
    """Sums of what engines need, in an order, for the sets of kinds of devices that they compete for."""

    def __init__(self, engines: Sequence[Sequence[Need]], pools: int) -> None:
        """`pools`: number of pools of the cluster."""
        self._sums = []
        for kinds in _sets(list(dict.fromkeys(need.kinds for needs in engines for need in needs))):
            by_engine = [sum(need.least(kinds) for need in needs) for needs in engines]
            cumulative_needs = list(itertools.accumulate(reversed(by_engine), initial=0))[::-1]
            by_pool = [tuple(sorted(kind for pool_index, kind in kinds if pool_index == pool)) for pool in range(pools)]
            self._sums.append((by_pool, cumulative_needs))

    def exceed(self, position: int, ledgers: Sequence[Ledger]) -> bool:
        """Return whether the engines from a position on need more than the pools have left."""
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
