# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Pruning in stages, so that no route leads to what is gone, and none is open while it leads somewhere: routes, those
behind the cluster gateway, to which these led, what both referred to, and last the policies that guarded them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ansible_collections.modelplane.fleet.plugins.module_utils.core.applying import routes
from ansible_collections.modelplane.fleet.plugins.module_utils.core.applying.inventory import Key
from ansible_collections.modelplane.fleet.plugins.module_utils.core.applying.order import DEFINITION, NAMESPACE
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.model_gateway.overflow import (
    is_behind_cluster_gateway,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.route_policies import guards, is_policy
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.client import Client
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.inventory import RecordStore
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.pruning import GONE, prune
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.route_changes import FOLLOWED, RouteChanges
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.write import Result, result

APPLIED = "the routes and policies of its namespace can be applied"
"""End of a sentence that says what is waited for where one of them failed."""
_GUARDED = "the routes that policies of its namespace guard are gone"


@dataclass
class Pruning:
    """Pruning of what is no longer desired on one server.

    `known` are the results of what is desired, `removed` the routes that are not, also those that are being deleted
    already. `stuck` are namespaces in which nothing is deleted, each with what that waits for, `failed` those in which
    a route or a policy could not be applied. `changes` are those of the run so far. `done` are the results.
    """

    client: Client
    store: RecordStore
    known: Mapping[Key, Result]
    removed: Sequence[Object]
    stuck: dict[str, str]
    failed: Collection[str]
    changes: RouteChanges
    check_mode: bool = False
    done: list[Result] = field(default_factory=list)

    def run(self, gone: Iterable[Object]) -> list[Result]:
        """Prune these objects, in their order within a stage, but for what gateways still use."""
        failed = {key.namespace for key in self._desired_routes() if self.known[key].action == "failed"}
        self.stuck |= dict.fromkeys(failed, APPLIED)
        rest = self._without_routes(list(gone))
        self._keep([value for value in rest if _place(value) in self.stuck], self.stuck)
        others, policies, last = list[Object](), list[Object](), list[Object]()
        for value in self._left(rest):
            is_last = Key.of(value).kind in (NAMESPACE, DEFINITION)
            (last if is_last else policies if is_policy(value) else others).append(value)
        self._prune(others)
        reached = self._reached()
        # A limit that is counted elsewhere from now on may be missing there, in a place that failed.
        held = [
            value
            for value in policies
            if _place(value) in self.failed or any(guards(value, route) for route in reached)
        ]
        until = {_place(value): APPLIED if _place(value) in self.failed else _GUARDED for value in held}
        self._keep([*held, *(value for value in last if _place(value) in until)], until)
        self._prune(self._left([*policies, *last]))
        return self.done

    def _without_routes(self, gone: list[Object]) -> list[Object]:
        """Prune routes, those behind the cluster gateway after the others, and wait until gateways follow. Return what
        is left."""
        found = [value for value in gone if Key.of(value).kind in routes.KINDS]
        first = [value for value in found if not is_behind_cluster_gateway(value)]
        second = [value for value in found if is_behind_cluster_gateway(value)]
        known = (self.known[key].after for key in self._desired_routes())
        desired = [route for route in known if route]
        for stage in (first, second) if second else (first,):
            before = len(self.done)
            self._prune(value for value in stage if Key.of(value).namespace not in self.stuck)
            removed = [found.key for found in self.done[before:]]
            gone = self._left(gone)
            if not self.check_mode:
                awaited = [value for value in gone if Key.of(value).namespace not in self.stuck]
                behind = self.changes.wait_followed(desired, removed, awaited)
                self.stuck |= dict.fromkeys(behind, FOLLOWED)
        return gone

    def _reached(self) -> list[Object]:
        """Return the removed routes that may lead somewhere yet: not deleted, or in a namespace where something else
        could not be."""
        left = {found.key for found in self.done if found.action not in GONE}
        places = {found.namespace for found in self.done if found.action == "failed"}
        return [route for route in self.removed if Key.of(route) in left or Key.of(route).namespace in places]

    def _desired_routes(self) -> list[Key]:
        return [key for key in self.known if key.kind in routes.KINDS]

    def _left(self, values: Iterable[Object]) -> list[Object]:
        done = {found.key for found in self.done}
        return [value for value in values if Key.of(value) not in done]

    def _prune(self, values: Iterable[Object]) -> None:
        self.done += prune(self.client, values, self.store, check_mode=self.check_mode, done=self.done)

    def _keep(self, values: Iterable[Object], until: Mapping[str, str]) -> None:
        self.done += [result(value, "skipped", f"kept until {until[_place(value)]}", before=value) for value in values]


def _place(value: Object) -> str:
    """Return the namespace that an object is in, or is."""
    key = Key.of(value)
    return key.name if key.kind == NAMESPACE else key.namespace
