# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Services of Model gateways and path-based gateways from the perspective of clients, and the Model gateways."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal, NamedTuple

from ..._pydantic import Field
from .. import api, names
from ..api.meta import ObjectMeta
from ..api.model_endpoint import ModelEndpointSpec
from ..compose.endpoint import endpoint_labels
from ..compose.label_index import LabelIndex
from ..compose.model_gateway.needs import uncounted
from ..compose.model_gateway.size import MESSAGE_BYTES, ConfigurationSize
from ..compose.replica import shared_labels
from ..compose.service import MatchedEndpoint, Resolution
from ..observation import NOT_THIS_RUN
from ..planning import Plan
from ..planning.leaving_gateways import LeavingGateway
from ..planning.model_traffic import RoutedModel
from ..planning.statuses import model_gateway_status, refused_gateways
from ..planning.traffic import RoutedService
from ..status.conditions import READY
from ..text import count, some
from .text_table import Row

_MOST_SERVICES = 12
GATEWAY_TITLES = ("GATEWAY", "CLUSTER", "STATE", "MODELS", "ADDRESS")
GatewayState = Literal["Ready", "NotReady", "Refused", "Unknown", "Declared", "Leaving"]
Key = tuple[str, str]


class ServingGateway(api.Model):
    """A gateway in mode Model that serves a ModelService."""

    name: str = Field(description="The InferenceGateway.")
    url: str = Field(description="Its base URL for OpenAI's API; empty while it has no address.")


class UnusedEndpoint(api.Model):
    """A ModelEndpoint to which gateways in mode Model send no requests."""

    name: str = Field(description="Its name.")
    reason: str = Field(description="Why it gets none.")


class UncountedRequests(api.Model):
    """Requests to services with budgets while nothing can be counted: the rate limit service or Valkey does not answer.
    Once Valkey has restarted, counters begin at zero."""

    action: Literal["Refuse", "Allow"] = Field(
        description="`Refuse`: they get 500. `Allow`: they pass, and are not counted."
    )
    services: list[str] = Field(description="The ModelServices with budgets there.")
    overruled: list[str] | None = Field(
        default=None,
        description="Those whose own budgets say `Allow`: a gateway has one setting, and another budget says `Refuse`; "
        "absent for none.",
    )


class GatewayConfiguration(api.Model):
    """Estimated size of the configuration of a gateway, which has two copies of all keys for each service."""

    keys: int = Field(description="Keys of its callers.")
    services: int = Field(description="ModelServices that it selects.")
    bytes: int = Field(description="How large it is about.")
    limit: int = Field(description="How large it can be: beyond that no change reaches the gateway.")


class PlannedGateway(api.Model):
    """An InferenceGateway in mode Model."""

    name: str = Field(description="Its name.")
    cluster: str = Field(description="The cluster that runs it.")
    address: str = Field(description="Its address; empty while it is not known.")
    models: int = Field(description="Models that it routes.")
    services: int = Field(description="ModelServices that it selects.")
    message: str = Field(
        description="Why it is not made, or that it has left the manifests and how long it stays; empty otherwise."
    )
    configuration: GatewayConfiguration | None = Field(
        default=None, description="How large its configuration is; absent where the keys of its callers are not known."
    )
    when_unavailable: UncountedRequests | None = Field(
        default=None, description="Requests while budgets cannot be counted; absent without budgets."
    )


class GatewayStatus(PlannedGateway):
    """Status of an InferenceGateway in mode Model."""

    state: GatewayState = Field(
        description="`Ready`, `NotReady`; `Refused`: it is not made; `Unknown`: its cluster did not answer, or is not "
        "in this run; `Declared`: its cluster is not read, and assumed to be as its manifest says; `Leaving`: it has "
        "left the manifests, and stays until others answer for its services."
    )
    message: str = Field(description="What is wrong; empty if nothing is.")


