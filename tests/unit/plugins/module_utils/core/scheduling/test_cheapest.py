# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The places of one deployment with limits on cost, compared with the cheapest of all that there are."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction

from ansible_collections.modelplane.fleet.plugins.module_utils.core.devices.device import Device
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.cost import Spent
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import (
    Cluster,
    CostLimits,
    Engine,
    Member,
    Request,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.placement import schedule
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.scheduling import fleets
from hypothesis import given, settings
from hypothesis import strategies as st

NIC = "nic.nvidia.com"
HAS_NIC = f'device.driver == "{NIC}"'
Pods = tuple[int, int]
"""GPUs and NICs that a pod claims."""


@dataclass(frozen=True)
class Hardware:
    """A pool: nodes, GPUs and NICs of each, its price, and whether its nodes are spot."""

    nodes: int
    gpus: int
    nics: int
    price: str | None
    spot: bool


def cluster(name: str, pools: Sequence[Hardware]) -> Cluster:
    built = []
    for at, each in enumerate(pools):
        devices = [fleets.gpu(count=each.gpus)]
        if each.nics:
            wire = {"name": "nic", "driver": NIC, "deviceClassName": NIC, "claim": "DRA", "count": each.nics}
            devices.append(Device.from_wire(wire))
        price = Decimal(each.price) if each.price else None
        built.append(replace(fleets.pool(f"p{at}", each.nodes, *devices), price=price, spot=each.spot))
    return fleets.cluster(name, *built)


def engine(name: str, pods: Pods) -> Engine:
    gpus, nics = pods
    requests = [fleets.ask(gpus)]
    requests += [Request("nic", nics, (HAS_NIC,))] if nics else []
    return Engine(name, (Member("Standalone", 1, tuple(requests)),), 1)


@functools.cache
def fit(pods: tuple[Pods, ...], nodes: tuple[Pods, ...]) -> bool:
    """Return whether pods fit on nodes with so much left, every way tried."""
    if not pods:
        return True
    (gpus, nics), rest = pods[0], pods[1:]
    return any(
        left[0] >= gpus
        and left[1] >= nics
        and fit(rest, tuple(sorted((*nodes[:at], (left[0] - gpus, left[1] - nics), *nodes[at + 1 :]))))
        for at, left in enumerate(nodes)
    )


@dataclass(frozen=True)
class Best:
    """As many replicas as possible, of these the fewest on nodes without a price, of these the lowest cost."""

    missing: int
    unpriced: int
    cost: Fraction

    @property
    def rank(self) -> tuple[int, int, Fraction]:
        return self.missing, self.unpriced, self.cost


def places(fleet: Sequence[Sequence[Hardware]], engines: Sequence[Pods]) -> Iterator[tuple[tuple[int, int], ...]]:
    """Every place of a replica: cluster and pool of each engine."""
    for number, pools in enumerate(fleet):
        for chosen in itertools.product(range(len(pools)), repeat=len(engines)):
            if all(
                engine[0] <= pools[at].gpus and engine[1] <= pools[at].nics
                for engine, at in zip(engines, chosen, strict=True)
            ):
                yield tuple((number, at) for at in chosen)


def share(pods: Pods, pool: Hardware) -> Fraction:
    return max(Fraction(pods[0], pool.gpus), Fraction(pods[1], pool.nics) if pods[1] else Fraction(0))


def best(fleet: Sequence[Sequence[Hardware]], engines: Sequence[Pods], replicas: int, limits: CostLimits) -> Best:
    """The best of all placements: every multiset of places is tried."""
    every = list(places(fleet, engines))
    found = [Best(replicas, 0, Fraction(0))]
    spot = max(0, replicas - limits.least_on_demand)
    for number in range(1, replicas + 1):
        for chosen in itertools.combinations_with_replacement(every, number):
            on: dict[tuple[int, int], list[Pods]] = {}
            cost, unpriced, on_spot = Fraction(0), 0, 0
            for place in chosen:
                pools = [fleet[cluster][at] for cluster, at in place]
                for key, pods in zip(place, engines, strict=True):
                    on.setdefault(key, []).append(pods)
                prices = [pool.price for pool in pools]
                on_spot += any(pool.spot for pool in pools)
                if None in prices:
                    unpriced += 1
                else:
                    cost += sum(
                        share(pods, pool) * Fraction(pool.price or 0) for pods, pool in zip(engines, pools, strict=True)
                    )
            if on_spot > spot or (limits.ceiling is not None and (unpriced or cost > limits.ceiling)):
                continue
            if all(
                fit(tuple(sorted(pods)), ((fleet[c][at].gpus, fleet[c][at].nics),) * fleet[c][at].nodes)
                for (c, at), pods in on.items()
            ):
                found.append(Best(replicas - number, unpriced, cost))
    return min(found, key=lambda each: each.rank)


def planned(fleet: Sequence[Sequence[Hardware]], engines: Sequence[Pods], replicas: int, limits: CostLimits) -> Best:
    """Return what the scheduler finds."""
    clusters = [cluster(f"c{number}", pools) for number, pools in enumerate(fleet)]
    built = [engine(f"e{at}", pods) for at, pods in enumerate(engines)]
    decided = schedule([fleets.deployment("d", replicas, *built, cost=limits)], clusters, [])
    spent = Spent()
    for placement in decided.placements:
        pools = next(each.pools for each in clusters if each.name == placement.cluster)
        spent = spent.with_replica(placement.engines, {pool.name: pool for pool in pools})
    return Best(replicas - len(decided.placements), spent.unpriced, spent.cost)


_HARDWARE = st.builds(
    Hardware,
    st.integers(0, 2),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([0, 0, 2]),
    st.sampled_from([None, "1.00", "2.00", "3.50", "7.00"]),
    st.booleans(),
)
_FLEETS = st.lists(st.lists(_HARDWARE, min_size=1, max_size=3), min_size=1, max_size=3)
_PODS = st.tuples(st.integers(1, 3), st.sampled_from([0, 0, 1]))
_LIMITS = st.builds(
    CostLimits,
    st.sampled_from([None, None, Decimal(3), Decimal(6)]),
    st.just("USD"),
    least_on_demand=st.integers(0, 3),
)


@settings(max_examples=200)
@given(_FLEETS, _PODS, st.integers(1, 4), _LIMITS)
def test_replicas_of_one_engine_are_as_many_and_as_cheap_as_they_can_be(
    fleet: list[list[Hardware]], pods: Pods, replicas: int, limits: CostLimits
) -> None:
    assert planned(fleet, [pods], replicas, limits) == best(fleet, [pods], replicas, limits)


@settings(max_examples=100)
@given(_FLEETS, st.tuples(_PODS, _PODS), st.integers(1, 3), _LIMITS)
def test_replicas_of_several_engines_are_as_many_as_they_can_be(
    fleet: list[list[Hardware]], engines: tuple[Pods, Pods], replicas: int, limits: CostLimits
) -> None:
    free = replace(limits, ceiling=None, least_on_demand=0)
    found, of_all = planned(fleet, engines, replicas, free), best(fleet, engines, replicas, free)
    assert found.missing == of_all.missing
    assert found.rank >= of_all.rank
    # What limits allow is found one after the other.
    assert planned(fleet, engines, replicas, limits).rank >= best(fleet, engines, replicas, limits).rank


def test_a_replica_that_took_the_place_of_another_ones_engine_makes_room() -> None:
    cheap, dear = Hardware(2, 2, 0, "1.00", False), Hardware(2, 1, 0, "9.00", False)
    # The large engines fit the cheap pool alone, so that only small ones may be on the dear one.
    found = planned([[cheap, dear]], [(1, 0), (2, 0)], 2, CostLimits())
    assert found == best([[cheap, dear]], [(1, 0), (2, 0)], 2, CostLimits()) == Best(0, 0, Fraction(20))


def test_the_price_of_a_replica_decides_and_not_that_of_a_device() -> None:
    many, few = Hardware(1, 4, 2, "6.00", False), Hardware(1, 4, 0, "5.00", False)
    assert planned([[many, few]], [(4, 0)], 1, CostLimits()).cost == 5
    assert planned([[many, few]], [(4, 1)], 1, CostLimits()).cost == 6
