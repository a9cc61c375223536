# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""What a cluster leaves in its VPC that nobody declared: found, and removed in the order in which AWS allows it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.aws import tags
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.errors import AwsError, guarded, is_code
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.session import Account
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.waiting import Seen, wait_for
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks import orphans as whose
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks.orphans import Balancer

Wire = Mapping[str, Any]

# How many load balancers or target groups DescribeTags takes at once.
_TAGGED_AT_ONCE = 20
_IN_USE = ("DependencyViolation", "ResourceInUse", "InvalidNetworkInterface.InUse", "InvalidParameterValue")
_LOOKS = 4
_NO_INTERFACE = "InvalidNetworkInterfaceID.NotFound"


@dataclass(frozen=True)
class Found:
    """What is in the VPC. `gone`: whether the cluster is not there any more, so that what it needed can go too.

    `balancers` and `target_groups` are those of the cluster, `others` the load balancers that are not. `idle` are
    network interfaces of the CNI that nothing uses, `pending` those that AWS takes away itself. `groups` are the
    security groups to delete, `every_group` all of the VPC. `left_alone`: lines about what is not the cluster's.
    """

    gone: bool
    balancers: tuple[Balancer, ...] = ()
    others: tuple[Balancer, ...] = ()
    target_groups: Mapping[str, str] = field(default_factory=dict)
    idle: tuple[Wire, ...] = ()
    pending: tuple[Wire, ...] = ()
    groups: tuple[Wire, ...] = ()
    every_group: tuple[Wire, ...] = ()
    left_alone: tuple[str, ...] = ()

    @property
    def interfaces(self) -> tuple[Wire, ...]:
        """The interfaces to delete, now or when what uses them is gone."""
        return (*self.idle, *(one for one in self.pending if whose.of_nodes(one)))

    @property
    def empty(self) -> bool:
        """Whether there is nothing to remove. There may still be something to wait for."""
        return not (self.balancers or self.target_groups or self.interfaces or self.groups)