class MissingReplicas(NamedTuple):
    """Selected replicas of a service without an endpoint."""

    pending: Mapping[str, int] = MappingProxyType({})
    """Number of unschedulable replicas by deployment."""
    starting: tuple[str, ...] = ()
    """Replicas that do not serve yet."""
    leaving: int = 0
    """Number of uncounted endpoints, because their replicas are removed when others serve."""
    priority: int | None = None
    """Most preferred priority of the missing endpoints, None without missing endpoints."""

    @property
    def total(self) -> int:
        """Return the number of endpoints that the service lacks."""
        return sum(self.pending.values()) + len(self.starting) - self.leaving

    def __str__(self) -> str:
        """Return the missing replicas as text, or "" if leaving replicas serve instead."""
        if self.total <= 0:
            return ""
        lines = [f"{count(number, 'replica')} of {name} pending" for name, number in sorted(self.pending.items())]
        return "; ".join([*lines, *([f"{some(self.starting)} without an endpoint yet"] if self.starting else [])])


@dataclass(frozen=True)
class ServedService:
    """ModelService from the perspective of clients."""

    routed: RoutedService
    """Service with the endpoints that its gateways use. Endpoints of later priorities have weight 0. Has no path if all
    gateways of the fleet are Model gateways."""
    note: str
    """Note about a service with unusual routing, "" otherwise."""
    is_path: bool = True
    """False if all gateways of the fleet are Model gateways."""
    service: api.ModelService | None = None
    gateways: tuple[ServingGateway, ...] = ()
    """Model gateways that serve the service."""
    clusters: tuple[str, ...] = ()
    """Clusters of these gateways."""
    unused: Mapping[str, str] = field(default_factory=dict)
    """Endpoints that get no requests from these gateways, with the reasons."""
    model_routes: tuple[str, ...] = ()
    is_reached: bool = True
    """True if the service has any gateway."""
    missing: MissingReplicas = field(default_factory=MissingReplicas)
    """Selected replicas without an endpoint."""

    @property
    def model(self) -> str:
        """Return the name of the model in requests, or "" for a service without Model gateways."""
        return f"{self.routed.namespace}/{self.routed.name}" if self.gateways or not self.is_path else ""

    @property
    def desired(self) -> int:
        """Return the number of endpoints of the service if all its replicas had an endpoint."""
        return len(self.routed.resolution.members) + self.missing.total

    @property
    def address(self) -> str:
        """Cell of a table with the address for clients. Only the path if a path-based gateway has no address."""
        if not self.is_reached:
            return "no gateway"
        return self.routed.address or self.routed.path if self.is_path else f"model {self.model}"

    @property
    def place(self) -> str:
        """Return a line about the Model gateways of the service, or "" without them."""
        return serving_place(self.model, self.gateways, is_path=self.is_path)

    def instead_of(self, silent: Container[str]) -> list[MatchedEndpoint]:
        """Return the endpoints that replace the used endpoints if their clusters do not respond.

        A Model gateway uses the next priority automatically."""
        if self.is_path or self.service is None:
            return []
        priorities = [entry.priority for entry in self.service.spec.endpoints]
        able = [
            member
            for member in self.routed.resolution.members
            if member.usable and place_of_endpoint(member) not in silent
        ]
        lowest = min((priorities[member.entry] for member in able), default=0)
        return [member for member in able if priorities[member.entry] == lowest]


def serving_place(model: str, serving: Sequence[ServingGateway], *, is_path: bool) -> str:
    """Return the addresses of the Model gateways that serve a model, or "" without such gateways.

    `is_path`: True if the model also has a URL."""
    addresses = some((f"{gateway.name} ({gateway.url or 'no address yet'})" for gateway in serving), 3)
    return f"{f'model {model} ' if is_path else ''}at {addresses}" if addresses else ""


def place_of_endpoint(member: MatchedEndpoint) -> str:
    """Return the cluster of an endpoint, "" for one outside of the fleet."""
    return member.endpoint.labels.get(names.CLUSTER_LABEL, "")


def served_services(plan: Plan) -> list[ServedService]:
    """Return the services of a plan, in the order of its traffic."""
    missing = _Missing(plan)
    return [replace(served, missing=missing.of(served)) for served in _services(plan)]


