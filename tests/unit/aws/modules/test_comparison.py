# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""What has to change, as values."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.comparison import (
    Comparison,
    label_changes,
    scaling_change,
    shown,
    taint_changes,
    taints,
    version_steps,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.errors import AwsError
from hypothesis import given
from hypothesis import strategies as st

TEXT = st.text("abc", min_size=1, max_size=2)
LABELS = st.dictionaries(TEXT, TEXT, max_size=4)
EFFECTS = st.sampled_from(["NO_SCHEDULE", "NO_EXECUTE", "PREFER_NO_SCHEDULE"])
TAINTS = st.dictionaries(st.tuples(TEXT, EFFECTS), st.text("ab", max_size=1), max_size=4).map(
    lambda found: [{"key": key, "effect": effect, "value": value} for (key, effect), value in found.items()]
)
SIZES = st.integers(0, 6)


@given(LABELS, LABELS)
def test_labels_come_to_what_is_wanted(found: dict[str, str], wanted: dict[str, str]) -> None:
    changes = label_changes(found, wanted)
    after = {key: value for key, value in found.items() if key not in changes.get("removeLabels", [])}
    assert after | changes.get("addOrUpdateLabels", {}) == wanted
    assert set(changes.get("removeLabels", [])) <= set(found)
    assert bool(changes) is (found != wanted)


@given(TAINTS, TAINTS)
def test_taints_come_to_what_is_wanted(found: list[Any], wanted: list[Any]) -> None:
    found, wanted = taints(found), taints(wanted)
    changes = taint_changes(found, wanted)
    after = {(taint["key"], taint["effect"]): taint.get("value", "") for taint in found}
    for taint in changes.get("removeTaints", []):
        del after[taint["key"], taint["effect"]]
    for taint in changes.get("addOrUpdateTaints", []):
        after[taint["key"], taint["effect"]] = taint.get("value", "")
    assert after == {(taint["key"], taint["effect"]): taint["value"] for taint in wanted}
    assert bool(changes) is (found != wanted)


@given(SIZES, SIZES, SIZES, SIZES, SIZES)
def test_the_desired_size_moves_only_as_far_as_it_must(a: int, b: int, c: int, d: int, e: int) -> None:
    low, desired, high = sorted((a, b, c))
    least, most = sorted((d, e))
    change = scaling_change({"minSize": low, "maxSize": high, "desiredSize": desired}, least, most)
    if (low, high) == (least, most):
        assert change == {}
        return
    after = change.get("desiredSize", desired)
    assert (change["minSize"], change["maxSize"]) == (least, most)
    assert least <= after <= most
    if least <= desired <= most:
        assert "desiredSize" not in change
    else:
        assert after in (least, most)


@pytest.mark.parametrize(
    ("found", "wanted", "steps"),
    [
        ("1.34", "1.34", []),
        ("1.34", "1.35", ["1.35"]),
        ("1.33", "1.36", ["1.34", "1.35", "1.36"]),
        ("1.9", "1.10", ["1.10"]),
    ],
)
def test_versions_go_up_one_by_one(found: str, wanted: str, steps: list[str]) -> None:
    assert version_steps(found, wanted) == steps


@pytest.mark.parametrize(
    ("found", "wanted"), [("1.35", "1.34"), ("1.35", "2.0"), ("1.35", "1.36.1"), ("1.35", "x"), ("1.35", "1.٣")]
)
def test_versions_that_cannot_be_reached(found: str, wanted: str) -> None:
    with pytest.raises(AwsError, match=r"version is"):
        version_steps(found, wanted)


def test_only_what_is_wanted_is_compared() -> None:
    comparison = Comparison({"a": 1, "b": [2]}, {"a": 1, "b": [3], "c": 4})
    assert comparison.differing == ("b",)
    assert comparison.before == {"a": 1, "b": [3]}
    comparison.refuse("thing", ("a",), "advice")
    with pytest.raises(AwsError, match=r"thing: b is \[3\] and should be \[2\]. AWS cannot change .* advice"):
        comparison.refuse("thing", ("a", "b"), "advice")


@pytest.mark.parametrize(
    ("value", "text"), [(None, "nothing"), ("", "nothing"), ("a", "a"), ([1], "[1]"), (True, "true")]
)
def test_values_in_messages(value: Any, text: str) -> None:
    assert shown(value) == text
