# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""InferenceGateway: entry point for clients, on the control cluster (Path) or on an inference cluster (Model)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Literal

from ..._pydantic import Field
from .base import (
    CHART_VERSION,
    CHART_VERSION_WORDS,
    Column,
    DNSLabel,
    Hidden,
    JSONSchema,
    ListMap,
    Model,
    Rule,
    Violation,
    Words,
    has,
    other_than,
    requires,
    without,
)
from .listener import Hostname, ListenerTLS
from .meta import DNS_SUBDOMAIN, DNS_SUBDOMAIN_WORDS, DNSSubdomain, LabelSelector
from .resource import Resource, Spec, Status

Mode = Literal["Path", "Model"]

WEB = "web"
"""Name of the HTTP listener on port 80 of every gateway. It also connects the routes of large services."""


class MetalLB(Model):
    """MetalLB settings for clusters without a cloud load balancer."""

    address_pool: str = Field(
        description="Range of addresses in the network of the cluster, such as 192.0.2.10-192.0.2.20."
    )


class Traefik(Model):
    """Settings of the Traefik backend."""

    RULES: ClassVar[tuple[Rule, ...]] = (requires(("IG-2",), "loadBalancer", "MetalLB", "metallb", optional=True),)

    version: Annotated[str, Words(CHART_VERSION_WORDS)] = Field(
        pattern=CHART_VERSION, description="Version of the Traefik chart, such as 40.2.0."
    )
    load_balancer: Literal["MetalLB"] | None = Field(
        default=None,
        description="Load balancer that assigns the address. If unset, the cloud or another controller assigns it.",
    )
    metallb: MetalLB | None = Field(default=None, description="MetalLB settings. Required for loadBalancer MetalLB.")


class GatewayListener(Model):
    """Listener of the gateway, in addition to the HTTP listener on port 80."""

    name: DNSLabel = Field(description="Name of the listener. Must be unique in the gateway.")
    port: int = Field(default=443, ge=1, le=65535, description="Port of the listener. Defaults to 443.")
    protocol: Literal["HTTPS"] = Field(description="Protocol of the listener.")
    hostname: Hostname | None = Field(
        default=None, description="Hostname of the listener. If unset, the listener accepts all hostnames."
    )
    tls: ListenerTLS = Field(description="TLS settings of the listener.")


class GatewayCertificate(Model):
    """Secret of type kubernetes.io/tls in the namespace modelplane-system of the control cluster."""

    name: DNSSubdomain = Field(description="Name of the Secret.")


class GatewayTLS(Model):
    """TLS settings of a Model gateway. With TLS, port 80 redirects to port 443."""

    certificate_refs: Annotated[list[GatewayCertificate], ListMap(("name",))] = Field(
        min_length=1,
        max_length=8,
        description="Secrets with the certificates. They are synced to the cluster of the gateway.",
    )


Claim = Annotated[
    str,
    Words("must be the name of a claim, with dots for nested claims"),
    Field(min_length=1, max_length=253, pattern=r"^[A-Za-z0-9_:-]+(\.[A-Za-z0-9_:-]+)*$"),
]


class CallerKeys(Model):
    """Clients with API keys."""

    secret_selector: LabelSelector = Field(
        description="Selector of the Secrets with API keys in the namespace modelplane-system. The key of each entry "
        "is the name of a client, and the value is the API key."
    )


