# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Each way in which an object in Google Cloud can be other than planned, and the calls that set it right."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.engine.diff import diff
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.gke.kinds import KINDS
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.gke.plan import plan
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.gke.requests import create, updates
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.cloud.gke.clusters import (
    PROJECT,
    Object,
    gke,
    gpu,
    resource,
    returned,
)
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.cloud.gke.test_plan import (
    KEY,
    OF_CLUSTER,
    OFFICE,
)

ALL = [entry for entry in plan(gke(), PROJECT)["resources"] if entry["kind"] != "iam-member"]
# What is done to what the API returns; the field that differs, with both values; the calls: method, end of path, body.
Drift = tuple[str, Callable[[Object], Any], tuple[str, Any, Any], list[tuple[str, str, Object]]]
PODS = {"rangeName": "pods", "ipCidrRange": "10.1.0.0/16"}
SERVICES = {"rangeName": "services", "ipCidrRange": "10.2.0.0/16"}
OTHERS = {"rangeName": "others", "ipCidrRange": "10.9.0.0/24"}
NAME = plan(gke(), PROJECT)["name"]
LABELS = plan(gke(), PROJECT)["labels"]
DRA = "cloud.google.com/gke-nvidia-gpu-dra-driver"
NODE_LABELS = {"modelplane.ai/gpu": "nvidia-l4", "modelplane.ai/pool": "gpu-l4", DRA: "true"}
PRESENT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NO_SCHEDULE"}
DEDICATED = {"key": "dedicated", "value": "ml", "effect": "NO_EXECUTE"}
L4 = {
    "acceleratorType": "nvidia-l4",
    "acceleratorCount": "1",
    "gpuDriverInstallationConfig": {"gpuDriverVersion": "DEFAULT"},
}


def put(place: str, value: Any) -> Callable[[Object], None]:
    """Sets a field; takes it away when the value is None."""

    def change(have: Object) -> None:
        *parents, last = place.split(".")
        for part in parents:
            have = have.setdefault(part, {})
        if value is None:
            have.pop(last, None)
        else:
            have[last] = value

    return change


