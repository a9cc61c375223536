# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Keys of callers in a Secret: values in, values out."""

from __future__ import annotations

import base64
import datetime
import json
from collections.abc import Mapping
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core import caller_keys
from ansible_collections.modelplane.fleet.plugins.module_utils.core.caller_keys import (
    Change,
    KeysError,
    Request,
    Ring,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output.callers import table
from ansible_collections.modelplane.fleet.plugins.module_utils.core.secrets import MASK, masked

NOW = datetime.datetime(2026, 11, 30, 12, 0, 0, tzinfo=datetime.UTC)
TODAY = "2026-11-30T12:00:00Z"
OLD = "2026-09-01T00:00:00Z"
FRESH = {"acme": "fresh-acme", "initech": "fresh-initech"}


def packed(**keys: str) -> dict[str, str]:
    return {name.replace("_", "."): base64.b64encode(key.encode()).decode() for name, key in keys.items()}


def ring(times: Mapping[str, str] | None = None, **keys: str) -> Ring:
    return Ring(packed(**keys), times or {})


def after(before: Ring, state: Any, *callers: str, **more: Any) -> Change:
    return caller_keys.changed(before, Request(state, callers, NOW, **more), FRESH)


ONE = ring({"acme": OLD}, acme="old")
TWO = ring({"acme": OLD, "acme.next": "2026-11-30T11:59:00Z"}, acme="old", acme_next="new")


@pytest.mark.parametrize(
    ("before", "state", "more", "keys", "times"),
    [
        (Ring(), "present", {}, packed(acme="fresh-acme"), {"acme": TODAY}),
        (ONE, "present", {}, ONE.values, ONE.times),
        (TWO, "present", {}, TWO.values, TWO.times),
        (ONE, "rotated", {}, packed(acme="old", acme_next="fresh-acme"), {"acme": OLD, "acme.next": TODAY}),
        (TWO, "rotated", {}, TWO.values, TWO.times),
        (
            TWO,
            "rotated",
            {"force": True},
            packed(acme="old", acme_next="fresh-acme"),
            {"acme": OLD, "acme.next": TODAY},
        ),
        (TWO, "retired", {}, packed(acme="new"), {"acme": "2026-11-30T11:59:00Z"}),
        (TWO, "retired", {"grace": 60}, packed(acme="new"), {"acme": "2026-11-30T11:59:00Z"}),
        (TWO, "retired", {"grace": 61}, TWO.values, TWO.times),
        (ONE, "retired", {}, ONE.values, ONE.times),
        (Ring(), "retired", {}, {}, {}),
        (TWO, "revoked", {}, {}, {}),
        (ONE, "revoked", {}, {}, {}),
        (Ring(), "revoked", {}, {}, {}),
    ],
)
def test_what_becomes_of_the_keys_of_a_caller(
    before: Ring, state: str, more: dict[str, Any], keys: dict[str, str], times: dict[str, str]
) -> None:
    found = after(before, state, "acme", **more).ring
    assert (dict(found.values), dict(found.times)) == (dict(keys), dict(times))


@pytest.mark.parametrize("state", ["present", "rotated", "retired", "revoked"])
def test_other_callers_keep_their_keys(state: str) -> None:
    both = ring(TWO.times, acme="old", acme_next="new", initech="theirs", initech_next="next")
    found = after(both, state, "acme").ring
    assert {name: found.values[name] for name in ("initech", "initech.next")} == packed(
        initech="theirs", initech_next="next"
    )


def test_a_change_says_whom_it_concerns() -> None:
    both = ring(TWO.times, acme="old", acme_next="new", initech="theirs")
    assert after(both, "rotated", "acme", "initech").made == ("initech",)
    assert after(both, "retired", "acme", "initech").removed == ("acme",)
    assert after(both, "retired", "acme", grace=3600).waiting == ("acme",)
    assert after(both, "revoked", "acme", "hooli").removed == ("acme",)


def test_a_step_that_is_repeated_changes_nothing() -> None:
    for state in ("present", "rotated", "retired", "revoked"):
        once = after(TWO, state, "acme")
        again = after(once.ring, state, "acme")
        assert again.ring == once.ring
        assert (again.made, again.removed) == ((), ())


def test_all_callers_without_a_key_to_rotate_are_named() -> None:
    with pytest.raises(KeysError, match=r"hooli has no key to rotate.*\n.*initech has no key"):
        after(ONE, "rotated", "initech", "acme", "hooli")


def test_without_callers_the_old_keys_of_all_are_retired() -> None:
    both = ring(TWO.times, acme="old", acme_next="new", initech="theirs", initech_next="next", hooli="one")
    found = after(both, "retired")
    assert (found.removed, dict(found.ring.values)) == (
        ("acme", "initech"),
        packed(acme="new", initech="next", hooli="one"),
    )


def test_a_next_key_of_unknown_age_is_retired_without_a_grace_only() -> None:
    unknown = ring(acme="old", acme_next="new")
    assert after(unknown, "retired", "acme", grace=1).waiting == ("acme",)
    assert dict(after(unknown, "retired", "acme").ring.values) == packed(acme="new")


@pytest.mark.parametrize("caller", ["", "Acme", "acme.next", "a_b", "-a", "a-", "a" * 64, "a b", "*", "a\n"])
def test_names_of_callers(caller: str) -> None:
    (problem,) = caller_keys.problems("keys", ["acme", caller], {})
    assert problem.startswith("callers[1] is ")


@pytest.mark.parametrize(
    "key", ["mpk_VWwzaGnY2", "Bearer mpk_VWwzaGnY2", "sk-proj-0123456789abVWwzaGnY2", "sk-0123456789abcdef0123wwzagny2"]
)
def test_a_key_in_place_of_a_name_is_not_repeated(key: str) -> None:
    for secret, caller, which in (("keys", key, "callers[1]"), (key, "sk-learn", "secret")):
        (problem,) = caller_keys.problems(secret, ["acme", caller], {})
        assert problem.startswith(f"{which} is a key")
        assert key[-8:] not in problem


@pytest.mark.parametrize(
    "labels",
    [
        {"modelplane.ai/keys": "others"},
        {"app.kubernetes.io/managed-by": "me"},
        {"a b": "c"},
        {"a": "b c"},
        {"a": "b" * 64},
        {"a" * 254 + "/b": "c"},
    ],
)
def test_labels(labels: dict[str, str]) -> None:
    assert len(list(caller_keys.problems("keys", [], labels))) == 1
    assert not list(caller_keys.problems("keys", ["a", "0-9"], {"example.org/audience": "customers", "b": ""}))


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, 'Has no value. Write a text in quotes ("" for an empty one).'),
        (True, "Must be text, is true or false (got true). Put it in quotes."),
        (1.1, 'Must be text, is a decimal number (got 1.1). Quote it: "1.1" (or "1.10", if you wrote that).'),
        (3, 'Must be text, is a number (got 3). Quote it: "3".'),
        (["a"], 'Must be text, is a list. Write "a", without a list.'),
    ],
)
def test_a_value_of_a_label_that_is_no_text_is_refused_as_in_manifests(value: object, said: str) -> None:
    assert list(caller_keys.problems("keys", [], {"team": value, "b": "c"})) == [f'labels["team"]: {said}']


