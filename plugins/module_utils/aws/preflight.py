# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Preflight of a planned EKS cluster: reads of its account."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..cloud import task
from ..cloud.preflight import at_once, failures, results, today
from ..core.cloud.eks import preflight
from ..core.cloud.eks.kinds import KINDS, OWNERS
from ..core.cloud.eks.names import CLUSTER_TAG
from ..core.cloud.eks.preflight import Found
from ..core.cloud.eks.regions import holds_control_plane
from ..core.cloud.preflight import Verdict
from ..core.observation import accounts_wire
from . import session
from .errors import AwsError, guarded, is_code
from .find import Finder
from .session import Account

Plan = Mapping[str, Any]

_KEYS = ("name", "object", "region", "version", "tags", "vpc", "subnets", "zones", "node_groups", "launch_templates")
# An identity that can create a cluster might lack some of these read permissions, so a denied read is a warning.
_DENIED = (
    "AccessDenied",
    "AccessDeniedException",
    "Client.UnauthorizedOperation",
    "OperationNotPermitted",
    "UnauthorizedOperation",
)
# AWS itself reports problems of these early and clearly.
_BEST_EFFORT = ("versions", "quotas")
_NO_RESERVATION = ("InvalidCapacityReservationId.NotFound", "InvalidCapacityReservationId.Malformed")


@dataclass(frozen=True)
class Reading:
    """Result of the reads.

    `account`, `arn`: the account and the ARN of the credentials, empty if AWS rejects them. `verdict`: the failed
    reads: errors are problems, missing permissions are warnings.
    """

    account: str
    arn: str
    facts: Found
    verdict: Verdict


def check(module: Any) -> dict[str, Any]:
    """Return the results of the module cloud_preflight_info. Raises CloudError."""
    params = module.params
    plan = params["plan"]
    if plan is not None:
        task.check_plan(params, _KEYS, "region")
    reading = read(session.account(module), plan)
    verdicts = [reading.verdict]
    if plan and reading.account:
        verdicts.append(preflight.judge(plan, reading.facts, params["others"]))
    observed = [preflight.observed(plan, reading.facts)] if plan and reading.account else []
    return {
        "account": reading.account,
        "arn": reading.arn,
        "observed": accounts_wire(observed),
        "zones": list(reading.facts.zones or ()),
        "subnet_zones": dict(reading.facts.subnet_zones),
        "groups_without_template": sorted(reading.facts.groups_without_template),
        "zones_fit": not plan or preflight.zones_fit(plan, reading.facts),
        **results(*verdicts),
    }


def read(account: Account, plan: Plan | None) -> Reading:
    """Read the data for the judgment of a plan; without a plan, only the identity of the credentials and the zones."""
    region = account.region
    try:
        with guarded(f"ask AWS in {region} whose credentials these are"):
            caller = account.client("sts").get_caller_identity()
    except AwsError as error:
        return Reading("", "", Found(region, ""), Verdict((str(error),), ()))
    got, failed = at_once(_work(account, plan), AwsError)
    version, groups = got.get("there") or ("", {})
    zones = got.get("zones")
    facts = Found(
        region,
        str(caller["Account"]),
        zones=None if zones is None else _for_control_planes(zones),
        zone_ids={zone["ZoneName"]: zone["ZoneId"] for zone in zones or () if zone.get("ZoneId")},
        subnet_zones=got.get("subnets") or {},
        offerings=got.get("offerings"),
        types=got.get("types"),
        versions=got.get("versions"),
        reservations={name.partition(" ")[2]: value for name, value in got.items() if name.startswith("reservation ")},
        quotas=got.get("quotas") or {},
        version=version,
        node_groups=frozenset(groups),
        groups_without_template=frozenset(name for name, group in groups.items() if _is_plain(group)),
        nodes={
            name: int(group["scalingConfig"]["desiredSize"])
            for name, group in groups.items()
            if "desiredSize" in group.get("scalingConfig", {})
        },
        day=today(),
        there_read="there" in got,
    )
    passed = {name for name, error in failed.items() if name in _BEST_EFFORT or is_code(error, *_DENIED)}
    return Reading(facts.account, str(caller["Arn"]), facts, failures(failed, passed))


def _work(account: Account, plan: Plan | None) -> dict[str, Callable[[], Any]]:
    work: dict[str, Callable[[], Any]] = {"zones": partial(_zones, account)}
    if plan is None:
        return work
    types = preflight.instance_types(plan)
    work |= {
        "subnets": partial(_subnets, account, plan),
        "types": partial(_types, account, types),
        "offerings": partial(_offerings, account, types),
        "versions": partial(_versions, account),
        "there": partial(_there, account, plan["name"]),
        "quotas": partial(_quotas, account, preflight.quota_codes(plan)),
    }
    for name in preflight.reservations(plan):
        work[f"reservation {name}"] = partial(_reservation, account, name)
    return work


def _zones(account: Account) -> list[dict[str, Any]]:
    with guarded(f"list the zones of {account.region}"):
        available_zones: list[dict[str, Any]] = account.client("ec2").describe_availability_zones()["AvailabilityZones"]
    return available_zones


