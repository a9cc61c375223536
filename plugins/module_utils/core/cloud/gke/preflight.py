# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Preflight of a planned GKE cluster: responses of Google Cloud in, problems and warnings out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...accounts import EVERYWHERE, Account, ClusterThere, Offering, PoolThere, Quota, Reservation, Zone
from ...text import nearest_key
from ..engine.compare import numbers
from ..offerings import not_offered
from ..preflight import Line, Verdict, meeting, of_limits, verdict
from . import compare, demand, machines, reservations, rights
from .demand import family, gpus, machine_type, zones_of

Wire = Mapping[str, Any]
Types = Mapping[str, Mapping[str, Wire]]
"""Machine types or accelerator types in the format of Compute Engine, by name and zone."""

CHANNEL = "REGULAR"
PROVIDER = "gke"
_NETWORKS = "NETWORKS"
_ATTACHING = "n1"
"""The machine family that supports attached GPUs."""


@dataclass(frozen=True)
class Found:
    """Responses of Google. None stands for a value that could not be read.

    `apis`: the enabled APIs. `permissions`: the granted permissions of rights.EVERY. `node_account`: the address of the
    service account of nodes, empty if it is unknown. `node_account_there`: True if it exists. `may_act_as_it`: True if
    the identity of the run may attach it to machines. `zones`: the names of all available zones, of all regions.
    `machines`, `accelerators`: the zones of the region with each type, for types that could be read. `versions`: the
    versions of the channel for control planes. `quotas`: limit and usage, by region (EVERYWHERE for the project) and
    metric. `version`: the version of the existing cluster, or empty. `pools`: names of the existing node pools.
    `reservations`: the reservations of node pools that could be read. `day`: the date of the responses. `there_read`:
    True if the existing objects could be read.
    """

    apis: frozenset[str] | None = None
    permissions: frozenset[str] | None = None
    node_account: str = ""
    node_account_there: bool = True
    may_act_as_it: bool = True
    zones: tuple[str, ...] | None = None
    machines: Types = field(default_factory=dict)
    accelerators: Types = field(default_factory=dict)
    versions: tuple[str, ...] | None = None
    quotas: Mapping[str, Mapping[str, tuple[float, float]]] = field(default_factory=dict)
    version: str = ""
    pools: frozenset[str] = frozenset()
    reservations: reservations.Found = field(default_factory=dict)
    day: str = "1970-01-01"
    there_read: bool = True


def pools(plan: Wire) -> list[Wire]:
    """Return the node pools of a plan, in the format of the request."""
    return [entry["body"] for entry in plan["resources"] if entry["kind"] == "node-pool"]


def machine_types(plan: Wire) -> list[str]:
    """Return the machine types of all node pools, sorted."""
    return sorted({machine_type(pool) for pool in pools(plan)})


def accelerator_types(plan: Wire) -> list[str]:
    """Return the accelerator types of all node pools, sorted."""
    return sorted({kind for pool in pools(plan) for kind, __ in gpus(pool)})


def reservation_paths(plan: Wire) -> list[str]:
    """Return the paths of the reservations of node pools, sorted."""
    return sorted({path for pool in pools(plan) for path in reservations.named(pool, plan["project"])})


def missing_apis(plan: Wire, apis: Iterable[str]) -> list[str]:
    """Return the required APIs that are not enabled, and that the plan itself does not enable."""
    enabled = {*apis, *_enabled_by(plan)}
    return [api for api in rights.APIS if api not in enabled]


def judge(plan: Wire, found: Found, account: str = "", others: Sequence[Wire] = (), *, key: bool = True) -> Verdict:
    """Return the problems of a plan for the observed project, in the order of the plan.

    `account`: the identity of the run, if it is known. `others` are the ranges of other clusters of the fleet: name,
    region, cidr. `key`: True if the run creates a key of the service account. Problems of existing objects are
    warnings, because the run creates nothing for them.
    """
    lines = [*_apis(plan, found), *_rights(plan, found, account, key=key), *_node_account(plan, found, account)]
    no_region = list(_region(plan, found))
    lines += no_region
    if not no_region:
        lines += _version(plan, found)
        reserved = reservations.Judge(plan["project"], found.reservations)
        lines += [line for pool in pools(plan) for line in _pool(plan, pool, found, reserved)]
        lines += _quotas(plan, found)
    return verdict([*lines, *_networks(plan, others)])


