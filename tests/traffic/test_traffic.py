# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Requests through real Traefik and real Envoy, given nothing but what is composed for the control cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from http.client import HTTPConnection

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose import egress_config
from ansible_collections.modelplane.fleet.tests.traffic.control_cluster import (
    GATEWAY_ADDRESS,
    NAMESPACE,
    ControlCluster,
    Plan,
    SilentRequest,
    Stream,
    credential,
    endpoint,
    service,
)
from ansible_collections.modelplane.fleet.tests.traffic.edges import LAST, STREAM_SECONDS, Edge, Seen
from ansible_collections.modelplane.fleet.tests.traffic.processes import wait_until

MANY = 40
KEYED_URL = "https://api.keyed.example:8443/v1"
PRIVATE_CA = {"caCertificateRef": {"name": "private-ca"}}
ALONE = (
    "qwen3-8b-east",
    "together",
    "keyed",
    "header-keyed",
    "keyed-distrusted",
    "keyless",
    "private",
    "distrusted",
    "six",
    "unchanged",
    "held",
)
"""Endpoints with a service each."""
LONG = ("qwen3-8b-east", "together", "keyed", "bulk")
"""Through Traefik, with TLS, through an egress proxy, and through a tree of routes."""
CALLER = {"Authorization": "Bearer callers-own", "Cookie": "session=1", "X-Api-Key": "callers-own-too"}


def make_plan() -> Plan:
    replicas = [
        endpoint(f"qwen3-8b-{place}", f"http://{address}/{NAMESPACE}/qwen3-8b-{place}/v1", {"app": "qwen3-8b"})
        for place, address in (("east", "203.0.113.10"), ("west", "203.0.113.20"))
    ]
    for value in replicas:
        value["spec"]["rewritePath"] = f"/{NAMESPACE}/{value['metadata']['name']}/"
    endpoints = [
        *replicas,
        endpoint("together", "https://api.together.xyz/", rewritePath="/"),
        endpoint("keyed", KEYED_URL, rewritePath="/openai/", credential=credential("keyed"), tls=dict(PRIVATE_CA)),
        endpoint(
            "header-keyed",
            "http://llm.plain.example:8080",
            rewritePath="/",
            credential=credential("header-keyed", header="X-Api-Key"),
        ),
        endpoint("keyed-distrusted", KEYED_URL, rewritePath="/", credential=credential("keyed-distrusted")),
        endpoint("keyless", KEYED_URL, rewritePath="/", credential=credential("keyless"), tls=dict(PRIVATE_CA)),
        endpoint(
            "private",
            "https://198.51.100.20:9443",
            rewritePath="/",
            tls={"serverName": "inside.private.example", **PRIVATE_CA},
        ),
        endpoint("distrusted", "https://api.distrusted.example:9443", rewritePath="/"),
        endpoint("six", "http://[2001:db8::10]:8000", rewritePath="/six/"),
        endpoint("unchanged", "http://203.0.113.30"),
        endpoint("held", "http://203.0.113.50", rewritePath="/held/"),
        endpoint("leaving", "http://203.0.113.40", {"app": "shrinking"}, rewritePath="/leaving/"),
        endpoint("staying", "http://203.0.113.41", {"app": "shrinking"}, rewritePath="/staying/"),
        *(
            endpoint(f"bulk-{i}", f"http://192.0.2.{i + 1}", {"app": "bulk"}, rewritePath=f"/bulk-{i}/")
            for i in range(MANY)
        ),
        endpoint("heavy", "http://192.0.2.99", {"app": "heavy"}, rewritePath="/heavy/"),
    ]
    services = [
        service("assistant", {"weight": 90, "app": "qwen3-8b"}, {"weight": 10, "name": "together"}),
        service("bulk", {"weight": 80, "app": "bulk"}, {"weight": 20, "app": "heavy"}),
        service("shrinking", {"app": "shrinking"}),
        service("failover", {"priority": 0, "name": "leaving"}, {"priority": 1, "name": "staying"}),
        service("asleep", {"name": "no-pod"}),
        service("new", {"name": "no-pod"}),
        *(service(name, {"name": name}) for name in ALONE),
    ]
    return Plan(
        {value["metadata"]["name"]: value for value in endpoints},
        {value["metadata"]["name"]: value for value in services},
        routed={"asleep"},
    )


