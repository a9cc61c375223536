# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Budgets of callers at a gateway in mode Model as `build` composes it of the manifests in fleet/."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from .clients import (
    ANTHROPIC,
    CALLERS,
    DETOURS,
    OPENAI,
    PROVIDER_KEYS,
    SHARED,
    TOKENS,
    Clients,
    Said,
    counted,
    counters,
    empty_budgets,
    seen,
)
from .composed import ComposedFleet, UseOfBudgets
from .engines import COMPLETION_TOKENS, Engine
from .equipment import SYSTEM as ENVOY_SYSTEM
from .equipment import GatewayCluster

pytestmark = pytest.mark.usefixtures("healthy")


def test_each_caller_has_a_budget_of_its_own_which_returns(gateway_cluster: GatewayCluster, clients: Clients) -> None:
    """20 tokens an hour, 12 an answer: one that begins within them is served. The callers are those of a pattern on the
    header that they are counted by."""
    empty_budgets(gateway_cluster)
    remaining = []
    for spent in (TOKENS, 2 * TOKENS):
        answer = clients.ask("each", "alice")
        remaining.append((answer.status, answer.headers["x-ratelimit-remaining"]))
        counted(gateway_cluster, "each", spent)
    assert remaining == [(200, "20"), (200, str(20 - TOKENS))]
    refused = clients.ask("each", "alice")
    assert (refused.status, refused.headers["x-ratelimit-remaining"]) == (429, "0")
    assert clients.statuses("each", "bob", "carol") == [200, 403]
    counted(gateway_cluster, "each", 2 * TOKENS, TOKENS)
    # The name ends with the beginning of the hour, so that the next hour has a counter of its own.
    for key in counters(gateway_cluster, "each"):
        assert int(key.rpartition("_")[2]) % 3600 == 0
    # Streams and the other API count too.
    empty_budgets(gateway_cluster)
    assert clients.ask("each", "alice", path=ANTHROPIC, max_tokens=9).status == 200
    counted(gateway_cluster, "each", TOKENS)
    assert clients.ask("each", "alice", stream=True).status == 200
    counted(gateway_cluster, "each", 2 * TOKENS)
    assert clients.statuses("each", "alice", "bob") == [429, 200]


def test_a_budget_of_a_policy_is_that_of_all_its_callers(gateway_cluster: GatewayCluster, clients: Clients) -> None:
    empty_budgets(gateway_cluster)
    assert clients.statuses("together", "alice", "bob", "carol", "dave", "alice") == [200, 200, 200, 429, 429]
    assert clients.statuses("open", "alice", "dave") == [200, 200]


def test_services_share_budgets(gateway_cluster: GatewayCluster, clients: Clients) -> None:
    """`first` and `second` 12 tokens of answers a month for each of alice and bob, `second` and `third` five requests a
    day for everybody."""
    empty_budgets(gateway_cluster)
    assert clients.statuses("first", "alice", "alice") == [200, 200]
    counted(gateway_cluster, SHARED, 2 * COMPLETION_TOKENS)
    assert clients.statuses("second", "alice") == [200]
    counted(gateway_cluster, SHARED, 3 * COMPLETION_TOKENS, 1)
    assert [clients.ask(model, "alice").status for model in ("first", "second")] == [429, 429]
    assert clients.statuses("first", "bob", "carol") == [200, 403]
    # Alice's, the one that the budget of tokens has refused too; carol's tokens are in no budget.
    counted(gateway_cluster, SHARED, 3 * COMPLETION_TOKENS, COMPLETION_TOKENS, 2)
    assert clients.statuses("second", "carol", "carol") == [200, 200]
    assert clients.statuses("third", "bob", "alice") == [200, 429]
    assert clients.statuses("second", "carol", "bob") == [429, 429]
    assert clients.statuses("first", "bob") == [200]


def test_tokens_of_providers_are_counted(
    gateway_cluster: GatewayCluster, clients: Clients, engines: Mapping[str, Engine]
) -> None:
    """Those of each caller with his name, which a provider gets for that reason alone."""
    tokens = engines["paid"].input_tokens + engines["paid"].output_tokens
    empty_budgets(gateway_cluster)
    for spent in (1, 2):
        assert clients.ask("bought", "alice").status == 200
        assert engines["paid"].seen[-1].headers["x-modelplane-caller"] == "alice"
        counted(gateway_cluster, "bought", spent * tokens)
    assert clients.statuses("bought", "alice", "bob") == [429, 200]
    empty_budgets(gateway_cluster)
    for spent in (1, 2):
        assert clients.ask("all-bought", CALLERS[spent]).status == 200
        assert "x-modelplane-caller" not in engines["paid"].seen[-1].headers
        counted(gateway_cluster, "all-bought", spent * tokens)
    assert clients.statuses("all-bought", "alice", "dave") == [429, 429]


