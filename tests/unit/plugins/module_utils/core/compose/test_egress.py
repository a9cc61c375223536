# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The proxy that adds a credential to requests for an endpoint."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.options import Options
from ansible_collections.modelplane.fleet.tests.network_policies import Pod, may_send
from ansible_collections.modelplane.fleet.tests.schemas import check
from ansible_collections.modelplane.fleet.tests.written import endpoint_objects

Object = dict[str, Any]


def endpoint(url: str = "https://api.together.xyz", tls: Object | None = None, **api_key: Any) -> Object:
    credential = {"apiKey": {"secretRef": {"name": "together-key"}, **api_key}}
    spec = {"url": url, "credential": credential, **({"tls": tls} if tls else {})}
    return {"metadata": {"name": "together", "namespace": "ml-team"}, "spec": spec}


def composed(wire: Object, **options: Any) -> dict[str, Object]:
    return {value["kind"]: value for value in endpoint_objects(wire, Options(**options))}


def pod(objects: dict[str, Object]) -> Object:
    return objects["Deployment"]["spec"]["template"]["spec"]


def config(objects: dict[str, Object], name: str = "envoy.yaml") -> Object:
    return yaml.safe_load(objects["ConfigMap"]["data"][name])


def manager(objects: dict[str, Object]) -> Object:
    (listener,) = config(objects)["static_resources"]["listeners"]
    return listener["filter_chains"][0]["filters"][0]["typed_config"]


def injector(objects: dict[str, Object]) -> Object:
    filters = {each["name"]: each["typed_config"] for each in manager(objects)["http_filters"]}
    return filters["envoy.filters.http.credential_injector"]


def virtual_host(objects: dict[str, Object]) -> Object:
    (host,) = manager(objects)["route_config"]["virtual_hosts"]
    return host


def upstream(objects: dict[str, Object]) -> Object:
    (cluster,) = config(objects)["static_resources"]["clusters"]
    return cluster


def test_objects_have_one_name_and_find_the_same_pods() -> None:
    objects = composed(endpoint())
    assert list(objects) == ["ConfigMap", "Deployment", "PodDisruptionBudget", "NetworkPolicy", "Service"]
    assert len({value["metadata"]["name"] for value in objects.values()}) == 1
    name = objects["Service"]["metadata"]["name"]
    labels = objects["Deployment"]["spec"]["template"]["metadata"]["labels"]
    selectors = [
        objects["Service"]["spec"]["selector"],
        objects["Deployment"]["spec"]["selector"]["matchLabels"],
        objects["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
        objects["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"],
    ]
    assert selectors == [{"app": name}] * 4
    assert labels["app"] == name
    assert "app.kubernetes.io/managed-by" not in labels


def test_two_pods_without_rights() -> None:
    objects = composed(endpoint(), egress_image="registry.example.com/envoy:1")
    spec = pod(objects)
    (container,) = spec["containers"]
    assert objects["Deployment"]["spec"]["replicas"] == 2
    assert container["image"] == "registry.example.com/envoy:1"
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"requests", "limits"} <= container["resources"].keys()
    assert container["readinessProbe"]["httpGet"]["path"] in json.dumps(manager(objects))


def test_ready_is_who_has_a_key() -> None:
    """Probes pass the filter that refuses what it cannot add the key to, and are answered behind it."""
    objects = composed(endpoint())
    ready, rest = virtual_host(objects)["routes"]
    names = [each["name"] for each in manager(objects)["http_filters"]]
    assert names == ["envoy.filters.http.credential_injector", "envoy.filters.http.router"]
    assert ready == {"match": {"path": "/.modelplane-egress-ready"}, "direct_response": {"status": 200}}
    assert rest["match"] == {"prefix": "/"}


def test_nothing_of_the_network_inside_is_sent_on() -> None:
    removed = set(virtual_host(composed(endpoint()))["request_headers_to_remove"])
    forwarded = {f"x-forwarded-{each}" for each in ("for", "host", "port", "proto", "server")}
    assert removed >= forwarded | {"forwarded", "x-real-ip", "x-request-id"}


