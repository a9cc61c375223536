# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Annotations without an effect, or with an unintended effect."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..names import ANNOTATIONS, MANAGED_BY, PRIORITY_ANNOTATION, RESERVED_PREFIX
from ..problem import Problem, warning
from ..scheduling.adapters import is_priority
from ..text import field_path, nearest, short

# Annotations with other prefixes belong to users and other programs.
_OWN_PREFIXES = (RESERVED_PREFIX.removesuffix("/"), MANAGED_BY)


def known_annotations(resource: Any, _fleet: object) -> Iterator[Problem]:
    """Yield annotations that have a prefix of the fleet, and mean nothing on the kind of a resource."""
    kind = resource.ref.kind
    annotation_names = [key.removeprefix(RESERVED_PREFIX) for key, on in sorted(ANNOTATIONS.items()) if on == kind]
    for key in sorted(resource.annotations):
        prefix, slash, name = key.partition("/")
        if not (slash and prefix.endswith(_OWN_PREFIXES)) or ANNOTATIONS.get(key) == kind:
            continue
        near = nearest(name, annotation_names)
        hint = f"Did you mean {RESERVED_PREFIX}{near}?" if near else "Remove it, or use a prefix of your own"
        if key in ANNOTATIONS:
            hint = f"It is an annotation of {ANNOTATIONS[key]}"
        message = f"is not a known annotation of {kind}, and has no effect"
        yield warning(message, field_path("metadata.annotations", key), hint)


def deployment_priority(deployment: Any, _fleet: object) -> Iterator[Problem]:
    """Yield an invalid priority annotation of a deployment."""
    value = deployment.annotations.get(PRIORITY_ANNOTATION, "0")
    if not is_priority(value):
        hint = 'Write a whole number as a text, such as "10"; higher comes first'
        path = field_path("metadata.annotations", PRIORITY_ANNOTATION)
        yield warning("is no whole number of up to 18 digits, and counts as priority 0", path, hint, short(value))
