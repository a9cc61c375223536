# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Waiting until gateways route by the latest change of routes: before others lead there, and before what these referred
to, or what guarded them, is deleted."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from ansible_collections.modelplane.fleet.plugins.module_utils.core.applying import routes
from ansible_collections.modelplane.fleet.plugins.module_utils.core.applying.inventory import Key
from ansible_collections.modelplane.fleet.plugins.module_utils.core.progress import Progress, unseen
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


def wait_followed(
    client: Client,
    desired: Iterable[Object],
    changed: Iterable[Key],
    removed: Iterable[Key],
    gone: Iterable[Key],
    seconds: float,
    progress: Progress = unseen,
) -> set[str]:
    """Wait until gateways send nothing to what is to be deleted (`gone`), and know no routes any more that were
    `removed`. Return the namespaces of `desired` routes that still lead there when the time is over. `changed` are
    those that have changed just now.

    An HTTPRoute leads to such an object while it refers to it, as the AI gateway rewrites it from the AIGatewayRoute of
    its name, and until the gateway's controller has processed it. Where HTTPRoutes cannot be read, none is awaited. One
    of a removed route leads nowhere once its backends are deleted, so it keeps nothing."""
    targets = _by_namespace(gone, lambda key: (key.kind, key.name))
    values = [value for value in desired if Key.of(value).namespace in targets]
    places = _Places(
        targets,
        _by_namespace(map(Key.of, values), lambda key: key.name),
        _by_namespace((key for key in removed if key.namespace in targets), lambda key: key.name),
        _unwritten(values),
    )
    namespaces = places.desired.keys() | places.removed.keys()
    settles = bool(places.removed) or any(key.namespace in targets for key in changed)
    left = _waited(client, namespaces, places.are_behind, seconds, progress, settles=settles)
    return _behind(client, left, replace(places, removed={}).are_behind)


def wait_rewritten(client: Client, values: Sequence[Object], seconds: float, progress: Progress = unseen) -> set[str]:
    """Wait until the AI gateway has written the HTTPRoutes of AIGatewayRoutes as these are now, before they change.
    Return the namespaces of those that it has not when the time is over.

    Where one change takes back another, an HTTPRoute from before both equals that after both, and the AI gateway may
    yet write the one in between."""
    is_unwritten = _unwritten(values)

    def are_behind(_namespace: str, found: Sequence[Object]) -> bool:
        return any(map(is_unwritten, found))

    return _waited(client, {Key.of(value).namespace for value in values}, are_behind, seconds, progress)


def wait_applied(
    client: Client, values: Sequence[Object], changed: Iterable[Key], seconds: float, progress: Progress = unseen
) -> set[str]:
    """Wait until gateways route by these routes as they are now. Return the namespaces of those by which they do not
    when the time is over. `changed` are those that have changed just now."""
    places = {(Key.of(value).namespace, Key.of(value).name) for value in values}
    is_unwritten = _unwritten(values)

    def are_behind(namespace: str, found: Sequence[Object]) -> bool:
        known = (route for route in found if (namespace, Key.of(route).name) in places)
        return any(is_unwritten(route) or routes.is_behind(route) for route in known)

    namespaces = {namespace for namespace, __ in places}
    settles = any(key.namespace in namespaces for key in changed)
    return _waited(client, namespaces, are_behind, seconds, progress, settles=settles)


def wait_accepted(client: Client, values: Sequence[Object], seconds: float, progress: Progress = unseen) -> bool:
    """Wait until gateways have accepted these AIGatewayRoutes of one namespace as they are now. Return whether they
    have when the time is over."""
    is_unwritten = _unwritten(values)
    names = {Key.of(value).name for value in values}

    def are_behind(_namespace: str, found: Sequence[Object]) -> bool:
        accepted = (route for route in found if routes.is_accepted(route) and not is_unwritten(route))
        return not names <= {Key.of(route).name for route in accepted}

    namespaces = {Key.of(value).namespace for value in values}
    return not _waited(client, namespaces, are_behind, seconds, progress, settles=True)


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


def _waited(
    client: Client,
    namespaces: Iterable[str],
    are_behind: _AreBehind,
    seconds: float,
    progress: Progress,
    *,
    settles: bool = False,
) -> set[str]:
    """Return the namespaces in which an HTTPRoute is behind after so many seconds. `settles`: proxies may be behind
    when none is."""
    deadline = time.monotonic() + seconds
    first = left = _behind(client, namespaces, are_behind)
    if left:
        awaited = f"gateways to follow the routes of {count(len(left), 'namespace')}"
        with progress(client.name, awaited, "seconds") as seen:
            while left and time.monotonic() < deadline:
                seen(listed(sorted(left)))
                time.sleep(_POLL_SECONDS)
                left = _behind(client, left, are_behind)
    if settles or first:
        time.sleep(min(SETTLE_SECONDS, seconds))
    return left


def _behind(client: Client, namespaces: Iterable[str], are_behind: _AreBehind) -> set[str]:
    found = set()
    for namespace in namespaces:
        try:
            values = client.list(_API_VERSION, routes.HTTP_ROUTE, namespace=namespace).items
        except (Forbidden, NotServed):
            continue
        if are_behind(namespace, values):
            found.add(namespace)
    return found


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
        leads = bool(routes.references(route) & self.targets[namespace])
        return leads or self.is_unwritten(route) or routes.is_behind(route)


def _by_namespace(keys: Iterable[Key], part: Callable[[Key], T]) -> dict[str, set[T]]:
    found: dict[str, set[T]] = {}
    for key in keys:
        found.setdefault(key.namespace, set()).add(part(key))
    return found
