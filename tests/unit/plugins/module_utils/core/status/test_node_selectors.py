# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""NodeSelectors of ResourceSlices."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.node_selectors import selects

NODE = {"metadata": {"name": "n1", "labels": {"rack": "7", "zone": "a"}}}


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


CASES = {
    "In": (expression("zone", "In", "a", "b"), True),
    "In with another value": (expression("zone", "In", "b"), False),
    "In without the label": (expression("disk", "In", "a"), False),
    "NotIn": (expression("zone", "NotIn", "b"), True),
    "NotIn with the value": (expression("zone", "NotIn", "a"), False),
    "NotIn without the label": (expression("disk", "NotIn", "a"), True),
    "Exists": (expression("zone", "Exists"), True),
    "Exists without the label": (expression("disk", "Exists"), False),
    "DoesNotExist": (expression("disk", "DoesNotExist"), True),
    "DoesNotExist with the label": (expression("zone", "DoesNotExist"), False),
    "Gt": (expression("rack", "Gt", "6"), True),
    "Gt with an equal value": (expression("rack", "Gt", "7"), False),
    "Lt": (expression("rack", "Lt", "8"), True),
    "Lt with text": (expression("zone", "Lt", "8"), False),
    "Lt without the label": (expression("disk", "Lt", "8"), False),
    "operator of a later version": (expression("zone", "Like", "a"), False),
}


@pytest.mark.parametrize("name", CASES)
def test_expressions_on_labels(name: str) -> None:
    value, expected = CASES[name]
    assert selects({"nodeSelectorTerms": [{"matchExpressions": [value]}]}, NODE) is expected


def test_all_parts_of_one_term_match() -> None:
    zone, rack = expression("zone", "In", "a"), expression("rack", "In", "8")
    named = expression("metadata.name", "In", "n1")
    assert selects({"nodeSelectorTerms": [{"matchExpressions": [zone], "matchFields": [named]}]}, NODE)
    assert not selects({"nodeSelectorTerms": [{"matchExpressions": [zone, rack]}]}, NODE)
    assert not selects({"nodeSelectorTerms": [{"matchExpressions": [rack], "matchFields": [named]}]}, NODE)
    assert selects({"nodeSelectorTerms": [{"matchExpressions": [rack]}, {"matchExpressions": [zone]}]}, NODE)


def test_empty_selectors_match_no_node() -> None:
    assert not selects({}, NODE)
    assert not selects({"nodeSelectorTerms": [{}]}, NODE)
