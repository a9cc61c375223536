# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Recovery of the ModelReplicas of the last run where the state of the fleet was lost, or is older than its clusters.

Each workload cluster keeps the ModelReplicas that were last applied there, with their digest. The state of the fleet
has, for each cluster, the digests of what runs planned for it, oldest first, from the one that was last observed there:
its history. A cluster whose digest is in the history was applied by a run that the state knows, so whatever else runs
there was removed on purpose. A cluster with another digest is newer than the state: its ModelReplicas are those of the
last run.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256

from ansible_collections.modelplane.fleet.plugins.module_utils.core import api, names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.workload_cluster import WORKLOADS
from ansible_collections.modelplane.fleet.plugins.module_utils.core.observation import (
    AppliedReplicas,
    Observed,
    ObservedCluster,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.problem import Ref
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.workloads import availability
from ansible_collections.modelplane.fleet.plugins.module_utils.core.text import count, first_lines, some
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object, fields, text

History = Mapping[str, Sequence[str]]
"""Digests of the ModelReplicas that runs planned for each workload cluster, oldest first."""

_MOST_LINES = 20
_DIGEST_DIGITS = 20
# Runs that do not observe a cluster never learn what was applied there. Forgetting a digest is safe: what a cluster
# has is then taken for newer, and stays.
_MOST_DIGESTS = 50


@dataclass(frozen=True, order=True)
class UnknownReplica:
    """Replica that runs on a cluster and is unknown to the state. `deployment` is empty for a hand-written one."""

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

    `adopted` are replicas that only clusters knew, `refused` those that cannot be adopted. `newer` are the clusters
    that are newer than the state; `unread` those that might be, as they were not observed."""

    existing: Sequence[api.Resource]
    adopted: tuple[UnknownReplica, ...] = ()
    refused: tuple[UnknownReplica, ...] = ()
    newer: frozenset[str] = frozenset()
    unread: tuple[str, ...] = ()

    def adopted_lines(self) -> list[str]:
        """Return a line for each adopted replica, below a heading; none if no replica was adopted."""
        if not self.adopted:
            return []
        found = count(len(self.adopted), "replica")
        return [
            f"the state of the fleet was lost or is old: {found} found on clusters and adopted, as the last run "
            "applied them there",
            *first_lines(list(map(str, self.adopted)), _MOST_LINES, "and {} more"),
        ]

    def problem(self, home: str) -> str:
        """Return what is not known, and how to continue; empty if everything is known. `home`: the place of the state,
        for people."""
        lines = []
        if self.refused:
            found = count(len(self.refused), "replica")
            lines.append(f"clusters run {found} of this fleet that {home} does not know:")
            lines += first_lines([f"- {each}" for each in self.refused], _MOST_LINES, "- and {} more")
        if self.unread:
            why = f" ({some(sorted(self.newer))} ran something newer)" if self.newer else ""
            lines.append(
                f"{home} was lost or is old{why}, and it is unknown what runs on {some(self.unread)}, which "
                f"{'was' if len(self.unread) == 1 else 'were'} not observed"
            )
        if lines:
            lines.append(
                f"Nothing was changed. Restore {home} from a backup or from Git"
                + (", give the manifests of these deployments" if self.refused else "")
                + (", run again when all clusters answer, without --limit" if self.unread else "")
                + ", or set fleet_remove_unknown to true to remove what is unknown"
            )
        return "\n".join(lines)


@dataclass
class _Found:
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
    """Return the ModelReplicas of the last run, of the state (`existing`) and of observed clusters.

    `resources` and the `invalid` ones are those of the manifests."""
    if observed is None:
        return Recovery(existing)
    manifests = {*(each.ref for each in resources), *invalid}
    before: dict[str, dict[tuple[str, str], api.ModelReplica]] = {}
    for each in existing:
        if isinstance(each, api.ModelReplica):
            before.setdefault(each.spec.cluster_name, {})[each.namespace, each.name] = each
    answered = {name: each for name, each in observed.clusters.items() if not (each.unreachable or each.declared)}
    unknown = {name for name, each in answered.items() if _is_unknown(each.applied, history.get(name, ()))}
    newer = {name for name in unknown if _has_other_replicas(answered[name], before.get(name, {}))}
    found = _Found()
    for name, cluster in sorted(answered.items()):
        if cluster.applied is not None and not cluster.applied.digest:
            found.refused += _unrecorded(name, cluster, before.get(name, {}), manifests)
        elif newer and name in unknown:
            _adopt(found, name, cluster, before.get(name, {}), manifests)
    unread: tuple[str, ...] = ()
    if newer:
        known = {ref.name for ref in manifests if ref.kind == api.InferenceCluster.KIND}
        unread = tuple(sorted(known - answered.keys()))
    kept = [
        each
        for each in existing
        if not isinstance(each, api.ModelReplica) or (each.namespace, each.name) not in found.dropped
    ]
    return Recovery([*kept, *found.replicas], tuple(found.adopted), tuple(found.refused), frozenset(newer), unread)


def _is_unknown(applied: AppliedReplicas | None, history: Sequence[str]) -> bool:
    return applied is not None and bool(applied.digest) and applied.digest not in history


def _has_other_replicas(cluster: ObservedCluster, before: Mapping[tuple[str, str], api.ModelReplica]) -> bool:
    """Return whether a cluster was last applied with replicas, and these are not those of the state."""
    applied = cluster.applied.replicas if cluster.applied else ()
    return bool(applied) and replicas_digest(applied) != replicas_digest(map(_written, before.values()))


def _unrecorded(
    name: str,
    cluster: ObservedCluster,
    before: Mapping[tuple[str, str], api.ModelReplica],
    manifests: Collection[Ref],
) -> list[UnknownReplica]:
    """Return the replicas that run on a cluster without a record of its replicas, and that the state does not know."""
    known = {_labels(*key) for key in before}
    known |= {_labels(ref.namespace, ref.name) for ref in manifests if ref.kind == api.ModelReplica.KIND}
    return [
        UnknownReplica(name, *_named(workload), serving, "the cluster has no record of its replicas")
        for key, (workload, serving) in sorted(_running(cluster).items())
        if key not in known
    ]


def _adopt(
    found: _Found,
    name: str,
    cluster: ObservedCluster,
    before: Mapping[tuple[str, str], api.ModelReplica],
    manifests: Collection[Ref],
) -> None:
    """Take over the ModelReplicas of a cluster that is newer than the state, as far as they run."""
    running = _running(cluster)
    recorded = _recorded(cluster)
    applied = {_labels(each.namespace, each.name) for each in recorded}
    found.refused += [
        UnknownReplica(name, *_named(workload), serving, "its record cannot be read")
        for key, (workload, serving) in sorted(running.items())
        if key not in applied and key in _unreadable(cluster)
    ]
    found.dropped |= {key for key in before if _labels(*key) not in applied and _labels(*key) not in running}
    for each in recorded:
        labels = _labels(each.namespace, each.name)
        deployment = each.labels.get(names.DEPLOYMENT_LABEL, "")
        if labels not in running or (not deployment and each.ref in manifests):
            continue
        unknown = UnknownReplica(name, each.namespace, each.name, deployment, running[labels][1])
        if (each.namespace, each.name) in before:
            found.dropped.add((each.namespace, each.name))
            found.replicas.append(each)
        elif _is_declared(each, manifests):
            found.replicas.append(each)
            found.adopted.append(unknown)
        else:
            why = "neither the manifests nor the state have its deployment" if deployment else "it has no manifest"
            found.refused.append(replace(unknown, reason=why))


def _recorded(cluster: ObservedCluster) -> list[api.ModelReplica]:
    """Return the ModelReplicas of a cluster's record that are valid."""
    found = []
    for value in cluster.applied.replicas if cluster.applied else ():
        with contextlib.suppress(api.InvalidResource):
            resource = api.parse(value)
            found += [resource] if isinstance(resource, api.ModelReplica) else []
    return found


def _unreadable(cluster: ObservedCluster) -> set[tuple[str, str]]:
    """Return the labels of the objects in a cluster's record that are no valid ModelReplicas."""
    valid = {(each.namespace, each.name) for each in _recorded(cluster)}
    values = cluster.applied.replicas if cluster.applied else ()
    keys = {(text(seen, "metadata", "namespace"), text(seen, "metadata", "name")) for seen in values}
    return {_labels(*key) for key in keys - valid}


def _is_declared(replica: api.ModelReplica, manifests: Collection[Ref]) -> bool:
    """Return whether the manifests have the deployment of a replica."""
    deployment = replica.labels.get(names.DEPLOYMENT_LABEL)
    return any(
        ref.kind == api.ModelDeployment.KIND
        and ref.namespace == replica.namespace
        and names.label_value(ref.name) == deployment
        for ref in manifests
    )


def _written(replica: api.ModelReplica) -> Object:
    return api.wire(replica, set_only=True)


def _running(cluster: ObservedCluster) -> dict[tuple[str, str], tuple[Object, bool]]:
    """Return a workload of each replica that runs on a cluster, and whether all of them serve, by the labels of its
    namespace and its name."""
    running: dict[tuple[str, str], tuple[Object, bool]] = {}
    for workload in cluster.objects:
        labels = fields(workload, "metadata", "labels")
        if workload["kind"] not in WORKLOADS or names.REPLICA_LABEL not in labels:
            continue
        key = (text(labels, names.NAMESPACE_LABEL), text(labels, names.REPLICA_LABEL))
        __, serving = running.get(key, (workload, True))
        running[key] = workload, serving and availability(workload, workload).available
    return running


def _named(workload: Object) -> tuple[str, str, str]:
    """Return the namespace, the replica and the deployment of a workload, as its labels name them."""
    labels = fields(workload, "metadata", "labels")
    return (
        text(labels, names.NAMESPACE_LABEL),
        text(labels, names.REPLICA_LABEL),
        text(labels, names.DEPLOYMENT_LABEL),
    )


def _labels(namespace: str, name: str) -> tuple[str, str]:
    return names.label_value(namespace), names.label_value(name)


def replicas_of(objects: Iterable[Object]) -> dict[str, list[Object]]:
    """Return the ModelReplicas among objects of the control cluster, by workload cluster."""
    found: dict[str, list[Object]] = {}
    for seen in objects:
        if text(seen, "kind") == api.ModelReplica.KIND:
            found.setdefault(text(seen, "spec", "clusterName"), []).append(seen)
    return found


def replicas_digest(replicas: Iterable[Object]) -> str:
    """Return the digest of the ModelReplicas of a cluster, without their labels and annotations."""
    found = sorted(
        json.dumps(
            [text(seen, "metadata", "namespace"), text(seen, "metadata", "name"), seen["spec"]],
            sort_keys=True,
            separators=(",", ":"),
        )
        for seen in replicas
    )
    return sha256("\n".join(found).encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_DIGITS]


def next_history(
    history: History, observed: Observed | None, objects: Iterable[Object], clusters: Iterable[str]
) -> dict[str, list[str]]:
    """Return the history of each cluster with what this run plans for it, among `objects` of the control cluster."""
    planned = replicas_of(objects)
    found: dict[str, list[str]] = {}
    for name in sorted(clusters):
        cluster = observed.clusters.get(name) if observed else None
        applied = cluster.applied.digest if cluster and cluster.applied else ""
        before = list(history.get(name, ()))
        if applied and applied not in before:
            before = [applied]
        new = replicas_digest(planned.get(name, ()))
        if not before and not planned.get(name):
            continue
        if before and before[-1] == new:
            found[name] = before
            continue
        if applied:
            before = before[before.index(applied) :]
        found[name] = [*before, new][-_MOST_DIGESTS:]
    return found


def replica_counts(existing: Iterable[api.Resource]) -> Counter[tuple[str, str]]:
    """Return the number of replicas of each deployment, by namespace and the label of its name."""
    return Counter(
        (each.namespace, each.labels[names.DEPLOYMENT_LABEL])
        for each in existing
        if isinstance(each, api.ModelReplica) and names.DEPLOYMENT_LABEL in each.labels
    )
