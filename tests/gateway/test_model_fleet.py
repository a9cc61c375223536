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
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api, names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.caller_keys import NEXT_SUFFIX
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.model_gateway.mtls import internal_hostname
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.model_gateway.size import copies_of_keys
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.private_headers import (
    CLIENT_HEADERS,
    CLIENT_PREFIXES,
    CREDENTIALS,
    HOPS,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.private_headers import KEYS as PRIVATE_KEYS
from ansible_collections.modelplane.fleet.tests.kube.client import Object, Objects
from ansible_collections.modelplane.fleet.tests.traffic.certificates import Authority
from cryptography import x509
from kubernetes.dynamic.exceptions import MethodNotAllowedError, NotFoundError, ResourceNotFoundError

from .clients import (
    ANTHROPIC,
    CALLERS,
    COUNTED,
    DETOURS,
    FIELDS,
    IMPROBABLE,
    KEYS,
    MODELS,
    OPENAI,
    PROMPT,
    PROVIDER_KEYS,
    QUESTION,
    REQUESTS,
    SPREAD,
    UNKNOWN,
    Clients,
    Said,
    counters,
    empty_budgets,
    seen,
)
from .composed import HUB, SYSTEM, TEAM, ComposedFleet, secret
from .engines import Engine
from .equipment import SYSTEM as ENVOY_SYSTEM
from .equipment import Answer, Gateway, GatewayCluster
from .kubelet import Pod

ENVOY = "gateway.envoyproxy.io/v1alpha1"
LATE_SECONDS = 6.0
"""Time without answers of the name server: longer than four attempts of Envoy, which waits 0.25 seconds for the first
one of a fast name server."""
CHANGE_SECONDS = 2.0
"""Time in which proxies get a change of their configuration."""
pytestmark = pytest.mark.usefixtures("healthy")


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


def test_no_header_of_gateways_is_taken_from_a_caller(clients: Clients, engines: Mapping[str, Engine]) -> None:
    ways = {"x-modelplane-service": "ml-team/spill", "x-modelplane-endpoint": "x"}
    again = {"x-ai-eg-original-path": "/other", "x-ai-eg-internal-req-id": "1"}
    for model, engine in (("qwen", "own"), ("open", "south")):
        assert clients.ask(model, "carol", headers={**ways, **again}).status == 200
        got = engines[engine].seen[-1].headers
        assert not ways.keys() & got.keys()
    assert (got["x-ai-eg-original-path"], got["x-ai-eg-internal-req-id"] != "1") == (OPENAI, True)
    # A request without a body names no model.
    assert clients.gateway.request(
        OPENAI, None, {"x-api-key": KEYS["carol"], "x-ai-eg-model": "ml-team/qwen"}
    ).status in {
        *UNKNOWN,
        400,
    }


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
    credentials = set(CREDENTIALS) - PRIVATE_KEYS
    hops = ("forwarded", "x-forwarded-for", "x-real-ip", "x-request-id")
    examples = (f"{prefix}client-ip" for prefix in CLIENT_PREFIXES)
    private = dict.fromkeys((*credentials, *hops, *CLIENT_HEADERS, *examples), "10.9.8.7")
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
        assert not headers.keys() & {"x-modelplane-caller", "x-envoy-external-address", *credentials, *HOPS}
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


def test_a_dead_cluster_is_replaced(
    gateway_cluster: GatewayCluster, clients: Clients, engines: Mapping[str, Engine], cluster_gateway: Gateway
) -> None:
    """By the next priority: nothing answers at the address of its gateway, and all that is open there breaks off."""

    def answers(**more: Any) -> str:
        return str(clients.ask("sheltered", "alice", **more).json["choices"][0]["message"]["content"])

    assert answers() == "from own"
    before = seen(engines)
    with gateway_cluster.kubelet.cut_off(cluster_gateway.address):
        assert answers() == "from paid"
        assert b"from " in clients.ask("sheltered", "alice", stream=True).body
    assert seen(engines) - before == {"paid": 2}
    gateway_cluster.wait_for("the cluster answers again", lambda: answers() == "from own")


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


@pytest.fixture(scope="module")
def cluster_gateway(gateway_cluster: GatewayCluster, clients: Clients) -> Gateway:
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
    fleet: ComposedFleet, cluster_gateway: Gateway, engines: Mapping[str, Engine], tmp_path: Path
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
                cluster_gateway.request(
                    way, body, counted_one, over=cluster_gateway.connection(443, context, host=host)
                )
    assert not cluster_gateway.listens(80)
    assert seen(engines) == before
    known = trusting(fleet.servers, *fleet.clients.issue("another-gateway"))
    assert cluster_gateway.request(path, body, over=cluster_gateway.connection(443, known, host=host)).status == 200
    # The gateway retries another endpoint, and ejects none.
    answer = cluster_gateway.request(OPENAI, body, counted_one, over=cluster_gateway.connection(443, known, host=host))
    assert Said.by(answer) == Said(429, "api_error", "model_unavailable")
    # The name is in its certificate, and no other.
    with pytest.raises(ssl.SSLCertVerificationError):
        cluster_gateway.request(path, body, over=cluster_gateway.connection(443, known, host="edge.example"))


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


def administration(pod: Pod, path: str) -> Any:
    """Answer of the administration of a proxy."""

    def ask() -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", 19000, timeout=10)
        connection.request("GET", path)
        return json.loads(connection.getresponse().read())

    return pod.inside(ask)


def test_the_configuration_has_as_many_copies_of_keys_as_plans_count(fleet: ComposedFleet, clients: Clients) -> None:
    services = [each for each in fleet.built if each["kind"] == "AIGatewayRoute"]
    services = [each for each in services if each["spec"]["parentRefs"][0]["name"] == "inference-gateway"]
    dump = json.dumps(administration(clients.gateway.pods[0], "/config_dump?resource=dynamic_route_configs"))
    gateway = api.parse(fleet.resource("InferenceGateway", "eu"))
    assert isinstance(gateway, api.InferenceGateway)
    # Beside those of routes there is one of the listener.
    assert dump.count("api_key_auth.v3.ApiKeyAuthPerRoute") + 1 == copies_of_keys(gateway, len(services))


def certificates(pod: Pod) -> set[int]:
    """Serial numbers of the certificates that a proxy shows to others, as its administration says."""
    shown = administration(pod, "/certs")["certificates"]
    return {int(each["serial_number"], 16) for entry in shown for each in entry.get("cert_chain") or ()}


def serial(pem: str) -> int:
    return x509.load_pem_x509_certificate(pem.encode()).serial_number


def test_certificates_are_renewed_while_requests_go_on(
    gateway_cluster: GatewayCluster, clients: Clients, fleet: ComposedFleet, cluster_gateway: Gateway
) -> None:
    found = {each["spec"]["secretName"]: each for each in fleet.built if each["kind"] == "Certificate"}
    with Load(lambda connection: clients.ask("qwen", "carol", over=connection), clients.gateway) as load:
        load.more(gateway_cluster)
        for name, gateway in (("cluster-gateway", cluster_gateway), ("inference-gateway-client", clients.gateway)):
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
    """REQUESTS requests, some of them streams and some by the API of Anthropic, while keys of others change."""
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


# How a service changes


def patched(gateway_cluster: GatewayCluster, listener: str) -> dict[str, tuple[str, str]]:
    """Conditions of the patches for a listener of the gateway: status and reason."""
    found = gateway_cluster.cluster.get(ENVOY, "EnvoyPatchPolicy", f"inference-gateway-{listener}", SYSTEM)
    assert found
    ancestors = found.get("status", {}).get("ancestors") or ()
    return {each["type"]: (each["status"], each["reason"]) for one in ancestors for each in one["conditions"]}


@pytest.mark.usefixtures("clients")
def test_patches_of_a_listener_that_is_not_there_wait_for_it(gateway_cluster: GatewayCluster) -> None:
    """And keep nothing else from working: all tests here are with them."""
    accepted = ("True", "Accepted")
    for listener, programmed in (("http", ("True", "Programmed")), ("https", ("False", "ResourceNotFound"))):
        expected = {"Accepted": accepted, "Programmed": programmed}
        gateway_cluster.wait_for(
            f"the patches for {listener} say so", lambda e=expected, n=listener: patched(gateway_cluster, n) == e
        )


def test_endpoints_come_and_go_while_requests_go_on(
    gateway_cluster: GatewayCluster, clients: Clients, fleet: ComposedFleet
) -> None:
    """One is deleted once proxies send it nothing any more."""
    endpoints = fleet.resource("ModelService", "spread")["spec"]["endpoints"]
    with Load(lambda connection: clients.ask("spread", "bob", over=connection), clients.gateway) as load:
        load.more(gateway_cluster)
        gone = endpoints.pop(1)
        fleet.install()
        load.more(gateway_cluster)
        endpoints.append(gone)
        fleet.install()
        load.more(gateway_cluster)
    assert Counter(load.statuses) == {200: len(load.statuses)}


def test_what_is_beyond_a_budget_goes_elsewhere_while_requests_go_on(
    gateway_cluster: GatewayCluster, clients: Clients, fleet: ComposedFleet
) -> None:
    """The way by which it is counted comes before requests take it, and stays until none does."""
    [budget] = fleet.resource("CallerPolicy", "spill-ample")["spec"]["budgets"]
    places = {"Refuse": "spill-ample", "Overflow": DETOURS["spill-ample"]}

    def counted_at() -> set[str]:
        empty_budgets(gateway_cluster)
        load.more(gateway_cluster, 50)
        return {each for each in places.values() if counters(gateway_cluster, each)}

    with Load(lambda connection: clients.ask("spill-ample", "bob", over=connection), clients.gateway) as load:
        load.more(gateway_cluster)
        for choice, place in places.items():
            budget["whenSpent"] = choice
            fleet.install()
            gateway_cluster.wait_for(f"all is counted at {place}", lambda p=place: counted_at() == {p})
            load.more(gateway_cluster)
    assert Counter(load.statuses) == {200: len(load.statuses)}


def test_an_endpoint_behind_the_cluster_gateway_changes_while_requests_go_on(
    gateway_cluster: GatewayCluster, clients: Clients, fleet: ComposedFleet, engines: Mapping[str, Engine]
) -> None:
    """At most one of 1,000 requests uses the next priority."""
    [first, *_] = fleet.resource("ModelService", "spill-ample")["spec"]["endpoints"]
    paid = len(engines["paid"].seen)
    with Load(lambda connection: clients.ask("spill-ample", "bob", over=connection), clients.gateway) as load:
        for old, new in (("north", "south"), ("south", "north")):
            load.more(gateway_cluster)
            first["selector"]["matchLabels"]["engine"] = new
            fleet.install()
            before = len(engines[old].seen)
            load.more(gateway_cluster)
            assert len(engines[old].seen) == before
    assert Counter(load.statuses) == {200: len(load.statuses)}
    assert len(engines["paid"].seen) - paid <= len(load.statuses) / 1000


def ejections(clients: Clients, service: str) -> int:
    """Return the number of ejected endpoints of a service."""
    path = f"/stats?format=json&filter=/{service}/rule/0.outlier_detection.ejections_enforced_total"
    reports = [administration(pod, path)["stats"] for pod in clients.gateway.pods]
    return sum(int(entry["value"]) for report in reports for entry in report if "value" in entry)


def has_detour(cluster_gateway: Gateway, endpoint: str) -> list[bool]:
    """Return whether each proxy of the cluster gateway matches requests by the header with this endpoint."""
    path = "/config_dump?resource=dynamic_route_configs"
    return [f'"exact": "{endpoint}"' in json.dumps(administration(pod, path)) for pod in cluster_gateway.pods]


def answered_by(clients: Clients, model: str) -> set[str]:
    """Return the engines that respond at each gateway proxy, all without an error."""
    answers = [clients.ask(model, "bob", over=clients.gateway.connection(pod=pod)) for pod in clients.gateway.pods]
    assert {answer.status for answer in answers} == {200}
    return {answer.json["choices"][0]["message"]["content"] for answer in answers}


def test_a_detour_that_the_cluster_gateway_does_not_know_is_not_ejected(
    gateway_cluster: GatewayCluster, clients: Clients, fleet: ComposedFleet, cluster_gateway: Gateway
) -> None:
    """Requests use the next priority while the endpoint is missing, and then the first priority."""
    model = "spill-ample"
    [behind] = [
        each
        for each in fleet.built
        if each["kind"] == "AIGatewayRoute"
        and each["metadata"]["labels"].get("modelplane.ai/overflow")
        and each["metadata"]["labels"]["modelplane.ai/service"] == model
    ]
    [rule] = behind["spec"]["rules"]
    [service, endpoint] = rule["matches"][0]["headers"]
    other = [{"headers": [service, {**endpoint, "value": "another"}]}]
    before = ejections(clients, model)
    assert answered_by(clients, model) == {"from north"}
    assert all(has_detour(cluster_gateway, endpoint["value"]))
    gateway_cluster.apply({**behind, "spec": {**behind["spec"], "rules": [{**rule, "matches": other}]}})
    gateway_cluster.wait_for("the detour is gone", lambda: not any(has_detour(cluster_gateway, endpoint["value"])))
    for _ in range(20):
        assert answered_by(clients, model) == {"from paid"}
    gateway_cluster.apply(behind)
    gateway_cluster.wait_for("the detour is back", lambda: all(has_detour(cluster_gateway, endpoint["value"])))
    gateway_cluster.wait_for("the first priority answers", lambda: answered_by(clients, model) == {"from north"})
    assert ejections(clients, model) == before


def test_a_detour_to_an_endpoint_without_an_address_is_not_ejected(
    gateway_cluster: GatewayCluster, clients: Clients, fleet: ComposedFleet
) -> None:
    """Envoy rejects requests for a cluster until the name of its endpoint is resolved."""
    model, host = "spill-ample", "late.example"
    metadata = {"name": "late", "namespace": "ml-team", "labels": {"engine": "late"}}
    spec = {"origin": f"http://{host}:8000"}
    fleet.resources.append(
        {"apiVersion": "modelplane.ai/v1alpha1", "kind": "ModelEndpoint", "metadata": metadata, "spec": spec}
    )
    [first, *_] = fleet.resource("ModelService", model)["spec"]["endpoints"]
    first["selector"]["matchLabels"]["engine"] = "late"
    before = ejections(clients, model)
    names = gateway_cluster.network.names

    def unanswered(name: str) -> list[str]:
        if name == host and host not in names:
            raise OSError("the name server does not answer")
        return []

    gateway_cluster.network.resolvers.append(unanswered)
    try:
        fleet.install()
        gateway_cluster.wait_for("requests take the detour", lambda: answered_by(clients, model) == {"from paid"})
        for _ in range(20):
            assert answered_by(clients, model) == {"from paid"}
        names[host] = names["south.example"]
        gateway_cluster.wait_for("the first priority answers", lambda: answered_by(clients, model) == {"from south"})
        assert ejections(clients, model) == before
    finally:
        gateway_cluster.network.resolvers.remove(unanswered)
        first["selector"]["matchLabels"]["engine"] = "north"
        fleet.resources[:] = [each for each in fleet.resources if each["metadata"]["name"] != "late"]
        fleet.install()


def test_requests_use_a_new_endpoint_once_the_cluster_gateway_has_its_address(
    gateway_cluster: GatewayCluster, clients: Clients, fleet: ComposedFleet, engines: Mapping[str, Engine]
) -> None:
    """On a busy machine, answers of the name server can get lost. The cluster gateway has no old address."""
    model, host = "spill-ample", "slow.example"
    metadata = {"name": "slow", "namespace": "ml-team", "labels": {"engine": "slow"}}
    spec = {"origin": f"http://{host}:8000"}
    fleet.resources.append(
        {"apiVersion": "modelplane.ai/v1alpha1", "kind": "ModelEndpoint", "metadata": metadata, "spec": spec}
    )
    [first, *_] = fleet.resource("ModelService", model)["spec"]["endpoints"]
    names, asked = gateway_cluster.network.names, []

    def late(name: str) -> list[str]:
        if name != host:
            return []
        asked.append(time.monotonic())
        if asked[-1] < asked[0] + LATE_SECONDS:
            raise OSError("the answer of the name server is lost")
        return names["south.example"]

    gateway_cluster.network.resolvers.append(late)
    paid = len(engines["paid"].seen)
    try:
        with Load(lambda connection: clients.ask(model, "bob", over=connection), clients.gateway) as load:
            load.more(gateway_cluster)
            first["selector"]["matchLabels"]["engine"] = "slow"
            fleet.install()
            load.more(gateway_cluster)
    finally:
        gateway_cluster.network.resolvers.remove(late)
        first["selector"]["matchLabels"]["engine"] = "north"
        fleet.resources[:] = [each for each in fleet.resources if each["metadata"]["name"] != "slow"]
        fleet.install()
    assert asked
    assert Counter(load.statuses) == {200: len(load.statuses)}
    assert len(engines["paid"].seen) - paid <= len(load.statuses) / 1000


def test_endpoints_keep_their_addresses_while_the_name_server_is_late(
    gateway_cluster: GatewayCluster,
    clients: Clients,
    fleet: ComposedFleet,
    engines: Mapping[str, Engine],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With each change of its configuration, Envoy resolves names again, and then replaces what it had."""
    [policy] = [each for each in fleet.built if each["metadata"]["name"] == "inference-gateway-failover"]
    keepalive = {**policy["spec"]["tcpKeepalive"], "probes": 4}
    network, paid = gateway_cluster.network, len(engines["paid"].seen)
    resolve = network.resolve

    def late(name: str) -> Sequence[str] | None:
        time.sleep(max(0.0, until - time.monotonic()))
        return resolve(name)

    with Load(lambda connection: clients.ask("spill-ample", "bob", over=connection), clients.gateway) as load:
        load.more(gateway_cluster)
        until = time.monotonic() + CHANGE_SECONDS + 1.5 * LATE_SECONDS
        monkeypatch.setattr(network, "resolve", late)
        gateway_cluster.apply({**policy, "spec": {**policy["spec"], "tcpKeepalive": keepalive}})
        time.sleep(4 * LATE_SECONDS)
        load.more(gateway_cluster)
        gateway_cluster.apply(policy)
        time.sleep(CHANGE_SECONDS)
        load.more(gateway_cluster)
    assert Counter(load.statuses) == {200: len(load.statuses)}
    assert len(engines["paid"].seen) - paid <= len(load.statuses) / 1000


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
    gateway_cluster.wait_for("the plain port redirects", lambda: clients.everywhere("open", "alice", 301))
    gateway_cluster.wait_for(
        "the patches find the listener", lambda: patched(gateway_cluster, "https")["Programmed"][0] == "True"
    )
    over = gateway.connection(443, context, host="models.example")
    for keyless in (clients.ask("open", over=over), clients.ask("open")):
        assert Said.by(keyless).status == 401
    answer = clients.ask("open", "alice")
    assert (answer.status, answer.headers.get("location", "").partition(":")[0]) == (301, "https"), answer.body
    assert gateway.request("/healthz").json == {"status": "ok"}
