# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Tests of what is wrong with CallerPolicies: whom they name, what they select, and budgets."""

from __future__ import annotations

import pytest
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.little_fleet import (
    GATEWAY,
    KEYED,
    OPEN,
    PATH_GATEWAY,
    POLICY,
    SAAS,
    SERVICE,
    assert_one_problem,
    change,
    fleet,
    only,
)

OTHER_POLICY = change(POLICY, "{name: acme, ", "{name: b, ")
TOKENS = "unit: Tokens"
MANY = ", ".join(f"{{name: a{'x' * 60}{index}}}" for index in range(20))
"""More callers than the pattern of a rule can name."""
THERE = change(change(SERVICE, "namespace: team", "namespace: b, labels: {a: b}"), "modelplane.ai/deployment", "x")
ELSEWHERE = change(POLICY, "spec: {", "spec: {services: {matchLabels: {a: b}}, ")


def spending(when: str, scope: str = "Caller", callers: str = "{name: acme}") -> str:
    budget = f"budgets: [{{name: a, unit: Tokens, limit: 5, per: Day, whenSpent: {when}, scope: {scope}}}]"
    return change(POLICY, "[{name: acme}]}", f"[{callers}], {budget}}}")


def budgets(*written: str) -> str:
    text = ", ".join(f"{{name: b{index}, {each}}}" for index, each in enumerate(written))
    return change(POLICY, "[{name: acme}]}", f"[{{name: acme}}], budgets: [{text}]}}")


OF_ALL = change(spending("Refuse"), "{name: acme, ", "{name: b, ")
OF_GOLD = change(spending("Refuse"), "spec: {", "spec: {services: {matchLabels: {a: b}}, ")
GOLD = "---\n".join(
    change(SERVICE, "{name: qwen,", f"{{name: qwen3-8b-instruct-{index}, labels: {{a: b}},") for index in range(10, 50)
)
"""More services than the pattern of a rule can name."""


def many_budgets(policies: int) -> list[str]:
    """Policies with as many budgets as each can have, of which none is without effect."""
    units = ("Requests", "Tokens", "InputTokens", "OutputTokens")
    windows = ("limit: 5, per: Hour", "limit: 6, per: Day")
    budgets = ", ".join(
        f"{{name: {unit.lower()}{len(each)}, unit: {unit}, {each}}}" for unit in units for each in windows
    )
    full = change(POLICY, "[{name: acme}]}", f"[{{name: acme}}], budgets: [{budgets}]}}")
    return [change(full, "{name: acme, ", f"{{name: a{index:02}, ") for index in range(policies)]


