# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""What one task changes at AWS, kept as it goes along: what was done before a failure is told with the failure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.aws.tags import differences


class Changes:
    """What was changed; in check mode, what would be. The diff has one entry for each object, by its name."""

    def __init__(self, check_mode: bool) -> None:
        self.check_mode = check_mode
        self._before: dict[str, Any] = {}
        self._after: dict[str, Any] = {}
        self.problems: list[str] = []
        self.warnings: list[str] = []

    @property
    def changed(self) -> bool:
        return bool(self._before or self._after)

    def tell(self, name: str, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> None:
        """Something of an object was changed: the fields that did, None for an object that was or is not there."""
        for side, fields in ((self._before, before), (self._after, after)):
            if fields is not None:
                side[name] = {**side.get(name, {}), **fields}

    def result(self) -> dict[str, Any]:
        """`changed` and `diff` of a module's result."""
        return {"changed": self.changed, "diff": {"before": self._before, "after": self._after}}


def tags_after(have: Mapping[str, str], want: Mapping[str, str]) -> dict[str, str]:
    """The tags of an object once those that are ours to set and remove are as they should be."""
    to_set, to_remove = differences(have, want)
    return {key: value for key, value in {**have, **to_set}.items() if key not in to_remove}


def described(value: Any) -> Any:
    """What AWS says of an object, as plain data: times as text, without what is about the answer itself."""
    if isinstance(value, Mapping):
        return {str(key): described(item) for key, item in value.items() if key != "ResponseMetadata"}
    if isinstance(value, (list, tuple)):
        return [described(item) for item in value]
    return value.isoformat() if isinstance(value, datetime) else value
