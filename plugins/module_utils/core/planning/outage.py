# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Input of the outage guard: replicas and services that a plan stops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from .. import api, names
from ..change.outage import DeploymentChange, ServiceChange
from ..compose.service import Resolution
from ..scheduling import adapters
from ..scheduling.model import PlacedEngine, Schedule
from ..scheduling.retaining import SCALED_DOWN
from ..status import conditions
from .context import Context
from .fleet import Key
from .rollout import Rollout


@dataclass(frozen=True)
class Changes:
    """Effects of a plan on serving replicas and services.

    serving: replicas that serve now, including replicas on unobserved clusters.
    composed: replicas that exist after the plan.
    resolutions: endpoints of each ModelService after the plan.
    """

    context: Context
    schedule: Schedule
    rollouts: Sequence[Rollout]
    serving: frozenset[Key]
    composed: frozenset[Key]
    resolutions: Mapping[Key, Resolution]

    @cached_property
    def _owners(self) -> dict[Key, Key]:
        """The deployment of each serving replica."""
        replicas = self.context.fleet.replicas
        return {
            key: (key[0], adapters.replica(replicas[key]).deployment) for key in sorted(self.serving) if key in replicas
        }

    @cached_property
    def _restarted(self) -> dict[Key, str]:
        return {
            (rollout.key[0], name): "the edit of its deployment restarts it in place"
            + (" with more devices than are free" if (rollout.key[0], name) in self._oversized else "")
            for rollout in self.rollouts
            for name in rollout.restarted
        }

    @cached_property
    def _oversized(self) -> frozenset[Key]:
        """The existing replicas that claim more devices of an overcommitted node pool than before. Their pods might not
        start again."""
        pools = {(cluster, claim.pool) for claim in self.schedule.overcommitted for cluster in claim.clusters}
        replicas = set()
        for placement in self.schedule.placements if pools else ():
            key = (placement.namespace, placement.replica)
            if placement.state == "kept" and key in self.context.fleet.replicas:
                current = _devices(adapters.replica(self.context.fleet.replicas[key]).engines)
                desired = _devices(placement.engines)
                if any(desired[pool] > current[pool] for pool in desired if (placement.cluster, pool) in pools):
                    replicas.add(key)
        return frozenset(replicas)

    @cached_property
    def _stopping(self) -> dict[Key, str]:
        """The replicas that stop serving, with the reason."""
        dropped = {(entry.replica.namespace, entry.replica.name): entry.reason for entry in self.schedule.dropped}
        removed = {
            key: dropped.get(key, "its deployment was deleted") for key in self._owners if key not in self.composed
        }
        return {**{key: reason for key, reason in self._restarted.items() if key in self._owners}, **removed}

    @cached_property
    def _preempted(self) -> frozenset[Key]:
        return frozenset(
            (entry.replica.namespace, entry.replica.name)
            for entry in self.schedule.dropped
            if entry.preempted_by and not entry.evicted
        )

    @cached_property
    def _accepted(self) -> frozenset[Key]:
        """The replicas that stop because a manifest asks for it, or because other replicas serve instead."""
        accepted = self._restarted.keys() - self._oversized
        for rollout in self.rollouts:
            accepted |= {(rollout.key[0], name) for name in rollout.placing.removed}
        accepted |= self._preempted
        for entry in self.schedule.dropped:
            if entry.evicted or entry.reason == SCALED_DOWN:
                accepted.add((entry.replica.namespace, entry.replica.name))
        deployments = self.context.fleet.deployments
        accepted |= {key for key, owner in self._owners.items() if not self._desired(deployments.get(owner))}
        return frozenset(accepted)

    @staticmethod
    def _desired(deployment: api.ModelDeployment | None) -> int:
        return deployment.spec.replicas if deployment else 0

    def deployments(self) -> Iterator[DeploymentChange]:
        """Yield the change of each deployment with serving replicas."""
        serving: dict[Key, set[Key]] = {}
        for key, owner in self._owners.items():
            serving.setdefault(owner, set()).add(key)
        for (namespace, name), keys in sorted(serving.items()):
            yield DeploymentChange(
                namespace,
                name,
                frozenset(key[1] for key in keys),
                {key[1]: self._stopping[key] for key in keys if key in self._stopping},
                frozenset(key[1] for key in keys & self._accepted),
            )

    def services(self) -> Iterator[ServiceChange]:
        """Yield the change of each ModelService of the fleet."""
        fleet = self.context.fleet
        for key, service in sorted(fleet.services.items()):
            earlier_endpoints = {
                endpoint
                for endpoint in self._owners
                if endpoint[0] == service.namespace
                and endpoint in fleet.endpoints
                and selects(service, fleet.endpoints[endpoint].labels)
            }
            members = self.resolutions[key].members if key in self.resolutions else ()
            remaining_endpoints = {
                member.endpoint.name
                for member in members
                if (member.endpoint.namespace, member.endpoint.name) in fleet.external
                or (member.endpoint.namespace, member.endpoint.name) in self._owners.keys() - self._stopping.keys()
            }
            routing = conditions.known(self.context.statuses.get(service.ref), "RoutingReady")
            stopping = [endpoint for endpoint in sorted(earlier_endpoints) if endpoint in self._stopping]
            yield ServiceChange(
                *key,
                frozenset(endpoint[1] for endpoint in earlier_endpoints),
                frozenset(remaining_endpoints),
                routing is True and not self._new_only(service, earlier_endpoints),
                tuple(dict.fromkeys(f"{self._stopping[endpoint]} ({endpoint[1]})" for endpoint in stopping)),
                self._is_accepted(service, earlier_endpoints),
            )

    def _new_only(self, service: api.ModelService, earlier_endpoints: set[Key]) -> bool:
        """Return True if a routed service has endpoints but none that serves, so that it cannot lose any."""
        selected = any(
            key[0] == service.namespace and selects(service, endpoint.labels)
            for key, endpoint in self.context.fleet.endpoints.items()
        )
        return selected and not earlier_endpoints

    def _may_all_stop(self, owners: Collection[Key]) -> bool:
        """Return True if all endpoints belong to one deployment, and all its replicas may stop at the same time."""
        bounds = [rollout.bounds for rollout in self.rollouts if rollout.key in owners]
        return len(owners) == 1 and any(bound.unavailable >= bound.desired for bound in bounds)

    def _is_accepted(self, service: api.ModelService, earlier_endpoints: set[Key]) -> bool:
        """Return True if the manifests request the loss of all endpoints of a service.

        This applies if all its deployments are deleted, scaled to zero, or evicted by taints. It also applies if all
        its replicas may restart in place at the same time.
        """
        lost = earlier_endpoints & self._stopping.keys()
        restarted = lost & (self._restarted.keys() - self._oversized)
        requested_removals = lost & (self._accepted - self._restarted.keys())
        if restarted:
            # A preempted replica is not removed because the manifests ask for fewer replicas of the service.
            requested_removals -= self._preempted
        if not lost or lost != restarted | requested_removals:
            return False
        if restarted:
            # The manifests ask for the removal of the other replicas, so only these replicas must be able to stop.
            remaining_endpoints = earlier_endpoints - requested_removals
            return len(remaining_endpoints) == 1 or self._may_all_stop(
                {self._owners[endpoint] for endpoint in remaining_endpoints}
            )
        owners = {self._owners[endpoint] for endpoint in earlier_endpoints}
        remaining = (
            key
            for key, deployment in self.context.fleet.deployments.items()
            if key[0] == service.namespace
            and key not in owners
            and deployment.spec.replicas
            and selects(service, deployment_labels(deployment))
        )
        return next(remaining, None) is None


