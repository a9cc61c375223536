# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Mutated manifests and arbitrary bytes: loading answers with resources and problems, never with an exception, and what
is left can be planned.

`FUZZ_EXAMPLES` is the number of examples of each test (30 by default).
"""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.load import Loaded, Source, load
from ansible_collections.modelplane.fleet.plugins.module_utils.core.manifest_text import to_yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output.plan import table
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning import plan
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

# As libyaml does it, where that is there: most of the time of these tests is spent on text that they write and read.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
DATA = Path(__file__).parents[1] / "data" / "manifests"
FILES = {str(path.relative_to(DATA)): path.read_bytes() for path in sorted(DATA.rglob("*.yaml"))}
DOCUMENTS = [
    document
    for data in FILES.values()
    for document in yaml.load_all(data, LOADER)
    if isinstance(document, dict) and "modelplane.ai" in str(document.get("apiVersion"))
]
KEYS = sorted({match for data in FILES.values() for match in data.decode().split() if match.endswith(":")})

fuzz = settings(
    max_examples=int(os.environ.get("FUZZ_EXAMPLES", "30")),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def check(loaded: Loaded, *files: str, readable: bool = False) -> None:
    """Check every answer: problems name their file and place, and no identity is both valid and invalid."""
    for problem in loaded.problems:
        assert problem.message
        assert problem.file in files
        assert problem.line
        assert str(problem)
        if readable:
            assert problem.path or problem.document
    assert not {resource.ref for resource in loaded.resources} & loaded.invalid
    assert bool(loaded.errors) is any(problem.severity == "error" for problem in loaded.problems)


VALUES: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(min_value=-(10**30), max_value=10**30),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=20),
    st.sampled_from(
        ["", "x" * 20_000, "É\N{GRINNING FACE}", "1.36", "-1", "\u2028", 'quo"te', "{{ x }}", "a\nb", "modelplane.ai/x"]
    ),
    st.just([]),
    st.just({}),
    st.lists(st.text(max_size=5), max_size=3),
    st.dictionaries(st.text(max_size=5), st.integers(), max_size=3),
    st.just({"a": [{"b": [{"c": {}}]}]}),
)


def places(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Every place in a document, the document itself left out."""
    found: list[tuple[str | int, ...]] = [path] if path else []
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in entries:
        found.extend(places(item, (*path, key)))
    return found


def mutate(document: Any, draw: st.DrawFn) -> None:
    path = draw(st.sampled_from(places(document)))
    parent = document
    for component in path[:-1]:
        parent = parent[component]
    key = path[-1]
    old = parent[key]
    action = draw(st.sampled_from(["remove", "replace", "misspell", "wrap", "copy", "listify", "add"]))
    if action == "remove":
        del parent[key]
    elif action == "wrap":
        parent[key] = [old]
    elif action == "listify":
        parent[key] = list(old.items()) if isinstance(old, dict) else dict.fromkeys(map(str, range(2)), old)
    elif action == "copy" and isinstance(parent, list):
        parent.append(old)
    elif action == "misspell" and isinstance(parent, dict):
        parent[draw(st.sampled_from([f"{key}s", str(key)[1:], str(key).lower(), f"é{key}", "a.b[0]", 'q"q', ""]))] = (
            parent.pop(key)
        )
    elif action == "add" and isinstance(old, dict):
        old[draw(st.text(max_size=10))] = copy.deepcopy(draw(VALUES))
    else:
        parent[key] = copy.deepcopy(draw(VALUES))


@st.composite
def mutated_documents(draw: st.DrawFn) -> Any:
    document = json.loads(json.dumps(draw(st.sampled_from(DOCUMENTS))))
    for _ in range(draw(st.integers(min_value=1, max_value=4))):
        if places(document):
            mutate(document, draw)
    return document


@fuzz
@given(st.lists(mutated_documents(), min_size=1, max_size=3))
def test_mutated_documents(found: list[Any]) -> None:
    sources = [Source(f"{index}.yaml", yaml.safe_dump(document).encode()) for index, document in enumerate(found)]
    check(load(sources), *(source.name for source in sources), readable=True)


@fuzz
@given(mutated_documents())
def test_mutated_json(document: Any) -> None:
    check(load([Source("x.json", json.dumps(document, indent=1).encode())]), "x.json", readable=True)


@st.composite
def mutated_texts(draw: st.DrawFn) -> bytes:
    text = bytearray(draw(st.sampled_from(list(FILES.values()))))
    for _ in range(draw(st.integers(min_value=1, max_value=5))):
        at = draw(st.integers(min_value=0, max_value=len(text)))
        action = draw(st.sampled_from(["cut", "insert", "drop", "repeat", "token"]))
        if action == "cut":
            del text[at:]
        elif action == "insert":
            text[at:at] = draw(st.binary(min_size=1, max_size=4))
        elif action == "drop":
            del text[at : at + draw(st.integers(min_value=1, max_value=40))]
        elif action == "repeat":
            text[at:at] = text[at : at + 200]
        else:
            tokens = [
                "- ",
                ": ",
                "\n",
                "\t",
                "&a ",
                "*a",
                "<<: *a",
                "{{ ",
                "}}",
                "[",
                "{",
                "!!x ",
                "? ",
                "| ",
                '"',
                "---\n",
                *KEYS,
            ]
            text[at:at] = draw(st.sampled_from(tokens)).encode()
    return bytes(text)


@fuzz
@given(mutated_texts())
def test_mutated_texts(data: bytes) -> None:
    check(load([Source("x.yaml", data)]), "x.yaml")


@fuzz
@given(st.binary(max_size=400))
def test_arbitrary_bytes(data: bytes) -> None:
    check(load([Source("x.yaml", data)]), "x.yaml")


SAMPLE = [
    document
    for path in sorted((Path(__file__).parents[2] / "inventories/quickstart/manifests").glob("*.yaml"))
    for document in yaml.safe_load_all(path.read_bytes())
]


@st.composite
def mutated_fleets(draw: st.DrawFn) -> list[Any]:
    """The sample fleet with a few of its documents mutated."""
    found = copy.deepcopy(SAMPLE)
    for _ in range(draw(st.integers(1, 3))):
        mutate(found[draw(st.integers(0, len(found) - 1))], draw)
    return found


@fuzz
@given(mutated_fleets(), mutated_fleets())
def test_a_mutated_fleet_can_be_planned_and_planned_again(first: list[Any], second: list[Any]) -> None:
    """From what an earlier plan left, with what is invalid held: no exception, every object once, and a repeat is no
    change."""
    existing: list[Any] = []
    for found in (first, second):
        loaded = load([Source("fleet.yaml", yaml.dump_all(found, Dumper=DUMPER).encode())])
        decided = plan((*loaded.resources, *loaded.unresolved), existing, loaded.invalid)
        existing = [api.parse(value) for value in decided.control if value["kind"] in ("ModelReplica", "ModelEndpoint")]
        assert table(decided)
        for objects in (decided.control, *decided.workloads.values()):
            identities = [(v["kind"], v["metadata"].get("namespace"), v["metadata"]["name"]) for v in objects]
            assert len(identities) == len(set(identities))
            assert all(to_yaml(value) for value in objects)
    again = plan((*loaded.resources, *loaded.unresolved), existing, loaded.invalid)
    assert (again.control, again.workloads) == (decided.control, decided.workloads)
