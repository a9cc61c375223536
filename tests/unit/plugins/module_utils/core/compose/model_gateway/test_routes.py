# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Objects of services on a gateway in mode Model: routes, priorities and weights, backends of the fleet and others."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.names import child_name, joined_name
from ansible_collections.modelplane.fleet.plugins.module_utils.core.observation import Observed
from ansible_collections.modelplane.fleet.tests.model_fleet import (
    TEAM,
    Built,
    Document,
    build,
    certificate,
    cluster,
    entry,
    fleet,
    gateway,
    provider,
    provider_entry,
    service,
)

ROUTE = joined_name("chat", "eu")
EAST, WEST = "qwen-505d53c46f", "qwen-575efd95ab"
KEY = {"apiKey": {"secretRef": {"name": "saas-key", "key": "token"}}}


def backend(endpoint: str) -> str:
    return joined_name(ROUTE, endpoint)


def references(built: Built, name: str = "chat") -> list[tuple[str, int, int]]:
    """Backends of a route, with priority and weight."""
    rule = built("AIGatewayRoute", name)["spec"]["rules"][0]
    return [(each["name"], each["priority"], each["weight"]) for each in rule["backendRefs"]]


def problems(built: Built) -> dict[str, str]:
    return {name: reason for each in built.plan.models.routes for name, reason in each.problems.items()}


@pytest.fixture(scope="module")
def two() -> Built:
    """A service on two replicas, one on each cluster."""
    return build(fleet(service()))


def test_a_route_matches_the_name_of_the_model_and_says_who_owns_it(two: Built) -> None:
    route = two("AIGatewayRoute", "chat")
    assert route["apiVersion"] == "aigateway.envoyproxy.io/v1beta1"
    assert route["spec"] == {
        "parentRefs": [
            {
                "group": "gateway.networking.k8s.io",
                "kind": "Gateway",
                "name": "inference-gateway",
                "sectionName": "http",
                "namespace": "modelplane-system",
            }
        ],
        "rules": [
            {
                "matches": [{"headers": [{"type": "Exact", "name": "x-ai-eg-model", "value": "ml-team/chat"}]}],
                "backendRefs": [
                    {"name": backend(name), "weight": 1, "priority": 0, "modelNameOverride": "ml-team/qwen"}
                    for name in (EAST, WEST)
                ],
                "timeouts": {"request": "300s"},
                "streamIdleTimeout": "0s",
                "modelsOwnedBy": "ml-team",
            }
        ],
        "llmRequestCosts": [
            {"metadataKey": "llm_input_token", "type": "InputToken"},
            {"metadataKey": "llm_output_token", "type": "OutputToken"},
            {"metadataKey": "llm_total_token", "type": "TotalToken"},
        ],
    }


def test_with_tls_models_are_served_on_its_listener_only() -> None:
    built = build(fleet(service(), eu=gateway(tls={"certificateRefs": [{"name": "eu-tls"}]})))
    assert built("AIGatewayRoute", "chat")["spec"]["parentRefs"][0]["sectionName"] == "https"


def test_limits_of_a_service_are_those_of_its_route() -> None:
    built = build(fleet(service(timeouts={"request": "0s", "idle": "90s"})))
    rule = built("AIGatewayRoute", "chat")["spec"]["rules"][0]
    assert (rule["timeouts"], rule["streamIdleTimeout"]) == ({"request": "0s"}, "90s")