def _devices(engines: Iterable[PlacedEngine]) -> Counter[str]:
    """Return the number of devices of each node pool that engines claim."""
    devices: Counter[str] = Counter()
    for engine in engines:
        for member in engine.members:
            devices_per_pod = sum(int(claim.get("count", 1)) for claim in member.device_requests)
            for pool, pods in member.pods_by_pool:
                devices[pool] += engine.copies * pods * devices_per_pod
    return devices


class Endpoints:
    """Serving endpoints of ModelServices that route to several deployments.

    A step never stops the last serving endpoint of such a service. The replica waits until another replica serves."""

    def __init__(self, context: Context, serving: Collection[Key]) -> None:
        self._context = context
        self._serving = serving

    @cached_property
    def _shared(self) -> dict[Key, set[Key]]:
        return _shared_services(self._context, self._serving)

    def last_of(self, replica: Key, stopping: Collection[Key]) -> str:
        """Return the service that loses its last serving endpoint if a replica stops in addition to the `stopping`
        replicas; "" if no service does."""
        services = (key for key, endpoints in self._shared.items() if endpoints.difference(stopping) == {replica})
        return "/".join(next(services, ()))

    def stagger(self, rollouts: Mapping[Key, Rollout]) -> dict[Key, Rollout]:
        """Return the steps, without restarts in place that would stop the last serving endpoint of a service."""
        steps = dict(rollouts)
        stopping = {(key[0], name) for key, step in steps.items() for name in step.placing.replaced}
        for key, step in sorted(steps.items()):
            waiting: dict[str, str] = {}
            for name in sorted(step.restarted & step.updating.updated):
                if service := self.last_of((key[0], name), stopping):
                    waiting[name] = f"it is the last serving replica of ModelService {service}"
                else:
                    stopping.add((key[0], name))
            if waiting:
                updating = replace(
                    step.updating,
                    updated=step.updating.updated - waiting.keys(),
                    waiting={**step.updating.waiting, **waiting},
                )
                steps[key] = replace(step, updating=updating)
        return steps


def _shared_services(context: Context, serving: Collection[Key]) -> dict[Key, set[Key]]:
    """Return the serving endpoints of each ModelService with several deployments."""
    fleet = context.fleet
    shared = {}
    for (namespace, name), service in sorted(fleet.services.items()):
        deployments = [
            key
            for key, deployment in fleet.deployments.items()
            if key[0] == namespace and deployment.spec.replicas and selects(service, deployment_labels(deployment))
        ]
        if len(deployments) > 1:
            shared[namespace, name] = {
                key
                for key, endpoint in fleet.endpoints.items()
                if key[0] == namespace and key in serving and selects(service, endpoint.labels)
            } | {
                key
                for key, endpoint in fleet.external.items()
                if key[0] == namespace and selects(service, endpoint.labels)
            }
    return shared


def deployment_labels(deployment: api.ModelDeployment) -> dict[str, str]:
    """Return the ModelEndpoint labels of a deployment."""
    metadata = deployment.spec.template.metadata
    labels = (metadata.labels if metadata else None) or {}
    return {**labels, names.DEPLOYMENT_LABEL: names.label_value(deployment.name)}


def selects(service: api.ModelService, labels: Mapping[str, str]) -> bool:
    """Return True if a ModelService selects endpoints with these labels."""
    return any(entry.selector.match_labels.items() <= labels.items() for entry in service.spec.endpoints)
