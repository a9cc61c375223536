# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""GKE in the double: clusters and node pools."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.modelplane.fleet.tests.gcp.double import Double
from ansible_collections.modelplane.fleet.tests.gcp.made import Project, Refused

Json = dict[str, Any]

GPU_TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NO_SCHEDULE"}


def test_a_cluster_takes_time(gcp: Double, project: Project) -> None:
    project.make_network()
    gcp.settings(polls=2)
    operation = project.call("container", "POST", f"{project.location}/clusters", {"cluster": project.cluster_body()})
    assert (operation["operationType"], operation["status"]) == ("CREATE_CLUSTER", "RUNNING")
    assert operation["targetLink"].endswith("/locations/us-central1/clusters/fleet")
    seen = [project.get_cluster() for _ in range(3)]
    assert [each["status"] for each in seen] == ["PROVISIONING", "PROVISIONING", "RUNNING"]
    assert "endpoint" not in seen[0]
    assert seen[2]["endpoint"]
    assert project.call("container", "GET", project.place("container", operation))["status"] == "DONE"


def test_google_adds_to_a_cluster(project: Project) -> None:
    cluster = project.make_cluster()
    assert cluster["currentMasterVersion"] == "1.35.3-gke.1389000"
    assert cluster["network"] == "fleet"
    assert cluster["networkConfig"]["network"] == project.network
    assert cluster["ipAllocationPolicy"]["clusterIpv4CidrBlock"] == "10.1.0.0/16"
    assert cluster["addonsConfig"]["gcpFilestoreCsiDriverConfig"] == {"enabled": True}
    assert cluster["addonsConfig"]["kubernetesDashboard"] == {"disabled": True}
    assert cluster["locations"] == ["us-central1-a", "us-central1-b", "us-central1-c"]
    assert cluster["currentNodeCount"] == 3
    pool = cluster["nodePools"][0]
    assert pool["config"]["diskSizeGb"] == 100
    # Nothing is written that has the default of its type.
    assert pool["autoscaling"] == {"enabled": True, "maxNodeCount": 2, "locationPolicy": "BALANCED"}
    assert "taints" not in pool["config"]
    firewalls = project.call("compute", "GET", f"{project.path}/global/firewalls")["items"]
    assert all(each["name"].startswith("gke-fleet-") for each in firewalls)


def test_a_cluster_without_pools_gets_one(project: Project) -> None:
    project.make_network()
    body = project.cluster_body()
    body.pop("nodePools")
    with pytest.raises(Refused, match="initial_node_count must be greater than zero"):
        project.call("container", "POST", f"{project.location}/clusters", {"cluster": body})
    project.change("container", "POST", f"{project.location}/clusters", {"cluster": {**body, "initialNodeCount": 1}})
    assert [pool["name"] for pool in project.get_cluster()["nodePools"]] == ["default-pool"]


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"name": "F" * 41}, "up to 40"),
        ({"network": "none"}, "does not exist"),
        ({"subnetwork": "none"}, "is not in network"),
        ({"initialClusterVersion": "1.99"}, "is unsupported"),
        ({"initialNodeCount": 1}, "cannot both be set"),
        ({"workloadIdentityConfig": {"workloadPool": "other.svc.id.goog"}}, "is not that of the project"),
        ({"ipAllocationPolicy": {"useIpAliases": True, "clusterSecondaryRangeName": "x"}}, "Pod secondary range"),
        ({"ipAllocationPolicy": {"clusterSecondaryRangeName": "pods"}}, "use_ip_aliases"),
        ({"resourceLabels": {"a.b/c": "d"}}, "is not valid"),
    ],
)
def test_clusters_that_are_refused(project: Project, fields: Json, why: str) -> None:
    project.make_network()
    body = {"cluster": project.cluster_body(**fields)}
    with pytest.raises(Refused, match=why) as refused:
        project.call("container", "POST", f"{project.location}/clusters", body)
    assert (refused.value.status, refused.value.code) == (400, "INVALID_ARGUMENT")


def test_a_cluster_exists_already(project: Project) -> None:
    project.make_cluster()
    with pytest.raises(Refused) as refused:
        project.call("container", "POST", f"{project.location}/clusters", {"cluster": project.cluster_body()})
    assert (refused.value.status, refused.value.code) == (409, "ALREADY_EXISTS")


