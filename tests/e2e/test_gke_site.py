# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""One cluster on GKE, one on EKS and one that exists: from nothing in both clouds to models that answer on all three,
and back again, with one command each."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from ansible_collections.modelplane.fleet.tests.aws.double import Double as Aws
from ansible_collections.modelplane.fleet.tests.e2e import clouds, eks, fleets, gke, stacks
from ansible_collections.modelplane.fleet.tests.e2e.clouds import Content, child_name
from ansible_collections.modelplane.fleet.tests.e2e.gateways import KINDS_OF_CONTROL, GatewayController
from ansible_collections.modelplane.fleet.tests.e2e.live_fleet import (
    CONTROL_ADDRESS,
    DRIVER,
    POOL_LABEL,
    SYSTEM,
    LiveFleet,
    Pool,
    Run,
    device,
)
from ansible_collections.modelplane.fleet.tests.e2e.observing import Writes, check_placement, check_ways
from ansible_collections.modelplane.fleet.tests.gcp.double import Double as Gcp
from ansible_collections.modelplane.fleet.tests.kube.control_plane import WORKLOAD
from ansible_collections.modelplane.fleet.tests.stack.sources import names

pytestmark = pytest.mark.interrupted

EXISTING = "byo-us-east"
CLUSTERS = {eks.SEED: "us-west", gke.SEED: "us-central", EXISTING: "us-east"}
"""The value of the label modelplane.ai/region that each has in the documents."""
H100 = Pool("gpu-h100", 2, 8, "81559Mi", "Hopper")
KUBECONFIG = {"namespace": SYSTEM, "name": "byo-cluster-kubeconfig", "key": "kubeconfig"}
GATEWAY = """---
apiVersion: modelplane.ai/v1alpha1
kind: InferenceGateway
metadata: {name: default}
spec: {backend: Traefik, traefik: {version: 40.2.0}}
"""


@dataclass
class Site:
    """A fleet in two clouds."""

    live: LiveFleet
    aws: eks.World
    google: gke.World

    def run(self, playbook: str, *arguments: str) -> Run:
        self.google.double.forget_calls()
        return self.aws.run(playbook, *arguments, **self.google.environment)

    @property
    def changes(self) -> list[str]:
        """The calls of the last run that change something in a cloud."""
        return [*self.aws.changes, *self.google.changes]

    def content(self) -> tuple[Content, Content]:
        return self.aws.content(), self.google.content()

    def differences(self, before: tuple[Content, Content]) -> list[str]:
        return [*self.aws.differences(before[0]), *self.google.differences(before[1])]


@pytest.fixture(scope="module")
def site(kubernetes_programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("gke-site")
    with clouds.available():
        collections = clouds.collections()
        with Aws() as amazon, Gcp() as google:
            reviews = {**eks.reviews(amazon, [eks.SEED]), **gke.reviews(google, [gke.SEED]), EXISTING: ""}
            with clouds.fleet(
                kubernetes_programs, folder, reviews, control=WORKLOAD, components=WORKLOAD, charts=names()
            ) as live:
                found = Site(
                    live,
                    eks.World(amazon, live, collections, {eks.SEED: eks.REGION}),
                    gke.World(google, live, collections, {gke.SEED: gke.REGION}),
                )
                prepare(live)
                controller = GatewayController(live.control, CONTROL_ADDRESS, KINDS_OF_CONTROL)
                with (
                    stacks.acting(live),
                    found.aws.nodes(eks.SEED, {"gpu-l4": Pool("gpu-l4", devices=1)}),
                    found.google.nodes(gke.SEED, {"gpu-l4": Pool("gpu-l4", devices=1)}),
                ):
                    yield found
                controller.stop()
            assert amazon.invalid() + google.invalid() == []


def prepare(live: LiveFleet) -> None:
    """The cluster that exists before, with its nodes and its connection, and the manifests."""
    live.control.add_nodes("system", 1)
    plane = live.workloads[EXISTING]
    plane.add_nodes("system", 1)
    for node in plane.add_nodes(H100.name, H100.nodes, labels={POOL_LABEL: H100.name}):
        plane.publish_devices(node, DRIVER, [device(H100, index) for index in range(H100.devices)])
    live.control.create_namespace(SYSTEM)
    text = base64.b64encode(plane.kubeconfig.read_bytes()).decode()
    metadata = {"namespace": KUBECONFIG["namespace"], "name": KUBECONFIG["name"]}
    live.control.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {KUBECONFIG["key"]: text}})
    live.kubeconfigs[EXISTING] = ""
    live.of_hosts[EXISTING] = {"fleet_connection": {"secret": KUBECONFIG}}
    live.settings |= {"serving_stack_purge_crds": True}
    existing = clouds.seed("inference-class-h100-byo", "inference-cluster-existing")
    live.write("clusters.yaml", "\n---\n".join([eks.seed(), gke.seed(), existing, GATEWAY]))
    models = [
        fleets.deployment(
            f"on-{name}",
            1,
            selector=fleets.ANY_GPU,
            clusterSelector={"matchLabels": {"modelplane.ai/region": region}},
        )
        for name, region in CLUSTERS.items()
    ]
    live.write("models.yaml", "".join(models) + fleets.service("chat", *(f"on-{name}" for name in CLUSTERS)))


@pytest.fixture(scope="module")
def empty(site: Site) -> tuple[Content, Content]:
    return site.content()


@pytest.fixture(scope="module")
def bare(site: Site) -> set[str]:
    return stacks.everything(site.live.workloads[EXISTING])


def test_a_check_makes_nothing(site: Site, empty: tuple[Content, Content], bare: set[str]) -> None:
    with Writes(site.live) as writes:
        assert site.run("site", "--check").ok().changed > 0
    assert (site.changes, writes.lasting) == ([], [])
    assert site.differences(empty) == []
    assert stacks.everything(site.live.workloads[EXISTING]) == bare


def test_one_command_leads_from_nothing_to_models_that_answer(site: Site) -> None:
    live = site.live
    run = site.run("site").ok()
    for name in CLUSTERS:
        assert live.is_true("InferenceCluster", name), run.output
    assert live.is_true("ModelService", "chat", "team"), run.output
    assert {entry["deployment"]: entry["cluster"] for entry in live.plan()["placements"]} == {
        f"on-{name}": name for name in CLUSTERS
    }
    check_placement(live)
    check_ways(live, "chat", [f"on-{name}" for name in CLUSTERS])


def test_a_second_run_changes_nothing(site: Site) -> None:
    with Writes(site.live) as writes:
        run = site.run("site").ok()
    assert (run.changed, site.changes) == (0, []), run.output
    # Tokens are renewed each time, as they last for minutes.
    assert {request.uri.partition("?")[0].rpartition("/")[2] for request in writes.lasting} <= {
        child_name(name, "kubeconfig") for name in (eks.SEED, gke.SEED)
    }


def test_one_command_leads_back(site: Site, empty: tuple[Content, Content], bare: set[str]) -> None:
    assert site.run("teardown").ok().changed > 0
    assert site.differences(empty) == []
    stacks.check_bare(site.live.workloads[EXISTING], bare)
    assert site.aws.secret(eks.SEED) is None
    assert site.google.secret(gke.SEED) is None
