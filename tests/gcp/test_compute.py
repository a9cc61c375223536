# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Compute Engine in the double."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.tests.gcp.double import Double
from ansible_collections.modelplane.fleet.tests.gcp.made import Project, Refused

Json = dict[str, Any]


def test_a_network_is_made_and_deleted(gcp: Double, project: Project) -> None:
    gcp.settings(polls=2)
    body = {"name": "fleet", "autoCreateSubnetworks": False}
    operation = project.call("compute", "POST", f"{project.path}/global/networks", body)
    assert (operation["kind"], operation["status"], operation["operationType"]) == (
        "compute#operation",
        "RUNNING",
        "insert",
    )
    place = project.place("compute", operation)
    assert place == f"{project.path}/global/operations/{operation['name']}"
    states = [project.call("compute", "GET", place)["status"] for _ in range(3)]
    assert states == ["RUNNING", "RUNNING", "DONE"]
    network = project.call("compute", "GET", project.network)
    assert network["selfLink"].endswith(project.network)
    assert network["autoCreateSubnetworks"] is False
    assert project.change("compute", "DELETE", project.network)["status"] == "DONE"
    with pytest.raises(Refused) as refused:
        project.call("compute", "GET", project.network)
    assert (refused.value.status, refused.value.code) == (404, "notFound")


def test_what_is_being_made_is_neither_there_nor_to_be_made(gcp: Double, project: Project) -> None:
    gcp.settings(polls=5)
    body = {"name": "fleet", "autoCreateSubnetworks": False}
    project.call("compute", "POST", f"{project.path}/global/networks", body)
    with pytest.raises(Refused) as refused:
        project.call("compute", "GET", project.network)
    assert refused.value.status == 404
    with pytest.raises(Refused) as refused:
        project.call("compute", "POST", f"{project.path}/global/networks", body)
    assert (refused.value.status, refused.value.code) == (409, "alreadyExists")
    subnetwork = project.subnetwork_body()
    with pytest.raises(Refused) as refused:
        project.call("compute", "POST", f"{project.path}/regions/us-central1/subnetworks", subnetwork)
    assert refused.value.code == "resourceNotReady"


def test_reading_what_is_made_lets_time_pass(gcp: Double, project: Project) -> None:
    gcp.settings(polls=2)
    body = {"name": "fleet", "autoCreateSubnetworks": False}
    project.call("compute", "POST", f"{project.path}/global/networks", body)
    for _ in range(2):
        with pytest.raises(Refused):
            project.call("compute", "GET", project.network)
    assert project.call("compute", "GET", project.network)["name"] == "fleet"


def test_a_request_that_comes_twice_is_done_once(project: Project) -> None:
    body = {"name": "fleet", "autoCreateSubnetworks": False}
    path = f"{project.path}/global/networks?requestId={uuid.uuid4()}"
    first, second = (project.call("compute", "POST", path, body) for _ in range(2))
    assert first["name"] == second["name"]
    with pytest.raises(Refused):
        project.call("compute", "POST", f"{project.path}/global/networks?requestId=x", {**body, "name": "b"})


def test_a_legacy_network_is_refused(project: Project) -> None:
    with pytest.raises(Refused, match="Legacy networks"):
        project.call("compute", "POST", f"{project.path}/global/networks", {"name": "fleet"})


def test_an_operation_fails(gcp: Double, project: Project) -> None:
    gcp.settings(polls=1)
    gcp.fail("network", code="QUOTA_EXCEEDED", message="Quota 'NETWORKS' exceeded.  Limit: 5.0 globally.")
    body = {"name": "fleet", "autoCreateSubnetworks": False}
    operation = project.change("compute", "POST", f"{project.path}/global/networks", body)
    assert operation["error"]["errors"][0]["code"] == "QUOTA_EXCEEDED"
    assert gcp.objects() == []
    assert "error" not in project.change("compute", "POST", f"{project.path}/global/networks", body)


