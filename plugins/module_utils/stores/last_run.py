# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""State of the last run: the ModelReplicas and ModelEndpoints in the files of a build.

The engines of all replicas of a deployment are written alike, and are most of each file. They are read and checked once
for each text that they have, and shared.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core import api, yaml_lines
from ansible_collections.modelplane.fleet.plugins.module_utils.core.problem import Problem
from ansible_collections.modelplane.fleet.plugins.module_utils.core.yaml_documents import Source, documents
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.directory import (
    HOW_TO_RESTORE,
    StoreError,
    object_text,
    state_files,
)

_ENGINES = "\n  engines:\n"


def existing(folder: str, files: Mapping[str, str]) -> list[api.Resource]:
    """Return the ModelReplicas and ModelEndpoints of the last run. Raises StoreError."""
    found: list[api.Resource] = []
    engines: dict[str, list[api.Model]] = {}
    for name, text in state_files(files).items():
        head, separator, tail = object_text(text).partition(_ENGINES)
        known = engines.get(tail) if separator else None
        if known and (sharing := _with_engines(head + "\n", known)):
            found.append(sharing)
            continue
        simple = _simple(text)
        read = [simple] if simple else _resources(os.path.join(folder, name), text)
        found += read
        if separator and len(read) == 1 and isinstance(read[0], api.ModelReplica) and _is_list_of_engines(tail):
            engines[tail] = list(read[0].spec.engines)
    return found


def _with_engines(head: str, engines: list[api.Model]) -> api.Resource | None:
    """Return the ModelReplica of which this is the text before its engines; None where it is not a simple one."""
    read = yaml_lines.read(head)
    value: dict[str, Any] = read[0][1] if read and len(read) == 1 else {}
    spec = value.get("spec")
    # What comes next in the text belongs to the mapping that was begun last.
    if value.get("kind") != api.ModelReplica.KIND or list(value)[-1] != "spec" or not isinstance(spec, dict):
        return None
    return api.parse_with(value, ("spec", "engines"), engines)


def _is_list_of_engines(tail: str) -> bool:
    """Return whether the text behind the key of the engines is nothing but their list."""
    read = yaml_lines.read(f"spec:{_ENGINES}{tail}")
    return (
        bool(read)
        and read is not None
        and [list(value) + list(value["spec"]) for __, value in read] == [["spec", "engines"]]
    )


def _simple(text: str) -> api.Resource | None:
    """Return what is in a file of the state if there is nothing to say about it."""
    read = yaml_lines.read(object_text(text))
    if read is None or len(read) != 1:
        return None
    try:
        resource = api.parse(read[0][1])
    except api.InvalidResource:
        return None
    return resource if isinstance(resource, (api.ModelReplica, api.ModelEndpoint)) else None


def _resources(place: str, text: str) -> list[api.Resource]:
    """Return what is in a file of the state. Raises StoreError."""
    found: list[api.Resource] = []
    read = list(documents(Source(place, text.encode())))
    if not read:
        raise StoreError(f"{place} was modified (it is empty); {HOW_TO_RESTORE}")
    for document in read:
        problems = list(document.problems)
        if not problems:
            try:
                resource = api.parse(document.value)
                if not isinstance(resource, (api.ModelReplica, api.ModelEndpoint)):
                    problems = [Problem("is neither a ModelReplica nor a ModelEndpoint", file=place)]
                found.append(resource)
            except api.InvalidResource as error:
                problems = [problem.at(file=place, line=None, document=None) for problem in error.problems]
        if problems:
            lines = "\n".join(str(problem) for problem in problems)
            raise StoreError(f"{place} was modified; {HOW_TO_RESTORE}:\n{lines}")
    return found
