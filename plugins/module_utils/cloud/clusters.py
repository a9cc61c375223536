# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Interface between the fleet and the clusters of a cloud: credentials, and sizes of node pools."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..core.cloud.pool_size import PoolSize
from ..kubernetes.credentials import AccessError, Grant, Mint


def authority(encoded: str, title: str) -> str:
    """Return the CA of a cluster (PEM) from the format of its cloud. `title`: the cluster in messages.

    Raises AccessError.
    """
    try:
        return base64.b64decode(encoded, validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        raise AccessError(f"{title}: its certificate authority is not base64 of a PEM text") from None


@dataclass(frozen=True)
class CloudConnection:
    """Credentials for a cluster by its name in a cloud.

    `cloud`: its name in the registries. `options`: the options of a connection that have a value.
    """

    cloud: str
    options: Mapping[str, str] = field(default_factory=dict)


class Login(Protocol):
    """Credentials for a cluster by its name in a cloud. The methods raise AccessError."""

    @property
    def cloud(self) -> str:
        """The name of the cloud in connections."""

    def find(self) -> tuple[str, str]:
        """Return the URL of the API server and its CA (PEM; empty for the certificates that the machine trusts)."""

    def mint(self, refused: str) -> Grant:
        """Return a token. `refused`: a token that the server rejected, and that is not returned again; empty for
        none."""


@dataclass(frozen=True)
class Logins:
    """Credentials for the clusters of a cloud.

    `of`: the credentials from the options of a connection, without options that have no value. `of_program`: creates
    the tokens of a program in a kubeconfig, from its name, its arguments and its variables. It returns None for a
    program of another cloud, and raises AccessError. `auth_providers`: the same for names of auth providers. `of_key`:
    a token from an account key (a mapping, in the format of its file), None for a key of another type. Its second
    argument is the name of the key in messages. It raises AccessError. `domains`: the domains of API server names.
    """

    of: Callable[..., Login]
    of_program: Callable[[str, Sequence[str], Mapping[str, str]], Mint | None]
    domains: tuple[str, ...]
    auth_providers: Mapping[str, Mint] = field(default_factory=dict)
    of_key: Callable[[Mapping[str, Any], str], Grant | None] = lambda _key, _title: None


class PoolSizes(Protocol):
    """Sizes of the node pools of clusters. `options` are the options of the credentials. The methods raise a
    CloudError.

    Only clouds with autoscalers that do not start the first node of a pool with devices have them.
    """

    def read(self, options: Mapping[str, str], pool: str, fleet: str) -> PoolSize | None:
        """Return the size of a pool; None if the pool does not exist. `fleet`: the fleet that must own it."""

    def resize(self, options: Mapping[str, str], pool: str, nodes: int) -> None:
        """Set the desired number of nodes of a pool, and return once the cloud has started the change."""
