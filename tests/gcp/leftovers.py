# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""What Kubernetes leaves in a project when a cluster goes before its services and volumes do."""

from __future__ import annotations

import json
import uuid
from typing import Any

from . import compute, filestore
from .operations import compute_link
from .wire import Json
from .world import World


def load_balancer(world: World, cluster: str, service: str = "", internal: bool = False) -> list[str]:
    """A load balancer of a service (NAMESPACE/NAME) of the type LoadBalancer, as GKE makes it. Its paths.

    One that is reached from outside is a forwarding rule to a target pool, and says nothing of the network; the
    firewall rules beside it do. One from inside is a forwarding rule to a backend service.
    """
    found = _cluster(world, cluster)
    project, region = found.project, found.location
    service = service or "envoy-gateway-system/fleet"
    name = f"a{uuid.uuid5(uuid.NAMESPACE_URL, found.path + service).hex}"[:32]
    network, subnetwork = compute_link(found.network), compute_link(found.subnetwork)
    address = "10.0.0.9" if internal else "34.66.0.9"
    described = json.dumps({"kubernetes.io/service-name": service, "kubernetes.io/service-ip": address})
    tag = f"gke-{found.name[:30]}-{found.uid}-node"
    made: list[tuple[str, Json]] = [
        (
            f"projects/{project}/global/firewalls",
            _firewall(f"k8s-fw-{name}", network, tag, described, [{"IPProtocol": "tcp", "ports": ["80"]}]),
        )
    ]
    regional = f"projects/{project}/regions/{region}"
    rule: Json = {"name": name, "description": described, "IPAddress": address, "IPProtocol": "TCP"}
    if internal:
        group = {"name": f"k8s-ig--{found.uid}", "network": network, "subnetwork": subnetwork}
        check: Json = {"name": f"k8s-{found.uid}-node", "type": "HTTP", "description": described}
        groups, checks = (
            f"projects/{project}/zones/{found.zones[0]}/instanceGroups",
            f"projects/{project}/global/healthChecks",
        )
        backend = {
            "name": name,
            "description": described,
            "loadBalancingScheme": "INTERNAL",
            "protocol": "TCP",
            "network": network,
            "healthChecks": [compute_link(f"{checks}/{check['name']}")],
            "backends": [{"group": compute_link(f"{groups}/{group['name']}"), "balancingMode": "CONNECTION"}],
        }
        rule |= {
            "loadBalancingScheme": "INTERNAL",
            "backendService": compute_link(f"{regional}/backendServices/{name}"),
            "network": network,
            "subnetwork": subnetwork,
            "ports": ["80"],
        }
        allowed = [{"IPProtocol": "tcp", "ports": ["10256"]}]
        health = _firewall(f"k8s-{found.uid}-node-hc", network, tag, "", allowed)
        made += [
            (groups, group),
            (checks, check),
            (f"{regional}/backendServices", backend),
            (f"projects/{project}/global/firewalls", health),
        ]
    else:
        check = {"name": f"k8s-{found.uid}-node", "port": 10256, "requestPath": "/healthz"}
        checks = f"projects/{project}/global/httpHealthChecks"
        pool = {
            "name": name,
            "description": described,
            "sessionAffinity": "NONE",
            "healthChecks": [compute_link(f"{checks}/{check['name']}")],
            "instances": [compute_link(machine) for machine in found.machines()],
        }
        rule |= {
            "loadBalancingScheme": "EXTERNAL",
            "target": compute_link(f"{regional}/targetPools/{name}"),
            "portRange": "80-80",
            "networkTier": "PREMIUM",
        }
        allowed = [{"IPProtocol": "tcp", "ports": ["10256"]}]
        health = _firewall(f"k8s-{found.uid}-node-http-hc", network, tag, '{"kubernetes.io/cluster-id":"x"}', allowed)
        made += [(checks, check), (f"{regional}/targetPools", pool), (f"projects/{project}/global/firewalls", health)]
    made.append((f"{regional}/forwardingRules", rule))
    for collection, body in made:
        compute.plant(world, collection, body)
    return [f"{collection}/{body['name']}" for collection, body in made]


def volume(
    world: World, cluster: str, claim: str = "models", network: str = "", tier: str = "ENTERPRISE", **labels: Any
) -> str:
    """An instance of Filestore that the driver has made for a claim of a volume. Its path."""
    found = _cluster(world, cluster)
    name = f"pvc-{uuid.uuid5(uuid.NAMESPACE_URL, found.path + claim)}"
    location = found.location if tier == "ENTERPRISE" else found.zones[0]
    told = {
        "kubernetes_io_created-for_pvc_name": claim,
        "kubernetes_io_created-for_pvc_namespace": "models",
        "storage_gke_io_created-by": "filestore_csi_storage_gke_io",
        "storage_gke_io_cluster_name": found.name,
        **labels,
    }
    return filestore.plant(
        world, found.project, location, name, network or found.network.rpartition("/")[2], told, tier
    )


def _cluster(world: World, name: str) -> Any:
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
