# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Ranges of addresses: twins, suggestions, and what is no range."""

from __future__ import annotations

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud import addresses
from hypothesis import given
from hypothesis import strategies as st

TWINS = {
    "10.0.0.0/20": "10.0.48.0/20",
    "10.0.16.0/20": "10.0.64.0/20",
    "10.0.32.0/20": "10.0.80.0/20",
    "192.168.0.0/24": "192.168.48.0/24",
    "172.16.207.0/28": "172.16.255.0/28",
}


@pytest.mark.parametrize(("public", "private"), TWINS.items())
def test_private_twins(public: str, private: str) -> None:
    assert str(addresses.private_twin(addresses.network(public))) == private


WITHOUT = {
    "10.0.208.0/20": "has no private range: that begins 48 higher in the third octet, which would be 256",
    "10.0.0.0/18": "has no private range: 48 higher in the third octet no range of /18 begins",
}


@pytest.mark.parametrize(("public", "message"), WITHOUT.items())
def test_ranges_without_a_twin(public: str, message: str) -> None:
    with pytest.raises(addresses.AddressError, match=message):
        addresses.private_twin(addresses.network(public))


NO_RANGES = {
    "10.0.0.0": "must be a range of IPv4 addresses",
    "ten": "must be a range of IPv4 addresses",
    "10.0.0.0/33": "must be a range of IPv4 addresses",
    "fd00::/16": "must be a range of IPv4 addresses",
    "10.0.0.5/20": "must begin with the first address of the range: write 10.0.0.0/20",
    "10.0.0.0/255.255.0.0": "write 10.0.0.0/16",
}


@pytest.mark.parametrize(("text", "message"), NO_RANGES.items())
def test_what_is_no_range(text: str, message: str) -> None:
    with pytest.raises(addresses.AddressError, match=message):
        addresses.network(text)


def test_suggestions_leave_room_for_twins() -> None:
    vpc = addresses.network("10.0.0.0/16")
    assert addresses.suggested(vpc, 6, 20) == [
        "10.0.0.0/20",
        "10.0.16.0/20",
        "10.0.32.0/20",
        "10.0.96.0/20",
        "10.0.112.0/20",
        "10.0.128.0/20",
    ]
    assert addresses.suggested(vpc, 8, 20) == []
    assert addresses.suggested(vpc, 2, 16) == []
    assert addresses.suggested(vpc, 2, 12) == []


@given(st.integers(2, 6), st.integers(20, 28), st.sampled_from(["10.0.0.0/16", "10.9.0.0/17", "192.168.0.0/18"]))
def test_suggestions_collide_with_nothing(count: int, prefix: int, outer: str) -> None:
    vpc = addresses.network(outer)
    found = addresses.suggested(vpc, count, prefix)
    every = [*found, *(str(addresses.private_twin(addresses.network(each))) for each in found)]
    assert len(found) in (0, count)
    assert addresses.overlapping(every) == []
    assert all(addresses.within(addresses.network(each), vpc) for each in every)


def test_reserved_ranges() -> None:
    assert addresses.reserved(addresses.network("10.0.0.0/16")) == ""
    assert addresses.reserved(addresses.network("127.0.0.0/16")) == "loopback addresses (127.0.0.0/8)"
    assert addresses.reserved(addresses.network("169.254.0.0/16")).startswith("link-local addresses")
    assert addresses.reserved(addresses.network("128.0.0.0/1")).startswith("link-local addresses")


def test_overlap() -> None:
    assert addresses.overlapping(["10.0.0.0/16", "10.1.0.0/16", "10.0.128.0/17"]) == [(0, 2)]
