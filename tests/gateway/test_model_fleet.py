# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Traffic through a gateway in mode Model as `build` composes it of the manifests in fleet/."""

from __future__ import annotations

import base64
import http.client
import itertools
import json
import math
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core import names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.caller_keys import NEXT_SUFFIX
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.model_gateway.mtls import internal_hostname
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.private_headers import CREDENTIALS, HOPS
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.workload_gateway import (
    GatewayChoices,
    gateway_objects,
)
from ansible_collections.modelplane.fleet.tests.kube.client import Object, Objects
from ansible_collections.modelplane.fleet.tests.traffic.certificates import Authority
from cryptography import x509
from kubernetes.dynamic.exceptions import MethodNotAllowedError, NotFoundError, ResourceNotFoundError

from .composed import HUB, SYSTEM, TEAM, ComposedFleet, UseOfBudgets, engine_service, secret
from .engines import COMPLETION_TOKENS, PROMPT_TOKENS, Engine
from .equipment import SYSTEM as ENVOY_SYSTEM
from .equipment import Answer, Gateway, GatewayCluster
from .kubelet import Pod

OPENAI, ANTHROPIC = "/v1/chat/completions", "/anthropic/v1/messages"
TOKENS = PROMPT_TOKENS + COMPLETION_TOKENS
PROMPT = "planted-prompt-of-a-caller"
QUESTION = [{"role": "user", "content": PROMPT}]
CALLERS = ("alice", "bob", "carol", "dave", "erin")
KEYS = {name: f"planted-key-of-{name}" for name in CALLERS}
PROVIDER_KEYS = {"paid": "planted-key-at-paid", "claude": "planted-key-at-claude"}
UNKNOWN = {403, 404}
"""Answers to models without a route: by the oldest of all routes, whose policy may know callers."""
# `mixed` has other endpoints too.
FLEETS_OWN = ("qwen", "each", "together", "first", "second", "third")
MODELS = ("open", "of-alice", "of-bob", "chat", "each")
SHARED = names.child_name("first", "second", "third")
DETOURS = {
    "spill": names.child_name("spill", "spill-alone", "eu", "overflow"),
    "spill-two": names.child_name(names.child_name("spill-two", "eu"), "overflow"),
    "spill-claude": names.child_name(names.child_name("spill-claude", "eu"), "overflow"),
}
"""Policies that count the budgets of services at the door of the gateway's own cluster."""
SPREAD = {"north": 7, "south": 2, "paid": 1}
REQUESTS = 10_000
FIELDS = {"caller", "service", "endpoint", "served_model", "response_model", "status", "duration_ms", "start_time"}
COUNTED = ("input_tokens", "output_tokens", "total_tokens")
CHOICES = GatewayChoices(
    model_gateway=True,
    image_registry="mirror.example/docker.io",
    image_pull_secrets=["mirror"],
    annotations={"example.org/pool": "public"},
)
"""Of the variables of the cluster, as the serving stack has them."""
IMPROBABLE = 1e-12
"""Chance that a test fails although weights are right."""


class Clients:
    """Callers of a gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway

    def ask(self, model: str, caller: str = "", *, path: str = OPENAI, **more: Any) -> Answer:
        """Ask a model of ml-team. `headers` are sent beside the caller's key; other fields are of the body."""
        headers = {**({"x-api-key": KEYS[caller]} if caller else {}), **more.pop("headers", {})}
        over = more.pop("over", None)
        body = {"model": f"ml-team/{model}", "messages": QUESTION, **more}
        return self.gateway.request(path, body, headers, over=over)

    def statuses(self, model: str, *callers: str) -> list[int]:
        return [self.ask(model, caller).status for caller in callers]

    def everywhere(self, model: str, caller: str, *expected: int, path: str = OPENAI) -> bool:
        """Return whether each proxy answers with one of these statuses."""
        connections = [self.gateway.connection(pod=pod) for pod in self.gateway.pods]
        return all(self.ask(model, caller, path=path, over=each).status in expected for each in connections)


@pytest.fixture(scope="module")
def engines(gateway_cluster: GatewayCluster) -> dict[str, Engine]:
    """By name; each reports tokens of its own."""
    made = {}
    for name in ("north", "south", "paid", "claude", "own"):
        made[name] = gateway_cluster.engine(name, f"{name}.example")
    made["south"].input_tokens, made["paid"].output_tokens = 11, 3
    return made


