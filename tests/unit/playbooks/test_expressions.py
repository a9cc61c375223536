# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Jinja only places values: expressions of roles and playbooks are short, and loops are those of Ansible.

What takes more is a function of `plugins/`, which has types and tests of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jinja2 import Environment

ROOT = Path(__file__).parents[3]
LONGEST = 120
PATHS = sorted(
    path
    for folder in ("roles", "playbooks")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in (".yml", ".yaml", ".j2") and "files" not in path.relative_to(ROOT).parts
)
_JINJA = Environment(autoescape=True)
_CONDITIONS = {"when", "that", "changed_when", "failed_when", "until"}
"""Keywords whose text is an expression without braces."""
_INCLUDES = {"include_tasks", "import_tasks", "ansible.builtin.include_tasks", "ansible.builtin.import_tasks"}
_COLLECTS = re.compile(r"\bdo\b|\bnamespace\s*\(|[.](?:append|extend|update|insert|setdefault)\s*\(")
"""Pattern by which a template collects values in a loop."""


class _Loader(yaml.SafeLoader):
    """Reads tags of Ansible as nothing."""


_Loader.add_multi_constructor("!", lambda _loader, _tag, _node: None)


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def jinja(text: str) -> Iterator[tuple[str, str]]:
    """Kind (`variable`, `block`) and text of each `{{ … }}` and `{% … %}`, with white space as one blank."""
    parts: list[str] = []
    for _line, token, value in _JINJA.lex(text):
        if token in ("variable_begin", "block_begin"):
            parts = []
        elif token in ("variable_end", "block_end"):
            yield token.removesuffix("_end"), " ".join("".join(parts).split())
        else:
            parts.append(value)


def texts(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Key and text of every string of a YAML document."""
    if isinstance(value, dict):
        for each, below in value.items():
            yield from texts(below, str(each))
    elif isinstance(value, list):
        for below in value:
            yield from texts(below, key)
    elif isinstance(value, str):
        yield key, value


def documents(path: Path) -> list[Any]:
    return list(yaml.load_all(path.read_text(encoding="utf-8"), _Loader))


def expressions(path: Path) -> Iterator[tuple[str, str]]:
    """Kind and text of every expression of a file."""
    if path.suffix == ".j2":
        yield from jinja(path.read_text(encoding="utf-8"))
        return
    for key, text in texts(documents(path)):
        if key in _CONDITIONS and "{{" not in text:
            yield "variable", " ".join(text.split())
        yield from jinja(text)


def included(path: Path) -> set[Path]:
    """The task files that a file names."""
    if path.suffix == ".j2":
        return set()
    found: set[Path] = set()
    # A name is searched beside the file, and below the folder of tasks of its play.
    folders = (path.parent, path.parent / "tasks")
    for entry in _mappings(documents(path)):
        for keyword in _INCLUDES & entry.keys():
            file = entry[keyword] if isinstance(entry[keyword], str) else (entry[keyword] or {}).get("file", "")
            found |= {(folder / file).resolve() for folder in folders if (folder / file).is_file()}
    return found


def _mappings(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    if isinstance(value, list):
        for below in value:
            yield from _mappings(below)


def reached(path: Path) -> set[Path]:
    """The task files that run when this one does."""
    found: set[Path] = set()
    open_ = included(path)
    while open_:
        found |= open_
        open_ = {below for each in open_ for below in included(each)} - found
    return found


def findings(path: Path) -> Iterator[str]:
    for kind, text in expressions(path):
        if len(text) > LONGEST:
            yield f"an expression of {len(text)} characters (at most {LONGEST}), make it a function: {text[:60]} …"
        if kind == "block" and _COLLECTS.search(text):
            yield f"a loop that collects values, make it a function: {text}"
    if path in reached(path):
        yield "a loop of task files that include each other, use until, loop or a module"


@pytest.mark.parametrize("path", PATHS, ids=name)
def test_jinja_only_places_values(path: Path) -> None:
    assert list(findings(path)) == []


@pytest.mark.parametrize(
    ("file", "content", "finding"),
    [
        ("roles/x/tasks/main.yml", "- debug: {msg: '{{ " + "x | y" * 25 + " }}'}", "125 characters"),
        ("roles/x/tasks/main.yml", "- debug:\n  when: " + "x and " * 20 + "x", "121 characters"),
        ("roles/x/templates/x.j2", "{% for x in y %}{% set _ = found.append(x) %}{% endfor %}", "collects"),
        ("roles/x/templates/x.j2", "{% set seen = namespace(n=0) %}", "collects"),
        ("roles/x/templates/x.j2", "{% do found.update(x) %}", "collects"),
        ("roles/x/tasks/main.yml", "- block:\n    - ansible.builtin.include_tasks: main.yml", "include each other"),
        ("roles/x/tasks/main.yml", "- include_tasks: {file: main.yml}", "include each other"),
    ],
)
def test_each_of_these_is_found(file: str, content: str, finding: str, tmp_path: Path) -> None:
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_text(content)
    assert [each for each in findings(path) if finding in each]
