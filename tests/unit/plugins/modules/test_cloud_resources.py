# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The objects of a plan in the project of the double: created, kept, changed, created after failures, deleted."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.gke import requests
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.gke.plan import plan
from ansible_collections.modelplane.fleet.plugins.modules import cloud_resources
from ansible_collections.modelplane.fleet.tests.gcp.double import Double
from ansible_collections.modelplane.fleet.tests.module_run import run_module
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.cloud.gke.clusters import gke, gpu

Json = dict[str, Any]
EVERY = ["network", "service-filestore", "subnetwork", "cluster", "pool-system", "pool-gpu-l4"]
EVERY += ["service-account", "iam-member"]
OF_NODES = ["node-service-account", "node-iam-member-defaultnodeserviceaccount", "node-iam-member-reader"]
EVERY += OF_NODES
STOCKOUT = "[GCE_STOCKOUT]: Instance creation failed: the zone does not have enough resources available."


class Cluster:
    """A GKECluster whose plan the module creates in the project of the double."""

    def __init__(self, gcp: Double) -> None:
        self.gcp = gcp
        self.credentials = gcp.credentials
        self.plan = plan(gke(), gcp.project)

    def become(self, *pools: Json, **spec: Any) -> None:
        """Another plan from now on."""
        self.plan = plan(gke(*pools, **spec), self.gcp.project)

    def entry(self, key: str) -> Json:
        found: Json = next(each for each in self.plan["resources"] if each["key"] == key)
        return found

    def path(self, key: str) -> str:
        entry = self.entry(key)
        collections = {"network": "networks", "subnetwork": "subnetworks", "cluster": "clusters"}
        return f"{entry['parent']}/{collections.get(entry['kind'], 'nodePools')}/{entry['name']}"

    def words(self, key: str) -> str:
        return requests.title(self.entry(key))

    def live(self, key: str) -> Json:
        return self.gcp.object(self.path(key))

    def run(self, *, check: bool = False, **more: Any) -> Json:
        arguments = {"resources": self.plan["resources"], "wait_delay": 0.0, "wait_timeout": 60}
        return run_module(
            cloud_resources, {"provider": "gke", **self.credentials, **arguments, **more}, check_mode=check
        )

    def install(self, **more: Any) -> Json:
        result = self.run(**more)
        assert not result["failed"], result["msg"]
        return result

    def converge(self, turns: int = 40, **more: Any) -> int:
        """Run until it does not fail any more; how often it did."""
        for failed in range(turns):
            result = self.run(**more)
            if not result["failed"]:
                return failed
        raise AssertionError(result["msg"])

    def did(self) -> list[str]:
        """The mutating calls since the last time, but for those that were refused."""
        found = [call["operation"] for call in self.gcp.calls(mutating=True) if not call["error"]]
        self.gcp.forget_calls()
        return [operation.removeprefix("projects.").removeprefix("locations.") for operation in found]

    def others(self) -> list[Json]:
        """The policy, but for what is ours."""
        ours = {f"serviceAccount:{self.plan[key]}" for key in ("service_account", "node_account")}
        return [each for each in self.gcp.policy()["bindings"] if not ours.issuperset(each["members"])]


@pytest.fixture
def cluster(gcp: Double) -> Iterator[Cluster]:
    """An empty project, in which nothing takes time unless a test says so."""
    gcp.reset()
    gcp.settings(polls=0)
    yield Cluster(gcp)
    assert gcp.invalid() == []


@pytest.fixture
def made(cluster: Cluster) -> Cluster:
    cluster.install()
    cluster.did()
    return cluster


def reported(result: Json) -> list[str]:
    return sorted({*result["diff"]["before"], *result["diff"]["after"]})


# From nothing


