# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Composed objects and objects from an API server have identical files. API servers sort keys and add defaults."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.observed_fleet import MANIFESTS, Object
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.test_build_control import Controlled

CRDS = Path(__file__).parents[4] / "roles/control_plane/files/crds"
OTHER = """
---
apiVersion: modelplane.ai/v1alpha1
kind: ModelDeployment
metadata: {name: pair, namespace: team}
spec:
  replicas: 1
  template:
    metadata: {labels: {team: red, app: pair}}
    spec:
      serving: {picker: {image: "example.com/picker:1"}}
      engines:
      - name: main
        members:
        - role: Standalone
          nodeSelector: {devices: [{name: gpu, selectors: [{cel: device.driver == "gpu.nvidia.com"}]}]}
          template: {spec: {containers: [{name: engine, image: "vllm/vllm-openai:v0.23.0", env: [{name: A}]}]}}
"""


@cache
def schemas() -> dict[str, Object]:
    documents = (yaml.safe_load(path.read_text()) for path in CRDS.glob("*.yaml"))
    return {
        document["spec"]["names"]["kind"]: document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        for document in documents
        if document["kind"] == "CustomResourceDefinition"
    }


def filled(value: Any, schema: Object) -> Any:
    """Return a value with the defaults of its schema, like an API server."""
    if isinstance(value, list):
        return [filled(item, schema.get("items", {})) for item in value]
    if not isinstance(value, dict):
        return value
    known = schema.get("properties", {})
    missing = {key: below["default"] for key, below in known.items() if "default" in below and key not in value}
    below = schema.get("additionalProperties", {})
    below = below if isinstance(below, dict) else {}
    return {key: filled(item, known.get(key, below)) for key, item in {**value, **missing}.items()}


def mixed(value: Any, order: random.Random) -> Any:
    if isinstance(value, list):
        return [mixed(item, order) for item in value]
    if not isinstance(value, dict):
        return value
    keys = sorted(value)
    order.shuffle(keys)
    return {key: mixed(value[key], order) for key in keys}


class Stored(Controlled):
    """Fleet whose control cluster stores objects like an API server, with keys in any order."""

    order = random.Random(7)

    def apply(self, *values: Object) -> None:
        super().apply(*(mixed(filled(value, schemas().get(value["kind"], {})), self.order) for value in values))


def same(before: bytes, after: bytes) -> bool:
    """Compare two files like an API server."""
    objects = [yaml.safe_load(text) for text in (before, after)]
    first_file, second_file = (filled(value, schemas().get(value["kind"], {})) for value in objects)
    return bool(first_file == second_file)


def contents(fleet: Controlled) -> dict[str, bytes]:
    return {str(path.relative_to(fleet.built)): path.read_bytes() for path in fleet.built.rglob("*.yaml")}


IMAGE = ("vllm-openai:v0.23.0", "vllm-openai:v0.24.0")
STEPS: dict[str, Callable[[Controlled], dict[str, Any]]] = {
    "nothing": lambda _fleet: {},
    "an image edit": lambda fleet: fleet.edit(*IMAGE) or {},
    "a drain": lambda _fleet: {"drain": ("east",)},
    "a drain of every cluster": lambda _fleet: {"drain": ("east", "west")},
    "a deployment with errors": lambda fleet: fleet.edit("replicas: 2", "replicas: -2") or {"invalid": "hold"},
    "a service with errors": lambda fleet: fleet.edit("- priority: 1", "- priority: x") or {"invalid": "hold"},
    "a cluster that does not answer": lambda fleet: fleet.silent.add("west") or {},
}


@pytest.mark.parametrize("step", STEPS)
def test_a_run_changes_files_only_with_their_content(tmp_path: Path, step: str) -> None:
    """Each run reads the fleet in another order. The last run has no observations, like `plan`."""
    fleet = Stored(tmp_path)
    fleet.text = MANIFESTS + OTHER
    for _ in range(5):
        fleet.run()
    more = STEPS[step](fleet)
    for index in range(5):
        before = contents(fleet)
        outcome = fleet.run(**more)
        after = contents(fleet)
        changed = [name for name in outcome.changes.changed if name in before]
        assert [name for name in changed if same(before[name], after[name])] == [], index
    assert not fleet.run(**more).changes
    if "drain" not in more:
        # Without observations, no replica waits for its replacement.
        assert not fleet.run_unseen(**more, control_unread=True).changes


@pytest.mark.parametrize("seed", range(3))
def test_manifests_in_another_order_change_no_file(tmp_path: Path, seed: int) -> None:
    fleet = Stored(tmp_path)
    fleet.text = MANIFESTS + OTHER
    for _ in range(5):
        fleet.run()
    order = random.Random(seed)
    documents = [mixed(document, order) for document in yaml.safe_load_all(fleet.text)]
    order.shuffle(documents)
    fleet.text = yaml.safe_dump_all(documents, sort_keys=False)
    assert not fleet.run().changes
    assert not fleet.run_unseen(control_unread=True).changes
