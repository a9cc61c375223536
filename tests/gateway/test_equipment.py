# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The equipment itself: manifests written by hand, real programs, and doubles of engines."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.stack import Choices, plan
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.route_policies import (
    conflict,
    contested,
    trim_policy,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Objects
from ansible_collections.modelplane.fleet.tests.kube.certificates import Authority
from ansible_collections.modelplane.fleet.tests.kube.client import documents
from ansible_collections.modelplane.fleet.tests.traffic.certificates import Authority as NamedAuthority

from .engines import COMPLETION_TOKENS, PROMPT_TOKENS, Engine
from .equipment import SYSTEM, VALUES, Answer, Gateway, GatewayCluster

MANIFESTS = Path(__file__).with_name("manifests.yaml")
STACK = Path(__file__).parents[2] / "roles/serving_stack/defaults/main.yml"
TEAM = "mp-team"
ALICE, BOB, CAROL = ({"x-api-key": f"key-of-{name}"} for name in ("alice", "bob", "carol"))
QUESTION = [{"role": "user", "content": "Hello"}]
TOKENS = PROMPT_TOKENS + COMPLETION_TOKENS
API, ENVOY, AI = "gateway.networking.k8s.io/v1", "gateway.envoyproxy.io/v1alpha1", "aigateway.envoyproxy.io/v1beta1"
BACKEND = {"group": "gateway.envoyproxy.io", "kind": "Backend"}
TRUSTED = [{"kind": "ConfigMap", "group": "", "name": "fleet-ca"}]
EDGE = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "edge"}


def test_configuration_is_exchanged_as_in_the_serving_stack() -> None:
    components = yaml.safe_load(STACK.read_text(encoding="utf-8"))["serving_stack_components"]
    [envoy] = [each for each in plan(components, Choices(gateway_needs=["gateway"])) if each["key"] == "envoy-gateway"]
    config = envoy["values"]["config"]["envoyGateway"]["extensionManager"]
    here = VALUES["config"]["envoyGateway"]["extensionManager"]
    # InferencePools are no backends here.
    assert here == {key: value for key, value in config.items() if key != "backendResources"}


@pytest.fixture(scope="module")
def east(gateway_cluster: GatewayCluster) -> Engine:
    return gateway_cluster.engine("east", "east.example")


@pytest.fixture(scope="module")
def west(gateway_cluster: GatewayCluster) -> Engine:
    return gateway_cluster.engine("west", "west.example")


@pytest.fixture(scope="module")
def provider(gateway_cluster: GatewayCluster) -> Engine:
    return gateway_cluster.engine("provider", "provider.example")


@pytest.fixture(scope="module")
def engines(east: Engine, west: Engine, provider: Engine) -> list[Engine]:
    return [east, west, provider]


@pytest.fixture(scope="module")
def gateway(gateway_cluster: GatewayCluster, engines: list[Engine]) -> Gateway:
    """The gateway of manifests.yaml, once it routes all models."""
    assert engines
    gateway_cluster.apply(documents(MANIFESTS))
    made = gateway_cluster.gateway("inference-gateway", "modelplane-system")
    for model in ("team/chat", "team/limited"):
        body: dict[str, Any] = {"model": model, "messages": []}
        # No key of a caller whose budget or record a test counts.
        path = "/v1/chat/completions"
        gateway_cluster.wait_for(f"{model} is routed", lambda b=body, p=path: made.everywhere(200, p, b, CAROL))
    anthropic = {"model": "team/foreign", "messages": []}
    path = "/anthropic/v1/messages"
    gateway_cluster.wait_for("team/foreign is routed", lambda: made.everywhere(200, path, anthropic, CAROL))
    return made


@pytest.fixture(autouse=True)
def healthy(east: Engine, west: Engine) -> Iterator[None]:
    yield
    for engine in (east, west):
        engine.answer, engine.hangs = 200, False


def _asked(gateway: Gateway, body: dict[str, Any], headers: dict[str, str]) -> Answer:
    return gateway.request("/v1/chat/completions", body, headers)


