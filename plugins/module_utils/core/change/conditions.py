# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Wait conditions of steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from ..applying.inventory import Key
from ..wire import Object
from . import routes


@dataclass(frozen=True)
class Condition:
    """Condition on the state of a server."""

    is_checked: ClassVar[bool] = False
    """True if the condition is checked only once, without waiting, also in check mode."""

    @property
    def subject(self) -> str:
        """Return the object of the condition, for messages."""
        return ""


@dataclass(frozen=True)
class Established(Condition):
    """The API server serves the kinds of CustomResourceDefinitions. Steps run even if the condition does not hold."""

    definitions: tuple[Key, ...]

    def __str__(self) -> str:
        return "the API server serves the new kinds"


@dataclass(frozen=True)
class Empty(Condition):
    """A namespace contains no objects except the fleet objects that the run deletes."""

    is_checked = True
    namespace: str

    def __str__(self) -> str:
        return f"namespace {self.namespace} contains only fleet objects"


@dataclass(frozen=True)
class Unused(Condition):
    """No custom resources of CustomResourceDefinitions exist."""

    is_checked = True
    definitions: tuple[Object, ...]

    def __str__(self) -> str:
        return "no custom resources of the fleet exist"


@dataclass(frozen=True)
class Released(Condition):
    """No other inventory contains an object."""

    is_checked = True
    key: Key
    owner: str

    def __str__(self) -> str:
        return f"{self.owner} no longer owns {self.key}"


@dataclass(frozen=True)
class RouteCondition(Condition):
    """Condition on the HTTPRoutes of a namespace."""

    settles: ClassVar[bool] = True
    """True if the executor waits a moment for the proxies after the gateway controller reports the change."""
    namespace: str

    def is_met(self, http_routes: Sequence[Object]) -> bool:
        """Return True if the condition holds."""
        raise NotImplementedError

    def is_enough(self, http_routes: Sequence[Object]) -> bool:
        """Return True if the waiting steps can run after a timeout."""
        return self.is_met(http_routes)


@dataclass(frozen=True)
class Rewritten(RouteCondition):
    """The AI gateway has written the HTTPRoutes of the live AIGatewayRoutes, before the AIGatewayRoutes change.

    If a change reverts an earlier change, the HTTPRoute before both changes equals the HTTPRoute after both changes,
    and the AI gateway might still write the intermediate HTTPRoute."""

    settles = False
    live: tuple[Object, ...]

    def is_met(self, http_routes: Sequence[Object]) -> bool:
        """Return True if the AI gateway has written all HTTPRoutes."""
        return not any(map(is_unwritten(self.live), http_routes))

    def __str__(self) -> str:
        return f"the AI gateway has applied earlier route changes in namespace {self.namespace}"


@dataclass(frozen=True)
class Accepted(RouteCondition):
    """The gateways of a route have accepted the route and all objects that it references."""

    route: Object

    def is_met(self, http_routes: Sequence[Object]) -> bool:
        """Return True if the gateways have accepted the current route."""
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
    """Gateways have programmed the current version of these routes."""

    routes: tuple[Object, ...]

    def is_met(self, http_routes: Sequence[Object]) -> bool:
        """Return True if all gateways have programmed the routes."""
        names, to_write = {Key.of(route).name for route in self.routes}, is_unwritten(self.routes)
        generated = (route for route in http_routes if Key.of(route).name in names)
        return not any(to_write(route) or routes.is_behind(route) for route in generated)

    def __str__(self) -> str:
        return f"gateways have programmed the routes in namespace {self.namespace}"


@dataclass(frozen=True)
class Followed(Programmed):
    """Gateways have programmed these routes. The executor waits only for their controller, then the next route
    changes."""

    settles = False


@dataclass(frozen=True)
class Known(Programmed):
    """External processors of the AI gateway have loaded the backends of these routes.

    Processors do not report this state. After gateways have programmed the routes, the executor therefore waits for
    twice the interval of configuration reads."""

    def __str__(self) -> str:
        return f"processors have loaded the new backends of the routes in namespace {self.namespace}"


@dataclass(frozen=True)
class Unreferenced(RouteCondition):
    """Gateways send no requests to objects that will be deleted, and no longer contain deleted routes.

    An HTTPRoute uses such an object while it references the object, until the AI gateway has rewritten the HTTPRoute,
    and until the gateway controller has processed it. The executor waits for the HTTPRoute of a deleted route. However,
    this HTTPRoute does not prevent deletions, because it has no backends after the deletion."""

    targets: frozenset[tuple[str, str]]
    """Kinds and names of the objects that will be deleted."""
    routes: frozenset[str]
    """Names of the remaining routes."""
    removed: frozenset[str]
    """Names of the deleted routes."""
    changed: tuple[Object, ...]
    """Routes that the AI gateway must write first."""

    def is_met(self, http_routes: Sequence[Object]) -> bool:
        """Return True if no request uses an outdated HTTPRoute."""
        removed = self.removed - self.routes
        return self.is_enough(http_routes) and not any(Key.of(route).name in removed for route in http_routes)

    def is_enough(self, http_routes: Sequence[Object]) -> bool:
        """Return True if the remaining routes use no object that will be deleted."""
        to_write = is_unwritten(self.changed)
        remaining = (route for route in http_routes if Key.of(route).name in self.routes)
        return not any(
            not routes.references(route).isdisjoint(self.targets) or to_write(route) or routes.is_behind(route)
            for route in remaining
        )

    def __str__(self) -> str:
        return f"gateways have programmed the routes in namespace {self.namespace}"


def is_unwritten(values: Iterable[Object]) -> Callable[[Object], bool]:
    """Return a predicate for HTTPRoutes: the AI gateway has not written the HTTPRoute from its AIGatewayRoute yet."""
    backends_by_route = {
        (Key.of(value).namespace, Key.of(value).name): routes.weighted_backends(value)
        for value in values
        if Key.of(value).kind == routes.AI_ROUTE
    }

    def has_other_backends(http_route: Object) -> bool:
        backends = routes.weighted_backends(http_route)
        return backends != backends_by_route.get((Key.of(http_route).namespace, Key.of(http_route).name), backends)

    return has_other_backends
