# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Orphans of a GKE cluster in the double of Google Cloud: what goes, what stays, in which order, and again."""

from __future__ import annotations

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.gke.plan import plan
from ansible_collections.modelplane.fleet.tests.gcp.double import Double
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.cloud.gke.clusters import gke, gpu
from ansible_collections.modelplane.fleet.tests.unit.plugins.modules.cloud_orphans.project import (
    REGION,
    UID,
    VOLUME,
    ZONE,
    Project,
    link,
)


@pytest.fixture
def lived(project: Project) -> list[str]:
    """All that controllers make, of a cluster that is gone."""
    gcp = project.gcp
    gcp.settings(leaves_firewalls=True)
    before = project.objects()
    project.create("network", "subnetwork", "cluster")
    gcp.load_balancer(project.name)
    gcp.load_balancer(project.name, service="models/other")
    gcp.load_balancer(project.name, service="models/inside", internal=True)
    gcp.volume(project.name)
    gcp.volume(project.name, claim="zonal", tier="ZONAL")
    project.disk()
    project.put(f"regions/{REGION}/disks", "pvc-2", labels=gcp.object(project.disk("pvc-1"))["labels"], status="READY")
    with_endpoints(project)
    with_ingress(project)
    project.create("cluster", state="absent")
    assert before < project.objects()
    gcp.forget_calls()
    return sorted(project.objects() - before)


def with_endpoints(project: Project, name: str = f"k8s2-{UID}-envoy-gateway-syst-fleet-a1b2c3d4") -> str:
    """A load balancer from outside, as GKE makes it for endpoints. The path of its forwarding rule."""
    regional = f"regions/{REGION}"
    check = project.put("global/healthChecks", f"k8s2-{UID}-l4-shared-hc", type="HTTP")
    project.firewall(f"k8s2-{UID}-l4-shared-hc-fw")
    project.firewall(name)
    service = project.put(
        f"{regional}/backendServices",
        name,
        loadBalancingScheme="EXTERNAL",
        healthChecks=[link(check)],
        backends=[{"group": link(project.endpoints(name)), "balancingMode": "CONNECTION"}],
    )
    rule = project.put(
        f"{regional}/forwardingRules",
        name.replace("k8s2-", "k8s2-tcp-", 1),
        loadBalancingScheme="EXTERNAL",
        backendService=link(service),
    )
    address = project.put(f"{regional}/addresses", name, status="IN_USE", users=[link(rule)])
    assert address
    return rule


def with_ingress(project: Project) -> str:
    """A load balancer of an Ingress. The path of its forwarding rule."""
    group = project.endpoints(f"k8s1-{UID}-models-web-80-4d3c2b1a")
    check = project.put("global/healthChecks", f"k8s1-{UID}-models-web-80-4d3c2b1a", type="HTTP")
    service = project.put(
        "global/backendServices",
        f"k8s1-{UID}-models-web-80-4d3c2b1a",
        healthChecks=[link(check)],
        backends=[{"group": link(group), "balancingMode": "RATE"}],
    )
    mapping = project.put("global/urlMaps", f"k8s2-um-{UID}-models-web-4d3c2b1a", defaultService=link(service))
    proxies = [
        project.put(f"global/target{kind}Proxies", f"k8s2-t{kind[4:] or 'p'}-{UID}-models-web", urlMap=link(mapping))
        for kind in ("Http", "Https")
    ]
    rules = [
        project.put("global/forwardingRules", f"k8s2-fr-{UID}-models-web-{index}", target=link(proxy))
        for index, proxy in enumerate(proxies)
    ]
    project.firewall(f"k8s-fw-l7--{UID}")
    return rules[0]


def test_an_empty_project(gcp: Double) -> None:
    """No network, and an API that is not enabled."""
    gcp.disable_service("file.googleapis.com")
    result = Project(gcp).sweep()
    assert (result["failed"], result["changed"]) == (False, False), result
    gcp.disable_service("container.googleapis.com")
    gcp.disable_service("compute.googleapis.com")
    assert Project(gcp).sweep()["failed"] is False