UPGRADES = {"strategy": "SURGE", "maxSurge": 0, "maxUnavailable": 1}
EVERYTHING = gke(
    gpu(gvnic=True, acceleratorNetworkProfile="auto"),
    privateNodes=True,
    **OF_CLUSTER["networks that reach it"][0],
    **OF_CLUSTER["a key for Secrets"][0],
)
ENCRYPTED = {"state": "ENCRYPTED", "keyName": KEY}
NAT = resource("router", EVERYTHING)["body"]["nats"][0]
UPDATED: dict[str, Drift] = {
    "a missing secondary range": (
        "subnetwork",
        put("secondaryIpRanges", [OTHERS, PODS]),
        ("secondaryIpRanges", [PODS], [PODS, SERVICES]),
        [("PATCH", "", {"secondaryIpRanges": [OTHERS, PODS, SERVICES], "fingerprint": "Zk0="})],
    ),
    "no secondary range": (
        "subnetwork",
        put("secondaryIpRanges", None),
        ("secondaryIpRanges", None, [PODS, SERVICES]),
        [("PATCH", "", {"secondaryIpRanges": [PODS, SERVICES], "fingerprint": "Zk0="})],
    ),
    "a small range of nodes": (
        "subnetwork",
        put("ipCidrRange", "10.0.0.0/26"),
        ("ipCidrRange", "10.0.0.0/26", "10.0.0.0/24"),
        [("POST", "/expandIpCidrRange", {"ipCidrRange": "10.0.0.0/24"})],
    ),
    "an old version": (
        "cluster",
        put("currentMasterVersion", "1.34.9-gke.1500000"),
        ("initialClusterVersion", "1.34.9-gke.1500000", "1.35"),
        [("PUT", "", {"update": {"desiredMasterVersion": "1.35"}})],
    ),
    "a much older version": (
        "cluster",
        put("currentMasterVersion", "1.32.1-gke.1"),
        ("initialClusterVersion", "1.32.1-gke.1", "1.35"),
        [("PUT", "", {"update": {"desiredMasterVersion": version}}) for version in ("1.33", "1.34", "1.35")],
    ),
    "another channel": (
        "cluster",
        put("releaseChannel", {"channel": "STABLE"}),
        ("releaseChannel", {"channel": "STABLE"}, {"channel": "REGULAR"}),
        [("PUT", "", {"update": {"desiredReleaseChannel": {"channel": "REGULAR"}}})],
    ),
    "no channel": (
        "cluster",
        put("releaseChannel", {}),
        ("releaseChannel", {}, {"channel": "REGULAR"}),
        [("PUT", "", {"update": {"desiredReleaseChannel": {"channel": "REGULAR"}}})],
    ),
    "no workload identity": (
        "cluster",
        put("workloadIdentityConfig", None),
        ("workloadIdentityConfig", None, {"workloadPool": "my-project.svc.id.goog"}),
        [("PUT", "", {"update": {"desiredWorkloadIdentityConfig": {"workloadPool": "my-project.svc.id.goog"}}})],
    ),
    "no driver of Filestore": (
        "cluster",
        put("addonsConfig.gcpFilestoreCsiDriverConfig", {}),
        (
            "addonsConfig",
            {"gcpFilestoreCsiDriverConfig": {}},
            {"gcpFilestoreCsiDriverConfig": {"enabled": True}},
        ),
        [("PUT", "", {"update": {"desiredAddonsConfig": {"gcpFilestoreCsiDriverConfig": {"enabled": True}}}})],
    ),
    "a label of the cluster": (
        "cluster",
        put("resourceLabels.modelplane-ai-fleet", None),
        (
            "resourceLabels",
            {key: value for key, value in LABELS.items() if key != "modelplane-ai-fleet"},
            LABELS,
        ),
        [("POST", ":setResourceLabels", {"resourceLabels": {**LABELS, "team": "ml"}, "labelFingerprint": "a9dc16a7"})],
    ),
    "a label of machines": (
        "pool-gpu-l4",
        put("config.resourceLabels.modelplane-ai-cluster", "other"),
        ("config.resourceLabels", {**LABELS, "modelplane-ai-cluster": "other"}, LABELS),
        [
            (
                "PUT",
                "",
                {"resourceLabels": {"labels": {**LABELS, "goog-gke-node-pool-provisioning-model": "on-demand"}}},
            )
        ],
    ),
    "labels of nodes": (
        "pool-gpu-l4",
        put("config.labels", {"modelplane.ai/pool": "other", "modelplane.ai/old": "x", "team": "ml"}),
        (
            "config.labels",
            {"modelplane.ai/pool": "other", "modelplane.ai/old": "x"},
            NODE_LABELS,
        ),
        [("PUT", "", {"labels": {"labels": {"team": "ml", **NODE_LABELS}}})],
    ),
    "a label that is no longer desired": (
        "pool-gpu-l4",
        put("config.labels", {**NODE_LABELS, "nvidia.com/gpu.present": "true"}),
        ("config.labels", {**NODE_LABELS, "nvidia.com/gpu.present": "true"}, NODE_LABELS),
        [("PUT", "", {"labels": {"labels": NODE_LABELS}})],
    ),
    "a taint": (
        "pool-gpu-l4",
        put("config.taints", [DEDICATED, PRESENT]),
        ("config.taints", [DEDICATED], []),
        [("PUT", "", {"taints": {"taints": [PRESENT]}})],
    ),
    "bounds": (
        "pool-gpu-l4",
        put("autoscaling.maxNodeCount", 4),
        ("autoscaling", {"enabled": True, "maxNodeCount": 4}, {"enabled": True, "minNodeCount": 0, "maxNodeCount": 8}),
        [
            (
                "POST",
                ":setAutoscaling",
                {"autoscaling": {"enabled": True, "minNodeCount": 0, "maxNodeCount": 8}},
            )
        ],
    ),
    "no autoscaling": (
        "pool-system",
        put("autoscaling", None),
        ("autoscaling", None, {"enabled": True, "minNodeCount": 1, "maxNodeCount": 2}),
        [("POST", ":setAutoscaling", {"autoscaling": {"enabled": True, "minNodeCount": 1, "maxNodeCount": 2}})],
    ),
    "zones": (
        "pool-gpu-l4",
        put("locations", ["us-central1-a"]),
        ("locations", ["us-central1-a"], ["us-central1-a", "us-central1-c"]),
        [("PUT", "", {"locations": ["us-central1-a", "us-central1-c"]})],
    ),
    "an old version of nodes": (
        "pool-gpu-l4",
        put("version", "1.34.9-gke.1500000"),
        ("version", "1.34.9-gke.1500000", "1.35"),
        [("PUT", "", {"nodeVersion": "-"})],
    ),
    "a machine type": (
        "pool-gpu-l4",
        put("config.machineType", "g2-standard-4"),
        ("config.machineType", "g2-standard-4", "g2-standard-8"),
        [("PUT", "", {"machineType": "g2-standard-8"})],
    ),
    "a disk": (
        "pool-gpu-l4",
        put("config.diskSizeGb", 200),
        ("config.diskSizeGb", 200, 100),
        [("PUT", "", {"diskSizeGb": "100"})],
    ),
    "an image": (
        "pool-gpu-l4",
        put("config.imageType", "UBUNTU_CONTAINERD"),
        ("config.imageType", "UBUNTU_CONTAINERD", "COS_CONTAINERD"),
        [("PUT", "", {"imageType": "COS_CONTAINERD"})],
    ),
    "an accelerator": (
        "pool-gpu-l4",
        put("config.accelerators", [{**L4, "acceleratorType": "nvidia-tesla-t4"}]),
        ("config.accelerators", [{**L4, "acceleratorType": "nvidia-tesla-t4"}], [L4]),
        [("PUT", "", {"accelerators": [L4]})],
    ),
    "a number of accelerators": (
        "pool-gpu-l4",
        put("config.accelerators", [{**L4, "acceleratorCount": "2"}]),
        ("config.accelerators", [{**L4, "acceleratorCount": "2"}], [L4]),
        [("PUT", "", {"accelerators": [L4]})],
    ),
    "no driver of GPUs": (
        "pool-gpu-l4",
        put("config.accelerators", [{key: L4[key] for key in ("acceleratorType", "acceleratorCount")}]),
        ("config.accelerators", [{key: L4[key] for key in ("acceleratorType", "acceleratorCount")}], [L4]),
        [("PUT", "", {"accelerators": [L4]})],
    ),
    "upgrades that need a spare machine": (
        "pool-gpu-l4",
        put("upgradeSettings", {"strategy": "SURGE", "maxSurge": 1}),
        ("upgradeSettings", {"strategy": "SURGE", "maxSurge": 1}, UPGRADES),
        [("PUT", "", {"upgradeSettings": UPGRADES})],
    ),
    "no gVNIC": (
        "pool-gpu-l4",
        put("config.gvnic", None),
        ("config.gvnic", None, {"enabled": True}),
        [("PUT", "", {"gvnic": {"enabled": True}})],
    ),
    "networks that reach it": (
        "cluster",
        put("masterAuthorizedNetworksConfig", {"enabled": True, "cidrBlocks": [{"cidrBlock": "192.0.2.0/24"}]}),
        (
            "masterAuthorizedNetworksConfig",
            {"enabled": True, "cidrBlocks": [{"cidrBlock": "192.0.2.0/24"}]},
            {"enabled": True, "cidrBlocks": [OFFICE]},
        ),
        [
            (
                "PUT",
                "",
                {"update": {"desiredMasterAuthorizedNetworksConfig": {"enabled": True, "cidrBlocks": [OFFICE]}}},
            )
        ],
    ),
    "no key for Secrets": (
        "cluster",
        put("databaseEncryption", {"state": "DECRYPTED"}),
        ("databaseEncryption", {"state": "DECRYPTED"}, ENCRYPTED),
        [("PUT", "", {"update": {"desiredDatabaseEncryption": ENCRYPTED}})],
    ),
    "nodes that are not private": (
        "cluster",
        put("networkConfig.defaultEnablePrivateNodes", None),
        ("networkConfig.defaultEnablePrivateNodes", None, True),
        [("PUT", "", {"update": {"desiredDefaultEnablePrivateNodes": True}})],
    ),
    "one interface for each node": (
        "cluster",
        put("networkConfig.enableMultiNetworking", None),
        ("networkConfig.enableMultiNetworking", None, True),
        [("PUT", "", {"update": {"desiredEnableMultiNetworking": True}})],
    ),
    "no way to Google's APIs": (
        "subnetwork",
        put("privateIpGoogleAccess", False),
        ("privateIpGoogleAccess", False, True),
        [("POST", "/setPrivateIpGoogleAccess", {"privateIpGoogleAccess": True})],
    ),
    "another NAT": (
        "router",
        put("nats", [{**NAT, "natIpAllocateOption": "MANUAL_ONLY"}]),
        ("nats", [{**NAT, "natIpAllocateOption": "MANUAL_ONLY"}], [NAT]),
        [("PATCH", "", {"nats": [NAT]})],
    ),
    "a name for people": (
        "service-account",
        put("displayName", "Robot"),
        ("displayName", "Robot", "Crossplane GKECluster gke-us-central"),
        [
            (
                "PATCH",
                "",
                {
                    "serviceAccount": {"displayName": "Crossplane GKECluster gke-us-central"},
                    "updateMask": "displayName",
                },
            )
        ],
    ),
}
IMMUTABLE: dict[str, tuple[str, Callable[[Object], Any], str, str]] = {
    "subnetworks of its own": (
        "network",
        put("autoCreateSubnetworks", True),
        "autoCreateSubnetworks",
        "autoCreateSubnetworks from true to false. Google cannot change it",
    ),
    "the network of a subnetwork": (
        "subnetwork",
        put("network", "https://www.googleapis.com/compute/v1/projects/my-project/global/networks/default"),
        "network",
        "Google cannot change it",
    ),
    "another range of nodes": (
        "subnetwork",
        put("ipCidrRange", "10.8.0.0/24"),
        "ipCidrRange",
        "Set spec.networking.nodeCidr back to 10.8.0.0/24, or remove the cluster and provision it again",
    ),
    "a range of nodes that would shrink": (
        "subnetwork",
        put("ipCidrRange", "10.0.0.0/20"),
        "ipCidrRange",
        "The range of nodes can only grow",
    ),
    "another range of pods": (
        "subnetwork",
        put("secondaryIpRanges", [{**PODS, "ipCidrRange": "10.4.0.0/16"}, SERVICES]),
        "secondaryIpRanges",
        "Google cannot change a range that is in use",
    ),
    "the network of a cluster": ("cluster", put("network", "default"), "network", "from default to projects/"),
    "the subnetwork of a cluster": ("cluster", put("subnetwork", "default"), "subnetwork", "Google cannot change it"),
    "a range of a cluster": (
        "cluster",
        put("ipAllocationPolicy.clusterSecondaryRangeName", "mine"),
        "ipAllocationPolicy",
        "clusterSecondaryRangeName=mine",
    ),
    "routes": ("cluster", put("ipAllocationPolicy.useIpAliases", None), "ipAllocationPolicy", "useIpAliases=true"),
    "spot machines": ("pool-gpu-l4", put("config.spot", True), "config.spot", "give the pool a new name"),
    "machines of flex-start": ("pool-gpu-l4", put("config.flexStart", True), "config.flexStart", "a new name"),
    "the older datapath": (
        "cluster",
        put("networkConfig.datapathProvider", None),
        "networkConfig.datapathProvider",
        "Remove spec.datapathProvider",
    ),
    "another account of nodes": (
        "pool-gpu-l4",
        put("config.serviceAccount", "other@my-project.iam.gserviceaccount.com"),
        "config.serviceAccount",
        "give the pool a new name",
    ),
    "scopes": (
        "pool-gpu-l4",
        put("config.oauthScopes", ["https://www.googleapis.com/auth/devstorage.read_only"]),
        "config.oauthScopes",
        "give the pool a new name",
    ),
}
SAME: dict[str, tuple[str, Callable[[Object], Any]]] = {
    "a newer version, which the channel installed": ("cluster", put("currentMasterVersion", "1.36.2-gke.100")),
    "newer nodes": ("pool-gpu-l4", put("version", "1.36.2-gke.100")),
    "zones in another order": ("pool-gpu-l4", put("locations", ["us-central1-c", "us-central1-a"])),
    "more scopes": (
        "pool-gpu-l4",
        put("config.oauthScopes", ["https://www.googleapis.com/auth/cloud-platform", "logging"]),
    ),
    "a number that is one": ("pool-gpu-l4", put("config.accelerators", [{**L4, "acceleratorCount": 1}])),
    "how GPUs are shared": ("pool-gpu-l4", put("config.accelerators", [{**L4, "gpuPartitionSize": ""}])),
    "a label of one's own": ("pool-gpu-l4", put("config.labels.team", "ml")),
    "the URL of a network": (
        "cluster",
        put("network", f"https://container.googleapis.com/v1/projects/my-project/global/networks/{NAME}"),
    ),
    "false instead of nothing": ("network", put("autoCreateSubnetworks", None)),
    "a zero instead of nothing": ("pool-gpu-l4", put("autoscaling.minNodeCount", 0)),
    "how the autoscaler spreads": ("pool-gpu-l4", put("autoscaling.locationPolicy", "ANY")),
    "how many there were at the start": ("pool-gpu-l4", put("initialNodeCount", 7)),
}


