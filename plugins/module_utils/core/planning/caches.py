# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Caches on clusters: the clusters of each ModelCache, its progress there, and its objects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field

from .. import api, names
from ..cloud.volume_sizes import of_class
from ..compose.cache import (
    SecretCopy,
    artifact,
    cache_objects,
    claim_name,
    job_claim,
    job_name,
    token_copy,
    token_copy_of,
)
from ..problem import Problem
from ..status.model_cache import CachePhase, PhaseName, lacked_token
from ..text import joined, listed
from ..wire import Object, identity, is_true
from .context import Context
from .fleet import Key
from .volumes import Claim, Volumes, current, previous


@dataclass(frozen=True)
class Phase:
    """Progress on a cluster: Pending, Hydrating, Ready or Failed, or "" when the cluster is not observed."""

    cluster: str
    phase: PhaseName
    artifact: str = ""
    message: str = ""


@dataclass(frozen=True)
class Staged:
    """ModelCache on its clusters.

    `phases`: the phases of the clusters that its selector matches.
    `leaving`: the phases of other clusters with replicas that still mount the cache.
    `objects`: objects by cluster.
    `copies`: values of Secrets that its Jobs need, by cluster.
    `warnings`: warnings about edits of its manifest that cannot be applied to existing volumes.
    """

    namespace: str
    name: str
    artifact: str
    phases: tuple[Phase, ...] = ()
    leaving: tuple[Phase, ...] = ()
    objects: Mapping[str, tuple[Object, ...]] = field(default_factory=dict)
    copies: Mapping[str, SecretCopy] = field(default_factory=dict)
    token_missing: bool = False
    warnings: tuple[Problem, ...] = ()


@dataclass
class _Mounts:
    """Current and former mounts of a cache."""

    claims: dict[str, set[str]] = field(default_factory=dict)
    """Claims that replicas mount now or mounted before, by cluster."""
    current_clusters: set[str] = field(default_factory=set)
    """Clusters with a replica that mounts a claim now."""


def stage(
    volumes: Volumes, clusters: Mapping[str, api.InferenceCluster], replicas: Iterable[api.ModelReplica]
) -> tuple[Staged, ...]:
    """Return every cache of the fleet.

    If the selector no longer matches a cluster, the cache remains on the cluster and completes its download while a
    replica mounts it. The same applies to a cache with a deleted manifest. A cache with manifest errors is left
    unchanged.

    `clusters`: the known clusters.
    `replicas`: all composed ModelReplicas.
    """
    context = volumes.context
    mounts: dict[Key, _Mounts] = {}
    for replica in replicas:
        cluster = replica.spec.cluster_name
        for volume, is_current in ((current(replica), True), (previous(replica), False)):
            if volume:
                entry = mounts.setdefault(volume.cache, _Mounts())
                entry.claims.setdefault(cluster, set()).add(volume.claim)
                entry.current_clusters |= {cluster} if is_current else set()
    staged_caches = [
        _Stage(volumes, cache, mounts.get(key, _Mounts())).on(clusters) for key, cache in context.fleet.caches.items()
    ]
    held_caches = {(ref.namespace, ref.name) for ref in context.fleet.held if ref.kind == "ModelCache"}
    for key in (set(mounts) | held_caches) - set(context.fleet.caches):
        objects: dict[str, tuple[Object, ...]] = {}
        for cluster_name in sorted(volumes.clusters(key)):
            claims = mounts.get(key, _Mounts()).claims.get(cluster_name, set())
            objects[cluster_name] = (
                tuple(volumes.earlier(key, cluster_name))
                if key in held_caches
                else _kept(volumes, key, cluster_name, claims)
            )
        staged_caches.append(Staged(*key, "", objects=objects, copies=_copies(key, objects)))
    return tuple(sorted(staged_caches, key=lambda staged: (staged.namespace, staged.name)))