def test_all_that_a_cluster_left_is_removed(project: Project, lived: list[str]) -> None:
    kinds = {path.split("/")[-2] for path in lived}
    assert kinds == {
        *("addresses", "backendServices", "disks", "firewalls", "forwardingRules", "healthChecks", "httpHealthChecks"),
        *("instanceGroups", "instances", "networkEndpointGroups", "targetHttpProxies", "targetHttpsProxies"),
        *("targetPools", "urlMaps"),
    }
    checked = project.sweep(check=True)
    assert (checked["failed"], checked["changed"], project.did()) == (False, True, [])

    result = project.sweep()
    assert result["failed"] is False, result.get("msg")
    assert project.objects() & set(lived) == set()
    assert {key: result[key] for key in ("changed", "diff", "left_alone")} == {
        key: checked[key] for key in ("changed", "diff", "left_alone")
    }
    assert sorted(map(str, result["removed"])) == sorted(map(str, checked["removed"]))
    assert (len(result["removed"]), result["left_alone"], result["pending"]) == (len(lived), [], [])
    assert sorted(each["path"] for each in result["diff"]["before"].values()) == lived
    assert {"kind": "disk", "name": VOLUME, "place": ZONE} in result["removed"]
    project.did()

    again = project.sweep()
    assert (again["failed"], again["changed"], project.did()) == (False, False, [])
    # Which is what it is good for.
    project.create("network", "subnetwork", state="absent")
    assert not {project.network, project.subnetwork} & project.objects()


@pytest.mark.usefixtures("lived")
def test_the_order_is_that_in_which_google_allows_it(project: Project) -> None:
    """Nothing is refused as it is in use, and what shows whose all is goes last."""
    project.gcp.settings(polls=1)
    result = project.sweep()
    assert result["failed"] is False, result.get("msg")
    assert [call for call in project.gcp.calls(mutating=True) if call["error"]] == []
    done = [each for each in project.did() if each not in ("disks.delete", "regionDisks.delete")]
    done = [each for each in done if not each.startswith("projects.locations.instances")]
    firewalls = done.count("firewalls.delete")
    assert firewalls > 8
    assert set(done[-firewalls:]) == {"firewalls.delete"}
    assert any(": RUNNING (after" in line for line in result["waited"])


@pytest.mark.usefixtures("lived")
def test_an_interrupted_run_is_gone_on_with(project: Project, lived: list[str]) -> None:
    """Every call that changes something is refused once."""
    project.gcp.refuse_each_once()
    for _turn in range(12):
        result = project.sweep()
        if not result["failed"]:
            break
        assert "does not have permission" in result["msg"]
        assert "not begun" not in result["msg"], "what comes later is not listed one by one"
    assert result["failed"] is False, result["msg"]
    assert project.objects() & set(lived) == set()


@pytest.mark.usefixtures("lived")
@pytest.mark.parametrize("kind", ["delete firewall", "delete forwardingRule", "delete instance", "delete disk"])
def test_an_operation_that_fails_is_reported_and_the_next_run_goes_on(
    project: Project, kind: str, lived: list[str]
) -> None:
    project.gcp.fail(kind, code="INTERNAL", message="It broke.")
    result = project.sweep()
    assert result["failed"] is True
    assert "It broke" in result["msg"]
    assert result["msg"].startswith("delete ")
    assert project.sweep()["failed"] is False
    assert project.objects() & set(lived) == set()


def test_what_is_of_others_in_the_network_stays_and_is_reported(project: Project, lived: list[str]) -> None:
    kept = [
        project.firewall("allow-ssh"),
        project.endpoints("web"),
        project.put(f"zones/{ZONE}/instanceGroups", "bastions", network=link(project.network)),
        project.put(f"regions/{REGION}/forwardingRules", "database", network=link(project.network)),
        project.put(f"regions/{REGION}/addresses", "reserved", subnetwork=link(project.subnetwork)),
    ]
    body = {"name": "theirs", "network": project.network, "ipCidrRange": "10.9.0.0/24"}
    status, _ = project.gcp.request("compute", "POST", f"compute/v1/{project.base}/regions/{REGION}/subnetworks", body)
    assert status == 200
    project.gcp.forget_calls()
    result = project.sweep()
    assert result["failed"] is False, result.get("msg")
    assert project.objects() & set(lived) == set()
    assert set(kept) < project.objects()
    lines = "\n".join(result["left_alone"])
    for path in kept:
        assert path.rpartition("/")[2] in lines
    assert "subnetwork theirs in us-central1" in lines
    assert len(result["left_alone"]) == len(kept) + 1
    assert all("Delete it" in line for line in result["left_alone"])
    again = project.sweep()
    assert (again["changed"], again["left_alone"]) == (False, result["left_alone"])


