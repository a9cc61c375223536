# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Preflight of a planned EKS cluster: responses of AWS in, problems and warnings out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...accounts import Account, ClusterThere, Offering, PoolThere, Quota, Reservation, Zone
from ...text import nearest_key
from ..offerings import not_offered
from ..preflight import Line, Verdict, meeting, of_limits, verdict
from . import demand, machines, quotas

Wire = Mapping[str, Any]

PROVIDER = "eks"
_BLOCK = "CAPACITY_BLOCK"


@dataclass(frozen=True)
class Found:
    """Responses of AWS. None stands for a value that could not be read.

    `account`: the account number. `zones`: names of the available zones that support a control plane. `subnet_zones`:
    the zones of existing subnets of the cluster, by range. `offerings`: the zones of each requested instance type.
    `types`: DescribeInstanceTypes by type. `versions`: status by Kubernetes version. `reservations`:
    DescribeCapacityReservations by ID, None for a reservation that does not exist. `quotas`: vCPUs by code of
    quotas.NAMES. `version`: the version of the existing cluster, or empty. `node_groups`: names of the existing node
    groups. `groups_without_template`: the existing node groups without a launch template. `nodes`: the nodes of node
    groups, if they could be read. `zone_ids`: IDs by name of all zones of the region. `day`: the date of the responses.
    `there_read`: True if the existing objects could be read.
    """

    region: str
    account: str
    zones: tuple[str, ...] | None = None
    subnet_zones: Mapping[str, str] = field(default_factory=dict)
    offerings: Mapping[str, frozenset[str]] | None = None
    types: Mapping[str, Wire] | None = None
    versions: Mapping[str, str] | None = None
    reservations: Mapping[str, Wire | None] = field(default_factory=dict)
    quotas: Mapping[str, float] = field(default_factory=dict)
    version: str = ""
    node_groups: frozenset[str] = frozenset()
    groups_without_template: frozenset[str] = frozenset()
    nodes: Mapping[str, int] = field(default_factory=dict)
    zone_ids: Mapping[str, str] = field(default_factory=dict)
    day: str = "1970-01-01"
    there_read: bool = True


def zones_fit(plan: Wire, found: Found) -> bool:
    """Return True if the subnets of a plan are in usable zones, and existing subnets in their current zones."""
    existing_zones = found.subnet_zones
    usable = found.zones is None or set(plan["zones"]) <= {*found.zones, *existing_zones.values()}
    return usable and all(
        existing_zones.get(subnet["cidr"], subnet["zone"]) == subnet["zone"] for subnet in plan["subnets"]
    )


def instance_types(plan: Wire) -> list[str]:
    """Return the instance types of all node groups, sorted."""
    return sorted({group["instance_type"] for group in plan["node_groups"]})


def reservations(plan: Wire) -> list[str]:
    """Return the capacity reservations of all node groups, sorted."""
    return sorted({group["capacity_reservation"] for group in plan["node_groups"] if group["capacity_reservation"]})


def quota_codes(plan: Wire) -> list[str]:
    """Return the quotas of the node groups, sorted."""
    return sorted({code for group in plan["node_groups"] if (code := demand.quota_code(group))})


def observed(plan: Wire, found: Found) -> Account:
    """Return the account in the region of a plan, limited to the data that the plan needs."""
    groups = [PoolThere(name=name, nodes=found.nodes.get(name)) for name in sorted(found.node_groups)]
    return Account(
        provider=PROVIDER,
        account=found.account,
        region=found.region,
        observed=found.day,
        quotas=[
            Quota(code=code, name=quotas.NAMES[code], unit="vCPUs", limit=int(limit), observed=found.day)
            for code, limit in sorted(found.quotas.items())
        ],
        reservations=[
            _reserved(name, found, reservation)
            for name, reservation in sorted(found.reservations.items())
            if reservation is not None
        ],
        offerings=[_offering(kind, found) for kind in instance_types(plan) if kind in (found.types or {})],
        zones=[Zone(name=name, id=found.zone_ids.get(name, name)) for name in found.zones or ()],
        clusters=[ClusterThere(name=plan["name"], pools=groups)] if found.there_read else [],
    )


def _offering(kind: str, facts: Found) -> Offering:
    machine = (facts.types or {})[kind].get("VCpuInfo", {}).get("DefaultVCpus")
    having = None if facts.offerings is None else facts.offerings.get(kind, frozenset())
    zones = None if having is None else sorted(facts.zone_ids.get(zone, zone) for zone in having)
    return Offering(machine=kind, vcpus=machine, zones=zones, observed=facts.day)


