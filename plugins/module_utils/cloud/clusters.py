# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Interface between the fleet and the clusters of a cloud: logins, and sizes of node pools."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..core.cloud.pool_size import PoolSize
from ..kubernetes.credentials import AccessError, Grant, Mint


def authority(encoded: str, title: str) -> str:
    """Return the CA of a cluster (PEM) as its cloud describes it. `title`: the cluster in messages.

    Raises AccessError.
    """
    try:
        return base64.b64decode(encoded, validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        raise AccessError(f"{title}: its certificate authority is not base64 of a PEM text") from None


@dataclass(frozen=True)
class CloudConnection:
    """Login at a cluster by its name in a cloud. `cloud`: its name in the registries. `options`: those of a connection
    that have a value."""

    cloud: str
    options: Mapping[str, str] = field(default_factory=dict)


class Login(Protocol):
    """Login at a cluster by its name in a cloud. The methods raise AccessError."""

    @property
    def cloud(self) -> str:
        """The name of the cloud, as connections have it."""

    def find(self) -> tuple[str, str]:
        """Return the URL of the API server and its CA (PEM; empty for the certificates that the machine trusts)."""

    def mint(self, refused: str) -> Grant:
        """Return a token. `refused`: one that the server refused, empty for none, which is not given out again."""


@dataclass(frozen=True)
class Logins:
    """Logins at the clusters of a cloud.

    `of`: the login of the options of a connection, without those that have no value. `of_program`: what makes the
    tokens that a program would, of its name, its arguments and its variables in a kubeconfig; None for a program that
    has nothing to do with the cloud; raises AccessError. `auth_providers`: the same for names of auth providers.
    `of_key`: a token of a key of an account (a mapping, as its file has it), None for a key of another kind; its second
    argument is what the key is called in messages; raises AccessError. `domains`: of the names of API servers.
    """

    of: Callable[..., Login]
    of_program: Callable[[str, Sequence[str], Mapping[str, str]], Mint | None]
    domains: tuple[str, ...]
    auth_providers: Mapping[str, Mint] = field(default_factory=dict)
    of_key: Callable[[Mapping[str, Any], str], Grant | None] = lambda _key, _title: None


class PoolSizes(Protocol):
    """Sizes of the node pools of clusters, which `options` (of a login) name. The methods raise a CloudError. Clouds
    have them whose autoscalers do not start the first node of a pool with devices to claim."""

    def read(self, options: Mapping[str, str], pool: str, fleet: str) -> PoolSize | None:
        """Return the size of a pool; None when there is no such pool. `fleet`: the fleet that has to own it."""

    def resize(self, options: Mapping[str, str], pool: str, nodes: int) -> None:
        """Set the desired number of nodes of a pool, and return once the cloud has begun."""
