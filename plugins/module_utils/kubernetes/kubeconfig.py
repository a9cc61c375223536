# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Parser of kubeconfigs (Kubernetes, client configuration API v1): one context, and every error with its field."""

from __future__ import annotations

import base64
import binascii
import functools
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ..cloud.registry import LOGINS
from ..core.secrets import DECRYPT, ENCRYPTED, is_encrypted
from ..core.yaml_documents import Source, documents
from .credentials import AccessError, ClientCertificate, Credentials, Fixed, Mint, Minted, TokenFile, basic, bearer
from .exec_plugin import API_VERSIONS, Program
from .target import Target, checked_url

PROXY_SCHEMES = ("http", "https", "socks5", "socks5h")
# Of API servers that have a name in their cloud.
CLOUD_DOMAINS = tuple(domain for logins in LOGINS.values() for domain in logins.domains)
_MAX_NODES = 100_000


@dataclass(frozen=True)
class Text:
    """Kubeconfig."""

    name: str
    """Name for messages."""
    data: bytes = field(repr=False)
    folder: Path | None = None
    """Directory for relative paths, None if the kubeconfig must not contain relative paths."""
    trusted: bool = True
    """True if the kubeconfig can reference files and programs of this machine. A kubeconfig from a Secret is not
    trusted, because otherwise users that can write the Secret could run programs here."""


@dataclass(frozen=True)
class _Node:
    """Mapping of a kubeconfig, with its location."""

    source: Text
    where: str
    value: Mapping[str, Any] = field(repr=False)

    def error(self, key: str, message: str, hint: str = "") -> AccessError:
        field_path = f"{self.where}.{key}".strip(".")
        return AccessError(f"kubeconfig {self.source.name}: {field_path} {message}", hint)

    def text(self, key: str) -> str:
        value = self.value.get(key)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self.error(key, "is no text", "Put it in quotes")
        return value

    def flag(self, key: str) -> bool:
        value = self.value.get(key)
        if value is not None and not isinstance(value, bool):
            raise self.error(key, "is neither true nor false")
        return bool(value)

    def node(self, key: str) -> _Node | None:
        value = self.value.get(key)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise self.error(key, "is no mapping")
        return _Node(self.source, f"{self.where}.{key}", value)

    def items(self, key: str) -> list[Any]:
        value = self.value.get(key)
        if value is None:
            return []
        if not isinstance(value, list):
            raise self.error(key, "is no list")
        return value

    def path(self, key: str) -> Path | None:
        """Return the path of a file in the kubeconfig, relative to the directory of the kubeconfig."""
        text = self.text(key)
        if not text:
            return None
        if not self.source.trusted:
            raise self.error(key, "names a file, which a kubeconfig out of a Secret may not", f"Use {key}-data instead")
        path = Path(text)
        if path.is_absolute():
            return path
        if self.source.folder is None:
            raise self.error(key, f"is a relative path (got {text})", "Give an absolute one, or the data itself")
        return self.source.folder / path

    def pem(self, key: str) -> str:
        """Return certificates or a key from `<key>-data`, or from the file of `<key>`. `<key>-data` has priority."""
        data = self.text(f"{key}-data")
        if data:
            try:
                return base64.b64decode("".join(data.split()), validate=True).decode("utf-8")
            except (binascii.Error, ValueError):
                raise self.error(f"{key}-data", "is not base64 of a PEM text") from None
        path = self.path(key)
        if path is None:
            return ""
        try:
            content = path.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or "is no text"
            raise self.error(key, f"cannot be read: {path}: {reason}") from None
        if is_encrypted(content):
            raise self.error(key, f"names {path}, which {ENCRYPTED}", "Decrypt it with ansible-vault decrypt")
        return content


def standard_files() -> list[Path]:
    """Return the existing files that kubectl reads without arguments."""
    configured_names = [name for name in os.environ.get("KUBECONFIG", "").split(os.pathsep) if name]
    paths = [Path(os.path.expanduser(name)) for name in configured_names or ["~/.kube/config"]]
    return [path for path in paths if path.is_file()]


def read_file(path: Path) -> Text:
    """Return the kubeconfig in a file. Raise AccessError."""
    path = Path(os.path.expanduser(path))
    try:
        return Text(str(path), path.read_bytes(), path.resolve().parent)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise AccessError(f"kubeconfig {path}: {reason or 'cannot be read'}") from None


