# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The YAML side of loading: what a text means, what is refused, and where."""

from __future__ import annotations

import sys
import time
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.problem import Problem
from ansible_collections.modelplane.fleet.plugins.module_utils.core.yaml_documents import (
    MAX_DEPTH,
    MAX_SYNTAX_ERRORS,
    Document,
    Source,
    documents,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.yaml_scalars import resolve
from hypothesis import given
from hypothesis import strategies as st

# Seconds after which work that should be bounded is taken to have no end; how fast it is, is measured elsewhere.
ENDLESS = 60


def read(text: str | bytes) -> list[Document]:
    data = text.encode() if isinstance(text, str) else text
    return list(documents(Source("fleet.yaml", data)))


def only_value(text: str | bytes) -> Any:
    (document,) = read(text)
    assert document.problems == ()
    assert document.complete
    return document.value


def problems(text: str | bytes) -> list[Problem]:
    return [problem for document in read(text) for problem in document.problems]


# Answers of sigs.k8s.io/yaml v1.6.0 (YAMLToJSON of `a: <text>`).
@pytest.mark.parametrize(
    ("text", "value"),
    [
        *((word, True) for word in ["y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"]),
        *((word, False) for word in ["n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"]),
        *((word, None) for word in ("~", "null", "Null", "NULL", "")),
        *((word, word) for word in ["yEs", "oN", "tRue", "nULL", "Y1", "none", "None", "NONE"]),
        ("0", 0),
        ("-0", 0),
        ("+1", 1),
        ("017", 15),
        ("0o17", 15),
        ("-017", -15),
        ("08", 8),
        ("0x1F", 31),
        ("-0x1f", -31),
        ("0b11", 3),
        ("0b2", "0b2"),
        ("0x", "0x"),
        ("1_000", 1000),
        ("_1", "_1"),
        ("1.5", 1.5),
        ("1.", 1),
        (".5", 0.5),
        (".5_2", 0.52),
        ("._1", "._1"),
        (".", "."),
        ("-", "-"),
        ("1e3", 1000),
        ("1e-3", 0.001),
        ("1e", "1e"),
        ("1e400", "1e400"),
        ("2.0", 2),
        ("1.36", 1.36),
        ("1.30", 1.3),
        ("9223372036854775807", 9223372036854775807),
        ("18446744073709551615", 18446744073709551615),
        ("18446744073709551616", 18446744073709551616.0),
        ("2026-01-01", "2026-01-01"),
        ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
        ("12:30", "12:30"),
        ("190:20:30", "190:20:30"),
        ("1.2.3", "1.2.3"),
        ("10Gi", "10Gi"),
        ("=", "="),
        ("0x1p3", "0x1p3"),
        ("١", "١"),
    ],
)
def test_plain_scalars_mean_what_kubernetes_makes_of_them(text: str, value: Any) -> None:
    resolved = resolve(text)
    assert resolved == value
    assert type(resolved) is type(value)


@given(st.text(alphabet="0123456789+-._eExXobBnaif", max_size=400))
def test_resolving_never_raises(text: str) -> None:
    assert isinstance(resolve(text), (str, int, float, bool, type(None)))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('a: "yes"', {"a": "yes"}),
        ("a: 'on'", {"a": "on"}),
        ("a: |\n  1\n", {"a": "1\n"}),
        ("a: !!str 3", {"a": "3"}),
        ('a: !!int "3"', {"a": 3}),
        ("a: !!float 3", {"a": 3}),
        ("a: !!seq [1]\nb: !!map {c: 1}", {"a": [1], "b": {"c": 1}}),
        ("a: &x [1, {b: 2}]\nc: *x", {"a": [1, {"b": 2}], "c": [1, {"b": 2}]}),
        ("a: &x {k: 1, l: 2}\nb: {<<: *x, l: 3}", {"a": {"k": 1, "l": 2}, "b": {"l": 3, "k": 1}}),
        (
            "x: &x {k: 1}\nw: &w {k: 2, m: 3}\nz:\n  <<: [*x, *w]",
            {"x": {"k": 1}, "w": {"k": 2, "m": 3}, "z": {"k": 1, "m": 3}},
        ),
        ('"<<": 1', {"<<": 1}),
        ("&k key: 1\nother: *k", {"key": 1, "other": "key"}),
        ("a: \"{{ lookup('pipe', 'id') }}\"", {"a": "{{ lookup('pipe', 'id') }}"}),
        ("a: x{{ y }}", {"a": "x{{ y }}"}),
        ('{"a": [1, 2.5, true, null], "b": "\\u00e9\\/"}', {"a": [1, 2.5, True, None], "b": "é/"}),
        ('{"a": "\\ud83d\\ude00", "b": "\\\\ud83d"}', {"a": "\U0001f600", "b": "\\ud83d"}),
        ('{\n\t"a": 1\n}', {"a": 1}),
        (b"\xef\xbb\xbfa: 1\n", {"a": 1}),
        ("a: 1\r\nb: 2\r\n", {"a": 1, "b": 2}),
        ("%YAML 1.1\n---\na: 1\n...\n", {"a": 1}),
        ("None: None", {"None": "None"}),
    ],
)
def test_values(text: str | bytes, value: Any) -> None:
    assert only_value(text) == value


