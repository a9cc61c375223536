# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Tags of AWS objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

MANAGED_BY = "modelplane.ai/managed-by"
MANAGER = "modelplane.fleet"


def plain(tags: Iterable[Mapping[str, str]] | None) -> dict[str, str]:
    """The mapping of a list of tags; some calls of IAM and EFS give none at all."""
    return {tag["Key"]: tag.get("Value", "") for tag in tags or ()}


def ours(have: Mapping[str, str]) -> bool:
    """Whether an object was made by this collection, for whichever fleet."""
    return have.get(MANAGED_BY) == MANAGER
