# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Entries of plans, and the bodies of the requests that create their objects: fields of the manifest, and initial
values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from .engine.kinds import Resource


def resource(
    key: str,
    kind: str,
    name: str,
    parent: str,
    body: Mapping[str, Any],
    needs: Sequence[str] = (),
    initial: Mapping[str, Any] | None = None,
) -> Resource:
    """Return the entry of an object in a plan."""
    entry: Resource = {
        "key": key,
        "kind": kind,
        "name": name,
        "parent": parent,
        "body": dict(body),
        "needs": list(needs),
    }
    if initial:
        entry["initial"] = initial
    return entry


def merged(body: Mapping[str, Any], initial: Mapping[str, Any]) -> dict[str, Any]:
    """Return a body with initial values for the fields that it leaves open, in depth."""
    merged_body = deepcopy(dict(body))
    for key, value in initial.items():
        if isinstance(value, Mapping) and isinstance(merged_body.get(key), Mapping):
            merged_body[key] = merged(merged_body[key], value)
        else:
            merged_body.setdefault(key, deepcopy(value))
    return merged_body
