# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Replicas and services that stop serving by a plan, for the outage guard."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ansible_collections.modelplane.fleet.plugins.module_utils.core import api, names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.change.outage import (
    DeploymentChange,
    ServiceChange,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.service import Resolution
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning.context import Context
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning.fleet import Key
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning.rollout import Rollout
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling import adapters
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import PlacedEngine, Schedule
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.retaining import SCALED_DOWN
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status import conditions


@dataclass(frozen=True)
class Changes:
    """Replicas and services that serve, and what becomes of them.

    serving: replicas that serve now, those that a cluster without observation has included.
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
        """The deployment of each replica that serves."""
        replicas = self.context.fleet.replicas
        return {
            key: (key[0], adapters.replica(replicas[key]).deployment) for key in sorted(self.serving) if key in replicas
        }

    @cached_property
    def _restarted(self) -> dict[Key, str]:
        return {
            (rollout.key[0], name): "the edit of its deployment restarts it in place"
            + (" and asks for devices that are not free" if (rollout.key[0], name) in self._squeezed else "")
            for rollout in self.rollouts
            for name in rollout.restarted
        }

    @cached_property
    def _squeezed(self) -> frozenset[Key]:
        """The existing replicas that ask for more devices of a pool than before, although the pool has too few: their
        pods might not start again."""
        short = {(cluster, each.pool) for each in self.schedule.overcommitted for cluster in each.clusters}
        found = set()
        for placement in self.schedule.placements if short else ():
            key = (placement.namespace, placement.replica)
            if placement.state == "kept" and key in self.context.fleet.replicas:
                before = _devices(adapters.replica(self.context.fleet.replicas[key]).engines)
                after = _devices(placement.engines)
                if any(after[pool] > before[pool] for pool in after if (placement.cluster, pool) in short):
                    found.add(key)
        return frozenset(found)

    @cached_property
    def _stopping(self) -> dict[Key, str]:
        """The replicas that stop serving, each with the reason."""
        dropped = {(entry.replica.namespace, entry.replica.name): entry.reason for entry in self.schedule.dropped}
        gone = {key: dropped.get(key, "its deployment was deleted") for key in self._owners if key not in self.composed}
        return {**{key: why for key, why in self._restarted.items() if key in self._owners}, **gone}

    @cached_property
    def _accepted(self) -> frozenset[Key]:
        """The replicas that stop because a manifest asks for it, or because others serve instead."""
        accepted = self._restarted.keys() - self._squeezed
        for rollout in self.rollouts:
            accepted |= {(rollout.key[0], name) for name in rollout.placing.removed}
        for entry in self.schedule.dropped:
            if entry.evicted or entry.preempted_by or entry.reason == SCALED_DOWN:
                accepted.add((entry.replica.namespace, entry.replica.name))
        deployments = self.context.fleet.deployments
        accepted |= {key for key, owner in self._owners.items() if not self._desired(deployments.get(owner))}
        return frozenset(accepted)

    @staticmethod
    def _desired(deployment: api.ModelDeployment | None) -> int:
        return deployment.spec.replicas if deployment else 0

    def deployments(self) -> Iterator[DeploymentChange]:
        """Yield the change of each deployment that has a replica which serves."""
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
            before = {
                endpoint
                for endpoint in self._owners
                if endpoint[0] == service.namespace
                and endpoint in fleet.endpoints
                and selects(service, fleet.endpoints[endpoint].labels)
            }
            members = self.resolutions[key].members if key in self.resolutions else ()
            after = {
                member.endpoint.name
                for member in members
                if (member.endpoint.namespace, member.endpoint.name) in fleet.external
                or (member.endpoint.namespace, member.endpoint.name) in self._owners.keys() - self._stopping.keys()
            }
            routing = conditions.known(self.context.statuses.get(service.ref), "RoutingReady")
            stopping = [endpoint for endpoint in sorted(before) if endpoint in self._stopping]
            yield ServiceChange(
                *key,
                frozenset(endpoint[1] for endpoint in before),
                frozenset(after),
                routing is True and not self._new_only(service, before),
                tuple(dict.fromkeys(f"{self._stopping[each]} ({each[1]})" for each in stopping)),
                self._is_accepted(service, before),
            )

    def _new_only(self, service: api.ModelService, before: set[Key]) -> bool:
        """Return whether nothing of a service served, although its route is there: then there is nothing to lose."""
        selected = any(
            endpoint[0] == service.namespace and selects(service, each.labels)
            for endpoint, each in self.context.fleet.endpoints.items()
        )
        return selected and not before

    def _may_all_stop(self, owners: Collection[Key]) -> bool:
        """Return whether endpoints are of one deployment, all replicas of which may stop at a time."""
        bounds = [rollout.bounds for rollout in self.rollouts if rollout.key in owners]
        return len(owners) == 1 and any(each.unavailable >= each.desired for each in bounds)

    def _is_accepted(self, service: api.ModelService, before: set[Key]) -> bool:
        """Return whether the manifests ask for the loss of all endpoints of a service: all its deployments are deleted,
        scaled to zero or leave tainted clusters, or its replicas restart in place and all of them may."""
        owners = {self._owners[endpoint] for endpoint in before}
        lost = before & self._stopping.keys()
        is_allowed = len(before) == 1 or self._may_all_stop(owners)
        if lost and lost <= self._restarted.keys() - self._squeezed and is_allowed:
            return True
        if not lost or not lost <= self._accepted - self._restarted.keys():
            return False
        others = (
            key
            for key, deployment in self.context.fleet.deployments.items()
            if key[0] == service.namespace
            and key not in owners
            and deployment.spec.replicas
            and selects(service, deployment_labels(deployment))
        )
        return next(others, None) is None


def _devices(engines: Iterable[PlacedEngine]) -> Counter[str]:
    """Return the number of devices of each pool that engines claim."""
    found: Counter[str] = Counter()
    for engine in engines:
        for member in engine.members:
            claimed = sum(int(claim.get("count", 1)) for claim in member.device_requests)
            for pool, pods in member.pods_by_pool:
                found[pool] += engine.copies * pods * claimed
    return found


def staggered(context: Context, rollouts: Mapping[Key, Rollout], serving: Collection[Key]) -> dict[Key, Rollout]:
    """Return the steps without those restarts in place that would take the last endpoint of a service to which several
    deployments belong: these replicas wait until others serve."""
    steps = dict(rollouts)
    stopping = {(key[0], name) for key, step in steps.items() for name in step.placing.given}
    shared = None
    for key, step in sorted(steps.items()):
        waiting: dict[str, str] = {}
        for name in sorted(step.restarted & step.updating.updated):
            shared = _shared_services(context, serving) if shared is None else shared
            replica = (key[0], name)
            last = [each for each, endpoints in shared.items() if endpoints - stopping == {replica}]
            if last:
                waiting[name] = f"it is the last replica that serves of ModelService {'/'.join(last[0])}"
            else:
                stopping.add(replica)
        if waiting:
            updating = replace(
                step.updating,
                updated=step.updating.updated - waiting.keys(),
                waiting={**step.updating.waiting, **waiting},
            )
            steps[key] = replace(step, updating=updating)
    return steps


def _shared_services(context: Context, serving: Collection[Key]) -> dict[Key, set[Key]]:
    """Return the endpoints that serve of each ModelService to which several deployments belong."""
    fleet = context.fleet
    shared = {}
    for (namespace, name), service in sorted(fleet.services.items()):
        deployments = [
            key
            for key, each in fleet.deployments.items()
            if key[0] == namespace and each.spec.replicas and selects(service, deployment_labels(each))
        ]
        if len(deployments) > 1:
            shared[namespace, name] = {
                key
                for key, endpoint in fleet.endpoints.items()
                if key[0] == namespace and key in serving and selects(service, endpoint.labels)
            } | {key for key, each in fleet.external.items() if key[0] == namespace and selects(service, each.labels)}
    return shared


def deployment_labels(deployment: api.ModelDeployment) -> dict[str, str]:
    """Return the labels of the ModelEndpoints of a deployment by which services select them."""
    metadata = deployment.spec.template.metadata
    written = (metadata.labels if metadata else None) or {}
    return {**written, names.DEPLOYMENT_LABEL: names.label_value(deployment.name)}


def selects(service: api.ModelService, labels: Mapping[str, str]) -> bool:
    """Return whether a ModelService selects endpoints with these labels."""
    return any(entry.selector.match_labels.items() <= labels.items() for entry in service.spec.endpoints)
