# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""ServingStack: the software that a workload cluster needs."""

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
    """A Secret that logs in to the cluster."""

    type: Literal[
        "Kubeconfig", "GoogleApplicationCredentials", "AWSWebIdentityCredentials", "NebiusServiceAccountCredentials"
    ] = Field(description="Kubeconfig, or a cloud identity used on top of it.")
    name: str = Field(max_length=253, description="Name of the Secret.")
    key: str = Field(max_length=253, description="Key in its data.")
    namespace: str | None = Field(default=None, max_length=253, description="Its namespace; absent is the stack's own.")


class StackVersions(Model):
    """Versions of components."""

    gateway_api: _Version = Field(default="v1.5.1", description="Gateway API resources.")
    cert_manager: _Version = Field(default="v1.17.1", description="cert-manager chart.")
    envoy_gateway: _Version = Field(default="v1.8.1", description="Envoy Gateway chart.")
    prometheus: _Version = Field(default="72.6.2", description="kube-prometheus-stack chart.")
    leader_worker_set: _Version = Field(default="v0.8.0", description="LeaderWorkerSet chart.")
    node_feature_discovery: _Version = Field(default="0.18.3", description="Node Feature Discovery chart.")
    nvidia_dra_driver: _Version = Field(default="0.4.0", description="NVIDIA DRA driver chart.")


class StackListener(Model):
    """A port that the gateway listens on."""

    RULES: ClassVar[tuple[Rule, ...]] = TLS_RULES

    name: str = Field(min_length=1, max_length=63, description="Name of the listener.")
    port: int = Field(ge=1, le=65535, description="Port.")
    protocol: Literal["HTTP", "HTTPS", "TCP"] = Field(description="Protocol.")
    hostname: Hostname | None = Field(
        default=None, description="Name by which clients ask for it; with HTTPS one that the certificate has."
    )
    tls: ListenerTLS | None = Field(default=None, description="Certificates of a listener for HTTPS.")


def _reachable(listener: StackListener) -> bool:
    """Return whether requests of the fleet can take a listener: endpoints are called by their address, or by a name."""
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
    """Settings of the cluster's gateway."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            ids=("SS-2",),
            message="listeners must have one that the fleet's requests can take",
            cel=(
                "!has(self.listeners) || size(self.listeners) == 0 || self.listeners.exists(l, "
                "(l.protocol == 'HTTP' && !has(l.hostname)) || "
                "(l.protocol == 'HTTPS' && has(l.hostname) && !l.hostname.startsWith('*')))"
            ),
            check=lambda gateway: not gateway.listeners or any(map(_reachable, gateway.listeners)),
            hint="Add one for HTTP without a hostname, or one for HTTPS with a hostname that has no '*'",
            schema={"properties": {"listeners": {"if": {"minItems": 1}, "then": {"contains": _REACHABLE}}}},
        ),
    )

    class_name: str = Field(default="envoy", min_length=1, max_length=63, description="Name of the GatewayClass.")
    listeners: Annotated[list[StackListener], ListMap(("name",))] | None = Field(
        default=None, max_length=8, description="Listeners; absent or empty is HTTP on port 80, named http."
    )


class ServingStackSpec(Spec):
    """Components to install, and how to log in."""

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
        min_length=1, max_length=8, description="How to log in to the cluster."
    )
    nvidia_driver_root: str = Field(
        default="/", max_length=512, description="Folder of the NVIDIA driver on nodes; GKE has its own."
    )
    versions: StackVersions | None = Field(default=None, description="Versions of components.")
    gateway: StackGateway | None = Field(default=None, description="Settings of the cluster's gateway.")


class StackGatewayStatus(Model):
    """The gateway of the cluster."""

    address: str | None = Field(default=None, max_length=256, description="External address, once there is one.")


class ServingStackStatus(Status):
    """Observed state of the stack."""

    gateway: StackGatewayStatus | None = Field(default=None, description="The gateway of the cluster.")


class ServingStack(Resource):
    """The software that a workload cluster needs."""

    GROUP: ClassVar[str] = GROUP_INFRASTRUCTURE
    KIND: ClassVar[str] = "ServingStack"
    PLURAL: ClassVar[str] = "servingstacks"
    SHORT_NAMES: ClassVar[tuple[str, ...]] = ("ss",)
    COLUMNS: ClassVar[tuple[Column, ...]] = (Column("GATEWAY", ".status.gateway.address"),)

    spec: ServingStackSpec = Field(description="What to install, and how to log in.")
    status: ServingStackStatus | None = Field(default=None, description="What is known of the stack.")
