# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The documents of tests/data/api: minimal valid ones, and one change each that makes them invalid."""

from __future__ import annotations

import copy
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

DATA = Path(__file__).resolve().parents[5] / "data"
_REPEATED = re.compile(r"<(.)\*(\d+)>")


def expanded(value: Any) -> Any:
    """The value with every "<x*64>" written out."""
    if isinstance(value, str):
        return _REPEATED.sub(lambda found: found[1] * int(found[2]), value)
    if isinstance(value, list):
        return [expanded(item) for item in value]
    if isinstance(value, dict):
        return {expanded(key): expanded(item) for key, item in value.items()}
    return value


def changed(document: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """A copy of the document with other values at some field paths; None removes the field."""
    document = copy.deepcopy(document)
    for path, value in changes.items():
        *parents, last = [int(part) if part.isdigit() else part for part in re.findall(r"[^.\[\]]+", path)]
        place: Any = document
        for part in parents:
            place = place[part] if isinstance(part, int) else place.setdefault(part, {})
        if value is None and isinstance(last, str):
            del place[last]
        else:
            place[last] = expanded(value)
    return document


@cache
def read_minimal() -> dict[str, dict[str, Any]]:
    """The documents of minimal.yaml by kind."""
    documents = yaml.safe_load_all((DATA / "api" / "minimal.yaml").read_text())
    return {document["kind"]: document for document in documents}


def read_cases() -> list[dict[str, Any]]:
    """The rows of cases.yaml."""
    cases: list[dict[str, Any]] = yaml.safe_load((DATA / "api" / "cases.yaml").read_text())
    return cases


@pytest.fixture
def minimal() -> dict[str, dict[str, Any]]:
    """The minimal documents by kind; change them as you like."""
    return copy.deepcopy(read_minimal())


@pytest.fixture(scope="session")
def cases() -> list[dict[str, Any]]:
    """All cases of cases.yaml."""
    return read_cases()


@pytest.fixture
def change() -> Any:
    """The function that changes a document at field paths."""
    return changed


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Fill in `kind` and `case`."""
    if "kind" in metafunc.fixturenames:
        metafunc.parametrize("kind", list(read_minimal()))
    if "case" in metafunc.fixturenames:
        rows = []
        for case in read_cases():
            document = changed(read_minimal()[case["kind"]], case["change"])
            expected = {**case, "document": document, "path": expanded(case["path"])}
            rows.append(pytest.param(expected, id=f"{case['kind']}-{case['rule']}".replace(" ", "_")))
        metafunc.parametrize("case", rows)
