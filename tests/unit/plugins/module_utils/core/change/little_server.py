# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Fake API server with an AI gateway that programs routes with a delay, and an executor of change plans."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from graphlib import TopologicalSorter
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core import names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.applying.inventory import Entry, Key
from ansible_collections.modelplane.fleet.plugins.module_utils.core.change.conditions import (
    Empty,
    Established,
    Known,
    Released,
    RouteCondition,
    Unused,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.change.difference import Observed, Scope, entry
from ansible_collections.modelplane.fleet.plugins.module_utils.core.change.objects import plan
from ansible_collections.modelplane.fleet.plugins.module_utils.core.change.routes import weighted_backends
from ansible_collections.modelplane.fleet.plugins.module_utils.core.change.steps import ChangePlan, Step, Wait
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.route_policies import guards
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object, entries, text
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.executor import Executor
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.write import Result, result

OURS = {names.MANAGED_BY_LABEL: names.MANAGED_BY}
AI_ROUTE, HTTP_ROUTE = "AIGatewayRoute", "HTTPRoute"
AI = "aigateway.envoyproxy.io/v1beta1"
ENVOY = "gateway.envoyproxy.io/v1alpha1"
GROUP = "gateway.networking.k8s.io"
ROUTE_OF = {"group": GROUP, "kind": HTTP_ROUTE}


class KilledError(Exception):
    """The run was aborted."""


def thing(api_version: str, kind: str, name: str, namespace: str = "", **content: Any) -> Object:
    """Return an object of the fleet."""
    metadata = {"name": name, "labels": OURS, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **content}


def backend(name: str, namespace: str) -> Object:
    """Return a Backend."""
    return thing(ENVOY, "Backend", name, namespace, spec={"endpoints": [{"ip": name}]})


def ai_route(name: str, namespace: str, to: Iterable[str], gateway: str = "gateway") -> Object:
    """Return a route to backends."""
    rules = [{"backendRefs": [{"name": target, "weight": 1} for target in to]}]
    return thing(AI, AI_ROUTE, name, namespace, spec={"parentRefs": [{"name": gateway}], "rules": rules})


def overflow_route(name: str, namespace: str, to: Iterable[str], service: str = "") -> Object:
    """Return a route behind the cluster gateway; policies select it by its service."""
    route = ai_route(name, namespace, to, "cluster-gateway")
    labels = {**OURS, **({"service": service} if service else {})}
    return {**route, "metadata": {**route["metadata"], "labels": labels}}


def selecting(policy: Object, service: str) -> Object:
    """Return a policy with selectors for a service's overflow routes."""
    selector = {"group": GROUP, "kind": HTTP_ROUTE, "matchLabels": {"service": service}}
    spec = {key: part for key, part in policy["spec"].items() if key != "targetRefs"}
    return {**policy, "spec": {**spec, "targetSelectors": [selector]}}


def keys(name: str, namespace: str, route: str, version: int = 0) -> Object:
    """Return a SecurityPolicy on a route."""
    spec = {"targetRefs": [{**ROUTE_OF, "name": route}], "version": version}
    return thing(ENVOY, "SecurityPolicy", name, namespace, spec=spec)


def limits(name: str, namespace: str, route: str, units: Iterable[str]) -> Object:
    """Return a BackendTrafficPolicy on a route, with a limit for each unit of time."""
    rules = [{"limit": {"requests": 5, "unit": unit}} for unit in units]
    spec: dict[str, Any] = {"targetRefs": [{**ROUTE_OF, "name": route}]}
    spec |= {"rateLimit": {"type": "Global", "global": {"rules": rules}}} if rules else {}
    return thing(ENVOY, "BackendTrafficPolicy", name, namespace, spec=spec)


Slots = tuple[tuple[str, int], ...]
"""Backends of a route in order, each with its weight."""


@dataclass
class Followed:
    """HTTPRoute of an AIGatewayRoute: the written and the programmed version."""

    written: Slots
    parents: Sequence[Object]
    programmed: Slots | None = None

    @property
    def serving(self) -> frozenset[str]:
        """Return the backends that get requests."""
        return frozenset(name for name, weight in self.programmed or () if weight)


@dataclass
class Server:
    """Objects of one server, with the inventory of the fleet and programmed routes.

    processor: slots of each route in the configuration that the external processor has read.
    stuck: routes that gateways do not program.
    failing: objects that the server does not write or delete.
    """

    objects: dict[Key, Object] = field(default_factory=dict)
    inventory: dict[Key, Entry] = field(default_factory=dict)
    followed: dict[tuple[str, str], Followed] = field(default_factory=dict)
    processor: dict[tuple[str, str], Slots] = field(default_factory=dict)
    stuck: Collection[tuple[str, str]] = ()
    failing: Collection[Key] = ()

    def copy(self) -> Server:
        """Return a copy of the server."""
        followed = {key: replace(value) for key, value in self.followed.items()}
        return replace(
            self,
            objects=dict(self.objects),
            inventory=dict(self.inventory),
            followed=followed,
            processor=dict(self.processor),
        )

    def read_configuration(self) -> None:
        """Let the external processor read the slots of all routes."""
        self.processor = {
            key[2:]: tuple(weighted_backends(value)) for key, value in self.objects.items() if key.kind == AI_ROUTE
        }

    def observed(self) -> Observed:
        """Return the observed state."""
        live = {
            key: value
            for key, value in self.objects.items()
            if OURS.items() <= value["metadata"].get("labels", {}).items()
        }
        return Observed(live=live, own=dict(self.inventory))

    def write(self, value: Object) -> Object:
        """Store an object, with the fields that the fleet owns."""
        managed = [{"manager": names.FIELD_MANAGER, "operation": "Apply", "fieldsV1": {"f:spec": {}, "f:data": {}}}]
        stored = {**value, "metadata": {**value["metadata"], "managedFields": managed}}
        self.objects[Key.of(value)] = stored
        return stored

    def follow(self, route: tuple[str, str]) -> bool:
        """Advance a route by one step: the AI gateway writes the HTTPRoute, or the gateway programs the HTTPRoute.
        Return whether the route has changed."""
        if route in self.stuck:
            return False
        live = next((value for key, value in self.objects.items() if key[1:] == (AI_ROUTE, *route)), None)
        known = self.followed.get(route)
        if live is None:
            return self.followed.pop(route, None) is not None
        if known is None:
            self.followed[route] = Followed(tuple(weighted_backends(live)), entries(live, "spec", "parentRefs"))
        elif known.programmed != known.written:
            known.programmed = known.written
        else:
            before, known.written = known.written, tuple(weighted_backends(live))
            return known.written != before
        return True

    def follow_all(self) -> None:
        """Advance all routes until gateways have programmed them."""
        for route in {key[2:] for key in self.objects if key.kind == AI_ROUTE} | set(self.followed):
            while self.follow(route):
                pass

    def http_routes(self, namespace: str) -> Iterator[Object]:
        """Yield the HTTPRoutes of a namespace."""
        for (place, name), known in self.followed.items():
            if place == namespace:
                generation = 2 if known.programmed == known.written else 1
                accepted = [
                    {"type": kind, "status": "True", "observedGeneration": generation}
                    for kind in ("Accepted", "ResolvedRefs")
                ]
                parents = [{"parentRef": parent, "conditions": accepted} for parent in known.parents]
                references = [{"kind": "Backend", "name": name, "weight": weight} for name, weight in known.written]
                rules = [{"backendRefs": references}]
                yield {
                    "kind": HTTP_ROUTE,
                    "metadata": {"name": name, "namespace": place, "generation": 2},
                    "spec": {"parentRefs": known.parents, "rules": rules},
                    "status": {"parents": parents if known.programmed is not None else []},
                }

    def counted(self, route: Object) -> set[str]:
        """Return the limits that are counted for a route."""
        policies = [value for key, value in self.objects.items() if key.kind == "BackendTrafficPolicy"]
        rules = (
            entries(policy, "spec", "rateLimit", "global", "rules") for policy in policies if guards(policy, route)
        )
        return {text(rule, "limit", "unit") for limits in rules for rule in limits}


class Sender:
    """Sender that checks the server after each object, and finally aborts the run."""

    def __init__(self, server: Server, chance: random.Random, check: Any, writes: int | None) -> None:
        self.server = server
        self.chance = chance
        self.check = check
        self.left = writes
        self.check_mode = False

    def send(self, desired: Object, before: Object | None) -> Result:
        """Write an object."""
        self._begin()
        if Key.of(desired) in self.server.failing:
            return result(desired, "failed", "refused", before=before)
        after = self.server.write(desired)
        self._end()
        return result(desired, "updated" if before else "created", before=before, after=after)

    def delete(self, live: Object) -> Result:
        """Delete an object."""
        self._begin()
        if Key.of(live) in self.server.failing:
            return result(live, "failed", "refused", before=live)
        assert self.server.objects.pop(Key.of(live), None) is not None
        self._end()
        return result(live, "deleted", before=live)

    def _begin(self) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise KilledError

    def _end(self) -> None:
        self.check()
        if self.chance.random() < 0.3:
            self.server.read_configuration()
            self.check()
        routes = sorted({key[2:] for key in self.server.objects if key.kind == AI_ROUTE} | set(self.server.followed))
        for route in self.chance.sample(routes, min(len(routes), self.chance.randrange(3))):
            if self.server.follow(route):
                self.check()


@dataclass
class Conditions:
    """Conditions on the server. Gateways program all routes during a wait."""

    server: Server
    check: Any

    def wait(self, waits: Sequence[Wait], results: Mapping[Key, Result]) -> Mapping[str, str]:
        """Return the conditions that do not hold."""
        assert all(outcome.action for outcome in results.values())
        self.server.follow_all()
        self.check()
        if isinstance(waits[0].condition, Known):
            self.server.read_configuration()
            self.check()
        return {wait.id: wait.condition.subject or "it" for wait in waits if not self._holds(wait)}

    def _holds(self, wait: Wait) -> bool:
        match wait.condition:
            case RouteCondition() as condition:
                return condition.is_enough(list(self.server.http_routes(condition.namespace)))
            case Empty(namespace):
                return not any(key.namespace == namespace for key in self.server.objects)
            case Unused(definitions):
                kinds = {text(definition, "spec", "names", "kind") for definition in definitions}
                return not any(key.kind in kinds for key in self.server.objects)
            case Established() | Released():
                return True
        raise AssertionError(wait)


@dataclass
class Inventory:
    """Inventory of the fleet on the server."""

    server: Server
    desired: Mapping[Key, Object]

    def begin(self, keys: Iterable[Key]) -> None:
        """Write the keys of objects before they are created."""
        for key in keys:
            self.server.inventory.setdefault(key, Entry(self.desired[key]["apiVersion"]))

    def finish(self, results: Mapping[Key, Result], unfinished: Collection[Key]) -> None:
        """Write the applied and deleted objects."""
        for key, outcome in results.items():
            if key not in self.desired and outcome.action == "deleted":
                del self.server.inventory[key]
            elif key in self.desired and outcome.action != "failed" and key not in unfinished and outcome.after:
                self.server.inventory[key] = entry(self.desired[key], outcome.after)


def planned(server: Server, desired: Mapping[Key, Object]) -> ChangePlan:
    """Return the plan for the server."""
    return plan(desired, server.observed(), Scope(definitions=True))


def shuffled(change_plan: ChangePlan, chance: random.Random) -> list[Step]:
    """Return the steps of a plan in a random order that satisfies all edges."""
    steps = {step.id: step for step in change_plan.steps}
    sorter = TopologicalSorter(change_plan.graph())
    sorter.prepare()
    ready: list[str] = []
    order = []
    while sorter.is_active():
        ready += sorted(sorter.get_ready())
        step = ready.pop(chance.randrange(len(ready)))
        order += [steps[step]] if step in steps else []
        sorter.done(step)
    return order


def run(
    server: Server,
    desired: Mapping[Key, Object],
    chance: random.Random,
    check: Any = lambda: None,
    *,
    writes: int | None = None,
    shuffle: bool = True,
) -> Mapping[Key, Result]:
    """Run the plan for the server, in a random order, and check the server after each step. The run is aborted after
    the given number of writes. Return the results."""
    change_plan = planned(server, desired)
    if shuffle:
        change_plan = replace(change_plan, steps=tuple(shuffled(change_plan, chance)))
    sender = Sender(server, chance, check, writes)
    executor = Executor(sender, Conditions(server, check), Inventory(server, desired))  # type: ignore[arg-type]
    return executor.run(change_plan)
