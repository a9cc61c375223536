# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Unusable endpoints of services, grouped by reason, with a hint for each reason."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ..compose.service import MatchedEndpoint
from ..planning import Plan
from ..planning.statuses import refused_gateways
from ..planning.traffic import missing_credential, path_problem
from ..text import count, cut, some
from .serving import ServedService, place_of_endpoint, served_services, silence

_COPY = (
    "copy hostname, caCertificate and address of its cluster gateway into `status.gateway` of InferenceCluster "
    "`{cluster}`. Its Gateway `cluster-gateway` comes with `status.clientCACertificate` of the InferenceGateway."
)


@dataclass(frozen=True)
class UnusableEndpoints:
    """Endpoints that receive no requests for the same reason."""

    reason: str
    hint: str
    of_models: bool
    """Only Model gateways send no requests. Path-based gateways send requests."""
    is_step: bool = False
    """Not a problem. The hint is a setup step of a GitOps cluster."""
    services: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    """Endpoint names by namespace and name of the service."""


def unusable_endpoints(plan: Plan, services: Iterable[ServedService]) -> list[UnusableEndpoints]:
    """Return the endpoints of services that are not usable, in the order of the services."""
    groups: dict[tuple[str, bool], UnusableEndpoints] = {}
    for served in services:
        for member, reason, of_models in _unusable(plan, served):
            short_reason, hint = cut(reason), _hint(plan, served, member, reason)
            is_step = bool(hint) and reason == served.unused.get(member.endpoint.name) and _is_declared(plan, member)
            group = groups.setdefault(
                (short_reason, of_models), UnusableEndpoints(short_reason, hint, of_models, is_step)
            )
            key = (served.routed.namespace, served.routed.name)
            group.services.setdefault(key, []).append(member.endpoint.name)
    return list(groups.values())


def _unusable(plan: Plan, served: ServedService) -> Iterator[tuple[MatchedEndpoint, str, bool]]:
    """Yield the endpoints with their reasons, and True if only the Model gateways cannot use the endpoint."""
    for member in served.routed.resolution.members:
        of_models = served.unused.get(member.endpoint.name, "")
        if not member.usable:
            reason = _path_reason(plan, served, member) if served.is_path else of_models or served.note
            yield member, reason, False
        elif of_models:
            yield member, of_models, True


def _path_reason(plan: Plan, served: ServedService, member: MatchedEndpoint) -> str:
    return path_problem(plan.context, member.endpoint) if served.is_reached else served.note


def _is_declared(plan: Plan, member: MatchedEndpoint) -> bool:
    cluster = place_of_endpoint(member)
    return bool(cluster) and plan.context.declared(cluster)


def provider_warnings(plan: Plan) -> list[str]:
    """Return a warning for each service that sends all requests outside the fleet because no fleet endpoint of the same
    or a more preferred priority is usable."""
    return [
        f"ModelService {served.routed.namespace}/{served.routed.name}: {line}"
        for served in served_services(plan)
        if (line := sent_outside(plan, served))
    ]


def sent_outside(plan: Plan, served: ServedService) -> str:
    """Return a message about a service that sends all requests outside the fleet, with the reason, or "" otherwise."""
    service = served.service
    if service is None or not served.is_reached:
        return ""
    reasons = {member.endpoint.name: reason for member, reason, of_models in _unusable(plan, served)}
    members = served.routed.resolution.members
    internal = [member for member in members if place_of_endpoint(member)]
    external = [member for member in members if member.endpoint.name not in reasons and not place_of_endpoint(member)]
    if any(member.endpoint.name not in reasons for member in internal):
        return ""
    priorities = [entry.priority for entry in service.spec.endpoints]
    preferred = [priorities[member.entry] for member in internal]
    # Replicas that do not serve have no endpoint.
    if served.missing.total > 0 and served.missing.priority is not None:
        preferred.append(served.missing.priority)
    if not (preferred and external):
        return ""
    used = min(priorities[member.entry] for member in external)
    if min(preferred) > used:
        return ""
    names = some(member.endpoint.name for member in external if priorities[member.entry] == used)
    why = "; ".join(dict.fromkeys([*(reasons[member.endpoint.name] for member in internal), str(served.missing)]))
    number = len(internal) + max(served.missing.total, 0)
    return (
        f"all requests are sent to {names} outside the fleet because no endpoint of the fleet is usable "
        f"({count(number, 'endpoint')}): {cut(why.removesuffix('; '))}"
    )


def _hint(plan: Plan, served: ServedService, member: MatchedEndpoint, reason: str) -> str:
    """Return a hint for an unusable endpoint, "" if the reason is sufficient."""
    if reason == missing_credential(plan.context, member.endpoint):
        return "Create it on the control cluster; the next run that reads it sends requests."
    if not served.is_path and not served.gateways:
        is_refused = served.service and refused_gateways(plan, served.service)
        return "" if is_refused else "Correct its labels, or `serviceSelector` of an InferenceGateway."
    cluster = place_of_endpoint(member)
    if not cluster:
        return "Correct its ModelEndpoint."
    # The clusters of replicas have a separate ingress gateway for Model gateways.
    return _hint_of_cluster(plan, cluster) if reason == served.unused.get(member.endpoint.name) else ""


def _hint_of_cluster(plan: Plan, cluster: str) -> str:
    copy = _COPY.format(cluster=cluster)
    if plan.context.is_file(cluster):
        return f"Apply the cluster's build directory, and {copy}"
    if plan.context.declared(cluster):
        return f"The next run that observes the cluster adds it. If no run observes the cluster, {copy}"
    if silence(plan, cluster):
        return "The next run that observes the cluster adds it."
    return (
        "Wait until Gateway `cluster-gateway` works there. "
        f"`ansible-playbook modelplane.fleet.check --limit {cluster}` reports what is wrong."
    )
