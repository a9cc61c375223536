# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The only place that imports jmespath, if a query is requested."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class QueryError(ValueError):
    """Text that is not a JMESPath expression, or an expression that fails on a value."""


def compiled(expression: str) -> Callable[[Any], Any]:
    """Return the function that applies a JMESPath expression to a value. Both raise QueryError."""
    import jmespath
    from jmespath.exceptions import JMESPathError

    def search(value: Any) -> Any:
        try:
            return parsed.search(value)
        except JMESPathError as error:
            raise QueryError(" ".join(str(error).split())) from error

    try:
        parsed = jmespath.compile(expression)
    except JMESPathError as error:
        raise QueryError(" ".join(str(error).split())) from error
    return search
