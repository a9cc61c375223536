# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Clients with tokens and clients with API keys at one gateway in mode Model, as `build` composes it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.workload_gateway import gateway_objects

from .clients import CHOICES, counted, counters, empty_budgets
from .composed import SYSTEM, TEAM, ComposedFleet, secret
from .engines import Engine
from .equipment import Answer, Gateway, GatewayCluster
from .tokens import Issuer

HOST = "sso.models.example"
ISSUER = Issuer("https://login.example.com", "models")
OTHER = Issuer("https://login.example.com", "models")
"""Another key under the same name."""
KEYS = {"alice": "planted-key-of-alice", "bob": "planted-key-of-bob"}
POLICIES: Mapping[str, dict[str, Any]] = {
    "keys": {"callers": [{"name": "alice"}]},
    "subjects": {"subjects": ["alice"]},
    "groups": {"groups": ["ml", "ops"]},
    "both": {
        "callers": [{"name": "alice"}],
        "subjects": ["alice", "carol"],
        "budgets": [{"name": "daily", "unit": "Requests", "limit": 2, "per": "Day"}],
    },
    "all": {
        "callers": [{"name": "*"}],
        "budgets": [{"name": "daily", "unit": "Requests", "limit": 3, "per": "Day", "scope": "Policy"}],
    },
    "spend": {
        "callers": [{"name": "alice"}],
        "subjects": ["alice"],
        "budgets": [{"name": "daily", "unit": "Cost", "amount": "0.003", "currency": "USD", "per": "Day"}],
    },
    "each": {
        "groups": ["ml"],
        "budgets": [{"name": "daily", "unit": "Requests", "limit": 1, "per": "Day"}],
    },
}
MODELS = ("open", *POLICIES)
PRICES = {
    "currency": "USD",
    "models": [
        {"model": "ml-team/spend", "input": "100", "output": "200", "asOf": "2026-11-01", "source": "a test"},
        {
            "model": "ml-team/spend",
            "endpoint": "spare",
            "input": "0.001",
            "output": "700.50",
            "asOf": "2026-11-01",
            "source": "a test",
        },
    ],
}


def _resources() -> list[dict[str, Any]]:
    def resource(kind: str, name: str, spec: Mapping[str, Any], namespace: str = "", **labels: str) -> dict[str, Any]:
        place = {"namespace": namespace} if namespace else {}
        metadata = {"name": name, **place, "labels": labels}
        return {"apiVersion": "modelplane.ai/v1alpha1", "kind": kind, "metadata": metadata, "spec": dict(spec)}

    auth = {
        "apiKey": {"secretSelector": {"matchLabels": {"modelplane.ai/keys": "eu"}}},
        "jwt": {
            "hostname": HOST,
            "issuer": ISSUER.url,
            "audiences": [ISSUER.audience, "other"],
            "jwks": {"inline": ISSUER.jwks},
            "groupsClaim": "access.groups",
        },
    }
    cluster = {"cluster": {"source": "Existing", "existing": {"secretRef": {"name": "hub-kubeconfig"}}}}
    endpoint = {"endpoints": [{"name": "north", "selector": {"matchLabels": {"engine": "north"}}}]}
    spare = {"name": "spare", "priority": 1, "selector": {"matchLabels": {"engine": "south"}}}
    return [
        resource("InferenceGateway", "eu", {"clusterName": "hub", "auth": auth}),
        resource("InferenceCluster", "hub", cluster),
        resource("ModelEndpoint", "north", {"origin": "http://north.example:8000"}, "ml-team", engine="north"),
        resource("ModelEndpoint", "south", {"origin": "http://south.example:8000"}, "ml-team", engine="south"),
        *(resource("ModelService", name, endpoint, "ml-team", model=name) for name in MODELS if name != "spend"),
        resource("ModelService", "spend", {"endpoints": [*endpoint["endpoints"], spare]}, "ml-team", model="spend"),
        *(
            resource("CallerPolicy", name, {"services": {"matchLabels": {"model": name}}, **spec}, "ml-team")
            for name, spec in POLICIES.items()
        ),
    ]


