# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A renamed pool of a cluster that serves: the new one is created, replicas move, and the old one is deleted last.

The tests of this file are one story and run in their order: each begins with what the one before it left.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.tests.e2e import eks, fleets, gke
from ansible_collections.modelplane.fleet.tests.e2e.live_fleet import Pool, until
from ansible_collections.modelplane.fleet.tests.kube.control_plane import WORKLOAD

NAME = "east"
DEVICES = 2
CLOUDS: dict[str, Any] = {"eks": eks, "gke": gke}
REGIONS = {"eks": ("us-east-2", "us-east-2a"), "gke": ("us-central1", "us-central1-a")}
CLASS = f"""---
apiVersion: modelplane.ai/v1alpha1
kind: InferenceClass
metadata: {{name: l4}}
spec:
  provisioning: @
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
PROVISIONING = {
    "eks": {
        "provider": "EKS",
        "eks": {"instanceType": "g6.12xlarge", "accelerator": {"type": "nvidia-l4", "count": 4}},
    },
    "gke": {
        "provider": "GKE",
        "gke": {"machineType": "g2-standard-24", "accelerator": {"type": "nvidia-l4", "count": DEVICES}},
    },
}


def manifests(cloud: str, *pools: str) -> str:
    region, zone = REGIONS[cloud]
    spec = {
        "cluster": {"source": cloud.upper(), cloud: {"region": region}},
        "nodePools": [{"name": name, "className": "l4", "zones": [zone], "nodeCount": 2} for name in pools],
    }
    cluster = {"apiVersion": fleets.API, "kind": "InferenceCluster", "metadata": {"name": NAME}, "spec": spec}
    return f"{CLASS.replace('@', json.dumps(PROVISIONING[cloud]))}---\n{json.dumps(cluster)}\n"


@pytest.fixture(scope="module", params=sorted(CLOUDS))
def world(
    request: pytest.FixtureRequest, kubernetes_programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    cloud = request.param
    folder = tmp_path_factory.mktemp(f"pool-renames-{cloud}")
    regions = {NAME: REGIONS[cloud][0]}
    world = CLOUDS[cloud].world(kubernetes_programs, folder, regions, components=WORKLOAD)
    with world as started, ExitStack() as stack:
        live = started.live
        live.prepare(0, more=[Pool("system", 1, 0, label=False)])
        live.write("clusters.yaml", manifests(cloud, "gpu"))
        live.write("models.yaml", fleets.deployment("small", 2))
        started.cloud = cloud
        started.provision().ok()
        pool = Pool("gpu", devices=DEVICES)
        stack.enter_context(started.nodes(NAME, dict.fromkeys(("gpu", "gpu-b"), pool)))
        started.run("reconcile").ok()
        yield started


def pools(world: Any) -> set[str]:
    """Return the pools with GPUs of the cluster in its cloud."""
    if world.cloud == "gke":
        names = {each["name"] for each in world.cluster(NAME)["nodePools"]}
    else:
        world.settle(NAME)
        names = set(world.client(NAME)("eks").list_nodegroups(clusterName=world.name(NAME))["nodegroups"])
    return {name for name in names if name.startswith("gpu")}


def engines(world: Any) -> dict[str, str]:
    """Return the pods of replicas, and the pool of the node that each is on."""
    objects = world.live.workloads[NAME].objects
    nodes = {each["metadata"]["name"]: each["metadata"]["labels"] for each in objects.list("v1", "Node")}
    found = objects.list("v1", "Pod", labels="modelplane.ai/replica")
    return {
        pod["metadata"]["name"]: nodes.get(pod["spec"].get("nodeName"), {}).get("modelplane.ai/pool", "")
        for pod in found
        if pod["spec"].get("resourceClaims")
    }


def test_a_check_reports_that_the_old_pool_stays(world: Any) -> None:
    assert set(engines(world).values()) == {"gpu"}
    world.live.write("clusters.yaml", manifests(world.cloud, "gpu-b"))
    run = world.provision("--check", "--diff").ok()
    assert "gpu stays for now: replicas run there: team/small-" in run.output
    assert (run.changed, world.changes) == (1, [])


def test_provision_adds_the_new_pool_and_leaves_the_old_one(world: Any) -> None:
    before = engines(world)
    for _ in range(2):
        run = world.provision().ok()
        assert pools(world) == {"gpu", "gpu-b"}, run.output
        assert engines(world) == before
        assert "gpu stays for now: replicas run there: team/small-" in run.output
    assert (run.changed, world.changes) == (0, []), run.output


def test_site_deletes_the_old_pool_once_replicas_have_moved(world: Any) -> None:
    run = world.run("site").ok()
    assert world.live.is_true("ModelDeployment", "small", "team"), run.output
    until("engines are on the new pool", lambda: set(engines(world).values()) == {"gpu-b"})
    if pools(world) != {"gpu-b"}:
        # Pods that end keep their node until the next run.
        run = world.run("site").ok()
    assert pools(world) == {"gpu-b"}, run.output


@pytest.mark.parametrize("world", ["gke"], indirect=True, scope="module")
def test_a_pool_whose_cluster_cannot_be_read_stays(world: Any) -> None:
    world.live.write("clusters.yaml", manifests(world.cloud, "gpu"))
    way = world.connection(NAME)
    with world.of_host(NAME, fleet_connection={**way, "proxy": "http://127.0.0.1:9"}):
        run = world.provision("-e", "fleet_retries=0")
    assert "its replicas cannot be read" in run.output
    assert pools(world) == {"gpu", "gpu-b"}, run.output