def test_documents_are_counted_from_one_and_empty_ones_are_skipped() -> None:
    found = read("---\na: 1\n---\n# nothing\n---\nb: 2\n---\n")
    assert [(document.number, document.value, document.place.line) for document in found] == [
        (1, {"a": 1}, 2),
        (3, {"b": 2}, 6),
    ]
    assert read("") == read("# a comment\n") == read("---\n---\n") == []


def test_every_key_and_item_knows_its_line() -> None:
    (document,) = read("kind: X\nspec:\n  pools:\n  - name: a\n    nodes: 1\n  - name: b\n  - {name: c}\n")
    place = document.place
    assert place.nearest(["spec"]).line == 2
    assert place.nearest(["spec", "pools", 0, "nodes"]).line == 5
    assert place.nearest(["spec", "pools", 1]).line == 6
    assert place.nearest(["spec", "pools", 2, "name"]).line == 7
    assert place.nearest(["spec", "pools", 1, "missing", "deeper"]).line == 6
    assert place.nearest(["spec", "pools", 9]).line == 3
    assert place.nearest(["spec", "pools", "name"]).line == 3
    assert place.nearest(["kind", "x", 0]).line == 1


def test_what_comes_from_an_anchor_is_placed_where_it_is_written() -> None:
    (document,) = read("a: &x\n  k: 1\nb:\n  <<: *x\nc: *x\n")
    assert document.place.nearest(["b", "k"]).line == 2
    assert document.place.nearest(["c"]).line == 5


