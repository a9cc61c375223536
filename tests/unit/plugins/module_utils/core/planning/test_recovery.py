# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Recovery of ModelReplicas if the state of the fleet is missing or outdated."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api, names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.observation import (
    AppliedReplicas,
    Observed,
    ObservedCluster,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning.recovery import (
    Recovery,
    next_history,
    recover,
    replicas_digest,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.problem import Ref
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Objects

DEPLOYMENT = Ref("ModelDeployment", "team", "chat")
CLUSTERS = (Ref("InferenceCluster", "", "east"), Ref("InferenceCluster", "", "west"))


def replica(name: str, cluster: str = "west", deployment: str = "chat", tag: str = "v1") -> dict[str, Any]:
    container = {"name": "engine", "image": f"engine:{tag}"}
    requests = [{"name": "gpu", "deviceClassName": "gpu.nvidia.com"}]
    template = {"spec": {"containers": [container]}}
    member = {"role": "Standalone", "nodePoolName": "gpu", "deviceRequests": requests, "template": template}
    return {
        "apiVersion": "modelplane.ai/v1alpha1",
        "kind": "ModelReplica",
        "metadata": {
            "name": name,
            "namespace": "team",
            "labels": {
                names.MANAGED_BY_LABEL: names.MANAGED_BY,
                names.DEPLOYMENT_LABEL: deployment,
                names.CLUSTER_LABEL: cluster,
            },
        },
        "spec": {"clusterName": cluster, "engines": [{"name": "main", "members": [member]}]},
    }


def workload(name: str, deployment: str = "chat", available: int = 1) -> dict[str, Any]:
    labels = {names.NAMESPACE_LABEL: "team", names.REPLICA_LABEL: name, names.DEPLOYMENT_LABEL: deployment}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": f"{name}-main", "namespace": "mp-team", "labels": labels, "generation": 1},
        "spec": {"replicas": 1},
        "status": {
            "observedGeneration": 1,
            "replicas": 1,
            "updatedReplicas": available,
            "readyReplicas": available,
            "availableReplicas": available,
            "conditions": [{"type": "Available", "status": str(bool(available))}],
        },
    }


def cluster(*replicas: dict[str, Any], running: tuple[str, ...] | None = None) -> ObservedCluster:
    """Return a cluster with an inventory of these replicas. By default, all of them run."""
    on_it = [entry["metadata"]["name"] for entry in replicas] if running is None else running
    applied = AppliedReplicas(replicas_digest(replicas), tuple(replicas)) if replicas else AppliedReplicas()
    return ObservedCluster(objects=Objects(workload(name) for name in on_it), applied=applied)


def recovered(
    state: list[dict[str, Any]],
    history: dict[str, list[str]],
    clusters: dict[str, ObservedCluster],
    manifests: tuple[Ref, ...] = (DEPLOYMENT,),
) -> Recovery:
    existing = [api.parse(entry) for entry in state]
    return recover(existing, history, Observed(clusters=clusters), (), (*CLUSTERS, *manifests))


A, B, OLD_A = replica("a"), replica("b"), replica("a", tag="v0")
EAST = cluster()


def test_an_empty_state_adopts_what_runs() -> None:
    recovery = recovered([], {}, {"west": cluster(A, B), "east": EAST})
    assert [entry.name for entry in recovery.existing] == ["a", "b"]
    assert [entry.name for entry in recovery.adopted] == ["a", "b"]
    assert (recovery.problem("the build folder"), recovery.newer) == ("", {"west"})


def test_what_was_recorded_and_does_not_run_is_not_adopted() -> None:
    assert [
        entry.name for entry in recovered([], {}, {"west": cluster(A, B, running=("b",)), "east": EAST}).existing
    ] == ["b"]


def test_a_state_that_knows_what_a_cluster_has_is_right() -> None:
    history = {"west": [replicas_digest([A, B]), replicas_digest([A])]}
    recovery = recovered([A], history, {"west": cluster(A, B)})
    assert ([entry.name for entry in recovery.existing], recovery.adopted, recovery.newer) == (["a"], (), frozenset())


def test_an_old_state_takes_the_specification_that_runs_and_forgets_what_went() -> None:
    gone = replica("gone")
    recovery = recovered(
        [OLD_A, gone], {"west": [replicas_digest([OLD_A, gone])]}, {"west": cluster(A, B), "east": EAST}
    )
    assert sorted(entry.name for entry in recovery.existing) == ["a", "b"]
    assert A["spec"] in [api.wire(entry, set_only=True)["spec"] for entry in recovery.existing]
    assert [entry.name for entry in recovery.adopted] == ["b"]


def test_a_recorded_replica_that_cannot_be_read_is_listed() -> None:
    recovery = recovered([], {}, {"west": cluster({**A, "spec": {**A["spec"], "unknown": 1}}), "east": EAST})
    assert [(entry.name, entry.reason) for entry in recovery.refused] == [("a", "its stored ModelReplica is invalid")]


def test_what_the_manifests_do_not_have_is_listed() -> None:
    recovery = recovered([], {}, {"west": cluster(A, replica("x", deployment="other")), "east": EAST})
    assert [entry.name for entry in recovery.existing] == ["a"]
    text = recovery.problem("the build folder")
    assert "cluster west, namespace team, replica x, deployment other, serving" in text
    assert "fleet_remove_unknown" in text


@pytest.mark.parametrize(
    "east",
    [None, ObservedCluster(unreachable="no answer"), ObservedCluster(declared=True)],
    ids=["not observed", "unreachable", "declared"],
)
def test_a_cluster_that_was_not_observed_stops_a_run_without_state(east: ObservedCluster | None) -> None:
    recovery = recovered([], {}, {"west": cluster(A), **({"east": east} if east else {})})
    assert recovery.unread == ("east",)
    assert "and east was not observed" in recovery.problem("the control cluster")


def test_a_cluster_that_was_not_observed_is_no_problem_where_the_state_is_right() -> None:
    recovery = recovered(
        [A], {"west": [replicas_digest([A])]}, {"west": cluster(A), "east": ObservedCluster("no answer")}
    )
    assert recovery.problem("the build folder") == ""


def test_replicas_without_a_record_are_listed_unless_the_state_knows_them() -> None:
    west = cluster(running=("a", "b"))
    assert [entry.name for entry in recovered([A], {}, {"west": west}).refused] == ["b"]
    assert recovered([A, B], {}, {"west": west}).refused == ()
    assert recovered([], {}, {"west": ObservedCluster(objects=west.objects)}).refused == ()


def test_the_history_begins_with_what_was_seen_and_ends_with_what_is_planned() -> None:
    a, ab, b = (replicas_digest(entry) for entry in ([A], [A, B], [B]))
    seen = Observed(clusters={"west": cluster(A)})
    assert next_history({}, None, [A, B], ["east", "west"]) == {"west": [ab]}
    assert next_history({"west": [ab]}, None, [A], ["west"]) == {"west": [ab, a]}
    assert next_history({"west": [ab, a]}, seen, [A], ["west"]) == {"west": [ab, a]}
    assert next_history({"west": [ab, a]}, seen, [B], ["west"]) == {"west": [a, b]}
    assert next_history({"west": [ab]}, seen, [A], ["west"]) == {"west": [a]}
    assert next_history({"west": [ab]}, seen, [], ["west"]) == {"west": [a, replicas_digest([])]}
    assert len(next_history({"west": [str(entry) for entry in range(90)]}, None, [A], ["west"])["west"]) == 50
