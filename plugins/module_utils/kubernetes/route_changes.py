# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Waiting until gateways route by the latest change of routes, before what these referred to is deleted."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from ansible_collections.modelplane.fleet.plugins.module_utils.core.applying import routes
from ansible_collections.modelplane.fleet.plugins.module_utils.core.applying.inventory import Key
from ansible_collections.modelplane.fleet.plugins.module_utils.core.progress import Progress, unseen
from ansible_collections.modelplane.fleet.plugins.module_utils.core.text import count, listed
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.client import Client
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.errors import Forbidden, NotServed

TAKE_OVER_SECONDS = 20.0
"""A controller takes over a change within a second or two; one that does not run at all is waited for in vain."""
_POLL_SECONDS = 0.25
_API_VERSION = "gateway.networking.k8s.io/v1"


def wait_taken_over(
    client: Client, changed: Iterable[Key], gone: Iterable[Key], seconds: float, progress: Progress = unseen
) -> set[str]:
    """Return the namespaces whose changed routes still lead to what is to be deleted when the time is over.

    A route leads there while the HTTPRoute of its name refers to such an object, as the AI gateway rewrites it from an
    AIGatewayRoute, and until the gateway's controller has processed it. Where no controller ever did, none is waited
    for, and neither is where HTTPRoutes cannot be read."""
    removed: dict[str, set[tuple[str, str]]] = {}
    for key in gone:
        removed.setdefault(key.namespace, set()).add((key.kind, key.name))
    names: dict[str, set[str]] = {}
    for key in changed:
        if key.namespace in removed:
            names.setdefault(key.namespace, set()).add(key.name)
    deadline = time.monotonic() + seconds
    left = _left(client, names, removed)
    if not left:
        return set()
    with progress(client.name, f"gateways to follow the routes of {count(len(left), 'namespace')}", "seconds") as seen:
        while left and time.monotonic() < deadline:
            seen(listed(sorted(left)))
            time.sleep(_POLL_SECONDS)
            left = _left(client, {namespace: names[namespace] for namespace in left}, removed)
    return left


def _left(client: Client, names: Mapping[str, set[str]], removed: Mapping[str, set[tuple[str, str]]]) -> set[str]:
    found = set()
    for namespace, changed in names.items():
        try:
            values = client.list(_API_VERSION, routes.HTTP_ROUTE, namespace=namespace).items
        except (Forbidden, NotServed):
            continue
        if any(Key.of(value).name in changed and _leads_to(value, removed[namespace]) for value in values):
            found.add(namespace)
    return found


def _leads_to(route: Object, removed: set[tuple[str, str]]) -> bool:
    return bool(routes.references(route) & removed) or routes.is_being_taken_over(route)
