# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Findings that prevent the serving stack or replicas on a cluster, reported before anything is installed.

The function `check` compares the desired state of a cluster with its observed state (`snapshot.py`).
"""

from __future__ import annotations

from . import components, nodes, openshift, platform, rights, secrets
from .finding import Finding, sorted_findings
from .snapshot import Desired, Snapshot


def check(snapshot: Snapshot, desired: Desired) -> tuple[Finding, ...]:
    """All that is wrong, errors first."""
    return sorted_findings(
        [
            *platform.kubernetes(snapshot),
            *rights.findings(snapshot, desired),
            *platform.unread(snapshot),
            *nodes.findings(snapshot, desired),
            *nodes.driver_roots(snapshot, desired),
            *platform.devices(snapshot, desired),
            *platform.storage(snapshot, desired),
            *components.findings(snapshot, desired),
            *secrets.findings(snapshot, desired),
            *platform.load_balancers(snapshot, desired),
            *openshift.findings(snapshot, desired),
        ]
    )


__all__ = ["Desired", "Finding", "Snapshot", "check"]
