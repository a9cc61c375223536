# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A client against a server that answers what a test sets, over TLS, with failures of the server and of the network."""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.client import WRITES, Client
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.connection import Connection, connect
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    ConnectionInvalid,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    NotServed,
    ServerError,
    Throttled,
    Unauthorized,
    Unreachable,
)
from ansible_collections.modelplane.fleet.tests.kube.certificates import Authority
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.kubernetes.scripted import (
    Proxy,
    Reply,
    Reset,
    Server,
    Stream,
    config_map,
    event,
    status,
)
from urllib3.exceptions import DependencyWarning

pytestmark = pytest.mark.integration

DESIRED = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "here"}, "data": {"k": "v"}}
HERE = "/api/v1/namespaces/here/configmaps"
BUSY = Reply(429, status(429, "TooManyRequests", "busy"), {"Retry-After": "0"})
OURS = Reply(200, {**DESIRED, "metadata": {"name": "a", "namespace": "here", "resourceVersion": "7", "uid": "u"}})


def get(client: Client) -> Any:
    return client.get("v1", "ConfigMap", "a", "here")


# What is sent


def test_an_apply_names_our_manager_and_asks_for_strict_validation(server: Server, client: Client) -> None:
    server.script = [OURS]
    assert client.apply(DESIRED)["metadata"]["uid"] == "u"
    sent = server.seen[-1]
    assert (sent.method, sent.path, sent.body) == ("PATCH", f"{HERE}/a", DESIRED)
    assert sent.query == {"fieldManager": "modelplane.fleet", "force": "false", "fieldValidation": "Strict"}
    assert sent.headers["content-type"] == "application/apply-patch+yaml"
    assert sent.headers["authorization"] == "Bearer planted-token"
    assert sent.headers["user-agent"] == "modelplane.fleet"


def test_what_is_only_tried_is_not_counted_as_written(server: Server, client: Client) -> None:
    server.script = [OURS, OURS, Reply(200, status(200, ""))]
    client.apply(DESIRED, dry_run=True, force=True, manager="other")
    client.create(DESIRED, dry_run=True)
    assert client.delete("v1", "ConfigMap", "a", "here", dry_run=True)
    assert [request.query.get("dryRun") for request in server.seen[1:]] == ["All"] * 3
    assert server.seen[-1].body["dryRun"] == ["All"]
    assert client.requests == {"discovery": 1, "dry-run": 3}
    assert not WRITES & set(client.requests)


def test_names_are_quoted_in_paths(server: Server, client: Client) -> None:
    assert client.get("v1", "Namespace", "../secrets?x") is None
    assert server.asked == ["GET /api/v1/namespaces/..%2Fsecrets%3Fx"]


@pytest.mark.parametrize("code", [200, 429])
def test_a_service_is_asked_by_the_servers_proxy(server: Server, client: Client, code: int) -> None:
    """One may answer with the code of an error, which is its answer then."""
    server.script = [Reply(code, {"code": "OVER_LIMIT"})]
    found = client.ask_service("limits", "here", "http", "json", {"a": 1}, codes=(200, 429))
    assert found == {"code": "OVER_LIMIT"}
    assert (server.seen[-1].method, server.seen[-1].body) == ("POST", {"a": 1})
    assert server.asked == ["POST /api/v1/namespaces/here/services/limits%3Ahttp/proxy/json"]
    assert not WRITES & set(client.requests)


@pytest.mark.parametrize(
    ("reply", "error", "message"),
    [
        (BUSY, Throttled, "busy"),
        (Reply(503, status(503, "ServiceUnavailable", "no endpoints")), ServerError, "no endpoints"),
        (Reply(400, b"Bad Request"), ApiError, "Bad Request"),
        (Reply(200, b"[]"), Unreachable, "no JSON"),
        (Reset(), Unreachable, "ask Service here/limits"),
    ],
)
def test_a_service_is_asked_once(
    server: Server, client: Client, reply: Any, error: type[ApiError], message: str
) -> None:
    server.script = [reply]
    with pytest.raises(error, match=message):
        client.ask_service("limits", "here", "http", "json", {}, codes=(200, 429))
    assert len(server.asked) == 1


