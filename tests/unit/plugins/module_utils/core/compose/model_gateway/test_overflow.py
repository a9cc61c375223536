# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Budgets beyond which requests go to the next priority: the detour by the cluster gateway."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.model_gateway.refusals import (
    MISSING_ENDPOINT,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.private_headers import (
    CREDENTIALS,
    HOPS,
    KEYS,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.names import child_name, joined_name
from ansible_collections.modelplane.fleet.plugins.module_utils.core.observation import Observed, ObservedCluster
from ansible_collections.modelplane.fleet.plugins.module_utils.core.problem import Ref
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Objects
from ansible_collections.modelplane.fleet.tests.model_fleet import (
    SYSTEM,
    TEAM,
    Built,
    Document,
    build,
    certificate,
    cluster,
    entry,
    fleet,
    gateway,
    policy,
    provider,
    provider_entry,
    service,
)
from ansible_collections.modelplane.fleet.tests.schemas import check

CALLER, SERVICE, ENDPOINT = "x-modelplane-caller", "x-modelplane-service", "x-modelplane-endpoint"
PRIVATE = [name for name in (*CREDENTIALS, *HOPS) if name not in KEYS]
ROUTE = joined_name("chat", "eu")
INSIDE = child_name(ROUTE, "overflow")
"""Policy that meters the service behind the cluster gateway."""
HUB = cluster("hub", "203.0.113.1")
del HUB["metadata"]["labels"], HUB["spec"]["nodePools"]
CLUSTER_GATEWAY_HOST = f"{child_name('cluster', 'hub')}.{SYSTEM}.svc.cluster.local"
EAST, WEST = "qwen-505d53c46f", "qwen-575efd95ab"
EVERYONE = [{"name": "*"}]
TOKENS: Document = {"name": "day", "unit": "Tokens", "limit": 1000, "per": "Day", "whenSpent": "Overflow"}
REQUESTS: Document = {"name": "rate", "unit": "Requests", "limit": 60, "per": "Minute"}
NEXT = provider_entry("spare", priority=1)
UNPUBLISHED = {"AIGatewayRoute", "AIServiceBackend", "BackendSecurityPolicy"}


def documents(*more: Document, budgets: Any = (TOKENS,), first: Any = None, **replaced: Document) -> list[Document]:
    chat = service(*(first or [entry()]), NEXT)
    return fleet(chat, provider("spare"), policy(budgets=list(budgets)), *more, **{"hub": HUB, **replaced})


def backend(endpoint: str) -> str:
    return joined_name(ROUTE, endpoint)


def detour(endpoint: str) -> str:
    return joined_name("overflow", backend(endpoint))


def behind(endpoint: str) -> str:
    """Return the AIGatewayRoute name of an endpoint behind the cluster gateway."""
    return child_name(backend(endpoint), "overflow")


def selector(name: str = "chat") -> Document:
    """Return the selector of the HTTPRoutes of a service behind the cluster gateway."""
    labels = {"modelplane.ai/service": name, "modelplane.ai/gateway": "eu", "modelplane.ai/overflow": "true"}
    return {"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "matchLabels": labels}


def references(built: Built, name: str = "chat") -> list[str]:
    rule = built("AIGatewayRoute", name)["spec"]["rules"][0]
    return [each["name"] for each in rule["backendRefs"]]


def rules(built: Built, name: str = "chat") -> list[Document]:
    """Rules of budgets, none where nothing counts."""
    found = built.objects["hub"].get(("BackendTrafficPolicy", TEAM, name))
    limits = (found or {"spec": {}})["spec"].get("rateLimit")
    counted: list[Document] = limits["global"]["rules"] if limits else []
    return counted


def refusals(built: Built) -> list[str]:
    return [each for each in built.plan.warnings if "do not go to the next priority" in each]


@pytest.fixture(scope="module")
def built() -> Built:
    return build(documents(budgets=[TOKENS, REQUESTS]))


def test_the_gateway_sends_the_first_priority_to_the_cluster_gateway_of_its_own_cluster(built: Built) -> None:
    for endpoint in (EAST, WEST):
        name = detour(endpoint)
        assert built("Backend", name)["spec"] == {
            "endpoints": [{"fqdn": {"hostname": CLUSTER_GATEWAY_HOST, "port": 443}}],
            "tls": {
                "caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": child_name("cluster-ca", "hub")}],
                "sni": CLUSTER_GATEWAY_HOST,
                "clientCertificateRef": {"group": "", "kind": "Secret", "name": "inference-gateway-client"},
            },
        }
        assert built("AIServiceBackend", name)["spec"] == {
            "schema": {"name": "OpenAI", "prefix": "/v1"},
            "backendRef": {"group": "gateway.envoyproxy.io", "kind": "Backend", "name": name},
            "headerMutation": {
                "set": [{"name": SERVICE, "value": "ml-team/chat"}, {"name": ENDPOINT, "value": backend(endpoint)}]
            },
        }
    assert built("Backend", backend("spare"))["spec"]["endpoints"] == [
        {"fqdn": {"hostname": "api.spare.example", "port": 443}}
    ]
    assert built("ConfigMap", child_name("cluster-ca", "hub"))["data"] == {"ca.crt": certificate("hub")}
    assert built("Service", child_name("cluster", "hub"), SYSTEM)


