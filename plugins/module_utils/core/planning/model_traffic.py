# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Traffic through Model gateways: their objects on the clusters of the fleet, and the services that they serve."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from .. import api, names
from ..api.inference_cluster import GatewayStatus
from ..compose import constants
from ..compose.cache import SecretCopy
from ..compose.control import control_labels
from ..compose.label_index import LabelIndex
from ..compose.model_gateway import backends, mtls, overflow
from ..compose.model_gateway.backends import ClusterGateways
from ..compose.model_gateway.budgets import (
    AT_GATEWAY,
    DIVIDED,
    FEWER_RULES,
    UNDIVIDED,
    budget_objects,
    counts_tokens_of_callers,
    divided_budgets,
    too_many_rules,
)
from ..compose.model_gateway.callers import KeySecret, NamespaceRights, Rights, authorizations, rights, selected_callers
from ..compose.model_gateway.gateway import (
    CALLERS_POLICY,
    CALLERS_SECRET,
    certificate_secrets,
    composed_gateways,
    gateway_namespace,
    gateway_objects,
)
from ..compose.model_gateway.mtls import ClusterGateway
from ..compose.model_gateway.room import NO_ROOM, without_room
from ..compose.model_gateway.routes import Route, model_route, route_objects
from ..compose.model_gateway.size import ConfigurationSize, configuration_size
from ..compose.model_gateway.slots import settled
from ..compose.service import resolve
from ..problem import Ref
from ..status.route_policies import contested, foreign, foreign_message
from ..text import count, some
from ..wire import Object, condition_entry, fields, identity, text
from .callers import Keys, key_warnings, unread_groups
from .clusters import Platform
from .context import Context
from .fleet import written
from .leaving_gateways import ROUTE, LeavingGateway, ending_routes, known_certificate, leaving_gateways
from .model_prices import service_prices, unpriced_entries
from .traffic import missing_credential


@dataclass(frozen=True)
class RoutedModel:
    """ModelService on a Model gateway.

    `problems`: the reasons for matched endpoints that receive no requests at the gateway, by endpoint name.
    """

    route: Route
    problems: Mapping[str, str]
    objects: tuple[Object, ...]

    @property
    def ai_routes(self) -> list[Object]:
        """AIGatewayRoutes among its objects."""
        return [value for value in self.objects if identity(value)[1] == ROUTE]


@dataclass(frozen=True)
class ModelTraffic:
    """Objects of Model gateways, and the models that the gateways serve."""

    routes: tuple[RoutedModel, ...] = ()
    objects: Mapping[str, Sequence[Object]] = field(default_factory=dict)
    """Objects by inference cluster."""
    control: tuple[Object, ...] = ()
    """ModelRoutes."""
    copies: tuple[tuple[str, SecretCopy], ...] = ()
    """Values of Secrets that gateways need on their clusters."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Gateways that are not composed, each with the reason."""
    leaving: tuple[LeavingGateway, ...] = ()
    """Gateways that left the manifests but remain on their clusters."""
    warnings: tuple[str, ...] = ()
    hosts: frozenset[str] = frozenset()
    """Clusters with a Model gateway."""
    cluster_gateways: frozenset[str] = frozenset()
    """Clusters with an ingress gateway that listens for Model gateways."""
    sizes: Mapping[str, ConfigurationSize] = field(default_factory=dict)
    """Configuration sizes of the gateways with known API keys."""


