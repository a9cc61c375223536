# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""What would keep a cluster from being made, seen before anything is made.

`look` asks AWS what a region has; the functions below it say what of it does not do, values in, findings out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.aws.client import Client
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.errors import AwsError, CallError
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.session import Account

ERROR, WARNING = "error", "warning"
_CAPACITY_BLOCK = "capacity-block"
_ACTIVE = "active"
# States that a block leaves for active by itself (EC2 API reference, CapacityReservation).
_COMING = ("scheduled", "pending", "payment-pending", "assessing", "delayed")
# Quotas of running On-Demand instances, in vCPUs, by the family of a type (Service Quotas, Amazon EC2).
_QUOTAS = (
    (r"p\d", "L-417A185B", "Running On-Demand P instances"),
    (r"(g\d|vt\d|gr\d)", "L-DB2E81BA", "Running On-Demand G and VT instances"),
    (r"trn\d", "L-2C3B7624", "Running On-Demand Trn instances"),
    (r"inf\d", "L-1945791B", "Running On-Demand Inf instances"),
    (r"[acdhimrtz]\d", "L-1216C47A", "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances"),
)


@dataclass(frozen=True)
class Finding:
    """Something that a person has to know of a cluster before it is made."""

    cluster: str
    severity: str
    message: str


@dataclass(frozen=True)
class InstanceType:
    """What EC2 says of an instance type; `interfaces` is how many EFA interfaces it takes, 0 without EFA."""

    vcpus: int
    cards: int
    interfaces: int


@dataclass
class Region:
    """What a region has of what clusters ask for. None where AWS did not tell, for the reason in `unknown`."""

    name: str
    failure: str = ""
    zones: Mapping[str, str] | None = None
    offered: frozenset[tuple[str, str]] | None = None
    types: Mapping[str, InstanceType] | None = None
    reservations: dict[str, Mapping[str, Any] | None] = field(default_factory=dict)
    versions: Mapping[str, str] | None = None
    quotas: dict[str, float] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)


def look(connect: Callable[[], Account], name: str, clusters: Sequence[Mapping[str, Any]]) -> Region:
    """Ask AWS for what these clusters, all of one region, need of it."""
    region = Region(name)
    try:
        account = connect()
        account.client("sts").call("get_caller_identity", f"the credentials in {name}")
    except AwsError as error:
        region.failure = str(error)
        return region
    types = sorted({each for cluster in clusters for each in _types(cluster)})
    ec2 = account.client("ec2")
    region.zones = _unless_refused(region, lambda: _zones(ec2, name))
    if types:
        region.offered = _unless_refused(region, lambda: _offered(ec2, name, types))
        region.types = _unless_refused(region, lambda: _described(ec2, name, types))
    for cluster in clusters:
        for asked in cluster["capacity_reservations"]:
            _reservation(region, ec2, asked["id"])
    region.versions = _unless_refused(region, lambda: _versions(account.client("eks"), name))
    for code, title in sorted({_quota(each) for each in _on_demand(clusters)} - {("", "")}):
        value = _unless_refused(region, partial(_quota_value, account, code, title))
        if value is not None:
            region.quotas[code] = value
    return region


def findings(cluster: Mapping[str, Any], region: Region) -> list[Finding]:
    """What is wrong with a cluster in a region, errors first."""
    if region.failure:
        return [Finding(cluster["name"], ERROR, region.failure)]
    found = [
        *_zone_findings(cluster, region),
        *_type_findings(cluster, region),
        *_fabric_findings(cluster, region),
        *_block_findings(cluster, region),
        *_quota_findings(cluster, region),
        *_version_findings(cluster, region),
        *((WARNING, f"could not be checked: {text}") for text in region.unknown),
    ]
    found.sort(key=lambda entry: entry[0] != ERROR)
    return [Finding(cluster["name"], severity, text) for severity, text in found]


Found = Iterator[tuple[str, str]]


def _zone_findings(cluster: Mapping[str, Any], region: Region) -> Found:
    if region.zones is None:
        return
    there = sorted(zone for zone, state in region.zones.items() if state == "available")
    for zone in sorted({*cluster["zones"], *cluster["instance_types"]}):
        if zone not in there:
            state = region.zones.get(zone)
            what = f"is {state}" if state else f"is not there for this account in {region.name}"
            yield ERROR, f"zone {zone} {what}. Choose among {', '.join(there)}"


