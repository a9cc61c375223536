# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Whatever is done to a document, parse answers with a resource or with problems, never with anything else."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api import InvalidResource, Resource, parse, wire
from ansible_collections.modelplane.fleet.plugins.module_utils.core.problem import Problem
from hypothesis import given, settings
from hypothesis import strategies as st

ROOT = Path(__file__).resolve().parents[6]
DATA = ROOT / "tests" / "data"
DOCUMENTS = [
    document
    for path in (
        DATA / "api" / "minimal.yaml",
        DATA / "api" / "complete.yaml",
        *sorted((DATA / "manifests").rglob("*.yaml")),
    )
    for document in yaml.safe_load_all(path.read_text())
    if document and "modelplane.ai/" in document["apiVersion"]
]

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(st.characters(), max_size=8),
    st.sampled_from(["", "x" * 300, "Standalone", "GKE", "3", "true", "-", "\ud800", 2**63, 10**400]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.one_of(st.text(max_size=6), st.integers(), st.booleans()), inner, max_size=3),
    ),
    max_leaves=6,
)


def outcome(document: Any) -> tuple[Resource | None, tuple[Problem, ...]]:
    """Return what parse answers."""
    try:
        return parse(document), ()
    except InvalidResource as invalid:
        return None, invalid.problems


def places(value: Any, found: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Every (container, key) in a document."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in list(items):
        found.append((value, key))
        places(item, found)
    return found


def mutate(document: Any, data: st.DataObject) -> None:
    all_places = places(document, [])
    if not all_places:
        return
    container, key = data.draw(st.sampled_from(all_places))
    match data.draw(st.sampled_from(["drop", "replace", "wrap", "add", "misspell"])):
        case "drop":
            del container[key]
        case "replace":
            container[key] = data.draw(VALUES)
        case "wrap":
            container[key] = data.draw(st.sampled_from([[container[key]], {"a": container[key]}]))
        case "add" if isinstance(container, dict):
            container[data.draw(st.text(max_size=6))] = data.draw(VALUES)
        case "misspell" if isinstance(container, dict):
            container[f"{str(key)[:-1]}"] = container.pop(key)


@given(st.sampled_from(DOCUMENTS), st.data())
@settings(max_examples=400)
def test_mutated_documents(document: dict[str, Any], data: st.DataObject) -> None:
    document = copy.deepcopy(document)
    for _ in range(data.draw(st.integers(1, 4))):
        mutate(document, data)
    resource, problems = outcome(document)
    for problem in problems:
        assert problem.message
        assert len(problem.value) <= 60
        str(problem).encode()
    if resource is None:
        assert problems
    else:
        again = parse(json.loads(json.dumps(wire(resource))))
        assert wire(again) == wire(resource)
        assert resource.name


@given(VALUES)
@settings(max_examples=200)
def test_arbitrary_values(value: Any) -> None:
    resource, problems = outcome(value)
    assert (resource is None) == bool(problems)


@pytest.mark.integration
def test_models_can_be_defined_without_pydantic() -> None:
    """Ansible imports plugins to document them where pydantic may not be installed."""
    program = (
        "import sys; sys.modules['pydantic'] = None\n"
        "from ansible_collections.modelplane.fleet.plugins.module_utils.core.api import KINDS\n"
        "from ansible_collections.modelplane.fleet.plugins.module_utils.core.api import crd\n"
        "print(len(KINDS))"
    )
    finished = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(ROOT / ".collections")},
    )
    assert (finished.returncode, finished.stdout.strip()) == (0, "13"), finished.stderr
