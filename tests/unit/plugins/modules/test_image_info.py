# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
from __future__ import annotations

import json
from pathlib import Path

from ansible_collections.modelplane.fleet.tests import ansible_run

SAMPLE = ansible_run.ROOT / "inventories" / "quickstart" / "manifests"


def run(chdir: Path, *resources: str) -> str:
    arguments = json.dumps({"resources": resources, "chdir": str(chdir)})
    out, errors = ansible_run.run("ansible", "localhost", "-m", "modelplane.fleet.image_info", "-a", arguments)
    return out + errors


def test_images_of_engines() -> None:
    told = run(SAMPLE.parent, SAMPLE.name)
    assert "SUCCESS" in told
    assert "ModelDeployment ml-team/qwen3-8b" in told
    assert "docker.io/vllm/vllm-openai:v0.23.0" in told


def test_what_cannot_be_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "fleet.yaml").write_text("a: [")
    told = run(tmp_path, "fleet.yaml")
    assert "FAILED" in told
    assert "fleet.yaml" in told