def model_traffic(
    context: Context,
    platforms: Mapping[str, Platform],
    replicas: Iterable[api.ModelReplica],
    endpoints: Sequence[api.ModelEndpoint],
) -> ModelTraffic:
    """Return the traffic through the Model gateways.

    `endpoints`: the composed endpoints of the replicas.
    """
    refused, serving = _gateways(context, platforms)
    if not context.fleet.model_gateways and not _kept(context):
        return ModelTraffic(warnings=tuple(ending_routes(context, {}, ())))
    clusters = {(replica.namespace, replica.name): replica.spec.cluster_name for replica in replicas}
    cluster_gateways = {key: _cluster_gateway(context, name, platforms.get(name)) for key, name in clusters.items()}
    index = LabelIndex([*endpoints, *context.fleet.external.values()])
    served, overflowing, refusals = _served(context, platforms, serving, index, cluster_gateways)
    leaving = tuple(leaving_gateways(context, serving, {name: _routes(routes) for name, routes in served.items()}))
    hosts = frozenset([*serving, *(gateway.cluster for gateway in leaving)])
    # A gateway of the manifests on the same cluster has the CA of the leaving gateway, and replaces its objects.
    kept_objects = _kept(context, [gateway for gateway in leaving if gateway.cluster not in serving])
    clients = _clients(context, serving.values(), leaving)
    overflowing += [cluster for cluster, value in kept_objects if overflow.is_behind_cluster_gateway(value)]
    cluster_gateway_objects = _cluster_gateways(context, platforms, clients, hosts, clusters.values(), overflowing)
    for cluster, gateway in serving.items():
        if any(map(_listens, cluster_gateway_objects.get(cluster, ()))):
            cluster_gateway_objects[cluster] = [
                *cluster_gateway_objects[cluster],
                *overflow.cluster_gateway_answers(gateway),
            ]
    keys = {gateway.name: _key_secrets(context, gateway) for gateway in serving.values()}
    rights = {
        cluster: dict(_rights(context, gateway, served[cluster], keys[gateway.name]))
        for cluster, gateway in serving.items()
    }
    objects: dict[str, list[Object]] = {}
    for cluster, value in kept_objects:
        objects.setdefault(cluster, [gateway_namespace()]).append(value)
    for cluster, gateway in serving.items():
        objects.setdefault(cluster, []).extend(_gateway_objects(gateway, served[cluster], rights[cluster]))
    for cluster, values in cluster_gateway_objects.items():
        objects.setdefault(cluster, []).extend(values)
    sizes = dict(_sizes(_readable_keys(serving, keys), served))
    routed = tuple(route for routes in served.values() for route in routes)
    return ModelTraffic(
        routes=routed,
        objects=objects,
        control=tuple(written(model_route(route.route)) for route in routed),
        copies=tuple((name, copy) for name, gateway in serving.items() for copy in _copies(gateway, served[name])),
        refused=refused,
        leaving=leaving,
        warnings=(
            *refusals,
            *_service_warnings(context, serving, served, rights, keys),
            *(f"InferenceGateway {name}: {size.message}" for name, size in sizes.items() if size.is_near_limit),
            *(gateway.warning for gateway in leaving),
            *ending_routes(context, serving, leaving),
        ),
        hosts=hosts,
        cluster_gateways=frozenset(
            name for name, values in cluster_gateway_objects.items() if any(map(_listens, values))
        ),
        sizes=sizes,
    )


def _served(
    context: Context,
    platforms: Mapping[str, Platform],
    serving: Mapping[str, api.InferenceGateway],
    index: LabelIndex[api.ModelEndpoint],
    cluster_gateways: Mapping[tuple[str, str], ClusterGateway],
) -> tuple[dict[str, list[RoutedModel]], list[str], list[str]]:
    """Return the services of the gateways by cluster, the clusters with overflow routes, and warnings about budgets
    that cannot overflow."""
    served: dict[str, list[RoutedModel]] = {}
    overflowing: list[str] = []
    refusals: list[str] = []
    for cluster, gateway in serving.items():
        routes = [
            _routed(context, service, gateway, index, cluster_gateways) for service in _services(context, gateway)
        ]
        own_gateway = _cluster_gateway(context, cluster, platforms[cluster])
        routes, refused_budgets, has_overflow = _with_overflow(context, routes, own_gateway)
        if context.declared(cluster):
            routes = [_with_slots(context, cluster, route) for route in routes]
        served[cluster] = routes
        refusals += refused_budgets
        overflowing += [cluster] if has_overflow else []
    return served, overflowing, refusals


def _readable_keys(
    serving: Mapping[str, api.InferenceGateway], keys: Mapping[str, list[KeySecret] | None]
) -> list[tuple[api.InferenceGateway, list[KeySecret]]]:
    """Return the gateways with observed API key Secrets, and these Secrets."""
    return [(gateway, secrets) for gateway in serving.values() if (secrets := keys[gateway.name]) is not None]


