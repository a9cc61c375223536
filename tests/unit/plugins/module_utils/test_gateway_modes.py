# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Gateways of both modes side by side: what means the gateway of the control cluster takes none of another cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.inference_gateway import mode_of
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.expected import expected
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.control_cluster import (
    declared_gateway,
    is_path_gateway,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases import build, fleet_inputs

FLEET = """
apiVersion: modelplane.ai/v1alpha1
kind: InferenceCluster
metadata: {name: west}
spec: {cluster: {source: Existing, existing: {secretRef: {name: west}}}}
---
apiVersion: modelplane.ai/v1alpha1
kind: ModelEndpoint
metadata: {name: saas, namespace: team, labels: {provider: saas}}
spec: {origin: "https://api.example.com"}
---
apiVersion: modelplane.ai/v1alpha1
kind: ModelService
metadata: {name: chat, namespace: team}
spec: {endpoints: [{selector: {matchLabels: {provider: saas}}}]}
"""
CLOSED = {"mode": "Model", "clusterName": "west"}
OPEN = {"backend": "Traefik", "traefik": {"version": "40.2.0"}}
NODES = ("GatewayClass", "Gateway", "HTTPRoute", "Service", "EndpointSlice", "BackendTLSPolicy")
"""Kinds of what a gateway of the control cluster is made of."""


def gateway(name: str, spec: dict[str, Any], address: str = "") -> dict[str, Any]:
    status = {"status": {"address": address}} if address else {}
    kind = {"apiVersion": "modelplane.ai/v1alpha1", "kind": "InferenceGateway"}
    return {**kind, "metadata": {"name": name}, "spec": spec, **status}


def built(folder: Path, *gateways: dict[str, Any]) -> tuple[build.Outcome, dict[str, str]]:
    """Build the fleet with these gateways. Return the outcome, and the files of the control cluster for their paths."""
    manifests = folder / "manifests"
    manifests.mkdir(parents=True)
    (manifests / "fleet.yaml").write_text(FLEET)
    (manifests / "gateways.yaml").write_text(yaml.safe_dump_all(gateways))
    outcome = build.build(fleet_inputs.Settings((str(manifests),), str(folder / "build")))
    control = folder / "build" / "control"
    texts = {str(path.relative_to(control)): path.read_text() for path in sorted(control.rglob("*.yaml"))}
    return outcome, {name: text for name, text in texts.items() if yaml.safe_load(text)["kind"] in NODES}


def test_a_gateway_of_another_cluster_changes_nothing_on_the_control_cluster(tmp_path: Path) -> None:
    alone, before = built(tmp_path / "alone", gateway("default", OPEN, "192.0.2.1"))
    both, after = built(tmp_path / "both", gateway("a", CLOSED), gateway("default", OPEN, "192.0.2.1"))
    assert before == after
    assert {yaml.safe_load(text)["kind"] for text in after.values()} == set(NODES)
    for outcome in (alone, both):
        assert outcome.plan.traffic.services[0].address == "http://192.0.2.1/team/chat"
        assert [release.chart for release in outcome.plan.traffic.releases] == ["traefik"]


@pytest.mark.parametrize("name", ["default", "edge"])
def test_without_a_gateway_of_its_own_the_control_cluster_has_none(tmp_path: Path, name: str) -> None:
    outcome, files = built(tmp_path, gateway(name, CLOSED, "192.0.2.9"))
    assert not {"GatewayClass", "Gateway"} & {yaml.safe_load(text)["kind"] for text in files.values()}
    assert outcome.plan.traffic.releases == ()
    assert outcome.plan.traffic.address == outcome.plan.traffic.services[0].address == ""


def test_a_gateway_that_moves_away_leaves_the_control_cluster(tmp_path: Path) -> None:
    built(tmp_path, gateway("default", OPEN, "192.0.2.1"))
    (tmp_path / "manifests" / "gateways.yaml").write_text(yaml.safe_dump(gateway("default", CLOSED)))
    build.build(fleet_inputs.Settings((str(tmp_path / "manifests"),), str(tmp_path / "build")))
    left = [yaml.safe_load(path.read_text())["kind"] for path in (tmp_path / "build" / "control").rglob("*.yaml")]
    assert not {"GatewayClass", "Gateway"} & set(left)


def test_the_gateway_of_the_control_cluster_is_found_beside_others() -> None:
    closed, other, default = gateway("a", CLOSED), gateway("b", OPEN), gateway("default", OPEN)
    assert [is_path_gateway(each) for each in (closed, other, default)] == [False, False, True]
    found, made_there = declared_gateway([api.parse(each) for each in (closed, other, default)], [closed])
    assert (found and found.name, made_there) == ("default", False)
    found, made_there = declared_gateway([api.parse(closed)], [closed, default])
    assert (found and found.name, made_there) == ("default", True)
    assert declared_gateway([api.parse(closed), api.parse(other)], [closed, other]) == (None, False)
    seen = expected([closed, other, default]).gateway
    assert (seen and seen.name, expected([closed, other]).gateway) == ("default", None)


@pytest.mark.parametrize(
    ("mode", "cluster", "found"),
    [
        (None, None, "Path"),
        (None, "west", "Model"),
        ("Path", "west", "Path"),
        ("Model", None, "Model"),
        ("", "", "Path"),
    ],
)
def test_the_mode_follows_from_the_cluster_unless_it_is_given(
    mode: str | None, cluster: str | None, found: str
) -> None:
    assert mode_of(mode, cluster) == found
