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
    rights,
    site,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.checks.finding import Finding, sorted_findings
from ansible_collections.modelplane.fleet.plugins.module_utils.core.checks.sight import Sight, Wanted


def check(sight: Sight, wanted: Wanted) -> tuple[Finding, ...]:
    """All that is wrong, errors first."""
    return sorted_findings(
        [
            *site.kubernetes(sight),
            *rights.findings(sight, wanted),
            *site.unread(sight),
            *nodes.findings(sight, wanted),
            *nodes.driver_roots(sight, wanted),
            *site.devices(sight, wanted),
            *site.storage(sight, wanted),
            *components.findings(sight, wanted),
            *site.load_balancers(sight, wanted),
            *openshift.findings(sight, wanted),
        ]
    )


__all__ = ["Finding", "Sight", "Wanted", "check"]
