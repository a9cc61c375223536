# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Draining Model gateways: gone from the manifests, kept until their replacement is ready.

The module also warns about models that gateways stop serving.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from .. import api, names
from ..compose import constants
from ..compose.model_gateway.overflow import is_behind_cluster_gateway
from ..problem import Ref
from ..status.inference_cluster import was_observed
from ..text import count, some
from ..wire import Object, Objects, first_address, identity, is_true, label, text
from .context import Context

ROUTE = "AIGatewayRoute"


@dataclass(frozen=True)
class LeavingGateway:
    """Model gateway that left the manifests and remains on a cluster."""

    name: str
    cluster: str
    certificate: str
    """CA certificate (PEM) that inference clusters use to authenticate the gateway."""
    waits_for: str
    """Condition that must be met before the gateway is removed."""
    address: str
    """Address of the gateway, "" if it has no address."""
    models: int
    """Number of models that the gateway routes."""

    @property
    def ref(self) -> Ref:
        """Reference to it."""
        return Ref(api.InferenceGateway.KIND, "", self.name)

    @property
    def warning(self) -> str:
        """Warning with the reason for keeping the gateway."""
        return f"InferenceGateway {self.name} has left the manifests, and stays on cluster {self.cluster} {self.until}"

    @property
    def message(self) -> str:
        """Reason for keeping the gateway, for output that already names the gateway."""
        return f"Has left the manifests, and stays {self.until}"

    @property
    def until(self) -> str:
        """Condition for the removal, as part of a sentence."""
        return f"until {self.waits_for}"


def leaving_gateways(
    context: Context, serving: Mapping[str, api.InferenceGateway], routes: Mapping[str, Sequence[Object]]
) -> Iterator[LeavingGateway]:
    """Yield the draining gateways.

    If only the status of a gateway is known, it remains until its cluster is read, because it might serve there.
    Without any gateway in the manifests, no gateway replaces another, and all gateways are removed.

    `serving`: the gateways in the manifests.
    `routes`: their AIGatewayRoutes by cluster.
    """
    if not serving:
        return
    refs = [*context.fleet.held, *(gateway.ref for gateway in context.fleet.model_gateways)]
    manifest_names = {names.label_value(ref.name) for ref in refs if ref.kind == api.InferenceGateway.KIND}
    earlier = {names.label_value(ref.name): ref for ref in context.statuses if ref.kind == api.InferenceGateway.KIND}
    seen_here = set[str]()
    ready = _answering(context, serving)
    for cluster in sorted(set(context.observed.clusters if context.observed else ()) - set(serving)):
        seen = context.observed_cluster(cluster)
        gateway = seen.objects.find("Gateway", names.SYSTEM_NAMESPACE, constants.MODEL_GATEWAY) if seen else None
        name = label(gateway, names.GATEWAY_LABEL)
        if seen is None or not name or name in manifest_names:
            continue
        ref = earlier.get(name, Ref(api.InferenceGateway.KIND, "", name))
        earlier_routes = {identity(route)[2:] for route in _routes_of(seen.objects, name)}
        waits_for = _missing(context, earlier_routes, ready, routes)
        if waits_for:
            authority = seen.objects.find("ConfigMap", names.SYSTEM_NAMESPACE, constants.MODEL_GATEWAY_CA)
            certificate = text(authority, "data", constants.CA_KEY) or known_certificate(context, ref)
            yield LeavingGateway(ref.name, cluster, certificate, waits_for, first_address(gateway), len(earlier_routes))
            seen_here.add(name)
    for name in sorted(earlier.keys() - manifest_names - seen_here):
        yield from _unread(context, earlier[name])


def ending_routes(
    context: Context, serving: Mapping[str, api.InferenceGateway], leaving: Iterable[LeavingGateway]
) -> Iterator[str]:
    """Yield the gateways that served services in the last run and no longer do, without a replacement from the last
    run.

    A replacement is a gateway that serves the services now and served them in the last run.

    `serving`: the gateways in the manifests, by cluster.
    """
    fleet = context.fleet
    held_clusters = {ref.name for ref in fleet.held if ref.kind == api.InferenceCluster.KIND}
    stay = {gateway.name for gateway in fleet.model_gateways if gateway.spec.cluster_name in held_clusters}
    stay |= {gateway.name for gateway in leaving} | fleet.held_models
    earlier_gateways: dict[Ref, set[str]] = {}
    for route in context.routed:
        ref = Ref(api.ModelService.KIND, route.namespace, route.spec.service_name)
        earlier_gateways.setdefault(ref, set()).add(route.spec.gateway_name)
    ended_models, moved = dict[str, list[str]](), dict[tuple[str, str], list[str]]()
    for ref, gateways in sorted(earlier_gateways.items()):
        service = fleet.services.get((ref.namespace, ref.name))
        current_gateways = {gateway.name for gateway in serving.values() if service and gateway.serves(service.labels)}
        if ref in fleet.held or gateways & (current_gateways | stay):
            continue
        for gateway in sorted(gateways):
            model = f"{ref.namespace}/{ref.name}"
            if current_gateways:
                moved.setdefault((gateway, some(sorted(current_gateways), 3)), []).append(model)
            else:
                ended_models.setdefault(gateway, []).append(model)
    for gateway, models in sorted(ended_models.items()):
        yield (
            f"InferenceGateway {gateway} stops answering for {count(len(models), 'model')} that no other one of the "
            f"manifests serves: {some(models, 3)}. If clients use them, keep the gateway, and the ModelServices with "
            "the labels that it selects"
        )
    for (gateway, successors), models in sorted(moved.items()):
        yield (
            f"InferenceGateway {gateway} stops answering for {count(len(models), 'model')} at once, before "
            f"InferenceGateway {successors} is known to: {some(models, 3)}. Keep both in the manifests until "
            "clients use the other address"
        )


