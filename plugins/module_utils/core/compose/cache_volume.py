# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Volume of a ModelCache on a cluster: names and layout shared by the Job that fills it and the pods that read it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..api.engine import Layout
from ..api.model_replica import MountedCache
from ..names import child_name
from . import constants

FOLDER: Layout = "Folder"
"""The repository's files are in the root of the volume; engines get the mount path as their model."""
HUB_CACHE: Layout = "HubCache"
"""The volume is a Hugging Face cache; engines name the repository and load it from there without a network."""

HUB_FOLDER = "hub"
"""Folder of repositories in a Hugging Face cache, below HF_HOME (huggingface_hub, "Environment variables")."""

_VOLUME = "model-cache"
_MODULES = "model-modules"
_MODULES_PATH = "/mnt/model-modules"


def claim_name(namespace: str, cache: str, volume: str = "") -> str:
    """Return the name of a PersistentVolumeClaim of a ModelCache: of the first one, or of the one with the ID `volume`
    (see `cache.volume_id`)."""
    return child_name("modelcache", namespace, cache, *filter(None, [volume]))


@dataclass(frozen=True)
class CacheMount:
    """Mount of the volume in the pod of an engine."""

    claim: str
    layout: Layout = FOLDER
    read_only: bool = False

    @classmethod
    def of(cls, namespace: str, reference: MountedCache | None) -> CacheMount | None:
        """Return the mount for `spec.modelCacheRef` of a ModelReplica of this namespace; None without one."""
        if reference is None:
            return None
        return cls(
            claim_name(namespace, reference.name, reference.volume or ""), reference.layout, bool(reference.read_only)
        )

    @property
    def is_model(self) -> bool:
        """True when an engine can be given the path of the mount as its model."""
        return self.layout == FOLDER

    def volumes(self) -> list[dict[str, Any]]:
        """Return the volume, and for a read-only mount also a volume for the Python modules of a model."""
        volume = {"name": _VOLUME, "persistentVolumeClaim": {"claimName": self.claim}}
        return [volume, {"name": _MODULES, "emptyDir": {"sizeLimit": "1Gi"}}] if self.read_only else [volume]

    def mounts(self) -> list[dict[str, Any]]:
        """Return the mounts of these volumes."""
        mount: dict[str, Any] = {"name": _VOLUME, "mountPath": constants.MODEL_CACHE_PATH}
        if not self.read_only:
            return [mount]
        return [{**mount, "readOnly": True}, {"name": _MODULES, "mountPath": _MODULES_PATH}]

    def env(self) -> list[dict[str, Any]]:
        """Return the variables that make engines load repositories from the volume only, and write modules of a model
        elsewhere when the volume is read-only."""
        modules = [{"name": "HF_MODULES_CACHE", "value": _MODULES_PATH}] if self.read_only else []
        if self.is_model:
            return modules
        return [
            *modules,
            {"name": "HF_HOME", "value": constants.MODEL_CACHE_PATH},
            {"name": "HF_HUB_OFFLINE", "value": "1"},
        ]