def test_a_cluster_of_the_fleet_is_reached_by_its_name_and_both_prove_who_they_are(two: Built) -> None:
    host = f"{child_name('cluster', 'east')}.modelplane-system.svc.cluster.local"
    assert two("Backend", backend(EAST))["spec"] == {
        "endpoints": [{"fqdn": {"hostname": host, "port": 443}}],
        "tls": {
            "caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": child_name("cluster-ca", "east")}],
            "sni": host,
            "clientCertificateRef": {"group": "", "kind": "Secret", "name": "inference-gateway-client"},
        },
    }
    assert two("AIServiceBackend", backend(EAST))["spec"] == {
        "schema": {"name": "OpenAI", "prefix": f"/ml-team/{EAST}/v1"},
        "backendRef": {"group": "gateway.envoyproxy.io", "kind": "Backend", "name": backend(EAST)},
    }
    assert two("ConfigMap", child_name("cluster-ca", "east"))["data"] == {"ca.crt": certificate("east")}
    assert two("Certificate", "inference-gateway-client")["spec"] == {
        "secretName": "inference-gateway-client",
        "secretTemplate": {"labels": {"app.kubernetes.io/managed-by": "modelplane.fleet"}},
        "commonName": "inference-gateway-eu",
        "usages": ["client auth", "digital signature", "key encipherment"],
        "duration": "2160h",
        "renewBefore": "720h",
        "privateKey": {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"},
        "issuerRef": {"group": "cert-manager.io", "kind": "ClusterIssuer", "name": "inference-gateway-ca"},
    }
    assert not two.of("BackendSecurityPolicy")


def test_two_services_of_a_namespace_share_certificates_but_no_backends() -> None:
    built = build(fleet(service(), service(name="other")))
    assert len(built.of("Certificate")) == 2, "the gateway's CA, and one of the namespace"
    assert len(built.of("ConfigMap")) == 2
    assert len(built.of("Backend")) == 4


@pytest.mark.parametrize(
    ("schema", "kind", "field"), [("OpenAI", "APIKey", "apiKey"), ("Anthropic", "AnthropicAPIKey", "anthropicAPIKey")]
)
def test_a_provider_gets_its_key_and_nothing_about_the_caller(schema: str, kind: str, field: str) -> None:
    endpoint = provider("saas", api={"schema": schema, "prefix": "/api/v1"}, model="large", credential=KEY)
    built = build(fleet(service(provider_entry("saas")), endpoint))
    name = backend("saas")
    assert built("Backend", name)["spec"] == {
        "endpoints": [{"fqdn": {"hostname": "api.saas.example", "port": 443}}],
        "tls": {"wellKnownCACertificates": "System", "sni": "api.saas.example"},
    }
    assert built("AIServiceBackend", name)["spec"] == {
        "schema": {"name": schema, "prefix": "/api/v1"},
        "backendRef": {"group": "gateway.envoyproxy.io", "kind": "Backend", "name": name},
        "headerMutation": {
            "remove": [
                "x-modelplane-caller",
                "proxy-authorization",
                "cookie",
                "api-key",
                "x-goog-api-key",
                "forwarded",
                "x-forwarded-for",
                "x-forwarded-host",
                "x-forwarded-port",
                "x-forwarded-proto",
                "x-forwarded-server",
                "x-real-ip",
                "x-request-id",
            ]
        },
    }
    secret = joined_name("credential", name)
    assert built("BackendSecurityPolicy", name)["spec"] == {
        "type": kind,
        field: {"secretRef": {"name": secret}},
        "targetRefs": [{"group": "aigateway.envoyproxy.io", "kind": "AIServiceBackend", "name": name}],
    }
    (copy,) = [copy for __, copy in built.plan.models.copies if not copy.labels]
    assert (copy.source_namespace, copy.source_name, copy.source_key) == ("ml-team", "saas-key", "token")
    assert (copy.namespace, copy.name, copy.key) == (TEAM, secret, "apiKey")
    rule = built("AIGatewayRoute", "chat")["spec"]["rules"][0]
    assert rule["backendRefs"] == [{"name": name, "weight": 1, "priority": 0, "modelNameOverride": "large"}]
    assert ("Certificate", TEAM, "inference-gateway-client") not in built.objects["hub"]


@pytest.mark.parametrize(
    ("spec", "address", "server", "prefix"),
    [
        ({"origin": "http://llm.example:8000"}, ("llm.example", 8000), "", "/v1"),
        ({"url": "https://llm.example/api/v2"}, ("llm.example", 443), "llm.example", "/api/v2"),
        ({"origin": "http://llm.example", "api": {"prefix": "/"}}, ("llm.example", 80), "", "/"),
        ({"url": "https://llm.example", "tls": {"serverName": "b.example"}}, ("llm.example", 443), "b.example", "/v1"),
    ],
)
def test_other_backends_are_reached_as_they_say(
    spec: Document, address: tuple[str, int], server: str, prefix: str
) -> None:
    built = build(fleet(service(provider_entry("own")), provider("own", **spec)))
    found = built("Backend", backend("own"))["spec"]
    assert found["endpoints"] == [{"fqdn": {"hostname": address[0], "port": address[1]}}]
    assert found.get("tls", {}).get("sni", "") == server
    assert built("AIServiceBackend", backend("own"))["spec"]["schema"]["prefix"] == prefix
    rule = built("AIGatewayRoute", "chat")["spec"]["rules"][0]
    assert "modelNameOverride" not in rule["backendRefs"][0]


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"url": "http://203.0.113.9:8000"}, "by DNS name only"),
        ({"url": "https://a.example", "tls": {"caCertificateRef": {"name": "own-ca"}}}, "remove tls.caCertificateRef"),
        ({"credential": {"apiKey": {"secretRef": {"name": "k"}, "header": "api-key"}}}, "leave header and prefix out"),
        ({"credential": {"apiKey": {"secretRef": {"name": "k"}, "prefix": "Token "}}}, "leave header and prefix out"),
    ],
)
def test_an_endpoint_that_the_gateway_cannot_use_is_left_out_with_the_reason(spec: Document, reason: str) -> None:
    built = build(fleet(service(entry(), provider_entry("own")), provider("own", **spec)))
    assert [name for name, *__ in references(built)] == [backend(EAST), backend(WEST)]
    assert reason in problems(built)["own"]


