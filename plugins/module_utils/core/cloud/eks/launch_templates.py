# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Launch templates of pools: encrypted disks, instance metadata out of reach of pods, Capacity Blocks, and EFA.

Node groups without a launch template do not support Capacity Blocks and EFA.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from . import names

EFA = "EFA"
ROOT_DEVICE = "/dev/xvda"
"""Root device of Amazon Linux 2023."""
_NETWORK_CARDS = {
    "p5.48xlarge": 32,
    "p5e.48xlarge": 32,
    "p5en.48xlarge": 16,
    "p4d.24xlarge": 4,
    "p4de.24xlarge": 4,
    "p6-b200.48xlarge": 8,
}


def network_cards(instance_type: str) -> int:
    """Return the number of network cards of an instance. Each card can have an EFA."""
    return _NETWORK_CARDS.get(instance_type, 1)


def has_efa(pool: Mapping[str, Any]) -> bool:
    """Return True if the nodes of a pool (wire form) communicate through EFA."""
    return pool.get("fabric") == EFA


def reservation(pool: Mapping[str, Any]) -> str:
    """Return the ID of a pool's Capacity Block, empty without a Capacity Block."""
    return str((pool.get("capacityBlock") or {}).get("capacityReservationId", ""))


def needs_template(pool: Mapping[str, Any]) -> bool:
    """Return True if a pool requires a launch template.

    Other pools may lack a launch template, because EKS cannot add a launch template to an existing group.
    """
    return bool(has_efa(pool) or reservation(pool))


def template_name(namespace: str, name: str, pool: Mapping[str, Any]) -> str:
    """Return the name of the launch template of a pool of an EKSCluster with this namespace and name."""
    if needs_template(pool):
        return names.launch_template_name(name, pool["name"])
    return names.node_template_name(namespace, name, pool["name"])


def launch_template(namespace: str, name: str, pool: Mapping[str, Any]) -> dict[str, Any]:
    """Return the launch template of a pool of an EKSCluster, without its network interfaces. A disk without a size has
    the size of the image."""
    size = {} if pool["diskSizeGb"] is None else {"VolumeSize": pool["diskSizeGb"]}
    data: dict[str, Any] = {
        "BlockDeviceMappings": [{"DeviceName": ROOT_DEVICE, "Ebs": {**size, "Encrypted": True}}],
        # Pods must not reach the credentials of their node.
        "MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 1},
    }
    if needs_template(pool):
        # Otherwise the node group defines the instance type, so a new type does not require a new version of the
        # template.
        data["InstanceType"] = pool["instanceType"]
    if reservation(pool):
        data["InstanceMarketOptions"] = {"MarketType": "capacity-block"}
        data["CapacityReservationSpecification"] = {
            "CapacityReservationPreference": "capacity-reservations-only",
            "CapacityReservationTarget": {"CapacityReservationId": reservation(pool)},
        }
    return {
        "pool": pool["name"],
        "name": template_name(namespace, name, pool),
        "data": data,
        "network_cards": network_cards(pool["instanceType"]) if has_efa(pool) else 0,
    }


def complete_data(template: Mapping[str, Any], groups: Sequence[Any]) -> dict[str, Any]:
    """Return the data of a launch template of a plan. `groups`: the security groups for EFA and of the cluster.

    Both groups are on every interface: if a template lists interfaces, EKS does not add its own group, and a node
    without this group cannot reach the API server. Only the interface of the first card carries IP traffic, because a
    second interface with an address keeps the node from joining. No interface has a public address, because AWS rejects
    a public address together with several interfaces.
    """
    data: dict[str, Any] = deepcopy(dict(template["data"]))
    if template["network_cards"]:
        data["NetworkInterfaces"] = [
            {
                "NetworkCardIndex": card,
                "DeviceIndex": 1 if card else 0,
                "InterfaceType": "efa-only" if card else "efa",
                "Groups": list(groups),
            }
            for card in range(template["network_cards"])
        ]
    return data
