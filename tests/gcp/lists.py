# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Lists of Compute Engine, in pages and filtered, and its refusals of a name and of a value."""

from __future__ import annotations

import re

from ansible_collections.modelplane.fleet.tests.cloud.refusals import Refusal

from .operations import compute_link
from .wire import Call, Json


def page(call: Call, kind: str, items: list[Json]) -> Json:
    """A list. With `maxResults` it comes in pages."""
    found = filtered(call, items)
    start, size = int(call.parameters.get("pageToken") or 0), int(call.parameters.get("maxResults") or 500)
    answer: Json = {"kind": kind, "id": call.path, "selfLink": compute_link(call.path)}
    # A list without entries has no items at all.
    if found[start : start + size]:
        answer["items"] = found[start : start + size]
    if found[start + size :]:
        answer["nextPageToken"] = str(start + size)
    return answer


_FILTER = re.compile(r"""\(?\s*([\w.-]+)\s*(!=|=|eq|ne|:)\s*("[^"]*"|'[^']*'|[^\s()]+)\s*\)?""")


def filtered(call: Call, items: list[Json]) -> list[Json]:
    """With `filter`: comparisons of fields, joined by nothing or AND. `eq` and `ne` take regular expressions."""
    text = call.parameters.get("filter", "")
    if not text:
        return items
    terms = [_FILTER.fullmatch(part.strip()) for part in re.split(r"\s+AND\s+|(?<=\))\s*(?=\()", text)]
    if not all(terms):
        raise invalid("filter", text, "Invalid list filter expression")
    return [item for item in items if all(_meets(item, *term.groups()) for term in terms if term)]


def _meets(item: Json, field: str, operator: str, expected: str) -> bool:
    inside, _, key = field.partition(".")
    held = (item.get(inside) or {}).get(key, "") if key else item.get(field, "")
    expected, have = expected.strip("\"'"), str(held)
    if operator in ("eq", "ne"):
        return bool(re.fullmatch(expected, have)) == (operator == "eq")
    if operator == ":":
        return expected.strip("*") in have
    if "*" in expected:
        return bool(re.fullmatch(re.escape(expected).replace(r"\*", ".*"), have)) == (operator == "=")
    return (have == expected) == (operator == "=")


def warning(place: str) -> Json:
    return {
        "warning": {
            "code": "NO_RESULTS_ON_PAGE",
            "message": f"There are no results for scope '{place}' on this page.",
            "data": [{"key": "scope", "value": place}],
        }
    }


def absent(path: str) -> Refusal:
    return Refusal("notFound", f"The resource '{path}' was not found", 404)


def invalid(field: str, value: str, why: str) -> Refusal:
    return Refusal("invalid", f"Invalid value for field '{field}': '{value}'. {why}", 400)
