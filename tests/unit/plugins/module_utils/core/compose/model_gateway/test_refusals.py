# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Refusals of a gateway in mode Model. tests/gateway/test_model_fleet.py has the answers of Envoy."""

from __future__ import annotations

import re

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.model_gateway.gateway import gateway_objects
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.model_gateway.proxies import host_objects
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.model_gateway.refusals import (
    MISSING_ENDPOINT,
    REFUSALS,
    Refusal,
)
from ansible_collections.modelplane.fleet.tests.model_fleet import (
    gateway,
)
from ansible_collections.modelplane.fleet.tests.written import parsed

ANTHROPIC = {
    "api_error",
    "authentication_error",
    "billing_error",
    "invalid_request_error",
    "not_found_error",
    "overloaded_error",
    "permission_error",
    "rate_limit_error",
    "timeout_error",
}
"""Types of errors that Anthropic has published."""


@pytest.mark.parametrize("name", ["inference-gateway-http", "inference-gateway-https", "cluster-gateway-https"])
def test_only_answers_of_envoy_itself_are_written(name: str) -> None:
    [spec] = [each["spec"] for each in host_objects() if each["metadata"]["name"] == name]
    patch = spec["jsonPatches"][0]
    assert patch["type"] == "type.googleapis.com/envoy.config.listener.v3.Listener"
    operation = patch["operation"]
    assert (operation["op"], operation["path"]) == ("add", "/local_reply_config")
    # There is no default format, so other responses are unchanged.
    missing = [MISSING_ENDPOINT] if name == "cluster-gateway-https" else []
    assert operation["value"] == {"mappers": [refusal.mapper for refusal in (*missing, *REFUSALS)]}


def test_a_gateway_ejects_no_detour_that_the_cluster_gateway_does_not_have_yet() -> None:
    """The gateway ejects endpoints after five 5xx responses, and retries the status codes in its policy."""
    objects = gateway_objects(parsed(gateway(), api.InferenceGateway))
    fields = next(each["spec"] for each in objects if each["kind"] == "BackendTrafficPolicy")
    assert MISSING_ENDPOINT.mapper["status_code"] in fields["retry"]["retryOn"]["httpStatusCodes"]
    assert MISSING_ENDPOINT.mapper["status_code"] < 500
    assert all("status_code" not in refusal.mapper for refusal in REFUSALS)


@pytest.mark.parametrize("refusal", [MISSING_ENDPOINT, *REFUSALS], ids=lambda each: each.when)
def test_both_kinds_of_clients_read_the_body(refusal: Refusal) -> None:
    body = refusal.mapper["body_format_override"]["json_format"]
    assert (body.keys(), body["type"]) == ({"type", "error"}, "error")
    error = body["error"]
    assert error.keys() == {"type", "code", "message", "param"}
    assert error["type"] in ANTHROPIC
    # It says what to do. Envoy takes other percent signs for operators that it does not know, and refuses the listener.
    assert error["message"].count(". ") == 1
    assert "%" not in re.sub(r"%RESP\(x-ratelimit-reset\)%", "", error["message"])


def test_a_spent_budget_says_when_it_returns() -> None:
    long, short = (
        {each["header"]["key"]: each["header"]["value"] for each in refusal.mapper["headers_to_add"]}
        for refusal in REFUSALS[:2]
    )
    assert short == {"retry-after": "%RESP(x-ratelimit-reset)%"}
    assert long == {**short, "x-should-retry": "false"}
    assert all("headers_to_add" not in refusal.mapper for refusal in REFUSALS[2:])