def _for_control_planes(zones: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the zones that support a control plane.

    Local zones, zones that the account has not opted into, and zones without subnets for EKS are omitted.
    """
    return tuple(
        sorted(
            zone["ZoneName"]
            for zone in zones
            if zone.get("State") == "available"
            and zone.get("ZoneType", "availability-zone") == "availability-zone"
            and zone.get("OptInStatus") != "not-opted-in"
            and holds_control_plane(zone.get("ZoneId", ""))
        )
    )


def _subnets(account: Account, plan: Plan) -> dict[str, str]:
    """Return the zones of the existing subnets of the cluster, by range. The subnets are in one VPC."""
    plan_owner = OWNERS.of(KINDS["subnet"], {"Tags": plan["tags"]})
    purpose = f"list the subnets of {plan['name']} in {account.region}"
    tagged = Finder(account).described("subnet", purpose, {f"tag:{CLUSTER_TAG}": plan["name"]})
    cluster_subnets = [subnet for subnet in tagged if OWNERS.of(KINDS["subnet"], subnet) == plan_owner]
    vpcs = Counter(subnet["VpcId"] for subnet in cluster_subnets)
    vpc = max(sorted(vpcs), key=vpcs.__getitem__, default="")
    return {subnet["CidrBlock"]: subnet["AvailabilityZone"] for subnet in cluster_subnets if subnet["VpcId"] == vpc}


def _types(account: Account, types: Iterable[str]) -> dict[str, Any]:
    purpose = f"describe instance types in {account.region}"
    instance_types = Finder(account).pages(
        "ec2", "describe_instance_types", "InstanceTypes", purpose, Filters=_of_type(types)
    )
    return {instance_type["InstanceType"]: instance_type for instance_type in instance_types}


def _offerings(account: Account, types: Iterable[str]) -> dict[str, frozenset[str]]:
    purpose = f"list where instance types are offered in {account.region}"
    parameters = {"LocationType": "availability-zone", "Filters": _of_type(types)}
    offerings = Finder(account).pages(
        "ec2", "describe_instance_type_offerings", "InstanceTypeOfferings", purpose, **parameters
    )
    return {
        kind: frozenset(offering["Location"] for offering in offerings if offering["InstanceType"] == kind)
        for kind in types
    }


def _of_type(types: Iterable[str]) -> list[dict[str, Any]]:
    return [{"Name": "instance-type", "Values": list(types)}]


def _versions(account: Account) -> dict[str, str]:
    """Return the status of each Kubernetes version of EKS."""
    purpose = f"list the Kubernetes versions of EKS in {account.region}"
    versions = Finder(account).pages("eks", "describe_cluster_versions", "clusterVersions", purpose)
    return {
        version["clusterVersion"]: version.get("versionStatus") or _status(version.get("status", ""))
        for version in versions
    }


def _status(older: str) -> str:
    """Return the older field `status` in the format of `versionStatus`."""
    return older.upper().replace("-", "_")


def _there(account: Account, name: str) -> tuple[str, dict[str, dict[str, Any]]]:
    """Return the version and the node groups of the cluster, by name; empty if the cluster does not exist yet."""
    finder, purpose = Finder(account), f"list the node groups of EKS cluster {name}"
    try:
        cluster = finder.call("eks", "describe_cluster", f"describe EKS cluster {name}", name=name)["cluster"]
        groups = sorted(map(str, finder.pages("eks", "list_nodegroups", "nodegroups", purpose, clusterName=name)))
    except AwsError as error:
        if is_code(error, "ResourceNotFoundException"):
            return "", {}
        raise
    return str(cluster.get("version", "")), {group: _group(finder, name, group) for group in groups}


def _group(finder: Finder, cluster: str, group: str) -> dict[str, Any]:
    """Return a node group in the format of EKS; empty for a deleted node group."""
    try:
        purpose = f"describe node group {group} of EKS cluster {cluster}"
        node_group: dict[str, Any] = finder.call(
            "eks", "describe_nodegroup", purpose, clusterName=cluster, nodegroupName=group
        )["nodegroup"]
    except AwsError as error:
        if is_code(error, "ResourceNotFoundException"):
            return {}
        raise
    return node_group


def _is_plain(group: Mapping[str, Any]) -> bool:
    """Return True if a node group has no launch template.

    A deleted node group, or a node group with a failed creation, is created again with a launch template.
    """
    status = group.get("status", "DELETING")
    return not group.get("launchTemplate") and status not in ("CREATE_FAILED", "DELETING")


def _reservation(account: Account, name: str) -> Any:
    """Return a capacity reservation in the format of EC2, None if it does not exist."""
    try:
        reservations = Finder(account).call(
            "ec2",
            "describe_capacity_reservations",
            f"describe capacity reservation {name}",
            CapacityReservationIds=[name],
        )
    except AwsError as error:
        if is_code(error, *_NO_RESERVATION):
            return None
        raise
    return next(iter(reservations["CapacityReservations"]), None)


def _quotas(account: Account, codes: Iterable[str]) -> dict[str, float]:
    """Return the maximum number of running vCPUs, by quota."""
    return {code: _quota(account, code) for code in codes}


def _quota(account: Account, code: str) -> float:
    finder, purpose, quota_key = (
        Finder(account),
        f"read the quota {code} of EC2",
        {"ServiceCode": "ec2", "QuotaCode": code},
    )
    try:
        quota = finder.call("service-quotas", "get_service_quota", purpose, **quota_key)
    except AwsError as error:
        if not is_code(error, "NoSuchResourceException"):
            raise
        # The account has no value of its own, so the AWS default applies.
        quota = finder.call("service-quotas", "get_aws_default_service_quota", purpose, **quota_key)
    return float(quota["Quota"]["Value"])