@pytest.mark.parametrize("entry", ALL, ids=[entry["key"] for entry in ALL])
def test_what_was_just_made_is_as_planned(entry: Object) -> None:
    have, want = returned(entry), deepcopy(entry["body"])
    before = deepcopy(have)
    assert diff(KINDS[entry["kind"]], have, want) == []
    assert (have, want) == (before, entry["body"])


@pytest.mark.parametrize(("key", "change"), SAME.values(), ids=SAME)
def test_what_is_no_difference(key: str, change: Callable[[Object], Any]) -> None:
    entry = resource(key)
    have = returned(entry)
    change(have)
    assert diff(KINDS[entry["kind"]], have, entry["body"]) == []


@pytest.mark.parametrize(("key", "change", "differs", "calls"), UPDATED.values(), ids=UPDATED)
def test_updates(
    key: str, change: Callable[[Object], Any], differs: tuple[str, Any, Any], calls: list[tuple[str, str, Object]]
) -> None:
    entry = resource(key, EVERYTHING)
    have = returned(entry)
    change(have)
    found = diff(KINDS[entry["kind"]], have, entry["body"])
    assert [(one.field, one.before, one.after, one.action, one.remediation) for one in found] == [
        (*differs, "update", "")
    ]
    made = list(updates(entry, have, found))
    path = f"{'compute/v1' if KINDS[entry['kind']].service == 'compute' else 'v1'}/{entry['parent']}"
    here = f"{path}/{KINDS[entry['kind']].collection}/{entry['name']}"
    assert [(call.method, call.path, call.body) for call in made] == [
        (method, here + end, body) for method, end, body in calls
    ]
    assert {call.service for call in made} == {KINDS[entry["kind"]].service}
    for call in made:
        assert entry["name"] in call.purpose


