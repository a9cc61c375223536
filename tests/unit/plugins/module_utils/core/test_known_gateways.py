# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Status of gateways in manifests, which becomes part of objects."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.load import Loaded, Source, load

NO_CERTIFICATE = "has BEGIN CERTIFICATE and END CERTIFICATE, but no certificate between them"


def pem(text: str) -> str:
    return f"-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n"


LONG = base64.encodebytes(b"\x30\x82\x01\x00" + bytes(256)).decode()
PEM = pem("MAIF\nAA==")
KEY = "-----BEGIN PRIVATE KEY-----\nplanted\n-----END PRIVATE KEY-----\n"
CLUSTER = {
    "apiVersion": "modelplane.ai/v1alpha1",
    "kind": "InferenceCluster",
    "metadata": {"name": "east"},
    "spec": {"cluster": {"source": "Existing", "existing": {"secretRef": {"name": "east"}}}},
}
GATEWAY = {
    "apiVersion": "modelplane.ai/v1alpha1",
    "kind": "InferenceGateway",
    "metadata": {"name": "edge"},
    "spec": {"clusterName": "east"},
}


def loaded(gateway: dict[str, Any], cluster: dict[str, Any]) -> Loaded:
    documents = [{**GATEWAY, "status": gateway}, {**CLUSTER, "status": {"gateway": cluster}}]
    return load([Source("fleet.yaml", "---\n".join(f"{json.dumps(each)}\n" for each in documents).encode())])


@pytest.mark.parametrize(
    ("gateway", "cluster", "path", "says"),
    [
        ({"address": "<b>x</b>"}, {}, "status.address", "an address or a DNS name"),
        ({"address": "203.0.113.9\n"}, {}, "status.address", "an address or a DNS name"),
        ({"clientCACertificate": "none"}, {}, "status.clientCACertificate", "certificates (PEM) and nothing else"),
        ({}, {"address": "{{ 7 * 7 }}"}, "status.gateway.address", "an address or a DNS name"),
        ({}, {"internalAddress": "a b"}, "status.gateway.internalAddress", "an address or a DNS name"),
        ({}, {"hostname": "{{ 7 * 7 }}"}, "status.gateway.hostname", "a DNS name"),
        ({}, {"caCertificate": f"{PEM}{KEY}"}, "status.gateway.caCertificate", "certificates (PEM) and nothing else"),
    ],
)
def test_it_must_be_what_it_is_for(gateway: dict[str, Any], cluster: dict[str, Any], path: str, says: str) -> None:
    [problem] = loaded(gateway, cluster).errors
    assert (problem.path, problem.message) == (path, f"must be {says}")
    assert problem.hint
    assert "planted" not in str(problem)


@pytest.mark.parametrize(
    "text",
    ["bm90IGEgY2VydA==", "planted", "MAIF", "MAIFAAA=", "AAA=", "MA==", "MIIB", LONG[:-8], "MIIB\nAA==", f"{LONG}AAAA"],
)
def test_armour_without_a_certificate(text: str) -> None:
    client, cluster = loaded({"clientCACertificate": pem(text)}, {"caCertificate": f"{PEM}{pem(text)}"}).errors
    assert {client.message, cluster.message} == {NO_CERTIFICATE}
    assert "ConfigMap modelplane-system/inference-gateway-ca on cluster east" in client.hint
    assert "ConfigMap modelplane-system/cluster-gateway-ca on cluster east" in cluster.hint
    assert "planted" not in str(client)


@pytest.mark.parametrize("text", [PEM, f"{PEM}{pem(LONG)}", f"\n{pem(LONG)}\n"])
def test_certificates(text: str) -> None:
    assert not loaded({"clientCACertificate": text}, {"caCertificate": text}).errors


@pytest.mark.parametrize("address", ["https://me:planted@gw.example", "me:planted@gw.example", "https://me:pl/anted@a"])
def test_a_password_is_not_repeated(address: str) -> None:
    for gateway, cluster in (
        ({"address": address}, {}),
        ({}, {"address": address}),
        ({}, {"internalAddress": address}),
    ):
        [problem] = loaded(gateway, cluster).errors
        assert (problem.message, problem.value) == ("must be an address or a DNS name", "")
        assert "anted" not in str(problem)


@pytest.mark.parametrize("url", ["https://me:planted@gw.example/v1", "https://gw.example/?api_key=planted"])
def test_a_url_has_no_password(url: str) -> None:
    [problem] = loaded({}, {"address": "gw.example", "url": url}).errors
    assert (problem.path, problem.message) == ("status.gateway.url", "must have no password and no key in it")
    assert "planted" not in str(problem)


@pytest.mark.parametrize("address", ["203.0.113.10:8443", "[2001:db8::1]", "my_host", "127.0.0.1", "203.0.113.300"])
def test_an_address_of_a_cluster_is_one_that_a_service_can_have(address: str) -> None:
    """Gateways in mode Model have Services; others send requests to a URL with it, which may have a port."""
    for known, field in (
        ({"hostname": "east.example", "address": address}, "address"),
        ({"hostname": "east.example", "address": "203.0.113.9:80", "internalAddress": address}, "internalAddress"),
    ):
        [problem] = loaded({}, known).errors
        assert (problem.path, problem.value) == (f"status.gateway.{field}", json.dumps(address))
        assert problem.message == "must be an IP address that other clusters reach, or a DNS name"
        assert "without a port" in problem.hint
    assert loaded({}, {"address": address}).errors == ()


def test_it_is_taken_as_it_is_known() -> None:
    cluster = {
        "address": "2001:db8::1",
        "url": "https://gw.example:8443/fleet/@east?a=b",
        "internalAddress": "east.elb.example.com",
        "hostname": "cluster-east-1.modelplane-system.svc.cluster.local",
        "caCertificate": f"{PEM}{PEM}",
    }
    assert loaded({"address": "203.0.113.9:8080", "clientCACertificate": PEM}, cluster).errors == ()
