# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Member of an engine: the pods of one pod template of a ModelReplica."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..api.engine import DeviceConstraint
from ..api.model_replica import PlacedEngine, PlacedMember, ResolvedDeviceRequest
from ..api.pod_template import Container
from ..devices.limits import split
from . import constants
from .cache_volume import CacheMount
from .owner import Owner


@dataclass(frozen=True)
class Member:
    """Placed member, with its owner, the name of its engine and the cache that it mounts."""

    owner: Owner
    engine: str
    placed: PlacedMember
    cache: CacheMount | None = None
    port: int = constants.ENGINE_PORT

    @property
    def role(self) -> str:
        return self.placed.role

    @property
    def serves(self) -> bool:
        """True when the member's pods serve the API."""
        return self.role != constants.WORKER

    @property
    def container(self) -> Container:
        """The container named "engine" as the user wrote it."""
        return self.placed.template.spec.containers[0]

    @property
    def device_requests(self) -> Sequence[ResolvedDeviceRequest]:
        return self.placed.device_requests or ()

    @property
    def device_constraints(self) -> Sequence[DeviceConstraint]:
        return self.placed.device_constraints or ()

    @property
    def pools(self) -> Sequence[str]:
        """Node pools that the member's pods may run on: several only for a gang that does not fit on one pool."""
        spread = self.placed.node_pools or ()
        return tuple(dict.fromkeys(pool.name for pool in spread)) or (self.placed.node_pool_name,)

    @property
    def claims(self) -> list[list[ResolvedDeviceRequest]]:
        """The device requests by ResourceClaim: several claims only if a pod needs more devices than one can have."""
        requests = self.device_requests
        if not requests:
            return []
        constraints = [constraint.requests or () for constraint in self.device_constraints]
        return [
            [requests[share.request].model_copy(update={"count": share.devices}) for share in claim]
            for claim in split([(request.name, request.count) for request in requests], constraints)
        ]

    @property
    def pod_claim_names(self) -> list[str]:
        """The names of the claims in the pod."""
        return [constants.CLAIM + (f"-{number}" if number > 1 else "") for number in range(1, len(self.claims) + 1)]


def members(owner: Owner, engine: PlacedEngine, cache: CacheMount | None = None) -> tuple[Member, ...]:
    """Return the members of an engine, in the order of the spec."""
    return tuple(
        Member(owner, engine.name, placed, cache, engine.port or constants.ENGINE_PORT) for placed in engine.members
    )


def serving_member(members: Sequence[Member]) -> Member:
    """Return the only member of an engine with pods that serve the API: the Standalone member or the Leader."""
    return next(member for member in members if member.serves)
