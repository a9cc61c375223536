# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Texts of tasks that have lines: Ansible takes a backslash in a template as it is, so YAML has to make the newline."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
TASKS = sorted({*ROOT.glob("roles/*/*/**/*.yml"), *ROOT.glob("playbooks/**/*.yml")})


class _Loader(yaml.SafeLoader):
    """Takes tags of Ansible for nothing."""


_Loader.add_multi_constructor("!", lambda _loader, _tag, _node: None)


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from texts(each)
    elif isinstance(value, str):
        yield value


@pytest.mark.parametrize("path", TASKS, ids=lambda path: str(path.relative_to(ROOT)))
def test_lines_are_joined_by_newlines(path: Path) -> None:
    unquoted = [
        text
        for document in yaml.load_all(path.read_text(encoding="utf-8"), _Loader)
        for text in texts(document)
        if r"join('\n')" in text
    ]
    assert unquoted == [], "write it in double quotes"