@pytest.mark.parametrize(
    ("text", "line", "says", "hint"),
    [
        pytest.param(
            "a: 1\nb: 2\na: 3", 3, "'a' is given twice, at line 1 and at line 3", "one of the two", id="duplicate"
        ),
        pytest.param("x:\n  a: 1\n  a: 2", 3, "line 2 and at line 3", "", id="duplicate below"),
        pytest.param("1: a", 1, "the key '1' is a number", 'Quote it: "1"', id="number key"),
        pytest.param("on: a", 1, "the key 'on' is a boolean", 'Quote it: "on"', id="boolean key"),
        pytest.param("~: a", 1, "the key '~' is null", "Quote it", id="null key"),
        pytest.param("a:\n  ? [x]\n  : 1", 2, "cannot be a key", "", id="list key"),
        pytest.param("a: {{ x }}", 1, "cannot be a key", "Put quotes around", id="unquoted template"),
        pytest.param("a: {{ .Values.x }}", 1, "cannot be a key", "helm template", id="helm value"),
        pytest.param("{{- if .Values.x }}\na: 1\n{{- end }}\n", 1, "", "helm template", id="helm block"),
        pytest.param("{% if x %}\na: 1\n", 1, "not valid YAML", "nothing is templated", id="jinja block"),
        pytest.param(
            "a: !!python/object:os.system x", 1, "tag !!python/object:os.system", "Remove it", id="python tag"
        ),
        pytest.param("a: !vault |\n  x", 1, "tag !vault is not allowed", "Remove it", id="vault tag"),
        pytest.param("a: !!timestamp 2026-01-01", 1, "not allowed", "", id="timestamp tag"),
        pytest.param("a: !!binary aGk=", 1, "not allowed", "", id="binary tag"),
        pytest.param("a: !!set {x}", 1, "not allowed", "", id="set tag"),
        pytest.param("a: !!map [x]", 1, "not allowed", "", id="tag of another container"),
        pytest.param("a: !!int x", 1, "'x' is not what its tag !!int says", "Remove the tag", id="tag of another type"),
        pytest.param("a: .inf", 1, ".inf is not a number that a manifest can hold", "Quote", id="infinite"),
        pytest.param("a: [.nan]", 1, ".nan is not a number", "Quote", id="nan"),
        pytest.param("a: *x", 1, "alias *x has no anchor", "", id="unknown alias"),
        pytest.param("a: &x [*x]", 1, "a part of", "", id="endless alias"),
        pytest.param("a: {<<: 1}", 1, "needs a mapping", "<<: *name", id="merge of text"),
        pytest.param("a: {<<: [1]}", 1, "needs a mapping", "", id="merge of texts"),
        pytest.param("a: 1\n  b: 2", 2, "line 2, column 4: mapping values are not allowed", "quotes", id="indentation"),
        pytest.param("a: b: c", 1, "mapping values are not allowed", "': '", id="colon in text"),
        pytest.param("a: [1,\nb: 2\n", 3, "expected ',' or ']'", "not closed", id="open bracket"),
        pytest.param("a:\n\t- 1", 2, "line starts with a tab", "spaces", id="tab"),
        pytest.param("a: @x", 1, "cannot start any token", "quotes", id="reserved sign"),
        pytest.param('a: "x', 1, "", "", id="open quote"),
        pytest.param("- a\nb: 1", 2, "expected '-' indicator", "indentation", id="list then mapping"),
        pytest.param(b"a: \x00", 1, "byte 3 is NUL", "UTF-8", id="nul"),
        pytest.param(b"a: 1\nb: \xe9", 2, "not UTF-8 text: byte 8 is 0xe9", "UTF-8", id="latin 1"),
        pytest.param("a: 1".encode("utf-16"), 1, "is UTF-16 or UTF-32, and must be UTF-8", "UTF-8", id="utf-16"),
        pytest.param("a: 1".encode("utf-32"), 1, "UTF-32", "UTF-8", id="utf-32"),
        pytest.param("a: 1".encode("utf-16-le"), 1, "NUL", "UTF-8", id="utf-16 without mark"),
        pytest.param("a: 1\nb: \x1b[0m", 2, "control character U+001B", "escape", id="control character"),
        pytest.param(b"\x89PNG\r\n\x1a\n\x00", 3, "NUL", "", id="picture"),
    ],
)
def test_problems_of_text(text: str | bytes, line: int, says: str, hint: str) -> None:
    problem = problems(text)[0]
    assert (problem.file, problem.line, problem.document) == ("fleet.yaml", line, problem.document)
    assert problem.severity == "error"
    assert says in problem.message
    assert hint in problem.hint


def test_all_problems_of_a_text_are_found() -> None:
    (document,) = read("a: 1\na: 2\n3: x\nb: .inf\nc: !x y\nd: {{ e }}\n")
    assert [problem.line for problem in document.problems] == [2, 3, 4, 5, 6]
    assert not document.complete


