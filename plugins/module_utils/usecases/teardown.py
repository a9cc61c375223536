# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Use case: remove from a build folder the state of clusters that a teardown emptied."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Collection, Mapping
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.names import CLUSTER_LABEL, label_value
from ansible_collections.modelplane.fleet.plugins.module_utils.core.progress import Progress, unseen
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import text
from ansible_collections.modelplane.fleet.plugins.module_utils.stores import last_run
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.directory import (
    PLAN_FILE,
    DirectoryStore,
    cluster_files,
    object_path,
    state_files,
)


def last_plan(folder: str) -> dict[str, Any]:
    """Return the plan of the last run, empty if the folder has none that can be read."""
    with contextlib.suppress(OSError, ValueError), open(os.path.join(folder, PLAN_FILE), encoding="utf-8") as stream:
        plan = json.load(stream)
        return plan if isinstance(plan, dict) else {}
    return {}


def forget(
    folder: str, clusters: Collection[str], *, control: bool, lock_timeout: float = 60.0, progress: Progress = unseen
) -> bool:
    """Remove the state of emptied clusters from a build folder, and return whether there was any. Raises StoreError.

    `control`: the control cluster was emptied too.
    """
    if not os.path.isdir(folder):
        return False
    store = DirectoryStore(folder)
    with store.lock(lock_timeout, progress):
        before = store.read(elsewhere=True)
        changes = store.compare(before, remaining(folder, before, clusters, control=control))
        store.write({}, changes)
    return bool(changes)


def remaining(folder: str, files: Mapping[str, str], clusters: Collection[str], *, control: bool) -> dict[str, str]:
    """Return the files of a build without those of emptied clusters.

    The replicas of these clusters leave the state, so that the next plan places them as new ones. The state of other
    clusters stays. A build without any state left has no file.
    """
    labels = set(map(label_value, clusters))
    gone = {
        object_path("control", api.wire(resource))
        for resource in last_run.existing(folder, files)
        if text(api.wire(resource), "metadata", "labels", CLUSTER_LABEL) in labels
    }
    dropped = set(clusters)
    for cluster, own in cluster_files(files).items():
        if cluster in dropped:
            gone.update(own)
    left = {name: content for name, content in files.items() if name not in gone}
    state = state_files(left)
    if control:
        left = {name: content for name, content in left.items() if name in state or not _is_of_control(name)}
    return left if state or cluster_files(left) else {}


def _is_of_control(name: str) -> bool:
    return name.startswith(("control/", "status/"))