def test_a_cluster_fails(gcp: Double, project: Project) -> None:
    project.make_network()
    gcp.fail("cluster", code="INTERNAL", message="Something broke.")
    operation = project.change("container", "POST", f"{project.location}/clusters", {"cluster": project.cluster_body()})
    assert operation["error"] == {"code": 13, "message": "Something broke."}
    cluster = project.get_cluster()
    assert cluster["status"] == "ERROR"
    assert cluster["conditions"][0]["message"] == "Something broke."
    project.change("container", "DELETE", project.cluster)
    assert gcp.objects() == [project.network, project.subnetwork]


def test_a_cluster_does_one_thing_at_a_time(gcp: Double, project: Project) -> None:
    project.make_cluster()
    gcp.settings(polls=2)
    gcp.busy("fleet")
    assert project.gcp.object(project.cluster)["status"] == "RECONCILING"
    for _ in range(3):
        with pytest.raises(Refused, match="incompatible operation operation-") as refused:
            project.call("container", "POST", f"{project.cluster}/nodePools", {"nodePool": project.pool_body("more")})
        assert (refused.value.status, refused.value.code) == (400, "FAILED_PRECONDITION")
    project.make_pool(project.pool_body("more"))


def test_operations_are_listed(gcp: Double, project: Project) -> None:
    project.make_cluster()
    gcp.settings(polls=5)
    gcp.busy("fleet")
    found = project.call("container", "GET", f"{project.location}/operations")["operations"]
    assert [(each["operationType"], each["status"]) for each in found] == [
        ("CREATE_CLUSTER", "DONE"),
        ("UPGRADE_MASTER", "RUNNING"),
    ]
    assert len(project.call("container", "GET", f"{project.path}/locations/-/operations")["operations"]) == 2


def test_nodes_with_gpus_are_tainted(project: Project) -> None:
    project.make_cluster(nodePools=[project.gpu_pool_body()])
    assert "taints" not in project.get_pool("l4")["config"]
    project.make_pool(project.pool_body("system"))
    assert project.get_pool("l4")["config"]["taints"] == [GPU_TAINT]
    project.change("container", "PUT", f"{project.cluster}/nodePools/l4", {"taints": {"taints": []}})
    assert project.get_pool("l4")["config"]["taints"] == [GPU_TAINT]


@pytest.mark.parametrize(
    ("fields", "config", "why"),
    [
        ({"autoscaling": {"enabled": True, "minNodeCount": 3, "maxNodeCount": 2}}, {}, "must not be more than"),
        ({"autoscaling": {"enabled": True}}, {}, "max_node_count must be greater than zero"),
        ({"autoscaling": {"enabled": True, "minNodeCount": 2, "maxNodeCount": 3}}, {}, "must be from 2 to 3"),
        ({"locations": ["europe-west4-a"]}, {}, "is not in region"),
        ({"locations": ["us-central1-f"]}, {}, "does not exist in zone"),
        ({}, {"machineType": "e9-huge"}, "does not exist in zone"),
        ({}, {"accelerators": []}, "the node pool has to have the same"),
        ({}, {"diskSizeGb": 5}, "at least 10"),
        ({}, {"labels": {"kubernetes.io/os": "linux"}}, "is reserved"),
        ({}, {"taints": [{"key": "a", "value": "b"}]}, "needs an effect"),
        ({"name": "-"}, {}, "up to 40"),
        ({"version": "1.36"}, {}, "must not be newer"),
    ],
)
def test_pools_that_are_refused(project: Project, fields: Json, config: Json, why: str) -> None:
    project.make_cluster()
    body = {**project.gpu_pool_body(), **fields}
    body["config"] = {**body["config"], **config}
    with pytest.raises(Refused, match=why):
        project.make_pool(body)


def test_stock_out_in_all_zones(gcp: Double, project: Project) -> None:
    project.make_cluster()
    gcp.settings(stockouts=[{"zone": "us-central1-a", "type": "g2-standard-8"}])
    operation = project.make_pool(project.gpu_pool_body())
    assert "does not have enough resources" in operation["error"]["message"]
    pool = project.get_pool("l4")
    assert pool["status"] == "ERROR"
    assert pool["conditions"][0]["code"] == "GCE_STOCKOUT"
    gcp.settings(stockouts=[])
    assert project.get_pool("l4")["status"] == "ERROR"


def test_stock_out_in_one_zone_ends(gcp: Double, project: Project) -> None:
    project.make_cluster()
    gcp.settings(stockouts=[{"zone": "us-central1-a", "type": "nvidia-l4"}])
    project.make_pool({**project.gpu_pool_body(), "locations": ["us-central1-a", "us-central1-b"]})
    assert project.get_pool("l4")["status"] == "RUNNING_WITH_ERROR"
    gcp.settings(stockouts=[])
    pool = project.get_pool("l4")
    assert pool["status"] == "RUNNING"
    assert "conditions" not in pool