@pytest.mark.parametrize(("key", "change", "field", "message"), IMMUTABLE.values(), ids=IMMUTABLE)
def test_what_cannot_be_changed(key: str, change: Callable[[Object], Any], field: str, message: str) -> None:
    entry = resource(key, gke(datapathProvider="ADVANCED_DATAPATH", nodeServiceAccount="default"))
    have = returned(entry)
    change(have)
    found = diff(KINDS[entry["kind"]], have, entry["body"])
    assert [(one.field, one.action, one.update) for one in found] == [(field, "immutable", "")]
    assert message in str(found[0])
    assert "{" not in str(found[0])
    assert list(updates(entry, have, found)) == []


RAIL = {"network": "rail-0", "subnetwork": "rail-0-us-central1"}
# A setting that a pool gets for good, and one that differs.
FOR_GOOD: dict[str, tuple[Object, Object, str]] = {
    "another reservation": (
        {"reservationAffinity": {"consumeReservationType": "SPECIFIC_RESERVATION", "values": ["a"]}},
        {"reservationAffinity": {"consumeReservationType": "SPECIFIC_RESERVATION", "values": ["b"]}},
        "config.reservationAffinity",
    ),
    "no secure boot": (
        {"shieldedInstanceConfig": {}},
        {"shieldedInstanceConfig": {"enableSecureBoot": False}},
        "config.shieldedInstanceConfig",
    ),
    "another life": (
        {"flexStart": True, "maxRunDuration": "3600s"},
        {"flexStart": True, "maxRunDuration": "7200s"},
        "config.maxRunDuration",
    ),
    "nodes anywhere": ({"placementPolicy": {"type": "COMPACT"}}, {}, "placementPolicy"),
    "no networks of GKE": ({"acceleratorNetworkProfile": "auto"}, {}, "networkConfig.acceleratorNetworkProfile"),
    "another network": (
        {"additionalNodeNetworkConfigs": [RAIL]},
        {"additionalNodeNetworkConfigs": [{**RAIL, "network": "rail-1"}]},
        "networkConfig.additionalNodeNetworkConfigs",
    ),
    "a network less": (
        {"additionalNodeNetworkConfigs": [RAIL, RAIL]},
        {"additionalNodeNetworkConfigs": [RAIL]},
        "networkConfig.additionalNodeNetworkConfigs",
    ),
}