def _enabled_by(plan: Wire) -> list[str]:
    return [entry["name"] for entry in plan["resources"] if entry["kind"] == "service"]


def _apis(plan: Wire, facts: Found) -> Iterator[Line]:
    missing = missing_apis(plan, facts.apis) if facts.apis is not None else []
    if missing:
        yield Line(
            f"project {plan['project']}: APIs are not enabled: {', '.join(missing)}. Run: gcloud services enable "
            f"{' '.join(missing)} --project {plan['project']}"
        )


def _rights(plan: Wire, facts: Found, account: str, *, key: bool) -> Iterator[Line]:
    if facts.permissions is None:
        return
    granted = set(facts.permissions)
    if facts.apis is not None and facts.apis >= set(_enabled_by(plan)):
        granted.add(rights.ENABLING)
    if not key:
        granted.update(rights.MAKING[rights.KEYS])
    subject, who = f"project {plan['project']}", account or "who runs this"
    making, removing = rights.lacking(rights.MAKING, granted), rights.lacking(rights.REMOVING, granted)
    if making:
        yield Line(f"{subject}: {who} {_lacks(making)}", problem=not facts.version)
    # A role that is already in the first message is not repeated.
    removing = {role: permissions for role, permissions in removing.items() if role not in making}
    if removing:
        yield Line(f"{subject}: removing the cluster needs more: {who} {_lacks(removing)}", problem=False)


def _lacks(roles: Mapping[str, Sequence[str]]) -> str:
    permissions = [permission for role_permissions in roles.values() for permission in role_permissions]
    give = f"the role {next(iter(roles))}" if len(roles) == 1 else f"the roles {', '.join(roles)}"
    return f"may not: {', '.join(permissions)}. Give it {give}, or one of your own that has these permissions"


def _node_account(plan: Wire, facts: Found, account: str) -> Iterator[Line]:
    """Yield the reasons why nodes cannot run as the service account of the plan."""
    subject, email, who = f"project {plan['project']}", facts.node_account, account or "who runs this"
    created = any(entry["name"] == email for entry in plan["resources"])
    if created and not facts.node_account_there:
        if facts.permissions is not None and rights.ACTING not in facts.permissions:
            yield Line(
                f"{subject}: {who} may not have nodes run as {email}, which is created with the cluster. Give it the "
                "role roles/iam.serviceAccountUser in the project, or set nodeServiceAccount to an account on which it "
                "has that role",
                problem=not facts.version,
            )
    elif not facts.node_account_there:
        yield Line(
            f"{subject}: the service account {email}, which nodes run as, does not exist. {_undelete(plan)}",
            problem=not facts.version,
        )
    elif not facts.may_act_as_it:
        yield Line(
            f"{subject}: {who} may not have nodes run as {email}. Give it the role roles/iam.serviceAccountUser on "
            "that service account",
            problem=not facts.version,
        )


def _undelete(plan: Wire) -> str:
    if plan["node_account"] != "default":
        return "Create it, or correct nodeServiceAccount"
    return (
        "Undelete it (gcloud iam service-accounts undelete), or disable and enable the API compute.googleapis.com, or "
        "remove nodeServiceAccount: nodes then get an account of their own"
    )


def _region(plan: Wire, facts: Found) -> Iterator[Line]:
    region = plan["region"]
    if facts.zones is None or zones_of(region, facts.zones):
        return
    hint = nearest_key(region, {zone.rpartition("-")[0] for zone in facts.zones})
    yield Line(f"spec.region: there is no region {region} in Google Cloud for project {plan['project']}. {hint}")


def _version(plan: Wire, facts: Found) -> Iterator[Line]:
    desired = plan["version"]
    if facts.versions is None or (facts.version and compare.version(facts.version, desired)):
        return
    if any(_is(offered, desired) for offered in facts.versions):
        return
    minor = ".".join(desired.split(".")[:2])
    # Manifests support versions without the suffix `-gke.1000`.
    near = {offered.partition("-")[0] for offered in facts.versions if _is(offered, minor)}
    versions = near or {".".join(offered.split(".")[:2]) for offered in facts.versions}
    yield Line(
        f"spec.kubernetesVersion: GKE does not offer Kubernetes {desired} on the channel {CHANNEL} in {plan['region']}"
        f". It offers {', '.join(sorted(versions, key=numbers))}"
    )


