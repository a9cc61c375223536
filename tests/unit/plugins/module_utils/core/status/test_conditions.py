# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Conditions merged with those of before."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.model_replica import ModelReplicaStatus
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.conditions import (
    OWNED,
    Condition,
    Status,
    hold,
    merge,
    ready,
    unknown,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.text import cut, listed
from hypothesis import given
from hypothesis import strategies as st

NOTHING = api.construct(ModelReplicaStatus)
EARLY, LATE = "2026-01-01T00:00:00Z", "2026-02-02T00:00:00Z"
READY = Condition("Ready", "True", "Available", "all is well")
WRITTEN = {
    "type": "Ready",
    "status": "True",
    "reason": "Available",
    "message": "all is well",
    "lastTransitionTime": EARLY,
    "observedGeneration": 1,
}

MERGED: dict[str, tuple[Condition, list[Any] | None, int | None, dict[str, Any]]] = {
    "first": (READY, None, 1, {**WRITTEN, "lastTransitionTime": LATE}),
    "unchanged": (READY, [WRITTEN], 1, WRITTEN),
    "new generation": (READY, [WRITTEN], 2, {**WRITTEN, "observedGeneration": 2}),
    "no generation": (
        READY,
        [WRITTEN],
        None,
        {key: value for key, value in WRITTEN.items() if key != "observedGeneration"},
    ),
    "other message": (
        Condition("Ready", "True", "Available", "still"),
        [WRITTEN],
        1,
        {**WRITTEN, "message": "still"},
    ),
    "other reason": (
        Condition("Ready", "True", "Scaled", "all is well"),
        [WRITTEN],
        1,
        {**WRITTEN, "reason": "Scaled"},
    ),
    "other status": (
        Condition("Ready", "False", "Unavailable"),
        [WRITTEN],
        1,
        {
            "type": "Ready",
            "status": "False",
            "reason": "Unavailable",
            "lastTransitionTime": LATE,
            "observedGeneration": 1,
        },
    ),
    "held": (Condition("Ready", "True", "Available", "all is well", held=True), [WRITTEN], 2, WRITTEN),
    "held without a past": (
        Condition("Ready", "True", "Available", "all is well", held=True),
        [],
        1,
        {**WRITTEN, "lastTransitionTime": LATE},
    ),
    "no time before": (
        READY,
        [{key: value for key, value in WRITTEN.items() if key != "lastTransitionTime"}],
        1,
        {**WRITTEN, "lastTransitionTime": LATE},
    ),
    "odd entries before": (READY, ["Ready", None, {"type": 7}, {"status": "True"}, WRITTEN], 1, WRITTEN),
}


@pytest.mark.parametrize("name", MERGED)
def test_merge(name: str) -> None:
    condition, previous, generation, merged = MERGED[name]
    assert merge([condition], previous, generation, LATE) == [merged]


def test_an_unchanged_condition_is_the_same_text() -> None:
    turned = dict(reversed(WRITTEN.items()))
    assert json.dumps(merge([READY], [turned], 1, LATE)) == json.dumps([turned])


def test_what_others_wrote_stays_and_what_no_longer_applies_goes() -> None:
    synced = {"type": "Synced", "status": "True", "reason": "ReconcileSuccess", "lastTransitionTime": EARLY, "more": 1}
    gone = {"type": "ModelCacheResolved", "status": "True", "reason": "ModelCacheResolved"}
    assert merge([READY], [synced, gone, WRITTEN], 1, LATE) == [WRITTEN, synced]


def test_without_a_time_there_is_none() -> None:
    assert "lastTransitionTime" not in Status((READY,), NOTHING).wire()["conditions"][0]


def test_ready_distinguishes_what_never_was_from_what_is_lost() -> None:
    assert ready(False, None).reason == "Creating"
    assert ready(False, {"conditions": [{"type": "Ready", "status": "True"}]}).reason == "Unavailable"
    lost = Status((ready(False, {"conditions": [WRITTEN]}),), NOTHING).wire({"conditions": [WRITTEN]}, 1, LATE)
    assert ready(False, lost).reason == "Unavailable"
    creating = Status((ready(False, None),), NOTHING).wire(None, 1, LATE)
    assert ready(False, creating).reason == "Creating"
    assert ready(True, lost) == Condition("Ready", "True", "Available")
    assert ready(None, lost, "why") == Condition("Ready", "Unknown", "NotObserved", "why")


def test_hold_takes_only_what_was_known() -> None:
    otherwise = unknown("Ready", "not observed")
    assert hold("Ready", {"conditions": [WRITTEN]}, otherwise) == Condition(
        "Ready", "True", "Available", "all is well", held=True
    )
    for past in (None, {}, {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NotObserved"}]}):
        assert hold("Ready", past, otherwise) is otherwise


def test_texts_of_others_have_no_secrets_and_no_commands() -> None:
    assert cut("pull failed: Authorization: Bearer s3cr3t-0123\x1b[2J") == "pull failed: Authorization: ********"
    assert cut("it is\x1b[2J so\u202e") == "it is\\x1b[2J so\\u202e"


def test_texts_are_cut() -> None:
    assert listed(["c", "a", "b", "a"]) == "a, b, c"
    assert listed("edcba") == "a, b, c and 2 more"
    assert cut("a\n  b") == "a b"
    assert len(cut("x" * 1000)) == 400
    long = merge([Condition("Ready", "True", "Available", "x" * 99_999)], None, 1, LATE)
    assert len(long[0]["message"]) <= 32_768


NEW = st.lists(
    st.builds(
        Condition,
        st.sampled_from(sorted(OWNED)),
        st.sampled_from(["True", "False", "Unknown"]),
        st.sampled_from(["A", "B"]),
        st.sampled_from(["", "m"]),
        st.booleans(),
    ),
    max_size=4,
    unique_by=lambda condition: condition.type,
)
PAST = st.lists(
    st.fixed_dictionaries(
        {"type": st.sampled_from([*sorted(OWNED), "Synced", "Foreign"]), "status": st.sampled_from(["True", "False"])},
        optional={
            "reason": st.sampled_from(["A", "B"]),
            "message": st.text(max_size=3),
            "lastTransitionTime": st.just(EARLY),
            "observedGeneration": st.integers(0, 3),
        },
    ),
    max_size=5,
    unique_by=lambda entry: entry["type"],
)


@given(NEW, PAST, st.none() | st.integers(0, 3))
def test_merge_is_idempotent_and_knows_no_order(new: list[Condition], past: list[Any], generation: int | None) -> None:
    once = merge(new, past, generation, LATE)
    assert merge(new, once, generation, "2026-03-03T00:00:00Z") == once
    assert merge(new[::-1], past[::-1], generation, LATE) == once
    assert [entry["type"] for entry in once] == sorted({entry["type"] for entry in once})
    before = {entry["type"]: entry for entry in past}
    for entry in once:
        was = before.get(entry["type"])
        if was and was["status"] == entry["status"] and "lastTransitionTime" in was:
            assert entry["lastTransitionTime"] == was["lastTransitionTime"]
    assert {kind for kind in before if kind not in OWNED} <= {entry["type"] for entry in once}
