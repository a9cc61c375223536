# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""One run from manifests to a build folder: read, decide, compare, write."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ansible_collections.modelplane.fleet.plugins.module_utils.core import api, table
from ansible_collections.modelplane.fleet.plugins.module_utils.core.load import Loaded, Source, load
from ansible_collections.modelplane.fleet.plugins.module_utils.core.manifest_text import to_yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.core.problem import Problem
from ansible_collections.modelplane.fleet.plugins.module_utils.core.reconcile import Plan, plan
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import Options
from ansible_collections.modelplane.fleet.plugins.module_utils.core.yaml_documents import documents
from ansible_collections.modelplane.fleet.plugins.module_utils.stores import manifests
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.directory import (
    HEADER,
    PLAN_FILE,
    Changes,
    DirectoryStore,
    StoreError,
    object_path,
    plan_text,
    replica_files,
)


class ManifestError(Exception):
    """The manifests have errors; `problems` are all of them."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__(f"{len(problems)} errors in the manifests")
        self.problems = tuple(problems)


@dataclass(frozen=True)
class Settings:
    """What a run is asked to do. `folder` empty: nothing is kept from earlier runs, and nothing can be written."""

    resources: tuple[str, ...]
    folder: str = ""
    options: Options = field(default_factory=Options)
    invalid: Literal["fail", "hold"] = "fail"
    lock_timeout: float = 60.0
    check_mode: bool = False


@dataclass(frozen=True)
class Outcome:
    """What a run decided and, in a build, changed. `before` and `after` are file texts by relative path."""

    plan: Plan
    loaded: Loaded
    changes: Changes = field(default_factory=lambda: Changes((), (), ()))
    before: Mapping[str, str] = field(default_factory=dict)
    after: Mapping[str, str] = field(default_factory=dict)


def read_manifests(paths: Sequence[str]) -> Loaded:
    """All resources below `paths`, with every problem of reading them as well."""
    sources, unread = manifests.read(paths)
    loaded = load(sources)
    return Loaded(loaded.resources, (*unread, *loaded.problems), loaded.invalid, loaded.ignored)


def decide(settings: Settings) -> Outcome:
    """Read and decide; write nothing. Raises ManifestError and StoreError."""
    loaded = _load(settings)
    before = DirectoryStore(settings.folder).read() if settings.folder else {}
    return Outcome(_plan(settings, loaded, before), loaded, before=before)


def build(settings: Settings) -> Outcome:
    """Read, decide, and bring the build folder there, unless in check mode. Raises ManifestError and StoreError."""
    loaded = _load(settings)
    store = DirectoryStore(settings.folder)
    # Check mode leaves no trace, so it takes no lock; what it reads may be half of what another run writes.
    with contextlib.nullcontext() if settings.check_mode else store.lock(settings.lock_timeout):
        before = store.read()
        decided = _plan(settings, loaded, before)
        after = _files(decided)
        changes = store.compare(before, after)
        if changes and not settings.check_mode:
            store.write(after, changes)
    return Outcome(decided, loaded, changes, before, after)


def _load(settings: Settings) -> Loaded:
    _refuse_overlap(settings)
    loaded = read_manifests(settings.resources)
    unplaced = [problem for problem in loaded.errors if problem.ref is None]
    # A text that cannot be read may hold anything; what was in it cannot be told apart from what was deleted.
    if loaded.errors and (settings.invalid == "fail" or unplaced):
        raise ManifestError(loaded.errors)
    return loaded


def _refuse_overlap(settings: Settings) -> None:
    if not settings.folder:
        return
    folder = os.path.realpath(settings.folder)
    for path in settings.resources:
        if os.path.isdir(path) and os.path.commonpath([folder, os.path.realpath(path)]) == os.path.realpath(path):
            raise StoreError(
                f"the build folder {settings.folder} lies inside the manifests folder {path}, so what is built would "
                "be read as manifests: choose another fleet_build"
            )


def _plan(settings: Settings, loaded: Loaded, before: Mapping[str, str]) -> Plan:
    return plan(loaded.resources, _existing(settings.folder, before), loaded.invalid, settings.options)


def _existing(folder: str, files: Mapping[str, str]) -> list[Mapping[str, Any]]:
    """The ModelReplicas of the last run."""
    found = []
    for name, text in replica_files(files).items():
        place = os.path.join(folder, name)
        for document in documents(Source(place, text.encode())):
            problems = list(document.problems)
            if not problems:
                try:
                    api.parse(document.value)
                except api.InvalidResource as error:
                    problems = [problem.at(file=place, line=None, document=None) for problem in error.problems]
            if problems:
                lines = "\n".join(str(problem) for problem in problems)
                raise StoreError(
                    f"{place} is no longer the ModelReplica that was written there; restore it, or delete it to have "
                    f"the replica placed anew:\n{lines}"
                )
            found.append(document.value)
    return found


def _files(decided: Plan) -> dict[str, str]:
    files = {object_path("control", value): HEADER + to_yaml(value) for value in decided.control}
    for cluster, objects in decided.clusters.items():
        for value in objects:
            files[object_path(f"clusters/{cluster}", value)] = HEADER + to_yaml(value)
    files[PLAN_FILE] = plan_text(table.document(decided))
    return files