def _service_warnings(
    context: Context,
    serving: Mapping[str, api.InferenceGateway],
    served: Mapping[str, Sequence[RoutedModel]],
    rights: Mapping[str, Mapping[str, NamespaceRights]],
    keys: Mapping[str, list[KeySecret] | None],
) -> Iterator[str]:
    """Yield the warnings about the services, policies and API keys of the gateways."""
    routed = [route for routes in served.values() for route in routes]
    yield from _without_room(routed)
    yield from _foreign_policies(context, served)
    yield from _named_callers(routed)
    yield from unpriced_entries(context)
    yield from _opened(context, served)
    yield from _divided_budgets(rights, served)
    yield from _too_many_rules(rights, served)
    yield from key_warnings(context, _readable_keys(serving, keys))
    unread = [gateway for gateway in serving.values() if gateway.spec.auth and keys[gateway.name] is None]
    yield from unread_groups(_unread(context, unread))


def _without_room(routed: Iterable[RoutedModel]) -> Iterator[str]:
    for model in routed:
        excess = list(model.problems.values()).count(NO_ROOM)
        if excess:
            yield (
                f"{model.route.service.ref}: no requests of InferenceGateway {model.route.gateway.name} go to "
                f"{count(excess, 'usable endpoint')}: {NO_ROOM}. Divide them over several ModelServices, or have fewer "
                "replicas with more devices each"
            )


def _gateway_objects(
    gateway: api.InferenceGateway, served: Sequence[RoutedModel], namespace_rights: Mapping[str, NamespaceRights]
) -> Iterable[Object]:
    """Yield the objects of a gateway and its services on its cluster."""
    yield from gateway_objects(gateway)
    used = {cluster_gateway for model in served for cluster_gateway in model.route.clusters}
    for cluster_gateway in sorted(used, key=lambda cluster_gateway: cluster_gateway.cluster):
        yield from mtls.cluster_service_objects(gateway, cluster_gateway)
    for model in served:
        yield from model.objects
    for namespace, routes in _by_namespace(served).items():
        yield from authorizations(routes, namespace_rights[namespace])
        yield from budget_objects(routes, namespace_rights[namespace])
        yield from overflow.overflow_budget_objects(routes, namespace_rights[namespace])


def _by_namespace(served: Iterable[RoutedModel]) -> dict[str, list[Route]]:
    """Return the routes with endpoints by the namespaces of their services, sorted."""
    routes: dict[str, list[Route]] = {}
    for model in sorted(served, key=lambda model: model.route.service.namespace):
        if model.objects:
            routes.setdefault(model.route.service.namespace, []).append(model.route)
    return routes


def _gateways(
    context: Context, platforms: Mapping[str, Platform]
) -> tuple[dict[str, str], dict[str, api.InferenceGateway]]:
    """Return the gateways that cannot be composed, with the reasons, and the others by their clusters."""
    composed = composed_gateways(context.fleet.model_gateways)
    refused: dict[str, str] = {}
    for gateway in context.fleet.model_gateways:
        cluster = gateway.spec.cluster_name or ""
        composed_name = composed[cluster].name
        if Ref("InferenceCluster", "", cluster) in context.fleet.held and cluster not in platforms:
            refused[gateway.name] = f"the manifest of InferenceCluster {cluster} has errors"
        elif cluster not in platforms:
            refused[gateway.name] = f"there is no InferenceCluster {cluster}"
        elif composed_name != gateway.name:
            refused[gateway.name] = (
                f"cluster {cluster} has InferenceGateway {composed_name} already: name another cluster"
            )
    serving = [gateway for gateway in context.fleet.model_gateways if gateway.name not in refused]
    return refused, {gateway.spec.cluster_name or "": gateway for gateway in serving}


def _routes(served: Iterable[RoutedModel]) -> list[Object]:
    return [value for model in served for value in model.ai_routes]


def _kept(context: Context, leaving: Iterable[LeavingGateway] = ()) -> list[tuple[str, Object]]:
    """Return the objects of earlier runs that remain on inference clusters.

    They belong to draining gateways, to frozen services, and to gateways on frozen clusters.
    """
    held_refs = context.fleet.held
    refs = [ref for ref in held_refs if ref.kind == "ModelService"]
    refs += [
        gateway.ref
        for gateway in context.fleet.model_gateways
        if Ref("InferenceCluster", "", gateway.spec.cluster_name or "") in held_refs
    ]
    refs += [gateway.ref for gateway in leaving]
    objects = {
        (cluster, identity(value)): value for ref in sorted(refs) for cluster, value in context.earlier(ref) if cluster
    }
    return [(cluster, value) for (cluster, __), value in objects.items()]


