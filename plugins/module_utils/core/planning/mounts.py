# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Volume that a replica mounts: the one with the desired artifact of its ModelCache, once it is downloaded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import api
from ..api.model_replica import MountedCache, PreviousVolume
from ..compose import replica_objects
from ..compose.cache_volume import FOLDER
from .rollout import is_rolled_out, serves
from .volumes import Volumes, current, previous


def remount(
    volumes: Volumes, desired: api.ModelReplica, existing: api.ModelReplica | None, *, keeps_pods: bool = True
) -> api.ModelReplica:
    """Return a ModelReplica with its volume.

    A running replica switches to another volume when the volume contains the weights, or at once if the fleet is not
    observed. Before the switch, a serving replica is left unchanged, because an edit of a deployment and an edit of its
    cache might belong together. A replica that does not serve gets its edits on its current volume. While a cache is
    invalid or missing, its replicas keep their volumes.

    `existing`: the replica of the last run, None for a new replica.
    `keeps_pods`: False for a recreated replica.
    """
    reference = desired.spec.model_cache_ref
    if reference is None:
        return desired
    earlier_mount = existing.spec.model_cache_ref if existing else None
    cluster = desired.spec.cluster_name
    cache = volumes.context.fleet.caches.get((desired.namespace, reference.name))
    if cache is None:
        return _with(desired, earlier_mount) if existing else desired
    volume = volumes.desired(cache, cluster)
    read_only = True if reference.read_only is None else reference.read_only
    if existing is None:
        return _with(desired, _mount(cache, volume, read_only=read_only))
    if earlier_mount and _same(earlier_mount, cache.name, volume):
        older = previous(existing)
        used = older and (volumes.in_use(older, cluster) or _known(is_rolled_out, volumes, existing) is False)
        if reference.read_only is None and _templates(desired) == _templates(existing):
            # Nothing else restarts its pods.
            read_only = bool(earlier_mount.read_only)
        return _with(desired, _mount(cache, volume, earlier_mount.previous if used else None, read_only=read_only))
    observed = keeps_pods and not volumes.context.declared(cluster)
    if observed and volumes.phase(cache, cluster).phase != "Ready":
        return _with(desired, earlier_mount) if _known(serves, volumes, existing) is False else existing
    earlier_volume = (
        api.construct(PreviousVolume, name=earlier_mount.name, volume=earlier_mount.volume)
        if earlier_mount and current(existing)
        else None
    )
    return _with(desired, _mount(cache, volume, earlier_volume, read_only=read_only))


def _mount(
    cache: api.ModelCache, volume: str, earlier_volume: PreviousVolume | None = None, *, read_only: bool = False
) -> MountedCache:
    """Return the reference to a volume of a cache. Defaults are omitted for compatibility with earlier versions."""
    layout = cache.spec.hugging_face.layout if cache.spec.hugging_face else FOLDER
    options: dict[str, Any] = {} if layout == FOLDER else {"layout": layout}
    if read_only:
        options["read_only"] = True
    return api.construct(MountedCache, name=cache.name, volume=volume or None, previous=earlier_volume, **options)


def _templates(replica: api.ModelReplica) -> list[Any]:
    """Return the pod templates of a replica: its pods restart if they differ."""
    return [api.wire(member.template) for engine in replica.spec.engines for member in engine.members]


def _same(reference: MountedCache, name: str, volume: str) -> bool:
    return (reference.name, reference.volume or "") == (name, volume)


def _known(predicate: Callable[..., bool | None], volumes: Volumes, existing: api.ModelReplica) -> bool | None:
    """Return a predicate of a replica's observed pods; None when it is not known."""
    observed = volumes.context.observed_cluster(existing.spec.cluster_name)
    return predicate(replica_objects(existing, volumes.context.composing), observed)


def _with(replica: api.ModelReplica, reference: MountedCache | None) -> api.ModelReplica:
    """Return the ModelReplica with this `modelCacheRef`."""
    return replica.model_copy(update={"spec": replica.spec.model_copy(update={"model_cache_ref": reference})})
