# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Owner labels of objects in Google Cloud, and clusters that exist in another region than planned."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..engine.kinds import Resource
from ..engine.ownership import Owners
from . import names
from .kinds import KINDS
from .requests import title

OWNERS = Owners(
    cluster=names.CLUSTER_LABEL,
    manager=names.MANAGED_BY_LABEL,
    fleet=names.FLEET_LABEL,
    managed_by=names.MANAGED_BY,
    word="labels",
    setting="gke_cluster_fleet",
)


def conflict(resource: Resource, actual: Mapping[str, Any]) -> str:
    """Return the reason why an object does not belong to the plan; empty if it does."""
    return OWNERS.conflict(KINDS[resource["kind"]], title(resource), actual, resource["body"])


def elsewhere(subnetwork: Resource, network: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for a subnetwork that exists in another region than planned.

    `network`: the API response; the network is in all regions, and lists its subnetworks.
    """
    planned = str(subnetwork["parent"]).rpartition("/")[2]
    for link in network.get("subnetworks") or ():
        region, _collection, name = str(link).split("/")[-3:]
        if name == subnetwork["name"] and region != planned:
            yield (
                f"{title(subnetwork)} is in {region} already, and {planned} is asked for. Google moves nothing to "
                f"another region: set spec.region back to {region}; to have the cluster elsewhere, remove it first"
            )
