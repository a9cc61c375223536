# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Regions, zones, machine types and accelerators that the double offers: a part of what Google does."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .world import Settings, World

REGIONS = {
    region: tuple(f"{region}-{letter}" for letter in letters)
    for region, letters in {
        "asia-southeast1": "abc",
        "europe-west4": "abc",
        "us-central1": "abcf",
        "us-east4": "abc",
        "us-east5": "abc",
        "us-west1": "abc",
    }.items()
}


@dataclass(frozen=True)
class Machine:
    cpus: int
    memory_gb: int
    accelerator: str = ""
    accelerators: int = 0


MACHINES = {
    "e2-medium": Machine(2, 4),
    **{f"e2-standard-{cpus}": Machine(cpus, cpus * 4) for cpus in (2, 4, 8, 16, 32)},
    **{f"n1-standard-{cpus}": Machine(cpus, cpus * 15 // 4) for cpus in (2, 4, 8, 16, 32)},
    **{f"n2-standard-{cpus}": Machine(cpus, cpus * 4) for cpus in (2, 4, 8, 16, 32, 64)},
    **{
        f"g2-standard-{cpus}": Machine(cpus, cpus * 4, "nvidia-l4", count)
        for cpus, count in ((4, 1), (8, 1), (12, 1), (16, 1), (24, 2), (32, 1), (48, 4), (96, 8))
    },
    **{f"a2-highgpu-{count}g": Machine(12 * count, 85 * count, "nvidia-tesla-a100", count) for count in (1, 2, 4, 8)},
    "a2-megagpu-16g": Machine(96, 1360, "nvidia-tesla-a100", 16),
    **{f"a2-ultragpu-{count}g": Machine(12 * count, 170 * count, "nvidia-a100-80gb", count) for count in (1, 2, 4, 8)},
    **{f"a3-highgpu-{count}g": Machine(26 * count, 234 * count, "nvidia-h100-80gb", count) for count in (1, 2, 4, 8)},
    "a3-megagpu-8g": Machine(208, 1872, "nvidia-h100-mega-80gb", 8),
    "a3-ultragpu-8g": Machine(224, 2952, "nvidia-h200-141gb", 8),
    "a4-highgpu-8g": Machine(224, 3968, "nvidia-b200", 8),
}
# Families that not all zones have. What is not here is in all.
_ONLY_IN = {
    "g2-": ("us-central1-a", "us-central1-b", "us-central1-c", "europe-west4-a", "europe-west4-b", "europe-west4-c"),
    "a2-": ("us-central1-a", "us-central1-b", "us-central1-c", "us-central1-f", "europe-west4-a", "europe-west4-b"),
    "a3-": ("us-central1-a", "us-central1-c", "us-east4-a", "us-east4-b", "us-east5-a", "europe-west4-b"),
    "a4-": ("us-central1-b", "us-east4-b", "europe-west4-b"),
}
# Accelerators that are added to machines of any size.
_ATTACHED = ("nvidia-tesla-t4",)

QUOTAS = {
    "CPUS": 2400.0,
    "NVIDIA_T4_GPUS": 64.0,
    "NVIDIA_L4_GPUS": 64.0,
    "NVIDIA_A100_GPUS": 64.0,
    "NVIDIA_A100_80GB_GPUS": 64.0,
    "IN_USE_ADDRESSES": 575.0,
    "SSD_TOTAL_GB": 81920.0,
    "NETWORKS": 50.0,
}
"""Quotas of a region, unless a test sets others."""
_METRICS = {
    "nvidia-tesla-t4": "NVIDIA_T4_GPUS",
    "nvidia-l4": "NVIDIA_L4_GPUS",
    "nvidia-tesla-a100": "NVIDIA_A100_GPUS",
    "nvidia-a100-80gb": "NVIDIA_A100_80GB_GPUS",
}
"""Accelerators with a quota among those of a region; those of newer ones are elsewhere."""


def region_of(place: str) -> str:
    """The region of a region or zone; empty for what is neither."""
    if place in REGIONS:
        return place
    return next((region for region, zones in REGIONS.items() if place in zones), "")


def machine_types(zone: str, settings: Settings) -> list[str]:
    """The machine types of a zone."""
    missing = settings.not_offered.get(zone, ())
    return [name for name in MACHINES if name not in missing and zone in _ONLY_IN.get(name[:3], (zone,))]


def accelerators(zone: str, settings: Settings) -> list[str]:
    """The types of accelerators of a zone."""
    built_in = {MACHINES[name].accelerator for name in machine_types(zone, settings)} - {""}
    return sorted({*built_in, *_ATTACHED} - set(settings.not_offered.get(zone, ())))


def demand(machine_type: str, accelerator: str, count: int) -> Counter[str]:
    """Return what one machine takes of the quotas."""
    needed = Counter({"CPUS": MACHINES[machine_type].cpus})
    if accelerator in _METRICS:
        needed[_METRICS[accelerator]] += count
    return needed


def usage(world: World, project: str, region: str) -> Counter[str]:
    """Return what is taken of the quotas of a region."""
    used: Counter[str] = Counter()
    for cluster in world.clusters.values():
        if cluster.project == project and region_of(cluster.location) == region:
            used.update(cluster.usage())
    used["NETWORKS"] = sum(f"projects/{project}/global/networks/" in path for path in world.compute)
    return used
