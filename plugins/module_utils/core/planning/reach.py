# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Gateways that clients use to reach services, and gateways that are lost with clusters.

The path-based gateway is on the control cluster, so the loss of inference clusters does not affect it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from .. import api, names
from ..text import some
from ..wire import identity, label
from .context import Context
from .fleet import Key
from .leaving_gateways import ROUTE


@dataclass(frozen=True)
class Reach:
    """Gateways that serve a service."""

    gateways: Mapping[str, str] = field(default_factory=dict)
    """Clusters of Model gateways by gateway name."""
    has_path: bool = False
    """True if the path-based gateway serves the service."""

    def on(self, clusters: Collection[str]) -> dict[str, str]:
        """Return the Model gateways on these clusters."""
        return {name: cluster for name, cluster in self.gateways.items() if cluster in clusters}

    def without(self, clusters: Collection[str]) -> Reach:
        """Return the remaining gateways without these clusters."""
        remaining_gateways = {name: cluster for name, cluster in self.gateways.items() if cluster not in clusters}
        return Reach(remaining_gateways, self.has_path)

    @property
    def is_cut_off(self) -> bool:
        """Return True if no gateway serves the service."""
        return not self.gateways and not self.has_path


def reaches(context: Context, clusters: Collection[str]) -> dict[Key, Reach]:
    """Return the gateways that serve each service while these clusters exist; empty for a fleet without Model gateways.

    Without Model gateways, the loss of clusters does not affect the reachability of services. Gateways with manifest
    errors are frozen and continue to serve their services. Draining gateways are omitted.
    """
    fleet = context.fleet
    if not fleet.has_model_gateways:
        return {}
    serving = serving_gateways(context, clusters)
    return {
        key: Reach(
            dict(sorted([*_selecting(serving, service), *_held(context, clusters, service)])), fleet.serves_paths
        )
        for key, service in sorted(fleet.services.items())
    }


def serving_gateways(context: Context, clusters: Collection[str]) -> dict[str, api.InferenceGateway]:
    """Return the Model gateways that are composed on these clusters, by cluster: the first gateway of each cluster."""
    gateways: dict[str, api.InferenceGateway] = {}
    for gateway in context.fleet.model_gateways:
        cluster = gateway.spec.cluster_name or ""
        if cluster in clusters:
            gateways.setdefault(cluster, gateway)
    return gateways


def drain_warnings(context: Context) -> Iterator[str]:
    """Yield a warning for each gateway on a drained cluster, because a drain moves only replicas."""
    drained = {
        name
        for name, cluster in context.fleet.clusters.items()
        if any(taint.key == names.DRAIN_TAINT for taint in cluster.spec.taints or ())
    }
    reach_by_service = reaches(context, context.fleet.clusters) if drained else {}
    for cluster, gateway in serving_gateways(context, drained).items():
        served = {"/".join(key): reach for key, reach in reach_by_service.items() if gateway.name in reach.gateways}
        cut_off = [name for name, reach in served.items() if reach.without(drained).is_cut_off]
        reassurance = "Its services have other gateways" if served else "It serves no service"
        hint = f"Before the cluster goes, have another InferenceGateway elsewhere for {some(cut_off)}"
        yield (
            f"cluster {cluster} is drained of replicas, and InferenceGateway {gateway.name} stays on it. "
            f"{hint if cut_off else reassurance}"
        )


def _selecting(serving: Mapping[str, api.InferenceGateway], service: api.ModelService) -> Iterator[tuple[str, str]]:
    for cluster, gateway in serving.items():
        if gateway.serves(service.labels):
            yield gateway.name, cluster


def _held(context: Context, clusters: Collection[str], service: api.ModelService) -> Iterator[tuple[str, str]]:
    held_models = {names.label_value(name): name for name in context.fleet.held_models}
    for cluster, value in context.earlier(service.ref) if held_models else ():
        name = held_models.get(label(value, names.GATEWAY_LABEL))
        if name and cluster in clusters and identity(value)[1] == ROUTE:
            yield name, cluster
