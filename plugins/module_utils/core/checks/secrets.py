# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Checks of the Secrets that a cluster needs for its replicas, caches, gateways, and serving stack."""

from __future__ import annotations

from collections.abc import Iterator

from ..compose.stack_steps import image_namespaces
from ..problem import Ref
from ..status.secret_references import SecretReference, certificate_reference, missing_secrets, pull_secret
from ..text import listed
from ..wire import Object, entries, text
from .finding import Finding, warning
from .snapshot import Desired, Snapshot


def findings(snapshot: Snapshot, desired: Desired) -> Iterator[Finding]:
    """Yield the missing Secrets: on the cluster, and on the control cluster if the cluster needs them.

    They are warnings, because a replica with such a reference might be placed on another cluster."""

    def known_keys(cluster: str, namespace: str, name: str) -> frozenset[str] | None:
        return (snapshot.secrets if cluster else desired.control_secrets).get((namespace, name))

    references = (*desired.expected.secrets, *_certificates(desired), *desired.expected.control_secrets)
    for secret in missing_secrets(references, known_keys):
        where = f"Secret {secret.namespace}/{secret.name}"
        yield warning("secrets", where, secret.message.removeprefix(f"{where} "), secret.hint)
    yield from _pull_secrets(snapshot, desired)


def secrets_on_cluster(desired: Desired) -> set[tuple[str, str]]:
    """Return namespace and name of the Secrets that the check reads on the cluster."""
    references = (*desired.expected.secrets, *_certificates(desired))
    return {(reference.namespace, reference.name) for reference in references} | {
        (namespace, name) for name in desired.pull_secrets for namespace in _image_namespaces(desired)
    }


def _certificates(desired: Desired) -> Iterator[SecretReference]:
    """Yield the references of Gateways of the serving stack to their certificates."""
    for entry in desired.managed:
        for value in entries(entry, "objects"):
            if text(value, "kind") == "Gateway":
                yield from _certificates_of(value, desired.name)


def _certificates_of(gateway: Object, cluster: str) -> Iterator[SecretReference]:
    namespace = text(gateway, "metadata", "namespace")
    user = Ref("Gateway", namespace, text(gateway, "metadata", "name"))
    for listener in entries(gateway, "spec", "listeners"):
        for certificate in entries(listener, "tls", "certificateRefs"):
            secret_namespace = text(certificate, "namespace") or namespace
            yield certificate_reference(cluster, secret_namespace, text(certificate, "name"), user)


def _pull_secrets(snapshot: Snapshot, desired: Desired) -> Iterator[Finding]:
    """Yield a finding for each image pull secret of the serving stack that is missing in a namespace."""
    for name in desired.pull_secrets:
        missing = [
            namespace
            for namespace in _image_namespaces(desired)
            if snapshot.secrets.get((namespace, name)) == frozenset()
        ]
        if missing:
            message = f"does not exist in {listed(missing)}, and serving_stack_image_pull_secrets refers to it"
            command = pull_secret(desired.name, missing[0], name).command
            hint = f"Set serving_stack_image_pull_config to create it, or create it in each namespace: `{command}`"
            yield warning("secrets", f"Secret {name}", message, hint)


def _image_namespaces(desired: Desired) -> list[str]:
    return image_namespaces(desired.managed) if desired.managed else []
