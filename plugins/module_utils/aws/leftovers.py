# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""What controllers in a cluster made in its VPC, and leave there when the cluster goes.

The cloud provider of Kubernetes and the AWS Load Balancer Controller make load balancers with security groups, the VPC
CNI makes network interfaces, EKS itself makes interfaces and a security group. Each of them hinders the deletion of the
VPC. They are known by the tags that their makers give them; by name alone only in a VPC of ours, which holds one
cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.aws import eks
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.client import Client
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.errors import AwsError, CallError
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.tags import MANAGED_BY_TAG, as_dict, is_ours
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.task import Looked, Step, Task
from ansible_collections.modelplane.fleet.plugins.module_utils.core.names import MANAGED_BY

# Tags whose value is the name of the cluster: of the load balancer controller, the VPC CNI, and EKS.
_NAMED_BY = ("elbv2.k8s.aws/cluster", "cluster.k8s.amazonaws.com/name", "aws:eks:cluster-name", "eks:cluster-name")
# The cloud provider of Kubernetes names the cluster in the key.
_OWNED_BY = "kubernetes.io/cluster/"
_EKS_GROUP = "eks-cluster-sg-"
_BALANCER_GROUP = "k8s-elb-"
_POD_INTERFACE = "aws-K8S-"
_EKS_INTERFACE = "Amazon EKS "
_BALANCER_INTERFACE = "ELB "
# The most names that DescribeTags of load balancers takes.
_TAGS_AT_ONCE = 20
_IN_USE = ("DependencyViolation", "InvalidNetworkInterface.InUse", "InvalidNetworkInterfaceID.InUse", "ResourceInUse")


@dataclass(frozen=True)
class Leftover:
    """A thing that has to go; `kind` and `name` are for people."""

    kind: str
    id: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.id}" + (f" ({self.name})" if self.name and self.name != self.id else "")

    @property
    def told(self) -> dict[str, str]:
        return {"kind": self.kind, "id": self.id, "name": self.name}


def owners(tags: Mapping[str, str]) -> set[str]:
    """The clusters that tags name as the owner of a thing."""
    named = {tags[key] for key in _NAMED_BY if tags.get(key)}
    return named | {
        key.removeprefix(_OWNED_BY) for key, value in tags.items() if key.startswith(_OWNED_BY) and value == "owned"
    }


