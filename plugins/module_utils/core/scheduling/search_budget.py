# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A bound on the work of all searches of a plan together.

Whether pods can be packed onto nodes, and replicas onto clusters, takes exponential work in the worst case. Work is
counted in steps and never in time, so that the same fleet has the same answer on every machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

# A step is one choice that is tried: ten microseconds for a pod on a node, up to two hundred for an engine on a pool.
SEARCH_BUDGET = 1_000_000
# No search may take more than this share of what is left, so that one that is hopeless leaves enough for the rest.
_SHARE = 16


class Work:
    """The steps that a plan has left.

    `undecided` counts the searches that ended at the bound, with the answer "no" although nothing was proven.
    """

    def __init__(self, budget: int = SEARCH_BUDGET) -> None:
        self.budget = budget
        self.undecided = 0
        self._left = budget
        self._floor = 0

    @contextmanager
    def limited(self) -> Iterator[None]:
        """Limit what is spent within to a share of what is left. Within another such limit both hold."""
        before = self._floor
        self._floor = max(before, self._left - self._left // _SHARE)
        try:
            yield
        finally:
            self._floor = before

    def spend(self, steps: int = 1) -> bool:
        """Take steps; False when none are left, after which the search has to end."""
        if self._left - steps < self._floor:
            return False
        self._left -= steps
        return True
