# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Detours by the cluster gateway, which have to work before a route that is in use leads there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ansible_collections.modelplane.fleet.plugins.module_utils.core.applying.inventory import Key
from ansible_collections.modelplane.fleet.plugins.module_utils.core.applying.routes import AI_ROUTE, ai_backends
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.model_gateway.backends import detour_name
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.model_gateway.overflow import (
    is_behind_cluster_gateway,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.text import listed
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.route_changes import RouteChanges
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.write import Result


class Detours:
    """Detours among the desired objects of a server, as `compose/model_gateway/overflow.py` has them, that routes of
    `pending` need: each as it is desired and as it is there. Requests by a new route get nowhere before."""

    def __init__(
        self, changes: RouteChanges, desired: Iterable[Object], pending: Iterable[tuple[Object, Object | None]]
    ) -> None:
        self._changes = changes
        ways: dict[tuple[str, str], Key] = {}
        for way in filter(is_behind_cluster_gateway, desired):
            key = Key.of(way)
            ways.update(((key.namespace, detour_name(name)), key) for name in ai_backends(way))
        self._needed: dict[Key, set[Key]] = {}
        for route, live in pending:
            key = Key.of(route)
            if ways and live is not None and key.kind == AI_ROUTE:
                new = ai_backends(route) - ai_backends(live)
                self._needed[key] = {ways[key.namespace, name] for name in new if (key.namespace, name) in ways}
        self._missing: set[Key] | None = None

    def refusal(self, route: Object, done: Mapping[Key, Result]) -> str:
        """Return why a route is not applied, "" where it may be. `done` are the results of what was applied before it.
        All detours that are needed are waited for together, at the first of them."""
        needed = self._needed.get(Key.of(route), ())
        if failed := [str(key) for key in needed if done[key].action == "failed"]:
            return f"it is not applied without the detour that its requests take, which failed: {listed(failed)}"
        if needed and self._missing is None:
            ways = set[Key]().union(*self._needed.values())
            applied = [done[key].after for key in sorted(ways)]
            self._missing = self._changes.wait_accepted([way for way in applied if way])
        if late := [str(key) for key in needed if key in (self._missing or ())]:
            return (
                "it is not applied, as the cluster gateway has not accepted the detour that its requests take: see the "
                f"conditions of the HTTPRoute of {listed(late)}, and run again"
            )
        return ""