@pytest.mark.parametrize(
    ("changed", "severity", "path", "line", "says", "hint"),
    [
        pytest.param(
            {
                "gateway": GATEWAY,
                "policy": change(POLICY, "[{name: acme}]", "[{name: '*'}], callerSelector: {matchLabels: {a: b}}"),
            },
            "warning",
            "spec.callerSelector",
            4,
            "has no effect: '*' in callers is every caller that has a key",
            "Remove it, or '*'",
            id="group beside every caller",
        ),
        pytest.param(
            {"gateway": GATEWAY, "policy": change(POLICY, "spec: {", "spec: {services: {matchLabels: {a: b}}, ")},
            "warning",
            "spec.services.matchLabels",
            4,
            "matches no ModelService in namespace team; every caller with a key may call team/qwen",
            "No ModelService there has labels",
            id="policy without services",
        ),
        pytest.param(
            {"policy": POLICY},
            "warning",
            "spec",
            4,
            "has no effect without an InferenceGateway in mode Model, and the manifests have none",
            "Add one with auth that serves the ModelServices, unless the control cluster has it; or remove the policy",
            id="policy in a fleet without a gateway",
        ),
        pytest.param(
            {"gateway": OPEN, "policy": POLICY},
            "warning",
            "spec",
            4,
            "selects services of InferenceGateway edge, which has no auth",
            "Add auth to InferenceGateway edge",
            id="policy without keys",
        ),
        pytest.param(
            {"path": PATH_GATEWAY, "policy": POLICY},
            "warning",
            "spec",
            4,
            "no gateway in mode Model serves the ModelServices; whoever reaches InferenceGateway default may call them",
            "Add a gateway in mode Model, with auth",
            id="policy without a gateway in mode Model",
        ),
        pytest.param(
            {"gateway": OPEN, "path": PATH_GATEWAY, "policy": POLICY},
            "warning",
            "spec",
            4,
            "it refuses all their callers; whoever reaches InferenceGateway default may call them",
            "Add auth to InferenceGateway edge",
            id="policy beside gateways without keys",
        ),
        pytest.param(
            {"gateway": GATEWAY, "policy": ELSEWHERE, "there": THERE},
            "warning",
            "spec.services.matchLabels",
            4,
            "matches no ModelService in namespace team, and holds in no other one: those with these labels are b/qwen; "
            "every caller with a key may call b/qwen",
            "Write the policy into namespace b",
            id="policy for services of another namespace",
        ),
        pytest.param(
            {"gateway": GATEWAY, "policy": spending("Overflow")},
            "warning",
            "spec.budgets[0].whenSpent",
            4,
            "has no next priority to send requests to in ModelService qwen",
            "or write Refuse",
            id="overflow without a next priority",
        ),
        pytest.param(
            {"gateway": GATEWAY, "policy": change(POLICY, "{name: acme}]", "{name: acme}, {name: acme.next}]")},
            "error",
            "spec.callers[1].name",
            4,
            "is the name of a next key, and not of a caller: names must not end in .next",
            "Write acme, whose keys are both valid while they are rotated",
            id="caller named like a next key",
        ),
        pytest.param(
            {"gateway": GATEWAY, "policy": change(POLICY, "{name: acme}]", "{name: mpk_secret}]")},
            "error",
            "spec.callers[0].name",
            4,
            "is a key, or has one in it",
            "revoke this one",
            id="a key in place of a name",
        ),
        pytest.param(
            {"gateway": GATEWAY, "policy": spending("Refuse", "Policy", MANY), "other": OTHER_POLICY},
            "warning",
            "spec.budgets[0].scope",
            4,
            "is not one limit for all callers together, but one for each group of them",
            "Name fewer callers, or select services that no other CallerPolicy selects",
            id="a budget of more names than a pattern holds",
        ),
        *(
            pytest.param(
                {"gateway": GATEWAY, "policy": budgets(first, second)},
                "warning",
                f"spec.budgets[{at}].limit",
                4,
                f"is never spent before budget b{1 - at}, which has 100 for each {per}",
                "Lower it, or raise the other one",
                id=f"{first} beside {second}",
            )
            for first, second, at, per in (
                (f"{TOKENS}, per: Hour, limit: 100", f"{TOKENS}, per: Day, limit: 100", 0, "Day"),
                (f"{TOKENS}, per: Month, limit: 100", f"{TOKENS}, per: Minute, limit: 101", 1, "Month"),
                (f"{TOKENS}, per: Day, limit: 100", f"{TOKENS}, per: Day, limit: 100", 1, "Day"),
                (f"{TOKENS}, per: Day, limit: 200", f"{TOKENS}, per: Day, limit: 100", 0, "Day"),
            )
        ),
        pytest.param(
            {"gateway": GATEWAY, "policy": "---\n".join(many_budgets(33))},
            "error",
            "spec.budgets",
            4,
            "are 264 rules of one object, together with those of CallerPolicy a01, a02, a03, a04, a05 and 27 more, and "
            "it can have 256: clusters refuse it",
            "Have fewer budgets, name fewer callers, or select services so that fewer policies share one",
            id="more budgets than an object holds",
        ),
        pytest.param(
            {"gateway": GATEWAY, "gold": GOLD, "policy": OF_GOLD, "other": OF_ALL},
            "warning",
            "spec.budgets[0]",
            4,
            "is not one limit for all services together, but one for each group of them",
            "Select fewer services, give them shorter names, or let policies with budgets select the same services",
            id="a budget of more services than a pattern holds",
        ),
    ],
)
def test_problems(changed: dict[str, str], severity: str, path: str, line: int, says: str, hint: str) -> None:
    assert_one_problem(fleet(**changed), severity, path, line, says, hint, beside="matches no endpoint")


def test_services_of_a_policy_that_no_label_can_select() -> None:
    """They are an error, which says all that there is to say."""
    problem = only(fleet(gateway=GATEWAY, policy=change(ELSEWHERE, "{a: b}", "{a: b c}")).problems)
    assert (problem.severity, problem.path) == ("error", "spec.services.matchLabels.a")


