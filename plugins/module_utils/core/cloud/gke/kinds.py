# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""What each kind of object in Google Cloud is called there, how it is made, and which of its fields can be changed how.

An object is an entry of the `resources` of a plan: `kind`, `name`, `parent` (the path of what it is in, such as
`projects/p/global`), `body` (the fields that its API takes) and `key`. What an API returns of it is its `have`.

===============  ====================  ================================  ==============================================
kind             service, collection   made by POST to the collection    changed by
===============  ====================  ================================  ==============================================
network          compute networks      the body                          nothing
subnetwork       compute subnetworks   the body                          PATCH with fingerprint, POST expandIpCidrRange
service          serviceusage services POST NAME:enable                  nothing, and never deleted
cluster          container clusters    {"cluster": body}                 PUT {"update": {one desired*}},
                                                                         POST :setResourceLabels with labelFingerprint
node-pool        container nodePools   {"nodePool": body}                PUT {fields of UpdateNodePoolRequest},
                                                                         POST :setSize, POST :setAutoscaling
service-account  iam serviceAccounts   {"accountId", "serviceAccount"}   PATCH {"serviceAccount", "updateMask"}
iam-member       cloudresourcemanager  POST P:setIamPolicy with what     the same
                 (policy of P)         POST P:getIamPolicy answered
===============  ====================  ================================  ==============================================

The rest is in the modules beside this one, all pure: differences.py compares, requests.py says which calls make,
change, find, list and delete an object, policies.py adds a member to a policy, operations.py reads operations,
states.py says whether an object is ready, marks.py whose it is, leftovers.py what a cluster left, advice.py what to do
about an error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.gke import compare

SERVICES = {
    "compute": "https://compute.googleapis.com",
    "container": "https://container.googleapis.com",
    "iam": "https://iam.googleapis.com",
    "serviceusage": "https://serviceusage.googleapis.com",
    "cloudresourcemanager": "https://cloudresourcemanager.googleapis.com",
    "file": "https://file.googleapis.com",
}
"""The services that are used, and where they are unless somebody says otherwise. Paths are added to these."""
VERSIONS = {name: "compute/v1" if name == "compute" else "v1" for name in SERVICES}
"""What paths of a service begin with."""

Operations = Literal["compute", "container", "serviceusage", "file", ""]
Compare = Callable[[Any, Any], bool]

_ANEW = "or remove the cluster and provision it anew"
_NETWORK = f"Google cannot change it. Set it back, {_ANEW}"


@dataclass(frozen=True)
class Field:
    """A field of a body that is compared with what the API returns, when the body has it.

    `path`: its place in the body, with dots. `have`: its place in what is returned, when that is another. `same`:
    whether what is returned is what is wanted. `update`: which of the updates in requests.py changes it; empty when
    none does. `compared`: what of the returned value is compared. `possible`: whether an update can make one value of
    the other. `advice`: what to do when none can, with {before} and {after} in it.
    """

    path: str
    same: Compare = compare.value
    have: str = ""
    update: str = ""
    compared: Callable[[Any, Any], Any] = compare.narrowed
    possible: Compare | None = None
    advice: str = ""


@dataclass(frozen=True)
class Kind:
    """A kind of object. `words`: what people call it. `wrap`: the key that the body has in the request that makes it.
    `mark`: the field (with dots) that says whose it is, labels or a description; empty when nothing does.
    `operations`: whose operations its changes are; empty when they are over with the answer. `update_only`: fields
    of a body that are not sent to make it. `lasts`: it is never deleted. A field of a body that is not among `fields`
    is sent to make it, and never compared."""

    service: str
    collection: str
    words: str
    fields: tuple[Field, ...] = ()
    wrap: str = ""
    mark: str = ""
    operations: Operations = ""
    update_only: tuple[str, ...] = ()
    lasts: bool = False


_POOL_ANEW = "Google cannot change it: give the pool a new name, so that it is made anew and the old one removed"