def start(cluster: ControlCluster, plan: Plan) -> None:
    cluster.edge("east", "http://203.0.113.10")
    cluster.edge("west", "http://203.0.113.20")
    cluster.edge(
        "plain", "http://203.0.113.30", "http://203.0.113.40", "http://203.0.113.41", "http://llm.plain.example:8080"
    )
    cluster.edge("held", "http://203.0.113.50")
    cluster.edge("together", "https://api.together.xyz", by=cluster.public)
    cluster.edge("keyed", KEYED_URL, by=cluster.private)
    cluster.edge("private", "https://198.51.100.20:9443", by=cluster.private, server="inside.private.example")
    cluster.edge("distrusted", "https://api.distrusted.example:9443", by=cluster.private)
    cluster.edge("six", "http://[2001:db8::10]:8000", bind="::1")
    cluster.edge("bulk", *(f"http://192.0.2.{i}" for i in (99, *range(1, MANY + 1))))
    authorities = {"ca.crt": cluster.private.pem}
    cluster.egress("keyed", plan, {"apiKey": "key-one"}, authorities)
    cluster.egress("header-keyed", plan, {"apiKey": "key-two"})
    cluster.egress("keyed-distrusted", plan, {"apiKey": "key-three"})
    cluster.egress("keyless", plan, {"apiKey": ""}, authorities)
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "data": authorities}
    cluster.start(plan, [{**config_map, "metadata": {"name": "private-ca", "namespace": NAMESPACE}}])


@pytest.fixture(scope="module")
def plan() -> Plan:
    return make_plan()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, plan: Plan) -> Iterator[ControlCluster]:
    with ControlCluster(tmp_path_factory.mktemp("control")) as running:
        start(running, plan)
        yield running


@pytest.fixture(scope="module", autouse=True)
def streams(cluster: ControlCluster) -> dict[str, Stream]:
    """Streams that begin before the first test: they last longer than all other tests together."""
    return {name: cluster.stream(f"/{NAMESPACE}/{name}/v1/stream") for name in LONG}


@pytest.fixture(scope="module", autouse=True)
def silent_requests(cluster: ControlCluster) -> dict[str, SilentRequest]:
    """Requests that are silent for as long, beside the streams."""
    return {name: cluster.silent_request(f"/{NAMESPACE}/{name}/v1/silent") for name in LONG}


@pytest.fixture
def held(cluster: ControlCluster) -> Iterator[Edge]:
    """An edge of which streams last until it is released."""
    edge = cluster.edges["held"]
    edge.released.clear()
    yield edge
    edge.released.set()


def begun(stream: Stream) -> Stream:
    """The stream once it has begun."""
    wait_until(lambda: stream.lines, why=lambda: f"status {stream.status}, {stream.last!r} {stream.error}")
    return stream


def last(cluster: ControlCluster, edge: str) -> Seen:
    return [seen for seen in cluster.edges[edge].seen if not seen.path.endswith(("/stream", "/silent"))][-1]


def paths(cluster: ControlCluster, edge: str, ending: str) -> Counter[str]:
    """Return how often each first word of a path was asked for at an edge, among paths with an ending."""
    return Counter(seen.path.split("/")[1] for seen in cluster.edges[edge].seen if seen.path.endswith(ending))


def test_every_route_is_accepted_and_resolved(cluster: ControlCluster) -> None:
    routes = cluster.api.of_kind("HTTPRoute")
    assert len(routes) > len(cluster.api.of_kind("Gateway"))
    found = {route["metadata"]["name"]: cluster.conditions(route) for route in routes}
    desired = {"Accepted": "True", "ResolvedRefs": "True"}
    assert found == dict.fromkeys(found, desired)


