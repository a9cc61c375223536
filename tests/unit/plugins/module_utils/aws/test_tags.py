# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
from __future__ import annotations

from ansible_collections.modelplane.fleet.plugins.module_utils.aws import tags

OURS = {"modelplane.ai/managed-by": "modelplane.fleet", "modelplane.ai/fleet": "a", "modelplane.ai/cluster": "west"}


def test_both_forms() -> None:
    assert tags.wire({"b": "2", "a": "1"}) == [{"Key": "a", "Value": "1"}, {"Key": "b", "Value": "2"}]
    assert tags.plain(tags.wire({"b": "2", "a": "1"})) == {"a": "1", "b": "2"}
    assert tags.plain(None) == {}
    assert tags.plain([{"Key": "empty"}]) == {"empty": ""}


def test_texts() -> None:
    assert tags.texts({"a": True, "b": 1, "c": "x"}) == {"a": "true", "b": "1", "c": "x"}


def test_only_what_is_wanted_or_ours_is_changed() -> None:
    have = {"team": "x", "cost": "old", "modelplane.ai/gone": "1", "modelplane.ai/fleet": "a"}
    want = {"cost": "new", "modelplane.ai/fleet": "a"}
    assert tags.differences(have, want) == ({"cost": "new"}, ["modelplane.ai/gone"])
    assert tags.differences({**have, **want}, {**have, **want}) == ({}, [])


def test_what_is_not_ours_is_refused() -> None:
    assert tags.refusal("VPC x", OURS, OURS) == ""
    assert tags.refusal("VPC x", OURS, {}) == ""
    nobody = tags.refusal("VPC x", {"Name": "x"}, OURS)
    assert "VPC x" in nobody
    assert "no tag modelplane.ai/managed-by=modelplane.fleet" in nobody
    fleet = tags.refusal("VPC x", OURS, {**OURS, "modelplane.ai/fleet": "b"})
    assert "another fleet (its tag modelplane.ai/fleet is a, not b)" in fleet
    cluster = tags.refusal("VPC x", OURS, {**OURS, "modelplane.ai/cluster": "east"})
    assert "another cluster (its tag modelplane.ai/cluster is west, not east)" in cluster
