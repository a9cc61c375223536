# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Demand of node groups on the quotas of an account."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...accounts import Account
from ...wire import Object
from .. import pools
from ..quotas import QuotaDemand, QuotaWords
from . import node_groups, quotas, validation
from .reading import EksCluster

WORDS = QuotaWords(holder="account", ask="Ask for more in Service Quotas (EC2)", lower="nodeCount", is_certain=True)


def quota_code(group: Mapping[str, Any]) -> str:
    """Return the quota of a node group; empty for a Capacity Block, and for instance families without a known quota."""
    return quotas.code(group["instance_type"], group["capacity_type"] or quotas.ON_DEMAND)


def of_group(cluster: str, group: Mapping[str, Any], account: Account, there: Mapping[str, int | None]) -> QuotaDemand:
    """Return the demand of a node group of a plan. `cluster`: its name in messages. `there`: the nodes of the existing
    groups."""
    code, reservation = quota_code(group), group["capacity_reservation"]
    takes = {code: account.vcpus(group["instance_type"])} if code else {}
    return QuotaDemand(
        cluster=cluster,
        pool=group["name"],
        takes={**takes, reservation: 1} if reservation else takes,
        start=group["desired_size"],
        max_nodes=group["max_size"],
        is_there=group["name"] in there,
        nodes=there.get(group["name"]),
        machine=group["instance_type"],
        zones=() if group["role"] == pools.SYSTEM else tuple(group["zones"]),
    )


def of_cluster(manifest: Object, account: Account, there: Mapping[str, int | None]) -> list[QuotaDemand]:
    """Return the demands of the pools of an EKSCluster (wire form). `there`: the nodes of the existing pools. Raises
    InvalidResource."""
    cluster = validation.VALIDATION.read(manifest)
    return [
        replace(
            of_group(cluster.name, _group(cluster, pool), account, there),
            path=cluster.path(pool),
        )
        for pool in cluster.pools
    ]


def _group(cluster: EksCluster, pool: Mapping[str, Any]) -> dict[str, Any]:
    return node_groups.node_group(cluster.namespace, cluster.name, pool, ())
