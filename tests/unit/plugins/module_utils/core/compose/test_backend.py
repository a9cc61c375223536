# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Tests of how the control gateway reaches a ModelEndpoint."""

from __future__ import annotations

import re
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.backend import (
    backend_name,
    model_mode_obstacle,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.endpoint_url import (
    InvalidUrl,
    Target,
    parse_url,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.options import Options
from ansible_collections.modelplane.fleet.tests.schemas import KUBERNETES_VERSIONS, check
from ansible_collections.modelplane.fleet.tests.written import (
    backend_host,
    backend_reference,
    endpoint_objects,
    endpoint_problem,
    parsed,
)
from hypothesis import given
from hypothesis import strategies as st

Object = dict[str, Any]


def endpoint(url: str, name: str = "together", **spec: Any) -> Object:
    return {"metadata": {"name": name, "namespace": "ml-team"}, "spec": {"url": url, **spec}}


def url_finding(url: str) -> str:
    try:
        parse_url(url)
    except InvalidUrl as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("url", "target", "authority"),
    [
        ("http://203.0.113.10/ml-team/r/v1", Target("http", "203.0.113.10", 80, "IPv4"), "203.0.113.10"),
        ("https://api.together.xyz", Target("https", "api.together.xyz", 443, "FQDN"), "api.together.xyz"),
        ("https://API.Together.xyz./v1", Target("https", "api.together.xyz", 443, "FQDN"), "api.together.xyz"),
        ("HTTPS://a.example:8443", Target("https", "a.example", 8443, "FQDN"), "a.example:8443"),
        ("http://a.example:443/", Target("http", "a.example", 443, "FQDN"), "a.example:443"),
        ("http://[2001:db8::10]:8000", Target("http", "2001:db8::10", 8000, "IPv6"), "[2001:db8::10]:8000"),
        ("http://[2001:DB8:0:0::10]", Target("http", "2001:db8::10", 80, "IPv6"), "[2001:db8::10]"),
        ("http://xn--bcher-kva.example", Target("http", "xn--bcher-kva.example", 80, "FQDN"), "xn--bcher-kva.example"),
    ],
)
def test_targets(url: str, target: Target, authority: str) -> None:
    assert parse_url(url) == target
    assert target.authority == authority
    assert url_finding(url) == ""


@pytest.mark.parametrize(
    ("url", "finding"),
    [
        ("", "neither http:// nor https://"),
        ("api.together.xyz", "neither http:// nor https://"),
        ("ftp://a.example", "neither http:// nor https://"),
        ("a.example:8000", "neither http:// nor https://"),
        ("http://", "no host"),
        ("http:///v1", "no host"),
        ("http://:80", "no host"),
        ("http://a.example:port", "the port of the url"),
        ("http://a.example:0", "the port of the url"),
        ("http://a.example:65536", "the port of the url"),
        ("http://[2001:db8::10", "not a valid one"),
        ("http://[v1.x]", "brackets"),
        ("http://[fe80::1%25eth0]", "zone"),
        ("http://user:hunter2@a.example", "user name or password"),
        ("http://a b.example", "spaces"),
        ("http://a.example\n", "spaces"),
        ("http://a_b.example", "is neither a DNS name nor"),
        ("http://-a.example", "is neither a DNS name nor"),
        ("http://a..example", "is neither a DNS name nor"),
        ("http://" + "a" * 64 + ".example", "is neither a DNS name nor"),
        ("http://" + "a." * 127 + "example", "is neither a DNS name nor"),
        ("http://bücher.example", "xn--"),
        ("http://256.1.1.1", "is not a valid IP address"),
        ("http://1.2.3", "is not a valid IP address"),
        ("http://vllm", "has no domain"),
        ("http://127.0.0.1:8000", "is a loopback or unspecified address"),
        ("http://[::1]:8000", "is a loopback or unspecified address"),
        ("http://0.0.0.0", "is a loopback or unspecified address"),
        ("http://169.254.169.254", "one network link"),
        ("http://[fe80::1]", "one network link"),
        ("http://224.0.0.1", "multicast"),
    ],
)
def test_findings_of_urls(url: str, finding: str) -> None:
    assert finding in url_finding(url)
    if url:  # the schema refuses none at all
        assert endpoint_problem(endpoint(url)) == url_finding(url)
        assert endpoint_objects(endpoint(url), Options()) == ()


def test_a_password_in_a_url_is_never_reported() -> None:
    assert "hunter2" not in url_finding("http://user:hunter2@a.example")


@given(st.text() | st.from_regex(r"https?://[-\[\]:.@%a-zA-Z0-9/ ]*"))
def test_any_text_is_a_target_or_an_error(url: str) -> None:
    if finding := url_finding(url):
        with pytest.raises(InvalidUrl, match=re.escape(finding)):
            parse_url(url)
        return
    target = parse_url(url)
    for value in endpoint_objects(endpoint(f"{target.scheme}://{target.authority}"), Options()):
        check(value)


@pytest.mark.parametrize(
    ("url", "address_type", "port"),
    [
        ("http://203.0.113.10/x", "IPv4", {"port": 80, "protocol": "TCP"}),
        ("http://[2001:db8::10]:8000", "IPv6", {"port": 8000, "protocol": "TCP"}),
        ("http://llm.example.com", "FQDN", {"port": 80, "protocol": "TCP"}),
        # Gateways take port 443 for TLS by default.
        ("http://llm.example.com:443", "FQDN", {"port": 443, "protocol": "TCP", "appProtocol": "http"}),
    ],
)
def test_service_and_slice(url: str, address_type: str, port: Object) -> None:
    service, slices = endpoint_objects(endpoint(url), Options())
    labels = {
        "app.kubernetes.io/managed-by": "modelplane.fleet",
        "modelplane.ai/namespace": "ml-team",
        "modelplane.ai/endpoint": "together",
    }
    assert service["metadata"] == {"name": backend_name("together"), "namespace": "ml-team", "labels": labels}
    assert service["spec"] == {"ports": [port]}
    assert slices["metadata"] == {
        "name": {
            "IPv4": "together-endpoint-9bedc",
            "IPv6": "together-endpoint-9bedc-ipv6-2e808",
            "FQDN": "together-endpoint-9bedc-fqdn-5e301",
        }[address_type],
        "namespace": "ml-team",
        "labels": {
            **labels,
            "kubernetes.io/service-name": backend_name("together"),
            "endpointslice.kubernetes.io/managed-by": "modelplane.fleet",
        },
    }
    assert slices["addressType"] == address_type
    assert slices["ports"] == [{"name": "", "port": port["port"], "protocol": "TCP"}]
    assert slices["endpoints"] == [{"addresses": [parse_url(url).host], "conditions": {"ready": True}}]
    assert backend_reference(endpoint(url)) == (backend_name("together"), port["port"])


def test_h6_an_ipv6_address_is_reached_without_its_brackets() -> None:
    slices = endpoint_objects(endpoint("http://[2001:db8::10]/ml-team/r/v1"), Options())[1]
    assert (slices["addressType"], slices["endpoints"][0]["addresses"]) == ("IPv6", ["2001:db8::10"])


@pytest.mark.parametrize(
    ("url", "tls", "validation"),
    [
        ("https://api.together.xyz", None, {"hostname": "api.together.xyz", "wellKnownCACertificates": "System"}),
        (
            "https://203.0.113.5:9443",
            {"serverName": "inside.example.com", "caCertificateRef": {"name": "roots"}},
            {
                "hostname": "inside.example.com",
                "caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "roots"}],
            },
        ),
    ],
)
def test_tls_is_originated_for_https(url: str, tls: Object | None, validation: Object) -> None:
    wire = endpoint(url, **({"tls": tls} if tls else {}))
    service, _slice, policy = endpoint_objects(wire, Options())
    assert policy["kind"] == "BackendTLSPolicy"
    assert policy["spec"] == {
        "targetRefs": [{"group": "", "kind": "Service", "name": service["metadata"]["name"]}],
        "validation": validation,
    }


def test_https_to_an_address_needs_a_name_to_check() -> None:
    wire = endpoint("https://203.0.113.5")
    assert "tls.serverName" in endpoint_problem(wire)
    assert endpoint_objects(wire, Options()) == ()
    assert endpoint_problem(endpoint("https://203.0.113.5", tls={"serverName": "a.example"})) == ""


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://api.together.xyz:8443/v1", "api.together.xyz"),
        ("http://203.0.113.10", ""),
        ("http://[2001:db8::1]", ""),
    ],
)
def test_the_host_is_rewritten_for_names(url: str, host: str) -> None:
    assert backend_host(endpoint(url)) == host


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"tls": {"serverName": "a.example.com"}},
        {"credential": {"apiKey": {"secretRef": {"name": "key"}, "header": "api-key"}}},
    ],
)
def test_an_origin_is_reached_as_the_url_without_a_path(spec: Object) -> None:
    for url in (
        "https://api.example.com",
        "https://api.example.com:8443",
        *(["http://a.example.com"] if not spec else []),
    ):
        written = {"metadata": {"name": "e", "namespace": "ml-team"}, "spec": {"origin": url, **spec}}
        assert endpoint_problem(written) == ""
        assert endpoint_objects(written, Options()) == endpoint_objects(endpoint(url, "e", **spec), Options())
        assert (backend_reference(written), backend_host(written)) == (
            backend_reference(endpoint(url, "e", **spec)),
            backend_host(endpoint(url, "e", **spec)),
        )


