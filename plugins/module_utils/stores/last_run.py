# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""State of the last run, and its ModelReplicas and ModelEndpoints in the files of a build.

Many parts of the state are repeated: a ModelReplica and its ModelEndpoint have the same metadata, and all replicas of a
deployment have similar engines. Each unique text is read and validated once, and the result is shared.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ..core import api, yaml_lines
from ..core.planning.fleet import Earlier
from ..core.planning.recovery import History
from ..core.problem import Problem, Ref
from ..core.text import count, some
from ..core.wire import Object
from ..core.yaml_documents import Source, documents
from .directory import HOW_TO_RESTORE, StoreError, is_model_route, object_text, state_files
from .previous_objects import model_routes

_METADATA = "\nmetadata:\n"
_SPEC = "\nspec:\n"
_ENGINES = "\n  engines:\n"
_NEXT_KEY = re.compile(r"(?<=\n)  (?=[A-Za-z])")


@dataclass(frozen=True)
class State:
    """State of the last run."""

    existing: Sequence[api.Resource]
    """ModelReplicas and ModelEndpoints."""
    earlier: Earlier
    """Lookup of composed objects by resource."""
    statuses: Mapping[Ref, Mapping[str, Any]]
    """Statuses of resources."""
    applied: Callable[[Ref], Object | None]
    """Lookup of resources in their form on the control cluster."""
    lacks: Callable[[Ref], bool] = lambda _ref: False
    """Returns True if the control cluster is known to lack a resource."""
    objects: Mapping[str, int] = field(default_factory=dict)
    """Number of objects of the fleet by inference cluster, "" for the control cluster."""
    home: Literal["folder", "control"] = "folder"
    """Location of the state: see `Settings`."""
    routed: Sequence[api.ModelRoute] = ()
    """ModelRoutes of the last run."""
    history: History = field(default_factory=dict)
    """Digests of the planned ModelReplicas of each inference cluster (`core/planning/recovery.py`)."""

    @property
    def place(self) -> str:
        """Return the location of the state, for messages."""
        return "the build directory" if self.home == "folder" else "the control cluster"


def refuse_partial_fleet(state: State, kinds: Collection[str]) -> None:
    """Raise StoreError for manifests without the kinds that the objects of the last run require.

    A fleet without replicas might have only gateways and providers. Clusters with objects still require their kind."""
    folder = state.home == "folder"
    if state.existing:
        missing = [kind for kind in ("InferenceCluster", "ModelDeployment") if kind not in kinds]
        remnants = f"the {'build folder' if folder else 'control cluster'} has replicas"
    else:
        lacks_clusters = any(state.objects) and "InferenceCluster" not in kinds
        missing = ["InferenceCluster"] if lacks_clusters else ["resource"] if state.objects and not kinds else []
        object_counts = [
            f"{number} of {f'cluster {cluster}' if cluster else 'the control cluster'}"
            for cluster, number in sorted(state.objects.items())
        ]
        total = count(sum(state.objects.values()), "object")
        remnants = (
            f"{'the build folder has' if folder else 'clusters have'} {total} of the fleet ({some(object_counts)})"
        )
    if missing:
        raise StoreError(
            f"{remnants}, but the manifests have no {' and no '.join(missing)}: everything would be removed. Give all "
            "manifests of the fleet, or set fleet_allow_empty to true if that is intended"
        )


def routed(files: Mapping[str, str]) -> list[api.ModelRoute]:
    """Return the ModelRoutes in the files of a build. Unreadable files are skipped."""
    read = (documents(Source(name, text.encode())) for name, text in files.items() if is_model_route(name))
    return model_routes(
        document.value for file_documents in read for document in file_documents if not document.problems
    )


def existing(folder: str, files: Mapping[str, str]) -> list[api.Resource]:
    """Return the ModelReplicas and ModelEndpoints of the last run. Raise StoreError."""
    resources: list[api.Resource] = []
    reader = _Reader()
    for name, text in state_files(files).items():
        resource = reader.read(object_text(text))
        resources += [resource] if resource else _resources(os.path.join(folder, name), text)
    return resources


