# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Cost of replicas, and the cost limits of deployments.

A replica costs a share of the price of its nodes. The share is the part of the devices of a node that a pod claims.
Amounts are exact fractions. Only the output rounds them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from ..pricing import money
from .model import Cluster, CostLimits, PlacedEngine, PlacedMember, Pool, Replica, pools_of


@dataclass(frozen=True)
class Spent:
    """Total cost of replicas per hour, and the number of replicas on spot nodes.

    unpriced: number of replicas with a pod on a node without a known price. Their cost is excluded.
    """

    cost: Fraction = Fraction(0)
    spot: int = 0
    unpriced: int = 0

    def with_replica(self, engines: Iterable[PlacedEngine], pools: Mapping[str, Pool]) -> Spent:
        """Return the total with one more replica."""
        placed = tuple(engines)
        cost = replica_cost(placed, pools)
        return replace(
            self,
            cost=self.cost + (cost or 0),
            spot=self.spot + is_on_spot(placed, pools),
            unpriced=self.unpriced + (cost is None),
        )


def spent(placed: Iterable[tuple[str, Iterable[PlacedEngine]]], pools: Callable[[str], Mapping[str, Pool]]) -> Spent:
    """Return the total cost of replicas.

    placed: cluster and engines of each replica.
    pools: function that returns the pools of a cluster.
    """
    total = Spent()
    for cluster, engines in placed:
        total = total.with_replica(engines, pools(cluster))
    return total


def spent_by_deployment(
    deployments: Iterable[tuple[str, str]], replicas: Iterable[Replica], clusters: Iterable[Cluster]
) -> dict[tuple[str, str], Spent]:
    """Return the total cost of the replicas of each deployment, including replicas on unknown clusters."""
    placed: dict[tuple[str, str], list[tuple[str, Iterable[PlacedEngine]]]] = {key: [] for key in deployments}
    for replica in replicas if placed else ():
        key = (replica.namespace, replica.deployment)
        if key in placed:
            placed[key].append((replica.cluster, replica.engines))
    pools = {cluster.name: {pool.name: pool for pool in cluster.pools} for cluster in clusters} if placed else {}
    return {key: spent(engines, lambda name: pools.get(name, {})) for key, engines in placed.items()}


def node_share(member: PlacedMember, pool: Pool) -> Fraction:
    """Return the share of a node that one pod of a member uses: the largest claimed part of a device class of the node.
    0 for a pod without claims."""
    total, claimed = Counter[str](), Counter[str]()
    for device in pool.devices:
        if device.claim == "DRA" and device.device_class_name:
            total[device.device_class_name] += device.count
    for request in member.device_requests:
        claimed[request["deviceClassName"]] += int(request.get("count", 1))
    shares = [Fraction(number, total[name]) if total[name] else Fraction(1) for name, number in claimed.items()]
    return min(max(shares, default=Fraction(0)), Fraction(1))


def replica_cost(engines: Iterable[PlacedEngine], pools: Mapping[str, Pool]) -> Fraction | None:
    """Return the cost of a replica per hour. None if a node with claimed devices has no known price.

    pools: pools of the cluster, by name."""
    cost = Fraction(0)
    for engine in engines:
        for member in engine.members:
            for name, pods in member.pods_by_pool:
                if name not in pools:
                    return None
                share = node_share(member, pools[name])
                price = pools[name].price
                if share and price is None:
                    return None
                cost += share * pods * engine.copies * Fraction(price or 0)
    return cost


def is_on_spot(engines: Iterable[PlacedEngine], pools: Mapping[str, Pool]) -> bool:
    """Return True if a pod of a replica is on a spot node."""
    return any(name in pools and pools[name].spot for name in pools_of(engines))


def spot_limit(limits: CostLimits, replicas: int) -> int:
    """Return the maximum number of replicas on spot nodes."""
    limit = replicas if limits.most_spot is None else limits.most_spot
    return max(0, min(limit, replicas - limits.least_on_demand))


def refusal(
    limits: CostLimits, replicas: int, total: Spent, engines: Iterable[PlacedEngine], pools: Mapping[str, Pool]
) -> str:
    """Return the reason why the limits do not allow one more replica on these pools. Empty if they allow the replica.

    replicas: desired number of replicas of the deployment.
    total: cost of the placed replicas."""
    placed = tuple(engines)
    refusals = _spot_refusal(limits, replicas, total, placed, pools), _ceiling_refusal(limits, total, placed, pools)
    return "; ".join(filter(None, refusals))


def _spot_refusal(
    limits: CostLimits, replicas: int, total: Spent, placed: Sequence[PlacedEngine], pools: Mapping[str, Pool]
) -> str:
    limit = spot_limit(limits, replicas)
    if not is_on_spot(placed, pools) or total.spot < limit:
        return ""
    return f"{total.spot} of {replicas} replicas are on spot nodes, and spec.cost.spot allows {limit}"


def _ceiling_refusal(
    limits: CostLimits, total: Spent, placed: Sequence[PlacedEngine], pools: Mapping[str, Pool]
) -> str:
    if limits.ceiling is None or limits.invalid:
        return limits.invalid
    cost = replica_cost(placed, pools)
    if cost is None:
        return "the price of its nodes is not known, and spec.cost.ceilingPerHour needs it"
    ceiling = Fraction(limits.ceiling)
    if total.cost + cost <= ceiling:
        return ""
    cost_text, spent_text, ceiling_text = (money(amount, limits.currency) for amount in (cost, total.cost, ceiling))
    return (
        f"a replica costs {cost_text} per hour there, and {spent_text} of the {ceiling_text} of "
        "spec.cost.ceilingPerHour are spent"
    )


def price_order(cluster: Cluster) -> tuple[Pool, ...]:
    """Return the pools of a cluster by ascending price of a device. Pools with equal prices keep their order. Pools
    without a known price come last."""
    return tuple(sorted(cluster.pools, key=_device_price))


def _device_price(pool: Pool) -> tuple[bool, Fraction]:
    devices = sum(device.count for device in pool.devices if device.claim == "DRA")
    if pool.price is None:
        return True, Fraction(0)
    return False, Fraction(pool.price) / max(devices, 1)
