# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Bodies of requests that create objects: what a manifest asks for, and what it leaves open."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any


def merged(body: Mapping[str, Any], initial: Mapping[str, Any]) -> dict[str, Any]:
    """Return a body with what an object is created with where the body leaves it open, in depth."""
    both = deepcopy(dict(body))
    for key, value in initial.items():
        if isinstance(value, Mapping) and isinstance(both.get(key), Mapping):
            both[key] = merged(both[key], value)
        else:
            both.setdefault(key, deepcopy(value))
    return both
