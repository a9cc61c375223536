# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""TLS between gateways in mode Model and workload clusters, from the first run to the one that routes."""

from __future__ import annotations

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.model_gateway.mtls import internal_hostname
from ansible_collections.modelplane.fleet.plugins.module_utils.core.names import child_name
from ansible_collections.modelplane.fleet.tests.model_fleet import (
    SYSTEM,
    Document,
    build,
    certificate,
    cluster,
    document,
    fleet,
    gateway,
    service,
)

NAME = "cluster-gateway"
HOST = f"{child_name('cluster', 'east')}.{SYSTEM}.svc.cluster.local"


def test_a_workload_cluster_refuses_who_has_no_certificate_of_a_gateway() -> None:
    second = gateway("us", "hub-us")
    hub = document("InferenceCluster", "hub-us", cluster("hub-us")["spec"])
    built = build(fleet(service(), second, hub))
    listeners = built("Gateway", NAME, SYSTEM, "east")["spec"]["listeners"]
    assert [(each["name"], each["port"], each["protocol"]) for each in listeners] == [("https", 443, "HTTPS")]
    assert listeners[0]["tls"]["certificateRefs"] == [{"group": "", "kind": "Secret", "name": NAME}]
    spec = built("ClientTrafficPolicy", f"{NAME}-clients", SYSTEM, "east")["spec"]
    gateway_ref = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": NAME, "sectionName": "https"}
    assert spec["targetRefs"] == [gateway_ref]
    assert spec["tls"]["clientValidation"] == {
        "optional": False,
        "caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": f"{NAME}-clients"}],
    }
    clients = built("ConfigMap", f"{NAME}-clients", SYSTEM, "east")["data"]["ca.crt"]
    assert clients == certificate("clients of eu") + certificate("clients of us")


