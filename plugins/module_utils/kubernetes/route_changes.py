# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Waiting until gateways route by the latest change of routes: before others lead there, and before what these referred
to, or what guarded them, is deleted."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from ansible_collections.modelplane.fleet.plugins.module_utils.core.applying import routes
from ansible_collections.modelplane.fleet.plugins.module_utils.core.applying.inventory import Key
from ansible_collections.modelplane.fleet.plugins.module_utils.core.progress import Progress, unseen
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.route_policies import guards, is_policy
from ansible_collections.modelplane.fleet.plugins.module_utils.core.text import count, listed
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.client import Client
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.errors import Forbidden, NotServed

T = TypeVar("T")
_AreBehind = Callable[[str, Sequence[Object]], bool]
"""Test of a namespace and its HTTPRoutes: whether one of them is behind."""

FOLLOWED = "gateways follow the routes of its namespace"
"""End of a sentence that says what is waited for."""
FOLLOW_SECONDS = 20.0
"""A controller processes a change within a second or two; one that does not run at all is waited for in vain."""
SETTLE_SECONDS = 2.0
"""Time that proxies may take for a change after its controller has reported it; busy ones took a tenth of a second."""
_POLL_SECONDS = 0.25
_API_VERSION = "gateway.networking.k8s.io/v1"


@dataclass
class RouteChanges:
    """Changes of routes that a run makes on one server, for which gateways get `seconds` at a time.

    `changed` are routes that it has changed or removed. Where HTTPRoutes cannot be read, none is awaited, and proxies
    get their time all the same."""

    client: Client
    seconds: float = FOLLOW_SECONDS
    progress: Progress = unseen
    changed: set[Key] = field(default_factory=set)
    _settled: set[Key] = field(default_factory=set)

    def wait_followed(self, desired: Iterable[Object], removed: Iterable[Key], gone: Iterable[Object]) -> set[str]:
        """Wait until gateways send nothing to what is to be deleted (`gone`), and know no routes any more that were
        `removed`. Return the namespaces of `desired` routes that still lead there when the time is over.

        An HTTPRoute leads to such an object while it refers to it, as the AI gateway rewrites it from the
        AIGatewayRoute of its name, and until the gateway's controller has processed it. One of a removed route leads
        nowhere once its backends are deleted, so it keeps nothing."""
        values = list(gone)
        targets = _by_namespace(map(Key.of, values), lambda key: (key.kind, key.name))
        known = [route for route in desired if Key.of(route).namespace in targets]
        left = [key for key in removed if key.namespace in targets]
        places = _Places(
            targets,
            _by_namespace(map(Key.of, known), lambda key: key.name),
            _by_namespace(left, lambda key: key.name),
            _unwritten(self._rewritten(known, [value for value in values if is_policy(value)])),
        )
        self.changed.update(left)
        namespaces = places.desired.keys() | places.removed.keys()
        behind = self._waited(namespaces, places.are_behind)
        self._settle(namespaces, behind)
        return self._behind(behind, replace(places, removed={}).are_behind)

    def wait_rewritten(self, values: Sequence[Object]) -> set[str]:
        """Wait until the AI gateway has written the HTTPRoutes of AIGatewayRoutes as these are now, before they change.
        Return the namespaces of those that it has not when the time is over.

        Where one change takes back another, an HTTPRoute from before both equals that after both, and the AI gateway
        may yet write the one in between."""
        is_unwritten = _unwritten(values)

        def are_behind(_namespace: str, found: Sequence[Object]) -> bool:
            return any(map(is_unwritten, found))

        return self._waited({Key.of(value).namespace for value in values}, are_behind)

    def wait_applied(self, values: Sequence[Object]) -> set[str]:
        """Wait until gateways route by these routes as they are now. Return the namespaces of those by which they do
        not when the time is over."""
        places = {(Key.of(value).namespace, Key.of(value).name) for value in values}
        namespaces = {namespace for namespace, __ in places}
        is_unwritten = _unwritten(values)

        def are_behind(namespace: str, found: Sequence[Object]) -> bool:
            known = (route for route in found if (namespace, Key.of(route).name) in places)
            return any(is_unwritten(route) or routes.is_behind(route) for route in known)

        behind = self._waited(namespaces, are_behind)
        self._settle(namespaces, behind)
        return behind

    def wait_accepted(self, values: Sequence[Object]) -> set[Key]:
        """Wait until gateways have accepted these AIGatewayRoutes as they are now. Return those that they have not when
        the time is over."""
        awaited = _by_namespace(map(Key.of, values), lambda key: key)
        is_unwritten = _unwritten(values)
        missing: dict[str, set[Key]] = {}

        def are_behind(namespace: str, found: Sequence[Object]) -> bool:
            accepted = (route for route in found if routes.is_accepted(route) and not is_unwritten(route))
            known = {Key.of(route).name for route in accepted}
            missing[namespace] = {key for key in awaited[namespace] if key.name not in known}
            return bool(missing[namespace])

        behind = self._waited(awaited.keys(), are_behind)
        self._settle(awaited.keys(), behind)
        return {key for namespace in behind for key in missing[namespace]}

    def _waited(self, namespaces: Iterable[str], are_behind: _AreBehind) -> set[str]:
        """Return the namespaces in which an HTTPRoute is behind when the time is over."""
        deadline = time.monotonic() + self.seconds
        left = self._behind(namespaces, are_behind)
        if not left:
            return set()
        awaited = f"gateways to follow the routes of {count(len(left), 'namespace')}"
        with self.progress(self.client.name, awaited, "seconds") as seen:
            while left and time.monotonic() < deadline:
                seen(listed(sorted(left)))
                time.sleep(_POLL_SECONDS)
                left = self._behind(left, are_behind)
        return left

    def _behind(self, namespaces: Iterable[str], are_behind: _AreBehind) -> set[str]:
        found = set()
        for namespace in namespaces:
            try:
                values = self.client.list(_API_VERSION, routes.HTTP_ROUTE, namespace=namespace).items
            except (Forbidden, NotServed):
                continue
            if are_behind(namespace, values):
                found.add(namespace)
        return found

    def _settle(self, namespaces: Iterable[str], behind: Iterable[str]) -> None:
        """Give proxies time where routes have changed and gateways have followed."""
        followed = set(namespaces).difference(behind)
        fresh = {key for key in self.changed - self._settled if key.namespace in followed}
        if fresh:
            time.sleep(min(SETTLE_SECONDS, self.seconds))
            self._settled |= fresh

    def _rewritten(self, known: Iterable[Object], policies: Sequence[Object]) -> Iterator[Object]:
        """Yield the routes that the AI gateway has to write first: those that this run has changed, and those that are
        guarded by policies which are to be deleted."""
        for route in known:
            if Key.of(route) in self.changed or any(guards(policy, route) for policy in policies):
                yield route


