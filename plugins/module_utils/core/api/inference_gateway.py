# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""InferenceGateway: where clients reach the fleet, on the control cluster (mode Path) or another one (mode Model)."""

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
"""Name of the listener for HTTP, which every gateway has: parts of large services are reached by it too."""


class MetalLB(Model):
    """Addresses for load balancers where no cloud gives any."""

    address_pool: str = Field(description="Range first-last of addresses in the cluster's network.")


class Traefik(Model):
    """Settings of the Traefik backend."""

    RULES: ClassVar[tuple[Rule, ...]] = (requires(("IG-2",), "loadBalancer", "MetalLB", "metallb", optional=True),)

    version: Annotated[str, Words(CHART_VERSION_WORDS)] = Field(
        pattern=CHART_VERSION, description="Version of the Traefik chart, such as 40.2.0."
    )
    load_balancer: Literal["MetalLB"] | None = Field(
        default=None, description="What assigns the address; absent where the cloud does."
    )
    metallb: MetalLB | None = Field(default=None, description="Settings for MetalLB.")


class GatewayListener(Model):
    """A port that the gateway listens on beside port 80."""

    name: DNSLabel = Field(description="Name of the listener.")
    port: int = Field(default=443, ge=1, le=65535, description="Port.")
    protocol: Literal["HTTPS"] = Field(description="Protocol.")
    hostname: Hostname | None = Field(default=None, description="Name by which clients ask for it; absent is any.")
    tls: ListenerTLS = Field(description="Its certificates.")


class GatewayCertificate(Model):
    """A Secret of type kubernetes.io/tls in the namespace modelplane-system of the control cluster."""

    name: DNSSubdomain = Field(description="Name of the Secret.")


class GatewayTLS(Model):
    """Certificates of a gateway in mode Model; with them, port 80 only leads to port 443."""

    certificate_refs: Annotated[list[GatewayCertificate], ListMap(("name",))] = Field(
        min_length=1,
        max_length=8,
        description="Secrets with the certificates; they are copied to the gateway's cluster.",
    )


Claim = Annotated[
    str,
    Words("must be the name of a claim, with dots for nested claims"),
    Field(min_length=1, max_length=253, pattern=r"^[A-Za-z0-9_:-]+(\.[A-Za-z0-9_:-]+)*$"),
]


class CallerKeys(Model):
    """Keys by which callers prove who they are."""

    secret_selector: LabelSelector = Field(
        description="Which Secrets of modelplane-system hold keys: the name of each entry is a caller, its value the "
        "caller's key."
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
        description="URL of the keys. The server certificate must be issued by a public authority.",
    )
    inline: Annotated[str, Words('must be a JSON Web Key Set: {"keys": [...]}')] | None = Field(
        default=None, max_length=65536, pattern=r'"keys"\s*:', description="Keys in JSON."
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
    caller_claim: Claim = Field(default="sub", description="Claim with the name of the client.")
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
        description="Authentication method. If unset, the methods of apiKey and jwt apply.",
    )
    api_key: CallerKeys | None = Field(default=None, description="Secrets with API keys.")
    jwt: CallerTokens | None = Field(default=None, description="Tokens that the gateway accepts.")

    @property
    def hostname(self) -> str:
        """Host of clients with tokens; empty if all clients use one host."""
        return (self.jwt and self.jwt.hostname) or ""


_PATH_FIELDS = ("backend", "traefik", "listeners")
_MODEL_FIELDS = ("clusterName", "tls", "auth", "serviceSelector", "failover")
_HINTS_OF_NULLS = {
    "auth": "Write apiKey or jwt, or remove it for a gateway without authentication",
    "tls": "Write certificateRefs, or remove it for plain HTTP",
    "serviceSelector": "Write matchLabels, or remove it to serve all ModelServices",
    "failover": "Write statusCodes, or remove it for the default status codes",
}
_NO_BACKEND = "Write mode: Model, as clusterName is given, or remove clusterName and add backend: Traefik"
_IS_MODEL = "(has(self.mode) ? self.mode == 'Model' : has(self.clusterName))"
_MODEL_SCHEMA: JSONSchema = {"anyOf": [has("mode", "Model"), {"required": ["clusterName"], **without("mode")}]}


CONTROL_CLUSTER_GATEWAY = "default"
"""Name of the InferenceGateway of the control cluster. Others in mode Path have no effect, as in the reference."""


def mode_of(mode: str | None, cluster_name: str | None) -> Mode:
    """Return the mode of a gateway, which follows from `spec.clusterName` where `spec.mode` is not given."""
    if mode:
        return "Model" if mode == "Model" else "Path"
    return "Model" if cluster_name else "Path"


def _mode(spec: Any) -> Mode:
    return mode_of(spec.mode, spec.cluster_name)


def _given(mode: Mode, *fields: str) -> Callable[[Any], list[Violation]]:
    """Return the check that a gateway in a mode has none of these fields."""

    def check(spec: Any) -> list[Violation]:
        written = spec.model_fields_set if _mode(spec) == mode else ()
        aliases = {type(spec).model_fields[attribute].alias for attribute in written}
        # Of the two, it is the mode that is more likely to be wrong.
        hint = "Write mode: Model, or remove it" if mode == "Path" and spec.cluster_name else ""
        return [
            Violation((field,), f"{field} is not for gateways in mode {mode}", hint=hint)
            for field in fields
            if field in aliases
        ]

    return check


