# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Scenarios: a fleet that runs all planned replicas, and then loses or adds something.

Only replicas are placed and only endpoints are composed, so that many scenarios of one fleet can be tried.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from .. import api
from ..compose import model_endpoint, model_replica
from ..compose.claim import with_claim_names
from ..compose.endpoint import http_url
from ..compose.label_index import LabelIndex
from ..compose.service import MatchedEndpoint, resolve
from ..pricing import AssumedPrices, Catalogue
from ..problem import Ref
from ..scheduling import adapters
from ..scheduling.model import Cluster, Deployment, Options, Placement, Pool, Replica, Schedule
from ..scheduling.placement import schedule
from . import Plan, scheduler_inputs
from .clusters import platforms
from .context import Context
from .fleet import Key, build_fleet
from .traffic import usable


@dataclass(frozen=True)
class Scenario:
    """Fleet in the format of the scheduler.

    `running`: all running replicas, including hand-written replicas.
    `resources`: their ModelReplicas by namespace and name.
    """

    context: Context
    deployments: tuple[Deployment, ...]
    clusters: tuple[Cluster, ...]
    running: tuple[Replica, ...]
    resources: Mapping[Key, api.ModelReplica]
    options: Options

    def schedule(self) -> Schedule:
        """Return a schedule that places the missing replicas."""
        return schedule(self.deployments, self.clusters, self.running, self.options)

    def schedule_missing(self, among: Container[Key] | None = None) -> Schedule:
        """Return a schedule that places only the missing replicas of these deployments. Raises PlanError.

        Running replicas of other deployments only use capacity. If `among` is unset, all deployments are placed.

        The result is that of `schedule` if none of these deployments preempts, and if other deployments are complete or
        were unschedulable before. Running replicas do not move, so a loss creates no capacity for the other
        deployments.
        """
        running_counts = self.replicas()
        missing = [
            deployment for deployment in self.deployments if deployment.replicas > running_counts[deployment.key]
        ]
        chosen = [deployment for deployment in missing if among is None or deployment.key in among]
        staying = self._staying({deployment.key for deployment in chosen})
        return schedule([*chosen, *staying], self.clusters, self.running, self.options)

    def _staying(self, chosen: Collection[Key]) -> Iterator[Deployment]:
        """Yield other running deployments to include in a schedule, because they affect the used capacity.

        The deployments have no replicas to place.

        `Greedy` gives a pod the first kind of device that fits, and never revises the choice. Without its deployment, a
        replica only has its claim, and other kinds of device might satisfy the claim. `Exact` considers these kinds in
        both cases.
        """
        if (self.options.accounting, self.options.search) != ("Devices", "Greedy"):
            return
        several = {cluster.name for cluster in self.clusters if any(map(_has_several_kinds, cluster.pools))}
        deployment_keys = {
            (replica.namespace, replica.deployment) for replica in self.running if replica.cluster in several
        }
        running_counts = self.replicas()
        for deployment in self.deployments:
            if deployment.key in deployment_keys and deployment.key not in chosen:
                # `hold` also prevents these deployments from preempting replicas.
                yield replace(
                    deployment, replicas=running_counts[deployment.key], hold="only what is missing of others is placed"
                )

    def replicas(self) -> Counter[Key]:
        """Return how many replicas of each deployment run."""
        return Counter((replica.namespace, replica.deployment) for replica in self.running if replica.deployment)

    def after(self, decided: Schedule) -> Scenario:
        """Return the fleet after a schedule of all deployments is applied."""
        running = [replica for replica in self.running if not replica.deployment]
        resources = {
            (replica.namespace, replica.name): self.resources[replica.namespace, replica.name] for replica in running
        }
        for placement in decided.placements:
            resource = self.resource(placement)
            resources[resource.namespace, resource.name] = resource
            running.append(running_replica(placement, resource.name))
        return replace(self, running=tuple(running), resources=resources)

    def with_new(self, decided: Schedule) -> Scenario:
        """Return the fleet with the new replicas of a schedule running."""
        placed = [placement for placement in decided.placements if placement.state == "new"]
        new = {(replica.namespace, replica.name): replica for replica in map(self.resource, placed)}
        running = [running_replica(placement, name) for placement, (__, name) in zip(placed, new, strict=True)]
        return replace(self, running=(*self.running, *running), resources={**self.resources, **new})

    def resource(self, placement: Placement) -> api.ModelReplica:
        """Return the ModelReplica of a placement."""
        if placement.replica:
            return self.resources[placement.namespace, placement.replica]
        deployment = self.context.fleet.deployments[placement.namespace, placement.deployment]
        served = self.context.served_name(deployment)
        replica = model_replica(deployment, placement.cluster, placement.index, placement.engines, served)
        return with_claim_names(replica, existing=None)


