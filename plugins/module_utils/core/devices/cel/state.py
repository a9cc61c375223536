# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""State of one evaluation: the device, the variables, and the used cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..limits import MAX_COST
from .values import CelMap, CostLimitError


class State:
    """State of one evaluation. Two evaluations never share a state."""

    __slots__ = ("cost", "device", "slots")

    def __init__(self, device: CelMap, slots: int, cost: int) -> None:
        self.device = device
        self.slots: list[Any] = [None] * slots
        self.cost = cost

    @staticmethod
    def empty() -> State:
        """Return a state for constants. They do not use it."""
        return State(CelMap({}), 0, 0)

    def spend(self, cost: int) -> None:
        """Charge for work. Raise CostLimitError if the cost exceeds the limit."""
        self.cost += cost
        if self.cost > MAX_COST:
            raise CostLimitError(f"stopped: the expression costs more than {MAX_COST} units")


Run = Callable[[State], Any]
