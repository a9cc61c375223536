# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The engines of a replica that exists, on the pools that they are on already."""

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

# A pool's devices as the engine sees them.
View = Callable[[Pool], tuple[Device, ...]]


def pin(
    engines: tuple[Engine, ...], placed: Iterable[PlacedEngine], cluster: Cluster, capacity: FleetCapacity
) -> list[Layout] | str:
    """The deployment's engines where a replica has them already, or why it cannot stay.

    A member that is spread and has more pods now than it has places is left with what it has: `grow` finds the rest.
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
        gone = sorted({name for member in members.values() for name, __ in member.pods_by_pool} - set(pools))
        if gone:
            return f"pool {gone[0]} on {cluster.name} is gone"
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
        parts = tuple(
            _parts(member, by_role[member.role], on, view, capacity)
            for member, on in zip(engine.members, shares, strict=True)
        )
        layout = Layout(engine, parts)
        if all(parts) and layout.claims:
            return layout
    return f"pool {names} on {cluster} no longer satisfies engine {engine.name}"


def _as_they_are(pool: Pool) -> tuple[Device, ...]:
    return pool.devices


def _shares(member: Member, observed: PlacedMember, pools: dict[str, Pool]) -> Shares:
    """The pools that a member is on with its pods there, no more than it has now: the last pools give way first."""
    if len(observed.pods_by_pool) == 1:
        return ((pools[observed.pool], member.pods),)
    left = member.pods
    shares = []
    for name, pods in observed.pods_by_pool:
        if min(pods, left) > 0:
            shares.append((pools[name], min(pods, left)))
        left -= min(pods, left)
    return tuple(shares)


def _parts(
    member: Member,
    observed: PlacedMember,
    shares: Shares,
    view: View,
    capacity: FleetCapacity,
) -> tuple[Part, ...]:
    """Return how a member's requests resolve, alike on all its pools; empty when they do not. What it claims already is
    the first choice."""
    resident = as_resident(member)
    resolutions = [capacity.matcher.resolve(resident, view(pool), running=True) for pool, __ in shares]
    claimed = [(entry["name"], entry["deviceClassName"]) for entry in observed.device_requests]
    ranked = sorted(resolutions[0], key=lambda option: _claims(member, option) != claimed)
    for option in ranked:
        alike = [_same(option, others) for others in resolutions]
        parts = tuple(
            Part(pool, pods, resolution)
            for (pool, pods), resolution in zip(shares, alike, strict=True)
            if resolution is not None
        )
        if len(parts) == len(shares):
            return _as_claimed(resident, observed, parts, view, capacity)
    return ()


def _as_claimed(
    member: Member, observed: PlacedMember, parts: tuple[Part, ...], view: View, capacity: FleetCapacity
) -> tuple[Part, ...]:
    """Return the parts of a member with the kinds of device that its claim is limited to already."""
    kinds = kinds_of(observed.device_requests, member.requests)
    if not kinds:
        return parts
    narrowed = capacity.matcher.narrowed
    return tuple(replace(part, resolution=narrowed(member, part.resolution, kinds, view(part.pool))) for part in parts)


def _same(option: Resolution, others: Sequence[Resolution]) -> Resolution | None:
    return next((other for other in others if other.device_classes == option.device_classes), None)


def _claims(member: Member, resolution: Resolution) -> list[tuple[str, str]]:
    return [(entry["name"], entry["deviceClassName"]) for entry in device_requests(member, resolution)]


def missing(layout: Layout) -> int:
    """Pods of every copy that have no place in the layout yet."""
    return sum(
        member.pods - sum(part.pods for part in parts)
        for member, parts in zip(layout.engine.members, layout.members, strict=True)
    )


def grow(layout: Layout, cluster: str, capacity: FleetCapacity) -> Layout:
    """The layout with all pods of its spread member, on the pools it has; the layout must not be charged.

    First what fits, in the order of the pools. What fits nowhere goes to the pool with most nodes left for a copy, and
    the pool is overcommitted then, as with any edit that makes a replica larger than its place.
    """
    for position, parts in enumerate(layout.members):
        short = layout.engine.members[position].pods - sum(part.pods for part in parts)
        grown = list(parts)
        for number, part in enumerate(grown):
            beside = _beside(layout, position, part.pool)
            most = capacity.gang_placer.most(
                cluster, layout.engine.copies, replace(part, pods=part.pods + short), beside
            )
            more = min(short, max(0, most - part.pods))
            grown[number] = replace(part, pods=part.pods + more)
            short -= more
        while short > 0:
            number = max(range(len(grown)), key=lambda at: grown[at].pool.nodes - grown[at].pods)
            grown[number] = replace(grown[number], pods=grown[number].pods + 1)
            short -= 1
        layout = replace(layout, members=(*layout.members[:position], tuple(grown), *layout.members[position + 1 :]))
    return layout


def _beside(layout: Layout, position: int, pool: Pool) -> tuple[PodSet, ...]:
    """The claiming pods that other members of the engine have on a pool."""
    return tuple(
        PodSet(part.pods, part.resolution.vectors)
        for other, parts in enumerate(layout.members)
        for part in parts
        if other != position and part.pool.name == pool.name and part.resolution.claims
    )
