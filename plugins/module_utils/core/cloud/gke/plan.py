# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Plan of a GKECluster: all its Google Cloud objects, each with the fields of its API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from ... import api
from .. import pools
from ..bodies import merged, resource
from ..engine.kinds import Resource
from ..names import kubeconfig_secret
from ..validation import require
from . import names, node_pools, reading, validation

FLEET = "default"
STORAGE_CLASS = "modelplane-rwx"
FILESTORE = "file.googleapis.com"
ROLE = "roles/container.admin"
DATAPATH = "ADVANCED_DATAPATH"
"""Dataplane V2, which enforces network policies. It can only be enabled when a cluster is created."""
NODE_ROLES = ("roles/container.defaultNodeServiceAccount", "roles/artifactregistry.reader")
"""Roles of nodes: the minimum role for GKE (logs, metrics), and access to images of the project."""
PODS, SERVICES = "pods", "services"
"""Names of the secondary ranges of the subnetwork."""


@dataclass(frozen=True)
class Options:
    """Options of a plan. `labels`: additional labels for all Google Cloud objects that support labels."""

    labels: Mapping[str, str] = field(default_factory=dict)


def plan(
    manifest: Mapping[str, Any], project: str = "", fleet: str = FLEET, options: Options | None = None
) -> dict[str, Any]:
    """Return the plan of a GKECluster (wire form). `project`: default project.

    Raises InvalidClusterError with all problems of the manifest.
    """
    chosen = options or Options()
    cluster = validation.VALIDATION.valid(manifest)
    project = cluster.project or project
    require([*validation.of_project(cluster, project), *validation.of_options(chosen.labels)])
    name = names.cluster_name(cluster.namespace, cluster.name)
    labels = {**chosen.labels, **names.labels(name, fleet)}
    email = names.email(names.account_id(cluster.namespace, cluster.name), project)
    return {
        "object": {"namespace": cluster.namespace, "name": cluster.name},
        "name": name,
        "project": project,
        "region": cluster.region,
        "version": cluster.version,
        "labels": labels,
        "service_account": email,
        "node_account": cluster.settings.node_service_account
        or names.email(names.node_account_id(cluster.namespace, cluster.name), project),
        "obsolete": [] if _has_nat(cluster) else [_router_of(cluster, project, name, labels)],
        "resources": _resources(cluster, project, name, labels, email),
        "storage_class": _storage_class(name),
        "secrets": {
            "kubeconfig": {
                "namespace": cluster.namespace,
                "name": kubeconfig_secret(cluster.name),
                "key": "kubeconfig",
            },
            "service_account_key": {
                "namespace": cluster.namespace,
                "name": names.key_secret(cluster.name),
                "key": "private_key",
            },
        },
    }


def _resources(
    cluster: reading.GkeCluster, project: str, name: str, labels: Mapping[str, str], email: str
) -> list[Resource]:
    """Return the objects to create, each after its dependencies."""
    project_path, region = f"projects/{project}", f"projects/{project}/regions/{cluster.region}"
    location = f"projects/{project}/locations/{cluster.region}"
    owner = names.description(labels)
    ordered = sorted(cluster.pools, key=lambda pool: pool["role"] != pools.SYSTEM)
    given_account = cluster.settings.node_service_account or ""
    created_account = (
        "" if given_account else names.email(names.node_account_id(cluster.namespace, cluster.name), project)
    )
    pool_bodies = [
        (node_pools.node_pool(pool, labels, cluster.version, given_account), node_pools.initial(pool, created_account))
        for pool in ordered
    ]
    rights = list(_node_account(cluster, created_account, project_path, owner)) if created_account else []
    router = [_router(name, region, project_path, owner)] if _has_nat(cluster) else []
    return [
        _entry(
            "network", "network", name, f"{project_path}/global", {"autoCreateSubnetworks": False, "description": owner}
        ),
        _entry("service-filestore", "service", FILESTORE, project_path, {}),
        _entry("subnetwork", "subnetwork", name, region, _subnetwork(cluster, project_path, name, owner), ("network",)),
        *router,
        *rights,
        _entry(
            "cluster",
            "cluster",
            name,
            location,
            _cluster(cluster, project, name, labels, merged(*pool_bodies[0])),
            ("network", "subnetwork", *(entry["key"] for entry in (*router, *rights))),
            {} if cluster.settings.datapath_provider else {"networkConfig": {"datapathProvider": DATAPATH}},
        ),
        *(
            _entry(
                f"pool-{pool['name']}",
                "node-pool",
                pool["name"],
                f"{location}/clusters/{name}",
                pool,
                ("cluster",),
                initial,
            )
            for pool, initial in pool_bodies
        ),
        *_fleet_account(cluster, email, project_path, owner),
    ]


def _router_of(cluster: reading.GkeCluster, project: str, name: str, labels: Mapping[str, str]) -> Resource:
    """Return the router of the cluster from the time when its nodes were private, to remove it with the cluster."""
    project_path = f"projects/{project}"
    return _router(name, f"{project_path}/regions/{cluster.region}", project_path, names.description(labels))


def _has_nat(cluster: reading.GkeCluster) -> bool:
    return cluster.settings.private_nodes and cluster.settings.cloud_nat


