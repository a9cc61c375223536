# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Kubernetes objects in the files of a build directory, for tools that apply them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from ..core import names
from ..core.compose.control import is_unowned_namespace
from ..core.planning.recovery import replicas_of
from ..core.wire import Object, fields, text
from ..core.yaml_documents import Source, documents
from .directory import PLAN_FILE, StoreError, read_text, refuse_foreign_folder
from .previous_objects import OWNER_LABELS

_ENDINGS = (".yaml", ".yml", ".json")


@dataclass(frozen=True)
class Files:
    """Files of one cluster with their contents."""

    contents: Sequence[tuple[Path, bytes]]
    own: bool
    """True if the files are part of a build. Links are rejected in a build."""

    @property
    def digest(self) -> str:
        """Return the digest of names and contents."""
        content_digest = sha256()
        for path, data in self.contents:
            content_digest.update(f"{path}\n{len(data)}\n".encode("utf-8", "surrogateescape") + data)
        return content_digest.hexdigest()

    def objects(self) -> list[Object]:
        """Return every object in these files, without the Namespaces of users in a build. Raise StoreError if an
        object is not readable, because a missing object would be deleted."""
        return _objects(self.contents, self.own)


def _contents(paths: Iterable[Path], own: bool) -> Iterator[tuple[Path, bytes]]:
    for path in paths:
        try:
            if not (own or path.is_file()):
                # A FIFO would keep everybody waiting.
                raise StoreError(f"{path} is no file: remove it from the folder")
            yield path, read_text(path).encode() if own else path.read_bytes()
        except OSError as error:
            raise StoreError(
                f"{path} cannot be read: {error.strerror}; correct its permissions, and run again"
            ) from error


def _objects(contents: Iterable[tuple[Path, bytes]], own: bool) -> list[Object]:
    objects: list[Object] = []
    for path, data in contents:
        read = list(documents(Source(str(path), data)))
        if own and not read:
            raise StoreError(f"{path} is not what was written there (nothing is in it): build the fleet again")
        for document in read:
            if document.problems:
                raise StoreError("\n".join(map(str, document.problems)))
            value: Object = document.value
            if not (text(value, "apiVersion") and text(value, "kind") and text(value, "metadata", "name")):
                raise StoreError(f"{path} holds a document that is no Kubernetes object: remove it from the folder")
            if not (own and is_unowned_namespace(value)):
                objects.append(value)
    return objects


def _files(folder: str) -> list[Path]:
    """Return the files below a directory, except hidden files."""

    def unreadable(error: OSError) -> None:
        raise StoreError(
            f"{error.filename} cannot be read: {error.strerror}; correct its permissions, and run again"
        ) from error

    paths = []
    for directory, folders, files in os.walk(folder, onerror=unreadable):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        paths += [
            Path(directory, name) for name in sorted(files) if name.endswith(_ENDINGS) and not name.startswith(".")
        ]
    return paths


