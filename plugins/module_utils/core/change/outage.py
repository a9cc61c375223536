# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Outage guard: changes that would stop a model from serving although no manifest requests this.

The guard compares serving endpoints before and after a change, regardless of the planning of the change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class DeploymentChange:
    """Change of the replicas of a deployment.

    serving: currently serving replicas.
    stopping: replicas that stop serving, with the reason.
    accepted: replicas that the manifests or the bounds of the rollout allow to stop.
    """

    namespace: str
    name: str
    serving: frozenset[str]
    stopping: Mapping[str, str] = field(default_factory=dict)
    accepted: frozenset[str] = frozenset()


@dataclass(frozen=True)
class ServiceChange:
    """Change of the endpoints of a service.

    before: currently serving endpoints.
    after: endpoints that still serve after the change.
    was_routed: the gateway routed requests to the service before.
    reasons: reasons why endpoints stop serving.
    is_accepted: the manifests request the loss of all endpoints.
    """

    namespace: str
    name: str
    before: frozenset[str]
    after: frozenset[str]
    was_routed: bool = False
    reasons: tuple[str, ...] = ()
    is_accepted: bool = False


@dataclass(frozen=True)
class Outage:
    """Outage of a service without endpoints, or of a deployment that loses most of its serving replicas."""

    kind: Literal["ModelService", "ModelDeployment"]
    namespace: str
    name: str
    message: str


def outages(deployments: Iterable[DeploymentChange], services: Iterable[ServiceChange]) -> Iterator[Outage]:
    """Yield the outages that a change causes, deployments first."""
    for deployment in deployments:
        stopping = {name: reason for name, reason in deployment.stopping.items() if name not in deployment.accepted}
        if 2 * len(stopping) > len(deployment.serving):
            message = f"{_share(stopping, deployment.serving)} would stop serving: {_reasons(stopping)}"
            yield Outage("ModelDeployment", deployment.namespace, deployment.name, message)
    for service in services:
        if service.after or service.is_accepted or not (service.before or service.was_routed):
            continue
        endpoints = f" ({', '.join(sorted(service.before))})" if service.before else ""
        reason = "; ".join(service.reasons) or "its selectors match no serving endpoint"
        message = f"the service would lose all serving endpoints{endpoints}: {reason}"
        yield Outage("ModelService", service.namespace, service.name, message)


def _share(stopping: Mapping[str, str], serving: frozenset[str]) -> str:
    if len(serving) == 1:
        return "the only serving replica"
    return f"{len(stopping)} of {len(serving)} serving replicas"


def _reasons(stopping: Mapping[str, str]) -> str:
    by_reason: dict[str, list[str]] = {}
    for name, reason in sorted(stopping.items()):
        by_reason.setdefault(reason, []).append(name)
    return "; ".join(f"{reason} ({', '.join(names)})" for reason, names in by_reason.items())