@pytest.mark.parametrize(
    ("spec", "removed"),
    [
        ({}, {"authorization", "x-api-key"}),
        ({"credential": KEY}, {"x-api-key"}),
        ({"credential": KEY, "api": {"schema": "Anthropic"}}, {"authorization"}),
    ],
)
def test_a_gateway_that_asks_for_no_keys_passes_none_on_to_providers(spec: Document, removed: set[str]) -> None:
    """The header of the provider's own key stays, as the gateway sets that itself."""
    asks_for_none = gateway()
    del asks_for_none["spec"]["auth"]
    documents = fleet(service(provider_entry("saas"), entry()), provider("saas", **spec))
    for eu, withheld in ((gateway(), set[str]()), (asks_for_none, removed)):
        built = build([eu, *documents[1:]])
        mutation = built("AIServiceBackend", backend("saas"))["spec"]["headerMutation"]
        assert {*mutation["remove"]} & {"authorization", "x-api-key"} == withheld
        assert len(mutation["remove"]) <= 16, "more are not valid"
        assert "headerMutation" not in built("AIServiceBackend", backend(EAST))["spec"]


def test_the_key_may_be_said_to_be_where_it_is_anyway() -> None:
    key = {**KEY["apiKey"], "header": "authorization", "prefix": "Bearer "}
    built = build(fleet(service(provider_entry("own")), provider("own", credential={"apiKey": key})))
    assert not problems(built)
    assert built("BackendSecurityPolicy", backend("own"))


def test_priorities_are_renumbered_and_weights_are_exact_in_each() -> None:
    entries = [
        entry(priority=3, weight=90),
        provider_entry("a", priority=3, weight=10),
        provider_entry("b", priority=9),
        provider_entry("c", priority=7, weight=5),
    ]
    built = build(fleet(service(*entries), provider("a"), provider("b"), provider("c")))
    assert references(built) == [
        (backend(EAST), 0, 9),
        (backend(WEST), 0, 9),
        (backend("a"), 0, 2),
        (backend("c"), 1, 1),
        (backend("b"), 2, 1),
    ]


def test_a_priority_without_a_usable_endpoint_leaves_no_gap() -> None:
    lost = cluster("east", "203.0.113.10", hostname="")
    built = build(
        fleet(
            service(entry(), provider_entry("a", priority=1)),
            provider("a"),
            east=lost,
            west=cluster("west", "203.0.113.11", caCertificate=""),
        )
    )
    assert references(built) == [(backend("a"), 0, 1)]
    assert problems(built) == {
        EAST: "cluster east has no hostname for gateways in mode Model yet",
        WEST: "the CA certificate of the gateway of cluster west is not known yet",
    }


