# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Arguments and results of modules that return a document to users or to programs."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .._jmespath import QueryError, compiled
from ..core.manifest_text import to_yaml
from ..core.text import short_value
from .libraries import need

if TYPE_CHECKING:
    from ansible.module_utils.basic import AnsibleModule

OUTPUT: dict[str, Any] = {
    "output": {"type": "str", "choices": ["table", "json", "yaml"], "default": "table"},
    "query": {"type": "str"},
}
"""The counterpart of the doc fragment `output`."""


def check_query(module: AnsibleModule) -> None:
    """Fail for a query that is not a JMESPath expression, before any other work."""
    query = module.params["query"]
    if query:
        need(module, late={"jmespath": lambda: importlib.import_module("jmespath")})
        try:
            compiled(query)
        except QueryError as error:
            module.fail_json(msg=f"query is no JMESPath expression ({short_value(query)}): {error}")


def shown(module: AnsibleModule, table: Sequence[str], document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the output that the arguments request: `shown` (lines of text) or `document` (a value), with JSON both.

    A query selects from the document, so with a table its result is a value. A query that selects nothing, for
    example because of a misspelled field, is a warning."""
    query, output = module.params["query"], module.params["output"]
    if output == "table" and not query:
        return {"shown": list(table)}
    try:
        value = compiled(query)(document) if query else document
    except QueryError as error:
        module.fail_json(msg=f"query fails on this document ({short_value(query)}): {error}")
    if value is None:
        module.warn(f"query selects nothing ({short_value(query)}): the document has {', '.join(sorted(document))}")
        return {"shown": ["null"]}
    if output == "yaml":
        return {"shown": to_yaml(value).splitlines()}
    text = {"shown": json.dumps(value, indent=2, ensure_ascii=False).splitlines()} if output == "json" else {}
    return {**text, "document": value}
