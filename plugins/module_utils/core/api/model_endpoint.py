# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""ModelEndpoint: backend of ModelServices."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

from ..._pydantic import Field
from .base import Column, Hidden, Model, Rule, Violation, Words, other_than, without
from .meta import DNSSubdomain
from .resource import Resource, Spec, Status

AUTHORIZATION = "Authorization"
BEARER = "Bearer "
X_API_KEY = "x-api-key"
Schema = Literal["OpenAI", "Anthropic"]
OPENAI: Schema = "OpenAI"
ANTHROPIC: Schema = "Anthropic"
DEFAULT_PREFIX = "/v1"

PATH = '^/[!"$->@-~]*$'
_PATH_WORDS = "must begin with '/' and have no spaces, '?' or '#'"
# The last label of a DNS name begins with a letter. An IPv4 address ends with a number.
_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_HOST = rf"({_LABEL}\.)*[a-z]([-a-z0-9]*[a-z0-9])?"
_PORT = "([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
ORIGIN = f"^https?://{_HOST}(:{_PORT})?$"

# Patterns of invalid origins with their hints, of which the first match applies. Hints do not contain the origin,
# because it might contain a key.
_WRONG_ORIGINS = (
    (r".*\s", "Remove the spaces and line breaks"),
    (r"(?!https?://)(?i:https?://)", "Write its scheme in lower case"),
    ("(?!https?://)", "Begin it with https:// or http://"),
    ("[^/]*//[^/]*@", "Remove the user name and the password: a key belongs in the Secret that credential names"),
    (".*[?#]", "Remove what begins with '?' or '#'"),
    ("[^/]*//[^/]*/+$", "Remove the slash at its end"),
    ("[^/]*//[^/]*/", "Remove its path, and write it into api.prefix"),
    (r"[^/]*//(\[|[0-9.]+(:|$))", "Write a DNS name instead of the address, or url instead of origin"),
    (rf"[^/]*//[^:]*:(?!{_PORT}$)", "Its port must be a number from 1 to 65535, or left out with the colon"),
    (r"[^A-Z]*[A-Z]", "Write its host in lower case"),
    ("", "Its host must be a DNS name: letters, digits, '-' and '.', the last part beginning with a letter"),
)

