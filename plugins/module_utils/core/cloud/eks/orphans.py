# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Orphans of an EKS cluster in its VPC: what its controllers, and EKS itself, leave there.

Load balancers come from Services, by the controller in the cluster's control plane (tag `kubernetes.io/cluster/<name>`)
or by the AWS Load Balancer Controller (tag `elbv2.k8s.aws/cluster`). Network interfaces named `aws-K8S-<instance>` are
of the VPC CNI, those named `Amazon EKS <name>` of the control plane.
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
"""Beginnings of the descriptions of network interfaces."""


@dataclass(frozen=True)
class Orphan:
    """Object that a cluster left. `id`: its id or ARN, its name where it has none."""

    kind: str
    name: str
    id: str

    @property
    def title(self) -> str:
        """The object in messages."""
        return f"{self.kind} {self.name}" + (f" ({self.id})" if self.kind == "security group" else "")


@dataclass(frozen=True)
class Balancer:
    """A load balancer of either kind. `arn` is empty for a classic one; `interfaces` is how EC2 describes its network
    interfaces."""

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
    """Return whether a controller in the cluster made this, and for it alone."""
    return tags.get(f"{_OWNED}{cluster}") == "owned" or tags.get(_CONTROLLER) == cluster


def group_of_cluster(group: Wire, tags: Tags, cluster: str) -> bool:
    """Return whether a security group is the one of the cluster itself, or was made by a controller in it.

    Others' names can begin with the cluster's: that of EKS ends in a number, right after the name.
    """
    if tags.get(_GROUP_OWNER, cluster) != cluster:
        return False
    return of_cluster(tags, cluster) or bool(
        re.fullmatch(rf"eks-cluster-sg-{re.escape(cluster)}-[0-9]+", str(group.get("GroupName", "")))
    )


def is_of_balancers(group: Wire) -> bool:
    """Return whether a controller created the group for load balancers, so that it can go before the cluster does."""
    return str(group.get("GroupName", "")).startswith("k8s-")


def made_by_cni(interface: Wire, tags: Tags, cluster: str) -> bool:
    """Return whether a network interface is of the VPC CNI on a node, and not of one of another cluster."""
    owners = {tags[key] for key in _INTERFACE_OWNERS if key in tags}
    return of_nodes(interface) and owners <= {cluster}


def of_nodes(interface: Wire) -> bool:
    """Return whether a network interface is of the VPC CNI of some cluster."""
    return _description(interface).startswith(CNI)


def made_by_plane(interface: Wire, cluster: str) -> bool:
    """Return whether a network interface is of the cluster's control plane, which deletes it itself."""
    return _description(interface) == f"{PLANE}{cluster}"


def made_by_balancer(interface: Wire, others: Iterable[Balancer]) -> bool:
    """Return whether a network interface is of a load balancer, and of none of `others`."""
    described = _description(interface)
    return described.startswith(BALANCER) and described not in {balancer_left.interfaces for balancer_left in others}


def _description(interface: Wire) -> str:
    return str(interface.get("Description") or "")


def references(groups: Iterable[Wire], target: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """The rules of other groups that refer to a group, which keep it from being deleted: the id of the group with the
    rule, IpPermissions or IpPermissionsEgress, and the rule with nothing but this reference."""
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
    """Return a network interface as what keeps something from being deleted: what it is of, and who attached it."""
    user = (interface.get("Attachment") or {}).get("InstanceId") or interface.get("RequesterId")
    described = [_description(interface), f"used by {user}" if user else "", f"in {interface.get('SubnetId')}"]
    return f"network interface {interface['NetworkInterfaceId']} ({', '.join(filter(None, described))})"


def group_left_alone(group: Wire, vpc: str) -> str:
    """Return the reason why a security group is kept, with a fix."""
    title = f"security group {group['GroupId']} ({group.get('GroupName')}) in {vpc}"
    return left_alone(title, _FOREIGN, "the VPC")
