# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Policies that keep a route from being applied: those that guard it and failed, and those of others."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from ansible_collections.modelplane.fleet.plugins.module_utils.core.applying.inventory import Key
from ansible_collections.modelplane.fleet.plugins.module_utils.core.applying.limits import with_limits_of
from ansible_collections.modelplane.fleet.plugins.module_utils.core.applying.routes import AI_ROUTE, KINDS
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.model_gateway.parts import ENVOY_API
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.route_policies import (
    SECURITY,
    Contested,
    contested,
    foreign,
    foreign_message,
    guards,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.text import listed
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object, Objects, text
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.client import Client
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.errors import Forbidden, NotServed


class RouteGuards:
    """Policies on the routes of a server. Those of others are read once, for the first new route of the AI gateway."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def refusal(self, route: Object, live: Object | None, unapplied: Iterable[tuple[Object, Object | None]]) -> str:
        """Return why a route is not applied, "" where it may be, or is none. `live` is what is there of it, `unapplied`
        are objects that failed, as they are desired and as they are: without the policies among them, a route would let
        in whoever reaches its gateway, or without limit."""
        kind = text(route, "kind")
        if kind not in KINDS:
            return ""
        missing = [
            str(Key.of(value))
            for value, there in unapplied
            if guards(value, route) and not (there and guards(there, route) and not with_limits_of(there, value))
        ]
        if missing:
            return f"it is not applied without what guards it, which failed: {listed(missing)}"
        # One that is there stays in use.
        if kind != AI_ROUTE or live is not None:
            return ""
        of_others = [foreign_message(policy) for policy in foreign(self._contested, route)]
        return f"it is not applied: {'; '.join(of_others)}" if of_others else ""

    @cached_property
    def _contested(self) -> Contested:
        try:
            return contested(Objects(self._client.list(ENVOY_API, SECURITY).items))
        except (Forbidden, NotServed):
            return {}
