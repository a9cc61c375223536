# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Objects of gateways in mode Model that the serving stack applies, as the fleet may not write them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.workload_gateway import (
    GatewayChoices,
    gateway_objects,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object
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
from ansible_collections.modelplane.fleet.tests.network_policies import Pod, may_send
from ansible_collections.modelplane.fleet.tests.schemas import check

GATEWAY = "inference-gateway"
OWNING = {
    "gateway.envoyproxy.io/owning-gateway-name": GATEWAY,
    "gateway.envoyproxy.io/owning-gateway-namespace": SYSTEM,
}
DEPLOYMENT = "spec.provider.kubernetes.envoyDeployment"
TLS = {"certificateRefs": [{"name": "eu-tls"}]}


def applied(**choices: Any) -> dict[tuple[str, str], Object]:
    found = gateway_objects(GatewayChoices(**choices))
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


def value(found: Any, path: str) -> Any:
    """A value in an object; numbers in the path count entries of lists."""
    for key in path.split("."):
        found = found[int(key)] if isinstance(found, list) else found[key]
    return found


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("spec.provider.kubernetes.envoyService.externalTrafficPolicy", "Cluster"),
        ("spec.mergeType", "StrategicMerge"),
        (f"{DEPLOYMENT}.replicas", 2),
        (
            f"{DEPLOYMENT}.patch",
            {
                "type": "StrategicMerge",
                "value": {
                    "spec": {"template": {"spec": {"dnsConfig": {"options": [{"name": "ndots", "value": "1"}]}}}}
                },
            },
        ),
        (
            f"{DEPLOYMENT}.pod.topologySpreadConstraints",
            [
                {
                    "maxSkew": 1,
                    "topologyKey": key,
                    "whenUnsatisfiable": "ScheduleAnyway",
                    "labelSelector": {"matchLabels": OWNING},
                }
                for key in ("kubernetes.io/hostname", "topology.kubernetes.io/zone")
            ],
        ),
        ("spec.provider.kubernetes.envoyPDB", {"maxUnavailable": 1}),
        ("spec.shutdown", {"drainTimeout": "300s"}),
        ("spec.telemetry.accessLog.settings.0.format.type", "JSON"),
        (
            "spec.telemetry.accessLog.settings.0.format.json",
            {
                "caller": "%DYNAMIC_METADATA(io.envoy.ai_gateway:caller)%",
                "subject": "%DYNAMIC_METADATA(io.envoy.ai_gateway:subject)%",
                "service": "%REQ(X-AI-EG-MODEL)%",
                "endpoint": "%DYNAMIC_METADATA(io.envoy.ai_gateway:ai_service_backend_name)%",
                "served_model": "%DYNAMIC_METADATA(io.envoy.ai_gateway:model_name_override)%",
                "response_model": "%DYNAMIC_METADATA(io.envoy.ai_gateway:response_model)%",
                "input_tokens": "%DYNAMIC_METADATA(io.envoy.ai_gateway:llm_input_token)%",
                "output_tokens": "%DYNAMIC_METADATA(io.envoy.ai_gateway:llm_output_token)%",
                "total_tokens": "%DYNAMIC_METADATA(io.envoy.ai_gateway:llm_total_token)%",
                "status": "%RESPONSE_CODE%",
                "duration_ms": "%DURATION%",
                "start_time": "%START_TIME%",
            },
        ),
        (
            "spec.telemetry.accessLog.settings.0.sinks",
            [{"type": "File", "file": {"path": "/dev/stdout"}}],
        ),
    ],
)
def test_the_values_are_those_of_the_reference(path: str, expected: Any) -> None:
    assert value(applied(model_gateway=True)["EnvoyProxy", f"{GATEWAY}-proxy"], path) == expected


def test_the_cluster_gateway_has_the_same_proxy_and_writes_no_usage_records() -> None:
    found = applied(model_gateway=True)
    assert applied(certificates=True)["EnvoyProxy", "cluster-gateway-proxy"] in found.values()
    proxies = [found["EnvoyProxy", f"{name}-proxy"]["spec"] for name in (GATEWAY, "cluster-gateway")]
    assert [each["provider"]["kubernetes"]["envoyService"].pop("name") for each in proxies] == [
        GATEWAY,
        "cluster-gateway",
    ]
    owning = [
        spread["labelSelector"].pop("matchLabels")
        for each in proxies
        for spread in value({"spec": each}, f"{DEPLOYMENT}.pod.topologySpreadConstraints")
    ]
    assert owning == [OWNING] * 2 + [{**OWNING, "gateway.envoyproxy.io/owning-gateway-name": "cluster-gateway"}] * 2
    proxies[0].pop("telemetry")
    assert proxies[0] == proxies[1]