def _reserved(name: str, facts: Found, reservation: Wire) -> Reservation:
    zone, state = (str(reservation.get(field) or "") for field in ("AvailabilityZone", "State"))
    total = int(reservation.get("TotalInstanceCount") or 0)
    period = {"from": reservation.get("StartDate"), "until": reservation.get("EndDate")}
    return Reservation.model_validate(
        {
            "id": name,
            "machine": str(reservation.get("InstanceType") or ""),
            "zone": str(reservation.get("AvailabilityZoneId") or facts.zone_ids.get(zone, zone)),
            "state": state,
            "observed": facts.day,
            "total": total,
            # Before the reservation starts, its future use is unknown.
            "free": int(reservation.get("AvailableInstanceCount", total)) if state == "active" else total,
            # Format the time by RFC 3339.
            **{field: str(time).replace(" ", "T") for field, time in period.items() if time},
        }
    )


def judge(plan: Wire, found: Found, others: Sequence[Wire] = ()) -> Verdict:
    """Return the problems of a plan for the observed AWS account, in the order of the plan.

    `others` are the other clusters of the fleet: name, region, cidr. Problems of an existing node group are warnings,
    because the run creates nothing for it.
    """
    lines = [
        *_version(plan, found),
        *_zones(plan, found),
        *(line for group in plan["node_groups"] for line in _group(plan, group, found)),
        *_plain(plan, found),
        *_quotas(plan, found),
        *_networks(plan, others),
    ]
    return verdict(lines)


def _version(plan: Wire, facts: Found) -> Iterator[Line]:
    version = plan["version"]
    if facts.versions is None or version == facts.version:
        return
    status = facts.versions.get(version)
    if status is None or status == "UNSUPPORTED":
        offered = ", ".join(sorted((v for v, s in facts.versions.items() if s != "UNSUPPORTED"), key=_numbers))
        yield Line(
            f"spec.kubernetesVersion: EKS does not offer Kubernetes {version} in {facts.region}. It offers {offered}"
        )
    elif status == "EXTENDED_SUPPORT":
        yield Line(
            f"spec.kubernetesVersion: Kubernetes {version} is in extended support, where EKS costs more per hour. Take "
            "a newer version when you can",
            problem=False,
        )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version))


def _zones(plan: Wire, facts: Found) -> Iterator[Line]:
    """Yield a problem if the region has too few zones for the subnets. The plan chooses among the available zones."""
    if facts.zones is None:
        return
    if len(facts.zones) < len(plan["zones"]):
        yield Line(
            f"spec.networking.subnetCidrs: has {len(plan['zones'])} entries, one for each zone, and {facts.region} has "
            f"{len(facts.zones)} zones for this account ({', '.join(facts.zones)}). Leave out some entries"
        )


def _group(plan: Wire, group: Wire, facts: Found) -> Iterator[Line]:
    """Return the problems of one node group."""
    exists = group["name"] in facts.node_groups
    for line in (
        *_offered(group, facts),
        *_machine(group, facts),
        *_fabric(plan, group, facts),
        *_reservation(group, facts),
    ):
        yield Line(line.text, line.problem and not exists)


def _plain(plan: Wire, facts: Found) -> Iterator[Line]:
    """Yield a warning for node groups of earlier releases. EKS cannot add a launch template to an existing group."""
    plain = [group["name"] for group in plan["node_groups"] if group["name"] in facts.groups_without_template]
    if plain:
        yield Line(
            f"node pools {', '.join(plain)}: exist without a launch template, which EKS adds to none, so they stay as "
            "they are: their pods may reach the credentials of the node (IMDS), and if their disks are encrypted is "
            "a setting of the account. Give the pool another name to have new nodes; its old ones go with it",
            problem=False,
        )


def _place(group: Wire) -> str:
    return f"node pool {group['name']}"


def _offered(group: Wire, facts: Found) -> Iterator[Line]:
    """Yield zones that do not exist, and zones that do not offer the instance type."""
    kind, gpu = group["instance_type"], group["role"] != "System"
    if facts.zones is not None and gpu:
        for zone in group["zones"]:
            if zone not in facts.zones:
                hint = nearest_key(zone, facts.zones)
                yield Line(f"{_place(group)}: zone {zone} is not available to this account in {facts.region}. {hint}")
    if facts.types is not None and kind not in facts.types:
        yield Line(f"{_place(group)}: there is no instance type {kind} in {facts.region}. Check it for a typing error")
        return
    if facts.offerings is None:
        return
    having = facts.offerings.get(kind, frozenset())
    known_zones = [zone for zone in group["zones"] if facts.zones is None or zone in facts.zones]
    missing = not_offered(kind, known_zones, having, facts.region)
    if missing and (gpu or not having.intersection(known_zones)):
        yield Line(f"{_place(group)}: {'. '.join(missing)}")