def test_a_subnetwork_gets_what_google_adds(project: Project) -> None:
    project.make_network()
    subnetwork = project.call("compute", "GET", project.subnetwork)
    assert subnetwork["gatewayAddress"] == "10.0.0.1"
    assert subnetwork["state"] == "READY"
    assert subnetwork["fingerprint"]
    assert subnetwork["network"].startswith("https://www.googleapis.com/compute/v1/projects/")
    assert project.call("compute", "GET", project.network)["subnetworks"] == [subnetwork["selfLink"]]


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"name": "b", "network": "projects/modelplane-test/global/networks/none"}, "was not found"),
        ({"name": "b", "ipCidrRange": "10.0.0.1/24"}, "Must be a CIDR address range"),
        ({"name": "b", "ipCidrRange": "10.1.3.0/24"}, "overlaps"),
        ({"name": "b", "ipCidrRange": "10.9.0.0/24"}, "conflicts with existing subnetwork 'fleet'"),
        ({}, "already exists"),
    ],
)
def test_subnetworks_that_are_refused(project: Project, fields: Json, why: str) -> None:
    project.make_network()
    body = project.subnetwork_body(**fields)
    with pytest.raises(Refused, match=why):
        project.call("compute", "POST", f"{project.path}/regions/us-central1/subnetworks", body)


def test_a_subnetwork_is_patched_with_its_fingerprint(project: Project) -> None:
    project.make_network()
    have = project.call("compute", "GET", project.subnetwork)
    ranges = [*have["secondaryIpRanges"], {"rangeName": "more", "ipCidrRange": "10.3.0.0/16"}]
    for fingerprint, status in (("", 400), ("c3RhbGU=", 412)):
        body = {"secondaryIpRanges": ranges, **({"fingerprint": fingerprint} if fingerprint else {})}
        with pytest.raises(Refused) as refused:
            project.call("compute", "PATCH", project.subnetwork, body)
        assert refused.value.status == status
    body = {"secondaryIpRanges": ranges, "fingerprint": have["fingerprint"]}
    project.change("compute", "PATCH", project.subnetwork, body)
    patched = project.call("compute", "GET", project.subnetwork)
    assert len(patched["secondaryIpRanges"]) == 3
    assert patched["fingerprint"] != have["fingerprint"]


def test_a_subnetwork_only_grows(project: Project) -> None:
    project.make_network()
    for desired, why in (("10.0.0.0/25", "must be a superset"), ("10.0.0.0/15", "overlaps")):
        with pytest.raises(Refused, match=why):
            project.call("compute", "POST", f"{project.subnetwork}/expandIpCidrRange", {"ipCidrRange": desired})
    project.change("compute", "POST", f"{project.subnetwork}/expandIpCidrRange", {"ipCidrRange": "10.0.0.0/20"})
    assert project.call("compute", "GET", project.subnetwork)["ipCidrRange"] == "10.0.0.0/20"


def test_ranges_of_a_cluster_stay(project: Project) -> None:
    project.make_cluster()
    have = project.call("compute", "GET", project.subnetwork)
    body = {"secondaryIpRanges": [have["secondaryIpRanges"][0]], "fingerprint": have["fingerprint"]}
    with pytest.raises(Refused, match="The secondary range is in use"):
        project.call("compute", "PATCH", project.subnetwork, body)


def test_what_is_in_use_is_not_deleted(gcp: Double, project: Project) -> None:
    project.make_cluster()
    for path, user in ((project.network, "/subnetworks/fleet"), (project.subnetwork, "/instances/gke-")):
        with pytest.raises(Refused) as refused:
            project.call("compute", "DELETE", path)
        assert (refused.value.status, refused.value.code) == (400, "resourceInUseByAnotherResource")
        if path == project.subnetwork:
            assert user in refused.value.message
    assert project.subnetwork in gcp.objects()


