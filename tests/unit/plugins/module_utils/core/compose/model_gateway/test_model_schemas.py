# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Objects of gateways in mode Model against the schemas that the projects publish, unknown fields refused.

The kinds of the AI gateway are not among them: it publishes its CustomResourceDefinitions as a chart only.
"""

from __future__ import annotations

import pytest
from ansible_collections.modelplane.fleet.tests.model_fleet import (
    Built,
    build,
    cluster,
    entry,
    fleet,
    gateway,
    policy,
    provider,
    provider_entry,
    service,
)
from ansible_collections.modelplane.fleet.tests.schemas import SchemaError, check

UNPUBLISHED = {"AIGatewayRoute", "AIServiceBackend", "BackendSecurityPolicy"}


@pytest.fixture(scope="module")
def built() -> Built:
    key = {"apiKey": {"secretRef": {"name": "saas-key"}}}
    unit = {"unit": "Tokens", "limit": 4294967295, "per": "Month"}
    budgets = [{"name": "a", **unit}, {"name": "b", **unit, "scope": "Policy", "unit": "Requests"}]
    tls = {"certificateRefs": [{"name": "eu-tls"}]}
    return build(
        fleet(
            service(entry(), provider_entry("a", priority=1), provider_entry("b", priority=2), labels={"tier": "gold"}),
            service(name="other"),
            provider("a", credential=key),
            provider("b", origin="http://b.example:8080"),
            policy(budgets=budgets, services={"matchLabels": {"tier": "gold"}}),
            policy("open", callers=[{"name": "*"}], budgets=budgets),
            eu=gateway(tls=tls),
            west=cluster("west", "2001:db8::1"),
        )
    )


def test_api_servers_take_them(built: Built) -> None:
    checked = set()
    for value in [*built.all(), *built.plan.control]:
        if value["kind"] not in UNPUBLISHED:
            check(value)
            checked.add(value["kind"])
    assert checked >= {
        "Backend",
        "BackendTrafficPolicy",
        "Bundle",
        "Certificate",
        "ClientTrafficPolicy",
        "ClusterIssuer",
        "Gateway",
        "HTTPRouteFilter",
        "Issuer",
        "ModelRoute",
        "SecurityPolicy",
    }


@pytest.mark.parametrize("kind", ["Backend", "Certificate", "SecurityPolicy"])
def test_a_misspelt_field_would_be_seen(built: Built, kind: str) -> None:
    value = built.of(kind)[0]
    with pytest.raises(SchemaError):
        check({**value, "spec": {**value["spec"], "mistake": 1}})
