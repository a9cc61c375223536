# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Accounts as they were observed: how they are written, and how later observations join earlier ones."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.accounts import Account, merged
from ansible_collections.modelplane.fleet.plugins.module_utils.core.observation import (
    ObservationError,
    Observed,
    accounts,
    accounts_wire,
    is_of_clusters,
    parse,
    wire,
)

WEST: dict[str, Any] = {
    "provider": "eks",
    "account": "123456789012",
    "region": "us-west-2",
    "observed": "2026-11-27",
    "quotas": [
        {"code": "L-417A185B", "name": "P", "unit": "vCPUs", "limit": 96, "used": 0, "observed": "2026-11-27"},
    ],
    "reservations": [
        {
            "id": "cr-1",
            "machine": "p5.48xlarge",
            "zone": "usw2-az1",
            "state": "active",
            "total": 2,
            "free": 1,
            "from": "2026-11-20T11:30:00+00:00",
            "until": "2026-12-01T11:30:00+00:00",
            "observed": "2026-11-27",
        }
    ],
    "offerings": [{"machine": "p5.48xlarge", "vcpus": 192, "zones": ["usw2-az1"], "observed": "2026-11-27"}],
    "zones": [{"name": "us-west-2a", "id": "usw2-az1"}],
    "clusters": [{"name": "west", "pools": [{"name": "system", "nodes": 2}]}],
}


def west(**more: Any) -> Account:
    return accounts({"accounts": [{**WEST, **more}]})[0]


def quota(code: str, limit: int, day: str = "2026-11-27") -> dict[str, Any]:
    return {"code": code, "name": "", "unit": "vCPUs", "limit": limit, "observed": day}


def test_what_is_read_is_written() -> None:
    observed = parse({"control": {}, "clusters": {}, "accounts": [WEST]})
    assert accounts_wire(observed.accounts) == [WEST]
    assert parse(wire(observed)) == observed
    assert wire(observed)["accounts"] == [WEST]


def test_an_older_observation_has_none() -> None:
    old = {"control": {"objects": []}, "clusters": {"lab": {"declared": True}}}
    assert (parse(old).accounts, is_of_clusters(old)) == ((), True)
    assert "accounts" not in wire(parse(old))


def test_accounts_alone_say_nothing_of_clusters() -> None:
    assert not is_of_clusters({"accounts": [WEST]})
    assert is_of_clusters({"accounts": [WEST], "clusters": {}})
    assert parse({"accounts": [WEST]}) == Observed(accounts=(west(),))


@pytest.mark.parametrize(
    ("document", "path", "words"),
    [
        ({**WEST, "observed": "yesterday"}, "accounts[0].observed", "must be a day of the calendar such as 2026-11-20"),
        ({**WEST, "secret": "x"}, "accounts[0].secret", "account as check records it"),
        ({**WEST, "quotas": [quota("L-1", -1)]}, "accounts[0].quotas[0].limit", "must be at least 0"),
        ({**WEST, "zones": [WEST["zones"][0]] * 101}, "accounts[0].zones", "at most 100"),
    ],
)
def test_what_is_no_account(document: dict[str, Any], path: str, words: str) -> None:
    with pytest.raises(ObservationError) as raised:
        parse({"accounts": [document]})
    assert raised.value.path == path
    assert words in str(raised.value)


def test_there_is_a_limit() -> None:
    with pytest.raises(ObservationError, match="at most 10000 accounts"):
        parse({"accounts": [{}] * 10_001})


def test_an_account_twice() -> None:
    with pytest.raises(ObservationError, match=r"accounts\[1\]: .*eks/123456789012/us-west-2 is there twice"):
        parse({"accounts": [WEST, WEST]})


def test_what_was_not_observed_again_stays() -> None:
    before = west(quotas=[quota("L-1", 5, "2026-11-01"), quota("L-2", 6, "2026-11-01")], observed="2026-11-01")
    later = west(
        quotas=[quota("L-2", 7)],
        offerings=[{"machine": "g6.xlarge", "vcpus": 4, "zones": [], "observed": "2026-11-27"}],
        clusters=[{"name": "east", "pools": []}],
        zones=[],
    )
    (found,) = merged([before], [later])
    assert [(each.code, each.limit, each.observed) for each in found.quotas] == [
        ("L-1", 5, "2026-11-01"),
        ("L-2", 7, "2026-11-27"),
    ]
    assert [each.machine for each in found.offerings] == ["g6.xlarge", "p5.48xlarge"]
    assert [each.name for each in found.clusters] == ["east", "west"]
    assert [each.name for each in found.zones] == ["us-west-2a"]
    assert found.observed == "2026-11-27"
    assert merged([found], [later]) == (found,)


def test_pools_that_are_gone_are_gone() -> None:
    (found,) = merged([west()], [west(clusters=[{"name": "west", "pools": []}])])
    assert found.pools() == {"west": {}}


def test_reservations_that_ended_are_left_out() -> None:
    (found,) = merged([west()], [west(observed="2026-12-02", reservations=[])])
    assert found.reservations == []
    (found,) = merged([west()], [west(observed="2026-12-01", reservations=[])])
    assert [each.id for each in found.reservations] == ["cr-1"]


def test_clusters_that_left_the_fleet_are_left_out() -> None:
    other = west(provider="gke", account="prod")
    fleet = {"eks": ["north"]}
    found = merged([west(), other], [west(clusters=[{"name": "north", "pools": []}])], fleet)
    assert [[each.name for each in account.clusters] for account in found] == [["north"], ["west"]]


def test_another_region_is_another_account() -> None:
    found = merged([west()], [west(region="us-east-1")])
    assert [each.region for each in found] == ["us-east-1", "us-west-2"]
