# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The text of the record."""

from __future__ import annotations

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.applying.inventory import (
    PART_BYTES,
    Entry,
    InventoryError,
    Key,
    of_parts,
    readable_entries,
    to_parts,
)
from hypothesis import given
from hypothesis import strategies as st


def record(count: int, digest: str = "ab") -> dict[Key, Entry]:
    return {Key("apps", "Deployment", "ns", f"name-{n}"): Entry("apps/v1", digest, "cd") for n in range(count)}


TEXT = st.text(min_size=1, max_size=20)
RECORDS = st.dictionaries(
    st.builds(Key, st.sampled_from(["", "apps"]), TEXT, st.text(max_size=10), TEXT), st.just(""), max_size=30
).map(lambda keys: {key: Entry(f"{key.group}/v1" if key.group else "v1", "aa", "") for key in keys})


@given(RECORDS, st.integers(400, 2000))
def test_what_is_written_is_read(given_record: dict[Key, Entry], limit: int) -> None:
    parts = to_parts(given_record, limit)
    assert of_parts(reversed(parts)) == (given_record, {})
    assert all(len(part.encode()) <= limit for part in parts)
    assert to_parts(dict(reversed(given_record.items())), limit) == parts


def test_a_thousand_objects_fit_one_config_map_and_twenty_thousand_do_not() -> None:
    assert len(to_parts(record(1_000))) == 1
    parts = to_parts(record(20_000, "0123456789" * 2))
    assert len(parts) > 1
    assert max(len(part.encode()) for part in parts) <= PART_BYTES
    assert of_parts(parts) == (record(20_000, "0123456789" * 2), {})


PARTS = to_parts(record(40), 1000)
OTHER = to_parts(record(40, "ff"), 1000)
BROKEN = {
    "a part is missing": (PARTS[1:], "parts"),
    "parts of two versions": ((OTHER[0], *PARTS[1:]), "different versions"),
    "a line was changed": ((PARTS[0].replace("name-0", "name-X"), *PARTS[1:]), "changed by another manager"),
    "another format": (('["someone/else",1,1,""]\n',), "this version"),
    "no text at all": (("",), "not a JSON array"),
    "no JSON": (("hello\n",), "not a JSON array"),
    "a line of another length": ((PARTS[0].splitlines()[0].replace(PARTS[0], ""),), "parts"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_record_that_is_not_whole_is_refused(name: str) -> None:
    parts, message = BROKEN[name]
    with pytest.raises(InventoryError, match=message):
        of_parts(parts)


def test_no_parts_are_an_empty_record() -> None:
    assert to_parts({}) == ()
    assert of_parts(()) == ({}, {})


def test_what_can_be_read_of_a_broken_record() -> None:
    assert set(readable_entries(PARTS[0] + "rubbish\n")) == set(readable_entries(PARTS[0])) < set(record(40))


def test_a_key_does_not_distinguish_versions() -> None:
    old = {"apiVersion": "apps/v1beta1", "kind": "Deployment", "metadata": {"name": "x", "namespace": "y"}}
    assert Key.of(old) == Key.of({**old, "apiVersion": "apps/v1"}) == Key("apps", "Deployment", "y", "x")
    assert str(Key.of(old)) == "Deployment y/x"


def test_notes_are_read_as_they_were_written_and_are_no_objects() -> None:
    notes = {
        "replicas": {"digest": "ab", "replicas": [{"name": f"replica-{n}-{n * 7919}"} for n in range(30_000)]},
        "known": {},
    }
    parts = to_parts(record(40), notes=notes)
    assert of_parts(reversed(parts)) == (record(40), notes)
    assert {key for part in parts for key in readable_entries(part)} == set(record(40))
    assert to_parts(record(40), notes={}) == to_parts(record(40))


def test_a_note_that_was_changed_is_refused() -> None:
    (part,) = to_parts(record(2), notes={"known": {"west": ["ab"]}})
    with pytest.raises(InventoryError, match="another manager"):
        of_parts([part.replace('"known"', '"other"')])
