# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Credentials for clusters of Google Kubernetes Engine: tokens by google-auth, and the address of a cluster."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import quote, urlsplit

from .._urllib3 import HTTPError
from ..cloud.clusters import Logins, authority
from ..http.retry import Attempts
from ..kubernetes.credentials import AccessError, Grant, Mint
from ..kubernetes.errors import UNEXPECTED, hidden, shown
from . import tokens
from .tokens import LoginError

_API = "https://container.googleapis.com"
_KEY_RETRIES = 20
_KEY_SECONDS = 120.0


@dataclass(frozen=True)
class Gke:
    """A cluster of Google Kubernetes Engine.

    `project`: empty for the project of the credentials. `endpoint`: URL of the GKE API if it is not the public URL.
    `ca_file`: CA certificates for connections to Google.
    """

    cloud: ClassVar[str] = "gke"

    project: str
    location: str
    cluster: str
    credentials_file: str = ""
    endpoint: str = ""
    ca_file: str = ""

    def find(self) -> tuple[str, str]:
        where = (self.project, self.location, self.cluster)
        return describe(*where, self.credentials_file, self.endpoint, self.ca_file)

    def mint(self, refused: str) -> Grant:
        return _grant(self.credentials_file, refused, ca_file=self.ca_file)


def minter(credentials_file: str, ca_file: str = "") -> Mint:
    """Return a function that creates access tokens, from a key file, or (empty) from the application default
    credentials.

    `ca_file`: CA certificates for connections to Google.
    """
    return functools.partial(_grant, credentials_file, ca_file=ca_file)


def of_key(key: Mapping[str, Any], title: str) -> Grant | None:
    """Return an access token of a service account key, None for a key of another type. `title`: the key in messages.

    Google accepts a new key only after about a minute.
    """
    if key.get("type") != "service_account":
        return None
    account = tokens.Tokens(title, info=key)
    attempts = Attempts(_KEY_RETRIES, _KEY_SECONDS)
    while True:
        try:
            token = account.token()
            return Grant(token=token.value, seconds=token.seconds)
        except LoginError as error:
            if not attempts.again():
                raise AccessError(f"Google: {error}", error.hint) from None


def describe(
    project: str, location: str, cluster: str, credentials_file: str = "", endpoint: str = "", ca_file: str = ""
) -> tuple[str, str]:
    """Return the server and CA of a cluster; raises AccessError.

    The CA is PEM text, or empty for the DNS endpoint, because this endpoint has a public certificate. Without a
    project, the project of the credentials is used.
    """
    project = project or _project(credentials_file, ca_file, cluster)
    name = f"projects/{quote(project)}/locations/{quote(location)}/clusters/{quote(cluster)}"
    url = f"{(endpoint or _API).rstrip('/')}/v1/{name}"
    token = _grant(credentials_file, "", ca_file=ca_file).token
    try:
        answer = tokens.ask("GET", url, ca_file, headers={"Authorization": f"Bearer {token}"})
    except (HTTPError, OSError, *UNEXPECTED) as error:
        raise AccessError(f"Google: no answer: {type(error).__name__}") from None
    try:
        described_cluster = json.loads(answer.data)
    except (ValueError, RecursionError):
        described_cluster = {}
    if answer.status != 200:
        refused = described_cluster.get("error") if isinstance(described_cluster, dict) else None
        message = refused.get("message") if isinstance(refused, dict) else ""
        raise AccessError(f"GKE: {name}: HTTP {answer.status}: {shown(hidden(str(message or ''), [token]))}")
    try:
        return _address(described_cluster, name)
    except UNEXPECTED:
        raise AccessError(f"GKE: {name}: {urlsplit(url).netloc} answers with something that is no cluster") from None


def _address(found: Mapping[str, Any], name: str) -> tuple[str, str]:
    endpoints = found.get("controlPlaneEndpointsConfig") or {}
    by_name = endpoints.get("dnsEndpointConfig") or {}
    by_address = (endpoints.get("ipEndpointsConfig") or {}).get("enabled", True)
    if by_name.get("endpoint") and by_name.get("allowExternalTraffic") and not by_address:
        return f"https://{by_name['endpoint']}", ""
    encoded = (found.get("masterAuth") or {}).get("clusterCaCertificate")
    if not found.get("endpoint") or not encoded:
        raise AccessError(f"GKE: {name} is {found.get('status', 'not there')} and has no endpoint yet")
    ca = authority(encoded, f"GKE: {name}")
    host = str(found["endpoint"])
    return f"https://[{host}]" if host.count(":") > 1 else f"https://{host}", ca


def _project(credentials_file: str, ca_file: str, cluster: str) -> str:
    try:
        project_id = tokens.tokens(credentials_file, ca_file).project()
    except LoginError as error:
        raise AccessError(f"Google: {error}", error.hint) from None
    if not project_id:
        raise AccessError(
            f"GKE: {cluster}: no project is given, and the credentials name none",
            "Set gke_cluster_project, or project of the connection",
        )
    return project_id


def _grant(credentials_file: str, refused: str, *, ca_file: str = "") -> Grant:
    """Return a token. One token is valid for all clusters of an identity."""
    try:
        token = tokens.tokens(credentials_file, ca_file).token(refused)
    except LoginError as error:
        raise AccessError(f"Google: {error}", error.hint) from None
    return Grant(token=token.value, seconds=token.seconds)


def from_exec(command: str, args: Sequence[str], env: Mapping[str, str]) -> Mint | None:
    """Return the minter for gke-gcloud-auth-plugin or gcloud; None for other programs."""
    if command == "gke-gcloud-auth-plugin" or (command == "gcloud" and "config-helper" in args):
        return minter(env.get("GOOGLE_APPLICATION_CREDENTIALS", ""))
    return None


LOGINS = Logins(
    of=lambda **options: Gke(**{"project": "", **options}),
    of_program=from_exec,
    domains=(".gke.goog",),
    auth_providers={"gcp": minter("")},
    of_key=of_key,
)
