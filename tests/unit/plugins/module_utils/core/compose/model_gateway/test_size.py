# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Size of the configuration of a gateway, by its keys and services."""

from __future__ import annotations

import secrets
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.caller_keys import KEY_BYTES, KEY_LENGTH, KEY_PREFIX
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.model_gateway import size
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.model_gateway.size import (
    MESSAGE_BYTES,
    configuration_size,
    copies_of_keys,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.observation import Observed
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output import plan as plan_output
from ansible_collections.modelplane.fleet.tests.model_fleet import (
    SYSTEM,
    Built,
    build,
    fleet,
    gateway,
    read,
    service,
)

TLS = {"tls": {"certificateRefs": [{"name": "models-tls"}]}}


def parsed(**spec: Any) -> api.InferenceGateway:
    (found,) = read([gateway(**spec)])
    assert isinstance(found, api.InferenceGateway)
    return found


def callers(number: int) -> list[str]:
    return [f"caller-{at:05}" for at in range(number)]


@pytest.mark.parametrize(("keys", "measured"), [(205, 698_938), (1_205, 3_624_118)])
def test_the_estimate_is_what_envoy_gateway_sent(keys: int, measured: int) -> None:
    found = configuration_size(parsed(), callers(keys), 22)
    assert abs(found.bytes - measured) < measured / 50


def test_a_key_counts_with_the_name_of_its_caller_in_each_copy() -> None:
    """Numbers of fields and lengths of up to 127 take a byte each, longer lengths two."""
    for name, credential in (("a", 54), ("a" * 12, 65), ("é", 55), ("a" * 76, 129), ("a" * 77, 131), ("a" * 200, 255)):
        one = configuration_size(parsed(), [name], 3).bytes - configuration_size(parsed(), [], 3).bytes
        assert one == credential * copies_of_keys(parsed(), 3), name


def test_each_service_has_two_copies_and_each_listener_one() -> None:
    assert [copies_of_keys(parsed(), number) for number in (0, 1, 22)] == [1, 3, 45]
    assert copies_of_keys(parsed(**TLS), 22) == 47


def test_a_configuration_is_near_the_limit_from_80_percent_on(monkeypatch: pytest.MonkeyPatch) -> None:
    found = configuration_size(parsed(), callers(1_000), 22)
    for limit, is_near in ((found.bytes * 5 // 4, True), (found.bytes * 5 // 4 + 2, False), (found.bytes, True)):
        monkeypatch.setattr(size, "MESSAGE_BYTES", limit)
        assert found.is_near_limit is is_near, limit


def test_keys_of_the_fleet_have_the_length_that_is_counted() -> None:
    assert len(KEY_PREFIX + secrets.token_urlsafe(KEY_BYTES)) == KEY_LENGTH == 47


def observed(*entries: str, labels: str = "eu") -> Observed:
    place = (SYSTEM, "keys")
    return Observed(
        secret_keys={place: frozenset(entries), (SYSTEM, "more"): frozenset(entries[:1])},
        secret_labels={place: {"modelplane.ai/keys": labels}, (SYSTEM, "more"): {"modelplane.ai/keys": labels}},
    )


def served(services: int, seen: Observed | None) -> Built:
    return build(fleet(*(service(name=f"s{number}") for number in range(services))), observed=seen)


def near(built: Built) -> list[str]:
    return [each for each in built.plan.warnings if "fit into a message to the AI gateway" in each]


def test_a_plan_has_the_estimate_and_warns_near_the_limit() -> None:
    # The least number of keys of 65 bytes in 11 copies that, with 5 services, is 80 % of the limit.
    most = -(-(MESSAGE_BYTES * 4 - 5 * 5 * 5_000) // (5 * 11 * 65))
    for keys, is_near in ((most - 1, False), (most, True)):
        built = served(5, observed(*callers(keys)))
        (planned,) = plan_output.document(built.plan).gateways or ()
        assert planned.configuration
        written = api.wire(planned)["configuration"]
        expected = 11 * 65 * keys + 5 * 5_000
        assert written == {"keys": keys, "services": 5, "bytes": expected, "limit": MESSAGE_BYTES}
        assert bool(near(built)) is is_near
    (warning,) = near(built)
    assert warning.startswith(
        f"InferenceGateway eu: its configuration has about {expected:,} bytes for {most:,} keys and 5 services, and "
        f"{MESSAGE_BYTES:,} fit into"
    )
    assert "divide callers over gateways by spec.auth.apiKey.secretSelector" in warning


def test_without_knowledge_of_keys_there_is_no_estimate() -> None:
    for seen in (None, Observed(unreachable="timed out")):
        (planned,) = plan_output.document(served(2, seen).plan).gateways or ()
        assert planned.configuration is None
    (planned,) = plan_output.document(served(2, observed("alice", labels="other")).plan).gateways or ()
    assert planned.configuration
    assert planned.configuration.keys == 0
