# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Owners of what is found in a project, by names, networks and references."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.gke import orphans
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.gke.kinds import EVERY
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.gke.orphans import Found, Thing, Where

WHERE = Where(
    project="p",
    region="us-central1",
    cluster="fleet",
    network="projects/p/global/networks/fleet",
    subnetwork="projects/p/regions/us-central1/subnetworks/fleet",
    is_gone=True,
)
SERVICE = "a0123456789abcdef0123456789abcde"
LINK = "https://www.googleapis.com/compute/v1/"


def thing(kind: str, name: str, place: str = "global", **body: Any) -> Thing:
    """Something that is in the network when it says so (`inside`)."""
    if body.pop("inside", False):
        body["network"] = LINK + WHERE.network
    parent = place if place == "global" else f"{'zones' if place[-2] == '-' else 'regions'}/{place}"
    collection = EVERY[kind].collection
    return Thing(
        kind, f"projects/p/{parent}", name, {"selfLink": f"{LINK}projects/p/{parent}/{collection}/{name}", **body}
    )


def names(found: Found) -> set[str]:
    return {each.name for each in found.ours}


def sort(*things: Thing, where: Where = WHERE) -> Found:
    return orphans.sort(things, where, {})


@pytest.mark.parametrize(
    "name",
    [
        f"k8s-fw-{SERVICE}",
        f"{SERVICE}-hc",
        "k8s-0a1b2c3d4e5f6071-node-http-hc",
        "k8s2-0a1b2c3d-l4-shared-hc-fw",
        "k8s3-0a1b2c3d-a1b2c3d4-envoy-fleet-deny",
        "gkegw1-0a1b-l7-fleet-global",
        "gke-fleet-0a1b2c3d-all",
    ],
)
def test_firewall_rules_of_a_cluster(name: str) -> None:
    assert names(sort(thing("firewall", name, inside=True))) == {name}
    elsewhere = sort(thing("firewall", name, network=f"{LINK}projects/p/global/networks/other"))
    assert elsewhere == Found()


@pytest.mark.parametrize("name", ["allow-ssh", "k8s", "gke", "a0123", f"{SERVICE}-web", f"b{SERVICE[1:]}"])
def test_firewall_rules_of_people(name: str) -> None:
    found = sort(thing("firewall", name, inside=True))
    assert (found.ours, len(found.left_alone)) == ((), 1)
    assert f"firewall rule {name} is in the network fleet" in found.left_alone[0]


def test_a_network_of_that_name_in_another_project_is_another() -> None:
    there = f"{LINK}projects/other/global/networks/fleet"
    assert sort(thing("firewall", f"k8s-fw-{SERVICE}", network=there)) == Found()


@pytest.mark.parametrize(
    ("kind", "name", "place"),
    [
        ("forwarding-rule", SERVICE, "us-central1"),
        ("target-pool", SERVICE, "us-central1"),
        ("address", SERVICE, "us-central1"),
        ("http-health-check", SERVICE, "global"),
        ("http-health-check", "k8s-0a1b2c3d-node", "global"),
        ("backend-service", "k8s-0a1b2c3d-internal-tcp-nmv1-0123456789abcdef", "us-central1"),
        ("health-check", "k8s2-9z8y7x6w-envoy-gateway-syst-fleet-a1b2c3d4", "global"),
        ("forwarding-rule", "k8s2-tcp-9z8y7x6w-envoy-gateway-sy-fleet-a1b2c3d4", "us-central1"),
        ("forwarding-rule", "k8s2-udp-9z8y7x6w-envoy-gateway-sy-fleet-a1b2c3d4-1-ipv6", "us-central1"),
        ("url-map", "k8s2-um-9z8y7x6w-models-web-4d3c2b1a", "global"),
        ("health-check", "k8s1-9z8y7x6w-models-web-80-4d3c2b1a", "global"),
        ("target-http-proxy", "k8s-tp-models-web--0a1b2c3d", "global"),
    ],
)
def test_parts_of_load_balancers_are_known_by_the_firewall_rules(kind: str, name: str, place: str) -> None:
    rules = (
        thing("firewall", f"k8s-fw-{SERVICE}", inside=True),
        thing("firewall", "k8s-0a1b2c3d-node-hc", inside=True),
        thing("firewall", "k8s2-9z8y7x6w-l4-shared-hc-fw", inside=True),
    )
    part = thing(kind, name, place)
    assert name in names(sort(*rules, part))
    assert sort(part) == Found(), "nothing says whose it is"
    if place != "global":
        assert name not in names(sort(*rules, thing(kind, name, "europe-west4"))), "it is in another region"


def test_a_backend_service_is_the_clusters_when_all_of_it_is() -> None:
    group = thing("endpoint-group", "k8s1-0a1b2c3d-models-web-80-4d3c2b1a", "us-central1-a", inside=True)
    foreign = thing("endpoint-group", "web", "us-central1-a", network=f"{LINK}projects/p/global/networks/other")
    # Its name says nothing of a cluster.
    mine = thing("backend-service", "gkemcg1-web", backends=[{"group": LINK + group.path}])
    assert names(sort(group, mine)) == {group.name, mine.name}
    shared = thing(
        "backend-service", "gkemcg1-web", backends=[{"group": LINK + each.path} for each in (group, foreign)]
    )
    found = sort(group, foreign, shared)
    assert found.ours == ()
    (line,) = found.left_alone
    assert f"is used by {shared.path}" in line