def test_names_weights_and_retries_of_its_backends_stay(built: Built) -> None:
    without = build(documents(budgets=[REQUESTS]))("AIGatewayRoute", "chat")["spec"]
    spec = built("AIGatewayRoute", "chat")["spec"]
    changed = [
        {**each, "name": detour(name)} if each["priority"] == 0 else each
        for name, each in zip((EAST, WEST, "spare"), without["rules"][0]["backendRefs"], strict=True)
    ]
    assert spec == {**without, "rules": [{**without["rules"][0], "backendRefs": changed}]}
    assert "retry" not in built("BackendTrafficPolicy", "chat")["spec"], "two priorities, as the gateway's own policy"
    three = [entry(), provider_entry("more", priority=1)]
    spec = build(documents(provider("more"), first=three, budgets=[TOKENS, REQUESTS]))("BackendTrafficPolicy", "chat")
    assert spec["spec"].get("retry") is None
    four = [entry(), provider_entry("more", priority=2)]
    found = build(documents(provider("more"), first=four))("BackendTrafficPolicy", "chat")["spec"]
    assert found == {**found, "retry": {"numRetries": 5}}
    assert "rateLimit" not in found


def test_names_of_detours_say_so_however_long_those_of_services_are() -> None:
    """They are what usage records have."""
    name = "llama-3-70b-instruct-of-the-research-team"
    long_one = service(entry(), NEXT, name=name)
    found = references(build(fleet(long_one, provider("spare"), policy(budgets=[TOKENS]), hub=HUB)), name)
    assert [each.startswith("overflow-llama-3-70b-") for each in found] == [True, True, False]
    assert max(map(len, found)) == 63


def test_behind_the_cluster_gateway_a_request_goes_to_the_endpoint_that_it_names(built: Built) -> None:
    of_service = {"type": "Exact", "name": SERVICE, "value": "ml-team/chat"}
    limits = {"timeouts": {"request": "300s"}, "streamIdleTimeout": "0s"}
    for each in (EAST, WEST):
        expected = {"name": backend(each), "weight": 1, "priority": 0, "modelNameOverride": "ml-team/qwen"}
        of_endpoint = {"type": "Exact", "name": ENDPOINT, "value": backend(each)}
        spec = built("AIGatewayRoute", behind(each))["spec"]
        assert spec["rules"] == [
            {"matches": [{"headers": [of_service, of_endpoint]}], "backendRefs": [expected], **limits}
        ]
        assert spec["parentRefs"] == [
            {
                "group": "gateway.networking.k8s.io",
                "kind": "Gateway",
                "name": "cluster-gateway",
                "sectionName": "https",
                "namespace": SYSTEM,
            }
        ]
        assert spec["llmRequestCosts"] == built("AIGatewayRoute", "chat")["spec"]["llmRequestCosts"]
    assert built("AIServiceBackend", backend(EAST))["spec"]["schema"]["prefix"] == f"/ml-team/{EAST}/v1"
    assert "headerMutation" not in built("AIServiceBackend", backend(EAST))["spec"]