def test_lists_come_in_pages_whole_and_with_their_kind(server: Server, client: Client) -> None:
    bare = {"metadata": {"name": "x"}}
    server.script = [
        Reply(200, {"metadata": {"continue": "next", "resourceVersion": "5"}, "items": [bare]}),
        Reply(200, {"metadata": {"resourceVersion": "5"}, "items": [bare]}),
    ]
    found = client.list("v1", "ConfigMap", labels="a in (b,c),d=e", fields="metadata.name!=z")
    assert found.resource_version == "5"
    assert [item["kind"] for item in found.items] == ["ConfigMap"] * 2
    first, second = server.seen[-2:]
    assert first.query == {"limit": "500", "labelSelector": "a in (b,c),d=e", "fieldSelector": "metadata.name!=z"}
    assert second.query == {**first.query, "continue": "next"}


def test_pages_of_a_forgotten_version_are_read_at_once(server: Server, client: Client) -> None:
    server.script = [
        Reply(200, {"metadata": {"continue": "next"}, "items": [{"metadata": {"name": "old"}}]}),
        Reply(410, status(410, "Expired")),
        Reply(200, {"metadata": {"resourceVersion": "9"}, "items": [{"metadata": {"name": "new"}}]}),
    ]
    found = client.list("v1", "ConfigMap", namespace="here")
    assert [item["metadata"]["name"] for item in found.items] == ["new"]
    assert "limit" not in server.seen[-1].query


def test_deleting_that_very_object(server: Server, client: Client) -> None:
    server.script = [
        Reply(200, status(200, "")),
        Reply(404, status(404, "NotFound", name="a")),
        Reply(409, status(409, "Conflict")),
    ]
    assert client.delete("v1", "ConfigMap", "a", "here", uid="u") is True
    assert server.seen[-1].body["preconditions"] == {"uid": "u"}
    assert server.seen[-1].body["propagationPolicy"] == "Background"
    assert client.delete("v1", "ConfigMap", "a", "here") is False
    with pytest.raises(Conflict):
        client.delete("v1", "ConfigMap", "a", "here", uid="u")


@pytest.mark.parametrize(
    ("desired", "message"),
    [
        ({"kind": "ConfigMap", "apiVersion": "v1"}, "metadata.name"),
        ({"metadata": {"name": "a"}}, "apiVersion"),
        ({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}, "metadata.namespace"),
    ],
    ids=["no name", "no kind", "no namespace"],
)
def test_half_objects_are_refused_before_they_are_sent(client: Client, desired: Any, message: str) -> None:
    with pytest.raises(Invalid, match=message):
        client.apply(desired)


# What is answered


