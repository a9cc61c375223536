# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Servers that answer, and not as an API server does: each ends in an error of its cluster, soon."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.client import Client
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.connection import Connection, connect
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.errors import (
    ApiError,
    Conflict,
    Invalid,
    LockLost,
    Unexpected,
    Unreachable,
)
from ansible_collections.modelplane.fleet.tests.kube.certificates import Authority
from ansible_collections.modelplane.fleet.tests.sick import HUGE, MODES, OK, drip, endless, packed
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.kubernetes.scripted import (
    Raw,
    Reply,
    Server,
    Stream,
    config_map,
    status,
)

TIMEOUT = 0.5
FACTOR = 20
"""Of the timeout, what one read may take at most, on a busy machine too. For ever is what it is compared with."""

PAUSE = TIMEOUT / 5


def page(items: Any, **metadata: Any) -> dict[str, Any]:
    return {"kind": "ConfigMapList", "apiVersion": "v1", "metadata": metadata, "items": items}


SICK: dict[str, Any] = {
    "a status line that drips": lambda: Raw(drip(b"H", b"T", PAUSE)),
    "headers that drip": lambda: Raw(drip(OK, b"X-A: b\r\n", PAUSE)),
    "a header that never ends": lambda: Raw(endless(OK + b"X-A: ", b"a")),
    "a body that drips": lambda: Raw(drip(OK + b"Content-Length: 100000\r\n\r\n", b" ", PAUSE)),
    "chunks that drip": lambda: Raw(drip(OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n", PAUSE)),
    "a body that never ends": lambda: Raw(MODES["huge"]()),
    "a body that is packed a thousand times": lambda: Raw(MODES["bomb"]()),
    "a body that is no gzip": lambda: Reply(200, b"{}", {"Content-Encoding": "gzip"}),
    "a body that is cut": lambda: Reply(200, page([config_map("a")]), cut=20),
    "a body that is shorter than announced": lambda: Raw(MODES["truncated"]()),
    "a body that is longer than announced": lambda: Raw(MODES["length"]()),
    "deep JSON": lambda: Raw(MODES["deep"]()),
    "a deep error": lambda: Reply(403, b'{"kind":"Status","details":' + b"[" * 200_000),
    "no JSON": lambda: Raw(MODES["HTML"]()),
    "no text": lambda: Reply(200, bytes(range(256))),
    "a list": lambda: Reply(200, b"[]"),
    "items that are no list": lambda: Reply(200, page({"a": 1})),
    "items that are no objects": lambda: Reply(200, page([1, None, "x"])),
    "items without metadata": lambda: Reply(200, page([{"kind": "ConfigMap"}])),
    "items whose name is a number": lambda: Reply(200, page([{"metadata": {"name": 1}}])),
    "metadata that is a text": lambda: Reply(200, {**page([]), "metadata": "x"}),
    "a list that goes on with itself": lambda: Reply(200, page([config_map("a")], **{"continue": "again"})),
    "elsewhere": lambda: Raw(MODES["redirect"]()),
    "an error that is none": lambda: Reply(403, {**status(403, "Forbidden"), "details": [1], "message": {"a": 1}}),
    "an error that is packed a thousand times": lambda: Reply(403, packed(1 << 27), {"Content-Encoding": "gzip"}),
    "an error that never ends": lambda: Raw(endless(b"HTTP/1.1 403 No\r\nContent-Length: %d\r\n\r\n" % HUGE, b"a")),
    "an error of half-open tags": lambda: Reply(403, b"<" * 1_000_000),
    "an error of half-open braces": lambda: Reply(422, status(422, "Invalid", "{" * 500_000)),
    "a chunk of less than nothing": lambda: Raw(endless(OK + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n", b" ")),
    "a chunk of less than that": lambda: Raw([OK + b"Transfer-Encoding: chunked\r\n\r\n-2\r\n\r\n"]),
    "a length of thirty digits": lambda: Raw([b"HTTP/1.1 403 No\r\nContent-Length: 1" + b"0" * 30 + b"\r\n\r\n{}"]),
    "a reset in the middle": lambda: Stream([b'{"items": ['], whole=False),
}


@pytest.fixture
def client(server: Server, authority: Authority) -> Iterator[Client]:
    connection = Connection(
        "west", server=server.url, token="planted-token", ca_file=str(authority.path), timeout=TIMEOUT, retries=1
    )
    with connect(connection) as made:
        yield made


@pytest.mark.integration
@pytest.mark.parametrize("how", SICK)
def test_what_no_api_server_says_is_an_error_of_its_cluster(client: Client, server: Server, how: str) -> None:
    server.always = lambda _request: SICK[how]()
    began = time.process_time()
    with pytest.raises(ApiError) as error:
        client.list("v1", "ConfigMap", namespace="here")
    assert str(error.value).startswith("cluster west: list configmaps in here: ")
    assert "planted-token" not in str(error.value)
    # Nothing is worked on for long that is thrown away: a test of processor time, as clocks are those of busy machines.
    assert time.process_time() - began < TIMEOUT * FACTOR


@pytest.mark.integration
@pytest.mark.parametrize("how", ["deep JSON", "no JSON", "a list", "elsewhere", "a body that drips"])
def test_an_object_is_one(client: Client, server: Server, how: str) -> None:
    server.always = lambda _request: SICK[how]()
    with pytest.raises(ApiError):
        client.get("v1", "ConfigMap", "a", "here")


@pytest.mark.integration
@pytest.mark.parametrize("answer", [{}, {"metadata": None}, {"metadata": []}, {"metadata": {"name": []}}])
def test_an_object_has_a_name(client: Client, server: Server, answer: dict[str, Any]) -> None:
    server.always = lambda _request: Reply(200, answer)
    with pytest.raises(Unreachable, match="something that is no object"):
        client.get("v1", "ConfigMap", "a", "here")


@pytest.mark.integration
def test_a_list_that_is_always_new_comes_to_an_end(client: Client, server: Server) -> None:
    numbers = itertools.count()
    server.always = lambda _request: Reply(200, page([], **{"continue": str(next(numbers))}))
    with pytest.raises(Unreachable, match="the list does not come to an end"):
        client.list("v1", "ConfigMap")
    assert next(numbers) <= 110


@pytest.mark.integration
def test_a_large_answer_is_taken(server: Server, authority: Authority) -> None:
    large = config_map("a", text="x" * (1 << 20))
    server.always = lambda _request: Reply(200, page([large] * 20))
    with connect(Connection("west", server=server.url, ca_file=str(authority.path), timeout=60)) as patient:
        assert len(patient.list("v1", "ConfigMap").items) == 20


@pytest.mark.integration
@pytest.mark.parametrize("code", [400, 401, 403, 422, 500])
def test_a_server_that_repeats_credentials_gives_none_away(client: Client, server: Server, code: int) -> None:
    def repeat(request: Any) -> Reply:
        return Reply(code, status(code, "Odd", f"I got {json.dumps(dict(request.headers))}"))

    server.always = repeat
    with pytest.raises(ApiError) as error:
        client.list("v1", "ConfigMap")
    assert "I got" in str(error.value)
    assert "planted-token" not in str(error.value)


@pytest.mark.integration
@pytest.mark.parametrize("filler", [0, 150, 171, 190, 990])
def test_no_part_of_a_token_is_left_where_a_text_is_cut(client: Client, server: Server, filler: int) -> None:
    server.always = lambda request: Reply(502, b"x" * filler + request.headers["authorization"].encode())
    with pytest.raises(ApiError) as error:
        client.list("v1", "ConfigMap")
    assert "planted" not in str(error.value)


@pytest.mark.integration
def test_warnings_and_broken_answers_repeat_no_token(client: Client, server: Server) -> None:
    server.always = lambda request: Reply(
        200, page([]), {"Warning": f'299 - "you sent {request.headers["authorization"]}\x1b[2J"'}
    )
    client.list("v1", "ConfigMap")
    assert client.warnings == ["cluster west: you sent Bearer ********\\x1b[2J"]
    server.always = lambda request: Raw(
        [OK + b"Transfer-Encoding: chunked\r\n\r\n", request.headers["authorization"].encode() + b"\r\n"]
    )
    with pytest.raises(ApiError) as error:
        client.list("v1", "ConfigMap")
    assert "planted" not in str(error.value)


@pytest.mark.integration
@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"ERROR","object":"x"}',
        b'{"type":"ERROR","object":{"code":"a"}}',
        b'{"type":"ADDED","object":1}',
        b'{"type":"ADDED","object":{"metadata":"x"}}',
        b'{"type":"ADDED"}',
        b"[]",
        b"[" * 100_000,
    ],
)
def test_a_watch_ends_at_what_is_no_event(client: Client, server: Server, line: bytes) -> None:
    server.always = lambda _request: Stream([line + b"\n"])
    with pytest.raises(Unreachable, match="the server ends every watch at once"):
        list(client.watch("v1", "ConfigMap", resource_version="1", timeout=5))


def asking(server: Server, authority: Authority, **more: Any) -> Client:
    given: dict[str, Any] = {"server": server.url, "ca_file": str(authority.path), "timeout": 60, "retries": 0, **more}
    return connect(Connection("west", **given))


@pytest.mark.integration
def test_what_is_taken_of_a_server_is_a_setting(server: Server, authority: Authority) -> None:
    server.always = lambda _request: Reply(200, page([config_map("a", text="x" * (1 << 20))] * 2))
    with asking(server, authority, answer_limit=4) as large:
        assert len(large.list("v1", "ConfigMap").items) == 2
    with asking(server, authority, answer_limit=1) as little, pytest.raises(ApiError) as error:
        little.list("v1", "ConfigMap")
    assert "larger than 1 MiB" in str(error.value) or "does not come to an end" in str(error.value)


@pytest.mark.integration
def test_all_pages_of_a_list_have_a_limit(server: Server, authority: Authority) -> None:
    numbers = itertools.count()
    item = config_map("a", text="x" * (700 << 10))
    server.always = lambda _request: Reply(200, page([item], **{"continue": str(next(numbers))}))
    reported = r"the list is larger than 8 MiB\. Raise fleet_answer_limit"
    with asking(server, authority, answer_limit=1) as client, pytest.raises(Unreachable, match=reported):
        client.list("v1", "ConfigMap")
    assert next(numbers) == 12


TOKEN = "planted-token-of-some-length"


@pytest.mark.integration
def test_no_text_of_a_server_has_its_credentials(server: Server, authority: Authority) -> None:
    """Not of its errors, whichever part of them, nor of its objects and events."""
    said = f"{TOKEN}\x1b[2J"
    with asking(server, authority, token=TOKEN) as client:
        cause = {"reason": "FieldManagerConflict", "message": f'conflict with "{said}"', "field": f".data.{said}"}
        server.always = lambda _request: Reply(409, status(409, "Conflict", said, causes=[cause]))
        with pytest.raises(Conflict) as conflict:
            client.apply(config_map("a"))
        assert conflict.value.managers == (("********\\x1b[2J", ".data.********\\x1b[2J"),)
        server.always = lambda _request: Reply(422, status(422, said, said, causes=[cause]))
        with pytest.raises(Invalid) as invalid:
            client.apply(config_map("a"))
        reported = [conflict.value, invalid.value.causes, invalid.value.reason, conflict.value.hint, invalid.value]
        assert TOKEN not in str(reported)
        assert "\x1b" not in str(invalid.value) + str(invalid.value.causes)
        event = {**config_map("a"), "message": said, "status": {"conditions": [{"message": said}]}}
        server.always = lambda _request: Reply(200, page([event]))
        assert TOKEN not in str(client.list("v1", "ConfigMap").items)
        line = json.dumps({"type": "ADDED", "object": event}).encode()
        server.always = lambda _request: Stream([line + b"\n"])
        ((_kind, seen),) = itertools.islice(client.watch("v1", "ConfigMap", resource_version="1", timeout=60), 1)
        assert seen["message"].startswith("********")


@pytest.mark.integration
def test_what_a_server_makes_of_its_token_is_no_secret_to_others(server: Server, authority: Authority) -> None:
    """A short password may be part of any word, which stays as it is."""
    server.always = lambda _request: Reply(200, page([config_map("planted")]))
    with asking(server, authority, token="planted") as client:
        (item,) = client.list("v1", "ConfigMap").items
    assert item["metadata"]["name"] == "planted"


@pytest.mark.integration
def test_what_is_read_wrong_is_an_error_of_its_cluster(server: Server, authority: Authority) -> None:
    server.always = lambda _request: Reply(200, {**config_map("a"), "spec": {"template": [1]}})
    reported = r"cluster west: AttributeError in test_sick_servers\.py:\d+ over what it answers"
    with pytest.raises(Unexpected, match=reported), asking(server, authority) as client:
        (client.get("v1", "ConfigMap", "a", "here") or {})["spec"]["template"].get("replicas")


@pytest.mark.integration
def test_nothing_is_written_once_the_lock_is_lost(server: Server, authority: Authority) -> None:
    lost = False
    server.always = lambda _request: Reply(200, config_map("a"))
    with asking(server, authority) as client:
        client.write_until(lambda: lost)
        client.apply(config_map("a"))
        lost = True
        before = len(server.asked)
        with pytest.raises(LockLost, match="apply ConfigMap here/a: the lock of this run was lost"):
            client.apply(config_map("a"))
        assert len(server.asked) == before
        client.apply(config_map("a"), dry_run=True)
        assert client.get("v1", "ConfigMap", "a", "here") is not None
