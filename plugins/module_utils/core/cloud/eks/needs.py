# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Requirements of node pools that an AWS account might not meet: Capacity Blocks, Spot, and machines that are rarely
free."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import pools
from ..cloud import Need
from . import launch_templates, quotas

_RARE = "p"
"""Machine family that is rarely free and has a quota of 0 in new accounts (EC2: "Amazon EC2 instance type quotas",
"Capacity Blocks for ML")."""


def needs(pool: Mapping[str, Any]) -> list[Need]:
    """Return the requirements of a pool (wire form) that not every account meets."""
    block, machine = launch_templates.reservation(pool), str(pool["instanceType"])
    if block:
        zones = ", ".join(pool.get("zones") or ()) or "its zone"
        return [
            Need(
                "capacityBlock",
                f"the Capacity Block {block}",
                f"Buy it for {machine} in {zones}, and set nodeCount and minNodeCount to 0 until it starts",
            )
        ]
    if pool["role"] != pools.GPU:
        return []
    if pool.get("capacityType") == quotas.SPOT:
        name = quotas.name(machine, quotas.SPOT) or "All Spot Instance Requests of the family"
        return [
            Need(
                "capacityType",
                f"Spot machines of type {machine}",
                f'Ask for the quota "{name}" in Service Quotas (EC2), which is another one than that for On-Demand',
            )
        ]
    if quotas.family(machine) == _RARE:
        return [
            Need(
                "instanceType",
                f"On-Demand machines of type {machine}, which are rarely free",
                f'Ask for the quota "{quotas.name(machine)}" in Service Quotas (EC2), or buy a Capacity Block and give '
                "its id as capacityBlock.capacityReservationId",
            )
        ]
    return []
