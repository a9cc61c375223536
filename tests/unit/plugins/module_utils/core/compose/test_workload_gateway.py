# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The gateway of a workload cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.modelplane.fleet.plugins.filter.workload_gateway import workload_gateway
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.load_balancer import (
    load_balancer_annotations,
)

Object = dict[str, Any]
DEFINITIONS = Path(__file__).parents[5] / "kube" / "data" / "crds" / "gateway-api"
HTTP = {"name": "http", "protocol": "HTTP", "port": 80}
HTTPS = {
    "name": "https",
    "protocol": "HTTPS",
    "port": 443,
    "hostname": "east.example.com",
    "tls": {"certificateRefs": [{"name": "east"}]},
}


def objects(**choices: Any) -> tuple[Object, Object, Object]:
    proxy, gateway_class, gateway = workload_gateway(choices)
    return proxy, gateway_class, gateway


def kubernetes(**choices: Any) -> Object:
    found: Object = objects(**choices)[0]["spec"]["provider"]["kubernetes"]
    return found


def listeners(*given: Object) -> list[Object]:
    found: list[Object] = objects(listeners=given)[2]["spec"]["listeners"]
    return found


def test_two_pods_on_two_nodes_of_which_one_may_be_evicted() -> None:
    found = kubernetes()
    assert found["envoyDeployment"]["replicas"] == 2
    assert found["envoyPDB"] == {"maxUnavailable": 1}
    (spread,) = found["envoyDeployment"]["pod"]["topologySpreadConstraints"]
    assert (spread["topologyKey"], spread["maxSkew"]) == ("kubernetes.io/hostname", 1)
    # A system pool may have one node, on which both have to start.
    assert spread["whenUnsatisfiable"] == "ScheduleAnyway"
    assert spread["labelSelector"]["matchLabels"] == {
        "gateway.envoyproxy.io/owning-gateway-name": "inference-gateway",
        "gateway.envoyproxy.io/owning-gateway-namespace": "modelplane-system",
    }
    assert kubernetes(replicas="5")["envoyDeployment"]["replicas"] == 5


@pytest.mark.parametrize(
    ("seconds", "desired"), [(None, ("600s", "15s")), (1800, ("1800s", "15s")), (10, ("10s", "10s")), (0, ("0s", "0s"))]
)
def test_streams_may_last_while_a_pod_is_going(seconds: int | None, desired: tuple[str, str]) -> None:
    shutdown = objects(drain_timeout=seconds)[0]["spec"]["shutdown"]
    assert (shutdown["drainTimeout"], shutdown["minDrainDuration"]) == desired


def test_what_else_an_envoyproxy_can_say_is_merged_over_ours() -> None:
    own = {"provider": {"kubernetes": {"envoyHpa": {"maxReplicas": 8}, "envoyPDB": {"maxUnavailable": 2}}}}
    proxy = objects(proxy={**own, "logging": {"level": {"default": "info"}}})[0]["spec"]
    found = proxy["provider"]["kubernetes"]
    assert found["envoyHpa"] == {"maxReplicas": 8}
    assert found["envoyPDB"] == {"maxUnavailable": 2}
    assert found["envoyDeployment"]["replicas"] == 2
    assert found["envoyService"]["externalTrafficPolicy"] == "Cluster"
    assert proxy["logging"] == {"level": {"default": "info"}}


def test_its_service_and_its_images() -> None:
    found = kubernetes(
        annotations={"example.com/internal": "true"},
        source_ranges=["10.0.0.0/8"],
        image_registry="mirror.example/dockerhub",
        image_pull_secrets=["mirror"],
    )
    assert found["envoyService"] == {
        "externalTrafficPolicy": "Cluster",
        "annotations": {"example.com/internal": "true"},
        "loadBalancerSourceRanges": ["10.0.0.0/8"],
    }
    assert found["envoyDeployment"]["container"] == {"imageRepository": "mirror.example/dockerhub/envoyproxy/envoy"}
    assert found["envoyDeployment"]["pod"]["imagePullSecrets"] == [{"name": "mirror"}]
    assert kubernetes()["envoyService"] == {"externalTrafficPolicy": "Cluster"}
    assert "container" not in kubernetes()["envoyDeployment"]
    assert "imagePullSecrets" not in kubernetes()["envoyDeployment"]["pod"]


def test_gateway_and_class_lead_to_the_proxy() -> None:
    proxy, gateway_class, gateway = objects(class_name="edge")
    assert gateway_class["metadata"] == {"name": "edge"}
    assert gateway_class["spec"]["parametersRef"] == {
        "group": "gateway.envoyproxy.io",
        "kind": "EnvoyProxy",
        **proxy["metadata"],
    }
    assert gateway["spec"]["gatewayClassName"] == "edge"
    assert gateway["metadata"] == {"name": "inference-gateway", "namespace": "modelplane-system"}


def test_listeners() -> None:
    routes = {"allowedRoutes": {"namespaces": {"from": "All"}}}
    assert listeners() == [{**HTTP, **routes}]
    assert listeners({**HTTP, "port": "8080"}) == [{**HTTP, "port": 8080, **routes}]
    elsewhere = {**HTTPS, "name": "other", "tls": {"certificateRefs": [{"name": "a", "namespace": "certificates"}]}}
    first, second = (each["tls"] for each in listeners(HTTPS, elsewhere))
    assert first == {"mode": "Terminate", "certificateRefs": [{"group": "", "kind": "Secret", "name": "east"}]}
    assert second["certificateRefs"][0]["namespace"] == "certificates"


