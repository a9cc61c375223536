# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Credentials for an API server: the Authorization header and the client certificate, renewed before they expire."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from ..core.secrets import ENCRYPTED, is_encrypted

# Remaining seconds for the renewal of a token, because a request with the token must arrive before it expires.
_MARGIN = 60.0
_FILE_REREAD = 60.0


class AccessError(Exception):
    """The settings of a connection are invalid, or there are no credentials.

    The text contains the problem, and `hint` the fix. Neither contains a secret.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True)
class ClientCertificate:
    """A certificate (with its chain) and its key as PEM texts."""

    certificate: str = field(repr=False)
    key: str = field(repr=False)


@dataclass(frozen=True)
class Grant:
    """Credentials as a provider gave them: a bearer token, a client certificate or both, for `seconds` from now."""

    token: str = field(default="", repr=False)
    certificate: ClientCertificate | None = None
    seconds: float | None = None


# Makes credentials. The argument is a token that a server refused (empty for none), which is not to be given out again.
Mint = Callable[[str], Grant]


class Credentials(Protocol):
    """Authentication of the requests of one client. Every method can raise AccessError."""

    def authorization(self) -> str:
        """Return the value of the Authorization header, or "" without one."""

    def certificate(self) -> ClientCertificate | None:
        """Return the current client certificate."""

    def renew(self) -> bool:
        """Renew credentials that the server rejected. Return True if new credentials are available."""


def bearer(token: str) -> str:
    """Return the Authorization header of a token. Raise AccessError for characters that a header cannot contain."""
    token = token.strip()
    if not token:
        return ""
    if not token.isascii() or not token.isprintable() or " " in token:
        raise AccessError("the token has characters that no token has", "Check it for line breaks and quotes")
    return f"Bearer {token}"


def basic(user: str, password: str) -> str:
    """Return the Authorization header of a user and password (RFC 7617)."""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode("ascii")


@dataclass(frozen=True)
class Fixed:
    """Credentials that never change."""

    header: str = field(default="", repr=False)
    client_certificate: ClientCertificate | None = None

    def authorization(self) -> str:
        return self.header

    def certificate(self) -> ClientCertificate | None:
        return self.client_certificate

    def renew(self) -> bool:
        return False


class TokenFile:
    """Token in a file that another program renews, such as a service account token. The file is read once a minute."""

    def __init__(self, path: Path, client_certificate: ClientCertificate | None = None) -> None:
        self._path = path
        self._certificate = client_certificate
        self._header = ""
        self._read = float("-inf")

    def authorization(self) -> str:
        if time.monotonic() - self._read >= _FILE_REREAD:
            self._load()
        return self._header

    def certificate(self) -> ClientCertificate | None:
        return self._certificate

    def renew(self) -> bool:
        previous_header = self._header
        self._load()
        return self._header != previous_header

    def _load(self) -> None:
        try:
            text = self._path.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "is no text"
            raise AccessError(f"token file {self._path}: {reason}") from None
        if is_encrypted(text):
            raise AccessError(f"token file {self._path}: {ENCRYPTED}", "Decrypt it with ansible-vault decrypt")
        self._header, self._read = bearer(text), time.monotonic()


class Minted:
    """Credentials from a function that is called again shortly before they expire. Thread-safe."""

    def __init__(self, mint: Mint, client_certificate: ClientCertificate | None = None) -> None:
        self._mint = mint
        self._certificate = client_certificate
        self._grant: Grant | None = None
        self._until = 0.0
        self._lock = threading.Lock()

    def authorization(self) -> str:
        return bearer(self._current().token)

    def certificate(self) -> ClientCertificate | None:
        return self._current().certificate or self._certificate

    def renew(self) -> bool:
        with self._lock:
            self._make(self._grant.token if self._grant else "")
        return True

    def _current(self) -> Grant:
        with self._lock:
            if self._grant is None or time.monotonic() >= self._until:
                return self._make("")
            return self._grant

    def _make(self, refused: str) -> Grant:
        grant = self._mint(refused)
        life = float("inf") if grant.seconds is None else grant.seconds - min(_MARGIN, grant.seconds / 4)
        self._grant, self._until = grant, time.monotonic() + life
        return grant
