# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.serving_stack_info on manifests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.arguments import declared_resources
from ansible_collections.modelplane.fleet.plugins.module_utils.core.manifest_text import to_yaml
from ansible_collections.modelplane.fleet.plugins.modules import serving_stack_info
from ansible_collections.modelplane.fleet.tests import model_fleet
from ansible_collections.modelplane.fleet.tests.e2e import fleets
from ansible_collections.modelplane.fleet.tests.module_run import run_module

BUDGET = {"name": "tokens", "unit": "Tokens", "limit": 1000, "per": "Day"}
FLEET = fleets.CLASSES + fleets.cluster("east") + fleets.cluster("west")
BROKEN = FLEET.replace('"source": "Existing"', '"source": "Moon"', 1)
STACK = {
    "apiVersion": "infrastructure.modelplane.ai/v1alpha1",
    "kind": "ServingStack",
    "metadata": {"name": "east", "namespace": "modelplane-system"},
    "spec": {"nonsense": 1},
}
GATEWAY = {
    "apiVersion": "modelplane.ai/v1alpha1",
    "kind": "InferenceGateway",
    "metadata": {"name": "default"},
    "spec": {"backend": "Moon"},
}


def asked(folder: Path, text: str, **params: Any) -> dict[str, Any]:
    path = folder / "fleet.yaml"
    path.write_text(text)
    return run_module(serving_stack_info, {"resources": [str(path)], **params})


@pytest.mark.parametrize("names", [None, [], ["west"], ["west", "south"]])
def test_the_clusters_that_are_asked_about(tmp_path: Path, names: list[str] | None) -> None:
    found = asked(tmp_path, FLEET, names=names)
    every = {"east", "west"}
    assert set(found["clusters"]) == (every if names is None else every.intersection(names))
    assert (found["held"], found["gateway_held"]) == ([], False)
    assert all(cluster["drivers"] == ["gpu.nvidia.com"] for cluster in found["clusters"].values())


def test_what_has_errors_is_held(tmp_path: Path) -> None:
    refused = asked(tmp_path, BROKEN)
    assert refused["failed"]
    assert "Moon" in refused["errors"][0]
    found = asked(tmp_path, BROKEN, invalid="hold")
    assert (list(found["clusters"]), found["held"]) == (["west"], ["east"])
    assert asked(tmp_path, BROKEN, invalid="hold", names=["west"])["held"] == []
    # It does not say which cluster it is of.
    found = asked(tmp_path, f"{FLEET}---\n{json.dumps(STACK)}\n", invalid="hold")
    assert (found["clusters"], found["held"], found["gateway_held"]) == ({}, ["east", "west"], False)
    found = asked(tmp_path, f"{FLEET}---\n{json.dumps(GATEWAY)}\n", invalid="hold")
    assert (found["held"], found["gateway_held"], found["gateway"]) == ([], True, {})


def test_what_gateways_in_mode_model_need(tmp_path: Path) -> None:
    documents = model_fleet.fleet(model_fleet.service(), model_fleet.policy(budgets=[BUDGET]))
    found = asked(tmp_path, "---\n".join(map(to_yaml, documents)))["clusters"]
    assert {name: cluster["gateway_needs"] for name, cluster in found.items()} == {
        "hub": ["gateway", "certificates", "budgets", "strict-budgets"],
        "east": ["certificates"],
        "west": ["certificates"],
    }
    assert all(cluster["gateway_needs"] == [] for cluster in asked(tmp_path, FLEET)["clusters"].values())


def test_a_policy_with_errors_keeps_no_other_from_being_counted(tmp_path: Path) -> None:
    good = model_fleet.policy(budgets=[BUDGET])
    bad = model_fleet.policy("bad", budgets=[{**BUDGET, "per": "Fortnight"}])
    documents = model_fleet.fleet(model_fleet.service(), good, bad)
    found = asked(tmp_path, "---\n".join(map(to_yaml, documents)), invalid="hold")["clusters"]
    assert "budgets" in found["hub"]["gateway_needs"]


def test_a_gateway_does_not_change_its_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(declared_resources, "on_control_cluster", lambda *_: [model_fleet.gateway()])
    text = "---\n".join(map(to_yaml, model_fleet.fleet(eu=model_fleet.gateway(cluster="east"))))
    (error,) = asked(tmp_path, text)["errors"]
    assert 'InferenceGateway eu, spec.clusterName: Cannot change, and was applied as "hub"' in error
    found = asked(tmp_path, text, invalid="hold")["clusters"]
    assert [name for name, cluster in found.items() if "gateway" in cluster["gateway_needs"]] == ["hub"]