def _has_several_kinds(pool: Pool) -> bool:
    return sum(device.claim == "DRA" for device in pool.devices) > 1


def running_replica(placement: Placement, name: str) -> Replica:
    """Return a placement as a replica that runs."""
    return Replica(
        name, placement.namespace, placement.deployment, placement.cluster, placement.index, placement.engines
    )


def planned(plan: Plan, options: Options) -> Scenario:
    """Return the fleet with all planned replicas running."""
    resources = {(replica.namespace, replica.name): replica for replica in (*plan.replicas, *plan.manual)}
    running = [
        running_replica(placement, replica.name)
        for placement, replica in zip(plan.schedule.placements, plan.replicas, strict=True)
    ]
    running += [adapters.replica(replica) for replica in plan.manual]
    return Scenario(plan.context, plan.deployments, plan.clusters, tuple(running), resources, options)


def with_resources(scenario: Scenario, resources: Iterable[api.Resource], held: Iterable[Ref]) -> Scenario:
    """Return a scenario with other resources. Running replicas remain."""
    endpoints = scenario.context.fleet.endpoints.values()
    existing = [*scenario.resources.values(), *endpoints]
    fleet = build_fleet(resources, existing, held, scenario.context.earlier)
    context = replace(scenario.context, fleet=fleet)
    deployments, clusters = scheduler_inputs(context, platforms(context))
    names = {cluster.name for cluster in clusters}
    manual = [replica for key, replica in fleet.manual.items() if key not in scenario.resources]
    manual = [replica for replica in manual if replica.spec.cluster_name in names]
    return replace(
        scenario,
        context=context,
        deployments=tuple(deployments),
        clusters=tuple(sorted(clusters, key=lambda cluster: cluster.name)),
        running=(*scenario.running, *map(adapters.replica, manual)),
        resources={**scenario.resources, **{(replica.namespace, replica.name): replica for replica in manual}},
    )


def with_prices(scenario: Scenario, catalogue: Catalogue | None, assumed: AssumedPrices | None) -> Scenario:
    """Return a scenario with other prices. Running replicas remain. Raises PricingError."""
    context = replace(scenario.context, catalogue=catalogue, assumed=assumed)
    deployments, clusters = scheduler_inputs(context, platforms(context))
    return replace(
        scenario,
        context=context,
        deployments=tuple(deployments),
        clusters=tuple(sorted(clusters, key=lambda cluster: cluster.name)),
    )


def before_plan(scenario: Scenario, plan: Plan) -> Scenario:
    """Return a scenario that runs only the replicas from before the plan and hand-written replicas."""
    deployment_keys = {deployment.key for deployment in scenario.deployments}
    manual = [replica for replica in scenario.running if not replica.deployment]
    ran = [(resource, adapters.replica(resource)) for resource in plan.context.fleet.replicas.values()]
    ran = [
        (resource, replica) for resource, replica in ran if (replica.namespace, replica.deployment) in deployment_keys
    ]
    resources = {
        (replica.namespace, replica.name): scenario.resources[replica.namespace, replica.name] for replica in manual
    }
    resources |= {(replica.namespace, replica.name): resource for resource, replica in ran}
    return replace(scenario, running=(*(replica for __, replica in ran), *manual), resources=resources)


def usable_endpoints(
    scenario: Scenario, replicas: Iterable[api.ModelReplica], services: Iterable[api.ModelService] | None = None
) -> dict[Key, list[MatchedEndpoint]]:
    """Return the endpoints of each service that can receive requests once these replicas serve.

    Endpoints outside of the fleet are included.

    `services`: defaults to all services of the fleet.
    """
    context = scenario.context
    clusters = {cluster.name: cluster for cluster in scenario.clusters}
    composed = [
        endpoint
        for replica in replicas
        if (endpoint := _endpoint(context, replica, clusters.get(replica.spec.cluster_name)))
    ]
    index = LabelIndex([*composed, *context.fleet.external.values()])
    chosen: Sequence[api.ModelService] = list(context.fleet.services.values() if services is None else services)
    return {
        (service.namespace, service.name): [
            member
            for member in resolve(service, index, lambda endpoint: usable(context, endpoint)).members
            if member.usable
        ]
        for service in chosen
    }


def _endpoint(context: Context, replica: api.ModelReplica, cluster: Cluster | None) -> api.ModelEndpoint | None:
    """Return the ModelEndpoint of a replica that serves; that of earlier runs where the gateway is not known."""
    if cluster is not None and cluster.gateway_address:
        url = cluster.gateway_url or http_url(cluster.gateway_address)
        return model_endpoint(replica, url, context.fleet.clusters.get(cluster.name))
    return context.fleet.endpoints.get((replica.namespace, replica.name)) if cluster else None
