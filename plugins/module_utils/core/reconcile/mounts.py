# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Which volume a replica mounts: the one that holds what its ModelCache asks for, once it holds it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose import replica_objects
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.cache_volume import FOLDER
from ansible_collections.modelplane.fleet.plugins.module_utils.core.reconcile.fleet import Object
from ansible_collections.modelplane.fleet.plugins.module_utils.core.reconcile.rollout import serves, through
from ansible_collections.modelplane.fleet.plugins.module_utils.core.reconcile.volumes import (
    Volumes,
    current,
    previous,
    reference,
)

_VOLUME = ("name", "volume")


def remount(volumes: Volumes, wire: Object, there: Object | None, *, stays: bool = True) -> Object:
    """A ModelReplica with its volume. `there` is the one of the last run, None when there was none; unless it `stays`
    where it is, there is nothing to lose.

    A replica that runs goes to another volume when that holds the weights, or at once when nobody observes. Until
    then one that serves stays as it is in all its parts, since an edit of a deployment and one of its cache may belong
    together; one that does not serve gets its edits on the volume it has. While a cache cannot be read, or is not
    there, its replicas keep what they mount.
    """
    wanted = reference(wire)
    if not wanted:
        return wire
    before = reference(there) if there else {}
    cluster = wire["spec"]["clusterName"]
    cache = volumes.situation.fleet.caches.get((wire["metadata"]["namespace"], wanted["name"]))
    if cache is None:
        return _with(wire, before) if there else wire
    volume = volumes.wanted(cache, cluster)
    chosen = _chosen(cache, volume)
    if not there:
        return _with(wire, chosen)
    looks = stays and not volumes.situation.declared(cluster)
    if _same(before, chosen):
        older = previous(there)
        if older and (volumes.in_use(older, cluster) or _known(through, volumes, there) is False):
            chosen["previous"] = before["previous"]
        return _with(wire, chosen)
    if looks and volumes.phase(cache, cluster).phase != "Ready":
        return _with(wire, before) if _known(serves, volumes, there) is False else there
    if current(there):
        chosen["previous"] = {key: before[key] for key in _VOLUME if before.get(key)}
    return _with(wire, chosen)


def _chosen(cache: api.ModelCache, volume: str) -> dict[str, Any]:
    chosen: dict[str, Any] = {"name": cache.name}
    layout = cache.spec.hugging_face.layout if cache.spec.hugging_face else FOLDER
    if layout != FOLDER:
        chosen["layout"] = layout
    if volume:
        chosen["volume"] = volume
    return chosen


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return all((one.get(key) or "") == (other.get(key) or "") for key in _VOLUME)


def _known(ask: Callable[..., bool | None], volumes: Volumes, there: Object) -> bool | None:
    """What was seen of a replica's pods; None when nobody can tell."""
    seen = volumes.situation.seen(there["spec"]["clusterName"])
    return ask(replica_objects(there, volumes.situation.composing), seen)


def _with(wire: Object, mounted: Mapping[str, Any]) -> Object:
    """The ModelReplica with this `modelCacheRef`, where it stands in the order of fields."""
    spec = {key: value for key, value in wire["spec"].items() if key != "modelCacheRef"}
    head = {"clusterName": spec.pop("clusterName")}
    if mounted:
        head["modelCacheRef"] = dict(mounted)
    return {**wire, "spec": {**head, **spec}}
