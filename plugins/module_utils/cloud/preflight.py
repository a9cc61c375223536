# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Preflight of a cloud: many readings at once before anything is created, each of which may fail."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from ansible_collections.modelplane.fleet.plugins.module_utils.cloud import parallel
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
"""Arguments of preflight modules: the plan of a cluster, and the ranges of addresses of the others."""


def at_once(work: Mapping[str, Callable[[], Any]], error: type[Failed]) -> tuple[dict[str, Any], dict[str, Failed]]:
    """Return the results of pieces of work by their names, and those that failed with that class of errors, in
    their order."""
    outcome = parallel.at_once(work)
    failed: dict[str, Failed] = {}
    for name in work:
        why = outcome.failed.get(name)
        if isinstance(why, error):
            failed[name] = why
        elif why is not None:
            raise why
    return {name: outcome.done[name] for name in work if name in outcome.done}, failed


def failures(failed: Mapping[str, CloudError], passed: Collection[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what failed as problems and warnings, each once. `passed`: the names of what stops nothing."""
    problems = [str(error) for name, error in failed.items() if name not in passed]
    warnings = [f"not looked at: {error}" for name, error in failed.items() if name in passed]
    return tuple(dict.fromkeys(problems)), tuple(dict.fromkeys(warnings))