@pytest.fixture(scope="module")
def fleet(
    gateway_cluster: GatewayCluster, engines: Mapping[str, Engine], tmp_path_factory: pytest.TempPathFactory
) -> ComposedFleet:
    """Applied, with the gateway of the cluster, which the fleet does not know yet."""
    made = ComposedFleet(gateway_cluster, tmp_path_factory.mktemp("fleet"))
    for name in (SYSTEM, "ml-team", TEAM):
        gateway_cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    selected = {"modelplane.ai/keys": "eu"}
    metadata = {"name": "team-keys", "namespace": SYSTEM, "labels": selected}
    gateway_cluster.apply(secret(metadata, {name: KEYS[name] for name in CALLERS[:3]}))
    metadata = {"name": "more-keys", "namespace": SYSTEM, "labels": selected}
    gateway_cluster.apply(secret(metadata, {name: KEYS[name] for name in CALLERS[3:]}))
    gateway_cluster.apply(secret({"name": "paid-key", "namespace": "ml-team"}, {"token": PROVIDER_KEYS["paid"]}))
    gateway_cluster.apply(secret({"name": "claude-key", "namespace": "ml-team"}, {"apiKey": PROVIDER_KEYS["claude"]}))
    gateway_cluster.apply(engine_service(engines["own"].address))
    gateway_cluster.apply([*gateway_objects(CHOICES)])
    made.know_clients()
    made.install()
    return made


@pytest.fixture(scope="module")
def clients(gateway_cluster: GatewayCluster, fleet: ComposedFleet) -> Clients:
    """Callers, once the gateway routes all models."""
    made = Clients(gateway_cluster.gateway("inference-gateway", SYSTEM))
    # There is no way to the engine of the fleet yet. Until the proxies know keys, they answer 500.
    gateway_cluster.wait_for("keys are known", lambda: set(made.statuses(FLEETS_OWN[0], "alice")) <= UNKNOWN)
    assert {made.ask(model, "alice").status for model in FLEETS_OWN} <= UNKNOWN
    cluster_gateway = gateway_cluster.gateway("cluster-gateway", SYSTEM)
    fleet.know_cluster(cluster_gateway.address)
    fleet.install()
    for model in ("of-alice", "of-bob", "each", "first", "second", "third", "bought", "spill", "spill-two"):
        gateway_cluster.wait_for(f"{model} is refused", lambda m=model: made.everywhere(m, "dave", 403))
    for model in ("chat", "mixed", "spread", "patient", "open", "qwen", "of-alice"):
        gateway_cluster.wait_for(f"{model} answers", lambda m=model: made.everywhere(m, "alice", 200))
    for model in ("each", "together", "first", "second", "third", "bought", "all-bought", "minutely"):
        gateway_cluster.wait_for(f"{model} is limited", lambda m=model: made.everywhere(m, "alice", 200, 429))
    gateway_cluster.wait_for("nowhere is routed", lambda: made.everywhere("nowhere", "alice", 503))
    gateway_cluster.wait_for("claude answers", lambda: made.everywhere("claude", "alice", 200, path=ANTHROPIC))
    for model, policy in DETOURS.items():
        ways = {"path": ANTHROPIC if model == "spill-claude" else OPENAI}
        gateway_cluster.wait_for(
            f"{model} is counted at the door",
            lambda m=model, p=policy, w=ways: all(
                made.ask(m, "alice", over=made.gateway.connection(pod=pod), **w).status == 200
                and counters(gateway_cluster, p)
                and not empty_budgets(gateway_cluster)
                for pod in made.gateway.pods
            ),
        )
    return made


@pytest.fixture(autouse=True)
def healthy(engines: Mapping[str, Engine]) -> Iterator[None]:
    yield
    for engine in engines.values():
        engine.answer, engine.hangs, engine.pause = 200, False, 0.0
        engine.released.set()


@pytest.mark.usefixtures("clients")
def test_the_variables_of_a_cluster_hold_for_its_gateways(gateway_cluster: GatewayCluster) -> None:
    for name in ("inference-gateway", "cluster-gateway"):
        owned = f"gateway.envoyproxy.io/owning-gateway-name={name}"
        [deployment] = gateway_cluster.cluster.objects.list("apps/v1", "Deployment", ENVOY_SYSTEM, owned)
        pod = deployment["spec"]["template"]["spec"]
        assert pod["imagePullSecrets"] == [{"name": "mirror"}]
        assert pod["dnsConfig"] == {"options": [{"name": "ndots", "value": "1"}]}
        assert len(pod["topologySpreadConstraints"]) == 2
        [image] = [each["image"] for each in pod["containers"] if each["name"] == "envoy"]
        assert image.startswith("mirror.example/docker.io/envoyproxy/envoy:")
        [service] = gateway_cluster.cluster.objects.list("v1", "Service", ENVOY_SYSTEM, owned)
        assert (service["metadata"]["name"], service["spec"]["type"]) == (name, "LoadBalancer")
        assert service["metadata"]["annotations"]["example.org/pool"] == "public"