def _cluster_gateway(context: Context, name: str, platform: Platform | None) -> ClusterGateway:
    """Return the known gateway of a cluster: from its status, or from the status of earlier runs."""
    status = platform.resource.status if platform else None
    gateway = status.gateway if status else None
    if context.observed is None and not (gateway and gateway.hostname):
        earlier_gateway = fields(context.statuses.get(Ref("InferenceCluster", "", name)), "gateway")
        gateway = GatewayStatus.model_validate(dict(earlier_gateway)) if earlier_gateway else gateway
    if gateway is None:
        return ClusterGateway(name)
    address = mtls.service_address(gateway.internal_address or gateway.address or "")
    return ClusterGateway(name, gateway.hostname or "", address, gateway.ca_certificate or "")


def _services(context: Context, gateway: api.InferenceGateway) -> list[api.ModelService]:
    return [service for __, service in sorted(context.fleet.services.items()) if gateway.serves(service.labels)]


def _routed(
    context: Context,
    service: api.ModelService,
    gateway: api.InferenceGateway,
    index: LabelIndex[api.ModelEndpoint],
    cluster_gateways: ClusterGateways,
) -> RoutedModel:
    problems: dict[str, str] = {}

    def usable(endpoint: api.ModelEndpoint) -> bool:
        problem = backends.target_problem(endpoint, cluster_gateways) or missing_credential(context, endpoint)
        if problem:
            problems[endpoint.name] = problem
        return not problem

    names_callers = any(
        counts_tokens_of_callers(policy, policy.spec.budgets or ()) for policy in context.selection.policies(service)
    )
    resolution = resolve(service, index, usable, failover=True)
    excess = without_room(service, resolution)
    if excess:
        problems.update(dict.fromkeys(excess, NO_ROOM))
        resolution = resolve(service, index, lambda endpoint: endpoint.name not in problems, failover=True)
    prices = service_prices(context, service) if gateway.spec.auth else None
    route = Route(service, gateway, resolution, cluster_gateways, names_callers, prices=prices)
    return RoutedModel(route, problems, route_objects(route))


def _with_overflow(
    context: Context, served: Sequence[RoutedModel], cluster_gateway: ClusterGateway
) -> tuple[list[RoutedModel], list[str], bool]:
    """Return the services of a gateway with their overflow routes, warnings, and True if any budget can overflow.

    The warnings name the budgets without an overflow destination.

    `cluster_gateway`: the ingress gateway of the gateway's cluster.
    """
    models: list[RoutedModel] = []
    refusals: list[str] = []
    # Gateways without authentication cannot identify callers, so they reject all requests to services with a policy.
    authenticated = [model for model in served if model.route.gateway.spec.auth]
    by_namespace = _policies(context)
    budgets = {
        namespace: overflow.overflowing(routes, by_namespace.get(namespace, ()), context.selection)
        for namespace, routes in _by_namespace(authenticated).items()
    }
    for model in served:
        in_namespace = budgets.get(model.route.service.namespace, {})
        accepts = functools.partial(_accepts, context, cluster_gateway.cluster, model.route.namespace)
        policies = context.selection.policies(model.route.service)
        route = overflow.with_overflow(model.route, in_namespace, cluster_gateway, policies, accepts)
        objects = (*route_objects(route), *overflow.overflow_objects(route)) if route.overflow else model.objects
        models.append(replace(model, route=route, objects=objects))
        refusals += overflow.refusals(route, in_namespace, cluster_gateway, policies if route.gateway.spec.auth else ())
    return models, refusals, any(budgets.values())


def _with_slots(context: Context, cluster: str, routed: RoutedModel) -> RoutedModel:
    """Return a service with endpoints in the slots of the previous build.

    Only runs that apply objects themselves can change the weights of a route in stages.
    """
    earlier = context.earlier_routing(routed.route.service.ref)
    previous = {identity(value): value for object_cluster, value in earlier if object_cluster == cluster}
    objects = tuple(settled(value, previous.get(identity(value))) for value in routed.objects)
    return replace(routed, objects=objects)


