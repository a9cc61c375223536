# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Invariants after each step of a plan, for random observed and desired states and random step orders."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.applying.inventory import Key
from ansible_collections.modelplane.fleet.plugins.module_utils.core.change.routes import ai_backends
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.engine import graph
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.model_gateway.backends import detour_name
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.route_policies import guards
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.change.little_server import (
    AI_ROUTE,
    KilledError,
    Server,
    Slots,
    ai_route,
    backend,
    keys,
    limits,
    overflow_route,
    planned,
    run,
    selecting,
    thing,
)

CASES = int(os.environ.get("CHANGE_CASES", "60"))
MANY = 10_000
UNITS = ("Minute", "Hour", "Day")


def behind(service: str, endpoint: str) -> str:
    """Return the route name of an endpoint behind the cluster gateway."""
    return f"behind-{service}-{endpoint}"


@dataclass(frozen=True)
class Service:
    """Service with endpoints and budgets, which its route or the cluster gateway meters."""

    name: str
    namespace: str
    endpoints: tuple[str, ...]
    units: frozenset[str]
    overflows: bool
    keys: int

    @property
    def backends(self) -> frozenset[str]:
        """Return the backends of its route."""
        return frozenset(map(detour_name, self.endpoints)) if self.overflows else frozenset(self.endpoints)

    def overflow_routes(self) -> list[Object]:
        """Return the route of each endpoint behind the cluster gateway."""
        return [
            overflow_route(behind(self.name, endpoint), self.namespace, [endpoint], self.name)
            for endpoint in (self.endpoints if self.overflows else ())
        ]

    def objects(self) -> Iterator[Object]:
        """Yield all objects of this service."""
        name, namespace = self.name, self.namespace
        yield ai_route(name, namespace, sorted(self.backends))
        yield keys(name, namespace, name, self.keys)
        yield limits(name, namespace, name, () if self.overflows else sorted(self.units))
        for endpoint in (*self.endpoints, *self.backends):
            yield backend(endpoint, namespace)
        if self.overflows:
            yield from self.overflow_routes()
            yield selecting(keys(f"behind-{name}", namespace, ""), name)
            yield selecting(limits(f"behind-{name}", namespace, "", sorted(self.units)), name)


@dataclass(frozen=True)
class State:
    """Desired state of a server."""

    services: Mapping[tuple[str, str], Service]
    others: tuple[Object, ...]

    @property
    def objects(self) -> dict[Key, Object]:
        """Return the objects by their keys."""
        every = [value for service in self.services.values() for value in service.objects()]
        every += self.others
        namespaces = {Key.of(value).namespace for value in every} - {""}
        every += [thing("v1", "Namespace", name) for name in namespaces]
        return {Key.of(value): value for value in every}


def states(chance: random.Random) -> State:
    """Return a random state."""
    services = {}
    for namespace in ("east", "west"):
        for name in ("chat", "code"):
            if chance.random() < 0.6:
                endpoints = chance.sample(("one", "two", "three"), chance.randint(1, 3))
                units = frozenset(unit for unit in UNITS if chance.random() < 0.5)
                overflows = chance.random() < 0.4
                service = Service(name, namespace, tuple(endpoints), units, overflows, chance.randrange(2))
                services[namespace, name] = service
    others: list[Object] = []
    if chance.random() < 0.5:
        others += [thing("apps/v1", "Deployment", "web", "pods", spec={"replicas": chance.randint(1, 2)})]
        others += [thing("policy/v1", "PodDisruptionBudget", "web", "pods", spec={"minAvailable": 1})]
        others += [thing("v1", "ConfigMap", "web", "pods", data={"a": str(chance.randrange(2))})]
    if chance.random() < 0.5:
        spec = {"group": "example.com", "names": {"kind": "Widget"}}
        others += [thing("apiextensions.k8s.io/v1", "CustomResourceDefinition", "widgets.example.com", spec=spec)]
        others += [thing("example.com/v1", "Widget", "one", "pods", spec={})] if chance.random() < 0.5 else []
    return State(services, tuple(others))


