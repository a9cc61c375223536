# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Simple lines: what is read of them is what libyaml's events give, and whatever else is in a text is left to these."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core import yaml_documents, yaml_lines
from ansible_collections.modelplane.fleet.plugins.module_utils.core.manifest_text import to_yaml
from hypothesis import given
from hypothesis import strategies as st

ROOT = Path(__file__).resolve().parents[5]
SIMPLE: dict[str, tuple[str, list[tuple[int, Any]]]] = {
    "a mapping": ("a: b\nc: 1\n", [(1, {"a": "b", "c": 1})]),
    "a nested one": ("a:\n  b:\n    c: x y\n", [(1, {"a": {"b": {"c": "x y"}}})]),
    "any indentation": ("a:\n   b: x\n   c:\n    - d\n", [(1, {"a": {"b": "x", "c": ["d"]}})]),
    "lists below their key": ("a:\n- b\n- c: 1\n  d: 2\ne: f\n", [(1, {"a": ["b", {"c": 1, "d": 2}], "e": "f"})]),
    "lists in lists": ("a:\n- - b\n  - - c\n- d\n", [(1, {"a": [["b", ["c"]], "d"]})]),
    "quotes": ("a: \"x: #\"\nb: 'it''s'\n\"c\": '1'\n", [(1, {"a": "x: #", "b": "it's", "c": "1"})]),
    "words": ("a: yes\nb: ~x\n"[:7] + "c: null\n", [(1, {"a": True, "c": None})]),
    "a block": ("a: |\n  x\n\n    y\nb: |-\n  z\n\n\nc: 1\n", [(1, {"a": "x\n\n  y\n", "b": "z", "c": 1})]),
    "a block in a list": ("a:\n- |\n  x\n- b: |-\n    y\n", [(1, {"a": ["x\n", {"b": "y"}]})]),
    "flow collections": (
        "a: {b: c, 'd': [1, \"e\", {}], f: {g: no}}\nh: []\n",
        [(1, {"a": {"b": "c", "d": [1, "e", {}], "f": {"g": False}}, "h": []})],
    ),
    "comments and blank lines": ("# x\n\na:\n  # y: z\n\n  b: c\n", [(1, {"a": {"b": "c"}})]),
    "documents": ("# x\n---\na: b\n---\n---\nc: d\n---\n", [(1, {"a": "b"}), (3, {"c": "d"})]),
    "documents, the first without a separator": ("a: b\n---\nc: d\n", [(1, {"a": "b"}), (2, {"c": "d"})]),
    "an end": ("a: b\n...\n", [(1, {"a": "b"})]),
}
OTHER = {
    "nothing": "",
    "no line end": "a: b",
    "a comment behind a value": "a: b # c\n",
    "a text of two lines": "a: b\n  c\n",
    "a folded block": "a: >\n  b\n",
    "a block that keeps its line ends": "a: |+\n  b\n\n",
    "an anchor": "a: &b c\n",
    "an alias": "a: *b\n",
    "a tag": "a: !!str b\n",
    "a merge": "<<: {a: b}\n",
    "a key twice": "a: b\na: c\n",
    "a key twice in a flow": "a: {b: c, b: d}\n",
    "a key that is no text": "yes: a\n",
    "a flow key that is no text": "a: {on: b}\n",
    "a key without a value": "a:\nb: c\n",
    "a key without a value at the end": "b: c\na:\n",
    "a flow that goes on": "a: {b: c,\n  d: e}\n",
    "a flow that does not end": "a: [b\n",
    "something behind a flow": "a: [b] c\n",
    "a comma too many": "a: [b,, c]\n",
    "two values": "a: [b c d: e]\n",
    "a fraction": "a: 1.5\n",
    "octal": "a: 017\n",
    "an escape": 'a: "\\n"\n',
    "not ASCII": "a: é\n",
    "a tab": "a:\tb\n",
    "a carriage return": "a: b\r\nc: d\r\n",
    "a list as document": "- a\n",
    "a text as document": "a\n",
    "JSON": '{"a": 1}\n',
    "a directive": "%YAML 1.2\n---\na: b\n",
    "content behind a separator": "--- {a: b}\n",
    "a line that fits nowhere": "a:\n    b: c\n  d: e\n",
    "a list that is not as deep as its key": "a:\n  b:\n - c\n",
    "too deep": "".join(f"{'  ' * depth}a:\n" for depth in range(60)) + "  " * 60 + "a: b\n",
    "a block whose first line is of spaces": "a: |\n \n  b\n",
    "a block with a line of spaces that is not as deep": "a: |\n  b\n \n    # c\n",
    "a flow too deep": f"a: {'[' * 60}{']' * 60}\n",
    "too large": "a: b\n" * 400_000,
}


