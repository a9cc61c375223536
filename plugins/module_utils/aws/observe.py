# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Everything that AWS has of a planned EKS cluster, read in a few calls at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.aws.errors import AwsError, guarded, is_code
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.session import Account
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks.described import document
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks.names import CLUSTER_TAG
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks.observed import Answers, our_vpc

Plan = Mapping[str, Any]
Work = Callable[[], Any]

_WIDTH = 16
# EC2: the operation, the key of its answer, the id of an object, and the filter for a VPC ("" where there is none).
_NETWORK = {
    "subnets": ("describe_subnets", "Subnets", "SubnetId", "vpc-id"),
    "internet_gateways": (
        "describe_internet_gateways",
        "InternetGateways",
        "InternetGatewayId",
        "attachment.vpc-id",
    ),
    "nat_gateways": ("describe_nat_gateways", "NatGateways", "NatGatewayId", "vpc-id"),
    "route_tables": ("describe_route_tables", "RouteTables", "RouteTableId", "vpc-id"),
    "security_groups": ("describe_security_groups", "SecurityGroups", "GroupId", "vpc-id"),
    "addresses": ("describe_addresses", "Addresses", "AllocationId", ""),
}


def answers(account: Account, plan: Plan, *, everything: bool = False) -> Answers:
    """What AWS answers about the planned cluster; `everything` is read for a removal: mount targets too.

    Raises AwsError that tells all calls that were refused, since whoever lacks one right often lacks several.
    """
    # The account is part of the names of roles and policies.
    with guarded("ask AWS whose credentials these are"):
        owner = str(account.client("sts").get_caller_identity()["Account"])
    first: dict[str, Work] = {
        "vpcs": lambda: _vpcs(account, plan),
        "cluster": lambda: _cluster(account, plan["name"]),
        "node_groups": lambda: _node_groups(account, plan["name"]),
        "file_systems": lambda: _file_systems(account, plan),
        "launch_templates": lambda: _launch_templates(account, plan),
    }
    for kind in _NETWORK:
        first[kind] = partial(_described, account, kind, _tag_filter(plan))
    for role in plan["roles"]:
        first[f"role {role['key']}"] = partial(_role, account, role["name"])
    for policy in plan["policies"]:
        arn = f"arn:{plan['partition']}:iam::{owner}:policy/{policy['name']}"
        first[f"policy {policy['key']}"] = partial(_policy, account, arn)
    seen = _at_once(first)
    vpc = our_vpc(plan, seen["vpcs"], seen["subnets"])
    inside = _at_once(_inside(account, vpc, seen["file_systems"] if everything else ()))
    network: dict[str, Any] = {kind: _once(kind, [*seen[kind], *inside.get(kind, ())]) for kind in _NETWORK}
    return Answers(
        account=owner,
        dns=inside.get("dns", {}),
        mount_targets=inside.get("mount_targets", []),
        roles=_of("role ", seen),
        policies=_of("policy ", seen),
        **{key: seen[key] for key in ("vpcs", "cluster", "node_groups", "file_systems", "launch_templates")},
        **network,
    )


def _inside(account: Account, vpc: str, file_systems: Iterable[Mapping[str, Any]]) -> dict[str, Work]:
    """What can only be asked once the ids of the VPC and of the file systems are known."""
    work: dict[str, Work] = {}
    targets = [one["FileSystemId"] for one in file_systems]
    if targets:
        work["mount_targets"] = lambda: [one for name in targets for one in _mount_targets(account, name)]
    if vpc:
        work["dns"] = lambda: _dns(account, vpc)
        for kind, (_operation, _key, _id, name) in _NETWORK.items():
            if name:
                work[kind] = partial(_described, account, kind, _filter(name, vpc))
    return work


def _at_once(work: Mapping[str, Work]) -> dict[str, Any]:
    """The results of all pieces of work; raises one AwsError for all of those that failed."""
    if not work:
        return {}
    with ThreadPoolExecutor(max_workers=min(_WIDTH, len(work)), thread_name_prefix="aws") as pool:
        futures = {name: pool.submit(action) for name, action in work.items()}
    results, errors = {}, []
    for name, future in futures.items():
        try:
            results[name] = future.result()
        except AwsError as error:
            errors.append(error)
    if len(errors) == 1:
        raise errors[0]
    if errors:
        # Credentials that are refused are refused by every call, and need to be told only once.
        texts = list(dict.fromkeys(str(error) for error in errors))
        raise AwsError("\n".join(texts), code=errors[0].code)
    return results


def _of(prefix: str, seen: Mapping[str, Any]) -> dict[str, Any]:
    return {name.removeprefix(prefix): found for name, found in seen.items() if name.startswith(prefix) and found}