class Sweep:
    """Looks for, and removes, what a cluster left in a VPC."""

    def __init__(self, account: Account, vpc: str, cluster: str) -> None:
        self._account, self._vpc, self._cluster = account, vpc, cluster

    def look(self) -> Found:
        """What there is; raises AwsError."""
        for _try in range(_LOOKS - 1):
            try:
                return self._look()
            except AwsError as error:
                # Controllers may be deleting load balancers at the same time, between two of our questions.
                if not is_code(error, "LoadBalancerNotFound", "TargetGroupNotFound"):
                    raise
        return self._look()

    def _look(self) -> Found:
        gone = self._gone()
        balancers = [*self._classic(), *self._modern()]
        own = tuple(one for one in balancers if whose.of_cluster(one.tags, self._cluster))
        others = tuple(one for one in balancers if one not in own)
        interfaces, groups = self._interfaces(), self._groups()
        idle, pending, strange = self._sorted(interfaces, others, gone=gone)
        left_alone = [whose.balancer_left_alone(one, self._vpc, self._cluster) for one in others]
        mine = [one for one in groups if whose.group_of_cluster(one, tags.plain(one.get("Tags")), self._cluster)]
        if gone:
            left_alone += [whose.interface_left_alone(one, self._vpc) for one in strange]
            left_alone += [
                whose.group_left_alone(one, self._vpc)
                for one in groups
                if one not in mine and one["GroupName"] != "default" and not tags.ours(tags.plain(one.get("Tags")))
            ]
        return Found(
            gone=gone,
            balancers=own,
            others=others,
            target_groups=self._target_groups(own),
            idle=tuple(idle),
            pending=tuple(pending),
            groups=tuple(one for one in mine if gone or whose.is_of_balancers(one)),
            every_group=tuple(groups),
            left_alone=tuple(left_alone),
        )

    def remove(
        self, found: Found, *, wait: bool, timeout: float, delay: float, progress: Callable[[str], None]
    ) -> None:
        """Remove what was found, and wait until it is gone. Raises AwsError, and the next run goes on."""
        ends = time.monotonic() + timeout

        def until_gone(poll: Callable[[], Seen], what: str) -> None:
            if wait:
                left = max(ends - time.monotonic(), 0.0)
                wait_for(poll, timeout=left, delay=delay, what=what, progress=progress)
            else:
                poll()

        for balancer in found.balancers:
            self._delete_balancer(balancer)
        if found.balancers or found.idle or found.pending:
            until_gone(partial(self._interfaces_gone, found), f"network interfaces in {self._vpc} to be gone")
        if found.target_groups:
            until_gone(partial(self._target_groups_gone, found), f"target groups in {self._vpc} to be gone")
        if found.groups:
            until_gone(partial(self._groups_gone, found), f"security groups in {self._vpc} to be gone")

    def _gone(self) -> bool:
        try:
            with guarded(f"describe EKS cluster {self._cluster}"):
                self._account.client("eks").describe_cluster(name=self._cluster)
        except AwsError as error:
            if is_code(error, "ResourceNotFoundException"):
                return True
            raise
        return False

    def _classic(self) -> list[Balancer]:
        elb = self._account.client("elb")
        with guarded(f"list the classic load balancers in {self._vpc}"):
            pages = elb.get_paginator("describe_load_balancers").paginate()
            names = [
                one["LoadBalancerName"]
                for page in pages
                for one in page["LoadBalancerDescriptions"]
                if one.get("VPCId") == self._vpc
            ]
            told = [
                one for some in _batches(names) for one in elb.describe_tags(LoadBalancerNames=some)["TagDescriptions"]
            ]
        by_name = {one["LoadBalancerName"]: tags.plain(one.get("Tags")) for one in told}
        return [Balancer(name, "classic", "", by_name.get(name, {})) for name in sorted(names)]

    def _modern(self) -> list[Balancer]:
        with guarded(f"list the load balancers in {self._vpc}"):
            pages = self._account.client("elbv2").get_paginator("describe_load_balancers").paginate()
            found = [one for page in pages for one in page["LoadBalancers"] if one.get("VpcId") == self._vpc]
        by_arn = self._tags_of(one["LoadBalancerArn"] for one in found)
        return [
            Balancer(one["LoadBalancerName"], one["Type"], one["LoadBalancerArn"], by_arn[one["LoadBalancerArn"]])
            for one in sorted(found, key=lambda one: str(one["LoadBalancerName"]))
        ]

    def _target_groups(self, own: Iterable[Balancer]) -> dict[str, str]:
        """The target groups of the cluster's load balancers, and those that have its tag: names by ARN."""
        arns = {balancer.arn for balancer in own if balancer.arn}
        with guarded(f"list the target groups in {self._vpc}"):
            pages = self._account.client("elbv2").get_paginator("describe_target_groups").paginate()
            found = [one for page in pages for one in page["TargetGroups"] if one.get("VpcId") == self._vpc]
        by_arn = self._tags_of(one["TargetGroupArn"] for one in found)
        return {
            one["TargetGroupArn"]: one["TargetGroupName"]
            for one in found
            if whose.of_cluster(by_arn[one["TargetGroupArn"]], self._cluster)
            or (one.get("LoadBalancerArns") and set(one["LoadBalancerArns"]) <= arns)
        }

    def _tags_of(self, arns: Iterable[str]) -> dict[str, dict[str, str]]:
        """Tags by ARN; what is gone by now has none."""
        wanted = list(arns)
        found: dict[str, dict[str, str]] = {arn: {} for arn in wanted}
        with guarded(f"read the tags of load balancers in {self._vpc}"):
            for some in _batches(wanted):
                for one in self._account.client("elbv2").describe_tags(ResourceArns=some)["TagDescriptions"]:
                    found[one["ResourceArn"]] = tags.plain(one.get("Tags"))
        return found

    def _interfaces(self) -> list[Wire]:
        return self._described("describe_network_interfaces", "NetworkInterfaces", "network interfaces")

    def _groups(self) -> list[Wire]:
        found = self._described("describe_security_groups", "SecurityGroups", "security groups")
        return sorted(found, key=lambda one: str(one["GroupId"]))

    def _described(self, operation: str, key: str, what: str) -> list[Wire]:
        with guarded(f"list the {what} in {self._vpc}"):
            pages = (
                self._account.client("ec2")
                .get_paginator(operation)
                .paginate(Filters=[{"Name": "vpc-id", "Values": [self._vpc]}])
            )
            return [one for page in pages for one in page[key]]

    def _sorted(
        self, interfaces: Iterable[Wire], others: Iterable[Balancer], *, gone: bool
    ) -> tuple[list[Wire], list[Wire], list[Wire]]:
        """Interfaces to delete, to wait for, and of others. While the cluster is there, so are those that it uses."""
        idle: list[Wire] = []
        pending: list[Wire] = []
        strange: list[Wire] = []
        expected = self._declared() if gone else set()
        for one in interfaces:
            own = tags.plain(one.get("TagSet"))
            if whose.made_by_cni(one, own, self._cluster):
                if one.get("Status") == "available":
                    idle.append(one)
                elif gone:
                    pending.append(one)
            elif whose.made_by_balancer(one, others) or (gone and whose.made_by_plane(one, self._cluster)):
                pending.append(one)
            elif gone and one["NetworkInterfaceId"] not in expected and not _of_efs(one) and not _of_balancer(one):
                strange.append(one)
        return idle, pending, strange

    def _declared(self) -> set[str]:
        """The interfaces of NAT gateways, which are removed with these."""
        with guarded(f"list the NAT gateways in {self._vpc}"):
            pages = (
                self._account.client("ec2")
                .get_paginator("describe_nat_gateways")
                .paginate(Filters=[{"Name": "vpc-id", "Values": [self._vpc]}])
            )
            return {
                address["NetworkInterfaceId"]
                for page in pages
                for gateway in page["NatGateways"]
                for address in gateway.get("NatGatewayAddresses") or ()
                if address.get("NetworkInterfaceId")
            }

    def _delete_balancer(self, balancer: Balancer) -> None:
        try:
            with guarded(f"delete load balancer {balancer.name}"):
                if balancer.arn:
                    self._account.client("elbv2").delete_load_balancer(LoadBalancerArn=balancer.arn)
                else:
                    self._account.client("elb").delete_load_balancer(LoadBalancerName=balancer.name)
        except AwsError as error:
            if not is_code(error, "LoadBalancerNotFound"):
                raise

    def _interfaces_gone(self, found: Found) -> Seen:
        """Delete the interfaces that nothing uses any more, and see which are still used."""
        idle, pending, _strange = self._sorted(self._interfaces(), found.others, gone=found.gone)
        for interface in idle:
            name = interface["NetworkInterfaceId"]
            if not self._tried(
                f"delete network interface {name}",
                partial(self._account.client("ec2").delete_network_interface, NetworkInterfaceId=name),
                _NO_INTERFACE,
            ):
                pending.append(interface)
        left = ", ".join(f"{one['NetworkInterfaceId']} ({one.get('Description')})" for one in pending)
        return Seen(f"still there: {left}" if left else "no network interface is left", done=not pending)

    def _target_groups_gone(self, found: Found) -> Seen:
        elbv2 = self._account.client("elbv2")
        left = [
            name
            for arn, name in sorted(found.target_groups.items())
            if not self._tried(
                f"delete target group {name}",
                partial(elbv2.delete_target_group, TargetGroupArn=arn),
                "TargetGroupNotFound",
            )
        ]
        return Seen(f"still used: {', '.join(left)}" if left else "no target group is left", done=not left)

    def _groups_gone(self, found: Found) -> Seen:
        """Delete security groups, after rules of the cluster's other groups that refer to them."""
        ec2 = self._account.client("ec2")
        owned = {one["GroupId"] for one in found.every_group if self._owned(one)}
        there = self._groups()
        left = []
        for group in found.groups:
            name = group["GroupId"]
            if name not in {one["GroupId"] for one in there}:
                continue
            for holder, direction, rule in whose.references(there, name):
                if holder in owned:
                    self._revoke(holder, direction, rule)
            if not self._tried(
                f"delete security group {name} ({group['GroupName']})",
                partial(ec2.delete_security_group, GroupId=name),
                "InvalidGroup.NotFound",
            ):
                left.append(f"{name} ({group['GroupName']})")
        return Seen(f"still used: {', '.join(left)}" if left else "no security group is left", done=not left)

    def _owned(self, group: Wire) -> bool:
        """Whether the rules of a group are ours to change: it is the cluster's, or made by this collection."""
        own = tags.plain(group.get("Tags"))
        return whose.group_of_cluster(group, own, self._cluster) or tags.ours(own)

    def _revoke(self, holder: str, direction: str, rule: Mapping[str, Any]) -> None:
        ec2 = self._account.client("ec2")
        revoke = ec2.revoke_security_group_ingress if direction == "IpPermissions" else ec2.revoke_security_group_egress
        self._tried(
            f"revoke a rule of security group {holder}",
            partial(revoke, GroupId=holder, IpPermissions=[rule]),
            "InvalidPermission.NotFound",
            "InvalidGroup.NotFound",
        )

    def _tried(self, what: str, action: Callable[[], Any], *absent: str) -> bool:
        """Do it; False when something still uses the object, which ends by itself."""
        try:
            with guarded(what):
                action()
        except AwsError as error:
            if is_code(error, *_IN_USE):
                return False
            if not is_code(error, *absent):
                raise
        return True


def _of_efs(interface: Wire) -> bool:
    """Whether a network interface is of a mount target, which is removed with its file system."""
    return str(interface.get("Description") or "").startswith("EFS mount target")


def _of_balancer(interface: Wire) -> bool:
    """Whether a network interface is of a load balancer, which is told itself."""
    return str(interface.get("Description") or "").startswith(whose.BALANCER)


def _batches(names: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(names), _TAGGED_AT_ONCE):
        yield names[start : start + _TAGGED_AT_ONCE]
