# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Survival of cluster losses: services keep a usable endpoint, and deployments keep enough replicas.

If a loss leaves too few, the module also finds an addition that fixes the shortfall.

Only relevant losses are planned. Replicas on other clusters stay, so only the loss of all clusters with an endpoint of
a service affects the service. The exception is a deployment that preempts. If a cluster with its replicas is lost, it
might preempt replicas of lower priority on other clusters. These losses are planned for all services that might lose
replicas. The same applies to a cluster with labels that hold back pending replicas of such a deployment.

In a fleet with Model gateways, a service also needs a remaining gateway. A run does not place a lost gateway again.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import Literal

from .. import names
from ..api.model_service import Survival
from ..compose.replica import replica_labels
from ..pricing import money
from ..scheduling.distribution import topology_domain
from ..scheduling.eligibility import cluster_refusal
from ..scheduling.model import Cluster, Deployment, Dropped, Minimum, Options, Pending, Schedule
from ..text import capitalized, count, first_lines, some
from . import Plan
from .fleet import Key
from .loss import Loss, pools_of, without
from .reach import Reach, reaches
from .scenario import Scenario, planned, usable_endpoints

MOST_LOSSES = 1_000
"""Limit on the losses that are planned. A fleet has as many losses of one cluster as clusters."""
MOST_TRIES = 40
"""Maximum number of additions that are planned to fix a shortfall."""
_MOST_REPLICAS = 4
_MOST_NODES = 8
_MOST_POOLS = 3

_OF_PLACE = (names.CLUSTER_LABEL, names.REPLICA_LABEL, names.REPLICA_INDEX_LABEL)
"""Labels of a replica that depend on its place."""

Clusters = tuple[str, ...]
Kind = Literal["service", "gateway", "deployment"]


@dataclass(frozen=True)
class Requirement:
    """Minimum of usable endpoints, replicas, or gateways after the loss of clusters.

    `clusters`: the number of clusters that can be lost.
    `least`: the number of endpoints or replicas that must remain.
    `places`: the clusters of the endpoints or replicas, "" for endpoints outside of the fleet.
    `gateways`: for the kind `gateway`, the Model gateways by cluster, and "" for the path-based gateway.
    `label`: a label of clusters. If all clusters with this label are lost, the requirement does not apply.
    `within`: the clusters with this label that the deployment may use.
    `gives_way_to`: clusters that, if lost, might make other replicas preempt these replicas.
    """

    kind: Kind
    namespace: str
    name: str
    clusters: int
    least: int
    places: Counter[str]
    is_fatal: bool
    label: str = ""
    within: frozenset[str] = frozenset()
    gives_way_to: frozenset[str] = frozenset()
    gateways: tuple[tuple[str, str], ...] = ()

    @property
    def key(self) -> Key:
        """Return its namespace and name."""
        return self.namespace, self.name

    @property
    def subject(self) -> tuple[str, Key, str]:
        """Return the subject: the same in each plan of a fleet."""
        return self.kind, self.key, self.label

    def left(self, lost: Iterable[str]) -> int:
        """Return how many it has elsewhere."""
        return self.places.total() - sum(self.places[cluster] for cluster in set(lost))

    @property
    def is_unmet(self) -> bool:
        """Return True if the requirement is not met even without a loss."""
        return self.left(()) < self.least

    def is_violated_by(self, lost: Clusters) -> bool:
        """Return True if the requirement covers a loss that leaves too little elsewhere, or might leave too little."""
        if len(lost) > self.clusters or (self.within and self.within <= set(lost)):
            return False
        return self.left(lost) < self.least or (self.places[""] < self.least and not self.gives_way_to.isdisjoint(lost))

    @property
    def critical_clusters(self) -> frozenset[str]:
        """Clusters that reduce, or might reduce, the remaining endpoints or replicas if they are lost."""
        return (frozenset(self.places) | self.gives_way_to) - {""}

    def __str__(self) -> str:
        kind = "ModelDeployment" if self.kind == "deployment" else "ModelService"
        return f"{kind} {self.namespace}/{self.name}"


