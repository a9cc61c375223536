# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Clients with tokens: listeners, policies, and the headers by which they are known."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.modelplane.fleet.tests.model_fleet import (
    SYSTEM,
    Built,
    build,
    fleet,
    gateway,
    policy,
    provider,
    provider_entry,
    service,
)

KEYS = {"apiKey": {"secretSelector": {"matchLabels": {"modelplane.ai/keys": "eu"}}}}
JWT = {
    "issuer": "https://login.example.com",
    "audiences": ["models"],
    "jwks": {"uri": "https://login.example.com/keys"},
    "groupsClaim": "access.groups",
}
BOTH = {**KEYS, "jwt": {**JWT, "hostname": "sso.example.com"}}
TLS = {"certificateRefs": [{"name": "eu-tls"}]}
GATEWAY = "inference-gateway"
BY_TOKEN = {"type": "Exact", "name": "x-modelplane-caller", "value": "jwt:"}


def built(auth: Any, *policies: Any, **spec: Any) -> Built:
    endpoints = service(provider_entry("saas"))
    return build(fleet(endpoints, provider("saas"), *policies, eu=gateway(auth=auth, **spec)))


@pytest.mark.parametrize(
    ("spec", "listeners"),
    [
        ({}, [("http", 80, None), ("http-jwt", 80, "sso.example.com")]),
        ({"tls": TLS}, [("http", 80, None), ("https", 443, None), ("https-jwt", 443, "sso.example.com")]),
    ],
)
def test_tokens_have_a_listener_and_a_policy_of_their_own_beside_keys(spec: Any, listeners: Any) -> None:
    made = built(BOTH, **spec)
    written = made("Gateway", GATEWAY, SYSTEM)["spec"]["listeners"]
    assert [(each["name"], each["port"], each.get("hostname")) for each in written] == listeners
    name = listeners[-1][0]
    parents = made("AIGatewayRoute", "chat")["spec"]["parentRefs"]
    assert [each["sectionName"] for each in parents] == [listeners[-2][0], name]
    keys, tokens = (
        made("SecurityPolicy", each, SYSTEM)["spec"] for each in (f"{GATEWAY}-callers", f"{GATEWAY}-callers-jwt")
    )
    # Without the second policy the first holds at both listeners.
    assert ("sectionName" in keys["targetRefs"][0], tokens["targetRefs"][0]["sectionName"]) == (False, name)
    assert (keys.keys() - {"targetRefs"}, "apiKeyAuth" in tokens) == ({"apiKeyAuth"}, False)
    assert tokens["jwt"].keys() == {"providers"}
    assert tokens["authorization"]["defaultAction"] == "Deny"


@pytest.mark.parametrize(
    ("auth", "kept"), [({"jwt": JWT}, "jwt"), ({"method": "JWT", "jwt": JWT}, "jwt"), (KEYS, "apiKeyAuth")]
)
def test_one_method_holds_for_the_whole_gateway(auth: Any, kept: str) -> None:
    made = built(auth)
    assert [each["name"] for each in made("Gateway", GATEWAY, SYSTEM)["spec"]["listeners"]] == ["http"]
    spec = made("SecurityPolicy", f"{GATEWAY}-callers", SYSTEM)["spec"]
    assert kept in spec
    assert ("SecurityPolicy", SYSTEM, f"{GATEWAY}-callers-jwt") not in made.objects["hub"]


@pytest.mark.parametrize(("auth", "caller"), [(BOTH, "jwt:"), ({"jwt": JWT}, "jwt:"), (KEYS, None), (None, None)])
def test_clients_write_neither_name(auth: Any, caller: str | None) -> None:
    early = built(auth)("ClientTrafficPolicy", f"{GATEWAY}-client-traffic", SYSTEM)["spec"]["headers"][
        "earlyRequestHeaders"
    ]
    assert {"type": "Exact", "value": "x-modelplane-subject"} in early["removeOnMatch"]
    written = {each["name"]: each["value"] for each in early.get("set", ())}
    assert written.get("x-modelplane-caller") == caller
    assert ("x-modelplane-caller" in early["remove"]) == (caller is None)


@pytest.mark.parametrize("auth", [BOTH, {"jwt": JWT}])
@pytest.mark.parametrize("budget", [(), ({"name": "a", "unit": "Tokens", "limit": 5, "per": "Day"},)])
def test_no_token_reaches_an_endpoint_and_names_only_where_tokens_are_counted(auth: Any, budget: Any) -> None:
    more = [policy(budgets=list(budget), subjects=["alice"])] if budget else []
    made = built(auth, *more)
    for each in made.of("AIServiceBackend"):
        removed = each["spec"]["headerMutation"]["remove"]
        assert {"authorization", "x-api-key"} <= set(removed)
        assert ({"x-modelplane-subject", "x-modelplane-caller"} <= set(removed)) == (not budget)
        # The definition of the AI gateway takes no more.
        assert len(removed) == len(set(removed)) <= 16


