# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A look at a cloud before anything is made there: many questions at once, of which each may fail."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from ansible_collections.modelplane.fleet.plugins.module_utils.cloud.errors import CloudError

Failed = TypeVar("Failed", bound=CloudError)

ARGUMENTS: dict[str, Any] = {
    "plan": {"type": "dict"},
    "others": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {name: {"type": "str", "required": True} for name in ("name", "region", "cidr")},
    },
}
"""What modules take that look: the plan of a cluster, and the ranges of addresses of the others."""
_WIDTH = 16


def at_once(work: Mapping[str, Callable[[], Any]], error: type[Failed]) -> tuple[dict[str, Any], dict[str, Failed]]:
    """What the pieces of work came to, by their names, and which failed with that class of errors."""
    read: dict[str, Any] = {}
    failed: dict[str, Failed] = {}
    if not work:
        return read, failed
    with ThreadPoolExecutor(max_workers=min(_WIDTH, len(work)), thread_name_prefix="look") as pool:
        futures = {name: pool.submit(action) for name, action in work.items()}
    for name, future in futures.items():
        try:
            read[name] = future.result()
        except error as why:
            failed[name] = why
    return read, failed


def failures(failed: Mapping[str, CloudError], passed: Collection[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What failed as problems and warnings, each once. `passed`: the names of what stops nothing."""
    problems = [str(error) for name, error in failed.items() if name not in passed]
    warnings = [f"not looked at: {error}" for name, error in failed.items() if name in passed]
    return tuple(dict.fromkeys(problems)), tuple(dict.fromkeys(warnings))
