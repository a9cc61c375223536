# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A limit on what all selectors of a plan cost together.

Each evaluation is bounded by Kubernetes' own limit, which makes many of them linear in what tenants write. The cost is
Kubernetes' as well, so that the same fleet reaches the limit on a slow machine or a fast one, or on none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ansible_collections.modelplane.fleet.plugins.module_utils.core.devices.device import Device
from ansible_collections.modelplane.fleet.plugins.module_utils.core.devices.explain import explain
from ansible_collections.modelplane.fleet.plugins.module_utils.core.devices.selector import compile_selector
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import (
    SELECTOR_BUDGET,
    Deployment,
    Replica,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.text import some

_MOST_NAMED = 5


class SelectorBudgetError(Exception):
    """The selectors cost more than they may; the text names those that cost most and says what to do."""


class OverBudgetError(Exception):
    """More was spent than there is; becomes a SelectorBudgetError with the owners of the selectors."""


class Evaluations:
    """Evaluates selectors, and counts what that costs. What callers remember costs nothing again."""

    def __init__(self, budget: int = SELECTOR_BUDGET) -> None:
        self.budget = budget
        # By expression.
        self.costs: dict[str, int] = {}
        self._left = budget

    def matches(self, expression: str, device: Device) -> bool:
        """Return whether a device satisfies a selector. Raises SelectorError, and OverBudgetError."""
        verdict = compile_selector(expression).evaluate(device)
        self._spend(expression, verdict.cost)
        return verdict.match

    def explain(self, expression: str, device: Device) -> str | None:
        """Return why a device does not satisfy a selector; None when it does. Raises OverBudgetError."""
        return explain(compile_selector(expression), device, lambda cost: self._spend(expression, cost))

    def _spend(self, expression: str, cost: int) -> None:
        self.costs[expression] = self.costs.get(expression, 0) + cost
        self._left -= cost
        if self._left < 0:
            raise OverBudgetError

    def report(self, deployments: Iterable[Deployment], replicas: Iterable[Replica]) -> str:
        """The message of a SelectorBudgetError: the selectors that cost most, and where they are written."""
        places: dict[str, list[str]] = {}
        for expression, place in _of_deployments(deployments):
            places.setdefault(expression, []).append(place)
        written = frozenset(places)
        for expression, place in _of_replicas(replicas):
            if expression not in written:
                places.setdefault(expression, []).append(place)
        dearest = sorted(self.costs.items(), key=lambda item: (-item[1], item[0]))[:_MOST_NAMED]
        lines = [f"{_where(places.get(expression, ()))}: {cost:,} units" for expression, cost in dearest]
        return (
            f"the selectors of the fleet cost more than {self.budget:,} units together, so nothing was decided. These "
            "cost most:\n"
            + "\n".join(lines)
            + "\nCompare attributes and capacities of the device directly, without loops and long patterns, or raise "
            "fleet_selector_budget"
        )


def _where(places: Sequence[str]) -> str:
    return some(places, 1) if places else "a selector of nothing that is here"


def _of_deployments(deployments: Iterable[Deployment]) -> Iterator[tuple[str, str]]:
    """(expression, place) of every selector of ModelDeployments, by name."""
    for deployment in sorted(deployments, key=lambda deployment: deployment.key):
        for engine_index, engine in enumerate(deployment.engines):
            for member_index, member in enumerate(engine.members):
                path = f"spec.template.spec.engines[{engine_index}].members[{member_index}].nodeSelector.devices"
                for request_index, request in enumerate(member.requests):
                    for index, expression in enumerate(request.selectors):
                        place = f"{path}[{request_index}].selectors[{index}].cel"
                        yield expression, f"ModelDeployment {deployment.namespace}/{deployment.name}, {place}"


def _of_replicas(replicas: Iterable[Replica]) -> Iterator[tuple[str, str]]:
    """(expression, place) of every selector of ModelReplicas, by name."""
    for replica in sorted(replicas, key=lambda replica: (replica.namespace, replica.name)):
        for engine_index, engine in enumerate(replica.engines):
            for member_index, member in enumerate(engine.members):
                path = f"spec.engines[{engine_index}].members[{member_index}].deviceRequests"
                for request_index, request in enumerate(member.device_requests):
                    for index, expression in enumerate(_expressions(request)):
                        place = f"{path}[{request_index}].selectors[{index}].cel"
                        yield expression, f"ModelReplica {replica.namespace}/{replica.name}, {place}"


def _expressions(request: Mapping[str, object]) -> list[str]:
    selectors = request.get("selectors")
    return [str(entry["cel"]) for entry in selectors if entry.get("cel")] if isinstance(selectors, list) else []
