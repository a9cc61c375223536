# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Quotas of EC2 for running machines, in vCPUs: by family, and separate for On-Demand and Spot.

Codes and names are from Service Quotas (service `ec2`); EC2: "On-Demand Instance quotas", "Spot Instance quotas".
"""

from __future__ import annotations

import re

ON_DEMAND, SPOT = "ON_DEMAND", "SPOT"
"""Capacity types of node groups. A Capacity Block does not count against these quotas."""

NAMES = {
    "L-1216C47A": "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances",
    "L-DB2E81BA": "Running On-Demand G and VT instances",
    "L-417A185B": "Running On-Demand P instances",
    "L-34B43A08": "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests",
    "L-3819A6DF": "All G and VT Spot Instance Requests",
    "L-7212CCBC": "All P4, P3 and P2 Spot Instance Requests",
    "L-C4BD4855": "All P5 Spot Instance Requests",
}
"""Names of the quotas by code."""
_STANDARD = "acdhimrtz"
_CODES = {
    ON_DEMAND: {
        **dict.fromkeys(_STANDARD, "L-1216C47A"),
        **dict.fromkeys(("g", "gr"), "L-DB2E81BA"),
        "p": "L-417A185B",
    },
    SPOT: {
        **dict.fromkeys(_STANDARD, "L-34B43A08"),
        **dict.fromkeys(("g", "gr"), "L-3819A6DF"),
        **dict.fromkeys(("p2", "p3", "p4"), "L-7212CCBC"),
        "p5": "L-C4BD4855",
    },
}


def family(instance_type: str) -> str:
    """Return the letters at the start of the name of a type: `g` for g6e.12xlarge."""
    prefix_match = re.match(r"[a-z]*", instance_type)
    return prefix_match[0] if prefix_match else ""


def code(instance_type: str, capacity_type: str = ON_DEMAND) -> str:
    """Return the quota for machines of a type; empty for a type without a quota in NAMES."""
    generation = re.match(r"[a-z]*\d*", instance_type)
    codes = _CODES.get(capacity_type, {})
    return codes.get(generation[0] if generation else "", "") or codes.get(family(instance_type), "")


def name(instance_type: str, capacity_type: str = ON_DEMAND) -> str:
    """Return the name of the quota for machines of a type; empty if it is unknown."""
    return NAMES.get(code(instance_type, capacity_type), "")
