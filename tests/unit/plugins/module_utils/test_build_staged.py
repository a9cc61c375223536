# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Staged rollouts on GitOps clusters: each run changes as many replicas as the bounds allow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose import Options
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import identity
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.observed_fleet import Fleet


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    """Return a fleet with one replica on each of two GitOps clusters."""
    made = Fleet(tmp_path)
    made.declared = {"east", "west"}
    made.settle()
    return made


def engines(fleet: Fleet) -> dict[tuple[str, ...], Any]:
    return {
        identity(value): value["spec"]["template"]
        for value in fleet.objects("clusters", "Deployment")
        if not value["metadata"]["name"].endswith("-epp")
    }


def edit_image(fleet: Fleet) -> dict[str, Any]:
    fleet.edit("vllm-openai:v0.23.0", "vllm-openai:v0.24.0")
    return {}


def change_setting(_fleet: Fleet) -> dict[str, Any]:
    return {"composing": Options(stream_grace=60)}


@pytest.mark.parametrize("change", [edit_image, change_setting])
def test_each_staged_run_restarts_one_replica(fleet: Fleet, change: Callable[[Fleet], dict[str, Any]]) -> None:
    more = {**change(fleet), "staged": "step"}
    for restarted in (1, 1, 0):
        before = engines(fleet)
        outcome = fleet.run(**more)
        after = engines(fleet)
        assert after.keys() == before.keys()
        assert sum(after[key] != before[key] for key in before) == restarted
        assert bool(outcome.plan.rollouts) == bool(restarted)
        assert len(outcome.plan.edited) == restarted


def test_a_run_without_staging_restarts_all_replicas(fleet: Fleet) -> None:
    before = engines(fleet)
    fleet.run(**change_setting(fleet))
    after = engines(fleet)
    assert [after[key] != before[key] for key in before] == [True, True]


def test_a_revert_during_a_staged_rollout_restarts_one_replica(fleet: Fleet) -> None:
    first = engines(fleet)
    fleet.run(**change_setting(fleet), staged="step")
    fleet.run(staged="step")
    assert engines(fleet) == first


def test_a_waiting_replica_keeps_its_namespace(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    fleet.declared = {"east", "west"}
    fleet.edit("      modelCacheRef: {name: weights}\n", "")
    fleet.text = "\n---".join(part for part in fleet.text.split("\n---") if "kind: ModelCache" not in part)
    fleet.settle()
    namespaces = fleet.objects("clusters", "Namespace")
    for __ in range(3):
        fleet.run(**change_setting(fleet), staged="step")
        assert fleet.objects("clusters", "Namespace") == namespaces


def test_a_replica_with_a_missing_file_waits_for_its_step(fleet: Fleet) -> None:
    for path in (fleet.built / "clusters").rglob("deployment-*epp*.yaml"):
        path.unlink()
    before = engines(fleet)
    fleet.run(**change_setting(fleet), staged="step")
    after = engines(fleet)
    assert sum(after[key] != before[key] for key in before) == 1


GATEWAYS = """
---
apiVersion: modelplane.ai/v1alpha1
kind: InferenceGateway
metadata: {name: edge}
spec: {mode: Model, clusterName: east}
status: {clientCACertificate: "-----BEGIN CERTIFICATE-----\\nMAdjbGllbnRz\\n-----END CERTIFICATE-----\\n"}
---
apiVersion: modelplane.ai/v1alpha1
kind: InferenceGateway
metadata: {name: default}
spec: {backend: Traefik, traefik: {version: 40.2.0}}
"""


def test_a_waiting_replica_has_the_same_gateways(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    fleet.declared = {"east", "west"}
    fleet.text += GATEWAYS
    fleet.settle()
    routes = {identity(value): value["spec"]["parentRefs"] for value in fleet.objects("clusters", "HTTPRoute")}
    for stage in ("step", "hold", "step"):
        fleet.run(**change_setting(fleet), staged=stage)
        found = {identity(value): value["spec"]["parentRefs"] for value in fleet.objects("clusters", "HTTPRoute")}
        assert found == routes
    assert any(len(parents) == 2 for parents in routes.values())