@dataclass(frozen=True)
class Addition:
    """Addition to a fleet: replicas of a deployment, nodes of a pool, or a cluster like another cluster.

    `nodes`: the number of nodes of each of `pools`.
    `pools`: node pools. For a cluster, these are the used node pools of the other cluster.
    `per_hour`: the price of these nodes in `currency`, None if it is unknown.
    `currency`: "" if no price is known.
    """

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


def addition_order(addition: Addition) -> tuple[bool, Fraction, int, bool, int, str]:
    """Return the sort key of an addition, the cheapest addition first.

    The order is the price of its nodes per hour, with unknown prices last. Then it is the fewest nodes, an existing
    cluster, and the fewest replicas.
    """
    is_unknown = addition.nodes > 0 and addition.per_hour is None
    price = addition.per_hour or Fraction(0)
    return is_unknown, price, addition.nodes, addition.is_new_cluster, addition.replicas, str(addition)


@dataclass(frozen=True)
class Shortfall:
    """Requirement that is not met after a loss. Without clusters, it is not met at all.

    `left`: the remaining number after the loss.
    `pending`: its deployments that are unschedulable after the loss.
    `preempted`: its replicas on other clusters that other deployments preempt after the loss.
    `placed`: its deployments without pending replicas, each with its desired number of replicas.
    `remediation`: the cheapest addition that meets the requirement after every loss, None without such an addition.
    `is_searched`: False if no addition was searched for.
    `first_step`: the cheapest addition that meets the requirement without a loss, and the first loss that still
    violates it. It is set only if the requirement is not met at all and has no remediation.
    `losses`: the number of losses that violate the requirement.
    """

    requirement: Requirement
    lost: Clusters
    left: int
    pending: tuple[Pending, ...]
    preempted: tuple[Dropped, ...] = ()
    placed: tuple[tuple[str, int], ...] = ()
    losses: int = 1
    remediation: Addition | None = None
    first_step: tuple[Addition, Clusters] | None = None
    is_searched: bool = True

    def __str__(self) -> str:
        return ". ".join(sentence for sentence in (self.what, *self.why, self.fixes) if sentence)

    @property
    def what(self) -> str:
        """Return the remaining number of endpoints, gateways or replicas, and the loss."""
        what = {
            "service": "no endpoint",
            "gateway": "no gateway",
            "deployment": f"{self.left} of {self.requirement.least} replicas",
        }[self.requirement.kind]
        what += f" on clusters with {self.requirement.label}" if self.requirement.label else ""
        if not self.lost:
            return f"{self.requirement} has {what} even without a loss"
        repeat_note = f", the first of {self.losses} such losses" if self.losses > 1 else ""
        return f"{self.requirement} has {what} after a loss of {' and '.join(self.lost)}{repeat_note}"

    @property
    def why(self) -> list[str]:
        """Return the reasons for the missing replacements."""
        if self.requirement.kind == "gateway":
            return [_serving_alone(self.requirement.gateways)]
        pending = [
            "; ".join(
                [
                    f"{deployment.namespace}/{deployment.deployment}: {deployment.message}",
                    *first_lines(map(str, deployment.refusals), 2),
                ]
            )
            for deployment in self.pending
        ]
        preempted = [(entry.replica, entry.reason) for entry in self.preempted]
        reasons = [
            f"{replica.namespace}/{replica.deployment} on {replica.cluster}: {reason}" for replica, reason in preempted
        ] + pending
        return reasons or [f"{name}: replicas is {number}, and none is pending" for name, number in self.placed]

    @property
    def fixes(self) -> str:
        """Return the change that would fix the shortfall, with its price."""
        if self.requirement.kind == "gateway":
            cluster = "another cluster" if self.requirement.gateways else "a cluster of the fleet"
            return f"An InferenceGateway on {cluster} whose serviceSelector matches its labels would fix it"
        if self.remediation:
            return f"{capitalized(str(self.remediation))} would fix it{_price_text(self.remediation)}"
        if self.first_step:
            step, lost = self.first_step
            fix = f"{capitalized(str(step))} would fix it as long as nothing is lost{_price_text(step)}"
            nothing = ". Nothing was found that would do both" if self.is_searched else ""
            return f"{fix}, not after a loss of {' and '.join(lost)}{nothing}"
        return "Nothing was found that would fix it" if self.is_searched else ""


