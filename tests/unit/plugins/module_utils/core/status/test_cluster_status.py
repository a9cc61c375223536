# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Status of a cluster from observation to observation, and where its gateway is."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.endpoint import url_host
from ansible_collections.modelplane.fleet.plugins.module_utils.core.observation import Component, ObservedCluster
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.inference_cluster import (
    gateway_address,
    gateway_url,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.inference_gateway import node_addresses
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Objects
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.status import sightings as seen
from ansible_collections.modelplane.fleet.tests.written import inference_cluster, inference_gateway, removed_gateway

NOW, LATER = "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"
KNOWN = {"gateway": {"address": "192.0.2.1"}}
POOLS = [{"name": "gpu-l4", "nodes": 4, "observedNodes": 3, "devices": []}]

ROUTED = seen.edge_gateway("172.30.0.10")
ROUTED["metadata"]["annotations"] = {"modelplane.ai/exposed-by": "Route"}
ADDRESSES: dict[str, tuple[Any, ObservedCluster | None, str]] = {
    "not observed": (None, None, ""),
    "not observed, known": (KNOWN, None, "192.0.2.1"),
    "silent, known": (KNOWN, seen.silent(), "192.0.2.1"),
    "seen": (None, seen.cluster(seen.edge_gateway("192.0.2.2")), "192.0.2.2"),
    "changed": (KNOWN, seen.cluster(seen.edge_gateway("192.0.2.2")), "192.0.2.2"),
    "without address": (KNOWN, seen.cluster(seen.edge_gateway()), "192.0.2.1"),
    "without gateway": (KNOWN, seen.cluster(), "192.0.2.1"),
    "none yet": ({}, seen.cluster(seen.edge_gateway()), ""),
    "of a Route": (KNOWN, seen.cluster(ROUTED, seen.admitted_route()), "gateway.apps.example.com"),
    "of a Route that is refused": ({}, seen.cluster(ROUTED, seen.admitted_route("False")), ""),
    "of a Route that is gone": (KNOWN, seen.cluster(ROUTED), "192.0.2.1"),
    "odd past": ({"gateway": "192.0.2.1"}, seen.cluster(), ""),
}


@pytest.mark.parametrize("name", ADDRESSES)
def test_gateway_address(name: str) -> None:
    previous, observed, address = ADDRESSES[name]
    assert gateway_address(previous, observed) == address


HTTPS_ALONE = [{"protocol": "HTTPS", "port": 443, "hostname": "east.example.com"}]
WITH_URL = {"gateway": {"address": "192.0.2.1", "url": "https://old.example.com"}}
URLS: dict[str, tuple[Any, ObservedCluster | None, str]] = {
    "not observed": (None, None, ""),
    "silent, known": (WITH_URL, seen.silent(), "https://old.example.com"),
    "without address": (WITH_URL, seen.cluster(seen.edge_gateway()), "https://old.example.com"),
    "plain": (WITH_URL, seen.cluster(seen.edge_gateway("192.0.2.2")), ""),
    "plain Route": (WITH_URL, seen.cluster(ROUTED, seen.admitted_route()), ""),
    "Route with TLS": (
        KNOWN,
        seen.cluster(ROUTED, seen.admitted_route(tls={"termination": "edge"})),
        "https://gateway.apps.example.com",
    ),
    "HTTPS alone": (
        KNOWN,
        seen.cluster(seen.edge_gateway("192.0.2.2", listeners=HTTPS_ALONE)),
        "https://east.example.com",
    ),
}


@pytest.mark.parametrize("name", URLS)
def test_the_url_of_a_gateway_is_known_for_as_long_as_its_address(name: str) -> None:
    previous, observed, url = URLS[name]
    assert gateway_url(previous, observed) == url
    gateway = {"address": gateway_address(previous, observed)} | ({"url": url} if url else {})
    status = inference_cluster(
        {**seen.EKS, "metadata": {"name": "east"}},
        pools=POOLS,
        observed=observed,
        gateway_address=gateway["address"],
        gateway_url=url,
        previous=previous,
    )
    assert status.fields.get("gateway", {"address": ""}) == gateway


def by_type(status: dict[str, Any]) -> dict[str, Any]:
    return {entry["type"]: entry for entry in status["conditions"]}


def test_the_other_fields() -> None:
    wire = {**seen.EKS, "metadata": {"name": "eks-us-west"}}
    status = inference_cluster(
        wire,
        pools=POOLS,
        observed=seen.ready_cluster(),
        storage_class="modelplane-rwx-efs",
        gateway_address="192.0.2.1",
    )
    assert status.fields == {
        "providerConfigRef": {"name": "eks-us-west-cluster-kubeconfig-b96c5"},
        "namespace": "modelplane-system",
        "gpuPools": POOLS,
        "cache": {"storageClassName": "modelplane-rwx-efs"},
        "gateway": {"address": "192.0.2.1"},
    }
    assert set(inference_cluster(seen.EKS).fields) == {"providerConfigRef", "namespace"}


@pytest.mark.parametrize("why", [{"missing_classes": ["l4"]}, {"invalid_pool": "InferenceClass l4 has no EKS block"}])
def test_h3_pools_that_are_unknown_stay_published(why: dict[str, Any]) -> None:
    before = inference_cluster(seen.EKS, pools=POOLS, observed=seen.ready_cluster(), gateway_address="192.0.2.1")
    status = inference_cluster(seen.EKS, pools=None, observed=seen.ready_cluster(), previous=before.wire(), **why)
    assert status.fields["gpuPools"] == POOLS
    assert "gpuPools" not in inference_cluster(seen.EKS, pools=None, observed=seen.ready_cluster(), **why).fields


def test_why_a_cluster_cannot_be_built_outlives_the_regular_evaluation() -> None:
    """The reference implementation overwrites InvalidNodePool in the same pass."""
    status = inference_cluster(
        seen.EKS, invalid_pool="no block", observed=seen.ready_cluster(), gateway_address="192.0.2.1"
    )
    assert seen.reported(status) == {
        "ClusterReady": ("False", "InvalidNodePool"),
        "BackendReady": ("True", "WaitingForCluster"),
        "Ready": ("False", "Creating"),
    }


@pytest.mark.parametrize("source", [seen.EKS, seen.EXISTING])
def test_a_silent_cluster_keeps_what_it_was_and_takes_nothing_new(source: dict[str, Any]) -> None:
    def evaluated(observed: ObservedCluster | None, before: Any, at: str) -> dict[str, Any]:
        nodes = observed.nodes.get("gpu-l4", 0) if observed else None
        pools = [{**POOLS[0], "observedNodes": nodes}]
        status = inference_cluster(
            source, pools=pools, observed=observed, gateway_address=gateway_address(before, observed), previous=before
        )
        return status.wire(before, 1, at)

    up = Component(True)
    well = ObservedCluster("", up, up, Objects([seen.edge_gateway("192.0.2.1")]), {"gpu-l4": 3})
    first = evaluated(well, None, NOW)
    silent = evaluated(seen.silent(), first, LATER)
    assert silent["gateway"] == first["gateway"]
    assert silent["gpuPools"] == first["gpuPools"] == POOLS
    for kind in ("ClusterReady", "BackendReady"):
        assert by_type(silent)[kind] == by_type(first)[kind]
    ready = by_type(silent)["Ready"]
    assert (ready["status"], ready["reason"], ready["lastTransitionTime"]) == ("Unknown", "NotObserved", LATER)
    assert evaluated(seen.silent(), silent, "2028-01-01T00:00:00Z") == silent
    assert evaluated(None, first, LATER) == first
    assert seen.reported(
        inference_cluster(source, pools=POOLS, observed=well, gateway_address="192.0.2.1", previous=silent)
    ) == {
        "ClusterReady": ("True", "ClusterRunning"),
        "BackendReady": ("True", "BackendHealthy"),
        "Ready": ("True", "Available"),
    }


def test_nodes_that_no_one_ever_saw_are_not_reported() -> None:
    status = inference_cluster(seen.EKS, pools=[{**POOLS[0], "observedNodes": 0}], observed=seen.silent())
    assert "observedNodes" not in status.fields["gpuPools"][0]


def test_the_address_of_the_control_gateway_stays_until_there_is_another() -> None:
    def address(control: Objects | None, before: Any = None, ready: bool = True) -> Any:
        status = inference_gateway(seen.GATEWAY, control, Component(ready), previous=before)
        return status.fields.get("address")

    there = Objects(seen.control_gateway("True", "198.51.100.7"))
    assert address(there) == "198.51.100.7"
    known = {"address": "198.51.100.9"}
    assert address(there, known) == "198.51.100.7"
    assert address(Objects(), known) == address(None, known) == address(Objects(), known, False) == "198.51.100.9"
    assert address(Objects()) is None


def _ported(*ports: tuple[int, int], kind: str = "NodePort") -> Any:
    return {"spec": {"type": kind, "ports": [{"port": port, "nodePort": opened} for port, opened in ports]}}


def _node(name: str, ready: str = "True", **addresses: str) -> Any:
    return {
        "metadata": {"name": name},
        "status": {
            "addresses": [{"type": kind, "address": address} for kind, address in addresses.items()],
            "conditions": [{"type": "Ready", "status": ready}],
        },
    }


@pytest.mark.parametrize(
    ("service", "nodes", "found"),
    [
        (_ported((80, 30080)), [_node("b", InternalIP="10.0.0.2"), _node("a", InternalIP="10.0.0.1")], "a-b"),
        (_ported((443, 30443), (80, 30080)), [_node("a", Hostname="a", InternalIP="10.0.0.1")], "a"),
        (_ported((80, 30080)), [_node("c", InternalIP="10.0.0.3"), _node("d", ExternalIP="203.0.113.4")], "d-c"),
        (_ported((80, 30080)), [_node("e", InternalIP="2001:db8::5")], "e"),
        (_ported((80, 30080)), [_node("f", Hostname="f.example.com")], "f"),
        (_ported((80, 30080)), [_node("g", "False", InternalIP="10.0.0.1"), _node("h")], ""),
        (_ported((80, 30080), kind="LoadBalancer"), [_node("a", InternalIP="10.0.0.1")], ""),
        (_ported((443, 30443)), [_node("a", InternalIP="10.0.0.1")], ""),
        (_ported((80, 0)), [_node("a", InternalIP="10.0.0.1")], ""),
        (None, [_node("a", InternalIP="10.0.0.1")], ""),
    ],
)
def test_where_ports_of_nodes_lead_to_the_gateway(service: Any, nodes: Any, found: str) -> None:
    reported = {
        "a": "10.0.0.1:30080",
        "b": "10.0.0.2:30080",
        "c": "10.0.0.3:30080",
        "d": "203.0.113.4:30080",
        "e": "[2001:db8::5]:30080",
        "f": "f.example.com:30080",
    }
    addresses = node_addresses(service, nodes, 80)
    assert addresses == tuple(reported[name] for name in found.split("-") if name)
    # As the host of a URL they are what they are.
    assert [url_host(address) for address in addresses] == list(addresses)


def test_an_address_of_a_node_counts_where_the_gateway_has_none() -> None:
    def address(gateway: Any, addresses: tuple[str, ...], known: str = "") -> Any:
        before = {"address": known} if known else {}
        status = inference_gateway(seen.GATEWAY, Objects(gateway), Component(True, "", addresses), previous=before)
        return status.fields.get("address")

    bare, own = seen.control_gateway("True"), seen.control_gateway("True", "198.51.100.7")
    two = ("10.0.0.1:30080", "10.0.0.2:30080")
    assert address(bare, two) == "10.0.0.1:30080"
    # It does not move while the node is there.
    assert address(bare, two, "10.0.0.2:30080") == "10.0.0.2:30080"
    assert address(bare, two, "10.0.0.9:30080") == "10.0.0.1:30080"
    assert address(bare, (), "10.0.0.9:30080") == "10.0.0.9:30080"
    assert address(own, two, "10.0.0.2:30080") == "198.51.100.7"


def test_a_gateway_that_was_removed_has_no_address() -> None:
    before = inference_gateway(seen.GATEWAY, Objects(seen.control_gateway("True", "198.51.100.7")), Component(True))
    status = removed_gateway(before.wire(None, 1, NOW))
    assert "address" not in status.fields
    assert seen.reported(status) == {"ControllerReady": ("False", "Installing"), "Ready": ("False", "Unavailable")}
    # And none comes back of what was known.
    after = inference_gateway(seen.GATEWAY, Objects(), Component(), previous=status.wire(None, 1, LATER))
    assert "address" not in after.fields


def test_a_control_cluster_that_no_one_observes_keeps_its_conditions() -> None:
    there = Objects(seen.control_gateway("True", "198.51.100.7"))
    before = inference_gateway(seen.GATEWAY, there, Component(True)).wire(None, 1, NOW)
    assert inference_gateway(seen.GATEWAY, None, Component(), previous=before).wire(before, 2, LATER) == before


def test_crds_of_the_gateway_have_to_be_established() -> None:
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "httproutes.gateway.networking.k8s.io"},
        "spec": {"group": "gateway.networking.k8s.io"},
    }
    other = {**crd, "metadata": {"name": "others.example.com"}, "spec": {"group": "example.com"}}
    status = inference_gateway(seen.GATEWAY, Objects([crd, other, *seen.control_gateway()]), Component(True))
    ready = status.condition("Ready")
    assert ready is not None
    assert ready.message == "CustomResourceDefinition httproutes.gateway.networking.k8s.io is not established yet"