def test_the_gateway_is_accepted_and_has_the_address_of_its_service(cluster: ControlCluster) -> None:
    # Traefik writes it after those of the routes.
    status = wait_until(lambda: cluster.api.of_kind("Gateway")[0].get("status"))
    conditions = {value["type"]: value["status"] for value in status["conditions"]}
    assert conditions["Accepted"] == "True"
    assert [value["value"] for value in status["addresses"]] == [GATEWAY_ADDRESS]


def test_the_gateway_is_asked_by_https_with_its_certificate(cluster: ControlCluster) -> None:
    path = f"/{NAMESPACE}/qwen3-8b-east/v1/models"
    assert cluster.ask_securely(path).status == 200
    assert last(cluster, "east").path == path


def test_requests_are_split_by_weight(cluster: ControlCluster) -> None:
    before = {name: len(cluster.edges[name].seen) for name in ("east", "west", "together")}
    assert cluster.ask_often(f"/{NAMESPACE}/assistant/v1/chat/completions", 2000) == {200: 2000}
    share = {name: (len(cluster.edges[name].seen) - count) / 2000 for name, count in before.items()}
    desired = {"east": 0.45, "west": 0.45, "together": 0.10}
    assert share == pytest.approx(desired, abs=0.02)


def test_every_backend_gets_its_own_path(cluster: ControlCluster) -> None:
    for _ in range(60):
        assert cluster.ask(f"/{NAMESPACE}/assistant/v1/models").status == 200
    found = {
        name: {seen.path for seen in cluster.edges[name].seen if "models" in seen.path} for name in ("east", "west")
    }
    assert found == {
        "east": {f"/{NAMESPACE}/qwen3-8b-east/v1/models"},
        "west": {f"/{NAMESPACE}/qwen3-8b-west/v1/models"},
    }
    together = [seen for seen in cluster.edges["together"].seen if "models" in seen.path]
    assert {seen.path for seen in together} == {"/v1/models"}


def test_a_path_stays_without_rewrite_path(cluster: ControlCluster) -> None:
    assert cluster.ask(f"/{NAMESPACE}/unchanged/v1/models").status == 200
    seen = last(cluster, "plain")
    assert (seen.path, seen.host) == (f"/{NAMESPACE}/unchanged/v1/models", GATEWAY_ADDRESS)


def test_tls_from_the_gateway_to_a_provider(cluster: ControlCluster) -> None:
    """No credential: the caller's headers go through as they are."""
    assert cluster.ask(f"/{NAMESPACE}/together/v1/models", CALLER).status == 200
    seen = last(cluster, "together")
    assert (seen.host, seen.server_name) == ("api.together.xyz", "api.together.xyz")
    assert {key: seen.headers[key.lower()] for key in CALLER} == CALLER


def test_tls_to_an_address_with_a_server_name_and_an_own_authority(cluster: ControlCluster) -> None:
    assert cluster.ask(f"/{NAMESPACE}/private/v1/models").status == 200
    assert last(cluster, "private").server_name == "inside.private.example"


@pytest.mark.parametrize(("name", "edge"), [("distrusted", "distrusted"), ("keyed-distrusted", "keyed")])
def test_a_certificate_of_an_unknown_authority_is_refused(cluster: ControlCluster, name: str, edge: str) -> None:
    before = len(cluster.edges[edge].seen)
    assert cluster.ask(f"/{NAMESPACE}/{name}/v1/models", CALLER).status in (500, 502, 503)
    assert len(cluster.edges[edge].seen) == before


def test_a_credential_takes_the_place_of_the_callers(cluster: ControlCluster) -> None:
    assert cluster.ask(f"/{NAMESPACE}/keyed/v1/chat/completions?a=b", CALLER).status == 200
    seen = last(cluster, "keyed")
    assert seen.path == "/openai/v1/chat/completions?a=b"
    assert (seen.host, seen.server_name) == ("api.keyed.example:8443", "api.keyed.example")
    assert seen.headers["authorization"] == "Bearer key-one"
    assert seen.tls == "TLSv1.3"
    assert not {"cookie", "x-api-key", "x-request-id"} & seen.headers.keys()
    assert not [name for name in seen.headers if name.startswith("x-forwarded-")]