def ask(gateway: Gateway, model: str, headers: dict[str, str], **more: Any) -> Answer:
    return _asked(gateway, {"model": model, "messages": QUESTION, **more}, headers)


def events(answer: Answer) -> list[dict[str, Any]]:
    lines = answer.body.decode().splitlines()
    data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    return [json.loads(each) for each in data if each != "[DONE]"]


def test_the_model_of_the_body_routes_and_is_rewritten(gateway: Gateway, east: Engine) -> None:
    forged = {"x-ai-eg-model": "team/limited", "x-modelplane-caller": "carol"}
    assert ask(gateway, "team/chat", {**ALICE, **forged}).json["choices"][0]["message"]["content"] == "from east"
    seen = east.seen[-1]
    assert (seen.path, seen.headers["host"]) == ("/mp-team/east/v1/chat/completions", "east.example")
    assert (seen.body["model"], seen.body["messages"]) == ("team/deployment-east", QUESTION)
    assert (seen.headers["x-ai-eg-model"], seen.headers["x-modelplane-caller"]) == ("team/chat", "alice")


def test_an_unknown_model_is_not_found(gateway: Gateway) -> None:
    assert ask(gateway, "team/none", ALICE).status == 404


@pytest.mark.parametrize("headers", [{}, {"x-api-key": "wrong"}, {"authorization": "Bearer wrong"}])
def test_without_a_right_key_no_engine_is_asked(gateway: Gateway, east: Engine, headers: dict[str, str]) -> None:
    before = len(east.seen)
    assert ask(gateway, "team/chat", headers).status == 401
    assert len(east.seen) == before


def test_a_key_is_taken_from_both_headers_and_goes_no_further(gateway: Gateway, east: Engine) -> None:
    for headers in (ALICE, {"authorization": "Bearer key-of-alice"}):
        assert ask(gateway, "team/chat", headers).status == 200
        assert not {"authorization", "x-api-key"} & east.seen[-1].headers.keys()


@pytest.mark.parametrize("status", [429, 503])
def test_another_engine_answers_where_the_first_refuses(
    gateway: Gateway, east: Engine, west: Engine, status: int
) -> None:
    east.answer = status
    before = len(east.seen)
    answer = ask(gateway, "team/chat", ALICE)
    assert (answer.status, answer.json["model"]) == (200, "team/deployment-west")
    assert (west.seen[-1].path, west.seen[-1].headers["host"]) == ("/mp-team/west/v1/chat/completions", "west.example")
    assert len(east.seen) == before + 2


def test_a_stream_reports_usage_to_the_gateway(gateway: Gateway, east: Engine) -> None:
    answer = ask(gateway, "team/chat", BOB, stream=True)
    assert answer.headers["content-type"] == "text/event-stream"
    assert east.seen[-1].body["stream_options"] == {"include_usage": True}
    assert events(answer)[-1]["usage"]["total_tokens"] == TOKENS


def test_a_stream_comes_as_it_is_made(gateway: Gateway, east: Engine) -> None:
    """The engine waits after each event until it is released, and the first event is there by then."""
    east.pause = 60.0
    east.released.clear()
    try:
        connection = gateway.connection()
        body = json.dumps({"model": "team/chat", "messages": QUESTION, "stream": True})
        connection.request("POST", "/v1/chat/completions", body, ALICE)
        answer = connection.getresponse()
        assert b"from " in answer.readline()
        east.released.set()
        assert answer.read().endswith(b"data: [DONE]\n\n")
    finally:
        east.pause = 0.0
        east.released.set()


def test_a_budget_of_tokens_is_refused_once_it_is_spent(gateway: Gateway) -> None:
    """20 tokens an hour at 12 an answer: what was begun within them is served."""
    answers = [ask(gateway, "team/limited", ALICE) for _ in range(3)]
    assert [each.status for each in answers] == [200, 200, 429]
    assert [each.headers["x-ratelimit-remaining"] for each in answers] == ["20", str(20 - TOKENS), "0"]
    assert ask(gateway, "team/limited", BOB).status == 200
    assert ask(gateway, "team/chat", ALICE).status == 200


