# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Cost limit for all selectors of a plan, and the shares of deployments.

Kubernetes limits the cost of each evaluation, so the total is linear in the number of selectors that tenants write. The
cost has the units of Kubernetes, so the result is the same on slow and on fast machines.

If a fleet exceeds the limit, the limit is divided equally among namespaces, and then among their deployments. Unused
shares go to the other deployments.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ..devices.device import Device
from ..devices.explain import explain
from ..devices.selector import SelectorError, Verdict, compile_selector
from .model import SELECTOR_BUDGET, Cluster, Deployment, Replica
from .search_budget import Owner

_MOST_NAMED = 3

# Selectors that are evaluated one after the other until one of them does not match a device, with the devices.
_Question = tuple[tuple[str, ...], tuple[Device, ...]]


class OverBudgetError(Exception):
    """The selectors exceed the budget, so the budget must be divided into shares."""


@dataclass(frozen=True)
class Shares:
    """Deployments with selectors that exceed their shares of the budget.

    exceeded: message by deployment, or by replica without a deployment.
    verdicts: known verdicts. Their use costs nothing.
    blocked: selectors that are not evaluated.
    """

    exceeded: Mapping[Owner, str] = field(default_factory=dict)
    verdicts: Mapping[tuple[str, Device], Verdict] = field(default_factory=dict)
    blocked: frozenset[str] = frozenset()


class Evaluations:
    """Evaluator of selectors that counts the costs. Cached verdicts cost nothing.

    With shares, the costs are within the budget, and are not counted.
    """

    def __init__(self, budget: int = SELECTOR_BUDGET, shares: Shares | None = None) -> None:
        # By expression.
        self.costs: dict[str, int] = {}
        self._left = budget
        self._shares = shares

    def matches(self, expression: str, device: Device) -> bool:
        """Return True if a device satisfies a selector. Raises SelectorError and OverBudgetError."""
        return self.verdict(expression, device).match

    def first_mismatch(self, expressions: Iterable[str], device: Device) -> tuple[str, Verdict] | None:
        """Return the first selector that does not match a device, with its verdict. Kubernetes evaluates no further
        selectors. Raises SelectorError, and OverBudgetError."""
        for expression in expressions:
            verdict = self.verdict(expression, device)
            if not verdict.match:
                return expression, verdict
        return None

    def verdict(self, expression: str, device: Device) -> Verdict:
        """Return the verdict of a selector on a device. Raises SelectorError, and OverBudgetError."""
        if self._shares:
            if expression in self._shares.blocked:
                raise SelectorError(expression, "costs more than its share of fleet_selector_budget", 1, 1)
            verdict = self._shares.verdicts.get((expression, device))
            if verdict:
                return verdict
        verdict = compile_selector(expression).evaluate(device)
        self._spend(expression, verdict.cost)
        return verdict

    def explain(self, expression: str, device: Device) -> str | None:
        """Return the reason why a device does not satisfy a selector, None if it does. Raises OverBudgetError."""
        return explain(compile_selector(expression), device, lambda cost: self._spend(expression, cost))

    def _spend(self, expression: str, cost: int) -> None:
        self.costs[expression] = self.costs.get(expression, 0) + cost
        self._left -= cost
        if self._left < 0 and not self._shares:
            raise OverBudgetError