def _serving_alone(gateways: Sequence[tuple[str, str]]) -> str:
    """Return a sentence that names all gateways of a service, by cluster."""
    descriptions = [f"{name} on {cluster}" for cluster, name in gateways]
    if not descriptions:
        return "No InferenceGateway of the fleet serves it"
    return f"Only InferenceGateway {some(descriptions)} {'serves' if len(descriptions) == 1 else 'serve'} it"


def _price_text(remediation: Addition) -> str:
    """Return the node price of a remediation, or its selection criterion if prices are unknown; "" without nodes."""
    if not remediation.nodes:
        return ""
    if remediation.per_hour is not None:
        return f", for {money(remediation.per_hour, remediation.currency)} per hour"
    reason = "its price is not known" if remediation.currency else "prices are not known"
    return f" (the fewest nodes that do, as {reason})"


@dataclass(frozen=True)
class Survey:
    """Losses of a fleet, and their shortfalls."""

    requirements: tuple[Requirement, ...] = ()
    """Endpoints, replicas, or gateways that must remain after losses."""
    losses: int = 0
    """Number of relevant losses."""
    tried: int = 0
    """Number of planned losses."""
    shortfalls: tuple[Shortfall, ...] = ()
    """Requirements that are not met."""

    @property
    def left_out(self) -> str:
        """Message about losses that were not tried; "" if all were tried."""
        if self.tried == self.losses:
            return ""
        return f"{self.tried} of {self.losses} losses that services have to survive were tried, single clusters first"


def survey(plan: Plan, options: Options, of_fleet: Survival | None = None) -> Survey:
    """Try the losses that services of a planned fleet must survive. Raises PlanError.

    The replicas of `minAvailable` of a deployment must remain after the losses that its services, or the fleet, must
    survive.

    `of_fleet`: the requirement of services without a field `survive`.
    """
    scenario = planned(plan, options)
    required = _Requirements(scenario, of_fleet)
    requirements = required.of(scenario)
    losses = _losses(requirements, scenario.clusters)
    remediator = _Remediator(scenario, required)
    shortfalls = [
        remediator.with_fix(shortfall)
        for shortfall in _shortfalls(scenario, required, requirements, losses[:MOST_LOSSES])
    ]
    return Survey(tuple(requirements), len(losses), min(len(losses), MOST_LOSSES), tuple(shortfalls))


def _required(deployments: Iterable[Deployment]) -> dict[Key, list[Minimum]]:
    """Return the minimum numbers of replicas of deployments that have a minimum: for the whole fleet, and for each
    label of clusters."""
    minimums: dict[Key, list[Minimum]] = {}
    for deployment in sorted(deployments, key=lambda deployment: deployment.key):
        replicas_by_key: dict[str, int] = {}
        for entry in deployment.minimum:
            replicas_by_key[entry.topology_key] = max(entry.replicas, replicas_by_key.get(entry.topology_key, 0))
        entries = [Minimum(replicas, key) for key, replicas in sorted(replicas_by_key.items()) if replicas]
        if entries:
            minimums[deployment.key] = entries
    return minimums


