# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Recovery of ModelReplicas from clusters, if the state of the fleet was lost or is older than its clusters.

Each inference cluster stores the last applied ModelReplicas with their digest. The state of the fleet contains a
history for each cluster: the digests of planned ModelReplicas, oldest first, starting with the last observed digest. If
the history contains the digest of a cluster, other replicas on the cluster were removed on purpose. Otherwise the
cluster is newer than the state, and its ModelReplicas are the ModelReplicas of the last run.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256

from .. import api, names
from ..compose.workload_cluster import WORKLOADS
from ..observation import AppliedReplicas, Observed, ObservedCluster
from ..problem import Ref
from ..status.workloads import availability
from ..text import count, first_lines, some
from ..wire import Object, fields, text

History = Mapping[str, Sequence[str]]
"""Digests of the planned ModelReplicas of each inference cluster, oldest first."""

_MOST_LINES = 20
_DIGEST_DIGITS = 20
# The history of an unobserved cluster grows with each run. Forgetting a digest is safe, because the cluster then counts
# as newer than the state, and its replicas are not removed.
_MOST_DIGESTS = 50


@dataclass(frozen=True, order=True)
class UnknownReplica:
    """Running replica that is missing from the state. `deployment` is empty for a manually written ModelReplica."""

    cluster: str
    namespace: str
    name: str
    deployment: str
    serving: bool
    reason: str = ""

    def __str__(self) -> str:
        owner = f"deployment {self.deployment}" if self.deployment else "without a deployment"
        state = "serving" if self.serving else "not serving"
        reason = f": {self.reason}" if self.reason else ""
        return f"cluster {self.cluster}, namespace {self.namespace}, replica {self.name}, {owner}, {state}{reason}"


@dataclass(frozen=True)
class Recovery:
    """The ModelReplicas and ModelEndpoints of the last run.

    adopted: replicas that were missing from the state and are adopted.
    refused: replicas that cannot be adopted.
    newer: clusters that are newer than the state.
    unread: unobserved clusters that might be newer than the state.
    """

    existing: Sequence[api.Resource]
    adopted: tuple[UnknownReplica, ...] = ()
    refused: tuple[UnknownReplica, ...] = ()
    newer: frozenset[str] = frozenset()
    unread: tuple[str, ...] = ()

    def adopted_lines(self) -> list[str]:
        """Return a heading and a line for each adopted replica; none if no replica was adopted."""
        if not self.adopted:
            return []
        return [
            f"the state of the fleet was lost or is outdated: adopted {count(len(self.adopted), 'replica')} from "
            "clusters, with the last applied specification",
            *first_lines(list(map(str, self.adopted)), _MOST_LINES, "and {} more"),
        ]

    def problem(self, home: str) -> str:
        """Return the refused replicas and unobserved clusters with a fix; empty if there are none. `home`: location of
        the state, for messages."""
        lines = []
        if self.refused:
            replicas, verb = count(len(self.refused), "replica"), "is" if len(self.refused) == 1 else "are"
            lines.append(f"clusters run {replicas} of this fleet that {verb} missing from {home}:")
            lines += first_lines([f"- {replica}" for replica in self.refused], _MOST_LINES, "- and {} more")
        if self.unread:
            newer = f" ({some(sorted(self.newer))} ran newer replicas)" if self.newer else ""
            verb = "was" if len(self.unread) == 1 else "were"
            lines.append(f"{home} was lost or is outdated{newer}, and {some(self.unread)} {verb} not observed")
        if lines:
            lines.append(
                f"Nothing was changed. Restore {home} from a backup or from Git"
                + (", add the manifests of these deployments" if self.refused else "")
                + (", run again without --limit when all clusters are reachable" if self.unread else "")
                + ", or set fleet_remove_unknown to true to remove replicas that are missing from the state"
            )
        return "\n".join(lines)


@dataclass
class _Result:
    replicas: list[api.ModelReplica] = field(default_factory=list)
    adopted: list[UnknownReplica] = field(default_factory=list)
    refused: list[UnknownReplica] = field(default_factory=list)
    dropped: set[tuple[str, str]] = field(default_factory=set)


