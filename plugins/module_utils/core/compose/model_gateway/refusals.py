# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Error responses of a Model gateway in the format of OpenAI and of Anthropic.

Envoy uses them for responses that it creates itself, never for responses of endpoints. The `local_reply_config` of a
listener keeps the headers of a response. The custom responses of a BackendTrafficPolicy lose `x-ratelimit-reset`. They
also belong to the route that a request matches before its model is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .. import constants

WAIT = 60
"""Seconds that clients may wait for a budget by themselves. They would for hours: Anthropic's honor any Retry-After."""

_RESET = "x-ratelimit-reset"
_SPENT = 'response.code_details == "request_rate_limited"'
_EXPRESSION = "type.googleapis.com/envoy.extensions.access_loggers.filters.cel.v3.ExpressionFilter"


@dataclass(frozen=True)
class Refusal:
    """Error response of the gateway. `%` starts an Envoy operator."""

    when: str
    """Condition (CEL) for the response."""
    type: str
    """Error type of Anthropic."""
    code: str
    """Error code of OpenAI, if any."""
    message: str
    headers: Mapping[str, str] = field(default_factory=dict)
    status: int = 0
    """Status of the response, 0 to keep Envoy's status."""

    @property
    def body(self) -> dict[str, Any]:
        """Body of the response."""
        error = {"type": self.type, "code": self.code, "message": self.message, "param": None}
        return {"type": "error", "error": error}

    @property
    def mapper(self) -> dict[str, Any]:
        """Entry of the listener's setting that replaces a response of Envoy with this response."""
        added = [
            {"header": {"key": key, "value": value}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}
            for key, value in self.headers.items()
        ]
        expression = {"@type": _EXPRESSION, "expression": self.when}
        return {
            "filter": {"extension_filter": {"name": "when", "typed_config": expression}},
            **({"status_code": self.status} if self.status else {}),
            **({"headers_to_add": added} if added else {}),
            "body_format_override": {"json_format": self.body},
        }


def _spent(when: str, headers: Mapping[str, str]) -> Refusal:
    message = (
        f"The budget for this model is spent. Ask again in %RESP({_RESET})% seconds, or ask the operator of this "
        "gateway for a larger one."
    )
    retry = {"retry-after": f"%RESP({_RESET})%"}
    return Refusal(when, "rate_limit_error", "rate_limit_exceeded", message, {**retry, **headers})


MISSING_ENDPOINT = Refusal(
    f'"{constants.SERVICE_HEADER}" in request.headers'
    ' && response.code_details in ["cluster_not_found", "no_healthy_upstream"]',
    "api_error",
    "model_unavailable",
    "The endpoint of this model is not available. Try again later.",
    status=429,
)
"""Response of the cluster gateway on an overflow route if the endpoint or its addresses are missing.

The gateway retries requests with 429 at the next endpoint and ejects no endpoint. After five 5xx responses it would
eject the overflow route for 30 seconds, although the cluster gateway might have the endpoint a moment later."""
REFUSALS = (
    _spent(f'{_SPENT} && int(response.headers["{_RESET}"]) > {WAIT}', {"x-should-retry": "false"}),
    _spent(_SPENT, {}),
    Refusal(
        "response.code == 401",
        "authentication_error",
        "invalid_api_key",
        "The API key or token is missing, unknown or expired. Send an accepted key or token in the header "
        "Authorization, as a Bearer token, or in x-api-key.",
    ),
    Refusal(
        "response.code == 403",
        "permission_error",
        "permission_denied",
        "This API key or token may not use this model. Check the name of the model, or ask the operator of this "
        "gateway for access.",
    ),
    Refusal(
        'response.code == 404 && response.code_details in ["direct_response", "route_not_found"]',
        "not_found_error",
        "model_not_found",
        "There is no such model or path. Name a model as <namespace>/<service>; GET /v1/models lists them.",
    ),
    Refusal(
        'response.code_details == "rate_limiter_error"',
        "api_error",
        "budget_unavailable",
        "Budgets cannot be checked now, so the request was refused. Try again later.",
    ),
    Refusal(
        "response.code == 503",
        "api_error",
        "model_unavailable",
        "No endpoint of this model can be reached. Try again later.",
    ),
    Refusal(
        "response.code == 504",
        "timeout_error",
        "timeout",
        "The model did not answer in time. Try again, or ask for a stream or a shorter answer.",
    ),
)
"""Error responses in order: the gateway uses the first match. Other responses are left unchanged."""


def local_replies(*precedence: Refusal) -> dict[str, Any]:
    """Return the listener setting for responses in the format of clients. `precedence`: refusals with precedence."""
    return {"mappers": [refusal.mapper for refusal in (*precedence, *REFUSALS)]}