def test_what_others_have_elsewhere_is_not_touched(project: Project) -> None:
    """Names that controllers give, of another cluster in the project, and of people."""
    other = f"{project.base}/global/networks/other"
    project.put("global/networks", "other", autoCreateSubnetworks=False)
    service = "a" + "1" * 31
    project.firewall(f"k8s-fw-{service}", network=link(other))
    pool = project.put(f"regions/{REGION}/targetPools", service)
    project.put(f"regions/{REGION}/forwardingRules", service, target=link(pool))
    project.put("regions/europe-west4/forwardingRules", "a" + "2" * 31)
    group = project.endpoints(f"k8s1-{UID}-models-web-80-4d3c2b1a", network=link(other))
    project.put("global/backendServices", f"k8s1-{UID}-models-web", backends=[{"group": link(group)}])
    project.put("global/healthChecks", f"k8s1-{UID}-models-web", type="HTTP")
    project.put("global/addresses", "web")
    project.disk(location="europe-west4")
    project.put(f"zones/{ZONE}/disks", "pvc-of-another", labels={"goog-k8s-cluster-name": "another"})
    project.disk("boot-disk")
    before = project.objects()
    result = project.sweep()
    assert (result["failed"], result["changed"], result["left_alone"]) == (False, False, [])
    assert project.objects() == before


def test_what_others_use_stays(project: Project) -> None:
    """A group of endpoints that others' load balancer uses; a disk that is in another machine."""
    group = project.endpoints(f"k8s1-{UID}-models-web-80-4d3c2b1a")
    project.put("global/backendServices", "web", backends=[{"group": link(group)}])
    disk = project.disk(users=[link(f"{project.base}/zones/{ZONE}/instances/bastion")])
    result = project.sweep()
    assert (result["failed"], result["changed"]) == (False, False)
    assert {group, disk} < project.objects()
    (line,) = result["left_alone"]
    assert "is used by" in line
    assert line.startswith("network endpoint group k8s1-")
    assert any(VOLUME in each and "bastion" in each for each in result["warnings"]), "it keeps nothing"


def test_a_filestore_instance_of_others_stays(project: Project) -> None:
    project.create("network", "subnetwork", "cluster")
    gcp = project.gcp
    mine = gcp.volume(project.name)
    elsewhere = gcp.volume(project.name, claim="elsewhere", network="default")
    theirs = gcp.volume(project.name, claim="theirs")
    gcp.change(theirs, labels={"team": "data"})
    project.create("cluster", state="absent")
    result = project.sweep()
    assert [each["kind"] for each in result["removed"]] == ["Filestore instance"]
    assert mine not in project.objects()
    assert {elsewhere, theirs} <= project.objects()
    (line,) = result["left_alone"]
    assert theirs.rpartition("/")[2] in line


def test_volumes_can_be_kept(project: Project) -> None:
    project.create("network", "subnetwork", "cluster")
    volume = project.gcp.volume(project.name)
    project.create("cluster", state="absent")
    disk, firewall = project.disk(), project.firewall("gke-left")
    result = project.sweep(volumes=False)
    assert [each["name"] for each in result["removed"]] == ["gke-left"]
    assert {volume, disk} < project.objects()
    assert firewall not in project.objects()
    assert "as volumes is false" in result["left_alone"][0]
    assert any(VOLUME in each for each in result["warnings"])


def test_while_the_cluster_is_there_nothing_is_done(project: Project) -> None:
    project.create("network", "subnetwork", "cluster")
    project.gcp.load_balancer(project.name)
    project.gcp.forget_calls()
    result = project.sweep()
    assert (result["failed"], result["changed"], project.did()) == (True, False, [])
    assert "the cluster still exists" in result["msg"]
    checked = project.sweep(check=True)
    assert (checked["failed"], checked["changed"], checked["left_alone"]) == (False, True, [])
    names = {each["name"] for each in checked["removed"]}
    assert any(name.startswith("k8s-fw-") for name in names)
    assert not any(name.startswith("gke-") for name in names), "these go with the cluster"


def test_a_network_of_others_is_refused(gcp: Double) -> None:
    gcp.settings(polls=0)
    project = Project(gcp)
    project.put("global/networks", project.name, autoCreateSubnetworks=False)
    project.firewall("k8s-fw-a" + "1" * 31)
    result = project.sweep()
    assert (result["failed"], project.did()) == (True, [])
    assert "was not created by this collection" in result["msg"]