class _Reader:
    """Reader of texts that are written as the collection writes them, part by part.

    A text is its parts, one after the other, if each of them is one mapping with the keys that it should have, and no
    document ends before the text does.
    """

    def __init__(self) -> None:
        self._heads: dict[str, dict[str, Any]] = {}
        self._metadata: dict[str, api.Model] = {}
        self._engines: dict[str, list[api.Model]] = {}

    def read(self, text: str) -> api.Resource | None:
        """Return the resource in a file of the state, or None if the file has another format or an error."""
        head, __, after_metadata = text.partition(_METADATA)
        metadata, __, spec = after_metadata.partition(_SPEC)
        before_engines, has_engines, after_engines = spec.partition(_ENGINES)
        # Lists and texts of engines are indented deeper, or start with a dash.
        next_key = _NEXT_KEY.search(after_engines)
        end = next_key.start() if next_key else len(after_engines)
        engines, after_key = after_engines[:end], after_engines[end:]
        # Of a mapping that is deeper, engines in this column would be no part.
        if "\n---" in text or "\n..." in text or not spec.startswith("  ") or spec.startswith("   "):
            return None
        known_models: dict[tuple[str, ...], api.Model | list[api.Model]] = {}
        content = self._head(head)
        if metadata in self._metadata:
            known_models["metadata",] = self._metadata[metadata]
        else:
            content |= _mapping("metadata", f"{metadata}\n")
        if has_engines and engines in self._engines:
            known_models["spec", "engines"] = self._engines[engines]
            spec = f"{before_engines}\n{after_key}"
        content |= _mapping("spec", spec)
        if ("spec", "engines") in known_models and "engines" in content.get("spec", ()):
            return None
        resource = api.parse_with(content, known_models)
        if not isinstance(resource, (api.ModelReplica, api.ModelEndpoint)):
            return None
        self._metadata[metadata] = resource.metadata
        is_new = has_engines and engines not in self._engines
        if is_new and isinstance(resource, api.ModelReplica) and _is_list_of_engines(engines):
            self._engines[engines] = list(resource.spec.engines)
        return resource

    def _head(self, text: str) -> dict[str, Any]:
        """Return the apiVersion and the kind."""
        if text not in self._heads:
            read = yaml_lines.read(f"{text}\n")
            self._heads[text] = read[0][1] if read and len(read) == 1 else {}
        return dict(self._heads[text])


def _is_list_of_engines(tail: str) -> bool:
    """Return True if the text after the engines key contains only the engine list."""
    return list(_mapping("spec", f"{_ENGINES[1:]}{tail}").get("spec", ())) == ["engines"]


def _mapping(key: str, lines: str) -> dict[str, Any]:
    """Return the mapping with this key and these lines below it, or {} for other content."""
    read = yaml_lines.read(f"{key}:\n{lines}")
    return read[0][1] if read and len(read) == 1 and list(read[0][1]) == [key] else {}


def _resources(file_path: str, text: str) -> list[api.Resource]:
    """Return the resources in a file of the state. Raise StoreError."""
    resources: list[api.Resource] = []
    read = list(documents(Source(file_path, text.encode())))
    if not read:
        raise StoreError(f"{file_path} was modified (it is empty); {HOW_TO_RESTORE}")
    for document in read:
        problems = list(document.problems)
        if not problems:
            try:
                resource = api.parse(document.value)
                if not isinstance(resource, (api.ModelReplica, api.ModelEndpoint)):
                    problems = [Problem("is neither a ModelReplica nor a ModelEndpoint", file=file_path)]
                resources.append(resource)
            except api.InvalidResource as error:
                problems = [problem.at(file=file_path, line=None, document=None) for problem in error.problems]
        if problems:
            lines = "\n".join(str(problem) for problem in problems)
            raise StoreError(f"{file_path} was modified; {HOW_TO_RESTORE}:\n{lines}")
    return resources
