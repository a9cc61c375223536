# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Notes of a conversion: errors, warnings, and the origin of each part of the document."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from ..problem import Problem
from ..text import field_path, nearest_key
from ..topology import TopologyError


class ConversionError(ValueError):
    """Document without a canonical format. `problems`: all reasons, with paths of the user's document."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: tuple[Problem, ...] = tuple(problems)
        super().__init__(" ".join(str(problem) for problem in self.problems))


class Notes:
    """Errors, warnings, and origins of a conversion."""

    def __init__(self) -> None:
        self.errors: list[Problem] = []
        self.warnings: list[Problem] = []
        self.origin: dict[str, str] = {}

    def error(self, path: str, message: str, value: str = "", hint: str = "") -> None:
        self.errors.append(Problem(message, path, value, hint))

    def warn(self, path: str, message: str, hint: str = "") -> None:
        self.warnings.append(Problem(message, path, hint=hint, severity="warning"))

    def older(self, path: str, newer: str) -> None:
        self.warn(path, f"is an earlier spelling of {newer}", f"Write {newer}.")

    def below(self, base: str, error: TopologyError) -> None:
        """Add problems with paths relative to `base`."""
        for problem in error.problems:
            joint = "." if problem.path and not problem.path.startswith("[") else ""
            self.errors.append(replace(problem, path=f"{base}{joint}{problem.path}"))

    def unknown(self, base: str, key: object, known_fields: Iterable[str]) -> None:
        self.error(field_path(base, key), "is not a known field", hint=nearest_key(key, known_fields))


def given_entries(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries that are not null, because a null value equals a missing key."""
    return {key: value for key, value in mapping.items() if value is not None}
