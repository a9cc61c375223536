# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Use case: wait for a change of manifests, of the control cluster, or of an inference cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any

from ..core.applying.managed_fields import digest
from ..kubernetes.errors import ApiError
from ..kubernetes.observe_fleet import FleetSnapshot
from ..stores import manifests

MANIFESTS = "manifests"
CONTROL = "control"

Fingerprint = Mapping[str, str]
"""Digests by part: `manifests`, `control`, and `cluster <name>`."""


def of_manifests(paths: Sequence[str]) -> str:
    """Return a digest of the manifests, with the names of unreadable files."""
    sources, problems = manifests.read(paths)
    total = sha256()
    for source in sources:
        total.update(f"{source.name}\0{len(source.data)}\0".encode())
        total.update(source.data)
    for problem in problems:
        total.update(str(problem).encode())
    return total.hexdigest()[:20]


def of_snapshot(snapshot: FleetSnapshot) -> dict[str, str]:
    """Return digests of a snapshot.

    The digest of an unreachable cluster does not depend on the reason. No digest depends on the use of budgets, because
    every request changes it, and no object depends on it. The digest of the control cluster contains the versions of
    Secrets, because gateways and replicas require changed values, such as a rotated key. Their values are in no
    snapshot."""
    digests = {
        f"cluster {name}": "unreachable" if observed.unreachable else digest(_without_use(observed.entry))
        for name, observed in snapshot.clusters.items()
    }
    control = {**snapshot.control.entry, "secretVersions": dict(snapshot.control.secret_versions)}
    return {**digests, CONTROL: digest(control)}


def _without_use(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key != "budgets"}


def changed(before: Fingerprint, after: Fingerprint) -> list[str]:
    """Return the parts that differ, sorted."""
    return sorted(component for component in {*before, *after} if before.get(component) != after.get(component))


def wait(
    since: Fingerprint,
    paths: Sequence[str],
    observe: Callable[[], FleetSnapshot],
    *,
    interval: float,
    timeout: float,
) -> tuple[Fingerprint, list[str]]:
    """Observe every `interval` seconds, until a digest differs from `since` or the timeout has passed.

    Return the last digests and the changed parts, or no parts after the timeout. An unreachable control cluster is
    observed again later, because a reconciliation requires it.
    """
    deadline = time.monotonic() + timeout
    current: dict[str, str] = dict(since)
    while True:
        current[MANIFESTS] = of_manifests(paths)
        try:
            current = {MANIFESTS: current[MANIFESTS], **of_snapshot(observe())}
        except ApiError:
            current = {**since, MANIFESTS: current[MANIFESTS]}
        differs = changed(since, current)
        remaining_seconds = deadline - time.monotonic()
        if differs or remaining_seconds <= 0:
            return current, differs
        time.sleep(max(0.0, min(interval, remaining_seconds)))
