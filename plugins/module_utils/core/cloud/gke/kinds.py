# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Table of the kinds of objects in Google Cloud for the engine: their creation, and the updates of their fields.

The `parent` of an object is the path of its scope, such as `projects/p/global`.

===============  ====================  ================================  ==============================================
kind             service, collection   created by POST to collection     updated by
===============  ====================  ================================  ==============================================
network          compute networks      the body                          nothing
subnetwork       compute subnetworks   the body                          PATCH with fingerprint, POST expandIpCidrRange
router           compute routers       the body                          PATCH
service          serviceusage services POST NAME:enable                  nothing, and never deleted
cluster          container clusters    {"cluster": body}                 PUT {"update": {one desired*}},
                                                                         POST :setResourceLabels with labelFingerprint
node-pool        container nodePools   {"nodePool": body}                PUT {fields of UpdateNodePoolRequest},
                                                                         POST :setSize, POST :setAutoscaling
service-account  iam serviceAccounts   {"accountId", "serviceAccount"}   PATCH {"serviceAccount", "updateMask"}
iam-member       cloudresourcemanager  POST P:setIamPolicy with what     the same
                 (policy of P)         POST P:getIamPolicy answered
===============  ====================  ================================  ==============================================

The other modules of this package are pure, too: requests.py has the calls that find, create, update, list and delete an
object, compare.py comparisons that are specific to Google, policies.py members of a policy, operations.py operations,
orphans.py orphans of a cluster, hints.py hints for errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..engine import compare, kinds
from ..engine.kinds import Field, Phase
from . import compare as gke_compare

SERVICES = {
    "compute": "https://compute.googleapis.com",
    "container": "https://container.googleapis.com",
    "iam": "https://iam.googleapis.com",
    "serviceusage": "https://serviceusage.googleapis.com",
    "cloudresourcemanager": "https://cloudresourcemanager.googleapis.com",
    "file": "https://file.googleapis.com",
    "cloudbilling": "https://cloudbilling.googleapis.com",
}
"""The services, and their base URLs unless the arguments override them. Paths are added to these URLs."""
VERSIONS = {name: "compute/v1" if name == "compute" else "v1" for name in SERVICES}
"""Prefixes of the paths of services."""

OPERATIONS = ("compute", "container", "serviceusage", "file")
"""The services that return operations for changes. Changes of the other services are complete with the response."""

_STATES: Mapping[str, tuple[str, Mapping[str, Phase]]] = {
    "compute": ("state", {"READY": "ready"}),
    "container": (
        "status",
        {
            "RUNNING": "ready",
            "PROVISIONING": "creating",
            "DEGRADED": "degraded",
            "RUNNING_WITH_ERROR": "degraded",
            "ERROR": "failed",
            "STOPPING": "deleting",
        },
    ),
    "serviceusage": ("state", {"ENABLED": "ready"}),
    "cloudresourcemanager": ("state", {"DELETED": "failed"}),
}
"""By service: the field with the state of an object, and the phases. Kinds without states do not have the field."""
_AGAIN = "or remove the cluster and provision it again"
_NETWORK = f"Google cannot change it. Set it back, {_AGAIN}"


@dataclass(frozen=True, kw_only=True)
class Kind(kinds.Kind):
    """A kind of object in Google Cloud.

    `wrap`: the key of the body in the request that creates the object. `update_only`: fields of a body that are not
    sent to create it.
    """

    service: str
    collection: str
    wrap: str = ""
    update_only: tuple[str, ...] = ()


_DATAPATH = f"Google cannot change it. Remove spec.datapathProvider, {_AGAIN}"
_RENEWED = "all its nodes are replaced"
_NEW_POOL = "Google cannot change it: give the pool a new name, so that a new one is created and the old one deleted"


def _kind(service: str, collection: str, title: str, *fields: Field, **options: Any) -> Kind:
    """Return a kind of object with the states of its service."""
    status, phases = _STATES.get(service, ("", {}))
    options |= {"status": status, "phases": phases}
    return Kind(service=service, collection=collection, title=title, fields=fields, **options)