def test_a_cluster_in_another_region_is_left_alone(project: Project) -> None:
    """It is not gone, though there is none where the plan says."""
    project.create("network", "subnetwork", "cluster")
    volume = project.gcp.volume(project.name)
    project.plan = plan(gke(region="us-east4", nodePools=[gpu(zones=["us-east4-a"])]), project.gcp.project)
    for check in (True, False):
        result = project.sweep(check=check)
        assert (result["failed"], project.did()) == (True, [])
        assert "set spec.region back to us-central1" in result["msg"]
    assert volume in project.objects()


def test_what_is_still_in_use_is_tried_again(project: Project) -> None:
    firewall = project.firewall("gke-left")
    project.gcp.refuse(
        operation="firewalls.delete", code="resourceInUseByAnotherResource", message="in use", status=400, times=3
    )
    result = project.sweep()
    assert result["failed"] is False, result.get("msg")
    assert firewall not in project.objects()
    assert any("is still used: in use" in line for line in result["waited"])


def test_what_stays_in_use_ends_in_an_error(project: Project) -> None:
    project.firewall("gke-left")
    project.gcp.refuse(
        operation="firewalls.delete", code="resourceInUseByAnotherResource", message="in use", status=400, times=1000
    )
    result = project.sweep(wait_timeout=0)
    assert result["failed"] is True
    assert "firewall rule gke-left is still used: in use" in result["msg"]


@pytest.mark.usefixtures("lived")
def test_without_waiting_the_next_runs_go_on(project: Project, lived: list[str]) -> None:
    project.gcp.settings(polls=1)
    first = project.sweep(wait=False)
    assert (first["failed"], first["changed"], first["waited"]) == (False, True, [])
    assert any("run again" in line for line in first["pending"])
    for _turn in range(20):
        result = project.sweep(wait=False)
        assert result["failed"] is False, result["msg"]
        if not result["removed"]:
            break
    assert result["pending"] == []
    assert project.objects() & set(lived) == set()


def test_an_instance_that_goes_already_is_waited_for(project: Project) -> None:
    project.create("network", "subnetwork", "cluster")
    volume = project.gcp.volume(project.name)
    project.create("cluster", state="absent")
    project.gcp.settings(polls=3)
    assert project.gcp.request("file", "DELETE", f"v1/{volume}")[0] == 200
    project.gcp.forget_calls()
    result = project.sweep()
    assert (result["failed"], result["changed"], project.did()) == (False, False, [])
    assert volume not in project.objects()


def test_a_right_that_is_missing_is_reported(project: Project) -> None:
    project.firewall("gke-left")
    project.gcp.refuse(
        operation="firewalls.delete",
        code="PERMISSION_DENIED",
        message="Required 'compute.firewalls.delete' permission for 'gke-left'",
        status=403,
    )
    result = project.sweep()
    assert result["failed"] is True
    assert "compute.firewalls.delete" in result["msg"]
    assert "roles" in result["msg"]


@pytest.mark.parametrize("operation", ["disks.aggregatedList", "instances.list"])
def test_volumes_that_may_not_be_listed_are_a_warning(project: Project, operation: str) -> None:
    firewall = project.firewall("gke-left")
    project.gcp.refuse(operation=operation, code="PERMISSION_DENIED", message="Denied.", status=403)
    result = project.sweep()
    assert (result["failed"], firewall in project.objects()) == (False, False)
    (warning,) = result["warnings"]
    assert warning.startswith(f"not checked: list {operation.partition('.')[0]} of project")
    assert warning.endswith("they stay")


def test_what_keeps_the_network_has_to_be_listed(project: Project) -> None:
    project.firewall("gke-left")
    project.gcp.refuse(operation="firewalls.list", code="PERMISSION_DENIED", message="Denied.", status=403)
    result = project.sweep()
    assert (result["failed"], project.did()) == (True, [])
    assert result["msg"].startswith("list firewalls of project")


def test_wrong_arguments(project: Project) -> None:
    assert project.sweep(project="another")["msg"].endswith("Give the project of the plan")
    assert "plan.resources: has no GKE cluster" in project.sweep(plan={**project.plan, "resources": []})["msg"]
