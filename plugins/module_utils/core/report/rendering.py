# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Rendering of the templates of the HTML report."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from ..._jinja2 import html_environment
from ..scheduling.memory import gib
from ..text import utc
from . import budgets, drawing, groups, pools, words

if TYPE_CHECKING:
    from ..._jinja2 import Environment

# Characters that HTML forbids, surrogates (not encodable in UTF-8), and directional controls, because they can display
# a name in another order.
_FORBIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)
# A line end of a template between tags, with the indentation. As in JSX, it is not part of the page.
_LINE_END = re.compile(r"(?<=[>}])[ ]*\n\s*|\n\s*(?=[<{])")
_FILTERS: Mapping[str, Callable[..., Any]] = {
    "budget_rows": budgets.budget_rows,
    "by_directory": groups.by_directory,
    "by_phase": groups.by_phase,
    "by_state": groups.by_state,
    "claimed_devices": pools.claimed_devices,
    "count": words.count,
    "drawing": drawing.pool_drawing,
    "empty_grids": drawing.empty_grids,
    "gauge_width": words.gauge_width,
    "gib": gib,
    "hash_source": words.hash_source,
    "health_kind": words.health_kind,
    "level_counts": budgets.level_counts,
    "number": words.number,
    "object_counts": groups.object_counts,
    "ordered_services": groups.ordered_services,
    "percent": words.percent,
    "prose_parts": words.prose_parts,
    "short_name": words.short_name,
    "tenants": pools.tenants,
    "unknown_uses": budgets.unknown_uses,
    "unrouted_clusters": groups.unrouted_clusters,
    "utc": utc,
}


_PARTS = ("badge", "gauge", "health", "link", "load", "moment", "pool_load", "prose")
_CACHED_PARTS = 1 << 15


# Files of a packed module. A packed module contains only Python files, so `use_files` adds the other files.
_SENT_FILES: dict[str, str] = {}


def use_files(texts: Mapping[str, str]) -> None:
    """Use these texts instead of the files next to the code, by name."""
    _SENT_FILES.update(texts)


@cache
def file_texts() -> Mapping[str, str]:
    """Return the texts of the templates, the style, and the script by name. Raise OSError if there are no files."""
    directory = files(__package__).joinpath("files")
    return _SENT_FILES or {file.name: file.read_text(encoding="utf-8") for file in directory.iterdir()}


def render(template: str, **values: Any) -> str:
    """Return the text of a template with these values, without characters that HTML forbids."""
    return _FORBIDDEN.sub("\ufffd", _environment().get_template(template).render(values))


@cache
def _environment() -> Environment:
    environment = html_environment(lambda name: _LINE_END.sub("", file_texts()[name]), _FILTERS)
    parts: Any = environment.get_template("parts.html.j2").module
    for name in _PARTS:
        # With types, because a name can be equal to markup, and only the name is escaped.
        environment.filters[name] = lru_cache(maxsize=_CACHED_PARTS, typed=True)(getattr(parts, name))
    return environment
