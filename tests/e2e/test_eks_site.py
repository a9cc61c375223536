# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""From an account without a cluster to a model that answers on EKS, and back again, with one command each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.tests.e2e import eks, fleets, stacks
from ansible_collections.modelplane.fleet.tests.e2e.clouds import child_name
from ansible_collections.modelplane.fleet.tests.e2e.eks import REGION, SEED, World
from ansible_collections.modelplane.fleet.tests.e2e.gateways import KINDS_OF_CONTROL, GatewayController
from ansible_collections.modelplane.fleet.tests.e2e.live_fleet import CONTROL_ADDRESS, Pool
from ansible_collections.modelplane.fleet.tests.e2e.observing import Writes, check_placement, check_ways
from ansible_collections.modelplane.fleet.tests.kube.control_plane import WORKLOAD
from ansible_collections.modelplane.fleet.tests.stack.sources import pack

pytestmark = pytest.mark.interrupted

GATEWAY = """---
apiVersion: modelplane.ai/v1alpha1
kind: InferenceGateway
metadata: {name: default}
spec: {backend: Traefik, traefik: {version: 40.2.0}}
"""


@pytest.fixture(scope="module")
def world(kubernetes_programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("eks-site")
    with eks.world(kubernetes_programs, folder, {SEED: REGION}, control=WORKLOAD, components=WORKLOAD) as started:
        live = started.live
        pack(folder / "charts")
        live.control.add_nodes("system", 1)
        live.settings |= {"serving_stack_purge_crds": True}
        live.write("cluster.yaml", eks.seed() + "\n" + GATEWAY)
        live.write("models.yaml", fleets.deployment("small", 1) + fleets.service("chat", "small"))
        controller = GatewayController(live.control, CONTROL_ADDRESS, KINDS_OF_CONTROL)
        with stacks.acting(live), started.nodes(SEED, {"gpu-l4": Pool("gpu-l4", devices=1)}):
            yield started
        controller.stop()


@pytest.fixture(scope="module")
def empty(world: World) -> Mapping[str, Any]:
    return world.content()


def test_a_check_makes_nothing(world: World, empty: Mapping[str, Any]) -> None:
    with Writes(world.live) as writes:
        assert world.run("site", "--check").ok().changed > 0
    assert (world.changes, writes.lasting) == ([], [])
    assert world.differences(empty) == []


def test_one_command_leads_from_nothing_to_a_model_that_answers(world: World) -> None:
    live = world.live
    run = world.run("site").ok()
    assert live.is_true("InferenceCluster", SEED), run.output
    assert live.is_true("ModelService", "chat", "team"), run.output
    assert [entry["cluster"] for entry in live.plan()["placements"]] == [SEED]
    check_placement(live)
    check_ways(live, "chat", ["small"])


def test_a_second_run_changes_nothing(world: World) -> None:
    with Writes(world.live) as writes:
        run = world.run("site").ok()
    assert (run.changed, world.changes) == (0, []), run.output
    # A token is renewed each time, as it lasts for minutes.
    assert {request.uri.partition("?")[0].rpartition("/")[2] for request in writes.lasting} <= {
        child_name(SEED, "kubeconfig")
    }


def test_one_command_leads_back(world: World, empty: Mapping[str, Any]) -> None:
    assert world.run("teardown").ok().changed > 0
    assert world.differences(empty) == []
    assert world.secret(SEED) is None