@pytest.mark.parametrize("given", [(), (HTTP, HTTPS), (HTTPS,)])
def test_a_server_takes_the_gateway(given: tuple[Object, ...]) -> None:
    definition = json.loads((DEFINITIONS / "gateways.gateway.networking.k8s.io.json").read_text())
    (schema,) = (each["schema"] for each in definition["spec"]["versions"] if each["name"] == "v1")
    gateway = objects(listeners=given)[2]
    jsonschema.validate(gateway, schema["openAPIV3Schema"])
    known = schema["openAPIV3Schema"]["properties"]["spec"]["properties"]["listeners"]["items"]["properties"]
    assert all(set(listener) <= set(known) for listener in gateway["spec"]["listeners"])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({**HTTPS, "tls": None}, "listeners[0] tls is required when protocol is HTTPS"),
        ({**HTTP, "tls": HTTPS["tls"]}, "listeners[0] tls is allowed only when protocol is HTTPS"),
        ({**HTTPS, "hostname": "*.example.com"}, "at least one listener must accept requests of the fleet"),
        ({**HTTPS, "hostname": None}, "at least one listener must accept requests of the fleet"),
        ({**HTTP, "hostname": "east.example.com"}, "at least one listener must accept requests of the fleet"),
        ({**HTTPS, "tls": {"certificateRefs": []}}, "listeners[0].tls.certificateRefs"),
        ({**HTTP, "port": 0}, "listeners[0].port"),
        ({**HTTP, "port": "http"}, "listeners[0].port"),
    ],
)
def test_listeners_that_cannot_be_used_are_refused(given: Object, message: str) -> None:
    with pytest.raises(AnsibleFilterError, match=r".") as error:
        objects(listeners=[given])
    assert message in str(error.value)
    assert "ServingStack" not in str(error.value), "they are those of a variable"


def test_what_is_none_of_the_choices_is_refused() -> None:
    with pytest.raises(AnsibleFilterError, match="replica_count"):
        objects(replica_count=3)
    with pytest.raises(AnsibleFilterError, match="must be a mapping"):
        workload_gateway([])


def test_the_listeners_are_those_of_a_servingstack() -> None:
    """So that both say the same of them."""
    stack = {
        "apiVersion": "infrastructure.modelplane.ai/v1alpha1",
        "kind": "ServingStack",
        "metadata": {"name": "east-stack", "namespace": "modelplane-system"},
        "spec": {
            "secrets": [{"type": "Kubeconfig", "name": "east", "key": "kubeconfig"}],
            "gateway": {"listeners": [HTTP, HTTPS]},
        },
    }
    wire = api.wire(api.parse(stack))["spec"]["gateway"]["listeners"]
    assert listeners(*wire) == listeners(HTTP, HTTPS)


@pytest.mark.parametrize("version", ["v1.36.1-eks-7f9249a", "v1.34.0-eks-1-34-4"])
def test_the_load_balancer_of_eks_lets_requests_be_silent(version: str) -> None:
    assert list(load_balancer_annotations(version).values()) == ["3600"]


@pytest.mark.parametrize("version", ["v1.36.1", "v1.35.5-gke.1443001", "v1.36.0+k3s1", ""])
def test_others_have_no_annotation(version: str) -> None:
    assert load_balancer_annotations(version) == {}


def exposed(**choices: Any) -> tuple[Object, Object, Object]:
    """The Service of Envoy, the Gateway, and the Route."""
    proxy, __, gateway, route = workload_gateway({"exposure": "Route", **choices})
    return proxy["spec"]["provider"]["kubernetes"]["envoyService"], gateway, route


def test_a_route_leads_to_the_service_of_envoy() -> None:
    service, gateway, route = exposed()
    assert service == {"type": "ClusterIP", "name": route["spec"]["to"]["name"]}
    assert gateway["metadata"]["annotations"] == {"modelplane.ai/exposed-by": "Route"}
    assert route["metadata"]["namespace"] == "envoy-gateway-system"
    assert route["metadata"]["annotations"] == {"haproxy.router.openshift.io/timeout": "1h"}
    # One port needs no name, and OpenShift chooses the host.
    assert set(route["spec"]) == {"to", "wildcardPolicy"}
    assert "annotations" not in objects()[2]["metadata"]


def test_the_port_of_a_route_is_that_of_the_listener_which_endpoints_use() -> None:
    assert exposed(listeners=[HTTPS, HTTP])[2]["spec"]["port"] == {"targetPort": "http-80"}
    spec = exposed(listeners=[HTTPS])[2]["spec"]
    assert (spec["host"], spec["tls"]) == ("east.example.com", {"termination": "passthrough"})


def test_what_users_say_of_a_route() -> None:
    __, __, route = exposed(
        route={"host": "llm.example.com", "tls": {"termination": "edge"}},
        annotations={"haproxy.router.openshift.io/timeout": "2h"},
        source_ranges=["192.0.2.0/24", "198.51.100.7"],
    )
    assert route["metadata"]["annotations"] == {
        "haproxy.router.openshift.io/timeout": "2h",
        "haproxy.router.openshift.io/ip_allowlist": "192.0.2.0/24 198.51.100.7/32",
    }
    assert (route["spec"]["host"], route["spec"]["tls"]) == ("llm.example.com", {"termination": "edge"})


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"exposure": "Ingress"}, "exposure is Ingress, and must be one of LoadBalancer, Route"),
        ({"exposure": "Route", "route": {"tls": {"key": "hunter2"}}}, "name a Secret in route.tls.externalCertificate"),
        ({"exposure": "Route", "source_ranges": ["192.0.2.0/240"]}, "192.0.2.0/240"),
    ],
)
def test_choices_that_are_refused(choices: Object, message: str) -> None:
    with pytest.raises(AnsibleFilterError, match=message) as refused:
        workload_gateway(choices)
    assert "hunter2" not in str(refused.value)