def test_use_is_read_from_the_service_that_counts(
    gateway_cluster: GatewayCluster, fleet: ComposedFleet, clients: Clients
) -> None:
    """By the Service of the serving stack, with the rights of the fleet; asking is free."""
    empty_budgets(gateway_cluster)
    use = UseOfBudgets(fleet, CALLERS)
    without = set(use().values())
    assert len(without) == 1
    assert "did not say it: " in str(without)
    use.install()
    none_of_both = {"alice": 0, "bob": 0}
    unused = {
        "all-bought hourly": {"*": 0},
        "bought hourly": none_of_both,
        "each hourly": none_of_both,
        "pair monthly": none_of_both,
        "spill-tokens hourly": {**none_of_both, "carol": 0},
        "team daily": {"*": 0},
        "together daily": {"*": 0},
    }
    gateway_cluster.wait_for("the rate-limit service answers", lambda: unused.items() <= use().items())
    assert clients.statuses("each", "alice") == [200]
    assert clients.statuses("together", "alice", "bob") == [200, 200]
    assert clients.statuses("first", "alice", "alice") == [200, 200]
    assert clients.statuses("second", "bob") == [200]
    assert clients.statuses("spill", "carol") == [200]
    used = {
        **unused,
        "spill-tokens hourly": {**none_of_both, "carol": TOKENS},
        "each hourly": {"alice": TOKENS, "bob": 0},
        "pair monthly": {"alice": 2 * COMPLETION_TOKENS, "bob": COMPLETION_TOKENS},
        "team daily": {"*": 1},
        "together daily": {"*": 2},
    }
    # What answers cost is counted beside them.
    gateway_cluster.wait_for("all is counted", lambda: used.items() <= use().items(), seconds=30)
    assert used.items() <= use().items()
    assert clients.statuses("each", "alice") == [200]
    counted(gateway_cluster, "each", 0, 0, 0, 2 * TOKENS)
    assert clients.statuses("each", "alice") == [429]
    assert use()["each hourly"] == {"alice": 20, "bob": 0}


@pytest.mark.parametrize("path", [OPENAI, ANTHROPIC])
@pytest.mark.parametrize(
    ("model", "caller", "per", "window"),
    [("together", "alice", 3, 86_400), ("minutely", "alice", 1, 60)],
)
def test_a_spent_budget_says_when_to_ask_again(
    gateway_cluster: GatewayCluster, clients: Clients, path: str, model: str, caller: str, per: int, window: int
) -> None:
    """Clients wait for a minute by themselves, and not for a day."""
    empty_budgets(gateway_cluster)
    # In a minute that ends meanwhile the budget is whole again.
    answers = [clients.ask(model, caller, path=path, max_tokens=9) for _ in range(2 * per + 1)]
    refused = next(answer for answer in answers if answer.status == 429)
    assert Said.by(refused) == Said(429, "rate_limit_error", "rate_limit_exceeded")
    headers = refused.headers
    assert headers["x-ratelimit-limit"].partition(",")[0] == str(per)
    assert headers["x-ratelimit-remaining"] == "0"
    assert 0 < int(headers["retry-after"]) <= window
    assert headers["retry-after"] == headers["x-ratelimit-reset"]
    assert f"Ask again in {headers['retry-after']} seconds" in refused.json["error"]["message"]
    assert headers.get("x-should-retry") == (None if int(headers["retry-after"]) <= 60 else "false")


@pytest.mark.parametrize("path", [OPENAI, ANTHROPIC])
@pytest.mark.parametrize(
    ("model", "caller", "expected"),
    [
        ("open", "", Said(401, "authentication_error", "invalid_api_key")),
        ("of-bob", "alice", Said(403, "permission_error", "permission_denied")),
        ("none", "alice", Said(404, "not_found_error", "model_not_found")),
        ("nowhere", "alice", Said(503, "api_error", "model_unavailable")),
    ],
)
def test_refusals_are_errors_in_the_format_of_clients(
    clients: Clients, path: str, model: str, caller: str, expected: Said
) -> None:
    said = Said.by(clients.ask(model, caller, path=path))
    # Models without a route are those of the oldest route, whose policy may know callers.
    assert said == expected or (model == "none" and said.status == 403)


def test_without_redis_budgets_are_refused_in_the_format_of_clients(
    gateway_cluster: GatewayCluster, clients: Clients
) -> None:
    program = gateway_cluster.kubelet.running(ENVOY_SYSTEM, {"app": "redis"})[0].processes["redis"]
    program.pause()
    try:
        assert Said.by(clients.ask("minutely", "bob")) == Said(500, "api_error", "budget_unavailable")
    finally:
        program.resume()
    gateway_cluster.wait_for("budgets are counted", lambda: clients.ask("minutely", "bob").status in (200, 429))