class _Requirements:
    """Losses that services and deployments must survive, and the endpoints and replicas that must remain."""

    def __init__(self, scenario: Scenario, of_fleet: Survival | None) -> None:
        self._priorities = {deployment.key: deployment.priority for deployment in scenario.deployments}
        self._preempts = {deployment.key for deployment in scenario.deployments if deployment.preempts}
        self._fleet = scenario.context.fleet
        survivals = {key: service.spec.survive or of_fleet for key, service in sorted(self._fleet.services.items())}
        self._services = {key: survival for key, survival in survivals.items() if survival is not None}
        self._clusters = frozenset(cluster.name for cluster in scenario.clusters)
        self._reached = reaches(scenario.context, self._clusters)
        self._required = _required(scenario.deployments)
        self._deployments = dict.fromkeys(self._required, of_fleet) if of_fleet else {}
        for key, survival in self._services.items() if self._required else ():
            for owner in self._behind(key):
                self._deployments[owner] = _stricter(survival, self._deployments.get(owner, survival))

    def of(self, scenario: Scenario, only: Requirement | None = None) -> list[Requirement]:
        """Return the requirements of each service and deployment, with the number of replicas on each cluster."""
        keys = [key for key in self._services if only is None or (only.kind, only.key) == ("service", key)]
        lost = self._clusters.difference(cluster.name for cluster in scenario.clusters)
        reached = self._reached if only is None else {}
        endpoints = usable_endpoints(
            scenario, scenario.resources.values(), [scenario.context.fleet.services[key] for key in keys]
        )
        requirements = []
        for key in keys:
            replicas = [scenario.resources.get((key[0], member.endpoint.name)) for member in endpoints[key]]
            replica_counts = Counter(replica.spec.cluster_name if replica else "" for replica in replicas)
            requirements.append(_requirement("service", key, self._services[key], 1, replica_counts))
            if key in reached:
                requirements.append(_of_gateways(key, self._services[key], reached[key].without(lost)))
        for key, entries in self._required.items():
            if key in self._deployments and (only is None or (only.kind, only.key) == ("deployment", key)):
                running = [replica for replica in scenario.running if (replica.namespace, replica.deployment) == key]
                replica_counts = Counter(replica.cluster for replica in running)
                candidates = self._of_deployment(scenario, key, entries, replica_counts)
                requirements += [candidate for candidate in candidates if only is None or candidate.label == only.label]
        held_back = _held_back(scenario) if self._preempts else {}
        return [
            replace(requirement, gives_way_to=self._gives_way_to(scenario, requirement, held_back))
            for requirement in requirements
        ]

    def _of_deployment(
        self, scenario: Scenario, key: Key, entries: Iterable[Minimum], replica_counts: Counter[str]
    ) -> Iterator[Requirement]:
        """Yield the requirements of a deployment: for all its replicas, and for the replicas on each label of
        clusters."""
        (deployment,) = (candidate for candidate in scenario.deployments if candidate.key == key)
        survival = self._deployments[key]
        for entry in entries:
            if not entry.topology_key:
                yield _requirement("deployment", key, survival, entry.replicas, replica_counts)
                continue
            clusters: dict[str, set[str]] = {}
            for cluster in scenario.clusters:
                value = topology_domain(cluster, entry.topology_key)
                if value and not cluster_refusal(deployment, cluster):
                    clusters.setdefault(value, set()).add(cluster.name)
            for value, names_of in sorted(clusters.items()):
                domain_counts = Counter({name: number for name, number in replica_counts.items() if name in names_of})
                requirement = _requirement("deployment", key, survival, entry.replicas, domain_counts)
                yield replace(requirement, label=f"{entry.topology_key}={value}", within=frozenset(names_of))

    def _gives_way_to(
        self, scenario: Scenario, requirement: Requirement, held_back: Mapping[Key, frozenset[str]]
    ) -> frozenset[str]:
        """Return the clusters that, if lost, might make other deployments preempt replicas of the requirement."""
        if not self._preempts or requirement.kind == "gateway":
            return frozenset()
        lowest = min((self._priorities.get(key, 0) for key in self.behind(requirement)), default=0)
        running = [(replica.cluster, (replica.namespace, replica.deployment)) for replica in scenario.running]
        running += [(cluster, key) for key, clusters in held_back.items() for cluster in clusters]
        return frozenset(
            cluster for cluster, key in running if key in self._preempts and self._priorities[key] > lowest
        )

    def preempts(self, deployments: Iterable[Key]) -> bool:
        """Return True if any of these deployments preempts."""
        return not self._preempts.isdisjoint(deployments)

    def behind(self, requirement: Requirement) -> list[Key]:
        """Return the deployments that provide the replicas of a requirement."""
        if requirement.kind == "gateway":
            return []
        return self._behind(requirement.key) if requirement.kind == "service" else [requirement.key]

    def _behind(self, service: Key) -> list[Key]:
        """Return the deployments with replicas that are, or would be, endpoints of a service."""
        selectors = [entry.selector.match_labels for entry in self._fleet.services[service].spec.endpoints]
        return [
            key
            for key, labels in self._labels.items()
            if key[0] == service[0]
            and any(
                all(name in _OF_PLACE or labels.get(name) == selector[name] for name in selector)
                for selector in selectors
            )
        ]

    @cached_property
    def _labels(self) -> dict[Key, dict[str, str]]:
        deployments = sorted(self._fleet.deployments.items())
        return {key: replica_labels(deployment, "", 0) for key, deployment in deployments}