def general(text: str) -> list[tuple[int, Any]]:
    """Values of libyaml's events, and nothing where there is any problem."""
    reader = yaml_documents._FileReader("x", text, yaml_documents.MAX_NODES, yaml_documents.MAX_DOCUMENTS)
    read = list(reader.read())
    return [] if any(each.problems for each in read) else [(each.number, each.value) for each in read]


@pytest.mark.parametrize("name", SIMPLE)
def test_simple_lines(name: str) -> None:
    text, value = SIMPLE[name]
    assert yaml_lines.read(text) == value == general(text)


@pytest.mark.parametrize("name", OTHER)
def test_what_is_left_to_libyaml(name: str) -> None:
    assert yaml_lines.read(OTHER[name]) is None


VALUES = """x
x y
--x=y
-x
1
-7
0
{}
[]
|
|-
>
'it''s'
"q"
yes
null
~

#c
x #c
{a: b}
{a: [b, 1, {c: 'd'}], e: f}
[a, b: c]
[[x], []]
[a,]
{a: b, a: c}
{a: }
- x
1.5
http://a:8/b
x:
: x
017
---
...
a: b
&x y
*x
!x y
%
{a:b}
[no, on]"""
LINES = st.builds(
    "{}{}{}\n".format,
    st.sampled_from(["", "  ", "    ", "      ", " ", "- ", "- - ", "  - ", "    - ", "   - "]),
    st.sampled_from(["a: ", "b: ", "c:", "d: ", "a.b/c: ", '"e": ', "'f': ", "", "? ", "no: "]),
    st.sampled_from(VALUES.split("\n")),
)
TEXTS = st.lists(st.one_of(LINES, st.sampled_from(["---\n", "\n", "  \n", "# c\n", "...\n", "    x\n"])), max_size=8)


@given(TEXTS.map("".join))
def test_whatever_is_read_is_what_libyaml_reads(text: str) -> None:
    simple = yaml_lines.read(text)
    if simple is not None:
        assert simple == general(text)
        # 1 is not True.
        assert repr(simple) == repr(general(text))


def test_all_manifests_of_the_collection_are_read_alike() -> None:
    simple = texts = 0
    for path in sorted(ROOT.glob("tests/**/*.yaml")) + sorted(ROOT.glob("docs/**/*.y*ml")):
        text = path.read_text(encoding="utf-8")
        found = yaml_lines.read(text)
        texts += 1
        if found is not None:
            simple += 1
            assert repr(found) == repr(general(text)), path
    assert simple > texts / 4


def test_what_is_written_is_simple() -> None:
    value = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "x", "labels": {"a.b/c": "8000", "d": "true"}},
        "data": {"config.yaml": "a: b\n\n  c: |\n", "url": "http://x:80/", "e": "", "f": "- g", "h": ": "},
        "list": [1, None, True, [], {}, ["i", {"j": [[2]]}]],
    }
    assert yaml_lines.read(to_yaml(value)) == [(1, value)]


def test_places_are_found_when_asked_for() -> None:
    text = b"# x\na:\n  b:\n  - c\n  - d: e\n---\nf: g\n"
    first, second = yaml_documents.documents(yaml_documents.Source("x", text))
    assert (first.place.line, first.place.nearest(["a", "b", 1, "d"]).line) == (2, 5)
    assert (second.number, second.place.nearest(["f"]).line) == (2, 7)
