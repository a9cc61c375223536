# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Comparison of what `placement.schedule` answers for a fleet with what the rules allow and the solver finds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import (
    Placement,
    Replica,
    Request,
    Schedule,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.placement import schedule
from ansible_collections.modelplane.fleet.tests.oracle.placement import rules
from ansible_collections.modelplane.fleet.tests.oracle.placement.facts import Facts, Identity, identity, where
from ansible_collections.modelplane.fleet.tests.oracle.placement.reasons import false_reasons
from ansible_collections.modelplane.fleet.tests.oracle.placement.written import Fleet

Scheduler = Callable[[Fleet], Schedule]


@dataclass(frozen=True)
class Finding:
    """Something that is wrong with an answer."""

    kind: str
    text: str


@dataclass
class Outcome:
    """Figures and findings of fleets."""

    figures: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)

    def add(self, kind: str, texts: Iterable[str]) -> bool:
        """Add findings of a kind; whether there are none."""
        found = [Finding(kind, text) for text in texts]
        self.figures[kind] += len(found)
        self.findings += found
        return not found


def by_the_scheduler(fleet: Fleet) -> Schedule:
    return schedule(fleet.deployments, fleet.clusters, fleet.running, fleet.options)


def compare(fleet: Fleet, scheduler: Scheduler = by_the_scheduler) -> Outcome:
    """Return everything that is wrong with the scheduler's answer for a fleet."""
    decided = scheduler(fleet)
    facts, outcome = Facts(fleet, decided), Outcome()
    outcome.figures.update(
        fleets=1,
        replicas=sum(deployment.replicas for deployment in fleet.deployments),
        running=len(fleet.running),
        kept=len(facts.kept),
        new=len(facts.new),
        pending=sum(pending.count for pending in decided.pending),
    )
    outcome.add("moves", _moves(facts))
    if outcome.add("over capacity", over_capacity(facts)) & outcome.add("against the rules", against_rules(facts)):
        _compare_counts(facts, outcome)
        outcome.add("false reasons", false_reasons(facts))
    outcome.add("changes of a second run", _second_run(fleet, decided, scheduler))
    outcome.figures.update(facts.figures)
    return outcome


def running_after(fleet: Fleet, decided: Schedule) -> tuple[Replica, ...]:
    """The replicas that the next run finds when an answer was carried out."""
    known = {deployment.key for deployment in fleet.deployments}
    others = [replica for replica in fleet.running if (replica.namespace, replica.deployment) not in known]
    placed = [
        Replica(where(one), one.namespace, one.deployment, one.cluster, one.index, one.engines)
        for one in decided.placements
    ]
    return (*others, *placed)


def _second_run(fleet: Fleet, decided: Schedule, scheduler: Scheduler) -> Iterator[str]:
    again = scheduler(replace(fleet, running=running_after(fleet, decided)))
    before = {identity(one): one for one in decided.placements}
    for one in again.placements:
        if one.state != "kept":
            yield f"{where(one)} is {one.state}"
        elif before[identity(one)].engines != one.engines:
            yield f"{where(one)} has another place or other claims"
    for dropped in again.dropped:
        yield f"{dropped.replica.name} is dropped: {dropped.reason}"
    counts = [{one.deployment: one.count for one in run.pending} for run in (decided, again)]
    if counts[0] != counts[1]:
        yield f"{counts[0]} are pending, then {counts[1]}"
    over = [{(one.clusters, one.pool) for one in run.overcommitted} for run in (decided, again)]
    if over[0] != over[1]:
        yield f"{over[0]} are overcommitted, then {over[1]}"


def _moves(facts: Facts) -> Iterator[str]:
    """Yield running replicas that are removed and may stay, that stay and may not, and that move."""
    expected: dict[Identity, Replica] = {}
    for deployment in facts.ordered:
        mine = [one for one in facts.fleet.running if (one.namespace, one.deployment) == deployment.key]
        staying = [one for one in mine if rules.stays(one, deployment, facts.clusters.get(one.cluster))]
        removed = rules.surplus(staying, deployment.replicas)
        expected.update({identity(one): one for one in staying if one not in removed})
    kept = {identity(one): one for one in facts.kept}
    for key in sorted(set(expected) - set(kept)):
        yield f"{where(expected[key])} may stay and is removed"
    for key in sorted(set(kept) - set(expected)):
        yield f"{where(kept[key])} is kept and may not stay"
    for key in sorted(set(kept) & set(expected)):
        if not _is_in_place(expected[key], kept[key]):
            yield f"{where(kept[key])} is on other pools or claims other devices"


