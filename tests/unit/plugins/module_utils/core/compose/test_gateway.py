# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The control gateway."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.shape import fields_of
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.gateway import BACKENDS, backend_of
from ansible_collections.modelplane.fleet.tests.schemas import KUBERNETES_VERSIONS, check
from ansible_collections.modelplane.fleet.tests.written import gateway_objects, gateway_releases

Object = dict[str, Any]


def gateway(**traefik: Any) -> Object:
    return {
        "apiVersion": "modelplane.ai/v1alpha1",
        "kind": "InferenceGateway",
        "metadata": {"name": "default"},
        "spec": {"backend": "Traefik", "traefik": {"version": "40.2.0", **traefik}},
    }


METALLB = gateway(loadBalancer="MetalLB", metallb={"addressPool": "172.18.255.200-172.18.255.250"})


def composed(wire: Object) -> list[Object]:
    return list(gateway_objects(wire))


def kinds(wire: Object) -> list[tuple[str, str]]:
    return [(value["kind"], value["metadata"]["name"]) for value in composed(wire)]


def test_every_backend_of_the_schema_is_there() -> None:
    assert set(BACKENDS) == set(fields_of(api.inference_gateway.InferenceGatewaySpec)["backend"].shape.enum)


def test_services_may_be_there_before_the_gateway() -> None:
    assert backend_of(None) is BACKENDS["Traefik"]


def test_objects() -> None:
    assert kinds(gateway()) == [
        ("Namespace", "modelplane-system"),
        ("GatewayClass", "traefik"),
        ("Gateway", "modelplane"),
    ]
    labels = {"app.kubernetes.io/managed-by": "modelplane.fleet", "modelplane.ai/gateway": "default"}
    namespace, gateway_class, front = composed(gateway())
    assert "modelplane.ai/gateway" not in namespace["metadata"]["labels"], "other things are in it too"
    assert gateway_class["metadata"]["labels"] == front["metadata"]["labels"] == labels
    assert gateway_class["spec"] == {"controllerName": "traefik.io/gateway-controller"}
    assert front["metadata"]["namespace"] == "modelplane-system"
    assert front["spec"] == {
        "gatewayClassName": "traefik",
        "listeners": [
            {"name": "web", "protocol": "HTTP", "port": 8000, "allowedRoutes": {"namespaces": {"from": "All"}}}
        ],
    }


def secure(*hostnames: str, port: int = 443) -> Object:
    found = gateway()
    found["spec"]["listeners"] = [
        {"name": name.partition(".")[0], "port": port, "protocol": "HTTPS", "hostname": name, "tls": CERTIFICATE}
        for name in hostnames
    ]
    return api.wire(api.parse(found))


CERTIFICATE = {"certificateRefs": [{"name": "models"}]}


def test_listeners_for_https_stand_beside_that_for_http() -> None:
    wire = secure("models.example.com", "llm.example.com", port=8444)
    (front,) = (value for value in composed(wire) if value["kind"] == "Gateway")
    web, first, second = front["spec"]["listeners"]
    assert [web] == next(value for value in composed(gateway()) if value["kind"] == "Gateway")["spec"]["listeners"]
    assert first == {
        "name": "models",
        "protocol": "HTTPS",
        "port": 8443,
        "hostname": "models.example.com",
        "tls": {"mode": "Terminate", "certificateRefs": [{"group": "", "kind": "Secret", "name": "models"}]},
        "allowedRoutes": {"namespaces": {"from": "All"}},
    }
    assert (second["name"], second["port"]) == ("llm", 8443)
    ports = gateway_releases(wire)[0].values["ports"]
    assert ports["websecure"] == {"exposedPort": 8444, **ports["web"]}
    assert set(gateway_releases(gateway())[0].values["ports"]) == {"web"}


def test_objects_with_metallb() -> None:
    assert kinds(METALLB) == [
        ("Namespace", "modelplane-system"),
        ("Namespace", "metallb-system"),
        ("IPAddressPool", "modelplane"),
        ("L2Advertisement", "modelplane"),
        ("GatewayClass", "traefik"),
        ("Gateway", "modelplane"),
    ]
    _system, namespace, pool, advertisement, *_ = composed(METALLB)
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"
    assert pool["spec"] == {"addresses": ["172.18.255.200-172.18.255.250"]}
    assert advertisement["spec"] == {"ipAddressPools": ["modelplane"]}
    assert pool["metadata"]["namespace"] == advertisement["metadata"]["namespace"] == "metallb-system"


def test_releases() -> None:
    (traefik,) = gateway_releases(gateway())
    assert (traefik.name, traefik.chart, traefik.version) == ("mp-traefik", "traefik", "40.2.0")
    assert (traefik.repository, traefik.namespace) == ("https://traefik.github.io/charts", "traefik-system")
    values = traefik.values
    assert values["providers"] == {
        "kubernetesGateway": {
            "enabled": True,
            "statusAddress": {"service": {"namespace": "traefik-system", "name": "traefik"}},
        },
        "kubernetesIngress": {"enabled": False},
    }
    assert values["service"] == {"nameOverride": "traefik"}
    assert values["gateway"] == values["gatewayClass"] == {"enabled": False}
    assert values["deployment"]["replicas"] > values["podDisruptionBudget"]["maxUnavailable"] == 1


def test_a_pod_that_goes_is_not_killed_before_its_streams_may_end() -> None:
    values = gateway_releases(gateway())[0].values
    life = values["ports"]["web"]["transport"]["lifeCycle"]
    seconds = sum(int(life[key].removesuffix("s")) for key in ("requestAcceptGraceTimeout", "graceTimeOut"))
    assert values["deployment"]["terminationGracePeriodSeconds"] > seconds > 300


def test_metallb_is_installed_first() -> None:
    releases = gateway_releases(METALLB)
    assert [(each.name, each.version, each.namespace) for each in releases] == [
        ("mp-metallb", "0.14.9", "metallb-system"),
        ("mp-traefik", "40.2.0", "traefik-system"),
    ]


@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
def test_objects_are_valid(version: str) -> None:
    for value in composed(METALLB):
        check(value, version)
