# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Objects of a ModelService on a Model gateway."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ... import api, names
from ...api.meta import ObjectMeta
from ...api.model_route import ModelRouteSpec
from ...wire import Object
from .. import constants
from ..control import control_labels
from ..service import Resolution
from ..workload_cluster import workload_namespace
from . import backends, parts
from .backends import ClusterGateways, Overflow, Target
from .costs import COST_KEY, ServicePrices
from .gateway import NAME, accepts_tokens, gateway_metadata, listener_names, parent
from .mtls import ClusterGateway

REQUEST_TIMEOUT = "300s"
"""Default timeout of a whole request: the drain timeout of the gateway's pods."""
IDLE_TIMEOUT = "0s"

_COSTS = (
    ("llm_input_token", "InputToken"),
    ("llm_output_token", "OutputToken"),
    ("llm_total_token", "TotalToken"),
)


@dataclass(frozen=True)
class Route:
    """ModelService on a Model gateway.

    resolution: the weights of all priorities.
    names_callers: whether every backend gets the client name, for token budgets per client.
    overflow: overflow route for requests to the first priority. Budgets are counted on this route.
    prices: model prices, if a budget with unit Cost requires them.
    """

    service: api.ModelService
    gateway: api.InferenceGateway
    resolution: Resolution
    cluster_gateways: ClusterGateways
    names_callers: bool = False
    overflow: Overflow | None = None
    prices: ServicePrices | None = None

    @property
    def name(self) -> str:
        """Name of the ModelRoute, and prefix of the names of its backends."""
        return names.joined_name(self.service.name, self.gateway.name)

    @property
    def namespace(self) -> str:
        """Namespace of its objects on the gateway's cluster."""
        return names.workload_namespace(self.service.namespace)

    @property
    def used(self) -> list[tuple[api.ModelEndpoint, int, int]]:
        """Endpoints with weight and priority, sorted by priority. Priorities count from 0 without gaps."""
        specs = self.service.spec.endpoints
        weighted = [member for member in self.resolution.members if member.weight]
        priorities = sorted({specs[member.entry].priority for member in weighted})
        endpoints = [
            (member.endpoint, member.weight, priorities.index(specs[member.entry].priority)) for member in weighted
        ]
        return sorted(endpoints, key=lambda endpoint: endpoint[2])

    @cached_property
    def targets(self) -> Mapping[str, Target]:
        """Targets of the endpoints in use, by the names of their backends."""
        return {
            self.backend_name(endpoint): backends.target(endpoint, self.cluster_gateways) for endpoint, *__ in self.used
        }

    @cached_property
    def first(self) -> Sequence[str]:
        """Names of the backends of the first priority."""
        return [self.backend_name(endpoint) for endpoint, __, priority in self.used if not priority]

    @property
    def knowing_callers(self) -> list[api.ModelEndpoint]:
        """Endpoints outside the fleet that get client names."""
        outside = [endpoint for endpoint, *__ in self.used if backends.key_of(endpoint) not in self.cluster_gateways]
        return [endpoint for endpoint in outside if self.names_callers_to(self.backend_name(endpoint))]

    def names_callers_to(self, backend: str) -> bool:
        """Return True if a backend gets client names, including a backend outside the fleet."""
        if not self.overflow or backend not in self.first:
            return self.names_callers
        return self.overflow.names_callers or (self.names_callers and not self.overflow.is_ready)

    @property
    def clusters(self) -> list[ClusterGateway]:
        """Cluster gateways to the clusters of the fleet that it sends requests to, by name."""
        keys = {backends.key_of(endpoint) for endpoint, *__ in self.used}
        cluster_gateways = {self.cluster_gateways[key] for key in keys & self.cluster_gateways.keys()}
        if self.overflow:
            cluster_gateways.add(self.overflow.cluster_gateway)
        return sorted(cluster_gateways, key=lambda cluster_gateway: cluster_gateway.cluster)

    @property
    def priority_count(self) -> int:
        """Number of priorities in use."""
        return len({priority for *__, priority in self.used})

    @property
    def labels(self) -> dict[str, str]:
        """Labels of all objects of this route."""
        gateway = {names.GATEWAY_LABEL: names.label_value(self.gateway.name)}
        return {**control_labels(self.service, names.SERVICE_LABEL), **gateway}

    def backend_name(self, endpoint: api.ModelEndpoint) -> str:
        """Return the name of the backend of an endpoint. Each route has its own backends."""
        return names.joined_name(self.name, endpoint.name)

    def metadata(self, name: str) -> dict[str, Any]:
        """Return the metadata of an object of this route."""
        return {"name": name, "namespace": self.namespace, "labels": self.labels}


def model_route(route: Route) -> api.ModelRoute:
    """Return the ModelRoute of a service on a gateway."""
    spec = route.service.spec
    return api.construct(
        api.ModelRoute,
        api_version=api.ModelRoute.group_version(),
        kind=api.ModelRoute.KIND,
        metadata=api.construct(ObjectMeta, name=route.name, namespace=route.service.namespace, labels=route.labels),
        spec=api.construct(
            ModelRouteSpec,
            gateway_name=route.gateway.name,
            service_name=route.service.name,
            endpoints=spec.endpoints,
            timeouts=spec.timeouts,
        ),
    )


def route_objects(route: Route) -> tuple[Object, ...]:
    """Return the objects of a service on a gateway.

    A service without a usable endpoint has no objects, and the gateway responds with 404, as for any unknown model.
    """
    if not route.used:
        return ()
    return (
        workload_namespace(route.service.namespace),
        *_trust(route),
        *_backends(route),
        host_rewrite(route, route.service.name),
        _ai_route(route),
    )


