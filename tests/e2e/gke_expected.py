# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The objects of which a GKE cluster has to be made, one after the other, as Google and the cluster itself describe it.

Written after the specification and not with what the collection knows: names and settings are spelled out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.modelplane.fleet.tests.e2e.gke import World, email, gke_name
from ansible_collections.modelplane.fleet.tests.kube.control_plane import ControlPlane

Object = dict[str, Any]
_SCOPES = ["https://www.googleapis.com/auth/cloud-platform"]
# Set by GKE itself, as there are nodes without GPUs.
_GPU_TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NO_SCHEDULE"}
_DRA_LABEL = "cloud.google.com/gke-nvidia-gpu-dra-driver"
# What a GKECluster does not set, at the place where GKE has it.
_UNSET_OF_CLUSTER = (
    "binaryAuthorization",
    "ipAllocationPolicy.createSubnetwork",
    "maintenancePolicy.window",
    "masterAuthorizedNetworksConfig.enabled",
    "autopilot.enabled",
    "networkConfig.gatewayApiConfig",
    "privateClusterConfig",
)
_UNSET_OF_POOL = (
    "config.minCpuPlatform",
    "config.preemptible",
    "config.reservationAffinity",
    "config.spot",
    "config.tags",
    "placementPolicy",
    "autoscaling.totalMinNodeCount",
    "autoscaling.totalMaxNodeCount",
)


@dataclass(frozen=True)
class NodePool:
    """A node pool of a GKECluster. `bounds`: fewest, most, and first nodes in each zone; `accelerator`: empty for a
    pool without GPUs; `zones`: empty for all of the cluster; `more`: labels that others gave its nodes."""

    machine: str
    bounds: tuple[int, int, int]
    zones: Sequence[str] = ()
    accelerator: str = ""
    accelerators: int = 1
    disk: int = 100
    more: Mapping[str, str] = field(default_factory=dict)

    def labels(self, name: str) -> dict[str, str]:
        of_gpu = {"modelplane.ai/gpu": self.accelerator, _DRA_LABEL: "true"} if self.accelerator else {}
        return {"modelplane.ai/pool": name, **of_gpu, **self.more}


SYSTEM_POOL = NodePool("e2-standard-4", (1, 2, 1))


@dataclass(frozen=True)
class Cluster:
    """A GKE cluster in words of the specification. `zones`: those that GKE takes by itself."""

    name: str
    region: str
    zones: Sequence[str]
    pools: Mapping[str, NodePool]
    nodes: str = "10.0.0.0/24"
    pods: str = "10.1.0.0/16"
    services: str = "10.2.0.0/16"
    version: str = "1.35"
    fleet: str = "default"
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def gke_name(self) -> str:
        return gke_name(self.name)

    @property
    def all_pools(self) -> dict[str, NodePool]:
        """With the one that is added where no pool takes what needs no GPU."""
        added = {"system": SYSTEM_POOL} if all(pool.accelerator for pool in self.pools.values()) else {}
        return {**added, **self.pools}

    @property
    def mark(self) -> dict[str, str]:
        ours = {"cluster": self.gke_name, "managed-by": "modelplane-fleet", "fleet": self.fleet}
        return {f"modelplane-ai-{key}": value for key, value in ours.items()}

    def labelled(self, found: Mapping[str, str]) -> None:
        desired = {**self.mark, **self.labels}
        assert {key: found.get(key) for key in desired} == desired, found

    def described(self, found: Mapping[str, Any]) -> None:
        """An object that takes no labels says whose it is."""
        assert found["description"] == " ".join(f"{key}={value}" for key, value in self.mark.items())


def check(world: World, desired: Cluster) -> None:
    """All that Google has of a cluster."""
    for each in CHECKS:
        each(world, desired)


# The network


def check_network(world: World, desired: Cluster) -> None:
    found = world.get("compute", f"{_global(world)}/networks/{desired.gke_name}")
    # A network without the field is one of the older kind, which has no subnetworks.
    assert found["autoCreateSubnetworks"] is False
    assert [_path(each) for each in found["subnetworks"]] == [_subnetwork(world, desired)]
    desired.described(found)


