# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Options of a fleet for composed objects."""

from __future__ import annotations

from dataclasses import dataclass

from . import constants


@dataclass(frozen=True)
class Options:
    """Images and numbers of the fleet. Fields of a ModelDeployment override `picker_image`, `sidecar_image` and
    `stream_grace`.

    `hydration_image` downloads weights into a cache: it needs a POSIX shell, and `hf` or Python with pip.
    `egress_image` is an Envoy that adds credentials to requests for endpoints outside the fleet.
    `stream_grace` is the time in seconds that a pod of a removed replica keeps serving, so that its streams finish.
    `network_policies` composes NetworkPolicies for the pods of replicas. They admit, among others, pods of
    `gateway_namespaces` (workload gateways) and of `metrics_namespaces` (scrapers of metrics).
    `export_pools` asks for InferencePools in all clusters of a ClusterSet.
    """

    picker_image: str = constants.PICKER_IMAGE
    sidecar_image: str = constants.SIDECAR_IMAGE
    hydration_image: str = constants.HYDRATION_IMAGE
    egress_image: str = constants.EGRESS_IMAGE
    stream_grace: int = constants.STREAM_GRACE_SECONDS
    network_policies: bool = True
    export_pools: bool = False
    gateway_namespaces: tuple[str, ...] = constants.GATEWAY_POD_NAMESPACES
    metrics_namespaces: tuple[str, ...] = constants.METRICS_NAMESPACES
