# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Which clusters hold the weights of which cache, how far each is, and what that takes there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.cache import (
    SecretCopy,
    artifact,
    cache_objects,
    claim_name,
    job_name,
    token_copy,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.cluster import storage_class
from ansible_collections.modelplane.fleet.plugins.module_utils.core.problem import Ref
from ansible_collections.modelplane.fleet.plugins.module_utils.core.reconcile.fleet import Key, Object
from ansible_collections.modelplane.fleet.plugins.module_utils.core.reconcile.situation import Situation
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.model_cache import cache_phase


@dataclass(frozen=True)
class Phase:
    """How far a cluster is: Pending, Hydrating, Ready or Failed, or "" when nobody looks."""

    cluster: str
    phase: str
    artifact: str = ""
    message: str = ""


@dataclass(frozen=True)
class Staged:
    """A ModelCache on its clusters. `phases` are those of the clusters that its selector matches; `objects` and
    `copies` are by cluster, `copies` being Secrets whose values have to be brought there while it downloads."""

    namespace: str
    name: str
    artifact: str
    phases: tuple[Phase, ...] = ()
    objects: Mapping[str, tuple[Object, ...]] = field(default_factory=dict)
    copies: Mapping[str, SecretCopy] = field(default_factory=dict)
    token_missing: bool = False


def stage(
    situation: Situation, clusters: Mapping[str, api.InferenceCluster], replicas: Iterable[Object]
) -> tuple[Staged, ...]:
    """Every cache of the fleet. `clusters` are those that can be told, `replicas` all ModelReplicas that are composed.

    A cache stays on a cluster that its selector left as long as a replica there mounts it, and so does one whose
    manifest has errors or is gone.
    """
    mounted: dict[Key, set[str]] = {}
    for wire in replicas:
        reference = wire["spec"].get("modelCacheRef")
        if reference:
            key = (wire["metadata"]["namespace"], reference["name"])
            mounted.setdefault(key, set()).add(wire["spec"]["clusterName"])
    kinds = {name: storage_class(api.wire(cluster)) for name, cluster in clusters.items()}
    found = [
        _stage(situation, cache, clusters, kinds, mounted.get(key, set()))
        for key, cache in situation.fleet.caches.items()
    ]
    held = {(ref.namespace, ref.name) for ref in situation.fleet.held if ref.kind == "ModelCache"}
    for key in sorted((set(mounted) | held) - set(situation.fleet.caches)):
        kept: dict[str, tuple[Object, ...]] = {}
        for place, value in situation.earlier(Ref("ModelCache", *key)):
            if key in held or (place in mounted[key] and value["kind"] == "PersistentVolumeClaim"):
                kept[place] = (*kept.get(place, ()), value)
        found.append(Staged(*key, "", objects=kept))
    return tuple(sorted(found, key=lambda staged: (staged.namespace, staged.name)))


def _stage(
    situation: Situation,
    cache: api.ModelCache,
    clusters: Mapping[str, api.InferenceCluster],
    kinds: Mapping[str, str],
    mounted: set[str],
) -> Staged:
    wire = api.wire(cache)
    copy = token_copy(wire)
    missing = _token_missing(situation, copy)
    phases = []
    objects: dict[str, tuple[Object, ...]] = {}
    copies: dict[str, SecretCopy] = {}
    for name, cluster in sorted(clusters.items()):
        kind = kinds[name]
        selected = bool(kind) and _selected(cache, cluster)
        phase = _phase(situation, cache, wire, name)
        if selected:
            phases.append(phase)
        if not selected and name not in mounted:
            continue
        hydrate = selected and phase.phase != "Ready" and not missing
        if kind:
            objects[name] = cache_objects(
                wire, kind, hydrate=hydrate, settled=situation.observed is not None, options=situation.composing
            )
            if hydrate and copy:
                copies[name] = copy
    for name in sorted({ref.name for ref in situation.fleet.held if ref.kind == "InferenceCluster"}):
        kept = tuple(situation.kept(cache.ref, name))
        if kept:
            objects[name] = kept
    return Staged(cache.namespace, cache.name, artifact(wire), tuple(phases), objects, copies, missing)


def _selected(cache: api.ModelCache, cluster: api.InferenceCluster) -> bool:
    wanted = (cache.spec.cluster_selector.match_labels or {}) if cache.spec.cluster_selector else {}
    return all(cluster.labels.get(key) == value for key, value in wanted.items())


def _token_missing(situation: Situation, copy: SecretCopy | None) -> bool:
    if situation.observed is None or copy is None:
        return False
    keys = situation.observed.secret_keys.get((copy.source_namespace, copy.source_name), frozenset())
    return copy.source_key not in keys


def _phase(situation: Situation, cache: api.ModelCache, wire: Object, cluster: str) -> Phase:
    if situation.observed is None:
        return Phase(cluster, "")
    phase, held, message = cache_phase(
        wire,
        cluster,
        claim_name(cache.namespace, cache.name),
        job_name(cache.namespace, cache.name),
        situation.seen(cluster),
        situation.statuses.get(cache.ref),
    )
    return Phase(cluster, phase, held, message)
