# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""GKE clusters are made, changed and removed by `provision`, in a project that is acted and on real API servers.

The tests of this file are one story and run in their order: each begins with what the one before it left. The same
story on EKS is in `make test`, and this one in `make interrupted`: the clouds differ in their tables, which
unit/plugins/modules and unit/roles hold to the project that is acted.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import google.auth.transport.urllib3
import pytest
import urllib3
import yaml
from ansible_collections.modelplane.fleet.tests.e2e import gke, gke_expected
from ansible_collections.modelplane.fleet.tests.e2e.clouds import Content, child_name
from ansible_collections.modelplane.fleet.tests.e2e.gke import REGION, SEED, World, email, gke_name, pool
from ansible_collections.modelplane.fleet.tests.e2e.gke_expected import Cluster, NodePool
from ansible_collections.modelplane.fleet.tests.e2e.live_fleet import SYSTEM
from ansible_collections.modelplane.fleet.tests.gcp.made import Project
from google.oauth2 import service_account

pytestmark = pytest.mark.interrupted

FAST = "fast"
FAR = "europe-west4"
REGIONS = {SEED: REGION, FAST: FAR}
NETWORK = {"nodeCidr": "10.40.0.0/22", "podCidr": "10.44.0.0/14", "serviceCidr": "10.48.0.0/20"}
H100 = pool(
    "h100",
    "a3-highgpu-8g",
    "nvidia-h100-80gb",
    8,
    ["europe-west4-b"],
    diskSizeGb=500,
    nodeCount=0,
    minNodeCount=0,
    maxNodeCount=2,
)
A100 = pool(
    "a100",
    "a2-highgpu-2g",
    "nvidia-tesla-a100",
    2,
    ["europe-west4-a", "europe-west4-b"],
    nodeCount=1,
    minNodeCount=1,
    maxNodeCount=4,
)
TOOLS = {"name": "tools", "role": "System", "machineType": "e2-standard-8", "diskSizeGb": 200}
DESIRED = {
    SEED: Cluster(
        SEED,
        REGION,
        ["us-central1-a", "us-central1-b", "us-central1-c"],
        {"gpu-l4": NodePool("g2-standard-8", (1, 4, 1), ["us-central1-a", "us-central1-c"], "nvidia-l4")},
    ),
    FAST: Cluster(
        FAST,
        FAR,
        ["europe-west4-a", "europe-west4-b", "europe-west4-c"],
        {
            "h100": NodePool("a3-highgpu-8g", (0, 2, 0), ["europe-west4-b"], "nvidia-h100-80gb", 8, 500),
            "a100": NodePool("a2-highgpu-2g", (1, 4, 1), ["europe-west4-a", "europe-west4-b"], "nvidia-tesla-a100", 2),
            "tools": NodePool("e2-standard-8", (0, 8, 1), disk=200),
        },
        nodes="10.40.0.0/22",
        pods="10.44.0.0/14",
        services="10.48.0.0/20",
        version="1.34",
    ),
}


def fast(*pools: Mapping[str, Any], version: str = "1.34", **networking: Any) -> str:
    return gke.gke_cluster(FAST, FAR, *pools, kubernetesVersion=version, networking={**NETWORK, **networking})