def _is(version: str, desired: str) -> bool:
    """Return True if a version (`1.35.4-gke.1000`) matches the desired version (`1.35`)."""
    desired_numbers = numbers(desired)
    return numbers(version)[: len(desired_numbers)] == desired_numbers


# Node pools


def _pool(plan: Wire, pool: Wire, facts: Found, reserved: reservations.Judge) -> Iterator[Line]:
    """Return the problems of one node pool."""
    exists = pool["name"] in facts.pools
    for line in (
        *_zones(plan, pool, facts),
        *_machine(plan, pool, facts),
        *_offered(plan, pool, facts),
        *reserved.pool(pool, new=not exists),
    ):
        yield Line(f"node pool {pool['name']}: {line.text}", line.problem and not exists)


def _zones(plan: Wire, pool: Wire, facts: Found) -> Iterator[Line]:
    if facts.zones is None:
        return
    region_zones = zones_of(plan["region"], facts.zones)
    for zone in pool.get("locations") or ():
        if zone not in region_zones:
            problem = f"zone {zone} does not exist in {plan['region']}, or is not up"
            yield Line(f"{problem}. {nearest_key(zone, region_zones)}")


def _machine(plan: Wire, pool: Wire, facts: Found) -> Iterator[Line]:
    """Yield a problem if the machine type does not exist, or does not support its pool."""
    kind = machine_type(pool)
    if kind not in facts.machines:
        return
    machine = _any(facts.machines, kind)
    if machine is None:
        yield Line(f"there is no machine type {kind} in {plan['region']}. Check it for a typing error, and the region")
        return
    if machine.get("architecture") == "ARM64" and machines.architecture(kind) != "arm64":
        yield Line(f"{kind} has Arm processors, and is not among the Arm machines that are known. Take another one")
    built_in = [
        (accelerator["guestAcceleratorType"], int(accelerator["guestAcceleratorCount"]))
        for accelerator in _built_in(machine)
    ]
    for desired, count in gpus(pool):
        if built_in and (desired, count) not in built_in:
            comes = ", ".join(f"{number} {gpu}" for gpu, number in built_in)
            yield Line(f"{kind} comes with {comes}, and the pool asks for {count} {desired}. Write what it comes with")
        elif not built_in and family(kind) != _ATTACHING:
            yield Line(f"{kind} takes no GPUs. Take a machine type that comes with {desired}, or one of the N1 series")
    if built_in and not gpus(pool):
        yield Line(f"{kind} comes with GPUs, and the pool has none. Take another machine type, or make its role GPU")


def _offered(plan: Wire, pool: Wire, facts: Found) -> Iterator[Line]:
    """Yield zones without the machine type or the accelerators.

    For a pool without zones, one zone of the region must have them, because the zones that GKE selects are unknown.
    """
    region_zones = zones_of(plan["region"], facts.zones or ())
    pool_zones = [zone for zone in pool.get("locations") or () if facts.zones is None or zone in region_zones]
    machine = _any(facts.machines, machine_type(pool))
    having = {machine_type(pool): sorted(facts.machines[machine_type(pool)])} if machine else {}
    if not _built_in(machine or {}):
        having |= {gpu: sorted(facts.accelerators[gpu]) for gpu, __ in gpus(pool) if gpu in facts.accelerators}
    for kind, zones in having.items():
        missing = not_offered(kind, pool_zones, zones, plan["region"])
        if missing:
            yield Line(". ".join(missing))
    yield from _cards(pool, facts)


def _cards(pool: Wire, facts: Found) -> Iterator[Line]:
    """Yield a problem for more accelerators than a machine supports."""
    for gpu, count in gpus(pool):
        kind = _any(facts.accelerators, gpu)
        max_cards = int((kind or {}).get("maximumCardsPerInstance") or count)
        if count > max_cards:
            yield Line(
                f"{count} {gpu} are asked for, and a machine takes {max_cards}. Lower the number of accelerators"
            )


def _built_in(machine: Wire) -> list[Wire]:
    return list(machine.get("accelerators") or ())


def _any(types: Types, kind: str) -> Wire | None:
    """Return the description of a type. It is the same in all zones."""
    return next(iter((types.get(kind) or {}).values()), None)


# Quotas


