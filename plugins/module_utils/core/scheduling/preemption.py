# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Preemption of running replicas by a new replica of higher priority, if its deployment requests preemption.

The choice of victims follows kube-scheduler. On each cluster all replicas of lower priority are removed, and as many as
possible are restored, the most important replica first. The most important victims of the clusters are compared, and
the cluster with the lowest priority is used. Ties are decided by the smallest sum of priorities, then the fewest
victims, then the name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .capacity import Demand
from .fitting import FleetCapacity, ReplicaFit
from .model import Cluster, Pool
from .retaining import Kept, State, preempted


@dataclass(frozen=True)
class _Victim:
    state: State
    entry: Kept

    @property
    def demands(self) -> list[tuple[Pool, Demand]]:
        """Return the demands of the replica with their pools."""
        return [charge for layout in self.entry.layouts for charge in layout.demands]


def preempt(
    state: State,
    clusters: Sequence[str],
    states: Sequence[State],
    fleet: Mapping[str, Cluster],
    capacity: FleetCapacity,
) -> str:
    """Preempt kept replicas of lower priority, and place one more replica on their cluster.

    Return the cluster: the first of `clusters` with the least important victims. Return "" without changes if no
    preemption frees enough capacity. Replicas that this run must not remove are not preempted. Stranded replicas are
    not preempted either, because their devices would remain unavailable.
    """
    best: tuple[tuple[list[int], int, int], str, list[_Victim], ReplicaFit] | None = None
    candidates: dict[str, list[_Victim]] = {}
    for victim_state in states:
        if victim_state.deployment.priority < state.deployment.priority and victim_state.may_change:
            for entry in victim_state.kept:
                if entry.placement.state == "kept" and not entry.replica.stranded:
                    candidates.setdefault(entry.placement.cluster, []).append(_Victim(victim_state, entry))
    for name in clusters:
        if name not in candidates or fleet[name].silent:
            continue
        victims, fit = _victims(state, fleet[name], candidates[name], capacity)
        if fit is not None:
            priorities = sorted((victim.state.deployment.priority for victim in victims), reverse=True)
            rank = (priorities[:1], sum(priorities), len(priorities))
            if best is None or rank < best[0]:
                best = rank, name, victims, fit
    if best is None:
        return ""
    __, name, victims, fit = best
    for victim in victims:
        victim.state.kept.remove(victim.entry)
        victim.state.preempted.append(victim.entry)
        for layout in victim.entry.layouts:
            capacity.discharge_layout(name, layout)
        victim.state.dropped.append(preempted(victim.entry.replica, state.name))
    capacity.charge_fit(name, fit)
    state.new.setdefault(name, []).append(fit)
    return name


def restore(state: State, capacity: FleetCapacity) -> None:
    """Keep the preempted replicas of a deployment if their devices are still free."""
    for entry in list(state.preempted):
        cluster, charged = entry.placement.cluster, 0
        for layout in entry.layouts:
            if not capacity.has_room(cluster, layout):
                break
            capacity.charge_layout(cluster, layout)
            charged += 1
        if charged == len(entry.layouts) and state.missing > 0:
            state.preempted.remove(entry)
            state.kept.append(entry)
            state.dropped = [dropped for dropped in state.dropped if dropped.replica is not entry.replica]
        else:
            for layout in entry.layouts[:charged]:
                capacity.discharge_layout(cluster, layout)


def _victims(
    state: State, cluster: Cluster, candidates: Sequence[_Victim], capacity: FleetCapacity
) -> tuple[list[_Victim], ReplicaFit | None]:
    """Return the replicas to preempt on a cluster, and the placement on the freed devices. None without a placement."""
    ledgers = capacity.without(cluster, ())

    def place() -> ReplicaFit | None:
        fits = capacity.joint_fit([state.engines], cluster, ledgers)
        return fits[0] if fits else None

    for victim in candidates:
        for pool, demand in victim.demands:
            ledgers[pool.name].remove(demand)
    fit = place()
    victims: list[_Victim] = []
    for victim in sorted(candidates, key=_by_importance) if fit else ():
        for pool, demand in victim.demands:
            ledgers[pool.name].add(demand)
        with_victim = place()
        if with_victim is None:
            victims.append(victim)
            for pool, demand in victim.demands:
                ledgers[pool.name].remove(demand)
        else:
            fit = with_victim
    return victims, fit


def _by_importance(victim: _Victim) -> tuple[int, str, str, str, int]:
    deployment = victim.state.deployment
    return (*deployment.order, victim.entry.replica.index)