def test_the_newest_tls_is_spoken() -> None:
    context = upstream(composed(endpoint()))["transport_socket"]["typed_config"]["common_tls_context"]
    assert context["tls_params"] == {"tls_maximum_protocol_version": "TLSv1_3"}


def test_streams_may_end_before_a_pod_goes() -> None:
    spec = pod(composed(endpoint()))
    pause = spec["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert spec["terminationGracePeriodSeconds"] > pause >= 300


def test_only_the_gateway_may_use_the_credential() -> None:
    spec = composed(endpoint())["NetworkPolicy"]["spec"]
    assert "Ingress" in spec["policyTypes"]
    (rule,) = spec["ingress"]
    labels = {"kubernetes.io/metadata.name": "traefik-system"}
    assert rule["from"] == [{"namespaceSelector": {"matchLabels": labels}}]


@pytest.mark.parametrize(
    ("address", "port", "let"),
    [
        ("203.0.113.5", 443, True),
        ("10.20.0.15", 8443, True),
        ("2001:db8::1", 443, True),
        ("169.254.169.254", 80, False),
        ("100.100.100.200", 80, False),
        ("fd00:ec2::254", 80, False),
        ("10.96.0.10", 53, True),
        # The cache of names on the node.
        ("169.254.20.10", 53, True),
    ],
)
def test_a_proxy_reaches_no_metadata_service_whatever_its_name_resolves_to(address: str, port: int, let: bool) -> None:
    policy = composed(endpoint())["NetworkPolicy"]
    check(policy)
    proxy = Pod("proxy", policy["metadata"]["namespace"], policy["spec"]["podSelector"]["matchLabels"])
    assert may_send([policy], {}, proxy, address, port) is let


def test_a_proxy_reaches_what_was_allowed_inside() -> None:
    policy = composed(endpoint("http://vllm.models.svc.cluster.local:8000"))["NetworkPolicy"]
    check(policy)
    assert policy["spec"]["policyTypes"] == ["Ingress"]


@pytest.mark.parametrize(
    ("api_key", "header", "prefix"),
    [
        ({}, "Authorization", "Bearer "),
        ({"header": "authorization"}, "authorization", "Bearer "),
        ({"header": "x-api-key"}, "x-api-key", None),
        ({"header": "x-api-key", "prefix": "Key "}, "x-api-key", "Key "),
        ({"prefix": ""}, "Authorization", None),
        ({"prefix": "Basic "}, "Authorization", "Basic "),
    ],
)
def test_the_header(api_key: Object, header: str, prefix: str | None) -> None:
    objects = composed(endpoint(**api_key))
    generic = injector(objects)["credential"]["typed_config"]
    assert (generic["header"], generic.get("header_value_prefix")) == (header, prefix)
    assert injector(objects)["overwrite"] is True
    assert injector(objects)["allow_request_without_credential"] is False


@pytest.mark.parametrize(
    ("api_key", "header", "prefix"),
    [
        ({}, "x-api-key", None),
        ({"header": "Authorization"}, "Authorization", "Bearer "),
        ({"prefix": "k "}, "x-api-key", "k "),
    ],
)
def test_the_header_of_the_api_of_anthropic(api_key: Object, header: str, prefix: str | None) -> None:
    written = endpoint(**api_key)
    written["spec"]["api"] = {"schema": "Anthropic"}
    generic = injector(composed(written))["credential"]["typed_config"]
    assert (generic["header"], generic.get("header_value_prefix")) == (header, prefix)


@pytest.mark.parametrize("header", ["Authorization", "X-Api-Key", "x-team-key"])
def test_the_callers_credentials_are_dropped(header: str) -> None:
    """All but the header that is overwritten: headers are removed after it is set."""
    removed = set(virtual_host(composed(endpoint(header=header)))["request_headers_to_remove"])
    known = {"authorization", "proxy-authorization", "cookie", "x-api-key", "api-key", "x-goog-api-key"}
    assert removed >= known - {header.lower()}
    assert header.lower() not in removed


def test_the_key_is_read_from_the_mounted_secret() -> None:
    objects = composed(endpoint(secretRef={"name": "together-key", "key": "token"}))
    volumes = {volume["name"]: volume for volume in pod(objects)["volumes"]}
    mounts = {mount["name"]: mount for mount in pod(objects)["containers"][0]["volumeMounts"]}
    assert volumes["key"]["secret"]["secretName"] == "together-key"
    (item,) = volumes["key"]["secret"]["items"]
    assert item["key"] == "token"
    (resource,) = config(objects, "credential.yaml")["resources"]
    assert resource["generic_secret"]["secret"] == {"filename": f"{mounts['key']['mountPath']}/{item['path']}"}
    # A subPath would never follow the Secret.
    assert all("subPath" not in mount and mount["readOnly"] for mount in mounts.values())


def test_the_default_key() -> None:
    (volume,) = [volume for volume in pod(composed(endpoint()))["volumes"] if "secret" in volume]
    assert volume["secret"]["items"][0]["key"] == "apiKey"


def test_nothing_cuts_a_stream() -> None:
    objects = composed(endpoint())
    _ready, route = virtual_host(objects)["routes"]
    assert (route["route"]["timeout"], route["route"]["idle_timeout"]) == ("0s", "0s")
    assert manager(objects)["stream_idle_timeout"] == manager(objects)["request_timeout"] == "0s"
    (threshold,) = upstream(objects)["circuit_breakers"]["thresholds"]
    assert threshold["max_requests"] > 10_000


@pytest.mark.parametrize(
    ("url", "tls", "name", "authority", "kind"),
    [
        ("https://api.together.xyz", None, "api.together.xyz", "api.together.xyz", "LOGICAL_DNS"),
        ("https://api.together.xyz:8443", None, "api.together.xyz", "api.together.xyz:8443", "LOGICAL_DNS"),
        ("https://203.0.113.5", {"serverName": "a.example"}, "a.example", "203.0.113.5", "STATIC"),
        ("http://llm.example.com", None, None, "llm.example.com", "LOGICAL_DNS"),
    ],
)
def test_host_and_tls(url: str, tls: Object | None, name: str | None, authority: str, kind: str) -> None:
    objects = composed(endpoint(url, tls))
    _ready, route = virtual_host(objects)["routes"]
    assert route["route"]["host_rewrite_literal"] == authority
    assert upstream(objects)["type"] == kind
    if name is None:
        assert "transport_socket" not in upstream(objects)
        return
    context = upstream(objects)["transport_socket"]["typed_config"]
    validation = context["common_tls_context"]["combined_validation_context"]["default_validation_context"]
    assert context["sni"] == name
    assert validation["match_typed_subject_alt_names"] == [{"san_type": "DNS", "matcher": {"exact": name}}]


@pytest.mark.parametrize(
    ("tls", "filename", "mounted"),
    [
        (None, "/etc/ssl/certs/ca-certificates.crt", False),
        ({"caCertificateRef": {"name": "roots"}}, "/etc/egress/ca/ca.crt", True),
    ],
)
def test_authorities(tls: Object | None, filename: str, mounted: bool) -> None:
    objects = composed(endpoint(tls=tls))
    (resource,) = config(objects, "authorities.yaml")["resources"]
    assert resource["validation_context"]["trusted_ca"] == {"filename": filename}
    assert ("ca" in {volume["name"] for volume in pod(objects)["volumes"]}) == mounted


def test_a_changed_configuration_restarts_the_pods() -> None:
    def checksum(wire: Object) -> str:
        template = composed(wire)["Deployment"]["spec"]["template"]
        return str(template["metadata"]["annotations"]["modelplane.ai/egress-config-checksum"])

    assert checksum(endpoint()) == checksum(endpoint())
    assert checksum(endpoint()) != checksum(endpoint("https://api.together.ai"))
