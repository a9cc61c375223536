# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Problems that an editor shows in a document: those of the JSON Schemas in docs/schemas."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
from referencing import Registry

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "schemas"
ANY_KIND = "modelplane"


def _pattern(_validator: Any, pattern: str, value: Any, _schema: Any) -> Iterator[jsonschema.ValidationError]:
    # To Python, `$` is also before a newline at the end.
    if isinstance(value, str) and not re.search(re.sub(r"\$$", r"\\Z", pattern), value):
        yield jsonschema.ValidationError(f"{value!r} does not match {pattern!r}")


_Validator = jsonschema.validators.extend(jsonschema.Draft7Validator, {"pattern": _pattern})


@cache
def schemas() -> dict[str, dict[str, Any]]:
    """Return the schemas by the names of their files."""
    return {path.name: json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.json"))}


@cache
def validator(name: str = ANY_KIND) -> Any:
    """Return the validator of a kind, or of documents of any kind."""
    registry: Any = Registry().with_contents(schemas().items())
    return _Validator(schemas()[f"{name}.json"], registry=registry)


def validator_of(schema: dict[str, Any]) -> Any:
    return _Validator(schema)


def problems(document: Any) -> list[jsonschema.ValidationError]:
    """Return what is wrong with a document."""
    return list(validator().iter_errors(document))
