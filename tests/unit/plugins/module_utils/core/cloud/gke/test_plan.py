# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Plans of GKEClusters, setting by setting, and that names are those of the reference implementation."""

from __future__ import annotations

import json
import random
import re
from copy import deepcopy
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.bodies import merged
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.gke import names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.gke.plan import Options, plan
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.names import kubeconfig_secret
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.validation import InvalidClusterError
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.cloud.gke.clusters import (
    PROJECT,
    gke,
    gpu,
    inference_class,
    inference_cluster,
    system,
)
from ansible_collections.modelplane.fleet.tests.written import cluster_objects

NAME = "modelplane-system-gke-us-central-g-f8ba7"
NODES = names.email(names.node_account_id("modelplane-system", "gke-us-central"), "my-project")
EMAIL = "modelplane-system-gke-us-f8ba7@my-project.iam.gserviceaccount.com"
NETWORK = f"projects/my-project/global/networks/{NAME}"
LABELS = {
    "modelplane-ai-cluster": NAME,
    "modelplane-ai-managed-by": "modelplane-fleet",
    "modelplane-ai-fleet": "default",
}
MARK = f"modelplane-ai-cluster={NAME} modelplane-ai-managed-by=modelplane-fleet modelplane-ai-fleet=default"
SYSTEM: dict[str, Any] = {
    "name": "system",
    "initialNodeCount": 1,
    "autoscaling": {"enabled": True, "minNodeCount": 1, "maxNodeCount": 2},
    "config": {
        "machineType": "e2-standard-4",
        "imageType": "COS_CONTAINERD",
        "oauthScopes": ["https://www.googleapis.com/auth/cloud-platform"],
        "labels": {"modelplane.ai/pool": "system"},
        "taints": [],
        "resourceLabels": LABELS,
        "spot": False,
        "flexStart": False,
    },
}
SHIELDED = {
    "config": {
        "serviceAccount": NODES,
        "shieldedInstanceConfig": {"enableSecureBoot": True, "enableIntegrityMonitoring": True},
    }
}
FIRST = {**SYSTEM, "config": {**SYSTEM["config"], **SHIELDED["config"]}}
GPU: dict[str, Any] = {
    "name": "gpu-l4",
    "initialNodeCount": 1,
    "autoscaling": {"enabled": True, "minNodeCount": 0, "maxNodeCount": 8},
    "config": {
        "machineType": "g2-standard-8",
        "diskSizeGb": 100,
        "imageType": "COS_CONTAINERD",
        "oauthScopes": ["https://www.googleapis.com/auth/cloud-platform"],
        "labels": {
            "modelplane.ai/pool": "gpu-l4",
            "modelplane.ai/gpu": "nvidia-l4",
            "cloud.google.com/gke-nvidia-gpu-dra-driver": "true",
        },
        "taints": [],
        "resourceLabels": LABELS,
        "spot": False,
        "flexStart": False,
        "accelerators": [
            {
                "acceleratorType": "nvidia-l4",
                "acceleratorCount": "1",
                "gpuDriverInstallationConfig": {"gpuDriverVersion": "DEFAULT"},
            }
        ],
    },
    "locations": ["us-central1-a", "us-central1-c"],
    "upgradeSettings": {"strategy": "SURGE", "maxSurge": 0, "maxUnavailable": 1},
}
CLUSTER = f"projects/my-project/locations/us-central1/clusters/{NAME}"
RESOURCES: list[dict[str, Any]] = [
    {
        "key": "network",
        "kind": "network",
        "name": NAME,
        "parent": "projects/my-project/global",
        "body": {"name": NAME, "autoCreateSubnetworks": False, "description": MARK},
        "needs": [],
    },
    {
        "key": "service-filestore",
        "kind": "service",
        "name": "file.googleapis.com",
        "parent": "projects/my-project",
        "body": {},
        "needs": [],
    },
    {
        "key": "subnetwork",
        "kind": "subnetwork",
        "name": NAME,
        "parent": "projects/my-project/regions/us-central1",
        "body": {
            "name": NAME,
            "description": MARK,
            "network": NETWORK,
            "ipCidrRange": "10.0.0.0/24",
            "privateIpGoogleAccess": True,
            "secondaryIpRanges": [
                {"rangeName": "pods", "ipCidrRange": "10.1.0.0/16"},
                {"rangeName": "services", "ipCidrRange": "10.2.0.0/16"},
            ],
        },
        "needs": ["network"],
    },
    {
        "key": "node-service-account",
        "kind": "service-account",
        "name": NODES,
        "parent": "projects/my-project",
        "body": {"displayName": "Nodes of GKECluster gke-us-central", "description": MARK},
        "needs": [],
    },
    *(
        {
            "key": f"node-iam-member-{key}",
            "kind": "iam-member",
            "name": f"{role} of {NODES}",
            "parent": "projects/my-project",
            "body": {"role": role, "member": f"serviceAccount:{NODES}"},
            "needs": ["node-service-account"],
        }
        for key, role in (
            ("defaultnodeserviceaccount", "roles/container.defaultNodeServiceAccount"),
            ("reader", "roles/artifactregistry.reader"),
        )
    ),
    {
        "key": "cluster",
        "kind": "cluster",
        "name": NAME,
        "parent": "projects/my-project/locations/us-central1",
        "body": {
            "name": NAME,
            "initialClusterVersion": "1.35",
            "network": NETWORK,
            "subnetwork": f"projects/my-project/regions/us-central1/subnetworks/{NAME}",
            "ipAllocationPolicy": {
                "useIpAliases": True,
                "clusterSecondaryRangeName": "pods",
                "servicesSecondaryRangeName": "services",
            },
            "releaseChannel": {"channel": "REGULAR"},
            "workloadIdentityConfig": {"workloadPool": "my-project.svc.id.goog"},
            "addonsConfig": {"gcpFilestoreCsiDriverConfig": {"enabled": True}},
            "resourceLabels": LABELS,
            "networkConfig": {"defaultEnablePrivateNodes": False},
            "nodePools": [FIRST],
        },
        "needs": [
            "network",
            "subnetwork",
            "node-service-account",
            "node-iam-member-defaultnodeserviceaccount",
            "node-iam-member-reader",
        ],
        "initial": {"networkConfig": {"datapathProvider": "ADVANCED_DATAPATH"}},
    },
    {
        "key": "pool-system",
        "kind": "node-pool",
        "name": "system",
        "parent": CLUSTER,
        "body": {**SYSTEM, "version": "1.35"},
        "needs": ["cluster"],
        "initial": SHIELDED,
    },
    {
        "key": "pool-gpu-l4",
        "kind": "node-pool",
        "name": "gpu-l4",
        "parent": CLUSTER,
        "body": {**GPU, "version": "1.35"},
        "needs": ["cluster"],
        "initial": SHIELDED,
    },
    {
        "key": "service-account",
        "kind": "service-account",
        "name": EMAIL,
        "parent": "projects/my-project",
        "body": {"displayName": "Crossplane GKECluster gke-us-central", "description": MARK},
        "needs": [],
    },
    {
        "key": "iam-member",
        "kind": "iam-member",
        "name": f"roles/container.admin of {EMAIL}",
        "parent": "projects/my-project",
        "body": {"role": "roles/container.admin", "member": f"serviceAccount:{EMAIL}"},
        "needs": ["service-account"],
    },
]
ROUTER: dict[str, Any] = {
    "key": "router",
    "kind": "router",
    "name": NAME,
    "parent": "projects/my-project/regions/us-central1",
    "body": {
        "name": NAME,
        "description": MARK,
        "network": NETWORK,
        "nats": [
            {
                "name": "nat",
                "natIpAllocateOption": "AUTO_ONLY",
                "sourceSubnetworkIpRangesToNat": "ALL_SUBNETWORKS_ALL_IP_RANGES",
                "enableDynamicPortAllocation": True,
                "enableEndpointIndependentMapping": False,
            }
        ],
    },
    "needs": ["network"],
}
DEFAULT: dict[str, Any] = {
    "object": {"namespace": "modelplane-system", "name": "gke-us-central"},
    "name": NAME,
    "project": "my-project",
    "region": "us-central1",
    "version": "1.35",
    "labels": LABELS,
    "service_account": EMAIL,
    "node_account": NODES,
    "obsolete": [ROUTER],
    "resources": RESOURCES,
    "storage_class": {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "modelplane-rwx"},
        "provisioner": "filestore.csi.storage.gke.io",
        "parameters": {"tier": "enterprise", "network": NAME},
        "volumeBindingMode": "Immediate",
        "allowVolumeExpansion": True,
    },
    "secrets": {
        "kubeconfig": {
            "namespace": "modelplane-system",
            "name": "gke-us-central-kubeconfig-5d074",
            "key": "kubeconfig",
        },
        "service_account_key": {
            "namespace": "modelplane-system",
            "name": "gke-us-central-sa-key-ccbc7",
            "key": "private_key",
        },
    },
}


