# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Groups of routes that share budgets, beside the plain way to find them, and what finding them costs."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.caller_policy import Budget
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.model_gateway.budgets import (
    RateLimiter,
    counting_objects,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.model_gateway.callers import (
    NamespaceRights,
    Rights,
    rights,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.model_gateway.routes import Route
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.model_gateway.selection import (
    PolicySelection,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.service import Resolution
from ansible_collections.modelplane.fleet.tests.model_fleet import (
    Document,
    gateway,
    policy,
    service,
)
from ansible_collections.modelplane.fleet.tests.written import parsed

HOURLY: Document = {"name": "hourly", "unit": "Requests", "limit": 10, "per": "Hour"}
GATEWAY = parsed(gateway(), api.InferenceGateway)


def fleet_of(labels: Sequence[Document], selectors: Sequence[Document]) -> tuple[list[Route], NamespaceRights]:
    """Return the routes of services with these labels, and the rights by policies with these selectors."""
    services = [
        parsed(service(name=f"s{index:03}", labels=each), api.ModelService) for index, each in enumerate(labels)
    ]
    policies = [
        parsed(policy(f"p{index:03}", services={"matchLabels": each}, budgets=[HOURLY]), api.CallerPolicy)
        for index, each in enumerate(selectors)
    ]
    selection = PolicySelection(policies, services)
    known = NamespaceRights([rights(each, (), selection.services(each)) for each in policies])
    return [Route(each, GATEWAY, Resolution((), None), {}) for each in services], known


def targets(group: Sequence[Route]) -> dict[str, list[dict[str, str]]]:
    return {"targetRefs": [{"name": route.service.name} for route in group]}


def groups(routes: Sequence[Route], known: NamespaceRights) -> list[list[str]]:
    counter = RateLimiter(lambda *__: True, "x-model", targets, lambda __: "any")
    found = counting_objects(routes, known, counter)
    return [[target["name"] for target in value["spec"]["targetRefs"]] for value in found]


def joined_one_by_one(services: Sequence[Document], selectors: Sequence[Document]) -> list[list[str]]:
    """The plain way: what a policy selects is one group with every group that has some of it."""
    selected = [
        {f"s{index:03}" for index, labels in enumerate(services) if each.items() <= labels.items()}
        for each in selectors
    ]
    found: list[set[str]] = []
    for names in filter(None, selected):
        found = [group for group in found if not group & names] + [names.union(*(g for g in found if g & names))]
    return sorted(sorted(group) for group in found)


@pytest.mark.parametrize("seed", range(40))
def test_services_that_share_a_budget_are_in_one_group(seed: int) -> None:
    chance = random.Random(seed)
    keys = ("team", "tier", "region")
    services = [{key: str(chance.randrange(6)) for key in keys} for __ in range(chance.randrange(1, 12))]
    selectors = [
        {key: str(chance.randrange(6)) for key in chance.sample(keys, chance.randrange(1, 3))}
        for __ in range(chance.randrange(8))
    ]
    assert groups(*fleet_of(services, selectors)) == joined_one_by_one(services, selectors)


def test_a_budget_is_compared_with_the_services_that_its_policy_selects_alone() -> None:
    """Not with all of a namespace: the cost of a plan would be the square of its policies."""
    count = 100
    labels = [{"app": str(index)} for index in range(count)]
    asked: list[str] = []

    def counts(each: Rights, budget: Budget, route: Route) -> bool:
        asked.append(f"{each.policy.name} {budget.name} {route.service.name}")
        return True

    counter = RateLimiter(counts, "x-model", targets, lambda group: group[0].service.name)
    assert len(list(counting_objects(*fleet_of(labels, labels), counter))) == count
    assert sorted(asked) == [f"p{index:03} hourly s{index:03}" for index in range(count)]
