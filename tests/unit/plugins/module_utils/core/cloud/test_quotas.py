# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Sums of what pools take of a quota, and the messages about them."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.accounts import (
    EVERYWHERE,
    Account,
    Quota,
    Reservation,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.quotas import (
    Limit,
    QuotaDemand,
    QuotaWords,
    limits,
    message,
    remediation,
    shortage,
)

DAY = "2026-11-27"
WORDS = QuotaWords(holder="account", ask="Ask for more", lower="nodeCount", is_certain=True)


def quota(limit: int, used: int | None = None, region: str = "us-west-2") -> Limit:
    found = Quota(code="L-1", name="P instances", unit="vCPUs", limit=limit, used=used, observed=DAY)
    return limits(account(region=region, quotas=[found]), WORDS)[0]


def account(**more: Any) -> Account:
    given: dict[str, Any] = {"provider": "eks", "account": "1234", "region": "us-west-2", "observed": DAY, **more}
    return Account(**given)


def pool(name: str = "a/gpu", nodes: int | None = None, **more: Any) -> QuotaDemand:
    """A pool that starts with one node of 96 vCPUs and may have two; with `nodes` one that exists."""
    cluster, __, called = name.partition("/")
    given: dict[str, Any] = {"takes": {"L-1": 96}, "start": 1, "max_nodes": 2, **more}
    return QuotaDemand(cluster, called, is_there=nodes is not None, nodes=nodes, **given)


def test_pools_of_all_clusters_are_summed() -> None:
    assert shortage(quota(400), [pool("a/gpu"), pool("b/gpu")]) is None
    short = shortage(quota(96), [pool("a/gpu"), pool("b/gpu")])
    assert short is not None
    assert (short.starts, short.needs, short.used_amount) == (True, 192, 0)
    assert [each.cluster for each in short.excess] == ["b"], "the first one fits"
    assert message(short) == (
        'node pools a/gpu (96), b/gpu (96): start with 192 vCPUs, and the quota "P instances" (L-1) of account 1234 in '
        "us-west-2 is 96 vCPUs"
    )
    assert remediation(short, WORDS) == "Ask for more, or lower nodeCount"


@pytest.mark.parametrize("used", [None, 96])
def test_what_exists_is_counted_once(used: int | None) -> None:
    there = pool("a/gpu", nodes=1)
    assert shortage(quota(192, used), [pool("a/gpu", nodes=1, max_nodes=1), pool("b/gpu", max_nodes=1)]) is None
    short = shortage(quota(191, used), [there, pool("b/gpu")])
    assert short is not None
    assert (short.starts, short.needs, short.used_amount) == (True, 96, 96)
    assert message(short) == (
        'node pools gpu: start with 96 vCPUs, and the quota "P instances" (L-1) of account 1234 in us-west-2 is 191 '
        "vCPUs, of which 96 are in use"
    )


def test_nothing_new_starts_whatever_is_in_use() -> None:
    assert shortage(quota(96, used=500), [pool(nodes=5, max_nodes=1)]) is None
    assert shortage(quota(96, used=500), [pool(start=0, max_nodes=1)]) is None


def test_growth_is_another_matter() -> None:
    short = shortage(quota(191, region=EVERYWHERE), [pool("a/gpu", nodes=1)])
    assert short is not None
    assert (short.starts, short.needs, short.excess) == (False, 192, ())
    assert message(short) == (
        'node pools gpu: may grow to 192 vCPUs, and the quota "P instances" (L-1) of account 1234 for all regions is '
        "191 vCPUs, with what else runs there"
    )
    assert remediation(short, WORDS) == "Ask for more before they grow"


def test_other_quotas_do_not_count() -> None:
    assert shortage(quota(0), [pool(takes={"L-2": 96}), pool(takes={})]) is None


def test_a_small_pool_fits_beside_a_large_one_that_does_not() -> None:
    demands = [pool("a/large", start=2), pool("b/small")]
    short = shortage(quota(96), demands)
    assert short is not None
    assert [each.pool for each in short.excess] == ["large"]


def test_many_pools_are_not_all_named() -> None:
    short = shortage(quota(96), [pool(f"c{number:02}/gpu") for number in range(30)])
    assert short is not None
    assert "c09/gpu (96) and 20 more: start with 2880 vCPUs" in message(short)


def test_a_reservation_is_shared_too() -> None:
    block = Reservation(
        id="cr-1", machine="p5.48xlarge", zone="usw2-az1", state="active", total=3, free=2, observed=DAY
    )
    (limit,) = limits(account(reservations=[block]), WORDS)
    takes = {"cr-1": 1}
    assert shortage(limit, [pool("a/gpu", takes=takes, max_nodes=1), pool("b/gpu", takes=takes, max_nodes=1)]) is None
    short = shortage(limit, [pool("a/gpu", takes=takes, nodes=1), pool("b/gpu", takes=takes, start=3)])
    assert short is not None
    assert message(short) == (
        "node pools gpu: start with 3 machines, and reservation cr-1 of account 1234 has 3 machines, of which 1 are in "
        "use"
    )
    assert remediation(short, WORDS) == "Reserve more, or lower nodeCount"
    short = shortage(limit, [pool("a/gpu", takes=takes, nodes=1, max_nodes=4)])
    assert short is not None
    assert message(short) == (
        "node pools gpu: may grow to 4 machines, and reservation cr-1 of account 1234 has 3 machines, and no more will "
        "start"
    )
