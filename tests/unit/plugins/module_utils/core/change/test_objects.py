# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Steps of change plans, and their wait conditions."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterable
from pathlib import Path

from ansible_collections.modelplane.fleet.plugins.module_utils.core.applying.inventory import Entry, Key
from ansible_collections.modelplane.fleet.plugins.module_utils.core.change.difference import Observed, Refusal, Scope
from ansible_collections.modelplane.fleet.plugins.module_utils.core.change.objects import plan
from ansible_collections.modelplane.fleet.plugins.module_utils.core.change.steps import ChangePlan, Outcome, Wait, Write
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.model_gateway.backends import detour_name
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes import executor
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.change.little_server import (
    Server,
    ai_route,
    backend,
    keys,
    limits,
    overflow_route,
    planned,
    run,
    shuffled,
    thing,
)

TEAM = thing("v1", "Namespace", "team")


def by_key(*objects: Object) -> dict[Key, Object]:
    return {Key.of(value): value for value in objects}


def server(*objects: Object) -> Server:
    """Return a server with these objects and programmed routes."""
    server_state = Server()
    run(server_state, by_key(*objects), random.Random(1))
    server_state.follow_all()
    return server_state


def texts(change_plan: ChangePlan) -> list[str]:
    return [str(step) for step in change_plan.every]


def reasons(found: ChangePlan) -> list[str]:
    """Return a sentence for each step that waits for a condition."""
    conditions = {step.id: step.condition for step in found.every if isinstance(step, Wait)}
    return [
        f"{step.key} waits until {conditions[edge.earlier]}"
        for step in found.every
        if not isinstance(step, Wait)
        for edge in step.edges
        if edge.kind == "until"
    ]


def test_the_steps_of_a_route_that_leaves_a_backend() -> None:
    policy = keys("keys", "team", "chat")
    live = server(TEAM, backend("old", "team"), policy, ai_route("chat", "team", ["old"]))
    change_plan = planned(live, by_key(TEAM, backend("new", "team"), policy, ai_route("chat", "team", ["new"])))
    assert texts(change_plan) == [
        "wait until the AI gateway has applied earlier route changes in namespace team",
        "write Backend team/new",
        "write AIGatewayRoute team/chat",
        "wait until processors have loaded the new backends of the routes in namespace team",
        "write version 2 of AIGatewayRoute team/chat",
        "wait until gateways have programmed the routes in namespace team",
        "wait until gateways have programmed the routes in namespace team",
        "write the final version of AIGatewayRoute team/chat",
        "wait until gateways have programmed the routes in namespace team",
        "delete Backend team/old",
    ]
    assert reasons(change_plan) == [
        "AIGatewayRoute team/chat waits until processors have loaded the new backends of the routes in namespace team",
        "AIGatewayRoute team/chat waits until gateways have programmed the routes in namespace team",
        "Backend team/old waits until the AI gateway has applied earlier route changes in namespace team",
        "Backend team/old waits until gateways have programmed the routes in namespace team",
    ]


def test_a_route_waits_for_the_gateway_to_accept_its_overflow_route() -> None:
    detour = detour_name("one")
    backends = [backend("one", "team"), backend(detour, "team")]
    live = server(TEAM, *backends, keys("keys", "team", "chat"), ai_route("chat", "team", ["one"]))
    desired = [*backends, keys("keys", "team", "chat"), ai_route("chat", "team", [detour])]
    change_plan = planned(live, by_key(TEAM, *desired, overflow_route("behind", "team", ["one"])))
    assert texts(change_plan)[1:5] == [
        "write AIGatewayRoute team/behind",
        "wait until the gateway has accepted AIGatewayRoute team/behind",
        "write AIGatewayRoute team/chat",
        "wait until processors have loaded the new backends of the routes in namespace team",
    ]
    assert reasons(change_plan)[:2] == [
        "AIGatewayRoute team/chat waits until the gateway has accepted AIGatewayRoute team/behind",
        "AIGatewayRoute team/chat waits until processors have loaded the new backends of the routes in namespace team",
    ]


def test_the_requests_of_one_route_change_at_a_time() -> None:
    """All routes wait for processors together, and each switch is programmed before the next one."""
    routes = {name: [TEAM, backend(name, "team"), backend(f"{name}-new", "team")] for name in ("chat", "code")}
    before = [value for values in routes.values() for value in values]
    live = server(*before, *(ai_route(name, "team", [name]) for name in routes))
    desired = by_key(*before, *(ai_route(name, "team", [name, f"{name}-new"]) for name in routes))
    assert texts(planned(live, desired)) == [
        "wait until the AI gateway has applied earlier route changes in namespace team",
        "write AIGatewayRoute team/chat",
        "write AIGatewayRoute team/code",
        "wait until processors have loaded the new backends of the routes in namespace team",
        "wait until processors have loaded the new backends of the routes in namespace team",
        "write the final version of AIGatewayRoute team/chat",
        "wait until gateways have programmed the routes in namespace team",
        "write the final version of AIGatewayRoute team/code",
        "wait until gateways have programmed the routes in namespace team",
    ]


def test_a_change_of_weights_needs_no_wait() -> None:
    objects = [TEAM, backend("one", "team"), backend("two", "team")]
    route = ai_route("chat", "team", ["one", "two"])
    live = server(*objects, route)
    references = [{"name": "one", "weight": 3, "priority": 1}, {"name": "two", "weight": 1}]
    changed = {**route, "spec": {**route["spec"], "rules": [{"backendRefs": references}]}}
    assert texts(planned(live, by_key(*objects, changed))) == ["write AIGatewayRoute team/chat"]


