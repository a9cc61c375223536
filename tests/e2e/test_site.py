# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""From bare API servers to models that answer, and back again, with one command each: a control cluster and one
workload cluster. Serving stacks on two are in test_serving_stack, fleets on two in test_fleet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.manifest_text import to_yaml
from ansible_collections.modelplane.fleet.tests import model_fleet, packages
from ansible_collections.modelplane.fleet.tests.e2e import fleets, stacks
from ansible_collections.modelplane.fleet.tests.e2e.gateways import GATEWAY, KINDS_OF_CONTROL, GatewayController
from ansible_collections.modelplane.fleet.tests.e2e.live_fleet import CONTROL_ADDRESS, SYSTEM, LiveFleet, Pool
from ansible_collections.modelplane.fleet.tests.e2e.model_gateways import CERTIFICATE_KINDS, ModelGatewayController
from ansible_collections.modelplane.fleet.tests.e2e.observing import Writes, check_placement, check_ways, planes
from ansible_collections.modelplane.fleet.tests.kube.control_plane import WORKLOAD
from ansible_collections.modelplane.fleet.tests.kube.fleet import Fleet
from ansible_collections.modelplane.fleet.tests.stack.programs import helm
from ansible_collections.modelplane.fleet.tests.stack.sources import pack


class Site:
    """A fleet whose clusters have nodes and nothing else."""

    def __init__(self, live: LiveFleet, charts: Path, collections: Path) -> None:
        self.live = live
        self.charts = charts
        self.bare = {plane.name: stacks.everything(plane) for plane in planes(live)}
        self.environment = stacks.environment(collections)


@pytest.fixture(scope="module")
def site(kubernetes_programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    try:
        program, collections = helm(3), packages.kubernetes_core()
    except packages.UnavailableError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("site")
    pack(folder / "charts")
    with (
        Fleet(kubernetes_programs, folder / "planes", ["east"], control=WORKLOAD) as clusters,
        LiveFleet(clusters, folder / "fleet") as live,
        stacks.acting(live, Pool("gpu", 3, 2), Pool("large", 2, 4, "81559Mi", "Hopper")),
    ):
        live.control.add_nodes("system", 1)
        controller = GatewayController(live.control, CONTROL_ADDRESS, KINDS_OF_CONTROL)
        live.settings |= {
            "serving_stack_helm": str(program),
            "serving_stack_charts_dir": str(folder / "charts"),
            "serving_stack_charts_required": True,
            "serving_stack_timeout": 120,
            "serving_stack_purge_crds": True,
        }
        live.write("clusters.yaml", fleets.CLASSES + fleets.cluster("east"))
        live.write("models.yaml", fleets.deployment("small", 2, copies=2) + fleets.service("chat", "small"))
        yield Site(live, folder / "charts", collections)
        controller.stop()


def test_one_command_leads_from_bare_clusters_to_models_that_answer(site: Site) -> None:
    live = site.live
    assert live.run("site", "--check", **site.environment).ok().changed > 0
    assert {plane.name: stacks.everything(plane) for plane in planes(live)} == site.bare
    run = live.run("site", **site.environment).ok()
    assert live.is_true("ModelService", "chat", "team"), run.output.partition("PLAY [Reconcile the fleet]")[2]
    check_placement(live)
    check_ways(live, "chat", ["small"])


def test_a_second_run_changes_nothing_and_writes_nothing(site: Site) -> None:
    with Writes(site.live) as writes:
        run = site.live.run("site", **site.environment).ok()
    assert run.changed == 0
    # Two requests show that there is nothing to do.
    assert "Write a kubeconfig for Helm" not in run.output
    # Webhooks are asked in dry runs whether they work.
    assert writes.lasting == []


@pytest.mark.interrupted
def test_the_run_that_removes_a_model_gateway_installs_the_workload_gateway_again(site: Site) -> None:
    live, east = site.live, site.live.workloads["east"]
    pair = {"gateway-helm": "v1.9.3", "ai-gateway-helm": "v1.2.1", "ai-gateway-crds-helm": "v1.2.1"}
    pack(site.charts, only=list(pair), versions=pair)

    def owner() -> object:
        found = east.get(GATEWAY, "Gateway", "inference-gateway", SYSTEM)
        return found and found["metadata"]["labels"].get("modelplane.ai/gateway", "")

    assert owner() == ""
    controller = ModelGatewayController(east, CERTIFICATE_KINDS)
    live.write("gateway.yaml", to_yaml(model_fleet.gateway(cluster="east")))
    try:
        live.run("site", "-e", "fleet_wait=5", **site.environment).ok()
        assert owner() == "eu"
        (live.manifests / "gateway.yaml").unlink()
        removed = live.run("site", "-e", "fleet_wait=5", **site.environment).ok()
    finally:
        controller.stop()
    assert owner() == "", removed.output
    versions = {
        name: chart for name, chart in stacks.releases(live, "east").items() if name.removeprefix("mp-") in pair
    }
    assert versions == {f"mp-{chart}": f"{chart}-{version}" for chart, version in pair.items()}
    live.run("site", **site.environment).ok()
    assert live.is_true("ModelService", "chat", "team")


def test_one_command_leads_back(site: Site) -> None:
    live = site.live
    assert live.run("teardown", **site.environment).ok().changed > 0
    for name, plane in live.workloads.items():
        stacks.check_bare(plane, site.bare[name])
    # Definitions of the Gateway API stay, as routes of others may need them.
    assert live.control.get(GATEWAY, "Gateway", "modelplane", SYSTEM) is None
    assert live.control.get(GATEWAY, "GatewayClass", "traefik") is None
    assert not live.control.objects.list("v1", "Secret", labels="owner=helm")
