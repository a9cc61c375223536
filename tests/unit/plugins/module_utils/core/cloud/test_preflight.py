# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Ranges of addresses of several clusters."""

from __future__ import annotations

from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.preflight import (
    Line,
    Verdict,
    meeting,
    verdict,
)


def other(name: str, cidr: Any, region: str = "r") -> dict[str, Any]:
    return {"name": name, "region": region, "cidr": cidr}


def test_clusters_that_have_addresses_in_common() -> None:
    others = [other("north", "10.1.0.0/16"), other("east", "10.0.128.0/17"), other("west", "10.0.0.0/16")]
    assert meeting("west", ["10.0.0.0/16"], others) == ["east (10.0.128.0/17, r)"]
    assert meeting("west", ["10.0.0.0/16", "10.1.2.0/24"], others) == [
        "east (10.0.128.0/17, r)",
        "north (10.1.0.0/16, r)",
    ]
    assert meeting("west", ["10.9.0.0/16"], others) == []
    more = [*others, other("east", "10.1.0.0/24")]
    assert meeting("west", ["10.0.0.0/15"], more)[0] == "east (10.0.128.0/17, 10.1.0.0/24, r)"


def test_what_is_no_range_or_of_another_family_meets_nothing() -> None:
    assert meeting("west", ["10.0.0.0/8"], [other("a", "east"), other("b", "fd00::/8"), other("c", "")]) == []


def test_each_line_is_reported_once() -> None:
    lines = [Line("a"), Line("b", problem=False), Line("a"), Line("b", problem=False), Line("c")]
    assert verdict(lines) == Verdict(("a", "c"), ("b",))
