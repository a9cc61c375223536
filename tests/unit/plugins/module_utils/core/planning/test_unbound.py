# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Replicas with a pod that finds no node get another place, and nothing else moves."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api, names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.applying.inventory import Key
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose import Options, replica_objects
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.owner import Owner
from ansible_collections.modelplane.fleet.plugins.module_utils.core.observation import (
    NOT_READY,
    Observed,
    ObservedCluster,
    UnavailableNode,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output.changes import replica_changes
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning import Plan, plan
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning.fleet import written
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object, Objects
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.change.little_server import (
    OURS,
    Server,
    planned,
    shuffled,
)
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.change.little_server import (
    run as execute,
)
from ansible_collections.modelplane.fleet.tests.written import parsed

GPU = "gpu.nvidia.com"
NO_DEVICES = "0/2 nodes are available: 2 cannot allocate all claims."
CORDONED = "0/2 nodes are available: 2 node(s) were unschedulable."
WAITED = f"pod x: Unschedulable: {NO_DEVICES}"


def cluster(name: str, nodes: int = 2) -> api.InferenceCluster:
    source = {"source": "Existing", "existing": {"secretRef": {"name": name, "key": "kubeconfig"}}}
    pools = [{"name": "gpu", "className": "h100", "nodeCount": nodes, "maxNodeCount": nodes}]
    spec = {"cluster": source, "nodePools": pools}
    made: api.InferenceCluster = parsed({"metadata": {"name": name}, "spec": spec}, api.InferenceCluster)
    return made


def deployment(
    name: str, count: int, selector: str = "", replicas: int = 1, *, copies: int = 1, workers: int = 0
) -> api.ModelDeployment:
    request = {"name": "gpu", "count": count, "selectors": [{"cel": f'device.driver == "{GPU}"'}]}
    container = {"name": "engine", "image": "registry.example.com/engine:v1"}
    pods = {"nodeSelector": {"devices": [request]}, "template": {"spec": {"containers": [container]}}}
    members = [{"role": "Leader", **pods}, {"role": "Worker", "worker": {"nodes": workers}, **pods}]
    engine = {"name": "main", "copies": copies, "members": members if workers else [pods]}
    spec: dict[str, Any] = {
        "replicas": replicas,
        "template": {
            "spec": {
                "engines": [engine],
                **({"clusterSelector": {"matchLabels": {names.CLUSTER_LABEL: selector}}} if selector else {}),
            }
        },
    }
    made: api.ModelDeployment = parsed({"metadata": {"name": name}, "spec": spec}, api.ModelDeployment)
    return made


CLASS = parsed(
    {
        "metadata": {"name": "h100"},
        "spec": {"devices": [{"name": "gpu", "driver": GPU, "deviceClassName": GPU, "count": 8}]},
    },
    api.InferenceClass,
)
SMALL = [deployment("one", 1, "east"), deployment("two", 1, "east")]
EAST, WEST = cluster("east"), cluster("west")


def pod(replica: api.ModelReplica, message: str = "", **metadata: str) -> dict[str, Any]:
    """A pod of a replica, which has a node unless there is a message of kube-scheduler."""
    owner = Owner.of(replica)
    condition = {"type": "PodScheduled", "status": "True"}
    if message:
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    labels = {names.REPLICA_LABEL: names.label_value(owner.replica)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": replica.name, "namespace": owner.workload_namespace, "labels": labels, **metadata},
        "status": {"conditions": [condition]},
    }


def run(
    resources: Sequence[api.Resource],
    before: Iterable[api.ModelReplica],
    pods: Iterable[Mapping[str, Any]],
    said: Mapping[str, str],
    nodes: int = 2,
    *,
    available: Sequence[str] = ("one", "two"),
    stalled: Sequence[str] = (),
    partial: Sequence[str] = (),
    unavailable: Mapping[str, tuple[UnavailableNode, ...]] | None = None,
) -> Plan:
    """Plan with what is observed on east: all workloads, pods, and what statuses said; west is not read.

    `available` are the deployments whose replicas serve, `stalled` those that miss their progress deadline, `partial`
    those of which one copy serves.
    """
    serving = {"availableReplicas": 1, "conditions": [{"type": "Available", "status": "True"}]}
    late = {"conditions": [{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}]}
    some = {"availableReplicas": 1, "readyReplicas": 1, "conditions": [{"type": "Available", "status": "False"}]}
    existing = [parsed(written(replica), api.ModelReplica) for replica in before]
    objects = [
        {**value, "status": serving}
        if value["metadata"]["name"].startswith(tuple(available))
        else {**value, "status": {**some, "conditions": [*some["conditions"], *late["conditions"]]}}
        if value["metadata"]["name"].startswith(tuple(partial))
        else {**value, "status": late}
        if value["metadata"]["name"].startswith(tuple(stalled))
        else value
        for value in plan(resources, existing).workloads["east"]
    ]
    east = ObservedCluster(objects=Objects([*objects, *pods]), nodes={"gpu": nodes}, unavailable=unavailable or {})
    observed = Observed(clusters={"east": east, "west": ObservedCluster(declared=True)})
    statuses = {
        replica.ref: {"conditions": [{"type": "ModelReady", "status": "False", "message": said[replica.name]}]}
        for replica in existing
        if replica.name in said
    }
    return plan(resources, existing, observed=observed, statuses=statuses)


@pytest.fixture(scope="module")
def before() -> dict[str, api.ModelReplica]:
    """Two small pods, each on another node, and one that takes a whole node."""
    first = plan([CLASS, EAST, *SMALL]).replicas
    existing = [parsed(written(replica), api.ModelReplica) for replica in first]
    both = plan([CLASS, EAST, *SMALL, deployment("whole", 8)], existing)
    return {replica.labels[names.DEPLOYMENT_LABEL]: replica for replica in both.replicas}


def places(found: Plan) -> dict[str, str]:
    return {one.deployment: one.cluster for one in found.schedule.placements}


def test_a_replica_whose_pod_finds_no_node_gets_another_place(before: dict[str, api.ModelReplica]) -> None:
    resources = [CLASS, EAST, WEST, *SMALL, deployment("whole", 8)]
    whole = before["whole"]
    pods = [pod(whole, NO_DEVICES)]
    found = run(resources, before.values(), pods, {whole.name: WAITED})
    assert places(found) == {"one": "east", "two": "east", "whole": "west"}
    removed = next(change for change in replica_changes(found) if change.action == "removed")
    assert removed.replica == whole.name
    assert removed.reason == f"pod {whole.name} found no node on pool gpu of cluster east, so it gets another place"
    moved = next(one for one in found.replicas if one.spec.cluster_name == "west")
    assert moved.annotations[names.NO_NODE_ANNOTATION] == "east/gpu"
    assert found.warnings == ()
    # The next run goes on with that.
    again = run(resources, found.replicas, [], {})
    assert places(again) == places(found)
    assert again.edited == frozenset()
    # The replica serves there, so that it may go back when the pool has a node for it.
    assert names.NO_NODE_ANNOTATION not in next(one for one in again.replicas if one.name == moved.name).annotations


@pytest.mark.parametrize(
    "reason",
    ["serving", "bound", "new", "growing", "leaving"],
)
def test_a_replica_that_may_get_a_node_soon_or_serves_stays(before: dict[str, api.ModelReplica], reason: str) -> None:
    whole = before["whole"]
    pods = [pod(whole, NO_DEVICES)]
    if reason == "leaving":
        pods.append(pod(before["one"], deletionTimestamp="2026-01-01T00:00:00Z"))
    if reason == "bound":
        pods = [pod(whole)]
    found = run(
        [CLASS, EAST, WEST, *SMALL, deployment("whole", 8)],
        before.values(),
        pods,
        {} if reason == "new" else {whole.name: WAITED},
        nodes=1 if reason == "growing" else 2,
        available=("one", "two", "whole") if reason == "serving" else ("one", "two"),
    )
    assert places(found)["whole"] == "east"
    assert found.edited == frozenset()
    assert found.warnings == ()


@pytest.mark.parametrize("message", [CORDONED, "0/2 nodes are available: 2 Insufficient cpu."])
def test_a_replica_moves_whatever_keeps_its_pod_from_a_node(before: dict[str, api.ModelReplica], message: str) -> None:
    whole = before["whole"]
    resources = [CLASS, EAST, WEST, *SMALL, deployment("whole", 8)]
    status = {whole.name: f"pod x: Unschedulable: {message}"}
    found = run(resources, before.values(), [pod(whole, message)], status, available=())
    assert places(found) == {"one": "east", "two": "east", "whole": "west"}


def test_a_replica_moves_from_a_pool_that_may_grow_after_its_progress_deadline(
    before: dict[str, api.ModelReplica],
) -> None:
    whole = before["whole"]
    resources = [CLASS, EAST, WEST, *SMALL, deployment("whole", 8)]
    arguments = (resources, before.values(), [pod(whole, NO_DEVICES)], {whole.name: WAITED})
    assert places(run(*arguments, nodes=1))["whole"] == "east"
    assert places(run(*arguments, nodes=1, stalled=("whole",)))["whole"] == "west"


def test_a_pod_on_a_lost_node_never_terminates(before: dict[str, api.ModelReplica]) -> None:
    whole = before["whole"]
    resources = [CLASS, EAST, WEST, *SMALL, deployment("whole", 8)]
    terminating = pod(whole, deletionTimestamp="2026-01-01T00:00:00Z")
    terminating["spec"] = {"nodeName": "gpu-0"}
    terminating["metadata"]["name"] = "terminating"
    pods = [pod(whole, NO_DEVICES), terminating]
    lost = {"gpu": (UnavailableNode("gpu-0", NOT_READY, closed=True, devices={"gpu": 8}),)}
    arguments = (resources, before.values(), pods, {whole.name: WAITED})
    assert places(run(*arguments))["whole"] == "east"
    found = run(*arguments, nodes=1, unavailable=lost, stalled=("whole",))
    assert places(found)["whole"] == "west"
    assert not any("are not moved" in warning for warning in found.warnings)


def test_replicas_without_another_place_leave_the_tries_to_others() -> None:
    many, last = deployment("many", 8, "east", replicas=12), deployment("zzz", 8)
    wide = cluster("east", 13)
    first = plan([CLASS, wide, many, last]).replicas
    existing = [parsed(written(replica), api.ModelReplica) for replica in first]
    waited = {replica.name: WAITED for replica in existing}
    pods = [pod(replica, CORDONED) for replica in existing]
    found = run([CLASS, wide, WEST, many, last], existing, pods, waited, nodes=13, available=())
    assert places(found)["zzz"] == "west"


def test_a_replica_without_another_place_stays_and_the_plan_says_so(before: dict[str, api.ModelReplica]) -> None:
    whole = before["whole"]
    pods = [pod(whole, NO_DEVICES)]
    found = run([CLASS, EAST, *SMALL, deployment("whole", 8)], before.values(), pods, {whole.name: WAITED})
    assert places(found)["whole"] == "east"
    (warning,) = found.warnings
    start = f"pool gpu on east: pod {whole.name} of ModelReplica default/{whole.name} is unschedulable"
    assert warning.startswith(start)


def test_a_replica_does_not_go_back_to_where_it_found_no_node(before: dict[str, api.ModelReplica]) -> None:
    whole = before["whole"]
    annotations = {names.NO_NODE_ANNOTATION: "west/gpu"}
    was = whole.model_copy(update={"metadata": whole.metadata.model_copy(update={"annotations": annotations})})
    pods = [pod(was, NO_DEVICES)]
    replicas = [before["one"], before["two"], was]
    found = run([CLASS, EAST, WEST, *SMALL, deployment("whole", 8)], replicas, pods, {was.name: WAITED})
    assert places(found)["whole"] == "east"
    assert len(found.warnings) == 1


@pytest.mark.parametrize("workers", [0, 1])
def test_a_replica_stays_while_one_of_its_copies_serves(workers: int) -> None:
    large = deployment("large", 8, copies=2, workers=workers)
    east, west = cluster("east", 4), cluster("west", 4)
    (replica,) = [parsed(written(replica), api.ModelReplica) for replica in plan([CLASS, east, large]).replicas]
    waits = pod(replica, NO_DEVICES)
    waits["metadata"]["name"] = "waits"
    arguments = ([CLASS, east, west, large], [replica], [pod(replica), waits], {replica.name: WAITED})
    # The status of a workload counts copies, so one of two is available, and the progress deadline has passed.
    kept = run(*arguments, nodes=4, partial=("large",))
    assert (places(kept), kept.leaving) == ({"large": "east"}, ())
    assert [one.name for one in kept.replicas] == [replica.name]
    assert kept.states[replica.namespace, replica.name].serving
    # Without a serving copy, nothing is lost.
    assert places(run(*arguments, nodes=4)) == {"large": "west"}


def test_the_moved_replica_is_created_before_the_old_one_is_deleted(before: dict[str, api.ModelReplica]) -> None:
    whole = before["whole"]
    resources = [CLASS, EAST, WEST, *SMALL, deployment("whole", 8)]
    found = run(resources, before.values(), [pod(whole, NO_DEVICES)], {whole.name: WAITED})
    (moved,) = (one for one in found.replicas if one.spec.cluster_name == "west")
    # Within the control cluster, and within a cluster with two pools.
    for old, new in (
        ([ours(written(whole))], [ours(written(moved))]),
        (composed(whole), composed(moved)),
    ):
        server = Server()
        execute(server, {Key.of(value): value for value in old}, random.Random(1))
        change_plan = planned(server, {Key.of(value): value for value in new})
        for number in range(20):
            steps = [str(step) for step in shuffled(change_plan, random.Random(number))]
            written_last = max(index for index, step in enumerate(steps) if step.startswith("write "))
            deleted_first = min(index for index, step in enumerate(steps) if step.startswith("delete "))
            assert written_last < deleted_first


def composed(replica: api.ModelReplica) -> list[Object]:
    return [ours(value) for value in replica_objects(replica, Options())]


def ours(value: Object) -> Object:
    metadata = {**value["metadata"], "labels": {**value["metadata"].get("labels", {}), **OURS}}
    return {**value, "metadata": metadata}
