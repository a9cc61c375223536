# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Kubernetes objects in the files of a folder, as a build leaves them for who applies them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core import names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object, text
from ansible_collections.modelplane.fleet.plugins.module_utils.core.yaml_documents import Source, documents
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.directory import (
    PLAN_FILE,
    StoreError,
    read_text,
    refuse_foreign_folder,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.previous_objects import OWNER_LABELS

_ENDINGS = (".yaml", ".yml", ".json")


def read_objects(folder: str, *, own: bool = False) -> list[Object]:
    """Every object in the files below a folder, hidden ones left out. Raises StoreError; an object that cannot be read
    must not count as one that is not desired. `own`: the folder is part of a build; links in it are refused."""
    found: list[Object] = []
    for path in _files(folder):
        try:
            if not (own or path.is_file()):
                # A FIFO would keep everybody waiting.
                raise StoreError(f"{path} is no file: remove it from the folder")
            data = read_text(path).encode() if own else path.read_bytes()
        except OSError as error:
            raise StoreError(f"{path} cannot be read: {error.strerror}") from error
        read = list(documents(Source(str(path), data)))
        if own and not read:
            raise StoreError(f"{path} is not what was written there (nothing is in it): build the fleet again")
        for document in read:
            if document.problems:
                raise StoreError("\n".join(map(str, document.problems)))
            value: Object = document.value
            if not (text(value, "apiVersion") and text(value, "kind") and text(value, "metadata", "name")):
                raise StoreError(f"{path} holds a document that is no Kubernetes object: remove it from the folder")
            found.append(value)
    return found


def _files(folder: str) -> list[Path]:
    def unreadable(error: OSError) -> None:
        raise StoreError(f"{error.filename} cannot be read: {error.strerror}") from error

    found = []
    for place, folders, files in os.walk(folder, onerror=unreadable):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found += [Path(place, name) for name in sorted(files) if name.endswith(_ENDINGS) and not name.startswith(".")]
    return found


class Build:
    """A build folder as one reads it to apply it. Raises StoreError when it is none."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.plan = _plan(folder)

    def objects(self, cluster: str, folder: str = "") -> list[Object]:
        """Return what a workload cluster should have, from the folder given or its own one in the build.

        A cluster of the fleet without objects has no folder. A name that the build does not know is a mistake, which
        must not read as "nothing is desired there".
        """
        place = folder or self._own("clusters", cluster)
        if os.path.isdir(place):
            return read_objects(place, own=not folder)
        if folder:
            raise StoreError(f"{folder}, the folder of cluster {cluster}, does not exist")
        if cluster in self.clusters():
            return []
        raise StoreError(
            f"the build {self.folder} knows no cluster {cluster}, so nothing is applied there or removed: check the "
            "name and the path; to take everything off a cluster that left the fleet, use state=absent"
        )

    def _own(self, *names: str) -> str:
        """A folder of the build, if it is there. Raises StoreError where a link leads elsewhere."""
        place = Path(self.folder)
        for name in names:
            place /= name
            if os.path.lexists(place):
                refuse_foreign_folder(place)
        return str(place)

    def control(self) -> list[Object]:
        """The objects of the control cluster."""
        place = self._own("control")
        return read_objects(place, own=True) if os.path.isdir(place) else []

    def statuses(self, *within: str) -> list[Object]:
        """Resources with their status, or those in a folder of them; none when the fleet is not observed."""
        place = self._own("status", *within)
        return read_objects(place, own=True) if os.path.isdir(place) else []

    def secret_copies(self) -> list[dict[str, Any]]:
        """The values that are copied from the control cluster, as the plan names them."""
        found = self.plan.get("secretCopies") or []
        return [entry for entry in found if isinstance(entry, dict)]

    def held_labels(self) -> frozenset[tuple[tuple[str, str], ...]]:
        """The labels, name and value, of all that is composed of resources whose manifests have errors: it stays."""
        found = set()
        for entry in self.plan.get("held") or []:
            label = OWNER_LABELS.get(entry["kind"])
            if label:
                labels = [(label, names.label_value(entry["name"]))]
                if entry["namespace"]:
                    labels.append((names.NAMESPACE_LABEL, names.label_value(entry["namespace"])))
                found.add(tuple(labels))
        return frozenset(found)

    def clusters(self) -> frozenset[str]:
        """The workload clusters of the build: with a folder, a serving stack, or a status."""
        place = Path(self.folder, "clusters")
        found = {path.name for path in place.iterdir()} if place.is_dir() else set()
        for value in self.control():
            if value["kind"] == "ServingStack":
                found.add(text(value, "metadata", "labels", names.CLUSTER_LABEL))
        found |= {value["metadata"]["name"] for value in self.statuses() if value["kind"] == "InferenceCluster"}
        named = self.plan.get("clusters")
        return frozenset(found | {name for name in (named if isinstance(named, list) else ()) if isinstance(name, str)})


def _plan(folder: str) -> dict[str, Any]:
    path = Path(folder, PLAN_FILE)
    try:
        if not os.path.lexists(path):
            raise StoreError(
                f"{folder} is no build folder (there is no {PLAN_FILE} in it): build the fleet first, or correct the "
                "path"
            )
        found = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path} is not what was written there ({error}): build the fleet again") from error
    if not isinstance(found, dict) or found.get("generator") != names.MANAGED_BY:
        raise StoreError(f"{path} was not written by modelplane.fleet: correct the path")
    return found
