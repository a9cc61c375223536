# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.cloud_cluster_info, as its action runs it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.fleet import clusters
from ansible_collections.modelplane.fleet.plugins.module_utils.core.manifest_text import to_yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.directory import HEADER
from ansible_collections.modelplane.fleet.plugins.modules import cloud_cluster_info
from ansible_collections.modelplane.fleet.tests.module_run import run_module
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.cloud.eks.clusters import (
    eks,
    inference_class,
    inference_cluster,
    replica,
)

FLEET = (inference_class(), inference_cluster(), eks(name="own"))


def run(folder: Path, **arguments: Any) -> tuple[bool, Any]:
    """Return whether the task succeeded, and its result."""
    found = run_module(cloud_cluster_info, {"chdir": str(folder), **arguments})
    return not found["failed"], found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "fleet.yaml").write_text(yaml.safe_dump_all(FLEET))
    return tmp_path


def test_what_is_to_be_made_of_manifests(folder: Path) -> None:
    done, found = run(folder, resources=["fleet.yaml"])
    assert done
    assert found["changed"] is False
    assert found["clusters"] == clusters([], FLEET)
    assert [each["problems"] for each in found["clusters"].values()] == [[], []]


def test_what_is_wrong_is_reported_where_it_was_written(folder: Path) -> None:
    pool = {"name": "gpu-l4", "className": "l4", "zones": ["us-west-2a", "us-east-1a"]}
    text = yaml.safe_dump_all([inference_class(), inference_cluster(pool)])
    (folder / "fleet.yaml").write_text(text)
    line = text[: text.index("us-east-1a")].count("\n") + 1
    _, found = run(folder, resources=["fleet.yaml"])
    (problem,) = found["clusters"]["eks-us-west"]["problems"]
    place = f"fleet.yaml:{line}, document 2, InferenceCluster eks-us-west, spec.nodePools[0].zones[1]: "
    assert problem.startswith(place), problem


def test_what_has_errors_is_held(tmp_path: Path) -> None:
    sound, broken, of_broken = (inference_cluster() for _ in range(3))
    sound["metadata"] = {"name": "sound"}
    broken["metadata"] = {"name": "broken"}
    broken["spec"]["cluster"]["source"] = "Moon"
    of_broken["metadata"] = {"name": "of-broken"}
    of_broken["spec"]["nodePools"][0]["className"] = "wrong"
    wrong = inference_class()
    wrong["metadata"] = {"name": "wrong"}
    wrong["spec"]["hardware"] = "?"
    (tmp_path / "fleet.yaml").write_text(yaml.safe_dump_all([inference_class(), sound, broken, of_broken, wrong]))
    done, found = run(tmp_path, resources=["fleet.yaml"])
    assert not done
    assert any("Moon" in line for line in found["errors"])
    done, found = run(tmp_path, resources=["fleet.yaml"], invalid="hold")
    assert done
    assert (list(found["clusters"]), found["held"]) == (["sound"], ["broken", "of-broken"])
    (tmp_path / "fleet.yaml").write_text("spec: {")
    done, found = run(tmp_path, resources=["fleet.yaml"], invalid="hold")
    assert not done
    assert "1 error in the manifests" in found["msg"]


def test_replicas_of_the_build_folder_are_counted(folder: Path) -> None:
    place = folder / "build/control/namespaces/ml-team"
    place.mkdir(parents=True)
    (place / "modelreplica-qwen.yaml").write_text(HEADER + to_yaml(replica("eks-us-west")))
    done, found = run(folder, resources=["fleet.yaml"], path="build")
    assert done, found
    assert {name: each["replicas"] for name, each in found["clusters"].items()} == {"eks-us-west": 1, "own": 0}


def test_a_build_folder_that_is_none(folder: Path) -> None:
    done, found = run(folder, resources=["fleet.yaml"], path="fleet.yaml")
    assert not done
    assert "fleet.yaml is a file, and the build needs a folder" in str(found)


def test_manifests_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "fleet.yaml").write_text(yaml.safe_dump(eks(region=7)))
    done, found = run(tmp_path, resources=["fleet.yaml"])
    assert not done
    assert "EKSCluster modelplane-system/eks-us-west, spec.region" in str(found)
