# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Use case: remove the state of emptied clusters from a build directory after a teardown."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Collection, Mapping
from typing import Any

from ..core import api
from ..core.names import CLUSTER_LABEL, label_value
from ..core.progress import Progress, unseen
from ..core.wire import text
from ..stores import last_run
from ..stores.directory import PLAN_FILE, DirectoryStore, cluster_files, object_path, state_files


def last_plan(folder: str) -> dict[str, Any]:
    """Return the plan of the last run, empty if the directory contains no readable plan."""
    with contextlib.suppress(OSError, ValueError), open(os.path.join(folder, PLAN_FILE), encoding="utf-8") as stream:
        plan = json.load(stream)
        return plan if isinstance(plan, dict) else {}
    return {}


def forget(
    folder: str, clusters: Collection[str], *, control: bool, lock_timeout: float = 60.0, progress: Progress = unseen
) -> bool:
    """Remove the state of emptied clusters from a build directory. Return True if files changed. Raise StoreError.

    `control`: the control cluster was emptied too.
    """
    if not os.path.isdir(folder):
        return False
    store = DirectoryStore(folder)
    with store.lock(lock_timeout, progress):
        build_files = store.read(elsewhere=True)
        changes = store.compare(build_files, remaining(folder, build_files, clusters, control=control))
        store.write({}, changes)
    return bool(changes)


def remaining(folder: str, files: Mapping[str, str], clusters: Collection[str], *, control: bool) -> dict[str, str]:
    """Return the files of a build without the files of emptied clusters.

    The next plan places the replicas of emptied clusters again. The state of other clusters is unchanged. A build
    without remaining state has no files.
    """
    labels = set(map(label_value, clusters))
    removed = {
        object_path("control", api.wire(resource))
        for resource in last_run.existing(folder, files)
        if text(api.wire(resource), "metadata", "labels", CLUSTER_LABEL) in labels
    }
    for cluster, names in cluster_files(files).items():
        if cluster in clusters:
            removed.update(names)
    remainder = {name: content for name, content in files.items() if name not in removed}
    state = state_files(remainder)
    if control:
        remainder = {name: text for name, text in remainder.items() if name in state or not _is_of_control(name)}
    return remainder if state or cluster_files(remainder) else {}


def _is_of_control(name: str) -> bool:
    return name.startswith(("control/", "status/"))
