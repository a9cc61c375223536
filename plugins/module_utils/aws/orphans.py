# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Orphans of a cluster in its VPC: found, and deleted in the order that AWS requires."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ..cloud import task
from ..cloud.task import Changes
from ..cloud.waiting import Messages, PollResult, Wait
from ..core.cloud.eks import orphans
from ..core.cloud.eks.kinds import KINDS, OWNERS
from ..core.cloud.eks.orphans import Balancer, Orphan
from ..core.cloud.engine.ownership import labels
from . import session
from .errors import AwsError, guarded, is_code
from .find import Finder
from .session import Account

Wire = Mapping[str, Any]

_KEYS = ("name", "region", "resources")
# Maximum number of load balancers or target groups in one call of DescribeTags.
_TAGGED_AT_ONCE = 20
_IN_USE = ("DependencyViolation", "ResourceInUse", "InvalidNetworkInterface.InUse", "InvalidParameterValue")
_READINGS = 4
_NO_INTERFACE = "InvalidNetworkInterfaceID.NotFound"


def delete(module: Any, changes: Changes, messages: Messages) -> dict[str, Any]:
    """Delete the orphans of the cluster of the argument `plan`, and return the results of the module cloud_orphans.

    Raises CloudError.
    """
    params = module.params
    task.check_plan(params, _KEYS, "region")
    account, cluster = session.account(module), params["plan"]["name"]
    vpc = find_vpc(account, params["plan"])
    if not vpc:
        return {"removed": [], "left_alone": [], "pending": []}
    sweep = Sweep(account, vpc, cluster, changes)
    orphans_found = sweep.find()
    pending = sweep.remove(orphans_found, task.wait(module, messages, AwsError, cluster), until_done=params["wait"])
    return {
        "removed": [{"kind": orphan.kind, "name": orphan.name, "place": vpc} for orphan in orphans_found.orphans],
        "left_alone": list(orphans_found.left_alone),
        "pending": pending,
    }


def find_vpc(account: Account, plan: Wire) -> str:
    """Return the ID of the VPC of a plan; empty without a VPC with its owner tags. Raises AwsError."""
    resource = next((candidate for candidate in plan["resources"] if candidate["kind"] == "vpc"), None)
    if resource is None:
        raise AwsError("plan.resources", "has no VPC")
    vpc = Finder(account).find(resource)
    return str(vpc["VpcId"]) if vpc and not OWNERS.conflict(KINDS["vpc"], "", vpc, resource["body"]) else ""


@dataclass(frozen=True)
class Found:
    """Objects in the VPC.

    `is_gone`: True if the cluster no longer exists, so its dependencies can be deleted, too. `balancers` and
    `target_groups` (names by ARN) belong to the cluster; `other_balancers` are all other load balancers. `idle` are
    unused network interfaces of the CNI, `pending` are interfaces that AWS deletes itself. `groups` are the security
    groups to delete, `every_group` all security groups of the VPC. `left_alone`: lines about objects of other owners.
    """

    is_gone: bool
    balancers: tuple[Balancer, ...] = ()
    other_balancers: tuple[Balancer, ...] = ()
    target_groups: Mapping[str, str] = field(default_factory=dict)
    idle: tuple[Wire, ...] = ()
    pending: tuple[Wire, ...] = ()
    groups: tuple[Wire, ...] = ()
    every_group: tuple[Wire, ...] = ()
    left_alone: tuple[str, ...] = ()

    @property
    def orphans(self) -> list[Orphan]:
        """The objects to delete, now or after their users are deleted."""
        interfaces = [*self.idle, *(entry for entry in self.pending if orphans.of_nodes(entry))]
        return [
            *(entry.orphan for entry in self.balancers),
            *(_target_group(arn, name) for arn, name in sorted(self.target_groups.items(), key=lambda pair: pair[1])),
            *sorted(map(_interface, interfaces), key=lambda entry: entry.id),
            *map(_group, self.groups),
        ]