def seen(engines: Mapping[str, Engine]) -> Counter[str]:
    return Counter({name: len(engine.seen) for name, engine in engines.items()})


# Who asks


def test_health_needs_no_key_and_reaches_no_engine(clients: Clients, engines: Mapping[str, Engine]) -> None:
    before = seen(engines)
    answer = clients.gateway.request("/healthz")
    assert (answer.status, answer.json) == (200, {"status": "ok"})
    # A route without keys is no way to a model.
    for path in (
        "/healthz",
        "/healthz?",
        "/healthz/../v1/chat/completions",
        "/healthz/",
        "/healthz/v1/chat/completions",
    ):
        clients.ask("open", path=path, headers={"x-ai-eg-model": "ml-team/open", "x-modelplane-caller": "alice"})
    assert seen(engines) == before


@pytest.mark.parametrize("path", [OPENAI, ANTHROPIC, "/v1/models"])
@pytest.mark.parametrize("key", [{}, {"x-api-key": "wrong"}, {"authorization": "Bearer wrong"}, {"authorization": "x"}])
def test_without_a_right_key_there_is_no_answer(
    clients: Clients, engines: Mapping[str, Engine], path: str, key: dict[str, str]
) -> None:
    """Whichever route a request matches first, and whoever it says that it is of."""
    before = seen(engines)
    for forged in ("", *MODELS, "none"):
        claimed = {"x-ai-eg-model": f"ml-team/{forged}"} if forged else {}
        for model in MODELS:
            headers = {**key, **claimed, "x-modelplane-caller": "alice"}
            assert clients.ask(model, path=path, headers=headers).status == 401
    assert seen(engines) == before


@pytest.mark.parametrize(
    ("caller", "allowed"),
    [
        ("alice", {"open", "of-alice", "chat", "each"}),
        ("bob", {"open", "of-bob", "chat", "each"}),
        ("carol", {"open", "chat"}),
    ],
)
def test_rights_are_those_of_the_model_in_the_body(
    gateway_cluster: GatewayCluster, clients: Clients, caller: str, allowed: set[str]
) -> None:
    """And of the caller whose key it is, whatever headers say."""
    empty_budgets(gateway_cluster)
    for forged, claimed in itertools.product(("", *MODELS), CALLERS[:2]):
        headers = {"x-modelplane-caller": claimed, **({"x-ai-eg-model": f"ml-team/{forged}"} if forged else {})}
        found = {model: clients.ask(model, caller, headers=headers).status for model in MODELS if model != "each"}
        assert found == {model: 200 if model in allowed else 403 for model in found}
        status = clients.ask("each", caller, headers=headers).status
        assert status in ({200, 429} if "each" in allowed else {403})


def test_keys_are_taken_from_both_headers(clients: Clients, engines: Mapping[str, Engine]) -> None:
    for headers in ({"x-api-key": KEYS["alice"]}, {"authorization": f"Bearer {KEYS['alice']}"}):
        assert clients.ask("of-alice", headers=headers).status == 200
        assert not {"x-api-key", "authorization"} & engines["south"].seen[-1].headers.keys()


# What they ask for


def test_the_model_leads_to_its_endpoint_and_gets_the_name_that_it_has_there(
    clients: Clients, engines: Mapping[str, Engine]
) -> None:
    assert (
        clients.ask("chat", "alice", headers={"x-ai-eg-model": "ml-team/open"}).json["model"] == "served-in-the-north"
    )
    north = engines["north"].seen[-1]
    assert (north.path, north.headers["host"]) == (OPENAI, "north.example")
    assert (north.body["model"], north.body["messages"]) == ("served-in-the-north", QUESTION)
    assert clients.ask("open", "alice").json["choices"][0]["message"]["content"] == "from south"
    south = engines["south"].seen[-1]
    assert (south.path, south.body["model"]) == ("/south/v1/chat/completions", "ml-team/open")


@pytest.mark.parametrize("caller", CALLERS[:4])
def test_an_unknown_model_is_not_found(clients: Clients, engines: Mapping[str, Engine], caller: str) -> None:
    before = seen(engines)
    assert clients.ask("none", caller, headers={"x-ai-eg-model": "ml-team/open"}).status in UNKNOWN
    assert seen(engines) == before