class Sweep:
    """The removal of what the controllers of a cluster left in a VPC."""

    def __init__(self, task: Task, vpc: str, cluster: str) -> None:
        self._task = task
        self._vpc = vpc
        self._cluster = cluster
        self._subject = f"VPC {vpc}"
        self._ours = False
        self.removed: list[Leftover] = []

    @property
    def _ec2(self) -> Client:
        return self._task.client("ec2")

    def run(self) -> None:
        """Remove what can be removed. Raises AwsError."""
        found = self._ec2.find("describe_vpcs", self._subject, VpcIds=[self._vpc])
        vpcs = (found or {}).get("Vpcs") or []
        if not vpcs:
            return
        self._ours = bool(self._task.tags) and is_ours(as_dict(vpcs[0].get("Tags")), self._task.tags)
        names = self._balancers()
        cluster_gone = eks.cluster(self._task, self._cluster).look() is None
        if cluster_gone:
            # The interfaces of a cluster that runs come and go; what is free now may be taken a moment later.
            self._interfaces()
        self._groups(names, cluster_gone=cluster_gone)

    def _mine(self, tags: Mapping[str, str], *, by_name: bool = False) -> bool:
        """Whether a thing is this cluster's. What names no cluster is so in a VPC of ours, with `by_name`."""
        found = owners(tags)
        return self._cluster in found if found else by_name and self._ours

    def _take(self, things: Iterable[Leftover], remove: Callable[[Leftover], None]) -> None:
        for thing in things:
            self._task.take([Step(f"{self._subject}: delete {thing}", partial(remove, thing))])
            self.removed.append(thing)

    # Load balancers

    def _balancers(self) -> set[str]:
        """Remove load balancers and their target groups; the names of the balancers that went."""
        classic, others = self._classic(), self._modern()
        mine = [*classic.items(), *others.items()]
        doomed = [thing for thing, tags in mine if self._mine(tags)]
        kept = {thing.name for thing, tags in mine if not self._mine(tags)}
        old, new = self._task.client("elb"), self._task.client("elbv2")

        def remove(thing: Leftover) -> None:
            if thing in classic:
                old.find("delete_load_balancer", str(thing), LoadBalancerName=thing.id)
            else:
                new.find("delete_load_balancer", str(thing), LoadBalancerArn=thing.id)

        self._take(doomed, remove)
        self._take(
            [group for group, tags in self._target_groups().items() if self._mine(tags)],
            lambda group: self._delete_when_free(new, "delete_target_group", group, TargetGroupArn=group.id),
        )
        if self._task.waits:
            self._wait_gone("the network interfaces of load balancers", lambda: self._balancer_interfaces(kept))
        return {thing.name for thing in doomed}

    def _classic(self) -> dict[Leftover, dict[str, str]]:
        client = self._task.client("elb")
        found = client.pages("describe_load_balancers", "LoadBalancerDescriptions", self._subject)
        names = [each["LoadBalancerName"] for each in found if each.get("VPCId") == self._vpc]
        tags: dict[Leftover, dict[str, str]] = {}
        for some in _in_parts(names):
            told = client.call("describe_tags", self._subject, LoadBalancerNames=list(some))["TagDescriptions"]
            for each in told:
                name = each["LoadBalancerName"]
                tags[Leftover("load balancer", name, name)] = as_dict(each.get("Tags"))
        return tags

    def _modern(self) -> dict[Leftover, dict[str, str]]:
        found = self._task.client("elbv2").pages("describe_load_balancers", "LoadBalancers", self._subject)
        names = {each["LoadBalancerArn"]: each["LoadBalancerName"] for each in found if each.get("VpcId") == self._vpc}
        return self._tagged("load balancer", names)

    def _target_groups(self) -> dict[Leftover, dict[str, str]]:
        found = self._task.client("elbv2").pages("describe_target_groups", "TargetGroups", self._subject)
        names = {each["TargetGroupArn"]: each["TargetGroupName"] for each in found if each.get("VpcId") == self._vpc}
        return self._tagged("target group", names)

    def _tagged(self, kind: str, names: Mapping[str, str]) -> dict[Leftover, dict[str, str]]:
        """Things of the newer load balancing API (ARN -> name) with their tags."""
        client = self._task.client("elbv2")
        tags: dict[Leftover, dict[str, str]] = {}
        for some in _in_parts(list(names)):
            told = client.call("describe_tags", self._subject, ResourceArns=list(some))["TagDescriptions"]
            for each in told:
                arn = each["ResourceArn"]
                tags[Leftover(kind, arn, names[arn])] = as_dict(each.get("Tags"))
        return tags

    def _balancer_interfaces(self, kept: Collection[str]) -> list[str]:
        """The interfaces of load balancers that are gone already."""
        found = []
        for each in self._described(f"{_BALANCER_INTERFACE}*"):
            # "ELB name" or "ELB app/name/id"
            parts = str(each.get("Description", "")).removeprefix(_BALANCER_INTERFACE).split("/")
            name = parts[1] if len(parts) > 1 else parts[0]
            if name not in kept:
                found.append(f"{each['NetworkInterfaceId']} ({name})")
        return found

    # Network interfaces

    def _described(self, description: str) -> list[dict[str, Any]]:
        filters = [
            {"Name": "vpc-id", "Values": [self._vpc]},
            {"Name": "description", "Values": [description]},
        ]
        return self._ec2.pages("describe_network_interfaces", "NetworkInterfaces", self._subject, Filters=filters)

    def _pod_interfaces(self) -> list[dict[str, Any]]:
        return [
            each
            for each in self._described(f"{_POD_INTERFACE}*")
            if self._mine(as_dict(each.get("TagSet")), by_name=True)
        ]

    def _interfaces(self) -> None:
        """Remove those of the VPC CNI as they get free; those of EKS go by themselves."""

        def free() -> list[Leftover]:
            return [
                Leftover("network interface", each["NetworkInterfaceId"], each.get("Description", ""))
                for each in self._pod_interfaces()
                if each.get("Status") == "available"
            ]

        def remove(thing: Leftover) -> None:
            self._delete_when_free(self._ec2, "delete_network_interface", thing, NetworkInterfaceId=thing.id)

        self._take(free(), remove)
        if not self._task.waits:
            return

        def left() -> list[str]:
            self._take(free(), remove)
            return [
                f"{each['NetworkInterfaceId']} ({each.get('Description')}, {each.get('Status')})"
                for each in (*self._pod_interfaces(), *self._described(f"{_EKS_INTERFACE}{self._cluster}"))
            ]

        self._wait_gone("the network interfaces of the cluster", left)

    # Security groups

    def _groups(self, balancers: Collection[str], *, cluster_gone: bool) -> None:
        filters = [{"Name": "vpc-id", "Values": [self._vpc]}]
        groups = self._ec2.pages("describe_security_groups", "SecurityGroups", self._subject, Filters=filters)
        doomed = [group for group in groups if self._goes(group, balancers, cluster_gone=cluster_gone)]
        ids = {group["GroupId"] for group in doomed}
        may_change = [group for group in groups if group["GroupId"] in ids or self._is_known(group)]
        self._task.take(self._revocations(may_change, ids))
        self._take(
            [Leftover("security group", group["GroupId"], group["GroupName"]) for group in doomed],
            lambda group: self._delete_when_free(self._ec2, "delete_security_group", group, GroupId=group.id),
        )

    def _goes(self, group: Mapping[str, Any], balancers: Collection[str], *, cluster_gone: bool) -> bool:
        name, tags = str(group["GroupName"]), as_dict(group.get("Tags"))
        if name == "default" or MANAGED_BY_TAG in tags:
            return False
        of_eks = name.startswith(f"{_EKS_GROUP}{self._cluster}-") or "aws:eks:cluster-name" in tags
        if of_eks:
            # The name has the cluster's in it, and one cluster's may be the beginning of another's.
            return cluster_gone and (self._mine(tags) if owners(tags) else self._is_eks_group(name))
        of_balancer = name.startswith(_BALANCER_GROUP)
        if of_balancer and not owners(tags) and name.removeprefix(_BALANCER_GROUP) in balancers:
            return True
        return self._mine(tags, by_name=of_balancer)

    def _is_eks_group(self, name: str) -> bool:
        """Whether EKS named a group for this very cluster: eks-cluster-sg-<cluster>-<number>."""
        return name.removeprefix(f"{_EKS_GROUP}{self._cluster}-").isdigit()

    def _is_known(self, group: Mapping[str, Any]) -> bool:
        tags = as_dict(group.get("Tags"))
        return self._mine(tags) or tags.get(MANAGED_BY_TAG) == MANAGED_BY

    def _revocations(self, groups: Sequence[Mapping[str, Any]], doomed: set[str]) -> Iterator[Step]:
        """Take rules away that name groups that go: EC2 deletes no group that a rule of another one names."""
        kinds = (
            ("IpPermissions", "revoke_security_group_ingress"),
            ("IpPermissionsEgress", "revoke_security_group_egress"),
        )
        for group in groups:
            for key, operation in kinds:
                rules = list(_naming(group.get(key) or (), doomed - {group["GroupId"]}))
                if rules:
                    text = (
                        f"{self._subject}: take rules out of security group {group['GroupId']} ({group['GroupName']})"
                    )
                    call = partial(
                        self._ec2.call, operation, str(group["GroupId"]), GroupId=group["GroupId"], IpPermissions=rules
                    )
                    yield Step(text, call)

    # What all of them need

    def _delete_when_free(self, client: Client, operation: str, thing: Leftover, **parameters: Any) -> None:
        """Delete a thing, again while something still uses it. Raises AwsError, in time with what AWS said last."""

        def look() -> Looked:
            try:
                client.find(operation, str(thing), **parameters)
            except CallError as error:
                if error.code not in _IN_USE and "in use" not in error.said:
                    raise
                if not self._task.waits:
                    raise AwsError(str(error), "Run again later, or with wait") from None
                return Looked(done=False, doing=f"{error.code}: {error.said}")
            return Looked(done=True)

        self._task.until(f"{self._subject}: {thing} has to go", look)

    def _wait_gone(self, what: str, left: Callable[[], list[str]]) -> None:
        def look() -> Looked:
            found = left()
            return Looked(not found, ", ".join(sorted(found)))

        self._task.until(f"{self._subject}: {what} have to be gone", look)


def _in_parts(values: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(values), _TAGS_AT_ONCE):
        yield values[start : start + _TAGS_AT_ONCE]


def _naming(rules: Iterable[Mapping[str, Any]], groups: Collection[str]) -> Iterator[dict[str, Any]]:
    """The parts of rules that name one of the groups, in the form that a revocation takes."""
    for rule in rules:
        pairs = [
            {"GroupId": pair["GroupId"]} for pair in rule.get("UserIdGroupPairs") or () if pair.get("GroupId") in groups
        ]
        if pairs:
            ports = {key: rule[key] for key in ("FromPort", "ToPort") if key in rule}
            yield {"IpProtocol": rule["IpProtocol"], **ports, "UserIdGroupPairs": pairs}