def _type_findings(cluster: Mapping[str, Any], region: Region) -> Found:
    if region.offered is None:
        return
    for zone, types in sorted(cluster["instance_types"].items()):
        for each in sorted(types):
            if (zone, each) in region.offered:
                continue
            others = sorted(place for place, offered in region.offered if offered == each)
            instead = f"Zones with it: {', '.join(others)}" if others else f"{region.name} has none at all"
            yield ERROR, f"instance type {each} is not offered in {zone}. {instead}"


def _fabric_findings(cluster: Mapping[str, Any], region: Region) -> Found:
    for each, wanted in sorted(cluster["efa"].items()):
        found = (region.types or {}).get(each)
        if found is None:
            continue
        if not found.interfaces:
            yield ERROR, f"instance type {each} has no EFA. Set the fabric of its pool to None, or choose another type"
        elif wanted > found.cards:
            yield ERROR, f"{wanted} network cards of {each} are asked for, and it has {found.cards}"
        elif wanted > found.interfaces:
            yield ERROR, f"{wanted} EFA interfaces of {each} are asked for, and it takes {found.interfaces}"
        elif wanted < found.interfaces:
            yield WARNING, f"{wanted} of the {found.interfaces} EFA interfaces of {each} are used"


def _block_findings(cluster: Mapping[str, Any], region: Region) -> Found:
    for asked in cluster["capacity_reservations"]:
        if asked["id"] in region.reservations:
            yield from _block(asked, region.reservations[asked["id"]], region.name)


def _block(asked: Mapping[str, Any], found: Mapping[str, Any] | None, region: str) -> Found:
    """What keeps a pool from its nodes in a capacity block (`found`, as EC2 describes it)."""
    name = f"capacity reservation {asked['id']}"
    if found is None:
        yield ERROR, f"{name} is not there in {region}. Look at its id and region, and whether it is this account's"
        return
    kind = found.get("ReservationType", "default")
    if kind != _CAPACITY_BLOCK:
        yield ERROR, f"{name} is of type {kind}, and capacityBlock takes capacity blocks only"
    state, start, end = str(found.get("State")), found.get("StartDate"), found.get("EndDate")
    wanted, total = int(asked["count"]), int(found.get("TotalInstanceCount") or 0)
    if state in _COMING:
        when = f", and starts at {_moment(start)}" if start else ""
        yield (
            ERROR if wanted else WARNING,
            f"{name} is {state}{when}. Its pool can have nodes from then on: run again then, or set nodeCount to 0",
        )
    elif state != _ACTIVE:
        when = f"; it ended at {_moment(end)}" if end else ""
        yield ERROR, f"{name} is {state}{when}. Buy another block, and name it in the pool"
    if found.get("InstanceType") != asked["instance_type"]:
        yield ERROR, f"{name} is for {found.get('InstanceType')}, and its pool for {asked['instance_type']}"
    zone = found.get("AvailabilityZone")
    if list(asked["zones"]) != [zone]:
        yield (
            ERROR,
            f"{name} is in {zone}, and its pool in {', '.join(asked['zones'])}. Set zones of the pool to [{zone}]",
        )
    if total < wanted:
        yield ERROR, f"{name} has {total} machines, and its pool starts with {wanted}. Lower nodeCount"


def _moment(value: Any) -> str:
    return str(value.strftime("%Y-%m-%d %H:%M %Z").strip() if hasattr(value, "strftime") else value)


def _quota_findings(cluster: Mapping[str, Any], region: Region) -> Found:
    for each in sorted(_on_demand([cluster])):
        code, title = _quota(each)
        value, found = region.quotas.get(code), (region.types or {}).get(each)
        if value is not None and found is not None and value < found.vcpus:
            yield (
                ERROR,
                f"one {each} has {found.vcpus} vCPUs, and the quota {code} ({title}) of {region.name} is {value:g}. "
                "Ask for a higher one (Service Quotas, Amazon EC2), for all nodes of the pools together",
            )