def test_budgets_that_overflow_are_counted_at_the_cluster_gateway_and_others_at_the_gateway(built: Built) -> None:
    (refusing,) = rules(built)
    assert refusing["limit"] == {"requests": 60, "unit": "Minute"}
    (spilling,) = rules(built, INSIDE)
    distinct = {"type": "Distinct", "name": CALLER}
    callers = {"type": "RegularExpression", "name": CALLER, "value": r"^(alice|bob)(\.next)?$"}
    assert spilling == {
        "clientSelectors": [{"headers": [distinct, callers]}],
        "limit": {"requests": 1000, "unit": "Day"},
        "cost": {
            "request": {"from": "Number", "number": 0},
            "response": {
                "from": "Metadata",
                "metadata": {"namespace": "io.envoy.ai_gateway", "key": "llm_total_token"},
            },
        },
        "shared": True,
    }
    spec = built("BackendTrafficPolicy", INSIDE)["spec"]
    assert ("targetRefs" in spec, spec["targetSelectors"]) == (False, [selector()])
    for each in (EAST, WEST):
        assert selector()["matchLabels"].items() <= built("AIGatewayRoute", behind(each))["metadata"]["labels"].items()
        assert ("SecurityPolicy", TEAM, behind(each)) not in built.objects["hub"]
    assert "modelplane.ai/overflow" not in built("AIGatewayRoute", "chat")["metadata"]["labels"]
    assert (spec["mergeType"], "retry" in spec) == ("StrategicMerge", False)
    assert not refusals(built)


def test_objects_behind_the_cluster_gateway_belong_to_the_service_and_api_servers_take_them(built: Built) -> None:
    without = build(documents(budgets=[{**TOKENS, "whenSpent": "Refuse"}, REQUESTS]))
    added = [built.objects["hub"][key] for key in built.objects["hub"].keys() - without.objects["hub"].keys()]
    kinds = [each["kind"] for each in added if each["metadata"].get("namespace") == TEAM]
    assert sorted(kinds) == [
        *["AIGatewayRoute"] * 2,
        *["AIServiceBackend"] * 2,
        *["Backend"] * 2,
        "BackendTrafficPolicy",
        "ConfigMap",
        *["HTTPRouteFilter"] * 2,
    ]
    for each in added:
        if each["kind"] not in UNPUBLISHED:
            check(each)
        if each["metadata"].get("namespace") == TEAM and each["kind"] != "ConfigMap":
            own = {"modelplane.ai/overflow": "true"} if each["kind"] == "AIGatewayRoute" else {}
            assert each["metadata"]["labels"] == {**built("AIGatewayRoute", "chat")["metadata"]["labels"], **own}


def test_the_cluster_gateway_reads_requests_as_if_they_came_from_a_caller(built: Built) -> None:
    spec = built("ClientTrafficPolicy", "cluster-gateway-clients", SYSTEM)["spec"]
    assert spec["headers"] == {"earlyRequestHeaders": {"remove": ["x-ai-eg-original-path", "x-ai-eg-internal-req-id"]}}
    assert spec["tls"]["clientValidation"]["optional"] is False
    assert "headers" not in built("ClientTrafficPolicy", "cluster-gateway-clients", SYSTEM, "east")["spec"]


