# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Services with more endpoints than a route has room for."""

from __future__ import annotations

from collections import Counter

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.label_index import LabelIndex
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.model_gateway.room import without_room
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.service import resolve
from ansible_collections.modelplane.fleet.tests.model_fleet import (
    build,
    fleet,
    provider,
    provider_entry,
    service,
)
from ansible_collections.modelplane.fleet.tests.written import parsed


def endpoints(**numbers: int) -> list[api.ModelEndpoint]:
    """So many endpoints by the name of an entry, or of one and a cluster: `own_east` are those of `own` there."""
    found = []
    for name, number in numbers.items():
        entry, __, cluster = name.partition("_")
        where = {"modelplane.ai/cluster": cluster} if cluster else {}
        for index in range(number):
            value = provider(entry)
            value["metadata"] |= {"name": f"{entry}-{cluster}{index:02}", "labels": {"provider": entry, **where}}
            found.append(parsed(value, api.ModelEndpoint))
    return found


@pytest.mark.parametrize(
    ("numbers", "priorities", "kept"),
    [
        ({"a": 16}, {"a": 0}, {"a": 16}),
        ({"a": 17}, {"a": 0}, {"a": 16}),
        ({"a": 20, "b": 2}, {"a": 0, "b": 0}, {"a": 14, "b": 2}),
        ({"a": 20, "b": 20}, {"a": 0, "b": 0}, {"a": 8, "b": 8}),
        ({"a": 20, "b": 20, "c": 20}, {"a": 0, "b": 1, "c": 2}, {"a": 14, "b": 1, "c": 1}),
        ({"a": 3, "b": 20, "c": 20}, {"a": 0, "b": 7, "c": 9}, {"a": 3, "b": 12, "c": 1}),
        ({"a_x": 20, "a_y": 3}, {"a": 0}, {"a-x": 13, "a-y": 3}),
        ({"a_x": 20, "a_y": 20}, {"a": 0}, {"a-x": 8, "a-y": 8}),
    ],
)
def test_priorities_entries_and_clusters_share_the_room(
    numbers: dict[str, int], priorities: dict[str, int], kept: dict[str, int]
) -> None:
    found = endpoints(**numbers)
    asked = parsed(
        service(*(provider_entry(name, priority=number) for name, number in priorities.items())), api.ModelService
    )
    left = without_room(asked, resolve(asked, LabelIndex(found), lambda __: True, failover=True))
    names = [each.name.rstrip("0123456789").rstrip("-") for each in found if each.name not in left]
    assert Counter(names) == kept


def test_more_priorities_than_there_is_room_for() -> None:
    found = endpoints(**{f"p{number:02}x": 2 for number in range(20)})
    asked = parsed(
        service(*(provider_entry(f"p{number:02}x", priority=number) for number in range(20))), api.ModelService
    )
    left = without_room(asked, resolve(asked, LabelIndex(found), lambda __: True, failover=True))
    assert sorted({each.name for each in found} - left) == [f"p{number:02}x-00" for number in range(16)]


def test_a_rule_has_no_more_backends_than_an_httproute_and_the_plan_says_so() -> None:
    written = [provider(f"a{number:02}") for number in range(18)]
    for value in written:
        value["metadata"]["labels"] = {"provider": "saas"}
    built = build(fleet(service(provider_entry("saas")), *written))
    (rule,) = built("AIGatewayRoute", "chat")["spec"]["rules"]
    assert len(rule["backendRefs"]) == 16
    (routed,) = built.plan.models.routes
    assert [endpoint.name for endpoint, *__ in routed.route.used] == [f"a{number:02}" for number in range(16)]
    assert set(routed.problems) == {"a16", "a17"}
    (said,) = [each for each in built.plan.warnings if "16 endpoints" in each]
    assert said.startswith("ModelService ml-team/chat: no requests of InferenceGateway eu go to 2 usable endpoints")
