# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Engines of an existing replica on their current pools."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from ..devices.device import Device
from .capacity import PodSet
from .fitting import FleetCapacity
from .layout import Layout, Part
from .matching import Resolution, device_requests, kinds_of
from .memory import as_resident
from .model import Cluster, Engine, Member, PlacedEngine, PlacedMember, Pool

# (pool, pods per copy) of one member.
Shares = tuple[tuple[Pool, int], ...]

# Function that returns the devices of a pool that an engine may use.
View = Callable[[Pool], tuple[Device, ...]]


def pin(
    engines: tuple[Engine, ...], placed: Iterable[PlacedEngine], cluster: Cluster, capacity: FleetCapacity
) -> list[Layout] | str:
    """Return the engines of a deployment on the current pools of a replica, or the reason why the replica cannot stay.

    A spread member with fewer placements than pods keeps its placements. `grow` adds the missing placements.
    """
    observed = {engine.name: engine for engine in placed}
    if len(observed) != len(engines) or any(engine.name not in observed for engine in engines):
        return "the set of engines changed"
    pools = {pool.name: pool for pool in cluster.pools}
    layouts = []
    for engine in engines:
        members = {member.role: member for member in observed[engine.name].members}
        if len(members) != len(engine.members) or any(member.role not in members for member in engine.members):
            return f"the members of engine {engine.name} changed"
        missing_pools = sorted({name for member in members.values() for name, __ in member.pods_by_pool} - set(pools))
        if missing_pools:
            return f"pool {missing_pools[0]} on {cluster.name} is gone"
        layout = _in_place(engine, observed[engine.name], pools, cluster.name, capacity)
        if isinstance(layout, str):
            return layout
        layouts.append(layout)
    return layouts


def _in_place(
    engine: Engine, observed: PlacedEngine, pools: dict[str, Pool], cluster: str, capacity: FleetCapacity
) -> Layout | str:
    by_role = {member.role: member for member in observed.members}
    shares = [_shares(member, by_role[member.role], pools) for member in engine.members]
    used = {pool.name: pool for member in shares for pool, __ in member}
    names = " and ".join(sorted(used))
    spread = any(len(member) > 1 for member in shares)
    views: list[View] = [_as_they_are]
    if len(used) > 1 and (spread or capacity.options.search == "Exact"):
        common = set.intersection(*(set(pool.fabrics) for pool in used.values()))
        if not common:
            return f"pools {names} on {cluster} no longer share a fabric, engine {engine.name} needs one"
        views = [partial(capacity.gang_placer.devices, fabric) for fabric in sorted(common)]
    for view in views:
        layout_members = tuple(
            _parts(member, by_role[member.role], on, view, capacity)
            for member, on in zip(engine.members, shares, strict=True)
        )
        layout = Layout(engine, layout_members)
        if all(layout_members) and layout.claims:
            return layout
    return f"pool {names} on {cluster} no longer satisfies engine {engine.name}"


def _as_they_are(pool: Pool) -> tuple[Device, ...]:
    return pool.devices


def _shares(member: Member, observed: PlacedMember, pools: dict[str, Pool]) -> Shares:
    """Return the pools of a member with the number of its pods on them, at most its current number. The last pools lose
    pods first."""
    if len(observed.pods_by_pool) == 1:
        return ((pools[observed.pool], member.pods),)
    remaining = member.pods
    shares = []
    for name, pods in observed.pods_by_pool:
        if min(pods, remaining) > 0:
            shares.append((pools[name], min(pods, remaining)))
        remaining -= min(pods, remaining)
    return tuple(shares)


def _parts(
    member: Member,
    observed: PlacedMember,
    shares: Shares,
    view: View,
    capacity: FleetCapacity,
) -> tuple[Part, ...]:
    """Return the resolutions of the requests of a member, equal on all its pools. Empty without such resolutions. The
    current claim is the first choice."""
    resident = as_resident(member)
    resolutions = [capacity.matcher.resolve(resident, view(pool), running=True) for pool, __ in shares]
    claimed = [(entry["name"], entry["deviceClassName"]) for entry in observed.device_requests]
    ranked = sorted(resolutions[0], key=lambda option: _claims(member, option) != claimed)
    for option in ranked:
        alike = [_same(option, pool_resolutions) for pool_resolutions in resolutions]
        member_parts = tuple(
            Part(pool, pods, resolution)
            for (pool, pods), resolution in zip(shares, alike, strict=True)
            if resolution is not None
        )
        if len(member_parts) == len(shares):
            return _as_claimed(resident, observed, member_parts, view, capacity)
    return ()


def _as_claimed(
    member: Member, observed: PlacedMember, member_parts: tuple[Part, ...], view: View, capacity: FleetCapacity
) -> tuple[Part, ...]:
    """Return the parts of a member with the kinds of device that its current claim is limited to."""
    kinds = kinds_of(observed.device_requests, member.requests)
    if not kinds:
        return member_parts
    narrowed = capacity.matcher.narrowed
    return tuple(
        replace(member_part, resolution=narrowed(member, member_part.resolution, kinds, view(member_part.pool)))
        for member_part in member_parts
    )


def _same(option: Resolution, candidates: Sequence[Resolution]) -> Resolution | None:
    return next((candidate for candidate in candidates if candidate.device_classes == option.device_classes), None)


def _claims(member: Member, resolution: Resolution) -> list[tuple[str, str]]:
    return [(entry["name"], entry["deviceClassName"]) for entry in device_requests(member, resolution)]


def missing(layout: Layout) -> int:
    """Return the number of pods of every copy that the layout does not place."""
    return sum(
        member.pods - sum(member_part.pods for member_part in member_parts)
        for member, member_parts in zip(layout.engine.members, layout.members, strict=True)
    )


def grow(layout: Layout, cluster: str, capacity: FleetCapacity) -> Layout:
    """Return the layout with all pods of its spread member on its current pools. The layout must not be charged.

    Pods that fit are placed first, in the order of the pools. All other pods are placed on the pool with the most
    remaining nodes for a copy. This overcommits the pool, like every edit that makes a replica too large.
    """
    for position, member_parts in enumerate(layout.members):
        short = layout.engine.members[position].pods - sum(member_part.pods for member_part in member_parts)
        grown = list(member_parts)
        for number, member_part in enumerate(grown):
            neighbors = _beside(layout, position, member_part.pool)
            limit = capacity.gang_placer.most(
                cluster, layout.engine.copies, replace(member_part, pods=member_part.pods + short), neighbors
            )
            added = min(short, max(0, limit - member_part.pods))
            grown[number] = replace(member_part, pods=member_part.pods + added)
            short -= added
        while short > 0:
            number = max(range(len(grown)), key=lambda index: grown[index].pool.nodes - grown[index].pods)
            grown[number] = replace(grown[number], pods=grown[number].pods + 1)
            short -= 1
        layout = replace(layout, members=(*layout.members[:position], tuple(grown), *layout.members[position + 1 :]))
    return layout


def _beside(layout: Layout, position: int, pool: Pool) -> tuple[PodSet, ...]:
    """Return the claiming pods of other members of the engine on a pool."""
    return tuple(
        PodSet(member_part.pods, member_part.resolution.vectors)
        for index, member_parts in enumerate(layout.members)
        for member_part in member_parts
        if index != position and member_part.pool.name == pool.name and member_part.resolution.claims
    )
