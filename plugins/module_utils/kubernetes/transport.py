# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Requests to one API server over connections of urllib3: bytes out, bytes in.

No redirects are followed and nothing is repeated here; `requester.py` decides about that.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import socket
import ssl
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from .._urllib3 import HTTPError, certifi, urllib3
from ..http.deadline import NoSocksError, TooLargeError, connections, whole, within
from ..http.errors import TransportError, explain
from ..http.proxies import environment_proxy
from .credentials import AccessError, ClientCertificate
from .target import Target, checked_url

USER_AGENT = "modelplane.fleet"
_CONNECTIONS = 32
_CHUNK = 1 << 16
# A response can take longer than each wait, but not forever: slow data would never reach the timeout of a socket.
_ANSWER_TIMES = 3
LARGEST_ANSWER = 64 << 20
"""Default maximum size of an unpacked response, or of an event of a watch, in bytes. A page of a list contains 500
objects, or fewer large objects."""
_LARGEST_ERROR = 1 << 20
# Errors of the library and of the system. The other errors are caused by invalid numbers in headers and chunks.
_BROKEN = (HTTPError, OSError, ValueError, ArithmeticError, MemoryError)
_PROXY_SCHEMES = ("http", "https", "socks5", "socks5h")


@dataclass(frozen=True)
class Answer:
    """An answer of any code: headers by lower-case name."""

    code: int
    body: bytes
    headers: Mapping[str, str]


class Transport:
    """Connections to one server, opened on first use. Thread-safe."""

    def __init__(self, target: Target, limit: int = LARGEST_ANSWER) -> None:
        """`limit`: bytes of the largest answer. Raise AccessError for certificates and proxies that cannot be used."""
        self._target = target
        self._limit = limit
        self._proxy = target.proxy or environment_proxy(target.server)
        self._certificate = target.credentials.certificate()
        self._connections = _connections(target, self._proxy, self._certificate)

    def outdated(self) -> bool:
        """Return True if the client certificate differs from the certificate of these connections."""
        return self._target.credentials.certificate() != self._certificate

    def send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str],
        body: Mapping[str, Any] | None = None,
        content_type: str = "",
        timeout: float,
    ) -> Answer:
        """Send one request and return its complete response.

        `timeout`: seconds for the connection, and for each wait during the response. The response must end after three
        times this period. Raise TransportError without a complete response, and AccessError without credentials.
        """
        try:
            with within(timeout * _ANSWER_TIMES, self._limit):
                response = self._request(method, path, query, body, content_type, (timeout, timeout))
                return _whole(response, self._limit)
        except _BROKEN as error:  # pylint: disable=catching-non-exception
            raise self._explain(error, timeout) from None

    @contextlib.contextmanager
    def stream(
        self, path: str, *, query: Mapping[str, str], timeout: float, connect: float
    ) -> Iterator[Iterator[bytes] | Answer]:
        """Send a request with a response in parts. Yield an iterator of bytes, or an Answer without a 2xx code."""
        response = None
        try:
            end = time.monotonic() + connect + timeout
            with within(connect + timeout):
                response = self._request("GET", path, query, None, "", (connect, timeout))
                refused = None if 200 <= response.status < 300 else _whole(response, self._limit)
            yield _pieces(response, end) if refused is None else refused
        except _BROKEN as error:  # pylint: disable=catching-non-exception
            raise self._explain(error, timeout) from None
        finally:
            if response is not None:
                response.close()

    def close(self) -> None:
        """Close the connections. The next request opens new connections."""
        self._connections.clear()

    def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Mapping[str, Any] | None,
        content_type: str,
        timeout: tuple[float, float],
    ) -> urllib3.BaseHTTPResponse:
        headers = {"Accept": "application/json", "Accept-Encoding": "gzip", "User-Agent": USER_AGENT}
        headers["Content-Type"] = content_type or "application/json"
        authorization = self._target.credentials.authorization()
        if authorization:
            headers["Authorization"] = authorization
        if self._target.impersonate:
            headers["Impersonate-User"] = self._target.impersonate
        connect, read = timeout
        return self._connections.request(
            method,
            f"{self._target.server}{path}" + (f"?{urlencode(query)}" if query else ""),
            body=None if body is None else json.dumps(body).encode(),
            headers=headers,
            timeout=urllib3.Timeout(connect=connect, read=read),
            retries=False,
            redirect=False,
            preload_content=False,
        )

    def _explain(self, error: Exception, timeout: float = 0.0) -> TransportError:
        return explain(error, self._target.server, self._proxy, timeout)