class _Missing:
    """Replicas of a plan, including pending replicas, indexed for service selectors."""

    def __init__(self, plan: Plan) -> None:
        fleet = plan.context.fleet
        placed = [
            _endpoint(
                replica.namespace,
                replica.name,
                endpoint_labels(replica, fleet.clusters.get(replica.spec.cluster_name)),
            )
            for replica in (*plan.replicas, *plan.manual)
        ]
        self._placed = LabelIndex(placed)
        self._leaving = {(replica.namespace, replica.name) for replica in plan.leaving}
        self._numbers = {(entry.namespace, entry.deployment): entry.count for entry in plan.schedule.pending}
        pending = (fleet.deployments[key] for key in self._numbers if key in fleet.deployments)
        # A pending replica has no cluster yet, so a selector with cluster labels cannot match it.
        self._pending = LabelIndex(
            _endpoint(deployment.namespace, deployment.name, shared_labels(deployment)) for deployment in pending
        )

    def of(self, served: ServedService) -> MissingReplicas:
        """Return the replicas that a service selects and that have no endpoint."""
        service, members = served.service, served.routed.resolution.members
        if service is None:
            return MissingReplicas()
        endpoints = {member.endpoint.name for member in members}
        pending, placed = _priorities(service, self._pending), _priorities(service, self._placed)
        starting = {name: priority for name, priority in placed.items() if name not in endpoints}
        return MissingReplicas(
            {name: self._numbers[service.namespace, name] for name in sorted(pending)},
            tuple(sorted(starting)),
            sum((service.namespace, name) in self._leaving for name in endpoints),
            min((*pending.values(), *starting.values()), default=None),
        )


def _endpoint(namespace: str, name: str, labels: dict[str, str]) -> api.ModelEndpoint:
    metadata = api.construct(ObjectMeta, name=name, namespace=namespace, labels=labels)
    return api.construct(
        api.ModelEndpoint,
        api_version=api.ModelEndpoint.group_version(),
        kind=api.ModelEndpoint.KIND,
        metadata=metadata,
        spec=api.construct(ModelEndpointSpec, url=""),
    )


def _priorities(service: api.ModelService, index: LabelIndex[api.ModelEndpoint]) -> dict[str, int]:
    """Return the most preferred priority of each endpoint that a service selects, by name."""
    priorities: dict[str, int] = {}
    for entry in service.spec.endpoints:
        for endpoint in index.matching(service.namespace, entry.selector.match_labels):
            priorities[endpoint.name] = min(entry.priority, priorities.get(endpoint.name, entry.priority))
    return priorities


def _services(plan: Plan) -> list[ServedService]:
    fleet = plan.context.fleet
    if not fleet.has_model_gateways:
        # A gateway that is not declared here might still have an observed address.
        is_reached = fleet.has_path_gateway or bool(plan.traffic.address)
        return [
            replace(
                _by_path(routed) if is_reached or routed.held else _unreached(routed),
                service=fleet.services.get((routed.namespace, routed.name)),
            )
            for routed in plan.traffic.services
        ]
    routes: dict[Key, list[RoutedModel]] = {}
    for route in plan.models.routes:
        routes.setdefault((route.route.service.namespace, route.route.service.name), []).append(route)
    urls = {gateway.name: _url(plan, gateway) for gateway in fleet.model_gateways}
    return [
        _served(plan, routed, routes.get((routed.namespace, routed.name), ()), urls) for routed in plan.traffic.services
    ]


def _by_path(routed: RoutedService) -> ServedService:
    return ServedService(routed, _path_note(routed))


def _unreached(routed: RoutedService) -> ServedService:
    """Return a service in a fleet without gateways."""
    note = "clients cannot reach it: declare an InferenceGateway"
    return ServedService(replace(routed, resolution=_of_none(routed.resolution)), note, is_reached=False)


def _url(plan: Plan, gateway: api.InferenceGateway) -> str:
    endpoints = model_gateway_status(plan, gateway).fields.endpoints
    return (endpoints and endpoints.open_ai) or ""


def _served(plan: Plan, routed: RoutedService, routes: Sequence[RoutedModel], urls: Mapping[str, str]) -> ServedService:
    """Return a service of a fleet with Model gateways."""
    gateways = [route.route.gateway for route in routes]
    service = plan.context.fleet.services.get((routed.namespace, routed.name))
    is_path = plan.context.fleet.serves_paths
    note = _path_note(routed)
    is_held = not routes and routed.held
    if not is_path:
        resolution = _in_use(routes[0]) if routes else _of_none(routed.resolution)
        routed = replace(routed, resolution=resolution, path="", address="", held=is_held)
        if service is not None and not is_held:
            note = _model_note(plan, service, resolution, bool(routes))
    return ServedService(
        routed,
        note,
        is_path,
        service,
        tuple(api.construct(ServingGateway, name=gateway.name, url=urls[gateway.name]) for gateway in gateways),
        tuple(gateway.spec.cluster_name or "" for gateway in gateways),
        routes[0].problems if routes else {},
        tuple(route.route.name for route in routes),
        is_reached=is_path or bool(routes) or is_held,
    )


