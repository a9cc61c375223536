# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Google credentials and access tokens, by google-auth: of a key file, a workload identity, a user, a metadata server.

A token serves all requests of an identity. It is created once per process. The first request that needs it renews it
when it expires or is rejected. Error texts never contain a secret.
"""

from __future__ import annotations

import datetime
import functools
import json
import os
import re
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .._google import GOOGLE_PACKAGE, load_google
from .._urllib3 import HTTPError
from ..core.secrets import ENCRYPTED, is_encrypted
from ..core.text import cut
from ..http import deadline
from ..http.deadline import whole, within
from ..http.proxies import environment_proxy

_SCOPES = ("https://www.googleapis.com/auth/cloud-platform", "https://www.googleapis.com/auth/userinfo.email")
_SECONDS = 20.0
# A token with less remaining time is renewed.
_FRESH_SECONDS = 300.0
_CONNECTIONS = 32
# A response may take longer than each wait for it, but its total time is limited.
_ANSWER_TIMES = 3
_LARGEST_ANSWER = 64 << 20
# Errors of google-auth for a response that is not in Google's format.
_NO_ANSWER = (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError)
# Servers of the machine itself. A proxy cannot reach them.
_METADATA = ("metadata.google.internal", "169.254.169.254")
_GIVE = (
    "Set credentials_file (gke_cluster_credentials_file in an inventory) or GOOGLE_APPLICATION_CREDENTIALS to a "
    "service-account key or a workload identity federation file, or run: gcloud auth application-default login"
)
_USER_LOGIN = "Log in again: gcloud auth application-default login"
_NETWORK = "Check the network, the DNS, HTTPS_PROXY and NO_PROXY"
_ROLES = (
    "Check whether the pool and the provider of the workload identity exist and are enabled, whether the audience in "
    "the file is theirs, and whether the identity has roles/iam.workloadIdentityUser on the service account"
)
# Prefix of the names of providers of federated identities.
_IAM = "//iam.googleapis.com/"
_TYPES = (
    "service_account",
    "external_account",
    "authorized_user",
    "external_account_authorized_user",
    "impersonated_service_account",
    "gdch_service_account",
)
# Hints for rejected token requests: the type of the credentials, a pattern of the response, and the hint.
_REFUSED: tuple[tuple[str, str, str], ...] = (
    (
        "service_account",
        r"short-lived|reasonable timeframe|\biat\b|\bexp\b",
        "Set the clock of this machine: Google takes the request for one of another time",
    ),
    ("service_account", r"account not found|not found", "The service account was deleted: give the key of another one"),
    ("service_account", r"disabled", "Enable the service account, or give the key of another one"),
    (
        "service_account",
        r"",
        "The key was deleted, is disabled or has ended, or the file is damaged: make a new key of this service account",
    ),
    (
        "external_account",
        r"expired|stale|no longer valid",
        "The token of the identity provider has ended: see that whatever writes it renews it, then run again",
    ),
    (
        "external_account",
        r"was not found|no such file|unable to (retrieve|parse)",
        "Check credential_source in the file",
    ),
    ("external_account", r"", _ROLES),
    ("authorized_user", r"", _USER_LOGIN),
    ("external_account_authorized_user", r"", _USER_LOGIN),
    (
        "metadata",
        r"",
        "Give the machine or pod a service account with the scope cloud-platform (on GKE by Workload Identity "
        "Federation), or set credentials_file",
    ),
    ("", r"", _GIVE),
)


class LoginError(Exception):
    """No token is available. The text has the reason, `hint` the fix. `passing`: the next attempt might succeed."""

    def __init__(self, message: str, hint: str = "", *, passing: bool = False) -> None:
        super().__init__(message)
        self.hint = hint
        self.passing = passing


@dataclass(frozen=True)
class Token:
    """An access token that is valid for `seconds` from now."""

    value: str = field(repr=False)
    seconds: float


class Tokens:
    """The tokens of one identity. Safe for several threads. Every method raises LoginError."""

    def __init__(self, path: str = "", ca_file: str = "", info: Mapping[str, Any] | None = None) -> None:
        """Use the credentials of a file or of this machine.

        ca_file: CA certificates for connections to Google.
        info: content of a file that is not on this machine. `path` is then its name in messages.
        """
        self._path = path
        self._ca_file = ca_file
        self._lock = threading.Lock()
        self._credentials: Any = None
        self._info: Mapping[str, Any] = info or {}

    def token(self, refused: str = "") -> Token:
        """Return a token that is valid for at least a few minutes. `refused`: a rejected token that is not returned
        again."""
        with self._lock:
            credentials = self._load()
            if not credentials.valid or _seconds_left(credentials) < _FRESH_SECONDS or credentials.token == refused:
                self._renew(credentials)
            return Token(str(credentials.token), max(30.0, _seconds_left(credentials)))

    def project(self) -> str:
        """Return the project of the credentials; empty if they do not name a project."""
        with self._lock:
            credentials = self._load()
            project_id = os.environ.get("GOOGLE_CLOUD_PROJECT", "")
            return project_id or str(self._info.get("project_id") or getattr(credentials, "fleet_project", "") or "")

    def account(self) -> str:
        """Return the account of the tokens: its address, or the provider of a federated identity.

        The account is empty if the credentials do not name it.
        """
        with self._lock:
            credentials = self._load()
            email = str(self._info.get("client_email") or getattr(credentials, "service_account_email", "") or "")
            if email and email != "default":
                return email
            return str(self._info.get("account") or self._info.get("audience") or "").removeprefix(_IAM)

    def quota_project(self) -> str:
        """Return the quota project of the credentials; empty if they do not name it. Requests then count on the
        object's project."""
        with self._lock:
            return str(getattr(self._load(), "quota_project_id", "") or "")

    def _load(self) -> Any:
        if self._credentials is None:
            self._credentials = self._of_path() if self._path else self._of_machine()
        return self._credentials

    def _of_path(self) -> Any:
        self._info = self._info or _read(self._path)
        try:
            return load_google().of_file(self._info, _SCOPES)
        except (_google_error(), ValueError, TypeError, KeyError, AttributeError) as error:
            reason = _without(_text(error), self._info)
            raise LoginError(f"credentials file {self._path}: {reason}", _GIVE) from None

    def _of_machine(self) -> Any:
        """Return the credentials of this machine."""
        google = load_google()
        try:
            credentials, project = google.default(scopes=_SCOPES, request=google.Request(_Ways(self._ca_file)))
        except google.GoogleAuthError:
            raise LoginError(
                "there are no credentials: neither a file is named, nor has this machine a metadata server", _GIVE
            ) from None
        credentials.fleet_project = project
        return credentials

    def _renew(self, credentials: Any) -> None:
        google = load_google()
        try:
            credentials.refresh(google.Request(_Ways(self._ca_file)))
        except google.GoogleAuthError as error:
            raise self._refused(error, unreachable=_unreachable(error)) from None
        except HTTPError as error:
            raise self._refused(error, unreachable=True) from None
        except (OSError, *_NO_ANSWER) as error:
            raise self._refused(error) from None

    def _refused(self, error: Exception, *, unreachable: bool = False) -> LoginError:
        reason = _without(_text(error), self._info)
        kind = str(self._info.get("type") or "") if self._path else "metadata"
        passing = unreachable or bool(getattr(error, "retryable", False))
        if unreachable and kind != "metadata":
            return LoginError(f"no token for {self._who()}: {reason}", _NETWORK, passing=True)
        hint = next(
            hint for of, pattern, hint in _REFUSED if of in ("", kind) and re.search(pattern, reason, re.IGNORECASE)
        )
        return LoginError(f"Google gives no token to {self._who()}: {reason}", hint, passing=passing)

    def _who(self) -> str:
        if not self._path:
            return "this machine"
        name = self._info.get("client_email") or self._info.get("service_account_impersonation_url") or ""
        account = str(name).rpartition("/")[2].partition(":")[0]
        return f"{account} (credentials file {self._path})" if account else f"credentials file {self._path}"


