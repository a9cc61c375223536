# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Validation of the volumes and the shared memory of engines' pods."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..compose import constants
from ..compose.model_gateway import backends
from ..compose.pod import SHARED_MEMORY_PATH, has_own_shared_memory, shared_memory_limit
from ..devices.quantity import Quantity, QuantityError
from ..problem import Problem, warning
from ..servers.command_line import CommandLine
from ..servers.flags import axes
from ..servers.table import TENSOR
from ..text import nearest_name, short

_COMPOSED = ("dshm", "nixl-shm", "model-cache")
"""Names of the volumes that the fleet adds to pods, the first one unless a container mounts its own /dev/shm."""
# Processes of tensor parallelism exchange data there: vLLM and NCCL abort with less.
_MIN_SHARED_MEMORY = 2**30


def pod_volumes(spec: Any, path: str) -> Iterator[Problem]:
    """Yield the problems of the volumes of a member's pod. `path` is the path of its spec."""
    container, volumes = spec.containers[0], spec.volumes or ()
    names = [volume.name for volume in volumes]
    mounts = {mount.name: mount.mount_path.rstrip("/") for mount in container.volume_mounts or ()}
    resources = container.resources
    for index, mount in enumerate(container.volume_mounts or ()):
        location = f"{path}.containers[0].volumeMounts[{index}]"
        if mount.name not in names:
            hint = nearest_name(mount.name, names) if names else "Add it to volumes, next to containers"
            yield Problem("is not a volume of the pod", f"{location}.name", short(mount.name), hint)
        if f"{mount.mount_path}/".startswith(f"{constants.MODEL_CACHE_PATH}/"):
            message = "is the path of the weights of modelCacheRef"
            yield Problem(message, f"{location}.mountPath", short(mount.mount_path), "Mount it elsewhere")
    for index, volume in enumerate(volumes):
        location = f"{path}.volumes[{index}]"
        if volume.name in (_COMPOSED[1:] if has_own_shared_memory(container) else _COMPOSED):
            yield Problem("is the name of a volume that the fleet adds", f"{location}.name", volume.name, "Rename it")
        elif volume.name not in mounts:
            hint = "Mount it with volumeMounts of the container, or remove it"
            yield warning("is not mounted", f"{location}.name", hint, volume.name)
        if volume.secret and volume.secret.secret_name == backends.CLIENT_CERTIFICATE:
            message = "is the Secret of a gateway's own certificate"
            yield Problem(message, f"{location}.secret.secretName", volume.secret.secret_name, "Use another Secret")
        in_memory = volume.empty_dir is not None and volume.empty_dir.medium == "Memory"
        if mounts.get(volume.name) == SHARED_MEMORY_PATH and not in_memory:
            hint = "Write emptyDir: {medium: Memory, sizeLimit: 16Gi}"
            yield warning(f"is mounted at {SHARED_MEMORY_PATH} and is not in memory", location, hint, volume.name)
    yield from _memory_volumes(volumes, resources, path)
    yield from _shared_memory(container, path)


def _memory_volumes(volumes: Sequence[Any], resources: Any, path: str) -> Iterator[Problem]:
    """Yield volumes in memory that can use up the memory limit of the container."""
    limit = resources.limits.memory if resources and resources.limits else None
    available = _bytes(limit or "")
    total = 0
    hint = "Lower it below limits.memory less the memory of the engine, or raise limits.memory"
    for index, volume in enumerate(volumes):
        if available == 0 or volume.empty_dir is None or volume.empty_dir.medium != "Memory":
            continue
        location, size = f"{path}.volumes[{index}].emptyDir", volume.empty_dir.size_limit or ""
        if _bytes(size) >= available:
            message = f"is not less than limits.memory of the container, {limit}, which the volume counts toward"
            yield warning(message, f"{location}.sizeLimit", hint, size)
        elif total < available <= (total := total + _bytes(size)):
            message = f"and the sizes of previous volumes are not less than limits.memory of the container, {limit}"
            yield warning(message, f"{location}.sizeLimit", hint, size)


def _shared_memory(container: Any, path: str) -> Iterator[Problem]:
    """Yield a composed shared memory that is too small for tensor parallelism."""
    tensor = (axes(CommandLine.of(container)) or {}).get(TENSOR, 1)
    size = shared_memory_limit(container)
    if tensor > 1 and not has_own_shared_memory(container) and _bytes(size) < _MIN_SHARED_MEMORY:
        message = f"leaves {size} of shared memory, too little for {tensor} processes of tensor parallelism"
        hint = "Raise requests.memory: half of it is shared memory"
        yield warning(message, f"{path}.containers[0].resources", hint)


def _bytes(text: str) -> int:
    """Return a quantity in bytes; 0 for an invalid quantity. Another check reports invalid quantities."""
    try:
        return int(Quantity.parse(text).value)
    except QuantityError:
        return 0
