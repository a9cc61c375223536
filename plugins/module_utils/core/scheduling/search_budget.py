# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Limit on the work of all searches of a plan together.

The packing of pods onto nodes, and of replicas onto clusters, requires exponential work in the worst case. Work is
counted in steps and never in time, so that the same fleet has the same result on every machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager

Owner = tuple[str, str]
"""Namespace and name of a deployment, or of a replica without a deployment."""

# A step is one attempted choice: ten microseconds for a pod on a node, up to two hundred for an engine on a pool.
SEARCH_BUDGET = 1_000_000
# No search may use more than this share of the remaining steps, so that a hopeless search leaves enough steps for the
# other searches.
_SHARE = 16


class Work:
    """Remaining steps of a plan.

    undecided: number of searches that reached the limit and returned no result, although this proves nothing.
    """

    def __init__(self, budget: int = SEARCH_BUDGET) -> None:
        self.budget = budget
        self.undecided = 0
        self._common = budget
        self._reserved: dict[Owner | None, int] = {}
        self._owner: Owner | None = None
        # Remaining steps of the owner: its reserved steps and the common steps.
        self._left = budget
        self._floor = 0

    def reserve(self, owners: Collection[Owner]) -> None:
        """Divide half of the remaining steps equally among namespaces, and then among their deployments, so that the
        searches of one deployment do not exhaust the steps of the others."""
        self.owner = None
        namespaces = Counter(namespace for namespace, __ in owners)
        half = self._common // 2
        self._reserved = {owner: half // len(namespaces) // namespaces[owner[0]] for owner in owners}
        self._common -= sum(self._reserved.values())
        self._left = self._common

    @property
    def owner(self) -> Owner | None:
        """Return the deployment of the current searches."""
        return self._owner

    @owner.setter
    def owner(self, owner: Owner | None) -> None:
        reserved = self._reserved.get(self._owner, 0)
        steps = self._common + reserved - self._left
        if reserved:
            self._reserved[self._owner] = max(0, reserved - steps)
        self._common -= max(0, steps - reserved)
        self._owner = owner
        self._left = self._common + self._reserved.get(owner, 0)

    @contextmanager
    def limited(self) -> Iterator[None]:
        """Limit the steps of the context to a share of the remaining steps. In a nested context both limits apply."""
        previous_floor = self._floor
        self._floor = max(previous_floor, self._left - self._left // _SHARE)
        try:
            yield
        finally:
            self._floor = previous_floor

    def spend(self, steps: int = 1) -> bool:
        """Use steps. Return False if not enough steps remain. The search must end then."""
        if self._left - steps < self._floor:
            return False
        self._left -= steps
        return True