def test_callers_of_anthropic_reach_both_schemas(clients: Clients, engines: Mapping[str, Engine]) -> None:
    foreign = clients.ask("claude", "alice", path=ANTHROPIC, max_tokens=9).json
    assert (foreign["model"], foreign["content"][0]["text"]) == ("claude-large", "from claude")
    assert engines["claude"].seen[-1].path == "/v1/messages"
    translated = clients.ask("chat", "alice", path=ANTHROPIC, max_tokens=9).json
    assert (translated["type"], translated["content"][0]["text"]) == ("message", "from north")
    assert engines["north"].seen[-1].path == OPENAI


def test_providers_get_their_key_and_no_callers_name(clients: Clients, engines: Mapping[str, Engine]) -> None:
    engines["north"].answer = engines["south"].answer = 429
    private = dict.fromkeys((*CREDENTIALS, "forwarded", "x-forwarded-for", "x-real-ip", "x-request-id"), "10.9.8.7")
    assert clients.ask("chat", "alice", headers=private).status == 200
    assert clients.ask("claude", "alice", path=ANTHROPIC, headers=private).status == 200
    keys = {
        "paid": {"authorization": f"Bearer {PROVIDER_KEYS['paid']}"},
        "claude": {"x-api-key": PROVIDER_KEYS["claude"]},
        "north": {},
        "south": {},
    }
    for name, expected in keys.items():
        headers = engines[name].seen[-1].headers
        assert {key: headers[key] for key in ("authorization", "x-api-key") if key in headers} == expected
        assert not headers.keys() & {"x-modelplane-caller", "x-envoy-external-address", *CREDENTIALS, *HOPS}
        assert "10.9.8.7" not in headers.values()


def test_no_attempt_carries_what_an_earlier_one_was_given(clients: Clients, engines: Mapping[str, Engine]) -> None:
    """The key of a provider reaches no other backend, and the caller's name those of the fleet, whatever was before."""
    engines["paid"].answer = engines["north"].answer = 429
    assert clients.ask("mixed", "alice").json["choices"][0]["message"]["content"] == "from own"
    paid, north, own = (engines[name].seen[-1].headers for name in ("paid", "north", "own"))
    assert paid["authorization"] == f"Bearer {PROVIDER_KEYS['paid']}"
    assert not {"authorization", "x-api-key"} & (north.keys() | own.keys())
    assert not {"x-modelplane-caller"} & (paid.keys() | north.keys())
    assert (own["x-modelplane-caller"], own["x-ai-eg-model"]) == ("alice", "ml-team/mixed")


# Where they are answered


@pytest.mark.parametrize("status", [429, 503])
def test_endpoints_that_refuse_are_replaced_by_those_of_all_later_priorities(
    clients: Clients, engines: Mapping[str, Engine], status: int
) -> None:
    engines["north"].answer = engines["south"].answer = status
    before = seen(engines)
    assert clients.ask("chat", "alice").json["model"] == "paid-large"
    assert seen(engines) - before == {"north": 2, "south": 2, "paid": 1}
    engines["paid"].answer = status
    assert clients.ask("chat", "alice").status == status
    assert seen(engines) - before == {"north": 4, "south": 4, "paid": 3}


def test_a_dead_endpoint_is_replaced(
    gateway_cluster: GatewayCluster, clients: Clients, engines: dict[str, Engine]
) -> None:
    engines["north"].die()
    try:
        assert clients.ask("chat", "alice").json["choices"][0]["message"]["content"] == "from south"
        assert b"from " in clients.ask("chat", "alice", stream=True).body
    finally:
        engines["north"] = gateway_cluster.engine("north", "north.example")


def test_a_stream_is_cut_when_it_is_silent_and_repeated_before(clients: Clients, engines: Mapping[str, Engine]) -> None:
    """The engine goes on when this test ends: what is seen before is of the gateway."""
    south = engines["south"]
    south.released.clear()
    south.pause = 60.0
    connection = clients.gateway.connection()
    body = json.dumps({"model": "ml-team/patient", "messages": QUESTION, "stream": True})
    connection.request("POST", OPENAI, body, {"x-api-key": KEYS["alice"]})
    answer = connection.getresponse()
    assert (answer.status, b"from " in answer.readline()) == (200, True)
    with pytest.raises(http.client.IncompleteRead):
        answer.read()
    south.hangs = True
    before = seen(engines)
    assert clients.ask("patient", "alice", stream=True).body.endswith(b"data: [DONE]\n\n")
    assert seen(engines) - before == {"south": 2, "paid": 1}


# How much