def load(texts: Sequence[Text], context: str = "") -> Target:
    """Return the target of a context (empty: the current one). The first of several kubeconfigs has priority."""
    nodes = [_parse(text) for text in texts]
    names = ", ".join(text.name for text in texts)
    chosen = context or next((name for node in nodes if (name := node.text("current-context"))), "")
    if not chosen:
        raise AccessError(f"kubeconfig {names}: has no current-context", "Name the context to use")
    context_node = _named(nodes, "contexts", "context", chosen)
    if context_node is None:
        context_names = ", ".join(sorted(_names(nodes, "contexts"))[:20]) or "none"
        raise AccessError(f"kubeconfig {names}: has no context {chosen}", f"It has: {context_names}")
    cluster_name, user_name = context_node.text("cluster"), context_node.text("user")
    cluster = _named(nodes, "clusters", "cluster", cluster_name)
    if cluster is None:
        raise context_node.error("cluster", f"names a cluster that is not there (got {cluster_name or 'nothing'})")
    user = _named(nodes, "users", "user", user_name) if user_name else None
    if user is None and user_name:
        raise context_node.error("user", f"names a user that is not there (got {user_name})")
    server = cluster.text("server")
    if not server:
        raise cluster.error("server", "is missing")
    for key in ("as-uid", "as-groups", "as-user-extra"):
        if user is not None and user.value.get(key):
            raise user.error(key, "is not supported", "Impersonate a user without it")
    proxy = cluster.text("proxy-url")
    try:
        server = checked_url(server, "server", ("https", "http"))
        proxy = checked_url(proxy, "proxy-url", PROXY_SCHEMES) if proxy else ""
    except AccessError as error:
        raise AccessError(f"kubeconfig {cluster.source.name}: {cluster.where}: {error}", error.hint) from None
    return Target(
        server=server,
        credentials=_credentials(user, cluster) if user else Fixed(),
        ca=cluster.pem("certificate-authority"),
        verify=not cluster.flag("insecure-skip-tls-verify"),
        tls_server_name=cluster.text("tls-server-name"),
        proxy=proxy,
        impersonate=user.text("as") if user else "",
    )


@functools.lru_cache(maxsize=64)
def _parse(text: Text) -> _Node:
    hint = "A kubeconfig is YAML with clusters, users and contexts"
    for document in documents(Source(text.name, text.data), max_nodes=_MAX_NODES, max_documents=2):
        if document.problems or not document.complete:
            line = document.problems[0].line if document.problems else None
            line_suffix = f" (line {line})" if line else ""
            raise AccessError(f"kubeconfig {text.name}: is not valid YAML{line_suffix}", hint)
        if is_encrypted(text.data):
            raise AccessError(f"kubeconfig {text.name}: {ENCRYPTED}", f"{DECRYPT} as kubeconfig_text")
        if not isinstance(document.value, Mapping):
            raise AccessError(f"kubeconfig {text.name}: is no mapping", hint)
        if document.value.get("kind") not in (None, "Config"):
            raise AccessError(f"kubeconfig {text.name}: is of another kind than Config", hint)
        return _Node(text, "", document.value)
    raise AccessError(f"kubeconfig {text.name}: is empty", hint)


def _named(nodes: Sequence[_Node], section: str, key: str, name: str) -> _Node | None:
    """Return the entry with this name, such as `{name: ..., cluster: {...}}` in `clusters`."""
    for root in nodes:
        for entry in root.items(section):
            if isinstance(entry, Mapping) and entry.get("name") == name:
                node = _Node(root.source, f"{section}[name={name}]", entry).node(key)
                return node or _Node(root.source, f"{section}[name={name}].{key}", {})
    return None


def _names(nodes: Sequence[_Node], section: str) -> set[str]:
    return {
        str(entry["name"])
        for root in nodes
        for entry in root.items(section)
        if isinstance(entry, Mapping) and entry.get("name")
    }