def test_the_cluster_gateway_rejects_an_endpoint_that_it_does_not_know_without_being_ejected(built: Built) -> None:
    route = built("HTTPRoute", "cluster-gateway-unknown", SYSTEM)
    (rule,) = route["spec"]["rules"]
    # One header: that of every endpoint has two.
    headers = [{"type": "RegularExpression", "name": SERVICE, "value": ".+"}]
    assert rule["matches"] == [{"path": {"type": "PathPrefix", "value": "/"}, "headers": headers}]
    assert route["spec"]["parentRefs"][0] == {
        "group": "gateway.networking.k8s.io",
        "kind": "Gateway",
        "name": "cluster-gateway",
        "sectionName": "https",
    }
    name = rule["filters"][0]["extensionRef"]["name"]
    answer = built("HTTPRouteFilter", name, SYSTEM)["spec"]["directResponse"]
    assert (answer["statusCode"], answer["contentType"]) == (429, "application/json")
    assert json.loads(answer["body"]["inline"]) == MISSING_ENDPOINT.body


def test_a_cluster_without_engines_has_a_cluster_gateway_only_while_a_budget_overflows(built: Built) -> None:
    assert built("Gateway", "cluster-gateway", SYSTEM)["spec"]["listeners"][0]["name"] == "https"
    refusing = build(documents(budgets=[{**TOKENS, "whenSpent": "Refuse"}]))
    assert ("Gateway", SYSTEM, "cluster-gateway") not in refusing.objects["hub"]


@pytest.mark.parametrize(
    ("budget", "callers", "named", "removed"),
    [
        (TOKENS, EVERYONE, True, [ENDPOINT]),
        ({**TOKENS, "scope": "Policy"}, EVERYONE, False, [CALLER, ENDPOINT]),
        ({**TOKENS, "unit": "Requests"}, EVERYONE, False, [CALLER, ENDPOINT, SERVICE]),
    ],
)
def test_a_provider_behind_the_cluster_gateway_gets_its_key_and_what_tokens_are_counted_by(
    budget: Document, callers: Any, named: bool, removed: list[str]
) -> None:
    key = {"apiKey": {"secretRef": {"name": "saas-key", "key": "token"}}}
    saas = provider("saas", api={"schema": "Anthropic", "prefix": "/api/v1"}, model="large", credential=key)
    chat = service(provider_entry("saas"), NEXT)
    built = build(fleet(chat, saas, provider("spare"), policy(callers=callers, budgets=[budget]), hub=HUB))
    found = built("AIServiceBackend", detour("saas"))["spec"]
    assert found["schema"] == {"name": "Anthropic", "prefix": "/anthropic/v1"}
    assert "remove" not in found["headerMutation"]
    assert built("AIServiceBackend", backend("spare"))["spec"]["headerMutation"] == {"remove": [CALLER, *PRIVATE]}
    behind = built("AIServiceBackend", backend("saas"))["spec"]
    assert behind["schema"] == {"name": "Anthropic", "prefix": "/api/v1"}
    assert set(behind["headerMutation"].pop("remove")) == {*removed, *PRIVATE}
    assert behind["headerMutation"] == {}
    (secret,) = built.of("BackendSecurityPolicy")
    assert secret["spec"]["targetRefs"][0]["name"] == backend("saas")
    (copy,) = [copy for __, copy in built.plan.models.copies if not copy.labels]
    assert copy.name == secret["spec"]["anthropicAPIKey"]["secretRef"]["name"]
    warned = [each for each in built.plan.warnings if "get the names of callers" in each]
    assert [("(saas)" in each, "spare" in each) for each in warned] == ([(True, False)] if named else [])


