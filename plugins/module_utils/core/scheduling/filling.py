# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Placement of missing replicas: order of clusters, moves of other new replicas, and preemption."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .cheapest import CheapestPlaces
from .distribution import Distribution, preference, surplus
from .eligibility import cluster_refusal
from .fitting import FleetCapacity, ReplicaFit
from .model import Cluster, CostLimits, Deployment, Dropped
from .preemption import preempt, restore
from .rearranging import NewReplicas, Rearranger
from .retaining import State


class Filler:
    """Placement of missing replicas, with a cache of searches without a result."""

    def __init__(self, fleet: Mapping[str, Cluster], capacity: FleetCapacity) -> None:
        self._fleet = fleet
        self._capacity = capacity
        self._rearranger = Rearranger(fleet, capacity)
        self._eligible: dict[object, dict[str, None]] = {}
        self._priorities: dict[int, _Priority] = {}
        # For the engines with an id(): the version of each cluster without a placement for them.
        self._refused: dict[int, dict[str, int]] = {}
        self._distributions: dict[tuple[str, str], Distribution | None] = {}
        # True if a replica freed devices since new replicas last moved to preferred clusters.
        self._has_moved = False

    def fill(self, states: Sequence[State]) -> None:
        """Place replicas, and then surge replicas, until a full pass over all deployments places no replica.

        An unschedulable deployment moves new replicas of the same priority to other clusters. Afterwards, one pass is
        not enough because a search with a work limit might reject a cluster and accept it later. Without a last pass
        that places no replica, the next run could find a placement that this run missed.
        """
        self._capacity.work.reserve([state.deployment.key for state in states if state.may_grow])
        self._fill_in_order(states)
        self._fill_rest(states)
        for state in states:
            state.surges = True
        self._fill_rest(states)
        for state in states:
            if state.deployment.returns and state.may_change and state.missing >= 0:
                self._capacity.work.owner = state.deployment.key
                self._return_one(state)

    def _fill_rest(self, states: Sequence[State]) -> None:
        progress = True
        while progress:
            progress = False
            for state in states:
                if state.may_grow:
                    self._capacity.work.owner = state.deployment.key
                    progress = self._fill_one(state) or progress

    def _return_one(self, state: State) -> None:
        """Place a new replica on a preferred cluster. When it serves, a replica on a less preferred cluster leaves.

        Only one replica returns at a time. No replica returns while another replica leaves, or while a cluster with
        replicas does not respond, because the next run might have to remove a replica there instead. A pending replica
        of the deployment has priority on each cluster that it may use. With pending replicas, the next run cannot
        derive the leaving replica from the number of replicas, so the leaving replica is marked."""
        distribution = self._distribution(state)
        if distribution is None or any(entry.may_stay for entry in state.dropped):
            return
        if any(self._fleet[name].silent for name in state.counts):
            return
        fleet, deployment, counts = self._fleet, state.deployment, state.counts
        kept_entries = {(entry.placement.cluster, entry.placement.index): entry for entry in state.kept}
        placed = [
            *kept_entries,
            *((name, -1 - number) for name, fits in state.new.items() for number in range(len(fits))),
        ]
        worst = max((preference(deployment, fleet[name]) for name, __ in kept_entries), default=0)
        eligible = self._eligible_for(deployment)
        preferred = [name for name in eligible if preference(deployment, fleet[name]) < worst]
        for name in sorted(preferred, key=lambda name: distribution.rank(name, counts)):
            if state.missing and distribution.allows(counts + Counter({name: 1})):
                continue
            fit = self._fit(state, name)
            if fit is None:
                continue
            # The next run must remove the same replica if both replicas exist then.
            placed_with_new = [*placed, (name, -1 - counts[name])]
            [victim] = surplus(deployment, fleet, placed_with_new, eligible, len(placed))
            entry = kept_entries.get(victim)
            if entry is None or entry.placement.state != "kept" or entry.replica.old:
                continue
            is_better = preference(deployment, fleet[name]) < preference(deployment, fleet[victim[0]])
            if is_better and distribution.allows(counts + Counter({name: 1}) - Counter({victim[0]: 1})):
                mark = state.name if state.missing else ""
                self._take(state, name, fit)
                state.kept.remove(entry)
                reason = f"returns to preferred cluster {name}, which has free capacity"
                state.dropped.append(Dropped(entry.replica, reason, evicted=True, preempted_by=mark, has_devices=True))
                return

    def refusals(self, state: State) -> dict[str, str]:
        """Return the reasons why the distribution and cost limits of a deployment allow no more replicas on
        clusters."""
        distribution, limits = self._distribution(state), state.deployment.cost
        eligible = self._eligible_for(state.deployment)
        reasons = self._cheapest(state, limits).refusals(eligible) if limits else {}
        if distribution is not None:
            counts = state.counts
            reasons = {name: distribution.refusal(name, counts) or reasons.get(name, "") for name in eligible}
        return {name: reason for name, reason in reasons.items() if reason}

    def _fill_in_order(self, states: Sequence[State]) -> None:
        """Place the missing replicas, the highest priority first.

        A preemption can free more devices than its replica requires. The pass then starts again because deployments
        with a higher priority use these devices first. Otherwise, the next run would preempt replicas of this run. A
        new replica that moves to a preferred cluster also frees devices.
        """
        position = 0
        while position < len(states) or self._move_to_preferred(states):
            position %= len(states)
            state = states[position]
            self._capacity.work.owner = state.deployment.key
            restore(state, self._capacity)
            if self._keep_returning(state):
                # A deployment with a higher priority may preempt the replica.
                position = 0
                continue
            self._fill_with_room(state)
            cluster = self._preempt(state, states)
            if not cluster:
                position += 1
                continue
            self._has_moved = True
            self._restore_instead(state, cluster)
            if any(self._capacity.ledger(cluster, pool).left() for pool in self._fleet[cluster].pools):
                self._clear_hopeless()
                position = 0

    def _clear_hopeless(self) -> None:
        for priority in self._priorities.values():
            priority.hopeless.clear()

    def _move_to_preferred(self, states: Sequence[State]) -> bool:
        """Move new replicas to preferred clusters with free devices. Return True if a replica moved.

        A replica uses the first cluster with free devices in the order of its distribution. Devices on clusters earlier
        in that order can become free when new replicas of other deployments move or running replicas are preempted.
        """
        if not self._has_moved:
            return False
        self._has_moved = False
        moved = [state for state in states if state.deployment.preferences and self._move_replicas(state)]
        if moved:
            self._clear_hopeless()
        return bool(moved)

    def _move_replicas(self, state: State) -> bool:
        """Move new replicas of a deployment to preferred clusters. Return True if a replica moved."""
        distribution = self._distribution(state)
        if distribution is None or state.deployment.cost is not None or not state.may_change:
            return False
        has_moved = False
        for name in sorted(state.new, key=lambda name: preference(state.deployment, self._fleet[name]), reverse=True):
            while state.new.get(name) and self._move_replica(state, name, distribution):
                has_moved = True
        return has_moved

    def _move_replica(self, state: State, name: str, distribution: Distribution) -> bool:
        """Move a new replica to the first preferred cluster with free devices. Return True if the replica moved."""
        other_counts = state.counts - Counter({name: 1})
        current = distribution.precedence(name, other_counts)
        candidates = [
            candidate
            for candidate in self._eligible_for(state.deployment)
            if not self._is_refused(state, candidate)
            and distribution.precedence(candidate, other_counts) < current
            and distribution.allows(other_counts + Counter({candidate: 1}))
        ]
        for candidate in sorted(candidates, key=lambda candidate: distribution.rank(candidate, other_counts)):
            if self._place(state, candidate):
                self._capacity.discharge_fit(name, state.new[name].pop())
                if not state.new[name]:
                    del state.new[name]
                return True
        return False

    def _fill_with_room(self, state: State) -> None:
        """Place the missing replicas of a deployment. New replicas of the same priority can move to free capacity."""
        if not state.may_grow:
            return
        if state.deployment.cost is not None:
            # The planner places these replicas by cost. They do not move, and other replicas do not move for them.
            self._fill_one(state)
            return
        priority = self._priorities.setdefault(state.deployment.priority, _Priority())
        clusters = self._eligible_for(state.deployment)
        distribution = self._distribution(state)
        new_replicas = priority.filled.pop(state.deployment.key, None)
        if new_replicas is None:
            allows = None if distribution is None else _Allows(distribution, state.counts)
            new_replicas = NewReplicas(state.engines, clusters, state.new, allows)
        priority.filled[state.deployment.key] = new_replicas
        self._fill_one(state)
        if self._capacity.options.search != "Exact":
            return
        key = (id(state.engines), id(clusters))
        if distribution is None and key in priority.hopeless:
            state.undecided |= priority.hopeless[key]
        elif not self._make_room(state, tuple(priority.filled.values())) and distribution is None:
            priority.hopeless[key] = state.undecided

    def _keep_returning(self, state: State) -> bool:
        """Keep a returning replica if its replacement was preempted. Return True if this keeps a replica."""
        distribution = self._distribution(state) if state.returning and state.may_grow else None
        for entry in state.returning if distribution else ():
            if distribution and distribution.allows(state.counts + Counter({entry.placement.cluster: 1})):
                state.returning.remove(entry)
                state.kept.append(entry)
                state.dropped = [dropped for dropped in state.dropped if dropped.replica is not entry.replica]
                return True
        return False

    def _preempt(self, state: State, states: Sequence[State]) -> str:
        """Place one more replica by preemption. Return its cluster, "" without preemption."""
        if not state.may_grow or not state.deployment.preempts or state.deployment.cost is not None:
            return ""
        distribution, counts = self._distribution(state), state.counts
        names = [
            name
            for name in self._eligible_for(state.deployment)
            if distribution is None or distribution.allows(counts + Counter({name: 1}))
        ]
        names.sort(key=lambda name: (distribution.rank(name, counts) if distribution else (), name))
        previous_undecided = self._capacity.work.undecided
        cluster = preempt(state, names, states, self._fleet, self._capacity)
        state.undecided |= not cluster and self._capacity.work.undecided > previous_undecided
        return cluster

    def _restore_instead(self, state: State, cluster: str) -> None:
        """Keep a preempted replica of a deployment instead of its last new replica on a cluster, if possible."""
        if not state.preempted:
            return
        fit = state.new[cluster].pop()
        self._capacity.discharge_fit(cluster, fit)
        preempted = len(state.preempted)
        restore(state, self._capacity)
        if len(state.preempted) == preempted:
            self._take(state, cluster, fit)
        elif not state.new[cluster]:
            del state.new[cluster]

    def _make_room(self, state: State, filled: Sequence[NewReplicas]) -> bool:
        """Place the missing replicas by moving other new replicas. Return False if a replica is still missing."""
        previous_undecided = self._capacity.work.undecided
        while state.may_grow and self._rearranger.make_room(filled):
            self._has_moved = True
            previous_undecided = self._capacity.work.undecided
        state.undecided |= state.may_grow and self._capacity.work.undecided > previous_undecided
        return not state.may_grow

    def _fill_one(self, state: State) -> bool:
        """Place replicas of a deployment one by one on the first cluster with free capacity. Return False if no replica
        was placed."""
        previous_undecided = self._capacity.work.undecided
        missing = state.missing
        distribution = self._distribution(state)
        if state.deployment.cost is not None:
            self._fill_cheapest(state, self._cheapest(state, state.deployment.cost), distribution)
        elif distribution is None:
            self._fill_evenly(state)
        else:
            self._fill_by(state, distribution)
        state.undecided |= state.missing > 0 and self._capacity.work.undecided > previous_undecided
        return state.missing < missing

    def _fill_evenly(self, state: State) -> None:
        """Place replicas on the cluster with the fewest replicas of the deployment. Equal clusters are sorted by
        name."""
        counts = state.counts
        eligible = self._eligible_for(state.deployment)
        unused = (name for name in eligible if name not in counts)
        used = [(count, name) for name, count in counts.items() if name in eligible]
        heapq.heapify(used)
        while state.missing > 0:
            name = next(unused, "")
            if not name:
                if not used:
                    return
                __, name = heapq.heappop(used)
            if self._place(state, name):
                counts[name] += 1
                heapq.heappush(used, (counts[name], name))

    def _fill_by(self, state: State, distribution: Distribution) -> None:
        """Place replicas on the first cluster in the order of a distribution that allows one more replica."""
        candidates = [name for name in self._eligible_for(state.deployment) if not self._is_refused(state, name)]
        counts = state.counts
        while state.missing > 0:
            allowed = [name for name in candidates if distribution.allows(counts + Counter({name: 1}))]
            if not allowed:
                return
            name = min(allowed, key=lambda name: distribution.rank(name, counts))
            if self._place(state, name):
                counts[name] += 1
            else:
                candidates.remove(name)

    def _fill_cheapest(self, state: State, cheapest: CheapestPlaces, distribution: Distribution | None) -> None:
        """Place replicas at the lowest cost that the limits allow, after the order of a distribution. Equal costs have
        the order without limits."""
        counts = state.counts
        candidates = list(self._eligible_for(state.deployment))
        while state.missing > 0:
            allowed = [
                name for name in candidates if distribution is None or distribution.allows(counts + Counter({name: 1}))
            ]
            offers = {name: offer for name in allowed if not isinstance(offer := cheapest.offer(name), str)}
            if not offers:
                repacked = next((name for name in allowed if cheapest.repack(name)), "")
                if not repacked:
                    return
                counts[repacked] += 1
                continue
            ranks = {name: distribution.rank(name, counts) if distribution else (counts[name], name) for name in offers}
            name = min(offers, key=lambda name: (*ranks[name][:-2], offers[name].rank, *ranks[name][-2:]))
            cheapest.take(name, offers[name])
            counts[name] += 1

    def _cheapest(self, state: State, limits: CostLimits) -> CheapestPlaces:
        return CheapestPlaces(state, limits, self._fleet, self._capacity)

    def _place(self, state: State, name: str) -> bool:
        fit = self._fit(state, name)
        if fit is not None:
            self._take(state, name, fit)
        return fit is not None

    def _fit(self, state: State, name: str) -> ReplicaFit | None:
        """Return a placement on a cluster, None without a placement. A refusal is cached until the cluster changes."""
        if state.deployment.cost is not None:
            offer = self._cheapest(state, state.deployment.cost).offer(name)
            return None if isinstance(offer, str) else offer.fit
        if self._is_refused(state, name):
            return None
        fits = self._capacity.joint_fit([state.engines], self._fleet[name], {})
        if fits is None:
            self._refused.setdefault(id(state.engines), {})[name] = self._capacity.version(name)
            return None
        return fits[0]

    def _is_refused(self, state: State, name: str) -> bool:
        """Return True if a cluster had no placement for a replica, and is unchanged since then."""
        return self._refused.get(id(state.engines), {}).get(name) == self._capacity.version(name)

    def _take(self, state: State, name: str, fit: ReplicaFit) -> None:
        self._capacity.charge_fit(name, fit)
        state.new.setdefault(name, []).append(fit)

    def _distribution(self, state: State) -> Distribution | None:
        """Return the constraints for the distribution of a deployment's replicas, None without constraints."""
        deployment = state.deployment
        if not deployment.is_distributed:
            return None
        if deployment.key not in self._distributions:
            eligible = self._eligible_for(deployment)
            self._distributions[deployment.key] = Distribution(deployment, self._fleet, eligible, state.kept_counts)
        return self._distributions[deployment.key]

    def _eligible_for(self, deployment: Deployment) -> dict[str, None]:
        """Return the eligible clusters of a deployment by name. Equal constraints return the same object."""
        key = (tuple(sorted(deployment.cluster_selector.items())), deployment.tolerations)
        if key not in self._eligible:
            self._eligible[key] = dict.fromkeys(
                sorted(cluster.name for cluster in self._fleet.values() if not cluster_refusal(deployment, cluster))
            )
        return self._eligible[key]


@dataclass
class _Priority:
    """New replicas of deployments with one priority, in filling order. They can move.

    filled: new replicas by deployment.
    hopeless: engines and clusters without a rearrangement that frees capacity, until a preemption frees devices. The
        value is True if a search reached its limit.
    """

    filled: dict[tuple[str, str], NewReplicas] = field(default_factory=dict)
    hopeless: dict[object, bool] = field(default_factory=dict)


class _Allows:
    """Check that a distribution allows new replicas in addition to the kept replicas."""

    def __init__(self, distribution: Distribution, kept_counts: Counter[str]) -> None:
        self._distribution = distribution
        self._kept = kept_counts

    def __call__(self, new: Counter[str]) -> bool:
        return self._distribution.allows(self._kept + new)
