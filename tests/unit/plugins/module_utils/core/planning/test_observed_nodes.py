# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""New replicas use only nodes that exist and take pods; running replicas stay."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api, names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.owner import Owner
from ansible_collections.modelplane.fleet.plugins.module_utils.core.observation import (
    Component,
    Observed,
    ObservedCluster,
    UnavailableNode,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning import Plan, plan
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning.fleet import written
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import Options
from ansible_collections.modelplane.fleet.tests.written import parsed

GPU = "gpu.nvidia.com"
CLASS = parsed(
    {
        "metadata": {"name": "l4"},
        "spec": {"devices": [{"name": "gpu", "driver": GPU, "deviceClassName": GPU, "count": 2}]},
    },
    api.InferenceClass,
)


CORDONED = UnavailableNode("n0", "cordoned", True, {"gpu": 2})
EKS = {"source": "EKS", "eks": {"region": "us-east-1", "cache": {"mountCIDR": "10.0.0.0/16"}}}


def cluster(name: str, source: Any = None, **pool: Any) -> api.InferenceCluster:
    source = source or {"source": "Existing", "existing": {"secretRef": {"name": name}}}
    spec = {"cluster": source, "nodePools": [{"name": "gpu", "className": "l4", "nodeCount": 2, **pool}]}
    made: api.InferenceCluster = parsed({"metadata": {"name": name}, "spec": spec}, api.InferenceCluster)
    return made


def deployment(
    replicas: int = 2, count: int = 1, name: str = "chat", tag: str = "v1", **spec: Any
) -> api.ModelDeployment:
    request = {"name": "gpu", "count": count, "selectors": [{"cel": f'device.driver == "{GPU}"'}]}
    container = {"name": "engine", "image": f"registry.example.com/engine:{tag}"}
    member = {"nodeSelector": {"devices": [request]}, "template": {"spec": {"containers": [container]}}}
    template = {"spec": {"engines": [{"name": "main", "members": [member]}]}}
    metadata = {"name": name, "annotations": {names.PRIORITY_ANNOTATION: spec.pop("priority", "0")}}
    made: api.ModelDeployment = parsed(
        {"metadata": metadata, "spec": {"replicas": replicas, "template": template, **spec}}, api.ModelDeployment
    )
    return made


def nodes(ready: int, *unavailable: UnavailableNode, stranded: Sequence[api.ModelReplica] = ()) -> ObservedCluster:
    """Return a cluster with so many Ready nodes in its pool."""
    owners = map(Owner.of, stranded)
    return ObservedCluster(
        stack=Component(ready=True),
        provisioned=Component(ready=True),
        nodes={"gpu": ready} if ready else {},
        unavailable={"gpu": unavailable} if unavailable else {},
        stranded={(owner.workload_namespace, names.label_value(owner.replica)): "cordoned" for owner in owners},
    )


def run(
    clusters: Iterable[api.InferenceCluster],
    desired: api.ModelDeployment | Sequence[api.ModelDeployment],
    observed: dict[str, ObservedCluster],
    before: Iterable[api.ModelReplica] = (),
    accounting: str = "Devices",
) -> Plan:
    clusters = list(clusters)
    statuses = {
        each.ref: {
            "conditions": [{"type": "Ready", "status": "True", "reason": "Available"}],
            "gateway": {"address": "192.0.2.1"},
        }
        for each in clusters
    }
    existing = [parsed(written(replica), api.ModelReplica) for replica in before]
    return plan(
        [CLASS, *clusters, *([desired] if isinstance(desired, api.ModelDeployment) else desired)],
        existing,
        options=Options(accounting=accounting),  # type: ignore[arg-type]
        observed=Observed(clusters=observed),
        statuses=statuses,
    )


def places(found: Plan) -> list[str]:
    return sorted(placement.cluster for placement in found.schedule.placements)


def refusals(found: Plan) -> str:
    return " ".join(str(refusal) for pending in found.schedule.pending for refusal in pending.refusals)


EAST, WEST = cluster("east"), cluster("west")


@pytest.mark.parametrize("accounting", ["Devices", "Nodes"])
@pytest.mark.parametrize(
    ("west", "shortfall"),
    [
        (nodes(0), "pool gpu on west: 0 of 2 declared nodes exist"),
        (
            nodes(1, CORDONED, UnavailableNode("n1", "not Ready", True, {"gpu": 2})),
            "pool gpu on west: 2 of 2 nodes unavailable: n0 (cordoned), n1 (not Ready)",
        ),
    ],
    ids=["missing nodes", "unavailable nodes"],
)
def test_a_replica_is_placed_where_nodes_take_it(west: ObservedCluster, shortfall: str, accounting: str) -> None:
    found = run([EAST, WEST], deployment(), {"east": nodes(2), "west": west}, accounting=accounting)
    assert places(found) == ["east", "east"]
    alone = run([WEST], deployment(), {"west": west}, accounting=accounting)
    assert places(alone) == []
    assert shortfall in refusals(alone)


def test_running_replicas_stay_on_unavailable_nodes() -> None:
    before = run([EAST], deployment(4), {"east": nodes(2)}).replicas
    occupied = UnavailableNode("n0", "cordoned", True)
    found = run([EAST, WEST], deployment(5), {"east": nodes(2, occupied), "west": nodes(2)}, before)
    assert places(found) == ["east"] * 4 + ["west"]
    assert found.edited == frozenset()
    assert not found.schedule.overcommitted


def test_a_partly_used_node_that_is_unavailable_takes_no_new_replica() -> None:
    before = run([EAST], deployment(1), {"east": nodes(2)}).replicas
    # The replica has one device of node n0, the other one is free.
    east = nodes(2, UnavailableNode("n0", "cordoned", True, {"gpu": 1}))
    assert places(run([EAST], deployment(3), {"east": east}, before)) == ["east"] * 3
    four = run([EAST], deployment(4), {"east": east}, before)
    assert places(four) == ["east"] * 3
    assert "1 of 2 nodes unavailable: n0 (cordoned)" in refusals(four)


def test_free_devices_of_different_nodes_are_no_node() -> None:
    reason = "device gpu-0 has the taint sick:NoSchedule"
    tainted = [UnavailableNode(name, reason, devices={"gpu": 1}) for name in ("n0", "n1")]
    found = run([EAST], deployment(1, count=2), {"east": nodes(2, *tainted)})
    assert places(found) == []
    assert "2 of 2 gpu free, at most 1 on one node" in refusals(found)


TAINTED = UnavailableNode("n0", "device gpu-0 has the taint sick:NoSchedule", devices={"gpu": 1})


@pytest.mark.parametrize(("count", "replicas"), [(1, 2), (2, 1)])
def test_a_whole_node_is_charged_only_if_it_has_the_devices(count: int, replicas: int) -> None:
    found = run([EAST], deployment(3, count), {"east": nodes(2, TAINTED)}, accounting="Nodes")
    assert places(found) == ["east"] * replicas
    assert f"0 of 2 nodes free, engine needs 1; 1 of 2 nodes unavailable: {TAINTED}" in refusals(found)


def test_small_pods_leave_whole_nodes_to_large_pods() -> None:
    small, large = deployment(1, 1, "small"), deployment(1, 2, "large")
    found = run([EAST], [small, large], {"east": nodes(2, TAINTED)}, accounting="Nodes")
    assert places(found) == ["east", "east"]
    # A second run keeps both, in whatever order they are charged.
    again = run([EAST], [small, large], {"east": nodes(2, TAINTED)}, found.replicas, accounting="Nodes")
    assert (places(again), again.edited) == (places(found), frozenset())


def test_replicas_that_need_more_devices_than_available_are_reported() -> None:
    before = run([EAST], deployment(2, 2), {"east": nodes(2)}, accounting="Nodes").replicas
    found = run([EAST], deployment(2, 2), {"east": nodes(2, TAINTED)}, before, accounting="Nodes")
    assert places(found) == ["east", "east"]
    (warning,) = found.schedule.overcommitted
    assert warning.reason == f"its replicas need more devices than its nodes have; 1 of 2 nodes unavailable: {TAINTED}"


@pytest.mark.parametrize(
    ("manifest", "ready", "replicas"),
    [
        (cluster("east"), 1, 2),
        (cluster("east", maxNodeCount=3), 1, 6),
        (cluster("east", nodeCount=1, maxNodeCount=2), 0, 4),
        (cluster("east"), 3, 4),
        (cluster("east", minNodeCount=0), 0, 4),
        (cluster("east"), 0, 0),
    ],
    ids=["fixed", "autoscaled", "scaled to zero", "more than declared", "lower limit only", "fixed without nodes"],
)
def test_a_pool_offers_its_nodes_and_those_that_its_autoscaler_may_add(
    manifest: api.InferenceCluster, ready: int, replicas: int
) -> None:
    assert len(places(run([manifest], deployment(9), {"east": nodes(ready)}))) == replicas


def test_nodes_that_are_more_than_declared_replace_unavailable_ones() -> None:
    found = run([EAST], deployment(9), {"east": nodes(3, CORDONED)})
    assert len(places(found)) == 4


def test_a_cluster_whose_nodes_were_not_read_counts_as_declared() -> None:
    unread = ObservedCluster(stack=Component(ready=True))
    assert places(run([EAST], deployment(9), {"east": unread})) == ["east"] * 4


IN_USE = UnavailableNode("n0", "cordoned", True, {"gpu": 2})
"""Node of a stranded replica: its devices become available to no other replica."""


def test_a_stranded_replica_is_no_victim() -> None:
    low = deployment(2, 2, "low")
    before = run([EAST, WEST], low, {"east": nodes(1), "west": nodes(1)}).replicas
    east, west = sorted(before, key=lambda replica: replica.spec.cluster_name)
    high = deployment(1, 2, "high", priority="9", preemption="LowerPriority")
    observed = {"east": nodes(1, IN_USE, stranded=[east]), "west": nodes(1)}
    found = run([EAST, WEST], [low, high], observed, before)
    assert [placement.cluster for placement in found.schedule.placements if placement.deployment == "high"] == ["west"]
    assert [entry.replica.name for entry in found.schedule.dropped] == [west.name]
    assert not found.schedule.overcommitted


def test_the_devices_of_a_stranded_replica_are_available_to_no_other() -> None:
    before = run([EAST], deployment(1, 2, "first"), {"east": nodes(1)}).replicas
    observed = {"east": nodes(1, IN_USE, stranded=before)}
    second = deployment(1, 2, "second")
    assert places(run([EAST], [deployment(0, 2, "first"), second], observed, before)) == []
    assert places(run([EAST], [deployment(1, 2, "first"), second], observed, before)) == ["east"]


def test_an_edit_restarts_no_pod_that_would_find_no_node() -> None:
    (old,) = run([EAST], deployment(1), {"east": nodes(2)}).replicas
    closed = UnavailableNode("n1", "not Ready", True, {"gpu": 2})
    stranded = {"east": nodes(1, IN_USE, closed, stranded=[old])}
    edited = deployment(1, tag="v2")
    found = run([EAST], edited, stranded, [old])
    assert [replica.spec for replica in (*found.replicas, *found.leaving)] == [old.spec]
    both = run([EAST, WEST], edited, {**stranded, "west": nodes(2)}, [old])
    assert places(both) == ["west"]
    (restarted,) = run([EAST], edited, {"east": nodes(1)}, [old]).replicas
    assert restarted.name == old.name
    assert restarted.spec != old.spec


def test_the_devices_of_a_replica_with_one_pod_on_a_cordoned_node_are_available_to_no_other() -> None:
    """The other pod of the replica runs on a node that takes new pods."""
    first = deployment(1, 1, "first")
    before = run([EAST], first, {"east": nodes(2)}).replicas
    partly = UnavailableNode("n1", "a replica that could not start again uses its devices", False, {"gpu": 2})
    observed = {"east": nodes(2, IN_USE, partly, stranded=before), "west": nodes(2)}
    second = deployment(1, 1, "second", priority="9", preemption="LowerPriority")
    for number in (0, 1):
        found = run([EAST, WEST], [deployment(number, 1, "first"), second], observed, before)
        assert [entry.cluster for entry in found.schedule.placements if entry.deployment == "second"] == ["west"]
    edited = run([EAST, WEST], deployment(1, 1, "first", tag="v2"), observed, before)
    assert places(edited) == ["west"]
