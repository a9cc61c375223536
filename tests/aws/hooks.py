# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Registry of the operations that the double handles before moto. Each service has a file that registers its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.modelplane.fleet.tests.cloud.control import Answer

from .wire import Call
from .world import World

Forward = Callable[[], Answer]
Hook = Callable[[World, Call, Forward], Any]
HOOKS: dict[tuple[str, str], Hook] = {}


def hook(service: str, *operations: str) -> Callable[[Hook], Hook]:
    """Registers a function for operations of a service. It answers itself, or has moto do so by its last argument."""

    def register(function: Hook) -> Hook:
        HOOKS.update({(service, operation): function for operation in operations})
        return function

    return register


def keeper(service: str, *operations: str) -> Callable[[Hook], Hook]:
    """As `hook`, for what only keeps something from being done, which a test can switch off."""

    def register(function: Hook) -> Hook:
        def kept(world: World, call: Call, forward: Forward) -> Any:
            return function(world, call, forward) if world.settings.strict else forward()

        hook(service, *operations)(kept)
        return function

    return register


def served(given: Answer) -> bool:
    """Return whether moto has done what was asked."""
    return given[0] < 400