def test_what_kubernetes_leaves_holds_the_network(gcp: Double, project: Project) -> None:
    """The cluster goes, and its services and volumes stay: each goes before what it uses, and the network last."""
    project.make_cluster()
    balancers = [*gcp.load_balancer("fleet"), *gcp.load_balancer("fleet", "a/b", internal=True)]
    instance = gcp.volume("fleet")
    project.change("container", "DELETE", project.cluster)
    for path in (project.subnetwork, project.network):
        with pytest.raises(Refused) as refused:
            project.call("compute", "DELETE", path)
        assert refused.value.code == "resourceInUseByAnotherResource"
    pool = next(path for path in balancers if "/targetPools/" in path)
    with pytest.raises(Refused, match="/forwardingRules/"):
        project.call("compute", "DELETE", pool)
    order = ("/forwardingRules/", "/targetPools/", "/backendServices/", "Checks/", "/instanceGroups/", "/firewalls/")
    for kind in order:
        for path in dict.fromkeys(balancers):
            if kind in path:
                project.change("compute", "DELETE", path)
    project.change("compute", "DELETE", project.subnetwork)
    with pytest.raises(Refused, match="networkPeerings/filestore-peer-"):
        project.call("compute", "DELETE", project.network)
    assert project.call("compute", "GET", project.network)["peerings"][0]["state"] == "ACTIVE"
    project.change("serviceusage", "POST", f"{project.path}/services/file.googleapis.com:enable", {})
    project.change("file", "DELETE", instance)
    project.change("compute", "DELETE", project.network)
    assert gcp.objects() == []


def test_forwarding_rules_of_all_regions(gcp: Double, project: Project) -> None:
    project.make_cluster()
    gcp.load_balancer("fleet")
    items = project.call("compute", "GET", f"{project.path}/aggregated/forwardingRules")["items"]
    assert len(items["regions/us-central1"]["forwardingRules"]) == 1
    assert items["global"]["warning"]["code"] == "NO_RESULTS_ON_PAGE"


def test_lists_are_filtered_and_come_in_pages(gcp: Double, project: Project) -> None:
    project.make_cluster()
    gcp.load_balancer("fleet")
    firewalls = f"{project.path}/global/firewalls"
    everything = project.call("compute", "GET", firewalls)["items"]
    assert len(everything) == 6
    mine = project.call("compute", "GET", f"{firewalls}?filter=name%20eq%20k8s-.*")["items"]
    assert [each["name"][:4] for each in mine] == ["k8s-", "k8s-"]
    page = project.call("compute", "GET", f"{firewalls}?maxResults=4")
    rest = project.call("compute", "GET", f"{firewalls}?maxResults=4&pageToken={page['nextPageToken']}")
    assert [*page["items"], *rest["items"]] == everything
    assert "nextPageToken" not in rest
    assert "items" not in project.call("compute", "GET", f"{firewalls}?filter=name=none")


def test_zones_machine_types_and_quotas(gcp: Double, project: Project) -> None:
    gcp.settings(not_offered={"us-central1-a": ["g2-standard-8"]}, quotas={"us-central1": {"NVIDIA_L4_GPUS": 1}})
    zones = [zone["name"] for zone in project.call("compute", "GET", f"{project.path}/zones")["items"]]
    assert "us-central1-f" in zones
    with pytest.raises(Refused):
        project.call("compute", "GET", f"{project.path}/zones/us-central1-a/machineTypes/g2-standard-8")
    machine = project.call("compute", "GET", f"{project.path}/zones/us-central1-b/machineTypes/g2-standard-8")
    assert machine["accelerators"] == [{"guestAcceleratorType": "nvidia-l4", "guestAcceleratorCount": 1}]
    types = project.call("compute", "GET", f"{project.path}/zones/us-central1-a/acceleratorTypes")["items"]
    assert "nvidia-tesla-t4" in [each["name"] for each in types]
    by_zone = project.call("compute", "GET", f"{project.path}/aggregated/acceleratorTypes")["items"]
    assert [each["name"] for each in by_zone["zones/us-west1-a"]["acceleratorTypes"]] == ["nvidia-tesla-t4"]
    project.make_cluster()
    quotas = project.call("compute", "GET", f"{project.path}/regions/us-central1")["quotas"]
    assert {"metric": "NVIDIA_L4_GPUS", "limit": 1.0, "usage": 0.0} in quotas
    assert {"metric": "CPUS", "limit": 2400.0, "usage": 12.0} in quotas
    with pytest.raises(Refused):
        project.call("compute", "GET", f"{project.path}/regions/mars-north1")