@dataclass
class Checks:
    """Checks of a server during a change.

    serving: state with the services that must keep serving. An aborted run might have created or deleted only a part of
    other services."""

    server: Server
    before: State
    after: State
    serving: State

    def __call__(self) -> None:
        """Check the server."""
        live = self.server.objects
        namespaces = {key.name for key in live if key.kind == "Namespace"}
        assert {key.namespace for key in live} - {""} <= namespaces
        kinds = {key.kind for key in live}
        # A failed object does not prevent other writes and deletions.
        known = kinds | {key.kind for key in self.server.failing}
        assert "Widget" not in kinds or "CustomResourceDefinition" in known
        assert "Deployment" not in kinds - {key.kind for key in self.server.failing} or (
            {"PodDisruptionBudget", "ConfigMap"} <= known
        )
        for key, value in live.items():
            if key.kind == AI_ROUTE:
                self._check_references(key, ai_backends(value))
                policies = [other for name, other in live.items() if name.kind == "SecurityPolicy"]
                assert any(guards(policy, value) for policy in policies), f"{key} is open"
        for (namespace, name), known in self.server.followed.items():
            route = next((value for key, value in live.items() if key[1:] == (AI_ROUTE, namespace, name)), None)
            if route is not None and known.programmed is not None:
                self._check_references(Key.of(route), {name for name, __ in known.programmed})
                self._check_budgets(route, known.serving)
                self._check_detours(route, known.serving)
                self._check_slots(Key.of(route), known.programmed)

    def _is_held(self, route: Key) -> bool:
        """Return whether a route cannot be deleted. Its policies are kept, and its backends are deleted."""
        return route in self.server.failing and route not in self.after.objects

    def _check_references(self, route: Key, backends: set[str]) -> None:
        for name in backends if not self._is_held(route) else ():
            key = Key.of(backend(name, route.namespace))
            assert key in self.server.objects or key in self.server.failing, f"{route} leads to {name}"

    def _check_budgets(self, route: Object, programmed: frozenset[str]) -> None:
        """Check that the previous or the desired budgets meter the current routes."""
        place = Key.of(route)[2:]
        states = [state.services[place] for state in (self.before, self.after) if place in state.services]
        by_this = [service for service in states if service.backends == programmed]
        if not by_this or self._is_held(Key.of(route)):
            return
        service = by_this[-1]
        # A new route serves no requests before its overflow route exists.
        counting = (
            [value for value in service.overflow_routes() if Key.of(value)[2:] in self.server.followed]
            if service.overflows
            else [route]
        )
        possible = [service_state.units for service_state in states if service_state.overflows == service.overflows]
        for metered_route in counting:
            counted = self.server.counted(metered_route)
            assert any(units <= counted for units in possible), f"{place}: only {counted} is counted"

    def _check_detours(self, route: Object, programmed: frozenset[str]) -> None:
        """Check that the cluster gateway serves the requests of existing routes."""
        key = Key.of(route)
        if key[2:] not in self.serving.services or self._is_held(key):
            return
        for name in {"one", "two", "three"}:
            if detour_name(name) in programmed:
                route_behind = self.server.followed.get((key.namespace, behind(key.name, name)))
                assert route_behind is not None, f"{key}: no way to {name}"
                assert name in route_behind.serving, f"{key}: no way to {name}"

    def _check_slots(self, route: Key, programmed: Slots) -> None:
        """Check that a backend serves requests, and that the external processor knows each slot with requests."""
        if route[2:] not in self.serving.services or self._is_held(route):
            return
        slots = {(index, name) for index, (name, weight) in enumerate(programmed) if weight}
        known = {(index, name) for index, (name, __) in enumerate(self.server.processor.get(route[2:], ()))}
        assert slots, f"{route} has no backend"
        assert slots <= known, f"{route}: the processor does not know {slots - known}"


def begun(chance: random.Random, state: State) -> Server:
    """Return a server in a state, with an object of another owner."""
    server = Server()
    run(server, state.objects, chance)
    server.follow_all()
    server.read_configuration()
    for namespace in ("east", "pods"):
        if chance.random() < 0.3:
            key = Key("", "Namespace", "", namespace)
            if key in server.objects:
                other = {**thing("v1", "ConfigMap", "theirs", namespace), "data": {}}
                server.objects[Key.of(other)] = {**other, "metadata": {"name": "theirs", "namespace": namespace}}
    return server