class TokenKeys(Model):
    """Public keys of a token issuer (JSON Web Key Set)."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            ids=("IG-9",),
            message="exactly one of uri and inline must be given",
            cel="has(self.uri) != has(self.inline)",
            check=lambda keys: (keys.uri is None) != (keys.inline is None),
            hint="Set uri to the jwks_uri in the OpenID configuration of the issuer",
            schema={"oneOf": [{"required": ["uri"]}, {"required": ["inline"]}]},
        ),
    )

    uri: Annotated[str, Words("must be a URL that begins with https://")] | None = Field(
        default=None,
        max_length=253,
        pattern=r"^https://[^\s]+$",
        description="URL of the JSON Web Key Set. A public authority must issue the server certificate. Mutually "
        "exclusive with inline.",
    )
    inline: Annotated[str, Words('must be a JSON Web Key Set: {"keys": [...]}')] | None = Field(
        default=None,
        max_length=65536,
        pattern=r'"keys"\s*:',
        description="JSON Web Key Set as text. Mutually exclusive with uri.",
    )


class CallerTokens(Model):
    """Clients with JSON Web Tokens of one issuer."""

    issuer: str = Field(
        min_length=1, max_length=253, description="Required value of the claim iss, such as https://login.example.com."
    )
    audiences: list[Annotated[str, Field(min_length=1, max_length=253)]] = Field(
        min_length=1, max_length=8, description="Accepted values of the claim aud."
    )
    jwks: TokenKeys = Field(description="Public keys of the issuer.")
    caller_claim: Claim = Field(default="sub", description="Claim with the name of the client. Defaults to sub.")
    groups_claim: Claim | None = Field(
        default=None, description="Claim with the groups of the client. If unset, clients have no groups."
    )
    hostname: Hostname | None = Field(
        default=None,
        description="Hostname of the gateway for clients with tokens. Required with apiKey, otherwise not allowed.",
    )


class GatewayAuth(Model):
    """Client authentication of a Model gateway."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            ids=("IG-10",),
            message="apiKey or jwt must be set, and must match method",
            cel="(has(self.apiKey) || has(self.jwt)) && (!has(self.method) || "
            "(self.method == 'APIKey' ? has(self.apiKey) : has(self.jwt)))",
            check=lambda auth: (
                {None: auth.api_key or auth.jwt, "APIKey": auth.api_key, "JWT": auth.jwt}[auth.method] is not None
                or [Violation(("jwt" if auth.method == "JWT" else "apiKey",), "is required")]
            ),
            hint="Add apiKey for clients with API keys, or jwt for clients with tokens",
            schema={
                "allOf": [
                    {"anyOf": [{"required": ["apiKey"]}, {"required": ["jwt"]}]},
                    {"if": has("method", "APIKey"), "then": {"required": ["apiKey"]}},
                    {"if": has("method", "JWT"), "then": {"required": ["jwt"]}},
                ]
            },
        ),
        Rule(
            ids=("IG-11",),
            message="jwt.hostname is required with apiKey, and only with it",
            cel="!has(self.jwt) || has(self.apiKey) == has(self.jwt.hostname)",
            check=lambda auth: (
                auth.jwt is None
                or (auth.api_key is None) == (auth.jwt.hostname is None)
                or [Violation(("jwt", "hostname"), "is required with apiKey, and only with it")]
            ),
            hint="Set a separate hostname for clients with tokens if the gateway has apiKey",
            schema={
                "if": {"required": ["apiKey"]},
                "then": {"properties": {"jwt": {"required": ["hostname"]}}},
                "else": {"properties": {"jwt": without("hostname")}},
            },
        ),
    )

    method: Literal["APIKey", "JWT"] | None = Field(
        default=None,
        description="Authentication method. If unset, apiKey and jwt apply.",
    )
    api_key: CallerKeys | None = Field(
        default=None, description="Clients with API keys. If unset, the gateway accepts no API keys."
    )
    jwt: CallerTokens | None = Field(
        default=None, description="Clients with tokens. If unset, the gateway accepts no tokens."
    )

    @property
    def hostname(self) -> str:
        """Hostname for clients with tokens. Empty if all clients use the same hostname."""
        return (self.jwt and self.jwt.hostname) or ""


_PATH_FIELDS = ("backend", "traefik", "listeners")
_MODEL_FIELDS = ("clusterName", "tls", "auth", "serviceSelector", "failover")
_HINTS_OF_NULLS = {
    "auth": "Write apiKey or jwt, or remove it for a gateway without authentication",
    "tls": "Write certificateRefs, or remove it for plain HTTP",
    "serviceSelector": "Write matchLabels, or remove it to serve all ModelServices",
    "failover": "Write statusCodes, or remove it for the default status codes",
}
_NO_BACKEND = "Write mode: Model, because clusterName is set, or remove clusterName and add backend: Traefik"
_IS_MODEL = "(has(self.mode) ? self.mode == 'Model' : has(self.clusterName))"
_MODEL_SCHEMA: JSONSchema = {"anyOf": [has("mode", "Model"), {"required": ["clusterName"], **without("mode")}]}


CONTROL_CLUSTER_GATEWAY = "default"
"""Name of the InferenceGateway of the control cluster. As in Modelplane, other Path gateways have no effect."""


def mode_of(mode: str | None, cluster_name: str | None) -> Mode:
    """Return the mode of a gateway. If `spec.mode` is unset, `spec.clusterName` determines the mode."""
    if mode:
        return "Model" if mode == "Model" else "Path"
    return "Model" if cluster_name else "Path"


def _mode(spec: Any) -> Mode:
    return mode_of(spec.mode, spec.cluster_name)