@pytest.mark.parametrize(("asked", "made", "field"), FOR_GOOD.values(), ids=FOR_GOOD)
def test_settings_that_a_pool_has_for_good(asked: Object, made: Object, field: str) -> None:
    entry = resource("pool-gpu-l4", gke(gpu(**asked)))
    assert diff(KINDS["node-pool"], returned(entry), entry["body"]) == []
    found = diff(KINDS["node-pool"], returned(resource("pool-gpu-l4", gke(gpu(**made)))), entry["body"])
    assert [(one.field, one.action) for one in found] == [(field, "immutable")]
    assert "give the pool a new name" in found[0].remediation


def test_a_pool_of_an_earlier_release_keeps_what_it_was_created_with() -> None:
    """Secure boot, gVNIC, an account of their own and Dataplane V2 are for what is new, unless the manifest asks."""
    cluster = resource("cluster")
    assert diff(KINDS["cluster"], {**returned(cluster), "networkConfig": {}}, cluster["body"]) == []
    assert create(cluster).body["cluster"]["networkConfig"]["datapathProvider"] == "ADVANCED_DATAPATH"
    h100 = {"machineType": "a3-highgpu-8g", "gpu": {"acceleratorType": "nvidia-h100-80gb", "acceleratorCount": 8}}
    entry = resource("pool-gpu-l4", gke(gpu(**h100)))
    assert diff(KINDS["node-pool"], returned(entry), entry["body"]) == []
    sent = create(entry).body["nodePool"]["config"]
    assert (sent["gvnic"], sent["shieldedInstanceConfig"]["enableSecureBoot"]) == ({"enabled": True}, True)


