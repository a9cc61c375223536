# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""What would keep a cluster from taking the serving stack and replicas, told before anything is installed.

Values in, findings out: `check` goes by what is wanted of a cluster and by what was seen of it (`sight.py`).
"""

from __future__ import annotations

from ansible_collections.modelplane.fleet.plugins.module_utils.core.checks import (
    components,
    nodes,
    openshift,
    platform,
    rights,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.checks.finding import Finding, sorted_findings
from ansible_collections.modelplane.fleet.plugins.module_utils.core.checks.snapshot import Snapshot, Wanted


def check(sight: Snapshot, wanted: Wanted) -> tuple[Finding, ...]:
    """All that is wrong, errors first."""
    return sorted_findings(
        [
            *platform.kubernetes(sight),
            *rights.findings(sight, wanted),
            *platform.unread(sight),
            *nodes.findings(sight, wanted),
            *nodes.driver_roots(sight, wanted),
            *platform.devices(sight, wanted),
            *platform.storage(sight, wanted),
            *components.findings(sight, wanted),
            *platform.load_balancers(sight, wanted),
            *openshift.findings(sight, wanted),
        ]
    )


__all__ = ["Finding", "Snapshot", "Wanted", "check"]