# Header names are tokens (RFC 9110, section 5.6.2).
TOKEN = r"^[-!#$%&'*+.^_`|~0-9A-Za-z]+$"
# Keys of Secrets and ConfigMaps, except the directory names `.` and `..`.
KEY = r"^\.?[-_a-zA-Z0-9][-._a-zA-Z0-9]*$"
# Authentication scheme before a key. It is shorter than any key, so that a key in the field is an error.
_SCHEME = "^[!-~]{0,15} ?$"
_SCHEME_WORDS = (
    "must be a scheme of visible ASCII characters, at most 15, with or without a space behind it, such as 'Bearer '; "
    "the key itself belongs in the Secret of secretRef. Revoke a key that was written here"
)
# Headers that a proxy must set itself, because they control routing, the length of the body (RFC 9110, sections 7.2 and
# 8.6; RFC 9112, section 6.1), or a single connection (RFC 9110, section 7.6.1).
PROXY_HEADERS = ("connection", "content-length", "host", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade")

_NOT_A_NAME = r"^[0-9.]+$"


def _any_case(text: str) -> str:
    return "".join(f"[{letter.upper()}{letter}]" if letter.isalpha() else letter for letter in text)


class KeySecretRef(Model):
    """Secret in the namespace of the endpoint on the control cluster."""

    name: DNSSubdomain = Field(description="Name of the Secret.")
    key: Annotated[str, Words("must be letters, digits, '-', '_' and '.'")] = Field(
        default="apiKey",
        min_length=1,
        max_length=253,
        pattern=KEY,
        description="Key in the data of the Secret. Defaults to apiKey.",
    )


class APIKey(Model):
    """API key that the gateway sends in a header."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            ids=("ME-1",),
            message="header must not be a header that proxies set",
            cel=f"!has(self.header) || !(self.header.lowerAscii() in "
            f"[{', '.join(repr(name) for name in PROXY_HEADERS)}])",
            check=lambda credential: (credential.header or "").lower() not in PROXY_HEADERS,
            hint=f"Most providers read the key from {AUTHORIZATION} or a custom header, such as {X_API_KEY}",
            schema={"properties": {"header": other_than(*map(_any_case, PROXY_HEADERS))}},
        ),
    )

    secret_ref: KeySecretRef = Field(description="Secret with the API key.")
    header: (
        Annotated[str, Words("must be the name of an HTTP header: letters, digits and any of !#$%&'*+-.^_`|~")] | None
    ) = Field(
        default=None,
        min_length=1,
        max_length=256,
        pattern=TOKEN,
        description=f"Header of the API key. Defaults to {AUTHORIZATION}, or to {X_API_KEY} if api.schema is "
        f"{ANTHROPIC}.",
    )
    prefix: Annotated[str, Words(_SCHEME_WORDS)] | None = Field(
        default=None,
        pattern=_SCHEME,
        description=f"Prefix of the API key in the header. Defaults to 'Bearer ' for {AUTHORIZATION}, and to an empty "
        "prefix for other headers.",
    )


class Credential(Model):
    """Credentials for the backend. They replace the credentials of the client."""

    method: Literal["APIKey"] | None = Field(default=None, description="Type of the credentials. Defaults to APIKey.")
    api_key: APIKey = Field(description="API key that the gateway sends in a header.")


class CACertificateRef(Model):
    """ConfigMap in the namespace of the endpoint, with PEM-encoded CA certificates in the key ca.crt."""

    name: DNSSubdomain = Field(description="Name of the ConfigMap.")


class EndpointTLS(Model):
    """TLS settings for the backend."""

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

    server_name: DNSSubdomain | None = Field(
        default=None, description="Name in the certificate of the backend. Defaults to the host of the URL."
    )
    ca_certificate_ref: CACertificateRef | None = Field(
        default=None,
        description="CA certificates that validate the backend. If unset, the gateway uses the system CA certificates.",
    )


class EndpointAPI(Model):
    """API of the backend."""

    schema_: Schema = Field(
        default=OPENAI, alias="schema", description=f"API schema of the backend. Defaults to {OPENAI}."
    )
    prefix: Annotated[str, Words(_PATH_WORDS)] | None = Field(
        default=None,
        max_length=1024,
        pattern=PATH,
        description=f"Path prefix of the API. Defaults to the path of url, or to {DEFAULT_PREFIX} if url has no path.",
    )


def _is_https(spec: Any) -> bool:
    return bool(spec.backend_url.lower().startswith("https://"))


_HTTPS = {"pattern": f"^{_any_case('https')}://"}


def _one_address(spec: Any) -> list[Violation]:
    if spec.url is None and spec.origin is None:
        return [Violation(("url",), "is required, or origin instead")]
    if spec.url is not None and spec.origin is not None:
        return [Violation(("origin",), "must not be set together with url", hint="Keep one of them")]
    return []


class ModelEndpointSpec(Spec):
    """Desired state of the endpoint."""

    # Rules between resources distinguish a null from an unset field. With a null, Path gateways forward the credentials
    # of the client, as without the field.
    KEPT_NULLS: ClassVar[frozenset[str]] = frozenset({"credential"})

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            ids=("ME-3",),
            message="tls is allowed only with an https url or origin",
            cel="!has(self.tls) || (has(self.url) && self.url.lowerAscii().startsWith('https://')) "
            "|| (has(self.origin) && self.origin.startsWith('https://'))",
            check=lambda spec: spec.tls is None or _is_https(spec),
            hint="Write https:// there, or remove tls",
            schema={
                "if": {"properties": {"url": _HTTPS, "origin": _HTTPS}},
                "else": without("tls"),
            },
        ),
        Rule(
            ids=("ME-4",),
            message="exactly one of url and origin must be given",
            cel="has(self.url) != has(self.origin)",
            check=_one_address,
            hint="Write origin for a backend with a DNS name, url for any",
            schema={"oneOf": [{"required": ["url"]}, {"required": ["origin"]}]},
        ),
    )

    # The schema does not check whether the URL is usable. The status of the endpoint reports an unusable URL.
    url: str | None = Field(
        default=None,
        min_length=1,
        max_length=2048,
        description="HTTP or HTTPS URL of the backend. Only Model gateways use its path. Mutually exclusive with "
        "origin.",
    )
    origin: (
        Annotated[
            str,
            Words(
                "must be http:// or https:// and a DNS name in lower case, with or without a port: no address, no path"
            ),
            Hidden(),
        ]
        | None
    ) = Field(
        default=None,
        min_length=1,
        max_length=267,
        pattern=ORIGIN,
        description="Scheme, DNS name and optional port of the backend, such as https://api.example.com. Mutually "
        "exclusive with url.",
    )
    api: EndpointAPI | None = Field(
        default=None, description=f"API of the backend. Defaults to the {OPENAI} API with its default prefix."
    )
    model: Annotated[str, Words("must be letters, digits and signs of ASCII, without spaces")] | None = Field(
        default=None,
        min_length=1,
        max_length=253,
        pattern=r"^[!-~]+$",
        description="Model name that a Model gateway sends to the backend. Defaults to the model name in the request.",
    )
    rewrite_path: Annotated[str, Words(_PATH_WORDS)] | None = Field(
        default=None,
        max_length=1024,
        pattern=PATH,
        description="Path that replaces the prefix of the service at a Path gateway. If unset, the gateway derives the "
        "path from api.prefix for an origin, and does not rewrite the path for a url.",
    )
    credential: Annotated[Credential, Hidden()] | None = Field(
        default=None,
        description="Credentials for the backend. If unset, only a Path gateway forwards the credentials of the "
        "client.",
    )
    tls: EndpointTLS | None = Field(
        default=None,
        description="TLS settings for an https backend. If unset, the gateway validates the certificate for the host "
        "with the system CA certificates.",
    )

    @classmethod
    def hint_of_text(cls, field: str, text: str) -> str:
        """Return the hint for an invalid origin. Empty for other fields."""
        # An origin that matches the pattern can still be too long.
        if field != "origin" or re.match(ORIGIN, text):
            return ""
        return next(hint for pattern, hint in _WRONG_ORIGINS if re.match(pattern, text, re.DOTALL))

    @property
    def lacks_credential(self) -> bool:
        """True if `credential` is set to null."""
        return self.credential is None and "credential" in self.model_fields_set

    @property
    def backend_url(self) -> str:
        """URL with the scheme, host and port of the backend."""
        return self.url or self.origin or ""

    @property
    def backend_field(self) -> str:
        """Name of the field with the URL: url or origin."""
        return "origin" if self.origin is not None else "url"

    @property
    def schema_name(self) -> Schema:
        """API schema of the backend."""
        return self.api.schema_ if self.api else OPENAI

    @property
    def prefix(self) -> str:
        """Path prefix of the API, without a slash at the end."""
        if self.api and self.api.prefix is not None:
            return self.api.prefix.rstrip("/")
        try:
            path = urlsplit(self.url or "").path
        except ValueError:
            path = ""
        return path.rstrip("/") or DEFAULT_PREFIX

    @property
    def path(self) -> str | None:
        """Path that replaces the prefix of a service at a Path gateway. None if the gateway does not rewrite the path.

        The derived path has no API version, because clients of a Path gateway include the version in their requests.
        """
        if self.rewrite_path is not None or self.origin is None:
            return self.rewrite_path
        return f"{self.prefix.removesuffix(DEFAULT_PREFIX)}/"

    @property
    def key_header(self) -> str:
        """Header of the API key."""
        usual = X_API_KEY if self.schema_name == ANTHROPIC else AUTHORIZATION
        return (self.credential.api_key.header if self.credential else None) or usual

    @property
    def key_prefix(self) -> str:
        """Prefix of the API key in its header."""
        prefix = self.credential.api_key.prefix if self.credential else None
        return prefix if prefix is not None else BEARER if self.key_header.lower() == AUTHORIZATION.lower() else ""


class EndpointRouting(Model):
    """Routing from the gateway to the backend."""

    backend_name: str | None = Field(
        default=None, description="Name of the Service for the backend. Set when the backend is reachable."
    )


class ModelEndpointStatus(Status):
    """Observed state of the endpoint."""

    routing: EndpointRouting | None = Field(default=None, description="Routing from the gateway to the backend.")


class ModelEndpoint(Resource):
    """Backend of ModelServices: a replica of the fleet, or an external provider."""

    KIND: ClassVar[str] = "ModelEndpoint"
    PLURAL: ClassVar[str] = "modelendpoints"
    SHORT_NAMES: ClassVar[tuple[str, ...]] = ("me",)
    COLUMNS: ClassVar[tuple[Column, ...]] = (
        Column("URL", ".spec.url"),
        Column("ORIGIN", ".spec.origin"),
    )

    spec: ModelEndpointSpec = Field(description="Desired state of the endpoint.")
    status: ModelEndpointStatus | None = Field(default=None, description="Observed state of the endpoint.")