def test_without_redis_budgets_are_refused_and_nothing_else(gateway_cluster: GatewayCluster, gateway: Gateway) -> None:
    """`failClosed` of VALUES: by default Envoy would let requests through."""
    redis = gateway_cluster.kubelet.running(SYSTEM, {"app": "redis"})[0].processes["redis"]
    redis.pause()
    try:
        assert ask(gateway, "team/limited", CAROL).status == 500
        assert ask(gateway, "team/chat", CAROL).status == 200
    finally:
        redis.resume()
    gateway_cluster.wait_for(
        "budgets are counted again", lambda: ask(gateway, "team/limited", CAROL).status in (200, 429)
    )


def test_a_provider_gets_its_own_key_and_no_callers_name(gateway: Gateway, provider: Engine) -> None:
    body = {"model": "team/foreign", "max_tokens": 9, "messages": QUESTION}
    answer = gateway.request("/anthropic/v1/messages", body, ALICE)
    assert answer.json["content"] == [{"type": "text", "text": "from provider"}]
    seen = provider.seen[-1]
    assert (seen.path, seen.body) == ("/v1/messages", {**body, "model": "big-1"})
    assert seen.headers["x-api-key"] == "key-at-provider"
    assert "x-modelplane-caller" not in seen.headers


def test_a_changed_key_of_a_provider_is_used(
    gateway_cluster: GatewayCluster, gateway: Gateway, provider: Engine
) -> None:
    body = {"model": "team/foreign", "messages": QUESTION}
    change = {"stringData": {"apiKey": "another-key-at-provider"}}
    gateway_cluster.cluster.objects.patch("v1", "Secret", "provider-key", change, TEAM)

    def used() -> bool:
        assert gateway.request("/anthropic/v1/messages", body, CAROL).status == 200
        return provider.seen[-1].headers["x-api-key"] == "another-key-at-provider"

    gateway_cluster.wait_for("the changed key is used", used)


def test_callers_of_anthropic_are_answered_by_engines_of_openai(gateway: Gateway, east: Engine) -> None:
    body = {"model": "team/chat", "max_tokens": 9, "system": "Be brief.", "messages": QUESTION}
    answer = gateway.request("/anthropic/v1/messages", body, ALICE).json
    assert (answer["type"], answer["content"]) == ("message", [{"type": "text", "text": "from east"}])
    assert answer["usage"] == {"input_tokens": PROMPT_TOKENS, "output_tokens": COMPLETION_TOKENS}
    assert east.seen[-1].path == "/mp-team/east/v1/chat/completions"
    assert east.seen[-1].body["messages"] == [{"role": "system", "content": "Be brief."}, *QUESTION]
    streamed = events(gateway.request("/anthropic/v1/messages", {**body, "stream": True}, ALICE))
    kinds = [each["type"] for each in streamed]
    assert (kinds[0], kinds[-1]) == ("message_start", "message_stop")
    text = "".join(each["delta"]["text"] for each in streamed if each["type"] == "content_block_delta")
    assert text == "from east"


def test_callers_of_openai_cannot_ask_a_provider_of_anthropic(gateway: Gateway) -> None:
    assert ask(gateway, "team/foreign", ALICE).status == 422


def test_a_new_key_works_and_a_removed_one_does_not(gateway_cluster: GatewayCluster, gateway: Gateway) -> None:
    secrets = gateway_cluster.cluster.objects
    secrets.patch("v1", "Secret", "callers", {"stringData": {"dave": "key-of-dave"}}, "modelplane-system")
    dave = {"x-api-key": "key-of-dave"}
    gateway_cluster.wait_for("the new key works", lambda: ask(gateway, "team/chat", dave).status == 200)
    secrets.patch("v1", "Secret", "callers", {"data": {"dave": None}}, "modelplane-system")
    gateway_cluster.wait_for("the removed key is refused", lambda: ask(gateway, "team/chat", dave).status == 401)
    assert ask(gateway, "team/chat", ALICE).status == 200