@pytest.mark.parametrize(
    ("reply", "expected", "reported"),
    [
        (Reply(403, status(403, "Forbidden", 'configmaps "a" is forbidden')), Forbidden, "Grant the permission"),
        (Reply(401, status(401, "Unauthorized")), Unauthorized, "renew the token"),
        (Reply(404, status(404, "NotFound", 'namespaces "here" not found', name="here")), NotFound, "not found"),
        (Reply(422, status(422, "Invalid", "no", causes=[{"field": "f", "message": "m"}])), Invalid, "no"),
        (Reply(410, status(410, "Expired")), Gone, "it is so"),
        (Reply(409, status(409, "AlreadyExists", "there")), AlreadyExists, "there"),
        (Reply(429, status(429, "TooManyRequests"), {"Retry-After": "3600"}), Throttled, "fewer forks"),
        (Reply(413, b"<html><script>x</script><h1>Too   Large</h1></html>"), Invalid, "HTTP 413: Too Large"),
        (Reply(301, b"", {"Location": "https://elsewhere"}), Unreachable, "sends us elsewhere"),
        (Reply(200, b"<html>Log in</html>"), Unreachable, "no JSON"),
        (Reply(200, b"[]"), Unreachable, "no JSON"),
        (
            Reply(
                500, status(500, "", "failed to create typed patch object (x): .spec.y: field not declared in schema")
            ),
            Invalid,
            "upgrade",
        ),
    ],
    ids=lambda value: str(value.code) if isinstance(value, Reply) else "",
)
def test_errors_report_cluster_object_and_what_to_do(
    server: Server, client: Client, reply: Reply, expected: type[ApiError], reported: str
) -> None:
    server.script = [reply]
    with pytest.raises(expected) as caught:
        client.apply(DESIRED)
    assert type(caught.value) is expected
    assert str(caught.value).startswith("cluster west: apply ConfigMap here/a: ")
    assert reported in str(caught.value)
    assert "planted-token" not in f"{caught.value!r}{caught.value!s}{caught.value.__cause__}"
    assert len(server.asked) == 1


def test_a_conflict_names_the_other_managers_and_fields(server: Server, client: Client) -> None:
    causes = [
        {
            "reason": "FieldManagerConflict",
            "message": 'conflict with "kubectl" using apps/v1',
            "field": ".spec.replicas",
        },
        {"reason": "FieldManagerConflict", "message": 'conflict with "hpa"', "field": ".data.k"},
    ]
    server.script = [Reply(409, status(409, "Conflict", "Apply failed with 2 conflicts", causes=causes))]
    with pytest.raises(Conflict, match="let hpa, kubectl give them up") as caught:
        client.apply(DESIRED)
    assert caught.value.managers == (("kubectl", ".spec.replicas"), ("hpa", ".data.k"))


def test_no_message_repeats_what_a_secret_holds(server: Server, client: Client) -> None:
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "s", "namespace": "here"},
        "stringData": {"a": "planted-plain"},
        "data": {"b": "cGxhbnRlZC1jb2RlZA=="},
    }
    said = 'cannot: "planted-plain" cGxhbnRlZC1jb2RlZA== planted-coded, Value:"else-1", Invalid value: "else-2"'
    causes = [{"field": "data.a", "message": 'Invalid value: "planted-plain"'}]
    server.script = [Reply(422, status(422, "Invalid", said, causes=causes))]
    with pytest.raises(Invalid) as caught:
        client.apply(secret)
    reported = f"{caught.value!r} {caught.value.causes}"
    assert [word for word in ("planted", "cGxhbnRlZC1jb2RlZA", "else-1", "else-2") if word in reported] == []


def test_the_servers_warnings_are_kept(server: Server, client: Client) -> None:
    server.script = [
        Reply(200, DESIRED, {"Warning": '299 - "v1 is old", 299 - "so are you"'}),
        Reply(200, DESIRED, {"Warning": '299 - "v1 is old"'}),
    ]
    get(client), get(client)
    assert client.warnings == ["cluster west: v1 is old", "cluster west: so are you"]


# Failures that pass


@pytest.mark.parametrize(
    "failure",
    [
        BUSY,
        Reply(500, status(500, "InternalError", "etcdserver: leader changed")),
        Reply(502, b"Bad Gateway"),
        Reply(503, status(503, "ServiceUnavailable")),
        Reply(504, status(504, "Timeout")),
        Reset(),
        Reply(200, DESIRED, cut=10),
    ],
    ids=["429", "500", "502", "503", "504", "reset", "cut answer"],
)
@pytest.mark.parametrize("verb", ["get", "apply", "delete"])
def test_a_failure_that_passes_is_not_seen(server: Server, client: Client, failure: Reply | Reset, verb: str) -> None:
    server.script = [failure, OURS]
    call = {
        "get": lambda: get(client),
        "apply": lambda: client.apply(DESIRED),
        "delete": lambda: client.delete("v1", "ConfigMap", "a", "here"),
    }[verb]
    assert call()
    assert len(server.asked) == 2
    assert client.requests[verb] == 2