def test_errors_of_engines_stay_theirs(clients: Clients, engines: Mapping[str, Engine]) -> None:
    """With answers in between, as too many errors in a row would eject the engine."""
    connection = clients.gateway.connection()
    for status in (401, 403, 404, 500, 503, 504):
        engines["own"].answer = status
        answer = clients.ask("qwen", "alice", over=connection)
        assert (answer.status, "fails on demand" in answer.json["error"]["message"]) == (status, True)
        engines["own"].answer = 200
        assert clients.ask("qwen", "alice", over=connection).status == 200


def test_a_limit_of_an_engine_is_passed_on(
    gateway_cluster: GatewayCluster, clients: Clients, engines: Mapping[str, Engine]
) -> None:
    empty_budgets(gateway_cluster)
    engines["own"].answer = 429
    answer = clients.ask("together", "alice")
    assert (answer.status, "fails on demand" in answer.json["error"]["message"]) == (429, True)
    assert not {"retry-after", "x-should-retry"} & answer.headers.keys()


# How much before the next priority


def answered(clients: Clients, model: str, *callers: str, **more: Any) -> list[str]:
    """Return the engine behind each answer, or the status of one that is a refusal."""
    found = []
    for caller in callers:
        answer = clients.ask(model, caller, **more)
        text = answer.body.decode()
        found.append(text.partition("from ")[2].partition('"')[0] if answer.status == 200 else str(answer.status))
    return found


def test_beyond_a_budget_of_tokens_the_next_priority_answers(
    gateway_cluster: GatewayCluster, clients: Clients, engines: Mapping[str, Engine]
) -> None:
    """15 an hour for each caller, 12 an answer, over two services of which one has no next priority."""
    policy = DETOURS["spill"]
    empty_budgets(gateway_cluster)
    assert answered(clients, "spill", "alice") == ["own"]
    got = engines["own"].seen[-1]
    assert (got.path, got.body["model"], got.headers["x-modelplane-caller"]) == (OPENAI, "ml-team/qwen", "alice")
    counted(gateway_cluster, policy, TOKENS)
    assert answered(clients, "spill-alone", "alice") == ["own"]
    counted(gateway_cluster, policy, 2 * TOKENS)
    before = seen(engines)
    assert answered(clients, "spill", "alice", "alice") == ["paid", "paid"]
    assert seen(engines) - before == {"paid": 2}
    assert "x-modelplane-caller" not in engines["paid"].seen[-1].headers
    refused = clients.ask("spill-alone", "alice")
    assert Said.by(refused) == Said(429, "rate_limit_error", "rate_limit_exceeded")
    assert 0 < int(refused.headers["retry-after"]) <= 3600
    assert answered(clients, "spill", "bob", "dave", "") == ["own", "403", "401"]
    # Whoever a request says that it is of, and wherever it says that it goes.
    forged = {"x-modelplane-caller": "bob", "x-modelplane-service": "ml-team/spill-two", "x-modelplane-endpoint": "x"}
    assert answered(clients, "spill", "alice", headers=forged) == ["paid"]
    counted(gateway_cluster, policy, 2 * TOKENS, TOKENS)
    # All priorities are in reach, and only the first is in the budget.
    engines["paid"].answer = 503
    assert answered(clients, "spill", "alice") == ["south"]
    engines["south"].answer = 429
    assert answered(clients, "spill", "alice") == ["429"]
    counted(gateway_cluster, policy, 2 * TOKENS, TOKENS)


@pytest.mark.parametrize("more", [{"stream": True}, {"path": ANTHROPIC, "max_tokens": 9}], ids=["stream", "Anthropic"])
def test_streams_and_callers_of_anthropic_spend_such_a_budget(
    gateway_cluster: GatewayCluster, clients: Clients, engines: Mapping[str, Engine], more: dict[str, Any]
) -> None:
    empty_budgets(gateway_cluster)
    before = seen(engines)
    for spent in (1, 2):
        assert clients.ask("spill", "alice", **more).status == 200
        counted(gateway_cluster, DETOURS["spill"], spent * TOKENS)
    assert seen(engines) - before == {"own": 2}
    assert clients.ask("spill", "alice", **more).status == 200
    assert seen(engines) - before == {"own": 2, "paid": 1}


def test_an_endpoint_of_anthropic_is_in_such_a_budget(
    gateway_cluster: GatewayCluster, clients: Clients, engines: Mapping[str, Engine]
) -> None:
    """It gets its key behind the cluster gateway, and the name of the caller, by which its tokens are counted."""
    empty_budgets(gateway_cluster)
    way = {"path": ANTHROPIC, "max_tokens": 9}
    assert answered(clients, "spill-claude", "alice", **way) == ["claude"]
    got = engines["claude"].seen[-1]
    assert (got.path, got.body["model"]) == ("/v1/messages", "claude-large")
    assert (got.headers["x-api-key"], got.headers["x-modelplane-caller"]) == (PROVIDER_KEYS["claude"], "alice")
    counted(gateway_cluster, DETOURS["spill-claude"], TOKENS)
    assert answered(clients, "spill-claude", "alice", **way) == ["paid"]
    assert "x-modelplane-caller" not in engines["paid"].seen[-1].headers