def recover(
    existing: Sequence[api.Resource],
    history: History,
    observed: Observed | None,
    resources: Iterable[api.Resource],
    invalid: Collection[Ref] = (),
) -> Recovery:
    """Return the ModelReplicas of the last run, from the state (`existing`) and from observed clusters.

    `resources`, `invalid`: valid and invalid resources of the manifests."""
    if observed is None:
        return Recovery(existing)
    manifests = {*(resource.ref for resource in resources), *invalid}
    by_cluster: dict[str, dict[tuple[str, str], api.ModelReplica]] = {}
    for resource in existing:
        if isinstance(resource, api.ModelReplica):
            replicas = by_cluster.setdefault(resource.spec.cluster_name, {})
            replicas[resource.namespace, resource.name] = resource
    clusters = {
        name: cluster for name, cluster in observed.clusters.items() if not (cluster.unreachable or cluster.declared)
    }
    unknown = {name for name, cluster in clusters.items() if _is_unknown(cluster.applied, history.get(name, ()))}
    newer = {name for name in unknown if _has_other_replicas(clusters[name], by_cluster.get(name, {}))}
    result = _Result()
    for name, cluster in sorted(clusters.items()):
        if cluster.applied is not None and not cluster.applied.digest:
            result.refused += _unrecorded_replicas(name, cluster, by_cluster.get(name, {}), manifests)
        elif newer and name in unknown:
            _adopt(result, name, cluster, by_cluster.get(name, {}), manifests)
    unread: tuple[str, ...] = ()
    if newer:
        members = {ref.name for ref in manifests if ref.kind == api.InferenceCluster.KIND}
        unread = tuple(sorted(members - clusters.keys()))
    retained = [
        resource
        for resource in existing
        if not isinstance(resource, api.ModelReplica) or (resource.namespace, resource.name) not in result.dropped
    ]
    return Recovery(
        [*retained, *result.replicas], tuple(result.adopted), tuple(result.refused), frozenset(newer), unread
    )


def _is_unknown(applied: AppliedReplicas | None, history: Sequence[str]) -> bool:
    return applied is not None and bool(applied.digest) and applied.digest not in history


def _has_other_replicas(cluster: ObservedCluster, recorded: Mapping[tuple[str, str], api.ModelReplica]) -> bool:
    """Return True if the last applied replicas of a cluster differ from the replicas in the state."""
    applied = cluster.applied.replicas if cluster.applied else ()
    return bool(applied) and replicas_digest(applied) != replicas_digest(map(_written, recorded.values()))


def _unrecorded_replicas(
    name: str,
    cluster: ObservedCluster,
    recorded: Mapping[tuple[str, str], api.ModelReplica],
    manifests: Collection[Ref],
) -> list[UnknownReplica]:
    """Return the running replicas of a cluster without stored ModelReplicas that are missing from the state."""
    expected = {_labels(*key) for key in recorded}
    expected |= {_labels(ref.namespace, ref.name) for ref in manifests if ref.kind == api.ModelReplica.KIND}
    return [
        UnknownReplica(name, *_names_of(workload), serving, "the cluster stores no ModelReplicas")
        for key, (workload, serving) in sorted(_running_replicas(cluster).items())
        if key not in expected
    ]


def _adopt(
    result: _Result,
    name: str,
    cluster: ObservedCluster,
    recorded: Mapping[tuple[str, str], api.ModelReplica],
    manifests: Collection[Ref],
) -> None:
    """Adopt the running ModelReplicas of a cluster that is newer than the state."""
    running = _running_replicas(cluster)
    stored = _stored_replicas(cluster)
    applied = {_labels(replica.namespace, replica.name) for replica in stored}
    result.refused += [
        UnknownReplica(name, *_names_of(workload), serving, "its stored ModelReplica is invalid")
        for key, (workload, serving) in sorted(running.items())
        if key not in applied and key in _invalid_replicas(cluster)
    ]
    result.dropped |= {key for key in recorded if _labels(*key) not in applied and _labels(*key) not in running}
    for replica in stored:
        labels = _labels(replica.namespace, replica.name)
        deployment = replica.labels.get(names.DEPLOYMENT_LABEL, "")
        if labels not in running or (not deployment and replica.ref in manifests):
            continue
        unknown = UnknownReplica(name, replica.namespace, replica.name, deployment, running[labels][1])
        if (replica.namespace, replica.name) in recorded:
            result.dropped.add((replica.namespace, replica.name))
            result.replicas.append(replica)
        elif _is_declared(replica, manifests):
            result.replicas.append(replica)
            result.adopted.append(unknown)
        else:
            missing = "deployment is missing from the manifests and from the state"
            reason = f"its {missing}" if deployment else "it has no manifest"
            result.refused.append(replace(unknown, reason=reason))


def _stored_replicas(cluster: ObservedCluster) -> list[api.ModelReplica]:
    """Return the valid ModelReplicas that a cluster stores."""
    replicas = []
    for value in cluster.applied.replicas if cluster.applied else ():
        with contextlib.suppress(api.InvalidResource):
            resource = api.parse(value)
            replicas += [resource] if isinstance(resource, api.ModelReplica) else []
    return replicas


