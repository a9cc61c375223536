# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Load balancers in front of gateways: annotations that keep a cloud from closing idle connections."""

from __future__ import annotations

from ..cloud.registry import CLOUDS


def load_balancer_annotations(version: str) -> dict[str, str]:
    """Return the annotations of a Service of type LoadBalancer on a cluster of this version (`gitVersion`).

    TCP keep-alives do not count as traffic. A connection can be idle for longer than some load balancers allow, if its
    request is queued or the model is reasoning or reading a long prompt.
    """
    for cloud in CLOUDS:
        if cloud.platform.version_mark and cloud.platform.version_mark in version:
            return dict(cloud.platform.load_balancer_annotations)
    return {}