def test_a_pool_without_nodes_needs_no_machines(gcp: Double, project: Project) -> None:
    project.make_cluster()
    gcp.settings(stockouts=[{"zone": "us-central1-a", "type": "nvidia-l4"}])
    assert "error" not in project.make_pool({**project.gpu_pool_body(), "initialNodeCount": 0})


def test_quotas(gcp: Double, project: Project) -> None:
    project.make_cluster()
    gcp.settings(quotas={"us-central1": {"NVIDIA_L4_GPUS": 1}})
    project.make_pool(project.gpu_pool_body())
    with pytest.raises(Refused, match=r"request requires '1\.0' and is short '1\.0'") as refused:
        project.make_pool(project.gpu_pool_body("more"))
    assert (refused.value.status, refused.value.code) == (403, "PERMISSION_DENIED")
    assert 'resource "NVIDIA_L4_GPUS"' in refused.value.message
    gcp.fail(
        "node pool", "big", code="GCE_QUOTA_EXCEEDED", message="Instance failed.", pool_status="RUNNING_WITH_ERROR"
    )
    project.make_pool(project.pool_body("big"))
    pool = project.get_pool("big")
    assert (pool["status"], pool["conditions"][0]["code"]) == ("RUNNING_WITH_ERROR", "GCE_QUOTA_EXCEEDED")


def test_one_update_in_a_call(project: Project) -> None:
    project.make_cluster()
    for update in ({}, {"desiredReleaseChannel": {"channel": "RAPID"}, "desiredMasterVersion": "1.36"}):
        with pytest.raises(Refused, match="Exactly one update"):
            project.call("container", "PUT", project.cluster, {"update": update})
    project.change("container", "PUT", project.cluster, {"update": {"desiredReleaseChannel": {"channel": "RAPID"}}})
    addons = {"gcsFuseCsiDriverConfig": {"enabled": True}}
    project.change("container", "PUT", project.cluster, {"update": {"desiredAddonsConfig": addons}})
    cluster = project.get_cluster()
    assert cluster["releaseChannel"] == {"channel": "RAPID"}
    assert set(addons) | {"gcpFilestoreCsiDriverConfig"} <= set(cluster["addonsConfig"])


def test_a_control_plane_is_upgraded_by_one_minor_version(gcp: Double, project: Project) -> None:
    project.make_cluster(initialClusterVersion="1.34")
    for desired, why in (("1.36", "more than a minor at a time"), ("1.33", "cannot be downgraded")):
        with pytest.raises(Refused, match=why):
            project.call("container", "PUT", project.cluster, {"update": {"desiredMasterVersion": desired}})
    gcp.settings(polls=1)
    operation = project.call("container", "PUT", project.cluster, {"update": {"desiredMasterVersion": "1.35"}})
    assert operation["operationType"] == "UPGRADE_MASTER"
    assert gcp.object(project.cluster)["status"] == "RECONCILING"
    project.wait("container", operation)
    cluster = project.get_cluster()
    assert cluster["currentMasterVersion"].startswith("1.35.")
    assert cluster["nodePools"][0]["version"].startswith("1.34.")
    project.change("container", "PUT", f"{project.cluster}/nodePools/system", {"nodeVersion": "-"})
    assert project.get_pool("system")["version"] == cluster["currentMasterVersion"]


def test_an_update_fails_and_leaves_what_was(gcp: Double, project: Project) -> None:
    project.make_cluster()
    gcp.fail("upgrade master", message="It broke.")
    operation = project.change("container", "PUT", project.cluster, {"update": {"desiredMasterVersion": "1.36"}})
    assert operation["error"]["message"] == "It broke."
    cluster = project.get_cluster()
    assert (cluster["status"], cluster["currentMasterVersion"][:4]) == ("RUNNING", "1.35")


def test_labels_need_the_fingerprint(project: Project) -> None:
    cluster = project.make_cluster()
    body = {"resourceLabels": {"fleet": "other"}, "labelFingerprint": "x"}
    with pytest.raises(Refused, match="fingerprint mismatch") as refused:
        project.call("container", "POST", f"{project.cluster}:setResourceLabels", body)
    assert refused.value.status == 412
    body["labelFingerprint"] = cluster["labelFingerprint"]
    project.change("container", "POST", f"{project.cluster}:setResourceLabels", body)
    changed = project.get_cluster()
    assert changed["resourceLabels"] == {"fleet": "other"}
    assert changed["labelFingerprint"] != cluster["labelFingerprint"]


