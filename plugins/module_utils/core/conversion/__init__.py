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


@dataclass(frozen=True)
class Canonical:
    """A document in canonical form.

    `origin` maps paths of the canonical document to the paths the user wrote, as prefixes: see `written_path`.
    """

    document: dict[str, Any]
    warnings: tuple[Problem, ...] = ()
    origin: Mapping[str, str] = field(default_factory=dict)


def canonical(document: Mapping[str, Any]) -> Canonical:
    """Return the canonical form of a resource of any kind, given in plain dicts and lists.

    It shares what is not converted with the input, which is left as it is: `api.parse` makes the one copy, and bounds
    it. A canonical document and a document of an unknown kind come back equal. Raises FormError.
    """
    if not isinstance(document, Mapping):
        raise FormError([Problem("a resource must be a mapping", value=short_value(document))])
    notes = Notes()
    converted = dict(document)
    kind, spec = document.get("kind"), document.get("spec")
    if isinstance(kind, str) and kind in _CONVERTERS and isinstance(spec, dict):
        converted["spec"] = _CONVERTERS[kind](spec, notes)
    if notes.errors:
        raise FormError(notes.errors)
    return Canonical(converted, tuple(notes.warnings), notes.origin)


def written_path(origin: Mapping[str, str], canonical_path: str) -> str:
    """Where the user wrote what stands at `canonical_path`: the longest prefix in `origin` counts."""
    found = ""
    for prefix in origin:
        if canonical_path.startswith(prefix) and canonical_path[len(prefix) : len(prefix) + 1] in ("", ".", "["):
            found = max(found, prefix, key=len)
    return origin[found] + canonical_path[len(found) :] if found else canonical_path


_CONVERTERS: dict[str, Callable[[dict[str, Any], Notes], dict[str, Any]]] = {
    "InferenceClass": fields.inference_class,
    "InferenceCluster": fields.inference_cluster,
    "ModelDeployment": deployment.model_deployment,
    "ModelEndpoint": fields.model_endpoint,
    "ModelReplica": fields.model_replica,
}