def redis(gateway_cluster: GatewayCluster, *words: str) -> list[str]:
    """Ask the Redis of the rate-limit service."""
    [pod] = gateway_cluster.kubelet.running(ENVOY_SYSTEM, {"app": "redis"})
    with gateway_cluster.network.connect(pod.address, 6379) as connection, connection.makefile("rb") as answers:
        connection.sendall("".join((f"*{len(words)}\r\n", *(f"${len(w)}\r\n{w}\r\n" for w in words))).encode())

        def read() -> list[str]:
            line = answers.readline().decode().strip()
            assert line[0] in "*$:+", line
            if line[0] == "*":
                return [each for _ in range(int(line[1:])) for each in read()]
            return [answers.readline().decode().strip()] if line[0] == "$" and line != "$-1" else [line[1:]]

        return read()


def counters(gateway_cluster: GatewayCluster, subject: str) -> dict[str, int]:
    """Counters whose name has a subject: the name of a route, or of a policy for several."""
    found = {}
    for key in redis(gateway_cluster, "KEYS", f"*/{subject}/*"):
        found[key] = int(redis(gateway_cluster, "GET", key)[0])
    return found


def counted(gateway_cluster: GatewayCluster, subject: str, *expected: int) -> None:
    """Wait until the counters are these: what an answer cost is counted when it has ended, beside it."""

    def reached() -> bool:
        return sorted(counters(gateway_cluster, subject).values()) == sorted(expected)

    try:
        gateway_cluster.wait_for(f"{subject} has counted", reached, seconds=30)
    except TimeoutError:
        pytest.fail(f"expected {sorted(expected)}, got {counters(gateway_cluster, subject)}")


def empty_budgets(gateway_cluster: GatewayCluster) -> None:
    """End all windows: what the end of their time does, or the next window, as counters are named after it."""
    redis(gateway_cluster, "FLUSHALL")


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
    # Streams and the other door count too.
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
        "team daily": {"*": 0},
        "together daily": {"*": 0},
    }
    gateway_cluster.wait_for("the rate-limit service answers", lambda: use() == unused)
    assert clients.statuses("each", "alice") == [200]
    assert clients.statuses("together", "alice", "bob") == [200, 200]
    assert clients.statuses("first", "alice", "alice") == [200, 200]
    assert clients.statuses("second", "bob") == [200]
    used = {
        **unused,
        "each hourly": {"alice": TOKENS, "bob": 0},
        "pair monthly": {"alice": 2 * COMPLETION_TOKENS, "bob": COMPLETION_TOKENS},
        "team daily": {"*": 1},
        "together daily": {"*": 2},
    }
    # What answers cost is counted beside them.
    gateway_cluster.wait_for("all is counted", lambda: use() == used, seconds=30)
    assert use() == used
    assert clients.statuses("each", "alice") == [200]
    counted(gateway_cluster, "each", 0, 0, 0, 2 * TOKENS)
    assert clients.statuses("each", "alice") == [429]
    assert use() == {**used, "each hourly": {"alice": 20, "bob": 0}}


@dataclass(frozen=True)
class Said:
    """Error of a refusal, in the format of both doors."""

    status: int
    type: str
    code: str

    @classmethod
    def by(cls, answer: Answer) -> Said:
        body = answer.json
        assert body.keys() == {"type", "error"}
        assert body["type"] == "error"
        assert body["error"].keys() == {"type", "code", "message", "param"}
        assert answer.headers["content-type"] == "application/json"
        return cls(answer.status, body["error"]["type"], body["error"]["code"])


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
    assert answered(clients, "spill-alone", "alice") == ["429"]
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
    """It gets its key behind the door, and the name of the caller, by which its tokens are counted."""
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


