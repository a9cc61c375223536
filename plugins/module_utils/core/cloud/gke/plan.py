# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A GKECluster as all that is made for it in Google Cloud: each object with the fields that its API takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud import pools
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.gke import faults, names, node_pools, reading
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.gke.faults import GkeError
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.names import kubeconfig_secret

FLEET = "default"
STORAGE_CLASS = "modelplane-rwx"
FILESTORE = "file.googleapis.com"
ROLE = "roles/container.admin"
PODS, SERVICES = "pods", "services"
"""Names of the secondary ranges of the subnetwork."""


@dataclass(frozen=True)
class Options:
    """`labels`: more of them for everything in Google Cloud that takes labels. `dra_labels`: whether nodes with GPUs
    get also the labels that keep GKE's own device plugin off them."""

    labels: Mapping[str, str] = field(default_factory=dict)
    dra_labels: bool = False


def problems(cluster: Mapping[str, Any], others: Sequence[Mapping[str, Any]] = ()) -> list[str]:
    """What is wrong with a GKECluster (wire form), by itself and beside others, a line each."""
    return [str(problem) for problem in faults.found(cluster, faults.neighbours(others))]


def plan(
    cluster: Mapping[str, Any], project: str = "", fleet: str = FLEET, options: Options | None = None
) -> dict[str, Any]:
    """What a GKECluster (wire form) becomes, in `project` unless it says one itself.

    Raises GkeError with all that is wrong with it.
    """
    chosen = options or Options()
    faulty = faults.found(cluster)
    if faulty:
        raise GkeError(faulty)
    read = reading.read(cluster)
    project = read.project or project
    faulty = [*faults.of_project(read, project), *faults.of_options(chosen.labels)]
    if faulty:
        raise GkeError(faulty)
    name = names.cluster_name(read.namespace, read.name)
    labels = {**chosen.labels, **names.labels(name, fleet)}
    email = names.email(names.account_id(read.namespace, read.name), project)
    return {
        "object": {"namespace": read.namespace, "name": read.name},
        "name": name,
        "project": project,
        "region": read.region,
        "version": read.version,
        "labels": labels,
        "service_account": email,
        "resources": _resources(read, project, name, labels, email, dra_labels=chosen.dra_labels),
        "storage_class": _storage_class(name),
        "secrets": {
            "kubeconfig": {"namespace": read.namespace, "name": kubeconfig_secret(read.name), "key": "kubeconfig"},
            "service_account_key": {
                "namespace": read.namespace,
                "name": names.key_secret(read.name),
                "key": "private_key",
            },
        },
    }


def _resources(
    read: reading.Read, project: str, name: str, labels: Mapping[str, str], email: str, *, dra_labels: bool
) -> list[dict[str, Any]]:
    """What is made, each after what it needs."""
    inside, region = f"projects/{project}", f"projects/{project}/regions/{read.region}"
    location = f"projects/{project}/locations/{read.region}"
    mark = names.description(labels)
    ordered = sorted(read.pools, key=lambda pool: pool["role"] != pools.SYSTEM)
    made = [node_pools.node_pool(pool, labels, read.version, dra_labels=dra_labels) for pool in ordered]
    return [
        _entry("network", "network", name, f"{inside}/global", {"autoCreateSubnetworks": False, "description": mark}),
        _entry("service-filestore", "service", FILESTORE, inside, {}),
        _entry("subnetwork", "subnetwork", name, region, _subnetwork(read, inside, name, mark), ("network",)),
        _entry(
            "cluster",
            "cluster",
            name,
            location,
            _cluster(read, project, name, labels, made[0]),
            ("network", "subnetwork"),
        ),
        *(
            _entry(f"pool-{pool['name']}", "node-pool", pool["name"], f"{location}/clusters/{name}", pool, ("cluster",))
            for pool in made
        ),
        _entry(
            "service-account",
            "service-account",
            email,
            inside,
            {"displayName": _display_name(read.name), "description": mark},
        ),
        _entry(
            "iam-member",
            "iam-member",
            f"{ROLE} of {email}",
            inside,
            {"role": ROLE, "member": f"serviceAccount:{email}"},
            ("service-account",),
        ),
    ]


def _entry(
    key: str, kind: str, name: str, parent: str, body: Mapping[str, Any], needs: Sequence[str] = ()
) -> dict[str, Any]:
    named = {} if kind in ("service", "service-account", "iam-member") else {"name": name}
    return {
        "key": key,
        "kind": kind,
        "name": name,
        "parent": parent,
        "body": {**named, **body},
        "needs": list(needs),
    }


def _subnetwork(read: reading.Read, inside: str, name: str, mark: str) -> dict[str, Any]:
    return {
        "description": mark,
        "network": f"{inside}/global/networks/{name}",
        "ipCidrRange": read.node_cidr,
        "secondaryIpRanges": [
            {"rangeName": PODS, "ipCidrRange": read.pod_cidr},
            {"rangeName": SERVICES, "ipCidrRange": read.service_cidr},
        ],
    }


def _cluster(
    read: reading.Read, project: str, name: str, labels: Mapping[str, str], first: Mapping[str, Any]
) -> dict[str, Any]:
    """The cluster with its first pool: GKE makes none without nodes, and one of its own choice if none is given."""
    return {
        "initialClusterVersion": read.version,
        "network": f"projects/{project}/global/networks/{name}",
        "subnetwork": f"projects/{project}/regions/{read.region}/subnetworks/{name}",
        "ipAllocationPolicy": {
            "useIpAliases": True,
            "clusterSecondaryRangeName": PODS,
            "servicesSecondaryRangeName": SERVICES,
        },
        "releaseChannel": {"channel": "REGULAR"},
        "workloadIdentityConfig": {"workloadPool": f"{project}.svc.id.goog"},
        "addonsConfig": {"gcpFilestoreCsiDriverConfig": {"enabled": True}},
        "resourceLabels": dict(labels),
        # Its version is that of the cluster.
        "nodePools": [{key: deepcopy(value) for key, value in first.items() if key != "version"}],
    }


def _display_name(name: str) -> str:
    """At most 100 bytes, as IAM has it."""
    return f"Crossplane GKECluster {name}"[:100]


def _storage_class(network: str) -> dict[str, Any]:
    """Of volumes on Filestore, an instance for each. Without the network the driver takes the one named default, where
    no node of the cluster is."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": STORAGE_CLASS},
        "provisioner": "filestore.csi.storage.gke.io",
        "parameters": {"tier": "enterprise", "network": network},
        "volumeBindingMode": "Immediate",
        "allowVolumeExpansion": True,
    }
