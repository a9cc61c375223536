# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Google Kubernetes Engine: tokens by google-auth, and where a cluster is."""

from __future__ import annotations

import base64
import binascii
import datetime
import functools
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import quote

from ansible_collections.modelplane.fleet.plugins.module_utils._google import GOOGLE_PACKAGE, load_google
from ansible_collections.modelplane.fleet.plugins.module_utils._kubernetes import HTTPError, urllib3
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.credentials import AccessError, Grant, Mint
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.errors import hidden

_API = "https://container.googleapis.com"
_SCOPES = ("https://www.googleapis.com/auth/cloud-platform", "https://www.googleapis.com/auth/userinfo.email")
_SECONDS = 20.0
# A token with less life than this is renewed.
_FRESH_SECONDS = 300.0
_HINT = (
    "Set credentials_file or GOOGLE_APPLICATION_CREDENTIALS to a key file, "
    "or run: gcloud auth application-default login"
)
_lock = threading.Lock()
T = TypeVar("T")


def minter(credentials_file: str) -> Mint:
    """A function that makes access tokens: of a key file, or (empty) of the application default credentials."""

    def mint(refused: str) -> Grant:
        return _guarded(lambda: _token(credentials_file, refused))

    return mint


def describe(
    project: str, location: str, cluster: str, credentials_file: str = "", endpoint: str = ""
) -> tuple[str, str]:
    """Server and CA (PEM, empty for the DNS endpoint, whose certificate is a public one); raises AccessError."""
    name = f"projects/{quote(project)}/locations/{quote(location)}/clusters/{quote(cluster)}"

    def ask() -> tuple[str, str]:
        grant = _token(credentials_file, "")
        answer = _pool().request(
            "GET",
            f"{(endpoint or _API).rstrip('/')}/v1/{name}",
            headers={"Authorization": f"Bearer {grant.token}"},
            timeout=_SECONDS,
        )
        try:
            found = json.loads(answer.data)
        except ValueError:
            found = {}
        if answer.status != 200:
            said = (found.get("error") or {}).get("message") if isinstance(found, dict) else None
            raise AccessError(f"GKE: {name}: HTTP {answer.status}: {hidden(str(said or ''), [grant.token])}")
        return _address(found, name)

    return _guarded(ask)


def _address(found: Mapping[str, Any], name: str) -> tuple[str, str]:
    endpoints = found.get("controlPlaneEndpointsConfig") or {}
    by_name = endpoints.get("dnsEndpointConfig") or {}
    by_address = (endpoints.get("ipEndpointsConfig") or {}).get("enabled", True)
    if by_name.get("endpoint") and by_name.get("allowExternalTraffic") and not by_address:
        return f"https://{by_name['endpoint']}", ""
    authority = (found.get("masterAuth") or {}).get("clusterCaCertificate")
    if not found.get("endpoint") or not authority:
        raise AccessError(f"GKE: {name} is {found.get('status', 'not there')} and has no endpoint yet")
    try:
        ca = base64.b64decode(authority, validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        raise AccessError(f"GKE: {name}: its certificate authority is not base64 of a PEM text") from None
    host = str(found["endpoint"])
    return f"https://[{host}]" if host.count(":") > 1 else f"https://{host}", ca


def forget() -> None:
    """Look accounts and proxies up anew, as when the environment changed."""
    _credentials.cache_clear()
    _pool.cache_clear()


def _token(credentials_file: str, refused: str) -> Grant:
    """One token serves all clusters of an account: made once a process, renewed by the first that needs it."""
    with _lock:
        credentials = _credentials(credentials_file)
        if not credentials.valid or _seconds_left(credentials) < _FRESH_SECONDS or credentials.token == refused:
            credentials.refresh(load_google().Request(_pool()))
        return Grant(token=str(credentials.token), seconds=max(30.0, _seconds_left(credentials)))


def _seconds_left(credentials: Any) -> float:
    """How long the token lasts; google-auth keeps its end as a naive time in UTC."""
    if credentials.expiry is None:
        return 1800.0
    now = datetime.datetime.now(datetime.UTC).replace(tzinfo=None)
    return float((credentials.expiry - now).total_seconds())


@functools.lru_cache(maxsize=64)
def _credentials(credentials_file: str) -> Any:
    google = load_google()
    if credentials_file:
        try:
            return google.load_credentials_from_file(credentials_file, scopes=_SCOPES)[0]
        except (OSError, ValueError) as error:
            said = error.strerror if isinstance(error, OSError) else "is no key file of Google Cloud"
            raise AccessError(f"credentials file {credentials_file}: {said}", _HINT) from None
    return google.default(scopes=_SCOPES)[0]


@functools.lru_cache(maxsize=1)
def _pool() -> Any:
    """Connections to Google, through the proxy of the environment if it names one."""
    from urllib.request import getproxies

    proxy = getproxies().get("https")
    return urllib3.ProxyManager(proxy) if proxy else urllib3.PoolManager()


def _guarded(action: Callable[[], T]) -> T:
    """Do it; what google-auth and the connection raise becomes an AccessError."""
    try:
        google = load_google()
    except ImportError:
        raise AccessError(
            f"the Python package {GOOGLE_PACKAGE} is not installed, which tokens of GKE need",
            f"pip install {GOOGLE_PACKAGE}",
        ) from None
    try:
        return action()
    except google.GoogleAuthError as error:
        text = " ".join(str(part) for part in error.args if isinstance(part, str))
        raise AccessError(f"Google: {hidden(text, [])[:300] or type(error).__name__}", _HINT) from None
    except HTTPError as error:
        raise AccessError(f"Google: no answer: {type(error).__name__}") from None


def from_exec(command: str, args: Sequence[str], env: Mapping[str, str]) -> Mint | None:
    """The minter that does what gke-gcloud-auth-plugin or gcloud would; None for other programs."""
    if command == "gke-gcloud-auth-plugin" or (command == "gcloud" and "config-helper" in args):
        return minter(env.get("GOOGLE_APPLICATION_CREDENTIALS", ""))
    return None