def test_pools_are_updated(project: Project) -> None:
    project.make_cluster()
    path = f"{project.cluster}/nodePools/system"
    for update in (
        {"labels": {"labels": {"a": "b"}}},
        {"taints": {"taints": [{"key": "a", "value": "b", "effect": "NO_EXECUTE"}]}},
        {"resourceLabels": {"labels": {"fleet": "test"}}},
        {"locations": ["us-central1-b"]},
        {"machineType": "e2-standard-8", "diskSizeGb": "200"},
    ):
        project.change("container", "PUT", path, update)
    bounds = {"enabled": True, "minNodeCount": 2, "maxNodeCount": 4}
    project.change("container", "POST", f"{path}:setAutoscaling", {"autoscaling": bounds})
    project.change("container", "POST", f"{path}:setSize", {"nodeCount": 2})
    pool = project.get_pool("system")
    assert pool["autoscaling"] == {**bounds, "locationPolicy": "BALANCED"}
    assert pool["locations"] == ["us-central1-b"]
    config = pool["config"]
    assert (config["labels"], config["machineType"], config["diskSizeGb"]) == ({"a": "b"}, "e2-standard-8", 200)
    assert config["taints"] == [{"key": "a", "value": "b", "effect": "NO_EXECUTE"}]
    assert config["resourceLabels"] == {"fleet": "test", "goog-gke-node-pool-provisioning-model": "on-demand"}
    assert project.get_cluster()["currentNodeCount"] == 2


def test_updates_of_pools_that_are_refused(project: Project) -> None:
    project.make_cluster()
    path = f"{project.cluster}/nodePools/system"
    both = {"locations": ["us-central1-b"], "labels": {"labels": {}}}
    for update, why in ((both, "in one call"), ({}, "At least one"), ({"nodeVersion": "1.36"}, "must not be newer")):
        with pytest.raises(Refused, match=why):
            project.call("container", "PUT", path, update)
    with pytest.raises(Refused) as refused:
        project.call("container", "DELETE", f"{project.cluster}/nodePools/none")
    assert refused.value.status == 404


def test_a_cluster_is_deleted_with_its_pools_and_firewalls(gcp: Double, project: Project) -> None:
    project.make_cluster()
    gcp.settings(polls=1)
    operation = project.call("container", "DELETE", project.cluster)
    assert gcp.object(project.cluster)["status"] == "STOPPING"
    with pytest.raises(Refused) as refused:
        project.call("container", "DELETE", project.cluster)
    assert refused.value.code == "FAILED_PRECONDITION"
    project.wait("container", operation)
    assert gcp.objects() == [project.network, project.subnetwork]


def test_gke_leaves_firewalls(gcp: Double, project: Project) -> None:
    project.make_cluster()
    gcp.settings(leaves_firewalls=True)
    project.change("container", "DELETE", project.cluster)
    assert sum("/firewalls/gke-fleet-" in path for path in gcp.objects()) == 4


def test_pools_are_listed_and_deleted(project: Project) -> None:
    project.make_cluster()
    project.make_pool(project.pool_body("more"))
    listed = project.call("container", "GET", f"{project.cluster}/nodePools")["nodePools"]
    assert [pool["name"] for pool in listed] == ["system", "more"]
    project.change("container", "DELETE", f"{project.cluster}/nodePools/more")
    with pytest.raises(Refused):
        project.get_pool("more")
    everywhere = project.call("container", "GET", f"{project.path}/locations/-/clusters")["clusters"]
    assert [cluster["name"] for cluster in everywhere] == ["fleet"]


def test_versions_of_channels(project: Project) -> None:
    config = project.call("container", "GET", f"{project.location}/serverConfig")
    regular = next(each for each in config["channels"] if each["channel"] == "REGULAR")
    assert regular["validVersions"][0] == "1.36.2-gke.1120000"
    assert regular["defaultVersion"] == "1.35.3-gke.1389000"


def test_the_server_of_a_cluster(gcp: Double, project: Project) -> None:
    gcp.cluster_server("https://127.0.0.1:6443", "PEM", "fleet")
    cluster = project.make_cluster()
    assert cluster["endpoint"] == "127.0.0.1:6443"
    assert cluster["masterAuth"] == {"clusterCaCertificate": "UEVN"}


def test_another_manager_changes_things(gcp: Double, project: Project) -> None:
    project.make_cluster()
    gcp.change(f"{project.cluster}/nodePools/system", autoscaling={"enabled": True, "maxNodeCount": 9})
    assert project.get_pool("system")["autoscaling"]["maxNodeCount"] == 9
    gcp.change(project.network, description="mine")
    assert project.call("compute", "GET", project.network)["description"] == "mine"
