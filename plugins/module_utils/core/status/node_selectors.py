# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""NodeSelectors of ResourceSlices (Kubernetes, "Node affinity")."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..wire import Object, entries, fields, text


def selects(selector: Object, node: Object) -> bool:
    """Return True if any term of a NodeSelector matches a node. A term without expressions matches no node."""
    return any(_matches(term, node) for term in entries(selector, "nodeSelectorTerms"))


def _matches(term: Object, node: Object) -> bool:
    on_labels, on_fields = entries(term, "matchExpressions"), entries(term, "matchFields")
    names = {"metadata.name": text(node, "metadata", "name")}
    return bool(on_labels or on_fields) and (
        all(_is_satisfied(expression, fields(node, "metadata", "labels")) for expression in on_labels)
        and all(_is_satisfied(expression, names) for expression in on_fields)
    )


def _is_satisfied(rule: Object, values: Mapping[str, Any]) -> bool:
    """Return True if labels or fields satisfy an expression (`rule`). An unknown operator is never satisfied."""
    operator, value = text(rule, "operator"), values.get(text(rule, "key"))
    rule_operands = rule.get("values")
    options = rule_operands if isinstance(rule_operands, (list, tuple)) else ()
    if operator in ("Gt", "Lt"):
        return len(options) == 1 and _is_ordered(operator, value, options[0])
    return {
        "In": value is not None and value in options,
        "NotIn": value is None or value not in options,
        "Exists": value is not None,
        "DoesNotExist": value is None,
    }.get(operator, False)


def _is_ordered(operator: str, value: Any, bound: Any) -> bool:
    try:
        return int(value) > int(bound) if operator == "Gt" else int(value) < int(bound)
    except (TypeError, ValueError):
        return False