def test_the_server_says_how_long_to_wait(server: Server, client: Client) -> None:
    server.script = [Reply(429, status(429, "TooManyRequests"), {"Retry-After": "1"}), OURS]
    began = time.monotonic()
    assert get(client)
    assert time.monotonic() - began >= 1


def test_a_failure_that_stays_is_reported(server: Server, client: Client) -> None:
    server.always = lambda _request: Reply(503, status(503, "ServiceUnavailable", "etcd is away"))
    with pytest.raises(ServerError, match="etcd is away"):
        get(client)
    assert 2 <= len(server.asked) <= 4


def test_a_create_that_came_through_unheard_is_ours(server: Server, client: Client) -> None:
    there = Reply(409, status(409, "AlreadyExists"))
    server.script = [Reset(), there, OURS]
    assert client.create(DESIRED)["metadata"]["uid"] == "u"
    assert [line.split()[0] for line in server.asked] == ["POST", "POST", "GET"]


def test_a_create_that_another_user_did_is_not_ours(server: Server, client: Client) -> None:
    there = Reply(409, status(409, "AlreadyExists"))
    server.script = [Reset(), there, Reply(200, config_map("a", 3, k="theirs"))]
    with pytest.raises(AlreadyExists):
        client.create(DESIRED)
    server.script = [there]
    with pytest.raises(AlreadyExists):
        client.create(DESIRED)


def test_a_replace_that_came_through_unheard_is_ours(server: Server, client: Client) -> None:
    sent = config_map("a", 3, k="v")
    server.script = [Reset(), Reply(409, status(409, "Conflict")), Reply(200, config_map("a", 4, k="v"))]
    assert client.replace(sent)["metadata"]["resourceVersion"] == "4"
    server.script = [Reset(), Reply(409, status(409, "Conflict")), Reply(200, config_map("a", 4, k="theirs"))]
    with pytest.raises(Conflict):
        client.replace(sent)


def test_a_delete_that_came_through_unheard_counts(server: Server, client: Client) -> None:
    server.script = [Reset(), Reply(404, status(404, "NotFound", name="a"))]
    assert client.delete("v1", "ConfigMap", "a", "here") is True


def test_refused_and_back(server: Server, client: Client) -> None:
    server.always = lambda _request: OURS
    get(client)
    client.close()
    server.stop()
    timer = threading.Timer(0.5, server.start)
    timer.start()
    assert get(client)
    timer.join()


def test_a_dead_server_costs_its_time_once(server: Server, client: Client) -> None:
    get(client)
    client.close()
    server.stop()
    with pytest.raises(
        Unreachable,
        match=r"cluster west: read ConfigMap here/a: no connection to https://127.0.0.1:\d+: connection refused. "
        r"Check that its API server runs, .* \(fleet_kubeconfig or fleet_connection\)",
    ):
        get(client)
    for _ in range(5):
        with pytest.raises(Unreachable):
            get(client)
    assert client.requests["get"] <= 1 + 4 + 5


def test_a_silent_server_costs_its_timeout_once(server: Server, client: Client) -> None:
    server.always = lambda _request: Reply(200, DESIRED, after=4.0)
    began = time.monotonic()
    with pytest.raises(Unreachable, match=r"no answer from .* within 2 s"):
        get(client)
    assert time.monotonic() - began > 1.9
    assert client.requests["get"] == 1


def test_an_unknown_name() -> None:
    connection = Connection("west", server="https://no-such-host.invalid", timeout=5)
    with connect(connection) as client, pytest.raises(Unreachable, match=r"no-such-host\.invalid"):
        client.version()


# TLS and the way to the server