@pytest.fixture(scope="module")
def north(gateway_cluster: GatewayCluster) -> Engine:
    return gateway_cluster.engine("north", "north.example")


@pytest.fixture(scope="module")
def gateway(gateway_cluster: GatewayCluster, north: Engine, tmp_path_factory: pytest.TempPathFactory) -> Gateway:
    """Once it answers clients with keys and clients with tokens."""
    assert north.address
    gateway_cluster.engine("south", "south.example")
    fleet = ComposedFleet(gateway_cluster, tmp_path_factory.mktemp("fleet"))
    fleet.resources = _resources()
    prices = tmp_path_factory.mktemp("prices") / "prices.yaml"
    prices.write_text(json.dumps(PRICES), encoding="utf-8")
    fleet.prices = str(prices)
    for name in (SYSTEM, "ml-team", TEAM):
        gateway_cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    metadata = {"name": "team-keys", "namespace": SYSTEM, "labels": {"modelplane.ai/keys": "eu"}}
    gateway_cluster.apply([secret(metadata, KEYS), *gateway_objects(CHOICES)])
    fleet.know_clients()
    fleet.install()
    made = gateway_cluster.gateway("inference-gateway", SYSTEM)
    for host in (HOST, "models.example"):
        headers = {"host": host, "authorization": "Bearer x"}
        gateway_cluster.wait_for(
            f"{host} asks who calls", lambda h=headers: made.everywhere(401, "/v1/models", None, h)
        )
    allowed = {"open": "a", "subjects": "alice", "both": "alice", "all": "a", "spend": "alice"}
    for model, subject in allowed.items():
        gateway_cluster.wait_for(f"{model} answers", lambda m=model, s=subject: _answers(made, m, s))
    for model in ("groups", "each"):
        gateway_cluster.wait_for(f"{model} answers", lambda m=model: _answers(made, m, "a", groups=["ml"]))
    return made


def _answers(gateway: Gateway, model: str, subject: str, groups: list[str] | None = None) -> bool:
    return all(
        ask(gateway, model, token=token(subject, groups), over=gateway.connection(pod=pod)).status in (200, 429)
        for pod in gateway.pods
    )


def token(subject: str, groups: Any = None) -> str:
    return ISSUER.token(subject, access={"groups": groups} if groups is not None else None)


def ask(
    gateway: Gateway, model: str, *, token: str = "", key: str = "", host: str = "", over: Any = None, **headers: str
) -> Answer:
    """Ask at the host for tokens with a token, at the other one with a key."""
    sent = {"host": host or (HOST if token and not key else "models.example")}
    sent |= {"authorization": f"Bearer {token}"} if token else {}
    sent |= {"x-api-key": key} if key else {}
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    body = {"model": f"ml-team/{model}", "messages": [{"role": "user", "content": "Hello"}]}
    return gateway.request("/v1/chat/completions", body, sent, over=over)


