# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Volumes of a ModelCache on a cluster, and the choice of the one for the desired artifact.

A volume holds one artifact for its whole life, because engines read from it. An edit of the artifact creates another
volume, and the previous volume remains while a replica mounts it. The first volume of a cache on a cluster has the
documented names. The names of other volumes contain a digest of their artifact.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from .. import api, names
from ..api.model_replica import MountedCache, PreviousVolume
from ..compose.cache import ARTIFACT_ANNOTATION, artifact, claim_name, job_name, volume_id
from ..compose.cluster import storage_class
from ..devices.quantity import Quantity, QuantityError
from ..problem import Ref
from ..status.conditions import declared_message
from ..status.model_cache import CachePhase, cache_phase
from ..wire import Object, entries, text
from .context import Context
from .fleet import Key

_CLAIM = "PersistentVolumeClaim"
_GIBIBYTE = 2**30
_JOB_LABEL = "batch.kubernetes.io/job-name"
_MOUNTING = ("Pod", "Deployment", "ReplicaSet", "StatefulSet", "LeaderWorkerSet")


@dataclass(frozen=True)
class Claim:
    """Known fields of an existing claim: "" and 0 for unknown values.

    `size_gib`: the requested size.
    `volume_gib`: the size of the bound volume.
    """

    artifact: str = ""
    storage_class: str = ""
    size_gib: int = 0
    volume_gib: int = 0


@dataclass(frozen=True)
class Mounted:
    """Volume of a replica (`spec.modelCacheRef` or its `previous`): its ModelCache and its claim."""

    cache: Key
    claim: str


def current(replica: api.ModelReplica) -> Mounted | None:
    """Return the volume that the pods of a ModelReplica mount."""
    return _mounted(replica, replica.spec.model_cache_ref)


def previous(replica: api.ModelReplica) -> Mounted | None:
    """Return the volume that the pods of a ModelReplica mounted before."""
    reference = replica.spec.model_cache_ref
    return _mounted(replica, reference.previous if reference else None)


def _mounted(replica: api.ModelReplica, reference: MountedCache | PreviousVolume | None) -> Mounted | None:
    if reference is None:
        return None
    namespace = replica.namespace
    return Mounted((namespace, reference.name), claim_name(namespace, reference.name, reference.volume or ""))


