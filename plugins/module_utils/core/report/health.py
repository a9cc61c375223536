# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Health of services, replicas, clusters and caches: the words of a status, with a colour and a sign for each."""

from __future__ import annotations

from .markup import Markup, badge

_KINDS = {
    "good": ("Ready", "Serving"),
    # On its way, or by intention.
    "warn": ("Degraded", "Deploying", "Held", "Hydrating", "New", "Pending", "Provisioning", "Starting", "Updating"),
    "unknown": ("Unknown", "Unreachable"),
    "neutral": ("Declared", "Leaving", "NotInRun"),
}
_WORST_FIRST = ("bad", "unknown", "warn", "neutral", "good")
_KIND_OF = {word: kind for kind, words in _KINDS.items() for word in words}


def kind_of(status: str) -> str:
    """Return the kind of a status: `good`, `warn`, `unknown`, `neutral`, and `bad` for all else, as pods have reasons
    without number."""
    return _KIND_OF.get(status, "bad")


def rank_of(status: str) -> int:
    """Return a number by which what is worst comes first."""
    return _WORST_FIRST.index(kind_of(status))


def health(status: str) -> Markup:
    """A status as a badge."""
    return badge(status, kind_of(status))
