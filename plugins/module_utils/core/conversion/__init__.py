# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Older written forms of a resource -> the canonical document, before validation.

Canonical is `modelplane.ai/v1alpha1` as of Modelplane v0.3.1. Accepted besides it:

- ModelDeployment with `spec.engines` and its siblings directly under `spec` (v0.1);
- ModelDeployment with `spec.workers`/`spec.nodeSelector` (optionally `spec.prefill`, `spec.decode`), where the
  parallelism axes of a worker tell nodes and GPUs (`core/topology.py`);
- single renamed or reshaped fields of InferenceCluster, InferenceClass and ModelEndpoint.

What is wrong in general (types, limits, unknown keys that have a place in the canonical document) is left to the
validator; here only that is refused which has no canonical counterpart or contradicts itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core.conversion import deployment, fields
from ansible_collections.modelplane.fleet.plugins.module_utils.core.conversion.notes import FormError, Notes
from ansible_collections.modelplane.fleet.plugins.module_utils.core.problem import Problem
from ansible_collections.modelplane.fleet.plugins.module_utils.core.text import short_value

__all__ = ["Canonical", "FormError", "canonical", "written_path"]

MAX_DEPTH = 64
"""Nesting that a document may have; no field of the API is deeper than 20."""

MAX_VALUES = 200_000
"""How many values a document may hold, each alias of an anchor counted as often as it is used."""


@dataclass(frozen=True)
class Canonical:
    """A document in canonical form.

    `origin` maps paths of the canonical document to the paths the user wrote, as prefixes: see `written_path`.
    """

    document: dict[str, Any]
    warnings: tuple[Problem, ...] = ()
    origin: Mapping[str, str] = field(default_factory=dict)


def canonical(document: Mapping[str, Any]) -> Canonical:
    """The canonical form of a resource of any kind, built of plain dicts and lists; the input is left as it is.

    A canonical document and a document of an unknown kind come back equal. Raises FormError.
    """
    if not isinstance(document, Mapping):
        raise FormError([Problem("a resource must be a mapping", value=short_value(document))])
    plain = _Copier().copy(document)
    notes = Notes()
    kind, spec = plain.get("kind"), plain.get("spec")
    if isinstance(kind, str) and kind in _CONVERTERS and isinstance(spec, dict):
        plain["spec"] = _CONVERTERS[kind](spec, notes)
    if notes.errors:
        raise FormError(notes.errors)
    return Canonical(plain, tuple(notes.warnings), notes.origin)


def written_path(origin: Mapping[str, str], canonical_path: str) -> str:
    """Where the user wrote what stands at `canonical_path`: the longest prefix in `origin` counts."""
    found = ""
    for prefix in origin:
        if canonical_path.startswith(prefix) and canonical_path[len(prefix) : len(prefix) + 1] in ("", ".", "["):
            found = max(found, prefix, key=len)
    return origin[found] + canonical_path[len(found) :] if found else canonical_path


class _Copier:
    """Deep copies of the plain types only: callers hand in templating engines' own strings and containers."""

    def __init__(self) -> None:
        self._left = MAX_VALUES

    def copy(self, value: Any, depth: int = 0) -> Any:
        self._left -= 1
        if self._left < 0:
            raise FormError([Problem(f"the document holds more than {MAX_VALUES} values")])
        if depth > MAX_DEPTH:
            raise FormError([Problem(f"the document is nested deeper than {MAX_DEPTH} levels")])
        if isinstance(value, Mapping):
            return {_plain(key): self.copy(item, depth + 1) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.copy(item, depth + 1) for item in value]
        return _plain(value)


def _plain(value: Any) -> Any:
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    return value


_CONVERTERS: dict[str, Callable[[dict[str, Any], Notes], dict[str, Any]]] = {
    "InferenceClass": fields.inference_class,
    "InferenceCluster": fields.inference_cluster,
    "ModelDeployment": deployment.model_deployment,
    "ModelEndpoint": fields.model_endpoint,
    "ModelReplica": fields.model_replica,
}
