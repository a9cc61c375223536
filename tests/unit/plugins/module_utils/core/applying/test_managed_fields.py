# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Tests of which part of a live object is ours."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.applying.managed_fields import (
    appliers,
    digest,
    labels_of_others,
    managed,
    owned,
    project,
    union,
    writers,
)
from hypothesis import given
from hypothesis import strategies as st

PORTS = [
    {"name": "web", "port": 80, "protocol": "TCP", "targetPort": 8000},
    {"name": "dns", "port": 53, "protocol": "UDP", "targetPort": 53},
]

CASES: dict[str, tuple[Any, dict[str, Any], Any]] = {
    "a field": ({"a": 1, "b": 2}, {"f:a": {}}, {"a": 1}),
    "a field of a field": ({"a": {"b": 1, "c": 2}}, {"f:a": {"f:b": {}}}, {"a": {"b": 1}}),
    "a whole map": ({"a": {"b": 1, "c": 2}}, {"f:a": {}}, {"a": {"b": 1, "c": 2}}),
    "a map without what is in it": ({"a": {"b": 1}}, {"f:a": {".": {}}}, {"a": {}}),
    "a list without what is in it": ({"a": [1]}, {"f:a": {".": {}}}, {"a": []}),
    "a field that is gone": ({"b": 2}, {"f:a": {}, "f:b": {}}, {"b": 2}),
    "a name with a colon and dots": ({"a.b:c/d": 1}, {"f:a.b:c/d": {}}, {"a.b:c/d": 1}),
    "items by their keys, in the order they have": (
        {"ports": PORTS},
        {
            "f:ports": {
                ".": {},
                'k:{"port":53,"protocol":"UDP"}': {".": {}, "f:port": {}},
                'k:{"port":80,"protocol":"TCP"}': {".": {}, "f:targetPort": {}},
            }
        },
        {"ports": [{"targetPort": 8000}, {"port": 53}]},
    ),
    "an item that leaves out a key with a default": (
        {"ports": [{"port": 80}]},
        {"f:ports": {'k:{"port":80,"protocol":"TCP"}': {"f:port": {}}}},
        {"ports": [{"port": 80}]},
    ),
    "an item of others": ({"ports": PORTS[1:]}, {"f:ports": {'k:{"port":80,"protocol":"TCP"}': {}}}, {"ports": []}),
    "values of a set": (
        {"finalizers": ["theirs", "ours"]},
        {"f:finalizers": {".": {}, 'v:"ours"': {}}},
        {"finalizers": ["ours"]},
    ),
    "items by place": ({"a": [{"x": 1, "y": 2}, 5]}, {"f:a": {"i:0": {"f:x": {}}, "i:1": {}}}, {"a": [{"x": 1}, 5]}),
    "a list that became text": ({"a": "text"}, {"f:a": {"i:0": {}}}, {"a": "text"}),
    "text among items with keys": ({"a": ["text"]}, {"f:a": {'k:{"x":1}': {}}}, {"a": []}),
}


@pytest.mark.parametrize("name", CASES)
def test_project(name: str) -> None:
    value, fields, expected = CASES[name]
    assert project(value, fields) == expected


def entry(manager: str, fields: dict[str, Any], operation: str = "Apply", subresource: str = "") -> dict[str, Any]:
    found = {"manager": manager, "operation": operation, "fieldsType": "FieldsV1", "fieldsV1": fields}
    return {**found, "subresource": subresource} if subresource else found


LIVE = {
    "metadata": {
        "name": "x",
        "managedFields": [
            entry("us", {"f:spec": {"f:a": {}}}),
            entry("us", {"f:status": {"f:ready": {}}}, subresource="status"),
            entry("us", {"f:spec": {"f:c": {}}}, operation="Update"),
            entry("argo", {"f:spec": {"f:b": {}}}),
            entry("kubectl-edit", {"f:spec": {"f:d": {}}}, operation="Update"),
        ],
    },
    "spec": {"a": 1, "b": 2, "c": 3, "d": 4},
    "status": {"ready": True, "other": 1},
}


def test_only_what_a_manager_applied_is_its_own() -> None:
    assert owned(LIVE, "us") == {"spec": {"a": 1}}
    assert owned(LIVE, "us", "status") == {"status": {"ready": True}}
    assert owned(LIVE, "no-manager") is None
    assert managed(None, "us") is None
    assert appliers(LIVE) == {"us", "argo"}
    assert writers(LIVE) == ["argo", "kubectl-edit", "us"]


def test_labels_of_others() -> None:
    ours, theirs = entry("us", {"f:metadata": {"f:labels": {"f:a": {}, "f:b": {}}}}), {"f:labels": {".": {}, "f:b": {}}}
    written = entry("kubectl-label", {"f:metadata": theirs}, operation="Update")
    live = {"metadata": {"labels": {"a": "1", "b": "2"}, "managedFields": [ours, written]}}
    assert labels_of_others(live, "us") == {"b"}
    assert labels_of_others(live, "no-manager") == {"a", "b"}
    assert labels_of_others(LIVE, "us") == labels_of_others(None, "us") == frozenset()


DRIFTS = {
    "a field of ours": ("spec", "a", 9, False),
    "a field of others": ("spec", "b", 9, True),
    "a field of ours is gone": ("spec", "a", None, False),
}


@pytest.mark.parametrize("name", DRIFTS)
def test_drift_of_what_is_ours_alone_changes_the_digest(name: str) -> None:
    part, field, value, same = DRIFTS[name]
    live: dict[str, Any] = copy.deepcopy(LIVE)
    if value is None:
        del live[part][field]
    else:
        live[part][field] = value
    assert (digest(owned(live, "us")) == digest(owned(LIVE, "us"))) is same


def test_union_is_whole_where_one_is() -> None:
    assert union({"f:a": {"f:b": {}}}, {"f:a": {"f:c": {}}, "f:d": {}}) == {"f:a": {"f:b": {}, "f:c": {}}, "f:d": {}}
    assert union({"f:a": {}}, {"f:a": {"f:c": {}}}) == {"f:a": {}}


SCALARS = st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3)
TREES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abc.:/", min_size=1, max_size=3), inner, max_size=3)
    ),
    max_leaves=12,
)


def fields_of(value: Any) -> dict[str, Any]:
    """The set of fields of one who applied all of a value."""
    if isinstance(value, dict) and value:
        return {f"f:{key}": fields_of(held) for key, held in value.items()}
    if isinstance(value, list) and value:
        return {f"i:{place}": fields_of(held) for place, held in enumerate(value)}
    return {}


@given(TREES)
def test_who_applied_all_owns_all(value: Any) -> None:
    assert project(value, fields_of(value)) == value


@given(TREES, TREES)
def test_nothing_is_owned_that_is_not_there(value: Any, other: Any) -> None:
    found = project(value, fields_of(other))
    # A projection of a projection is the same: nothing was made up, nothing gets lost.
    assert project(found, fields_of(other)) == found


@given(TREES)
def test_equal_values_have_equal_digests(value: Any) -> None:
    assert digest(value) == digest(json.loads(json.dumps(value)))
