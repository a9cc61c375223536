# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Rollout planner: invariants for random fleets, and recorded sequences."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.change.rollout import Bounds, ReplicaView
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.change.rollout_simulator import (
    Simulation,
    story,
)

RECORDED = Path(__file__).parents[5] / "data" / "rollouts.golden"
HEALTHS = ("serving", "serving", "serving", "serving", "starting", "failed", "unknown")


def random_fleet(random: Random, *, starts: bool = True) -> Simulation:
    clusters = [f"c{number}" for number in range(random.randint(1, 3))]
    desired = random.randint(1, 8)
    views = [
        ReplicaView(
            f"old-{number}",
            random.choice(clusters),
            is_current=random.random() < 0.2,
            health=random.choice(HEALTHS),  # type: ignore[arg-type]
            fits=True,
        )
        for number in range(random.randint(0, desired + 2))
    ]
    misfits = random.random() < 0.4
    views = [
        ReplicaView(
            view.name,
            view.cluster,
            view.is_current,
            view.health,
            view.is_current or not misfits or random.random() < 0.5,
        )
        for view in views
    ]
    surge, unavailable = random.randint(0, 3), random.randint(0, 3)
    bounds = Bounds(desired, surge, unavailable or int(surge == 0), random.randint(1, 3))
    return Simulation(bounds, views, {name: random.randint(0, 2) for name in clusters}, starts=starts)


def run_to_the_end(fleet: Simulation, random: Random) -> None:
    """Roll out with random aborts, and check the invariants after each change."""
    bounds, unchanged = fleet.bounds, 0
    for __ in range(300):
        step = fleet.plan()
        actions = fleet.actions(step)
        unchanged = 0 if actions else unchanged + 1
        if unchanged > 1:
            return
        for action in actions[: random.randint(1, len(actions))] if actions and random.random() < 0.4 else actions:
            before, total = fleet.serving, len(fleet.views)
            fleet.apply(action)
            least = bounds.least(min(total, len(fleet.views)))
            assert fleet.serving >= min(before, least), (action, fleet)
            assert len(fleet.views) <= max(total, bounds.desired + bounds.surge), (action, fleet)
        fleet.settle(random if actions else None)
    raise AssertionError(f"no end: {fleet}")


def check_seeds(first: int, last: int) -> None:
    for seed in range(first, last):
        random = Random(seed)
        fleet = random_fleet(random, starts=random.random() < 0.8)
        text = repr(fleet)
        before = fleet.serving
        try:
            run_to_the_end(fleet, random)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {text}") from error
        if not fleet.starts:
            assert fleet.serving or not before or fleet.bounds.unavailable >= fleet.bounds.desired, (
                f"seed {seed}: {text}"
            )
        elif all(view.health != "unknown" for view in fleet.views):
            stuck = [view for view in fleet.views if not view.is_current]
            has_way = fleet.serving > fleet.bounds.least(len(fleet.views)) or any(fleet.free.values())
            failed = any(view.is_current and view.health == "failed" for view in fleet.views)
            assert not stuck or not has_way or failed or any(not view.fits for view in stuck), f"seed {seed}: {text}"
        assert fleet.is_done, f"seed {seed}: an unchanged fleet has steps: {text}"


def test_no_step_takes_more_replicas_out_of_service_than_the_bounds_allow() -> None:
    check_seeds(0, int(os.environ.get("ROLLOUT_SEEDS", "1500")))


@pytest.mark.interrupted
def test_no_step_of_ten_thousand_fleets_takes_more_replicas_out_of_service_than_the_bounds_allow() -> None:
    check_seeds(1500, 11500)