def bodies(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {entry["key"]: entry["body"] for entry in found["resources"]}


def test_names() -> None:
    assert names.cluster_name("modelplane-system", "gke-us-central") == NAME
    assert names.account_id("modelplane-system", "gke-us-central") == "modelplane-system-gke-us-f8ba7"
    assert kubeconfig_secret("gke-us-central") == "gke-us-central-kubeconfig-5d074"
    assert names.key_secret("gke-us-central") == "gke-us-central-sa-key-ccbc7"
    assert names.email("a-b", "example.com:shop") == "a-b@shop.example.com.iam.gserviceaccount.com"


@pytest.mark.parametrize("length", [1, 5, 12, 13, 40, 63])
def test_names_fit(length: int) -> None:
    for namespace in ("x", "modelplane-system", "n" * 63):
        cluster = names.cluster_name(namespace, "c" * length)
        account = names.account_id(namespace, "c" * length)
        assert re.fullmatch("[a-z](?:[-a-z0-9]{0,38}[a-z0-9])", cluster)
        assert re.fullmatch("[a-z](?:[-a-z0-9]{4,28}[a-z0-9])", account)


def test_names_of_long_ones_differ() -> None:
    alike = [f"a-cluster-of-some-team-{number}" for number in range(100)]
    assert len({names.cluster_name("modelplane-system", name) for name in alike}) == len(alike)
    assert len({names.account_id("modelplane-system", name) for name in alike}) == len(alike)


FLEETS = {
    "default": "default",
    "prod-eu_1": "prod-eu_1",
    "Production": "production-13a7c",
    "a.b": "a-b-2e733",
    "x" * 63: "x" * 63,
    "": "",
}


@pytest.mark.parametrize(("fleet", "value"), FLEETS.items())
def test_names_of_fleets_as_labels(fleet: str, value: str) -> None:
    assert plan(gke(), PROJECT, fleet)["labels"]["modelplane-ai-fleet"] == value


def test_a_long_name_of_a_fleet_is_cut() -> None:
    value = names.label_value("x" * 64)
    assert len(value) == 63
    assert value != names.label_value("x" * 65)


def test_every_setting_of_the_default() -> None:
    assert plan(gke(), PROJECT) == DEFAULT


def test_the_same_of_an_inference_cluster() -> None:
    """But for the bounds: a pool without any is fixed, and what is composed of an InferenceCluster says so."""
    pool = {"name": "gpu-l4", "className": "l4", "zones": ["us-central1-a", "us-central1-c"]}
    made = cluster_objects(inference_cluster(pool), {"l4": inference_class(machine="g2-standard-8", count=1)})[0]
    expected = deepcopy(DEFAULT)
    changed = bodies(expected)["pool-gpu-l4"]
    changed["autoscaling"].update(minNodeCount=1, maxNodeCount=1)
    changed["config"]["diskSizeGb"] = 200
    assert plan(made, PROJECT) == expected


def test_defaults_that_the_api_server_fills_in_change_nothing() -> None:
    made = cluster_objects(inference_cluster(), {"l4": inference_class()})[0]
    filled = deepcopy(made)
    for pool in filled["spec"]["nodePools"]:
        pool.setdefault("diskSizeGb", 100)
    filled["metadata"].update(uid="4b1c", resourceVersion="7", generation=1)
    filled["status"] = {"secrets": [{"type": "Kubeconfig", "name": "x", "key": "kubeconfig"}]}
    assert plan(filled, PROJECT) == plan(made, PROJECT)


PROJECTS = {
    "the cluster's wins": (gke(project="of-the-cluster"), "of-credentials", "of-the-cluster"),
    "that of an InferenceCluster": (
        cluster_objects(inference_cluster(project="of-the-cluster"), {"l4": inference_class()})[0],
        "of-credentials",
        "of-the-cluster",
    ),
    "that of the credentials": (gke(), "of-credentials", "of-credentials"),
}


@pytest.mark.parametrize(("cluster", "given", "project"), PROJECTS.values(), ids=PROJECTS)
def test_projects(cluster: dict[str, Any], given: str, project: str) -> None:
    found = plan(cluster, given)
    assert found["project"] == project
    assert {entry["parent"].split("/")[1] for entry in found["resources"]} == {project}
    assert bodies(found)["cluster"]["workloadIdentityConfig"] == {"workloadPool": f"{project}.svc.id.goog"}
    assert "my-project" not in json.dumps(found)


def test_pools_of_every_sort() -> None:
    """Of one's own for controllers, with zones and a disk; of many GPUs; of a fixed size; of none."""
    found = plan(
        gke(
            gpu(
                "h100", machineType="a3-highgpu-8g", gpu={"acceleratorType": "nvidia-h100-80gb", "acceleratorCount": 8}
            ),
            gpu("fixed", nodeCount=3, minNodeCount=3, maxNodeCount=3),
            gpu("none", nodeCount=0, minNodeCount=0, maxNodeCount=0, diskSizeGb=500),
            gpu("late", nodeCount=1, minNodeCount=2, maxNodeCount=4),
            system(zones=["us-central1-b"], diskSizeGb=60, nodeCount=2, minNodeCount=1, maxNodeCount=3),
        ),
        PROJECT,
    )
    made = bodies(found)
    keys = [entry["key"] for entry in found["resources"] if entry["kind"] == "node-pool"]
    assert keys == ["pool-controllers", "pool-h100", "pool-fixed", "pool-none", "pool-late"]
    assert made["pool-controllers"] == {
        "name": "controllers",
        "initialNodeCount": 2,
        "autoscaling": {"enabled": True, "minNodeCount": 1, "maxNodeCount": 3},
        "config": {
            **SYSTEM["config"],
            "machineType": "e2-standard-8",
            "diskSizeGb": 60,
            "labels": {"modelplane.ai/pool": "controllers"},
        },
        "version": "1.35",
        "locations": ["us-central1-b"],
    }
    pools = made["cluster"]["nodePools"]
    first = merged(made["pool-controllers"], SHIELDED)
    assert pools == [{key: value for key, value in first.items() if key != "version"}]
    assert made["pool-h100"]["config"]["accelerators"][0]["acceleratorCount"] == "8"
    sizes = {
        key: (made[key]["initialNodeCount"], *(made[key]["autoscaling"][f"{end}NodeCount"] for end in ("min", "max")))
        for key in keys[2:]
    }
    assert sizes == {"pool-fixed": (3, 3, 3), "pool-none": (0, 0, 1), "pool-late": (2, 2, 4)}
    assert made["pool-none"]["config"]["diskSizeGb"] == 500


def test_networks_and_versions_of_ones_own_choice() -> None:
    networking = {"nodeCidr": "172.20.0.0/22", "podCidr": "172.24.0.0/14", "serviceCidr": "172.21.0.0/20"}
    made = bodies(plan(gke(networking=networking, kubernetesVersion="1.36.1-gke.100", region="europe-west4",
                           nodePools=[gpu(zones=["europe-west4-a"])]), PROJECT))  # fmt: skip
    assert made["subnetwork"]["ipCidrRange"] == "172.20.0.0/22"
    assert made["subnetwork"]["secondaryIpRanges"] == [
        {"rangeName": "pods", "ipCidrRange": "172.24.0.0/14"},
        {"rangeName": "services", "ipCidrRange": "172.21.0.0/20"},
    ]
    assert made["cluster"]["initialClusterVersion"] == made["pool-system"]["version"] == "1.36.1-gke.100"
    assert "/regions/europe-west4/" in made["cluster"]["subnetwork"]


def test_labels_of_ones_own() -> None:
    found = plan(gke(), PROJECT, "blue", Options(labels={"team": "ml"}))
    expected = {"team": "ml", **LABELS, "modelplane-ai-fleet": "blue"}
    made = bodies(found)
    assert found["labels"] == made["cluster"]["resourceLabels"] == expected
    assert made["pool-gpu-l4"]["config"]["resourceLabels"] == expected
    assert made["network"]["description"] == MARK.replace("fleet=default", "fleet=blue")


RESERVED = {"consumeReservationType": "SPECIFIC_RESERVATION", "values": ["h100"]}
RAIL = {"network": "rail-0", "subnetwork": "rail-0-us-central1"}
# A setting of a pool, and what it becomes in the body of the node pool.
SETTINGS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "spot": ({"spot": True}, {"config": {"spot": True}}),
    "flex-start": (
        {"flexStart": True, "maxRunDuration": "86400s"},
        {
            "config": {
                "flexStart": True,
                "maxRunDuration": "86400s",
                "reservationAffinity": {"consumeReservationType": "NO_RESERVATION"},
            },
            "autoscaling": {"enabled": True, "minNodeCount": 0, "maxNodeCount": 8, "locationPolicy": "ANY"},
            "management": {"autoRepair": False, "autoUpgrade": True},
            "initialNodeCount": 0,
            "upgradeSettings": None,
        },
    ),
    "a reservation": (
        {"reservationAffinity": RESERVED},
        {
            "config": {
                "reservationAffinity": {**RESERVED, "key": "compute.googleapis.com/reservation-name"},
            }
        },
    ),
    "any reservation": (
        {"reservationAffinity": {"consumeReservationType": "ANY_RESERVATION"}},
        {"config": {"reservationAffinity": {"consumeReservationType": "ANY_RESERVATION"}}},
    ),
    "a spare machine for upgrades": (
        {"upgradeSettings": {"maxSurge": 1, "maxUnavailable": 0}},
        {"upgradeSettings": {"strategy": "SURGE", "maxSurge": 1, "maxUnavailable": 0}},
    ),
    "no secure boot": (
        {"shieldedInstanceConfig": {"enableSecureBoot": False}},
        {"config": {"shieldedInstanceConfig": {"enableSecureBoot": False, "enableIntegrityMonitoring": True}}},
    ),
    "nodes that are close to each other": (
        {"placementPolicy": {"type": "COMPACT"}},
        {"placementPolicy": {"type": "COMPACT"}},
    ),
    "gVNIC": ({"gvnic": True}, {"config": {"gvnic": {"enabled": True}}}),
    "networks that GKE creates": (
        {"acceleratorNetworkProfile": "auto"},
        {"networkConfig": {"acceleratorNetworkProfile": "auto"}},
    ),
    "networks of one's own": (
        {"additionalNodeNetworkConfigs": [RAIL]},
        {"networkConfig": {"additionalNodeNetworkConfigs": [RAIL]}},
    ),
}


