# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Tests of the steps that searches may take, and of the shares of deployments."""

from __future__ import annotations

from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.search_budget import Work

X, Y, Z = ("a", "x"), ("a", "y"), ("b", "z")


def spent(work: Work, owner: tuple[str, str] | None) -> int:
    """Spend all steps that are left for a deployment."""
    work.owner = owner
    steps = 0
    while work.spend():
        steps += 1
    return steps


def test_half_of_the_steps_is_reserved_by_namespace_and_deployment() -> None:
    work = Work(1000)
    work.reserve([X, Y, Z])
    assert [spent(work, owner) for owner in (X, Z, Y, None)] == [500 + 125, 250, 125, 0]


def test_reserved_steps_are_spent_before_common_ones() -> None:
    work = Work(1000)
    work.reserve([X, Z])
    work.owner = X
    assert work.spend(200)
    work.owner = Z
    assert work.spend(700)
    assert not work.spend(100)
    assert spent(work, X) == 100


def test_a_search_takes_a_sixteenth_of_what_is_left_for_its_deployment() -> None:
    work = Work(1600)
    work.reserve([X])
    work.owner = X
    with work.limited():
        assert not work.spend(101)
        assert work.spend(100)
    assert spent(work, X) == 1500