class Sweep:
    """Search and deletion of the orphans of a cluster in a VPC. The methods raise AwsError."""

    def __init__(self, account: Account, vpc: str, cluster: str, changes: Changes) -> None:
        self._account, self._vpc, self._cluster, self._changes = account, vpc, cluster, changes
        self._finder = Finder(account)

    def find(self) -> Found:
        """Return the orphans in the VPC."""
        for _try in range(_READINGS - 1):
            try:
                return self._find()
            except AwsError as error:
                # Controllers might delete load balancers at the same time, between two reads.
                if not is_code(error, "LoadBalancerNotFound", "TargetGroupNotFound"):
                    raise
        return self._find()

    def remove(self, found: Found, wait: Wait, *, until_done: bool) -> list[str]:
        """Delete the orphans, and wait until they are deleted. Without waiting, return the orphans for the next run."""
        if self._changes.check_mode:
            for orphan in found.orphans:
                self._report(orphan)
            return []
        ends, pending = time.monotonic() + wait.timeout, list[str]()

        def until_gone(poll: Callable[[], PollResult], what: str) -> None:
            if until_done:
                remaining_wait = replace(wait, timeout=max(ends - time.monotonic(), 0.0))
                remaining_wait.until(poll, f"{what} in {self._vpc} to be gone")
            elif not (seen := poll()).done:
                pending.append(f"{seen.message}. Run again")

        for balancer in found.balancers:
            self._delete_balancer(balancer)
        if found.balancers or found.idle or found.pending:
            until_gone(partial(self._interfaces_gone, found), "network interfaces")
        if found.target_groups:
            until_gone(partial(self._target_groups_gone, found), "target groups")
        if found.groups:
            until_gone(partial(self._groups_gone, found), "security groups")
        return pending

    def _find(self) -> Found:
        is_gone = self._gone()
        balancers = [*self._classic(), *self._modern()]
        own_balancers = tuple(entry for entry in balancers if orphans.of_cluster(entry.tags, self._cluster))
        other_balancers = tuple(entry for entry in balancers if entry not in own_balancers)
        interfaces, groups = self._interfaces(), self._groups()
        idle, pending, foreign = self._sorted(interfaces, other_balancers, gone=is_gone)
        left_alone = [orphans.balancer_left_alone(entry, self._vpc, self._cluster) for entry in other_balancers]
        own_groups = [
            entry for entry in groups if orphans.group_of_cluster(entry, labels(entry.get("Tags")), self._cluster)
        ]
        if is_gone:
            left_alone += [orphans.interface_left_alone(entry, self._vpc) for entry in foreign]
            left_alone += [
                orphans.group_left_alone(entry, self._vpc)
                for entry in groups
                if entry not in own_groups and entry["GroupName"] != "default" and not _planned(entry)
            ]
        return Found(
            is_gone=is_gone,
            balancers=own_balancers,
            other_balancers=other_balancers,
            target_groups=self._target_groups(own_balancers),
            idle=tuple(idle),
            pending=tuple(pending),
            groups=tuple(entry for entry in own_groups if is_gone or orphans.is_of_balancers(entry)),
            every_group=tuple(groups),
            left_alone=tuple(left_alone),
        )

    def _gone(self) -> bool:
        try:
            self._finder.call("eks", "describe_cluster", f"describe EKS cluster {self._cluster}", name=self._cluster)
        except AwsError as error:
            if not error.absent:
                raise
            return True
        return False

    def _classic(self) -> list[Balancer]:
        purpose = f"list the classic load balancers in {self._vpc}"
        descriptions = self._finder.pages("elb", "describe_load_balancers", "LoadBalancerDescriptions", purpose)
        names = [
            description["LoadBalancerName"] for description in descriptions if description.get("VPCId") == self._vpc
        ]
        tagged = [
            description
            for some in _batches(names)
            for description in self._finder.call("elb", "describe_tags", purpose, LoadBalancerNames=some)[
                "TagDescriptions"
            ]
        ]
        by_name = {description["LoadBalancerName"]: labels(description.get("Tags")) for description in tagged}
        return [Balancer(name, "classic", "", by_name.get(name, {})) for name in sorted(names)]

    def _modern(self) -> list[Balancer]:
        balancers = self._inside("describe_load_balancers", "LoadBalancers", "load balancers")
        by_arn = self._tags_of(balancer["LoadBalancerArn"] for balancer in balancers)
        return [
            Balancer(
                balancer["LoadBalancerName"],
                balancer["Type"],
                balancer["LoadBalancerArn"],
                by_arn[balancer["LoadBalancerArn"]],
            )
            for balancer in sorted(balancers, key=lambda balancer: str(balancer["LoadBalancerName"]))
        ]

    def _target_groups(self, own: Iterable[Balancer]) -> dict[str, str]:
        """Return the target groups of the cluster's load balancers, and target groups with its tag: names by ARN."""
        arns = {balancer.arn for balancer in own if balancer.arn}
        groups = self._inside("describe_target_groups", "TargetGroups", "target groups")
        by_arn = self._tags_of(group["TargetGroupArn"] for group in groups)
        return {
            group["TargetGroupArn"]: group["TargetGroupName"]
            for group in groups
            if orphans.of_cluster(by_arn[group["TargetGroupArn"]], self._cluster)
            or (group.get("LoadBalancerArns") and set(group["LoadBalancerArns"]) <= arns)
        }

    def _inside(self, operation: str, key: str, what: str) -> list[dict[str, Any]]:
        descriptions = self._finder.pages("elbv2", operation, key, f"list the {what} in {self._vpc}")
        return [description for description in descriptions if description.get("VpcId") == self._vpc]

    def _tags_of(self, arns: Iterable[str]) -> dict[str, dict[str, str]]:
        """Return tags by ARN; deleted objects have no tags."""
        tags_by_arn: dict[str, dict[str, str]] = {arn: {} for arn in arns}
        purpose = f"read the tags of load balancers in {self._vpc}"
        for some in _batches(list(tags_by_arn)):
            for description in self._finder.call("elbv2", "describe_tags", purpose, ResourceArns=some)[
                "TagDescriptions"
            ]:
                tags_by_arn[description["ResourceArn"]] = labels(description.get("Tags"))
        return tags_by_arn

    def _interfaces(self) -> list[dict[str, Any]]:
        return self._described("describe_network_interfaces", "NetworkInterfaces", "network interfaces")

    def _groups(self) -> list[dict[str, Any]]:
        security_groups = self._described("describe_security_groups", "SecurityGroups", "security groups")
        return sorted(security_groups, key=lambda group: str(group["GroupId"]))

    def _described(self, operation: str, key: str, what: str) -> list[dict[str, Any]]:
        return self._finder.ec2(operation, key, f"list the {what} in {self._vpc}", {"vpc-id": self._vpc})

    def _sorted(
        self, interfaces: Iterable[Wire], others: Iterable[Balancer], *, gone: bool
    ) -> tuple[list[Wire], list[Wire], list[Wire]]:
        """Return the interfaces to delete, to wait for, and of other owners. Interfaces in use by an existing cluster
        are omitted."""
        idle: list[Wire] = []
        pending: list[Wire] = []
        foreign: list[Wire] = []
        expected = self._declared() if gone else set()
        for interface in interfaces:
            tags = labels(interface.get("TagSet"))
            if orphans.made_by_cni(interface, tags, self._cluster):
                if interface.get("Status") == "available":
                    idle.append(interface)
                elif gone:
                    pending.append(interface)
            elif orphans.made_by_balancer(interface, others) or (
                gone and orphans.made_by_plane(interface, self._cluster)
            ):
                pending.append(interface)
            elif (
                gone
                and interface["NetworkInterfaceId"] not in expected
                and not _of_efs(interface)
                and not _of_balancer(interface)
            ):
                foreign.append(interface)
        return idle, pending, foreign

    def _declared(self) -> set[str]:
        """Return the interfaces of NAT gateways. They are deleted with the gateways."""
        return {
            str(address["NetworkInterfaceId"])
            for gateway in self._described("describe_nat_gateways", "NatGateways", "NAT gateways")
            for address in gateway.get("NatGatewayAddresses") or ()
            if address.get("NetworkInterfaceId")
        }

    def _delete_balancer(self, balancer: Balancer) -> None:
        try:
            with guarded(f"delete {balancer.orphan.title}"):
                if balancer.arn:
                    self._account.client("elbv2").delete_load_balancer(LoadBalancerArn=balancer.arn)
                else:
                    self._account.client("elb").delete_load_balancer(LoadBalancerName=balancer.name)
        except AwsError as error:
            if not is_code(error, "LoadBalancerNotFound"):
                raise
        self._report(balancer.orphan)

    def _interfaces_gone(self, orphans_found: Found) -> PollResult:
        """Delete unused interfaces, and return the interfaces that are still in use."""
        idle, pending, _foreign = self._sorted(
            self._interfaces(), orphans_found.other_balancers, gone=orphans_found.is_gone
        )
        for interface in idle:
            orphan = _interface(interface)
            call = partial(self._account.client("ec2").delete_network_interface, NetworkInterfaceId=orphan.id)
            if not self._deleted(orphan, call, _NO_INTERFACE):
                pending.append(interface)
        interface_names = ", ".join(
            f"{holder['NetworkInterfaceId']} ({holder.get('Description')})" for holder in pending
        )
        return PollResult(
            f"still there: {interface_names}" if interface_names else "no network interface is left", done=not pending
        )

    def _target_groups_gone(self, orphans_found: Found) -> PollResult:
        elbv2 = self._account.client("elbv2")
        remaining = [
            name
            for arn, name in sorted(orphans_found.target_groups.items())
            if not self._deleted(
                _target_group(arn, name), partial(elbv2.delete_target_group, TargetGroupArn=arn), "TargetGroupNotFound"
            )
        ]
        return PollResult(
            f"still used: {', '.join(remaining)}" if remaining else "no target group is left", done=not remaining
        )

    def _groups_gone(self, orphans_found: Found) -> PollResult:
        """Delete security groups, after the rules of the cluster's other groups that refer to them."""
        ec2 = self._account.client("ec2")
        owned = {owned_group["GroupId"] for owned_group in orphans_found.every_group if self._owned(owned_group)}
        live_groups = self._groups()
        used_groups = []
        for group in orphans_found.groups:
            name = group["GroupId"]
            if name not in {owned_group["GroupId"] for owned_group in live_groups}:
                continue
            for holder, direction, rule in orphans.references(live_groups, name):
                if holder in owned:
                    self._revoke(holder, direction, rule)
            call = partial(ec2.delete_security_group, GroupId=name)
            if not self._deleted(_group(group), call, "InvalidGroup.NotFound"):
                used_groups.append(f"{name} ({group['GroupName']})")
        return PollResult(
            f"still used: {', '.join(used_groups)}" if used_groups else "no security group is left",
            done=not used_groups,
        )

    def _owned(self, group: Wire) -> bool:
        """Return True if the rules of a group can be changed: it belongs to the cluster or to the collection."""
        return orphans.group_of_cluster(group, labels(group.get("Tags")), self._cluster) or _planned(group)

    def _revoke(self, holder: str, direction: str, rule: Mapping[str, Any]) -> None:
        ec2 = self._account.client("ec2")
        revoke = ec2.revoke_security_group_ingress if direction == "IpPermissions" else ec2.revoke_security_group_egress
        self._tried(
            f"revoke a rule of security group {holder}",
            partial(revoke, GroupId=holder, IpPermissions=[rule]),
            "InvalidPermission.NotFound",
            "InvalidGroup.NotFound",
        )

    def _deleted(self, orphan: Orphan, call: Callable[[], Any], *absent: str) -> bool:
        """Delete an orphan; return False if it is still in use."""
        done = self._tried(f"delete {orphan.title}", call, *absent)
        if done:
            self._report(orphan)
        return done

    def _tried(self, purpose: str, call: Callable[[], Any], *absent: str) -> bool:
        """Send a call; return False if the object is still in use. The use ends by itself."""
        try:
            with guarded(purpose):
                call()
        except AwsError as error:
            if is_code(error, *_IN_USE):
                return False
            if not is_code(error, *absent):
                raise
        return True

    def _report(self, orphan: Orphan) -> None:
        self._changes.record(orphan.title, {"id": orphan.id}, None)


def _target_group(arn: str, name: str) -> Orphan:
    return Orphan("target group", name, arn)


def _interface(interface: Wire) -> Orphan:
    name = str(interface["NetworkInterfaceId"])
    return Orphan("network interface", name, name)


def _group(group: Wire) -> Orphan:
    return Orphan("security group", str(group["GroupName"]), str(group["GroupId"]))


def _planned(group: Wire) -> bool:
    """Return True if the collection created a security group. Such a group is deleted through its plan."""
    return labels(group.get("Tags")).get(OWNERS.manager) == OWNERS.managed_by


def _of_efs(interface: Wire) -> bool:
    """Return True if a network interface belongs to a mount target. It is deleted with its file system."""
    return str(interface.get("Description") or "").startswith("EFS mount target")


def _of_balancer(interface: Wire) -> bool:
    """Return True if a network interface belongs to a load balancer. The load balancer itself is reported."""
    return str(interface.get("Description") or "").startswith(orphans.BALANCER)


def _batches(names: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(names), _TAGGED_AT_ONCE):
        yield names[start : start + _TAGGED_AT_ONCE]
