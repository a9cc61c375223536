# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Keys of callers and providers that were pasted into manifests, in whatever place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .. import api
from ..api.plain import Loc
from ..api.problems import path_of
from ..problem import Problem, pasted_key
from ..secrets import SHORTEST_KEY, holds_key

# Fields that may need a key: command, arguments, variables and headers of engines, and the URL of an endpoint in mode
# Path. Annotations and managedFields are written by programs.
_NOT_JUDGED = frozenset({"annotations", "args", "command", "managedFields", "url", "value"})


def pasted_keys(document: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the keys in `metadata` and `spec` of a document of a known kind: as values, and as names of fields. The
    paths have these names still, and are shown without."""
    for field in ("metadata", "spec"):
        for loc in _places(document.get(field), (field,)):
            yield pasted_key(path_of(api.KINDS[document["kind"]], loc))


def _places(value: object, loc: Loc) -> Iterator[Loc]:
    if isinstance(value, str):
        if len(value) >= SHORTEST_KEY and holds_key(value):
            yield loc
    elif isinstance(value, dict):
        for name, below in value.items():
            if len(name) >= SHORTEST_KEY and holds_key(name):
                yield (*loc, name)
            elif name not in _NOT_JUDGED:
                yield from _places(below, (*loc, name))
    elif isinstance(value, list):
        for index, below in enumerate(value):
            yield from _places(below, (*loc, index))