def tokens(credentials_file: str = "", ca_file: str = "") -> Tokens:
    """Return the shared tokens of an identity. `credentials_file`: empty for the credentials of the environment.

    Raises LoginError if google-auth is missing.
    """
    try:
        load_google()
    except ImportError:
        raise LoginError(
            f"the Python package {GOOGLE_PACKAGE} is not installed, which tokens of Google need",
            f"pip install {GOOGLE_PACKAGE} requests",
        ) from None
    path = credentials_file or os.environ.get("GOOGLE_APPLICATION_CREDENTIALS", "") or _of_gcloud()
    return _shared(path, ca_file, _stamp(path))


@functools.lru_cache(maxsize=64)
def _shared(path: str, ca_file: str, _version: tuple[int, int]) -> Tokens:
    return Tokens(path, ca_file)


def _stamp(path: str) -> tuple[int, int]:
    """Return values that change when a file is written again."""
    try:
        file_status = os.stat(path)
    except OSError:
        return (0, 0)
    return (file_status.st_mtime_ns, file_status.st_size)


def forget() -> None:
    """Clear the cache of identities and proxies after a change of the environment."""
    _shared.cache_clear()
    connections.cache_clear()


@functools.lru_cache(maxsize=64)
def connections(proxy: str, ca_file: str) -> Any:
    """Return persistent connections, through a proxy or (empty) without a proxy."""
    return deadline.connections(ssl.create_default_context(cafile=ca_file or None), proxy, maxsize=_CONNECTIONS)


