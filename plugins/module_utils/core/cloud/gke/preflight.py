# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Preflight of a planned GKE cluster: what was read of Google Cloud in, problems and warnings out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.engine.compare import numbers
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.gke import compare, reservations, rights
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.preflight import (
    Line,
    Verdict,
    meeting,
    verdict,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.text import nearest_key

Wire = Mapping[str, Any]
Types = Mapping[str, Mapping[str, Wire]]
"""Machine types or types of accelerators as Compute Engine describes them, by name and zone."""

CHANNEL = "REGULAR"
GLOBAL = "global"
"""Stands for the region in quotas of a whole project."""
_CPUS, _ADDRESSES, _DISKS, _ALL_GPUS, _NETWORKS = (
    *("CPUS", "IN_USE_ADDRESSES", "SSD_TOTAL_GB"),
    *("GPUS_ALL_REGIONS", "NETWORKS"),
)
_DISK_GB = 100
"""Disk that GKE gives a node that asks for none."""
_ZONES = 3
"""In how many zones of its region GKE has the nodes of a pool that names none."""
_SHARED_CPUS = ("e2", "f1", "g1", "n1")
"""Families of machines that count against CPUS. Others have a quota of their own, or only one of GPUs."""
_ATTACHING = "n1"
"""The family whose machines take GPUs that they do not come with."""
_GPU_METRICS = {"nvidia-a100-80gb": "NVIDIA_A100_80GB_GPUS", "nvidia-h100-80gb": "NVIDIA_H100_GPUS"}
_ASK = "Ask for more in the Google Cloud console (IAM & Admin, Quotas & System Limits)"


@dataclass(frozen=True)
class Found:
    """Answers of Google. None stands for what could not be read.

    `apis`: those that are enabled. `permissions`: those of rights.EVERY that we have. `node_account`: the address of
    the service account that nodes run as, empty when it is not known; `node_account_there` and `may_act_as_it`: whether
    it exists, and whether we may have machines run as it. `zones`: the names of all zones that are up, of all regions.
    `machines`, `accelerators`: the zones of the region that have each type, of those that could be read. `versions`:
    what the channel has for control planes. `quotas`: by region (GLOBAL for the project) and metric, limit and usage.
    `version`: that of the cluster that is there, or empty. `pools`: names of the node pools that are there.
    `reservations`: those that node pools name, of those that could be read.
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


def pools(plan: Wire) -> list[Wire]:
    """The node pools of a plan, as they are sent."""
    return [entry["body"] for entry in plan["resources"] if entry["kind"] == "node-pool"]


def machine_types(plan: Wire) -> list[str]:
    """The machine types of all node pools, sorted."""
    return sorted({_machine_type(pool) for pool in pools(plan)})


def accelerator_types(plan: Wire) -> list[str]:
    """The types of accelerators of all node pools, sorted."""
    return sorted({kind for pool in pools(plan) for kind, __ in _gpus(pool)})


def reservation_paths(plan: Wire) -> list[str]:
    """The paths of the reservations that node pools name, sorted."""
    return sorted({path for pool in pools(plan) for path in reservations.named(pool, plan["project"])})


def zones_of(region: str, zones: Iterable[str]) -> list[str]:
    """Those of the zones that are in a region, sorted."""
    return sorted(zone for zone in zones if zone.rpartition("-")[0] == region)


def missing_apis(plan: Wire, apis: Iterable[str]) -> list[str]:
    """The APIs that are needed, not enabled, and not enabled by the plan itself."""
    enabled = {*apis, *_enabled_by(plan)}
    return [api for api in rights.APIS if api not in enabled]


def judge(plan: Wire, found: Found, account: str = "", others: Sequence[Wire] = (), *, key: bool = True) -> Verdict:
    """Return what is wrong with a plan where Google Cloud is as found, in the order of the plan.

    `account`: who we are, as far as that is known. `others` are the ranges of other clusters of the fleet: name,
    region, cidr. `key`: whether a key of the service account is to be made. What concerns what is there already is a
    warning, as nothing is made for it.
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


def _apis(plan: Wire, found: Found) -> Iterator[Line]:
    missing = missing_apis(plan, found.apis) if found.apis is not None else []
    if missing:
        yield Line(
            f"project {plan['project']}: APIs are not enabled: {', '.join(missing)}. Run: gcloud services enable "
            f"{' '.join(missing)} --project {plan['project']}"
        )


def _rights(plan: Wire, found: Found, account: str, *, key: bool) -> Iterator[Line]:
    if found.permissions is None:
        return
    held = set(found.permissions)
    if found.apis is not None and found.apis >= set(_enabled_by(plan)):
        held.add(rights.ENABLING)
    if not key:
        held.update(rights.MAKING[rights.KEYS])
    place, who = f"project {plan['project']}", account or "who runs this"
    making, removing = rights.lacking(rights.MAKING, held), rights.lacking(rights.REMOVING, held)
    if making:
        yield Line(f"{place}: {who} {_lacks(making)}", problem=not found.version)
    # Roles that are to be given anyway are named once.
    removing = {role: permissions for role, permissions in removing.items() if role not in making}
    if removing:
        yield Line(f"{place}: removing the cluster needs more: {who} {_lacks(removing)}", problem=False)


def _lacks(roles: Mapping[str, Sequence[str]]) -> str:
    permissions = [each for listed in roles.values() for each in listed]
    give = f"the role {next(iter(roles))}" if len(roles) == 1 else f"the roles {', '.join(roles)}"
    return f"may not: {', '.join(permissions)}. Give it {give}, or one of your own that has these permissions"


def _node_account(plan: Wire, found: Found, account: str) -> Iterator[Line]:
    """Yield why nodes cannot run as the service account that the plan has for them."""
    place, email, who = f"project {plan['project']}", found.node_account, account or "who runs this"
    created = any(entry["name"] == email for entry in plan["resources"])
    if created and not found.node_account_there:
        if found.permissions is not None and rights.ACTING not in found.permissions:
            yield Line(
                f"{place}: {who} may not have nodes run as {email}, which is created with the cluster. Give it the "
                "role roles/iam.serviceAccountUser in the project, or set nodeServiceAccount to an account on which it "
                "has that role",
                problem=not found.version,
            )
    elif not found.node_account_there:
        yield Line(
            f"{place}: the service account {email}, which nodes run as, does not exist. {_undelete(plan)}",
            problem=not found.version,
        )
    elif not found.may_act_as_it:
        yield Line(
            f"{place}: {who} may not have nodes run as {email}. Give it the role roles/iam.serviceAccountUser on that "
            "service account",
            problem=not found.version,
        )


def _undelete(plan: Wire) -> str:
    if plan["node_account"] != "default":
        return "Create it, or correct nodeServiceAccount"
    return (
        "Undelete it (gcloud iam service-accounts undelete), or disable and enable the API compute.googleapis.com, or "
        "remove nodeServiceAccount: nodes then get an account of their own"
    )


def _region(plan: Wire, found: Found) -> Iterator[Line]:
    region = plan["region"]
    if found.zones is None or zones_of(region, found.zones):
        return
    hint = nearest_key(region, {zone.rpartition("-")[0] for zone in found.zones})
    yield Line(f"spec.region: there is no region {region} in Google Cloud for project {plan['project']}. {hint}")


def _version(plan: Wire, found: Found) -> Iterator[Line]:
    desired = plan["version"]
    if found.versions is None or (found.version and compare.version(found.version, desired)):
        return
    if any(_is(offered, desired) for offered in found.versions):
        return
    minor = ".".join(desired.split(".")[:2])
    # What manifests have room for: without `-gke.1000`.
    near = {offered.partition("-")[0] for offered in found.versions if _is(offered, minor)}
    versions = near or {".".join(offered.split(".")[:2]) for offered in found.versions}
    yield Line(
        f"spec.kubernetesVersion: GKE does not offer Kubernetes {desired} on the channel {CHANNEL} in {plan['region']}"
        f". It offers {', '.join(sorted(versions, key=numbers))}"
    )


def _is(version: str, desired: str) -> bool:
    """Return whether a version (`1.35.4-gke.1000`) is one that is meant (`1.35`)."""
    asked = numbers(desired)
    return numbers(version)[: len(asked)] == asked


# Node pools


def _pool(plan: Wire, pool: Wire, found: Found, reserved: reservations.Judge) -> Iterator[Line]:
    """Return what is wrong with one node pool."""
    there = pool["name"] in found.pools
    for line in (
        *_zones(plan, pool, found),
        *_machine(plan, pool, found),
        *_offered(plan, pool, found),
        *reserved.pool(pool, new=not there),
    ):
        yield Line(f"node pool {pool['name']}: {line.text}", line.problem and not there)


def _zones(plan: Wire, pool: Wire, found: Found) -> Iterator[Line]:
    if found.zones is None:
        return
    known = zones_of(plan["region"], found.zones)
    for zone in pool.get("locations") or ():
        if zone not in known:
            problem = f"zone {zone} does not exist in {plan['region']}, or is not up"
            yield Line(f"{problem}. {nearest_key(zone, known)}")


def _machine(plan: Wire, pool: Wire, found: Found) -> Iterator[Line]:
    """The machine type is there, and is one for what runs on it."""
    kind = _machine_type(pool)
    if kind not in found.machines:
        return
    machine = _any(found.machines, kind)
    if machine is None:
        yield Line(f"there is no machine type {kind} in {plan['region']}. Check it for a typing error, and the region")
        return
    if machine.get("architecture") == "ARM64":
        yield Line(f"{kind} has Arm processors, and what runs on the nodes is for x86. Take another machine type")
    own = [(each["guestAcceleratorType"], int(each["guestAcceleratorCount"])) for each in _built_in(machine)]
    for desired, count in _gpus(pool):
        if own and (desired, count) not in own:
            comes = ", ".join(f"{number} {gpu}" for gpu, number in own)
            yield Line(f"{kind} comes with {comes}, and the pool asks for {count} {desired}. Write what it comes with")
        elif not own and _family(kind) != _ATTACHING:
            yield Line(f"{kind} takes no GPUs. Take a machine type that comes with {desired}, or one of the N1 series")
    if own and not _gpus(pool):
        yield Line(f"{kind} comes with GPUs, and the pool has none. Take another machine type, or make its role GPU")


def _offered(plan: Wire, pool: Wire, found: Found) -> Iterator[Line]:
    """The zones have the machine type and the accelerators. A pool that names no zones needs one that has them: those
    that GKE chooses are not known before."""
    known = zones_of(plan["region"], found.zones or ())
    named = [zone for zone in pool.get("locations") or () if found.zones is None or zone in known]
    machine = _any(found.machines, _machine_type(pool))
    having = {_machine_type(pool): sorted(found.machines[_machine_type(pool)])} if machine else {}
    if not _built_in(machine or {}):
        having |= {gpu: sorted(found.accelerators[gpu]) for gpu, __ in _gpus(pool) if gpu in found.accelerators}
    for kind, zones in having.items():
        lacking = [zone for zone in named if zone not in zones]
        if lacking and zones:
            yield Line(f"{kind} is not offered in {', '.join(lacking)}. It is offered in {', '.join(zones)}")
        elif not zones:
            yield Line(f"{kind} is not offered in {plan['region']}. Take another type, or another region")
    yield from _cards(pool, found)


def _cards(pool: Wire, found: Found) -> Iterator[Line]:
    """No more accelerators than a machine takes."""
    for gpu, count in _gpus(pool):
        kind = _any(found.accelerators, gpu)
        most = int((kind or {}).get("maximumCardsPerInstance") or count)
        if count > most:
            yield Line(f"{count} {gpu} are asked for, and a machine takes {most}. Lower the number of accelerators")


def _machine_type(pool: Wire) -> str:
    return str(pool["config"]["machineType"])


def _gpus(pool: Wire) -> list[tuple[str, int]]:
    """The type and number of the accelerators of a machine."""
    return [
        (str(each["acceleratorType"]), int(each["acceleratorCount"]))
        for each in pool["config"].get("accelerators") or ()
    ]


def _built_in(machine: Wire) -> list[Wire]:
    return list(machine.get("accelerators") or ())


def _family(machine_type: str) -> str:
    return machine_type.partition("-")[0]


def _any(types: Types, kind: str) -> Wire | None:
    """A type as it is described, which is the same in all zones."""
    return next(iter((types.get(kind) or {}).values()), None)


# Quotas


def _quotas(plan: Wire, found: Found) -> Iterator[Line]:
    """Return what the pools take of quotas, in the order of these. Which ones Google counts is not certain, so all is a
    warning: when it comes to it, Google refuses clearly."""
    for place, quotas in sorted(found.quotas.items(), key=lambda entry: entry[0] == GLOBAL):
        where = "for all regions" if place == GLOBAL else f"in {place}"
        for metric, (limit, usage) in sorted(quotas.items()):
            if metric == _NETWORKS:
                yield from _network_quota(plan, found, place, limit, usage)
            elif (metric == _ALL_GPUS) == (place == GLOBAL):
                bound = f"the quota {metric} of project {plan['project']} {where} is {limit:g}"
                yield from _quota(plan, found, metric, bound, limit, usage)


def _quota(plan: Wire, found: Found, metric: str, bound: str, limit: float, usage: float) -> Iterator[Line]:
    taken = {pool["name"]: _demand(plan, pool, found)[metric] for pool in pools(plan)}
    wanting = [pool for pool in pools(plan) if taken[pool["name"]]]
    new = [pool for pool in wanting if pool["name"] not in found.pools]
    now = sum(taken[pool["name"]] * _least(plan, pool, found) for pool in new)
    most = sum(taken[pool["name"]] * _most(plan, pool, found) for pool in wanting)
    if now > limit - usage:
        used = f", of which {usage:g} are in use" if usage else ""
        names = ", ".join(pool["name"] for pool in new)
        lower = "or lower nodeCount and minNodeCount"
        yield Line(f"node pools {names}: start with {now}, and {bound}{used}. {_ASK}, {lower}", problem=False)
    elif most > limit:
        names = ", ".join(pool["name"] for pool in wanting)
        more = "with what else runs there"
        yield Line(
            f"node pools {names}: may grow to {most}, and {bound}, {more}. {_ASK} before they grow", problem=False
        )


def _network_quota(plan: Wire, found: Found, place: str, limit: float, usage: float) -> Iterator[Line]:
    if place == GLOBAL and not found.version and usage + 1 > limit:
        yield Line(
            f"the quota {_NETWORKS} of project {plan['project']} is {limit:g}, and {usage:g} are in use: each cluster "
            f"has one of its own. {_ASK}, or remove one",
            problem=False,
        )


def _demand(plan: Wire, pool: Wire, found: Found) -> Counter[str]:
    """Return what one node takes of quotas, by metric. A node has an address reached from outside, and an SSD."""
    kind = _machine_type(pool)
    cpus = int((_any(found.machines, kind) or {}).get("guestCpus") or 0)
    own = f"{_family(kind).upper()}_{_CPUS}"
    demand = Counter({_ADDRESSES: 1, _DISKS: int(pool["config"].get("diskSizeGb") or _DISK_GB)})
    if own in found.quotas.get(plan["region"], {}):
        demand[own] += cpus
    elif _family(kind) in _SHARED_CPUS:
        demand[_CPUS] += cpus
    for gpu, count in _gpus(pool):
        demand[_gpu_metric(gpu)] += count
        demand[_ALL_GPUS] += count
    return demand


def _gpu_metric(accelerator: str) -> str:
    """The quota of a region for a type of accelerators: `NVIDIA_L4_GPUS` of nvidia-l4, `NVIDIA_T4_GPUS` of
    nvidia-tesla-t4."""
    name = accelerator.replace("-tesla-", "-").replace("-", "_").upper()
    return _GPU_METRICS.get(accelerator) or f"{name}_GPUS"


def _least(plan: Wire, pool: Wire, found: Found) -> int:
    """With how many nodes a pool begins, in all zones."""
    return int(pool["initialNodeCount"]) * _spread(plan, pool, found)


def _most(plan: Wire, pool: Wire, found: Found) -> int:
    """To how many nodes a pool may grow, in all zones."""
    return int(pool["autoscaling"].get("maxNodeCount") or 0) * _spread(plan, pool, found)


def _spread(plan: Wire, pool: Wire, found: Found) -> int:
    """In how many zones a pool has nodes."""
    return len(pool.get("locations") or zones_of(plan["region"], found.zones or ())[:_ZONES]) or _ZONES


# Networks


def _networks(plan: Wire, others: Iterable[Wire]) -> Iterator[Line]:
    """Clusters whose networks overlap can never be joined by peering. Nothing else is wrong."""
    name, others = plan["object"]["name"], list(others)
    ranges = [each for each in _ranges(plan) if meeting(name, [each], others)]
    if ranges:
        clusters = ", ".join(meeting(name, ranges, others))
        yield Line(
            f"spec.networking: {', '.join(ranges)} overlap the networks of {clusters}, so that they cannot be joined "
            "(VPC Network Peering, VPN). Other ranges are written in a GKECluster; they cannot change later",
            problem=False,
        )


def _ranges(plan: Wire) -> list[str]:
    """The ranges of addresses of nodes, pods and services."""
    return [
        cidr
        for entry in plan["resources"]
        if entry["kind"] == "subnetwork"
        for cidr in (
            entry["body"]["ipCidrRange"],
            *(secondary["ipCidrRange"] for secondary in entry["body"]["secondaryIpRanges"]),
        )
    ]