KINDS: dict[str, Kind] = {
    "network": Kind(
        service="compute",
        collection="networks",
        words="VPC network",
        mark="description",
        operations="compute",
        fields=(Field("autoCreateSubnetworks", advice=_NETWORK),),
    ),
    "subnetwork": Kind(
        service="compute",
        collection="subnetworks",
        words="subnetwork",
        mark="description",
        operations="compute",
        fields=(
            Field("network", compare.reference, advice=_NETWORK),
            Field(
                "ipCidrRange",
                update="expand",
                possible=compare.wider,
                advice=f"The range of nodes can only grow. Set spec.networking.nodeCidr back to {{before}}, {_ANEW}",
            ),
            Field(
                "secondaryIpRanges",
                compare.ranges,
                update="ranges",
                compared=compare.own_ranges,
                possible=compare.more_ranges,
                advice="Google cannot change a range that is in use. Set spec.networking.podCidr and serviceCidr back, "
                f"{_ANEW}",
            ),
        ),
    ),
    "service": Kind(
        service="serviceusage",
        collection="services",
        words="API",
        operations="serviceusage",
        lasts=True,
    ),
    "cluster": Kind(
        service="container",
        collection="clusters",
        words="GKE cluster",
        wrap="cluster",
        mark="resourceLabels",
        operations="container",
        fields=(
            Field("network", compare.reference, advice=_NETWORK),
            Field("subnetwork", compare.reference, advice=_NETWORK),
            Field("ipAllocationPolicy", compare.subset, advice=_NETWORK),
            Field("resourceLabels", compare.labels, update="labels"),
            Field("releaseChannel", compare.subset, update="channel"),
            Field("initialClusterVersion", compare.version, have="currentMasterVersion", update="version"),
            Field("workloadIdentityConfig", compare.subset, update="identity"),
            Field("addonsConfig", compare.subset, update="addons"),
        ),
    ),
    "node-pool": Kind(
        service="container",
        collection="nodePools",
        words="node pool",
        wrap="nodePool",
        mark="config.resourceLabels",
        operations="container",
        update_only=("version",),
        fields=(
            Field("config.oauthScopes", compare.superset, advice=_POOL_ANEW),
            Field("config.resourceLabels", compare.labels, update="labels of machines"),
            Field("config.labels", compare.node_labels, update="labels", compared=compare.own_node_labels),
            Field("config.taints", compare.taints, update="taints", compared=compare.own_taints),
            Field("config.machineType", update="machine"),
            Field("config.diskSizeGb", update="machine"),
            Field("config.imageType", update="machine"),
            Field("config.accelerators", compare.accelerators, update="machine"),
            Field("locations", compare.members, update="locations"),
            Field("autoscaling", compare.subset, update="autoscaling"),
            Field("version", compare.version, update="version"),
        ),
    ),
    "service-account": Kind(
        service="iam",
        collection="serviceAccounts",
        words="service account",
        wrap="serviceAccount",
        mark="description",
        fields=(Field("displayName", update="names"),),
    ),
    "iam-member": Kind(
        service="cloudresourcemanager",
        collection="",
        words="right",
    ),
}


def _left(collection: str, words: str, service: str = "compute") -> Kind:
    return Kind(
        service=service, collection=collection, words=words, operations="compute" if service == "compute" else "file"
    )


LEFT: dict[str, Kind] = {
    "forwarding-rule": _left("forwardingRules", "forwarding rule"),
    "target-http-proxy": _left("targetHttpProxies", "target HTTP proxy"),
    "target-https-proxy": _left("targetHttpsProxies", "target HTTPS proxy"),
    "url-map": _left("urlMaps", "URL map"),
    "target-pool": _left("targetPools", "target pool"),
    "backend-service": _left("backendServices", "backend service"),
    "endpoint-group": _left("networkEndpointGroups", "network endpoint group"),
    "instance-group": _left("instanceGroups", "instance group"),
    "health-check": _left("healthChecks", "health check"),
    "http-health-check": _left("httpHealthChecks", "HTTP health check"),
    "address": _left("addresses", "address"),
    "disk": _left("disks", "disk"),
    "filestore": _left("instances", "Filestore instance", "file"),
    "firewall": _left("firewalls", "firewall rule"),
}
"""What no plan has, as a cluster makes it: it is looked for and deleted when the cluster is gone (leftovers.py)."""

EVERY: dict[str, Kind] = {**KINDS, **LEFT}
