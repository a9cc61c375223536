# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A lock on the control cluster: a coordination.k8s.io/v1 Lease, taken over after it expired."""

from __future__ import annotations

from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.client import Client


class Lease:
    """A Lease that one holder has at a time. `duration`: seconds without renewal until others may take it."""

    def __init__(self, client: Client, name: str, namespace: str, holder: str, duration: float = 30.0) -> None:
        self.client, self.name, self.namespace, self.holder, self.duration = client, name, namespace, holder, duration

    def acquire(self, wait: float = 0.0) -> bool:
        """Take it, waiting up to `wait` seconds; False: another holder kept it."""
        raise NotImplementedError

    def renew(self) -> None:
        """Say that we are still here; raises Conflict when it was taken over."""
        raise NotImplementedError

    def release(self) -> None:
        """Give it back; nothing happens when it is no longer ours."""
        raise NotImplementedError

    @property
    def held_by(self) -> str:
        """Who held it when it was last looked at."""
        raise NotImplementedError