@pytest.mark.parametrize(("settings", "becomes"), SETTINGS.values(), ids=SETTINGS)
def test_settings_of_pools(settings: dict[str, Any], becomes: dict[str, Any]) -> None:
    expected = {**deepcopy(GPU), "version": "1.35", **becomes}
    expected["config"] = {**GPU["config"], **becomes.get("config", {})}
    expected = {key: value for key, value in expected.items() if value is not None}
    assert bodies(plan(gke(gpu(**settings)), PROJECT))["pool-gpu-l4"] == expected


def test_settings_of_pools_of_an_inference_cluster() -> None:
    """They are written at the pool, and are those of a GKECluster."""
    pool = {"name": "gpu-l4", "className": "l4", "zones": ["us-central1-a"], "minNodeCount": 0, "maxNodeCount": 2}
    for settings, _becomes in SETTINGS.values():
        cluster = inference_cluster({**pool, "gke": settings})
        made = cluster_objects(cluster, {"l4": inference_class()})[0]["spec"]["nodePools"][1]
        assert {key: made[key] for key in settings} == settings


KEY = "projects/my-project/locations/us-central1/keyRings/fleet/cryptoKeys/secrets"
OFFICE = {"cidrBlock": "203.0.113.0/24", "displayName": "office"}
# Settings of a cluster, and what they become in its body.
OF_CLUSTER: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "private nodes": ({"privateNodes": True}, {"networkConfig": {"defaultEnablePrivateNodes": True}}),
    "networks that reach it": (
        {"masterAuthorizedNetworks": [OFFICE]},
        {"masterAuthorizedNetworksConfig": {"enabled": True, "cidrBlocks": [OFFICE]}},
    ),
    "a key for Secrets": (
        {"databaseEncryption": {"keyName": KEY}},
        {"databaseEncryption": {"state": "ENCRYPTED", "keyName": KEY}},
    ),
    "the older datapath": (
        {"datapathProvider": "LEGACY_DATAPATH"},
        {"networkConfig": {"defaultEnablePrivateNodes": False, "datapathProvider": "LEGACY_DATAPATH"}},
    ),
}


