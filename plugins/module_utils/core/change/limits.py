# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Rate limits of policies (BackendTrafficPolicy of Envoy Gateway) during their change."""

from __future__ import annotations

import json
from typing import NamedTuple

from ..compose.constants import BUDGETS_ANNOTATION
from ..compose.model_gateway.budgets import MOST_RULES
from ..wire import Object, entries, fields, text


class _Limit(NamedTuple):
    """Rule of a policy, with its entry in `BUDGETS_ANNOTATION`."""

    rule: Object
    note: Object

    @property
    def counted(self) -> tuple[object, ...]:
        """Return the key of its counter: the counted requests or tokens, without the limit."""
        selectors = entries(self.rule, "clientSelectors")
        headers = [header for selector in selectors for header in entries(selector, "headers")]
        matches = tuple((text(header, "type"), text(header, "name"), text(header, "value")) for header in headers)
        cost = text(self.rule, "cost", "response", "metadata", "key")
        return matches, cost, text(self.rule, "limit", "unit"), self.rule.get("shared") is True


def merge_live_limits(policy: Object, live: Object | None) -> Object | None:
    """Return a policy with its own limits and the removed limits of the live policy. None if it removes no limit, or if
    one object cannot have all limits."""
    policy_limits, live_limits = _limits(policy), _limits(live)
    desired, live_counters = {limit.counted: limit for limit in policy_limits}, {limit.counted for limit in live_limits}
    if live_counters <= desired.keys():
        return None
    # Live limits keep their positions because Envoy Gateway counts requests by the position of a rule.
    merged = [desired.get(limit.counted, limit) for limit in live_limits]
    merged += [limit for limit in policy_limits if limit.counted not in live_counters]
    if len(merged) > MOST_RULES:
        return None
    metadata, note = fields(policy, "metadata"), _note(policy) or _note(live)
    if note:
        annotation = json.dumps(
            {**note, "rules": [limit.note for limit in merged]}, separators=(",", ":"), sort_keys=True
        )
        metadata = {**metadata, "annotations": {**fields(metadata, "annotations"), BUDGETS_ANNOTATION: annotation}}
    limited = {"type": "Global", "global": {"rules": [limit.rule for limit in merged]}}
    return {**policy, "metadata": metadata, "spec": {**fields(policy, "spec"), "rateLimit": limited}}


def _limits(policy: Object | None) -> list[_Limit]:
    """Return the limits of a policy. A missing annotation entry is empty, because other managers can add rules."""
    rules, notes = entries(policy, "spec", "rateLimit", "global", "rules"), entries(_note(policy), "rules")
    return [_Limit(rule, notes[index] if index < len(notes) else {}) for index, rule in enumerate(rules)]


def _note(policy: Object | None) -> Object:
    try:
        return fields(json.loads(text(policy, "metadata", "annotations", BUDGETS_ANNOTATION)))
    except ValueError:
        return {}
