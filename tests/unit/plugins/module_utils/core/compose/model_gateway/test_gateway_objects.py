# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Objects that all services of a gateway in mode Model share, value by value."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core import observation
from ansible_collections.modelplane.fleet.tests import model_fleet
from ansible_collections.modelplane.fleet.tests.model_fleet import (
    SYSTEM,
    Built,
    build,
    cluster,
    fleet,
    gateway,
    provider,
    provider_entry,
    service,
)

GATEWAY = "inference-gateway"
TLS = {"certificateRefs": [{"name": "eu-tls"}, {"name": "other-tls"}]}
TARGET = [{"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": GATEWAY}]
ROUTES = {
    "namespaces": {
        "from": "Selector",
        "selector": {"matchExpressions": [{"key": "modelplane.ai/namespace", "operator": "Exists"}]},
    }
}
HTTP = {"name": "http", "protocol": "HTTP", "port": 80, "allowedRoutes": ROUTES}
CA = {
    "duration": "87600h",
    "renewBefore": "8760h",
    # Beside what the reference has: what it signed before it was renewed stays valid.
    "privateKey": {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Never"},
}


@pytest.fixture(scope="module")
def plain() -> Built:
    return build(fleet())


@pytest.fixture(scope="module")
def secure() -> Built:
    return build(fleet(eu=gateway(tls=TLS)))


def value(found: Any, path: str) -> Any:
    """A value in an object; numbers in the path count entries of lists."""
    for key in path.split("."):
        found = found[int(key)] if isinstance(found, list) else found[key]
    return found


@pytest.mark.parametrize(
    ("kind", "name", "path", "expected"),
    [
        ("Gateway", GATEWAY, "spec.gatewayClassName", "envoy"),
        (
            "Gateway",
            GATEWAY,
            "spec.infrastructure.parametersRef",
            {"group": "gateway.envoyproxy.io", "kind": "EnvoyProxy", "name": f"{GATEWAY}-proxy"},
        ),
        ("Gateway", GATEWAY, "spec.listeners", [HTTP]),
        ("SecurityPolicy", f"{GATEWAY}-callers", "spec.targetRefs", TARGET),
        (
            "SecurityPolicy",
            f"{GATEWAY}-callers",
            "spec.apiKeyAuth",
            {
                "credentialRefs": [{"group": "", "kind": "Secret", "name": f"{GATEWAY}-callers"}],
                "extractFrom": [{"headers": ["Authorization", "x-api-key"]}],
                "forwardClientIDHeader": "x-modelplane-caller",
                "sanitize": True,
            },
        ),
        ("BackendTrafficPolicy", f"{GATEWAY}-failover", "spec.targetRefs", TARGET),
        ("BackendTrafficPolicy", f"{GATEWAY}-failover", "spec.retry.numRetries", 3),
        ("BackendTrafficPolicy", f"{GATEWAY}-failover", "spec.retry.numAttemptsPerPriority", 2),
        (
            "BackendTrafficPolicy",
            f"{GATEWAY}-failover",
            "spec.retry.retryOn.triggers",
            ["connect-failure", "refused-stream", "reset", "retriable-status-codes"],
        ),
        (
            "BackendTrafficPolicy",
            f"{GATEWAY}-failover",
            "spec.retry.retryOn.httpStatusCodes",
            [429, 502, 503, 504, 529],
        ),
        (
            "BackendTrafficPolicy",
            f"{GATEWAY}-failover",
            "spec.healthCheck",
            {
                "passive": {
                    "baseEjectionTime": "30s",
                    "consecutive5XxErrors": 5,
                    "interval": "5s",
                    "maxEjectionPercent": 100,
                },
                "panicThreshold": 0,
            },
        ),
        ("ClientTrafficPolicy", f"{GATEWAY}-client-traffic", "spec.targetRefs", TARGET),
        ("ClientTrafficPolicy", f"{GATEWAY}-client-traffic", "spec.connection", {"bufferLimit": "50Mi"}),
        (
            "ClientTrafficPolicy",
            f"{GATEWAY}-client-traffic",
            "spec.headers.earlyRequestHeaders.set",
            [{"name": "accept-encoding", "value": "identity"}],
        ),
        (
            "ClientTrafficPolicy",
            f"{GATEWAY}-client-traffic",
            "spec.headers.earlyRequestHeaders.remove",
            [
                "x-modelplane-caller",
                "x-modelplane-service",
                "x-modelplane-endpoint",
                "x-ai-eg-model",
                "x-ai-eg-original-path",
                "x-ai-eg-internal-req-id",
            ],
        ),
        (
            "ClientTrafficPolicy",
            f"{GATEWAY}-client-traffic",
            "spec.http2",
            {"initialStreamWindowSize": "16Mi", "initialConnectionWindowSize": "24Mi"},
        ),
        ("HTTPRouteFilter", f"{GATEWAY}-healthz", "spec.directResponse.statusCode", 200),
        ("HTTPRouteFilter", f"{GATEWAY}-healthz", "spec.directResponse.contentType", "application/json"),
        (
            "HTTPRouteFilter",
            f"{GATEWAY}-healthz",
            "spec.directResponse.body",
            {"type": "Inline", "inline": '{"status":"ok"}'},
        ),
        ("HTTPRoute", f"{GATEWAY}-healthz", "spec.parentRefs.0.sectionName", "http"),
        (
            "HTTPRoute",
            f"{GATEWAY}-healthz",
            "spec.rules.0.matches",
            [{"path": {"type": "Exact", "value": "/healthz"}}],
        ),
        (
            "HTTPRoute",
            f"{GATEWAY}-healthz",
            "spec.rules.0.filters.0.extensionRef",
            {"group": "gateway.envoyproxy.io", "kind": "HTTPRouteFilter", "name": f"{GATEWAY}-healthz"},
        ),
        ("SecurityPolicy", f"{GATEWAY}-healthz-open", "spec.authorization", {"defaultAction": "Allow"}),
        ("Issuer", f"{GATEWAY}-selfsigned", "spec", {"selfSigned": {}}),
        (
            "Certificate",
            f"{GATEWAY}-ca",
            "spec",
            {
                "secretName": f"{GATEWAY}-ca",
                "secretTemplate": {"labels": {"app.kubernetes.io/managed-by": "modelplane.fleet"}},
                "isCA": True,
                "commonName": f"{GATEWAY}-eu",
                **CA,
                "issuerRef": {"group": "cert-manager.io", "kind": "Issuer", "name": f"{GATEWAY}-selfsigned"},
            },
        ),
    ],
)
def test_the_values_are_those_of_the_reference(plain: Built, kind: str, name: str, path: str, expected: Any) -> None:
    assert value(plain(kind, name, SYSTEM), path) == expected


def test_a_gateway_retries_the_status_codes_of_its_manifest() -> None:
    """Failed connections are always retried."""
    changed = gateway(failover={"statusCodes": [503, 500, 503]})
    policy = build(fleet(eu=changed))("BackendTrafficPolicy", f"{GATEWAY}-failover", SYSTEM)
    retried = policy["spec"]["retry"]["retryOn"]
    assert retried["httpStatusCodes"] == [500, 503]
    assert {"connect-failure", "reset"} < set(retried["triggers"])


def test_the_ca_signs_in_all_namespaces_and_its_certificate_is_copied(plain: Built) -> None:
    assert plain("ClusterIssuer", f"{GATEWAY}-ca", "")["spec"] == {"ca": {"secretName": f"{GATEWAY}-ca"}}
    assert plain("Bundle", f"{GATEWAY}-ca", "")["spec"] == {
        "sources": [{"secret": {"name": f"{GATEWAY}-ca", "key": "ca.crt"}}],
        "target": {
            "configMap": {"key": "ca.crt"},
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": SYSTEM}},
        },
    }


def test_its_own_namespace_has_the_label_by_which_its_listeners_take_routes(plain: Built) -> None:
    assert plain("Namespace", SYSTEM, "")["metadata"]["labels"]["modelplane.ai/namespace"] == SYSTEM


def test_a_gateway_without_auth_asks_for_no_keys() -> None:
    without = gateway()
    del without["spec"]["auth"]
    built = build(fleet(eu=without))
    assert [policy["metadata"]["name"] for policy in built.of("SecurityPolicy")] == [f"{GATEWAY}-healthz-open"]
    assert not built.plan.models.copies


def test_tls_ends_at_the_gateway_and_port_80_leads_to_it(plain: Built, secure: Built) -> None:
    names = ("eu-tls", "other-tls")
    references = [{"group": "", "kind": "Secret", "name": name} for name in names]
    tls = {"mode": "Terminate", "certificateRefs": references}
    https = {"name": "https", "protocol": "HTTPS", "port": 443, "tls": tls, "allowedRoutes": ROUTES}
    assert secure("Gateway", GATEWAY, SYSTEM)["spec"]["listeners"] == [HTTP, https]
    route = secure("HTTPRoute", f"{GATEWAY}-redirect", SYSTEM)["spec"]
    assert route["parentRefs"][0]["sectionName"] == "http"
    assert route["rules"] == [
        {
            "matches": [{"path": {"type": "PathPrefix", "value": "/"}}],
            "filters": [{"type": "RequestRedirect", "requestRedirect": {"scheme": "https", "statusCode": 301}}],
        }
    ]
    assert ("HTTPRoute", SYSTEM, f"{GATEWAY}-redirect") not in plain.objects["hub"]


def test_secrets_are_named_and_never_contained(secure: Built) -> None:
    copies = [(cluster, copy) for cluster, copy in secure.plan.models.copies]
    named = [
        (cluster, copy.source_namespace, copy.source_name, copy.source_key, copy.name, copy.key, copy.type)
        for cluster, copy in copies
        if not copy.labels
    ]
    tls = "kubernetes.io/tls"
    assert named == [
        ("hub", SYSTEM, name, key, name, key, tls) for name in ("eu-tls", "other-tls") for key in ("tls.crt", "tls.key")
    ]
    (callers,) = [copy for __, copy in copies if copy.labels]
    assert (callers.namespace, callers.name) == (SYSTEM, f"{GATEWAY}-callers")
    assert callers.labels == (("modelplane.ai/keys", "eu"),)
    assert not [value for value in secure.all() if value["kind"] == "Secret"]


def test_copies_of_secrets_stay_with_what_they_are_for() -> None:
    credential = {"apiKey": {"secretRef": {"name": "saas"}}}
    built = build(fleet(service(provider_entry("a")), provider("a", credential=credential)))
    callers, key = (dict(copy.owner) for __, copy in built.plan.models.copies)
    assert callers.items() >= {"modelplane.ai/gateway": "eu", "modelplane.ai/cluster": "hub"}.items()
    of_service = {"modelplane.ai/service": "chat", "modelplane.ai/namespace": "ml-team"}
    assert key.items() >= {**of_service, "modelplane.ai/gateway": "eu", "modelplane.ai/cluster": "hub"}.items()


def test_everything_is_labelled_so_that_it_is_pruned(secure: Built) -> None:
    for found in secure.all():
        assert found["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "modelplane.fleet", found


def test_a_second_gateway_of_a_cluster_is_not_composed_and_stops_nothing() -> None:
    built = build(fleet(gateway("us")))
    assert built.plan.models.refused == {"us": "cluster hub has InferenceGateway eu already: name another cluster"}
    assert built("Gateway", GATEWAY, SYSTEM)["metadata"]["labels"]["modelplane.ai/gateway"] == "eu"


def test_gateways_of_two_clusters_serve_side_by_side() -> None:
    second = model_fleet.document("InferenceCluster", "hub-us", cluster("hub-us")["spec"])
    built = build(fleet(model_fleet.service(), gateway("us", "hub-us"), second))
    for name in ("hub", "hub-us"):
        assert built("Gateway", GATEWAY, SYSTEM, name)
        assert built("AIGatewayRoute", "chat", cluster=name)
    routes = [value["spec"] for value in built.plan.control if value["kind"] == "ModelRoute"]
    assert [(route["gatewayName"], route["serviceName"]) for route in routes] == [("eu", "chat"), ("us", "chat")]


def test_labels_of_secrets_with_keys_are_observed_and_their_values_are_not() -> None:
    entry = {"namespace": SYSTEM, "name": "keys", "keys": ["alice"], "labels": {"team": "a"}}
    observed = observation.parse({"control": {"secrets": [entry]}, "clusters": {}})
    assert observed.secret_labels == {(SYSTEM, "keys"): {"team": "a"}}
    assert observation.wire(observed)["control"]["secrets"] == [entry]