@pytest.mark.parametrize(("settings", "becomes"), OF_CLUSTER.values(), ids=OF_CLUSTER)
def test_settings_of_clusters(settings: dict[str, Any], becomes: dict[str, Any]) -> None:
    assert bodies(plan(gke(**settings), PROJECT))["cluster"] == {**bodies(DEFAULT)["cluster"], **becomes}


def test_settings_of_clusters_of_an_inference_cluster() -> None:
    for settings, _becomes in OF_CLUSTER.values():
        made = cluster_objects(inference_cluster(**settings), {"l4": inference_class()})[0]["spec"]
        assert {key: made[key] for key in settings} == settings


def test_private_nodes_reach_the_internet_by_a_nat() -> None:
    """It is there before the nodes, and goes with the cluster when its nodes are no longer private."""
    found = plan(gke(privateNodes=True), PROJECT)
    router, cluster = (next(each for each in found["resources"] if each["key"] == key) for key in ("router", "cluster"))
    assert (router, found["obsolete"]) == (ROUTER, [])
    assert "router" in cluster["needs"]
    without = plan(gke(privateNodes=True, cloudNat=False), PROJECT)
    assert "router" not in bodies(without)
    assert without["obsolete"] == [ROUTER]


@pytest.mark.parametrize("account", ["default", "nodes@my-project.iam.gserviceaccount.com"])
def test_a_service_account_of_ones_own_choice(account: str) -> None:
    found = plan(gke(nodeServiceAccount=account), PROJECT)
    made = bodies(found)
    assert not [key for key in made if key.startswith("node-")]
    assert made["pool-gpu-l4"]["config"]["serviceAccount"] == account
    assert made["cluster"]["nodePools"][0]["config"]["serviceAccount"] == account
    assert found["node_account"] == account


