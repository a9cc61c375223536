# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Orphans of an EKS cluster in its VPC: objects that its controllers, and EKS itself, do not delete.

Load balancers are created for Services, by the controller in the cluster's control plane (tag
`kubernetes.io/cluster/<name>`) or by the AWS Load Balancer Controller (tag `elbv2.k8s.aws/cluster`). Network interfaces
named `aws-K8S-<instance>` belong to the VPC CNI, and network interfaces named `Amazon EKS <name>` to the control plane.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..orphans import left_alone

Wire = Mapping[str, Any]
Tags = Mapping[str, str]

_OWNED = "kubernetes.io/cluster/"
_CONTROLLER = "elbv2.k8s.aws/cluster"
_INTERFACE_OWNERS = ("cluster.k8s.amazonaws.com/name", "eks:cluster-name")
_GROUP_OWNER = "aws:eks:cluster-name"
_FOREIGN = "is not of this cluster"
CNI, PLANE, BALANCER = "aws-K8S-", "Amazon EKS ", "ELB "
"""Prefixes of the descriptions of network interfaces."""


@dataclass(frozen=True)
class Orphan:
    """Object that a cluster did not delete. `id`: its ID or ARN, or its name if it has neither."""

    kind: str
    name: str
    id: str

    @property
    def title(self) -> str:
        """The object in messages."""
        return f"{self.kind} {self.name}" + (f" ({self.id})" if self.kind == "security group" else "")


@dataclass(frozen=True)
class Balancer:
    """A load balancer of either kind.

    `arn` is empty for a Classic Load Balancer. `interfaces` is the description of its network interfaces in EC2.
    """

    name: str
    kind: str
    arn: str
    tags: Tags

    @property
    def interfaces(self) -> str:
        return BALANCER + (self.arn.partition(":loadbalancer/")[2] if self.arn else self.name)

    @property
    def orphan(self) -> Orphan:
        return Orphan(f"{self.kind} load balancer", self.name, self.arn or self.name)


def of_cluster(tags: Tags, cluster: str) -> bool:
    """Return True if a controller in the cluster created this object, and only for this cluster."""
    return tags.get(f"{_OWNED}{cluster}") == "owned" or tags.get(_CONTROLLER) == cluster


def group_of_cluster(group: Wire, tags: Tags, cluster: str) -> bool:
    """Return True if a security group belongs to the cluster itself, or if a controller in the cluster created it.

    Names of other groups can start with the name of the cluster. The name of the EKS group is the cluster name and a
    number.
    """
    if tags.get(_GROUP_OWNER, cluster) != cluster:
        return False
    return of_cluster(tags, cluster) or bool(
        re.fullmatch(rf"eks-cluster-sg-{re.escape(cluster)}-[0-9]+", str(group.get("GroupName", "")))
    )


def is_of_balancers(group: Wire) -> bool:
    """Return True if a controller created the group for load balancers, so it can be deleted before the cluster."""
    return str(group.get("GroupName", "")).startswith("k8s-")


def made_by_cni(interface: Wire, tags: Tags, cluster: str) -> bool:
    """Return True if a network interface belongs to the VPC CNI on a node of this cluster, not of another cluster."""
    owners = {tags[key] for key in _INTERFACE_OWNERS if key in tags}
    return of_nodes(interface) and owners <= {cluster}


def of_nodes(interface: Wire) -> bool:
    """Return True if a network interface belongs to the VPC CNI of any cluster."""
    return _description(interface).startswith(CNI)


def made_by_plane(interface: Wire, cluster: str) -> bool:
    """Return True if a network interface belongs to the cluster's control plane. The control plane deletes it
    itself."""
    return _description(interface) == f"{PLANE}{cluster}"


def made_by_balancer(interface: Wire, others: Iterable[Balancer]) -> bool:
    """Return True if a network interface belongs to a load balancer that is not in `others`."""
    described = _description(interface)
    return described.startswith(BALANCER) and described not in {balancer_left.interfaces for balancer_left in others}


def _description(interface: Wire) -> str:
    return str(interface.get("Description") or "")


def references(groups: Iterable[Wire], target: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield the rules of other groups that refer to a group and prevent its deletion.

    Each entry has the ID of the group with the rule, IpPermissions or IpPermissionsEgress, and the rule with only this
    reference.
    """
    for group in groups:
        if group["GroupId"] == target:
            continue
        for direction in ("IpPermissions", "IpPermissionsEgress"):
            for rule in group.get(direction) or ():
                pairs = [pair for pair in rule.get("UserIdGroupPairs") or () if pair.get("GroupId") == target]
                if pairs:
                    ports = {key: rule[key] for key in ("FromPort", "ToPort") if key in rule}
                    reference = [{"GroupId": target} for _pair in pairs[:1]]
                    yield (
                        group["GroupId"],
                        direction,
                        {
                            "IpProtocol": rule["IpProtocol"],
                            **ports,
                            "UserIdGroupPairs": reference,
                        },
                    )


def balancer_left_alone(balancer: Balancer, vpc: str, cluster: str) -> str:
    """Return the reason why a load balancer is kept, with a fix."""
    owner_clusters = sorted(key.removeprefix(_OWNED) for key in balancer.tags if key.startswith(_OWNED))
    if f"{_OWNED}{cluster}" in balancer.tags:
        whose = "is shared with others, as its tag says"
    elif owner_clusters or _CONTROLLER in balancer.tags:
        whose = f"is of cluster {balancer.tags.get(_CONTROLLER) or owner_clusters[0]}"
    else:
        whose = "has no tag of this cluster"
    return left_alone(f"load balancer {balancer.name} ({balancer.kind}) in {vpc}", whose, "the VPC")


def interface_left_alone(interface: Wire, vpc: str) -> str:
    """Return the reason why a network interface is kept, with a fix."""
    described = _description(interface) or "without a description"
    user = (interface.get("Attachment") or {}).get("InstanceId") or interface.get("RequesterId") or "nothing"
    title = f"network interface {interface['NetworkInterfaceId']} ({described}, used by {user}) in {vpc}"
    return left_alone(title, _FOREIGN, "the VPC", "Remove what uses it")


def interface_holding(interface: Wire) -> str:
    """Return the description of a network interface that prevents a deletion: its owner, its user, and its subnet."""
    user = (interface.get("Attachment") or {}).get("InstanceId") or interface.get("RequesterId")
    described = [_description(interface), f"used by {user}" if user else "", f"in {interface.get('SubnetId')}"]
    return f"network interface {interface['NetworkInterfaceId']} ({', '.join(filter(None, described))})"


def group_left_alone(group: Wire, vpc: str) -> str:
    """Return the reason why a security group is kept, with a fix."""
    title = f"security group {group['GroupId']} ({group.get('GroupName')}) in {vpc}"
    return left_alone(title, _FOREIGN, "the VPC")
