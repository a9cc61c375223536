# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Rights and budgets of callers at gateways in mode Model."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.change.limits import merge_live_limits
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.model_gateway.callers import (
    selected_callers,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.names import joined_name
from ansible_collections.modelplane.fleet.plugins.module_utils.core.observation import Observed
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning.fleet import Earlier
from ansible_collections.modelplane.fleet.plugins.module_utils.core.problem import Ref
from ansible_collections.modelplane.fleet.tests.model_fleet import (
    SYSTEM,
    TEAM,
    Built,
    Document,
    build,
    cluster,
    fleet,
    gateway,
    policy,
    provider,
    provider_entry,
    read,
    service,
)

CALLER = "x-modelplane-caller"
BUDGET: Document = {"name": "day", "unit": "Tokens", "limit": 1000, "per": "Day"}
EVERYONE = [{"name": "*"}]
DISTINCT = {"type": "Distinct", "name": CALLER}
GROUP = {"matchLabels": {"team": "research"}}
SELECTED = "team/selected-1395593d68"
"""Rule of the policy `team` for the callers of that group."""


def pattern(text: str, header: str = CALLER) -> Document:
    return {"type": "RegularExpression", "name": header, "value": text}


def target(*names: str) -> list[Document]:
    return [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": name} for name in names]


def budgets(built: Built, name: str = "chat") -> list[Document]:
    spec = built("BackendTrafficPolicy", name)["spec"]
    assert spec["mergeType"] == "StrategicMerge"
    assert spec["rateLimit"]["type"] == "Global"
    rules: list[Document] = spec["rateLimit"]["global"]["rules"]
    return rules


def allowed(built: Built, name: str = "chat") -> dict[str, list[str]]:
    rules = built("SecurityPolicy", name)["spec"]["authorization"].get("rules", [])
    found = {rule["name"]: rule["principal"]["headers"][0]["values"] for rule in rules}
    for values in found.values():
        # A caller has a second key while that is rotated.
        assert values[1::2] == [f"{name}.next" for name in values[::2]]
    return {name: values[::2] for name, values in found.items()}


def test_a_service_that_a_policy_selects_answers_to_the_callers_that_it_names() -> None:
    built = build(fleet(service(), policy()))
    assert built("SecurityPolicy", "chat")["spec"] == {
        "targetRefs": target("chat"),
        "mergeType": "StrategicMerge",
        "authorization": {
            "defaultAction": "Deny",
            "rules": [
                {
                    "name": "team",
                    "action": "Allow",
                    "principal": {"headers": [{"name": CALLER, "values": ["alice", "alice.next", "bob", "bob.next"]}]},
                }
            ],
        },
    }


def test_other_services_are_open_to_every_caller_of_the_gateway() -> None:
    named = policy(services={"matchLabels": {"tier": "gold"}})
    built = build(fleet(service(labels={"tier": "gold"}), service(name="other"), named))
    assert [
        value["metadata"]["name"] for value in built.of("SecurityPolicy") if value["metadata"]["namespace"] == TEAM
    ] == ["chat"]


def test_several_policies_add_up_and_one_for_every_caller_opens_the_service() -> None:
    more = policy("more", callers=[{"name": "carol"}])
    assert allowed(build(fleet(service(), policy(), more))) == {"more": ["carol"], "team": ["alice", "bob"]}
    built = build(fleet(service(), policy(), policy("open", callers=EVERYONE)))
    assert ("SecurityPolicy", TEAM, "chat") not in built.objects["hub"]


def test_a_group_is_the_callers_whose_keys_are_in_secrets_with_its_labels() -> None:
    labels = {"modelplane.ai/keys": "eu", "team": "research"}
    observed = Observed(
        secret_keys={
            (SYSTEM, "research"): frozenset({"dora", "emil"}),
            (SYSTEM, "other-gateway"): frozenset({"fay"}),
            (SYSTEM, "sales"): frozenset({"gus"}),
        },
        secret_labels={
            (SYSTEM, "research"): labels,
            (SYSTEM, "other-gateway"): {"team": "research"},
            (SYSTEM, "sales"): {"modelplane.ai/keys": "eu", "team": "sales"},
        },
    )
    built = build(fleet(service(provider_entry("a")), provider("a"), policy(callerSelector=GROUP)), observed=observed)
    assert allowed(built) == {"team": ["alice", "bob"], SELECTED: ["dora", "emil"]}


def remembering(*rules: tuple[str, str]) -> Earlier:
    """Earlier objects of services: the rules by which callers were let in."""
    named = [{"name": name, "principal": {"headers": [{"values": callers.split()}]}} for name, callers in rules]
    before = {"kind": "SecurityPolicy", "spec": {"authorization": {"rules": named}}}

    def earlier(ref: Ref) -> list[tuple[str, Document]]:
        return [("hub", before)] if ref.kind == "ModelService" else []

    return earlier


def test_callers_that_are_named_no_more_are_not_remembered_as_a_group() -> None:
    """Nor is a group by another selector."""
    seen = keys_of(("a", {**EU, "team": "research"}, "alice dora"))
    documents = fleet(service(provider_entry("a")), provider("a"), policy(callerSelector=GROUP))
    before = build(documents, observed=seen)("SecurityPolicy", "chat")

    def earlier(ref: Ref) -> list[tuple[str, Document]]:
        return [("hub", before)] if ref.kind == "ModelService" else []

    carol = [{"name": "carol"}]
    changed = fleet(service(provider_entry("a")), provider("a"), policy(callers=carol, callerSelector=GROUP))
    assert allowed(build(changed, earlier=earlier)) == {"team": ["carol"], SELECTED: ["alice", "dora"]}
    other = policy(callers=carol, callerSelector={"matchLabels": {"team": "sales"}})
    changed = fleet(service(provider_entry("a")), provider("a"), other)
    assert allowed(build(changed, earlier=earlier)) == {"team": ["carol"]}


def test_a_group_that_cannot_be_seen_keeps_its_rights_and_a_new_one_has_none() -> None:
    documents = fleet(service(), policy(callerSelector=GROUP))
    assert allowed(build(documents)) == {"team": ["alice", "bob"]}
    remembered = remembering(("team", "mallory"), (SELECTED, "bob bob.next dora"), ("team-mates", "x"))
    kept = {"team": ["alice"], SELECTED: ["bob", "dora"]}
    assert allowed(build(documents, earlier=remembered)) == kept
    unread = Observed(unread="it is forbidden")
    documents = fleet(service(provider_entry("a")), provider("a"), policy(callerSelector=GROUP))
    assert allowed(build(documents, earlier=remembered, observed=unread)) == kept
    no_one = policy(callers=None, callerSelector=GROUP)
    del no_one["spec"]["callers"]
    closed = build(fleet(service(), no_one))("SecurityPolicy", "chat")["spec"]["authorization"]
    assert closed == {"defaultAction": "Deny"}


def test_what_earlier_runs_composed_of_a_service_is_asked_for_once() -> None:
    """However many policies select it, and gateways serve it."""
    selecting = [policy(name, callerSelector=GROUP) for name in ("team", "more", "others")]
    asked: list[Ref] = []

    def earlier(ref: Ref) -> Sequence[tuple[str, Document]]:
        asked.append(ref)
        return remembering((SELECTED, "dora"))(ref)

    second = gateway("us", "east")
    built = build(fleet(service(), service(name="code"), policy("named"), second, *selecting), earlier=earlier)
    assert "dora" in allowed(built)[SELECTED]
    services = Counter(ref.name for ref in asked if ref.kind == "ModelService")
    assert services == {"chat": 1, "code": 1}


@pytest.mark.parametrize(
    ("callers", "scope", "headers"),
    [
        (EVERYONE, "Caller", [DISTINCT]),
        (EVERYONE, "Policy", []),
        ([{"name": "alice"}], "Caller", [DISTINCT, pattern(r"^(alice)(\.next)?$")]),
        ([{"name": "a.b"}, {"name": "bob"}], "Policy", [pattern(r"^(a\.b|bob)(\.next)?$")]),
    ],
)
def test_a_budget_is_one_for_each_caller_or_one_for_all(callers: Any, scope: str, headers: list[Document]) -> None:
    built = build(fleet(service(), policy(callers=callers, budgets=[{**BUDGET, "scope": scope}])))
    assert budgets(built) == [
        {
            **({"clientSelectors": [{"headers": headers}]} if headers else {}),
            "limit": {"requests": 1000, "unit": "Day"},
            "cost": {
                "request": {"from": "Number", "number": 0},
                "response": {
                    "from": "Metadata",
                    "metadata": {"namespace": "io.envoy.ai_gateway", "key": "llm_total_token"},
                },
            },
        }
    ]


@pytest.mark.parametrize(
    ("unit", "key"),
    [("InputTokens", "llm_input_token"), ("OutputTokens", "llm_output_token"), ("Requests", None)],
)
def test_a_budget_counts_what_its_unit_says(unit: str, key: str | None) -> None:
    (rule,) = budgets(build(fleet(service(), policy(budgets=[{**BUDGET, "unit": unit}]))))
    assert rule.get("cost", {}).get("response", {}).get("metadata", {}).get("key") == key
    assert ("cost" in rule) == (key is not None)


@pytest.mark.parametrize(
    ("callers", "budget", "is_named"),
    [
        (EVERYONE, {}, True),
        (EVERYONE, {"scope": "Policy"}, False),
        (EVERYONE, {"unit": "Requests"}, False),
        ([{"name": "alice"}], {"scope": "Policy"}, True),
        ([{"name": "alice"}], {"unit": "Requests"}, False),
    ],
)
def test_endpoints_outside_get_names_of_callers_where_tokens_are_counted_by_them(
    callers: Any, budget: Document, is_named: bool
) -> None:
    counting = policy(services={"matchLabels": {"tier": "gold"}}, callers=callers, budgets=[{**BUDGET, **budget}])
    gold = service(provider_entry("a"), labels={"tier": "gold"})
    built = build(fleet(gold, service(provider_entry("a"), name="other"), provider("a"), counting))
    specs = {each["metadata"]["labels"]["modelplane.ai/service"]: each["spec"] for each in built.of("AIServiceBackend")}
    assert CALLER in specs["other"]["headerMutation"]["remove"]
    assert (CALLER not in specs["chat"]["headerMutation"]["remove"]) == is_named
    warned = [each for each in built.plan.warnings if "get the names of callers" in each]
    assert [", in ModelService ml-team/chat (a): if" in each for each in warned] == ([True] if is_named else [])
    without = gateway()
    del without["spec"]["auth"]
    unasked = build(fleet(gold, provider("a"), counting, eu=without)).plan.warnings
    assert not any("get the names of callers" in each for each in unasked)


def test_names_of_callers_are_one_warning_of_a_gateway() -> None:
    services = [service(provider_entry("a"), name=f"s{index}") for index in range(7)]
    built = build(fleet(*services, provider("a"), policy(callers=EVERYONE, budgets=[BUDGET])))
    (warned,) = [each for each in built.plan.warnings if "get the names of callers" in each]
    assert warned.startswith("InferenceGateway eu: ")
    assert "ModelService ml-team/s0 (a), ml-team/s1 (a), " in warned
    assert " and 2 more: if they must not" in warned


@pytest.mark.parametrize("per", ["Minute", "Hour", "Day", "Month"])
def test_the_span_of_a_budget_is_its_unit_of_time(per: str) -> None:
    (rule,) = budgets(build(fleet(service(), policy(budgets=[{**BUDGET, "per": per}]))))
    assert rule["limit"] == {"requests": 1000, "unit": per}


def test_a_budget_over_several_services_is_one() -> None:
    gold = {"labels": {"tier": "gold"}}
    documents = fleet(
        service(**gold),
        service(name="code", **gold),
        service(name="free"),
        policy(services={"matchLabels": {"tier": "gold"}}, budgets=[BUDGET]),
        policy("all", callers=EVERYONE, budgets=[{**BUDGET, "name": "rate", "unit": "Requests", "per": "Minute"}]),
    )
    built = build(documents)
    name = joined_name("chat", "code", "free")
    (found,) = [value for value in built.of("BackendTrafficPolicy") if value["metadata"]["namespace"] == TEAM]
    assert found["metadata"]["name"] == name
    assert found["spec"]["targetRefs"] == target("chat", "code", "free")
    everyone, gold_only = budgets(built, name)
    assert (everyone["shared"], gold_only["shared"]) == (True, True)
    assert everyone["clientSelectors"] == [{"headers": [DISTINCT]}]
    models = pattern("^(ml\\-team/chat|ml\\-team/code)$", "x-ai-eg-model")
    assert gold_only["clientSelectors"] == [{"headers": [DISTINCT, pattern(r"^(alice|bob)(\.next)?$"), models]}]
    assert re.fullmatch(models["value"], "ml-team/code")


def test_services_of_two_budgets_whose_names_join_alike_have_separate_policies() -> None:
    groups = {"a": ("chat", "large-v2"), "b": ("chat-large", "v2")}
    services = [service(name=name, labels={"tier": tier}) for tier, pair in groups.items() for name in pair]
    counting = [policy(tier, services={"matchLabels": {"tier": tier}}, budgets=[BUDGET]) for tier in groups]
    built = build(fleet(*services, *counting))
    for pair in groups.values():
        assert built("BackendTrafficPolicy", joined_name(*pair))["spec"]["targetRefs"] == target(*pair)


def test_a_policy_says_which_budget_each_of_its_limits_is_of() -> None:
    """By which their use can be asked for."""
    gold = {"labels": {"tier": "gold"}}
    rate = {**BUDGET, "name": "rate", "unit": "Requests", "per": "Minute"}
    documents = fleet(
        service(**gold),
        service(name="free"),
        policy(services={"matchLabels": {"tier": "gold"}}, budgets=[BUDGET]),
        policy("all", callers=EVERYONE, budgets=[rate]),
    )
    found = build(documents)("BackendTrafficPolicy", joined_name("chat", "free"))
    said = json.loads(found["metadata"]["annotations"]["modelplane.ai/budgets"])
    alone = {"budget": BUDGET["name"], "policy": "team", "route": "chat"}
    assert said == {"listener": "http", "rules": [{"budget": "rate", "policy": "all"}, alone]}
    assert len(found["spec"]["rateLimit"]["global"]["rules"]) == 2
    without = build(fleet(service(), policy()))
    assert not [each for each in without.of("BackendTrafficPolicy") if "annotations" in each["metadata"]]


def test_a_policy_goes_on_counting_what_it_drops_in_its_place() -> None:
    """By their places limits are counted, and their use is read."""
    hour, month = ({**BUDGET, "name": name, "per": name.capitalize()} for name in ("hour", "month"))

    def composed(*budgets: Document) -> Document:
        built = build(fleet(service(provider_entry("paid")), provider("paid"), policy(budgets=list(budgets))))
        return built("BackendTrafficPolicy", "chat")

    before = composed(BUDGET, hour)
    # The API server adds defaults.
    live = json.loads(json.dumps(before))
    for rule in live["spec"]["rateLimit"]["global"]["rules"]:
        rule["shared"] = False
    both = composed(BUDGET, {**hour, "limit": 5}, month)
    assert merge_live_limits(both, live) is None
    kept = merge_live_limits(composed(month, {**hour, "limit": 5}), live)
    assert kept is not None
    rules = kept["spec"]["rateLimit"]["global"]["rules"]
    assert [(each["limit"]["requests"], each["limit"]["unit"]) for each in rules] == [
        (1000, "Day"),
        (5, "Hour"),
        (1000, "Month"),
    ]
    assert kept["metadata"]["annotations"] == both["metadata"]["annotations"]
    assert merge_live_limits(kept, live) is None
    narrowed = composed({**BUDGET, "scope": "Policy"}, hour)
    again = merge_live_limits(narrowed, live)
    assert again is not None
    assert len(again["spec"]["rateLimit"]["global"]["rules"]) == 3


def test_services_of_separate_budgets_have_separate_policies() -> None:
    documents = fleet(
        service(labels={"tier": "gold"}),
        service(name="free"),
        policy(services={"matchLabels": {"tier": "gold"}}, budgets=[BUDGET]),
    )
    built = build(documents)
    assert "shared" not in budgets(built)[0]
    assert "rateLimit" not in built("BackendTrafficPolicy", "free")["spec"]


def keys_of(*secrets: tuple[str, Any, str]) -> Observed:
    """The observation of Secrets with keys: their names, labels and callers."""
    return Observed(
        secret_keys={(SYSTEM, name): frozenset(callers.split()) for name, __, callers in secrets},
        secret_labels={(SYSTEM, name): labels for name, labels, __ in secrets},
    )


EU = {"modelplane.ai/keys": "eu"}


@pytest.mark.parametrize(
    ("secrets", "fields", "said"),
    [
        (
            [("a", EU, "alcie bob.next carol")],
            {},
            "CallerPolicy ml-team/team: no caller of InferenceGateway eu has a key by the name alice: write alcie in "
            "place of alice, or make a key: the playbook modelplane.fleet.keys makes keys",
        ),
        (
            [("a", EU, "alice zoe")],
            {},
            "CallerPolicy ml-team/team: no caller of InferenceGateway eu has a key by the name bob: the playbook "
            "modelplane.fleet.keys makes keys",
        ),
        (
            [("a", {"team": "research"}, "alice bob")],
            {},
            "InferenceGateway eu: no Secret of modelplane-system with the labels modelplane.ai/keys: eu has a key, so "
            "every caller gets 401: the playbook modelplane.fleet.keys makes keys; if there are some, correct "
            "spec.auth.apiKey.secretSelector; Secrets there with keys are a (team: research)",
        ),
        (
            [("a", {**EU, "team": "sales"}, "alice bob")],
            {"callerSelector": GROUP},
            "CallerPolicy ml-team/team: callerSelector team: research matches no Secret with keys of InferenceGateway "
            "eu: select by their labels, which are modelplane.ai/keys: eu, team: sales",
        ),
        ([("a", EU, "alice bob")], {}, ""),
        ([("a", EU, "dora")], {"callers": EVERYONE}, ""),
    ],
)
def test_callers_without_keys_are_warned_of(
    secrets: list[tuple[str, Any, str]], fields: dict[str, Any], said: str
) -> None:
    documents = fleet(service(provider_entry("a")), provider("a"), policy(**fields))
    assert list(build(documents, observed=keys_of(*secrets)).plan.warnings) == ([said] if said else [])
    for unread in (None, replace(keys_of(*secrets), unread="forbidden")):
        known = [each.partition(", as")[0] for each in build(documents, observed=unread).plan.warnings]
        unknown = "CallerPolicy ml-team/team: the callers of callerSelector team: research are not known"
        assert known == ([unknown] if "callerSelector" in fields else [])


def test_a_caller_needs_a_key_at_one_gateway_only() -> None:
    documents = fleet(
        *(service(provider_entry("a")), provider("a"), policy()), gateway("us", "west"), west=cluster("west")
    )
    observed = keys_of(("a", EU, "alice"), ("b", {"modelplane.ai/keys": "us"}, "bob"))
    assert not build(documents, observed=observed).plan.warnings


def test_names_that_no_pattern_can_hold_are_in_several() -> None:
    callers = [{"name": f"{index:02}-{'x' * 60}"} for index in range(40)]
    rules = budgets(build(fleet(service(), policy(callers=callers, budgets=[BUDGET]))))
    assert len(rules) > 1
    patterns = [rule["clientSelectors"][0]["headers"][1]["value"] for rule in rules]
    assert all(len(each) <= 1024 for each in patterns)
    for caller in callers:
        assert sum(bool(re.fullmatch(each, caller["name"])) for each in patterns) == 1


def test_services_that_no_pattern_can_hold_are_in_several() -> None:
    named = [f"qwen3-8b-instruct-{index:02}" for index in range(40)]
    services = [service(name=name, labels={"tier": "gold"}) for name in named]
    gold = policy(services={"matchLabels": {"tier": "gold"}}, budgets=[BUDGET])
    built = build(fleet(service(), *services, gold, policy("all", callers=EVERYONE, budgets=[BUDGET])))
    everyone, *parts = budgets(built, joined_name("chat", *named))
    assert everyone["clientSelectors"] == [{"headers": [DISTINCT]}]
    patterns = [rule["clientSelectors"][0]["headers"][-1]["value"] for rule in parts]
    assert len(patterns) == 2
    assert all(len(each) <= 1024 for each in patterns)
    for name in named:
        assert sum(bool(re.fullmatch(each, f"ml-team/{name}")) for each in patterns) == 1


def test_a_budget_for_many_callers_together_is_one_where_no_one_else_is_let_in() -> None:
    callers = frozenset(f"{index:02}-{'x' * 60}" for index in range(40))
    labels = {"modelplane.ai/keys": "eu", "team": "research"}
    observed = Observed(secret_keys={(SYSTEM, "research"): callers}, secret_labels={(SYSTEM, "research"): labels})
    shared = policy(callerSelector=GROUP, budgets=[{**BUDGET, "scope": "Policy"}])
    documents = fleet(service(provider_entry("a")), provider("a"), shared)
    alone = build(documents, observed=observed)
    (rule,) = budgets(alone)
    assert "clientSelectors" not in rule
    assert {name: set(found) for name, found in allowed(alone).items()} == {"team": {"alice", "bob"}, SELECTED: callers}
    beside = build([*documents, policy("more", callers=[{"name": "carol"}])], observed=observed)
    assert len(budgets(beside)) > 1
    said = "CallerPolicy ml-team/team: budget day is not one limit for all callers together"
    assert [sum(said in each for each in built.plan.warnings) for built in (alone, beside)] == [0, 1]


def test_more_budgets_than_an_object_holds_are_warned_of() -> None:
    callers = frozenset(f"{index:03}-{'x' * 60}" for index in range(500))
    labels = {"modelplane.ai/keys": "eu", "team": "research"}
    observed = Observed(secret_keys={(SYSTEM, "research"): callers}, secret_labels={(SYSTEM, "research"): labels})
    fields = {"callers": [{"name": min(callers)}], "budgets": [{**BUDGET, "name": each} for each in "abc"]}
    groups = [policy(name, callerSelector=GROUP, **fields) for name in ("one", "two", "three")]
    built = build(fleet(service(provider_entry("a")), provider("a"), *groups), observed=observed)
    assert len(budgets(built)) == 9 * 34
    assert [each for each in built.plan.warnings if "rules" in each] == [
        "CallerPolicy ml-team/one: its budgets are 306 rules of one object, together with those of CallerPolicy three, "
        "two, and it can have 256: clusters refuse it: have fewer budgets, name fewer callers, or select services so "
        "that fewer policies share one"
    ]


def test_budgets_keep_the_retries_of_their_route() -> None:
    tiers = [provider_entry(name, priority=index) for index, name in enumerate(("a", "b", "c"))]
    built = build(fleet(service(*tiers), *map(provider, "abc"), policy(budgets=[BUDGET])))
    assert built("BackendTrafficPolicy", "chat")["spec"]["retry"] == {"numRetries": 5}
    assert budgets(built)


@pytest.mark.parametrize("callers", [EVERYONE, [{"name": "alice"}]])
def test_a_gateway_that_asks_for_no_keys_believes_no_caller(callers: Any) -> None:
    without = gateway()
    del without["spec"]["auth"]
    built = build(fleet(service(), policy(callers=callers), eu=without))
    assert built("SecurityPolicy", "chat")["spec"]["authorization"] == {"defaultAction": "Deny"}


def test_no_policy_on_a_route_takes_the_place_of_the_gateways() -> None:
    built = build(fleet(service(), service(name="other"), policy(budgets=[BUDGET])))
    on_routes = [
        value
        for value in built.all()
        if value["kind"] in ("SecurityPolicy", "BackendTrafficPolicy")
        and any(each["kind"] == "HTTPRoute" for each in value["spec"]["targetRefs"])
        and value["metadata"]["namespace"] != SYSTEM
    ]
    assert len(on_routes) == 3
    assert all(value["spec"]["mergeType"] == "StrategicMerge" for value in on_routes)


def test_no_rule_of_a_policy_has_the_name_of_one_of_another_policy() -> None:
    """Policies may have dots in their names, and so many callers that they are in several rules."""
    callers = [f"c{index:03}" for index in range(129)]
    secret = ("a", {**EU, "team": "research"}, " ".join(callers))
    other = policy("team.256", callers=[{"name": "mallory"}])
    documents = fleet(service(provider_entry("a")), provider("a"), policy(callerSelector=GROUP), other)
    built = build(documents, observed=keys_of(secret))
    in_rules = {SELECTED: callers[:128], f"{SELECTED}/256": callers[128:]}
    assert allowed(built) == {"team": ["alice", "bob"], "team.256": ["mallory"], **in_rules}
    (team,) = [each for each in read(documents) if isinstance(each, api.CallerPolicy) and each.name == "team"]
    assert selected_callers(built("SecurityPolicy", "chat"), team) == callers
