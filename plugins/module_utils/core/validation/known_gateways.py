# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Validation of `status` in manifests of gateways that no run observes.

The values become part of objects. They must have the expected content, and must never be a private key.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from typing import Any

from ..compose.model_gateway.mtls import service_address
from ..names import is_dns_label
from ..problem import Problem
from ..secrets import masked
from ..text import short

_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----((?:(?!-----).)+)-----END CERTIFICATE-----\s*", re.DOTALL)
_SEQUENCE = 0x30
_LONG_LENGTH = 0x80
_ADDRESS = re.compile(r"[A-Za-z0-9._:\[\]-]{1,253}")


def gateway_status(gateway: Any, _fleet: object) -> Iterator[Problem]:
    """Yield problems with the status of a gateway."""
    if gateway.status:
        yield from _address(gateway.status.address, "status.address")
        cluster = gateway.spec.cluster_name or "of the gateway"
        hint = f"Copy ca.crt of the ConfigMap modelplane-system/inference-gateway-ca on cluster {cluster}"
        yield from _certificates(gateway.status.client_ca_certificate, "status.clientCACertificate", hint)


def cluster_status(cluster: Any, _fleet: object) -> Iterator[Problem]:
    """Yield problems with the status of a cluster's gateway."""
    gateway = cluster.status and cluster.status.gateway
    if not gateway:
        return
    yield from _address(gateway.address, "status.gateway.address")
    yield from _address(gateway.internal_address, "status.gateway.internalAddress")
    if gateway.url and masked(gateway.url) != gateway.url:
        hint = "Write it without, and change the password or revoke the key: everyone who reads this manifest has it"
        yield Problem("must have no password and no key in it", "status.gateway.url", hint=hint)
    # Gateways in mode Model reach a cluster by a Service that leads to one of them.
    if gateway.internal_address or gateway.hostname:
        field = "internalAddress" if gateway.internal_address else "address"
        yield from _service_address(gateway.internal_address or gateway.address, f"status.gateway.{field}")
    if gateway.hostname and not all(map(is_dns_label, gateway.hostname.split("."))):
        hint = "Copy the name in spec.dnsNames of its Certificate cluster-gateway"
        yield Problem("must be a DNS name", "status.gateway.hostname", short(gateway.hostname), hint)
    hint = f"Copy ca.crt of the ConfigMap modelplane-system/cluster-gateway-ca on cluster {cluster.name}"
    yield from _certificates(gateway.ca_certificate, "status.gateway.caCertificate", hint)


def _address(value: str | None, path: str) -> Iterator[Problem]:
    if value and not _ADDRESS.fullmatch(value):
        hint = "Copy the address in the status of its Gateway"
        # The part before an @ may be a password.
        yield Problem("must be an address or a DNS name", path, "" if "@" in value else short(value), hint)


def _service_address(value: str | None, path: str) -> Iterator[Problem]:
    """Yield an address that is valid, but not for a Service."""
    if value and _ADDRESS.fullmatch(value) and not service_address(value):
        hint = "Copy the address in the status of its Gateway cluster-gateway, without a port or brackets"
        yield Problem("must be an IP address that other clusters reach, or a DNS name", path, short(value), hint)


def _certificates(value: str | None, path: str, hint: str) -> Iterator[Problem]:
    """Yield a field with content other than certificates. The problem omits the value: it can be a private key."""
    if value and _CERTIFICATE.sub("", value).strip():
        yield Problem("must be certificates (PEM) and nothing else", path, hint=hint)
    elif value and not all(map(_is_der_sequence, _CERTIFICATE.findall(value))):
        yield Problem("has BEGIN CERTIFICATE and END CERTIFICATE, but no certificate between them", path, hint=hint)


def _is_der_sequence(text: str) -> bool:
    """Return True if Base64 text is one DER SEQUENCE of the length in its header, as in each certificate."""
    try:
        content = base64.b64decode("".join(text.split()), validate=True)
    except ValueError:
        return False
    if len(content) < 2 or content[0] != _SEQUENCE:
        return False
    size = content[1] - _LONG_LENGTH if content[1] >= _LONG_LENGTH else 0
    length = int.from_bytes(content[2 : 2 + size], "big") if size else content[1]
    return len(content) == 2 + size + length