def test_nodes_with_more_interfaces_need_a_cluster_that_has_them() -> None:
    found = bodies(plan(gke(gpu(additionalNodeNetworkConfigs=[RAIL])), PROJECT))["cluster"]["networkConfig"]
    assert found == {"defaultEnablePrivateNodes": False, "enableMultiNetworking": True}


def initial(cluster: dict[str, Any]) -> dict[str, Any]:
    return next(entry for entry in plan(cluster, PROJECT)["resources"] if entry["key"] == "pool-gpu-l4")["initial"]


def test_only_new_pools_get_what_a_manifest_leaves_open() -> None:
    h100 = {"machineType": "a3-highgpu-8g", "gpu": {"acceleratorType": "nvidia-h100-80gb", "acceleratorCount": 8}}
    assert initial(gke(gpu(**h100))) == {"config": {**SHIELDED["config"], "gvnic": {"enabled": True}}}
    shielded = {"shieldedInstanceConfig": {"enableSecureBoot": False}}
    assert initial(gke(gpu(**h100, gvnic=False, **shielded), nodeServiceAccount="default")) == {"config": {}}


def test_descriptions_fit() -> None:
    """A service account takes 256 bytes, and 100 as its name."""
    found = bodies(plan(gke(name="c" * 63, namespace="n" * 63), PROJECT, "f" * 200))
    assert len(found["service-account"]["description"]) <= 256
    assert len(found["service-account"]["displayName"]) <= 100


