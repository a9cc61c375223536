# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The summary of a teardown."""

from __future__ import annotations

from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core import names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output.removal import (
    ClusterRemoval,
    removal_lines,
)


def workload(replica: str) -> dict[str, Any]:
    labels = {names.NAMESPACE_LABEL: "team", names.DEPLOYMENT_LABEL: "chat", names.REPLICA_LABEL: replica}
    return {"kind": "Deployment", "metadata": {"name": replica, "labels": labels}}


PLAN = {
    "placements": [
        {"namespace": "team", "deployment": "chat", "replica": f"chat{number}", "cluster": cluster}
        for number, cluster in enumerate(("east", "east", "west"))
    ],
    "services": [
        {"namespace": "team", "name": "talk", "endpoints": [{"name": f"chat{number}"} for number in range(3)]}
    ],
}


def test_deployments_and_services_that_stop_are_named() -> None:
    east = ClusterRemoval("east", [workload("chat0"), workload("chat1")])
    assert removal_lines([east], PLAN)[1:] == [
        "deployment team/chat: loses 2 of 3 replicas",
        "service team/talk: loses 2 of 3 endpoints",
    ]
    west = ClusterRemoval("west", [workload("chat2")])
    assert removal_lines([east, west], PLAN)[2:] == [
        "deployment team/chat: loses all 3 replicas",
        "service team/talk: loses all 3 endpoints",
    ]


def test_without_a_plan_the_labels_of_objects_name_the_deployments() -> None:
    removals = [ClusterRemoval("east", [workload("chat0")]), ClusterRemoval("west", error="it does not answer")]
    assert removal_lines(removals, {})[2:] == ["deployment team/chat: loses 1 replica"]
