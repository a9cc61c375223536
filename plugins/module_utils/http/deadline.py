# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The end of an exchange with a server, however slowly its bytes come.

The timeout of a socket is for one wait, so a byte now and then never runs into it, be it of the status line, the
headers, the body or the answer of a proxy. The sockets here wait no longer than what is left to the thread that reads.
"""

from __future__ import annotations

import contextlib
import functools
import math
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils._kubernetes import urllib3


class EndlessError(TimeoutError):
    """The time for a whole exchange is over, or its bytes are used up, and more come."""


class _Thread(threading.local):
    end = math.inf
    left = math.inf


_thread = _Thread()


@contextlib.contextmanager
def within(seconds: float, size: float = math.inf) -> Iterator[None]:
    """Let sockets of this module raise EndlessError in this thread once so many seconds are over, or so many bytes were
    read."""
    before = (_thread.end, _thread.left)
    _thread.end, _thread.left = min(_thread.end, time.monotonic() + seconds), size
    try:
        yield
    finally:
        _thread.end, _thread.left = before


def _wait_no_longer(waiting: socket.socket) -> None:
    if _thread.end == math.inf:
        return
    left = _thread.end - time.monotonic()
    if left <= 0:
        raise EndlessError
    timeout = waiting.gettimeout()
    if timeout is None or timeout > left:
        waiting.settimeout(left)


def _take(size: int) -> None:
    _thread.left -= size
    if _thread.left < 0:
        raise EndlessError


class _Limited:
    """Socket methods that enforce the deadline and the size of `within`."""

    def recv_into(self, *arguments: Any, **more: Any) -> int:
        _wait_no_longer(self)  # type: ignore[arg-type]
        size: int = super().recv_into(*arguments, **more)  # type: ignore[misc]
        _take(size)
        return size

    def recv(self, *arguments: Any, **more: Any) -> bytes:
        _wait_no_longer(self)  # type: ignore[arg-type]
        data: bytes = super().recv(*arguments, **more)  # type: ignore[misc]
        _take(len(data))
        return data


class _Socket(_Limited, socket.socket):
    """A TCP socket with these limits."""


class TlsSocket(_Limited, ssl.SSLSocket):
    """A TLS socket with these limits, for `SSLContext.sslsocket_class`."""


def _of_this_module(made: socket.socket) -> socket.socket:
    timeout = made.gettimeout()
    found = _Socket(made.family, made.type, made.proto, fileno=made.detach())
    found.settimeout(timeout)
    return found


@functools.cache
def pools() -> Mapping[str, type[Any]]:
    """Return connection pools with these sockets, for `PoolManager.pool_classes_by_scheme`."""

    class Connection(urllib3.connection.HTTPConnection):  # type: ignore[misc]
        def _new_conn(self) -> socket.socket:
            return _of_this_module(super()._new_conn())

    class TlsConnection(urllib3.connection.HTTPSConnection):  # type: ignore[misc]
        def _new_conn(self) -> socket.socket:
            return _of_this_module(super()._new_conn())

    class Pool(urllib3.HTTPConnectionPool):  # type: ignore[misc]
        ConnectionCls = Connection

    class TlsPool(urllib3.HTTPSConnectionPool):  # type: ignore[misc]
        ConnectionCls = TlsConnection

    return {"http": Pool, "https": TlsPool}
