# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""ServingStack: serving stack of an inference cluster."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from ..._pydantic import Field
from .base import (
    CHART_VERSION,
    CHART_VERSION_WORDS,
    GROUP_INFRASTRUCTURE,
    Column,
    Hidden,
    JSONSchema,
    ListMap,
    Model,
    Rule,
    Words,
    has,
)
from .listener import HTTPS, TLS_RULES, Hostname, ListenerTLS
from .resource import Resource, Spec, Status

_Version = Annotated[str, Words(CHART_VERSION_WORDS), Field(min_length=1, max_length=32, pattern=CHART_VERSION)]


class StackSecret(Model):
    """Secret with credentials for the cluster."""

    type: Literal[
        "Kubeconfig", "GoogleApplicationCredentials", "AWSWebIdentityCredentials", "NebiusServiceAccountCredentials"
    ] = Field(description="Type of the credentials: a kubeconfig, or a cloud identity in addition to it.")
    name: str = Field(max_length=253, description="Name of the Secret.")
    key: str = Field(max_length=253, description="Key in the data of the Secret.")
    namespace: str | None = Field(
        default=None,
        max_length=253,
        description="Namespace of the Secret. Defaults to the namespace of the ServingStack.",
    )


class StackVersions(Model):
    """Versions of the components."""

    gateway_api: _Version = Field(default="v1.5.1", description="Version of Gateway API. Defaults to v1.5.1.")
    cert_manager: _Version = Field(
        default="v1.17.1", description="Version of the cert-manager chart. Defaults to v1.17.1."
    )
    envoy_gateway: _Version = Field(
        default="v1.8.1", description="Version of the Envoy Gateway chart. Defaults to v1.8.1."
    )
    prometheus: _Version = Field(
        default="72.6.2", description="Version of the kube-prometheus-stack chart. Defaults to 72.6.2."
    )
    leader_worker_set: _Version = Field(
        default="v0.8.0", description="Version of the LeaderWorkerSet chart. Defaults to v0.8.0."
    )
    node_feature_discovery: _Version = Field(
        default="0.18.3", description="Version of the Node Feature Discovery chart. Defaults to 0.18.3."
    )
    nvidia_dra_driver: _Version = Field(
        default="0.4.0", description="Version of the NVIDIA DRA driver chart. Defaults to 0.4.0."
    )


class StackListener(Model):
    """Listener of the cluster gateway."""

    RULES: ClassVar[tuple[Rule, ...]] = TLS_RULES

    name: str = Field(min_length=1, max_length=63, description="Name of the listener.")
    port: int = Field(ge=1, le=65535, description="Port of the listener.")
    protocol: Literal["HTTP", "HTTPS", "TCP"] = Field(description="Protocol of the listener.")
    hostname: Hostname | None = Field(
        default=None,
        description="Hostname of the listener. For HTTPS, the certificate must include it. If unset, the listener "
        "accepts all hostnames.",
    )
    tls: ListenerTLS | None = Field(
        default=None, description="TLS settings of the listener. Required for protocol HTTPS, otherwise not allowed."
    )


def _reachable(listener: StackListener) -> bool:
    """Return whether requests of the fleet can use a listener. Requests contain the address or a hostname."""
    if listener.protocol == HTTPS:
        return bool(listener.hostname) and not str(listener.hostname).startswith("*")
    return listener.protocol == "HTTP" and not listener.hostname


_REACHABLE: JSONSchema = {
    "anyOf": [
        {"allOf": [has("protocol", "HTTP"), {"not": {"required": ["hostname"]}}]},
        {
            "allOf": [
                has("protocol", HTTPS),
                {"required": ["hostname"], "properties": {"hostname": {"pattern": "^[^*]"}}},
            ]
        },
    ]
}


class StackGateway(Model):
    """Settings of the cluster gateway."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            ids=("SS-2",),
            message="at least one listener must accept requests of the fleet",
            cel=(
                "!has(self.listeners) || size(self.listeners) == 0 || self.listeners.exists(l, "
                "(l.protocol == 'HTTP' && !has(l.hostname)) || "
                "(l.protocol == 'HTTPS' && has(l.hostname) && !l.hostname.startsWith('*')))"
            ),
            check=lambda gateway: not gateway.listeners or any(map(_reachable, gateway.listeners)),
            hint="Add an HTTP listener without a hostname, or an HTTPS listener with a hostname without '*'",
            schema={"properties": {"listeners": {"if": {"minItems": 1}, "then": {"contains": _REACHABLE}}}},
        ),
    )

    class_name: str = Field(
        default="envoy", min_length=1, max_length=63, description="Name of the GatewayClass. Defaults to envoy."
    )
    listeners: Annotated[list[StackListener], ListMap(("name",))] | None = Field(
        default=None,
        max_length=8,
        description="Listeners of the gateway. If unset or empty, the gateway has an HTTP listener `http` on port 80.",
    )


class ServingStackSpec(Spec):
    """Desired state of the serving stack."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            ids=("SS-1",),
            message="secrets must have an entry with type Kubeconfig",
            cel="self.secrets.exists(s, s.type == 'Kubeconfig')",
            check=lambda spec: any(secret.type == "Kubeconfig" for secret in spec.secrets),
            schema={"properties": {"secrets": {"contains": has("type", "Kubeconfig")}}},
        ),
    )

    secrets: Annotated[list[StackSecret], Hidden()] = Field(
        min_length=1, max_length=8, description="Secrets with credentials for the cluster."
    )
    nvidia_driver_root: str = Field(
        default="/",
        max_length=512,
        description="Root directory of the NVIDIA driver on the nodes. GKE nodes have another directory. Defaults to "
        "/.",
    )
    versions: StackVersions | None = Field(
        default=None, description="Versions of the components. If unset, the defaults of its fields apply."
    )
    gateway: StackGateway | None = Field(
        default=None, description="Settings of the cluster gateway. If unset, the defaults of its fields apply."
    )


class StackGatewayStatus(Model):
    """Observed state of the cluster gateway."""

    address: str | None = Field(
        default=None,
        max_length=256,
        description="External address of the gateway. Set when the gateway has an address.",
    )


class ServingStackStatus(Status):
    """Observed state of the serving stack."""

    gateway: StackGatewayStatus | None = Field(default=None, description="Observed state of the cluster gateway.")


class ServingStack(Resource):
    """Serving stack of an inference cluster: the components that engines and gateways require."""

    GROUP: ClassVar[str] = GROUP_INFRASTRUCTURE
    KIND: ClassVar[str] = "ServingStack"
    PLURAL: ClassVar[str] = "servingstacks"
    SHORT_NAMES: ClassVar[tuple[str, ...]] = ("ss",)
    COLUMNS: ClassVar[tuple[Column, ...]] = (Column("GATEWAY", ".status.gateway.address"),)

    spec: ServingStackSpec = Field(description="Desired state of the serving stack.")
    status: ServingStackStatus | None = Field(default=None, description="Observed state of the serving stack.")
