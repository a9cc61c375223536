# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Validation of volumes of engines' pods, and of their shared memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose import constants
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.model_gateway import backends
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.pod import (
    SHARED_MEMORY_PATH,
    has_own_shared_memory,
    shared_memory_limit,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.devices.quantity import Quantity, QuantityError
from ansible_collections.modelplane.fleet.plugins.module_utils.core.problem import Problem, warning
from ansible_collections.modelplane.fleet.plugins.module_utils.core.servers.command_line import CommandLine
from ansible_collections.modelplane.fleet.plugins.module_utils.core.servers.flags import axes
from ansible_collections.modelplane.fleet.plugins.module_utils.core.servers.table import TENSOR
from ansible_collections.modelplane.fleet.plugins.module_utils.core.text import nearest_name, short

COMPOSED = ("dshm", "nixl-shm", "model-cache")
"""Names of the volumes that the fleet adds to pods."""
# Processes of tensor parallelism exchange data there: vLLM and NCCL abort with less.
_LEAST_SHARED = 2**30


def pod_volumes(spec: Any, path: str) -> Iterator[Problem]:
    """Yield the problems of the volumes of a member's pod, whose spec has this path."""
    container, volumes = spec.containers[0], spec.volumes or ()
    names: set[str] = set()
    for index, volume in enumerate(volumes):
        place = f"{path}.volumes[{index}]"
        if volume.name in COMPOSED:
            yield Problem("is the name of a volume that the fleet adds", f"{place}.name", volume.name, "Rename it")
        elif volume.name in names:
            yield Problem("is the name of another volume too", f"{place}.name", volume.name, "Rename one of them")
        names.add(volume.name)
        if volume.secret and volume.secret.secret_name == backends.CLIENT_CERTIFICATE:
            message = "is the Secret of a gateway's own certificate"
            yield Problem(message, f"{place}.secret.secretName", backends.CLIENT_CERTIFICATE, "Name a Secret of yours")
    mounts: dict[str, int] = {}
    for index, mount in enumerate(container.volume_mounts or ()):
        place = f"{path}.containers[0].volumeMounts[{index}]"
        where = mount.mount_path.rstrip("/")
        if mount.name not in names:
            hint = nearest_name(mount.name, names) if names else "Add it to volumes, beside containers"
            yield Problem("is no volume of the pod", f"{place}.name", short(mount.name), hint)
        if mounts.setdefault(where, index) != index:
            message = f"is the path of volumeMounts[{mounts[where]}] too"
            yield Problem(message, f"{place}.mountPath", short(mount.mount_path), "Mount it elsewhere")
        if where == constants.MODEL_CACHE_PATH or where.startswith(f"{constants.MODEL_CACHE_PATH}/"):
            message = "is the path of the weights of modelCacheRef"
            yield Problem(message, f"{place}.mountPath", short(mount.mount_path), "Mount it elsewhere")
    for name in sorted(names - {mount.name for mount in container.volume_mounts or ()} - set(COMPOSED)):
        index = [volume.name for volume in volumes].index(name)
        hint = "Mount it with volumeMounts of the container, or remove it"
        yield warning("is mounted nowhere", f"{path}.volumes[{index}].name", hint, name)
    yield from _memory(spec, container, path)


def _memory(spec: Any, container: Any, path: str) -> Iterator[Problem]:
    """Yield file systems in memory that are larger than the memory of the container, and a shared memory that is too
    small for tensor parallelism."""
    limits = container.resources and container.resources.limits
    limit = _size(limits.memory) if limits else None
    shared_by = {
        mount.name for mount in container.volume_mounts or () if mount.mount_path.rstrip("/") == SHARED_MEMORY_PATH
    }
    line = CommandLine.of(container)
    tensor = (axes(line) or {}).get(TENSOR, 1)
    for index, volume in enumerate(spec.volumes or ()):
        place = f"{path}.volumes[{index}]"
        size = _size(volume.empty_dir.size_limit) if volume.empty_dir else None
        in_memory = volume.empty_dir is not None and volume.empty_dir.medium == "Memory"
        if in_memory and limit and size and size > limit:
            message = (
                f"is more than limits.memory of the container, {limits.memory}, and ends it before the volume is full"
            )
            hint = "Lower it below limits.memory less what the engine needs, or raise limits.memory"
            yield warning(message, f"{place}.emptyDir.sizeLimit", hint, volume.empty_dir.size_limit)
        if volume.name in shared_by and not in_memory:
            message = f"is mounted at {SHARED_MEMORY_PATH} and is not in memory"
            yield warning(message, place, "Write emptyDir: {medium: Memory, sizeLimit: 16Gi}", volume.name)
        elif volume.name in shared_by and tensor > 1 and size and size < _LEAST_SHARED:
            yield _small(tensor, volume.empty_dir.size_limit, f"{place}.emptyDir.sizeLimit", "Raise it to 1Gi or more")
    composed = shared_memory_limit(container)
    if tensor > 1 and not has_own_shared_memory(container) and (_size(composed) or 0) < _LEAST_SHARED:
        hint = "Raise requests.memory: half of it is shared memory"
        yield _small(tensor, composed, f"{path}.containers[0].resources", hint)


def _small(tensor: int, size: str, place: str, hint: str) -> Problem:
    message = f"leaves {size} of shared memory, too little for {tensor} processes of tensor parallelism"
    return warning(message, place, hint)


def _size(text: str | None) -> int | None:
    try:
        return int(Quantity.parse(text).value) if text else None
    except QuantityError:
        return None
