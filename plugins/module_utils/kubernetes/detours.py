# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Detours by the cluster gateway, which have to work before a route that is in use leads there."""

from __future__ import annotations

from collections.abc import Iterable

from ansible_collections.modelplane.fleet.plugins.module_utils.core.applying.inventory import Key
from ansible_collections.modelplane.fleet.plugins.module_utils.core.applying.routes import AI_ROUTE, ai_backends
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.model_gateway.backends import detour_name
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.model_gateway.overflow import (
    is_behind_cluster_gateway,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.progress import Progress
from ansible_collections.modelplane.fleet.plugins.module_utils.core.text import listed
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object, text
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.client import Client
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.route_changes import wait_accepted


class Detours:
    """Detours among the desired objects of a server, as `compose/model_gateway/overflow.py` has them. The cluster
    gateway gets `seconds` to accept those of a namespace, once."""

    def __init__(self, client: Client, desired: Iterable[Object], seconds: float, progress: Progress) -> None:
        self._client, self._seconds, self._progress = client, seconds, progress
        self._routes: dict[str, list[Object]] = {}
        for value in desired:
            if is_behind_cluster_gateway(value):
                self._routes.setdefault(Key.of(value).namespace, []).append(value)
        self._accepted: dict[str, bool] = {}

    def delay(self, route: Object, live: Object | None) -> str:
        """Return why a route stays as it is for now, "" where it may change. `live` is what is there of it: requests by
        a new one get nowhere before."""
        namespace = Key.of(route).namespace
        if live is None or text(route, "kind") != AI_ROUTE or namespace not in self._routes:
            return ""
        new = ai_backends(route) - ai_backends(live)
        ways = [way for way in self._routes[namespace] if new & {detour_name(name) for name in ai_backends(way)}]
        if not ways:
            return ""
        if namespace not in self._accepted:
            values = self._routes[namespace]
            self._accepted[namespace] = wait_accepted(self._client, values, self._seconds, self._progress)
        if self._accepted[namespace]:
            return ""
        return f"it stays as it is until the cluster gateway accepts {listed(str(Key.of(way)) for way in ways)}"
