# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Answers of servers that are no API servers or are ill, byte for byte: pieces of responses, seconds of silence."""

from __future__ import annotations

import functools
import gzip
import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Pieces = Iterator[bytes | float]

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
HUGE = 1 << 40
_PAUSE = 0.1
_numbers = itertools.count()


def drip(before: bytes, piece: bytes, pause: float = _PAUSE) -> Pieces:
    """A piece now and then, so that no wait for one runs into a timeout."""
    yield before
    for _ in range(10_000):
        yield pause
        yield piece


def endless(before: bytes, piece: bytes) -> Pieces:
    """As many bytes as the client reads."""
    yield before
    yield from itertools.repeat(piece * 65536)


def whole(body: bytes, *headers: str, status: str = "200 OK") -> Pieces:
    """An answer with its length."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    yield "\r\n".join([*lines, "", ""]).encode() + body


@functools.cache
def packed(size: int) -> bytes:
    """So many spaces, a thousand times smaller."""
    return gzip.compress(b" " * size)


def page(**metadata: Any) -> bytes:
    """A page of a list that has nothing in it."""
    return json.dumps({"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": []}).encode()


DEEP = b'{"items":' + b"[" * 200_000 + b"]" * 200_000 + b"}"

MODES: Mapping[str, Callable[[], Pieces]] = {
    "drip": lambda: drip(OK + b"Content-Length: 100000\r\n\r\n", b" "),
    "huge": lambda: endless(OK + b"Content-Length: %d\r\n\r\n" % HUGE, b" "),
    "deep": lambda: whole(DEEP),
    "HTML": lambda: whole(b"<html><body>Please log in</body></html>", "Content-Type: text/html"),
    "truncated": lambda: iter([OK + b'Content-Length: 100\r\n\r\n{"items": [']),
    "length": lambda: iter([OK + b"Content-Length: 5\r\n\r\n" + page()]),
    "redirect": lambda: whole(b"", "Location: https://169.254.169.254/", status="302 Found"),
    "bomb": lambda: whole(packed(1 << 27), "Content-Encoding: gzip"),
    "repeated": lambda: whole(page(**{"continue": "again"})),
    "endless": lambda: whole(page(**{"continue": str(next(_numbers))})),
}
"""Sicknesses by their name; of the two last ones, only lists are sick."""
OF_LISTS = frozenset({"repeated", "endless"})
