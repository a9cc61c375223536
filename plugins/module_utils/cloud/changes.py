# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Record of the changes of one task in a cloud: what was done before a failure is returned with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Changes:
    """Changes that were made; in check mode, that would be. The diff has one entry for each object, by its name."""

    def __init__(self, check_mode: bool) -> None:
        self.check_mode = check_mode
        self._before: dict[str, Any] = {}
        self._after: dict[str, Any] = {}
        self.actions: list[str] = []
        self.warnings: list[str] = []

    @property
    def changed(self) -> bool:
        return bool(self._before or self._after)

    def record(self, name: str, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> None:
        """Record a change of an object: the fields that changed, None for an object that did or does not exist."""
        for side, fields in ((self._before, before), (self._after, after)):
            if fields is not None:
                side[name] = {**side.get(name, {}), **fields}

    def report(self, action: str) -> None:
        """Add what was done, or in check mode would be, in words; once."""
        if action not in self.actions:
            self.actions.append(action)

    def result(self) -> dict[str, Any]:
        """`changed`, `actions` and `diff` of a module's result."""
        diff = {"before": self._before, "after": self._after}
        return {"changed": self.changed, "actions": self.actions, "diff": diff}