def test_what_uses_others_stays_with_what_it_uses() -> None:
    """A chain that ends in a forwarding rule of a user."""
    group = thing("endpoint-group", "k8s1-0a1b2c3d-models-web-80-4d3c2b1a", "us-central1-a", inside=True)
    service = thing("backend-service", "k8s1-0a1b2c3d-models-web-80-4d3c2b1a", backends=[{"group": LINK + group.path}])
    rule = thing("forwarding-rule", "web", backendService=LINK + service.path)
    found = sort(group, service, rule)
    assert found.ours == ()
    assert [line.split()[:2] for line in found.left_alone] == [["network", "endpoint"]]
    assert [line.split()[:2] for line in found.kept] == [["backend", "service"]]


def test_while_the_cluster_is_there_what_is_gkes_goes_with_it() -> None:
    there = Where(**{**WHERE.__dict__, "is_gone": False})
    rules = [thing("firewall", name, inside=True) for name in ("gke-fleet-0a1b2c3d-all", f"k8s-fw-{SERVICE}")]
    found = sort(*rules, where=there)
    assert (names(found), found.left_alone) == ({f"k8s-fw-{SERVICE}"}, ())


def test_disks_are_known_by_their_labels() -> None:
    labels = {"goog-k8s-cluster-name": "fleet", "goog-k8s-cluster-location": "us-central1"}
    assert names(sort(thing("disk", "pvc-1", "us-central1-a", labels=labels))) == {"pvc-1"}
    assert names(sort(thing("disk", "pvc-1", "us-central1", labels=labels))) == {"pvc-1"}
    assert sort(thing("disk", "gke-fleet-boot", "us-central1-a", labels=labels)) == Found()
    for key, value in (("goog-k8s-cluster-name", "other"), ("goog-k8s-cluster-location", "us-central1-a")):
        assert sort(thing("disk", "pvc-1", "us-central1-a", labels={**labels, key: value})) == Found()
    assert sort(thing("disk", "pvc-1", "us-central1-a")) == Found()


def test_what_else_is_in_the_network() -> None:
    network = {
        "subnetworks": [LINK + WHERE.subnetwork, f"{LINK}projects/p/regions/europe-west4/subnetworks/theirs"],
        "peerings": [{"name": "filestore-peer-123"}, {"name": "servicenetworking-googleapis-com"}],
    }
    found = orphans.sort([], WHERE, network)
    assert [line.split(" is in ")[0] for line in found.left_alone] == [
        "subnetwork theirs in europe-west4",
        "the peering servicenetworking-googleapis-com",
    ]


def test_what_has_to_be_gone_first() -> None:
    pool = thing("target-pool", SERVICE, "us-central1")
    rule = thing("forwarding-rule", SERVICE, "us-central1", target=LINK + pool.path)
    address = thing("address", SERVICE, "us-central1", users=[LINK + rule.path])
    firewall = thing("firewall", f"k8s-fw-{SERVICE}", inside=True)
    disk = thing("disk", "pvc-1", "us-central1-a")
    found = orphans.needs([firewall, disk, address, pool, rule])
    assert found == {
        rule.path: [],
        pool.path: [rule.path],
        address.path: [rule.path],
        disk.path: [],
        firewall.path: [address.path, pool.path, rule.path],
    }


def test_lists_of_all_scopes_are_read() -> None:
    listings = {each.kind: each for each in orphans.listings(WHERE)}
    assert listings["firewall"].path == "compute/v1/projects/p/global/firewalls"
    assert listings["filestore"].path == "v1/projects/p/locations/-/instances"
    assert listings["disk"].path == (
        "compute/v1/projects/p/aggregated/disks?includeAllScopes=true&filter=labels.goog-k8s-cluster-name%3Dfleet"
    )
    disk = thing("disk", "pvc-1", "us-central1-a")
    answer = {"items": {"zones/us-central1-a": {"disks": [disk.body]}, "global": {"warning": {"code": "X"}}}}
    (read,) = listings["disk"].things(answer)
    assert (read.path, read.title) == (disk.path, "disk pvc-1 in us-central1-a")
    instance = {"name": "projects/p/locations/us-central1/instances/pvc-1"}
    (read,) = listings["filestore"].things({"instances": [instance]})
    assert (read.parent, read.name, read.place) == ("projects/p/locations/us-central1", "pvc-1", "us-central1")
    assert list(listings["firewall"].things({})) == []


def test_locations_that_cannot_be_asked() -> None:
    listings = {each.kind: each for each in orphans.listings(WHERE)}
    answer = {"unreachable": ["projects/p/locations/europe-west4-a", "projects/p/locations/us-central1-b"]}
    assert orphans.unreachable(listings["filestore"], answer, WHERE) == "us-central1-b"
    assert orphans.unreachable(listings["filestore"], {}, WHERE) == ""
