# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Whether anything is other than it was: manifests, the control cluster, each workload cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256

from ansible_collections.modelplane.fleet.plugins.module_utils.core.applying.managed_fields import digest
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.errors import ApiError
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.observe_fleet import FleetSnapshot
from ansible_collections.modelplane.fleet.plugins.module_utils.stores import manifests

MANIFESTS = "manifests"
CONTROL = "control"

Fingerprint = Mapping[str, str]
"""A digest of each part: `manifests`, `control`, and `cluster <name>`."""


def of_manifests(paths: Sequence[str]) -> str:
    """A digest of everything that the manifests say; what cannot be read counts by its name."""
    sources, problems = manifests.read(paths)
    total = sha256()
    for source in sources:
        total.update(f"{source.name}\0{len(source.data)}\0".encode())
        total.update(source.data)
    for problem in problems:
        total.update(str(problem).encode())
    return total.hexdigest()[:20]


def of_look(look: FleetSnapshot) -> dict[str, str]:
    """Digests of what was seen. A cluster that does not answer is always the same, whatever the reason is."""
    found = {
        f"cluster {name}": "unreachable" if seen.unreachable else digest(dict(seen.entry))
        for name, seen in look.clusters.items()
    }
    return {**found, CONTROL: digest(dict(look.control.entry))}


def changed(before: Fingerprint, after: Fingerprint) -> list[str]:
    """The parts that differ, sorted."""
    return sorted(part for part in {*before, *after} if before.get(part) != after.get(part))


def wait(
    since: Fingerprint,
    paths: Sequence[str],
    look: Callable[[], FleetSnapshot],
    *,
    interval: float,
    timeout: float,
) -> tuple[Fingerprint, list[str]]:
    """Look every `interval` seconds, until something differs from `since` or `timeout` seconds are over.

    Returns what was seen last, and the parts that differ; none when the time is over. A control cluster that does not
    answer is looked at again later: nothing could be decided without it.
    """
    deadline = time.monotonic() + timeout
    seen: dict[str, str] = dict(since)
    while True:
        seen[MANIFESTS] = of_manifests(paths)
        try:
            seen = {MANIFESTS: seen[MANIFESTS], **of_look(look())}
        except ApiError:
            seen = {**since, MANIFESTS: seen[MANIFESTS]}
        differs = changed(since, seen)
        left = deadline - time.monotonic()
        if differs or left <= 0:
            return seen, differs
        time.sleep(max(0.0, min(interval, left)))