def check_subnetwork(world: World, desired: Cluster) -> None:
    found = world.get("compute", _subnetwork(world, desired))
    assert _path(found["network"]) == f"{_global(world)}/networks/{desired.gke_name}"
    assert found["ipCidrRange"] == desired.nodes
    ranges = {each["rangeName"]: each["ipCidrRange"] for each in found["secondaryIpRanges"]}
    assert ranges == {"pods": desired.pods, "services": desired.services}
    # Images and models of Google are reached without addresses on the Internet.
    assert found["privateIpGoogleAccess"] is True
    desired.described(found)


def check_nothing_else(world: World, desired: Cluster) -> None:
    """Neither NAT nor addresses nor rules but GKE's own; no instance of Filestore."""
    network = f"{_global(world)}/networks/{desired.gke_name}"
    rules = [
        each["name"]
        for each in world.get("compute", f"{_global(world)}/firewalls").get("items", ())
        if _path(each["network"]) == network
    ]
    assert rules
    assert all(rule.startswith("gke-") for rule in rules), rules
    regional = f"projects/{world.project}/regions/{desired.region}"
    assert not world.get("compute", f"{regional}/routers").get("items")
    instances = world.get("file", f"projects/{world.project}/locations/-/instances").get("instances", ())
    networks = {used["network"] for each in instances for used in each["networks"]}
    assert not {desired.gke_name, network} & networks


def _global(world: World) -> str:
    return f"projects/{world.project}/global"


def _subnetwork(world: World, desired: Cluster) -> str:
    return f"projects/{world.project}/regions/{desired.region}/subnetworks/{desired.gke_name}"


def _path(link: str) -> str:
    return link[link.index("projects/") :]


# APIs and rights


def check_service(world: World, desired: Cluster) -> None:
    found = world.get("serviceusage", f"projects/{world.project}/services/file.googleapis.com")
    assert found["state"] == "ENABLED", desired


def check_service_account(world: World, desired: Cluster) -> None:
    account = email(desired.name, world.project)
    found = world.get("iam", f"projects/{world.project}/serviceAccounts/{account}")
    assert found["displayName"] == f"Crossplane GKECluster {desired.name}"
    desired.described(found)
    assert not found.get("disabled")
    assert len(world.keys(account)) == 1


def check_rights(world: World, desired: Cluster) -> None:
    """The account may do everything with clusters, at any time, and nothing else; what others may is as before."""
    member = f"serviceAccount:{email(desired.name, world.project)}"
    bindings = [each for each in world.policy() if member in each["members"]]
    assert [each["role"] for each in bindings] == ["roles/container.admin"]
    assert not any("condition" in each for each in bindings)
    assert bindings[0]["members"].count(member) == 1
    assert not any("deleted:" in each for binding in world.policy() for each in binding["members"])


# GKE


def check_cluster(world: World, desired: Cluster) -> None:
    found = world.cluster(desired.name)
    assert (found["status"], found["location"]) == ("RUNNING", desired.region)
    assert found["currentMasterVersion"].startswith(f"{desired.version}.")
    assert found["networkConfig"]["network"] == f"{_global(world)}/networks/{desired.gke_name}"
    assert found["networkConfig"]["subnetwork"] == _subnetwork(world, desired)
    addresses = found["ipAllocationPolicy"]
    assert addresses["useIpAliases"] is True
    assert addresses["clusterSecondaryRangeName"] == "pods"
    assert addresses["servicesSecondaryRangeName"] == "services"
    assert addresses["clusterIpv4CidrBlock"] == desired.pods
    assert addresses["servicesIpv4CidrBlock"] == desired.services
    assert found["releaseChannel"] == {"channel": "REGULAR"}
    assert found["workloadIdentityConfig"] == {"workloadPool": f"{world.project}.svc.id.goog"}
    assert found["addonsConfig"]["gcpFilestoreCsiDriverConfig"] == {"enabled": True}
    assert sorted(found["locations"]) == sorted(desired.zones)
    assert {place: _held(found, place) for place in _UNSET_OF_CLUSTER} == dict.fromkeys(_UNSET_OF_CLUSTER)
    assert found["networkConfig"]["datapathProvider"] == "ADVANCED_DATAPATH"
    desired.labelled(found["resourceLabels"])