def _policies(context: Context) -> dict[str, list[api.CallerPolicy]]:
    """Return the policies of each namespace, sorted."""
    policies: dict[str, list[api.CallerPolicy]] = {}
    for (namespace, __), policy in sorted(context.fleet.policies.items()):
        policies.setdefault(namespace, []).append(policy)
    return policies


def _accepts(context: Context, cluster: str, namespace: str, labels: Mapping[str, str]) -> bool:
    """Return True if the ingress gateway of a cluster has accepted any generation of a route with these labels.

    The result is also True for an unobserved or unreachable cluster.

    `cluster`: the cluster of a Model gateway.
    """
    seen = context.observed_cluster(cluster)
    if context.declared(cluster) or seen is None or seen.unreachable:
        return True
    return any(
        text(condition_entry(route, "Accepted"), "status") == "True"
        for route in seen.objects.labelled(
            "AIGatewayRoute", namespace, names.SERVICE_LABEL, labels[names.SERVICE_LABEL]
        )
        if labels.items() <= fields(route, "metadata", "labels").items()
    )


def _rights(
    context: Context, gateway: api.InferenceGateway, served: Iterable[RoutedModel], secrets: Sequence[KeySecret] | None
) -> Iterator[tuple[str, NamespaceRights]]:
    """Yield the permissions that the policies of each namespace with routes grant at a gateway with these Secrets.

    A gateway without authentication knows no caller, whatever a request contains.
    """
    by_namespace = _policies(context)
    for namespace in _by_namespace(served):
        policy_rights: list[Rights] = []
        for policy in by_namespace.get(namespace, ()):
            services = context.selection.services(policy)
            if gateway.spec.auth is None:
                policy_rights.append(Rights(policy, (), frozenset(service.name for service in services)))
            else:
                key_secrets = _remembered(context, policy) if secrets is None else secrets
                policy_rights.append(rights(policy, key_secrets, services, gateway.spec.auth.jwt))
        yield namespace, NamespaceRights(policy_rights)


def _key_secrets(context: Context, gateway: api.InferenceGateway) -> list[KeySecret] | None:
    """Return the Secrets with API keys of a gateway; None if they are unknown or the gateway has no authentication."""
    if gateway.spec.auth is None:
        return None
    if gateway.spec.auth.api_key is None:
        return []
    if context.observed is None or context.observed.unreachable or context.observed.unread:
        return None
    selector = gateway.spec.auth.api_key.secret_selector
    return [
        KeySecret(labels, tuple(sorted(context.observed.secret_keys.get(secret, ()))))
        for secret, labels in sorted(context.observed.secret_labels.items())
        if secret[0] == names.SYSTEM_NAMESPACE and selector.matches(labels)
    ]


def _unread(context: Context, unread: Collection[api.InferenceGateway]) -> list[api.CallerPolicy]:
    """Return the policies for services of these gateways, if no earlier run stored callers of the policy.

    `unread`: gateways with API key Secrets that are not read.
    """
    return [
        policy
        for __, policy in sorted(context.fleet.policies.items())
        if any(by.serves(service.labels) for service in context.selection.services(policy) for by in unread)
        and not any(secret.callers for secret in _remembered(context, policy))
    ]


def _sizes(
    keys: Iterable[Keys], served: Mapping[str, Sequence[RoutedModel]]
) -> Iterator[tuple[str, ConfigurationSize]]:
    """Yield the sizes of the configurations of gateways, with all services that they select. A name that is in several
    Secrets is one key."""
    for gateway, secrets in keys:
        entries = {entry for secret in secrets for entry in secret.callers}
        services = len(served[gateway.spec.cluster_name or ""])
        yield gateway.name, configuration_size(gateway, entries, services)


def _remembered(context: Context, policy: api.CallerPolicy) -> list[KeySecret]:
    """Return the callers that the selector of a policy selected in earlier runs: they do not lose their rights because
    their keys cannot be seen."""
    selector = policy.spec.caller_selector
    if selector is None:
        return []
    services = context.selection.services(policy)
    composed = (value for service in services for value in context.earlier_rights[service.ref])
    callers = {caller for value in composed for caller in selected_callers(value, policy)}
    return [KeySecret(selector.match_labels, tuple(sorted(callers)))]


