# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Rules of clouds: errors where manifests are validated, warnings where a fleet is planned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.arguments import manifests
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases.fleet_inputs import read_manifests
from ansible_collections.modelplane.fleet.plugins.modules import build, reconcile, resource_info
from ansible_collections.modelplane.fleet.tests.module_run import run_module
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.cloud.eks.clusters import (
    inference_class,
    inference_cluster,
)


@pytest.fixture
def arguments(tmp_path: Path) -> dict[str, Any]:
    pool = {"name": "gpu-l4", "className": "l4", "zones": ["us-west-2a", "us-east-1a"]}
    missing = {"kind": "ModelDeployment", "apiVersion": "modelplane.ai/v1alpha1", "metadata": {"name": "x"}}
    (tmp_path / "fleet.yaml").write_text(yaml.safe_dump_all([inference_class(), inference_cluster(pool)]))
    (tmp_path / "more.yaml").write_text(yaml.safe_dump(missing))
    return {"resources": [str(tmp_path / "fleet.yaml")], "chdir": str(tmp_path)}


def test_validation_reports_them_beside_other_errors(arguments: dict[str, Any], tmp_path: Path) -> None:
    found = run_module(resource_info, {**arguments, "resources": [str(tmp_path)], "fail_on_error": False})
    of_cloud, of_schema = sorted(found["errors"], key=lambda line: "more.yaml" in line)
    assert "InferenceCluster eks-us-west, spec.nodePools[0].zones[1]: " in of_cloud
    assert "ModelDeployment" in of_schema
    assert "InferenceCluster" not in found["resources"]


def test_a_plan_warns(arguments: dict[str, Any], tmp_path: Path) -> None:
    found = run_module(build, {**arguments, "path": str(tmp_path / "build")})
    assert not found["failed"], found
    (warning,) = [line for line in found["warnings"] if "Is no zone of the region us-west-2" in line]
    assert "InferenceCluster eks-us-west, spec.nodePools[0].zones[1]: " in warning


def endpoints(folder: Path, number: int) -> dict[str, Any]:
    """Arguments for as many manifests with a warning each, in a fleet that can be planned."""
    meta = {"apiVersion": "modelplane.ai/v1alpha1", "kind": "ModelEndpoint"}
    names = [f"saas-{index}" for index in range(number)]
    values = [
        {**meta, "metadata": {"name": name, "namespace": "team"}, "spec": {"url": "https://a.example/v1"}}
        for name in names
    ]
    (folder / "endpoints.yaml").write_text(yaml.safe_dump_all(values))
    return {"resources": [str(folder / "endpoints.yaml")], "chdir": str(folder)}


def test_validation_shows_all_warnings(tmp_path: Path) -> None:
    found = run_module(resource_info, endpoints(tmp_path, 25))
    assert found["warnings"] == found["warnings_found"]
    assert len(found["warnings"]) == 25


def test_a_plan_shows_some_and_names_the_playbook_that_shows_all(tmp_path: Path) -> None:
    found = run_module(build, {**endpoints(tmp_path, 25), "path": str(tmp_path / "build")})
    *shown, last = found["warnings"]
    assert last == "and 5 more; the playbook modelplane.fleet.validate shows all of them"
    assert shown == found["warnings_found"][:20]
    assert len(found["warnings_found"]) == 25


def test_warnings_of_a_plan_do_not_take_the_place_of_those_of_manifests(tmp_path: Path) -> None:
    loaded = read_manifests(endpoints(tmp_path, 1)["resources"])
    of_plan = [f"pool {index}" for index in range(22)]
    *shown, more, of_manifest = manifests.warnings(loaded, more=of_plan)
    assert shown == of_plan[:20]
    assert more == "and 2 more, which the result of the task has (-v shows it)"
    assert "ModelEndpoint team/saas-0" in of_manifest
    assert manifests.all_warnings(loaded, more=of_plan) == [*of_plan, of_manifest]


def test_the_outcome_of_a_run_has_all_warnings(tmp_path: Path) -> None:
    arguments = {**endpoints(tmp_path, 25), "path": str(tmp_path / "build"), "state": "planned"}
    found = run_module(reconcile, {**arguments, "strict": ["warnings"]})
    assert found["warnings"][-1] == "and 5 more; the playbook modelplane.fleet.validate shows all of them"
    assert len(found["outcome"]["findings"]["warnings"]) == 25
    assert found["refused"][-1] == "warnings: and 5 more, which the outcome in the result has (-v shows it)"


COSTS = """\
apiVersion: modelplane.ai/v1alpha1
kind: ModelService
metadata: {name: chat, namespace: team}
spec: {endpoints: [{selector: {matchLabels: {provider: saas}}}]}
---
apiVersion: modelplane.ai/v1alpha1
kind: CallerPolicy
metadata: {name: acme, namespace: team}
spec:
  callers: [{name: acme}]
  budgets:
  - {name: requests, unit: Requests, limit: 10, per: Day}
  - {name: spend, unit: Cost, currency: EUR, amount: "500", per: Month}
"""
PRICES = 'currency: USD\nmodels:\n- {model: team/chats, input: "1", output: "1", asOf: 2026-07-01, source: s}\n'


def test_budgets_without_prices_are_located_by_validation_and_plan(tmp_path: Path) -> None:
    (tmp_path / "fleet.yaml").write_text(COSTS)
    (tmp_path / "prices.yaml").write_text(PRICES)
    arguments = {"resources": ["fleet.yaml"], "prices": "prices.yaml", "chdir": str(tmp_path)}
    checked = run_module(resource_info, arguments)
    planned = run_module(build, {**arguments, "path": str(tmp_path / "build")})
    assert checked["failed"]
    assert checked["errors"] == planned["errors"]
    currency, price = checked["errors"]
    place = "fleet.yaml:13, document 2, CallerPolicy team/acme, spec.budgets[1]"
    assert currency.startswith(f"{place}.currency: Is not the currency of the price catalog")
    assert price.startswith(f"{place}: Is for ModelService team/chat, and the price catalog has no price")
    assert "(got" not in price
    assert "where team/chats has one" in price
    assert not run_module(resource_info, {**arguments, "prices": None})["failed"]
    lost = run_module(resource_info, {**arguments, "prices": "lost.yaml"})
    assert lost["msg"].startswith("fleet_prices is lost.yaml, which cannot be read")