@dataclass(frozen=True)
class Answer:
    """A response with any status, in the format of google-auth."""

    status: int
    headers: Mapping[str, str]
    data: bytes = field(repr=False)


def ask(method: str, url: str, ca_file: str = "", *, seconds: float | None = None, **more: Any) -> Answer:
    """Return the response of one of Google's servers, without retries. `seconds`: limit of each wait.

    The total time is limited to three times `seconds`. Raises urllib3's HTTPError, also for an endless response, and
    errors of invalid numbers in a response (OSError, ValueError, ArithmeticError, MemoryError).
    """
    seconds = _SECONDS if seconds is None else seconds
    settings = {"timeout": seconds, "retries": False, "redirect": False, **more, "preload_content": False}
    with within(seconds * _ANSWER_TIMES, _LARGEST_ANSWER):
        response = connections_to(url, ca_file).request(method, url, **settings)
        return Answer(response.status, response.headers, whole(response, _LARGEST_ANSWER))


def connections_to(url: str, ca_file: str = "") -> Any:
    """Return persistent connections to the server of a URL, through the proxy of the environment for this server."""
    local = (*_METADATA, os.environ.get("GCE_METADATA_HOST", ""), os.environ.get("GCE_METADATA_IP", ""))
    host = url.partition("://")[2].partition("/")[0]
    proxy = "" if host and host in local else environment_proxy(url)
    return connections(proxy, ca_file)


class _Ways:
    """Transport of google-auth."""

    def __init__(self, ca_file: str) -> None:
        self._ca_file = ca_file

    def request(self, method: str, url: str, **more: Any) -> Any:
        return ask(method, url, self._ca_file, **more)


def _of_gcloud() -> str:
    """Return the file of `gcloud auth application-default login`; empty if it does not exist."""
    folder = os.environ.get("CLOUDSDK_CONFIG") or os.path.join(os.path.expanduser("~"), ".config", "gcloud")
    path = os.path.join(folder, "application_default_credentials.json")
    return path if os.path.isfile(path) else ""


def _read(path: str) -> Mapping[str, Any]:
    try:
        content = Path(path).read_text(encoding="utf-8")
        if is_encrypted(content):
            raise LoginError(f"credentials file {path} {ENCRYPTED}", "Decrypt it with ansible-vault decrypt")
        info = json.loads(content)
    except OSError as error:
        raise LoginError(f"credentials file {path}: {(error.strerror or 'cannot be read').lower()}", _GIVE) from None
    except ValueError:
        raise LoginError(f"credentials file {path} is no JSON", _GIVE) from None
    if not isinstance(info, dict) or not info.get("type"):
        hint = "Give the key or configuration file that Google made, unchanged"
        raise LoginError(f"credentials file {path} has no type, which such files have", hint)
    if info["type"] not in _TYPES:
        hint = f"Google's files have one of these types: {', '.join(_TYPES)}"
        raise LoginError(f"credentials file {path} has the type {cut(str(info['type']))}", hint)
    return info


def _google_error() -> Any:
    return load_google().GoogleAuthError


def _seconds_left(credentials: Any) -> float:
    """Return the remaining seconds of the token; google-auth stores its expiry as a naive time in UTC."""
    if credentials.expiry is None:
        return 1800.0
    current_time = datetime.datetime.now(datetime.UTC).replace(tzinfo=None)
    return float((credentials.expiry - current_time).total_seconds())


def _text(error: Exception) -> str:
    """Return the message of an error of google-auth, and of the quoted response of an API."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}{f': {error.filename}' if error.filename else ''}"
    message = next(
        (str(fragment) for fragment in error.args if isinstance(fragment, (str, Exception)) and str(fragment)), ""
    )
    answered = next((text for text in map(_message, error.args[1:]) if text and text not in message), "")
    return ": ".join(fragment for fragment in (message, answered) if fragment) or type(error).__name__


def _message(answer: Any) -> str:
    """Return the message of an API response (`{"error": {"message": ..}}`)."""
    try:
        error = json.loads(answer).get("error")
    except (TypeError, ValueError, AttributeError, RecursionError):
        return ""
    return str(error.get("message") or "") if isinstance(error, dict) else ""


def _unreachable(error: Exception) -> bool:
    return isinstance(error, load_google().TransportError)


def _without(text: str, info: Mapping[str, Any]) -> str:
    """Return the text with masked secrets of a file, in case a server repeats them."""
    for key in ("private_key", "refresh_token", "client_secret"):
        value = str(info.get(key) or "")
        if len(value) >= 4:
            text = text.replace(value, "********")
    return cut(re.sub(r"\bey[\w-]+\.[\w-]+\.[\w-]+|ya29\.[\w.-]+", "********", text))