@dataclass
class Volumes:
    """Volumes of all caches. Results are cached."""

    context: Context
    _earlier: dict[Key, dict[str, list[Object]]] = field(default_factory=dict)
    _mounts: dict[tuple[Key, str], set[str]] | None = None
    _classes: dict[str, str] = field(default_factory=dict)
    _claims: dict[tuple[Key, str], Mapping[str, Claim]] = field(default_factory=dict)
    _desired: dict[tuple[Key, str], str] = field(default_factory=dict)
    _phases: dict[tuple[Key, str], CachePhase] = field(default_factory=dict)

    def earlier(self, cache: Key, cluster: str) -> Sequence[Object]:
        """Return the objects that earlier runs composed for a cache on a cluster."""
        if cache not in self._earlier:
            objects: dict[str, list[Object]] = {}
            for object_cluster, value in self.context.earlier(Ref("ModelCache", *cache)):
                objects.setdefault(object_cluster, []).append(value)
            self._earlier[cache] = objects
        return self._earlier[cache].get(cluster, ())

    def clusters(self, cache: Key) -> frozenset[str]:
        """Return the clusters with objects of a cache from earlier runs."""
        self.earlier(cache, "")
        return frozenset(self._earlier[cache])

    def storage_class(self, cluster: str) -> str:
        """Return the StorageClass of a cluster for caches, "" for none."""
        if cluster not in self._classes:
            inference_cluster = self.context.fleet.clusters.get(cluster)
            self._classes[cluster] = storage_class(inference_cluster) if inference_cluster else ""
        return self._classes[cluster]

    def claims(self, cache: Key, cluster: str) -> Mapping[str, Claim]:
        """Return the known claims of a cache on a cluster, by name: composed, observed, or mounted by replicas."""
        if (cache, cluster) not in self._claims:
            claims = dict.fromkeys(self._mounted_on(cache, cluster), Claim())
            for claim in (*self.earlier(cache, cluster), *self._observed(cache, cluster)):
                if claim["kind"] == _CLAIM:
                    name = text(claim, "metadata", "name")
                    claims[name] = _merged(claims.get(name, Claim()), claim)
            self._claims[cache, cluster] = claims
        return self._claims[cache, cluster]

    def desired(self, cache: api.ModelCache, cluster: str) -> str:
        """Return the ID of the volume for the desired artifact of a cache on a cluster; "" is its first volume.

        A claim without an artifact annotation is assumed to hold the desired artifact; the Job verifies that, and fails
        without changes if it holds another one.
        """
        key = (cache.namespace, cache.name)
        if (key, cluster) not in self._desired:
            self._desired[key, cluster] = _chosen(cache, key, self.claims(key, cluster))
        return self._desired[key, cluster]

    def phase(self, cache: api.ModelCache, cluster: str) -> CachePhase:
        """Return the progress of a cache on a cluster, or the last known one when the cluster is not observed. The
        phase is "" when none is known."""
        if self.context.observed is None and cache.ref not in self.context.statuses:
            return CachePhase("")
        key = (cache.namespace, cache.name)
        if (key, cluster) not in self._phases:
            volume = self.desired(cache, cluster)
            phase = cache_phase(
                cache,
                cluster,
                claim_name(*key, volume),
                job_name(*key, volume),
                self.context.observed_cluster(cluster),
                self.context.statuses.get(cache.ref),
            )
            if not phase.phase and self.context.declared(cluster):
                phase = CachePhase("", message=declared_message(cluster))
            self._phases[key, cluster] = phase
        return self._phases[key, cluster]

    def in_use(self, volume: Mounted, cluster: str) -> bool:
        """Return True when an object on a cluster mounts a volume, or may do so as the cluster was not observed."""
        observed = self.context.observed_cluster(cluster)
        if observed is None or observed.unreachable:
            return True
        namespace = names.workload_namespace(volume.cache[0])
        return any(
            volume.claim in _claim_names(value)
            for kind in _MOUNTING
            for value in observed.objects.of_kind(kind)
            if text(value, "metadata", "namespace") == namespace and not text(value, "metadata", "labels", _JOB_LABEL)
        )

    def _mounted_on(self, cache: Key, cluster: str) -> set[str]:
        """Return the claims of a cache that replicas of the last run mount on a cluster."""
        if self._mounts is None:
            self._mounts = {}
            fleet = self.context.fleet
            for replica in (*fleet.replicas.values(), *fleet.manual_before.values()):
                for volume in filter(None, (current(replica), previous(replica))):
                    mount_key = (volume.cache, replica.spec.cluster_name)
                    self._mounts.setdefault(mount_key, set()).add(volume.claim)
        return self._mounts.get((cache, cluster), set())

    def _observed(self, cache: Key, cluster: str) -> Sequence[Any]:
        observed = self.context.observed_cluster(cluster)
        if observed is None:
            return ()
        namespace, name = cache
        workloads = names.workload_namespace(namespace)
        return observed.objects.labelled(_CLAIM, workloads, names.CACHE_LABEL, names.label_value(name))


def _chosen(cache: api.ModelCache, key: Key, claims: Mapping[str, Claim]) -> str:
    digest = volume_id(cache)
    base_claim = claims.get(claim_name(*key))
    if claim_name(*key, digest) in claims:
        return digest
    return "" if not claims or (base_claim and base_claim.artifact in ("", artifact(cache))) else digest


def _merged(recorded: Claim, claim: Object) -> Claim:
    """Return the known fields of a claim, updated from an object: its fields win, the larger size is kept."""
    return Claim(
        text(claim, "metadata", "annotations", ARTIFACT_ANNOTATION) or recorded.artifact,
        text(claim, "spec", "storageClassName") or recorded.storage_class,
        max(_gib(text(claim, "spec", "resources", "requests", "storage")), recorded.size_gib),
        max(_gib(text(claim, "status", "capacity", "storage")), recorded.volume_gib),
    )


def _gib(size: str) -> int:
    """Return a quantity in GiB, rounded up; 0 without one."""
    try:
        return ceil(Quantity.parse(size).value / _GIBIBYTE) if size else 0
    except QuantityError:
        return 0


def _claim_names(value: Any) -> Iterator[str]:
    """Yield the claims that an object's pods mount, wherever its pod templates are."""
    if isinstance(value, Mapping):
        for entry in entries(value, "volumes"):
            if name := text(entry, "persistentVolumeClaim", "claimName"):
                yield name
        for below in value.values():
            yield from _claim_names(below)
    elif isinstance(value, (list, tuple)):
        for below in value:
            yield from _claim_names(below)
