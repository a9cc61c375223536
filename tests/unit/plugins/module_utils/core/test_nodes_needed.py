# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Nodes that placed replicas need of pools that may be empty, and the size that a pool is to have for them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks import names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.pool_size import NodesNeeded, PoolSize
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.owner import Owner
from ansible_collections.modelplane.fleet.plugins.module_utils.core.names import label_value
from ansible_collections.modelplane.fleet.plugins.module_utils.core.observation import parse
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning import Plan, plan
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning.nodes_needed import nodes_needed
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.cloud.eks.clusters import (
    eks,
    gpu,
    inference_class,
    inference_cluster,
)
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.little_fleet import load_text
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.observed_fleet import down, up

Object = dict[str, Any]
CLUSTER = "eks-us-west"
NAME = names.cluster_name("modelplane-system", CLUSTER)
ANY = 'device.driver == "gpu.nvidia.com"'
EMPTY = {
    "name": "gpu",
    "className": "l4",
    "zones": ["us-west-2a"],
    "nodeCount": 0,
    "minNodeCount": 0,
    "maxNodeCount": 4,
}


def member(role: str = "Standalone", count: int = 1, **more: Any) -> Object:
    return {
        "role": role,
        "nodeSelector": {"devices": [{"name": "gpu", "count": count, "selectors": [{"cel": ANY}]}]},
        "template": {"spec": {"containers": [{"name": "engine", "image": "vllm"}]}},
        **more,
    }


def deployment(replicas: int, *members: Object, copies: int = 1, name: str = "qwen") -> Object:
    engine = {"name": "main", "copies": copies, "members": list(members or (member(),))}
    return {
        "apiVersion": "modelplane.ai/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": name, "namespace": "team"},
        "spec": {"replicas": replicas, "template": {"spec": {"engines": [engine]}}},
    }


class Fleet:
    """An EKS cluster with nodes of four GPUs, and what is observed of it."""

    def __init__(self, *resources: Object, cluster: Object | None = None) -> None:
        self.texts = [json.dumps(each) for each in (cluster or inference_cluster(EMPTY), inference_class(), *resources)]
        self.existing: Sequence[api.ModelReplica] = ()
        self.objects: list[Object] = []
        self.observed: Object = {}

    @property
    def resources(self) -> list[api.Resource]:
        loaded = load_text(*self.texts)
        assert not loaded.errors, [str(each) for each in loaded.errors]
        return list(loaded.resources)

    def plan(self) -> Plan:
        gateway = {
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": "Gateway",
            "metadata": {"name": "inference-gateway", "namespace": "modelplane-system"},
            "spec": {"listeners": [{"name": "http", "protocol": "HTTP", "port": 80}]},
            "status": {"addresses": [{"type": "IPAddress", "value": "192.0.2.1"}]},
        }
        entry = {
            "provisioned": {"ready": True},
            "stack": {"ready": True},
            "objects": [gateway, *self.objects],
            **self.observed,
        }
        return plan(self.resources, self.existing, observed=parse({"clusters": {CLUSTER: entry}}))

    def apply(self, shown: Callable[[Object], Object]) -> None:
        """Return an observation in which what was planned is there, in a state."""
        planned = self.plan()
        self.existing = planned.replicas
        self.objects = [shown(dict(value)) for value in planned.workloads[CLUSTER]]

    def demands(self) -> dict[str, tuple[int, bool]]:
        """Nodes by pool, and whether a replica waits for them."""
        found = nodes_needed(self.plan(), self.resources)
        assert all((each.cluster, each.cloud) == (CLUSTER, "eks") for each in found)
        assert all(each.login_options == {"cluster": NAME, "region": "us-west-2"} for each in found)
        return {each.pool: (each.nodes, each.waiting) for each in found}


@pytest.mark.parametrize(
    ("placed", "nodes"),
    [
        ([], 0),
        ([deployment(1)], 1),
        ([deployment(4)], 1),
        ([deployment(5)], 2),
        ([deployment(1, member(count=3)), deployment(1, member(count=2), name="other")], 2),
        ([deployment(1, member(count=3)), deployment(1, member(count=1), name="other")], 1),
        ([deployment(1, copies=9)], 3),
        # The pods of a gang go on nodes of their own.
        ([deployment(1, member("Leader"), member("Worker", worker={"nodes": 2}))], 3),
        ([deployment(2, member("Leader"), member("Worker", worker={"nodes": 1}))], 2),
        # Those that find no place need no node.
        ([deployment(30, member(count=4))], 4),
    ],
)
def test_replicas_need_as_many_nodes_as_they_fill(placed: list[Object], nodes: int) -> None:
    assert Fleet(*placed).demands() == {"gpu": (nodes, nodes > 0)}


def test_a_replica_waits_until_it_serves() -> None:
    fleet = Fleet(deployment(2))
    fleet.apply(down)
    assert fleet.demands() == {"gpu": (1, True)}
    fleet.apply(up)
    assert fleet.demands() == {"gpu": (1, False)}


def unavailable(*nodes: tuple[str, int, bool], ready: int) -> Object:
    """Return observed nodes: the reason, the number of unavailable devices, and whether the node takes no pods."""
    written = [
        {"name": f"n{number}", "reason": reason, "closed": closed, "devices": {"gpu": count}}
        for number, (reason, count, closed) in enumerate(nodes)
    ]
    return {"nodes": {"gpu": ready}, "unavailable": {"gpu": written}}


TAINTED = "device gpu-0 has the taint sick:NoSchedule"


