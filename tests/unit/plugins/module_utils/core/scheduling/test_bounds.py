# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Tests of the sums that show that engines have no room beside each other on a cluster."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.bounds import Need, Totals
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.capacity import (
    Demand,
    DeviceLedger,
    Ledger,
    NodeLedger,
    PodSet,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.search_budget import Work
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.scheduling.fleets import gpu, pool

Vector = tuple[int, ...]


def ledger(nodes: int, *counts: int) -> DeviceLedger:
    """Return the ledger of a pool with so many nodes, each with so many devices of each kind."""
    devices = [gpu(count=count, name=f"d{number}") for number, count in enumerate(counts)]
    return DeviceLedger(pool("p", nodes, *devices), Work(), {})


def need(pods: int, *options: tuple[int, Vector]) -> Need:
    return Need(pods, options)


ONE = [ledger(3, 2, 4)]


@pytest.mark.parametrize(
    ("engines", "exceeds"),
    [
        ([[need(6, (0, (2, 1)))]], True),
        ([[need(3, (0, (2, 1)))]], False),
        # Of two kinds a pod takes one or the other: no more of both together than there are.
        ([[need(18, (0, (1, 0)), (0, (0, 1)))]], False),
        ([[need(19, (0, (1, 0)), (0, (0, 1)))]], True),
        # What may take anything takes what is left by what has to take the second kind.
        ([[need(12, (0, (0, 1)))], [need(6, (0, (1, 0)), (0, (0, 1)))]], False),
        ([[need(12, (0, (0, 1)))], [need(7, (0, (1, 0)), (0, (0, 1)))]], True),
        ([[need(13, (0, (0, 1)))], [need(1, (0, (1, 0)), (0, (0, 1)))]], True),
        ([[]], False),
    ],
)
def test_sums_over_kinds_of_devices(engines: Sequence[Sequence[Need]], exceeds: bool) -> None:
    assert Totals(engines, 1).exceed(0, ONE) is exceeds


def test_sums_over_pools() -> None:
    ledgers = [ledger(1, 4), ledger(1, 2)]
    first, either = need(2, (0, (2,))), need(1, (0, (3,)), (1, (2,)))
    assert not Totals([[first], [either]], 2).exceed(0, ledgers)
    assert Totals([[first], [either], [either]], 2).exceed(0, ledgers)
    assert not Totals([[first], [either], [either]], 2).exceed(1, ledgers)


def test_sums_beside_what_is_charged() -> None:
    taken = ledger(1, 2, 4)
    totals = Totals([[need(2, (0, (1, 0)))]], 1)
    assert not totals.exceed(0, [taken])
    demand = Demand(1, (PodSet(1, ((1, 0),)), PodSet(1, ((1, 0), (0, 1)))))
    taken.add(demand)
    assert totals.exceed(0, [taken])
    taken.remove(demand)
    assert not totals.exceed(0, [taken])


def test_sums_of_nodes() -> None:
    nodes: list[Ledger] = [NodeLedger(pool("p", 2, gpu()), Work(), {})]
    assert not Totals([[need(2, (0, (1,)))]], 1).exceed(0, nodes)
    assert Totals([[need(3, (0, (1,)))]], 1).exceed(0, nodes)