def test_a_budget_over_several_services_is_counted_at_one_place() -> None:
    """Also for those without a next priority, whose requests beyond it are refused there."""
    gold = {"labels": {"tier": "gold"}}
    services = [service(entry(), NEXT, **gold), service(name="alone", **gold), service(entry(), NEXT, name="free")]
    of_gold = policy(services={"matchLabels": {"tier": "gold"}}, budgets=[TOKENS])
    spilling = {**REQUESTS, "whenSpent": "Overflow"}
    everyone = policy("all", callers=EVERYONE, budgets=[spilling])
    built = build(fleet(*services, provider("spare"), of_gold, everyone, hub=HUB))
    name = child_name(joined_name("alone", "chat", "free", "eu"), "overflow")
    spec = built("BackendTrafficPolicy", name)["spec"]
    assert spec["targetSelectors"] == [selector(each) for each in ("alone", "chat", "free")]
    rate, day = rules(built, name)
    assert rate["clientSelectors"] == [{"headers": [{"type": "Distinct", "name": CALLER}]}]
    pattern = {"type": "RegularExpression", "name": SERVICE, "value": r"^(ml\-team/alone|ml\-team/chat)$"}
    assert day["clientSelectors"][0]["headers"][-1] == pattern
    assert not any(rules(built, each) for each in ("alone", "chat", "free"))
    assert not refusals(built), "the single priority of a manifest is reported when it is validated"


def test_more_budgets_than_an_object_holds_are_warned_of_where_they_overflow_too() -> None:
    callers = frozenset(f"{index:03}-{'x' * 60}" for index in range(500))
    labels = {"modelplane.ai/keys": "eu", "team": "research"}
    observed = Observed(secret_keys={(SYSTEM, "research"): callers}, secret_labels={(SYSTEM, "research"): labels})
    spilling = [{**REQUESTS, "name": f"b{index}", "whenSpent": "Overflow"} for index in range(8)]
    fields = {"callers": [{"name": min(callers)}], "callerSelector": {"matchLabels": {"team": "research"}}}
    chat = service(provider_entry("saas"), NEXT)
    # Its own budget is counted at the gateway.
    few = policy("few", callers=EVERYONE, budgets=[REQUESTS])
    crowd = policy(budgets=spilling, **fields)
    built = build(fleet(chat, provider("saas"), provider("spare"), crowd, few, hub=HUB), observed=observed)
    assert (len(rules(built, INSIDE)), len(rules(built))) == (8 * 34, 1)
    assert [each for each in built.plan.warnings if "rules of" in each] == [
        "CallerPolicy ml-team/team: its budgets are 272 rules of one object, and it can have 256: clusters refuse it: "
        "have fewer budgets, name fewer callers, or select services so that fewer policies share one"
    ]


def test_services_with_one_priority_alone_have_no_detour() -> None:
    built = build(fleet(service(), policy(budgets=[TOKENS]), hub=HUB))
    assert [value["metadata"]["name"] for value in built.of("AIGatewayRoute")] == ["chat"]
    assert rules(built)
    assert ("Gateway", SYSTEM, "cluster-gateway") not in built.objects["hub"]


def test_a_next_priority_that_cannot_be_used_is_none() -> None:
    spare = provider("spare", url="http://203.0.113.9")
    built = build(fleet(service(entry(), NEXT), spare, policy(budgets=[TOKENS]), hub=HUB))
    assert refusals(built) == [
        "ModelService ml-team/chat: requests beyond budget day of CallerPolicy team are refused and do not go to the "
        "next priority: no endpoint of a next priority can be used"
    ]
    assert rules(built)


def test_before_the_cluster_gateway_is_known_requests_beyond_the_budget_are_refused() -> None:
    built = build(documents(hub=cluster("hub")))
    (warned,) = refusals(built)
    assert warned.endswith("cluster hub has no hostname for gateways in mode Model yet")
    assert built("Gateway", "cluster-gateway", SYSTEM), "which makes it known"
    assert rules(built)
    assert not rules(built, INSIDE)
    assert references(built) == [backend(EAST), backend(WEST), backend("spare")]