def test_gateways_that_ask_for_no_keys_keep_no_budgets_that_are_too_many() -> None:
    documents = {"policy": "---\n".join(many_budgets(33)), "gold": GOLD, "part": change(OF_GOLD, "acme", "part")}
    for gateway, expected in ((OPEN, set()), (GATEWAY, {"error", "warning"})):
        problems = fleet(gateway=gateway, **documents).problems
        said = ("rules of one object", "one limit for all services")
        assert {each.severity for each in problems if any(text in each.message for text in said)} == expected


@pytest.mark.parametrize(
    "changed",
    [
        {"gateway": GATEWAY, "policy": POLICY},
        {"gateway": GATEWAY, "policy": spending("Refuse")},
        {"gateway": GATEWAY, "policy": change(POLICY, "{name: acme}]", "{name: next.acme}, {name: acmenext}]")},
        # No one else is let in, so names are not needed.
        {"gateway": GATEWAY, "policy": spending("Refuse", "Policy", MANY)},
        {"gateway": GATEWAY, "policy": spending("Refuse", "Caller", MANY), "other": OTHER_POLICY},
        {"gateway": GATEWAY, "policy": spending("Refuse", "Policy"), "other": OTHER_POLICY},
        {"gateway": GATEWAY, "policy": "---\n".join(many_budgets(32))},
        # No other service shares a budget with these, so names are not needed.
        {"gateway": GATEWAY, "gold": GOLD, "policy": OF_GOLD, "other": OTHER_POLICY},
        *(
            {"gateway": GATEWAY, "policy": budgets(f"{TOKENS}, per: Hour, limit: 100", other)}
            for other in (
                f"{TOKENS}, per: Day, limit: 101",
                "unit: Requests, per: Day, limit: 5",
                f"{TOKENS}, per: Day, limit: 5, scope: Policy",
            )
        ),
    ],
)
def test_no_problem(changed: dict[str, str]) -> None:
    assert [str(problem) for problem in fleet(**changed).problems] == []


@pytest.mark.parametrize("spec", ["{clusterName: west, mode: Odd}", "[unread"])
def test_a_policy_may_have_the_gateway_that_has_errors(spec: str) -> None:
    problems = fleet(policy=POLICY, gateway=change(OPEN, "{clusterName: west}", spec)).problems
    assert problems
    assert not any("the manifests have none" in each.message for each in problems)


def test_services_of_another_namespace_that_a_policy_selects_are_not_open() -> None:
    selecting = change(POLICY, "team", "b")
    found = fleet(gateway=GATEWAY, policy=ELSEWHERE, there=THERE, other=selecting).problems
    problem = only(tuple(each for each in found if "matches no endpoint" not in each.message))
    assert problem.message.endswith("those with these labels are b/qwen")


def test_where_a_policy_lets_no_one_in_no_key_is_spent() -> None:
    changed = {"gateway": OPEN, "service": SERVICE + SAAS, "endpoint": KEYED, "policy": POLICY}
    problem = only(fleet(**changed).problems)
    assert "it refuses all their callers" in problem.message


def test_a_policy_in_a_misspelt_namespace() -> None:
    found = only(
        fleet(gateway=GATEWAY, service=SERVICE, policy=change(ELSEWHERE, "namespace: team", "namespace: taem")).problems
    )
    assert (found.path, found.hint) == ("spec.services.matchLabels", "ModelServices are in namespace team")


TOKENS_TOO = GATEWAY.replace(
    "apiKey: {", "jwt: {hostname: a.example, issuer: a, audiences: [b], jwks: {uri: 'https://a'}}, apiKey: {"
)


@pytest.mark.parametrize(
    ("gateway", "field", "needed"),
    [(GATEWAY, "subjects", "jwt"), (GATEWAY, "groups", "jwt.groupsClaim"), (TOKENS_TOO, "groups", "jwt.groupsClaim")],
)
def test_clients_with_tokens_that_no_gateway_knows(gateway: str, field: str, needed: str) -> None:
    written = change(POLICY, "callers: [{name: acme}]", f"{field}: [ml]")
    loaded = fleet(gateway=gateway, policy=written)
    problem = only([each for each in loaded.problems if "has no effect at InferenceGateway edge" in each.message])
    assert (problem.path, problem.severity) == (f"spec.{field}", "warning")
    assert problem.message.endswith(f"which has no spec.auth.{needed}")