def share_out(
    deployments: Iterable[Deployment], clusters: Iterable[Cluster], replicas: Iterable[Replica], budget: int
) -> Shares:
    """Divide a budget among the deployments of a fleet, and evaluate the selectors of each deployment up to its share.

    The costs of a deployment include the claims of its replicas. Each iteration divides the unused shares of the
    previous iteration among the other deployments.
    """
    desired = {deployment.key: deployment for deployment in deployments if not deployment.invalid}
    questions = _questions(desired.values(), list(clusters), replicas)
    verdicts: dict[tuple[str, Device], Verdict] = {}
    waiting = sorted(questions)
    remaining = budget
    while True:
        namespaces = Counter(namespace for namespace, __ in waiting)
        shares = {owner: remaining // len(namespaces) // namespaces[owner[0]] for owner in waiting}
        costs = {owner: _cost(questions[owner], shares[owner], verdicts) for owner in waiting}
        within = [owner for owner in waiting if costs[owner] <= shares[owner]]
        if not within:
            break
        remaining -= sum(costs[owner] for owner in within)
        waiting = [owner for owner in waiting if owner not in within]
    expressions = {owner: {text for texts, __ in questions[owner] for text in texts} for owner in questions}
    evaluated = {text for owner in questions if owner not in shares for text in expressions[owner]}
    return Shares(
        {owner: _exceeded(share, budget, desired.get(owner), verdicts) for owner, share in shares.items()},
        verdicts,
        frozenset(text for owner in shares for text in expressions[owner] - evaluated),
    )


def _questions(
    deployments: Iterable[Deployment], clusters: Iterable[Cluster], replicas: Iterable[Replica]
) -> dict[Owner, list[_Question]]:
    """Return the evaluations that a plan requires for each deployment, and for each replica without a deployment."""
    pools = {(cluster.name, pool.name): pool.devices for cluster in clusters for pool in cluster.pools}
    kinds = list({id(devices): devices for devices in pools.values()}.values())
    questions: dict[Owner, list[_Question]] = {}
    for deployment in deployments:
        members = [member for engine in deployment.engines for member in engine.members]
        requests = dict.fromkeys(request.selectors for member in members for request in member.requests)
        questions[deployment.key] = [(selectors, devices) for selectors in requests for devices in kinds]
    for replica in replicas:
        owner_evaluations = questions.setdefault((replica.namespace, replica.deployment or replica.name), [])
        for engine in replica.engines:
            for member in engine.members:
                devices = [pools.get((replica.cluster, name), ()) for name, __ in member.pods_by_pool]
                owner_evaluations += [
                    (tuple(_expressions(entry)), pool_devices)
                    for entry in member.device_requests
                    for pool_devices in devices
                ]
    return questions


def _cost(questions: Iterable[_Question], limit: int, verdicts: dict[tuple[str, Device], Verdict]) -> int:
    """Return the total cost of evaluations, each selector on each device once. Stop if the cost exceeds `limit`."""
    paid: set[tuple[str, Device]] = set()
    cost = 0
    for selectors, devices in questions:
        for device in devices:
            for expression in selectors:
                key = (expression, device)
                verdict = verdicts.get(key) or _evaluate(expression, device)
                verdicts[key] = verdict
                if key not in paid:
                    paid.add(key)
                    cost += verdict.cost
                if cost > limit:
                    return cost
                if not verdict.match:
                    break
    return cost


def _evaluate(expression: str, device: Device) -> Verdict:
    try:
        return compile_selector(expression).evaluate(device)
    except SelectorError as error:
        return Verdict(match=False, error=str(error))


def _exceeded(
    share: int, budget: int, deployment: Deployment | None, verdicts: Mapping[tuple[str, Device], Verdict]
) -> str:
    """Return the reason why selectors are not evaluated, with the most expensive selectors."""
    selector_paths = dict(_of_deployment(deployment)) if deployment else {}
    costs = Counter[str]()
    for (expression, __), verdict in verdicts.items():
        if expression in selector_paths:
            costs[selector_paths[expression]] += verdict.cost
    dearest = "".join(f"; {path}: over {cost:,} units" for path, cost in costs.most_common(_MOST_NAMED))
    return (
        f"its selectors cost more than its share of fleet_selector_budget ({share:,} of {budget:,} units){dearest}. "
        "Compare attributes and capacities of the device directly, without loops and long patterns, or raise "
        "fleet_selector_budget"
    )


def _of_deployment(deployment: Deployment) -> Iterator[tuple[str, str]]:
    """Yield the expression and the field of each selector of a ModelDeployment."""
    for engine_index, engine in enumerate(deployment.engines):
        for member_index, member in enumerate(engine.members):
            path = f"spec.template.spec.engines[{engine_index}].members[{member_index}].nodeSelector.devices"
            for request_index, request in enumerate(member.requests):
                for index, expression in enumerate(request.selectors):
                    yield expression, f"{path}[{request_index}].selectors[{index}].cel"


def _expressions(request: Mapping[str, object]) -> list[str]:
    selectors = request.get("selectors")
    return [str(entry["cel"]) for entry in selectors if entry.get("cel")] if isinstance(selectors, list) else []
