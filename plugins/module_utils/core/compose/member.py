# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A member of an engine: the pods that one pod template of a ModelReplica stands for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose import constants
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.cache_volume import CacheMount
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.owner import Owner
from ansible_collections.modelplane.fleet.plugins.module_utils.core.names import child_name


@dataclass(frozen=True)
class Member:
    """A member in its wire form, with its owner, the name of its engine and the weights that it mounts."""

    owner: Owner
    engine: str
    wire: Mapping[str, Any]
    cache: CacheMount | None = None

    @property
    def role(self) -> str:
        return str(self.wire.get("role") or constants.STANDALONE)

    @property
    def serves(self) -> bool:
        """Whether the member's pods answer the API."""
        return self.role != constants.WORKER

    @property
    def container(self) -> Mapping[str, Any]:
        """The container named "engine" as the user wrote it."""
        container: Mapping[str, Any] = self.wire["template"]["spec"]["containers"][0]
        return container

    @property
    def device_requests(self) -> Sequence[Mapping[str, Any]]:
        return self.wire.get("deviceRequests") or ()

    @property
    def device_constraints(self) -> Sequence[Mapping[str, Any]]:
        return self.wire.get("deviceConstraints") or ()

    @property
    def pools(self) -> Sequence[str]:
        """The node pools that the member's pods may run on: several only in a gang that one pool cannot hold."""
        spread = self.wire.get("nodePools") or ()
        return tuple(dict.fromkeys(pool["name"] for pool in spread)) or (self.wire["nodePoolName"],)

    @property
    def claim_name(self) -> str:
        """The name of the ResourceClaimTemplate of the member's pods."""
        return child_name(self.owner.prefix, self.engine, self.role.lower(), "devices")


def members(owner: Owner, engine: Mapping[str, Any], cache: CacheMount | None = None) -> tuple[Member, ...]:
    """The members of an engine (wire form), in the order in which they are written."""
    return tuple(Member(owner, engine["name"], wire, cache) for wire in engine["members"])


def serving_member(parts: Sequence[Member]) -> Member:
    """The one member of an engine whose pods answer the API: the Standalone one or the Leader."""
    return next(member for member in parts if member.serves)
