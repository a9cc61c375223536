# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Preflight of a cloud: concurrent reads before anything is created. Each read might fail."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

from ..core.cloud.preflight import Line, Verdict, verdict
from . import parallel
from .errors import CloudError

Failed = TypeVar("Failed", bound=CloudError)


def at_once(work: Mapping[str, Callable[[], Any]], error: type[Failed]) -> tuple[dict[str, Any], dict[str, Failed]]:
    """Return the results of pieces of work by name, and the pieces that failed with an `error`, in their order."""
    outcome = parallel.at_once(work)
    failed: dict[str, Failed] = {}
    for name in work:
        why = outcome.failed.get(name)
        if isinstance(why, error):
            failed[name] = why
        elif why is not None:
            raise why
    return {name: outcome.done[name] for name in work if name in outcome.done}, failed


def failures(failed: Mapping[str, CloudError], passed: Collection[str]) -> Verdict:
    """Return the failed reads as problems and warnings. `passed`: names of reads that only cause a warning if they
    fail."""
    return verdict(
        Line(f"not checked: {error}", problem=False) if name in passed else Line(str(error))
        for name, error in failed.items()
    )


def results(*verdicts: Verdict) -> dict[str, list[str]]:
    """Return the results of a module that reports verdicts."""
    return {
        "problems": [line for verdict in verdicts for line in verdict.problems],
        "warnings_found": [line for verdict in verdicts for line in verdict.warnings],
    }


def today() -> str:
    """Return the current date in UTC, for the observation of an account."""
    return datetime.now(UTC).strftime("%Y-%m-%d")
