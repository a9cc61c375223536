# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Resources and problems of manifests, as a document and as text."""

from __future__ import annotations

from ..._pydantic import Field
from .. import api
from ..load import Loaded
from ..text import some

SCHEMA_VERSION = 1
_MOST_NAMES = 20


class ManifestsDocument(api.Model):
    """Result of the validation of manifests. `schemaVersion` changes with a field that is removed or gets another
    meaning."""

    schema_version: int = Field(default=SCHEMA_VERSION, description="The version of this format.")
    resources: dict[str, list[str]] = Field(description="The valid resources by kind: `namespace/name`, or `name`.")
    errors: list[str] = Field(description="All errors, one line each.")
    warnings: list[str] = Field(description="All warnings, one line each.")
    ignored: list[str] = Field(description="Documents of other API groups, which are left alone.")


def document(loaded: Loaded) -> ManifestsDocument:
    """Return the loaded resources with their errors and warnings."""
    resources: dict[str, list[str]] = {}
    for resource in loaded.resources:
        name = f"{resource.namespace}/{resource.name}" if resource.namespace else resource.name
        resources.setdefault(resource.kind, []).append(name)
    return api.construct(
        ManifestsDocument,
        schema_version=SCHEMA_VERSION,
        resources=resources,
        errors=[str(problem) for problem in loaded.errors],
        warnings=[str(problem) for problem in loaded.warnings],
        ignored=list(loaded.ignored),
    )


def lines(manifests: ManifestsDocument) -> list[str]:
    """Return the resources as text, a line for each kind."""
    return [f"{kind}: {some(sorted(names), _MOST_NAMES)}" for kind, names in sorted(manifests.resources.items())]
