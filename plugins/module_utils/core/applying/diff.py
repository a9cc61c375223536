# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Diff of an object as text: the fields that the fleet owns, before and after, without secrets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..manifest_text import to_yaml
from ..secrets import MASK, masked
from ..wire import Object, entries, text
from .managed_fields import managed, project, union

# Fields that are shown of an object without owned fields.
_UNKNOWN: Mapping[str, Any] = {"f:metadata": {"f:labels": {}}}
_VALUES = ("data", "stringData")


def change(before: Object | None, after: Object | None, manager: str, subresource: str = "") -> tuple[str, str]:
    """Return the text of the owned fields of an object before and after, or "" for a missing object.

    `after` is None for a deletion. A field that another manager owned before is shown with its old value.
    """
    known_fields = [
        managed_fields
        for live in (before, after)
        if (managed_fields := managed(live, manager, subresource)) is not None
    ]
    owned = (
        union(known_fields[0], known_fields[1])
        if len(known_fields) == 2
        else known_fields[0]
        if known_fields
        else _UNKNOWN
    )
    if after is not None and not entries(after, "metadata", "managedFields"):
        # The object was not sent because its namespace or kind does not exist yet, so this run will own all fields.
        owned = {}
    projections = [_shown(live, owned) for live in (before, after)]
    if text(after or before, "kind") == "Secret":
        projections = _without_values(projections[0], projections[1])
    texts = [masked(to_yaml(value)) if value else "" for value in projections]
    if texts[0] == texts[1] and projections[0] != projections[1]:
        texts[1] = texts[1].replace(MASK, f"{MASK} (changed)")
    return texts[0], texts[1]


def _shown(live: Object | None, owned: Mapping[str, Any]) -> dict[str, Any]:
    if live is None:
        return {}
    projected = dict(project(live, owned))
    metadata = {key: live["metadata"][key] for key in ("name", "namespace") if live["metadata"].get(key)}
    projected["metadata"] = {**metadata, **projected.get("metadata", {})}
    head = {"apiVersion": live.get("apiVersion"), "kind": live.get("kind"), "metadata": projected.pop("metadata")}
    return {**head, **{key: projected[key] for key in sorted(projected)}}


def _without_values(before: dict[str, Any], after: dict[str, Any]) -> list[dict[str, Any]]:
    """Return both with the names of keys only, and a mark on changed values."""
    hidden: list[dict[str, Any]] = []
    for current, counterpart in ((before, {}), (after, before)):
        masked_copy = dict(current)
        for field in _VALUES:
            if isinstance(current.get(field), Mapping):
                was = counterpart.get(field) or {}
                masked_copy[field] = {
                    key: f"{MASK} (changed)" if key in was and was[key] != value else MASK
                    for key, value in current[field].items()
                }
        hidden.append(masked_copy)
    return hidden
