# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Policies on the cluster of a gateway in mode Model that it refuses, or that are not of the fleet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.names import joined_name
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.route_policies import trim_policy
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object
from ansible_collections.modelplane.fleet.tests.model_fleet import (
    SYSTEM,
    TEAM,
    Built,
    build,
    fleet,
    policy,
    provider,
    provider_entry,
    service,
)
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.status.test_model_statuses import (
    ACCEPTED,
    HUB,
    condition,
    seen,
    shown,
)

GATEWAY = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "inference-gateway"}
CHAT = {"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "chat"}
OURS = {"app.kubernetes.io/managed-by": "modelplane.fleet"}
FOREIGN = "which is not of the fleet, is attached to a route or gateway of it"


def found(kind: str, name: str, namespace: str, *targets: Object, accepted: str = "", **fields: Any) -> Object:
    """A policy as it is observed; `accepted` is the reason why it is not, "" while nothing is said."""
    said = {"type": "Accepted", "status": "False", "reason": accepted, "message": "another one is older"}
    said["observedGeneration"] = fields.pop("about", 2)
    metadata = {"name": name, "namespace": namespace, "generation": 2, "labels": fields.pop("labels", {})}
    return trim_policy(
        {
            "apiVersion": "gateway.envoyproxy.io/v1alpha1",
            "kind": kind,
            "metadata": metadata,
            "spec": {"targetRefs": list(targets), **fields},
            "status": {"ancestors": [{"conditions": [said]}] if accepted else []},
        }
    )


def planned(*policies: Object, route: Object | None = ACCEPTED) -> Built:
    """Two services on a gateway with these policies; the route of one of them is there or not."""
    other = {**ACCEPTED, "metadata": {**ACCEPTED["metadata"], "name": "other"}}
    there = [*HUB, other, *([route] if route else [])]
    documents = fleet(service(provider_entry("a")), service(provider_entry("a"), name="other"), provider("a"), policy())
    return build(documents, observed=seen(hub=[*there, *policies]))


def unready(built: Built) -> dict[str, Mapping[str, Any]]:
    """The Ready conditions that are not True, by kind, and name of a service."""
    services = {joined_name(name, "eu"): name for name in ("chat", "other")}
    found = {}
    for (kind, name), status in shown(built).items():
        if kind in ("InferenceGateway", "ModelRoute", "ModelService"):
            ready = condition(status, "Ready")
            if ready["status"] != "True":
                found[f"{kind} {services.get(name, name)}"] = ready
    return found


def warnings(built: Built) -> list[str]:
    return [each for each in built.plan.warnings if "Policy " in each]


CALLERS = found("SecurityPolicy", "inference-gateway-callers", SYSTEM, GATEWAY, labels=OURS)
RIGHTS = found("SecurityPolicy", "chat", TEAM, CHAT, labels=OURS)


def test_policies_that_are_accepted_or_not_judged_yet_say_nothing() -> None:
    stale = found("SecurityPolicy", "chat", TEAM, CHAT, labels=OURS, accepted="Conflicted", about=1)
    elsewhere = found("SecurityPolicy", "theirs", TEAM, {**CHAT, "name": "theirs"})
    behind = found("ClientTrafficPolicy", "theirs", SYSTEM, GATEWAY)
    for policies in ((), (CALLERS, RIGHTS), (stale,), (elsewhere,), (behind,)):
        built = planned(*policies)
        assert (unready(built), warnings(built)) == ({}, [])


def test_a_service_is_not_ready_while_a_policy_of_its_route_is_refused() -> None:
    for kind in ("SecurityPolicy", "BackendTrafficPolicy"):
        built = planned(CALLERS, found(kind, "chat", TEAM, CHAT, labels=OURS, accepted="Conflicted"))
        message = f"{kind} {TEAM}/chat is not accepted: Conflicted: another one is older"
        conditions = unready(built)
        assert {name: each["message"] for name, each in conditions.items()} == {
            "ModelRoute chat": message,
            "ModelService chat": message,
        }
        route = shown(built)["ModelRoute", joined_name("chat", "eu")]
        assert condition(route, "RoutingReady")["reason"] == "PolicyConflict"


def test_a_gateway_and_all_that_it_serves_are_not_ready_while_its_keys_do_not_count() -> None:
    refused = found("SecurityPolicy", "inference-gateway-callers", SYSTEM, GATEWAY, labels=OURS, accepted="Invalid")
    conditions = unready(planned(refused, RIGHTS))
    assert set(conditions) == {
        "InferenceGateway eu",
        *(f"{kind} {name}" for kind in ("ModelRoute", "ModelService") for name in ("chat", "other")),
    }
    assert conditions["InferenceGateway eu"]["reason"] == "PolicyConflict"
    (message,) = {each["message"] for each in conditions.values()}
    assert (
        message == f"SecurityPolicy {SYSTEM}/inference-gateway-callers is not accepted: Invalid: another one is older"
    )


def test_health_checks_count_for_the_gateway_alone() -> None:
    target = {**CHAT, "name": "inference-gateway-healthz"}
    opened = found("SecurityPolicy", "healthz-open", SYSTEM, target, labels=OURS, accepted="Conflicted")
    assert set(unready(planned(opened))) == {"InferenceGateway eu"}


@pytest.mark.parametrize("route", [ACCEPTED, None], ids=["there", "new"])
@pytest.mark.parametrize(
    "target",
    [
        {"targetRefs": [CHAT]},
        {"targetRef": CHAT},
        {"targetSelectors": [{"kind": "HTTPRoute", "matchLabels": {"modelplane.ai/service": "chat"}}]},
    ],
    ids=["refs", "ref", "selector"],
)
def test_a_policy_of_others_on_a_route_is_named(target: dict[str, Any], route: Object | None) -> None:
    built = planned(CALLERS, RIGHTS, found("SecurityPolicy", "theirs", TEAM, **target), route=route)
    conditions = unready(built)
    assert set(conditions) == {"ModelRoute chat", "ModelService chat"}
    for each in conditions.values():
        assert each["message"].startswith(f"SecurityPolicy {TEAM}/theirs, {FOREIGN}")
        assert each["message"].endswith(": remove it")
    (warning,) = warnings(built)
    assert warning.startswith(f"cluster hub: SecurityPolicy {TEAM}/theirs, {FOREIGN}")
    assert "ModelService ml-team/chat; until then, only routes that are there already are applied" in warning
    assert built("AIGatewayRoute", "chat"), "what is there stays"


@pytest.mark.parametrize("section", ["", "http"])
def test_a_policy_of_others_on_the_gateway_is_one_on_all_routes(section: str) -> None:
    target = {**GATEWAY, **({"sectionName": section} if section else {})}
    built = planned(CALLERS, RIGHTS, found("SecurityPolicy", "theirs", SYSTEM, target))
    assert set(unready(built)) >= {"InferenceGateway eu", "ModelRoute chat", "ModelRoute other"}
    (warning,) = warnings(built)
    assert "ModelService ml-team/chat, ml-team/other;" in warning
    selected = found("SecurityPolicy", "theirs", SYSTEM, targetSelectors=[{"kind": "Gateway"}])
    assert set(unready(planned(selected))) >= {"InferenceGateway eu", "ModelRoute chat", "ModelRoute other"}


def test_what_takes_the_place_of_a_budget_is_named_with_it() -> None:
    budget = found("BackendTrafficPolicy", "chat", TEAM, CHAT, labels=OURS, accepted="Conflicted")
    theirs = found("BackendTrafficPolicy", "theirs", TEAM, CHAT)
    assert unready(planned(theirs)) == {}
    message = unready(planned(budget, theirs))["ModelService chat"]["message"]
    assert message.startswith(f"BackendTrafficPolicy {TEAM}/chat is not accepted: Conflicted: another one is older; ")
    assert f"BackendTrafficPolicy {TEAM}/theirs, {FOREIGN}" in message
