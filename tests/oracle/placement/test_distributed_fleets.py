# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Random fleets with spread, minAvailable, preferences, return, preemption, surge replicas and limits on cost."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import Dropped, Schedule
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.placement import bound_schedule
from ansible_collections.modelplane.fleet.tests.oracle.placement.comparison import running_after
from ansible_collections.modelplane.fleet.tests.oracle.placement.distributed import generate_distributed
from ansible_collections.modelplane.fleet.tests.oracle.placement.promises import check
from ansible_collections.modelplane.fleet.tests.oracle.placement.written import Fleet, read

FLEETS = 120
SEED = 5
MOST_RUNS = 20


@pytest.fixture(scope="module")
def fleets() -> list[Fleet]:
    return [read(generate_distributed(SEED, number)) for number in range(FLEETS)]


def plan(fleet: Fleet) -> Schedule:
    return bound_schedule(fleet.deployments, fleet.clusters, fleet.running, fleet.options)


def returned(decided: Schedule) -> list[Dropped]:
    """Return the replicas that leave for preferred clusters, which can leave devices to others in the next run."""
    return [entry for entry in decided.dropped if entry.evicted]


def settled(fleet: Fleet) -> tuple[Fleet, Schedule]:
    """Return a fleet after the runs that return replicas, and its schedule."""
    for __ in range(MOST_RUNS):
        decided = plan(fleet)
        if not returned(decided):
            return fleet, decided
        fleet = replace(fleet, running=running_after(fleet, decided))
    raise AssertionError("replicas return in every run")


def test_a_second_run_has_the_same_places_and_the_same_reasons(fleets: list[Fleet]) -> None:
    for number, first in enumerate(fleets):
        fleet, decided = settled(first)
        again = plan(replace(fleet, running=running_after(fleet, decided)))
        assert (number, again.dropped) == (number, ())
        assert {placement.state for placement in again.placements} <= {"kept"}
        assert [replace(one, state="", replica="") for one in again.placements] == [
            replace(one, state="", replica="") for one in decided.placements
        ]
        assert (number, again.pending, again.overcommitted) == (number, decided.pending, decided.overcommitted)


def test_the_scheduler_keeps_its_promises(fleets: list[Fleet]) -> None:
    findings = [(number, finding) for number, fleet in enumerate(fleets) for finding in check(fleet).findings]
    assert findings == []


def test_the_order_of_arguments_does_not_matter(fleets: list[Fleet]) -> None:
    for number, fleet in enumerate(fleets):
        assert (number, plan(fleet)) == (number, plan(fleet))
        shuffled = random.Random(number)
        mixed = [shuffled.sample(part, len(part)) for part in (fleet.deployments, fleet.clusters, fleet.running)]
        assert (number, bound_schedule(*mixed, fleet.options)) == (number, plan(fleet))


def test_the_fleets_ask_something(fleets: list[Fleet]) -> None:
    """Replicas preempt, return, and are pending for all of spread, minAvailable and cost."""
    answers = [plan(fleet) for fleet in fleets]
    assert sum(any(entry.preempted_by for entry in decided.dropped) for decided in answers) > FLEETS / 25
    assert sum(bool(returned(decided)) for decided in answers) > FLEETS / 100
    reasons = {
        word
        for decided in answers
        for pending in decided.pending
        for refusal in pending.refusals
        for word in ("maxSkew", "minAvailable", "spec.cost", "gpu free")
        if word in refusal.reason
    }
    assert reasons == {"maxSkew", "minAvailable", "spec.cost", "gpu free"}