def _once(kind: str, found: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Each object once. An address without an id is one of EC2-Classic, which has none of ours."""
    key = _NETWORK[kind][2]
    return list({one[key]: one for one in found if key in one}.values())


def _filter(name: str, *values: str) -> list[dict[str, Any]]:
    return [{"Name": name, "Values": list(values)}]


def _tag_filter(plan: Plan) -> list[dict[str, Any]]:
    return _filter(f"tag:{CLUSTER_TAG}", plan["name"])


def _pages(client: Any, operation: str, key: str, what: str, **parameters: Any) -> list[Any]:
    """All entries of an answer that may come in pages."""
    with guarded(what):
        if client.can_paginate(operation):
            return list(client.get_paginator(operation).paginate(**parameters).build_full_result().get(key, ()))
        return list(getattr(client, operation)(**parameters).get(key, ()))


def _described(account: Account, kind: str, filters: list[dict[str, Any]]) -> list[Any]:
    operation, key, _id, _name = _NETWORK[kind]
    # The one operation of EC2 whose parameter has another name.
    parameter = "Filter" if kind == "nat_gateways" else "Filters"
    what = f"list {kind.replace('_', ' ')} in {account.region}"
    return _pages(account.client("ec2"), operation, key, what, **{parameter: filters})


def _vpcs(account: Account, plan: Plan) -> list[Any]:
    """Those with our tag, and those of the planned name."""
    found: dict[str, Any] = {}
    for filters in (_tag_filter(plan), _filter("tag:Name", plan["vpc"]["name"])):
        what = f"list VPCs in {account.region}"
        for one in _pages(account.client("ec2"), "describe_vpcs", "Vpcs", what, Filters=filters):
            found[one["VpcId"]] = one
    return list(found.values())


def _dns(account: Account, vpc: str) -> dict[str, bool]:
    result = {}
    for name, attribute in (("support", "enableDnsSupport"), ("hostnames", "enableDnsHostnames")):
        with guarded(f"read {attribute} of VPC {vpc}"):
            found = account.client("ec2").describe_vpc_attribute(VpcId=vpc, Attribute=attribute)
        result[name] = bool(found[f"{attribute[0].upper()}{attribute[1:]}"]["Value"])
    return result


def _launch_templates(account: Account, plan: Plan) -> list[Any]:
    """Those with our tag, and those of the planned names, which are unique."""
    names = [one["name"] for one in plan["launch_templates"]]
    found: dict[str, Any] = {}
    for filters in (_tag_filter(plan), _filter("launch-template-name", *names) if names else None):
        if filters:
            what = f"list launch templates in {account.region}"
            client = account.client("ec2")
            for one in _pages(client, "describe_launch_templates", "LaunchTemplates", what, Filters=filters):
                found[one["LaunchTemplateId"]] = one
    return list(found.values())


def _absent(work: Work, nothing: Any, *codes: str) -> Any:
    """The result of `work`, or `nothing` where AWS says by one of these codes that there is no such thing."""
    try:
        return work()
    except AwsError as error:
        if is_code(error, *codes):
            return nothing
        raise


def _cluster(account: Account, name: str) -> dict[str, Any]:
    def read() -> dict[str, Any]:
        with guarded(f"read EKS cluster {name} in {account.region}"):
            return dict(account.client("eks").describe_cluster(name=name)["cluster"])

    return dict(_absent(read, {}, "ResourceNotFoundException"))


def _node_groups(account: Account, name: str) -> list[str]:
    what = f"list node groups of EKS cluster {name}"
    found = _absent(
        lambda: _pages(account.client("eks"), "list_nodegroups", "nodegroups", what, clusterName=name),
        [],
        "ResourceNotFoundException",
    )
    return list(found)


def _file_systems(account: Account, plan: Plan) -> list[Any]:
    token = plan["file_system"]["creation_token"]
    what = f"look for EFS file system {token} in {account.region}"
    found = _absent(
        lambda: _pages(account.client("efs"), "describe_file_systems", "FileSystems", what, CreationToken=token),
        [],
        "FileSystemNotFound",
    )
    return [one for one in found if one.get("LifeCycleState") != "deleted"]


def _mount_targets(account: Account, file_system: str) -> list[Any]:
    what = f"list mount targets of EFS file system {file_system}"
    client = account.client("efs")
    found = _absent(
        lambda: _pages(client, "describe_mount_targets", "MountTargets", what, FileSystemId=file_system),
        [],
        "FileSystemNotFound",
    )
    return list(found)


def _role(account: Account, name: str) -> dict[str, Any]:
    def read() -> dict[str, Any]:
        what, client = f"read IAM role {name}", account.client("iam")
        with guarded(what):
            role = client.get_role(RoleName=name)["Role"]
        attached = _pages(client, "list_attached_role_policies", "AttachedPolicies", what, RoleName=name)
        return {"Role": role, "Attached": [one["PolicyArn"] for one in attached]}

    return dict(_absent(read, {}, "NoSuchEntity"))


def _policy(account: Account, arn: str) -> dict[str, Any]:
    def read() -> dict[str, Any]:
        client = account.client("iam")
        with guarded(f"read IAM policy {arn}"):
            policy = client.get_policy(PolicyArn=arn)["Policy"]
            version = client.get_policy_version(PolicyArn=arn, VersionId=policy["DefaultVersionId"])
        return {"Policy": policy, "Document": document(version["PolicyVersion"]["Document"])}

    return dict(_absent(read, {}, "NoSuchEntity"))
