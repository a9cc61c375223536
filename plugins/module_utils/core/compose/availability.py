# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Topology spread constraints and disruption budgets, to keep pods serving during node failures and drains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import constants


def spread_over_nodes(selector: Mapping[str, str]) -> dict[str, Any]:
    """Return a topologySpreadConstraint that prefers one pod per node and still starts all pods on a single node."""
    return {
        "maxSkew": 1,
        "topologyKey": constants.HOSTNAME_LABEL,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": dict(selector)},
        # Pods of the revision that is being replaced do not count.
        "matchLabelKeys": ["pod-template-hash"],
    }


def disruption_budget(metadata: Mapping[str, Any], selector: Mapping[str, str]) -> dict[str, Any]:
    """Return a PodDisruptionBudget: one healthy pod at a time may be evicted, pods that are not ready at any time."""
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