def test_a_token_and_a_key_are_each_enough_at_their_host(gateway: Gateway, north: Engine) -> None:
    assert ask(gateway, "open", token=token("dora")).status == 200
    seen = north.seen[-1].headers
    assert not {"authorization", "x-api-key", "x-modelplane-subject", "x-modelplane-caller"} & seen.keys()
    assert ask(gateway, "open", key=KEYS["bob"]).status == 200
    assert (
        not {"authorization", "x-api-key", "x-modelplane-subject", "x-modelplane-caller"}
        & north.seen[-1].headers.keys()
    )
    anthropic = {"host": HOST, "x-api-key": token("dora")}
    body = {"model": "ml-team/open", "max_tokens": 9, "messages": [{"role": "user", "content": "Hello"}]}
    assert gateway.request("/anthropic/v1/messages", body, anthropic).status == 200


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ({}, 401),
        ({"authorization": ""}, 401),
        ({"authorization": "Bearer"}, 401),
        ({"authorization": ISSUER.token("alice")}, 401),
        ({"authorization": f"Basic {ISSUER.token('alice')}"}, 401),
        ({"authorization": f"Bearer {ISSUER.token('alice', lives=-120)}"}, 401),
        ({"authorization": f"Bearer {ISSUER.token('alice', iss='https://evil.example')}"}, 401),
        ({"authorization": f"Bearer {ISSUER.token('alice', iss=None)}"}, 401),
        # Envoy answers 403 to another audience.
        ({"authorization": f"Bearer {ISSUER.token('alice', aud='payroll')}"}, 403),
        ({"authorization": f"Bearer {ISSUER.token('alice', aud=None)}"}, 403),
        ({"authorization": f"Bearer {ISSUER.token('alice', aud=['payroll', 'other'])}"}, 200),
        ({"authorization": f"Bearer {OTHER.token('alice')}"}, 401),
        ({"authorization": f"Bearer {ISSUER.token('alice', algorithm='none')}"}, 401),
        ({"authorization": f"Bearer {ISSUER.token('alice', algorithm='HS256')}"}, 401),
        ({"authorization": f"Bearer {ISSUER.token('alice').rpartition('.')[0]}."}, 401),
        ({"authorization": f"Bearer {ISSUER.token('alice', nbf=4102444800)}"}, 401),
        # A key is no token, whatever is sent beside it.
        ({"x-api-key": KEYS["alice"]}, 401),
        ({"authorization": f"Bearer {KEYS['alice']}"}, 401),
        ({"x-modelplane-caller": "alice"}, 401),
        ({"x-modelplane-subject": "alice", "x-modelplane-caller": "jwt:"}, 401),
        # A token without the claim of callers.
        ({"authorization": f"Bearer {ISSUER.token(sub=None)}"}, 403),
        ({"authorization": f"Bearer {ISSUER.token(sub=None)}", "x-modelplane-subject": "alice"}, 403),
        ({"authorization": f"Bearer {ISSUER.token('alice')}"}, 200),
    ],
)
@pytest.mark.parametrize("model", ["open", "subjects", "all"])
def test_only_a_valid_token_with_the_claim_passes_at_the_host_for_tokens(
    gateway_cluster: GatewayCluster, gateway: Gateway, north: Engine, model: str, sent: Mapping[str, str], expected: int
) -> None:
    """Whatever model the headers name, which choose the first route."""
    empty_budgets(gateway_cluster)
    body = {"model": f"ml-team/{model}", "messages": [{"role": "user", "content": "Hello"}]}
    before = len(north.seen)
    for forged in ({}, {"x-ai-eg-model": "ml-team/open"}, {"x-ai-eg-model": f"ml-team/{model}"}):
        answer = gateway.request("/v1/chat/completions", body, {"host": HOST, **forged, **sent})
        assert answer.status == expected, answer.body
    assert (len(north.seen) > before) == (expected == 200)


@pytest.mark.parametrize("model", ["open", "keys", "subjects", "groups", "all"])
def test_a_token_is_no_key(gateway: Gateway, model: str) -> None:
    valid = token("alice", ["ml"])
    for host in ("models.example", "", gateway.address):
        assert ask(gateway, model, token=valid, host=host or "x").status == 401
        assert ask(gateway, model, host=host or "x", x_modelplane_caller="alice").status == 401
    # Both, each at the host of the other one.
    assert ask(gateway, model, token=valid, key="wrong").status == 401
    assert ask(gateway, model, token=OTHER.token("alice"), key=KEYS["alice"], host=HOST).status == 401


def test_names_of_tokens_and_keys_are_different_callers(gateway: Gateway) -> None:
    """Alice with a token is not alice with a key, at either host."""
    assert ask(gateway, "keys", key=KEYS["alice"]).status == 200
    assert ask(gateway, "keys", token=token("alice")).status == 403
    assert ask(gateway, "subjects", token=token("alice")).status == 200
    assert ask(gateway, "subjects", key=KEYS["alice"]).status == 403
    for forged in ({"x_modelplane_subject": "alice"}, {"x_modelplane_caller": "jwt:", "x_modelplane_subject": "alice"}):
        assert ask(gateway, "subjects", key=KEYS["bob"], **forged).status == 403
        assert ask(gateway, "subjects", token=token("bob"), **forged).status == 403
        assert ask(gateway, "keys", token=token("bob"), x_modelplane_caller="alice").status == 403
    assert ask(gateway, "subjects", token=token("jwt:")).status == 403


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        (["ml"], 200),
        (["x", "ops"], 200),
        (["x"], 403),
        ([], 403),
        (None, 403),
        (["ML"], 403),
        (["ml,ops"], 403),
        # Of an object, the names are groups.
        ({"ops": {"tenant": "a"}}, 200),
        ({"x": True}, 403),
    ],
)
def test_groups_of_a_token_give_rights(gateway: Gateway, groups: Any, expected: int) -> None:
    assert ask(gateway, "groups", token=token("erin", groups)).status == expected


