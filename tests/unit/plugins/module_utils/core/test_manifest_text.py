# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Objects as YAML text: its layout, and that it is read as what it was."""

from __future__ import annotations

import math
import re
from datetime import date
from pathlib import Path

import pytest
import yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.core.manifest_text import by_libyaml, to_yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.core.yaml_documents import Source, documents
from hypothesis import example, given
from hypothesis import strategies as st

ROOT = Path(__file__).resolve().parents[5]
TEXTS = {
    "a word": ("word", "a: word\n"),
    "empty": ("", "a: ''\n"),
    "a boolean of YAML 1.1": ("no", 'a: "no"\n'),
    "a number": ("1e3", 'a: "1e3"\n'),
    "a date": ("2026-01-01", 'a: "2026-01-01"\n'),
    "null": ("~", 'a: "~"\n'),
    "a mapping, if it was plain": ("x: y", "a: 'x: y'\n"),
    "a comment, if it was plain": ("x #y", "a: 'x #y'\n"),
    "several lines": ("one\ntwo\n", "a: |\n  one\n  two\n"),
    "long": ("word " * 100 + "end", f"a: {'word ' * 100}end\n"),
    "not ASCII": ("größer", "a: größer\n"),
}
OTHERS = {
    "true": (True, "a: true\n"),
    "null": (None, "a: null\n"),
    "a negative number": (-5, "a: -5\n"),
    "a fraction": (0.5, "a: 0.5\n"),
    "infinity": (math.inf, "a: .inf\n"),
    "a date": (date(2026, 1, 1), "a: 2026-01-01\n"),
    "an empty list": ([], "a: []\n"),
    "an empty mapping": ({}, "a: {}\n"),
    "a tuple": ((1, "b"), "a:\n- 1\n- b\n"),
    "nested": ([{"b": [1]}, [2]], "a:\n- b:\n  - 1\n- - 2\n"),
}
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from(["yes", "1_000", "0x1", ".5", "=", "<<"])
)
VALUES = st.recursive(SCALARS, lambda below: st.lists(below) | st.dictionaries(st.text(), below), max_leaves=20)


@pytest.mark.parametrize("name", TEXTS)
def test_text(name: str) -> None:
    value, text = TEXTS[name]
    assert to_yaml({"a": value}) == text


@pytest.mark.parametrize("name", OTHERS)
def test_other_values(name: str) -> None:
    value, text = OTHERS[name]
    assert to_yaml({"a": value}) == text


def test_keys_keep_their_order_and_values_are_never_anchors() -> None:
    shared = {"x": 1}
    assert to_yaml({"b": shared, "a": shared}) == "b:\n  x: 1\na:\n  x: 1\n"


@given(st.dictionaries(st.text(), VALUES))
@example({"a": "\x07"})
@example({"a": "tail \n"})
@example({"no": {"": "\n"}})
def test_what_is_written_is_read_as_it_was(value: dict[str, object]) -> None:
    text = to_yaml(value)
    assert yaml.safe_load(text) == value
    assert to_yaml(value) == text


# What manifests are made of, and what is near it: signs that mean something to YAML, in all places.
SIGNS = """a B9 modelplane.ai/x - --flag=1 : # ' " \\ { } [ ] , & * ! | > % @ ` ? = << ~ . ... --- no Null y 0 1e3 0x1f
2026-01-01 é \u2028 \x85 \ufeff \x07 \U0001f600"""
PARTS = st.sampled_from([*re.split("[ \n]", SIGNS), " ", "  ", ": ", " :", " #", "\n", "\n\n", "\t", "\r", "a" * 129])
WORDS = st.lists(PARTS, max_size=6).map("".join)
LIKE_MANIFESTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | WORDS | st.text(),
    lambda below: st.lists(below, max_size=4) | st.tuples(below) | st.dictionaries(WORDS | st.integers(), below),
    max_leaves=12,
)


@given(st.dictionaries(WORDS, LIKE_MANIFESTS, max_size=4))
@example({})
@example({"a": {"b": [[{"c": [], "d": {}}, "x\ny"], []]}})
@example({"a" * 128: "x", "b" * 129: "y"})
@example({"a": ["one\n\n  two", "one \ntwo", " one\ntwo", "one\n\n", "one\n", "\n"]})
def test_the_text_is_that_of_libyaml(value: dict[str, object]) -> None:
    assert to_yaml(value) == by_libyaml(value)


def test_every_object_of_the_golden_files_is_written_as_by_libyaml() -> None:
    found = 0
    for path in sorted(ROOT.glob("tests/**/*.yaml")) + sorted(ROOT.glob("docs/**/*.yaml")):
        for document in documents(Source(str(path), path.read_bytes())):
            if isinstance(document.value, dict):
                found += 1
                assert to_yaml(document.value) == by_libyaml(document.value), path
    assert found > 100
