# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The only place that imports Jinja2, when a page is rendered. Jinja2 is a dependency of ansible-core."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["Environment", "html_environment"]


def html_environment(source_of: Callable[[str], str], filters: Mapping[str, Callable[..., Any]]) -> Environment:
    """Return the environment of HTML templates. Values are escaped, and undefined names are errors.

    source_of: returns the source of a template by its name.
    filters: functions that templates apply to values.
    """
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, loader=FunctionLoader(source_of), trim_blocks=True
    )
    environment.filters.update(filters)
    return environment