@pytest.mark.parametrize("access", ["ml", {"groups": "ml"}, {"groups": "xml"}, ["ml"], {"groups": [["ml"]]}])
def test_claims_of_another_form_give_no_rights(gateway: Gateway, access: Any) -> None:
    assert ask(gateway, "groups", token=ISSUER.token("erin", access=access)).status == 403
    assert ask(gateway, "groups", key=KEYS["alice"]).status == 403


def test_budgets_count_tokens_and_keys_by_names_of_their_own(gateway_cluster: GatewayCluster, gateway: Gateway) -> None:
    empty_budgets(gateway_cluster)
    alice, carol = token("alice"), token("carol")
    assert [ask(gateway, "both", token=alice).status for _ in range(3)] == [200, 200, 429]
    assert [ask(gateway, "both", key=KEYS["alice"]).status for _ in range(3)] == [200, 200, 429]
    assert ask(gateway, "both", token=carol).status == 200
    assert ask(gateway, "both", token=token("bob")).status == 403
    counted(gateway_cluster, "both", 1, 3, 3)


def test_a_budget_of_a_policy_is_one_for_tokens_and_keys(gateway_cluster: GatewayCluster, gateway: Gateway) -> None:
    empty_budgets(gateway_cluster)
    sent = [{"token": token("alice")}, {"key": KEYS["alice"]}, {"token": token("dora")}, {"key": KEYS["bob"]}]
    assert [ask(gateway, "all", **each).status for each in sent] == [200, 200, 200, 429]
    assert len(counters(gateway_cluster, "all")) == 1


def test_members_of_a_group_have_budgets_of_their_own(gateway_cluster: GatewayCluster, gateway: Gateway) -> None:
    empty_budgets(gateway_cluster)
    one, two = token("one", ["ml"]), token("two", ["ml"])
    assert [ask(gateway, "each", token=each).status for each in (one, one, two, two)] == [200, 429, 200, 429]


def test_budgets_in_currency_count_what_the_endpoint_costs_that_answers(
    gateway_cluster: GatewayCluster, gateway: Gateway, north: Engine
) -> None:
    """7 tokens at 100 and 5 at 200 for a million are 0.0017 USD, and 5 at 700.50 are 0.0035025, rounded up to
    0.00351. The budget of each client is 0.003."""
    empty_budgets(gateway_cluster)
    alice = token("alice")
    remaining = []
    for spent in (170, 340):
        answer = ask(gateway, "spend", token=alice)
        remaining.append((answer.status, answer.headers["x-ratelimit-remaining"]))
        counted(gateway_cluster, "spend", spent)
    assert remaining == [(200, "300"), (200, "130")]
    assert ask(gateway, "spend", token=alice).status == 429
    north.answer = 429
    try:
        assert ask(gateway, "spend", key=KEYS["alice"]).status == 200
    finally:
        north.answer = 200
    counted(gateway_cluster, "spend", 340, 351)
    assert ask(gateway, "spend", key=KEYS["alice"]).status == 429


def test_usage_records_have_the_subject_of_a_token(gateway_cluster: GatewayCluster, gateway: Gateway) -> None:
    assert ask(gateway, "open", token=token("recorded-token")).status == 200
    assert ask(gateway, "open", key=KEYS["bob"]).status == 200

    def records() -> set[tuple[str, str | None]]:
        return {(each["caller"], each["subject"]) for each in gateway.access_log() if each["status"] == 200}

    gateway_cluster.wait_for("records", lambda: {("jwt:", "recorded-token"), ("bob", None)} <= records())
    assert "Bearer" not in json.dumps(gateway.access_log())