def test_a_cluster_from_nothing(cluster: Cluster) -> None:
    cluster.gcp.settings(polls=2)
    before = cluster.gcp.objects()
    checked = cluster.run(check=True, purge=True)
    assert (checked["failed"], checked["changed"], cluster.did()) == (False, True, [])
    assert reported(checked) == sorted(EVERY)
    assert cluster.gcp.objects() == before
    assert checked["resources"] == {key: {} for key in EVERY}

    done = cluster.install(purge=True)
    assert done["changed"]
    assert done["diff"] == checked["diff"]
    assert sorted(cluster.did()) == [
        "clusters.create",
        "clusters.nodePools.create",
        "networks.insert",
        *["serviceAccounts.create"] * 2,
        "services.enable",
        *["setIamPolicy"] * 3,
        "subnetworks.insert",
    ]
    assert done["resources"]["cluster"]["status"] == "RUNNING"
    assert done["resources"]["service-account"]["email"] == cluster.plan["service_account"]
    assert done["resources"]["iam-member"] == cluster.entry("iam-member")["body"]
    assert "clientKey" not in done["resources"]["cluster"]["masterAuth"]
    assert any(line.startswith(f"create GKE cluster {cluster.plan['name']}: RUNNING (after") for line in done["waited"])
    assert done["logged"] == done["waited"]

    again = cluster.run(purge=True)
    assert (again["failed"], again["changed"], again["waited"], cluster.did()) == (False, False, [], [])
    assert again["diff"] == {"before": {}, "after": {}}
    checked = cluster.run(check=True, purge=True)
    assert (checked["failed"], checked["changed"], cluster.did()) == (False, False, [])


def test_what_was_made(made: Cluster) -> None:
    network, subnetwork, live = (made.live(key) for key in ("network", "subnetwork", "cluster"))
    assert network["autoCreateSubnetworks"] is False
    assert (subnetwork["ipCidrRange"], len(subnetwork["secondaryIpRanges"])) == ("10.0.0.0/24", 2)
    assert live["workloadIdentityConfig"] == {"workloadPool": f"{made.gcp.project}.svc.id.goog"}
    assert live["addonsConfig"]["gcpFilestoreCsiDriverConfig"] == {"enabled": True}
    pool = made.live("pool-gpu-l4")
    assert pool["config"]["accelerators"][0]["acceleratorType"] == "nvidia-l4"
    assert pool["locations"] == ["us-central1-a", "us-central1-c"]
    assert pool["config"]["labels"]["modelplane.ai/pool"] == "gpu-l4"


def test_what_is_there_already_is_gone_on_with(cluster: Cluster) -> None:
    first = [each for each in cluster.plan["resources"] if each["key"] in ("network", "subnetwork", "service-account")]
    cluster.install(resources=first)
    done = cluster.install()
    assert reported(done) == sorted(set(EVERY) - {"network", "subnetwork", "service-account"})


# Changes in place

CHANGES: dict[str, tuple[Json, dict[str, Any], list[str], str, Any]] = {
    "bounds": (gpu(minNodeCount=2, maxNodeCount=4), {}, ["autoscaling"], "autoscaling.maxNodeCount", 4),
    "zones": (gpu(zones=["us-central1-a", "us-central1-b"]), {}, ["locations"], "locations.1", "us-central1-b"),
    "disk": (gpu(diskSizeGb=300), {}, ["config.diskSizeGb"], "config.diskSizeGb", 300),
}


@pytest.mark.parametrize("name", CHANGES)
def test_changes_of_a_pool(made: Cluster, name: str) -> None:
    pool, spec, fields, place, value = CHANGES[name]
    made.become(pool, **spec)
    checked = made.run(check=True)
    assert (checked["failed"], checked["changed"], made.did()) == (False, True, [])
    done = made.install()
    assert done["diff"] == checked["diff"]
    assert list(done["diff"]["after"]["pool-gpu-l4"]) == fields
    live: Any = made.live("pool-gpu-l4")
    for part in place.split("."):
        live = live[int(part)] if part.isdigit() else live[part]
    assert live == value
    assert made.did()
    assert not made.install()["changed"]
    assert made.did() == []


def test_what_a_user_changed_is_set_back_and_what_they_added_stays(made: Cluster) -> None:
    config = made.live("pool-gpu-l4")["config"]
    labels = {**config["labels"], "modelplane.ai/pool": "other", "team": "vision"}
    theirs = {"key": "team", "value": "vision", "effect": "NO_SCHEDULE"}
    made.gcp.change(made.path("pool-gpu-l4"), config={**config, "labels": labels, "taints": [theirs]})
    made.gcp.change(made.path("cluster"), resourceLabels={**made.live("cluster")["resourceLabels"], "team": "vision"})
    done = made.install()
    assert done["diff"]["before"]["pool-gpu-l4"]["config.labels"]["modelplane.ai/pool"] == "other"
    live = made.live("pool-gpu-l4")["config"]
    assert (live["labels"]["modelplane.ai/pool"], live["labels"]["team"]) == ("gpu-l4", "vision")
    # That of GKE itself stays.
    assert [taint["key"] for taint in live["taints"]] == ["nvidia.com/gpu"]
    assert made.live("cluster")["resourceLabels"]["team"] == "vision"
    assert not made.install()["changed"]


