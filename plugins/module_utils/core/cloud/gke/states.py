# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Whether an object of Google Cloud is ready, on its way, or has failed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_READY = {"cluster": "RUNNING", "node-pool": "RUNNING", "subnetwork": "READY", "service": "ENABLED"}
_FAILED = ("ERROR", "DEGRADED", "RUNNING_WITH_ERROR")


@dataclass(frozen=True)
class State:
    """`word`: what the API says, empty for a kind without states. `causes`: codes and messages of what is wrong."""

    word: str
    ready: bool
    failed: bool
    causes: tuple[tuple[str, str], ...] = ()


def state(kind: str, have: Mapping[str, Any]) -> State:
    """The state of an object as its API returns it."""
    word = str(have.get("status" if kind in ("cluster", "node-pool") else "state") or "")
    if kind not in _READY or not word:
        return State("", ready=True, failed=False)
    failed = word in _FAILED
    return State(word, ready=word == _READY[kind], failed=failed, causes=_causes(have) if failed else ())


def _causes(have: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Conditions, else the message: older codes of a condition are in `code`, newer ones in `canonicalCode`."""
    causes = []
    for condition in have.get("conditions") or ():
        code = condition.get("code") or ""
        canonical = condition.get("canonicalCode") or ""
        causes.append((canonical if code in ("", "UNKNOWN") and canonical else code, condition.get("message") or ""))
    return tuple(causes) or (("", str(have.get("statusMessage") or "")),)