@pytest.mark.parametrize("name", [GATEWAY, "cluster-gateway"])
def test_proxies_wait_longer_for_names_than_envoy_by_default(name: str) -> None:
    bootstrap = value(applied(model_gateway=True)["EnvoyProxy", f"{name}-proxy"], "spec.bootstrap")
    resolver = json.loads(bootstrap["value"])["typed_dns_resolver_config"]["typed_config"]
    assert bootstrap["type"] == "Merge"
    # A random part of each attempt but the first one, up to its half, is left out.
    assert 0.25 * (1 + sum(2**attempt for attempt in range(resolver["query_tries"] - 1))) >= 16


def test_names_without_an_address_are_resolved_again_soon() -> None:
    policies = [
        each
        for each in build(fleet()).all()
        if each["kind"] == "BackendTrafficPolicy" and each["spec"]["targetRefs"][0]["kind"] == "Gateway"
    ]
    found = {each["metadata"]["name"]: each["spec"].get("dns") for each in policies}
    often = {"dnsRefreshRate": "5s"}
    assert found == {f"{GATEWAY}-failover": often, "cluster-gateway": often}


@pytest.mark.parametrize("choices", [{"model_gateway": True}, {"certificates": True}])
def test_variables_of_the_cluster_win(choices: dict[str, Any]) -> None:
    own = {"provider": {"kubernetes": {"envoyPDB": {"maxUnavailable": 2}}}}
    found = applied(**choices, replicas=3, drain_timeout=1800, proxy=own)
    specs = [each["spec"] for (kind, name), each in found.items() if kind == "EnvoyProxy" and name.endswith("-proxy")]
    assert specs
    for spec in specs:
        assert spec["shutdown"]["drainTimeout"] == "1800s"
        assert spec["provider"]["kubernetes"]["envoyDeployment"]["replicas"] == 3
        assert spec["provider"]["kubernetes"]["envoyPDB"] == {"maxUnavailable": 2}


EGRESS = ("NetworkPolicy", f"{GATEWAY}-egress")
NAMESPACES = {name: {"kubernetes.io/metadata.name": name} for name in ("envoy-gateway-system", "kube-system", "mp-ml")}


def sends(target: Pod | str, port: int, *, of: str = GATEWAY, protocol: str = "TCP", hosts: Any = ()) -> bool:
    """Return whether a pod of a Gateway may connect to another pod, or to an address."""
    labels = {**OWNING, "gateway.envoyproxy.io/owning-gateway-name": of}
    proxy = Pod("proxy", "envoy-gateway-system", labels)
    network_policy = applied(model_gateway=True, endpoint_hosts=hosts)[EGRESS]
    check(network_policy)
    return may_send([network_policy], NAMESPACES, proxy, target, port, protocol)


@pytest.mark.parametrize("gateway_name", [GATEWAY, "cluster-gateway"])
@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254",
        "100.100.100.200",
        "127.0.0.1",
        "198.18.0.1",
        "255.255.255.255",
        "fd00:ec2::254",
        "fe80::1",
        "2001::1",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::a9fe:a9fe",
    ],
)
def test_proxies_reach_no_internal_address_whatever_a_name_resolves_to(gateway_name: str, address: str) -> None:
    assert not sends(address, 80, of=gateway_name)
    assert not sends(address, 443, of=gateway_name)


