# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Kubeconfig files of a ServiceAccount, with tokens that end (authentication.k8s.io/v1, TokenRequest)."""

from __future__ import annotations

import base64
import errno
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..core.secrets import ENCRYPTED, is_encrypted
from ..core.wire import entries, fields, text
from ..core.yaml_documents import Source, documents
from .client import Client
from .errors import ApiError
from .kubeconfig_file import kubeconfig_with, write


@dataclass(frozen=True)
class Account:
    """A ServiceAccount."""

    namespace: str
    name: str


@dataclass(frozen=True)
class Written:
    """Result for a file. `expires`: end of its token (RFC 3339), empty for a new token in check mode."""

    path: str
    changed: bool
    expires: str = ""


def ensure(
    client: Client, account: Account, path: Path, *, seconds: int, renew_before: float, now: datetime, check_mode: bool
) -> Written:
    """Write a kubeconfig of the account to the path, readable only for its owner. Raise ApiError and OSError.

    A new kubeconfig is written if the file does not exist, if it is for another server or account, and if its token
    expires within `renew_before` seconds."""
    target = client.target()
    live = client.get("v1", "ServiceAccount", account.name, account.namespace)
    if live is None and not check_mode:
        raise ApiError(
            f"there is no ServiceAccount {account.namespace}/{account.name}",
            cluster=client.name,
            action="make a kubeconfig",
            hint="Apply the rights of the fleet first, which create it",
        )
    desired = kubeconfig_with(client.name, account.name, target, {"token": ""})
    current_kubeconfig = _read(path)
    token = _token(current_kubeconfig)
    ends = _end(token, text(live, "metadata", "uid"))
    if (
        ends is not None
        and (ends - now).total_seconds() > renew_before
        and _without_token(current_kubeconfig) == desired
    ):
        return Written(str(path), False, _stamp(ends))
    if check_mode:
        return Written(str(path), True)
    token = client.token(account.name, account.namespace, seconds)
    write(path, kubeconfig_with(client.name, account.name, target, {"token": token}))
    ends = _end(token, text(live, "metadata", "uid"))
    return Written(str(path), True, _stamp(ends) if ends else "")


def _read(path: Path) -> Mapping[str, Any]:
    """Return the content of the file, or an empty value for a missing or other file."""
    try:
        data = path.read_bytes()
    except OSError:
        return {}
    if is_encrypted(data):
        # Writing would replace it with a token in plain text.
        raise FileExistsError(errno.EEXIST, f"it {ENCRYPTED}; name another path, or remove the file")
    read = list(documents(Source(str(path), data)))
    value = read[0].value if len(read) == 1 and not read[0].problems else None
    return value if isinstance(value, Mapping) else {}


def _token(kubeconfig: Mapping[str, Any]) -> str:
    users = entries(kubeconfig, "users")
    return text(users[0], "user", "token") if len(users) == 1 else ""


def _without_token(kubeconfig: Mapping[str, Any]) -> dict[str, Any]:
    users = [{**user, "user": {"token": ""}} for user in entries(kubeconfig, "users")]
    return {**kubeconfig, "users": users}


def _end(token: str, uid: str) -> datetime | None:
    """Return the end of a token of the account with this UID, or None for others (KEP-1205: claims of bound tokens)."""
    segments = token.split(".")
    if len(segments) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(segments[1] + "=" * (-len(segments[1]) % 4)))
        ends = datetime.fromtimestamp(float(claims["exp"]), UTC)
    except (ValueError, TypeError, KeyError, OverflowError, OSError):
        return None
    return ends if text(fields(claims, "kubernetes.io", "serviceaccount"), "uid") == uid else None


def _stamp(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