def test_a_route_of_a_model_is_translated(gateway_cluster: GatewayCluster, gateway: Gateway) -> None:
    assert gateway
    route = gateway_cluster.programmed_route("chat", TEAM)
    [first, last] = route["spec"]["rules"]
    assert (first["timeouts"], last["name"]) == ({"request": "60s"}, "route-not-found")
    [owner] = route["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("AIGatewayRoute", "chat")


def test_the_access_log_records_usage(gateway_cluster: GatewayCluster, gateway: Gateway) -> None:
    """Envoy writes it late; requests of a caller of this test alone are counted."""
    gateway_cluster.cluster.objects.patch(
        "v1", "Secret", "callers", {"stringData": {"erin": "key-of-erin"}}, "modelplane-system"
    )
    erin = {"x-api-key": "key-of-erin"}
    gateway_cluster.wait_for("the new key works", lambda: ask(gateway, "team/none", erin).status == 404)
    assert ask(gateway, "team/chat", erin).status == 200
    assert ask(gateway, "team/chat", erin, stream=True).status == 200
    expected = {
        "caller": "erin",
        "service": "team/chat",
        "endpoint": f"{TEAM}/east",
        "served_model": "team/deployment-east",
        "response_model": "team/deployment-east",
        "input_tokens": PROMPT_TOKENS,
        "output_tokens": COMPLETION_TOKENS,
        "total_tokens": TOKENS,
        "status": 200,
        "attempts": 1,
    }

    def recorded() -> list[Any]:
        found = [each for each in gateway.access_log() if each["caller"] == "erin" and each["status"] == 200]
        return found if len(found) == 2 else []

    assert gateway_cluster.wait_for("both requests are recorded", recorded) == [expected, expected]


def test_a_dead_engine_is_replaced(gateway: Gateway, east: Engine) -> None:
    east.die()
    assert {ask(gateway, "team/chat", ALICE).json["model"] for _ in range(3)} == {"team/deployment-west"}


def test_programs_outside_reach_it(gateway_cluster: GatewayCluster, gateway: Gateway) -> None:
    host, _, port = gateway.url().removeprefix("http://").partition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=30)

    def answered() -> int:
        try:
            connection.request("GET", "/v1/models", headers=ALICE)
            return connection.getresponse().status
        except OSError:
            connection.close()
            return 0

    assert gateway_cluster.wait_for("the address outside answers", answered) == 200


def test_an_engine_sees_who_presents_a_certificate(gateway_cluster: GatewayCluster, tmp_path: Path) -> None:
    authority = Authority(tmp_path, "clients")
    authority.server(tmp_path / "tls.crt", tmp_path / "tls.key")
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    served.load_verify_locations(authority.path)
    served.verify_mode = ssl.CERT_REQUIRED
    engine = gateway_cluster.engine("strict", "strict.example", port=8443, tls=served)
    certificate, key = authority.client("gateway-of-tests", ())
    (tmp_path / "client.pem").write_bytes(certificate + key)
    presents = ssl.create_default_context(cafile=str(authority.path))
    presents.load_cert_chain(tmp_path / "client.pem")
    plain = gateway_cluster.network.connect(engine.address, engine.port)
    connection = http.client.HTTPConnection("localhost")
    connection.sock = presents.wrap_socket(plain, server_hostname="localhost")
    connection.request("GET", "/v1/models")
    assert connection.getresponse().status == 200
    assert engine.seen[-1].client == "gateway-of-tests"
    without = ssl.create_default_context(cafile=str(authority.path))
    refused = without.wrap_socket(
        gateway_cluster.network.connect(engine.address, engine.port), server_hostname="localhost"
    )
    # The client's side of TLS 1.3 is done before the server has seen that there is no certificate.
    with pytest.raises(OSError, match=r"(?i)certificate|reset"):
        refused.recv(1)
    assert len(engine.seen) == 1


