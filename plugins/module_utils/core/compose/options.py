# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""What a fleet may choose about the objects that are composed."""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose import constants


@dataclass(frozen=True)
class Options:
    """Images and numbers of the fleet. What a ModelDeployment says for itself wins over `picker_image` and
    `sidecar_image`.

    `hydration_image` downloads weights into a cache: it needs a POSIX shell, and `hf` or Python with pip.
    `egress_image` is an Envoy that adds credentials to requests for endpoints outside of the fleet.
    `network_policies`: whether NetworkPolicies say who reaches the pods of replicas: among others the pods of
    `gateway_namespaces`, where those of workload gateways are, and of `metrics_namespaces`, where metrics are scraped.
    """

    picker_image: str = constants.PICKER_IMAGE
    picker_replicas: int = 2
    sidecar_image: str = constants.SIDECAR_IMAGE
    hydration_image: str = constants.HYDRATION_IMAGE
    egress_image: str = constants.EGRESS_IMAGE
    network_policies: bool = True
    gateway_namespaces: tuple[str, ...] = constants.GATEWAY_POD_NAMESPACES
    metrics_namespaces: tuple[str, ...] = constants.METRICS_NAMESPACES