def _whole(response: urllib3.BaseHTTPResponse, limit: int) -> Answer:
    limit = limit if 200 <= response.status < 300 else min(limit, _LARGEST_ERROR)
    try:
        body = whole(response, limit)
    except TooLargeError as error:
        hint = "Is this the address of an API server? Otherwise raise fleet_answer_limit"
        raise TransportError(str(error), sent=True, permanent=True, hint=hint) from None
    return Answer(response.status, body, {name.lower(): value for name, value in response.headers.items()})


def _connections(target: Target, proxy: str, certificate: ClientCertificate | None) -> urllib3.PoolManager:
    tls = tls_context(target.ca, target.verify, certificate) if target.server.startswith("https") else None
    if proxy:
        checked_url(proxy, "proxy", _PROXY_SCHEMES)
    try:
        return connections(
            tls,
            proxy,
            maxsize=_CONNECTIONS,
            server_name=target.tls_server_name,
            socket_options=_socket_options(),
        )
    except NoSocksError as error:
        raise AccessError(str(error), "pip install PySocks") from None


def _socket_options() -> list[tuple[int, int, int]]:
    """Return the socket options of the library with keepalive, to detect a lost peer of a watch within a minute."""
    options = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    return options


@functools.lru_cache(maxsize=1024)
def tls_context(ca: str, verify: bool, certificate: ClientCertificate | None) -> ssl.SSLContext:
    """Return a TLS context that accepts the same certificates as client-go.

    Every certificate in the CA text is an anchor, including old CAs without key identifiers. Python 3.13 rejects such
    CAs by default (VERIFY_X509_STRICT), but many clusters have one.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not verify:
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif ca:
        try:
            context.load_verify_locations(cadata=ca)
        except (ssl.SSLError, ValueError):
            raise AccessError(
                "the CA is no PEM text with certificates", "Check ca_text, ca_file or the kubeconfig"
            ) from None
    else:
        paths = ssl.get_default_verify_paths()
        context.load_default_certs() if paths.cafile or paths.capath else context.load_verify_locations(certifi.where())
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if certificate is not None:
        _load_certificate(context, certificate)
    return context


def _load_certificate(context: ssl.SSLContext, pair: ClientCertificate) -> None:
    """Load a client certificate. OpenSSL reads keys only from files, so use a file in memory or a temporary file."""
    data = f"{pair.certificate.rstrip()}\n{pair.key.rstrip()}\n".encode()
    try:
        if hasattr(os, "memfd_create"):
            handle = os.memfd_create("client-certificate")
            try:
                os.write(handle, data)
                context.load_cert_chain(f"/proc/self/fd/{handle}", password=lambda: b"")
            finally:
                os.close(handle)
        else:
            with tempfile.NamedTemporaryFile(prefix="modelplane-", suffix=".pem") as file:
                file.write(data)
                file.flush()
                context.load_cert_chain(file.name, password=lambda: b"")
    except (ssl.SSLError, ValueError):
        hint = "Check client-certificate and client-key; a key with a password cannot be used"
        raise AccessError("the client certificate and its key cannot be loaded", hint) from None


def _pieces(response: Any, end: float) -> Iterator[bytes]:
    """Yield the parts of a response. The time limit applies to each wait, because the thread has other requests."""
    pieces = response.stream(_CHUNK, decode_content=True)
    while True:
        with within(end - time.monotonic()):
            piece = next(pieces, None)
        if piece is None:
            return
        yield piece
