# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Findings of a status: the problems of a fleet, each with a hint."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from ..text import count
from .serving import GatewayStatus
from .status import CacheStatus, ClusterStatus, DeploymentStatus, FleetStatus

# A replica in one of these states is either unknown, or as it should be.
_NOT_UNREADY = frozenset({"Declared", "Leaving", "Serving", "Unknown"})
_HINTS = {
    "Invalid": "Correct its manifest; `ansible-playbook modelplane.fleet.validate` lists the errors.",
    "Provisioning": "Wait until its cloud has created it; `ansible-playbook modelplane.fleet.provision` goes on.",
}


class Finding(NamedTuple):
    """Problem of a fleet: the affected resource, its location, the reason, and a hint."""

    kind: Literal["pending", "unready", "unreachable", "survival"]
    subject: Literal["service", "gateway", "deployment", "replica", "cluster", "cache", "secret"]
    namespace: str
    """Empty for a cluster."""
    name: str
    cluster: str
    """Empty for a resource without a cluster."""
    status: str
    message: str
    hint: str = ""
    command: str = ""
    """Command to run on the cluster."""

    @property
    def reason(self) -> str:
        """Return the status with its explanation."""
        return ": ".join(phrase for phrase in (self.status, self.message) if phrase)

    def __str__(self) -> str:
        name = f"{self.namespace}/{self.name}" if self.namespace else self.name
        if self.subject == "deployment":
            return f"{name}: {self.reason}"
        if self.subject == "secret":
            return f"{self.message}. {self.hint}"
        where = f" on {self.cluster}" if self.cluster and self.subject != "cluster" else ""
        return f"{self.subject} {name}{where}: {self.reason}"


def findings(fleet_status: FleetStatus) -> Iterator[Finding]:
    """Return the problems of a fleet: clusters first, because they explain the other problems."""
    for cluster in fleet_status.clusters:
        yield from _of_cluster(cluster)
    for service in fleet_status.services:
        if service.status == "Unavailable":
            hint = "It answers as soon as one of its endpoints can be used."
            yield Finding("unready", "service", service.namespace, service.name, "", "", service.message, hint)
    for gateway in fleet_status.gateways or ():
        yield from _of_gateway(gateway)
    for deployment in fleet_status.deployments:
        if fleet_status.observed_at:
            yield from _of_replicas(deployment)
        yield from _of_pending(deployment)
    for cache in fleet_status.caches:
        yield from _of_cache(cache)
    for secret in fleet_status.missing_secrets:
        yield Finding(
            "unready", "secret", secret.namespace, secret.name, secret.cluster, "", secret.message, secret.hint
        )


def _of_cluster(cluster: ClusterStatus) -> Iterator[Finding]:
    check = f"`ansible-playbook modelplane.fleet.check --limit {cluster.name}` reports what is wrong there."
    if cluster.state == "Unreachable":
        hint = f"Check its network and credentials. {check}"
        yield Finding("unreachable", "cluster", "", cluster.name, cluster.name, "", cluster.message, hint)
    elif cluster.state in ("Invalid", "NotReady", "Provisioning"):
        hint = _HINTS.get(cluster.state, check)
        yield Finding("unready", "cluster", "", cluster.name, cluster.name, cluster.state, cluster.message, hint)


def _of_gateway(gateway: GatewayStatus) -> Iterator[Finding]:
    if gateway.state in ("NotReady", "Refused"):
        check = f"`ansible-playbook modelplane.fleet.check --limit {gateway.cluster}` reports what is wrong there."
        hint = f"It routes as soon as its cluster runs it. {check}" if gateway.state == "NotReady" else ""
        location = ("", gateway.name, gateway.cluster)
        yield Finding("unready", "gateway", *location, gateway.state, gateway.message, hint)


def _of_replicas(deployment: DeploymentStatus) -> Iterator[Finding]:
    for row in deployment.replicas:
        if row.status not in _NOT_UNREADY:
            hint = "" if row.command else "Wait until it has started."
            location = (deployment.namespace, row.name, row.cluster)
            yield Finding("unready", "replica", *location, row.status, row.message, hint, row.command or "")


def _of_pending(deployment: DeploymentStatus) -> Iterator[Finding]:
    if pending := deployment.pending:
        missing = f"{pending.count} of {count(deployment.desired, 'replica')} pending"
        location = (deployment.namespace, deployment.name, "")
        message = f"{pending.reason}: {pending.message}"
        yield Finding("pending", "deployment", *location, missing, message, pending.hint)


def _of_cache(cache: CacheStatus) -> Iterator[Finding]:
    for phase in cache.clusters:
        if phase.phase == "Failed":
            hint = "Correct its source or its Secret, and run `ansible-playbook modelplane.fleet.reconcile` again."
            yield Finding("unready", "cache", cache.namespace, cache.name, phase.cluster, "", phase.message, hint)