def _invalid_replicas(cluster: ObservedCluster) -> set[tuple[str, str]]:
    """Return the labels of the invalid ModelReplicas that a cluster stores."""
    valid = {(replica.namespace, replica.name) for replica in _stored_replicas(cluster)}
    values = cluster.applied.replicas if cluster.applied else ()
    keys = {(text(seen, "metadata", "namespace"), text(seen, "metadata", "name")) for seen in values}
    return {_labels(*key) for key in keys - valid}


def _is_declared(replica: api.ModelReplica, manifests: Collection[Ref]) -> bool:
    """Return True if the manifests contain the deployment of a replica."""
    deployment = replica.labels.get(names.DEPLOYMENT_LABEL)
    return any(
        ref.kind == api.ModelDeployment.KIND
        and ref.namespace == replica.namespace
        and names.label_value(ref.name) == deployment
        for ref in manifests
    )


def _written(replica: api.ModelReplica) -> Object:
    return api.wire(replica, set_only=True)


def _running_replicas(cluster: ObservedCluster) -> dict[tuple[str, str], tuple[Object, bool]]:
    """Return the running replicas of a cluster by namespace label and name label.

    A value is a workload of the replica, and True if all workloads of the replica serve.
    """
    running: dict[tuple[str, str], tuple[Object, bool]] = {}
    for workload in cluster.objects:
        labels = fields(workload, "metadata", "labels")
        if workload["kind"] not in WORKLOADS or names.REPLICA_LABEL not in labels:
            continue
        key = (text(labels, names.NAMESPACE_LABEL), text(labels, names.REPLICA_LABEL))
        __, serving = running.get(key, (workload, True))
        running[key] = workload, serving and availability(workload, workload).available
    return running


def _names_of(workload: Object) -> tuple[str, str, str]:
    """Return the namespace, the replica and the deployment in the labels of a workload."""
    labels = fields(workload, "metadata", "labels")
    return (
        text(labels, names.NAMESPACE_LABEL),
        text(labels, names.REPLICA_LABEL),
        text(labels, names.DEPLOYMENT_LABEL),
    )


def _labels(namespace: str, name: str) -> tuple[str, str]:
    return names.label_value(namespace), names.label_value(name)


def replicas_of(objects: Iterable[Object]) -> dict[str, list[Object]]:
    """Return the ModelReplicas among objects of the control cluster, by inference cluster."""
    replicas: dict[str, list[Object]] = {}
    for seen in objects:
        if text(seen, "kind") == api.ModelReplica.KIND:
            replicas.setdefault(text(seen, "spec", "clusterName"), []).append(seen)
    return replicas


def replicas_digest(replicas: Iterable[Object]) -> str:
    """Return the digest of the ModelReplicas of a cluster, without their labels and annotations."""
    lines = sorted(
        json.dumps(
            [text(seen, "metadata", "namespace"), text(seen, "metadata", "name"), seen["spec"]],
            sort_keys=True,
            separators=(",", ":"),
        )
        for seen in replicas
    )
    return sha256("\n".join(lines).encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_DIGITS]


def next_history(
    history: History, observed: Observed | None, objects: Iterable[Object], clusters: Iterable[str]
) -> dict[str, list[str]]:
    """Return the history of each cluster with the digest of this plan. `objects`: objects of the control cluster."""
    planned = replicas_of(objects)
    result: dict[str, list[str]] = {}
    for name in sorted(clusters):
        cluster = observed.clusters.get(name) if observed else None
        applied = cluster.applied.digest if cluster and cluster.applied else ""
        digests = list(history.get(name, ()))
        if applied and applied not in digests:
            digests = [applied]
        digest = replicas_digest(planned.get(name, ()))
        if not digests and not planned.get(name):
            continue
        if digests and digests[-1] == digest:
            result[name] = digests
            continue
        if applied:
            digests = digests[digests.index(applied) :]
        result[name] = [*digests, digest][-_MOST_DIGESTS:]
    return result


def replica_counts(existing: Iterable[api.Resource]) -> Counter[tuple[str, str]]:
    """Return the number of replicas of each deployment, by namespace and the label of its name."""
    return Counter(
        (resource.namespace, resource.labels[names.DEPLOYMENT_LABEL])
        for resource in existing
        if isinstance(resource, api.ModelReplica) and names.DEPLOYMENT_LABEL in resource.labels
    )
