# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Calls of Google's APIs against a server that answers as a test defines."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils._urllib3 import HTTPError
from ansible_collections.modelplane.fleet.plugins.module_utils.cloud.waiting import Wait
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.gke.requests import Request as Call
from ansible_collections.modelplane.fleet.plugins.module_utils.google import client as google_client
from ansible_collections.modelplane.fleet.plugins.module_utils.google import login as gke
from ansible_collections.modelplane.fleet.plugins.module_utils.google import session
from ansible_collections.modelplane.fleet.plugins.module_utils.google import tokens as google_tokens
from ansible_collections.modelplane.fleet.plugins.module_utils.google.client import Client, operation
from ansible_collections.modelplane.fleet.plugins.module_utils.google.errors import GoogleError, explained, from_answer
from ansible_collections.modelplane.fleet.plugins.module_utils.google.tokens import LoginError, Token
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.credentials import AccessError, Grant
from ansible_collections.modelplane.fleet.tests.kube.certificates import Authority
from ansible_collections.modelplane.fleet.tests.sick import MODES
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.kubernetes.scripted import (
    Proxy,
    Raw,
    Reply,
    Request,
    Reset,
    Server,
    Step,
)

pytestmark = pytest.mark.integration

READ = Call("compute", "GET", "compute/v1/projects/p/global/networks/n", purpose="read network n")
MAKE = Call("compute", "POST", "compute/v1/projects/p/global/networks", {"name": "n"}, purpose="make network n")
BUSY = Reply(503, {"error": {"code": 503, "message": "Try again.", "status": "UNAVAILABLE"}}, {"Retry-After": "0"})


class Identity(google_tokens.Tokens):
    """Gives out token-1, token-2, ..., another one when one is refused."""

    def __init__(self, quota: str = "") -> None:
        super().__init__()
        self.count, self.quota = 1, quota

    def token(self, refused: str = "") -> Token:
        if refused == f"token-{self.count}":
            self.count += 1
        return Token(f"token-{self.count}", 3600.0)

    def quota_project(self) -> str:
        return self.quota


class NoIdentity(google_tokens.Tokens):
    def token(self, refused: str = "") -> Token:
        assert not refused
        raise LoginError("there are no credentials", "Get some", passing=True)


