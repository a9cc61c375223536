# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The life of the serving stack on two bare clusters, step by step. East has its charts in a folder and is served by
Helm 4 where that is possible; west is OpenShift, and has them from a registry and a repository, and Helm 3. Upgrades,
one of which is killed, and the removal from both are in `make interrupted`; test_site has a removal too."""

from __future__ import annotations

import base64
import json
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.manifest_text import to_yaml
from ansible_collections.modelplane.fleet.tests import model_fleet, packages
from ansible_collections.modelplane.fleet.tests.e2e import fleets, stacks
from ansible_collections.modelplane.fleet.tests.e2e.gateways import ROUTE
from ansible_collections.modelplane.fleet.tests.e2e.live_fleet import POOL_LABEL, SYSTEM, LiveFleet, Pool, Run, until
from ansible_collections.modelplane.fleet.tests.e2e.observing import Writes
from ansible_collections.modelplane.fleet.tests.e2e.stacks import RELEASES, Mirror, releases
from ansible_collections.modelplane.fleet.tests.kube.control_plane import GATEWAY_API, ControlPlane
from ansible_collections.modelplane.fleet.tests.kube.fleet import Fleet
from ansible_collections.modelplane.fleet.tests.stack.programs import helm
from ansible_collections.modelplane.fleet.tests.stack.sources import VERSION_ANNOTATION, pack

OPENSHIFT = Path(__file__).parents[1] / "data" / "openshift"
OLD, NEW = "v0.8.0", "v0.8.1"
GATEWAY = "mp-gateway-helm"


class Stack:
    """The clusters, where their charts are, and the playbook that installs the stack there."""

    def __init__(self, live: LiveFleet, charts: Path, mirror: Mirror, collections: Path) -> None:
        self.live = live
        self.charts = charts
        self.mirror = mirror
        self.bare = {name: stacks.everything(plane) for name, plane in live.workloads.items()}
        self.environment = stacks.environment(collections)

    def run(self, *arguments: str) -> Run:
        return self.live.run("serving_stack", *arguments, **self.environment)

    def status(self, cluster: str, release: str) -> list[str]:
        """Return what Helm's Secrets say of the revisions of a release, the latest last."""
        found = self.live.workloads[cluster].objects.list("v1", "Secret", labels=f"owner=helm,name={release}")
        labels = sorted((each["metadata"]["labels"] for each in found), key=lambda each: int(each["version"]))
        return [each["status"] for each in labels]


@contextmanager
def openshift(plane: ControlPlane) -> Iterator[None]:
    """Serve the kinds of OpenShift on a cluster."""
    plane.install_crds(OPENSHIFT)
    yield