def _in_use(routed: RoutedModel) -> Resolution:
    """Return the endpoints of a service, with weights for its first used priority, equal on all its Model gateways."""
    resolution = routed.route.resolution
    entries = routed.route.service.spec.endpoints
    return Resolution(
        tuple(
            member if entries[member.entry].priority == resolution.tier else replace(member, weight=0)
            for member in resolution.members
        ),
        resolution.tier,
    )


def _of_none(resolution: Resolution) -> Resolution:
    """Return the endpoints of a service that no gateway serves."""
    return Resolution(tuple(replace(member, weight=0, usable=False) for member in resolution.members), None)


def _path_note(routed: RoutedService) -> str:
    if routed.held:
        return "unchanged: a manifest has errors"
    if routed.resolution.tier is not None:
        return ""
    reason = _no_endpoint(routed.resolution)
    return f"answers 503: {reason}" if routed.objects else f"withheld until an endpoint is usable: {reason}"


def _no_endpoint(resolution: Resolution) -> str:
    return "none of its endpoints is usable" if resolution.members else "it has no endpoint"


def _model_note(plan: Plan, service: api.ModelService, resolution: Resolution, is_served: bool) -> str:
    if not is_served:
        return f"no InferenceGateway serves it: {refused_gateways(plan, service) or 'none selects its labels'}"
    return "" if resolution.tier is not None else f"no route until an endpoint is usable: {_no_endpoint(resolution)}"


def silence(plan: Plan, cluster: str) -> str:
    """Return a message about an unobserved cluster, or "" if the observed state is known or assumed."""
    observed = plan.context.observed_cluster(cluster)
    if observed is None or not observed.unreachable:
        return ""
    return f"cluster {cluster} {f'is {NOT_THIS_RUN}' if observed.unreachable == NOT_THIS_RUN else 'did not answer'}"


def gateways(plan: Plan) -> list[GatewayStatus]:
    """Return the Model gateways by name, and then the gateways that were removed from the manifests and still serve."""
    selected: dict[str, list[RoutedModel]] = {}
    for route in plan.models.routes:
        selected.setdefault(route.route.gateway.name, []).append(route)
    composed = [
        _gateway(plan, gateway, selected.get(gateway.name, ())) for gateway in plan.context.fleet.model_gateways
    ]
    return [*composed, *map(_leaving, plan.models.leaving)]


def _leaving(gateway: LeavingGateway) -> GatewayStatus:
    return api.construct(
        GatewayStatus,
        name=gateway.name,
        cluster=gateway.cluster,
        address=gateway.address,
        models=gateway.models,
        services=gateway.models,
        message=gateway.message,
        state="Leaving",
        configuration=None,
        when_unavailable=None,
    )


def _gateway(plan: Plan, gateway: api.InferenceGateway, routes: Sequence[RoutedModel]) -> GatewayStatus:
    gateway_status = model_gateway_status(plan, gateway)
    state, message = _gateway_state(plan, gateway)
    return api.construct(
        GatewayStatus,
        name=gateway.name,
        cluster=gateway.spec.cluster_name or "",
        address=gateway_status.fields.address or "",
        models=sum(bool(route.objects) for route in routes),
        services=len(routes),
        message=message,
        state=state,
        configuration=_configuration(plan.models.sizes.get(gateway.name)),
        when_unavailable=None if state == "Refused" else _uncounted(plan, gateway),
    )


def _configuration(size: ConfigurationSize | None) -> GatewayConfiguration | None:
    if size is None:
        return None
    return api.construct(
        GatewayConfiguration, keys=size.keys, services=size.services, bytes=size.bytes, limit=MESSAGE_BYTES
    )


def _uncounted(plan: Plan, gateway: api.InferenceGateway) -> UncountedRequests | None:
    requests = uncounted(gateway, plan.context.fleet.services.values(), plan.context.selection)
    if requests is None:
        return None
    return api.construct(
        UncountedRequests,
        action="Refuse" if requests.is_refused else "Allow",
        services=list(requests.services),
        overruled=list(requests.overruled) or None,
    )