def test_a_newer_version_one_minor_version_after_the_other(cluster: Cluster) -> None:
    cluster.become(gpu(), kubernetesVersion="1.34")
    cluster.install()
    cluster.did()
    cluster.become(gpu(), kubernetesVersion="1.36")
    done = cluster.install()
    assert cluster.live("cluster")["currentMasterVersion"].startswith("1.36.")
    assert cluster.live("pool-gpu-l4")["version"].startswith("1.36.")
    assert cluster.did().count("clusters.update") == 2
    assert done["diff"]["after"]["cluster"] == {"initialClusterVersion": "1.36"}
    assert not cluster.install()["changed"]


def test_pools_come_and_go(made: Cluster) -> None:
    made.become(gpu("gpu-new"))
    kept = made.install()
    assert reported(kept) == ["pool-gpu-new"]
    checked = made.run(check=True, purge=True)
    assert (checked["diff"]["after"], list(checked["diff"]["before"])) == ({}, ["pool-gpu-l4"])
    made.did()
    done = made.install(purge=True)
    assert list(done["diff"]["before"]) == ["pool-gpu-l4"]
    assert made.did() == ["clusters.nodePools.delete"]
    assert not made.install(purge=True)["changed"]


def test_pools_of_others_stay(made: Cluster) -> None:
    theirs = deepcopy(made.entry("pool-gpu-l4"))
    body = {**theirs["body"], "name": "theirs", "config": {**theirs["body"]["config"], "resourceLabels": {}}}
    del body["version"]
    status, _ = made.gcp.request("container", "POST", f"v1/{theirs['parent']}/nodePools", {"nodePool": body})
    assert status == 200
    assert not made.install(purge=True)["changed"]
    assert [each for each in made.gcp.objects() if each.endswith("/nodePools/theirs")]


# What cannot be, and what is not ours


def test_what_google_cannot_change_is_reported_before_anything_is_begun(made: Cluster) -> None:
    made.become(gpu(maxNodeCount=3), gpu("more"), networking={"nodeCidr": "10.9.0.0/24"})
    for check in (True, False):
        result = made.run(check=check)
        assert result["failed"]
        name = made.plan["name"]
        assert (
            f"subnetwork {name}: cannot change ipCidrRange from 10.0.0.0/24 to 10.9.0.0/24. The range" in result["msg"]
        )
        assert "Set spec.networking.nodeCidr back to 10.0.0.0/24" in result["msg"]
        assert made.did() == []


def test_a_cluster_stays_in_its_region(made: Cluster) -> None:
    name = made.plan["name"]
    # With ranges that are free, so that Google itself would have nothing against a second one.
    ranges = {"nodeCidr": "10.50.0.0/24", "podCidr": "10.51.0.0/16", "serviceCidr": "10.52.0.0/16"}
    made.become(gpu(zones=["us-east4-a"]), region="us-east4", networking=ranges)
    for arguments in ({"check": True}, {}, {"state": "absent"}):
        result = made.run(**arguments)
        assert result["failed"]
        assert f"subnetwork {name} is in us-central1 already, and us-east4 is asked for" in result["msg"]
        assert "set spec.region back to us-central1" in result["msg"]
        assert made.did() == []


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ("", "was not created by this collection: it has no modelplane-ai-managed-by=modelplane-fleet"),
        (
            "modelplane-ai-cluster={name} modelplane-ai-managed-by=modelplane-fleet modelplane-ai-fleet=other",
            "has another owner: modelplane-ai-fleet=other",
        ),
    ],
)
@pytest.mark.parametrize("state", ["present", "absent"])
def test_what_is_not_ours_is_not_touched(cluster: Cluster, labels: str, said: str, state: str) -> None:
    name = cluster.plan["name"]
    body = {"name": name, "autoCreateSubnetworks": False, "description": labels.format(name=name)}
    cluster.gcp.plant(f"projects/{cluster.gcp.project}/global/networks", **body)
    for check in (True, False):
        result = cluster.run(check=check, state=state)
        assert result["failed"]
        assert f"VPC network {name} exists already" in result["msg"]
        assert said in result["msg"]
        assert cluster.did() == []


# While others work on the same


def test_an_operation_of_another_user_is_waited_for(made: Cluster) -> None:
    busy = made.gcp.busy(made.plan["name"], polls=15)
    made.become(gpu(maxNodeCount=3))
    done = made.install()
    assert any(f"waits for {busy['name']}" in line for line in done["waited"]), done["waited"]
    assert made.live("pool-gpu-l4")["autoscaling"]["maxNodeCount"] == 3