def _machine(group: Wire, facts: Found) -> Iterator[Line]:
    """Yield a problem if the instance type does not support the image of the nodes."""
    machine = (facts.types or {}).get(group["instance_type"])
    if machine is None:
        return
    kind = group["instance_type"]
    processors = machine.get("ProcessorInfo", {}).get("SupportedArchitectures", [])
    required_architecture = "arm64" if machines.architecture(kind) == "arm64" else "x86_64"
    if required_architecture not in processors:
        yield Line(
            f"{_place(group)}: {kind} has {' and '.join(processors) or 'unknown'} processors, and the nodes' image is "
            f"for {required_architecture}. Take another instance type"
        )
    makers = {gpu.get("Manufacturer") for gpu in machine.get("GpuInfo", {}).get("Gpus", [])}
    if group["role"] == "GPU" and "NVIDIA" not in makers:
        yield Line(f"{_place(group)}: {kind} has no NVIDIA GPU. Take another instance type")


def _fabric(plan: Wire, group: Wire, facts: Found) -> Iterator[Line]:
    """Yield a problem if the instance type does not have the EFA interfaces of its launch template."""
    cards = next((t["network_cards"] for t in plan["launch_templates"] if t["name"] == group["launch_template"]), 0)
    machine = (facts.types or {}).get(group["instance_type"])
    if not cards or machine is None:
        return
    kind, network = group["instance_type"], machine.get("NetworkInfo", {})
    if not network.get("EfaSupported"):
        yield Line(f"{_place(group)}: {kind} has no EFA. Leave fabric out, or take another instance type")
        return
    max_interfaces = min(
        network.get("MaximumNetworkCards", cards), network.get("EfaInfo", {}).get("MaximumEfaInterfaces", cards)
    )
    if cards > max_interfaces:
        yield Line(f"{_place(group)}: {cards} EFA interfaces are asked for, and {kind} has {max_interfaces}")
    elif cards < max_interfaces:
        yield Line(
            f"{_place(group)}: {kind} has {max_interfaces} EFA interfaces, and the nodes get {cards}", problem=False
        )


def _reservation(group: Wire, facts: Found) -> Iterator[Line]:
    """Yield a problem if the capacity reservation does not match these nodes, or is not active.

    Its capacity is checked with the quotas.
    """
    name = group["capacity_reservation"]
    if not name or name not in facts.reservations:
        return
    reservation, subject = facts.reservations[name], f"{_place(group)}: capacity reservation {name}"
    if reservation is None:
        yield Line(f"{subject} does not exist in {facts.region} for this account. Check the id and the region")
        return
    kind = reservation.get("ReservationType")
    if group["capacity_type"] == _BLOCK and kind != "capacity-block":
        yield Line(f"{subject} is no Capacity Block (its type is {kind or 'default'}). Give the id of a Capacity Block")
    yield from _state(subject, group, reservation)
    if reservation.get("InstanceType") != group["instance_type"]:
        yield Line(f"{subject} is for {reservation.get('InstanceType')}, and the pool has {group['instance_type']}")
    zone = reservation.get("AvailabilityZone")
    if list(group["zones"]) != [zone]:
        yield Line(f"{subject} is in {zone}, and the pool in {', '.join(group['zones'])}. Set zones of the pool to it")


def _state(subject: str, group: Wire, reservation: Wire) -> Iterator[Line]:
    state = reservation.get("State")
    if state == "active":
        return
    if state == "scheduled":
        starts = f", it starts at {reservation['StartDate']}" if reservation.get("StartDate") else ""
        if max(group["desired_size"], group["min_size"]) > 0:
            yield Line(
                f"{subject} is not active yet{starts}. Set nodeCount and minNodeCount to 0 until then, or run again "
                "when it is active"
            )
        else:
            yield Line(f"{subject} is not active yet{starts}: no node starts before", problem=False)
        return
    yield Line(f"{subject} is {state}, so nothing starts in it. Give the id of one that is active")


def _quotas(plan: Wire, facts: Found) -> Iterator[Line]:
    """Yield the problems of quotas and reservations. Other usage of the quotas is unknown."""
    account = observed(plan, facts)
    name, existing_pools = plan["object"]["name"], account.pools().get(plan["name"], {})
    demands = [demand.of_group(name, group, account, existing_pools) for group in plan["node_groups"]]
    return of_limits(account, demands, demand.WORDS)


def _networks(plan: Wire, other_clusters: Iterable[Wire]) -> Iterator[Line]:
    """Yield a warning for clusters with overlapping networks.

    Peering or a transit gateway can never join such networks. The overlap has no other effect.
    """
    vpc_range = plan["vpc"]["cidr"]
    overlapping = meeting(plan["object"]["name"], [vpc_range], other_clusters)
    if overlapping:
        yield Line(
            f"spec.networking.vpcCidr: {vpc_range} overlaps the network of {', '.join(overlapping)}, so their "
            "VPCs cannot be joined (peering, transit gateway). An EKSCluster of its own takes another vpcCidr; "
            "it cannot change later",
            problem=False,
        )