@pytest.mark.parametrize(
    ("spec", "prefix", "path"),
    [
        ({"origin": "https://a.example"}, "/v1", "/"),
        ({"origin": "https://a.example", "api": {"prefix": "/openai/v1/"}}, "/openai/v1", "/openai/"),
        ({"origin": "https://a.example", "api": {"prefix": "/v1beta/openai"}}, "/v1beta/openai", "/v1beta/openai/"),
        ({"origin": "https://a.example", "api": {"prefix": "/"}}, "", "/"),
        ({"origin": "https://a.example", "api": {"schema": "Anthropic"}, "rewritePath": "/x/"}, "/v1", "/x/"),
        ({"url": "https://a.example"}, "/v1", None),
        ({"url": "https://a.example/openai/v1/"}, "/openai/v1", None),
        ({"url": "https://a.example/openai", "api": {"prefix": "/v2"}, "rewritePath": "/y/"}, "/v2", "/y/"),
        ({"url": "https://[a"}, "/v1", None),
    ],
)
def test_the_paths_of_the_api(spec: Object, prefix: str, path: str | None) -> None:
    found = parsed({"metadata": {"name": "e"}, "spec": spec}, api.ModelEndpoint).spec
    assert (found.prefix, found.path) == (prefix, path)


def test_what_a_gateway_in_mode_model_cannot_use_names_the_field() -> None:
    key = {"apiKey": {"secretRef": {"name": "key"}, "header": "api-key"}}
    specs: dict[str, Object] = {
        "": {"origin": "https://a.example", "api": {"schema": "Anthropic"}, "model": "m"},
        "url": {"url": "https://203.0.113.9", "tls": {"serverName": "a.example"}},
        "origin": {"origin": "https://localhost"},
        "tls.caCertificateRef": {"url": "https://a.example", "tls": {"caCertificateRef": {"name": "ca"}}},
        "credential.apiKey": {"origin": "https://a.example", "credential": key},
    }
    found = {}
    for field, spec in specs.items():
        obstacle = model_mode_obstacle(parsed({"metadata": {"name": "e"}, "spec": spec}, api.ModelEndpoint))
        found[field] = obstacle.field if obstacle else ""
    assert found == {field: field for field in specs}