def _unwritten(values: Iterable[Object]) -> Callable[[Object], bool]:
    """Return what says whether the AI gateway has yet to write an HTTPRoute for one of these routes."""
    written = {
        (Key.of(value).namespace, Key.of(value).name): routes.ai_backends(value)
        for value in values
        if Key.of(value).kind == routes.AI_ROUTE
    }

    def is_unwritten(route: Object) -> bool:
        found = {name for kind, name in routes.references(route) if kind == "Backend"}
        return found != written.get((Key.of(route).namespace, Key.of(route).name), found)

    return is_unwritten


@dataclass(frozen=True)
class _Places:
    """By namespace: kinds and names of what is to be deleted, and the names of routes that stay or were removed."""

    targets: Mapping[str, set[tuple[str, str]]]
    desired: Mapping[str, set[str]]
    removed: Mapping[str, set[str]]
    is_unwritten: Callable[[Object], bool]

    def are_behind(self, namespace: str, found: Sequence[Object]) -> bool:
        """Return True where requests go by an HTTPRoute where they should not any more."""
        return any(self._is_behind(namespace, route) for route in found)

    def _is_behind(self, namespace: str, route: Object) -> bool:
        name = Key.of(route).name
        if name not in self.desired.get(namespace, ()):
            return name in self.removed.get(namespace, ())
        leads = not routes.references(route).isdisjoint(self.targets[namespace])
        return leads or self.is_unwritten(route) or routes.is_behind(route)


def _by_namespace(keys: Iterable[Key], part: Callable[[Key], T]) -> dict[str, set[T]]:
    found: dict[str, set[T]] = {}
    for key in keys:
        found.setdefault(key.namespace, set()).add(part(key))
    return found
