# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Rules of clouds: errors where manifests are validated, warnings where a fleet is planned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.modelplane.fleet.plugins.modules import build, resource_info
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