def is_theirs(key: Key) -> bool:
    return key.name == "theirs"


def settled(server: Server, state: State, chance: random.Random) -> Server:
    """Run until the plan is empty."""
    server.stuck, server.failing = (), ()
    for _ in range(3):
        run(server, state.objects, chance)
        server.follow_all()
        server.read_configuration()
    change_plan = planned(server, state.objects)
    kept = {Key("", "Namespace", "", key.namespace) for key in server.objects if is_theirs(key)}
    assert {step.key for step in change_plan.every if hasattr(step, "key")} <= kept - state.objects.keys()
    return server


def content(server: Server, state: State) -> dict[Key, Object]:
    """Return the objects that no other owner keeps."""
    return {key: value for key, value in server.objects.items() if key in state.objects}


def without_slots(objects: Mapping[Key, Object]) -> dict[Key, Object]:
    """Return objects with the serving backends of routes in a fixed order, because slots depend on earlier changes."""

    def sorted_route(route: Object) -> Object:
        references = [each for each in route["spec"]["rules"][0]["backendRefs"] if each["weight"]]
        rules = [{"backendRefs": sorted(references, key=lambda each: str(each["name"]))}]
        return {**route, "spec": {**route["spec"], "rules": rules}}

    return {key: sorted_route(value) if key.kind == AI_ROUTE else value for key, value in objects.items()}


def check_case(number: int) -> None:
    """Check a random change of a server: complete runs, aborted runs, and runs with failures."""
    chance = random.Random(number)
    before, after = states(chance), states(chance)
    if chance.random() < 0.5:
        # Most changes are small.
        unchanged = {name: service for name, service in before.services.items() if chance.random() < 0.7}
        after = replace(after, services={**after.services, **unchanged})
    server = begun(chance, before)
    theirs = {key for key in server.objects if is_theirs(key)}
    change_plan = planned(server, after.objects)
    assert not graph.problem(change_plan.graph())
    whole = server.copy()
    run(whole, after.objects, chance, Checks(whole, before, after, before))
    whole = settled(whole, after, chance)
    assert content(whole, after).keys() == after.objects.keys()
    total = sum(not hasattr(step, "condition") for step in change_plan.steps)
    for at in chance.sample(range(total + 1), min(total + 1, 3)):
        killed = server.copy()
        try:
            run(killed, after.objects, chance, Checks(killed, before, after, before), writes=at)
        except KilledError:
            run(killed, after.objects, chance, Checks(killed, before, after, before))
        assert without_slots(settled(killed, after, chance).objects) == without_slots(whole.objects)
    returned = server.copy()
    with contextlib.suppress(KilledError):
        run(returned, after.objects, chance, Checks(returned, before, after, before), writes=chance.randint(0, total))
    common = replace(
        before, services={key: before.services[key] for key in before.services.keys() & after.services.keys()}
    )
    run(returned, before.objects, chance, Checks(returned, after, before, common))
    assert without_slots(content(settled(returned, before, chance), before)) == without_slots(content(server, before))
    broken = server.copy()
    touched = sorted({*server.objects, *after.objects} - theirs)
    touched += 2 * [key for key in touched if key.kind == AI_ROUTE]
    broken.failing = frozenset(chance.sample(touched, min(len(touched), chance.randint(0, 2))))
    broken.stuck = frozenset(chance.sample(sorted(server.followed), min(len(server.followed), chance.randint(0, 1))))
    run(broken, after.objects, chance, Checks(broken, before, after, before))
    assert without_slots(settled(broken, after, chance).objects) == without_slots(whole.objects)
    assert theirs <= whole.objects.keys() & broken.objects.keys()


@pytest.mark.parametrize("part", range(10))
def test_no_step_breaks_what_serves(part: int) -> None:
    for number in range(part, CASES, 10):
        check_case(number)


@pytest.mark.integration
@pytest.mark.interrupted
@pytest.mark.parametrize("part", range(10))
def test_no_step_of_many_plans_breaks_what_serves(part: int) -> None:
    for number in range(part, MANY, 10):
        check_case(number)


def test_an_unchanged_server_has_no_steps() -> None:
    for number in range(50):
        chance = random.Random(number)
        state = states(chance)
        server = begun(chance, state)
        assert list(planned(server, state.objects).every) == []
