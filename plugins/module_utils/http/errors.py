# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Exchanges that end without a complete response: the cause, in a message without secrets."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from urllib.parse import SplitResult, urlsplit

from .._urllib3 import urllib3
from .deadline import EndlessError, TooLargeError


class TransportError(Exception):
    """No complete response.

    `sent`: the server may have acted on the request. `permanent`: the next attempt would have the same result.
    """

    def __init__(self, text: str, *, sent: bool = False, permanent: bool = False, hint: str = "") -> None:
        super().__init__(text)
        self.sent = sent
        self.permanent = permanent
        self.hint = hint


def explain(error: Exception, url: str, proxy: str, timeout: float) -> TransportError:
    """Return the error of a failed call. It has a message, and the flags `sent` and `permanent`."""
    kinds = urllib3.exceptions
    server = shown_url(url)
    by = f" through the proxy {shown_url(proxy)}" if proxy else ""
    causes = list(_causes(error))
    if isinstance(error, kinds.ProxyError):
        explanation = str(causes[-1]) if causes else str(error)
        return TransportError(f"the proxy {shown_url(proxy)} does not connect to {server}: {_short(explanation)}")
    untrusted = next((cause for cause in causes if isinstance(cause, ssl.SSLCertVerificationError)), None)
    if untrusted:
        return TransportError(
            f"the certificate of {server} is not trusted: {_short(untrusted.verify_message)}",
            permanent=True,
            hint="Check the server's name and its CA (ca_file, ca_text, tls_server_name)",
        )
    if isinstance(error, kinds.NameResolutionError) or any(isinstance(cause, socket.gaierror) for cause in causes):
        unknown = any(isinstance(c, socket.gaierror) and c.errno != socket.EAI_AGAIN for c in causes)
        host = urlsplit(proxy or url).hostname
        return TransportError(f"the name {host} is not known", permanent=unknown, hint="Check the address and the DNS")
    # This class is checked before its base class, because the base class is a timeout.
    if isinstance(error, kinds.NewConnectionError):
        explanation = (
            next((c.strerror for c in reversed(causes) if isinstance(c, OSError) and c.strerror), "") or "failed"
        )
        return TransportError(f"no connection to {server}{by}: {explanation.lower()}")
    if isinstance(error, kinds.ConnectTimeoutError):
        return TransportError(f"no connection to {server}{by} within {timeout:.3g} s")
    if any(isinstance(cause, EndlessError) for cause in causes):
        return TransportError(f"the answer of {server}{by} does not come to an end", sent=True, permanent=True)
    if isinstance(error, TooLargeError):
        return TransportError(f"{server}{by}: {error}", sent=True, permanent=True)
    if isinstance(error, kinds.ReadTimeoutError):
        return TransportError(f"no answer from {server}{by} within {timeout:.3g} s", sent=True)
    if isinstance(error, kinds.SSLError | ssl.SSLError):
        return TransportError(f"no TLS connection to {server}{by}: {_short(str(error))}")
    return TransportError(f"the connection to {server}{by} broke: {_short(_last_words(error))}", sent=True)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the causes of an error, as the libraries store them: as cause, as context, or as an argument."""
    seen: set[int] = set()
    unseen: list[BaseException] = [error]
    while unseen:
        current = unseen.pop(0)
        if id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        linked = (current.__cause__, current.__context__, getattr(current, "reason", None), *current.args)
        unseen.extend(link for link in linked if isinstance(link, BaseException))


def _last_words(error: Exception) -> str:
    """Return the message of the operating system for a broken connection."""
    system_messages = [cause.strerror for cause in _causes(error) if isinstance(cause, OSError) and cause.strerror]
    return system_messages[-1].lower() if system_messages else str(error.args[0] if error.args else error)


def _short(text: str) -> str:
    return " ".join(text.split())[:200]


def shown_url(url: str) -> str:
    """Return a URL without its secret parts."""
    address = urlsplit(url)
    return SplitResult(address.scheme, address.netloc.rpartition("@")[2], address.path, "", "").geturl()
