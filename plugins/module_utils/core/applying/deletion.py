# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Terminating objects: age and finalizers, for messages."""

from __future__ import annotations

from datetime import datetime

from ..text import count, cut
from ..wire import Object, entries, fields, is_being_deleted, text

USUAL_SECONDS = 60.0
"""Maximum duration of a normal deletion in seconds."""

_TERMINATING = "Terminating"
# Suffixes of namespace conditions that list remaining objects, such as NamespaceContentRemaining,
# NamespaceFinalizersRemaining and NamespaceDeletionContentFailure.
_NAMESPACE_ENDINGS = ("Remaining", "Failure")


def is_stuck(live: Object | None, now: datetime) -> bool:
    """Return True if an object has been terminating for longer than a normal deletion."""
    seconds = _seconds(text(live, "metadata", "deletionTimestamp"), now)
    return is_being_deleted(live) and (seconds is None or seconds > USUAL_SECONDS)


def deletion(live: Object, now: datetime) -> str:
    """Return the age of a deletion, with the finalizers and the conditions that explain the delay, as text."""
    since = text(live, "metadata", "deletionTimestamp")
    age = _age(since, now)
    metadata, spec = fields(live, "metadata"), fields(live, "spec")
    lists = (metadata.get("finalizers"), spec.get("finalizers"))
    finalizers = [str(name) for names in lists if isinstance(names, (list, tuple)) for name in names]
    reasons = [
        cut(text(entry, "message"))
        for entry in entries(live, "status", "conditions")
        if entry.get("status") == "True"
        and (entry.get("type") == _TERMINATING or str(entry.get("type")).endswith(_NAMESPACE_ENDINGS))
        and text(entry, "message")
    ]
    reason = "; ".join(reasons)
    holders = f"finalizers: {', '.join(finalizers)}" if finalizers else "no finalizers"
    return f"has been terminating since {since}{f' ({age})' if age else ''}, {holders}{f': {reason}' if reason else ''}"


def _seconds(since: str, now: datetime) -> int | None:
    try:
        return max(int((now - datetime.fromisoformat(since)).total_seconds()), 0)
    except (TypeError, ValueError):
        return None


def _age(since: str, now: datetime) -> str:
    seconds = _seconds(since, now)
    if seconds is None:
        return ""
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= length:
            return f"{count(seconds // length, unit)} ago"
    return f"{count(seconds, 'second')} ago"