def _requirement(kind: Kind, key: Key, survival: Survival, minimum: int, counts: Counter[str]) -> Requirement:
    return Requirement(kind, *key, survival.clusters, minimum, counts, survival.when_unsatisfiable == "Fail")


def _of_gateways(key: Key, survival: Survival, reach: Reach) -> Requirement:
    """Return the requirement for the gateways of a service."""
    gateway_counts = Counter([*reach.gateways.values(), *([""] if reach.has_path else [])])
    gateways = sorted((cluster, name) for name, cluster in reach.gateways.items())
    return replace(_requirement("gateway", key, survival, 1, gateway_counts), gateways=tuple(gateways))


def _stricter(survival: Survival, alternative: Survival) -> Survival:
    return max(
        survival, alternative, key=lambda candidate: (candidate.when_unsatisfiable == "Fail", candidate.clusters)
    )


def _held_back(scenario: Scenario) -> dict[Key, frozenset[str]]:
    """Return the clusters of each deployment with pending replicas that `spread` or `minAvailable` might hold back.

    After the loss of such a cluster, its label value might no longer count.
    """
    running = scenario.replicas()
    return {
        deployment.key: frozenset(
            cluster.name for cluster in scenario.clusters if not cluster_refusal(deployment, cluster)
        )
        for deployment in scenario.deployments
        if deployment.replicas > running[deployment.key]
        and (
            any(entry.required for entry in deployment.spread)
            or any(entry.topology_key for entry in deployment.minimum)
        )
    }


def _losses(requirements: Iterable[Requirement], clusters: Iterable[Cluster]) -> list[Clusters]:
    """Return the losses that violate, or might violate, a requirement, single clusters first."""
    cluster_names = sorted(cluster.name for cluster in clusters)
    violating: set[Clusters] = set()
    for requirement in requirements:
        if requirement.is_unmet:
            continue
        for cluster in sorted(requirement.critical_clusters):
            pairs = (
                (min(cluster, second_cluster), max(cluster, second_cluster))
                for second_cluster in cluster_names
                if second_cluster != cluster
            )
            lost: Iterator[Clusters] = iter([(cluster,)])
            losses = itertools.chain(lost, pairs if requirement.clusters > 1 else ())
            violating.update(filter(requirement.is_violated_by, losses))
    return sorted(violating, key=lambda loss: (len(loss), loss))


