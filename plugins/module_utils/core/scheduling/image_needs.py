# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Needs of images that their references contain: the processor architecture, and the CUDA version of the driver."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from ..devices.device import Device
from ..devices.semver import Semver
from .model import Cluster, Deployment, ImageNeed, Placement, Pool, Refusal

_NONE = ImageNeed()
_ARCHITECTURES = {
    "amd64": re.compile(r"(?<![a-z0-9])(?:amd64|x86[-_]64|rocm[0-9.]*)(?![a-z0-9])"),
    # Grace superchips have Arm processors.
    "arm64": re.compile(r"(?<![a-z0-9])(?:arm64(?:v8)?|aarch64|g[bh][23]00)(?![a-z0-9])"),
}
_CUDA = re.compile(r"(?<![a-z0-9])(?:cu|cuda[-_]?)(1[0-9])(?![0-9]{2})")
_CUDA_IMAGE, _CUDA_TAG = "nvidia/cuda", re.compile(r"(1[0-9])\.")
_DRIVERS = {13: 580}
"""Minimum major version of NVIDIA's driver for major versions of CUDA (CUDA Toolkit release notes)."""
_CUDA_DRIVER = "gpu.nvidia.com/cudaDriverVersion"


@cache
def image_need(image: str) -> ImageNeed:
    """Return the requirements on nodes that the repository and the tag of an image contain."""
    folder, slash, name_and_tag = image.partition("@")[0].lower().rpartition("/")
    name, __, tag = name_and_tag.partition(":")
    repository = f"{folder}{slash}{name}".removeprefix("docker.io/")
    reference = f"{repository}:{tag}"
    architectures = [name for name, pattern in _ARCHITECTURES.items() if pattern.search(reference)]
    cuda = _CUDA_TAG.match(tag) if repository == _CUDA_IMAGE else _CUDA.search(reference)
    return ImageNeed(architectures[0] if len(architectures) == 1 else "", int(cuda[1]) if cuda else 0)


def image_refusal(need: ImageNeed, device: Device) -> str:
    """Return the reason why an image cannot run on the node of a device. Empty if it can."""
    if not need.architecture or not device.architecture or need.architecture == device.architecture:
        return ""
    return f"the image is for {need.architecture}, and its nodes are {device.architecture}"


def driver_warnings(
    deployments: Iterable[Deployment], clusters: Iterable[Cluster], placements: Iterable[Placement]
) -> tuple[Refusal, ...]:
    """Return warnings about GPU drivers of node pools that might be too old for the image of a replica. Equal warnings
    of several clusters are merged."""
    needs = {
        (deployment.namespace, deployment.name, engine.name, member.role): request.image
        for deployment in deployments
        for engine in deployment.engines
        for member in engine.members
        for request in member.requests
        if request.image.cuda
    }
    pools = {(cluster.name, pool.name): pool for cluster in clusters for pool in cluster.pools} if needs else {}
    clusters_by_warning: dict[tuple[str, str], set[str]] = {}
    for placement in placements:
        for engine in placement.engines:
            for member in engine.members:
                need = needs.get((placement.namespace, placement.deployment, engine.name, member.role), _NONE)
                for name, __ in member.pods_by_pool if need.cuda else ():
                    pool = pools.get((placement.cluster, name))
                    reason = _driver_problem(need, pool) if pool else ""
                    if reason:
                        owner = f"ModelDeployment {placement.namespace}/{placement.deployment}"
                        text = f"engine {engine.name} of {owner}: {reason}"
                        clusters_by_warning.setdefault((name, text), set()).add(placement.cluster)
    return tuple(
        Refusal(text, pool, tuple(sorted(names))) for (pool, text), names in sorted(clusters_by_warning.items())
    )


def _driver_problem(need: ImageNeed, pool: Pool) -> str:
    for device in pool.devices:
        version = device.attributes.get(_CUDA_DRIVER)
        if isinstance(version, Semver):
            if version.major < need.cuda:
                return f"the image has CUDA {need.cuda}, and the driver of its nodes supports CUDA {version} at most"
            return ""
    min_driver = _DRIVERS.get(need.cuda)
    if pool.old_driver and min_driver:
        return f"the image has CUDA {need.cuda}, which needs driver {min_driver} or newer, and {pool.old_driver}"
    return ""