@pytest.mark.parametrize("accepted", ["True", "False", ""])
def test_requests_take_the_detour_once_the_cluster_gateway_has_accepted_it(accepted: str) -> None:
    """The route counts as accepted before later changes of the route or of endpoints are accepted."""
    conditions = [{"type": "Accepted", "status": accepted, "observedGeneration": 1}] if accepted else []
    seen = {
        "apiVersion": "aigateway.envoyproxy.io/v1beta1",
        "kind": "AIGatewayRoute",
        "metadata": {
            "name": behind("replaced"),
            "namespace": TEAM,
            "generation": 2,
            "labels": selector()["matchLabels"],
        },
        "status": {"conditions": conditions},
    }
    listening = {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "Gateway",
        "metadata": {"name": "cluster-gateway", "namespace": SYSTEM},
        "status": {"addresses": [{"type": "IPAddress", "value": "203.0.113.1"}]},
    }
    metadata = {"name": "cluster-gateway-ca", "namespace": SYSTEM}
    authority = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"ca.crt": certificate("hub")}}
    observed = Observed(clusters={"hub": ObservedCluster(objects=Objects([seen, listening, authority]))})
    first = [provider_entry("own")]
    found = fleet(service(*first, NEXT), provider("own"), provider("spare"), policy(budgets=[TOKENS]), hub=HUB)
    built = build(found, observed=observed)
    is_ready = accepted == "True"
    assert references(built) == [detour("own") if is_ready else backend("own"), backend("spare")]
    assert bool(rules(built)) == (not is_ready)
    assert rules(built, INSIDE), "behind the cluster gateway all is there"
    assert references(built, behind("own")) == [backend("own")]
    assert [behind("own") in each for each in refusals(built)] == ([] if is_ready else [True])


def test_a_gateway_that_asks_for_no_keys_counts_nothing() -> None:
    without = gateway()
    del without["spec"]["auth"]
    built = build(documents(eu=without))
    assert [value["metadata"]["name"] for value in built.of("AIGatewayRoute")] == ["chat"]


def test_what_is_behind_the_cluster_gateway_of_a_gateway_that_has_errors_keeps_the_cluster_gateway(
    built: Built,
) -> None:
    """Nothing is composed of it, so that nothing says that its budgets overflow."""
    route = built("AIGatewayRoute", behind(EAST))

    def earlier(ref: Ref) -> list[tuple[str, Document]]:
        return [("hub", route)] if ref.kind == "ModelService" else []

    held = Ref("ModelService", "ml-team", "chat")
    manifests = [each for each in documents() if each["kind"] != "ModelService"]
    found = build(manifests, earlier=earlier, invalid=[held])
    assert found("AIGatewayRoute", behind(EAST)) == route
    assert found("Gateway", "cluster-gateway", SYSTEM)
    assert ("Gateway", SYSTEM, "cluster-gateway") not in build(manifests).objects["hub"]


def test_a_change_of_an_endpoint_leaves_the_routes_of_others_behind_the_cluster_gateway() -> None:
    """Otherwise Envoy renames their clusters, and rejects requests until the new clusters exist."""

    def routes(*endpoints: str) -> dict[str, Document]:
        chat = service(*(provider_entry(name, weight=index + 1) for index, name in enumerate(endpoints)), NEXT)
        built = build(fleet(chat, *map(provider, (*endpoints, "spare")), policy(budgets=[TOKENS]), hub=HUB))
        found = {each["metadata"]["name"]: each for each in built.of("AIGatewayRoute")}
        del found["chat"]
        assert len(found) == len(endpoints)
        return found

    before = routes("a", "b", "c")
    for after in (routes("b", "c"), routes("a", "c"), routes("new", "a", "b", "c"), routes("c", "new")):
        for name in before.keys() & after.keys():
            assert before[name] == after[name]


def test_a_policy_selects_the_routes_of_any_number_of_endpoints() -> None:
    named = [f"p{index:02}" for index in range(16)]
    chat = service(*(provider_entry(name, weight=index + 1) for index, name in enumerate(named)))
    other = service(entry(), NEXT, name="other")
    built = build(fleet(chat, other, *map(provider, named), provider("spare"), policy(budgets=[TOKENS]), hub=HUB))
    found = built("BackendTrafficPolicy", child_name(joined_name("chat", "other", "eu"), "overflow"))["spec"]
    assert found["targetSelectors"] == [selector(), selector("other")]
    assert [references(built, behind(name)) for name in named] == [[backend(name)] for name in named]