def _shortfalls(
    scenario: Scenario, required: _Requirements, requirements: Sequence[Requirement], losses: Iterable[Clusters]
) -> list[Shortfall]:
    """Return the requirements that are not met after some of these losses, or even without one; each with the first."""
    shortfalls: dict[int, Shortfall] = {}
    replicas = {deployment.key: deployment.replicas for deployment in scenario.deployments}
    is_any_unmet = any(requirement.is_unmet for requirement in requirements)
    held_back: frozenset[str] = frozenset().union(*_held_back(scenario).values())
    for lost in [*([()] if is_any_unmet else []), *losses]:
        violated = [
            requirement
            for requirement in requirements
            if requirement.is_unmet is not bool(lost) and requirement.is_violated_by(lost)
        ]
        remaining_scenario, displaced = without(scenario, Loss(frozenset(lost)))
        among = {(entry.replica.namespace, entry.replica.deployment) for entry in displaced} if lost else None
        if (among and required.preempts(among)) or not held_back.isdisjoint(lost):
            decided = remaining_scenario.schedule()
            settled = {
                candidate.subject: candidate.left(()) for candidate in required.of(remaining_scenario.after(decided))
            }
            numbers = [settled.get(requirement.subject, 0) for requirement in violated]
        else:
            decided = remaining_scenario.schedule_missing(among)
            numbers = _left(violated, lost, remaining_scenario, decided)
        for requirement, remaining in zip(violated, numbers, strict=True):
            if remaining >= requirement.least:
                continue
            known_shortfall = shortfalls.get(id(requirement))
            if known_shortfall is None:
                deployments = required.behind(requirement)
                pending = tuple(
                    entry for entry in decided.pending if (entry.namespace, entry.deployment) in deployments
                )
                preempted = tuple(
                    entry
                    for entry in decided.dropped
                    if entry.preempted_by
                    and not entry.evicted
                    and (entry.replica.namespace, entry.replica.deployment) in deployments
                )
                missing = {(entry.namespace, entry.deployment) for entry in pending}
                placed = tuple(("/".join(key), replicas[key]) for key in deployments if key not in missing)
                shortfalls[id(requirement)] = Shortfall(requirement, lost, remaining, pending, preempted, placed)
            else:
                shortfalls[id(requirement)] = replace(known_shortfall, losses=known_shortfall.losses + 1)
    return [shortfalls[id(requirement)] for requirement in requirements if id(requirement) in shortfalls]


def _left(requirements: Sequence[Requirement], lost: Clusters, scenario: Scenario, decided: Schedule) -> list[int]:
    """Return the remaining number for each requirement after a loss, including rescheduled replicas."""
    placed = [placement for placement in decided.placements if placement.state == "new"]
    replicas = [scenario.resource(placement) for placement in placed]
    replica_keys = {(replica.namespace, replica.name) for replica in replicas}
    again = Counter(((placement.namespace, placement.deployment), placement.cluster) for placement in placed)
    services = [
        scenario.context.fleet.services[requirement.key]
        for requirement in requirements
        if requirement.kind == "service"
    ]
    endpoints = usable_endpoints(scenario, replicas, services)

    def placed_again(requirement: Requirement) -> int:
        if requirement.kind == "service":
            return sum(
                (requirement.namespace, member.endpoint.name) in replica_keys for member in endpoints[requirement.key]
            )
        return sum(
            number
            for (key, cluster), number in again.items()
            if (requirement.kind, requirement.key) == ("deployment", key)
            and (not requirement.within or cluster in requirement.within)
        )

    return [requirement.left(lost) + placed_again(requirement) for requirement in requirements]