def test_an_operation_that_takes_too_long(made: Cluster) -> None:
    made.gcp.busy(made.plan["name"], polls=10_000)
    made.become(gpu(maxNodeCount=3))
    result = made.run(wait_timeout=0)
    assert result["failed"]
    assert "WaitTimeout" in result["msg"]
    assert "Google goes on, and so does the next run" in result["msg"]


def test_rights_that_others_give_at_the_same_time_stay(cluster: Cluster) -> None:
    cluster.gcp.settings(policy_conflicts=3)
    cluster.gcp.change_policy("roles/container.admin", "user:admin@example.com")
    before = cluster.gcp.policy()["bindings"]
    cluster.install()
    after = cluster.gcp.policy()["bindings"]
    assert all(set(each["members"]) <= {m for one in after for m in one["members"]} for each in before)
    conditions = [each["condition"] for each in before if "condition" in each]
    assert [each["condition"] for each in after if "condition" in each] == conditions
    assert not cluster.install()["changed"]


def test_a_new_account_is_not_known_everywhere_at_once(cluster: Cluster) -> None:
    cluster.gcp.settings(unknown_accounts=3)
    done = cluster.install()
    assert any("its account to be known everywhere" in line for line in done["waited"])
    assert not cluster.install()["changed"]


def test_several_clusters_at_once(cluster: Cluster) -> None:
    gcp = cluster.gcp
    clusters = [Cluster(gcp) for _ in range(3)]
    for index, each in enumerate(clusters):
        each.become(gpu(), name=f"gke-{index}")
    with ThreadPoolExecutor(3) as pool:
        results = list(pool.map(lambda each: each.run(), clusters))
    assert [(each["failed"], each.get("msg")) for each in results] == [(False, None)] * 3
    members = {m for each in gcp.policy()["bindings"] if "condition" not in each for m in each["members"]}
    assert {f"serviceAccount:{each.plan['service_account']}" for each in clusters} <= members
    for each in clusters:
        assert not each.install()["changed"]
        assert reported(each.install(state="absent")) != []
    assert gcp.objects() == []


# Failures


def test_each_call_may_be_refused_once(cluster: Cluster) -> None:
    cluster.gcp.refuse_each_once(code="PERMISSION_DENIED", status=403, message="Required permission is missing.")
    failed = cluster.converge(purge=True)
    assert failed > 1
    cluster.gcp.refuse_each_once(enabled=False)
    assert not cluster.install(purge=True)["changed"]
    cluster.gcp.refuse_each_once(code="PERMISSION_DENIED", status=403, message="Required permission is missing.")
    assert cluster.converge(state="absent") > 1
    assert cluster.gcp.objects() == []


def test_answers_may_get_lost(cluster: Cluster) -> None:
    """A call that took effect is not repeated."""
    cluster.gcp.refuse_each_once(after=True, code="UNAVAILABLE", status=503, message="Try again.")
    cluster.install()
    cluster.gcp.refuse_each_once(enabled=False)
    assert not cluster.install()["changed"]
    cluster.gcp.refuse_each_once(after=True, code="UNAVAILABLE", status=503, message="Try again.")
    cluster.install(state="absent")
    assert cluster.gcp.objects() == []


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ("create network", "network"),
        ("create subnetwork", "subnetwork"),
        ("enable service", "service-filestore"),
        ("create cluster", "cluster"),
        ("create node pool", "pool-gpu-l4"),
    ],
)
def test_operations_that_fail(cluster: Cluster, kind: str, key: str) -> None:
    cluster.gcp.settings(polls=1)
    cluster.gcp.fail(kind, code="RESOURCE_EXHAUSTED", message="Quota 'NVIDIA_L4_GPUS' exceeded. Limit: 1.0 in region.")
    result = cluster.run()
    assert result["failed"]
    assert "Quota 'NVIDIA_L4_GPUS' exceeded" in result["msg"]
    assert "request a higher quota" in result["msg"]
    assert key in result["diff"]["after"]
    assert cluster.converge() == 0
    assert not cluster.install()["changed"]


def test_a_cluster_that_never_came_up_is_made_again_with_its_pools(cluster: Cluster) -> None:
    cluster.gcp.settings(polls=1)
    cluster.gcp.fail("create cluster", code="INTERNAL", message="Internal error.")
    assert cluster.run()["failed"]
    assert cluster.live("cluster")["status"] == "ERROR"
    cluster.did()
    checked = cluster.run(check=True)
    assert reported(checked) == ["cluster", "pool-gpu-l4", "pool-system"]
    done = cluster.install()
    assert done["diff"] == checked["diff"]
    assert cluster.did() == ["clusters.delete", "clusters.create", "clusters.nodePools.create"]
    assert not cluster.install()["changed"]