class Build:
    """Build directory of a run that applies it. Raise StoreError for other directories."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.plan = _plan(folder)

    def objects(self, cluster: str, folder: str = "") -> list[Object]:
        """Return the desired objects of an inference cluster from `files`."""
        return self.files(cluster, folder).objects()

    def files(self, cluster: str, folder: str = "") -> Files:
        """Return the files of the desired objects of an inference cluster, from `folder` or from the build directory.

        The directory of a cluster without objects contains at most a Namespace of users. An unknown cluster name is an
        error, because an empty result would delete all objects of the cluster.
        """
        objects_folder = folder or self._own("clusters", cluster)
        if os.path.isdir(objects_folder) and (folder or _has_objects(Path(objects_folder))):
            return Files(tuple(_contents(_files(objects_folder), not folder)), not folder)
        if folder:
            raise StoreError(f"{folder}, the folder of cluster {cluster}, does not exist")
        if cluster in self.clusters():
            return Files((), own=True)
        raise StoreError(
            f"the build {self.folder} knows no cluster {cluster}, so nothing is applied there or removed: check the "
            "name and the path; to take everything off a cluster that left the fleet, use state=absent"
        )

    def _own(self, *names: str) -> str:
        """Return the path of a directory in the build. Raise StoreError for a link."""
        folder_path = Path(self.folder)
        for name in names:
            folder_path /= name
            if os.path.lexists(folder_path):
                refuse_foreign_folder(folder_path)
        return str(folder_path)

    def control(self) -> list[Object]:
        """Return the objects of the control cluster."""
        return self._of("control")

    def statuses(self, *within: str) -> list[Object]:
        """Return the resources with their status, or the resources in a subdirectory. Empty for an unobserved fleet."""
        return self._of("status", *within)

    def _of(self, *within: str, kind: str = "") -> list[Object]:
        """Return the objects in a directory of the build, if it exists. `kind`: kind in the names of the files."""
        objects_folder = self._own(*within)
        if not os.path.isdir(objects_folder):
            return []
        paths = [path for path in _files(objects_folder) if path.name.startswith(f"{kind.lower()}-" if kind else "")]
        return _objects(_contents(paths, own=True), own=True)

    def replica_statuses(self) -> list[Object]:
        """Return the ModelReplicas with their status, or none for an unobserved fleet."""
        return self._of("status", kind="ModelReplica")

    def secret_copies(self) -> list[dict[str, Any]]:
        """Return the entries of the plan for values that are copied from the control cluster."""
        copy_entries = self.plan.get("secretCopies") or []
        return [entry for entry in copy_entries if isinstance(entry, dict)]

    def held_labels(self) -> frozenset[tuple[tuple[str, str], ...]]:
        """Return the labels (name, value) of all frozen objects.

        These are objects of resources with invalid manifests, and objects of frozen replicas."""
        object_labels = set()
        for entry in self.plan.get("held") or []:
            label = OWNER_LABELS.get(entry["kind"])
            if label:
                labels = [(label, names.label_value(entry["name"]))]
                if entry["namespace"]:
                    labels.append((names.NAMESPACE_LABEL, names.label_value(entry["namespace"])))
                object_labels.add(tuple(labels))
        return frozenset(object_labels) | self.frozen_labels()

    def frozen_labels(self) -> frozenset[tuple[tuple[str, str], ...]]:
        """Return the labels (name, value) of all objects of frozen replicas."""
        return frozenset(
            (
                (names.REPLICA_LABEL, names.label_value(entry["replica"])),
                (names.NAMESPACE_LABEL, names.label_value(entry["namespace"])),
            )
            for entry in self.plan.get("frozen") or ()
        )

    def to_apply(self, objects: Iterable[Object]) -> list[Object]:
        """Return the objects without the objects of frozen replicas."""
        frozen = self.frozen_labels()
        return [value for value in objects if not _has_any(fields(value, "metadata", "labels"), frozen)]

    def blocked_clusters(self) -> frozenset[str]:
        """Return the inference clusters that no run waits for, according to the plan."""
        blocked = self.plan.get("blockedClusters")
        return frozenset(name for name in (blocked if isinstance(blocked, list) else ()) if isinstance(name, str))

    def histories(self) -> dict[str, list[str]] | None:
        """Return the digests of planned ModelReplicas by inference cluster, or None for a build without digests."""
        return histories(self.plan)

    def replicas(self) -> dict[str, list[Object]]:
        """Return the ModelReplicas of each inference cluster."""
        return replicas_of(self._of("control", kind="ModelReplica"))

    def clusters(self) -> frozenset[str]:
        """Return the inference clusters of the build, with a directory, a serving stack, or a status."""
        clusters_folder = Path(self.folder, "clusters")
        cluster_names = (
            {path.name for path in clusters_folder.iterdir() if _has_objects(path)}
            if clusters_folder.is_dir()
            else set()
        )
        stacks = self._of("control", kind="ServingStack")
        cluster_names |= {text(value, "metadata", "labels", names.CLUSTER_LABEL) for value in stacks}
        cluster_names |= {value["metadata"]["name"] for value in self._of("status", kind="InferenceCluster")}
        planned_clusters = self.plan.get("clusters")
        return frozenset(
            cluster_names
            | {
                name
                for name in (planned_clusters if isinstance(planned_clusters, list) else ())
                if isinstance(name, str)
            }
        )


def _has_objects(folder: Path) -> bool:
    """Return True if the directory of a cluster contains more than the Namespace that remains after its removal."""
    if os.listdir(folder) != ["cluster-scoped"]:
        return True
    return os.listdir(folder / "cluster-scoped") != [f"namespace-{names.SYSTEM_NAMESPACE}.yaml"]


def _has_any(labels: Mapping[str, Any], entries: Iterable[tuple[tuple[str, str], ...]]) -> bool:
    return any(all(labels.get(name) == value for name, value in entry) for entry in entries)


def histories(plan: Mapping[str, Any]) -> dict[str, list[str]] | None:
    """Return the digests of ModelReplicas in a plan, by inference cluster, or None for a plan without digests."""
    digests_by_cluster = plan.get("replicaDigests")
    if not isinstance(digests_by_cluster, dict):
        return None
    return {
        name: [digest for digest in digests if isinstance(digest, str)]
        for name, digests in digests_by_cluster.items()
        if isinstance(digests, list)
    }


def _plan(folder: str) -> dict[str, Any]:
    path = Path(folder, PLAN_FILE)
    try:
        if not os.path.lexists(path):
            raise StoreError(
                f"{folder} is no build folder (there is no {PLAN_FILE} in it): build the fleet first, or correct the "
                "path"
            )
        plan = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path} is not what was written there ({error}): build the fleet again") from error
    if not isinstance(plan, dict) or plan.get("generator") != names.MANAGED_BY:
        raise StoreError(f"{path} was not written by modelplane.fleet: correct the path")
    return plan