def _rejects_fields(mode: Mode, *fields: str) -> Callable[[Any], list[Violation]]:
    """Return the check that a gateway in this mode does not have these fields."""

    def check(spec: Any) -> list[Violation]:
        attributes = spec.model_fields_set if _mode(spec) == mode else ()
        aliases = {type(spec).model_fields[attribute].alias for attribute in attributes}
        # If mode and clusterName contradict each other, the mode is more likely to be wrong.
        hint = "Write mode: Model, or remove it" if mode == "Path" and spec.cluster_name else ""
        return [
            Violation((field,), f"{field} is not allowed in mode {mode}", hint=hint)
            for field in fields
            if field in aliases
        ]

    return check


class GatewayFailover(Model):
    """Responses of endpoints that the gateway retries on another endpoint."""

    status_codes: list[Annotated[int, Field(ge=400, le=599)]] = Field(
        min_length=1,
        max_length=16,
        description="HTTP status codes to retry. Failed and reset connections are always retried.",
    )


class InferenceGatewaySpec(Spec):
    """Desired state of the gateway."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            ids=("IG-1",),
            message="traefik is required when backend is Traefik",
            cel=f"{_IS_MODEL} || !has(self.backend) || self.backend != 'Traefik' || has(self.traefik)",
            check=lambda spec: _mode(spec) == "Model" or spec.backend != "Traefik" or spec.traefik is not None,
            hint="Add traefik",
            schema={
                "if": {"allOf": [{"not": _MODEL_SCHEMA}, has("backend", "Traefik")]},
                "then": {"required": ["traefik"]},
            },
        ),
        Rule(
            ids=("IG-3",),
            message="listeners must have the same port",
            cel="!has(self.listeners) || self.listeners.all(l, l.port == self.listeners[0].port)",
            check=lambda spec: len({listener.port for listener in spec.listeners or ()}) <= 1,
            hint="Set a separate hostname for each HTTPS listener",
        ),
        Rule(
            ids=("IG-4",),
            message="listeners must not have port 80 or the name web, because the gateway always has this listener",
            cel=f"!has(self.listeners) || self.listeners.all(l, l.name != '{WEB}' && l.port != 80)",
            check=lambda spec: all(listener.name != WEB and listener.port != 80 for listener in spec.listeners or ()),
            schema={
                "properties": {
                    "listeners": {"items": {"properties": {"name": other_than(WEB), "port": {"not": {"enum": [80]}}}}}
                }
            },
        ),
        Rule(
            ids=("IG-5",),
            message="backend is required in mode Path",
            cel=f"{_IS_MODEL} || has(self.backend)",
            check=lambda spec: (
                _mode(spec) == "Model"
                or spec.backend is not None
                or [Violation(("backend",), "is required in mode Path", hint=_NO_BACKEND if spec.cluster_name else "")]
            ),
            hint="Add backend: Traefik, or clusterName for a gateway in mode Model",
            schema={"if": _MODEL_SCHEMA, "else": {"required": ["backend"]}},
        ),
        Rule(
            ids=("IG-6",),
            message="clusterName is required in mode Model",
            cel="!has(self.mode) || self.mode != 'Model' || has(self.clusterName)",
            check=lambda spec: (
                spec.mode != "Model"
                or spec.cluster_name is not None
                or [Violation(("clusterName",), "is required in mode Model")]
            ),
            hint="Add the name of the InferenceCluster that the gateway runs on",
            schema={"if": has("mode", "Model"), "then": {"required": ["clusterName"]}},
        ),
        Rule(
            ids=("IG-7",),
            message=f"{', '.join(_MODEL_FIELDS)} are not allowed in mode Path",
            cel=f"{_IS_MODEL} || !({' || '.join(f'has(self.{field})' for field in _MODEL_FIELDS)})",
            check=_rejects_fields("Path", *_MODEL_FIELDS),
            hint="Remove it, or add clusterName for a gateway in mode Model",
            schema={"if": _MODEL_SCHEMA, "else": without(*_MODEL_FIELDS)},
        ),
        Rule(
            ids=("IG-8",),
            message=f"{', '.join(_PATH_FIELDS)} are not allowed in mode Model",
            cel=f"!{_IS_MODEL} || !({' || '.join(f'has(self.{field})' for field in _PATH_FIELDS)})",
            check=_rejects_fields("Model", *_PATH_FIELDS),
            hint="Remove it: a gateway in mode Model runs on Envoy and listens on ports 80 and 443",
            schema={"if": _MODEL_SCHEMA, "then": without(*_PATH_FIELDS)},
        ),
        Rule(
            ids=(),
            message="clusterName cannot change: add a gateway for the other cluster, then remove this one",
            cel="!has(oldSelf.clusterName) || !has(self.clusterName) || self.clusterName == oldSelf.clusterName",
            check=lambda _spec: True,
            hint="Add an InferenceGateway for the other cluster, and remove this one: it stays until that one answers "
            "(docs/gateway-migration.md, Move a Model gateway)",
            fixed="clusterName",
        ),
    )

    @classmethod
    def hint_of_null(cls, field: str, content: Mapping[str, Any]) -> str:
        """Return the hint for a field without a value that restricts a Model gateway."""
        is_model = mode_of(content.get("mode"), content.get("clusterName")) == "Model"
        return _HINTS_OF_NULLS.get(field, "") if is_model else ""

    mode: Mode | None = Field(
        default=None,
        description="Mode of the gateway. Path runs on the control cluster, and routes by the URL path of each "
        "service. Model runs on the cluster of clusterName, and routes by the model name in requests. Defaults to "
        "Model if clusterName is set, otherwise to Path.",
    )
    cluster_name: Annotated[str, Words(DNS_SUBDOMAIN_WORDS)] | None = Field(
        default=None,
        min_length=1,
        max_length=63,
        pattern=DNS_SUBDOMAIN,
        description="InferenceCluster of a Model gateway. A cluster can have only one Model gateway. Immutable.",
    )
    tls: GatewayTLS | None = Field(
        default=None, description="TLS settings of a Model gateway. If unset, the gateway serves plain HTTP on port 80."
    )
    auth: Annotated[GatewayAuth, Hidden()] | None = Field(
        default=None,
        description="Client authentication of a Model gateway. If unset, the gateway accepts unauthenticated requests.",
    )
    service_selector: LabelSelector | None = Field(
        default=None,
        description="Label selector for the ModelServices of a Model gateway. If unset, the gateway serves all "
        "ModelServices.",
    )
    failover: GatewayFailover | None = Field(
        default=None,
        description="Responses that a Model gateway retries. Defaults to the status codes 429, 502, 503, 504 and 529.",
    )
    backend: Literal["Traefik"] | None = Field(
        default=None, description="Proxy of a Path gateway. Required for a Path gateway."
    )
    traefik: Traefik | None = Field(default=None, description="Traefik settings. Required for backend Traefik.")
    listeners: Annotated[list[GatewayListener], ListMap(("name",))] | None = Field(
        default=None,
        max_length=8,
        description="HTTPS listeners of a Path gateway, in addition to the HTTP listener on port 80. All must have the "
        "same port.",
    )


class GatewayEndpoints(Model):
    """Base URLs of a Model gateway."""

    open_ai: str | None = Field(default=None, alias="openAI", description="Base URL of the OpenAI API.")
    anthropic: str | None = Field(default=None, description="Base URL of the Anthropic API.")


class InferenceGatewayStatus(Status):
    """Observed state of the gateway."""

    address: str | None = Field(default=None, description="External address. It is the host of service URLs.")
    endpoints: GatewayEndpoints | None = Field(default=None, description="Base URLs of a Model gateway, by API.")
    client_ca_certificate: str | None = Field(
        default=None,
        alias="clientCACertificate",
        max_length=16384,
        description="PEM-encoded CA certificate that issues the client certificate of the gateway. Inference clusters "
        "authenticate the gateway with it.",
    )


class InferenceGateway(Resource):
    """Gateway for clients. A Path gateway runs on the control cluster, and a Model gateway on an inference cluster."""

    KIND: ClassVar[str] = "InferenceGateway"
    PLURAL: ClassVar[str] = "inferencegateways"
    SHORT_NAMES: ClassVar[tuple[str, ...]] = ("ig",)
    NAMESPACED: ClassVar[bool] = False
    COLUMNS: ClassVar[tuple[Column, ...]] = (
        Column("GATEWAY", ".spec.backend"),
        Column("CLUSTER", ".spec.clusterName"),
        Column("ADDRESS", ".status.address"),
    )

    spec: InferenceGatewaySpec = Field(description="Desired state of the gateway.")
    status: InferenceGatewayStatus | None = Field(default=None, description="Observed state of the gateway.")

    @property
    def mode(self) -> Mode:
        """Mode of the gateway, from `spec.mode` or its default."""
        return _mode(self.spec)

    @property
    def is_of_control_cluster(self) -> bool:
        """Return whether this is the gateway of the control cluster."""
        return self.name == CONTROL_CLUSTER_GATEWAY and self.mode == "Path"

    def serves(self, labels: Mapping[str, str]) -> bool:
        """Return whether the gateway serves ModelServices with these labels."""
        selector = self.spec.service_selector
        return selector is None or selector.matches(labels)
