# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Pods of gangs whose deletion waits for a node that is lost."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose import constants
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.unavailable_nodes import with_lost_node
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.workloads import (
    failing_pods,
    failures,
    pod_failures,
)


def pod(node: str = "n1", *, gang: bool = True, **status: Any) -> dict[str, Any]:
    metadata = {"name": "kimi-0-1", "namespace": "mp-ml", "deletionTimestamp": "2026-01-01T00:00:00Z"}
    labels = {constants.LWS_NAME_LABEL: "kimi"} if gang else {}
    return {"kind": "Pod", "metadata": {**metadata, "labels": labels}, "spec": {"nodeName": node}, "status": status}


def node(name: str, ready: str | None) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": ready}] if ready else []
    return {"metadata": {"name": name}, "status": {"conditions": conditions}}


CRASHED = {"name": "engine", "ready": False, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
LOST = {
    "kubelet does not answer": ([node("n1", "Unknown")], "not Ready", {}),
    "kubelet reports a defect": ([node("n1", "False"), node("n2", "True")], "not Ready", {}),
    "no condition": ([node("n1", None)], "not Ready", {}),
    "machine was deleted": ([node("n2", "True")], "gone", {}),
    "no other node": ([], "gone", {"phase": "Running", "containerStatuses": [CRASHED]}),
}


@pytest.mark.parametrize(("nodes", "state", "status"), LOST.values(), ids=LOST)
def test_a_deletion_that_waits_for_a_lost_node_names_the_node_and_the_fix(
    nodes: list[dict[str, Any]], state: str, status: dict[str, Any]
) -> None:
    text = pod_failures([with_lost_node(pod(**status), nodes)])
    assert text.startswith(f"pod kimi-0-1: NodeLost: its node n1 is {state}, ")
    assert "Make sure that the machine is off" in text
    assert "kubectl delete pod kimi-0-1 -n mp-ml --force" in text
    assert text.endswith("node.kubernetes.io/out-of-service=nodeshutdown:NoExecute")


OTHERS = {
    "the node is Ready": (pod(), [node("n1", "True")]),
    "a Deployment replaces the pod": (pod(gang=False), [node("n1", "Unknown")]),
    "the pod has no node": (pod(""), []),
    "a crash of before": (pod(phase="Running", containerStatuses=[CRASHED]), [node("n1", "True")]),
}


@pytest.mark.parametrize(("value", "nodes"), OTHERS.values(), ids=OTHERS)
def test_other_deletions_are_no_failures(value: dict[str, Any], nodes: list[dict[str, Any]]) -> None:
    assert not failing_pods([with_lost_node(value, nodes)])
    assert not failures(with_lost_node(value, nodes))
