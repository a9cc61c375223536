# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""ModelEndpoint: one backend that can be reached."""

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
# The last label of a name begins with a letter, that of an IPv4 address with a digit.
_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_HOST = rf"({_LABEL}\.)*[a-z]([-a-z0-9]*[a-z0-9])?"
_PORT = "([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
ORIGIN = f"^https?://{_HOST}(:{_PORT})?$"

# Patterns of invalid origins with their hints; the first match counts. No hint repeats an origin: it may have a key.
_WRONG_ORIGINS = (
    (r".*\s", "Remove the spaces and line breaks"),
    (r"(?!https?://)(?i:https?://)", "Write its scheme in lower case"),
    ("(?!https?://)", "Begin it with https:// or http://"),
    ("[^/]*//[^/]*@", "Remove the user name and the password: a key belongs in the Secret that credential names"),
    (".*[?#]", "Remove what begins with '?' or '#'"),
    ("[^/]*//[^/]*/+$", "Remove the slash at its end"),
    ("[^/]*//[^/]*/", "Remove its path, and write it into api.prefix"),
    (r"[^/]*//(\[|[0-9.]+(:|$))", "Write a DNS name in place of the address, or url in place of origin"),
    (rf"[^/]*//[^:]*:(?!{_PORT}$)", "Its port must be a number from 1 to 65535, or left out with the colon"),
    (r"[^A-Z]*[A-Z]", "Write its host in lower case"),
    ("", "Its host must be a DNS name: letters, digits, '-' and '.', the last part beginning with a letter"),
)