def test_a_pool_without_machines_does_not_stop_the_others(cluster: Cluster) -> None:
    cluster.become(gpu("first"), gpu("second"))
    cluster.gcp.settings(polls=1)
    cluster.gcp.fail("create node pool", name="first", code="RESOURCE_EXHAUSTED", message=STOCKOUT)
    result = cluster.run()
    assert result["failed"]
    assert "create node pool first failed" in result["msg"]
    assert "use another machine type" in result["msg"]
    assert cluster.live("pool-second")["status"] == "RUNNING"
    assert cluster.live("pool-first")["status"] == "ERROR"
    checked = cluster.run(check=True)
    assert reported(checked) == ["pool-first"]
    cluster.did()
    done = cluster.install()
    assert cluster.did() == ["clusters.nodePools.delete", "clusters.nodePools.create"]
    assert any(
        "node pool first is ERROR" in line and "it is deleted and created again" in line for line in done["waited"]
    )
    assert not cluster.install()["changed"]


def test_a_pool_that_works_in_part_stays_and_is_reported(cluster: Cluster) -> None:
    cluster.gcp.settings(polls=1)
    cluster.gcp.fail("create node pool", code="RESOURCE_EXHAUSTED", message=STOCKOUT, pool_status="RUNNING_WITH_ERROR")
    assert cluster.run()["failed"]
    cluster.did()
    result = cluster.install()
    assert "clusters.nodePools.delete" not in cluster.did()
    (warning,) = result["warnings"]
    assert warning.startswith("node pool gpu-l4 is RUNNING_WITH_ERROR: RESOURCE_EXHAUSTED: [GCE_STOCKOUT]")
    assert "use another machine type" in warning
    assert not cluster.install()["changed"]


def test_an_api_that_is_not_enabled(cluster: Cluster) -> None:
    cluster.gcp.disable_service("container.googleapis.com")
    result = cluster.run()
    assert result["failed"]
    assert "SERVICE_DISABLED" in result["msg"]
    assert "gcloud services enable" in result["msg"]
    assert cluster.did() == []


def test_a_token_that_ends_meanwhile_is_renewed(made: Cluster) -> None:
    made.gcp.expire_tokens()
    assert not made.install()["changed"]


@pytest.mark.parametrize("key", ["network", "subnetwork"])
def test_what_a_run_has_begun_is_gone_on_with_by_the_next(cluster: Cluster, key: str) -> None:
    """Compute Engine lists no object before it is created, and no other can have its name."""
    begin(cluster, key)
    done = cluster.install()
    assert any("of an earlier run" in line for line in done["waited"]), done["waited"]
    assert f"{key}s.insert" not in cluster.did()
    assert not cluster.install()["changed"]


@pytest.mark.parametrize("key", ["network", "subnetwork"])
def test_what_a_run_has_begun_is_removed(cluster: Cluster, key: str) -> None:
    begin(cluster, key)
    checked = cluster.run(check=True, state="absent")
    assert (checked["failed"], checked["changed"], cluster.did()) == (False, True, [])
    assert key in checked["removed"]
    unwaited = cluster.install(state="absent", wait=False)
    assert f"{cluster.words(key)} is being created: run again" in unwaited["pending"]
    assert key in cluster.install(state="absent")["removed"]
    assert cluster.gcp.objects() == []
    cluster.did()
    assert (cluster.install(state="absent")["changed"], cluster.did()) == (False, [])


def test_what_a_run_has_begun_in_vain_is_made_again(cluster: Cluster) -> None:
    cluster.gcp.fail("create network", code="RESOURCE_OPERATION_RATE_EXCEEDED", message="Too many at once.")
    begin(cluster, "network")
    cluster.install()
    assert cluster.did().count("networks.insert") == 1


def begin(cluster: Cluster, key: str) -> None:
    """A run that ends as soon as it has begun to make something."""
    cluster.gcp.settings(polls=6)
    for _ in range(40):
        cluster.install(wait=False)
        if f"{key}s.insert" in cluster.did():
            return
    raise AssertionError(f"{key} is never begun")


# Without waiting


