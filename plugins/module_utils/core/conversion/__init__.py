# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Conversion of older formats of a resource to the canonical document, before validation.

The canonical format is `modelplane.ai/v1alpha1` of Modelplane v0.3.1. The conversion also accepts:

- ModelDeployments with `spec.engines` and its sibling fields directly under `spec` (v0.1)
- ModelDeployments with `spec.workers` and `spec.nodeSelector` (optionally `spec.prefill` and `spec.decode`). The
  parallelism axes of a worker then determine nodes and GPUs (`core/topology.py`)
- single renamed or restructured fields of InferenceCluster, InferenceClass, and ModelEndpoint

Types, limits, and unknown keys of the canonical document are validated later. The conversion rejects only fields
without a canonical counterpart, and contradictions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..problem import Problem
from ..text import short_value
from . import deployment, fields
from .notes import ConversionError, Notes

__all__ = ["Canonical", "ConversionError", "canonical", "written_path"]


@dataclass(frozen=True)
class Canonical:
    """Document in the canonical format.

    origin: paths in the user's document by path prefixes of the canonical document. See `written_path`.
    """

    document: dict[str, Any]
    warnings: tuple[Problem, ...] = ()
    origin: Mapping[str, str] = field(default_factory=dict)


def canonical(document: Mapping[str, Any]) -> Canonical:
    """Convert a resource of any kind, in the form of dicts and lists, to the canonical format.

    The result shares unconverted parts with the input. The input is not modified. `api.parse` creates the only copy,
    and limits its size. A canonical document, or a document of an unknown kind, is unchanged. Raises ConversionError.
    """
    if not isinstance(document, Mapping):
        raise ConversionError([Problem("a resource must be a mapping", value=short_value(document))])
    notes = Notes()
    converted = dict(document)
    kind, spec = document.get("kind"), document.get("spec")
    if isinstance(kind, str) and kind in _CONVERTERS and isinstance(spec, dict):
        converted["spec"] = _CONVERTERS[kind](spec, notes)
    if notes.errors:
        raise ConversionError(notes.errors)
    return Canonical(converted, tuple(notes.warnings), notes.origin)


def written_path(origin: Mapping[str, str], canonical_path: str) -> str:
    """Return the path in the user's document for a canonical path, by its longest prefix in `origin`."""
    longest = ""
    for prefix in origin:
        if canonical_path.startswith(prefix) and canonical_path[len(prefix) : len(prefix) + 1] in ("", ".", "["):
            longest = max(longest, prefix, key=len)
    return origin[longest] + canonical_path[len(longest) :] if longest else canonical_path


_CONVERTERS: dict[str, Callable[[dict[str, Any], Notes], dict[str, Any]]] = {
    "InferenceClass": fields.inference_class,
    "InferenceCluster": fields.inference_cluster,
    "ModelDeployment": deployment.model_deployment,
    "ModelEndpoint": fields.model_endpoint,
    "ModelReplica": fields.model_replica,
}
