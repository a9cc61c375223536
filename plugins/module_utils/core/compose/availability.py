# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""What keeps pods serving when a node fails or is drained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose import constants


def spread_over_nodes(selector: Mapping[str, str]) -> dict[str, Any]:
    """A topologySpreadConstraint: one pod per node where there are two nodes; on a cluster with one node both start."""
    return {
        "maxSkew": 1,
        "topologyKey": constants.HOSTNAME_LABEL,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": dict(selector)},
        # Pods of the revision that is on its way out do not count.
        "matchLabelKeys": ["pod-template-hash"],
    }


def disruption_budget(metadata: Mapping[str, Any], selector: Mapping[str, str]) -> dict[str, Any]:
    """One healthy pod at a time may be evicted; one that is not ready anyway never holds up a node's drain."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": dict(metadata),
        "spec": {
            "maxUnavailable": 1,
            "selector": {"matchLabels": dict(selector)},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }
