# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
from __future__ import annotations

from ansible_collections.modelplane.fleet.plugins.module_utils.aws import tags


def test_tags_are_a_mapping() -> None:
    assert tags.plain([{"Key": "b", "Value": "2"}, {"Key": "empty"}]) == {"b": "2", "empty": ""}
    assert tags.plain(None) == {}


def test_objects_of_any_fleet_are_ours() -> None:
    assert tags.ours({"modelplane.ai/managed-by": "modelplane.fleet", "modelplane.ai/fleet": "a"})
    assert not tags.ours({"modelplane.ai/fleet": "a"})
