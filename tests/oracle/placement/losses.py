# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Losses of clusters that the services of a fleet have to survive: every one is planned, and compared with the survey.

docs/what-if.md has the rules: after a loss, and once the replicas that can be placed again are placed, each service has
an endpoint, and each deployment the replicas of its `minAvailable`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator

from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.model_service import Survival
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning import Plan, plan
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning.survival import Survey, survey
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import (
    Cluster,
    Deployment,
    Options,
    Placement,
    Replica,
    Schedule,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.placement import schedule
from ansible_collections.modelplane.fleet.tests.oracle.placement import rules
from ansible_collections.modelplane.fleet.tests.oracle.placement.manifests import resources_of
from ansible_collections.modelplane.fleet.tests.oracle.placement.written import Fleet

Subject = tuple[str, str, str]
"""Kind and name of a service or deployment, and the label of clusters that it is about."""
Surveyor = Callable[[Fleet, Plan], Survey]


def by_the_survey(fleet: Fleet, planned: Plan) -> Survey:
    return survey(planned, fleet.options, Survival(clusters=fleet.survive))


def unsurvived(fleet: Fleet, surveyor: Surveyor = by_the_survey) -> Iterator[str]:
    """Yield the losses on which the survey of a fleet and plans of the fleet without the clusters differ."""
    planned = plan(resources_of(fleet), options=fleet.options)
    found = surveyor(fleet, planned)
    reported = {
        (one.requirement.kind, one.requirement.name, one.requirement.label): (one.lost, one.losses, one.left)
        for one in found.shortfalls
    }
    expected = _shortfalls(planned, fleet)
    for subject in sorted(expected.keys() | reported.keys()):
        if expected.get(subject) != reported.get(subject):
            yield f"{subject}: {expected.get(subject)} is not survived, {reported.get(subject)} is reported"


def _shortfalls(planned: Plan, fleet: Fleet) -> dict[Subject, tuple[tuple[str, ...], int, int]]:
    """Return the first loss that each subject does not survive, the number of such losses, and what is left."""
    names = sorted(cluster.name for cluster in planned.clusters)
    losses = [lost for number in range(1, fleet.survive + 1) for lost in itertools.combinations(names, number)]
    shortfalls: dict[Subject, tuple[tuple[str, ...], int, int]] = {}
    for subject, left, least in _left(planned, (), fleet.options):
        if left < least:
            shortfalls[subject] = (), 1, left
    unmet = set(shortfalls)
    for lost in losses:
        for subject, left, least in _left(planned, lost, fleet.options):
            if subject not in unmet and left < least:
                first, number, fewest = shortfalls.get(subject, (lost, 0, left))
                shortfalls[subject] = first, number + 1, fewest
    return shortfalls


def _left(planned: Plan, lost: Collection[str], options: Options) -> Iterator[tuple[Subject, int, int]]:
    """Yield each subject with the endpoints or replicas that it has after a loss, and the number that it needs."""
    decided = _after(planned, lost, options)
    for deployment in planned.deployments:
        placed = [one for one in decided.placements if (one.namespace, one.deployment) == deployment.key]
        yield ("service", deployment.name, ""), len(placed), 1
        for minimum in deployment.minimum:
            if not minimum.topology_key:
                yield ("deployment", deployment.name, ""), len(placed), minimum.replicas
                continue
            for value, names in _values(deployment, planned.clusters, minimum.topology_key).items():
                if not names <= set(lost):
                    subject = ("deployment", deployment.name, f"{minimum.topology_key}={value}")
                    yield subject, sum(one.cluster in names for one in placed), minimum.replicas


def _values(deployment: Deployment, clusters: Collection[Cluster], key: str) -> dict[str, set[str]]:
    values: dict[str, set[str]] = {}
    for cluster in clusters:
        value = cluster.name if key == "modelplane.ai/cluster" else cluster.labels.get(key, "")
        if value and not rules.ineligible(deployment, cluster):
            values.setdefault(value, set()).add(cluster.name)
    return values


def _after(planned: Plan, lost: Collection[str], options: Options) -> Schedule:
    """Return the plan of a fleet in which everything runs that was planned, without some clusters."""
    clusters = [cluster for cluster in planned.clusters if cluster.name not in lost]
    running = [_running(one) for one in planned.schedule.placements if one.cluster not in lost]
    return schedule(planned.deployments, clusters, running, options)


def _running(one: Placement) -> Replica:
    name = one.replica or f"{one.deployment}-{one.cluster}-{one.index}"
    return Replica(name, one.namespace, one.deployment, one.cluster, one.index, one.engines)