def test_a_duplicate_leaves_the_document_complete_with_the_first_value() -> None:
    (document,) = read("a: 1\na: 2\nb: 3")
    assert (document.value, document.complete) == ({"a": 1, "b": 3}, True)


def test_documents_behind_a_broken_one_are_still_read() -> None:
    found = read("a: 1\n---\nb: [\n---\nc: 3\n---\nd: e: f\n---\ng: 7\n")
    assert [document.value for document in found] == [{"a": 1}, None, {"c": 3}, None, {"g": 7}]
    assert [problem.line for document in found for problem in document.problems] == [4, 7]
    assert found[-1].place.nearest(["g"]).line == 9


def test_a_file_of_errors_is_left_after_some() -> None:
    found = problems("---\na: b: c\n" * 500)
    assert len(found) == MAX_SYNTAX_ERRORS + 1
    assert "rest of the file is not read" in found[-1].message


BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 30)
)
LONG_TEXT = "a: &a " + "x" * 100_000 + "\nb: [" + "*a, " * 10_000 + "]"
CHAIN = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, MAX_DEPTH + 1))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("[" * 10_000, "levels deep", id="open brackets"),
        pytest.param("[" * 10_000 + "]" * 10_000, "levels deep", id="brackets"),
        pytest.param("{a: " * 10_000 + "}" * 10_000, "levels deep", id="braces"),
        pytest.param("- " * 10_000 + "x", "levels deep", id="dashes"),
        pytest.param("? " * 10_000, "levels deep", id="explicit keys"),
        pytest.param("[" * 1_000_000, "levels deep", id="a million brackets"),
        pytest.param("\n".join(" " * i + "a:" for i in range(3_000)), "levels deep", id="indented keys"),
        pytest.param(BOMB, "stand for more than", id="alias bomb"),
        pytest.param(BOMB.replace("[", "[{<<: {k: ").replace("]", "}}]"), "", id="alias bomb of maps"),
        pytest.param(LONG_TEXT, "stand for more than", id="long text"),
        pytest.param(CHAIN, "levels deep", id="nested aliases"),
    ],
)
def test_bombs_are_refused_quickly(text: str, says: str) -> None:
    limit = sys.getrecursionlimit()
    start = time.process_time()
    found = problems(text)
    # Milliseconds in fact; the bound leaves room for a busy machine.
    assert time.process_time() - start < ENDLESS
    assert found
    assert any(says in problem.message for problem in found)
    assert sys.getrecursionlimit() == limit


def test_too_many_values_are_refused() -> None:
    def found(text: str) -> list[str]:
        return [p.message for d in documents(Source("x", text.encode()), max_nodes=10) for p in d.problems]

    assert found("[1, 2, 3, 4, 5, 6, 7]") == []
    assert found("[1, 2, 3, 4, 5]\n---\n[1, 2, 3, 4, 5]")[0] == "the file holds too many values"


def test_too_many_documents_are_refused() -> None:
    found = list(documents(Source("x", b"---\na: 1\n" * 4), max_documents=3))
    assert [document.value for document in found] == [{"a": 1}] * 3 + [None, None]
    assert "more than 3 documents" in found[3].problems[0].message


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for document in documents(Source("x", data)):
        assert document.complete or document.problems
        assert all(problem.file == "x" and problem.line for problem in document.problems)


_YAML_ALPHABET = st.sampled_from(
    [*"ab1:-?[]{},&*!|>'\"%@`#\n ~<.", "\n  ", "---\n", "&a ", "*a", "<<: ", "{{ ", "!!", "\t"]
)


@given(st.lists(_YAML_ALPHABET, max_size=60).map("".join))
def test_any_text_is_read_or_refused(text: str) -> None:
    for document in documents(Source("x", text.encode())):
        assert document.complete or document.problems
        assert all(problem.line and problem.document for problem in document.problems)