def _trust(route: Route) -> Iterable[Object]:
    """Yield the certificates for TLS with clusters. The services of a namespace share them."""
    clusters = route.clusters
    if not clusters:
        return
    # A Gateway or its EnvoyProxy could have one certificate for all backends instead. It would also be presented to
    # providers that request one, because a backend can replace but not disable it. While it cannot be read, no backend
    # with TLS would work.
    yield parts.certificate(
        _shared_metadata(route, backends.CLIENT_CERTIFICATE),
        "ClusterIssuer",
        constants.MODEL_GATEWAY_CA,
        commonName=f"{NAME}-{route.gateway.name}"[:64],
        usages=["client auth", "digital signature", "key encipherment"],
    )
    for cluster_gateway in clusters:
        metadata = _shared_metadata(route, backends.cluster_ca_name(cluster_gateway.cluster))
        yield parts.config_map(metadata, cluster_gateway.certificate)


def _shared_metadata(route: Route, name: str) -> dict[str, Any]:
    return gateway_metadata(route.gateway, name, route.namespace)


def _backends(route: Route) -> Iterable[Object]:
    for name, target in route.targets.items():
        names_callers = route.names_callers_to(name)
        tokens = accepts_tokens(route.gateway)
        withheld: list[str] = []
        if not target.cluster:
            withheld += route.overflow.withheld if route.overflow and name in route.first else []
            withheld += [constants.SUBJECT_HEADER] if tokens and not names_callers else []
        # Envoy removes the API keys that it verifies, but no tokens.
        if tokens or not (route.gateway.spec.auth or target.cluster):
            withheld += backends.unasked_keys(target)
        metadata = route.metadata(name)
        yield from backends.backend_objects(metadata, target, names_callers=names_callers, withheld=withheld)


def _ai_route(route: Route) -> Object:
    limits = route.service.spec.timeouts
    rule = {
        **rule_of(route, {constants.MODEL_HEADER: route.service.model_name}, _references(route)),
        "streamIdleTimeout": (limits and limits.idle) or IDLE_TIMEOUT,
        "modelsOwnedBy": route.service.namespace,
    }
    return ai_route(route, route.service.name, map(parent, listener_names(route.gateway)), [rule])


def rule_of(route: Route, headers: Mapping[str, str], references: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the rule that routes requests with these headers to these backends."""
    limits = route.service.spec.timeouts
    matches = [{"type": "Exact", "name": name, "value": value} for name, value in headers.items()]
    return {
        "matches": [{"headers": matches}],
        "backendRefs": references,
        # The default of the AI gateway is 60 seconds.
        "timeouts": {"request": (limits and limits.request) or REQUEST_TIMEOUT},
        "streamIdleTimeout": IDLE_TIMEOUT,
    }


def ai_route(
    route: Route, name: str, listeners: Iterable[Mapping[str, str]], rules: Sequence[Mapping[str, Any]]
) -> Object:
    """Return the AIGatewayRoute with these rules on listeners."""
    return {
        "apiVersion": backends.AI_API,
        "kind": "AIGatewayRoute",
        "metadata": route.metadata(name),
        "spec": {
            "parentRefs": [{**listener, "namespace": constants.SYSTEM_NAMESPACE} for listener in listeners],
            "rules": list(rules),
            # Naming the costs also makes the gateway ask backends for the tokens of streams.
            "llmRequestCosts": [
                *({"metadataKey": key, "type": kind} for key, kind in _COSTS),
                *_price(route, [backend["name"] for rule in rules for backend in rule["backendRefs"]]),
            ],
        },
    }


def _price(route: Route, backend_names: Collection[str]) -> Iterable[dict[str, str]]:
    """Yield the cost of a request at the prices of a service, for each backend."""
    if route.prices:
        specs, members = route.service.spec.endpoints, route.resolution.members
        entries = {route.backend_name(member.endpoint): specs[member.entry].name or "" for member in members}
        entries |= {backends.detour_name(name): entry for name, entry in entries.items()}
        expression = route.prices.expression({name: entries.get(name, "") for name in backend_names})
        yield {"metadataKey": COST_KEY, "type": "CEL", "cel": expression}


def host_rewrite(route: Route, name: str) -> Object:
    """Return the HTTPRouteFilter that sends requests of an AIGatewayRoute with this name to the host of their backend.

    Otherwise the AI gateway creates a filter that makes Envoy send the client's host to backends in x-forwarded-host.
    On a new connection Envoy adds this header after all filters that could remove it."""
    rewrite = {"hostname": {"type": "Backend"}, "appendXForwardedHost": False}
    return parts.envoy_object("HTTPRouteFilter", route.metadata(f"ai-eg-host-rewrite-{name}"), {"urlRewrite": rewrite})


def _references(route: Route) -> Sequence[Mapping[str, Any]]:
    references = []
    for endpoint, weight, priority in route.used:
        name = route.backend_name(endpoint)
        is_behind = route.overflow and route.overflow.is_ready and not priority
        backend = backends.detour_name(name) if is_behind else name
        references.append(reference(backend, weight, priority, route.targets[name].model))
    return references


def reference(name: str, weight: int, priority: int, model: str) -> dict[str, Any]:
    """Return the reference of a rule to a backend. `model`: the backend's name of the model, "" for the same name."""
    override = {"modelNameOverride": model} if model else {}
    return {"name": name, "weight": weight, "priority": priority, **override}
