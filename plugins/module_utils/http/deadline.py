# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Time and size limits of a whole exchange with a server, regardless of the rate of its bytes.

The timeout of a socket limits only one wait, so a slow server never exceeds it. This applies to the status line, the
headers, the body and the response of a proxy. The sockets of this module also limit each wait to the remaining time of
the thread.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import importlib
import math
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from .._urllib3 import urllib3

_CHUNK = 1 << 16


class EndlessError(TimeoutError):
    """The time or the bytes of a whole exchange are used up, and more data would follow."""


class NoSocksError(ValueError):
    """A proxy uses SOCKS, and the package that urllib3 requires for SOCKS is missing."""


class TooLargeError(OSError):
    """The unpacked response is larger than its limit."""


class _Thread(threading.local):
    end = math.inf
    remaining_bytes = math.inf


_thread = _Thread()


@contextlib.contextmanager
def within(seconds: float, size: float = math.inf) -> Iterator[None]:
    """Limit the sockets of this module in this thread to a number of seconds and bytes. Beyond it they raise
    EndlessError."""
    previous_limits = (_thread.end, _thread.remaining_bytes)
    _thread.end, _thread.remaining_bytes = min(_thread.end, time.monotonic() + seconds), size
    try:
        yield
    finally:
        _thread.end, _thread.remaining_bytes = previous_limits


def _wait_no_longer(waiting: socket.socket) -> None:
    if _thread.end == math.inf:
        return
    remaining_seconds = _thread.end - time.monotonic()
    if remaining_seconds <= 0:
        raise EndlessError
    timeout = waiting.gettimeout()
    if timeout is None or timeout > remaining_seconds:
        waiting.settimeout(remaining_seconds)


def _take(size: int) -> None:
    _thread.remaining_bytes -= size
    if _thread.remaining_bytes < 0:
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


class _TlsSocket(_Limited, ssl.SSLSocket):
    """A TLS socket with these limits."""


def connections(
    tls: ssl.SSLContext | None, proxy: str = "", *, maxsize: int, server_name: str = "", **settings: Any
) -> urllib3.PoolManager:
    """Return persistent connections with sockets that enforce `within`.

    Connections through a SOCKS proxy enforce it only after the TLS handshake. `tls`: None if no server uses TLS.
    `proxy`: a URL, with an optional user and password. `server_name`: the expected name in the certificate, if it
    differs from the URL. `settings`: settings of urllib3's pools. Raises NoSocksError.
    """
    if tls is not None:
        tls.sslsocket_class = _TlsSocket
        settings["ssl_context"] = tls
    if server_name:
        settings["server_hostname"] = server_name
    if proxy.startswith("socks"):
        try:
            socks = importlib.import_module("urllib3.contrib.socks")
        except ImportError:
            raise NoSocksError("a socks proxy needs the Python package PySocks") from None
        manager: urllib3.PoolManager = socks.SOCKSProxyManager(proxy, maxsize=maxsize, **settings)
        return manager
    if proxy:
        address = urllib3.util.parse_url(proxy)
        if address.auth:
            user = base64.b64encode(unquote(address.auth).encode()).decode()
            settings["proxy_headers"] = {"proxy-authorization": f"Basic {user}"}
        manager = urllib3.ProxyManager(address._replace(auth=None).url, maxsize=maxsize, **settings)
    else:
        manager = urllib3.PoolManager(maxsize=maxsize, **settings)
    manager.pool_classes_by_scheme = _pools()
    return manager


def whole(response: urllib3.BaseHTTPResponse, limit: int) -> bytes:
    """Return the unpacked body of a response; raises TooLargeError.

    A connection with an incomplete body is not used again.
    """
    body = bytearray()
    try:
        for piece in response.stream(_CHUNK, decode_content=True):
            body += piece
            if len(body) > limit:
                raise TooLargeError(f"the answer (HTTP {response.status}) is larger than {limit >> 20} MiB")
    except BaseException:
        response.close()
        raise
    response.release_conn()
    return bytes(body)


def _limited(plain: socket.socket) -> socket.socket:
    timeout = plain.gettimeout()
    limited = _Socket(plain.family, plain.type, plain.proto, fileno=plain.detach())
    limited.settimeout(timeout)
    return limited


@functools.cache
def _pools() -> dict[str, type[urllib3.HTTPConnectionPool]]:
    """Return connection pools with these sockets."""

    class Connection(urllib3.connection.HTTPConnection):
        def _new_conn(self) -> socket.socket:
            return _limited(super()._new_conn())

    class TlsConnection(urllib3.connection.HTTPSConnection):
        def _new_conn(self) -> socket.socket:
            return _limited(super()._new_conn())

    class Pool(urllib3.HTTPConnectionPool):
        ConnectionCls = Connection

    class TlsPool(urllib3.HTTPSConnectionPool):
        ConnectionCls = TlsConnection

    return {"http": Pool, "https": TlsPool}
