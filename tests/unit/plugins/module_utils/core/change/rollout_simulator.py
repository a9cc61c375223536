# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Simulated fleet for the rollout planner: replicas of one deployment, clusters with free capacity, engines that start
or fail, and unreachable clusters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from random import Random

from ansible_collections.modelplane.fleet.plugins.module_utils.core.change.rollout import (
    Bounds,
    Health,
    Placing,
    ReplicaView,
    Updating,
    plan_placing,
    plan_updates,
    replace_in_place,
    replaceable_replicas,
)


@dataclass
class Simulation:
    """Deployment of a fleet.

    free: number of additional replicas that fit, by cluster.
    starts: whether replicas of the current revision start.
    """

    bounds: Bounds
    views: list[ReplicaView]
    free: dict[str, int]
    starts: bool = True
    log: list[str] = field(default_factory=list)
    _number: int = 0
    _answers: dict[str, Health] = field(default_factory=dict)

    @property
    def serving(self) -> int:
        return sum(view.serves for view in self.views)

    def plan(self) -> tuple[Placing, list[str], Updating]:
        """Return both halves of a step, and the clusters of new replicas."""
        placing = plan_placing(self.bounds, self.views)
        placed = self._places(placing)
        while len(placed) < placing.new and (names := replaceable_replicas(placing, self.bounds, len(placed))):
            attempt = replace_in_place(placing, names[0])
            if len(self._places(attempt)) <= len(placed):
                break
            placing, placed = attempt, self._places(attempt)
        return placing, placed, plan_updates(self.bounds, placing.staying, len(placed))

    def _places(self, placing: Placing) -> list[str]:
        free = dict(self.free)
        for view in self.views:
            if view.name in placing.removed:
                free[view.cluster] += 1
        names = [cluster for cluster in sorted(free) for __ in range(free[cluster])]
        return names[: placing.new]

    def actions(self, step: tuple[Placing, list[str], Updating]) -> list[tuple[str, str]]:
        """Return the changes of a step in order."""
        placing, placed, updating = step
        return [
            *(("remove", name) for name in sorted(placing.removed)),
            *(("create", cluster) for cluster in placed),
            *(("update", name) for name in sorted(updating.updated)),
        ]

    def apply(self, action: tuple[str, str]) -> None:
        kind, subject = action
        self.log.append(f"{kind} {subject}")
        if kind == "create":
            self._number += 1
            self.free[subject] -= 1
            self.views.append(ReplicaView(f"new-{self._number}", subject, True, "starting"))
            return
        (view,) = [candidate for candidate in self.views if candidate.name == subject]
        self.views.remove(view)
        if kind == "remove":
            self.free[view.cluster] += 1
        else:
            self.views.append(replace(view, is_current=True, health="starting", reason=""))

    def settle(self, random: Random | None = None) -> None:
        """Finish the start of replicas, with `random` only of some replicas."""
        for index, view in enumerate(self.views):
            if view.health == "starting" and (random is None or random.random() < 0.6):
                serves = self.starts or not view.is_current
                self.views[index] = replace(
                    view, health="serving" if serves else "failed", reason="" if serves else "ImagePullBackOff"
                )

    def disturb(self, random: Random) -> None:
        """Change the state of some replicas temporarily: pods restart, and a cluster is unreachable."""
        for index, view in enumerate(self.views):
            self.views[index] = replace(view, health=self._answers.pop(view.name, view.health))
        for index, view in enumerate(self.views):
            if view.serves and self.serving > 1 and random.random() < 0.2:
                self.views[index] = replace(view, health="starting")
        silent = random.choice([*self.free, ""])
        for index, view in enumerate(self.views):
            if view.cluster == silent:
                self._answers[view.name] = view.health
                self.views[index] = replace(view, health="unknown")

    @property
    def is_done(self) -> bool:
        placing, placed, updating = self.plan()
        return not (placing.removed or placed or updating.updated)


def story(title: str, simulation: Simulation, steps: int = 12) -> Iterator[str]:
    """Yield the whole sequence of a rollout as text."""
    bounds = simulation.bounds
    yield f"# {title}"
    yield (
        f"# desired {bounds.desired}, maxSurge {bounds.surge}, maxUnavailable {bounds.unavailable}, "
        f"free {sum(simulation.free.values())}"
    )
    for number in range(steps):
        step = simulation.plan()
        actions = simulation.actions(step)
        for action in actions:
            simulation.apply(action)
        minimum = simulation.serving
        simulation.settle()
        waiting = sorted(set(step[2].waiting.values()))
        if not actions:
            yield (
                f"done: {_state(simulation)}" if not waiting else f"stopped: {_state(simulation)}; {'; '.join(waiting)}"
            )
            return
        changes = ", ".join(" ".join(action) for action in actions)
        yield f"{number + 1}. {changes}; serving {minimum}, then {_state(simulation)}"


def _state(simulation: Simulation) -> str:
    old = sum(view.serves and not view.is_current for view in simulation.views)
    new = sum(view.serves and view.is_current for view in simulation.views)
    return f"{old} old and {new} new serve of {len(simulation.views)}"