def test_callers_subjects_and_groups_have_rules_of_their_own() -> None:
    groups = [f"g{index}" for index in range(8)]
    made = built(BOTH, policy(subjects=["alice"], groups=groups))
    rules = made("SecurityPolicy", "chat")["spec"]["authorization"]["rules"]
    assert [each["name"] for each in rules] == ["team", "team/subjects", "team/groups", "team/groups/6"]
    assert rules[0]["principal"]["headers"][0]["values"] == ["alice", "alice.next", "bob", "bob.next"]
    assert [(each["name"], each["values"]) for each in rules[1]["principal"]["headers"]] == [
        ("x-modelplane-caller", ["jwt:"]),
        ("x-modelplane-subject", ["alice"]),
    ]
    place = "metadata.filter_metadata['envoy.filters.http.jwt_authn']['modelplane']['access']['groups']"
    assert rules[3]["cel"] == f"'x-modelplane-subject' in request.headers && ('g6' in {place} || 'g7' in {place})"
    # Where the gateway knows no tokens, they give no rights.
    assert [
        each["name"]
        for each in built(KEYS, policy(subjects=["a"]))("SecurityPolicy", "chat")["spec"]["authorization"]["rules"]
    ] == ["team"]


@pytest.mark.parametrize("long", [6, 253])
def test_expressions_of_groups_fit(long: int) -> None:
    auth = {"jwt": {**JWT, "groupsClaim": "c" * long}}
    rules = built(auth, policy(groups=[f"{index:0{long}d}" for index in range(64)]))("SecurityPolicy", "chat")
    assert all(len(each.get("cel", "")) <= 4096 for each in rules["spec"]["authorization"]["rules"])


EACH = {"name": "a", "unit": "Requests", "limit": 5, "per": "Day"}
CALLER, SUBJECT = ({"type": "Distinct", "name": f"x-modelplane-{each}"} for each in ("caller", "subject"))


@pytest.mark.parametrize(
    ("auth", "spec", "expected"),
    [
        (BOTH, {"callers": [{"name": "*"}]}, [[CALLER, {**BY_TOKEN, "invert": True}], [SUBJECT, BY_TOKEN]]),
        ({"jwt": JWT}, {"callers": [{"name": "*"}]}, [[SUBJECT, BY_TOKEN]]),
        (KEYS, {"callers": [{"name": "*"}]}, [[CALLER]]),
        (
            BOTH,
            {"callers": None, "subjects": ["b", "a|b"]},
            [[SUBJECT, BY_TOKEN, {"type": "RegularExpression", "name": SUBJECT["name"], "value": r"^(b|a\|b)$"}]],
        ),
        (BOTH, {"callers": None, "groups": ["x"]}, [[CALLER, {**BY_TOKEN, "invert": True}], [SUBJECT, BY_TOKEN]]),
        (BOTH, {"callers": [{"name": "*"}], "budgets": [{**EACH, "scope": "Policy"}]}, [[]]),
    ],
)
def test_budgets_count_names_of_keys_and_tokens_in_their_headers(auth: Any, spec: Any, expected: Any) -> None:
    given = {"budgets": [EACH], **spec}
    written = policy(**given)
    written["spec"] = {name: value for name, value in written["spec"].items() if value is not None}
    made = built(auth, written)
    document = made("BackendTrafficPolicy", "chat")["spec"]["rateLimit"]["global"]["rules"]
    counted = [[header for each in rule.get("clientSelectors", ()) for header in each["headers"]] for rule in document]
    assert counted == expected
    # Both listeners have the same counters.
    assert all(rule.get("shared", False) == (auth is BOTH) for rule in document)


def test_the_host_that_a_client_asked_for_is_not_passed_on() -> None:
    made = built(KEYS)
    assert made("HTTPRouteFilter", "ai-eg-host-rewrite-chat")["spec"] == {
        "urlRewrite": {"hostname": {"type": "Backend"}, "appendXForwardedHost": False}
    }


@pytest.mark.parametrize(
    "header",
    [
        "cf-connecting-ip",
        "cookie",
        "fastly-client-ip",
        "true-client-ip",
        "x-amz-security-token",
        "x-auth-request-email",
        "x-azure-clientip",
        "x-client-ip",
        "x-forwarded-user",
        "x-goog-iap-jwt-assertion",
        "x-ms-client-principal-name",
    ],
)
def test_headers_that_name_clients_are_removed_first(header: str) -> None:
    early = built(KEYS)("ClientTrafficPolicy", f"{GATEWAY}-client-traffic", SYSTEM)["spec"]["headers"]
    matches = early["earlyRequestHeaders"]["removeOnMatch"]
    assert len(matches) <= 64
    assert any(
        header == each["value"] if each["type"] == "Exact" else header.startswith(each["value"]) for each in matches
    )
