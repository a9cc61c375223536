# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module build: what its arguments do to what is composed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.modelplane.fleet.plugins.modules import build, reconcile
from ansible_collections.modelplane.fleet.tests.module_run import run_module
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.observed_fleet import Fleet

MANIFESTS = """
apiVersion: modelplane.ai/v1alpha1
kind: InferenceClass
metadata: {name: l4}
spec:
  devices:
  - {name: gpu, driver: gpu.nvidia.com, deviceClassName: gpu.nvidia.com, capacity: {memory: {value: 23034Mi}}}
---
apiVersion: modelplane.ai/v1alpha1
kind: InferenceCluster
metadata: {name: lab}
spec:
  cluster: {source: Existing, existing: {secretRef: {name: kubeconfig}}}
  nodePools: [{name: gpu, className: l4, nodeCount: 4}]
---
apiVersion: modelplane.ai/v1alpha1
kind: ModelDeployment
metadata: {name: qwen, namespace: team}
spec:
  template:
    spec:
      engines:
      - name: main
        members:
        - nodeSelector: {devices: [{name: gpu, selectors: [{cel: "true"}]}]}
          template: {spec: {containers: [{name: engine, image: "vllm/vllm-openai:v0.23.0"}]}}
"""

PROVIDER = """
apiVersion: modelplane.ai/v1alpha1
kind: ModelEndpoint
metadata: {name: saas, namespace: team, labels: {provider: saas}}
spec: {url: "https://api.example.com/v1?api_key=h1dden", rewritePath: /v1}
---
apiVersion: modelplane.ai/v1alpha1
kind: ModelService
metadata: {name: chat, namespace: team}
spec: {endpoints: [{selector: {matchLabels: {provider: saas}}}]}
"""


def run(folder: Path, **given: Any) -> dict[str, Any]:
    (folder / "manifests.yaml").write_text(MANIFESTS)
    arguments = {"resources": [str(folder / "manifests.yaml")], "path": str(folder / "build"), **given}
    return run_module(build, arguments)


@pytest.mark.parametrize(("given", "seconds"), [({}, 240), ({"stream_grace": 30}, 30), ({"stream_grace": 0}, 0)])
def test_how_long_pods_serve_on_is_a_choice(tmp_path: Path, given: dict[str, Any], seconds: int) -> None:
    assert run(tmp_path, **given)["failed"] is False
    built = [yaml.safe_load(path.read_text()) for path in (tmp_path / "build/clusters").rglob("*.yaml")]
    pods = [each["spec"]["template"]["spec"] for each in built if each["kind"] == "Deployment"]
    assert [pod["terminationGracePeriodSeconds"] for pod in pods] == [seconds + 30] * 2


def test_pods_cannot_end_before_they_are_signalled(tmp_path: Path) -> None:
    result = run(tmp_path, stream_grace=-1)
    assert result["failed"] is True
    assert result["msg"] == "stream_grace is -1, and must be at least 0"


@pytest.mark.parametrize("result", ["costs", "services"])
def test_modules_that_plan_document_a_result_alike(result: str) -> None:
    # No doc fragment can have it: ansible-core 2.19 reads fragments of options alone.
    of_build, of_reconcile = (yaml.safe_load(module.RETURN)[result] for module in (build, reconcile))
    assert of_build == of_reconcile


def priced(folder: Path, day: str, amount: str = '"1.00"') -> dict[str, Any]:
    """Return the result of a build with prices of a class and of a catalogue of this day."""
    prices = folder / "prices.yaml"
    entry = f"{{provider: EKS, machine: a, region: b, onDemand: {amount}, asOf: {day}, source: s}}"
    prices.write_text(f"currency: USD\nprices:\n- {entry}\n")
    pricing = f"spec:\n  pricing: {{currency: USD, asOf: {day}, onDemand: '2.00'}}\n  devices:"
    text = MANIFESTS.replace("spec:\n  devices:", pricing)
    (folder / "priced.yaml").write_text(text)
    arguments = {"resources": [str(folder / "priced.yaml")], "path": str(folder / "build"), "prices": str(prices)}
    return run_module(build, arguments)


def test_an_error_of_the_price_catalogue_has_its_place(tmp_path: Path) -> None:
    result = priced(tmp_path, "2026-02-30", "1.00")
    assert result["failed"] is True
    # The class has the same day, and manifests are read first.
    assert result["origin"] == {"file": str(tmp_path / "priced.yaml"), "line": 6}
    result = priced(tmp_path, "2026-02-28", "-1.00")
    assert result["msg"] == "1 error in the price catalog"
    assert result["origin"] == {"file": str(tmp_path / "prices.yaml"), "line": 3}
    assert "prices[0].onDemand: Must be text" in result["errors"][0]


def test_prices_of_a_day_to_come_are_warnings_and_old_ones_a_hint(tmp_path: Path) -> None:
    result = priced(tmp_path, "9999-01-01")
    assert result["failed"] is False
    of_class, entry = sorted(line for line in result["warnings"] if "is in the future" in line.lower())
    assert "priced.yaml:6, document 1, InferenceClass l4, spec.pricing.asOf" in of_class
    assert "prices.yaml, prices[0].asOf" in entry
    assert "the oldest price" not in "\n".join(result["costs"])
    assert "the oldest price is of 2001-01-01" in "\n".join(priced(tmp_path, "2001-01-01")["costs"])


def test_a_key_in_a_url_is_in_no_file(tmp_path: Path) -> None:
    (tmp_path / "more.yaml").write_text(PROVIDER)
    resources = [str(tmp_path / "manifests.yaml"), str(tmp_path / "more.yaml")]
    found = run(tmp_path, resources=resources)
    (warning,) = [line for line in found["warnings"] if "ModelEndpoint team/saas" in line]
    assert "Has a query, which no gateway sends" in warning
    files = [path.read_text() for path in (tmp_path / "build").rglob("*") if path.is_file()]
    assert any("https://api.example.com/v1" in text for text in files), "the report page has the URL"
    assert not [text for text in [*files, str(found)] if "h1dden" in text]


def test_an_outage_is_refused_unless_it_is_allowed(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    fleet.edit("  - priority: 1\n    selector: {matchLabels: {provider: together}}\n", "")
    fleet.settle()
    seen = tmp_path / "seen.yaml"
    seen.write_text(json.dumps(fleet.observations()))
    built_files = {path: path.read_bytes() for path in fleet.built.rglob("*") if path.is_file()}
    fleet.edit("{name: east}", "{name: north}")
    fleet.edit("{name: west}", "{name: south}")
    (tmp_path / "fleet.yaml").write_text(fleet.text)
    arguments = {"resources": [str(tmp_path / "fleet.yaml")], "path": str(fleet.built), "observations": str(seen)}
    for check_mode in (True, False):
        result = run_module(build, arguments, check_mode=check_mode)
        assert result["failed"] is True
        assert "ModelDeployment team/qwen: 2 of 2 serving replicas would stop serving" in result["msg"]
        assert "fleet_allow_outage" in result["msg"]
        assert {path: path.read_bytes() for path in fleet.built.rglob("*") if path.is_file()} == built_files
    assert run_module(build, {**arguments, "allow_outage": True})["failed"] is False