def test_a_limit_goes_once_gateways_follow_the_route_that_it_is_about() -> None:
    rest = [TEAM, backend("one", "team"), ai_route("chat", "team", ["one"])]
    live = server(*rest, limits("chat", "team", "chat", ["Day", "Hour"]))
    change_plan = planned(live, by_key(*rest, limits("chat", "team", "chat", ["Hour", "Minute"])))
    assert texts(change_plan) == [
        "write BackendTrafficPolicy team/chat",
        "wait until gateways have programmed the routes in namespace team",
        "write the final version of BackendTrafficPolicy team/chat",
    ]
    [first, __, last] = change_plan.steps
    assert isinstance(first, Write)
    assert isinstance(last, Write)
    assert first.transitional is not None
    rules = first.transitional["spec"]["rateLimit"]["global"]["rules"]
    assert [rule["limit"]["unit"] for rule in rules] == ["Day", "Hour", "Minute"]
    assert last.desired["spec"] == limits("chat", "team", "chat", ["Hour", "Minute"])["spec"]


def test_the_limits_and_the_endpoints_of_an_overflow_route_change_in_one_run() -> None:
    """Each object has its transitional version until gateways have programmed the other object."""

    def objects(units: list[str], to: str) -> list[Object]:
        route = ai_route("chat", "team", [detour_name(to)])
        behind = [overflow_route("behind", "team", [to]), limits("behind", "team", "behind", units)]
        return [TEAM, backend(to, "team"), backend(detour_name(to), "team"), route, *behind]

    live, desired = server(*objects(["Day"], "one")), by_key(*objects(["Hour"], "two"))
    results = run(live, desired, random.Random(1))
    assert not [result.message for result in results.values() if " until " in result.message]
    live.follow_all()
    assert live.objects.keys() == desired.keys()
    assert list(planned(live, desired).every) == []


def test_a_route_is_refused_with_a_policy_that_guards_it() -> None:
    desired = by_key(TEAM, keys("keys", "team", "chat"), keys("other", "team", "code"), ai_route("chat", "team", []))
    change_plan = planned(Server(), desired)
    outcomes = {
        step.id: Outcome(succeeded="SecurityPolicy" not in str(step), detail=str(step)) for step in change_plan.steps
    }
    refusals = {str(step): change_plan.refusal(step, outcomes) for step in change_plan.steps}
    message = "not applied because its policy failed: write SecurityPolicy team/keys"
    assert refusals["write AIGatewayRoute team/chat"] == message
    assert [refusal for refusal in refusals.values() if refusal is not None] == [message]


def test_a_namespace_waits_until_it_has_no_objects_of_others_and_no_other_inventory_has_it() -> None:
    observed = server(TEAM).observed()
    change_plan = plan({}, observed, Scope())
    assert reasons(change_plan) == ["Namespace team waits until namespace team contains only fleet objects"]
    shared = Observed(live=observed.live, own=observed.own, others={Key.of(TEAM): "fleet other (east)"})
    change_plan = plan({}, shared, Scope())
    assert reasons(change_plan) == [
        "Namespace team waits until fleet other (east) no longer owns Namespace team",
        "Namespace team waits until namespace team contains only fleet objects",
    ]
    assert change_plan.steps == ()


def test_a_disruption_budget_exists_before_its_deployment_and_goes_after_it() -> None:
    deployment = thing("apps/v1", "Deployment", "web", "team", spec={"replicas": 2})
    budget = thing("policy/v1", "PodDisruptionBudget", "web", "team", spec={"minAvailable": 1})
    objects = by_key(TEAM, deployment, budget)
    chance = random.Random(1)
    created, removed = planned(Server(), objects), planned(server(*objects.values()), {})
    writes = ["write PodDisruptionBudget team/web", "write Deployment team/web"]
    deletions = ["delete Deployment team/web", "delete PodDisruptionBudget team/web"]
    assert texts(created) == ["write Namespace team", *writes]
    assert texts(removed)[:2] == deletions
    # The dependencies of the steps enforce this order, regardless of the order in the plan.
    for change_plan, steps in ((created, writes), (removed, deletions)) * 20:
        assert [step for step in map(str, shuffled(change_plan, chance)) if step in steps] == steps


def test_an_object_that_cannot_be_written_is_no_change() -> None:
    change_plan = plan(by_key(TEAM), Observed(live={}, refusals={Key.of(TEAM): Refusal("it is not ours")}), Scope())
    assert [step.refusal for step in change_plan.steps if isinstance(step, Write)] == ["it is not ours"]
    assert not change_plan.has_changes()


def test_what_is_held_stays_with_its_namespace() -> None:
    held = Key.of(backend("one", "team"))
    live = server(TEAM, backend("one", "team"), backend("two", "team")).observed()
    change_plan = plan({}, live, Scope(held=frozenset({held})))
    assert texts(change_plan) == ["delete Backend team/two"]
    # An object that this fleet did not apply is kept too.
    assert texts(plan({}, Observed(live=live.live, own={held: Entry("v1")}), Scope())) == ["delete Backend team/one"]


def imported(path: str | None) -> Iterable[str]:
    tree = ast.parse(Path(str(path)).read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_the_executor_knows_no_kind() -> None:
    words = ("route", "gateway", "compose", "rules", "objects", "polic")
    assert not [name for name in imported(executor.__file__) if any(word in name.lower() for word in words)]
