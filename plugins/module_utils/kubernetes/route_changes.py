# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Waiting until gateways route by the latest change of routes, before what these referred to, or what guarded them, is
deleted."""

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
_IsBehind = Callable[[str, Object], bool]

FOLLOWED = "gateways follow the routes of its namespace"
"""End of a sentence that says what is waited for."""
FOLLOW_SECONDS = 20.0
"""A controller processes a change within a second or two; one that does not run at all is waited for in vain."""
_POLL_SECONDS = 0.25
_API_VERSION = "gateway.networking.k8s.io/v1"


def wait_followed(
    client: Client,
    desired: Iterable[Key],
    removed: Iterable[Key],
    gone: Iterable[Key],
    seconds: float,
    progress: Progress = unseen,
) -> set[str]:
    """Wait until gateways send nothing to what is to be deleted (`gone`), and know no routes any more that were
    `removed`. Return the namespaces of `desired` routes that still lead there when the time is over.

    An HTTPRoute leads to such an object while it refers to it, as the AI gateway rewrites it from the AIGatewayRoute of
    its name, and until the gateway's controller has processed it. Where HTTPRoutes cannot be read, none is awaited. One
    of a removed route leads nowhere once its backends are deleted, so it keeps nothing."""
    targets = _by_namespace(gone, lambda key: (key.kind, key.name))
    places = _Places(
        targets,
        _by_namespace((key for key in desired if key.namespace in targets), lambda key: key.name),
        _by_namespace((key for key in removed if key.namespace in targets), lambda key: key.name),
    )
    left = _waited(client, places.desired.keys() | places.removed.keys(), places.is_behind, seconds, progress)
    return _behind(client, left, replace(places, removed={}).is_behind)


def wait_rewritten(client: Client, values: Sequence[Object], seconds: float, progress: Progress = unseen) -> set[str]:
    """Wait until the AI gateway has written the HTTPRoutes of AIGatewayRoutes as these are now, before they change.
    Return the namespaces of those that it has not when the time is over.

    Where one change takes back another, an HTTPRoute from before both equals that after both, and the AI gateway may
    yet write the one in between."""
    is_behind = _is_unwritten(values)
    return _waited(client, {Key.of(value).namespace for value in values}, is_behind, seconds, progress)


def wait_applied(client: Client, values: Sequence[Object], seconds: float, progress: Progress = unseen) -> set[str]:
    """Wait until gateways route by these routes as they are now. Return the namespaces of those by which they do not
    when the time is over."""
    places = {(Key.of(value).namespace, Key.of(value).name) for value in values}
    is_unwritten = _is_unwritten(value for value in values if Key.of(value).kind == routes.AI_ROUTE)

    def is_behind(namespace: str, route: Object) -> bool:
        is_one = (namespace, Key.of(route).name) in places
        return is_one and (is_unwritten(namespace, route) or routes.is_behind(route))

    return _waited(client, {namespace for namespace, __ in places}, is_behind, seconds, progress)


def _is_unwritten(values: Iterable[Object]) -> _IsBehind:
    """Return what says whether the AI gateway has yet to write the HTTPRoute of one of these AIGatewayRoutes."""
    written = {(Key.of(value).namespace, Key.of(value).name): routes.ai_backends(value) for value in values}

    def is_unwritten(namespace: str, route: Object) -> bool:
        found = {name for kind, name in routes.references(route) if kind == "Backend"}
        return found != written.get((namespace, Key.of(route).name), found)

    return is_unwritten


def _waited(
    client: Client, namespaces: Iterable[str], is_behind: _IsBehind, seconds: float, progress: Progress
) -> set[str]:
    """Return the namespaces in which an HTTPRoute is behind after so many seconds."""
    deadline = time.monotonic() + seconds
    left = _behind(client, namespaces, is_behind)
    if not left:
        return set()
    with progress(client.name, f"gateways to follow the routes of {count(len(left), 'namespace')}", "seconds") as seen:
        while left and time.monotonic() < deadline:
            seen(listed(sorted(left)))
            time.sleep(_POLL_SECONDS)
            left = _behind(client, left, is_behind)
    return left


def _behind(client: Client, namespaces: Iterable[str], is_behind: _IsBehind) -> set[str]:
    found = set()
    for namespace in namespaces:
        try:
            values = client.list(_API_VERSION, routes.HTTP_ROUTE, namespace=namespace).items
        except (Forbidden, NotServed):
            continue
        if any(is_behind(namespace, value) for value in values):
            found.add(namespace)
    return found


@dataclass(frozen=True)
class _Places:
    """By namespace: kinds and names of what is to be deleted, and the names of routes that stay or were removed."""

    targets: Mapping[str, set[tuple[str, str]]]
    desired: Mapping[str, set[str]]
    removed: Mapping[str, set[str]]

    def is_behind(self, namespace: str, route: Object) -> bool:
        """Return True for an HTTPRoute by which requests go where they should not any more."""
        name = Key.of(route).name
        if name not in self.desired.get(namespace, ()):
            return name in self.removed.get(namespace, ())
        return bool(routes.references(route) & self.targets[namespace]) or routes.is_behind(route)


def _by_namespace(keys: Iterable[Key], part: Callable[[Key], T]) -> dict[str, set[T]]:
    found: dict[str, set[T]] = {}
    for key in keys:
        found.setdefault(key.namespace, set()).add(part(key))
    return found
