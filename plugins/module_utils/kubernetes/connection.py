# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Settings of connections, and the clients for them."""

from __future__ import annotations

import base64
import binascii
import os
import shlex
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..cloud.clusters import Login
from ..cloud.registry import LOGINS
from ..core.secrets import DECRYPT, ENCRYPTED, is_encrypted
from . import kubeconfig
from .client import Client
from .credentials import AccessError, Fixed, Minted, TokenFile, bearer
from .errors import ApiError, ConnectionInvalid
from .target import Target, checked_url


@dataclass(frozen=True)
class SecretRef:
    """A key of a Secret on the control cluster that holds a kubeconfig."""

    namespace: str
    name: str
    key: str = "kubeconfig"


@dataclass(frozen=True)
class Connection:
    """Settings of the connection to one cluster: exactly one of kubeconfig, kubeconfig_text, secret, login, server."""

    name: str
    kubeconfig: str = ""
    kubeconfig_text: str = field(default="", repr=False)
    context: str = ""
    """Context. Without other settings, a context of the default kubeconfig of kubectl."""
    secret: SecretRef | None = None
    login: Login | None = None
    server: str = ""
    token: str = field(default="", repr=False)
    ca_text: str = ""
    ca_file: str = ""
    proxy: str = field(default="", repr=False)
    tls_server_name: str = ""
    verify: bool = True
    timeout: float = 30.0
    """Timeout of a request, in seconds."""
    retries: int = 5
    """Number of retries of a request that can be retried."""
    answer_limit: int = 64
    """Maximum size of a response, in MiB."""
    impersonate: str = ""
    standard: bool = False
    """Connect like kubectl without arguments: $KUBECONFIG, ~/.kube/config, or the service account of the pod."""


# The service account of a pod (Kubernetes, "Accessing the Kubernetes API from a Pod").
_POD = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_HINT = f"Give one of kubeconfig, kubeconfig_text, secret, {', '.join(LOGINS)}, server"


def connect(connection: Connection, control: Client | None = None, *, write_cache: bool = True) -> Client:
    """Return a client for the cluster. Values that require the network are resolved with the first request.

    `control`: the client of the control cluster, for kubeconfigs in Secrets. `write_cache`: False in check mode. Raise
    ConnectionInvalid for errors of the connection itself, including its files.
    """
    resolve = _Resolver(connection, control)
    try:
        server = resolve.prepare()
    except AccessError as error:
        raise ConnectionInvalid(str(error), cluster=connection.name, hint=error.hint) from None
    return Client(
        connection.name,
        resolve,
        server=server,
        timeout=connection.timeout,
        retries=connection.retries,
        answer_limit=connection.answer_limit << 20,
        write_cache=write_cache,
    )


class _Resolver:
    """Resolver of the target of a connection. It repeats all steps except the prepared steps for each call."""

    def __init__(self, connection: Connection, control: Client | None) -> None:
        self._connection = connection
        self._control = control
        self._prepared: Target | None = None

    def prepare(self) -> str:
        """Resolve all values that require no network, and return the server, or "" if the server requires the network.

        Raise AccessError."""
        connection = self._connection
        _check_sources(connection)
        if connection.secret is not None and self._control is None:
            raise AccessError(
                "its kubeconfig is in a Secret, and no control cluster is given",
                "Set fleet_control_kubeconfig or fleet_control, how to reach the control cluster (control of a module)",
            )
        if connection.secret is not None or connection.login is not None:
            return connection.server
        self._prepared = self._resolve()
        return self._prepared.server

    def __call__(self) -> Target:
        target, self._prepared = self._prepared, None
        return target or self._resolve()

    def _resolve(self) -> Target:
        connection = self._connection
        if connection.secret is not None:
            target = kubeconfig.load([self._from_secret(connection.secret)], connection.context)
        elif connection.login is not None:
            target = _in_cloud(connection.login, connection.server)
        elif connection.server:
            target = Target(
                checked_url(connection.server, "server", ("https", "http")), Fixed(bearer(connection.token))
            )
        elif connection.kubeconfig_text:
            text = kubeconfig.Text("(given as text)", connection.kubeconfig_text.encode("utf-8", "replace"))
            target = kubeconfig.load([text], connection.context)
        elif connection.kubeconfig:
            target = kubeconfig.load([kubeconfig.read_file(Path(connection.kubeconfig))], connection.context)
        else:
            target = _standard(connection.context)
        return replace(
            target,
            ca=_authority(connection) or target.ca,
            verify=target.verify and connection.verify,
            tls_server_name=connection.tls_server_name or target.tls_server_name,
            proxy=checked_url(connection.proxy, "proxy", kubeconfig.PROXY_SCHEMES)
            if connection.proxy
            else target.proxy,
            impersonate=_user(connection.impersonate or target.impersonate),
        )

    def _from_secret(self, ref: SecretRef) -> kubeconfig.Text:
        name = f"Secret {ref.namespace}/{ref.name} on the control cluster"
        if self._control is None:
            raise AccessError(f"{name} cannot be read: no control cluster is given")
        try:
            secret = self._control.get("v1", "Secret", ref.name, ref.namespace)
        except ApiError as error:
            raise AccessError(f"its kubeconfig cannot be read: {error}") from None
        if secret is None:
            create_command = f"kubectl -n {shlex.quote(ref.namespace)} create secret generic {shlex.quote(ref.name)}"
            command = f"{create_command} --from-file={shlex.quote(ref.key)}=FILE"
            hint = f"Create it on the control cluster: `{command}`, or refer to another Secret"
            raise AccessError(f"{name}, which contains the kubeconfig, does not exist", hint)
        data = secret.get("data") or {}
        if ref.key not in data:
            keys = ", ".join(sorted(data)) or "none"
            raise AccessError(f"{name} has no key {ref.key}", f"It has: {keys}")
        try:
            decoded = base64.b64decode(data[ref.key], validate=True)
        except (binascii.Error, ValueError, TypeError):
            raise AccessError(f"{name}: key {ref.key} is not base64") from None
        return kubeconfig.Text(f"{name}, key {ref.key}", decoded, trusted=False)