def check_node_pools(world: World, desired: Cluster) -> None:
    found = world.get("container", f"{world.place(desired.name)}/nodePools")["nodePools"]
    # That which GKE would make by itself is not there.
    assert {each["name"] for each in found} == set(desired.all_pools)
    _check_rights_of_nodes(world, {each["config"]["serviceAccount"] for each in found})
    for each in found:
        _check_pool(desired, desired.all_pools[each["name"]], each)


def _check_rights_of_nodes(world: World, accounts: set[str]) -> None:
    """All nodes are one account, which may no more than nodes need."""
    (account,) = accounts
    roles = {each["role"] for each in world.policy() if f"serviceAccount:{account}" in each["members"]}
    assert roles == {"roles/container.defaultNodeServiceAccount", "roles/artifactregistry.reader"}


def _check_pool(desired: Cluster, pool: NodePool, found: Object) -> None:
    config = found["config"]
    assert found["status"] == "RUNNING", found
    assert found["version"].startswith(f"{desired.version}.")
    assert (config["machineType"], config["diskSizeGb"], config["imageType"]) == (
        pool.machine,
        pool.disk,
        "COS_CONTAINERD",
    )
    assert config["oauthScopes"] == _SCOPES
    scaling = found["autoscaling"]
    least, most, first = pool.bounds
    assert scaling["enabled"] is True
    assert (scaling.get("minNodeCount", 0), scaling["maxNodeCount"]) == (least, most), found["name"]
    assert found.get("initialNodeCount", 0) == first
    assert sorted(found["locations"]) == sorted(pool.zones or desired.zones)
    labels = pool.labels(found["name"])
    assert config["labels"] == labels
    if pool.accelerator:
        assert config["accelerators"] == [
            {
                "acceleratorType": pool.accelerator,
                "acceleratorCount": str(pool.accelerators),
                "gpuDriverInstallationConfig": {"gpuDriverVersion": "DEFAULT"},
            }
        ]
    else:
        assert not config.get("accelerators")
    assert config.get("taints", []) == ([_GPU_TAINT] if pool.accelerator else [])
    # Nodes are an account of their own, with no more than the rights of nodes.
    assert config["serviceAccount"] != "default"
    assert config["shieldedInstanceConfig"] == {"enableSecureBoot": True, "enableIntegrityMonitoring": True}
    spare = {"strategy": "SURGE", "maxUnavailable": 1} if pool.accelerator else {"strategy": "SURGE", "maxSurge": 1}
    assert found["upgradeSettings"] == spare
    assert found["management"] == {"autoUpgrade": True, "autoRepair": True}
    assert {place: _held(found, place) for place in _UNSET_OF_POOL} == dict.fromkeys(_UNSET_OF_POOL)
    desired.labelled(config["resourceLabels"])


def _held(value: Any, path: str) -> Any:
    """The object at a place; None where there is none."""
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value or None


# In the cluster


def check_storage_class(desired: Cluster, plane: ControlPlane) -> None:
    found = plane.get("storage.k8s.io/v1", "StorageClass", "modelplane-rwx")
    assert found is not None
    assert (found["provisioner"], found["volumeBindingMode"]) == ("filestore.csi.storage.gke.io", "Immediate")
    assert found["parameters"] == {"tier": "enterprise", "network": desired.gke_name}
    assert found["allowVolumeExpansion"] is True
    # Defaults of the API server.
    assert found.get("reclaimPolicy", "Delete") == "Delete"
    assert not any(key in found for key in ("mountOptions", "allowedTopologies"))
    assert "storageclass.kubernetes.io/is-default-class" not in found["metadata"].get("annotations", {})


CHECKS = (
    check_network,
    check_subnetwork,
    check_nothing_else,
    check_service,
    check_service_account,
    check_rights,
    check_cluster,
    check_node_pools,
)