def test_beyond_a_budget_of_requests_the_next_priority_answers_until_one_refuses(
    gateway_cluster: GatewayCluster, clients: Clients, engines: Mapping[str, Engine]
) -> None:
    """Four a day of all callers at the first priority, seven of each in all. Each request is in one usage record."""
    gateway_cluster.wait_for("records are written", lambda: recorded(clients, "spill-two"))
    empty_budgets(gateway_cluster)
    before, logged = seen(engines), Counter(recorded(clients, "spill-two"))
    first = answered(clients, "spill-two", "alice", "bob", "bob", "alice")
    assert set(first) <= {"north", "south"}
    assert answered(clients, "spill-two", "bob", *["alice"] * 5) == [*["paid"] * 6]
    assert answered(clients, "spill-two", "alice", "bob", "carol") == ["429", "paid", "403"]
    assert seen(engines) - before == {**Counter(first), "paid": 7}
    for name in {*first, "paid"}:
        headers = engines[name].seen[-1].headers
        assert not {"x-modelplane-caller", "x-modelplane-service", "x-modelplane-endpoint"} & headers.keys()

    def expected() -> bool:
        return (Counter(recorded(clients, "spill-two")) - logged).total() >= 13

    gateway_cluster.wait_for("all records are written", expected)
    records = Counter(recorded(clients, "spill-two")) - logged
    tokens = {name: engines[name].input_tokens + engines[name].output_tokens for name in ("north", "south", "paid")}
    models = {"north": "served-in-the-north", "south": "", "paid": "paid-large"}
    for name, number in {**Counter(first), "paid": 7}.items():
        assert sum(count for record, count in records.items() if record[0] == name) == number
        assert {record[1:] for record in records if record[0] == name} <= {
            (caller, models[name], str(tokens[name]), 200) for caller in ("alice", "bob")
        }
    assert {record[4] for record in records if record[0] not in models} == {403, 429}
    assert records.total() == 13


def recorded(clients: Clients, model: str) -> list[tuple[str, str, str, str, int]]:
    """Usage records of a service: the engine of the endpoint, the caller, the model there, tokens and status."""
    found = [each for each in clients.gateway.access_log() if each.get("service") == f"ml-team/{model}"]
    engine_of = {name: f"-{name}-" for name in ("north", "south", "paid", "claude")}
    return [
        (
            next((name for name, part in engine_of.items() if part in str(each.get("endpoint"))), ""),
            str(each.get("caller")),
            str(each.get("served_model") or ""),
            str(each.get("total_tokens")),
            int(each["status"]),
        )
        for each in found
    ]


def test_a_dead_first_priority_behind_the_cluster_gateway_is_replaced(
    gateway_cluster: GatewayCluster, clients: Clients, engines: dict[str, Engine]
) -> None:
    empty_budgets(gateway_cluster)
    for name in ("north", "south"):
        engines[name].answer = 503
    assert answered(clients, "spill-two", "alice") == ["paid"]
    for name in ("north", "south"):
        engines[name].answer = 200
    empty_budgets(gateway_cluster)
    engines["claude"].die()
    try:
        assert answered(clients, "spill-claude", "alice", path=ANTHROPIC, max_tokens=9) == ["paid"]
    finally:
        engines["claude"] = gateway_cluster.engine("claude", "claude.example")


def test_a_budget_refuses_once_its_policy_says_so(
    gateway_cluster: GatewayCluster, clients: Clients, engines: Mapping[str, Engine], fleet: ComposedFleet
) -> None:
    [budget] = fleet.resource("CallerPolicy", "spill-claude")["spec"]["budgets"]
    way = {"path": ANTHROPIC, "max_tokens": 9}
    budget["whenSpent"] = "Refuse"
    fleet.install()

    def refused() -> bool:
        # What is spent at one place is not at the other: two answers spend it here.
        found = [answered(clients, "spill-claude", "alice", **way) for _ in range(3)]
        return found[-1] == ["429"]

    gateway_cluster.wait_for("it refuses", refused)
    before = seen(engines)
    assert answered(clients, "spill-claude", "alice", **way) == ["429"]
    assert seen(engines) == before
    places = {(each["kind"], each["metadata"]["name"]) for each in fleet.built}
    assert not [name for __, name in places if "spill-claude" in name and "overflow" in name]


# Engines of the fleet, behind the gateway of their cluster