@pytest.mark.parametrize(
    ("tiers", "retries"), [(1, 1), (2, None), (3, 5), (4, 7)], ids=["one", "as the gateway", "three", "four"]
)
def test_retries_reach_every_priority(tiers: int, retries: int | None) -> None:
    named = [f"p{index}" for index in range(tiers)]
    entries = [provider_entry(name, priority=index) for index, name in enumerate(named)]
    built = build(fleet(service(*entries), *map(provider, named)))
    policies = [value for value in built.of("BackendTrafficPolicy") if value["metadata"]["namespace"] == TEAM]
    if retries is None:
        assert policies == []
        return
    (policy,) = policies
    target = {"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "chat"}
    assert policy["spec"] == {
        "targetRefs": [target],
        "mergeType": "StrategicMerge",
        "retry": {"numRetries": retries},
    }


def test_a_service_without_a_usable_endpoint_has_no_route() -> None:
    built = build(fleet(service(provider_entry("own")), provider("own", url="http://203.0.113.9")))
    assert not [value for value in built.objects["hub"].values() if value["metadata"].get("namespace") == TEAM]
    (route,) = [value for value in built.plan.control if value["kind"] == "ModelRoute"]
    assert route["metadata"]["name"] == ROUTE


def test_a_gateway_serves_the_services_that_it_selects() -> None:
    selecting = gateway(serviceSelector={"matchLabels": {"tier": "gold"}})
    built = build(fleet(service(labels={"tier": "gold"}), service(name="other"), eu=selecting))
    assert [value["metadata"]["name"] for value in built.of("AIGatewayRoute")] == ["chat"]


def test_an_endpoint_belongs_to_the_first_entry_that_matches_it() -> None:
    built = build(fleet(service(entry(priority=1), entry(priority=0))))
    assert [priority for __, priority, __ in references(built)] == [0, 0]


def test_a_missing_key_takes_its_endpoint_out() -> None:
    documents = fleet(service(provider_entry("own")), provider("own", credential=KEY))
    known = {("ml-team", "saas-key"): frozenset({"token"})}
    assert references(build(documents, observed=Observed(secret_keys=known)))
    built = build(documents, observed=Observed(secret_keys={}))
    assert problems(built) == {"own": "Secret ml-team/saas-key is missing or has no key token"}


def test_the_plan_does_not_depend_on_the_order_of_manifests() -> None:
    documents = fleet(
        service(entry(), provider_entry("a", priority=1)), service(name="other"), provider("a"), provider("b")
    )
    assert build(documents).objects == build(documents[::-1]).objects


def test_a_fleet_without_a_gateway_in_mode_model_has_nothing_of_it() -> None:
    documents = [each for each in fleet(service()) if each["kind"] != "InferenceGateway"]
    built = build(documents)
    kinds: set[Any] = {value["kind"] for value in built.all()} | {value["kind"] for value in built.plan.control}
    assert not kinds & {"ModelRoute", "AIGatewayRoute", "Backend", "Certificate", "Gateway"}


def test_routes_whose_names_join_alike_are_two() -> None:
    gateways = gateway("west", cluster="west"), gateway("eu-west", cluster="hub")
    built = build(fleet(service(name="chat-eu"), service(), gateways[0], eu=gateways[1]))
    routes = [value["metadata"]["name"] for value in built.plan.control if value["kind"] == "ModelRoute"]
    assert len(set(routes)) == len(routes) == 4


def test_endpoints_of_files_keep_their_index() -> None:
    """A GitOps tool applies a build at once, so that no other endpoint may change its index."""
    members = [provider(name) for name in ("a", "b", "c", "d")]

    def built(*names: str, before: Built | None = None) -> Built:
        routes = [before("AIGatewayRoute", "chat")] if before else []
        entries = [provider_entry(name) for name in names]
        return build(
            fleet(service(*entries), *members),
            earlier=lambda ref: [("hub", route) for route in routes] if ref.kind == "ModelService" else [],
        )

    first = built("a", "b", "c")
    second = built("d", "a", "c", before=first)
    assert [(name, weight) for name, __, weight in references(second)] == [
        (backend("a"), 1),
        (backend("d"), 0),
        (backend("c"), 1),
        (backend("d"), 1),
    ]
    assert references(built("d", "a", "c", before=second)) == references(second)
    third = built("a", "c", before=second)
    assert [weight for __, __, weight in references(third)] == [1, 0, 1]
    assert {name for name, *__ in references(third)} == {backend("a"), backend("c")}
    assert references(built("a", before=third)) == [(backend("a"), 0, 1)]
    assert references(built("a", "c", before=third)) == references(third)
