# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Replicas and services that stop serving because of changes on API servers, for the outage guard of the module apply.

The module applies objects that an earlier run planned. The guard compares them with the live state of the clusters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from .. import names
from ..applying.inventory import Key
from ..applying.managed_fields import owned
from ..compose.backend import backend_name
from ..compose.constants import SPEC_HASH_ANNOTATION
from ..compose.workload_cluster import WORKLOADS
from ..status.workloads import availability
from ..wire import Object, fields, is_being_deleted, label, number, text
from . import routes
from .difference import Observed
from .outage import DeploymentChange, ServiceChange
from .steps import ChangePlan, Delete, Write

Name = tuple[str, str]
"""Namespace and name of a fleet resource, as label values."""
_POD_TEMPLATES = ("template", "leaderWorkerTemplate")


@dataclass(frozen=True)
class Server:
    """Replicas of one API server, and the changes of a run to them.

    serving: serving replicas, with their deployments.
    removed, restarted: replicas that the run removes or restarts, with the reasons.
    routed: names of the backends of live routes, by service and name of the route.
    """

    cluster: str
    serving: Mapping[Name, str] = field(default_factory=dict)
    removed: Mapping[Name, str] = field(default_factory=dict)
    restarted: Mapping[Name, str] = field(default_factory=dict)
    routed: Mapping[tuple[Name, str], frozenset[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class PlannedReplica:
    """ModelReplica of the plan. `serves`: True if it serves according to its last status."""

    deployment: str
    cluster: str
    serves: bool = False


@dataclass(frozen=True)
class Planned:
    """Applied plan.

    unavailable: maximum number of unavailable replicas during a rollout, by deployment that sets `maxUnavailable`.
    services: names of the usable endpoints of each ModelService.
    """

    replicas: Mapping[Name, PlannedReplica] = field(default_factory=dict)
    unavailable: Mapping[Name, int] = field(default_factory=dict)
    services: Mapping[Name, frozenset[str]] = field(default_factory=dict)


def server(cluster: str, plan: ChangePlan, observed: Observed) -> Server:
    """Return the replicas of an API server, and the changes of a plan to them."""
    workloads: dict[Name, list[Object]] = {}
    for key, value in observed.live.items():
        if key.kind in WORKLOADS and key not in observed.others and label(value, names.DEPLOYMENT_LABEL):
            workloads.setdefault(_replica(value), []).append(value)
    serving = {
        replica: label(values[0], names.DEPLOYMENT_LABEL)
        for replica, values in workloads.items()
        if all(availability(value, value).answers and not is_being_deleted(value) for value in values)
    }
    deleted: dict[Name, int] = {}
    restarted: dict[Name, str] = {}
    for step in plan.steps:
        if step_object := _workload(step):
            replica = _replica(step_object)
            if isinstance(step, Delete):
                deleted[replica] = deleted.get(replica, 0) + 1
            elif isinstance(step, Write) and (edit := _restart(step)):
                restarted.setdefault(replica, f"the edit of {edit} restarts it on cluster {cluster}")
    removed = {
        replica: f"it would be removed from cluster {cluster} before another replica serves instead"
        for replica, count in deleted.items()
        if count == len(workloads.get(replica, ()))
    }
    restarted |= dict.fromkeys(
        deleted.keys() - removed.keys(), f"one of its workloads would be removed from cluster {cluster}"
    )
    return Server(
        cluster,
        serving,
        {replica: why for replica, why in removed.items() if replica in serving},
        {replica: why for replica, why in restarted.items() if replica in serving},
        dict(_routed(observed.live)),
    )


def _workload(step: object) -> Object | None:
    """Return the workload that a step writes or deletes, None if it does not belong to a deployment."""
    if isinstance(step, Write) and not step.refusal:
        value: Object = step.desired
    elif isinstance(step, Delete):
        value = step.live
    else:
        return None
    return value if text(value, "kind") in WORKLOADS and label(value, names.DEPLOYMENT_LABEL) else None


def _replica(value: Object) -> Name:
    return label(value, names.NAMESPACE_LABEL), label(value, names.REPLICA_LABEL)


def _restart(write: Write) -> str:
    """Return the changed field that stops all pods of a workload during a restart, "" without such a change.

    A workload with a surge or with several copies keeps serving while its pods restart one at a time."""
    live, desired = write.live, write.desired
    if live is None or _keeps_serving(desired):
        return ""
    live_hash, desired_hash = (
        text(value, "metadata", "annotations", SPEC_HASH_ANNOTATION) for value in (live, desired)
    )
    if live_hash == desired_hash:
        return ""
    applied = owned(live, names.FIELD_MANAGER) or live
    for name in _POD_TEMPLATES:
        applied_template, desired_template = fields(applied, "spec", name), fields(desired, "spec", name)
        if applied_template != desired_template:
            return _changed_field(applied_template, desired_template, f"spec.{name}")
    return ""


def _keeps_serving(workload: Object) -> bool:
    surge = fields(workload, "spec", "strategy", "rollingUpdate").get("maxSurge", 0)
    return surge not in (0, "0", "0%") or number(workload, "spec", "replicas", default=1) > 1


def _changed_field(old: Any, new: Any, path: str) -> str:
    """Return the path of the only different field, or of its parent if several fields differ."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        changed = [key for key in (*new, *(key for key in old if key not in new)) if old.get(key) != new.get(key)]
        if len(changed) == 1:
            return _changed_field(old.get(changed[0]), new.get(changed[0]), f"{path}.{changed[0]}")
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        indexes = [index for index, pair in enumerate(zip(old, new, strict=True)) if pair[0] != pair[1]]
        if len(indexes) == 1:
            return _changed_field(old[indexes[0]], new[indexes[0]], f"{path}[{indexes[0]}]")
    return path


def _routed(live: Mapping[Key, Object]) -> Iterator[tuple[tuple[Name, str], frozenset[str]]]:
    """Yield the backends of the routes of ModelServices."""
    for key, value in live.items():
        service = label(value, names.SERVICE_LABEL)
        if key.kind in routes.KINDS and service:
            if key.kind == routes.AI_ROUTE:
                backends = frozenset(routes.serving_backends(value))
            else:
                backends = frozenset(reference[1] for reference in routes.references(value))
            yield ((label(value, names.NAMESPACE_LABEL) or key.namespace, service), key.name), backends


@dataclass(frozen=True)
class Stops:
    """Replicas and services that stop serving because of the changes on `servers`.

    `maxUnavailable` limits the number of replicas of a deployment that can restart or be replaced at once. If unset,
    the limit is 25%, but at least 1.
    """

    servers: Sequence[Server]
    planned: Planned = field(default_factory=Planned)

    @cached_property
    def _serving(self) -> dict[Name, str]:
        """Return the serving replicas with their deployments. Replicas on other clusters count by their last status."""
        observed_clusters = {api_server.cluster for api_server in self.servers}
        unobserved = {
            name: replica.deployment
            for name, replica in self.planned.replicas.items()
            if replica.serves and replica.deployment and replica.cluster not in observed_clusters
        }
        observed = {name: owner for api_server in self.servers for name, owner in api_server.serving.items()}
        return unobserved | observed

    @cached_property
    def _removed(self) -> dict[Name, str]:
        return {name: reason for api_server in self.servers for name, reason in api_server.removed.items()}

    @cached_property
    def _stopping(self) -> dict[Name, str]:
        restarted = {name: reason for api_server in self.servers for name, reason in api_server.restarted.items()}
        return restarted | self._removed

    @cached_property
    def _missing(self) -> dict[Name, int]:
        """Return the number of planned replicas of each deployment that do not serve after the removals."""
        missing: dict[Name, int] = {}
        for name in self.planned.replicas:
            if name not in self._serving or name in self._removed:
                missing[self._owner(name)] = missing.get(self._owner(name), 0) + 1
        return missing

    @cached_property
    def _accepted(self) -> frozenset[Name]:
        """Return the removed replicas that need no replacement, because their deployment was deleted, has fewer
        replicas, or has enough other serving replicas."""
        accepted: set[Name] = set()
        for owner, names_of_owner in self._by_owner(self._removed).items():
            accepted.update(sorted(names_of_owner)[self._missing.get(owner, 0) :])
        return frozenset(accepted)

    def _by_owner(self, replicas: Iterable[Name]) -> dict[Name, set[Name]]:
        replicas_by_owner: dict[Name, set[Name]] = {}
        for name in replicas:
            if name in self._serving:
                replicas_by_owner.setdefault((name[0], self._serving[name]), set()).add(name)
        return replicas_by_owner

    def _allowed(self, owner: Name) -> int:
        """Return the maximum number of replicas of a deployment that can stop at once."""
        planned = sum(self._owner(name) == owner for name in self.planned.replicas)
        return self.planned.unavailable.get(owner, max(1, planned // 4))

    def deployments(self) -> Iterator[DeploymentChange]:
        """Yield the change of each deployment with replicas that stop."""
        serving = self._by_owner(self._serving)
        for owner, stopping in sorted(self._by_owner(self._stopping).items()):
            accepted = stopping & self._accepted
            if len(stopping - accepted) <= self._allowed(owner):
                accepted = stopping
            yield DeploymentChange(
                *owner,
                frozenset(name[1] for name in serving[owner]),
                {name[1]: self._stopping[name] for name in stopping},
                frozenset(name[1] for name in accepted),
            )

    def services(self) -> Iterator[ServiceChange]:
        """Yield the change of each planned ModelService."""
        replicas = {*self._serving, *self.planned.replicas}
        for service, endpoints in sorted(self.planned.services.items()):
            targets = {(service[0], names.label_value(name)) for name in endpoints}
            live_endpoints = {name for name in self._serving if name in targets or self._is_routed(service, name)}
            usable_targets = {name for name in targets if name not in replicas or name in self._serving}
            remaining_endpoints = usable_targets - self._stopping.keys()
            reasons = [
                f"{self._stopping.get(name, 'the plan has no usable endpoint for it')} ({name[1]})"
                for name in sorted(live_endpoints - remaining_endpoints)
            ]
            yield ServiceChange(
                *service,
                frozenset(name[1] for name in live_endpoints),
                frozenset(name[1] for name in remaining_endpoints),
                reasons=tuple(reasons),
                is_accepted=self._is_accepted(live_endpoints, targets),
            )

    def _is_routed(self, service: Name, replica: Name) -> bool:
        """Return True if a live route of the service references the replica."""
        return replica[0] == service[0] and any(
            not backends.isdisjoint({backend_name(replica[1]), names.joined_name(route, replica[1])})
            for api_server in self.servers
            for (owner, route), backends in api_server.routed.items()
            if owner == service
        )

    def _is_accepted(self, endpoints: set[Name], targets: set[Name]) -> bool:
        """Return True if the plan requests the loss of all endpoints of a service, or if a rollout allows the loss."""
        owners = self._by_owner(endpoints).keys()
        new_owners = {self._owner(name) for name in targets} - owners
        if endpoints <= self._accepted or owners.isdisjoint(map(self._owner, self.planned.replicas)):
            return not new_owners
        allowed = len(owners) == 1 and len(endpoints) <= self._allowed(next(iter(owners)))
        return endpoints <= self._stopping.keys() and allowed

    def _owner(self, replica: Name) -> Name:
        planned = self.planned.replicas.get(replica)
        return replica[0], planned.deployment if planned else self._serving.get(replica, "")