def test_no_one_waits(cluster: Cluster) -> None:
    cluster.gcp.settings(polls=1)
    first = cluster.install(wait=False)
    assert any(line.endswith("run again") for line in first["pending"])
    for _ in range(20):
        result = cluster.install(wait=False)
        if not result["pending"]:
            break
    assert (result["pending"], cluster.install()["changed"]) == ([], False)
    cluster.install(state="absent", wait=False)
    for _ in range(20):
        result = cluster.install(state="absent", wait=False)
        if not (result["pending"] or result["removed"]):
            break
    assert cluster.gcp.objects() == []


# Deleting


def test_delete_leaves_nothing(made: Cluster) -> None:
    others = made.others()
    checked = made.run(check=True, state="absent")
    assert (checked["failed"], checked["changed"], made.did()) == (False, True, [])
    done = made.install(state="absent")
    assert done["removed"] == checked["removed"]
    assert done["removed"] == ["network", "subnetwork", *OF_NODES, "cluster", "service-account", "iam-member"]
    assert done["diff"] == checked["diff"]
    calls = made.did()
    assert calls.index("setIamPolicy") < calls.index("serviceAccounts.delete")
    assert calls.index("clusters.delete") < calls.index("subnetworks.delete") < calls.index("networks.delete")
    assert made.gcp.objects() == []
    assert made.others() == others
    again = made.install(state="absent")
    assert (again["changed"], again["removed"], made.did()) == (False, [], [])


def test_what_is_in_use_is_reported(made: Cluster) -> None:
    made.gcp.load_balancer(made.plan["name"])
    result = made.run(state="absent")
    assert result["failed"]
    assert "Something still uses this" in result["msg"]


def test_what_is_left_of_an_account_that_a_user_deleted(made: Cluster) -> None:
    path = f"v1/projects/{made.gcp.project}/serviceAccounts/{made.plan['service_account']}"
    assert made.gcp.request("iam", "DELETE", path)[0] == 200
    done = made.install(state="absent")
    assert "iam-member" in done["removed"]
    assert "deleted:" not in str(made.gcp.policy())


# Arguments


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"project": "other"}, "resources[0].parent: projects/modelplane-test/global is not in project other"),
        ({"endpoints": {"compte": "https://x"}}, "endpoints: there is no service compte. Did you mean compute?"),
        ({"endpoints": {"compute": "x"}}, "compute: x is no URL. As it is by default: https://compute.googleapis.com"),
        ({"ca_file": "/nowhere.pem"}, "ca_file /nowhere.pem is no file"),
        ({"wait_timeout": -5}, "wait_timeout: must be 0 seconds or more (got -5)"),
        ({"wait_delay": -0.5}, "wait_delay: must be 0 seconds or more (got -0.5)"),
        (
            {"credentials_file": "/nowhere.json"},
            "log in to Google: credentials file /nowhere.json: no such file",
        ),
    ],
)
def test_arguments_that_are_wrong(cluster: Cluster, change: Json, said: str) -> None:
    result = cluster.run(**change)
    assert result["failed"]
    assert said in result["msg"]


@pytest.mark.parametrize(
    ("needs", "said"),
    [
        ({"b": ["c"]}, "b needs c, which is not among them"),
        ({"a": ["b"], "b": ["a"]}, "these need each other: a, b"),
    ],
)
def test_needs_that_cannot_be(cluster: Cluster, needs: dict[str, list[str]], said: str) -> None:
    entry = cluster.entry("network")
    listed = [{**entry, "key": key, "needs": needs.get(key, [])} for key in ("a", "b")]
    result = cluster.run(resources=listed)
    assert said in result["msg"]


def test_a_key_that_is_listed_twice(cluster: Cluster) -> None:
    result = cluster.run(resources=[cluster.entry("network")] * 2)
    assert "a key is listed twice" in result["msg"]


def test_a_federated_identity(cluster: Cluster) -> None:
    """As the service account that it may be; by itself it has no rights in the project."""
    result = cluster.run(check=True, credentials_file=cluster.gcp.federation_file())
    assert (result["failed"], result.get("msg")) == (False, None)
    result = cluster.run(check=True, credentials_file=cluster.gcp.federation_file(impersonate=False))
    assert "principal://iam.googleapis.com" in result["msg"]
    assert "Grant the identity of this run the permission in the message" in result["msg"]


def test_a_federated_token_that_has_ended(cluster: Cluster) -> None:
    result = cluster.run(check=True, credentials_file=cluster.gcp.federation_file(seconds=-60))
    assert result["failed"]
    assert "see that whatever writes it renews it" in result["msg"]