@pytest.fixture(scope="module")
def world(kubernetes_programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with gke.world(kubernetes_programs, tmp_path_factory.mktemp("gke"), REGIONS) as started:
        make_others(started)
        started.live.write("seed.yaml", gke.seed())
        started.live.write("fast.yaml", fast(H100, A100, TOOLS))
        yield started


def make_others(world: World) -> None:
    """Objects of others in the project: nothing of them may ever change."""
    theirs = Project(world.double)
    with world.at_once():
        theirs.make_cluster()
    theirs.call("iam", "POST", f"{theirs.path}/serviceAccounts", {"accountId": "theirs", "serviceAccount": {}})
    world.double.change_policy(
        "roles/container.admin", f"serviceAccount:theirs@{world.project}.iam.gserviceaccount.com"
    )
    leak(world, "fleet")


def leak(world: World, cluster: str) -> None:
    """Objects that controllers in a cluster leave behind: load balancers with all that belongs to them, and volumes."""
    world.double.load_balancer(cluster)
    world.double.load_balancer(cluster, "team/inside", internal=True)
    world.double.volume(cluster)


@pytest.fixture(scope="module")
def empty(world: World) -> Content:
    """The project as it was before any run."""
    return world.content()


# Making it, with what goes wrong on the way


@pytest.mark.usefixtures("empty")
def test_what_google_has_no_room_for_is_reported_with_what_to_do(world: World) -> None:
    zones = DESIRED[SEED].pools["gpu-l4"].zones
    with world.kept():
        world.double.settings(
            stockouts=[{"zone": zone, "type": "nvidia-l4"} for zone in zones],
            quotas={FAR: {"NVIDIA_A100_GPUS": 1.0}},
        )
        for cluster in REGIONS:
            account = email(cluster, world.project).partition("@")[0]
            world.double.refuse(operation="serviceAccounts.create", parameter=account)
        run = world.provision()
    # What one cluster is refused, the other one is not.
    assert run.failed == set(REGIONS), run.output
    for words in (
        "ZONE_RESOURCE_POOL_EXHAUSTED",
        "add zones to the pool",
        "NVIDIA_A100_GPUS",
        "request a higher quota",
        "iam.serviceAccountAdmin",
    ):
        assert words in run.output, (words, run.output)
    assert world.double.refusals() == []


def test_the_next_run_goes_on_from_there(world: World) -> None:
    before = {cluster: _identifiers(world, cluster) for cluster in REGIONS}
    run = world.provision().ok()
    assert run.changed > 0
    for cluster, found in before.items():
        # What was made once is kept.
        assert _identifiers(world, cluster) == found


@pytest.mark.usefixtures("empty")
def test_clusters_are_made(world: World) -> None:
    world.provision().ok()


def _identifiers(world: World, cluster: str) -> list[str]:
    name = gke_name(cluster)
    network = world.get("compute", f"projects/{world.project}/global/networks/{name}")
    return [network["id"], world.cluster(cluster)["id"]]


@pytest.mark.parametrize("cluster", DESIRED)
@pytest.mark.parametrize("check", gke_expected.CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_google_has_what_was_declared(world: World, cluster: str, check: Callable[[World, Cluster], None]) -> None:
    check(world, DESIRED[cluster])


@pytest.mark.parametrize("cluster", DESIRED)
def test_the_cluster_has_its_storage_class(world: World, cluster: str) -> None:
    gke_expected.check_storage_class(DESIRED[cluster], world.live.workloads[cluster])


@pytest.mark.parametrize("cluster", DESIRED)
def test_the_secrets_of_the_control_cluster_log_in(world: World, cluster: str) -> None:
    plane = world.live.workloads[cluster]
    secret = world.secret(cluster)
    assert secret is not None
    kubeconfig = yaml.safe_load(base64.b64decode(secret["data"]["kubeconfig"]))
    assert [each["cluster"]["server"] for each in kubeconfig["clusters"]] == [plane.server]
    key = json.loads(base64.b64decode(_key_secret(world, cluster)["data"]["private_key"]))
    account = email(cluster, world.project)
    assert (key["type"], key["client_email"]) == ("service_account", account)
    # The token of the one, and one that the other is exchanged for, are of the account that is made for the cluster.
    scopes = ["https://www.googleapis.com/auth/cloud-platform", "https://www.googleapis.com/auth/userinfo.email"]
    own = service_account.Credentials.from_service_account_info(key, scopes=scopes)
    own.refresh(google.auth.transport.urllib3.Request(urllib3.PoolManager()))
    (user,) = kubeconfig["users"]
    for token in (user["user"]["token"], own.token):
        user["user"] = {"token": token}
        path = world.live.folder / f"{cluster}.kubeconfig"
        path.write_text(yaml.safe_dump(kubeconfig))
        assert _who(world, cluster, path) == account


def _who(world: World, cluster: str, kubeconfig: Path) -> str:
    """The user as whom the API server of a cluster knows a kubeconfig."""
    name = "-o=jsonpath={.status.userInfo.username}"
    return world.live.kubectl(f"--kubeconfig={kubeconfig}", "auth", "whoami", name, cluster=cluster)


def _key_secret(world: World, cluster: str) -> dict[str, Any]:
    found = world.live.control.get("v1", "Secret", child_name(cluster, "sa-key"), SYSTEM)
    assert found is not None
    return found


def test_a_second_run_changes_nothing(world: World) -> None:
    run = world.provision().ok()
    assert (run.changed, world.changes) == (0, []), run.output


# Changes in place


def test_all_that_google_can_change_is_changed(world: World) -> None:
    before = {cluster: _identifiers(world, cluster) for cluster in REGIONS}
    account, project = email(SEED, world.project), f"projects/{world.project}"
    place = world.place(SEED)
    # Changes by hand are reverted.
    pool = world.pool(SEED, "gpu-l4")
    world.double.change(
        f"{place}/nodePools/gpu-l4",
        config={**pool["config"], "labels": {"modelplane.ai/pool": "other", "theirs": "stays"}},
        autoscaling={"enabled": True, "minNodeCount": 2, "maxNodeCount": 3},
    )
    world.double.change(place, workloadIdentityConfig={}, releaseChannel={"channel": "RAPID"})
    addons = world.cluster(SEED)["addonsConfig"]
    world.double.change(place, addonsConfig={**addons, "gcpFilestoreCsiDriverConfig": {}})
    names = {"serviceAccount": {"displayName": "other"}, "updateMask": "displayName"}
    world.call("iam", "PATCH", f"{project}/serviceAccounts/{account}", names)
    _take_right(world, account)
    (key,) = world.keys(account)
    world.call("iam", "DELETE", key["name"])
    # And what is declared changed.
    world.live.edit("seed.yaml", "maxNodeCount: 4", "maxNodeCount: 6")
    fewer = {**A100, "zones": ["europe-west4-b"], "diskSizeGb": 300}
    more = {**H100, "name": "more", "gpu": {"acceleratorType": "nvidia-h100-80gb", "acceleratorCount": 8}}
    fixed = {**TOOLS, "machineType": "e2-standard-16", "minNodeCount": 2, "maxNodeCount": 2}
    world.live.write("fast.yaml", fast(fewer, more, fixed, version="1.36", nodeCidr="10.40.0.0/21"))
    world.live.settings |= {"gke_cluster_labels": {"team": "inference"}}
    # The output of Ansible wraps long lines.
    shown = " ".join(world.provision("--check").ok().output.split())
    assert re.search(r"update node pool tools: [\w., ]*config\.machineType[\w., ]*; all its nodes are replaced", shown)
    assert "update node pool gpu-l4: config.resourceLabels, config.labels, autoscaling" in shown
    run = world.provision().ok()
    assert run.changed > 0
    pools = DESIRED[FAST].pools
    after = {
        SEED: replace(
            DESIRED[SEED],
            pools={"gpu-l4": replace(DESIRED[SEED].pools["gpu-l4"], bounds=(1, 6, 1), more={"theirs": "stays"})},
            labels={"team": "inference"},
        ),
        FAST: replace(
            DESIRED[FAST],
            pools={
                "a100": replace(pools["a100"], zones=["europe-west4-b"], disk=300),
                "more": pools["h100"],
                "tools": replace(pools["tools"], machine="e2-standard-16", bounds=(2, 2, 1)),
            },
            nodes="10.40.0.0/21",
            version="1.36",
            labels={"team": "inference"},
        ),
    }
    for cluster, desired in after.items():
        gke_expected.check(world, desired)
        assert _identifiers(world, cluster) == before[cluster]
    # The autoscaler moves no pool into its bounds by itself.
    sizes = [call for call in world.double.calls(mutating=True) if call["operation"].endswith("setSize")]
    assert [call["parameters"]["body"]["nodeCount"] for call in sizes] == [2]
    (new,) = world.keys(account)
    assert new["name"] != key["name"]


def _take_right(world: World, account: str) -> None:
    """Remove a service account from the policy of the project, as a user may."""
    place = f"projects/{world.project}"
    options = {"options": {"requestedPolicyVersion": 3}}
    policy = world.call("cloudresourcemanager", "POST", f"{place}:getIamPolicy", options)
    for binding in policy["bindings"]:
        binding["members"] = [each for each in binding["members"] if each != f"serviceAccount:{account}"]
    world.call("cloudresourcemanager", "POST", f"{place}:setIamPolicy", {"policy": policy})


def test_what_others_may_change_stays_and_nothing_but_the_token_changes(world: World) -> None:
    secrets = {cluster: world.secret(cluster) or {} for cluster in REGIONS}
    keys = {cluster: _key_secret(world, cluster)["data"] for cluster in REGIONS}
    # The autoscaler, and Google itself, which upgrades what is in a channel.
    with world.at_once():
        world.call("container", "POST", f"{world.place(SEED)}/nodePools/gpu-l4:setSize", {"nodeCount": 3})
        world.call("container", "PUT", world.place(SEED), {"update": {"desiredMasterVersion": "1.36"}})
    with world.kept():
        world.live.edit("fast.yaml", '"kubernetesVersion": "1.36"', '"kubernetesVersion": "1.35"')
        run = world.provision().ok()
    assert (run.changed, world.changes) == (0, []), run.output
    for cluster, secret in secrets.items():
        assert (world.secret(cluster) or {})["data"] != secret["data"]
        assert _key_secret(world, cluster)["data"] == keys[cluster]


def test_what_google_cannot_change_and_a_cluster_with_replicas_are_left_as_they_are(world: World) -> None:
    before = world.content()
    with world.kept(), world.replica(SEED), world.of_host(SEED, gke_cluster_state="absent"):
        world.live.edit("fast.yaml", "10.44.0.0/14", "10.44.0.0/15")
        world.live.edit("fast.yaml", "10.40.0.0/21", "10.40.0.0/23")
        # Something that could be changed, and must not be as the rest cannot.
        world.live.settings["gke_cluster_labels"] = {"team": "another"}
        run = world.provision()
    assert run.failed == set(REGIONS), run.output
    for words in ("10.44.0.0/15", "spec.networking.podCidr", "spec.networking.nodeCidr", "gke_cluster_force"):
        assert words in run.output, (words, run.output)
    assert world.changes == []
    assert world.differences(before) == []


# Removal


def test_a_check_of_the_removal_removes_nothing(world: World) -> None:
    for cluster in REGIONS:
        leak(world, gke_name(cluster))
    before = world.content()
    run = world.remove("--check").ok()
    world.planned_changes = run.changed
    assert world.changes == []
    assert world.differences(before) == []


def test_removal_leaves_the_project_as_it_was(world: World, empty: Content) -> None:
    world.double.settings(leaves_firewalls=True)
    run = world.remove().ok()
    assert run.changed == world.planned_changes > 0
    assert world.differences(empty) == []
    for cluster in REGIONS:
        assert world.secret(cluster) is None
        assert world.live.control.get("v1", "Secret", child_name(cluster, "sa-key"), SYSTEM) is None
    # Other clusters of the project may need it.
    gke_expected.check_service(world, DESIRED[SEED])


def test_a_second_removal_changes_nothing(world: World) -> None:
    run = world.remove("--limit", FAST).ok()
    assert (run.changed, world.changes) == (0, [])