def test_the_same_each_time() -> None:
    cluster = gke(gpu("a"), gpu("b"), system())
    first = plan(cluster, PROJECT)
    before = deepcopy(cluster)
    for seed in range(5):
        keys = list(cluster["spec"])
        random.Random(seed).shuffle(keys)
        again = {**cluster, "spec": {key: cluster["spec"][key] for key in keys}}
        assert json.dumps(plan(again, PROJECT)) == json.dumps(first)
    assert cluster == before
    bodies(first)["pool-a"]["config"]["resourceLabels"]["x"] = "y"
    assert "x" not in first["labels"]
    assert "x" not in bodies(first)["pool-b"]["config"]["resourceLabels"]
    assert "x" not in bodies(first)["cluster"]["nodePools"][0]["config"]["resourceLabels"]


REFUSED = {
    "errors": (gke(region="texas"), PROJECT, Options(), "spec.region: Is no name of a region of Google Cloud"),
    "no project": (gke(), "", Options(), "spec.project: Is not given, and the credentials name none"),
    "a number": (gke(), "123456789", Options(), "Write the ID, not the name or the number"),
    "a label of ours": (gke(), PROJECT, Options(labels={"modelplane-ai-x": "1"}), "labels.modelplane-ai-x: Is set by"),
    "a label with a dot": (gke(), PROJECT, Options(labels={"a.b": "1"}), "labels.a.b: Must be at most 63 lower-case"),
    "a value": (gke(), PROJECT, Options(labels={"a": "B"}), "labels.a: Must be at most 63 lower-case"),
    "many": (gke(), PROJECT, Options(labels={f"l{n}": "x" for n in range(41)}), "labels: Must be at most 40"),
}


@pytest.mark.parametrize(("cluster", "project", "options", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_planned(cluster: dict[str, Any], project: str, options: Options, message: str) -> None:
    with pytest.raises(InvalidClusterError) as refused:
        plan(cluster, project, options=options)
    assert message in str(refused.value)
    assert refused.value.problems