def _copies(gateway: api.InferenceGateway, served: Iterable[RoutedModel]) -> Iterable[SecretCopy]:
    """Yield the values of Secrets that a gateway needs: its certificates, API keys of callers, and credentials of
    backends."""
    system = names.SYSTEM_NAMESPACE
    cluster = {names.CLUSTER_LABEL: names.label_value(gateway.spec.cluster_name or "")}
    owner = _sorted({**control_labels(gateway, names.GATEWAY_LABEL), **cluster})
    for name in certificate_secrets(gateway):
        for key in ("tls.crt", "tls.key"):
            yield SecretCopy(system, name, key, system, name, key, type=constants.TLS_SECRET, owner=owner)
    if gateway.spec.auth and gateway.spec.auth.api_key:
        labels = _sorted(gateway.spec.auth.api_key.secret_selector.match_labels)
        yield SecretCopy(system, "", "", system, CALLERS_SECRET, "", labels=labels, owner=owner)
    for model in served:
        route = model.route
        owner = _sorted({**route.labels, **cluster})
        for name, target in route.targets.items() if model.objects else ():
            if target.key:
                source = (route.service.namespace, target.key.secret_ref.name, target.key.secret_ref.key)
                copied = (route.namespace, backends.credential_name(name), backends.SECRET_KEY)
                yield SecretCopy(*source, *copied, owner=owner)


def _sorted(labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(labels.items()))


def _clients(
    context: Context, gateways: Iterable[api.InferenceGateway], leaving: Iterable[LeavingGateway]
) -> dict[str, str]:
    """Return the known CA certificates (PEM) of gateways by gateway name.

    Inference clusters use these certificates to authenticate gateways.
    """
    certificates = {gateway.name: gateway.certificate for gateway in leaving}
    certificates.update((gateway.name, _client_authority(context, gateway)) for gateway in gateways)
    return {name: certificate for name, certificate in certificates.items() if certificate}


def _cluster_gateways(
    context: Context,
    platforms: Mapping[str, Platform],
    clients: Mapping[str, str],
    hosts: frozenset[str],
    used: Iterable[str],
    overflowing: Collection[str],
) -> dict[str, Sequence[Object]]:
    """Return the objects that connect Model gateways to ingress gateways, by cluster.

    The result contains clusters with engines and the clusters in `overflowing`.

    `overflowing`: clusters of Model gateways that count budgets behind the ingress gateway of their own cluster.
    """
    if not hosts:
        return {}
    has_path = context.fleet.path_gateway is not None
    with_replicas = frozenset(used)
    objects: dict[str, Sequence[Object]] = {}
    for name, platform in platforms.items():
        has_engines = bool(platform.resource.spec.node_pools) or name in with_replicas
        if has_engines or name in overflowing:
            plain = has_path and name in hosts and has_engines
            objects[name] = mtls.cluster_gateway_objects(
                platform.resource, clients, plain=plain, hosts_gateway=name in hosts
            )
    return objects


def _listens(value: Object) -> bool:
    return identity(value)[1] == "Gateway"


def _client_authority(context: Context, gateway: api.InferenceGateway) -> str:
    """Return the CA certificate (PEM) that clusters use to authenticate a gateway; "" while it is unknown."""
    seen = context.observed_cluster(gateway.spec.cluster_name or "")
    observed = seen.objects.find("ConfigMap", constants.SYSTEM_NAMESPACE, constants.MODEL_GATEWAY_CA) if seen else None
    written_one = (gateway.status and gateway.status.client_ca_certificate) or ""
    return text(observed, "data", constants.CA_KEY) or known_certificate(context, gateway.ref) or written_one


