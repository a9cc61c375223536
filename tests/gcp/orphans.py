# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Orphans that Kubernetes leaves in a project when a cluster goes before its services and volumes do."""

from __future__ import annotations

import json
import uuid
from typing import Any

from . import compute, filestore
from .model import Cluster
from .operations import compute_link
from .wire import Json
from .world import World


def load_balancer(world: World, cluster: str, service: str = "", internal: bool = False) -> list[str]:
    """A load balancer of a service (NAMESPACE/NAME) of the type LoadBalancer, as GKE makes it. Its paths.

    One that is reached from outside is a forwarding rule to a target pool, and says nothing of the network; the
    firewall rules beside it do. One from inside is a forwarding rule to a backend service.
    """
    found = _cluster(world, cluster)
    service = service or "envoy-gateway-system/fleet"
    name = f"a{uuid.uuid5(uuid.NAMESPACE_URL, found.path + service).hex}"[:32]
    address = "10.0.0.9" if internal else "34.66.0.9"
    described = json.dumps({"kubernetes.io/service-name": service, "kubernetes.io/service-ip": address})
    allowed = [{"IPProtocol": "tcp", "ports": ["80"]}]
    parts, way = (_from_inside if internal else _from_outside)(found, name, described)
    rule = {"name": name, "description": described, "IPAddress": address, "IPProtocol": "TCP", **way}
    made = [
        (_firewalls(found), _firewall(f"k8s-fw-{name}", compute_link(found.network), _tag(found), described, allowed)),
        *parts,
        (f"{_regional(found)}/forwardingRules", rule),
    ]
    for collection, body in made:
        compute.plant(world, collection, body)
    return [f"{collection}/{body['name']}" for collection, body in made]


_Parts = list[tuple[str, Json]]
"""Objects, each with the collection that it is in."""


def _from_inside(found: Cluster, name: str, described: str) -> tuple[_Parts, Json]:
    """Return what a forwarding rule to a backend service needs, and the fields with which it refers to that."""
    network, tag = compute_link(found.network), _tag(found)
    groups = f"projects/{found.project}/zones/{found.zones[0]}/instanceGroups"
    checks = f"projects/{found.project}/global/healthChecks"
    services = f"{_regional(found)}/backendServices"
    group = {"name": f"k8s-ig--{found.uid}", "network": network, "subnetwork": compute_link(found.subnetwork)}
    check: Json = {"name": f"k8s-{found.uid}-node", "type": "HTTP", "description": described}
    backend = {
        "name": name,
        "description": described,
        "loadBalancingScheme": "INTERNAL",
        "protocol": "TCP",
        "network": network,
        "healthChecks": [compute_link(f"{checks}/{check['name']}")],
        "backends": [{"group": compute_link(f"{groups}/{group['name']}"), "balancingMode": "CONNECTION"}],
    }
    health = _firewall(f"k8s-{found.uid}-node-hc", network, tag, "", _HEALTH)
    way = {
        "loadBalancingScheme": "INTERNAL",
        "backendService": compute_link(f"{services}/{name}"),
        "network": network,
        "subnetwork": group["subnetwork"],
        "ports": ["80"],
    }
    return [(groups, group), (checks, check), (services, backend), (_firewalls(found), health)], way


def _from_outside(found: Cluster, name: str, described: str) -> tuple[_Parts, Json]:
    """Return what a forwarding rule to a target pool needs, and the fields with which it refers to that."""
    checks = f"projects/{found.project}/global/httpHealthChecks"
    pools = f"{_regional(found)}/targetPools"
    check: Json = {"name": f"k8s-{found.uid}-node", "port": 10256, "requestPath": "/healthz"}
    pool = {
        "name": name,
        "description": described,
        "sessionAffinity": "NONE",
        "healthChecks": [compute_link(f"{checks}/{check['name']}")],
        "instances": [compute_link(machine) for machine in found.machines()],
    }
    message = '{"kubernetes.io/cluster-id":"x"}'
    health = _firewall(f"k8s-{found.uid}-node-http-hc", compute_link(found.network), _tag(found), message, _HEALTH)
    way = {
        "loadBalancingScheme": "EXTERNAL",
        "target": compute_link(f"{pools}/{name}"),
        "portRange": "80-80",
        "networkTier": "PREMIUM",
    }
    return [(checks, check), (pools, pool), (_firewalls(found), health)], way


_HEALTH = [{"IPProtocol": "tcp", "ports": ["10256"]}]


def _firewalls(found: Cluster) -> str:
    return f"projects/{found.project}/global/firewalls"


def _regional(found: Cluster) -> str:
    return f"projects/{found.project}/regions/{found.location}"


def _tag(found: Cluster) -> str:
    """The network tag of the nodes."""
    return f"gke-{found.name[:30]}-{found.uid}-node"


def volume(
    world: World, cluster: str, claim: str = "models", network: str = "", tier: str = "ENTERPRISE", **labels: Any
) -> str:
    """An instance of Filestore that the driver has made for a claim of a volume. Its path."""
    found = _cluster(world, cluster)
    name = f"pvc-{uuid.uuid5(uuid.NAMESPACE_URL, found.path + claim)}"
    location = found.location if tier == "ENTERPRISE" else found.zones[0]
    message = {
        "kubernetes_io_created-for_pvc_name": claim,
        "kubernetes_io_created-for_pvc_namespace": "models",
        "storage_gke_io_created-by": "filestore_csi_storage_gke_io",
        "storage_gke_io_cluster_name": found.name,
        **labels,
    }
    return filestore.plant(
        world, found.project, location, name, network or found.network.rpartition("/")[2], message, tier
    )


def _cluster(world: World, name: str) -> Cluster:
    for cluster in world.clusters.values():
        if cluster.name == name:
            return cluster
    raise ValueError(f"there is no cluster {name}")


def _firewall(name: str, network: str, tag: str, description: str, allowed: list[Json]) -> Json:
    return {
        "name": name,
        "network": network,
        "description": description,
        "direction": "INGRESS",
        "priority": 1000,
        "disabled": False,
        "sourceRanges": ["0.0.0.0/0"],
        "targetTags": [tag],
        "allowed": allowed,
    }
