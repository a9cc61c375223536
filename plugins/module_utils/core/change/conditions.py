# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Conditions for which steps wait."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from ansible_collections.modelplane.fleet.plugins.module_utils.core.applying.inventory import Key
from ansible_collections.modelplane.fleet.plugins.module_utils.core.change import routes
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object


@dataclass(frozen=True)
class Condition:
    """Condition on the state of a server."""

    is_checked: ClassVar[bool] = False
    """The condition is read once and not waited for, so check mode reads it as well."""

    @property
    def subject(self) -> str:
        """Return the object that the condition is about, for messages."""
        return ""


@dataclass(frozen=True)
class Established(Condition):
    """The API server serves the kinds of CustomResourceDefinitions. A server that does not yet stops nothing."""

    definitions: tuple[Key, ...]

    def __str__(self) -> str:
        return "the API server serves the new kinds"


@dataclass(frozen=True)
class Empty(Condition):
    """A namespace has no objects but those of the fleet that the run deleted."""

    is_checked = True
    namespace: str

    def __str__(self) -> str:
        return f"namespace {self.namespace} has no objects of other owners"


@dataclass(frozen=True)
class Unused(Condition):
    """There is no object of the kinds of CustomResourceDefinitions."""

    is_checked = True
    definitions: tuple[Object, ...]

    def __str__(self) -> str:
        return "there is no object of the kinds of the fleet"


@dataclass(frozen=True)
class Released(Condition):
    """No other inventory has an object."""

    is_checked = True
    key: Key
    owner: str

    def __str__(self) -> str:
        return f"{self.owner} no longer has {self.key}"


@dataclass(frozen=True)
class RouteCondition(Condition):
    """Condition on the HTTPRoutes of a namespace."""

    settles: ClassVar[bool] = True
    """Proxies get time for the change after the controller of their gateway has reported it."""
    namespace: str

    def is_met(self, http_routes: Sequence[Object]) -> bool:
        """Return whether the condition holds."""
        raise NotImplementedError

    def is_enough(self, http_routes: Sequence[Object]) -> bool:
        """Return whether the steps that wait can run when the time is over."""
        return self.is_met(http_routes)


@dataclass(frozen=True)
class Rewritten(RouteCondition):
    """The AI gateway has written the HTTPRoutes of AIGatewayRoutes as these are before they change.

    If a change takes back an earlier one, an HTTPRoute from before both equals the HTTPRoute after both, and the AI
    gateway may still write the one in between."""

    settles = False
    live: tuple[Object, ...]

    def is_met(self, http_routes: Sequence[Object]) -> bool:
        """Return whether no HTTPRoute is still to be written."""
        return not any(map(is_unwritten(self.live), http_routes))

    def __str__(self) -> str:
        return f"the AI gateway has written the earlier changes of routes in namespace {self.namespace}"


@dataclass(frozen=True)
class Accepted(RouteCondition):
    """The gateways of a route have accepted it with everything that it refers to."""

    route: Object

    def is_met(self, http_routes: Sequence[Object]) -> bool:
        """Return whether the gateways have accepted the route as it is now."""
        to_write = is_unwritten([self.route])
        return any(
            Key.of(route).name == Key.of(self.route).name and routes.is_accepted(route) and not to_write(route)
            for route in http_routes
        )

    @property
    def subject(self) -> str:
        """Return the route."""
        return str(Key.of(self.route))

    def __str__(self) -> str:
        return f"the gateway has accepted {Key.of(self.route)}"


@dataclass(frozen=True)
class Programmed(RouteCondition):
    """Gateways route by these routes as they are now."""

    routes: tuple[Object, ...]

    def is_met(self, http_routes: Sequence[Object]) -> bool:
        """Return whether no gateway is behind."""
        names, to_write = {Key.of(route).name for route in self.routes}, is_unwritten(self.routes)
        known = (route for route in http_routes if Key.of(route).name in names)
        return not any(to_write(route) or routes.is_behind(route) for route in known)

    def __str__(self) -> str:
        return f"gateways follow the routes of namespace {self.namespace}"


@dataclass(frozen=True)
class Unreferenced(RouteCondition):
    """Gateways send nothing to objects that are about to be deleted, and no longer have deleted routes.

    An HTTPRoute leads to such an object while it refers to it, while the AI gateway has yet to write it, and until the
    gateway's controller has processed it. The HTTPRoute of a deleted route leads nowhere once its backends are deleted,
    so it is waited for and keeps nothing."""

    targets: frozenset[tuple[str, str]]
    """Kinds and names of what is about to be deleted."""
    routes: frozenset[str]
    """Names of the routes that stay."""
    removed: frozenset[str]
    """Names of the routes that were deleted."""
    changed: tuple[Object, ...]
    """Routes that the AI gateway has to write first."""

    def is_met(self, http_routes: Sequence[Object]) -> bool:
        """Return whether no request takes an HTTPRoute that it should no longer take."""
        removed = self.removed - self.routes
        return self.is_enough(http_routes) and not any(Key.of(route).name in removed for route in http_routes)

    def is_enough(self, http_routes: Sequence[Object]) -> bool:
        """Return whether the routes that stay lead to nothing that is about to be deleted."""
        to_write = is_unwritten(self.changed)
        known = (route for route in http_routes if Key.of(route).name in self.routes)
        return not any(
            not routes.references(route).isdisjoint(self.targets) or to_write(route) or routes.is_behind(route)
            for route in known
        )

    def __str__(self) -> str:
        return f"gateways follow the routes of namespace {self.namespace}"


def is_unwritten(values: Iterable[Object]) -> Callable[[Object], bool]:
    """Return a predicate: the AI gateway has yet to write an HTTPRoute for one of these AIGatewayRoutes."""
    written = {
        (Key.of(value).namespace, Key.of(value).name): routes.ai_backends(value)
        for value in values
        if Key.of(value).kind == routes.AI_ROUTE
    }

    def is_one(http_route: Object) -> bool:
        backends = {name for kind, name in routes.references(http_route) if kind == "Backend"}
        return backends != written.get((Key.of(http_route).namespace, Key.of(http_route).name), backends)

    return is_one