def check_disturbed_rollouts(first: int, last: int) -> None:
    """Roll out a starting or failing revision on fleets with temporary failures of replicas and clusters."""
    for seed in range(first, last):
        random = Random(seed)
        desired = random.randint(1, 6)
        clusters = ("a", "b", "c")[: random.randint(1, 3)]
        fits = random.random() < 0.7
        surge, unavailable = random.randint(0, 2), random.randint(0, 2)
        bounds = Bounds(desired, surge, unavailable or int(surge == 0), random.randint(1, 3))
        free = {name: random.randint(0, 2) for name in clusters}
        fleet = Simulation(bounds, old(desired, *clusters, fits=fits), free, starts=random.random() < 0.3)
        for __ in range(20):
            fleet.disturb(random)
            for action in fleet.actions(fleet.plan()):
                (view,) = [view for view in fleet.views if view.name == action[1]] or [None]
                if action[0] == "remove" and view and view.serves and view.fits:
                    assert any(each.is_current and each.serves for each in fleet.views), f"seed {seed}: {fleet}"
                fleet.apply(action)
            fleet.settle(random)
        # Only serving replicas of the new revision replace more old replicas than the bounds allow.
        kept = sum(not view.is_current for view in fleet.views)
        started = sum(view.is_current and view.health != "failed" for view in fleet.views)
        assert kept + (started if fleet.starts else 0) >= desired - bounds.unavailable, f"seed {seed}: {fleet}"


def test_disturbances_do_not_replace_old_replicas_before_new_replicas_serve() -> None:
    check_disturbed_rollouts(0, int(os.environ.get("ROLLOUT_SEEDS", "1500")))


def old(count: int, *clusters: str, **more: object) -> list[ReplicaView]:
    places = clusters or ("west",)
    return [
        ReplicaView(f"old-{number + 1}", places[number % len(places)], False, "serving", **more)  # type: ignore[arg-type]
        for number in range(count)
    ]


def stories() -> str:
    """All recorded sequences."""
    parts = [
        story("three replicas on a full cluster", Simulation(Bounds(3), old(3), {"west": 0})),
        story("three replicas with a free place", Simulation(Bounds(3), old(3), {"west": 1})),
        story("a single replica with room elsewhere", Simulation(Bounds(1), old(1), {"west": 0, "east": 1})),
        story("a single replica without room", Simulation(Bounds(1), old(1), {"west": 0})),
        story("a single replica that must not stop, without room", Simulation(Bounds(1, 1, 0), old(1), {"west": 0})),
        story(
            "eight replicas on two clusters, two at a time",
            Simulation(Bounds(8, 2, 2, 1), old(8, "a", "b"), {"a": 0, "b": 0}),
        ),
        story("an image that does not start, without room", Simulation(Bounds(3), old(3), {"west": 0}, starts=False)),
        story("an image that does not start, with room", Simulation(Bounds(3), old(3), {"west": 2}, starts=False)),
        story(
            "no replica fits any more, and nothing is free", Simulation(Bounds(5, 2), old(5, fits=False), {"west": -5})
        ),
        story(
            "no replica fits any more, and two places are free",
            Simulation(Bounds(5, 2), old(5, fits=False), {"west": 2}),
        ),
        story(
            "engines are added, and each replica needs the place of another one",
            Simulation(Bounds(3), old(3, fits=False), {"west": 0}),
        ),
        story(
            "a cluster that does not answer",
            Simulation(Bounds(2), [*old(1), ReplicaView("old-2", "east", False, "unknown")], {"west": 0, "east": 0}),
        ),
        story(
            "a broken replica is replaced first",
            Simulation(Bounds(3), [*old(2), ReplicaView("old-3", "west", False, "failed")], {"west": 0}),
        ),
        story("fewer replicas and a new image", Simulation(Bounds(2), old(4), {"west": 0})),
        story("more replicas and a new image", Simulation(Bounds(4), old(2), {"west": 2})),
    ]
    for surge in (0, 1, 2):
        for unavailable in (0, 1, 2):
            if surge or unavailable:
                simulation = Simulation(Bounds(4, surge, unavailable), old(4), {"west": 2})
                parts.append(story(f"four replicas, maxSurge {surge}, maxUnavailable {unavailable}", simulation))
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def test_recorded_sequences() -> None:
    if os.environ.get("RECORD"):
        RECORDED.write_text(stories())
    assert stories() == RECORDED.read_text(), "run the test with RECORD=1, and read the difference"