class GatewayFailover(Model):
    """Responses of endpoints that a gateway retries on another endpoint."""

    status_codes: list[Annotated[int, Field(ge=400, le=599)]] = Field(
        min_length=1,
        max_length=16,
        description="HTTP status codes. Failed and reset connections are always retried.",
    )


class InferenceGatewaySpec(Spec):
    """Mode of the gateway, where it runs, and for whom."""

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
            message="listeners must be of one port",
            cel="!has(self.listeners) || self.listeners.all(l, l.port == self.listeners[0].port)",
            check=lambda spec: len({listener.port for listener in spec.listeners or ()}) <= 1,
            hint="Give each listener for HTTPS a hostname of its own",
        ),
        Rule(
            ids=("IG-4",),
            message="listeners must not be one for port 80, or named web: that one is always there",
            cel=f"!has(self.listeners) || self.listeners.all(l, l.name != '{WEB}' && l.port != 80)",
            check=lambda spec: all(each.name != WEB and each.port != 80 for each in spec.listeners or ()),
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
            message=f"{', '.join(_MODEL_FIELDS)} are not for gateways in mode Path",
            cel=f"{_IS_MODEL} || !({' || '.join(f'has(self.{field})' for field in _MODEL_FIELDS)})",
            check=_given("Path", *_MODEL_FIELDS),
            hint="Remove it, or add clusterName for a gateway in mode Model",
            schema={"if": _MODEL_SCHEMA, "else": without(*_MODEL_FIELDS)},
        ),
        Rule(
            ids=("IG-8",),
            message=f"{', '.join(_PATH_FIELDS)} are not for gateways in mode Model",
            cel=f"!{_IS_MODEL} || !({' || '.join(f'has(self.{field})' for field in _PATH_FIELDS)})",
            check=_given("Model", *_PATH_FIELDS),
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
        """Return what to write where a field that restricts a gateway in mode Model has no value."""
        is_model = mode_of(content.get("mode"), content.get("clusterName")) == "Model"
        return _HINTS_OF_NULLS.get(field, "") if is_model else ""

    mode: Mode | None = Field(
        default=None,
        description="Path: on the control cluster, services have a URL each. Model: on the cluster of clusterName, "
        "requests name a model. Absent is Model with clusterName, else Path.",
    )
    cluster_name: Annotated[str, Words(DNS_SUBDOMAIN_WORDS)] | None = Field(
        default=None,
        min_length=1,
        max_length=63,
        pattern=DNS_SUBDOMAIN,
        description="InferenceCluster that a gateway in mode Model runs on, one for each cluster; it cannot change.",
    )
    tls: GatewayTLS | None = Field(default=None, description="Certificates; absent is plain HTTP on port 80.")
    auth: Annotated[GatewayAuth, Hidden()] | None = Field(
        default=None, description="How callers prove who they are; absent is that no one has to."
    )
    service_selector: LabelSelector | None = Field(
        default=None, description="Labels of the ModelServices that it serves; absent is all."
    )
    failover: GatewayFailover | None = Field(
        default=None, description="Responses that are retried. Defaults to the status codes 429, 502, 503, 504 and 529."
    )
    backend: Literal["Traefik"] | None = Field(
        default=None, description="Proxy that runs the gateway; required in mode Path."
    )
    traefik: Traefik | None = Field(default=None, description="Settings of the Traefik backend.")
    listeners: Annotated[list[GatewayListener], ListMap(("name",))] | None = Field(
        default=None, max_length=8, description="Listeners beside that for HTTP on port 80, which is always there."
    )


class GatewayEndpoints(Model):
    """Base URLs for clients."""

    open_ai: str | None = Field(default=None, alias="openAI", description="For clients of OpenAI's API.")
    anthropic: str | None = Field(default=None, description="For clients of Anthropic's API.")


class InferenceGatewayStatus(Status):
    """Observed state of the gateway."""

    address: str | None = Field(default=None, description="Address that clients reach; the host of every service URL.")
    endpoints: GatewayEndpoints | None = Field(
        default=None, description="Where clients reach a gateway in mode Model, by the API that they speak."
    )
    client_ca_certificate: str | None = Field(
        default=None,
        alias="clientCACertificate",
        max_length=16384,
        description="Who signs the certificate by which the gateway proves itself to clusters (PEM).",
    )


class InferenceGateway(Resource):
    """Gateway for clients: in mode Path one on the control cluster, in mode Model one on each of some clusters."""

    KIND: ClassVar[str] = "InferenceGateway"
    PLURAL: ClassVar[str] = "inferencegateways"
    SHORT_NAMES: ClassVar[tuple[str, ...]] = ("ig",)
    NAMESPACED: ClassVar[bool] = False
    COLUMNS: ClassVar[tuple[Column, ...]] = (
        Column("GATEWAY", ".spec.backend"),
        Column("CLUSTER", ".spec.clusterName"),
        Column("ADDRESS", ".status.address"),
    )

    spec: InferenceGatewaySpec = Field(description="What runs the gateway.")
    status: InferenceGatewayStatus | None = Field(default=None, description="What is known of the gateway.")

    @property
    def mode(self) -> Mode:
        """Path or Model, whether it is given or follows from other fields."""
        return _mode(self.spec)

    @property
    def is_of_control_cluster(self) -> bool:
        """Return whether this is the gateway of the control cluster."""
        return self.name == CONTROL_CLUSTER_GATEWAY and self.mode == "Path"

    def serves(self, labels: Mapping[str, str]) -> bool:
        """Return whether the gateway serves ModelServices with these labels."""
        selector = self.spec.service_selector
        return selector is None or selector.matches(labels)