@pytest.fixture(autouse=True)
def network(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No proxies but those of the test."""
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    google_tokens.forget()
    yield
    google_tokens.forget()


@pytest.fixture
def google(tmp_path: Path) -> Iterator[Server]:
    made = Server(None, tmp_path)
    yield made
    made.stop()


def client(server: Server, ca_file: str = "", **identity: str) -> Client:
    return Client(Identity(**identity), {"compute": f"{server.url}/", "container": server.url}, ca_file)


def failure(server: Server, call: Call = READ, ca_file: str = "") -> GoogleError:
    with pytest.raises(GoogleError) as caught:
        client(server, ca_file).call(call)
    assert "token-" not in str(caught.value)
    return caught.value


def test_a_call(google: Server) -> None:
    google.script = [Reply(200, {"name": "n"})]
    assert client(google, quota="billing").call(MAKE) == {"name": "n"}
    (seen,) = google.seen
    assert (seen.method, seen.path, seen.body) == ("POST", "/compute/v1/projects/p/global/networks", {"name": "n"})
    assert seen.headers["authorization"] == "Bearer token-1"
    assert seen.headers["x-goog-user-project"] == "billing"
    assert seen.headers["user-agent"] == "modelplane.fleet"
    google.script = [Reply(200, b"")]
    assert client(google).call(READ) == {}
    assert "x-goog-user-project" not in google.seen[-1].headers
    assert google.seen[-1].body is None


@pytest.mark.parametrize("step", [BUSY, Reply(429, b"slow", {"Retry-After": "0"}), Reset()])
def test_what_passes_is_asked_again(google: Server, step: Step) -> None:
    google.script = [step, Reply(200, {"name": "n"})]
    assert client(google).call(MAKE) == {"name": "n"}
    assert len(google.seen) == 2


def test_what_stays_busy(google: Server) -> None:
    google.always = lambda _request: BUSY
    error = failure(google)
    assert len(google.seen) == 6
    assert (error.status, error.code, error.passing) == (503, "UNAVAILABLE", True)


def test_a_limit_of_the_rate_of_calls_may_come_as_a_refusal(google: Server) -> None:
    limit = {"error": {"code": 403, "message": "Slow down", "errors": [{"reason": "rateLimitExceeded"}]}}
    google.script = [Reply(403, limit, {"Retry-After": "0"}), Reply(200, {})]
    assert client(google).call(READ) == {}


def test_a_refused_token_is_renewed_once(google: Server) -> None:
    refused = Reply(401, {"error": {"code": 401, "message": "token-1 is old", "status": "UNAUTHENTICATED"}})

    def answer(request: Request) -> Step:
        return Reply(200, {}) if request.headers["authorization"] == "Bearer token-2" else refused

    google.always = answer
    assert client(google).call(READ) == {}
    google.always = lambda _request: refused
    error = failure(google)
    assert error.code == "UNAUTHENTICATED"
    assert "Log in again" in str(error)
    assert "******** is old" in str(error)


def test_no_token(google: Server) -> None:
    with pytest.raises(GoogleError) as caught:
        Client(NoIdentity(), {"compute": google.url}).call(READ)
    assert str(caught.value) == "read network n: there are no credentials. Get some"
    assert caught.value.passing


@pytest.mark.parametrize(("body", "said"), [(b"<html>Hello", "is no JSON object"), (b"[]", "is no JSON object")])
def test_answers_that_are_none_of_google(google: Server, body: bytes, said: str) -> None:
    google.always = lambda _request: Reply(200, body)
    assert said in str(failure(google))


def test_a_page_of_a_proxy(google: Server) -> None:
    page = b"<html><style>x{}</style><h1>Blocked</h1> by policy</html>"
    google.always = lambda _request: Reply(407, page, {"Content-Type": "text/html"})
    assert str(failure(google)).startswith("read network n: HTTP 407: Blocked by policy")


def test_pages(google: Server) -> None:
    google.script = [
        Reply(200, {"items": [{"name": "a"}], "nextPageToken": "t"}),
        Reply(200, {"items": [{"name": "b"}]}),
    ]
    found = client(google).pages("compute", "compute/v1/projects/p/zones?maxResults=1", "items", "list the zones")
    assert [each["name"] for each in found] == ["a", "b"]
    assert google.seen[-1].query == {"maxResults": "1", "pageToken": "t"}


def test_a_list_over_all_places(google: Server) -> None:
    empty = {"warning": {"code": "NO_RESULTS_ON_PAGE"}}
    google.script = [
        Reply(200, {"items": {"zones/a": {"disks": [{"name": "x"}]}, "zones/b": empty}, "nextPageToken": "t"}),
        Reply(200, {"items": {"zones/b": {"disks": [{"name": "y"}, {"name": "z"}]}}}),
        Reply(200, {}),
    ]
    path = "compute/v1/projects/p/aggregated/disks"
    found = list(client(google).aggregated(path, "disks", "list the disks"))
    assert found == [("zones/a", {"name": "x"}), ("zones/b", {"name": "y"}), ("zones/b", {"name": "z"})]
    assert list(client(google).aggregated(path, "disks", "list the disks")) == []


def test_no_server_is_there(google: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    google.stop()
    monkeypatch.setattr("ansible_collections.modelplane.fleet.plugins.module_utils.google.client._RETRIES", 1)
    error = failure(google)
    assert f"no connection to {google.url}: connection refused" in str(error)
    assert "HTTPS_PROXY" in str(error)
    assert error.passing


def test_certificates(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "google")
    server = Server(authority, tmp_path / "server")
    try:
        server.always = lambda _request: Reply(200, {"name": "n"})
        error = failure(server)
        assert error.code == "CertificateNotTrusted"
        assert "Give the certificates that Google is reached with as ca_file" in str(error)
        assert not error.passing
        assert client(server, str(authority.path)).call(READ) == {"name": "n"}
    finally:
        server.stop()


# The thread of the proxy raises an exception when a side closes the connection.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(tmp_path, "google")
    server = Server(authority, tmp_path / "server")
    proxy = Proxy(server.port)
    try:
        server.always = lambda _request: Reply(200, {"name": "n"})
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        far = Client(Identity(), {"compute": "https://localhost.example"}, str(authority.path))
        with pytest.raises(GoogleError, match=r"certificate of https://localhost\.example is not trusted"):
            far.call(READ)
        assert [name for name, _ in proxy.asked] == ["localhost.example:443"]
        # It does not lead to this machine, nor to what NO_PROXY names.
        assert client(server, str(authority.path)).call(READ) == {"name": "n"}
        assert len(proxy.asked) == 1
    finally:
        proxy.stop()
        server.stop()


# Operations

CLUSTER = {"kind": "cluster", "name": "west", "parent": "projects/p/locations/r"}
OPERATION = {"name": "operation-1", "status": "RUNNING"}


def waited(server: Server, steps: list[Step], timeout: float = 60) -> list[str]:
    lines: list[str] = []
    server.script = steps
    begun = operation(client(server), CLUSTER, OPERATION, "make GKE cluster west")
    assert begun
    failed = begun.over(Wait(timeout, 0.0, lines.append, GoogleError))
    if failed:
        raise failed
    return [line.partition(" (after")[0] for line in lines]


def test_an_operation_is_followed_to_its_end(google: Server) -> None:
    steps: list[Step] = [
        Reply(200, {**OPERATION, "detail": "making nodes"}),
        Reply(200, {**OPERATION, "status": "DONE"}),
    ]
    assert waited(google, steps) == ["make GKE cluster west: RUNNING: making nodes", "make GKE cluster west: DONE"]
    assert google.asked[0] == "GET /v1/projects/p/locations/r/operations/operation-1"


def test_an_operation_that_failed(google: Server) -> None:
    error = {"code": 8, "message": "[GCE_STOCKOUT]: no machines."}
    with pytest.raises(GoogleError) as caught:
        waited(google, [Reply(200, {**OPERATION, "status": "DONE", "error": error})])
    assert str(caught.value).startswith(
        "make GKE cluster west failed: RESOURCE_EXHAUSTED: [GCE_STOCKOUT]: no machines. Google has no such machine free"
    )


def test_an_operation_that_is_forgotten_is_over(google: Server) -> None:
    assert waited(google, [Reply(404, {"error": {"code": 404}})]) == ["make GKE cluster west: done"]


def test_an_operation_that_takes_too_long(google: Server) -> None:
    with pytest.raises(GoogleError, match="last seen: make GKE cluster west: RUNNING"):
        waited(google, [Reply(200, OPERATION)], timeout=0)


# Errors


def error(http: int, /, **body: Any) -> GoogleError:
    """Of an answer as Google gives it."""
    return from_answer("do it", http, json.dumps({"error": {"code": http, **body}}).encode())


DETAILS = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "SERVICE_DISABLED"}]
NOT_FOUND = [{"domain": "global", "reason": "notFound", "message": "gone"}]


@pytest.mark.parametrize(
    ("given", "is_a", "code"),
    [
        (error(404, message="gone", status="NOT_FOUND"), "absent", "NOT_FOUND"),
        (error(404, message="gone", errors=NOT_FOUND), "absent", "notFound"),
        (error(409, message="there", status="ALREADY_EXISTS"), "exists", "ALREADY_EXISTS"),
        (error(409, message="there", errors=[{"reason": "alreadyExists"}]), "exists", "alreadyExists"),
        (error(409, message="etag", status="ABORTED"), "outdated", "ABORTED"),
        (error(412, message="print", errors=[{"reason": "conditionNotMet"}]), "outdated", "conditionNotMet"),
        (
            error(
                400,
                message="Cluster is running incompatible operation operation-17-ab.",
                status="FAILED_PRECONDITION",
            ),
            "busy",
            "FAILED_PRECONDITION",
        ),
        (error(400, message="not ready", errors=[{"reason": "resourceNotReady"}]), "busy", "resourceNotReady"),
        (error(403, message="off", status="PERMISSION_DENIED", details=DETAILS), "", "SERVICE_DISABLED"),
        (error(400, message="no such zone", status="INVALID_ARGUMENT"), "", "INVALID_ARGUMENT"),
        (error(400, message="a policy forbids it", status="FAILED_PRECONDITION"), "", "FAILED_PRECONDITION"),
        (error(500, message="oops", status="INTERNAL"), "passing", "INTERNAL"),
    ],
)
def test_what_an_error_is(given: GoogleError, is_a: str, code: str) -> None:
    names = ("absent", "exists", "outdated", "busy", "passing")
    assert [name for name in names if getattr(given, name)] == ([is_a] if is_a else [])
    assert given.code == code
    assert str(given).startswith(f"do it: {code}: ")


def test_what_keeps_a_cluster_busy() -> None:
    incompatible = error(400, message="running incompatible operation operation-17-ab.", status="FAILED_PRECONDITION")
    assert incompatible.blocker == "operation-17-ab"
    assert error(400, message="x", status="FAILED_PRECONDITION").blocker == "another change"


def test_a_hint_is_given_once() -> None:
    said, hint = explained([("GCE_STOCKOUT", "in a."), ("GCE_STOCKOUT", "in b"), ("", "")])
    assert said == "GCE_STOCKOUT: in a; GCE_STOCKOUT: in b"
    assert hint.count("use another machine type") == 1


# Arguments


def test_the_project(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert session.project({"project": "p"}) == "p"
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "of-environment")
    user = '{"type": "authorized_user", "client_id": "c", "client_secret": "s", "refresh_token": "r"}'
    (tmp_path / "user.json").write_text(user)
    assert session.project({"credentials_file": str(tmp_path / "user.json")}) == "of-environment"
    monkeypatch.delenv("GOOGLE_CLOUD_PROJECT")
    google_tokens.forget()
    with pytest.raises(GoogleError, match=r"none is given, and the credentials name none\. Give project"):
        session.project({"credentials_file": str(tmp_path / "user.json")})


@pytest.mark.parametrize("mode", ["drip", "huge", "deep", "HTML", "truncated", "length", "bomb"])
def test_an_answer_that_is_none_comes_to_an_end(google: Server, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    monkeypatch.setattr(google_client, "_READ_SECONDS", 0.5)
    monkeypatch.setattr(google_client, "_RETRY_SECONDS", 0.1)
    google.always = lambda _request: Raw(MODES[mode]())
    assert failure(google)


def test_a_list_that_goes_on_with_itself(google: Server) -> None:
    google.always = lambda _request: Reply(200, {"items": [], "nextPageToken": "again"})
    with pytest.raises(GoogleError, match="the list does not come to an end"):
        list(client(google).pages("compute", "projects/p/global/networks", "items", "list"))


@pytest.mark.parametrize("mode", ["drip", "huge", "bomb", "truncated"])
def test_a_token_server_comes_to_an_end(google: Server, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    monkeypatch.setattr(google_tokens, "_SECONDS", 0.5)
    google.always = lambda _request: Raw(MODES[mode]())
    ways = google_tokens._Ways("")
    with pytest.raises((HTTPError, OSError)):
        ways.request("POST", f"{google.url}/token")


@pytest.mark.parametrize(
    "body", [b"[]", b'{"endpoint": [], "masterAuth": []}', b"[" * 100_000, b'{"masterAuth": "x"}', b""]
)
def test_where_a_cluster_is_that_cannot_be_read(google: Server, monkeypatch: pytest.MonkeyPatch, body: bytes) -> None:
    monkeypatch.setattr(gke, "_grant", lambda *_args, **_more: Grant("token"))
    google.always = lambda _request: Reply(200, body)
    with pytest.raises(AccessError):
        gke.describe("p", "l", "c", endpoint=google.url)