def test_a_pool_of_a_fixed_size() -> None:
    """The size first: should nothing come after that, the bounds still differ."""
    entry = resource("pool-gpu-l4", gke(gpu(nodeCount=3, minNodeCount=3, maxNodeCount=3)))
    have = returned(entry)
    have["autoscaling"].update(minNodeCount=2, maxNodeCount=2)
    bounds = {"enabled": True, "minNodeCount": 3, "maxNodeCount": 3}
    assert [
        (call.path.rpartition(":")[2], call.body)
        for call in updates(entry, have, diff(KINDS[entry["kind"]], have, entry["body"]))
    ] == [("setSize", {"nodeCount": 3}), ("setAutoscaling", {"autoscaling": bounds})]


def test_one_call_for_all_that_a_machine_is_made_of() -> None:
    entry = resource(
        "pool-gpu-l4",
        gke(
            gpu(
                machineType="g2-standard-24",
                gpu={"acceleratorType": "nvidia-l4", "acceleratorCount": 2},
                diskSizeGb=300,
            )
        ),
    )
    have = returned(resource("pool-gpu-l4"))
    have["version"] = "1.34.1-gke.1"
    have["config"]["labels"]["modelplane.ai/old"] = "x"
    calls = updates(entry, have, diff(KINDS[entry["kind"]], have, entry["body"]))
    assert [call.body for call in calls] == [
        {"nodeVersion": "-"},
        {
            "machineType": "g2-standard-24",
            "accelerators": [{**L4, "acceleratorCount": "2"}],
            "diskSizeGb": "300",
        },
        {"labels": {"labels": NODE_LABELS}},
    ]


