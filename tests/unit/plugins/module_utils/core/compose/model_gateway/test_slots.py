# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Slots of backends in routes while endpoints change."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.change.routes import weighted_backends
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.model_gateway.slots import settled, stages
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.route_tree import WIDTH
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object

Backends = Sequence[tuple[str, int]]


def route(backends: Iterable[tuple[str, int]], priority: int = 0) -> Object:
    references = [{"name": name, "weight": weight, "priority": priority} for name, weight in backends]
    return {"kind": "AIGatewayRoute", "metadata": {"name": "chat"}, "spec": {"rules": [{"backendRefs": references}]}}


def versions(targets: str, live: Backends) -> list[Backends]:
    """Return the versions after the live version, without repetitions."""
    found = stages(route((name, 1) for name in targets), route(live))
    texts = [list(live)]
    for version in [*(part for each in found.rounds for part in (each.known, each.switched)), found.final]:
        if weighted_backends(version) != texts[-1]:
            texts.append(weighted_backends(version))
    return texts[1:]


@pytest.mark.parametrize(
    ("live", "targets", "expected"),
    [
        ("ab", "ab", []),
        ("ab", "ba", []),
        # A new backend has no requests at first, whatever its place among the desired ones.
        ("ab", "cab", ["a1 b1 c0", "a1 b1 c1"]),
        # The last backend leaves after its requests.
        ("abc", "ab", ["a1 b1 c0", "a1 b1"]),
        # The slots of others stay, and the removed backend is not referenced in the end.
        ("abc", "ac", ["a1 b0 c1", "a1 a0 c1"]),
        ("abc", "bc", ["a0 b1 c1", "b0 b1 c1"]),
        ("abc", "abd", ["a1 b1 c1 d0", "a1 b1 c0 d1", "a1 b1 a0 d1"]),
        ("ab", "cd", ["a1 b1 c0 d0", "a0 b0 c1 d1", "c0 c0 c1 d1"]),
    ],
)
def test_versions(live: str, targets: str, expected: Sequence[str]) -> None:
    found = versions(targets, [(name, 1) for name in live])
    assert [" ".join(f"{name}{weight}" for name, weight in version) for version in found] == expected


def test_a_new_backend_uses_a_slot_without_requests() -> None:
    assert versions("acd", [("a", 1), ("a", 0), ("c", 1)]) == [
        [("a", 1), ("d", 0), ("c", 1)],
        [("a", 1), ("d", 1), ("c", 1)],
    ]


def test_an_aborted_change_continues() -> None:
    """The processor might not know a backend of an aborted run yet."""
    change = stages(route([("a", 1), ("b", 1)]), route([("a", 1), ("b", 0)]))
    assert [each.is_new for each in change.rounds] == [True]
    assert versions("a", [("a", 1), ("b", 0)]) == [[("a", 1)]]


def test_slots_at_the_end_are_removed() -> None:
    assert versions("a", [("a", 1), ("a", 0), ("c", 1)]) == [[("a", 1), ("a", 0), ("c", 0)], [("a", 1)]]


def test_a_full_route_keeps_serving_in_its_first_priority() -> None:
    """A provider of a later priority gets no requests because of the change."""
    paid = {"name": "paid", "weight": 1, "priority": 1}

    def full(prefix: str) -> Object:
        references = [{"name": f"{prefix}{index}", "weight": 1, "priority": 0} for index in range(WIDTH - 1)]
        return {**route([]), "spec": {"rules": [{"backendRefs": [*references, paid]}]}}

    change = stages(full("new"), full("old"))
    assert len(change.rounds) > 1
    for version in (part for each in change.rounds for part in (each.known, each.switched)):
        serving = [name for name, weight in weighted_backends(version) if weight and name != "paid"]
        assert len(serving) >= (WIDTH - 1) // 2
    assert {name for name, weight in weighted_backends(change.final) if weight} == {
        "paid",
        *(f"new{index}" for index in range(WIDTH - 1)),
    }


def test_a_route_with_too_many_backends_is_left_to_the_api_server() -> None:
    many = route((f"b{index}", 1) for index in range(WIDTH + 1))
    assert stages(many, route([("a", 1)])).final == many


def test_a_directory_keeps_slots_with_one_change() -> None:
    final = settled(route([("a", 1), ("d", 1)]), route([("a", 1), ("b", 1), ("c", 1), ("d", 1)]))
    assert weighted_backends(final) == [("a", 1), ("a", 0), ("a", 0), ("d", 1)]
    assert settled(route([("a", 1)]), None) == route([("a", 1)])


@pytest.mark.parametrize("number", range(300))
def test_random_changes_keep_slots_and_serve(number: int) -> None:
    """No slot gets another backend or requests at once, and at least one backend serves. All slots might be in use."""
    chance = random.Random(number)
    names = [f"b{index}" for index in range(2 * WIDTH)]
    live: Backends = [(name, chance.choice([0, 1, 1, 1])) for name in chance.sample(names, chance.randint(1, WIDTH))]
    live = [*live[:-1], (live[-1][0], 1)]
    for _ in range(4):
        targets = chance.sample(names, chance.choice([1, 3, WIDTH - 1, WIDTH, WIDTH]))
        change = stages(route((name, 1) for name in targets), route(live))
        current = live
        for each in change.rounds:
            known, switched = weighted_backends(each.known), weighted_backends(each.switched)
            assert len(known) <= WIDTH
            for index, slot in enumerate(known):
                before = current[index] if index < len(current) else None
                assert slot == before or (slot[1] == 0 and (before is None or before[1] == 0))
            assert [name for name, __ in switched] == [name for name, __ in known]
            assert any(weight for __, weight in switched)
            current = switched
        final = weighted_backends(change.final)
        assert [name for name, weight in final if weight] == [name for name, weight in current if weight]
        assert {name for name, __ in final} == set(targets) == {name for name, weight in final if weight}
        assert [slot for slot in enumerate(final) if slot[1][1]] == [slot for slot in enumerate(current) if slot[1][1]]
        live = final
