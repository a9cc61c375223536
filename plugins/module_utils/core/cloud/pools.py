# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""What nodes of a pool carry, in whichever cloud they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.constants import POOL_LABEL

GPU_LABEL = "modelplane.ai/gpu"
GPU_TAINT = ("nvidia.com/gpu", "true")
"""Key and value. It keeps off what does not claim a GPU; Kubernetes' effect is NoSchedule."""
GPU = "GPU"
SYSTEM = "System"


def labels(pool: Mapping[str, Any]) -> dict[str, str]:
    """The labels of the nodes of a pool (of an EKSCluster or a GKECluster, wire form)."""
    found = {POOL_LABEL: str(pool["name"])}
    if pool["role"] == GPU:
        found[GPU_LABEL] = str(pool["gpu"]["acceleratorType"])
    return found