def test_exact_versions() -> None:
    cluster = gke(kubernetesVersion="1.35.4-gke.200")
    entry, pool = resource("cluster", cluster), resource("pool-system", cluster)
    have, nodes = returned(entry), returned(pool)
    have["currentMasterVersion"] = nodes["version"] = "1.35.4-gke.150"
    calls = updates(entry, have, diff(KINDS["cluster"], have, entry["body"]))
    assert [call.body for call in calls] == [{"update": {"desiredMasterVersion": "1.35.4-gke.200"}}]
    calls = updates(pool, nodes, diff(KINDS["node-pool"], nodes, pool["body"]))
    assert [call.body for call in calls] == [{"nodeVersion": "1.35.4-gke.200"}]


VERSIONS = {
    ("1.35.4-gke.1200000", "1.35"): True,
    ("1.35.4-gke.1200000", "1.35.4"): True,
    ("1.35.4-gke.1200000", "1.35.5"): False,
    ("1.35.4-gke.1200000", "1.4"): True,
    ("1.9.0-gke.1", "1.35"): False,
    ("1.35.4-gke.1200000", "latest"): True,
    ("1.35.4-gke.1200000", "-"): True,
    ("", "1.35"): False,
    (None, "1.35"): False,
}


@pytest.mark.parametrize(("versions", "same"), VERSIONS.items())
def test_versions(versions: tuple[Any, str], same: bool) -> None:
    have, want = versions
    assert (diff(KINDS["cluster"], {"currentMasterVersion": have}, {"initialClusterVersion": want}) == []) is same


def test_taints_that_are_desired() -> None:
    want = {"config": {"taints": [DEDICATED]}}
    assert diff(KINDS["node-pool"], {"config": {"taints": [PRESENT, dict(DEDICATED)]}}, want) == []
    entry = {**resource("pool-gpu-l4"), "body": want}
    have = {"config": {"taints": [PRESENT, {**DEDICATED, "value": "web"}]}}
    calls = updates(entry, have, diff(KINDS["node-pool"], have, want))
    assert [call.body for call in calls] == [{"taints": {"taints": [PRESENT, DEDICATED]}}]


def test_every_update_of_the_table_is_made_and_tested() -> None:
    entries = {entry["kind"]: entry for entry in plan(EVERYTHING, PROJECT)["resources"]}
    tested = set()
    for key, change, _differs, _calls in UPDATED.values():
        entry = resource(key, EVERYTHING)
        have = returned(entry)
        change(have)
        tested |= {(entry["kind"], one.update) for one in diff(KINDS[entry["kind"]], have, entry["body"])}
    known = {(kind, field.update) for kind, each in KINDS.items() for field in each.fields if field.update}
    assert tested == known
    assert set(entries) == set(KINDS)