def test_a_foreign_certificate_is_not_trusted(server: Server, tmp_path: Path) -> None:
    other = Authority(tmp_path, "other")
    for connection in (
        Connection("west", server=server.url, ca_file=str(other.path)),
        Connection("west", server=server.url),
    ):
        with connect(connection) as client, pytest.raises(Unreachable, match=r"is not trusted: unable to .*ca_file"):
            client.version()
        assert client.requests == {"version": 1}
    assert not server.seen


def test_unverified_on_request_with_a_warning(server: Server) -> None:
    server.script = [Reply(200, {"major": "1", "minor": "36+"})]
    with connect(Connection("west", server=server.url, verify=False)) as client:
        assert client.version() == (1, 36)
        assert client.warnings == [f"cluster west: the certificate of {server.url} is not verified"]


def test_a_certificate_for_another_name(server: Server, authority: Authority) -> None:
    server.script = [Reply(200, {"major": "1", "minor": "36"})]
    ca = authority.certificate.decode()
    with (
        connect(Connection("w", server=server.url, ca_text=ca, tls_server_name="other")) as client,
        pytest.raises(Unreachable, match="not trusted"),
    ):
        client.version()
    with connect(Connection("w", server=server.url, ca_text=ca, tls_server_name="kubernetes")) as client:
        assert client.version() == (1, 36)


def test_a_server_with_an_ipv6_address(authority: Authority, tmp_path: Path) -> None:
    server = Server(authority, tmp_path / "six", host="::1")
    server.script = [OURS]
    with connect(Connection("west", server=server.url, ca_file=str(authority.path))) as client:
        assert get(client)
    server.stop()