class _Remediator:
    """Search for additions that meet the requirements after every loss."""

    def __init__(self, scenario: Scenario, required: _Requirements) -> None:
        self._scenario, self._required = scenario, required
        self._tries = MOST_TRIES

    def with_fix(self, shortfall: Shortfall) -> Shortfall:
        """Return a shortfall with the cheapest addition that fixes it."""
        for addition in sorted(map(self._priced, self._additions(shortfall)), key=addition_order):
            if self._tries <= 0:
                return replace(shortfall, is_searched=False)
            self._tries -= 1
            lost = self._first_loss(addition, shortfall.requirement)
            if lost is None:
                return replace(shortfall, remediation=addition, first_step=None)
            if lost and not shortfall.lost and not shortfall.first_step:
                shortfall = replace(shortfall, first_step=(addition, lost))
        return shortfall

    def _additions(self, shortfall: Shortfall) -> Iterator[Addition]:
        deployments = self._required.behind(shortfall.requirement)
        for key, number in itertools.product(deployments, range(1, _MOST_REPLICAS + 1)):
            yield Addition(deployment=key, replicas=number)
        full = {
            (cluster, refusal.pool)
            for entry in shortfall.pending
            for refusal in entry.refusals
            if refusal.is_full and refusal.pool
            for cluster in refusal.clusters
        }
        for (cluster, pool), number in itertools.product(sorted(full)[:_MOST_POOLS], range(1, _MOST_NODES + 1)):
            yield Addition(cluster=cluster, pools=(pool,), nodes=number)
        for cluster in shortfall.lost:
            owners = {
                (replica.namespace, replica.deployment)
                for replica in self._scenario.running
                if replica.cluster == cluster
            }
            # Others give way to what preempts, unless that has a place as well.
            lacking = {
                key for key in owners if key in deployments or (shortfall.preempted and self._required.preempts([key]))
            }
            lacking_replicas = [
                replica
                for replica in self._scenario.running
                if replica.cluster == cluster and (replica.namespace, replica.deployment) in lacking
            ]
            pools = tuple(dict.fromkeys(pool for replica in lacking_replicas for pool in pools_of(replica)))
            for number in range(1, _MOST_NODES + 1) if pools else ():
                yield Addition(cluster=cluster, pools=pools, nodes=number, is_new_cluster=True)

    def _priced(self, addition: Addition) -> Addition:
        """Return an addition with the price of its nodes."""
        pools = [
            pool.price
            for cluster in self._scenario.clusters
            if cluster.name == addition.cluster
            for pool in cluster.pools
            if pool.name in addition.pools
        ]
        known_prices: list[Decimal] = [price for price in pools if price is not None]
        per_hour = (
            sum(map(Fraction, known_prices), Fraction(0)) * addition.nodes if len(known_prices) == len(pools) else None
        )
        return replace(addition, per_hour=per_hour, currency=self._scenario.context.prices.currency)

    def _first_loss(self, addition: Addition, requirement: Requirement) -> Clusters | None:
        """Plan again with an addition, and return the first loss that violates a requirement; None if no loss does.

        The loss is empty if the requirement is not met even without a loss, or if there are too many losses to try.
        """
        grown = _with(self._scenario, addition)
        grown = grown.with_new(grown.schedule_missing())
        requirements = self._required.of(grown, only=requirement)
        losses = _losses(requirements, grown.clusters)
        if len(losses) > MOST_LOSSES:
            return ()
        short = (
            shortfall
            for lost in losses or [()]
            for shortfall in _shortfalls(grown, self._required, requirements, [lost])
        )
        return next((shortfall.lost for shortfall in short), None)


def _with(scenario: Scenario, addition: Addition) -> Scenario:
    if addition.deployment:
        deployments = tuple(
            replace(deployment, replicas=deployment.replicas + addition.replicas)
            if deployment.key == addition.deployment
            else deployment
            for deployment in scenario.deployments
        )
        return replace(scenario, deployments=deployments)
    cluster_to_extend = next(cluster for cluster in scenario.clusters if cluster.name == addition.cluster)
    if addition.is_new_cluster:
        cluster_names = {cluster.name for cluster in scenario.clusters}
        name = next(
            name for number in itertools.count(2) if (name := f"{cluster_to_extend.name}-{number}") not in cluster_names
        )
        pools = tuple(pool.rebuilt(addition.nodes) for pool in cluster_to_extend.pools if pool.name in addition.pools)
        return replace(scenario, clusters=(*scenario.clusters, replace(cluster_to_extend, name=name, pools=pools)))
    pools = tuple(
        pool.with_nodes(pool.nodes + addition.nodes) if pool.name in addition.pools else pool
        for pool in cluster_to_extend.pools
    )
    changed = replace(cluster_to_extend, pools=pools)
    return replace(
        scenario, clusters=tuple(changed if cluster is cluster_to_extend else cluster for cluster in scenario.clusters)
    )