@pytest.mark.parametrize(
    ("count", "observed", "nodes"),
    [
        (4, unavailable(("cordoned", 4, True), ready=1), 2),
        (4, unavailable(("cordoned", 4, True), ("taint batch:NoSchedule", 4, True), ready=2), 3),
        # The replica gets a node that starts.
        (4, unavailable(("not Ready", 4, True), ready=0), 1),
        (4, unavailable(("no devices of driver gpu.nvidia.com", 4, False), ready=1), 1),
        (4, unavailable((TAINTED, 1, False), ready=1), 2),
        (3, unavailable((TAINTED, 1, False), ready=1), 1),
        (4, unavailable((TAINTED, 4, False), ready=1), 2),
    ],
)
def test_nodes_that_take_no_pods_are_part_of_the_size(count: int, observed: Object, nodes: int) -> None:
    fleet = Fleet(deployment(1, member(count=count)))
    fleet.observed = observed
    assert fleet.demands() == {"gpu": (nodes, True)}


def test_the_node_of_a_stranded_replica_counts_once() -> None:
    fleet = Fleet(deployment(1, member(count=4)))
    fleet.apply(up)
    (replica,) = fleet.existing
    owner = Owner.of(replica)
    stranded = {"namespace": owner.workload_namespace, "replica": label_value(owner.replica), "reason": "cordoned"}
    fleet.observed = {**unavailable(("cordoned", 4, True), ready=1), "stranded": [stranded]}
    fleet.texts.append(json.dumps(deployment(1, member(count=4), name="other")))
    assert fleet.demands() == {"gpu": (2, True)}


def test_a_pool_that_its_last_replica_leaves_needs_none() -> None:
    fleet = Fleet(deployment(1))
    fleet.apply(up)
    fleet.texts[-1] = json.dumps(deployment(0))
    assert fleet.demands() == {"gpu": (0, False)}


@pytest.mark.parametrize(
    "sizes",
    [
        {"nodeCount": 1, "minNodeCount": 1, "maxNodeCount": 4},
        {"nodeCount": 2},
        {"nodeCount": 2, "maxNodeCount": 4},
        {"nodeCount": 0},
    ],
)
def test_a_pool_that_cannot_be_empty_or_always_is_has_no_demand(sizes: Object) -> None:
    pool = {"name": "gpu", "className": "l4", "zones": ["us-west-2a"], **sizes}
    assert Fleet(deployment(1), cluster=inference_cluster(pool)).demands() == {}


def test_each_pool_has_its_own_demand() -> None:
    pools = ({**EMPTY, "maxNodeCount": 1}, {**EMPTY, "name": "more"}, {**EMPTY, "name": "fixed", "minNodeCount": 1})
    fleet = Fleet(deployment(6), cluster=inference_cluster(*pools))
    assert fleet.demands() == {"gpu": (1, True), "more": (1, True)}


def test_a_cluster_that_others_created_has_no_demand() -> None:
    cluster = inference_cluster(EMPTY)
    cluster["spec"]["cluster"] = {"source": "Existing", "existing": {"secretRef": {"name": "kubeconfig"}}}
    assert Fleet(deployment(1), cluster=cluster).demands() == {}


def test_a_cloud_whose_autoscaler_starts_the_first_node_has_no_demand() -> None:
    cluster = inference_cluster(EMPTY)
    cluster["spec"]["cluster"] = {"source": "GKE", "gke": {"region": "us-west1"}}
    fleet = Fleet(deployment(1), cluster=cluster)
    fleet.texts[1] = json.dumps(inference_class(provider="GKE"))
    assert fleet.plan().replicas
    assert fleet.demands() == {}


def test_pools_of_a_cluster_that_is_written_itself_are_those_of_its_kind() -> None:
    """It serves the fleet as an Existing cluster of its name, whose pools have no bounds to keep to."""
    joined = inference_cluster({"name": "gpu", "className": "l4", "nodeCount": 2, "maxNodeCount": 4})
    joined["spec"]["cluster"] = {
        "source": "Existing",
        "existing": {"secretRef": {"name": f"{CLUSTER}-kubeconfig-2c0e1"}},
    }
    written = eks(gpu("gpu", nodeCount=0, maxNodeCount=4))
    assert Fleet(deployment(5), written, cluster=joined).demands() == {"gpu": (2, True)}
    written = eks(gpu("gpu", minNodeCount=1, maxNodeCount=4))
    assert Fleet(deployment(5), written, cluster=joined).demands() == {}


def test_a_pool_without_devices_to_claim_has_no_demand() -> None:
    fleet = Fleet()
    fleet.texts[1] = fleet.texts[1].replace('"claim": "DRA"', '"claim": "Synthetic"')
    assert fleet.demands() == {}


def test_a_plan_without_observations_waits_for_nothing() -> None:
    fleet = Fleet(deployment(1))
    decided = plan(fleet.resources)
    assert decided.replicas
    assert nodes_needed(decided, fleet.resources)[0].nodes == 1


@pytest.mark.parametrize(
    ("nodes", "waiting", "size", "desired"),
    [
        (2, True, PoolSize(0, 0, 4), 2),
        (2, True, PoolSize(3, 0, 4), 3),
        (6, True, PoolSize(1, 0, 4), 4),
        # The autoscaler has packed the pods, and they run.
        (3, False, PoolSize(2, 0, 4), 2),
        (0, False, PoolSize(2, 0, 4), 0),
        (0, False, PoolSize(0, 0, 4), 0),
        (0, False, PoolSize(3, 1, 4), 1),
    ],
)
def test_a_size_grows_for_who_waits_and_shrinks_when_empty(
    nodes: int, waiting: bool, size: PoolSize, desired: int
) -> None:
    assert NodesNeeded("west", "gpu", "eks", {}, nodes, waiting).desired(size) == desired