@pytest.mark.parametrize("way", ["option", "environment"])
def test_through_a_proxy(server: Server, authority: Authority, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    proxy = Proxy(server.port)
    server.always = lambda _request: OURS
    url = proxy.url.replace("://", "://me:planted%2Dpassword@")
    given = {"proxy": url} if way == "option" else {}
    if way == "environment":
        monkeypatch.setenv("HTTPS_PROXY", url)
    connection = Connection(
        "west", server="https://kube.test", ca_file=str(authority.path), tls_server_name="kubernetes", **given
    )
    with connect(connection) as client:
        assert get(client)
        assert get(client)
    assert proxy.asked == [("kube.test:443", "Basic bWU6cGxhbnRlZC1wYXNzd29yZA==")]
    proxy.stop()


def test_a_proxy_that_refuses_is_named_without_its_password(server: Server) -> None:
    proxy = Proxy(server.port, refuse=True)
    url = proxy.url.replace("://", "://me:planted-password@")
    with (
        connect(Connection("west", server="https://kube.test", proxy=url, timeout=1)) as client,
        pytest.raises(Unreachable) as caught,
    ):
        client.version()
    assert f"the proxy {proxy.url} does not connect to https://kube.test" in str(caught.value)
    assert "planted" not in repr(caught.value)
    proxy.stop()


def test_a_socks_proxy_without_its_package(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "urllib3.contrib.socks", raising=False)
    monkeypatch.setitem(sys.modules, "socks", None)
    with (
        connect(Connection("west", server=server.url, proxy="socks5h://127.0.0.1:1")) as client,
        pytest.warns(DependencyWarning),
        pytest.raises(ConnectionInvalid, match=r"needs the Python package PySocks\. pip install PySocks"),
    ):
        client.version()


@pytest.mark.parametrize("rule", ["kube.test", ".test", "*.test", "other, kube.test:443", "*"])
def test_no_proxy_is_heeded(server: Server, monkeypatch: pytest.MonkeyPatch, rule: str) -> None:
    proxy = Proxy(server.port)
    monkeypatch.setenv("HTTPS_PROXY", proxy.url)
    monkeypatch.setenv("NO_PROXY", rule)
    with connect(Connection("west", server="https://kube.test", timeout=1)) as client, pytest.raises(Unreachable):
        client.version()
    assert not proxy.asked
    proxy.stop()


# Watches


def watched(client: Client, **more: Any) -> list[tuple[str, str]]:
    events = client.watch("v1", "ConfigMap", namespace="here", **{"timeout": 1.0, **more})
    return [(kind, item["metadata"]["name"]) for kind, item in events]


def test_a_watch_that_is_cut_goes_on_where_it_was(server: Server, client: Client) -> None:
    server.script = [
        Reply(200, {"metadata": {"resourceVersion": "3"}, "items": [config_map("there", 2)]}),
        Stream([event("ADDED", "b", 4), event("BOOKMARK", "", 6), event("ADDED", "lost", 7)[:20]], whole=False),
        BUSY,
        Stream([event("MODIFIED", "b", 8), 60.0]),
    ]
    began = time.monotonic()
    assert watched(client, timeout=2.0) == [("ADDED", "there"), ("ADDED", "b"), ("MODIFIED", "b")]
    assert 1.9 < time.monotonic() - began < 60
    assert [request.query.get("resourceVersion") for request in server.seen[1:]] == [None, "3", "6", "6"]


def test_events_that_come_in_halves(server: Server, client: Client) -> None:
    line = event("ADDED", "b", 4) + event("DELETED", "b", 5)
    server.script = [Stream([line[:5], line[5:150], line[150:], 2.0])]
    assert watched(client, resource_version="1") == [("ADDED", "b"), ("DELETED", "b")]


@pytest.mark.parametrize("how", ["answer", "event"])
def test_a_watch_from_a_forgotten_version(server: Server, client: Client, how: str) -> None:
    gone = status(410, "Expired", "too old resource version: 1 (9)")
    line = json.dumps({"type": "ERROR", "object": gone}).encode() + b"\n"
    server.script = [Reply(410, gone) if how == "answer" else Stream([line])]
    with pytest.raises(Gone, match="too old resource version"):
        watched(client, resource_version="1")


def test_a_watch_that_no_one_may(server: Server, client: Client) -> None:
    server.script = [Reply(403, status(403, "Forbidden"))]
    with pytest.raises(Forbidden, match="watch configmaps in here"):
        watched(client, resource_version="1")


def test_a_watch_of_a_server_that_goes_away(server: Server, client: Client) -> None:
    server.script = [Stream([event("ADDED", "b", 4)], whole=False)]
    stream = client.watch("v1", "ConfigMap", resource_version="1", timeout=30)
    assert next(stream)[0] == "ADDED"
    server.stop()
    with pytest.raises(Unreachable):
        next(stream)


def test_a_watch_that_is_not_read_limits_no_other_request(server: Server, client: Client) -> None:
    server.script = [Stream([event("ADDED", "b", 4), 60.0]), OURS]
    stream = client.watch("v1", "ConfigMap", resource_version="1", timeout=0.5)
    assert next(stream)[0] == "ADDED"
    # Until what limits the watch is over.
    time.sleep(2)
    assert client.get("v1", "ConfigMap", "a", "here") is not None
    stream.close()


# What is served


def test_what_is_served_is_asked_once_and_remembered(server: Server, authority: Authority, cache: Path) -> None:
    connection = Connection("west", server=server.url, ca_file=str(authority.path))
    for _ in range(2):
        with connect(connection) as client:
            assert client.resource("v1", "ConfigMap").namespaced
            assert not client.resource("v1", "Namespace").namespaced
    assert [request.path for request in server.seen] == ["/api/v1"]
    (folder,) = cache.glob("*/discovery")
    (file,) = folder.iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert file.stat().st_mode & 0o777 == 0o600


def test_nothing_is_written_in_check_mode(server: Server, authority: Authority, cache: Path) -> None:
    connection = Connection("west", server=server.url, ca_file=str(authority.path))
    with connect(connection, write_cache=False) as client:
        assert client.serves("v1", "ConfigMap")
    assert not cache.exists()


def test_what_is_not_remembered_is_asked_for(server: Server, authority: Authority) -> None:
    connection = Connection("west", server=server.url, ca_file=str(authority.path))
    with connect(connection) as client:
        assert client.serves("v1", "ConfigMap")
        assert not client.serves("v1", "Widget")
        assert not client.serves("new/v1", "Widget")
    server.served["/apis/new/v1"] = {"resources": [{"name": "widgets", "kind": "Widget", "namespaced": False}]}
    with connect(connection) as client:
        assert client.serves("new/v1", "Widget")


def test_forgetting_lets_new_kinds_be_seen(server: Server, client: Client) -> None:
    assert not client.serves("new/v1", "Widget")
    with pytest.raises(NotServed, match="serves no Widget of new/v1"):
        client.list("new/v1", "Widget")
    assert client.get("new/v1", "Widget", "x") is None
    assert client.delete("new/v1", "Widget", "x") is False
    server.served["/apis/new/v1"] = {"resources": [{"name": "widgets", "kind": "Widget", "namespaced": False}]}
    client.forget_discovery()
    assert client.resource("new/v1", "Widget").plural == "widgets"


def test_an_old_memory_is_put_right(server: Server, authority: Authority) -> None:
    connection = Connection("west", server=server.url, ca_file=str(authority.path))
    path = "/apis/new/v1"
    server.served[path] = {"resources": [{"name": "widgets", "kind": "Widget", "namespaced": False}]}
    with connect(connection) as client:
        assert client.serves("new/v1", "Widget")
    server.served[path] = {"resources": [{"name": "gadgets", "kind": "Widget", "namespaced": False}]}
    server.always = lambda request: (
        Reply(200, {"metadata": {"name": "w"}, "items": [], "kind": "Widget"})
        if "gadgets" in request.path
        else Reply(404, b"404 page not found")
    )
    widget = {"apiVersion": "new/v1", "kind": "Widget", "metadata": {"name": "w"}}
    with connect(connection) as client:
        assert client.list("new/v1", "Widget").items == ()
    server.served[path] = {"resources": [{"name": "gadgets", "kind": "Widget", "namespaced": False}]}
    with connect(connection) as client:
        assert client.apply(widget)
    del server.served[path]
    server.always = lambda _request: Reply(404, b"404 page not found")
    with connect(connection) as client, pytest.raises(NotServed):
        client.list("new/v1", "Widget")
    with connect(connection) as client, pytest.raises(NotServed):
        client.apply(widget)


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", '{"format": 1, "groups": {"v1": {"at": "now"}}}', '{"format": 1, "groups": {"v1": 3}}', "x" * 100],
)
def test_a_broken_memory_counts_as_none(server: Server, authority: Authority, cache: Path, content: str) -> None:
    connection = Connection("west", server=server.url, ca_file=str(authority.path))
    with connect(connection) as client:
        client.serves("v1", "ConfigMap")
    (file,) = cache.glob("*/discovery/*.json")
    file.write_text(content)
    with connect(connection) as client:
        assert client.serves("v1", "ConfigMap")
    assert json.loads(file.read_text())["groups"]["v1"]["resources"]


def test_a_memory_that_others_can_write_is_not_believed(server: Server, authority: Authority, cache: Path) -> None:
    connection = Connection("west", server=server.url, ca_file=str(authority.path))
    with connect(connection) as client:
        client.serves("v1", "ConfigMap")
    (folder,) = cache.glob("*/discovery")
    folder.chmod(0o777)
    with connect(connection) as client:
        client.serves("v1", "ConfigMap")
    assert len(server.seen) == 2


def test_many_threads_can_use_one_client(server: Server, client: Client) -> None:
    server.always = lambda _request: OURS
    errors: list[Exception] = []

    def work() -> None:
        try:
            for _ in range(10):
                get(client)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert client.requests == {"discovery": 1, "get": 80}
    assert repr(client) == f"Client('west', '{server.url}')"