def test_a_credential_in_a_header_of_its_own(cluster: ControlCluster) -> None:
    assert cluster.ask(f"/{NAMESPACE}/header-keyed/v1/models", CALLER).status == 200
    seen = last(cluster, "plain")
    assert (seen.host, seen.headers["x-api-key"]) == ("llm.plain.example:8080", "key-two")
    assert not {"authorization", "cookie"} & seen.headers.keys()


def test_without_a_key_nothing_is_passed_on(cluster: ControlCluster) -> None:
    before = len(cluster.edges["keyed"].seen)
    assert cluster.ask(f"/{NAMESPACE}/keyless/v1/models", CALLER).status == 401
    assert len(cluster.edges["keyed"].seen) == before


@pytest.mark.parametrize(("name", "answer"), [("keyed", 200), ("header-keyed", 200), ("keyless", 401)])
def test_ready_is_who_has_a_key(cluster: ControlCluster, name: str, answer: int) -> None:
    """As the kubelet asks: from 200 to 399 is ready."""
    before = {edge: len(each.seen) for edge, each in cluster.edges.items()}
    connection = HTTPConnection("127.0.0.1", cluster.pods[name].port, timeout=10)
    connection.request("GET", egress_config.READY_PATH)
    assert connection.getresponse().status == answer
    connection.close()
    assert {edge: len(each.seen) for edge, each in cluster.edges.items()} == before


def test_a_changed_key_is_used_without_a_restart(cluster: ControlCluster) -> None:
    authorities = {"ca.crt": cluster.private.pem}

    def used() -> str:
        assert cluster.ask(f"/{NAMESPACE}/keyed/v1/models", CALLER).status == 200
        return last(cluster, "keyed").headers["authorization"]

    for key in ("key-four", "key-one"):
        cluster.pods["keyed"].mount({"apiKey": key}, authorities)
        wait_until(lambda key=key: used() == f"Bearer {key}", 10)  # type: ignore[misc]


def test_an_ipv6_endpoint(cluster: ControlCluster) -> None:
    assert cluster.ask(f"/{NAMESPACE}/six/v1/models").status == 200
    assert last(cluster, "six").path == "/six/v1/models"


def test_many_endpoints_are_split_exactly_through_a_tree_of_routes(cluster: ControlCluster) -> None:
    requests = 4000
    assert cluster.ask_often(f"/{NAMESPACE}/bulk/v1/split", requests) == {200: requests}
    found = paths(cluster, "bulk", "/v1/split")
    desired = {f"bulk-{i}": 0.8 / MANY for i in range(MANY)} | {"heavy": 0.2}
    assert {name: count / requests for name, count in found.items()} == pytest.approx(desired, abs=0.005)


def test_a_service_without_usable_endpoints_answers_503_if_it_was_there(cluster: ControlCluster) -> None:
    assert cluster.ask(f"/{NAMESPACE}/asleep/v1/models").status == 503
    assert cluster.ask(f"/{NAMESPACE}/new/v1/models").status == 404


def test_an_endpoint_that_is_withdrawn_gets_no_further_request(cluster: ControlCluster, plan: Plan) -> None:
    path = f"/{NAMESPACE}/shrinking/v1/models"
    assert cluster.ask_often(path, 20) == {200: 20}
    assert set(paths(cluster, "plain", "/v1/models")) >= {"leaving", "staying"}
    less = Plan({k: v for k, v in plan.endpoints.items() if k != "leaving"}, plan.services, routed=plan.routed)
    cluster.apply(less)
    before = paths(cluster, "plain", "/v1/models")["leaving"]
    assert cluster.ask_often(path, 500) == {200: 500}
    assert paths(cluster, "plain", "/v1/models")["leaving"] == before


