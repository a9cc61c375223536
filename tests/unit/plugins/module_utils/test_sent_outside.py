# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Services whose only usable endpoints are outside the fleet, in every view."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.arguments.manifests import build_warnings
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output.status_tables import tables
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases import build
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.observed_fleet import Fleet, Object, down, up

GATEWAY = """
---
apiVersion: modelplane.ai/v1alpha1
kind: InferenceGateway
metadata: {name: default}
spec: {backend: Traefik, traefik: {version: "40.2.0"}}
"""
OUTSIDE = "all requests are sent to together outside the fleet because no endpoint of the fleet is usable"


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    found = Fleet(tmp_path)
    found.text += GATEWAY
    return found


def views(found: build.Outcome) -> dict[str, str]:
    return {
        "plan": " ".join(build_warnings(found)),
        "status": " ".join(" ".join(tables(found.fleet_status, found.now, 400)).split()),
        "report": build.draw(found),
    }


def only_on(*clusters: str) -> Callable[[str, Object], Object]:
    return lambda cluster, value: up(value) if cluster in clusters or value["kind"] != "Deployment" else down(value)


def test_planned_replicas_do_not_hide_that_a_provider_gets_all_requests(fleet: Fleet) -> None:
    for view, text in views(fleet.run()).items():
        assert f"{OUTSIDE} (2 endpoints)" in text, view


def test_replicas_that_do_not_serve_are_a_warning(fleet: Fleet) -> None:
    fleet.shown = only_on()
    for _ in range(4):
        found = fleet.run()
    for view, text in views(found).items():
        assert OUTSIDE in text, view
    assert "without an endpoint yet" in views(found)["plan"]


def test_one_replica_that_serves_is_enough(fleet: Fleet) -> None:
    fleet.shown = only_on("east")
    for _ in range(4):
        found = fleet.run()
    assert OUTSIDE not in "".join(views(found).values())


def test_pending_replicas_are_a_warning(fleet: Fleet) -> None:
    fleet.edit('cel: device.driver == "gpu.nvidia.com"', 'cel: device.driver == "gpu.example.com"')
    found = fleet.run()
    assert "2 replicas of qwen pending" in views(found)["plan"]
    assert OUTSIDE in views(found)["plan"]


def test_a_preferred_provider_is_no_warning(fleet: Fleet) -> None:
    qwen = "selector: {matchLabels: {modelplane.ai/deployment: qwen}}"
    fleet.edit(f"- {qwen}", f"- priority: 2\n    {qwen}")
    assert OUTSIDE not in "".join(views(fleet.run()).values())


def test_a_service_without_a_gateway_sends_no_requests(tmp_path: Path) -> None:
    assert OUTSIDE not in "".join(views(Fleet(tmp_path).run()).values())
