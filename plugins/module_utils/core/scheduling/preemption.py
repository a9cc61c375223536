# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Room for a new replica in the place of running ones of lower priority, where its deployment asks for that.

What goes is chosen as kube-scheduler chooses victims: on each cluster all replicas of lower priority give up their
places, and as many as possible get them back, the most important first. Of all clusters that one gives way whose most
important victim matters least, then with the smallest sum of priorities, then with the fewest victims, then the first
name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.fitting import FleetCapacity, ReplicaFit
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import Cluster
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.retaining import Kept, State, preempted


@dataclass(frozen=True)
class _Victim:
    state: State
    entry: Kept


def preempt(
    state: State,
    clusters: Sequence[str],
    states: Sequence[State],
    fleet: Mapping[str, Cluster],
    capacity: FleetCapacity,
) -> bool:
    """Place one more replica on one of the clusters in the place of kept replicas of lower priority; False when nothing
    was found, and nothing is changed. Replicas that may not be removed now are no victims."""
    best: tuple[tuple[int, int, int, str], list[_Victim], ReplicaFit] | None = None
    lower = [other for other in states if other.deployment.priority < state.deployment.priority and other.may_change]
    for name in clusters:
        candidates = [
            _Victim(other, entry)
            for other in lower
            for entry in other.kept
            if entry.placement.cluster == name and entry.placement.state == "kept" and not fleet[name].silent
        ]
        victims, fit = _victims(state, name, candidates, fleet, capacity)
        if fit is not None:
            priorities = [victim.state.deployment.priority for victim in victims]
            rank = (max(priorities), sum(priorities), len(victims), name)
            if best is None or rank < best[0]:
                best = rank, victims, fit
    if best is None:
        return False
    (*__, name), victims, fit = best
    for victim in victims:
        victim.state.kept.remove(victim.entry)
        _discharge(victim, capacity)
        victim.state.dropped.append(preempted(victim.entry.replica, "/".join(state.deployment.key)))
    capacity.charge_fit(name, fit)
    state.new.setdefault(name, []).append(fit)
    return True


def _victims(
    state: State, name: str, candidates: Sequence[_Victim], fleet: Mapping[str, Cluster], capacity: FleetCapacity
) -> tuple[list[_Victim], ReplicaFit | None]:
    """Return the replicas that have to go from a cluster, and the place that this makes; None when it makes none."""
    if not candidates:
        return [], None
    for victim in candidates:
        _discharge(victim, capacity)
    victims = []
    found = capacity.joint_fit([state.engines], fleet[name], {})
    for victim in sorted(candidates, key=_by_importance):
        _charge(victim, capacity)
        again = capacity.joint_fit([state.engines], fleet[name], {}) if found else None
        if again:
            found = again
        elif found:
            _discharge(victim, capacity)
            victims.append(victim)
    for victim in victims:
        _charge(victim, capacity)
    return victims, found[0] if found else None


def _by_importance(victim: _Victim) -> tuple[int, str, str, str, int]:
    deployment = victim.state.deployment
    return (*deployment.order, victim.entry.replica.index)


def _charge(victim: _Victim, capacity: FleetCapacity) -> None:
    for layout in victim.entry.layouts:
        capacity.charge_layout(victim.entry.placement.cluster, layout)


def _discharge(victim: _Victim, capacity: FleetCapacity) -> None:
    for layout in victim.entry.layouts:
        capacity.discharge_layout(victim.entry.placement.cluster, layout)
