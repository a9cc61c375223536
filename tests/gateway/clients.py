# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Callers of the gateway in mode Model that `build` composes of the manifests in fleet/, and what they know."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core import names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.workload_gateway import (
    GatewayChoices,
)

from .engines import COMPLETION_TOKENS, PROMPT_TOKENS, Engine
from .equipment import SYSTEM as ENVOY_SYSTEM
from .equipment import Answer, Gateway, GatewayCluster

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
SHARED = names.joined_name("first", "second", "third")
DETOURS = {
    "spill": names.child_name(names.joined_name("spill", "spill-alone", "eu"), "overflow"),
    "spill-two": names.child_name(names.joined_name("spill-two", "eu"), "overflow"),
    "spill-claude": names.child_name(names.joined_name("spill-claude", "eu"), "overflow"),
    "spill-ample": names.child_name(names.joined_name("spill-ample", "eu"), "overflow"),
}
"""Policies that count the budgets of services at the cluster gateway of the gateway's own cluster."""
SPREAD = {"north": 7, "south": 2, "paid": 1}
REQUESTS = 10_000
FIELDS = {
    "caller",
    "subject",
    "service",
    "endpoint",
    "served_model",
    "response_model",
    "status",
    "duration_ms",
    "start_time",
}
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


def seen(engines: Mapping[str, Engine]) -> Counter[str]:
    return Counter({name: len(engine.seen) for name, engine in engines.items()})


# Who asks


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


@dataclass(frozen=True)
class Said:
    """Error of a refusal, in the format of both APIs."""

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
