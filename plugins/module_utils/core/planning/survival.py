# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Survival of losses: whether services keep a usable endpoint, and deployments enough replicas, whichever clusters are
lost, and what would heal it where they do not.

Every loss that can matter is planned, and no other one: what runs on other clusters stays, so that a service is hurt by
a loss of all clusters that it has an endpoint on alone. The exception are replicas of a deployment that preempts: where
their cluster is lost, they may take the places of replicas of lower priority elsewhere, so these losses are planned for
all that may give way.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import Literal

from ansible_collections.modelplane.fleet.plugins.module_utils.core import names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.model_service import Survival
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.replica import replica_labels
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning import Plan
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning.fleet import Key
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning.loss import Loss, pools_of, without
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning.scenario import (
    Scenario,
    planned,
    usable_endpoints,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.pricing import money
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.distribution import domain
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.eligibility import cluster_refusal
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import (
    Cluster,
    Deployment,
    Dropped,
    Minimum,
    Options,
    Pending,
    Schedule,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.text import count, first_lines

MOST_LOSSES = 1_000
"""Limit on the losses that are planned. A fleet has as many losses of one cluster as clusters."""
MOST_TRIES = 40
"""Limit on the additions that are planned, to find those that heal."""
_MOST_REPLICAS = 4
_MOST_NODES = 8
_MOST_POOLS = 3

_OF_PLACE = (names.CLUSTER_LABEL, names.REPLICA_LABEL, names.REPLICA_INDEX_LABEL)
"""Labels of a replica that depend on its place."""

Clusters = tuple[str, ...]


@dataclass(frozen=True)
class Need:
    """Remainder that a service or a deployment needs: `least` usable endpoints, or replicas, after a loss of up
    to `clusters` clusters. `places` are the clusters of those that it has, "" for endpoints outside of the fleet.

    A need with `label` is one of that label of clusters: `within` are the clusters with it that the deployment may use,
    and when all of them are lost, there is no such label to have replicas on. `gives_way_to`: clusters whose loss may
    make other replicas take the places of these.
    """

    kind: Literal["service", "deployment"]
    namespace: str
    name: str
    clusters: int
    least: int
    places: Counter[str]
    is_fatal: bool
    label: str = ""
    within: frozenset[str] = frozenset()
    gives_way_to: frozenset[str] = frozenset()

    @property
    def key(self) -> Key:
        """Return its namespace and name."""
        return self.namespace, self.name

    def left(self, lost: Iterable[str]) -> int:
        """Return how many it has elsewhere."""
        return self.places.total() - sum(self.places[cluster] for cluster in set(lost))

    @property
    def is_unmet(self) -> bool:
        """Return whether less is there than is needed, whatever is lost."""
        return self.left(()) < self.least

    def hurt(self, lost: Clusters) -> bool:
        """Return whether it has to survive a loss, and less is left elsewhere than is needed, or may be."""
        if len(lost) > self.clusters or (self.within and self.within <= set(lost)):
            return False
        return self.left(lost) < self.least or (self.places[""] < self.least and not self.gives_way_to.isdisjoint(lost))

    @property
    def matters(self) -> frozenset[str]:
        """Return the clusters whose loss may leave less of it."""
        return (frozenset(self.places) | self.gives_way_to) - {""}

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


@dataclass(frozen=True)
class Addition:
    """Something that is added to a fleet: replicas of a deployment, nodes of a pool, or a cluster like another one.

    `nodes` are those of each of `pools`, which are the ones that are used on the other cluster. `per_hour` is what
    these nodes cost in `currency`, None where that is not known; where no price is, there is no currency."""

    deployment: Key | None = None
    replicas: int = 0
    cluster: str = ""
    pools: tuple[str, ...] = ()
    nodes: int = 0
    is_new_cluster: bool = False
    per_hour: Fraction | None = None
    currency: str = ""

    def __str__(self) -> str:
        if self.deployment:
            return f"{count(self.replicas, 'more replica')} of {'/'.join(self.deployment)}"
        pools = " and ".join(self.pools)
        if self.is_new_cluster:
            return f"another cluster like {self.cluster}, with {count(self.nodes, 'node')} in pool {pools}"
        return f"{count(self.nodes, 'more node')} of pool {pools} on {self.cluster}"


def cost(addition: Addition) -> tuple[bool, Fraction, int, bool, int, str]:
    """Return what an addition costs, to be compared with others: the price of its nodes for an hour, and those without
    a known price last; then the fewest nodes, a cluster that is there, the fewest replicas."""
    is_unknown = addition.nodes > 0 and addition.per_hour is None
    price = addition.per_hour or Fraction(0)
    return is_unknown, price, addition.nodes, addition.is_new_cluster, addition.replicas, str(addition)


@dataclass(frozen=True)
class Shortfall:
    """A need that is not met after a loss (without clusters: that is not met at all).

    `left`: what it has then. `pending`: its deployments that find no other place. `preempted`: its replicas elsewhere
    whose places others take then. `placed`: how many replicas those of its deployments ask for that have a place for
    each. `remedy`: the cheapest addition with which it is met after every loss, None where none was found, or with
    `is_searched` False none was searched for. `first_step`: where there is none for a need that is not met at all, the
    cheapest addition with which it is, and the first loss after which it is not then. `losses`: how many losses it does
    not survive.
    """

    need: Need
    lost: Clusters
    left: int
    pending: tuple[Pending, ...]
    preempted: tuple[Dropped, ...] = ()
    placed: tuple[tuple[str, int], ...] = ()
    losses: int = 1
    remedy: Addition | None = None
    first_step: tuple[Addition, Clusters] | None = None
    is_searched: bool = True

    def __str__(self) -> str:
        return ". ".join(part for part in (self.what, *self.why, self.heals) if part)

    @property
    def what(self) -> str:
        """Return what is lost, and what is left."""
        what = "no endpoint" if self.need.kind == "service" else f"{self.left} of {self.need.least} replicas"
        what += f" on clusters with {self.need.label}" if self.need.label else ""
        if not self.lost:
            return f"{self.need} has {what} even without a loss"
        more = f", the first of {self.losses} such losses" if self.losses > 1 else ""
        return f"{self.need} has {what} after a loss of {' and '.join(self.lost)}{more}"

    @property
    def why(self) -> list[str]:
        """Return why what is lost finds no other place."""
        pending = [
            "; ".join([f"{each.namespace}/{each.deployment}: {each.message}", *first_lines(map(str, each.refusals), 2)])
            for each in self.pending
        ]
        gone = [(each.replica, each.reason) for each in self.preempted]
        said = [f"{each.namespace}/{each.deployment} on {each.cluster}: {reason}" for each, reason in gone] + pending
        return said or [f"{name}: replicas is {number}, and none is pending" for name, number in self.placed]

    @property
    def heals(self) -> str:
        """Return what would heal it."""
        if self.remedy:
            return f"{self.remedy} would heal it{_price_text(self.remedy)}"
        if self.first_step:
            step, lost = self.first_step
            part = f"{step} would heal it as long as nothing is lost{_price_text(step)}, not after a loss of "
            return part + " and ".join(lost) + (". Nothing was found that would do both" if self.is_searched else "")
        return "Nothing was found that would heal it" if self.is_searched else ""


def _price_text(remedy: Addition) -> str:
    """Return what the nodes of a remedy cost, or by what it is the cheapest one; empty for one without nodes."""
    if not remedy.nodes:
        return ""
    if remedy.per_hour is not None:
        return f", for {money(remedy.per_hour, remedy.currency)} per hour"
    known = "its price is not known" if remedy.currency else "prices are not known"
    return f" (the fewest nodes that do, as {known})"


@dataclass(frozen=True)
class Survey:
    """Losses of a fleet: how many can matter, how many of them were planned, what has to be left after them, and what
    is not."""

    needs: tuple[Need, ...] = ()
    losses: int = 0
    tried: int = 0
    shortfalls: tuple[Shortfall, ...] = ()

    @property
    def left_out(self) -> str:
        """Return what was not tried; "" when everything was."""
        if self.tried == self.losses:
            return ""
        return f"{self.tried} of {self.losses} losses that services have to survive were tried, single clusters first"


def survey(plan: Plan, options: Options, of_fleet: Survival | None = None) -> Survey:
    """Try the losses that services of a planned fleet have to survive. Raises PlanError.

    `of_fleet`: what services without a field `survive` have to survive. The replicas of `minAvailable` of a deployment
    have to be left after the losses that its services, or all of the fleet, have to survive.
    """
    scenario = planned(plan, options)
    asked = _Asked(scenario, of_fleet)
    needs = asked.needs(scenario)
    losses = _losses(needs, scenario.clusters)
    healer = _Healer(scenario, asked)
    found = [healer.healed(each) for each in _shortfalls(scenario, asked, needs, losses[:MOST_LOSSES])]
    return Survey(tuple(needs), len(losses), min(len(losses), MOST_LOSSES), tuple(found))


def _required(deployments: Iterable[Deployment]) -> dict[Key, list[Minimum]]:
    """Return how many replicas of deployments have to be left, of those that say so: once for the whole fleet, and for
    each label of clusters."""
    found: dict[Key, list[Minimum]] = {}
    for deployment in sorted(deployments, key=lambda each: each.key):
        least: dict[str, int] = {}
        for entry in deployment.minimum:
            least[entry.topology_key] = max(entry.replicas, least.get(entry.topology_key, 0))
        entries = [Minimum(replicas, key) for key, replicas in sorted(least.items()) if replicas]
        if entries:
            found[deployment.key] = entries
    return found


class _Asked:
    """Losses that services and deployments have to survive."""

    def __init__(self, scenario: Scenario, of_fleet: Survival | None) -> None:
        self._priorities = {each.key: each.priority for each in scenario.deployments}
        self._preempts = {each.key for each in scenario.deployments if each.preempts}
        self._fleet = scenario.context.fleet
        given = {key: service.spec.survive or of_fleet for key, service in sorted(self._fleet.services.items())}
        self._services = {key: survival for key, survival in given.items() if survival is not None}
        self._required = _required(scenario.deployments)
        self._deployments = dict.fromkeys(self._required, of_fleet) if of_fleet else {}
        for key, survival in self._services.items() if self._required else ():
            for owner in self._behind(key):
                self._deployments[owner] = _stricter(survival, self._deployments.get(owner, survival))

    def needs(self, scenario: Scenario, only: Need | None = None) -> list[Need]:
        """Return what has to be left of each service and deployment, with the places that a fleet has for them."""
        keys = [key for key in self._services if only is None or (only.kind, only.key) == ("service", key)]
        endpoints = usable_endpoints(
            scenario, scenario.resources.values(), [scenario.context.fleet.services[key] for key in keys]
        )
        found = []
        for key in keys:
            replicas = [scenario.resources.get((key[0], member.endpoint.name)) for member in endpoints[key]]
            places = Counter(replica.spec.cluster_name if replica else "" for replica in replicas)
            found.append(_need("service", key, self._services[key], 1, places))
        for key, entries in self._required.items():
            if key in self._deployments and (only is None or (only.kind, only.key) == ("deployment", key)):
                running = [each for each in scenario.running if (each.namespace, each.deployment) == key]
                places = Counter(each.cluster for each in running)
                needs = self._of_deployment(scenario, key, entries, places)
                found += [need for need in needs if only is None or need.label == only.label]
        return [replace(need, gives_way_to=self._gives_way_to(scenario, need)) for need in found]

    def _of_deployment(
        self, scenario: Scenario, key: Key, entries: Iterable[Minimum], places: Counter[str]
    ) -> Iterator[Need]:
        """Yield what has to be left of a deployment: of all its replicas, and of those on each label of clusters."""
        (deployment,) = (each for each in scenario.deployments if each.key == key)
        survival = self._deployments[key]
        for entry in entries:
            if not entry.topology_key:
                yield _need("deployment", key, survival, entry.replicas, places)
                continue
            clusters: dict[str, set[str]] = {}
            for cluster in scenario.clusters:
                value = domain(cluster, entry.topology_key)
                if value and not cluster_refusal(deployment, cluster):
                    clusters.setdefault(value, set()).add(cluster.name)
            for value, names_of in sorted(clusters.items()):
                there = Counter({name: number for name, number in places.items() if name in names_of})
                need = _need("deployment", key, survival, entry.replicas, there)
                yield replace(need, label=f"{entry.topology_key}={value}", within=frozenset(names_of))

    def _gives_way_to(self, scenario: Scenario, need: Need) -> frozenset[str]:
        """Return the clusters with replicas of deployments that preempt, and could preempt some that a need counts."""
        if not self._preempts:
            return frozenset()
        lowest = min((self._priorities.get(key, 0) for key in self.behind(need)), default=0)
        running = [(each.cluster, (each.namespace, each.deployment)) for each in scenario.running]
        return frozenset(
            cluster for cluster, key in running if key in self._preempts and self._priorities[key] > lowest
        )

    def preempts(self, deployments: Iterable[Key]) -> bool:
        """Return whether any of these deployments preempts."""
        return not self._preempts.isdisjoint(deployments)

    def behind(self, need: Need) -> list[Key]:
        """Return the deployments whose replicas a need is about."""
        return self._behind(need.key) if need.kind == "service" else [need.key]

    def _behind(self, service: Key) -> list[Key]:
        """Return the deployments whose replicas are, or would be, endpoints of a service."""
        asked = [entry.selector.match_labels for entry in self._fleet.services[service].spec.endpoints]
        return [
            key
            for key, labels in self._labels.items()
            if key[0] == service[0]
            and any(all(name in _OF_PLACE or labels.get(name) == each[name] for name in each) for each in asked)
        ]

    @cached_property
    def _labels(self) -> dict[Key, dict[str, str]]:
        deployments = sorted(self._fleet.deployments.items())
        return {key: replica_labels(deployment, "", 0) for key, deployment in deployments}


def _need(
    kind: Literal["service", "deployment"], key: Key, survival: Survival, least: int, places: Counter[str]
) -> Need:
    return Need(kind, *key, survival.clusters, least, places, survival.when_unsatisfiable == "Fail")


def _stricter(one: Survival, other: Survival) -> Survival:
    return max(one, other, key=lambda each: (each.when_unsatisfiable == "Fail", each.clusters))


def _losses(needs: Iterable[Need], clusters: Iterable[Cluster]) -> list[Clusters]:
    """Return the losses after which less is left elsewhere than some need asks for, single clusters first."""
    known = sorted(cluster.name for cluster in clusters)
    found: set[Clusters] = set()
    for need in needs:
        if need.is_unmet:
            continue
        for one in sorted(need.matters):
            others = ((min(one, other), max(one, other)) for other in known if other != one)
            lost: Iterator[Clusters] = iter([(one,)])
            found.update(each for each in itertools.chain(lost, others if need.clusters > 1 else ()) if need.hurt(each))
    return sorted(found, key=lambda each: (len(each), each))


def _shortfalls(
    scenario: Scenario, asked: _Asked, needs: Sequence[Need], losses: Iterable[Clusters]
) -> list[Shortfall]:
    """Return the needs that are not met after some of these losses, or not even without one; each with the first."""
    found: dict[int, Shortfall] = {}
    replicas = {each.key: each.replicas for each in scenario.deployments}
    unmet = [need for need in needs if need.is_unmet]
    for lost in [*([()] if unmet else []), *losses]:
        hurt = [need for need in needs if need.is_unmet is not bool(lost) and need.hurt(lost)]
        after, displaced = without(scenario, Loss(frozenset(lost)))
        among = {(each.replica.namespace, each.replica.deployment) for each in displaced} if lost else None
        if among and asked.preempts(among):
            decided = after.schedule()
            settled = {_subject(need): need.left(()) for need in asked.needs(after.after(decided))}
            numbers = [settled.get(_subject(need), 0) for need in hurt]
        else:
            decided = after.schedule_missing(among)
            numbers = _left(hurt, lost, after, decided)
        for need, left in zip(hurt, numbers, strict=True):
            if left >= need.least:
                continue
            first = found.get(id(need))
            if first is None:
                behind = asked.behind(need)
                pending = tuple(each for each in decided.pending if (each.namespace, each.deployment) in behind)
                gone = tuple(
                    each
                    for each in decided.dropped
                    if each.preempted_by and (each.replica.namespace, each.replica.deployment) in behind
                )
                missing = {(each.namespace, each.deployment) for each in pending}
                placed = tuple(("/".join(key), replicas[key]) for key in behind if key not in missing)
                found[id(need)] = Shortfall(need, lost, left, pending, gone, placed)
            else:
                found[id(need)] = replace(first, losses=first.losses + 1)
    return [found[id(need)] for need in needs if id(need) in found]


def _subject(need: Need) -> tuple[str, Key, str]:
    return need.kind, need.key, need.label


def _left(needs: Sequence[Need], lost: Clusters, after: Scenario, decided: Schedule) -> list[int]:
    """Return what is left for each need after a loss, with what is placed again."""
    placed = [placement for placement in decided.placements if placement.state == "new"]
    replicas = [after.resource(placement) for placement in placed]
    own = {(replica.namespace, replica.name) for replica in replicas}
    again = Counter(((each.namespace, each.deployment), each.cluster) for each in placed)
    services = [after.context.fleet.services[need.key] for need in needs if need.kind == "service"]
    endpoints = usable_endpoints(after, replicas, services)
    return [
        need.left(lost)
        + (
            sum((need.namespace, member.endpoint.name) in own for member in endpoints[need.key])
            if need.kind == "service"
            else sum(
                number
                for (key, cluster), number in again.items()
                if key == need.key and (not need.within or cluster in need.within)
            )
        )
        for need in needs
    ]


class _Healer:
    """Searches for additions with which needs are met after every loss."""

    def __init__(self, scenario: Scenario, asked: _Asked) -> None:
        self._scenario, self._asked = scenario, asked
        self._tries = MOST_TRIES

    def healed(self, found: Shortfall) -> Shortfall:
        """Return a shortfall with the cheapest addition that heals it."""
        for addition in sorted(map(self._priced, self._additions(found)), key=cost):
            if self._tries <= 0:
                return replace(found, is_searched=False)
            self._tries -= 1
            lost = self._first_loss(addition, found.need)
            if lost is None:
                return replace(found, remedy=addition, first_step=None)
            if lost and not found.lost and not found.first_step:
                found = replace(found, first_step=(addition, lost))
        return found

    def _additions(self, found: Shortfall) -> Iterator[Addition]:
        behind = self._asked.behind(found.need)
        for key, number in itertools.product(behind, range(1, _MOST_REPLICAS + 1)):
            yield Addition(deployment=key, replicas=number)
        full = {
            (cluster, refusal.pool)
            for each in found.pending
            for refusal in each.refusals
            if refusal.is_full and refusal.pool
            for cluster in refusal.clusters
        }
        for (cluster, pool), number in itertools.product(sorted(full)[:_MOST_POOLS], range(1, _MOST_NODES + 1)):
            yield Addition(cluster=cluster, pools=(pool,), nodes=number)
        for cluster in found.lost:
            owners = {(each.namespace, each.deployment) for each in self._scenario.running if each.cluster == cluster}
            # Others give way to what preempts, unless that has a place as well.
            lacking = {key for key in owners if key in behind or (found.preempted and self._asked.preempts([key]))}
            here = [
                each
                for each in self._scenario.running
                if each.cluster == cluster and (each.namespace, each.deployment) in lacking
            ]
            pools = tuple(dict.fromkeys(pool for each in here for pool in pools_of(each)))
            for number in range(1, _MOST_NODES + 1) if pools else ():
                yield Addition(cluster=cluster, pools=pools, nodes=number, is_new_cluster=True)

    def _priced(self, addition: Addition) -> Addition:
        """Return an addition with what its nodes cost."""
        pools = [
            pool.price
            for cluster in self._scenario.clusters
            if cluster.name == addition.cluster
            for pool in cluster.pools
            if pool.name in addition.pools
        ]
        known: list[Decimal] = [price for price in pools if price is not None]
        per_hour = sum(map(Fraction, known), Fraction(0)) * addition.nodes if len(known) == len(pools) else None
        return replace(addition, per_hour=per_hour, currency=self._scenario.context.prices.currency)

    def _first_loss(self, addition: Addition, need: Need) -> Clusters | None:
        """Plan again with an addition, and return the first loss after which the need is not met then: without clusters
        when it is not met at all, or there are too many losses to be tried, None when it is met after every loss."""
        grown = _with(self._scenario, addition)
        grown = grown.with_new(grown.schedule_missing())
        needs = self._asked.needs(grown, only=need)
        losses = _losses(needs, grown.clusters)
        if len(losses) > MOST_LOSSES:
            return ()
        short = (each for lost in losses or [()] for each in _shortfalls(grown, self._asked, needs, [lost]))
        return next((each.lost for each in short), None)


def _with(scenario: Scenario, addition: Addition) -> Scenario:
    if addition.deployment:
        deployments = tuple(
            replace(each, replicas=each.replicas + addition.replicas) if each.key == addition.deployment else each
            for each in scenario.deployments
        )
        return replace(scenario, deployments=deployments)
    given = next(cluster for cluster in scenario.clusters if cluster.name == addition.cluster)
    if addition.is_new_cluster:
        taken = {cluster.name for cluster in scenario.clusters}
        name = next(name for number in itertools.count(2) if (name := f"{given.name}-{number}") not in taken)
        pools = tuple(replace(pool, nodes=addition.nodes) for pool in given.pools if pool.name in addition.pools)
        return replace(scenario, clusters=(*scenario.clusters, replace(given, name=name, pools=pools)))
    pools = tuple(
        replace(pool, nodes=pool.nodes + addition.nodes) if pool.name in addition.pools else pool
        for pool in given.pools
    )
    changed = replace(given, pools=pools)
    return replace(scenario, clusters=tuple(changed if each is given else each for each in scenario.clusters))