KINDS: dict[str, Kind] = {
    "network": _kind(
        "compute",
        "networks",
        "VPC network",
        Field("autoCreateSubnetworks", remediation=_NETWORK),
        owner="description",
    ),
    "subnetwork": _kind(
        "compute",
        "subnetworks",
        "subnetwork",
        Field("network", gke_compare.reference, remediation=_NETWORK),
        Field("privateIpGoogleAccess", update="private access"),
        Field(
            "ipCidrRange",
            update="expand",
            possible=gke_compare.wider,
            remediation=f"The range of nodes can only grow. Set spec.networking.nodeCidr back to {{before}}, {_AGAIN}",
        ),
        Field(
            "secondaryIpRanges",
            compare.keyed("rangeName"),
            update="ranges",
            compared=gke_compare.own_ranges,
            possible=gke_compare.more_ranges,
            remediation="Google cannot change a range that is in use. Set spec.networking.podCidr and serviceCidr "
            f"back, {_AGAIN}",
        ),
        owner="description",
    ),
    "router": _kind(
        "compute",
        "routers",
        "Cloud Router with NAT",
        Field("network", gke_compare.reference, remediation=_NETWORK),
        Field("nats", compare.keyed("name", exactly=True), update="nats"),
        owner="description",
    ),
    "service": _kind("serviceusage", "services", "API", never_deleted=True),
    "cluster": _kind(
        "container",
        "clusters",
        "GKE cluster",
        Field("network", gke_compare.reference, remediation=_NETWORK),
        Field("subnetwork", gke_compare.reference, remediation=_NETWORK),
        Field("ipAllocationPolicy", compare.subset, remediation=_NETWORK),
        Field("resourceLabels", compare.labels, update="labels"),
        Field("releaseChannel", compare.subset, update="channel"),
        Field("initialClusterVersion", gke_compare.version, actual="currentMasterVersion", update="version"),
        Field("workloadIdentityConfig", compare.subset, update="identity"),
        Field("addonsConfig", compare.subset, update="addons"),
        Field("masterAuthorizedNetworksConfig", gke_compare.authorized_networks, update="authorized networks"),
        Field("databaseEncryption", compare.subset, update="encryption"),
        Field("networkConfig.datapathProvider", gke_compare.datapath, remediation=_DATAPATH),
        Field("networkConfig.enableMultiNetworking", update="multi-networking"),
        Field("networkConfig.defaultEnablePrivateNodes", update="private nodes"),
        wrap="cluster",
        usual="5 to 10 min",
        owner="resourceLabels",
    ),
    "node-pool": _kind(
        "container",
        "nodePools",
        "node pool",
        Field("config.oauthScopes", compare.superset, remediation=_NEW_POOL),
        Field("config.resourceLabels", compare.labels, update="labels of machines"),
        Field("config.labels", gke_compare.node_labels, update="labels", compared=gke_compare.own_node_labels),
        Field("config.taints", gke_compare.taints, update="taints", compared=gke_compare.own_taints),
        Field("config.machineType", update="machine", effect=_RENEWED),
        Field("config.diskSizeGb", update="machine", effect=_RENEWED),
        Field("config.imageType", update="machine", effect=_RENEWED),
        Field("config.accelerators", compare.keyed("acceleratorType", exactly=True), update="machine", effect=_RENEWED),
        Field("config.gvnic", compare.subset, update="gvnic"),
        Field("config.serviceAccount", gke_compare.node_account, remediation=_NEW_POOL),
        Field("config.spot", remediation=_NEW_POOL),
        Field("config.flexStart", remediation=_NEW_POOL),
        Field("config.maxRunDuration", remediation=_NEW_POOL),
        Field("config.reservationAffinity", compare.subset, remediation=_NEW_POOL),
        Field("config.shieldedInstanceConfig", compare.subset, remediation=_NEW_POOL),
        Field("placementPolicy", compare.subset, remediation=_NEW_POOL),
        Field("networkConfig.acceleratorNetworkProfile", remediation=_NEW_POOL),
        Field("networkConfig.additionalNodeNetworkConfigs", gke_compare.networks, remediation=_NEW_POOL),
        Field("upgradeSettings", compare.subset, update="upgrade settings"),
        Field("locations", compare.members, update="locations"),
        Field("autoscaling", compare.subset, update="autoscaling"),
        Field("version", gke_compare.version, update="version", effect=_RENEWED),
        wrap="nodePool",
        usual="2 to 5 min",
        owner="config.resourceLabels",
        part_of="cluster",
        has_nodes=True,
        update_only=("version",),
    ),
    "service-account": _kind(
        "iam",
        "serviceAccounts",
        "service account",
        Field("displayName", update="names"),
        wrap="serviceAccount",
        owner="description",
    ),
    "iam-member": _kind("cloudresourcemanager", "", "right"),
}

LEFT: dict[str, Kind] = {
    "forwarding-rule": _kind("compute", "forwardingRules", "forwarding rule"),
    "target-http-proxy": _kind("compute", "targetHttpProxies", "target HTTP proxy"),
    "target-https-proxy": _kind("compute", "targetHttpsProxies", "target HTTPS proxy"),
    "url-map": _kind("compute", "urlMaps", "URL map"),
    "target-pool": _kind("compute", "targetPools", "target pool"),
    "backend-service": _kind("compute", "backendServices", "backend service"),
    "endpoint-group": _kind("compute", "networkEndpointGroups", "network endpoint group"),
    "instance-group": _kind("compute", "instanceGroups", "instance group"),
    "health-check": _kind("compute", "healthChecks", "health check"),
    "http-health-check": _kind("compute", "httpHealthChecks", "HTTP health check"),
    "address": _kind("compute", "addresses", "address"),
    "disk": _kind("compute", "disks", "disk"),
    "filestore": _kind("file", "instances", "Filestore instance"),
    "firewall": _kind("compute", "firewalls", "firewall rule"),
}
"""Kinds of orphans. No plan has them because a cluster creates them. They are deleted after the cluster
(orphans.py)."""

EVERY: dict[str, Kind] = {**KINDS, **LEFT}
