# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Listeners of gateways, with the field names of the Gateway API."""

from __future__ import annotations

from typing import Annotated

from ..._pydantic import Field
from .base import DNSLabel, Model, Rule, Words, allowed_if, has, requires
from .meta import DNSSubdomain

HTTPS = "HTTPS"
# As in the Gateway API, the first label can be `*`.
_HOSTNAME = r"^(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
_HOSTNAME_WORDS = "must be a DNS name in lower case; its first part may be '*'"

Hostname = Annotated[
    str,
    Words(_HOSTNAME_WORDS),
    Field(min_length=1, max_length=253, pattern=_HOSTNAME),
]


class CertificateRef(Model):
    """Secret of type kubernetes.io/tls."""

    name: DNSSubdomain = Field(description="Name of the Secret.")
    namespace: DNSLabel | None = Field(
        default=None,
        description="Namespace of the Secret. Defaults to the namespace of the Gateway. A Secret in another namespace "
        "requires a ReferenceGrant.",
    )


class ListenerTLS(Model):
    """TLS settings of a listener. The gateway terminates TLS."""

    certificate_refs: list[CertificateRef] = Field(
        min_length=1, max_length=8, description="Secrets with the certificates, on the cluster of the gateway."
    )


TLS_RULES: tuple[Rule, ...] = (
    requires(("LI-1",), "protocol", HTTPS, "tls"),
    Rule(
        ids=("LI-2",),
        message="tls is allowed only when protocol is HTTPS",
        cel="!has(self.tls) || self.protocol == 'HTTPS'",
        check=lambda listener: listener.tls is None or listener.protocol == HTTPS,
        hint="Write HTTPS, or leave tls out",
        schema=allowed_if(has("protocol", HTTPS), "tls"),
    ),
)
