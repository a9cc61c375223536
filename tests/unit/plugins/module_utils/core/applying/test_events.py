# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Events of the fleet's resources."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.applying.events import (
    Event,
    Regarding,
    condition_events,
    event_object,
    replica_events,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.conditions import Condition, written

NOW = "2026-11-04T09:00:00Z"


CHAT = Regarding("modelplane.ai/v1alpha1", "ModelDeployment", "team", "chat", "1-2-3")


def conditions(*found: tuple[str, str, str, str]) -> dict[str, Condition]:
    return written([dict(zip(("type", "status", "reason", "message"), each, strict=True)) for each in found])


def replica(name: str, cluster: str, *pools: str, deployment: str = "chat") -> api.ModelReplica:
    template = {"spec": {"containers": [{"name": "engine", "image": "vllm:v1"}]}}
    request = {"name": "gpu", "deviceClassName": "gpu.nvidia.com", "count": 1}
    members = [
        {"role": role, "nodePoolName": pool, "template": template, "deviceRequests": [request]}
        for role, pool in zip(("Leader", "Worker") if len(pools) > 1 else ("Standalone",), pools, strict=True)
    ]
    labels = {"modelplane.ai/deployment": deployment} if deployment else {}
    found = api.parse(
        {
            "apiVersion": "modelplane.ai/v1alpha1",
            "kind": "ModelReplica",
            "metadata": {"name": name, "namespace": "team", "labels": labels},
            "spec": {"clusterName": cluster, "engines": [{"name": "main", "members": members}]},
        }
    )
    assert isinstance(found, api.ModelReplica)
    return found


SCHEDULED = ("ReplicasScheduled", "True", "ReplicasCreated", "Scheduled 1 of 1 replicas")
PENDING = ("ReplicasScheduled", "False", "InsufficientCapacity", "0 of 1 replicas scheduled; no device")
STARTING = (
    "ReplicasReady",
    "False",
    "ModelStarting",
    "0 of 1 ready; replica 0 on east: Deployment a: 0 of 1 up",
)
FAILING = ("ReplicasReady", "False", "ModelStarting", "0 of 1 ready; replica 0 on east: pod a-x: ImagePullBackOff: no")
SERVING = ("ReplicasReady", "True", "AllReplicasReady", "1 of 1 ready")


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ((), (PENDING,), [Event("Warning", "InsufficientCapacity", PENDING[3])]),
        ((PENDING,), (SCHEDULED,), [Event("Normal", "ReplicasCreated", SCHEDULED[3])]),
        ((), (SCHEDULED,), []),
        ((), (STARTING,), [Event("Normal", "ModelStarting", STARTING[3])]),
        ((STARTING,), (FAILING,), [Event("Warning", "ModelStarting", FAILING[3])]),
        ((FAILING,), (SERVING,), [Event("Normal", "AllReplicasReady", SERVING[3])]),
        ((SERVING,), (SERVING,), []),
        ((SERVING,), ((*SERVING[:3], "2 of 2 ready"),), []),
        ((), (("Ready", "False", "Creating", "x"),), []),
        ((), (("Synced", "False", "Other", "of another controller"),), []),
        ((SERVING,), (("ReplicasReady", "Unknown", "NotObserved", ""),), [("NotObserved", "ReplicasReady is Unknown")]),
    ],
)
def test_a_condition_that_changes_is_an_event(before: Any, after: Any, expected: Any) -> None:
    found = condition_events(conditions(*before), conditions(*after))
    if expected and isinstance(expected[0], tuple):
        assert [(event.reason, event.message) for event in found] == expected
    else:
        assert found == expected


def test_replicas_are_placed_moved_and_removed() -> None:
    created = [replica("chat-1", "west", "gpu"), replica("other-1", "east", "a", "b", deployment="other")]
    removed = [replica("chat-0", "east", "gpu"), replica("gone-0", "east", "gpu", deployment="gone")]
    found = replica_events(created, removed)
    assert {key[1]: [(event.reason, event.message) for event in events] for key, events in found.items()} == {
        "chat": [
            (
                "ReplicaMoved",
                "Replica chat-1 on pool gpu of cluster west; it was chat-0 on pool gpu of cluster east",
            )
        ],
        "other": [("ReplicaPlaced", "Replica other-1 on pools a, b of cluster east")],
        "gone": [("ReplicaRemoved", "Replica gone-0 on pool gpu of cluster east was removed")],
    }


def test_replicas_that_users_wrote_belong_to_no_deployment() -> None:
    assert replica_events([replica("mine", "west", "gpu", deployment="")], []) == {}


def test_an_event_names_its_object_and_is_small() -> None:
    written = event_object(Event("Warning", "ModelStarting", "x" * 5000), CHAT, NOW, "production")
    assert written["involvedObject"] == {
        "apiVersion": "modelplane.ai/v1alpha1",
        "kind": "ModelDeployment",
        "namespace": "team",
        "name": "chat",
        "uid": "1-2-3",
    }
    assert len(written["message"]) == 1024
    assert written["metadata"]["namespace"] == "team"
    assert written["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "modelplane.fleet"}
    again = event_object(Event("Warning", "ModelStarting", "x" * 5000), CHAT, NOW, "production")
    later = event_object(Event("Warning", "ModelStarting", "x" * 5000), CHAT, "2026-11-04T09:01:00Z", "production")
    assert written == again
    assert written["metadata"]["name"] != later["metadata"]["name"]


def test_events_of_cluster_scoped_objects_are_in_the_default_namespace() -> None:
    cluster = Regarding("modelplane.ai/v1alpha1", "InferenceCluster", "", "east")
    written = event_object(Event("Normal", "ClusterRunning", "m"), cluster, NOW, "default")
    assert written["metadata"]["namespace"] == "default"
    assert "namespace" not in written["involvedObject"]