def test_its_certificate_is_signed_by_a_ca_of_its_own_for_its_internal_name() -> None:
    built = build(fleet(service()))
    assert built("Certificate", NAME, SYSTEM, "east")["spec"] == {
        "secretName": NAME,
        "secretTemplate": {"labels": {"app.kubernetes.io/managed-by": "modelplane.fleet"}},
        "dnsNames": [HOST],
        "usages": ["server auth", "digital signature", "key encipherment"],
        "duration": "2160h",
        "renewBefore": "720h",
        "privateKey": {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"},
        "issuerRef": {"group": "cert-manager.io", "kind": "Issuer", "name": f"{NAME}-ca"},
    }
    assert built("Certificate", f"{NAME}-ca", SYSTEM, "east")["spec"]["isCA"] is True
    assert built("Issuer", f"{NAME}-ca", SYSTEM, "east")["spec"] == {"ca": {"secretName": f"{NAME}-ca"}}
    assert built("Bundle", f"{NAME}-ca", "", "east")["spec"]["sources"] == [
        {"secret": {"name": f"{NAME}-ca", "key": "ca.crt"}}
    ]


def test_nothing_listens_before_the_ca_of_a_gateway_is_known() -> None:
    unknown = gateway()
    del unknown["status"]
    built = build(fleet(service(), eu=unknown))
    assert not built.of("Gateway", "east")
    assert not built.of("ClientTrafficPolicy", "east")
    assert built("Certificate", f"{NAME}-ca", SYSTEM, "east"), "its own CA is made meanwhile"


@pytest.mark.parametrize(
    ("lacks", "reason"),
    [
        ("hostname", "cluster east has no hostname for gateways in mode Model yet"),
        ("caCertificate", "the CA certificate of the gateway of cluster east is not known yet"),
    ],
)
def test_a_cluster_is_used_once_both_sides_work(lacks: str, reason: str) -> None:
    built = build(fleet(service(), east=cluster("east", "203.0.113.10", **{lacks: ""})))
    (routed,) = built.plan.models.routes
    assert list(routed.problems.values()) == [reason]
    assert len(built.of("Backend")) == 1
    assert ("Service", SYSTEM, child_name("cluster", "east")) not in built.objects["hub"]


@pytest.mark.parametrize(
    ("address", "spec", "family"),
    [
        ("203.0.113.10", {"clusterIP": "None", "ports": [{"port": 443, "protocol": "TCP"}]}, "IPv4"),
        (
            "2001:db8::1",
            {
                "clusterIP": "None",
                "ports": [{"port": 443, "protocol": "TCP"}],
                "ipFamilies": ["IPv6"],
                "ipFamilyPolicy": "SingleStack",
            },
            "IPv6",
        ),
        ("lb.example", {"type": "ExternalName", "externalName": "lb.example"}, ""),
    ],
)
def test_the_internal_name_resolves_to_the_address_of_the_cluster(address: str, spec: Document, family: str) -> None:
    built = build(fleet(service(), east=cluster("east", address)))
    name = child_name("cluster", "east")
    assert built("Service", name, SYSTEM)["spec"] == spec
    slices = {value["metadata"]["labels"]["kubernetes.io/service-name"]: value for value in built.of("EndpointSlice")}
    assert (name in slices) == bool(family)
    if family:
        assert slices[name]["addressType"] == family
        assert slices[name]["endpoints"][0]["addresses"] == [address]


def test_clusters_whose_names_differ_by_dots_have_names_of_their_own() -> None:
    assert internal_hostname("eu-west") == f"{child_name('cluster', 'eu-west')}.{SYSTEM}.svc.cluster.local"
    dotted = internal_hostname("eu.west").removesuffix(f".{SYSTEM}.svc.cluster.local")
    assert dotted.startswith("cluster-eu-west-")
    assert dotted != child_name("cluster", "eu-west")
    assert "." not in internal_hostname(".".join(["a" * 20] * 4)).partition(f".{SYSTEM}")[0]


def test_replicas_are_reached_by_the_workload_gateway_only_for_a_gateway_in_mode_path() -> None:
    """It asks for no key."""
    own = {"name": NAME, "namespace": SYSTEM}
    alone = build(fleet(service()))
    (route,) = alone.of("HTTPRoute", "east")
    assert route["spec"]["parentRefs"] == [own]
    path = document("InferenceGateway", "default", {"backend": "Traefik", "traefik": {"version": "40.2.0"}})
    beside = build(fleet(service(), path))
    (route,) = beside.of("HTTPRoute", "east")
    assert route["spec"]["parentRefs"] == [{"name": "inference-gateway", "namespace": SYSTEM}, own]
    inputs = [list(built.plan.workloads.inputs("east")) for built in (alone, beside)]
    assert inputs[0] != inputs[1], "files that are known to be of the one are not those of the other"


def test_replicas_on_the_cluster_of_a_gateway_are_not_reached_past_its_policies() -> None:
    documents = [each for each in fleet(service(), eu=gateway(cluster="east")) if each["metadata"]["name"] != "hub"]
    built = build(documents)
    direct = ("inference-gateway-healthz", "cluster-gateway-unknown")
    (route,) = (
        value
        for value in built.of("HTTPRoute", "east")
        if value["metadata"]["name"] not in direct and not value["metadata"]["name"].endswith("-rate-limited")
    )
    assert route["spec"]["parentRefs"] == [{"name": NAME, "namespace": SYSTEM}]
    assert len(built.of("Backend", "east")) == 2


def test_no_replica_waits_for_a_gateway_that_does_not_listen_yet() -> None:
    unknown = gateway(cluster="east")
    del unknown["status"]
    documents = [each for each in fleet(service(), eu=unknown) if each["metadata"]["name"] != "hub"]
    built = build(documents)
    (route,) = built.of("HTTPRoute", "west")
    assert route["spec"]["parentRefs"] == [{"name": "inference-gateway", "namespace": SYSTEM}]
    assert [value["metadata"]["name"] for value in built.of("HTTPRoute", "east")] == [
        "inference-gateway-healthz",
        "inference-gateway-rate-limited",
    ]


def test_beside_a_gateway_in_mode_path_a_hosting_cluster_listens_on_port_80_too() -> None:
    path = document("InferenceGateway", "default", {"backend": "Traefik", "traefik": {"version": "40.2.0"}})
    documents = [
        each for each in fleet(service(), path, eu=gateway(cluster="east")) if each["metadata"]["name"] != "hub"
    ]
    built = build(documents)
    names = [
        [each["name"] for each in built("Gateway", NAME, SYSTEM, host)["spec"]["listeners"]]
        for host in ("east", "west")
    ]
    assert names == [["http", "https"], ["https"]]


def test_a_cluster_without_engines_has_no_gateway_for_others() -> None:
    built = build(fleet(service()))
    assert ("Gateway", SYSTEM, NAME) not in built.objects["hub"]