def _is_in_place(before: Replica, after: Placement) -> bool:
    engines = {engine.name: engine for engine in before.engines}
    for engine in after.engines:
        members = {member.role: member for member in engines[engine.name].members}
        for member in engine.members:
            pools, were = dict(member.pods_by_pool), dict(members[member.role].pods_by_pool)
            if not set(pools) <= set(were) or (sum(pools.values()) == sum(were.values()) and pools != were):
                return False
            asked, had = rules.claims_of(member), rules.claims_of(members[member.role])
            if asked[0] == had[0] and asked != had:
                return False
    return True


def against_rules(facts: Facts) -> Iterator[str]:
    """Yield new replicas that are where they may not be."""
    for one in facts.new:
        deployment, cluster = facts.deployments[(one.namespace, one.deployment)], facts.clusters[one.cluster]
        if rules.ineligible(deployment, cluster):
            yield f"{where(one)}: the cluster takes no new replica of it"
        for engine, placed in zip(deployment.engines, one.engines, strict=True):
            members = tuple(
                (tuple(sorted(there.pods_by_pool)), _classes(member.requests, there.device_requests))
                for member, there in zip(engine.members, placed.members, strict=True)
            )
            allowed = {
                tuple((tuple(sorted(shares)), classes) for shares, classes in layout.members)
                for layout in rules.layouts_of(engine, cluster)
            }
            if members not in allowed or placed.copies != engine.copies:
                yield f"{where(one)}: engine {engine.name} as {members}"


def _classes(requests: Iterable[Request], claims: Iterable[Mapping[str, object]]) -> tuple[object, ...]:
    claimed = {claim["name"]: claim["deviceClassName"] for claim in claims}
    return tuple(claimed.get(request.name) for request in requests)


def over_capacity(facts: Facts) -> Iterator[str]:
    """Yield pools that do not hold what is placed there. One that is overcommitted already has no part in it."""
    for pool, load in sorted(facts.load(facts.everything).items()):
        if pool not in facts.closed and not facts.fits(pool, load):
            yield f"pool {pool[1]} on {pool[0]}"
    for one in facts.new:
        members = [member for engine in one.engines for member in engine.members]
        pools = {(one.cluster, name) for member in members for name, _ in member.pods_by_pool}
        for _, name in sorted(pools & facts.closed):
            yield f"{where(one)} is new on pool {name}, which is overcommitted"


def _compare_counts(facts: Facts, outcome: Outcome) -> None:
    """Compare the numbers of new replicas with the best ones in the documented order: for each priority beside what the
    answer has of higher ones, and for all priorities at once, which is counted only."""
    short = [one for one in facts.ordered if facts.missing[one.key]]
    priorities = sorted({one.priority for one in short}, reverse=True)
    for priority in priorities:
        members = [one for one in short if one.priority == priority]
        higher = [one for one in facts.new if facts.deployments[(one.namespace, one.deployment)].priority > priority]
        best = facts.best(members, [*facts.existing, *higher])
        actual = {one.key: facts.placed[one.key] for one in members}
        outcome.figures.update({"classes": 1, "best": sum(best.values()), "placed": sum(actual.values())})
        if actual == best:
            outcome.figures["classes at their best"] += 1
            continue
        worse = next(key for key in best if best[key] != actual[key])
        outcome.add("worse counts", [f"{worse[1]} has {actual[worse]} new replicas, {best[worse]} are possible"])
        # Where all counts are the best ones, nothing more fits.
        refused = [one for one in members if facts.placed[one.key] < facts.missing[one.key]]
        outcome.add(
            "false rejects",
            [f"{one.name} is refused a replica that has room" for one in refused if facts.takes_one_more(one)],
        )
    at_once = len(priorities) < 2 or all(
        facts.placed[key] == count for key, count in facts.best(short, facts.existing).items()
    )
    outcome.figures["best of all priorities at once"] += at_once