def _unread(context: Context, ref: Ref) -> Iterator[LeavingGateway]:
    """Yield a draining gateway with a known CA if its cluster belongs to the fleet and was not read.

    If its cluster is unknown, any unread cluster of the fleet might be the cluster of the gateway.
    """
    certificate = known_certificate(context, ref)
    seen = context.observed.control.find(ref.kind, "", ref.name) if context.observed else None
    clusters = {
        object_cluster
        for object_cluster, value in context.earlier(ref)
        if object_cluster and identity(value)[1] == "Gateway"
    }
    if cluster_name := text(seen, "spec", "clusterName"):
        clusters.add(cluster_name)
    unread = [
        cluster
        for cluster in sorted(context.fleet.clusters)
        if cluster in (clusters or {cluster}) and _is_unread(context, cluster)
    ]
    if certificate and unread:
        routes = list(_routes_of(Objects(context.kept(ref, unread[0])), names.label_value(ref.name)))
        address = text(context.statuses[ref], "address")
        yield LeavingGateway(ref.name, unread[0], certificate, f"cluster {unread[0]} is read", address, len(routes))


def _is_unread(context: Context, cluster: str) -> bool:
    """Return True for a cluster that runs read, and that did not answer to this one, or was not asked."""
    observed = context.observed.clusters.get(cluster) if context.observed else None
    if observed:
        return bool(observed.unreachable) and not observed.declared
    return was_observed(context.statuses.get(Ref(api.InferenceCluster.KIND, "", cluster)))


def known_certificate(context: Context, ref: Ref) -> str:
    """Return the certificate (PEM) of the CA of a gateway by its status, "" where that does not have it."""
    return text(context.statuses.get(ref), "clientCACertificate")


def _answering(context: Context, serving: Mapping[str, api.InferenceGateway]) -> dict[str, api.InferenceGateway]:
    """Return the gateways that have an address and their configuration, by cluster."""
    answering = {}
    for cluster, gateway in serving.items():
        seen = context.observed_cluster(cluster)
        live = seen.objects.find("Gateway", names.SYSTEM_NAMESPACE, constants.MODEL_GATEWAY) if seen else None
        is_own = label(live, names.GATEWAY_LABEL) == names.label_value(gateway.name)
        if context.declared(cluster) or (is_own and first_address(live) and is_true(live, "Programmed")):
            answering[cluster] = gateway
    return answering


def _routes_of(objects: Objects, gateway: str) -> Iterable[Object]:
    """Return the routes of a gateway to its models, without overflow routes."""
    gateway_routes = (route for route in objects.of_kind(ROUTE) if label(route, names.GATEWAY_LABEL) == gateway)
    return (route for route in gateway_routes if not is_behind_cluster_gateway(route))


def _missing(
    context: Context,
    earlier_routes: Collection[tuple[str, str]],
    ready: Mapping[str, api.InferenceGateway],
    routes: Mapping[str, Sequence[Object]],
) -> str:
    """Return the condition for the removal of a gateway; "" if it can be removed. `earlier_routes` are the namespaces
    and names of its AIGatewayRoutes.

    A service that has left the fleet, or that no gateway selects, needs no other way."""
    if not ready:
        return "another gateway of the manifests answers"
    accepted = {
        identity(route)[2:]
        for cluster in ready
        for route in routes.get(cluster, ())
        if _accepts(context, cluster, route)
    }
    served = {
        (names.workload_namespace(service.namespace), service.name): service
        for service in context.fleet.services.values()
        if any(gateway.serves(service.labels) for gateway in ready.values())
    }
    missing = sorted(served[key].model_name for key in set(earlier_routes) & set(served) - accepted)
    return f"another one answers for {', '.join(missing)}" if missing else ""


def _accepts(context: Context, cluster: str, route: Object) -> bool:
    seen = context.observed_cluster(cluster)
    return context.declared(cluster) or (seen is not None and is_true(seen.objects.like(route), "Accepted"))
