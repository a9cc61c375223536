# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Kubeconfig files of resolved connections, for programs that support no other connection.

A token in such a file is the current token. It is not renewed, so the file is written again before each important use.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .. import atomic_file
from ..core.manifest_text import to_yaml
from .target import Target


def kubeconfig_of(name: str, target: Target) -> dict[str, Any]:
    """Return the kubeconfig (client configuration API v1) with one context, `name`. Raise AccessError.

    It contains the credentials, and references no file and no program. The credentials might have to be created first.
    """
    return kubeconfig_with(name, name, target, _user(target))


def kubeconfig_with(name: str, user: str, target: Target, credentials: Mapping[str, Any]) -> dict[str, Any]:
    """Return the kubeconfig with one context, `name`, that connects to a target as another user.

    `credentials`: user of the kubeconfig."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": _cluster(target)}],
        "users": [{"name": user, "user": dict(credentials)}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": user}}],
        "current-context": name,
    }


def write(path: Path, kubeconfig: dict[str, Any]) -> None:
    """Write the file atomically, readable only for its owner. Raise OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    atomic_file.write(path, to_yaml(kubeconfig))


def remove(path: Path) -> None:
    """Remove the file, if it exists. Raise OSError."""
    path.unlink(missing_ok=True)


def _cluster(target: Target) -> dict[str, Any]:
    cluster_entry: dict[str, Any] = {"server": target.server}
    # client-go rejects both options together, and the first one has priority here.
    if not target.verify:
        cluster_entry["insecure-skip-tls-verify"] = True
    elif target.ca:
        cluster_entry["certificate-authority-data"] = _encoded(target.ca)
    if target.tls_server_name:
        cluster_entry["tls-server-name"] = target.tls_server_name
    if target.proxy:
        # client-go uses the name socks5 for socks5h: the proxy resolves names.
        cluster_entry["proxy-url"] = target.proxy.replace("socks5h://", "socks5://", 1)
    return cluster_entry


def _user(target: Target) -> dict[str, Any]:
    user_entry: dict[str, Any] = {}
    kind, __, value = target.credentials.authorization().partition(" ")
    if kind == "Bearer":
        user_entry["token"] = value
    elif kind == "Basic":
        user, __, password = base64.b64decode(value).decode("utf-8").partition(":")
        user_entry.update(username=user, password=password)
    certificate = target.credentials.certificate()
    if certificate is not None:
        user_entry["client-certificate-data"] = _encoded(certificate.certificate)
        user_entry["client-key-data"] = _encoded(certificate.key)
    if target.impersonate:
        user_entry["as"] = target.impersonate
    return user_entry


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode("utf-8")).decode("ascii")
