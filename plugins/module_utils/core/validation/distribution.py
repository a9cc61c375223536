# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Validation of the replica distribution of a ModelDeployment against the existing clusters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

from ..names import all_labels
from ..problem import Problem, warning
from ..scheduling import adapters
from ..scheduling.distribution import meets, topology_domain
from ..scheduling.model import Cluster, Deployment, Taint
from ..text import count, nearest, short, some


class Clusters(Protocol):
    """InferenceClusters of a fleet, and the caches that limit the clusters of a deployment."""

    @property
    def cluster_labels(self) -> str:
        """Labels of clusters as text."""

    def complete(self, kind: str) -> bool:
        """Return True if resources of this kind exist and all are valid."""

    def find(self, kind: str, namespace: str, name: str) -> Any:
        """Return a resource; None without it."""

    def of_kind(self, kind: str) -> Iterable[Any]:
        """Return all resources of a kind."""


def deployment_distribution(deployment: Any, fleet: Clusters) -> Iterator[Problem]:
    """Yield duplicate and impossible entries of `spread`, `clusterPreferences`, and `minAvailable`.

    If the deployment can use no cluster, only the check of its selector reports a problem.
    """
    spec = deployment.spec
    terms = spec.cluster_preferences.terms if spec.cluster_preferences else ()
    labels = [sorted(term.match_labels.items()) for term in terms]
    yield from _twice(labels, "spec.clusterPreferences.terms", "has the labels of {}, and no effect")
    keys = [entry.topology_key for entry in spec.min_available or ()]
    yield from _twice(keys, "spec.minAvailable", "is for the same clusters as {}, and the larger number counts")
    if not (spec.spread or spec.cluster_preferences or spec.min_available) or not fleet.complete("InferenceCluster"):
        return
    clusters = _usable(deployment, fleet)
    if not clusters:
        return
    for index, entry in enumerate(spec.spread or ()):
        effect = "no replica is placed" if entry.when_unsatisfiable == "DoNotSchedule" else "it has no effect"
        yield from _key(entry.topology_key, clusters, f"spec.spread[{index}].topologyKey", effect, fleet)
    for index, term in enumerate(terms):
        if not any(meets(cluster, term.match_labels) for cluster in clusters):
            path = f"spec.clusterPreferences.terms[{index}].matchLabels"
            pairs = ", ".join(f"{key}: {value}" for key, value in sorted(term.match_labels.items()))
            yield warning("matches no cluster that the deployment may use", path, fleet.cluster_labels, short(pairs))
    for index, entry in enumerate(spec.min_available or ()):
        path = f"spec.minAvailable[{index}]"
        if entry.topology_key:
            yield from _key(entry.topology_key, clusters, f"{path}.topologyKey", "it has no effect", fleet)
        # Without `replicas` in the manifest an autoscaler sets it.
        if "replicas" in spec.model_fields_set:
            yield from _minimum(entry, spec.replicas, clusters, f"{path}.replicas")


def _twice(entries: Sequence[object], path: str, message: str) -> Iterator[Problem]:
    for index, entry in enumerate(entries):
        first_index = entries.index(entry)
        if first_index != index:
            yield warning(message.format(f"{path}[{first_index}]"), f"{path}[{index}]", "Remove one of them")


def _usable(deployment: Any, fleet: Clusters) -> list[Cluster]:
    """Return the clusters that a deployment selects and tolerates. Only the labels of these clusters are known."""
    reference = deployment.spec.template.spec.model_cache_ref
    cache = fleet.find("ModelCache", deployment.namespace, reference.name) if reference else None
    desired = adapters.deployment(deployment, {(cache.namespace, cache.name): cache} if cache else {})
    return [
        Cluster(cluster.name, labels=cluster.labels)
        for cluster in fleet.of_kind("InferenceCluster")
        if desired.cluster_selector.items() <= all_labels(cluster).items() and _tolerates(desired, cluster)
    ]


def _tolerates(deployment: Deployment, cluster: Any) -> bool:
    taints = (Taint(taint.key, taint.effect, taint.value or "") for taint in cluster.spec.taints or ())
    return all(any(toleration.covers(taint) for toleration in deployment.tolerations) for taint in taints)


def _key(key: str, clusters: Sequence[Cluster], path: str, effect: str, fleet: Clusters) -> Iterator[Problem]:
    if not any(topology_domain(cluster, key) for cluster in clusters):
        message = f"is a label of no cluster that the deployment may use, so {effect}"
        # Keys with the same prefix are similar, whatever their names are.
        by_name = {label.rpartition("/")[2]: label for cluster in clusters for label in sorted(cluster.all_labels)}
        near = by_name.get(nearest(key.rpartition("/")[2], by_name))
        yield warning(message, path, f"Did you mean {near}?" if near else fleet.cluster_labels, short(key))


def _minimum(entry: Any, replicas: int, clusters: Sequence[Cluster], path: str) -> Iterator[Problem]:
    """Yield a minimum that all replicas together do not meet. A deployment without any is scaled to zero on purpose."""
    key = entry.topology_key
    values = sorted({topology_domain(cluster, key) for cluster in clusters} - {""}) if key else [""]
    required = entry.replicas * len(values)
    if not 0 < replicas < required:
        return
    where = f" for {count(len(values), 'value')} of {key} ({some(values, 3)})" if key else ""
    hint = f"Set replicas to {required} or more"
    hint += f", or this to {replicas // len(values)} or less" if replicas >= len(values) else ""
    yield warning(f"asks for {count(required, 'replica')} in all{where}, and replicas is {replicas}", path, hint)


def deployment_spot(deployment: Any, _fleet: object) -> Iterator[Problem]:
    """Yield a minimum of replicas without spot nodes that is more than the replicas of the deployment."""
    spec = deployment.spec
    limits = spec.cost.spot if spec.cost else None
    # Without `replicas` in the manifest an autoscaler sets it.
    if limits is None or "replicas" not in spec.model_fields_set or not 0 < spec.replicas < limits.min_on_demand:
        return
    message = f"is more than replicas, which is {spec.replicas}, so that no replica may be on spot nodes"
    hint = f"Set this to {spec.replicas} or less"
    yield warning(message, "spec.cost.spot.minOnDemand", hint, str(limits.min_on_demand))