def test_a_lower_tier_is_used_only_while_the_higher_has_nothing_usable(cluster: ControlCluster, plan: Plan) -> None:
    path = f"/{NAMESPACE}/failover/v1/tier"

    tiers: list[tuple[set[str], str]] = [(set(), "leaving"), ({"leaving"}, "staying"), (set(), "leaving")]
    for down, name in tiers:
        cluster.apply(Plan(plan.endpoints, plan.services, down, plan.routed))
        before = paths(cluster, "plain", "/v1/tier")
        assert cluster.ask_often(path, 50) == {200: 50}
        assert paths(cluster, "plain", "/v1/tier") - before == {name: 50}


OTHER_POD = "127.0.0.2"
AT_ONCE = {"requestAcceptGraceTimeout": "0s"}
"""Without the time in which a pod that is going takes new connections, after which its grace begins."""


def test_a_stream_outlives_the_pod_of_the_gateway_that_it_began_on(cluster: ControlCluster, held: Edge) -> None:
    """The pod has as long for it as it is composed to have: ten minutes, which the test does not wait for."""
    path = f"/{NAMESPACE}/held/v1"
    with cluster.another_pod(OTHER_POD, f"{path}/models", AT_ONCE) as old:
        stream = begun(cluster.stream(f"{path}/held", OTHER_POD))
        old.terminate()
        began = stream.lines
        assert cluster.ask(f"{path}/models").status == 200, "the new pod answers"
        # Three seconds: with a grace of one it is cut, as the test below shows.
        wait_until(lambda: stream.lines >= began + 60 or not stream.is_alive())
        assert (stream.is_alive(), old.ended) == (True, False), f"{stream.last!r} {stream.error} {old.tail()}"
        held.released.set()
        stream.join(30)
        assert stream.last == LAST
        wait_until(lambda: old.ended)


def test_a_stream_is_cut_when_its_pod_has_no_time_for_it(cluster: ControlCluster, held: Edge) -> None:
    """So the time that pods are given is what streams live by."""
    path = f"/{NAMESPACE}/held/v1"
    with cluster.another_pod(OTHER_POD, f"{path}/models", {**AT_ONCE, "graceTimeOut": "1s"}) as old:
        stream = begun(cluster.stream(f"{path}/held", OTHER_POD))
        old.terminate()
        stream.join(30)
        assert not stream.is_alive()
        assert not held.released.is_set()
        assert stream.last != LAST


def test_a_stream_outlives_the_rolling_update_of_an_engine_that_is_not_its_own(
    cluster: ControlCluster, plan: Plan, held: Edge
) -> None:
    stream = begun(cluster.stream(f"/{NAMESPACE}/held/v1/held"))
    for down in ({"leaving"}, {"staying"}, set[str]()):
        cluster.apply(Plan(plan.endpoints, plan.services, down, plan.routed))
        began = stream.lines
        wait_until(lambda began=began: stream.lines > began or not stream.is_alive())  # type: ignore[misc]
        assert stream.is_alive(), f"{stream.last!r} {stream.error} {cluster.why()}"
    held.released.set()
    stream.join(30)
    assert stream.last == LAST


@pytest.mark.parametrize("name", LONG)
def test_a_request_that_is_silent_for_longer_than_any_default_timeout_is_answered(
    silent_requests: dict[str, SilentRequest], name: str
) -> None:
    silent_requests[name].join(STREAM_SECONDS + 30)
    answer = silent_requests[name].answer
    assert (silent_requests[name].error, answer and answer.status) == ("", 200)


@pytest.mark.parametrize("name", LONG)
def test_a_stream_longer_than_any_default_timeout_is_not_cut(streams: dict[str, Stream], name: str) -> None:
    streams[name].join(STREAM_SECONDS + 30)
    assert (streams[name].error, streams[name].lines) == ("", STREAM_SECONDS)
