# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Machine types with built-in GPUs: the type and number of the GPUs. Google rejects other GPUs for these machine types.

Compute Engine documentation, "Accelerator-optimized machine family" and "GPU machine types".
"""

from __future__ import annotations

_A100, _A100_80, _L4 = "nvidia-tesla-a100", "nvidia-a100-80gb", "nvidia-l4"
_H100, _H100_MEGA, _H200, _B200 = "nvidia-h100-80gb", "nvidia-h100-mega-80gb", "nvidia-h200-141gb", "nvidia-b200"

ACCELERATORS: dict[str, tuple[str, int]] = {
    **{f"g2-standard-{cpus}": (_L4, count) for cpus, count in ((4, 1), (8, 1), (12, 1), (16, 1), (32, 1))},
    **{f"g2-standard-{cpus}": (_L4, count) for cpus, count in ((24, 2), (48, 4), (96, 8))},
    **{f"a2-highgpu-{count}g": (_A100, count) for count in (1, 2, 4, 8)},
    "a2-megagpu-16g": (_A100, 16),
    **{f"a2-ultragpu-{count}g": (_A100_80, count) for count in (1, 2, 4, 8)},
    **{f"a3-highgpu-{count}g": (_H100, count) for count in (1, 2, 4, 8)},
    "a3-edgegpu-8g": (_H100, 8),
    "a3-megagpu-8g": (_H100_MEGA, 8),
    "a3-ultragpu-8g": (_H200, 8),
    "a4-highgpu-8g": (_B200, 8),
    "a4x-highgpu-4g": ("nvidia-gb200", 4),
}
"""The type and number of the accelerators of a machine type. A missing machine type supports any, or is unknown."""

_NEWER = ("a3", "a4", "a4x")
_ARM = ("a4x", "c4a", "n4a", "t2a")
_NOT_ON_DEMAND = ("a3-ultragpu-", "a4-", "a4x-", *(f"a3-highgpu-{count}g" for count in (1, 2, 4)))


def needs_gvnic(machine_type: str) -> bool:
    """Return True if machines of a type only support Google's virtual network interface ("Using Google Virtual
    NIC")."""
    return machine_type.partition("-")[0] in _NEWER


def architecture(machine_type: str) -> str:
    """Return the processor architecture of a machine type, in the format of the label kubernetes.io/arch ("Arm VMs on
    Compute Engine")."""
    return "arm64" if machine_type.partition("-")[0] in _ARM else "amd64"


def is_reserved_only(machine_type: str) -> bool:
    """Return True if machines of a type are only available by reservation, Spot or flex-start ("Accelerator-optimized
    machine family", "Consumption options")."""
    return machine_type.startswith(_NOT_ON_DEMAND)


def is_rare(machine_type: str) -> bool:
    """Return True if a new project has no quota for machines of a type that is available on demand ("GPU quotas")."""
    return machine_type.partition("-")[0] in _NEWER
