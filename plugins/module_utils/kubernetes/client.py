# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""One API server: plain dicts in, plain dicts out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

FIELD_MANAGER = "modelplane.fleet"
# Verbs of Client.requests that change something on the server.
WRITES = frozenset({"apply", "create", "replace", "patch", "delete"})

Object = dict[str, Any]


@dataclass(frozen=True)
class ResourceType:
    """What the server serves for a kind."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool
    verbs: frozenset[str]
    subresources: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Listing:
    """The answer of a list: all pages, and the version to watch from."""

    items: tuple[Object, ...]
    resource_version: str


class Client:
    """One API server. Safe for several threads; close() when done (or use it in a with statement)."""

    name: str
    server: str
    requests: Counter[str]

    def version(self) -> tuple[int, int]:
        """Major and minor version of the server."""
        raise NotImplementedError

    def resource(self, api_version: str, kind: str) -> ResourceType:
        """What the server serves; raises NotServed."""
        raise NotImplementedError

    def serves(self, api_version: str, kind: str) -> bool:
        """Whether the server serves the kind."""
        raise NotImplementedError

    def get(self, api_version: str, kind: str, name: str, namespace: str = "") -> Object | None:
        """The object; None when there is none, or the kind is not served."""
        raise NotImplementedError

    def list(self, api_version: str, kind: str, *, namespace: str = "", labels: str = "", fields: str = "") -> Listing:
        """All objects of the kind (in the namespace, or in all); raises NotServed."""
        raise NotImplementedError

    def apply(
        self,
        obj: Object,
        *,
        manager: str = FIELD_MANAGER,
        force: bool = False,
        dry_run: bool = False,
        subresource: str = "",
        validation: str = "Strict",
    ) -> Object:
        """Server-side apply; the object as it is afterwards."""
        raise NotImplementedError

    def create(self, obj: Object, *, dry_run: bool = False) -> Object:
        """Create; raises AlreadyExists."""
        raise NotImplementedError

    def replace(self, obj: Object, *, subresource: str = "") -> Object:
        """Optimistic PUT: raises Conflict when the object is no longer at its metadata.resourceVersion."""
        raise NotImplementedError

    def merge_patch(
        self, api_version: str, kind: str, name: str, namespace: str, patch: Object, *, subresource: str = ""
    ) -> Object:
        """JSON merge patch (RFC 7386)."""
        raise NotImplementedError

    def delete(
        self,
        api_version: str,
        kind: str,
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        propagation: str = "Background",
        dry_run: bool = False,
    ) -> bool:
        """Delete; False: it was not there. With uid, only that very object (else Conflict)."""
        raise NotImplementedError

    def watch(
        self,
        api_version: str,
        kind: str,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        resource_version: str = "",
        timeout: float,
    ) -> Iterator[tuple[str, Object]]:
        """(ADDED|MODIFIED|DELETED, object) until timeout seconds are over; cut streams are resumed; raises Gone."""
        raise NotImplementedError

    def forget_discovery(self) -> None:
        """Ask anew what is served, for instance after CRDs were installed."""
        raise NotImplementedError

    def close(self) -> None:
        """Close connections."""

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()
