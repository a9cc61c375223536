# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.serving_stack_info on manifests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.modules import serving_stack_info
from ansible_collections.modelplane.fleet.tests.e2e import fleets
from ansible_collections.modelplane.fleet.tests.module_run import run_module

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
