# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Node groups of a cluster, and launch templates of those with a fabric or bought capacity."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks import network
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks.naming import Naming
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.cluster import with_system_pool
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.constants import POOL_LABEL
from ansible_collections.modelplane.fleet.plugins.module_utils.core.problem import Problem
from ansible_collections.modelplane.fleet.plugins.module_utils.core.words import short_value

GPU_LABEL = "modelplane.ai/gpu"
GPU_TAINT = "nvidia.com/gpu"

Pool = Mapping[str, Any]

_KIND = "EKSCluster"
_LEAST_NODES, _MOST_NODES, _DISK = 0, 8, 100
_AMI = {"System": "AL2023_x86_64_STANDARD", "GPU": "AL2023_x86_64_NVIDIA"}
_ROOT_DISK = "/dev/xvda"
"""The root device of Amazon Linux 2023."""
_NETWORK_CARDS = {
    "p4d.24xlarge": 4,
    "p4de.24xlarge": 4,
    "p5.48xlarge": 32,
    "p5e.48xlarge": 32,
    "p5en.48xlarge": 16,
}
"""Instance types with more than one network card for EFA (Amazon EC2 User Guide, "Maximize network bandwidth")."""
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")


def pools(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    """All pools of an EKSCluster, with the one for controllers that is put before them when there is none."""
    return with_system_pool(_KIND, spec["nodePools"])


def network_cards(instance_type: str) -> int:
    """How many EFA interfaces a node has: one for each network card."""
    return _NETWORK_CARDS.get(instance_type, 1)


def has_efa(pool: Pool) -> bool:
    return bool(pool.get("fabric") == "EFA")


def reservation(pool: Pool) -> str:
    """The capacity reservation that a pool's nodes are taken from, empty for none."""
    return str((pool.get("capacityBlock") or {}).get("capacityReservationId") or "")


def node_groups(spec: Mapping[str, Any], naming: Naming) -> list[dict[str, Any]]:
    """The node groups: arguments of `eks_node_group` without ids, `zones` of the private subnets they are in (none:
    all), and `launch_template`, a name or empty. The number of nodes is one for the start only."""
    return [_node_group(pool, naming) for pool in pools(spec)]


def launch_templates(spec: Mapping[str, Any], naming: Naming) -> list[dict[str, Any]]:
    """The launch templates: `name`, `pool`, `efa` (whether its interfaces are to get security groups) and `data`, as
    the API of EC2 takes it."""
    return [
        {
            "name": naming.launch_template(pool["name"]),
            "pool": pool["name"],
            "efa": has_efa(pool),
            "data": _template(pool),
        }
        for pool in pools(spec)
        if _needs_template(pool)
    ]


def _needs_template(pool: Pool) -> bool:
    return has_efa(pool) or bool(reservation(pool))


def _sizes(pool: Pool) -> tuple[int, int, int]:
    """Least, most and first nodes. EC2 Auto Scaling refuses a start outside the limits."""
    least, most = int(pool.get("minNodeCount", _LEAST_NODES)), int(pool.get("maxNodeCount", _MOST_NODES))
    return least, most, min(max(int(pool.get("nodeCount", 1)), least), most)


def _node_group(pool: Pool, naming: Naming) -> dict[str, Any]:
    least, most, first = _sizes(pool)
    is_gpu = pool["role"] == "GPU"
    template = _needs_template(pool)
    group: dict[str, Any] = {
        "name": pool["name"],
        "role": pool["role"],
        "ami_type": _AMI[pool["role"]],
        "zones": list(pool.get("zones") or ()),
        "min_size": least,
        "max_size": most,
        "desired_size": first,
        "labels": {POOL_LABEL: pool["name"]},
        "taints": [],
        "launch_template": naming.launch_template(pool["name"]) if template else "",
    }
    if is_gpu:
        group["labels"][GPU_LABEL] = pool["gpu"]["acceleratorType"]
        group["taints"].append({"key": GPU_TAINT, "value": "true", "effect": "NO_SCHEDULE"})
    if not template:
        # With a template, its type and disk count, and EKS refuses others beside it.
        group["instance_types"] = [pool["instanceType"]]
        if "diskSizeGb" in pool or is_gpu:
            group["disk_size"] = int(pool.get("diskSizeGb", _DISK))
    if reservation(pool):
        group["capacity_type"] = "CAPACITY_BLOCK"
    return group


def _template(pool: Pool) -> dict[str, Any]:
    data: dict[str, Any] = {
        "InstanceType": pool["instanceType"],
        "BlockDeviceMappings": [
            {"DeviceName": _ROOT_DISK, "Ebs": {"VolumeSize": int(pool.get("diskSizeGb", _DISK))}},
        ],
    }
    if reservation(pool):
        data["InstanceMarketOptions"] = {"MarketType": "capacity-block"}
        data["CapacityReservationSpecification"] = {
            "CapacityReservationPreference": "capacity-reservations-only",
            "CapacityReservationTarget": {"CapacityReservationId": reservation(pool)},
        }
    if has_efa(pool):
        data["NetworkInterfaces"] = [_interface(card) for card in range(network_cards(pool["instanceType"]))]
    return data


def _interface(card: int) -> dict[str, Any]:
    """One network card. Only the first has IP addresses: with more of them, the node does not join. None is told to
    have a public one, which EC2 refuses where there are several."""
    return {
        "NetworkCardIndex": card,
        "DeviceIndex": 0 if card == 0 else 1,
        "InterfaceType": "efa" if card == 0 else "efa-only",
    }


def problems(spec: Mapping[str, Any], given: Sequence[str] = ()) -> Iterator[Problem]:
    """What AWS would refuse of the pools; `given` are the zones of the subnets, if they are not the first ones."""
    known = network.zones(spec, given)
    first: dict[str, str] = {}
    for index, pool in enumerate(spec["nodePools"]):
        path = f"spec.nodePools[{index}]"
        yield from _zone_problems(pool, path, known)
        yield from _pool_problems(pool, path)
        block = reservation(pool)
        if block and block in first:
            yield Problem(
                f"takes nodes from {block}, as pool {first[block]} does: together they may ask for more than it has",
                f"{path}.capacityBlock",
                severity="warning",
            )
        elif block:
            first[block] = pool["name"]


def _zone_problems(pool: Pool, path: str, known: Sequence[str]) -> Iterator[Problem]:
    wanted = list(pool.get("zones") or ())
    for number, zone in enumerate(wanted):
        if zone not in known:
            yield Problem(
                f"pool {pool['name']} is in a zone without a subnet",
                f"{path}.zones[{number}]",
                short_value(zone),
                f"The cluster has subnets in {', '.join(known)}: choose one of them, or write more subnetCidrs",
            )
    if reservation(pool) and len(wanted) != 1:
        yield Problem(
            f"pool {pool['name']} takes its nodes from {reservation(pool)} and is in {len(wanted) or 'all'} zones",
            f"{path}.zones",
            hint="A capacity block is in one zone: name that one",
        )
    elif has_efa(pool) and len(wanted) != 1:
        yield Problem(
            f"pool {pool['name']} has EFA and is in {len(wanted) or 'all'} zones, and EFA reaches no other zone",
            f"{path}.zones",
            hint="Name one zone, so that all nodes of a gang reach each other",
            severity="warning",
        )


def _pool_problems(pool: Pool, path: str) -> Iterator[Problem]:
    _least, most, _first = _sizes(pool)
    if most < 1:
        yield Problem(
            f"pool {pool['name']} may have no node, and EKS takes no group that stays empty",
            f"{path}.maxNodeCount",
            str(most),
            "Set it to at least 1, or leave the pool out",
        )
    accelerator = str((pool.get("gpu") or {}).get("acceleratorType") or "")
    if accelerator and not _LABEL_VALUE.fullmatch(accelerator):
        yield Problem(
            f"pool {pool['name']}: the accelerator is no value of a label",
            f"{path}.gpu.acceleratorType",
            short_value(accelerator),
            "Use letters, digits, -, _ and ., with a letter or a digit at both ends",
        )
    if pool["role"] == "GPU" and pool["name"] == "system":
        yield Problem(
            "a pool with GPUs is called system, as the one for controllers usually is",
            f"{path}.name",
            hint="The pool for controllers is called system-2; give this one another name before it has nodes",
            severity="warning",
        )