def _kept(volumes: Volumes, cache: Key, cluster: str, claims: Set[str]) -> tuple[Object, ...]:
    """Return these claims from earlier runs, and the Jobs that fill them until the Jobs have completed."""
    observed = volumes.context.observed_cluster(cluster)
    kept_objects = []
    for value in volumes.earlier(cache, cluster):
        if value["kind"] == "PersistentVolumeClaim" and value["metadata"]["name"] in claims:
            kept_objects.append(value)
        elif value["kind"] == "Job" and job_claim(value) in claims:
            done = observed is not None and is_true(observed.objects.like(value), "Complete")
            kept_objects += [] if done else [value]
    return tuple(kept_objects)


def _copies(cache: Key, objects: Mapping[str, Iterable[Object]]) -> dict[str, SecretCopy]:
    """Return the tokens of these hydration Jobs, by cluster."""
    token_copies = {}
    for cluster, values in objects.items():
        for value in values:
            copy = token_copy_of(value, cache[0]) if value["kind"] == "Job" else None
            if copy:
                token_copies[cluster] = copy
    return token_copies


class _Stage:
    """Builder of the `Staged` of one ModelCache on all clusters."""

    def __init__(self, volumes: Volumes, cache: api.ModelCache, mounts: _Mounts) -> None:
        self._volumes = volumes
        self._context = volumes.context
        self._cache = cache
        self._key = (cache.namespace, cache.name)
        self._mounts = mounts
        self._copy = token_copy(cache)
        self._token_missing = _token_missing(self._context, cache, self._copy)
        self._smaller: dict[int, list[str]] = {}
        self._moved: dict[str, list[str]] = {}
        self._larger: dict[tuple[int, str], list[str]] = {}

    def on(self, clusters: Mapping[str, api.InferenceCluster]) -> Staged:
        phases: list[Phase] = []
        leaving: list[Phase] = []
        objects: dict[str, tuple[Object, ...]] = {}
        copies: dict[str, SecretCopy] = {}
        for name, cluster in sorted(clusters.items()):
            selected = bool(self._volumes.storage_class(name)) and _selected(self._cache, cluster)
            mounted = self._mounts.claims.get(name, set())
            if not selected and not mounted:
                continue
            built: tuple[Object, ...] = ()
            if selected or name in self._mounts.current_clusters:
                phase, built = self._desired(name)
                (phases if selected else leaving).append(phase)
                if self._copy and any(value["kind"] == "Job" for value in built):
                    copies[name] = self._copy
            unbuilt_claims = mounted - {value["metadata"]["name"] for value in built}
            kept_objects = _kept(self._volumes, self._key, name, unbuilt_claims)
            objects[name] = (*built, *kept_objects)
            copies = {**_copies(self._key, {name: kept_objects}), **copies}
        for name in sorted({ref.name for ref in self._context.fleet.held if ref.kind == "InferenceCluster"}):
            if kept_objects := tuple(self._volumes.earlier(self._key, name)):
                objects[name] = kept_objects
                copies.update(_copies(self._key, {name: kept_objects}))
        return Staged(
            *self._key,
            artifact(self._cache),
            tuple(phases),
            tuple(leaving),
            objects,
            copies,
            self._token_missing,
            tuple(self._warnings()),
        )

    def _desired(self, cluster: str) -> tuple[Phase, tuple[Object, ...]]:
        """Return the progress of the desired artifact on a cluster, and its objects."""
        volume = self._volumes.desired(self._cache, cluster)
        name = claim_name(*self._key, volume)
        actual = self._volumes.claims(self._key, cluster).get(name, Claim())
        kind = self._volumes.storage_class(cluster)
        progress = self._volumes.phase(self._cache, cluster)
        notes = []
        if actual.size_gib > self._desired_gib:
            self._smaller.setdefault(actual.size_gib, []).append(cluster)
            notes.append(f"the volume stays at {actual.size_gib} GiB, as volumes cannot shrink")
        if actual.storage_class and actual.storage_class != kind:
            self._moved.setdefault(actual.storage_class, []).append(cluster)
            notes.append(f"the volume stays in StorageClass {actual.storage_class}")
        self._note_least_size(cluster, actual, actual.storage_class or kind)
        phase = Phase(
            cluster, progress.phase, progress.artifact, joined(self._lacks(progress), progress.message, *notes)
        )
        if not (actual.storage_class or kind):
            return phase, ()
        objects = cache_objects(
            self._cache,
            actual.storage_class or kind,
            hydrate=progress.phase != "Ready" and not self._token_missing,
            settled=self._is_settled(cluster, volume),
            options=self._context.composing,
            volume=volume,
            least_gib=actual.size_gib,
        )
        return phase, objects

    def _note_least_size(self, cluster: str, actual: Claim, storage_class: str) -> None:
        """Note that the volume on a cluster is larger than the claim: as observed, else by its StorageClass."""
        class_minimum = of_class(storage_class)
        size = actual.volume_gib or (class_minimum.gib if class_minimum else 0)
        if size > max(self._desired_gib, actual.size_gib):
            storage = f"StorageClass {storage_class}{f', {class_minimum.storage}' if class_minimum else ''}"
            self._larger.setdefault((size, storage), []).append(cluster)

    def _lacks(self, progress: CachePhase) -> str:
        """Return that the token of a download does not exist, "" if it exists or is not needed."""
        if self._copy is None or not self._token_missing or progress.phase == "Ready":
            return ""
        secret = f"{self._copy.source_namespace}/{self._copy.source_name}"
        return f"authSecret {secret} is missing or has no key '{self._copy.source_key}'"

    def _is_settled(self, cluster: str, volume: str) -> bool:
        """Return True if runs observe the Job of a volume, or if an earlier run composed the Job on an unobserved
        cluster."""
        if not self._context.declared(cluster):
            return True
        job = ("batch", "Job", names.workload_namespace(self._key[0]), job_name(*self._key, volume))
        earlier_objects = map(identity, self._volumes.earlier(self._key, cluster))
        return not self._context.is_file(cluster) and job in earlier_objects

    @property
    def _desired_gib(self) -> int:
        source = self._cache.spec.hugging_face
        return source.size_gib if source else 0

    def _warnings(self) -> Iterator[Problem]:
        for size, clusters in sorted(self._smaller.items()):
            yield Problem(
                f"the volume on {listed(clusters)} keeps its size of {size} GiB, as Kubernetes cannot shrink volumes",
                path="spec.huggingFace.sizeGiB",
                value=str(self._desired_gib),
                hint=f"Set it to {size} or more; for a smaller volume create another ModelCache and refer to that",
                severity="warning",
                ref=self._cache.ref,
            )
        for (size, storage), clusters in sorted(self._larger.items()):
            yield Problem(
                f"the volume on {listed(clusters)} has {size} GiB, because its storage creates no smaller one, and "
                f"costs as much ({storage})",
                path="spec.huggingFace.sizeGiB",
                value=str(self._desired_gib),
                hint="Put weights that are used together into one repository, or use storage with smaller volumes",
                severity="warning",
                ref=self._cache.ref,
            )
        for kind, clusters in sorted(self._moved.items()):
            current_classes = sorted({self._volumes.storage_class(cluster) or "none" for cluster in clusters})
            yield Problem(
                f"the volume on {listed(clusters)} stays in StorageClass {kind}, as Kubernetes cannot move volumes; "
                f"the cluster's is {', '.join(current_classes)}",
                hint="To move the weights create another ModelCache and refer to that",
                severity="warning",
                ref=self._cache.ref,
            )


def _selected(cache: api.ModelCache, cluster: api.InferenceCluster) -> bool:
    selected = (cache.spec.cluster_selector.match_labels or {}) if cache.spec.cluster_selector else {}
    return selected.items() <= names.all_labels(cluster).items()


def _token_missing(context: Context, cache: api.ModelCache, copy: SecretCopy | None) -> bool:
    if copy is None:
        return False
    if context.observed is None:
        return lacked_token(context.statuses.get(cache.ref))
    return context.observed.lacks(copy.source_namespace, copy.source_name, copy.source_key)
