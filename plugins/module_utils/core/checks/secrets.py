# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Checks of the Secrets that a cluster needs for its replicas, caches and gateways."""

from __future__ import annotations

from collections.abc import Iterator

from ansible_collections.modelplane.fleet.plugins.module_utils.core.checks.finding import Finding, warning
from ansible_collections.modelplane.fleet.plugins.module_utils.core.checks.snapshot import Desired, Snapshot
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.secret_references import missing_secrets


def findings(snapshot: Snapshot, desired: Desired) -> Iterator[Finding]:
    """Yield the missing Secrets: on the cluster, and on the control cluster if the cluster needs them.

    They are warnings, because a replica with such a reference might be placed on another cluster."""

    def known(cluster: str, namespace: str, name: str) -> frozenset[str] | None:
        return (snapshot.secrets if cluster else desired.control_secrets).get((namespace, name))

    references = (*desired.expected.secrets, *desired.expected.control_secrets)
    for secret in missing_secrets(references, known):
        where = f"Secret {secret.namespace}/{secret.name}"
        yield warning("secrets", where, secret.message.removeprefix(f"{where} "), secret.hint)
