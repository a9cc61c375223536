# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Load balancers in front of gateways: what a cloud has to be told so that it cuts no request that is silent."""

from __future__ import annotations

_EKS = "-eks-"
"""In the versions of Kubernetes that EKS runs, such as v1.36.1-eks-7f9249a."""


def load_balancer_annotations(version: str) -> dict[str, str]:
    """The annotations of a Service of type LoadBalancer on a cluster that tells this version (`gitVersion`).

    The controller of EKS makes a Classic Load Balancer, which closes connections that were silent for 60 seconds;
    keep-alives of TCP do not count. A request that is queued, reasons, or reads a long prompt is silent for longer.
    """
    if _EKS in version:
        return {"service.beta.kubernetes.io/aws-load-balancer-connection-idle-timeout": "3600"}
    return {}
