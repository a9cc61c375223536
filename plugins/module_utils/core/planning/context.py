# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Context of a reconciliation: resources, observations, objects of earlier runs, settings of the fleet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from .. import api, names
from ..compose import Options
from ..compose.model_gateway.selection import PolicySelection
from ..observation import Observed, ObservedCluster
from ..pricing import AssumedPrices, Catalogue, PriceBook
from ..problem import Ref
from ..status.inference_cluster import assumed_address, was_observed
from ..validation.model_gateways import ServingIndex
from ..wire import Object, identity, text
from .fleet import Earlier, Fleet, Key, nothing_earlier

RolloutStage = Literal["", "step", "hold", "forecast"]


@dataclass(frozen=True)
class Context:
    """Inputs of a reconcile pass.

    `observed`: None if the fleet is not observed. Then everything is assumed to match the desired state.
    `earlier`: a function that returns the objects that earlier runs composed for a resource.
    `statuses`: the previous statuses.
    `rollout`: the number of clusters that may roll out an edit of one deployment at a time. It requires observations.
    `catalogue`: the prices of the user in addition to the prices of InferenceClasses.
    `assumed`: the prices of a query.
    `routed`: the ModelRoutes of the last run.
    `staged`: rollouts on unobserved clusters perform one step (`step`) or no step (`hold`) instead of all steps at
    once.
    `forecast`: assume that all replicas serve except `failed` replicas.
    `frozen`: in a forecast, replicas with pods of an old revision although their ModelReplica is unchanged.
    """

    fleet: Fleet
    observed: Observed | None = None
    earlier: Earlier = nothing_earlier
    statuses: Mapping[Ref, Mapping[str, Any]] = field(default_factory=dict)
    composing: Options = field(default_factory=Options)
    rollout: int = 1
    catalogue: Catalogue | None = None
    assumed: AssumedPrices | None = None
    routed: Sequence[api.ModelRoute] = ()
    staged: RolloutStage = ""
    frozen: frozenset[Key] = frozenset()
    failed: frozenset[Key] = frozenset()

    @cached_property
    def prices(self) -> PriceBook:
        """Return the prices of nodes."""
        return PriceBook(self.fleet.classes, self.catalogue, self.assumed)

    @cached_property
    def serving(self) -> ServingIndex:
        """Index of the models that Model gateways serve."""
        return ServingIndex(self.fleet.model_gateways, self.fleet.services.values(), self.fleet.clusters.values())

    @cached_property
    def selection(self) -> PolicySelection:
        """Selection of ModelServices by CallerPolicies."""
        return PolicySelection(self.fleet.policies.values(), self.fleet.services.values())

    @cached_property
    def earlier_rights(self) -> Mapping[Ref, Sequence[Object]]:
        """Return the SecurityPolicies on workload clusters that earlier runs composed, by ModelService, for services of
        policies that select their callers: each is read once, whatever selects it at however many gateways."""
        selecting = [policy for policy in self.fleet.policies.values() if policy.spec.caller_selector]
        refs = dict.fromkeys(service.ref for policy in selecting for service in self.selection.services(policy))
        return {
            ref: [value for __, value in self.earlier_routing(ref) if identity(value)[1] == "SecurityPolicy"]
            for ref in refs
        }

    def earlier_routing(self, service: Ref) -> Sequence[tuple[str, Object]]:
        """Return the routes and SecurityPolicies that earlier runs composed for a ModelService, each with its workload
        cluster. Each service is read once."""
        if service not in self._earlier_routing:
            kinds = ("SecurityPolicy", "AIGatewayRoute")
            self._earlier_routing[service] = [
                (cluster, value) for cluster, value in self.earlier(service) if cluster and identity(value)[1] in kinds
            ]
        return self._earlier_routing[service]

    @cached_property
    def _earlier_routing(self) -> dict[Ref, Sequence[tuple[str, Object]]]:
        return {}

    def served_name(self, deployment: api.ModelDeployment) -> str:
        """Return the model name that Model gateways send to the engines of a deployment.

        The name is "" if no Model gateway reaches the deployment.
        """
        if not self.fleet.model_gateways:
            return ""
        metadata = deployment.spec.template.metadata
        labels = {**((metadata and metadata.labels) or {}), names.DEPLOYMENT_LABEL: deployment.name}
        reached = self.serving.find(deployment.namespace, labels, placed=False)
        return f"{deployment.namespace}/{deployment.name}" if reached else ""

    def observed_cluster(self, cluster: str) -> ObservedCluster | None:
        """Return the observation of an inference cluster; None if it was not observed."""
        observed = self.observed.clusters.get(cluster) if self.observed else None
        return None if observed is None or observed.declared else observed

    def answered(self, cluster: str) -> bool:
        """Return True if an inference cluster was reachable, so that objects that were not observed do not exist."""
        observed = self.observed_cluster(cluster)
        return observed is not None and not observed.unreachable

    def declared(self, cluster: str) -> bool:
        """Return True if a cluster is assumed to match its manifest: its objects are files, or no run observed it."""
        if self.observed is None:
            return True
        observed = self.observed.clusters.get(cluster)
        return observed.declared if observed else not was_observed(self._status(cluster))

    def advances(self, cluster: str) -> bool:
        """Return True if an edit changes all replicas on an inference cluster at once, because no run observes them."""
        return self.declared(cluster) and not self.staged

    def is_file(self, cluster: str) -> bool:
        """Return True if the objects of an inference cluster are known to be files."""
        observed = self.observed.clusters.get(cluster) if self.observed else None
        return observed is not None and observed.declared

    def declared_gateway(self, cluster: str) -> tuple[str, str]:
        """Return the gateway of a cluster that is assumed to match its manifest, if the manifest declares none.

        The result is the address of the gateway, and its URL if it does not use plain HTTP. Both are the values of
        earlier runs: requests must not change their destination because a cluster was not observed.
        """
        earlier_status = self._status(cluster)
        address = text(earlier_status, "gateway", "address")
        return (address, text(earlier_status, "gateway", "url")) if address else (assumed_address(cluster), "")

    def _status(self, cluster: str) -> Mapping[str, Any] | None:
        return self.statuses.get(Ref("InferenceCluster", "", cluster))

    def kept(self, ref: Ref, cluster: str, kinds: Iterable[str] = ()) -> list[Object]:
        """Return the objects that earlier runs composed for a resource on a cluster ("": control), filtered by kinds
        if any are given."""
        only = set(kinds)
        return [
            value
            for object_cluster, value in self.earlier(ref)
            if object_cluster == cluster and (not only or value["kind"] in only)
        ]