def _divided_budgets(
    rights_by_cluster: Mapping[str, Mapping[str, NamespaceRights]], served: Mapping[str, Sequence[RoutedModel]]
) -> Iterable[str]:
    """Yield divided budgets of groups of callers. Validation reports divided budgets of callers in manifests."""
    messages: dict[str, str] = {}
    for cluster, namespace_rights in rights_by_cluster.items():
        for namespace, routes in _by_namespace(served[cluster]).items():
            services = {route.service.name for route in routes}
            for policy_rights in namespace_rights[namespace].policies:
                budgets = divided_budgets(policy_rights, namespace_rights[namespace], services)
                if budgets and policy_rights.policy.spec.caller_selector:
                    policy = f"CallerPolicy {namespace}/{policy_rights.policy.name}"
                    budget_names = ", ".join(budget.name for budget in budgets)
                    messages[policy] = f"{policy}: budget {budget_names} {DIVIDED}: {UNDIVIDED}"
    return [message for __, message in sorted(messages.items())]


def _too_many_rules(
    rights_by_cluster: Mapping[str, Mapping[str, NamespaceRights]], served: Mapping[str, Sequence[RoutedModel]]
) -> Iterable[str]:
    """Yield budgets that are too many for one object because groups of callers are large."""
    messages: dict[str, str] = {}
    for cluster, namespace_rights in rights_by_cluster.items():
        for namespace, routes in _by_namespace(served[cluster]).items():
            # Those that overflow are counted at the cluster gateway, by an object of their own.
            for limiter in (AT_GATEWAY, overflow.AT_CLUSTER_GATEWAY):
                for excess in too_many_rules(routes, namespace_rights[namespace], limiter):
                    policy = f"CallerPolicy {namespace}/{excess.policies[0]}"
                    messages[policy] = f"{policy}: its budgets {excess.message}: {FEWER_RULES}"
    return [message for __, message in sorted(messages.items())]


def _foreign_policies(context: Context, served: Mapping[str, Sequence[RoutedModel]]) -> Iterable[str]:
    """Yield the SecurityPolicies of other owners on routes or on their gateways."""
    for cluster, routes in served.items():
        seen = context.observed_cluster(cluster)
        contested_routes = contested(seen.objects) if seen else {}
        models_by_message: dict[str, list[str]] = {}
        for model in routes if contested_routes else ():
            attached = {
                foreign_message(policy) for route in model.ai_routes for policy in foreign(contested_routes, route)
            }
            for message in attached:
                models_by_message.setdefault(message, []).append(model.route.service.model_name)
        for message, models in sorted(models_by_message.items()):
            yield (
                f"cluster {cluster}: {message}. It concerns ModelService {some(models, 3)}; until then, only routes "
                "that are there already are applied"
            )


def _opened(context: Context, served: Mapping[str, Sequence[RoutedModel]]) -> Iterable[str]:
    """Yield the gateways that asked for keys in the last run, with services that everyone may call from now on."""
    for routes in served.values():
        # Where a CallerPolicy selects a service, a gateway that knows no callers refuses all of them.
        models = [
            model.route.service.model_name for model in routes if not context.selection.policies(model.route.service)
        ]
        gateway = routes[0].route.gateway if routes else None
        if gateway and models and gateway.spec.auth is None and _had_auth(context, gateway.ref):
            yield (
                f"InferenceGateway {gateway.name} has lost its auth, which it had in the last run: everyone who "
                f"reaches it may call ModelService {some(models, 3)} from now on. Give it back spec.auth, unless that "
                "is intended"
            )


def _had_auth(context: Context, ref: Ref) -> bool:
    """Return True if a gateway required API keys in the last run."""
    # The name of the policy decides, because observations do not contain its spec.
    return any(identity(value)[1::2] == ("SecurityPolicy", CALLERS_POLICY) for __, value in context.earlier(ref))


def _named_callers(routed: Iterable[RoutedModel]) -> Iterable[str]:
    """Yield the external endpoints that receive the names of callers, in one message for each gateway."""
    services_by_gateway: dict[str, list[str]] = {}
    for route in (model.route for model in routed if model.route.gateway.spec.auth):
        outside = sorted(endpoint.name for endpoint in route.knowing_callers)
        if outside:
            services_by_gateway.setdefault(route.gateway.name, []).append(
                f"{route.service.model_name} ({some(outside, 3)})"
            )
    for gateway, services in services_by_gateway.items():
        yield (
            f"InferenceGateway {gateway}: endpoints outside of the fleet get the names of callers, as CallerPolicies "
            f"count tokens by them, in ModelService {some(services)}: if they must not, count requests, or all callers "
            "together"
        )
