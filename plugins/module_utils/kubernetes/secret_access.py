# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Secrets on a workload cluster where only those of some namespaces may be read.

RBAC knows no label selectors: who may list our Secrets in all namespaces may read every Secret. So the rights that are
meant for workload clusters (`roles/control_plane/files/rbac/workload-cluster.yaml`) have no Secrets, but the permission
to bind a ClusterRole for them in namespaces of the fleet. Where Secrets of one are refused, that is done.
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
    """The Secrets of namespaces, opened where they are refused. `narrow`: those of all at once are."""

    def __init__(self, client: Client, *, check_mode: bool) -> None:
        self._client = client
        self._check_mode = check_mode
        self.narrow = False
        self._user = ""
        self._opened: set[str] = set()

    def listed(self, namespace: str, labels: str = "", *, opened: bool = True) -> Sequence[Object]:
        """The Secrets of a namespace; none in check mode where they would only be opened. Raises Forbidden, at once
        without `opened`."""
        try:
            return self._list(namespace, labels)
        except Forbidden:
            if not (opened and self.open(namespace)):
                raise
        return () if self._check_mode else self._list(namespace, labels)

    def open(self, namespace: str) -> bool:
        """Bind the ClusterRole to ourselves in a namespace; False where that is refused, or there is none of it."""
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
        # Two users of one cluster do not take each other's binding.
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