@pytest.mark.parametrize(
    ("target", "port", "protocol"),
    [
        ("203.0.113.5", 443, "TCP"),
        ("2606:4700::1111", 443, "TCP"),
        ("64:ff9b::808:808", 443, "TCP"),
        # Gateways of clusters, and what the operator has in the network.
        ("10.20.0.15", 443, "TCP"),
        ("192.168.1.10", 8000, "TCP"),
        ("fd00:1::1", 443, "TCP"),
        # Its own cluster: Envoy Gateway, rate limits, names, replicas, telemetry.
        (Pod("envoy-gateway", "envoy-gateway-system"), 18000, "TCP"),
        (Pod("envoy-ratelimit", "envoy-gateway-system"), 8081, "TCP"),
        (Pod("coredns", "kube-system"), 53, "UDP"),
        (Pod("engine", "mp-ml"), 8000, "TCP"),
        ("169.254.20.10", 53, "UDP"),
    ],
)
@pytest.mark.parametrize("gateway_name", [GATEWAY, "cluster-gateway"])
def test_proxies_reach_providers_and_their_own_cluster(
    gateway_name: str, target: Pod | str, port: int, protocol: str
) -> None:
    assert sends(target, port, of=gateway_name, protocol=protocol)


@pytest.mark.parametrize(
    ("entry", "address"),
    [("198.18.0.0/15", "198.18.4.1"), ("64:ff9b:1::/48", "64:ff9b:1::808:808"), ("240.1.0.0/16", "240.1.0.9")],
)
def test_proxies_reach_networks_that_the_operator_allows(entry: str, address: str) -> None:
    assert not sends(address, 443)
    assert sends(address, 443, hosts=[entry, "vllm.models.svc.cluster.local"])


def test_other_pods_of_envoy_gateway_are_not_restricted() -> None:
    assert sends("169.254.169.254", 80, of="another")
    spec = applied(model_gateway=True)[EGRESS]["spec"]
    assert spec["policyTypes"] == ["Egress"]


def spilling(own: dict[str, Any]) -> Built:
    """A fleet with a detour by the cluster gateway of the gateway's own cluster."""
    budgets = [{"name": "daily", "unit": "Requests", "limit": 9, "per": "Day", "whenSpent": "Overflow"}]
    chat = service(provider_entry("a"), provider_entry("b", priority=1))
    return build(fleet(chat, provider("a"), provider("b"), policy(budgets=budgets), eu=own))


@pytest.mark.parametrize("own", [gateway(), gateway(tls=TLS)], ids=["http", "https"])
def test_every_composed_gateway_has_its_proxy_and_every_listener_its_patches(own: dict[str, Any]) -> None:
    built = spilling(own)
    names = set()
    for cluster, choices in {"hub": {"model_gateway": True}, "east": {"certificates": True}}.items():
        known = applied(**choices)
        for each in built.of("Gateway", cluster):
            name = each["metadata"]["name"]
            assert ("EnvoyProxy", each["spec"]["infrastructure"]["parametersRef"]["name"]) in known
            for listener in each["spec"]["listeners"] if cluster == "hub" else ():
                policy_spec = known["EnvoyPatchPolicy", f"{name}-{listener['name']}"]["spec"]
                target = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": name}
                assert (policy_spec["type"], policy_spec["targetRef"]) == ("JSONPatch", target)
                assert {patch["name"] for patch in policy_spec["jsonPatches"]} == {
                    f"{SYSTEM}/{name}/{listener['name']}"
                }
                names.add((cluster, name))
    assert names == {("hub", GATEWAY), ("hub", "cluster-gateway")}
    assert not [each for each in built.all() if each["kind"] in ("EnvoyProxy", "EnvoyPatchPolicy")]


@pytest.mark.parametrize("listener", ["http", "https"])
def test_addresses_of_callers_are_hidden(listener: str) -> None:
    __, patch = applied(model_gateway=True)["EnvoyPatchPolicy", f"{GATEWAY}-{listener}"]["spec"]["jsonPatches"]
    assert patch["type"] == "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
    assert patch["operation"] == {
        "op": "add",
        "path": "/request_headers_to_remove",
        "value": ["x-envoy-external-address"],
    }


@pytest.mark.parametrize("choices", [{"model_gateway": True}, {"certificates": True}])
def test_api_servers_take_them(choices: dict[str, Any]) -> None:
    for each in applied(**choices).values():
        # The definitions of the AI gateway are in no package here.
        if each["kind"] != "GatewayConfig":
            check(each)


def test_clusters_that_no_gateway_in_mode_model_uses_have_none_of_it() -> None:
    assert [each for each, __ in applied()] == ["EnvoyProxy", "GatewayClass", "Gateway"]