def test_a_gateway_asks_another_with_its_certificate(
    gateway_cluster: GatewayCluster, gateway: Gateway, west: Engine, tmp_path: Path
) -> None:
    """As the gateways of two clusters do: the one of the engine takes no request without a certificate."""
    authority = NamedAuthority("fleet", tmp_path)
    server, client = (_pair(authority.issue(host)) for host in ("edge.example", "gateway.example"))
    beyond, route = _edge(authority.pem, server, client), _model_behind_edge()
    gateway_cluster.apply(beyond)
    edge = gateway_cluster.gateway("edge", TEAM)
    path, body = "/v1/chat/completions", {"model": "team/far", "messages": QUESTION}

    trusting = ssl.create_default_context(cadata=authority.pem)
    trusting.verify_flags &= ~ssl.VERIFY_X509_STRICT
    with pytest.raises((OSError, http.client.HTTPException)):
        gateway.request(path, body, over=edge.connection(443, trusting, host="edge.example"))
    trusting.load_cert_chain(*authority.issue("another.example"))

    def answers() -> bool:
        return gateway.request(path, body, over=edge.connection(443, trusting, host="edge.example")).status == 200

    # Before the gateway asks it: five errors would keep it away for 30 seconds.
    gateway_cluster.wait_for("the other gateway answers", answers)
    gateway_cluster.network.names["edge.example"] = [edge.address]
    gateway_cluster.apply(route)
    gateway_cluster.wait_for("team/far is routed", lambda: gateway.everywhere(200, path, body, CAROL))
    assert (west.seen[-1].path, west.seen[-1].headers["host"]) == ("/far/v1/chat/completions", "west.example")


def _pair(files: tuple[str, str]) -> dict[str, str]:
    certificate, key = (Path(each).read_text(encoding="utf-8") for each in files)
    return {"tls.crt": certificate, "tls.key": key}


