# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""What one task changes at AWS, and what AWS says of it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.aws.tags import differences
from ansible_collections.modelplane.fleet.plugins.module_utils.cloud.changes import Changes

__all__ = ["Changes", "described", "tags_after"]


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
