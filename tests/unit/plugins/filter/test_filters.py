# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The filters as functions: plain results from Ansible's tagged values, readable errors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible._internal._datatag._tags import Origin
from ansible.errors import AnsibleFilterError
from ansible_collections.modelplane.fleet.plugins.filter import engines, topology

FOLDER = Path(engines.__file__).parent
LOADING = """
import importlib, sys
import ansible.template
before = set(sys.modules)
for name in sys.argv[1:]:
    importlib.import_module("ansible_collections.modelplane.fleet.plugins.filter." + name)
print(*(name for name in set(sys.modules) - before))
"""

DEPLOYMENT = """
kind: ModelDeployment
spec:
  workers:
    topology: {tensor: 2}
    template: {containers: [{name: engine, image: vllm/vllm-openai, args: ["--model=x"]}]}
"""


def tagged(value: Any) -> Any:
    """`value` as it reaches a filter from a playbook: every scalar remembers where it was written."""
    if isinstance(value, dict):
        return Origin(path="/play.yml").tag({tagged(key): tagged(item) for key, item in value.items()})
    if isinstance(value, list):
        return Origin(path="/play.yml").tag([tagged(item) for item in value])
    return Origin(path="/play.yml").tag(value)


def types_of(value: Any) -> set[type]:
    if isinstance(value, dict):
        return {type(value)}.union(*(types_of(part) for entry in value.items() for part in entry))
    if isinstance(value, list):
        return {type(value)}.union(*(types_of(item) for item in value))
    return {type(value)}


def test_results_are_plain() -> None:
    written = tagged(yaml.safe_load(DEPLOYMENT))
    assert types_of(written).isdisjoint({str, int, dict, list})
    assert types_of(engines.FilterModule().filters()["engines"](written)) == {dict, list, str, int}
    shape = topology.FilterModule().filters()["topology"](tagged({"tensor": 4, "pipeline": 2}))
    assert types_of(shape) == {dict, str, int}


REFUSED = {
    "text": ("spec", "must be a ModelDeployment"),
    "other kind": ({"kind": "ModelService"}, "must be a ModelDeployment"),
    "no spec": ({"kind": "ModelDeployment"}, "has no engines"),
    "engines null": ({"kind": "ModelDeployment", "spec": {"template": {"spec": {}}}}, "has no engines"),
    "incomplete": (
        {"kind": "ModelDeployment", "spec": {"workers": {}}},
        "- spec.workers.topology: topology is missing",
    ),
}


@pytest.mark.parametrize(("value", "words"), REFUSED.values(), ids=REFUSED)
def test_engines_refuses(value: Any, words: str) -> None:
    with pytest.raises(AnsibleFilterError, match=words):
        engines.engines(value)


def test_topology_lists_all_problems() -> None:
    with pytest.raises(AnsibleFilterError) as caught:
        topology.topology({"tensor": 0, "data": "4"})
    lines = str(caught.value).splitlines()
    assert lines[-2:] == [
        "- tensor: Must be at least 1 (got 0).",
        '- data: Must be a whole number (got "4"). Write it without quotes.',
    ]


@pytest.mark.integration
def test_a_filter_imports_what_it_needs_only_when_it_is_used() -> None:
    """Ansible loads all filters of a collection in every process of a task that uses one of them."""
    names = [path.stem for path in FOLDER.glob("*.py")]
    environment = {"PYTHONPATH": str(FOLDER.parents[4])}
    command = [sys.executable, "-c", LOADING, *names]
    done = subprocess.run(command, env=environment, capture_output=True, check=True, text=True)
    loaded = set(done.stdout.split())
    assert len(names) > 10
    own = {name.split(".plugins.module_utils.")[1] for name in loaded if ".plugins.module_utils." in name}
    assert own <= {"core", "core.secret_shapes", "core.secrets", "core.text"}
    assert {"pydantic", "kubernetes", "boto3"} & loaded == set()