def _made(api_version: str, kind: str, name: str, **content: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": TEAM}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **content}


def _edge(authority: str, server: dict[str, str], client: dict[str, str]) -> list[Any]:
    """A Gateway as that of an engine's cluster, with the certificates of both sides."""
    terminate = {"mode": "Terminate", "certificateRefs": [{"name": "edge-tls"}]}
    listener = {"name": "https", "port": 443, "protocol": "HTTPS", "tls": terminate}
    rewrite = {"type": "URLRewrite", "urlRewrite": {"hostname": "west.example"}}
    policy = {"targetRefs": [EDGE], "tls": {"clientValidation": {"caCertificateRefs": TRUSTED}}}
    rules = [{"filters": [rewrite], "backendRefs": [{**BACKEND, "name": "west"}]}]
    return [
        _made("v1", "ConfigMap", "fleet-ca", data={"ca.crt": authority}),
        _made("v1", "Secret", "edge-tls", type="kubernetes.io/tls", stringData=server),
        _made("v1", "Secret", "gateway-client", type="kubernetes.io/tls", stringData=client),
        _made(API, "Gateway", "edge", spec={"gatewayClassName": "envoy", "listeners": [listener]}),
        _made(ENVOY, "ClientTrafficPolicy", "edge", spec=policy),
        _made(API, "HTTPRoute", "edge", spec={"parentRefs": [{"name": "edge"}], "rules": rules}),
    ]


def _model_behind_edge() -> list[Any]:
    match = {"headers": [{"type": "Exact", "name": "x-ai-eg-model", "value": "team/far"}]}
    tls = {"caCertificateRefs": TRUSTED, "sni": "edge.example", "clientCertificateRef": {"name": "gateway-client"}}
    parent = {**EDGE, "name": "inference-gateway", "namespace": "modelplane-system"}
    backend = {"schema": {"name": "OpenAI", "prefix": "/far/v1"}, "backendRef": {**BACKEND, "name": "far"}}
    rules = [{"matches": [match], "backendRefs": [{"name": "far"}]}]
    endpoints = [{"fqdn": {"hostname": "edge.example", "port": 443}}]
    return [
        _made(ENVOY, "Backend", "far", spec={"endpoints": endpoints, "tls": tls}),
        _made(AI, "AIServiceBackend", "far", spec=backend),
        _made(AI, "AIGatewayRoute", "far", spec={"parentRefs": [parent], "rules": rules}),
    ]


def test_a_policy_of_a_route_takes_the_place_of_the_gateways(gateway_cluster: GatewayCluster, gateway: Gateway) -> None:
    """Without `mergeType` no key is needed for what matches the route first, and any caller is believed."""
    path, body = "/v1/chat/completions", {"model": "team/chat", "messages": QUESTION}
    forged = {"x-ai-eg-model": "team/chat", "x-modelplane-caller": "alice"}
    target = {"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "chat"}
    allowed = {"headers": [{"name": "x-modelplane-caller", "values": ["alice"]}]}
    rule = {"name": "alice", "action": "Allow", "principal": allowed}
    policy: dict[str, Any] = {
        "apiVersion": "gateway.envoyproxy.io/v1alpha1",
        "kind": "SecurityPolicy",
        "metadata": {"name": "chat", "namespace": TEAM},
        "spec": {"targetRefs": [target], "authorization": {"defaultAction": "Deny", "rules": [rule]}},
    }
    gateway_cluster.apply(policy)
    gateway_cluster.wait_for("the policy replaces", lambda: gateway.everywhere(200, path, body, forged))
    policy["spec"]["mergeType"] = "StrategicMerge"
    gateway_cluster.apply(policy)
    gateway_cluster.wait_for("the policy adds", lambda: gateway.everywhere(401, path, body, forged))
    assert [gateway.request(path, body, each).status for each in (ALICE, BOB, {**BOB, **forged})] == [200, 403, 403]
    gateway_cluster.cluster.objects.delete("gateway.envoyproxy.io/v1alpha1", "SecurityPolicy", "chat", TEAM)
    gateway_cluster.wait_for("the policy is gone", lambda: gateway.everywhere(200, path, body, BOB))


def test_of_two_policies_of_a_route_the_older_one_counts(gateway_cluster: GatewayCluster, gateway: Gateway) -> None:
    """Envoy Gateway says so of the other one, which is that of the fleet."""
    assert gateway
    target = {"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "chat"}
    spec = {"targetRefs": [target], "mergeType": "StrategicMerge", "authorization": {"defaultAction": "Allow"}}
    labels = {"app.kubernetes.io/managed-by": "modelplane.fleet"}
    theirs, ours = (_made(ENVOY, "SecurityPolicy", name, spec=spec) for name in ("a-theirs", "ours"))
    objects = gateway_cluster.cluster.objects

    def said() -> str:
        found = [trim_policy(each) for each in objects.list(ENVOY, "SecurityPolicy", TEAM)]
        return conflict(contested(Objects(found)), [{"metadata": {"name": "chat", "namespace": TEAM}}])

    gateway_cluster.apply(theirs)
    gateway_cluster.apply({**ours, "metadata": {**ours["metadata"], "labels": labels}})
    message = gateway_cluster.wait_for("the other one counts", lambda: "ours is not" in (found := said()) and found)
    assert f"SecurityPolicy {TEAM}/a-theirs, which is not of the fleet" in message
    assert f"SecurityPolicy {TEAM}/ours is not accepted: Conflicted: Unable to target HTTPRoute chat" in message
    objects.delete(ENVOY, "SecurityPolicy", "a-theirs", TEAM)
    gateway_cluster.wait_for("that of the fleet counts", lambda: not said())
    objects.delete(ENVOY, "SecurityPolicy", "ours", TEAM)


def test_nothing_of_it_is_seen_outside(gateway_cluster: GatewayCluster, gateway: Gateway) -> None:
    """No mount, no link and no address of this machine: two may run at once."""
    mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8")
    assert str(gateway_cluster.folder) not in mounts
    assert "pods" not in {name for _, name in socket.if_nameindex()}
    assert gateway.address not in Path("/proc/net/fib_trie").read_text(encoding="utf-8")