def _version_findings(cluster: Mapping[str, Any], region: Region) -> Found:
    version = cluster["version"]
    if region.versions is None or not version:
        return
    offered = sorted(
        (each for each, status in region.versions.items() if status != "UNSUPPORTED"),
        key=lambda text: [int(part) for part in re.findall(r"\d+", text)],
    )
    if version not in offered:
        yield ERROR, f"EKS offers no Kubernetes {version} in {region.name}. Choose among {', '.join(offered)}"
    elif region.versions[version] == "EXTENDED_SUPPORT":
        yield WARNING, f"Kubernetes {version} is in extended support, which EKS charges for by the hour"


# What AWS is asked


def _types(cluster: Mapping[str, Any]) -> set[str]:
    return {each for types in cluster["instance_types"].values() for each in types} | set(cluster["efa"])


def _on_demand(clusters: Iterable[Mapping[str, Any]]) -> set[str]:
    """The instance types that count against a quota: machines of capacity blocks do not."""
    return {
        each
        for cluster in clusters
        for each in _types(cluster) - {asked["instance_type"] for asked in cluster["capacity_reservations"]}
    }


def _quota(instance_type: str) -> tuple[str, str]:
    """Code and name of the quota that instances of a type count against; empty when it is not known."""
    for pattern, code, title in _QUOTAS:
        if re.match(pattern, instance_type):
            return code, title
    return "", ""


def _unless_refused(region: Region, ask: Callable[[], Any]) -> Any:
    """What AWS answers; None, and a line in `unknown`, when it does not. Rights to look are no rights to make."""
    try:
        return ask()
    except CallError as error:
        region.unknown.append(str(error))
        return None


def _zones(ec2: Client, name: str) -> dict[str, str]:
    found = ec2.call("describe_availability_zones", f"region {name}", AllAvailabilityZones=False)
    return {
        each["ZoneName"]: each.get("State", "available")
        for each in found["AvailabilityZones"]
        if each.get("ZoneType", "availability-zone") == "availability-zone"
    }


def _offered(ec2: Client, name: str, types: Sequence[str]) -> frozenset[tuple[str, str]]:
    found = ec2.pages(
        "describe_instance_type_offerings",
        "InstanceTypeOfferings",
        f"region {name}",
        LocationType="availability-zone",
        Filters=[{"Name": "instance-type", "Values": list(types)}],
    )
    return frozenset((each["Location"], each["InstanceType"]) for each in found)


def _described(ec2: Client, name: str, types: Sequence[str]) -> dict[str, InstanceType]:
    # With a filter a type that is not there is left out, instead of failing the call.
    found = ec2.pages(
        "describe_instance_types",
        "InstanceTypes",
        f"region {name}",
        Filters=[{"Name": "instance-type", "Values": list(types)}],
    )
    return {each["InstanceType"]: _told(each) for each in found}


def _told(each: Mapping[str, Any]) -> InstanceType:
    network = each.get("NetworkInfo") or {}
    cards = int(network.get("MaximumNetworkCards") or 1)
    most = int((network.get("EfaInfo") or {}).get("MaximumEfaInterfaces") or cards)
    return InstanceType(
        vcpus=int((each.get("VCpuInfo") or {}).get("DefaultVCpus") or 0),
        cards=cards,
        interfaces=most if network.get("EfaSupported") else 0,
    )


def _reservation(region: Region, ec2: Client, identifier: str) -> None:
    def ask() -> Mapping[str, Any] | None:
        answer = ec2.find(
            "describe_capacity_reservations", f"capacity reservation {identifier}", CapacityReservationIds=[identifier]
        )
        return next(iter((answer or {}).get("CapacityReservations") or ()), None)

    told = len(region.unknown)
    found = _unless_refused(region, ask)
    if len(region.unknown) == told:
        region.reservations[identifier] = found


def _versions(eks: Client, name: str) -> dict[str, str]:
    found = eks.pages("describe_cluster_versions", "clusterVersions", f"region {name}", includeAll=True)
    return {each["clusterVersion"]: str(each.get("versionStatus") or "") for each in found}


def _quota_value(account: Account, code: str, title: str) -> float:
    told = account.client("service-quotas").call(
        "get_service_quota", f"{code} ({title})", ServiceCode="ec2", QuotaCode=code
    )
    return float(told["Quota"]["Value"])