# RFC 9110, section 5.6.2: the token that a field name is.
TOKEN = r"^[-!#$%&'*+.^_`|~0-9A-Za-z]+$"
# Keys of Secrets and ConfigMaps, without names that a file system would take for a folder.
KEY = r"^\.?[-_a-zA-Z0-9][-._a-zA-Z0-9]*$"
# The scheme before a key: shorter than any key, so that a key behind it, or in its place, is no scheme.
_SCHEME = "^[!-~]{0,15} ?$"
_SCHEME_WORDS = (
    "must be a scheme of visible ASCII characters, at most 15, with or without a space behind it, such as 'Bearer '; "
    "the key itself belongs in the Secret of secretRef. Revoke a key that was written here"
)
# What a proxy has to set by itself: where a request goes and where its body ends (RFC 9110, sections 7.2 and 8.6;
# RFC 9112, section 6.1), and what is meant for one connection only (RFC 9110, section 7.6.1).
PROXY_HEADERS = ("connection", "content-length", "host", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade")

_NOT_A_NAME = r"^[0-9.]+$"


def _any_case(text: str) -> str:
    return "".join(f"[{letter.upper()}{letter}]" if letter.isalpha() else letter for letter in text)


class KeySecretRef(Model):
    """A Secret of the endpoint's namespace on the control cluster."""

    name: DNSSubdomain = Field(description="Name of the Secret.")
    key: Annotated[str, Words("must be letters, digits, '-', '_' and '.'")] = Field(
        default="apiKey", min_length=1, max_length=253, pattern=KEY, description="Key in its data."
    )


class APIKey(Model):
    """A key that is sent in a header."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            ids=("ME-1",),
            message="header must not be one that proxies set by themselves",
            cel=f"!has(self.header) || !(self.header.lowerAscii() in "
            f"[{', '.join(repr(name) for name in PROXY_HEADERS)}])",
            check=lambda credential: (credential.header or "").lower() not in PROXY_HEADERS,
            hint=f"Most providers take the key in {AUTHORIZATION} or in a header of their own, such as {X_API_KEY}",
            schema={"properties": {"header": other_than(*map(_any_case, PROXY_HEADERS))}},
        ),
    )

    secret_ref: KeySecretRef = Field(description="Where the key is.")
    header: (
        Annotated[str, Words("must be the name of an HTTP header: letters, digits and any of !#$%&'*+-.^_`|~")] | None
    ) = Field(
        default=None,
        min_length=1,
        max_length=256,
        pattern=TOKEN,
        description=f"Header that the key is in; absent is {AUTHORIZATION}, or {X_API_KEY} where api.schema is "
        f"{ANTHROPIC}.",
    )
    prefix: Annotated[str, Words(_SCHEME_WORDS)] | None = Field(
        default=None,
        pattern=_SCHEME,
        description=f"Text before the key; absent is 'Bearer ' in {AUTHORIZATION} and nothing in other headers.",
    )


class Credential(Model):
    """Credentials that the backend asks of callers; they take the place of what the caller sent."""

    method: Literal["APIKey"] | None = Field(default=None, description="What kind of credentials; absent is APIKey.")
    api_key: APIKey = Field(description="A key that is sent in a header.")


class CACertificateRef(Model):
    """A ConfigMap of the endpoint's namespace with certificates (PEM) under the key ca.crt."""

    name: DNSSubdomain = Field(description="Name of the ConfigMap.")


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

    server_name: DNSSubdomain | None = Field(
        default=None, description="Name in the certificate. Defaults to the host of the URL."
    )
    ca_certificate_ref: CACertificateRef | None = Field(
        default=None, description="Who may have signed the certificate; absent is whom the system trusts."
    )


class EndpointAPI(Model):
    """API that the backend speaks."""

    schema_: Schema = Field(default=OPENAI, alias="schema", description="Whose API it is.")
    prefix: Annotated[str, Words(_PATH_WORDS)] | None = Field(
        default=None,
        max_length=1024,
        pattern=PATH,
        description=f"What the paths of the API begin with; absent is the path of url, or {DEFAULT_PREFIX} where it "
        "has none.",
    )


def _is_https(spec: Any) -> bool:
    return bool(spec.backend_url.lower().startswith("https://"))


_HTTPS = {"pattern": f"^{_any_case('https')}://"}


def _one_address(spec: Any) -> list[Violation]:
    if spec.url is None and spec.origin is None:
        return [Violation(("url",), "is required, or origin in its place")]
    if spec.url is not None and spec.origin is not None:
        return [Violation(("origin",), "must not be given beside url", hint="Keep one of them")]
    return []


class ModelEndpointSpec(Spec):
    """Address of the backend."""

    # Gateways in mode Path pass on what the caller sent, as without the field.
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

    # Whether it can be used is no matter of the schema: an endpoint that cannot be reached says so in its status.
    url: str | None = Field(
        default=None,
        min_length=1,
        max_length=2048,
        description="http or https URL; its host and port are used, and by gateways in mode Model its path.",
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
        description="Scheme, DNS name and port of the backend.",
    )
    api: EndpointAPI | None = Field(
        default=None, description=f"API that the backend speaks; absent is that of {OPENAI}, under its usual prefix."
    )
    model: Annotated[str, Words("must be letters, digits and signs of ASCII, without spaces")] | None = Field(
        default=None,
        min_length=1,
        max_length=253,
        pattern=r"^[!-~]+$",
        description="Name that the backend has for the model; absent passes on the one of the request.",
    )
    rewrite_path: Annotated[str, Words(_PATH_WORDS)] | None = Field(
        default=None,
        max_length=1024,
        pattern=PATH,
        description="Path that replaces the service's prefix at a gateway in mode Path; absent rewrites nothing with "
        "url, and is derived from api.prefix with origin.",
    )
    credential: Annotated[Credential, Hidden()] | None = Field(
        default=None,
        description="What the backend asks of callers; absent passes on what the caller sent, in mode Path alone.",
    )
    tls: EndpointTLS | None = Field(
        default=None, description="How the backend proves who it is; absent is by its host's name."
    )

    @classmethod
    def hint_of_text(cls, field: str, text: str) -> str:
        """Return which part of an origin is wrong."""
        # One that is too long may be right otherwise.
        if field != "origin" or re.match(ORIGIN, text):
            return ""
        return next(hint for pattern, hint in _WRONG_ORIGINS if re.match(pattern, text, re.DOTALL))

    @property
    def lacks_credential(self) -> bool:
        """True where `credential` is written, and has no value."""
        return self.credential is None and "credential" in self.model_fields_set

    @property
    def backend_url(self) -> str:
        """The URL whose scheme, host and port lead to the backend."""
        return self.url or self.origin or ""

    @property
    def backend_field(self) -> str:
        """The field that the URL is of: url or origin."""
        return "origin" if self.origin is not None else "url"

    @property
    def schema_name(self) -> Schema:
        """The provider whose API the backend speaks."""
        return self.api.schema_ if self.api else OPENAI

    @property
    def prefix(self) -> str:
        """The path that all paths of the backend's API begin with, without a slash at the end."""
        if self.api and self.api.prefix is not None:
            return self.api.prefix.rstrip("/")
        try:
            path = urlsplit(self.url or "").path
        except ValueError:
            path = ""
        return path.rstrip("/") or DEFAULT_PREFIX

    @property
    def path(self) -> str | None:
        """The path that replaces a service's prefix at a gateway in mode Path; None rewrites nothing.

        Clients of such a gateway write the version of the API behind the prefix: it is left out of what is derived.
        """
        if self.rewrite_path is not None or self.origin is None:
            return self.rewrite_path
        return f"{self.prefix.removesuffix(DEFAULT_PREFIX)}/"

    @property
    def key_header(self) -> str:
        """The header that the key of `credential` is sent in."""
        usual = X_API_KEY if self.schema_name == ANTHROPIC else AUTHORIZATION
        return (self.credential.api_key.header if self.credential else None) or usual

    @property
    def key_prefix(self) -> str:
        """The text before the key in its header."""
        given = self.credential.api_key.prefix if self.credential else None
        return given if given is not None else BEARER if self.key_header.lower() == AUTHORIZATION.lower() else ""


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
    COLUMNS: ClassVar[tuple[Column, ...]] = (
        Column("URL", ".spec.url"),
        Column("ORIGIN", ".spec.origin"),
    )

    spec: ModelEndpointSpec = Field(description="Where the backend is.")
    status: ModelEndpointStatus | None = Field(default=None, description="What is known of the endpoint.")
