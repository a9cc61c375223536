# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""ModelEndpoint: one backend that can be reached."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar

from ansible_collections.modelplane.fleet.plugins.module_utils._pydantic import Field
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.base import (
    Column,
    Model,
    Rule,
    Words,
    other_than,
    without,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.meta import DNS_SUBDOMAIN, DNS_SUBDOMAIN_WORDS
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.resource import Resource, Spec, Status

AUTHORIZATION = "Authorization"

# RFC 9110, section 5.6.2: the token that a field name is.
TOKEN = r"^[-!#$%&'*+.^_`|~0-9A-Za-z]+$"
# Keys of Secrets and ConfigMaps, without names that a file system would take for a folder.
KEY = r"^\.?[-_a-zA-Z0-9][-._a-zA-Z0-9]*$"
# What a proxy has to set by itself: where a request goes and where its body ends (RFC 9110, sections 7.2 and 8.6;
# RFC 9112, section 6.1), and what is meant for one connection only (RFC 9110, section 7.6.1).
PROXY_HEADERS = ("connection", "content-length", "host", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade")

_NOT_A_NAME = r"^[0-9.]+$"


def _any_case(text: str) -> str:
    return "".join(f"[{letter.upper()}{letter}]" if letter.isalpha() else letter for letter in text)


class KeySecretRef(Model):
    """A Secret of the endpoint's namespace on the control cluster."""

    name: Annotated[str, Words(DNS_SUBDOMAIN_WORDS)] = Field(
        min_length=1, max_length=253, pattern=DNS_SUBDOMAIN, description="Name of the Secret."
    )
    key: Annotated[str, Words("must be letters, digits, '-', '_' and '.'")] = Field(
        default="apiKey", min_length=1, max_length=253, pattern=KEY, description="Key in its data."
    )


class APIKey(Model):
    """A key that is sent in a header."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            ids=("ME-1",),
            message="header must not be one that proxies set by themselves",
            cel=f"!(self.header.lowerAscii() in [{', '.join(repr(name) for name in PROXY_HEADERS)}])",
            check=lambda credential: credential.header.lower() not in PROXY_HEADERS,
            hint=f"Most providers take the key in {AUTHORIZATION} or in a header of their own, such as x-api-key",
            schema={"properties": {"header": other_than(*map(_any_case, PROXY_HEADERS))}},
        ),
    )

    secret_ref: KeySecretRef = Field(description="Where the key is.")
    header: Annotated[str, Words("must be the name of an HTTP header: letters, digits and any of !#$%&'*+-.^_`|~")] = (
        Field(
            default=AUTHORIZATION, min_length=1, max_length=256, pattern=TOKEN, description="Header that the key is in."
        )
    )
    prefix: Annotated[str, Words("must be visible ASCII characters and spaces")] | None = Field(
        default=None,
        max_length=64,
        pattern="^[ -~]*$",
        description=f"Text before the key; absent is 'Bearer ' in {AUTHORIZATION} and nothing in other headers.",
    )


class Credential(Model):
    """Credentials that the backend asks of callers; they take the place of what the caller sent."""

    api_key: APIKey = Field(description="A key that is sent in a header.")


class CACertificateRef(Model):
    """A ConfigMap of the endpoint's namespace with certificates (PEM) under the key ca.crt."""

    name: Annotated[str, Words(DNS_SUBDOMAIN_WORDS)] = Field(
        min_length=1, max_length=253, pattern=DNS_SUBDOMAIN, description="Name of the ConfigMap."
    )


class EndpointTLS(Model):
    """Certificates of the backend."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            ids=("ME-2",),
            message="serverName must be a DNS name, not an IP address",
            cel=f"!has(self.serverName) || !self.serverName.matches('{_NOT_A_NAME}')",
            check=lambda tls: tls.server_name is None or not re.fullmatch(_NOT_A_NAME, tls.server_name),
            hint="Write the name that is in the backend's certificate",
            schema={"properties": {"serverName": {"pattern": "[^0-9.]"}}},
        ),
    )

    server_name: Annotated[str, Words(DNS_SUBDOMAIN_WORDS)] | None = Field(
        default=None,
        min_length=1,
        max_length=253,
        pattern=DNS_SUBDOMAIN,
        description="Name in the certificate; absent is the host of the URL.",
    )
    ca_certificate_ref: CACertificateRef | None = Field(
        default=None, description="Who may have signed the certificate; absent is whom the system trusts."
    )


def _is_https(spec: Any) -> bool:
    return bool(spec.url.lower().startswith("https://"))


class ModelEndpointSpec(Spec):
    """Address of the backend."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            ids=("ME-3",),
            message="tls is allowed only with an https url",
            cel="!has(self.tls) || self.url.lowerAscii().startsWith('https://')",
            check=lambda spec: spec.tls is None or _is_https(spec),
            hint="Write https:// in url, or remove tls",
            schema={
                "if": {"properties": {"url": {"pattern": f"^{_any_case('https')}://"}}},
                "else": without("tls"),
            },
        ),
    )

    # Whether it can be used is no matter of the schema: an endpoint that cannot be reached says so in its status.
    url: str = Field(min_length=1, max_length=2048, description="http or https URL; its host and port are used.")
    rewrite_path: Annotated[str, Words("must begin with '/' and have no spaces, '?' or '#'")] | None = Field(
        default=None,
        max_length=1024,
        pattern='^/[!"$->@-~]*$',
        description="Path that replaces the service's prefix; absent rewrites nothing.",
    )
    credential: Credential | None = Field(
        default=None, description="What the backend asks of callers; absent passes on what the caller sent."
    )
    tls: EndpointTLS | None = Field(
        default=None, description="How the backend proves who it is; absent is by its host's name."
    )


class EndpointRouting(Model):
    """Route from the gateway to the backend."""

    backend_name: str | None = Field(default=None, description="Service for the backend, once it can be reached.")


class ModelEndpointStatus(Status):
    """Observed state of the endpoint."""

    routing: EndpointRouting | None = Field(default=None, description="How the gateway reaches the backend.")


class ModelEndpoint(Resource):
    """One backend: a replica of the fleet, or a provider outside of it."""

    KIND: ClassVar[str] = "ModelEndpoint"
    PLURAL: ClassVar[str] = "modelendpoints"
    SHORT_NAMES: ClassVar[tuple[str, ...]] = ("me",)
    COLUMNS: ClassVar[tuple[Column, ...]] = (Column("URL", ".spec.url"),)

    spec: ModelEndpointSpec = Field(description="Where the backend is.")
    status: ModelEndpointStatus | None = Field(default=None, description="What is known of the endpoint.")