@pytest.mark.parametrize("state", ["retired", "revoked"])
def test_callers_that_have_no_key_to_retire_or_to_revoke(state: str) -> None:
    assert after(ONE, state, "initech", "acme").without == ("initech",)
    assert after(TWO, state, "acme").without == ()
    assert after(ONE, "present", "initech").without == ()


def test_a_misspelt_caller_to_rotate_is_named_with_the_one_that_it_resembles() -> None:
    with pytest.raises(KeysError, match=r"^acm has no key to rotate\. Did you mean acme\?\n"):
        after(ONE, "rotated", "acm")


def test_a_secret_keeps_what_others_gave_it() -> None:
    live = {
        "metadata": {
            "name": "keys",
            "resourceVersion": "7",
            "uid": "u",
            "managedFields": [{}],
            "labels": {"mine": "1", "group": "a"},
            "annotations": {"note": "x"},
        },
        "type": "Opaque",
        "data": dict(ONE.values),
    }
    found = caller_keys.secret_object("keys", TWO, {"group": "b"}, live)
    assert found["metadata"]["resourceVersion"] == "7"
    assert "managedFields" not in found["metadata"]
    assert found["metadata"]["labels"] == {
        "mine": "1",
        "group": "b",
        "app.kubernetes.io/managed-by": "modelplane.fleet",
        "modelplane.ai/keys": "callers",
    }
    assert found["metadata"]["annotations"]["note"] == "x"
    assert caller_keys.ring_of(found) == TWO
    assert caller_keys.is_ours(found)
    assert not caller_keys.is_ours(live)


@pytest.mark.parametrize("times", ["", "[]", "{", '{"hooli": "2026"}', '{"acme": 5}', "null"])
def test_times_that_others_wrote_are_no_error(times: str) -> None:
    live = {"metadata": {"name": "keys", "annotations": {caller_keys.TIMES_ANNOTATION: times}}, "data": ONE.values}
    (found,) = caller_keys.listed([live], NOW)
    assert found["entries"][0]["age"] is None


def test_nothing_that_is_shown_has_a_key() -> None:
    secret = caller_keys.secret_object("keys", TWO, {"example.org/audience": "customers"}, None)
    listed = caller_keys.listed([secret], NOW)
    shown = json.dumps([caller_keys.shown(secret), listed, table(listed, NOW.isoformat())]) + repr(TWO)
    assert not [key for key in TWO.values.values() if key in shown]
    assert "acme.next" in shown


def test_callers_are_listed_with_the_ages_of_their_keys() -> None:
    secret = caller_keys.secret_object("customers", TWO, {"example.org/audience": "customers"}, None)
    other = caller_keys.secret_object("caller-keys", ring(initech="theirs"), {}, None)
    listed = caller_keys.listed([secret, other], NOW)
    assert [(each["name"], each["secret"]) for each in listed] == [("acme", "customers"), ("initech", "caller-keys")]
    assert [entry["age"] for entry in listed[0]["entries"]] == [90 * 86400 + 43200, 60]
    assert table(listed, NOW.isoformat()) == [
        "CALLER   SECRET       KEYS  AGE       LABELS",
        "acme     customers    2     90d, 60s  example.org/audience=customers",
        "initech  caller-keys  1     -         -",
    ]


def test_an_entry_is_that_of_its_caller() -> None:
    assert [caller_keys.caller_of(entry) for entry in caller_keys.entries_of("acme")] == ["acme", "acme"]


def test_messages_mask_what_has_the_shape_of_a_key() -> None:
    assert masked("refused mpk_Ab3-_x9Ab3-_x9 here") == f"refused {MASK} here"