def observed(plan: Wire, found: Found) -> list[Account]:
    """Return the project in the region of a plan, and its global quotas, limited to the data that the plan needs."""
    existing_pools = [PoolThere(name=name) for name in sorted(found.pools)]
    clusters = [ClusterThere(name=plan["name"], pools=existing_pools)] if found.there_read else []
    zones = zones_of(plan["region"], found.zones or ())
    regional_account = Account(
        provider=PROVIDER,
        account=plan["project"],
        region=plan["region"],
        observed=found.day,
        reservations=_reserved(found),
        offerings=[_offering(kind, zones, found.day) for kind, zones in sorted(found.machines.items())],
        zones=[Zone(name=zone, id=zone) for zone in zones],
        clusters=clusters,
        quotas=_limits(found, plan["region"]),
    )
    counted = {metric for pool in pools(plan) for metric in demand.of_pool("", pool, regional_account, {}).takes}
    quotas = [quota for quota in regional_account.quotas if quota.code in counted]
    everywhere = Account(
        provider=PROVIDER,
        account=plan["project"],
        region=EVERYWHERE,
        observed=found.day,
        quotas=_limits(found, EVERYWHERE),
        clusters=clusters,
    )
    return [regional_account.model_copy(update={"quotas": quotas}), everywhere]


def _limits(facts: Found, place: str) -> list[Quota]:
    """Return the quotas of a region that node pools may count against, or of all regions together."""
    return [
        Quota(code=metric, limit=int(limit), used=int(used), observed=facts.day)
        for metric, (limit, used) in sorted(facts.quotas.get(place, {}).items())
        if (metric == demand.ALL_GPUS) == (place == EVERYWHERE) and limit >= 0
    ]


def _offering(kind: str, zones: Mapping[str, Wire], day: str) -> Offering:
    cpus = next((machine.get("guestCpus") for machine in zones.values()), None)
    vcpus = None if cpus is None else int(cpus)
    return Offering(machine=kind, vcpus=vcpus, zones=sorted(zones), observed=day)


def _reserved(facts: Found) -> list[Reservation]:
    return [
        Reservation(
            id=path,
            machine=reservations.machine_of(reservation),
            zone=zone,
            state=str(reservation.get("status") or ""),
            total=reservations.usable(reservation),
            free=max(reservations.usable(reservation) - reservations.in_use(reservation), 0),
            observed=facts.day,
        )
        for path, by_zone in sorted(facts.reservations.items())
        for zone, reservation in sorted(by_zone.items())
    ]


def _quotas(plan: Wire, facts: Found) -> Iterator[Line]:
    """Yield the quota problems of the pools. Problems of global quotas are last."""
    regional_account, everywhere = observed(plan, facts)
    name, existing_pools = plan["object"]["name"], regional_account.pools().get(plan["name"], {})
    demands = [demand.of_pool(name, pool, regional_account, existing_pools) for pool in pools(plan)]
    yield from of_limits(regional_account, demands, demand.WORDS)
    yield from of_limits(everywhere, demands, demand.WORDS)
    yield from _network_quota(plan, facts)


def _network_quota(plan: Wire, facts: Found) -> Iterator[Line]:
    limit, usage = facts.quotas.get(EVERYWHERE, {}).get(_NETWORKS, (1, 0))
    if not facts.version and usage + 1 > limit:
        yield Line(
            f"the quota {_NETWORKS} of project {plan['project']} is {limit:g}, and {usage:g} are in use: each cluster "
            f"has one of its own. {demand.WORDS.ask}, or remove one",
            problem=False,
        )


# Networks


def _networks(plan: Wire, others: Iterable[Wire]) -> Iterator[Line]:
    """Yield a warning for clusters with overlapping networks.

    Peering can never join such networks. The overlap has no other effect.
    """
    name, other_clusters = plan["object"]["name"], list(others)
    ranges = [address_range for address_range in _ranges(plan) if meeting(name, [address_range], other_clusters)]
    if ranges:
        clusters = ", ".join(meeting(name, ranges, other_clusters))
        yield Line(
            f"spec.networking: {', '.join(ranges)} overlap the networks of {clusters}, so that they cannot be joined "
            "(VPC Network Peering, VPN). Other ranges are written in a GKECluster; they cannot change later",
            problem=False,
        )


def _ranges(plan: Wire) -> list[str]:
    """Return the address ranges of nodes, pods and services."""
    return [
        cidr
        for entry in plan["resources"]
        if entry["kind"] == "subnetwork"
        for cidr in (
            entry["body"]["ipCidrRange"],
            *(secondary["ipCidrRange"] for secondary in entry["body"]["secondaryIpRanges"]),
        )
    ]
