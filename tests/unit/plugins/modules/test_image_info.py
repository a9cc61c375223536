# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible_collections.modelplane.fleet.plugins.modules import image_info
from ansible_collections.modelplane.fleet.tests.module_run import run_module

SAMPLE = Path(__file__).parents[4] / "inventories" / "quickstart" / "manifests"


def run(chdir: Path, *resources: str) -> dict[str, Any]:
    return run_module(image_info, {"resources": list(resources), "chdir": str(chdir)})


def test_images_of_engines() -> None:
    found = run(SAMPLE.parent, SAMPLE.name)
    assert not found["failed"], found
    assert found["images"]["ModelDeployment ml-team/qwen3-8b"] == ["docker.io/vllm/vllm-openai:v0.23.0"]


def test_what_cannot_be_read_is_reported(tmp_path: Path) -> None:
    (tmp_path / "fleet.yaml").write_text("a: [")
    found = run(tmp_path, "fleet.yaml")
    assert found["failed"]
    assert "fleet.yaml" in found["errors"][0]