def _gateway_state(plan: Plan, gateway: api.InferenceGateway) -> tuple[GatewayState, str]:
    cluster = gateway.spec.cluster_name or ""
    if refused := plan.models.refused.get(gateway.name):
        return "Refused", refused
    ready = model_gateway_status(plan, gateway).condition(READY)
    if silent := silence(plan, cluster):
        earlier_notes = {"True": "; it was ready before", "False": "; it was not ready before"}
        return "Unknown", silent + earlier_notes.get(ready.status if ready else "", "")
    if plan.context.declared(cluster):
        return "Declared", ""
    if ready is None or ready.status == "Unknown":
        return "Unknown", ready.message if ready else ""
    return ("Ready", "") if ready.status == "True" else ("NotReady", ready.message)


def hosted_gateways(plan: Plan) -> dict[str, list[str]]:
    """Return the Model gateways of each cluster, including leaving gateways."""
    names_by_cluster: dict[str, list[str]] = {}
    for gateway in plan.context.fleet.model_gateways:
        if gateway.name not in plan.models.refused:
            names_by_cluster.setdefault(gateway.spec.cluster_name or "", []).append(gateway.name)
    for leaving in plan.models.leaving:
        names_by_cluster.setdefault(leaving.cluster, []).append(leaving.name)
    return {cluster: sorted(names_) for cluster, names_ in names_by_cluster.items()}


def planned_gateways(plan: Plan) -> list[PlannedGateway]:
    """Return the Model gateways without their observed state."""
    return [
        api.construct(
            PlannedGateway,
            name=gateway.name,
            cluster=gateway.cluster,
            address=gateway.address,
            models=gateway.models,
            services=gateway.services,
            message=gateway.message if gateway.state in ("Refused", "Leaving") else "",
            configuration=gateway.configuration,
            when_unavailable=gateway.when_unavailable,
        )
        for gateway in gateways(plan)
    ]


def gateway_rows(statuses: Sequence[GatewayStatus]) -> list[Row]:
    """Return the rows of a table of gateways."""
    return [
        (
            (
                gateway.name,
                gateway.cluster,
                gateway.state,
                f"{gateway.models} of {gateway.services}",
                gateway.address or "-",
            ),
            [gateway.message] if gateway.message else [],
        )
        for gateway in statuses
    ]


def uncounted_lines(planned: Sequence[PlannedGateway]) -> list[str]:
    """Return the response to requests while budgets cannot be counted: one line for each response, with its services.
    The line names the gateways of a service if its gateways respond differently."""
    answering = [(gateway.name, gateway.when_unavailable) for gateway in planned if gateway.when_unavailable]
    if not answering:
        return []
    refusing, allowing, overruled = dict[str, list[str]](), dict[str, list[str]](), set[str]()
    for gateway, unavailable in answering:
        answers = refusing if unavailable.action == "Refuse" else allowing
        for service in unavailable.services:
            answers.setdefault(service, []).append(gateway)
        overruled.update(unavailable.overruled or ())
    services_by_response = {
        "refused with 500 (whenUnavailable: Refuse)": _at(refusing, allowing),
        "of these, whenUnavailable is Allow, and a budget of others at the gateway decides": sorted(overruled),
        "answered, and not counted (whenUnavailable: Allow)": _at(allowing, refusing),
    }
    lines = [f"{text}: {some(services, _MOST_SERVICES)}" for text, services in services_by_response.items() if services]
    return [*lines, "counters begin at zero when Valkey restarts, unless a volume keeps them"]


def _at(gateways: Mapping[str, Sequence[str]], other_services: Container[str]) -> list[str]:
    """Return services, with their gateways if other gateways respond differently."""
    return [
        f"{service} at {some(gateway_names)}" if service in other_services else service
        for service, gateway_names in sorted(gateways.items())
    ]


def silent_gateways(served: ServedService, silent: Container[str]) -> dict[str, str]:
    """Return the Model gateways of a service on these clusters, with their clusters."""
    pairs = zip(served.gateways, served.clusters, strict=True)
    return {gateway.name: cluster for gateway, cluster in pairs if cluster in silent}
