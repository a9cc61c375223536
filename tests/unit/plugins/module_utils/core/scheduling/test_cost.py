# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Tests of costs of replicas, and of the limits that deployments have for them."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.cost import (
    Spent,
    node_share,
    refusal,
    replica_cost,
    spot_limit,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import (
    Cluster,
    CostLimits,
    PlacedEngine,
    PlacedMember,
    Pool,
    Schedule,
    Spread,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.placement import schedule
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.scheduling import fleets
from hypothesis import given
from hypothesis import strategies as st

REGION = "modelplane.ai/region"


def pool(name: str, room: int, price: str | None = None, *, spot: bool = False, gpus: int = 1) -> Pool:
    """Return a pool of so many nodes with GPUs."""
    return replace(fleets.pool(name, room, fleets.gpu(count=gpus)), price=Decimal(price) if price else None, spot=spot)


def places(decided: Schedule, name: str = "d") -> list[tuple[str, str]]:
    """Return cluster and pool of each replica of a deployment."""
    return [
        (placement.cluster, placement.engines[0].members[0].pool)
        for placement in decided.placements
        if placement.deployment == name
    ]


def reasons(decided: Schedule) -> dict[str, str]:
    return {name: refusal.reason for each in decided.pending for refusal in each.refusals for name in refusal.clusters}


def claim(count: int, device_class: str = "gpu.nvidia.com") -> dict[str, object]:
    return {"name": "gpu", "deviceClassName": device_class, "count": count}


def test_a_pod_takes_the_largest_of_its_shares_of_a_node() -> None:
    eight = pool("gpu", 1, gpus=8)
    assert node_share(PlacedMember("gpu", (claim(2),)), eight) == Fraction(1, 4)
    assert node_share(PlacedMember("gpu", (claim(1), claim(2))), eight) == Fraction(3, 8)
    assert node_share(PlacedMember("gpu"), eight) == 0
    assert node_share(PlacedMember("gpu", (claim(1, "unknown.example.org"),)), eight) == 1


def test_a_replica_costs_its_pods_on_all_their_pools() -> None:
    pools = {"a": pool("a", 4, "8.00", gpus=8), "b": pool("b", 4, "1.50")}
    gang = PlacedMember("a", (claim(8),), "Worker", 3, (("a", 2), ("b", 1)))
    engines = [PlacedEngine("e", (PlacedMember("a", (claim(1),)), gang), copies=2)]
    assert replica_cost(engines, pools) == 2 * (1 + 2 * 8 + Fraction(3, 2))
    assert replica_cost(engines, {**pools, "b": pool("b", 4)}) is None
    assert replica_cost(engines, {"a": pools["a"]}) is None


def test_limits_on_spot_nodes() -> None:
    assert spot_limit(CostLimits(), 5) == 5
    assert spot_limit(CostLimits(most_spot=2), 5) == 2
    assert spot_limit(CostLimits(most_spot=4, least_on_demand=3), 5) == 2
    assert spot_limit(CostLimits(least_on_demand=9), 5) == 0


def test_an_unknown_price_is_not_zero() -> None:
    engines = [PlacedEngine("e", (PlacedMember("gpu", (claim(1),)),))]
    limits, unpriced = CostLimits(Decimal(1), "USD"), {"gpu": pool("gpu", 1)}
    assert "is not known" in refusal(limits, 1, Spent(), engines, unpriced)
    assert refusal(CostLimits(most_spot=1), 1, Spent(), engines, unpriced) == ""
    assert Spent().with_replica(engines, unpriced) == Spent(unpriced=1)


def test_without_limits_prices_change_nothing() -> None:
    fleet = [fleets.cluster("a", pool("gpu", 4, "9.00")), fleets.cluster("b", pool("gpu", 4, "1.00"))]
    assert places(schedule([fleets.deployment("d", 3)], fleet, [])) == [("a", "gpu"), ("a", "gpu"), ("b", "gpu")]


def test_the_cheapest_places_come_first() -> None:
    fleet = [
        fleets.cluster("a", pool("dear", 4, "9.00"), pool("cheap", 1, "2.00")),
        fleets.cluster("b", pool("gpu", 1, "1.00")),
        fleets.cluster("c", pool("unknown", 4)),
    ]
    desired = fleets.deployment("d", 4, cost=CostLimits())
    decided = schedule([desired], fleet, [])
    assert places(decided) == [("a", "cheap"), ("a", "dear"), ("a", "dear"), ("b", "gpu")]
    assert places(schedule([desired], fleet, fleets.replicas_of(decided))) == places(decided)


def test_a_ceiling_keeps_replicas_pending_with_numbers() -> None:
    fleet = [fleets.cluster("a", pool("gpu", 9, "2.00")), fleets.cluster("b", pool("gpu", 9, "3.50"))]
    desired = fleets.deployment("d", 5, cost=CostLimits(Decimal("7.00"), "USD"))
    decided = schedule([desired], fleet, [])
    assert places(decided) == [("a", "gpu")] * 3
    assert [each.count for each in decided.pending] == [2]
    assert reasons(decided) == {
        "a": "a replica costs 2.00 USD per hour there, and 6.00 USD of the 7.00 USD of spec.cost.ceilingPerHour are "
        "spent",
        "b": "a replica costs 3.50 USD per hour there, and 6.00 USD of the 7.00 USD of spec.cost.ceilingPerHour are "
        "spent",
    }
    again = schedule([desired], fleet, fleets.replicas_of(decided))
    assert places(again) == places(decided)
    assert again.dropped == ()


def test_what_runs_is_not_removed_for_a_ceiling() -> None:
    fleet = [fleets.cluster("a", pool("gpu", 9, "2.00"))]
    running = fleets.replicas_of(schedule([fleets.deployment("d", 3)], fleet, []))
    decided = schedule([fleets.deployment("d", 4, cost=CostLimits(Decimal(1), "USD"))], fleet, running)
    assert places(decided) == [("a", "gpu")] * 3
    assert decided.dropped == ()


def test_so_many_replicas_stay_off_spot_nodes() -> None:
    fleet = [fleets.cluster("a", pool("spot", 9, "1.00", spot=True), pool("usual", 9, "3.00"))]
    desired = fleets.deployment("d", 4, cost=CostLimits(least_on_demand=2))
    assert sorted(places(schedule([desired], fleet, []))) == [("a", "spot")] * 2 + [("a", "usual")] * 2
    only_spot = [fleets.cluster("a", pool("spot", 9, "1.00", spot=True))]
    decided = schedule([desired], only_spot, [])
    assert places(decided) == [("a", "spot")] * 2
    assert reasons(decided) == {"a": "2 of 4 replicas are on spot nodes, and spec.cost.spot allows 2"}


def test_another_currency_is_refused() -> None:
    limits = CostLimits(Decimal(9), "EUR", invalid="spec.cost.currency is EUR, and the prices of the fleet are in USD")
    decided = schedule([fleets.deployment("d", 1, cost=limits)], [fleets.cluster("a", pool("gpu", 1, "1.00"))], [])
    assert reasons(decided) == {"a": limits.invalid}


def test_spread_comes_before_the_price() -> None:
    fleet = [
        fleets.cluster("a", pool("gpu", 9, "1.00"), labels={REGION: "east"}),
        fleets.cluster("b", pool("gpu", 9, "5.00"), labels={REGION: "west"}),
        fleets.cluster("c", pool("gpu", 9, "4.00"), labels={REGION: "west"}),
    ]
    desired = fleets.deployment("d", 4, cost=CostLimits(), spread=(Spread(REGION),))
    assert places(schedule([desired], fleet, [])) == [("a", "gpu")] * 2 + [("c", "gpu")] * 2


def test_a_replica_returns_to_preferred_clusters_within_the_ceiling() -> None:
    fleet = [
        fleets.cluster("a", pool("gpu", 1, "2.00"), labels={REGION: "east"}),
        fleets.cluster("b", pool("gpu", 1, "2.00"), labels={REGION: "west"}),
    ]
    running = fleets.replicas_of(schedule([fleets.deployment("d", 1)], fleet, []))
    for ceiling, expected in (("3.00", "a"), ("4.00", "b")):
        limits = CostLimits(Decimal(ceiling), "USD")
        desired = fleets.deployment("d", 1, cost=limits, preferences=({REGION: "west"},), returns=True)
        assert places(schedule([desired], fleet, running)) == [(expected, "gpu")]


def test_other_deployments_do_not_move_what_was_chosen_for_its_price() -> None:
    fleet = [
        fleets.cluster("a", pool("gpu", 1, "9.00"), labels={REGION: "east"}),
        fleets.cluster("b", pool("gpu", 1, "1.00"), labels={REGION: "west"}),
    ]
    cheap = fleets.deployment("cheap", 1, cost=CostLimits(Decimal(2), "USD"), created="2026-01-01T00:00:00Z")
    west = fleets.deployment("west", 1, cluster_selector={REGION: "west"}, created="2026-01-02T00:00:00Z")
    decided = schedule([cheap, west], fleet, [])
    assert places(decided, "cheap") == [("b", "gpu")]
    assert [each.deployment for each in decided.pending] == ["west"]


_PRICES = st.sampled_from([None, "0.50", "1.00", "2.50", "7.25"])
_POOLS = st.lists(st.tuples(st.integers(0, 3), _PRICES, st.booleans()), min_size=1, max_size=3)


@given(st.lists(_POOLS, min_size=1, max_size=4), st.integers(0, 6), st.integers(0, 12), st.integers(0, 3))
def test_limits_hold_and_a_second_run_changes_nothing(
    described: list[list[tuple[int, str | None, bool]]], replicas: int, ceiling: int, off_spot: int
) -> None:
    fleet: list[Cluster] = [
        fleets.cluster(
            f"c{number}", *(pool(f"p{at}", room, price, spot=spot) for at, (room, price, spot) in enumerate(pools))
        )
        for number, pools in enumerate(described)
    ]
    desired = fleets.deployment("d", replicas, cost=CostLimits(Decimal(ceiling), "USD", least_on_demand=off_spot))
    decided = schedule([desired], fleet, [])
    pools = {cluster.name: {each.name: each for each in cluster.pools} for cluster in fleet}
    spent = Spent()
    for placement in decided.placements:
        spent = spent.with_replica(placement.engines, pools[placement.cluster])
    assert spent.cost <= ceiling
    assert spent.unpriced == 0
    assert spent.spot <= max(0, replicas - off_spot)
    again = schedule([desired], list(reversed(fleet)), fleets.replicas_of(decided))
    assert places(again) == places(decided)
    # As many as the cheapest nodes allow, as each replica takes a node.
    usual, spot = (
        sorted(
            Fraction(each.price)
            for cluster in fleet
            for each in cluster.pools
            for __ in range(each.nodes)
            if each.price and each.spot is is_spot
        )
        for is_spot in (False, True)
    )
    most = max(
        count + others
        for count in range(min(len(spot), max(0, replicas - off_spot)) + 1)
        for others in range(min(len(usual), replicas - count) + 1)
        if sum(spot[:count]) + sum(usual[:others]) <= ceiling
    )
    assert len(decided.placements) == most


def test_a_gang_with_limits_is_spread_over_pools_of_a_fabric() -> None:
    """The pools that are searched one by one have no fabric to share."""
    described = [pool("cheap", 2, "1.00"), pool("dear", 2, "2.00"), pool("spot", 1, "0.50", spot=True)]
    pools = [replace(fleets.on_fabric(each), price=each.price, spot=each.spot) for each in described]
    gang = fleets.deployment("d", 1, fleets.gang(3), cost=CostLimits(Decimal(6), "USD"))
    decided = schedule([gang], [fleets.cluster("a", *pools)], ())
    (placement,) = decided.placements
    used = {name for member in placement.engines[0].members for name, __ in member.pods_by_pool}
    assert len(used) > 1


def all_reasons(decided: Schedule) -> set[tuple[str, str]]:
    return {(refusal.pool, refusal.reason) for each in decided.pending for refusal in each.refusals}


def test_each_limit_and_each_pool_has_its_reason() -> None:
    fleet = [fleets.cluster("a", pool("s", 2, "0.30", spot=True), pool("o", 2, "1.00"))]
    limits = CostLimits(Decimal("0.20"), "USD", most_spot=0)
    (found,) = all_reasons(schedule([fleets.deployment("d", 2, cost=limits)], fleet, []))
    assert found == (
        "",
        "pool s: 0 of 2 replicas are on spot nodes, and spec.cost.spot allows 0; a replica costs 0.30 USD per hour "
        "there, and 0.00 USD of the 0.20 USD of spec.cost.ceilingPerHour are spent; pool o: a replica costs 1.00 USD "
        "per hour there, and 0.00 USD of the 0.20 USD of spec.cost.ceilingPerHour are spent",
    )


def test_a_full_pool_is_a_reason_beside_the_limits() -> None:
    fleet = [fleets.cluster("a", pool("s", 4, "0.30", spot=True), pool("o", 1, "1.00"))]
    decided = schedule([fleets.deployment("d", 3, cost=CostLimits(most_spot=1))], fleet, [])
    assert sorted(places(decided)) == [("a", "o"), ("a", "s")]
    found = dict(all_reasons(decided))
    assert found[""] == "pool s: 1 of 3 replicas are on spot nodes, and spec.cost.spot allows 1"
    assert "o" in found
    assert "s" not in found