def test_a_dead_first_priority_behind_the_door_is_replaced(
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


@pytest.fixture(scope="module")
def door(gateway_cluster: GatewayCluster, clients: Clients) -> Gateway:
    assert clients
    return gateway_cluster.gateway("cluster-gateway", SYSTEM)


def test_an_engine_of_the_fleet_gets_the_name_of_who_asks(clients: Clients, engines: Mapping[str, Engine]) -> None:
    forged = {"x-modelplane-caller": "bob", "x-ai-eg-model": "ml-team/open"}
    assert clients.ask("qwen", "alice", headers=forged).json["choices"][0]["message"]["content"] == "from own"
    got = engines["own"].seen[-1]
    assert (got.path, got.body["model"]) == (OPENAI, "ml-team/qwen")
    assert (got.headers["x-modelplane-caller"], got.headers["x-ai-eg-model"]) == ("alice", "ml-team/qwen")
    assert not {"authorization", "x-api-key"} & got.headers.keys()


def trusting(authority: Authority, *certificate: str) -> ssl.SSLContext:
    made = ssl.create_default_context(cadata=authority.pem)
    made.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if certificate:
        made.load_cert_chain(*certificate)
    return made


def test_the_gateway_of_a_cluster_refuses_who_has_no_certificate_of_the_gateways(
    fleet: ComposedFleet, door: Gateway, engines: Mapping[str, Engine], tmp_path: Path
) -> None:
    host, path = internal_hostname(HUB), engines_path(fleet)
    body = {"model": "ml-team/qwen", "messages": QUESTION}
    before = seen(engines)
    other = Authority("other", tmp_path)
    # The way of an engine, and that of a budget that overflows.
    counted_one = {"x-modelplane-service": "ml-team/spill", "x-modelplane-caller": "alice"}
    for context in (trusting(fleet.servers), trusting(fleet.servers, *other.issue("inference-gateway-eu"))):
        for way in (path, OPENAI):
            with pytest.raises((OSError, http.client.HTTPException)):
                door.request(way, body, counted_one, over=door.connection(443, context, host=host))
    assert not door.listens(80)
    assert seen(engines) == before
    known = trusting(fleet.servers, *fleet.clients.issue("another-gateway"))
    assert door.request(path, body, over=door.connection(443, known, host=host)).status == 200
    # An endpoint that it does not know is as one that is down.
    assert door.request(OPENAI, body, counted_one, over=door.connection(443, known, host=host)).status == 503
    # The name is in its certificate, and no other.
    with pytest.raises(ssl.SSLCertVerificationError):
        door.request(path, body, over=door.connection(443, known, host="edge.example"))


def test_no_request_gets_past_policies_to_an_engine(
    clients: Clients, fleet: ComposedFleet, engines: Mapping[str, Engine]
) -> None:
    """By the path that the cluster's gateway has for it, at the gateway of models on the same cluster."""
    before = seen(engines)
    assert clients.ask("qwen", path=engines_path(fleet)).status == 401
    assert clients.ask("of-bob", "alice", path=engines_path(fleet)).status in UNKNOWN
    assert seen(engines) == before


def engines_path(fleet: ComposedFleet) -> str:
    """Return the path at which the gateway of the cluster has the engine."""
    [route] = [each for each in fleet.built if each["kind"] == "HTTPRoute" and names.REPLICA_LABEL in labels(each)]
    return str(route["spec"]["rules"][0]["matches"][0]["path"]["value"]).rstrip("/") + OPENAI


def labels(value: Object) -> Mapping[str, str]:
    return value["metadata"].get("labels") or {}


class Load:
    """Requests one after the other by several callers at once, from its beginning to its end."""

    def __init__(self, ask: Callable[[http.client.HTTPConnection], Answer], gateway: Gateway, workers: int = 4) -> None:
        self.statuses: list[int] = []
        self._ask, self._gateway, self._ended = ask, gateway, threading.Event()
        self._pool = ThreadPoolExecutor(workers)
        self._workers = [self._pool.submit(self._work) for _ in range(workers)]

    def __enter__(self) -> Load:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._pool.shutdown()
        for each in self._workers:
            each.result()

    def more(self, cluster: GatewayCluster, number: int = 200) -> None:
        """Wait for so many more answers."""
        goal = len(self.statuses) + number
        cluster.wait_for(f"{number} more answers", lambda: len(self.statuses) >= goal or self._failed())

    def _failed(self) -> bool:
        return any(each.done() for each in self._workers)

    def _work(self) -> None:
        connection = self._gateway.connection()
        while not self._ended.is_set():
            self.statuses.append(self._ask(connection).status)
        connection.close()


def certificates(pod: Pod) -> set[int]:
    """Serial numbers of the certificates that a proxy shows to others, as its administration says."""

    def ask() -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", 19000, timeout=10)
        connection.request("GET", "/certs")
        return json.loads(connection.getresponse().read())

    shown = pod.inside(ask)["certificates"]
    return {int(each["serial_number"], 16) for entry in shown for each in entry.get("cert_chain") or ()}


def serial(pem: str) -> int:
    return x509.load_pem_x509_certificate(pem.encode()).serial_number


def test_certificates_are_renewed_while_requests_go_on(
    gateway_cluster: GatewayCluster, clients: Clients, fleet: ComposedFleet, door: Gateway
) -> None:
    found = {each["spec"]["secretName"]: each for each in fleet.built if each["kind"] == "Certificate"}
    with Load(lambda connection: clients.ask("qwen", "carol", over=connection), clients.gateway) as load:
        load.more(gateway_cluster)
        for name, gateway in (("cluster-gateway", door), ("inference-gateway-client", clients.gateway)):
            new = serial(fleet.renew(found[name]))
            gateway_cluster.wait_for(
                f"the new certificate in {name} is used",
                lambda n=new, g=gateway: all(n in certificates(pod) for pod in g.pods),
            )
            load.more(gateway_cluster)
    assert Counter(load.statuses) == {200: len(load.statuses)}
    assert len(load.statuses) >= 600


# How often


@dataclass(frozen=True)
class Work:
    """Answers of the service `spread` to erin, and what each engine counted of them."""

    statuses: Counter[int]
    seen: Counter[str]
    tokens: Mapping[str, tuple[int, int]]


@pytest.fixture(scope="module")
def work(gateway_cluster: GatewayCluster, clients: Clients, engines: Mapping[str, Engine]) -> Work:
    """REQUESTS requests, some of them streams and some by the door of Anthropic, while keys of others change."""
    before = {name: (len(e.seen), e.prompt_tokens, e.completion_tokens) for name, e in engines.items()}
    workers = 8

    def ask(worker: int) -> Counter[int]:
        connection = clients.gateway.connection()
        found: Counter[int] = Counter()
        for number in range(REQUESTS // workers):
            more: dict[str, Any] = {"stream": number % 40 == worker, "path": ANTHROPIC if number % 50 == 0 else OPENAI}
            found[clients.ask("spread", "erin", over=connection, **more).status] += 1
            if worker == 0 and number == 100:
                change = {"stringData": {"frank": "planted-key-of-frank"}}
                gateway_cluster.cluster.objects.patch("v1", "Secret", "inference-gateway-callers", change, SYSTEM)
        connection.close()
        return found

    with ThreadPoolExecutor(workers) as pool:
        statuses = sum(pool.map(ask, range(workers)), Counter[int]())
    after = {name: (len(e.seen), e.prompt_tokens, e.completion_tokens) for name, e in engines.items()}
    spent = {name: [now - then for now, then in zip(after[name], before[name], strict=True)] for name in SPREAD}
    return Work(statuses, Counter({n: s[0] for n, s in spent.items()}), {n: (s[1], s[2]) for n, s in spent.items()})


def test_requests_are_answered_while_keys_change(gateway_cluster: GatewayCluster, clients: Clients, work: Work) -> None:
    assert work.statuses == {200: REQUESTS}
    frank = {"x-api-key": "planted-key-of-frank"}
    gateway_cluster.wait_for("frank's key works", lambda: clients.ask("open", headers=frank).status == 200)


def test_endpoints_get_requests_by_their_weights(work: Work) -> None:
    """Pearson's chi-square for two degrees of freedom, whose distribution is exp(-x/2)."""
    assert work.seen.total() == REQUESTS
    expected = {name: REQUESTS * weight / sum(SPREAD.values()) for name, weight in SPREAD.items()}
    distance = sum((work.seen[name] - number) ** 2 / number for name, number in expected.items())
    assert math.exp(-distance / 2) > IMPROBABLE, work.seen


def test_usage_records_have_what_engines_counted_and_no_prompt(
    gateway_cluster: GatewayCluster, clients: Clients, work: Work
) -> None:
    def erins() -> list[Mapping[str, Any]] | None:
        found = [each for each in clients.gateway.access_log() if each.get("caller") == "erin"]
        return found if len(found) >= REQUESTS else None

    records = gateway_cluster.wait_for("all records are written", erins)
    assert len(records) == REQUESTS
    assert {(each["service"], each["status"]) for each in records} == {("ml-team/spread", 200)}
    assert all(each.keys() == FIELDS | {*COUNTED} for each in records)
    for name in SPREAD:
        own = [each for each in records if f"-{name}-" in each["endpoint"]]
        assert len(own) == work.seen[name]
        counted = [sum(int(each[field]) for each in own) for field in COUNTED]
        assert counted == [*work.tokens[name], sum(work.tokens[name])]
    logs = "".join(pod.log("envoy") for pod in clients.gateway.pods)
    assert "ml-team/spread" in logs
    assert PROMPT not in logs
    assert "from north" not in logs


def test_keys_are_in_secrets_alone(gateway_cluster: GatewayCluster, fleet: ComposedFleet, clients: Clients) -> None:
    assert clients
    planted = {**KEYS, **PROVIDER_KEYS}.values()
    texts = {str(path): path.read_text(encoding="utf-8") for path in fleet.folder.rglob("*") if path.is_file()}
    for pod in list(gateway_cluster.kubelet.pods.values()):
        texts |= {f"log of {pod.name}/{name}": pod.log(name) for name in pod.processes}
    places: dict[str, set[str]] = {}
    objects = gateway_cluster.cluster.objects
    for api_version, kind in sorted(objects.kinds()):
        for value in listed(objects, api_version, kind):
            place = f"{value['metadata'].get('namespace', '')}/{value['metadata']['name']}"
            is_secret = (api_version, kind) == ("v1", "Secret")
            data = value.pop("data", None) or {} if is_secret else {}
            for key in {base64.b64decode(each).decode(errors="replace") for each in data.values()} & {*planted}:
                places.setdefault(key, set()).add(place)
            texts[f"{kind} {place}"] = json.dumps(value)
    assert len(texts) > 300
    for where, text in texts.items():
        found = [key for key in planted if key in text or base64.b64encode(key.encode()).decode() in text]
        assert not found, where
    for name, key in KEYS.items():
        source = "team-keys" if name in CALLERS[:3] else "more-keys"
        assert places[key] == {f"{SYSTEM}/{source}", f"{SYSTEM}/inference-gateway-callers"}
    for name, key in PROVIDER_KEYS.items():
        source = f"ml-team/{name}-key"
        assert source in places[key]
        assert {each.partition("/")[0] for each in places[key] - {source}} == {TEAM}


def listed(objects: Objects, api_version: str, kind: str) -> list[Object]:
    """All objects of a kind; none of one that cannot be listed."""
    try:
        return objects.list(api_version, kind)
    except (MethodNotAllowedError, NotFoundError, ResourceNotFoundError):
        return []


def test_a_key_is_rotated_while_requests_go_on(gateway_cluster: GatewayCluster, clients: Clients) -> None:
    """Both keys are valid in between, and have the same rights."""
    keys = gateway_cluster.cluster.objects
    name, entry, new = "inference-gateway-callers", f"alice{NEXT_SUFFIX}", "planted-new-key-of-alice"
    used = [KEYS["alice"]]

    def ask(connection: http.client.HTTPConnection) -> Answer:
        return clients.ask("of-alice", headers={"x-api-key": used[0]}, over=connection)

    def everywhere(status: int, key: str) -> bool:
        body = {"model": "ml-team/of-alice", "messages": QUESTION}
        return clients.gateway.everywhere(status, OPENAI, body, {"x-api-key": key})

    with Load(ask, clients.gateway) as load:
        load.more(gateway_cluster)
        keys.patch("v1", "Secret", name, {"stringData": {entry: new}}, SYSTEM)
        gateway_cluster.wait_for("the new key is valid", lambda: everywhere(200, new))
        load.more(gateway_cluster)
        used[0] = new
        load.more(gateway_cluster)
        keys.patch("v1", "Secret", name, {"stringData": {"alice": new}, "data": {entry: None}}, SYSTEM)
        gateway_cluster.wait_for("the old key is not valid", lambda: everywhere(401, KEYS["alice"]))
        load.more(gateway_cluster)
    assert Counter(load.statuses) == {200: len(load.statuses)}


# Last, as the models move to another port


def test_with_certificates_keys_travel_by_tls_alone(
    gateway_cluster: GatewayCluster, fleet: ComposedFleet, clients: Clients, tmp_path: Path
) -> None:
    edge = Authority("edge", tmp_path)
    issued, key = (Path(each).read_text(encoding="utf-8") for each in edge.issue("models.example"))
    data = {"tls.crt": issued, "tls.key": key}
    gateway_cluster.apply(secret({"name": "models-tls", "namespace": SYSTEM}, data, "kubernetes.io/tls"))
    fleet.resource("InferenceGateway", "eu")["spec"]["tls"] = {"certificateRefs": [{"name": "models-tls"}]}
    fleet.install()
    gateway, context = clients.gateway, trusting(edge)

    def ask(caller: str) -> int:
        over = gateway.connection(443, context, host="models.example")
        return clients.ask("open", caller, over=over).status

    def served() -> bool:
        try:
            return ask("alice") == 200
        except (OSError, KeyError):
            return False

    gateway_cluster.wait_for("models are served by TLS", served)
    gateway_cluster.wait_for("the plain port redirects", lambda: clients.ask("open", "alice").status == 301)
    over = gateway.connection(443, context, host="models.example")
    for keyless in (clients.ask("open", over=over), clients.ask("open")):
        assert Said.by(keyless).status == 401
    answer = clients.ask("open", "alice")
    assert (answer.status, answer.headers["location"].partition(":")[0]) == (301, "https")
    assert gateway.request("/healthz").json == {"status": "ok"}
