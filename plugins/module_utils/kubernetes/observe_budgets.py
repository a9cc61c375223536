# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Use of budgets at the gateway of a cluster from its rate limit service: `budgets` of an observation.

A few requests through the proxy of the API server read all counters. A cluster is not unreachable if its service does
not respond. The use is then unknown, and the observation contains the reason.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from ..core.compose import constants
from ..core.compose.model_gateway.parts import ENVOY_API
from ..core.observation import ObservedBudget, budget_wire
from ..core.status import budget_use
from ..core.status.budget_use import Callers, Count, Question
from ..core.status.route_policies import TRAFFIC, is_ours
from ..core.wire import Object
from .client import Client
from .errors import ApiError
from .observe import ClusterSnapshot, clock, listed, reason

_PATIENCE = 5.0
"""Timeout of the service, in seconds."""
_SECONDS = 20.0
"""Seconds until the last query is sent."""
# An answer about a budget that is spent has the code by which a request would be refused.
_CODES = (200, 429)
_SLOW = f"its rate limit service takes more than {_SECONDS:g} seconds to say it"
_STRANGE = "its rate limit service answers with something else"


def with_budgets(snapshot: ClusterSnapshot, client: Client, callers: Callers) -> ClusterSnapshot:
    """Return the snapshot of a cluster with the budgets of its gateway. Raise ApiError as `observe_budgets` does."""
    budgets = [budget_wire(budget) for budget in observe_budgets(client, callers, snapshot.traffic_policies)]
    entry = {**snapshot.entry, "budgets": budgets} if budgets else snapshot.entry
    return replace(snapshot, entry=entry, requests=sum(client.requests.values()))


def observe_budgets(client: Client, callers: Callers, policies: Sequence[Object] | None = None) -> list[ObservedBudget]:
    """Return the use of the budgets of a cluster's gateway. Raise ApiError if the cluster does not respond.

    These must be the last requests, because the client then uses a shorter timeout. `callers`: the callers to query, by
    CallerPolicy. `policies`: the BackendTrafficPolicies, if they were read before."""
    if not callers:
        return []
    traffic_policies = listed(client, ENVOY_API, TRAFFIC) if policies is None else filter(is_ours, policies)
    inquiry = budget_use.inquiry(traffic_policies, callers)
    answers: dict[Question, Count | None] = {}
    problem = ""
    client.answer_within(_PATIENCE)
    began = time.monotonic()
    for batch in budget_use.batches(inquiry.questions):
        problem = _SLOW if time.monotonic() - began > _SECONDS else _answered(client, batch, answers)
        if problem:
            break
    return budget_use.observed(inquiry, answers, problem, clock())


def _answered(client: Client, batch: Sequence[Question], answers: dict[Question, Count | None]) -> str:
    """Add the responses to a batch of queries. Return the reason for missing responses, or ""."""
    service_address = (constants.RATE_LIMIT_SERVICE, constants.ENVOY_NAMESPACE, constants.RATE_LIMIT_PORT)
    try:
        answer = client.ask_service(*service_address, "json", budget_use.request(batch), codes=_CODES)
    except ApiError as error:
        return f"its rate limit service did not say it: {reason(error)}"
    counts = budget_use.counts(batch, answer)
    if counts is None:
        return _STRANGE
    answers.update(zip(batch, counts, strict=True))
    return ""
