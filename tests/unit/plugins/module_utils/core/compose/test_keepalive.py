# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Probes of silent connections: NAT gateways of clouds drop connections that are silent for 350 seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.modelplane.fleet.plugins.filter.workload_gateway import workload_gateway
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.workload_gateway import (
    GatewayChoices,
    gateway_objects,
    traffic_policies,
)
from ansible_collections.modelplane.fleet.tests import model_fleet
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.compose.test_egress import (
    composed,
    endpoint,
    upstream,
)

PROBED = {"idleTime": "60s", "interval": "30s", "probes": 3}
NAT_SECONDS = 350


def policies(objects: Any, kind: str) -> dict[str, dict[str, Any]]:
    """Return what policies of a kind on a Gateway set, by the name of the Gateway."""
    return {
        target["name"]: each["spec"]
        for each in objects
        if each["kind"] == kind
        for target in each["spec"].get("targetRefs", ())
        if target["kind"] == "Gateway"
    }


@pytest.mark.parametrize("kind", ["BackendTrafficPolicy", "ClientTrafficPolicy"])
def test_gateways_in_mode_model_probe_both_sides(kind: str) -> None:
    found = policies(model_fleet.build(model_fleet.fleet()).all(), kind)
    assert set(found) == {"inference-gateway", "cluster-gateway"}
    assert [spec["tcpKeepalive"] for spec in found.values()] == [PROBED] * 2


def test_the_role_asks_for_probes_by_default() -> None:
    role = Path(__file__).parents[6] / "roles" / "serving_stack"
    defaults = yaml.safe_load((role / "defaults/main.yml").read_text())
    choices = yaml.safe_load((role / "vars/main.yml").read_text())["_serving_stack_gateway_choices"]
    assert defaults["serving_stack_gateway_keepalive"] is True
    assert choices["keepalive"] == "{{ serving_stack_gateway_keepalive }}"


@pytest.mark.parametrize("kind", ["BackendTrafficPolicy", "ClientTrafficPolicy"])
def test_workload_gateways_probe_both_sides(kind: str) -> None:
    found = policies(workload_gateway({"class_name": "envoy", "keepalive": "True"}), kind)
    assert found == {"inference-gateway": {"targetRefs": [TARGET], "tcpKeepalive": PROBED}}


TARGET = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "inference-gateway"}


@pytest.mark.parametrize("choices", [{}, {"keepalive": "False"}, {"keepalive": True, "model_gateway": True}])
def test_policies_of_users_and_of_the_fleet_are_alone_on_their_gateway(choices: dict[str, Any]) -> None:
    """A Gateway has one policy of each kind."""
    kinds = {each["kind"] for each in workload_gateway({"class_name": "envoy", **choices})}
    assert kinds & {"BackendTrafficPolicy", "ClientTrafficPolicy"} == set()


def test_policies_are_beside_the_gateway() -> None:
    choices = GatewayChoices(keepalive=True)
    made = [*gateway_objects(choices), *traffic_policies(choices)]
    places = {(each["metadata"]["name"], each["metadata"]["namespace"]) for each in made if "Traffic" in each["kind"]}
    (gateway,) = [each for each in made if each["kind"] == "Gateway"]
    assert places == {(gateway["metadata"]["name"], gateway["metadata"]["namespace"])}


@pytest.mark.parametrize(
    "url", ["https://api.example.com/v1", "http://10.0.0.7:8000/v1", "http://api.example.com:8080/v1"]
)
def test_egress_proxies_probe_their_endpoint(url: str) -> None:
    options = upstream(composed(endpoint(url=url)))["upstream_connection_options"]["tcp_keepalive"]
    silent = options["keepalive_time"] + options["keepalive_interval"] * options["keepalive_probes"]
    assert 0 < options["keepalive_time"] < silent < NAT_SECONDS
