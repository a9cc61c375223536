# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""An engine with the pools of its pods: what it takes from each, and how that is written down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from .capacity import Demand, PodSet
from .matching import Resolution, device_constraints, device_requests
from .model import Engine, Member, PlacedEngine, PlacedMember, Pool


@dataclass(frozen=True)
class Part:
    """Pods of one member on one pool: how many per copy, and how their requests resolve there."""

    pool: Pool
    pods: int
    resolution: Resolution


@dataclass(frozen=True)
class Layout:
    """An engine on its pools: the parts of each member, in the order of the engine's members.

    Several parts of a member are pods spread over pools of one fabric. They claim through the same DeviceClasses, as
    all pods of a member are made from one template.
    """

    engine: Engine
    members: tuple[tuple[Part, ...], ...]

    @cached_property
    def demands(self) -> tuple[tuple[Pool, Demand], ...]:
        """Return what every pool is charged; pools without a claiming pod are left out."""
        pools: dict[str, Pool] = {}
        taken: dict[str, list[PodSet]] = {}
        for parts in self.members:
            for part in parts:
                if part.resolution.claims and part.pods:
                    pools[part.pool.name] = part.pool
                    taken.setdefault(part.pool.name, []).append(PodSet(part.pods, part.resolution.vectors))
        return tuple((pools[name], Demand(self.engine.copies, tuple(pod_sets))) for name, pod_sets in taken.items())

    @property
    def pools(self) -> tuple[str, ...]:
        """The names of the pools, each once."""
        return tuple(dict.fromkeys(part.pool.name for parts in self.members for part in parts))

    @property
    def claims(self) -> bool:
        """Return whether any pod claims a device: without a claim nothing binds the engine to a node."""
        return any(part.resolution.claims for parts in self.members for part in parts)

    def placed(self) -> PlacedEngine:
        members = tuple(_placed(member, parts) for member, parts in zip(self.engine.members, self.members, strict=True))
        return PlacedEngine(self.engine.name, members, self.engine.copies)


def _placed(member: Member, parts: Sequence[Part]) -> PlacedMember:
    first = parts[0]
    shares = tuple((part.pool.name, part.pods) for part in parts) if len(parts) > 1 else ()
    return PlacedMember(
        first.pool.name,
        device_requests(member, first.resolution),
        member.role,
        member.pods,
        shares,
        device_constraints(member, first.resolution),
    )
