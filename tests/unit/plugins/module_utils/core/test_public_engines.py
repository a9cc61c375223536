# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Engines as public READMEs start them: what is said of each, and that nothing is said of the corrected one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.core.load import Source, load

ENGINES = yaml.safe_load((Path(__file__).parents[4] / "data" / "public-engines.yaml").read_text())


def problems(entry: dict[str, Any], **changed: Any) -> list[str]:
    container = {"name": "engine", **{field: entry[field] for field in ("image", "command", "args") if field in entry}}
    container.update({field: value for field, value in changed.items() if field != "port"})
    request = {
        "name": "gpu",
        "count": entry.get("gpus", 1),
        "selectors": [{"cel": 'device.driver == "gpu.nvidia.com"'}],
    }
    member = {
        "role": "Standalone",
        "nodeSelector": {"devices": [request]},
        "template": {"spec": {"containers": [container]}},
    }
    engine = {"name": "main", "members": [member], **({"port": changed["port"]} if "port" in changed else {})}
    document = {
        "apiVersion": "modelplane.ai/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": "model", "namespace": "team"},
        "spec": {"replicas": 1, "template": {"spec": {"engines": [engine]}}},
    }
    return [problem.message for problem in load([Source("a.yaml", yaml.safe_dump(document).encode())]).problems]


@pytest.mark.parametrize("entry", ENGINES, ids=[entry["name"] for entry in ENGINES])
def test_engine(entry: dict[str, Any]) -> None:
    found = problems(entry)
    assert len(found) == len(entry.get("says", ())), found
    for says, message in zip(entry.get("says", ()), found, strict=True):
        assert says in message
    if "then" in entry:
        assert problems(entry, command=entry["then"]) == []
    if "port" in entry:
        assert problems(entry, port=entry["port"]) == []
    assert "says" not in entry or "then" in entry or "port" in entry
