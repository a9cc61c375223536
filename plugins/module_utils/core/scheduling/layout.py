# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Distribution of the pods of an engine over pools, with the demand on each pool and the result for a ModelReplica."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from .capacity import Demand, PodSet
from .matching import Resolution, device_constraints, device_requests
from .model import Engine, Member, PlacedEngine, PlacedMember, Pool


@dataclass(frozen=True)
class Part:
    """Pods of one member on one pool: their number in a copy, and the resolution of their requests."""

    pool: Pool
    pods: int
    resolution: Resolution


@dataclass(frozen=True)
class Layout:
    """Engine on its pools: the parts of each member, in the order of the engine's members.

    A member with several parts has pods on several pools of one fabric. All parts claim through the same DeviceClasses,
    because all pods of a member have one template.
    """

    engine: Engine
    members: tuple[tuple[Part, ...], ...]

    @cached_property
    def demands(self) -> tuple[tuple[Pool, Demand], ...]:
        """Return the demand on every pool that has a pod with a claim."""
        pools: dict[str, Pool] = {}
        sets_by_pool: dict[str, list[PodSet]] = {}
        for member_parts in self.members:
            for member_part in member_parts:
                if member_part.resolution.claims and member_part.pods:
                    pools[member_part.pool.name] = member_part.pool
                    sets_by_pool.setdefault(member_part.pool.name, []).append(
                        PodSet(member_part.pods, member_part.resolution.vectors)
                    )
        return tuple(
            (pools[name], Demand(self.engine.copies, tuple(pod_sets))) for name, pod_sets in sets_by_pool.items()
        )

    @property
    def pools(self) -> tuple[str, ...]:
        """Return the unique names of the pools."""
        return tuple(
            dict.fromkeys(member_part.pool.name for member_parts in self.members for member_part in member_parts)
        )

    @property
    def claims(self) -> bool:
        """Return True if any pod claims a device. Without a claim nothing binds the engine to a node."""
        return any(member_part.resolution.claims for member_parts in self.members for member_part in member_parts)

    def placed(self) -> PlacedEngine:
        members = tuple(
            _placed(member, member_parts)
            for member, member_parts in zip(self.engine.members, self.members, strict=True)
        )
        return PlacedEngine(self.engine.name, members, self.engine.copies)


def _placed(member: Member, member_parts: Sequence[Part]) -> PlacedMember:
    first_part = member_parts[0]
    shares = (
        tuple((member_part.pool.name, member_part.pods) for member_part in member_parts)
        if len(member_parts) > 1
        else ()
    )
    return PlacedMember(
        first_part.pool.name,
        device_requests(member, first_part.resolution),
        member.role,
        member.pods,
        shares,
        device_constraints(member, first_part.resolution),
    )