def test_an_endpoint_with_a_credential_has_another_service() -> None:
    wire = endpoint("https://api.together.xyz", credential={"apiKey": {"secretRef": {"name": "key"}}})
    assert backend_reference(wire) == (backend_name("together", egress=True), 80)
    assert backend_host(wire) == ""
    names = {value["metadata"]["name"] for value in endpoint_objects(wire, Options())}
    assert names == {backend_name("together", egress=True)} != {backend_name("together")}


@pytest.mark.parametrize(
    "name", ["a", "qwen3-8b-6e732e38e8", "x" * 63, "gpt-4.1", "1st", "a" * 60 + ".b", "z." * 100 + "z"]
)
@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
def test_objects_are_valid_for_any_name(name: str, version: str) -> None:
    credential = {"apiKey": {"secretRef": {"name": "key"}}}
    tls = {"serverName": "a.example.com", "caCertificateRef": {"name": "roots"}}
    for spec in ({}, {"tls": tls}, {"credential": credential}, {"credential": credential, "tls": tls}):
        composed = endpoint_objects(endpoint("https://a.example.com:8443", name, **spec), Options())
        assert composed
        for value in composed:
            check(value, version)
            assert len(value["metadata"]["name"]) <= 63
            assert "." not in value["metadata"]["name"]
            assert value["metadata"]["name"][0].isalpha()