def _check_sources(connection: Connection) -> None:
    """Raise AccessError unless the connection has exactly one source.

    `server` with a login is the URL of the cluster, so that no request to the API of a cloud is necessary."""
    sources = {
        "kubeconfig": connection.kubeconfig,
        "kubeconfig_text": connection.kubeconfig_text,
        "secret": connection.secret,
        **({connection.login.cloud: connection.login} if connection.login else {"server": connection.server}),
    }
    source_names = [name for name, value in sources.items() if value]
    if len(source_names) > 1:
        raise AccessError(f"{' and '.join(source_names)} are given", "Give one way to reach the cluster")
    if not source_names and not connection.context and not connection.standard:
        raise AccessError("no way to reach it is given", _HINT)
    if connection.token and source_names != ["server"]:
        raise AccessError("token is given without server", "A token goes with server")
    if connection.context and (connection.server or connection.login):
        raise AccessError("context is given without a kubeconfig")
    if connection.ca_file and connection.ca_text:
        raise AccessError("ca_file and ca_text are given", "Give one of them")


def _authority(connection: Connection) -> str:
    if not connection.ca_file:
        return connection.ca_text
    path = Path(os.path.expanduser(connection.ca_file))
    try:
        certificates = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or "is no text"
        raise AccessError(f"ca_file {path}: {reason}") from None
    if is_encrypted(certificates):
        raise AccessError(f"ca_file {path}: {ENCRYPTED}", f"{DECRYPT} as ca_text")
    return certificates


def _user(name: str) -> str:
    """Return the user name to impersonate. Raise AccessError if a header cannot contain it."""
    if not name.isascii() or not name.isprintable():
        raise AccessError("impersonate has characters that cannot be sent")
    return name


def _in_cloud(login: Login, server: str) -> Target:
    address, ca = (server, "") if server else login.find()
    return Target(checked_url(address, "server", ("https",)), Minted(login.mint), ca=ca)


def _standard(context: str) -> Target:
    """Return the target of kubectl without arguments: its kubeconfig files, or the service account of this pod."""
    files = kubeconfig.standard_files()
    if files:
        return kubeconfig.load([kubeconfig.read_file(path) for path in files], context)
    host, port = (os.environ.get(f"KUBERNETES_SERVICE_{suffix}", "") for suffix in ("HOST", "PORT"))
    token = _POD / "token"
    if context or not host or not token.exists():
        raise AccessError("there is no kubeconfig at $KUBECONFIG or ~/.kube/config", _HINT)
    host = f"[{host}]" if ":" in host else host
    try:
        ca = (_POD / "ca.crt").read_text(encoding="ascii")
    except (OSError, ValueError):
        raise AccessError(f"{_POD / 'ca.crt'} cannot be read") from None
    return Target(f"https://{host}:{port or 443}", TokenFile(token), ca=ca)
