# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Pools without a node get those that replicas need, and give them back: by `reconcile`, on clusters that `provision`
made in an account that is acted.

The tests of this file are one story and run in their order: each begins with what the one before it left.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
from ansible_collections.modelplane.fleet.tests.e2e import eks, fleets
from ansible_collections.modelplane.fleet.tests.e2e.eks import World, aws_name
from ansible_collections.modelplane.fleet.tests.e2e.live_fleet import Pool, until
from ansible_collections.modelplane.fleet.tests.kube.control_plane import WORKLOAD

EAST, WEST = "eks-east", "eks-west"
REGIONS = {EAST: "us-east-2", WEST: "us-west-2"}
DEVICES = 2
UPDATE = "eks:UpdateNodegroupConfig"
CLASS = f"""---
apiVersion: modelplane.ai/v1alpha1
kind: InferenceClass
metadata: {{name: l4}}
spec:
  provisioning:
    provider: EKS
    eks: {{instanceType: g6.12xlarge, accelerator: {{type: nvidia-l4, count: {DEVICES}}}}}
  devices:
  - name: gpu
    driver: gpu.nvidia.com
    deviceClassName: gpu.nvidia.com
    count: {DEVICES}
    attributes: {{architecture: {{string: Ada Lovelace}}}}
---
apiVersion: modelplane.ai/v1alpha1
kind: InferenceGateway
metadata: {{name: default}}
spec: {{backend: Traefik, traefik: {{version: 40.2.0}}}}
"""


def cluster(name: str) -> str:
    region = REGIONS[name]
    sizes = {"nodeCount": 0, "minNodeCount": 0, "maxNodeCount": 4}
    pool = {"name": "gpu", "className": "l4", "zones": [f"{region}a"], **sizes}
    spec = {"cluster": {"source": "EKS", "eks": {"region": region}}, "nodePools": [pool]}
    document = {"apiVersion": fleets.API, "kind": "InferenceCluster", "metadata": {"name": name}, "spec": spec}
    return f"---\n{json.dumps(document)}\n"


@pytest.fixture(scope="module")
def world(kubernetes_programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("pool-sizes")
    with eks.world(kubernetes_programs, folder, REGIONS, components=WORKLOAD) as started, ExitStack() as stack:
        live = started.live
        live.prepare(0, more=[Pool("system", 1, 0, label=False)])
        live.write("clusters.yaml", CLASS + cluster(EAST) + cluster(WEST))
        live.write("models.yaml", fleets.deployment("small", 6))
        started.provision().ok()
        for name in REGIONS:
            stack.enter_context(started.nodes(name, {"gpu": Pool("gpu", devices=DEVICES)}))
        yield started


def sizes(world: World) -> dict[str, int]:
    """Return the size that each pool was set to."""
    found = {}
    for name in REGIONS:
        world.settle(name)
        group = world.client(name)("eks").describe_nodegroup(clusterName=aws_name(name), nodegroupName="gpu")
        found[name] = group["nodegroup"]["scalingConfig"]["desiredSize"]
    return found


def engines(world: World, cluster: str) -> list[str]:
    """The pods of replicas on a cluster."""
    found = world.live.workloads[cluster].objects.list("v1", "Pod", labels="modelplane.ai/replica")
    return [pod["metadata"]["name"] for pod in found]


def test_a_check_says_which_nodes_would_start_and_starts_none(world: World) -> None:
    run = world.run("reconcile", "--check", "--diff").ok()
    assert run.changed > 0
    assert world.changes == []
    for name in REGIONS:
        assert f"{name}: node pool gpu" in run.output
    assert "+nodes: 2" in run.output


def test_the_refusal_of_one_cloud_fails_its_cluster_alone(world: World) -> None:
    world.double.refuse(
        operation="UpdateNodegroupConfig", parameter=aws_name(WEST), code="AccessDeniedException", status=403
    )
    run = world.run("reconcile", "-e", "fleet_wait=30", "-e", "fleet_rounds=2")
    assert run.failed == {WEST}, run.output
    assert sizes(world) == {EAST: 2, WEST: 0}
    assert "AccessDeniedException" in run.output
    assert engines(world, WEST), "what waits for nodes is applied all the same"


def test_replicas_get_their_nodes_and_serve(world: World) -> None:
    run = world.run("reconcile").ok()
    assert world.changes == [UPDATE], run.output
    assert sizes(world) == {EAST: 2, WEST: 2}
    assert world.live.is_true("ModelDeployment", "small", "team"), run.output


def test_a_second_run_sends_nothing_and_provisioning_keeps_the_sizes(world: World) -> None:
    for playbook in ("reconcile", "provision"):
        run = world.run(playbook).ok()
        assert (run.changed, world.changes) == (0, []), run.output
    assert sizes(world) == {EAST: 2, WEST: 2}


def test_pools_that_nothing_is_placed_on_go_back_to_their_minimum(world: World) -> None:
    world.live.write("models.yaml", fleets.deployment("small", 0))
    world.run("reconcile").ok()
    for name in REGIONS:
        until(f"no engine runs on {name}", lambda name=name: not engines(world, name))
    run = world.run("reconcile").ok()
    assert sizes(world) == {EAST: 0, WEST: 0}, run.output
    run = world.run("reconcile").ok()
    assert (run.changed, world.changes) == (0, []), run.output