def _credentials(user: _Node, cluster: _Node) -> Credentials:
    certificate, key = user.pem("client-certificate"), user.pem("client-key")
    if bool(certificate) != bool(key):
        missing = "client-key" if certificate else "client-certificate"
        raise user.error(missing, "is missing, the other half is there")
    pair = ClientCertificate(certificate, key) if certificate else None
    token, token_file = user.text("token"), user.path("tokenFile")
    if token_file is not None:
        return TokenFile(token_file, pair)
    if token:
        try:
            return Fixed(bearer(token), pair)
        except AccessError as error:
            raise user.error("token", "has characters that no token has", error.hint) from None
    if user.text("username"):
        return Fixed(basic(user.text("username"), user.text("password")), pair)
    program = user.node("exec")
    if program is not None:
        return Minted(_mint(program, cluster), pair)
    provider = user.node("auth-provider")
    if provider is not None:
        name = provider.text("name")
        mint = next((logins.auth_providers[name] for logins in LOGINS.values() if name in logins.auth_providers), None)
        if mint is None:
            raise provider.error("name", "is an auth provider that Kubernetes no longer has", "Use exec or a token")
        return Minted(_own(provider, cluster, mint), pair)
    return Fixed("", pair)


def _own(node: _Node, cluster: _Node, mint: Mint) -> Mint:
    """Return `mint` if the host of the cluster may receive tokens of a local cloud account.

    A kubeconfig from a Secret can send these tokens only to hosts of the cloud."""
    host = urlsplit(cluster.text("server")).hostname or ""
    if not node.source.trusted and not host.endswith(CLOUD_DOMAINS):
        raise node.error(
            "",
            f"asks for a token of our own cloud account for {host}, which is no name of that cloud",
            f"Connect with {' or '.join(f'{name}:' for name in LOGINS)} instead",
        )
    return mint


def _mint(node: _Node, cluster: _Node) -> Mint:
    """Return the function that creates credentials for an exec entry: a built-in function, or the program."""
    command = node.text("command")
    if not command:
        raise node.error("command", "is missing")
    args = [str(item) for item in node.items("args")]
    env = {}
    for index, item in enumerate(node.items("env")):
        if not isinstance(item, Mapping) or not isinstance(item.get("name"), str):
            raise node.error(f"env[{index}]", "is no mapping with name and value")
        env[item["name"]] = str(item.get("value") or "")
    name = command.replace("\\", "/").rpartition("/")[2].removesuffix(".exe")
    try:
        minters = (logins.of_program(name, args, env) for logins in LOGINS.values())
        cloud_mint = next((mint for mint in minters if mint is not None), None)
    except AccessError as error:
        raise node.error("args", str(error), error.hint) from None
    if cloud_mint is not None:
        return _own(node, cluster, cloud_mint)
    if not node.source.trusted:
        raise node.error("command", f"runs a program, which a kubeconfig out of a Secret may not (got {name})")
    version = node.text("apiVersion")
    if version not in API_VERSIONS:
        raise node.error("apiVersion", f"is none of {', '.join(API_VERSIONS)} (got {version or 'nothing'})")
    if node.text("interactiveMode") == "Always":
        raise node.error("interactiveMode", "is Always, and no user is there to answer")
    if "/" in command and not Path(command).is_absolute() and node.source.folder is not None:
        command = str(node.source.folder / command)
    return Program(
        command=shutil.which(command) or command,
        args=tuple(args),
        env=tuple(env.items()),
        api_version=version,
        install_hint=node.text("installHint"),
        cluster=_cluster_info(cluster) if node.flag("provideClusterInfo") else None,
    ).mint


def _cluster_info(cluster: _Node) -> dict[str, Any]:
    """Return cluster data for a program that requests it (client.authentication.k8s.io/v1, Cluster)."""
    info: dict[str, Any] = {"server": cluster.text("server")}
    if cluster.text("tls-server-name"):
        info["tls-server-name"] = cluster.text("tls-server-name")
    if cluster.flag("insecure-skip-tls-verify"):
        info["insecure-skip-tls-verify"] = True
    authority = cluster.pem("certificate-authority")
    if authority:
        info["certificate-authority-data"] = base64.b64encode(authority.encode()).decode()
    if cluster.text("proxy-url"):
        info["proxy-url"] = cluster.text("proxy-url")
    for extension in cluster.items("extensions"):
        if isinstance(extension, Mapping) and extension.get("name") == "client.authentication.k8s.io/exec":
            info["config"] = extension.get("extension")
    return info
