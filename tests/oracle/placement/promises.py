# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Promises of docs/contributing/scheduling.md on spread, minAvailable, preferences, return, preemption and cost, and
plans that break them. The rules are written from the page, not from the scheduler's code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TypeVar

from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.cost import is_on_spot, replica_cost
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import (
    Cluster,
    Deployment,
    Dropped,
    Placement,
    Replica,
    Schedule,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.placement import bound_schedule
from ansible_collections.modelplane.fleet.tests.oracle.placement import prices, rules
from ansible_collections.modelplane.fleet.tests.oracle.placement.comparison import (
    Outcome,
    Scheduler,
    against_rules,
    over_capacity,
    running_after,
)
from ansible_collections.modelplane.fleet.tests.oracle.placement.facts import Facts, identity, where
from ansible_collections.modelplane.fleet.tests.oracle.placement.losses import Surveyor, by_the_survey, unsurvived
from ansible_collections.modelplane.fleet.tests.oracle.placement.reasons import false_reasons
from ansible_collections.modelplane.fleet.tests.oracle.placement.written import Fleet

One = TypeVar("One", bound=Replica | Placement)
MOST_RUNS = 20


def by_the_bound_scheduler(fleet: Fleet) -> Schedule:
    return bound_schedule(fleet.deployments, fleet.clusters, fleet.running, fleet.options)


def check(fleet: Fleet, scheduler: Scheduler = by_the_bound_scheduler, surveyor: Surveyor = by_the_survey) -> Outcome:
    """Return all promises that the answers for a fleet break, from the first run to the one that changes nothing."""
    outcome = Outcome()
    outcome.figures["fleets"] = 1
    if fleet.survive:
        outcome.figures["fleets that survive"] = 1
        outcome.add("survive", unsurvived(fleet, surveyor))
    for __ in range(MOST_RUNS):
        decided = scheduler(fleet)
        promises = _Promises(fleet, decided)
        outcome.figures.update(
            runs=1,
            new=len(promises.facts.new),
            kept=len(promises.facts.kept),
            pending=sum(entry.count for entry in decided.pending),
            preempted=len(promises.victims),
            returned=len(promises.returned),
        )
        outcome.add("moves", promises.moves())
        outcome.add("over capacity", over_capacity(promises.facts))
        outcome.add("against the rules", against_rules(promises.facts))
        outcome.add("spread", promises.spread())
        outcome.add("minAvailable", promises.minimum())
        outcome.add("false rejects", promises.refused())
        outcome.add("victims", promises.wrong_victims())
        outcome.add("needless victims", promises.needless_victims())
        outcome.add("preemption", promises.missed_preemptions())
        outcome.add("preferences", promises.preferences())
        outcome.add("return", promises.missed_returns())
        outcome.add("return", promises.wrong_returns())
        outcome.add("cost", promises.costs())
        outcome.add("cheapest", promises.dearer_places())
        outcome.add("false reasons", promises.false_reasons())
        outcome.figures.update(promises.facts.figures)
        fleet = replace(fleet, running=running_after(fleet, decided))
        again = scheduler(fleet)
        if not promises.returned and not _returned(again):
            outcome.add("changes of a second run", _changes(decided, again))
            return outcome
    outcome.add("return", [f"replicas still return in run {MOST_RUNS}"])
    return outcome


def _changes(decided: Schedule, again: Schedule) -> Iterator[str]:
    for dropped in again.dropped:
        yield f"{dropped.replica.name} is dropped: {dropped.reason}"
    places = [[(where(one), one.engines) for one in run.placements] for run in (decided, again)]
    if places[0] != places[1]:
        yield "places or claims change"
    if decided.pending != again.pending:
        yield f"reasons change: {decided.pending}, then {again.pending}"
    if decided.overcommitted != again.overcommitted:
        yield f"{decided.overcommitted} are overcommitted, then {again.overcommitted}"


def _returned(decided: Schedule) -> list[Dropped]:
    return [entry for entry in decided.dropped if entry.evicted and "taint" not in entry.reason]


class _Promises:
    """An answer for a fleet, and what it breaks."""

    def __init__(self, fleet: Fleet, decided: Schedule) -> None:
        self.facts = Facts(fleet, decided)
        self.decided = decided
        self.victims = [entry for entry in decided.dropped if entry.preempted_by and not entry.evicted]
        self.returned = _returned(decided)
        # What returns has its devices until the new one serves.
        self.charged: list[Replica | Placement] = [
            *self.facts.everything,
            *(entry.replica for entry in self.returned),
        ]
        self.pending = {(entry.namespace, entry.deployment): entry.count for entry in decided.pending}

    def moves(self) -> Iterator[str]:
        """Yield running replicas that are removed and may stay, and those that stay and may not."""
        for deployment in self.facts.ordered:
            running = [one for one in self.facts.fleet.running if (one.namespace, one.deployment) == deployment.key]
            staying = [one for one in running if rules.stays(one, deployment, self.facts.clusters.get(one.cluster))]
            surplus = self._surplus(deployment, staying, deployment.replicas)
            removed = {identity(one) for one in surplus if not self.facts.clusters[one.cluster].silent}
            removed |= {identity(entry.replica) for entry in (*self.victims, *self.returned)}
            expected = {identity(one) for one in staying} - removed
            kept = {identity(one) for one in self.facts.kept if self._deployment(one) is deployment}
            yield from (f"{key[1:]} may stay and is removed" for key in sorted(expected - kept))
            if len(kept) <= deployment.replicas and any(
                (entry.replica.namespace, entry.replica.deployment) == deployment.key for entry in self.victims
            ):
                # One that leaves for a replica that is preempted stays.
                kept -= {identity(one) for one in surplus}
            yield from (f"{key[1:]} is kept and may not stay" for key in sorted(kept - expected))

    def spread(self) -> Iterator[str]:
        for one in self.facts.new:
            deployment, counts = self._deployment(one), self._counts(one)
            for spread in deployment.spread:
                if not spread.required:
                    continue
                totals = self._by_value(counts, spread.topology_key)
                value = self._value(one.cluster, spread.topology_key)
                fewest = min((totals[value] for value in self._values(deployment, spread.topology_key)), default=0)
                # What was too much before may stay so, and return within the value.
                before = [*self.facts.kept, *(entry.replica for entry in self.returned)]
                most = sum(
                    self._deployment(other) is deployment and self._value(other.cluster, spread.topology_key) == value
                    for other in before
                )
                if not value or totals[value] > max(fewest + spread.max_skew, most):
                    yield f"{where(one)}: {spread.topology_key} has {dict(totals)}, maxSkew is {spread.max_skew}"

    def minimum(self) -> Iterator[str]:
        for deployment in self.facts.ordered:
            before_return = [*self.facts.kept, *(entry.replica for entry in self.returned)]
            kept = Counter(one.cluster for one in before_return if self._deployment(one) is deployment)
            counts = self._counts_of(deployment)
            for minimum in deployment.minimum:
                before, after = (
                    sum(found.values()) + self._lacking(deployment, found, minimum.topology_key, minimum.replicas)
                    for found in (kept, counts)
                )
                if after > max(before, deployment.replicas):
                    yield f"{deployment.name}: replicas are not kept for {minimum.topology_key}: {dict(counts)}"

    def refused(self) -> Iterator[str]:
        """A replica is pending, and a cluster that is allowed has room."""
        for deployment in self._unplaced():
            for cluster in self._allowed(deployment, self._counts_of(deployment)):
                if deployment.cost is None and self.facts.takes_one_more(deployment, cluster.name, beside=self.charged):
                    yield f"{deployment.name} is refused a replica on {cluster.name}, which has room"

    def wrong_victims(self) -> Iterator[str]:
        # A preemptor may keep its own preempted replica there instead of a new one.
        placed = {(f"{one.namespace}/{one.deployment}", one.cluster) for one in (*self.facts.new, *self.facts.kept)}
        for entry in self.victims:
            replica = entry.replica
            victim = self.facts.deployments[replica.namespace, replica.deployment]
            namespace, __, name = entry.preempted_by.partition("/")
            preemptor = self.facts.deployments[namespace, name]
            if victim.priority >= preemptor.priority or not preemptor.preempts or preemptor.cost is not None:
                yield f"{where(replica)} may not be preempted by {name}"
            if victim.hold or self.facts.clusters[replica.cluster].silent:
                yield f"{where(replica)} may not be removed now"
            # Afterwards, others of its priority may move it elsewhere.
            if (entry.preempted_by, replica.cluster) not in placed and self.facts.placed[preemptor.key] == 0:
                yield f"{where(replica)} is preempted for nothing"

    def needless_victims(self) -> Iterator[str]:
        """Yield the victims whose places all replicas of a higher priority leave free."""
        for entry in self.victims:
            replica = entry.replica
            deployment = self.facts.deployments[replica.namespace, replica.deployment]
            # What returns still has its devices, and edited replicas have others than before.
            leaving = any(one.replica.cluster == replica.cluster for one in self.returned)
            if leaving or not _is_current(replica, deployment):
                continue
            priority = deployment.priority
            more = [one for one in self.facts.new if self._deployment(one).priority > priority]
            load = self.facts.load([*self.facts.existing, *more, replica])
            mine = self.facts.load([replica])
            if all(self.facts.fits(pool, load[pool]) for pool in mine):
                yield f"the place of {where(replica)} is free, and it is preempted by {entry.preempted_by}"

    def missed_preemptions(self) -> Iterator[str]:
        for deployment in self._unplaced():
            if not deployment.preempts or deployment.cost is not None or self._surges(deployment):
                continue
            for cluster in self._allowed(deployment, self._counts_of(deployment)):
                staying = [one for one in self.charged if not self._gives_way(one, cluster, deployment.priority)]
                if len(staying) < len(self.charged) and self.facts.takes_one_more(
                    deployment, cluster.name, beside=staying
                ):
                    yield f"{deployment.name} has no replica on {cluster.name}, where lower priorities have replicas"

    def preferences(self) -> Iterator[str]:
        """A new replica is on a cluster although a preferred one has room."""
        for one in self.facts.new:
            deployment = self._deployment(one)
            if not deployment.preferences or deployment.minimum or deployment.cost is not None:
                continue
            counts = self._counts(one) - Counter({one.cluster: 1})
            for cluster in self._allowed(deployment, counts):
                # The places that a preemption frees come after those that are free.
                if any(entry.replica.cluster == cluster.name for entry in self.victims):
                    continue
                if self._preference(deployment, cluster.name) < self._preference(
                    deployment, one.cluster
                ) and self.facts.takes_one_more(deployment, cluster.name, beside=self.charged):
                    yield f"{where(one)} is new although {cluster.name} is preferred and has room"

    def missed_returns(self) -> Iterator[str]:
        """The replica that scaling down removes first may be on a more preferred cluster, and none returns."""
        if self.returned:
            return
        for deployment in self.facts.ordered:
            if not deployment.returns or deployment.hold or deployment.cost:
                continue
            mine = [one for one in self.facts.everything if self._deployment(one) is deployment]
            is_silent = any(self.facts.clusters[one.cluster].silent for one in mine)
            # None while another one leaves.
            is_leaving = any(
                (entry.evicted or entry.preempted_by)
                and (entry.replica.namespace, entry.replica.deployment) == deployment.key
                for entry in self.decided.dropped
            )
            if is_silent or is_leaving or len(mine) > deployment.replicas:
                continue
            for cluster in self.facts.fleet.clusters:
                first = self._first_return(deployment, cluster, mine)
                if first and self.facts.takes_one_more(deployment, cluster.name, beside=self.charged):
                    yield f"{deployment.name} returns nothing from {first} to {cluster.name}, which has room"

    def wrong_returns(self) -> Iterator[str]:
        """Several replicas of a deployment return, or one for which none is new on a preferred cluster, or that takes
        the place of a pending one, or that a minimum needs."""
        for deployment in self.facts.ordered:
            returned = [
                entry.replica
                for entry in self.returned
                if (entry.replica.namespace, entry.replica.deployment) == deployment.key
            ]
            running = [one for one in self.facts.fleet.running if (one.namespace, one.deployment) == deployment.key]
            staying = [one for one in running if rules.stays(one, deployment, self.facts.clusters.get(one.cluster))]
            # Scaling down may keep a replica until those on preferred clusters serve.
            if not returned or len(staying) > deployment.replicas:
                continue
            old, *others = returned
            kept = [one.cluster for one in self.facts.kept if self._deployment(one) is deployment]
            is_silent = any(self.facts.clusters[name].silent for name in (old.cluster, *kept))
            if others or not deployment.returns or is_silent:
                yield f"{where(old)} may not return now"
            after = self._counts_of(deployment)
            new = dict.fromkeys(one.cluster for one in self.facts.new if self._deployment(one) is deployment)
            # An earlier run may have placed the replica that is preferred.
            if not any(self._is_return(deployment, old, name, after, is_new=name in new) for name in after):
                yield f"{where(old)} returns to no preferred cluster, or one that a pending replica may use"
            before = Counter([*kept, old.cluster])
            for minimum in deployment.minimum:
                lacking = [
                    self._lacking(deployment, counts, minimum.topology_key, minimum.replicas)
                    for counts in (before, after)
                ]
                if lacking[1] > lacking[0]:
                    yield f"{where(old)} returns, and a minimum for {minimum.topology_key} needs it"

    def _is_return(self, deployment: Deployment, old: Replica, name: str, after: Counter[str], *, is_new: bool) -> bool:
        """Return whether a replica may have returned to a cluster."""
        before = after + Counter({old.cluster: 1}) - Counter({name: 1})
        is_free = is_new and bool(self.pending.get(deployment.key))
        return self._preference(deployment, name) < self._preference(deployment, old.cluster) and not (
            is_free and self._allows(deployment, before, self.facts.clusters[name])
        )

    def _first_return(self, deployment: Deployment, cluster: Cluster, mine: Sequence[Replica | Placement]) -> str:
        """Return the cluster of the replica that returns to a cluster, whatever room that has; "" if none may."""
        if rules.ineligible(deployment, cluster):
            return ""
        new = Replica("", *deployment.key, cluster.name, 1000, ())
        [removed] = self._surplus(deployment, [*mine, new], len(mine))
        if removed is new or (isinstance(removed, Placement) and removed.state == "new"):
            return ""
        is_preferred = self._preference(deployment, cluster.name) < self._preference(deployment, removed.cluster)
        others = self._counts_of(deployment) - Counter({removed.cluster: 1})
        return removed.cluster if is_preferred and self._allows(deployment, others, cluster) else ""

    def _surplus(self, deployment: Deployment, replicas: Sequence[One], desired: int) -> list[One]:
        """Return the replicas that scaling down to a number removes, in order."""
        left, removed = list(replicas), []
        while len(left) > desired:
            counts = Counter(one.cluster for one in left)
            removed.append(max(left, key=lambda one: self._removal(deployment, one, counts)))
            left.remove(removed[-1])
        return removed

    def _removal(self, deployment: Deployment, one: Replica | Placement, counts: Counter[str]) -> tuple[object, ...]:
        """Return where a replica is in the order of removal; the largest is removed first."""
        needed = any(
            0 < self._by_value(counts, key)[value] <= least
            for key, least in ((minimum.topology_key, minimum.replicas) for minimum in deployment.minimum)
            if key and (value := self._value(one.cluster, key))
        )
        after = counts - Counter({one.cluster: 1})
        skew = 0
        for spread in deployment.spread if any(spread.required for spread in deployment.spread) else ():
            totals = self._by_value(after, spread.topology_key)
            fewest = min((totals[value] for value in self._values(deployment, spread.topology_key)), default=0)
            most = {value: fewest + spread.max_skew if value else 0 for value in totals}
            skew += sum(max(0, totals[value] - most[value]) for value in totals) if spread.required else 0
        values = [
            self._by_value(counts, spread.topology_key)[self._value(one.cluster, spread.topology_key)]
            for spread in deployment.spread
        ]
        preference = self._preference(deployment, one.cluster)
        return not needed, -skew, preference, values, counts[one.cluster], one.cluster, one.index

    def costs(self) -> Iterator[str]:
        for deployment in self.facts.ordered:
            limits = deployment.cost
            mine = [one for one in self.facts.everything if self._deployment(one) is deployment]
            if limits is None or not any(one.state == "new" for one in mine if isinstance(one, Placement)):
                continue
            pools = {name: {pool.name: pool for pool in cluster.pools} for name, cluster in self.facts.clusters.items()}
            costs = [replica_cost(one.engines, pools[one.cluster]) for one in mine]
            if limits.ceiling is not None and sum(cost or 0 for cost in costs) > Fraction(limits.ceiling):
                yield f"{deployment.name} costs {costs} and may cost {limits.ceiling}"
            spot = sum(is_on_spot(one.engines, pools[one.cluster]) for one in mine)
            new = sum(is_on_spot(one.engines, pools[one.cluster]) for one in self.facts.new if one in mine)
            most = deployment.replicas if limits.most_spot is None else limits.most_spot
            if new and spot > min(most, deployment.replicas - limits.least_on_demand):
                yield f"{deployment.name} has {spot} replicas on spot nodes"

    def dearer_places(self) -> Iterator[str]:
        """A new replica with limits on its cost is on a place although a cheaper one has room."""
        for one in self.facts.new:
            deployment = self._deployment(one)
            if deployment is None or deployment.cost is None or deployment.minimum or len(deployment.engines) > 1:
                continue
            cost = prices.cost(one, self.facts.clusters[one.cluster])
            keys = [spread.topology_key for spread in deployment.spread]
            here = [self._value(one.cluster, key) for key in keys]
            for cluster in self.facts.fleet.clusters:
                is_equal = here == [self._value(cluster.name, key) for key in keys] and self._preference(
                    deployment, cluster.name
                ) <= self._preference(deployment, one.cluster)
                if not is_equal or rules.ineligible(deployment, cluster):
                    continue
                for pool in cluster.pools:
                    most = prices.most(deployment, cluster, pool)
                    is_cheaper = most is not None and (cost is None or most < cost)
                    if (
                        is_cheaper
                        and not pool.spot
                        and self.facts.takes_one_more(deployment, cluster.name, pools=[pool.name], beside=self.charged)
                    ):
                        yield f"{where(one)} costs {cost} and {pool.name} on {cluster.name} {most}, which has room"

    def false_reasons(self) -> Iterator[str]:
        leaving = [entry.replica for entry in self.returned]
        # An edit of a replica that leaves counts, and the page has no numbers for that.
        if all(_is_current(one, self.facts.deployments[one.namespace, one.deployment]) for one in leaving):
            facts = Facts(self.facts.fleet, self.decided, leaving)
            yield from false_reasons(facts)
            self.facts.figures.update(facts.figures)
        for pending in self.decided.pending:
            deployment = self.facts.deployments[pending.namespace, pending.deployment]
            counts = self._counts_of(deployment)
            for refusal in pending.refusals:
                is_by_rule = any(word in refusal.reason for word in ("maxSkew", "over which spread", "minAvailable"))
                for name in refusal.clusters:
                    if is_by_rule and self._allows(deployment, counts, self.facts.clusters[name]):
                        yield f"{deployment.name} on {name}: {refusal.reason}; it is allowed"

    def _unplaced(self) -> Iterator[Deployment]:
        return (one for one in self.facts.ordered if self.pending.get(one.key) and not one.hold)

    def _surges(self, deployment: Deployment) -> bool:
        """Return whether only surge replicas are pending."""
        return self._counts_of(deployment).total() >= deployment.replicas - deployment.surge

    def _gives_way(self, one: Replica | Placement, cluster: Cluster, priority: int) -> bool:
        deployment = self._deployment(one)
        is_removed = isinstance(one, Replica)
        return (
            deployment is not None
            and not is_removed
            and one.cluster == cluster.name
            and not cluster.silent
            and not deployment.hold
            and deployment.priority < priority
        )

    def _allowed(self, deployment: Deployment, counts: Counter[str]) -> Iterator[Cluster]:
        """Yield the clusters that may have one more replica beside these, whatever room they have."""
        for cluster in self.facts.fleet.clusters:
            if not rules.ineligible(deployment, cluster) and self._allows(deployment, counts, cluster):
                yield cluster

    def _allows(self, deployment: Deployment, counts: Counter[str], cluster: Cluster) -> bool:
        more = counts + Counter({cluster.name: 1})
        for spread in deployment.spread:
            if not spread.required:
                continue
            totals = self._by_value(more, spread.topology_key)
            value = self._value(cluster.name, spread.topology_key)
            fewest = min(totals[one] for one in self._values(deployment, spread.topology_key) or [value])
            if not value or totals[value] - fewest > spread.max_skew:
                return False
        return all(
            more.total() + self._lacking(deployment, more, minimum.topology_key, minimum.replicas)
            <= deployment.replicas
            for minimum in deployment.minimum
        )

    def _lacking(self, deployment: Deployment, counts: Counter[str], key: str, least: int) -> int:
        totals = self._by_value(counts, key)
        return sum(max(0, least - totals[value]) for value in self._values(deployment, key))

    def _values(self, deployment: Deployment, key: str) -> set[str]:
        """Return the values of a label on clusters that a deployment may use."""
        clusters = (one for one in self.facts.fleet.clusters if not rules.ineligible(deployment, one))
        return {value for one in clusters if (value := self._value(one.name, key))}

    def _by_value(self, counts: Counter[str], key: str) -> Counter[str]:
        totals = Counter[str]()
        for name, count in counts.items():
            if name in self.facts.clusters:
                totals[self._value(name, key)] += count
        return totals

    def _value(self, name: str, key: str) -> str:
        return name if key == "modelplane.ai/cluster" else self.facts.clusters[name].labels.get(key, "")

    def _preference(self, deployment: Deployment, name: str) -> int:
        terms = deployment.preferences
        met = (at for at, term in enumerate(terms) if all(self._value(name, key) == term[key] for key in term))
        return next(met, len(terms))

    def _deployment(self, one: Replica | Placement) -> Deployment | None:
        return self.facts.deployments.get((one.namespace, one.deployment))

    def _counts(self, one: Replica | Placement) -> Counter[str]:
        return self._counts_of(self._deployment(one))

    def _counts_of(self, deployment: Deployment | None) -> Counter[str]:
        return Counter(one.cluster for one in self.facts.everything if self._deployment(one) is deployment)


def _is_current(replica: Replica, deployment: Deployment) -> bool:
    """Return whether a replica has the pods and claims that its deployment has now."""
    engines = {engine.name: engine for engine in deployment.engines}
    for placed in replica.engines:
        engine = engines[placed.name]
        members = {member.role: member for member in engine.members}
        for there in placed.members:
            member = members[there.role]
            requests, __, __ = rules.claims_of(there)
            if (there.pods, placed.copies) != (member.pods, engine.copies) or not set(requests) <= set(member.requests):
                return False
    return True