def _router(name: str, region: str, project_path: str, owner: str) -> Resource:
    """Return the router of the network, with a NAT for all traffic of nodes and pods without an external address."""
    nat = {
        "name": "nat",
        "natIpAllocateOption": "AUTO_ONLY",
        "sourceSubnetworkIpRangesToNat": "ALL_SUBNETWORKS_ALL_IP_RANGES",
        # Many pods of a node open many connections, and the default of 64 ports is soon exhausted.
        "enableDynamicPortAllocation": True,
        "enableEndpointIndependentMapping": False,
    }
    body = {"description": owner, "network": f"{project_path}/global/networks/{name}", "nats": [nat]}
    return _entry("router", "router", name, region, body, ("network",))


def _fleet_account(cluster: reading.GkeCluster, email: str, project_path: str, owner: str) -> Iterator[Resource]:
    """Yield the service account of the fleet for the cluster, and its role."""
    body = {"displayName": _display_name(cluster.name), "description": owner}
    yield _entry("service-account", "service-account", email, project_path, body)
    right = {"role": ROLE, "member": f"serviceAccount:{email}"}
    yield _entry("iam-member", "iam-member", f"{ROLE} of {email}", project_path, right, ("service-account",))


def _node_account(cluster: reading.GkeCluster, email: str, project_path: str, owner: str) -> Iterator[Resource]:
    """Yield the service account of nodes, and its roles in the project."""
    body = {"displayName": f"Nodes of GKECluster {cluster.name}"[:100], "description": owner}
    yield _entry("node-service-account", "service-account", email, project_path, body)
    for role in NODE_ROLES:
        right = {"role": role, "member": f"serviceAccount:{email}"}
        key = f"node-iam-member-{role.rpartition('.')[2].lower()}"
        yield _entry(key, "iam-member", f"{role} of {email}", project_path, right, ("node-service-account",))


def _entry(
    key: str,
    kind: str,
    name: str,
    parent: str,
    body: Mapping[str, Any],
    needs: Sequence[str] = (),
    initial: Mapping[str, Any] | None = None,
) -> Resource:
    """Return an entry of the list. `initial`: fields for the creation that are not compared later."""
    name_field = {} if kind in ("service", "service-account", "iam-member") else {"name": name}
    return resource(key, kind, name, parent, {**name_field, **body}, needs, initial)


def _subnetwork(cluster: reading.GkeCluster, project_path: str, name: str, owner: str) -> dict[str, Any]:
    return {
        "description": owner,
        "network": f"{project_path}/global/networks/{name}",
        "ipCidrRange": cluster.node_cidr,
        # Private nodes reach Google APIs without the NAT: images in Artifact Registry, models in Cloud Storage.
        "privateIpGoogleAccess": True,
        "secondaryIpRanges": [
            {"rangeName": PODS, "ipCidrRange": cluster.pod_cidr},
            {"rangeName": SERVICES, "ipCidrRange": cluster.service_cidr},
        ],
    }


def _cluster(
    cluster: reading.GkeCluster, project: str, name: str, labels: Mapping[str, str], first: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the cluster with its first pool. GKE creates no cluster without nodes, and adds a default pool if none is
    set."""
    return {
        "initialClusterVersion": cluster.version,
        "network": f"projects/{project}/global/networks/{name}",
        "subnetwork": f"projects/{project}/regions/{cluster.region}/subnetworks/{name}",
        "ipAllocationPolicy": {
            "useIpAliases": True,
            "clusterSecondaryRangeName": PODS,
            "servicesSecondaryRangeName": SERVICES,
        },
        "releaseChannel": {"channel": "REGULAR"},
        "workloadIdentityConfig": {"workloadPool": f"{project}.svc.id.goog"},
        "addonsConfig": {"gcpFilestoreCsiDriverConfig": {"enabled": True}},
        "resourceLabels": dict(labels),
        **_of_settings(cluster),
        # The pool has the version of the cluster.
        "nodePools": [{key: deepcopy(value) for key, value in first.items() if key != "version"}],
    }


def _of_settings(cluster: reading.GkeCluster) -> dict[str, Any]:
    """Return the fields of a cluster for settings of the manifest."""
    settings = cluster.settings
    fields: dict[str, Any] = {"networkConfig": {"defaultEnablePrivateNodes": settings.private_nodes}}
    if settings.datapath_provider:
        fields["networkConfig"]["datapathProvider"] = settings.datapath_provider
    if any(node_pools.has_networks(pool) for pool in cluster.pools):
        fields["networkConfig"]["enableMultiNetworking"] = True
    if settings.master_authorized_networks:
        blocks = [api.wire(network) for network in settings.master_authorized_networks]
        fields["masterAuthorizedNetworksConfig"] = {"enabled": True, "cidrBlocks": blocks}
    if settings.database_encryption:
        fields["databaseEncryption"] = {"state": "ENCRYPTED", "keyName": settings.database_encryption.key_name}
    return fields


def _display_name(name: str) -> str:
    """Return the display name of a service account. IAM allows at most 100 bytes."""
    return f"Crossplane GKECluster {name}"[:100]


def _storage_class(network: str) -> dict[str, Any]:
    """Return the StorageClass of volumes on Filestore, with one instance each.

    Without the network, the driver uses the network `default`, and no node of the cluster is in that network.
    """
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": STORAGE_CLASS},
        "provisioner": "filestore.csi.storage.gke.io",
        "parameters": {"tier": "enterprise", "network": network},
        "volumeBindingMode": "Immediate",
        "allowVolumeExpansion": True,
    }