@pytest.fixture(scope="module")
def stack(kubernetes_programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    try:
        collections = packages.kubernetes_core()
        # On older Python there is no collection that works with Helm 4.
        programs = {"east": helm(4 if sys.version_info >= (3, 12) else 3), "west": helm(3)}
    except packages.UnavailableError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("stack")
    charts = pack(folder / "charts")
    mirror = Mirror(folder / "mirror", charts)
    with (
        Fleet(kubernetes_programs, folder / "planes") as planes,
        LiveFleet(planes, folder / "fleet") as live,
        mirror.registry,
        mirror.repository,
        openshift(live.workloads["west"]),
        stacks.acting(live, Pool("gpu")),
    ):
        # What others have installed on a cluster is used, and stays.
        live.workloads["east"].install_crds(GATEWAY_API)
        live.workloads["west"].create_namespace("monitoring")
        live.settings |= {"serving_stack_timeout": 60}
        live.of_hosts = {
            "east": {
                "serving_stack_charts_dir": str(folder / "charts"),
                "serving_stack_charts_required": True,
                "serving_stack_gateway_api_crds": "external",
            },
            "west": {**mirror.settings(), "serving_stack_gateway_exposure": "Route"},
        }
        for cluster, program in programs.items():
            live.of_hosts[cluster]["serving_stack_helm"] = str(program)
        live.write("fleet.yaml", fleets.CLASSES + fleets.cluster("east") + fleets.cluster("west"))
        yield Stack(live, folder / "charts", mirror, collections)


@pytest.fixture(scope="module")
def installed(stack: Stack) -> None:
    """Install what the tests before leave installed, where they are not run."""
    stack.run().ok()


def test_check_mode_lists_what_would_be_installed(stack: Stack) -> None:
    with Writes(stack.live) as writes:
        run = stack.run("--check").ok()
    assert run.changed > 0
    assert writes.lasting == []
    for release in RELEASES:
        assert release in run.output


def test_what_fails_keeps_only_what_needs_it_and_no_other_cluster(stack: Stack) -> None:
    stack.live.of_hosts["east"]["serving_stack_values"] = {
        "envoy-gateway": {"global": {"test": {"fail": "image-pull", "only": ["envoy-gateway"]}}}
    }
    run = stack.run()
    assert {name: counts["failed"] for name, counts in run.recap.items()} == {"east": 1, "west": 0}
    assert f"cluster east, release {GATEWAY} (envoy-gateway-system) is installed and not ready: " in run.output
    assert "Not tried before that works: ai-gateway, gateway" in run.output
    assert "ImagePullBackOff" in run.output
    assert set(releases(stack.live, "east")) == RELEASES - {"mp-ai-gateway-helm"}
    assert set(releases(stack.live, "west")) == RELEASES
    assert stack.mirror.asked


def test_the_next_run_goes_on_where_it_failed(stack: Stack) -> None:
    del stack.live.of_hosts["east"]["serving_stack_values"]
    run = stack.run().ok()
    assert run.recap["west"]["changed"] == 0
    for cluster, plane in stack.live.workloads.items():
        assert set(releases(stack.live, cluster)) == RELEASES
        gateway = plane.get("gateway.networking.k8s.io/v1", "Gateway", "inference-gateway", SYSTEM)
        assert gateway is not None
        assert gateway["status"]["addresses"][0]["value"] == stack.live.addresses[cluster]
        proxy = plane.get("gateway.envoyproxy.io/v1alpha1", "EnvoyProxy", "inference-gateway", SYSTEM)
        assert proxy is not None
        # Some clouds never give an address to a Service with the policy that Envoy Gateway has by default.
        service = {"externalTrafficPolicy": "Cluster"}
        if cluster == "west":
            service = {"type": "ClusterIP", "name": "inference-gateway"}
        assert proxy["spec"]["provider"]["kubernetes"]["envoyService"] == service
        monitors = plane.objects.list("monitoring.coreos.com/v1", "PodMonitor")
        assert {each["metadata"]["name"] for each in monitors} == {"modelplane-engines", "modelplane-pickers"}


def test_on_openshift_pods_get_their_constraints_and_a_route_exposes_the_gateway(stack: Stack) -> None:
    west = stack.live.workloads["west"]
    found = west.objects.list(
        "rbac.authorization.k8s.io/v1", "RoleBinding", labels="app.kubernetes.io/managed-by=modelplane.fleet"
    )
    assert {value["metadata"]["namespace"]: value["roleRef"]["name"].rpartition(":")[2] for value in found} == {
        "cert-manager": "nonroot-v2",
        "dra-driver-nvidia-gpu": "privileged",
        "envoy-ai-gateway-system": "nonroot-v2",
        "envoy-gateway-system": "nonroot-v2",
        "lws-system": "nonroot-v2",
        "monitoring": "nonroot-v2",
        "node-feature-discovery": "privileged",
    }
    route = west.get(*ROUTE, "inference-gateway", "envoy-gateway-system")
    assert route is not None
    assert route["spec"]["to"]["name"] == "inference-gateway"


def test_a_node_that_publishes_no_devices_is_named(stack: Stack) -> None:
    plane = stack.live.workloads["east"]
    plane.add_nodes("silent", 1, labels={POOL_LABEL: "gpu"})
    run = stack.run("--limit", "east", "-e", "serving_stack_timeout=5")
    assert run.recap["east"]["failed"] == 1
    assert "no ResourceSlice of gpu.nvidia.com for 1 of 3 nodes of the pools gpu, large (silent-0)" in run.output
    plane.objects.delete("v1", "Node", "silent-0")
    assert stack.run("--limit", "east").ok().changed == 0


def test_a_second_run_changes_nothing_and_asks_no_registry(stack: Stack) -> None:
    asked = stack.mirror.asked
    with Writes(stack.live) as writes:
        assert stack.run().ok().changed == 0
    # Webhooks are asked in dry runs whether they work.
    assert writes.lasting == []
    assert stack.mirror.asked == asked


def test_a_cluster_whose_manifest_has_errors_keeps_its_stack(stack: Stack) -> None:
    broken = fleets.cluster("east").replace("Existing", "Moon")
    stack.live.write("fleet.yaml", fleets.CLASSES + broken + fleets.cluster("west"))
    stack.live.settings |= {"fleet_invalid": "hold"}
    values = {"envoy-gateway": {"global": {"test": {"fail": "image-pull"}}}}
    checked = stack.run("--check", "-e", json.dumps({"serving_stack_values": values})).ok()
    assert "Moon" in checked.output
    assert (checked.recap["east"]["changed"], checked.recap["west"]["changed"] > 0) == (0, True)
    removed = stack.run("-e", "serving_stack_state=absent", "--limit", "east")
    assert removed.recap["east"]["failed"] == 1
    assert "1 error in the manifests" in removed.output
    assert set(releases(stack.live, "east")) == RELEASES
    del stack.live.settings["fleet_invalid"]
    stack.live.write("fleet.yaml", fleets.CLASSES + fleets.cluster("east") + fleets.cluster("west"))


@pytest.mark.usefixtures("installed")
def test_a_gateway_in_mode_model_gets_what_it_needs_where_it_runs_and_no_other_cluster(stack: Stack) -> None:
    pair = {"gateway-helm": "v1.9.3", "ai-gateway-helm": "v1.2.1", "ai-gateway-crds-helm": "v1.2.1"}
    pack(stack.charts, only=list(pair), versions=pair)
    before = {cluster: releases(stack.live, cluster) for cluster in stack.live.workloads}
    budget = {"name": "tokens", "unit": "Tokens", "limit": 1000, "per": "Day"}
    manifests = [model_fleet.gateway(cluster="east"), model_fleet.service(), model_fleet.policy(budgets=[budget])]
    stack.live.write("gateway.yaml", "---\n".join(map(to_yaml, manifests)))
    run = stack.run().ok()
    east, west = stack.live.workloads["east"], stack.live.workloads["west"]
    trusted = {"mp-trust-manager": "trust-manager-v0.25.0"}
    counted = {"mp-valkey": "valkey-1.0.0", **{f"mp-{chart}": f"{chart}-{version}" for chart, version in pair.items()}}
    assert releases(stack.live, "east") == {**before["east"], **trusted, **counted}
    assert releases(stack.live, "west") == {**before["west"], **trusted}
    secret = east.get("v1", "Secret", "modelplane-valkey", "envoy-gateway-system")
    assert secret is not None
    password = base64.b64decode(secret["data"]["default"]).decode()
    assert len(password) == 40
    assert password not in run.output
    assert west.get("v1", "Secret", "modelplane-valkey", "envoy-gateway-system") is None
    asked = [each.get("v1", "Service", "modelplane-rate-limit", "envoy-gateway-system") for each in (east, west)]
    assert [bool(each) for each in asked] == [True, False]
    # It is composed with the objects of the fleet, under the name that the workload gateway had.
    assert east.get("gateway.networking.k8s.io/v1", "Gateway", "inference-gateway", SYSTEM) is None
    assert east.get("gateway.networking.k8s.io/v1", "GatewayClass", "envoy") is not None
    assert west.get("gateway.networking.k8s.io/v1", "Gateway", "inference-gateway", SYSTEM) is not None
    # Those of its Gateways that the fleet may not write are here.
    patched = [
        "cluster-gateway-https",
        "inference-gateway-http",
        "inference-gateway-https",
        "inference-gateway-https-jwt",
    ]
    assert envoy_objects(east, "EnvoyPatchPolicy") == patched
    assert envoy_objects(east, "EnvoyProxy") == ["cluster-gateway-proxy", "envoy", "inference-gateway-proxy"]
    assert envoy_objects(west, "EnvoyProxy") == ["cluster-gateway-proxy", "inference-gateway"]
    assert not envoy_objects(west, "EnvoyPatchPolicy")
    controller = east.get("apps/v1", "Deployment", "ai-gateway-controller", "envoy-ai-gateway-system")
    assert controller is not None
    # As Helm writes the number: not with an exponent, which the program would not take.
    [container] = controller["spec"]["template"]["spec"]["containers"]
    assert {"name": "MAX_RECV_MSG_SIZE", "value": "67108864"} in container["env"]
    assert stack.run().ok().changed == 0
    again = east.get("v1", "Secret", "modelplane-valkey", "envoy-gateway-system")
    assert again is not None
    assert again["data"] == secret["data"]
    # Nothing of the gateway is on the cluster when it is gone, so the workload gateway comes back.
    (stack.live.manifests / "gateway.yaml").unlink()
    stack.run("--limit", "east").ok()
    assert releases(stack.live, "east") == {**before["east"], **trusted, **counted}
    assert east.get("gateway.networking.k8s.io/v1", "Gateway", "inference-gateway", SYSTEM) is not None
    assert envoy_objects(east, "EnvoyProxy") == ["inference-gateway"]
    assert not envoy_objects(east, "EnvoyPatchPolicy")


def envoy_objects(plane: ControlPlane, kind: str) -> list[str]:
    found = plane.objects.list("gateway.envoyproxy.io/v1alpha1", kind, SYSTEM)
    return sorted(each["metadata"]["name"] for each in found)


@pytest.mark.interrupted
@pytest.mark.usefixtures("installed")
def test_one_component_is_upgraded_with_its_definitions(stack: Stack) -> None:
    stack.mirror.add(pack(stack.charts, only=["lws"], versions={"lws": NEW}))
    before = {cluster: releases(stack.live, cluster) for cluster in stack.live.workloads}
    stack.live.settings["serving_stack_versions"] = {"leader-worker-set": NEW}
    checked = stack.run("--check").ok()
    assert f"upgrade mp-lws from {OLD} to {NEW}" in checked.output
    run = stack.run().ok()
    for cluster, plane in stack.live.workloads.items():
        assert run.recap[cluster]["changed"] > 0
        assert releases(stack.live, cluster) == {**before[cluster], "mp-lws": f"lws-{NEW}"}
        name = "leaderworkersets.leaderworkerset.x-k8s.io"
        definition = plane.get("apiextensions.k8s.io/v1", "CustomResourceDefinition", name)
        assert definition is not None
        assert definition["metadata"]["annotations"][VERSION_ANNOTATION] == NEW


@pytest.mark.interrupted
@pytest.mark.usefixtures("installed")
def test_an_upgrade_that_was_killed_is_recovered(stack: Stack) -> None:
    held = {"envoy-gateway": {"global": {"test": {"fail": "never-ready", "only": ["certgen"]}}}}
    variables = json.dumps({"serving_stack_values": held})
    process = stack.live.start("serving_stack", "--limit", "west", "-e", variables, **stack.environment)
    try:
        until("Helm waits for a hook", lambda: stack.status("west", GATEWAY)[-1] == "pending-upgrade")
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    refused = stack.run("--limit", "west")
    assert refused.recap["west"]["failed"] == 1
    assert f"{GATEWAY} in envoy-gateway-system has been pending-upgrade for" in " ".join(refused.output.split())
    assert stack.run("--limit", "west", "-e", "serving_stack_stuck_after=1").ok().changed > 0
    assert stack.status("west", GATEWAY)[-1] == "deployed"
    assert set(releases(stack.live, "west")) == RELEASES
    assert stack.run("--limit", "west").ok().changed == 0


@pytest.mark.interrupted
@pytest.mark.usefixtures("installed")
def test_removal_leaves_the_clusters_as_bare_as_they_were(stack: Stack) -> None:
    arguments = ("-e", "serving_stack_state=absent", "-e", "serving_stack_purge_crds=true")
    assert stack.run(*arguments).ok().changed > 0
    for cluster, plane in stack.live.workloads.items():
        stacks.check_bare(plane, stack.bare[cluster])
    assert stack.run(*arguments).ok().changed == 0
