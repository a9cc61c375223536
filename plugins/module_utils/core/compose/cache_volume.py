# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The volume that holds the weights of a ModelCache on a cluster: who fills it and who reads it agree here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose import constants
from ansible_collections.modelplane.fleet.plugins.module_utils.core.names import child_name

FOLDER = "Folder"
"""The repository's files lie in the root of the volume; engines take the path of the mount as their model."""
HUB_CACHE = "HubCache"
"""The volume is a Hugging Face cache; engines name the repository and find it there without a network."""

HUB_FOLDER = "hub"
"""Where a Hugging Face cache keeps repositories, below HF_HOME (huggingface_hub, "Environment variables")."""

_VOLUME = "model-cache"


def claim_name(namespace: str, cache: str, volume: str = "") -> str:
    """The name of a PersistentVolumeClaim of a ModelCache: of its first one, or with `volume` of that for another
    artifact (see `cache.volume_id`)."""
    return child_name("modelcache", namespace, cache, *filter(None, [volume]))


@dataclass(frozen=True)
class CacheMount:
    """The volume as an engine's pod sees it."""

    claim: str
    layout: str = FOLDER

    @classmethod
    def of(cls, namespace: str, reference: Mapping[str, Any] | None) -> CacheMount | None:
        """The mount for `spec.modelCacheRef` of a ModelReplica of this namespace; None without one."""
        if not reference:
            return None
        claim = claim_name(namespace, reference["name"], reference.get("volume") or "")
        return cls(claim, reference.get("layout") or FOLDER)

    @property
    def is_model(self) -> bool:
        """Whether the path of the mount is what an engine can be given as its model."""
        return self.layout == FOLDER

    def volume(self) -> dict[str, Any]:
        return {"name": _VOLUME, "persistentVolumeClaim": {"claimName": self.claim}}

    def mount(self) -> dict[str, Any]:
        return {"name": _VOLUME, "mountPath": constants.MODEL_CACHE_PATH}

    def env(self) -> list[dict[str, Any]]:
        """Variables by which engines look for repositories in the volume, and nowhere else."""
        if self.is_model:
            return []
        return [
            {"name": "HF_HOME", "value": constants.MODEL_CACHE_PATH},
            {"name": "HF_HUB_OFFLINE", "value": "1"},
        ]
