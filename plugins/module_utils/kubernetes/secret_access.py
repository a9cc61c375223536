# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Secrets on an inference cluster with read permissions in some namespaces only.

RBAC does not support label selectors: permission to list the fleet's Secrets in all namespaces includes every Secret.
The permissions for inference clusters (`roles/control_plane/files/rbac/workload-cluster.yaml`) therefore do not include
Secrets. They include the permission to bind a ClusterRole for Secrets in namespaces of the fleet. If Secrets in such a
namespace are forbidden, the run binds this ClusterRole.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence

from ..core import names
from ..core.wire import Object, text
from .client import Client
from .errors import ApiError, Forbidden, Unreachable

SECRETS_ROLE = "modelplane-workload-cluster-secrets"
"""The ClusterRole with the Secrets of a namespace of the fleet."""

_RBAC = "rbac.authorization.k8s.io"
# Until the API server's authorizer has seen a binding.
_SEEN_SECONDS = 10.0
_POLL_SECONDS = 0.1


class SecretAccess:
    """Access to the Secrets of namespaces. Forbidden namespaces are opened.

    `narrow`: True if listing Secrets of all namespaces is forbidden."""

    def __init__(self, client: Client, *, check_mode: bool) -> None:
        self._client = client
        self._check_mode = check_mode
        self.narrow = False
        self._user = ""
        self._opened: set[str] = set()

    def listed(self, namespace: str, labels: str = "", *, opened: bool = True) -> Sequence[Object]:
        """Return the Secrets of a namespace. Raise Forbidden, immediately without `opened`.

        In check mode, return no Secrets of a namespace that a run would open."""
        try:
            return self._list(namespace, labels)
        except Forbidden:
            if not (opened and self.open(namespace)):
                raise
        return () if self._check_mode else self._list(namespace, labels)

    def open(self, namespace: str) -> bool:
        """Bind the ClusterRole to this user in a namespace. Return False if this is forbidden or impossible."""
        if namespace in self._opened:
            return True
        try:
            self._client.apply(dict(self._binding(namespace)), dry_run=self._check_mode)
        except Unreachable:
            raise
        except ApiError:
            return False
        self._opened.add(namespace)
        deadline = time.monotonic() + _SEEN_SECONDS
        while not self._check_mode and not self._readable(namespace) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        return True

    def would_be_open(self, namespace: str) -> bool:
        """Return True if the namespace would be open now outside of check mode, and is not."""
        return self._check_mode and namespace in self._opened

    def _list(self, namespace: str, labels: str) -> Sequence[Object]:
        return self._client.list("v1", "Secret", namespace=namespace, labels=labels).items

    def _readable(self, namespace: str) -> bool:
        try:
            self._list(namespace, f"{names.MANAGED_BY_LABEL}={names.MANAGED_BY}")
        except Forbidden:
            return False
        return True

    def _binding(self, namespace: str) -> Object:
        self._user = self._user or self._who_am_i()
        # Two users of one cluster must not replace each other's binding.
        name = f"modelplane-secrets-{hashlib.sha256(self._user.encode()).hexdigest()[:10]}"
        return {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "labels": {names.MANAGED_BY_LABEL: names.MANAGED_BY},
            },
            "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": SECRETS_ROLE},
            "subjects": [{"apiGroup": _RBAC, "kind": "User", "name": self._user}],
        }

    def _who_am_i(self) -> str:
        """Return the user name of the client (authentication.k8s.io/v1, SelfSubjectReview, without permissions)."""
        review = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "SelfSubjectReview",
            "metadata": {"name": "modelplane-fleet"},
        }
        answer = self._client.create(review, dry_run=self._check_mode)
        return text(answer, "status", "userInfo", "username")
