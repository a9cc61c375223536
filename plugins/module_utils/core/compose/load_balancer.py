# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Load balancers in front of gateways: annotations by which a cloud cuts no request that is silent."""

from __future__ import annotations

from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.registry import CLOUDS


def load_balancer_annotations(version: str) -> dict[str, str]:
    """Return the annotations of a Service of type LoadBalancer on a cluster of this version (`gitVersion`).

    Keep-alives of TCP do not count as traffic. A request that is queued, reasons, or reads a long prompt is silent for
    longer than some load balancers allow.
    """
    for cloud in CLOUDS:
        if cloud.platform.version_mark and cloud.platform.version_mark in version:
            return dict(cloud.platform.load_balancer_annotations)
    return {}
