# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""InferenceCluster: member cluster of the fleet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from ..._pydantic import Field
from .base import (
    Column,
    Hidden,
    JSONSchema,
    ListMap,
    Model,
    Rule,
    Violation,
    allowed_if,
    has,
    other_than,
    requires,
    without,
)
from .cloud import CacheStatus, CapacityBlock, Credentials, PoolName, node_count_rule
from .device import PublishedDevice
from .eks_settings import EKSClusterSettings, EKSPoolSettings
from .gke_pool import GKEPoolSettings
from .gke_settings import GKEClusterSettings
from .meta import LabelValue, template_label_rules
from .resource import Resource, Spec, Status, name_rule

SYSTEM_POOL = "system"
_CREDENTIALS = (
    "Provider configuration with the credentials for the cloud API. Defaults to the ClusterProviderConfig `default`."
)


def _version(default: str) -> str:
    return f"Kubernetes version of the control plane. Defaults to {default}."


class SecretRef(Model):
    """Secret with a kubeconfig in the namespace modelplane-system."""

    name: str = Field(min_length=1, max_length=253, description="Name of the Secret.")
    key: str = Field(
        default="kubeconfig",
        min_length=1,
        max_length=253,
        description="Key of the kubeconfig in the data of the Secret. Defaults to kubeconfig.",
    )


class IdentitySecretRef(Model):
    """Secret with a cloud identity in the namespace modelplane-system, used in addition to the kubeconfig."""

    name: str = Field(min_length=1, max_length=253, description="Name of the Secret.")
    key: str = Field(
        default="private_key",
        min_length=1,
        max_length=253,
        description="Key of the identity in the data of the Secret. Defaults to private_key.",
    )
    type: Literal["GoogleApplicationCredentials", "AWSWebIdentityCredentials", "NebiusServiceAccountCredentials"] = (
        Field(
            default="GoogleApplicationCredentials",
            description="Type of the identity. Defaults to GoogleApplicationCredentials.",
        )
    )


class ExistingCache(Model):
    """Storage for model weights on an existing cluster."""

    storage_class_name: str | None = Field(
        default=None,
        min_length=1,
        max_length=253,
        description="Existing StorageClass for ReadWriteMany volumes. Required for ModelCaches on the cluster.",
    )


class ExistingCluster(Model):
    """Existing cluster."""

    secret_ref: Annotated[SecretRef, Hidden()] = Field(description="Secret with the kubeconfig of the cluster.")
    identity_secret_ref: Annotated[IdentitySecretRef, Hidden()] | None = Field(
        default=None,
        description="Cloud identity that authenticates to the cluster. If unset, the kubeconfig must contain the "
        "credentials.",
    )
    cache: ExistingCache | None = Field(default=None, description="Storage for model weights.")


class GKESource(GKEClusterSettings):
    """Cluster to create on GKE."""

    region: str = Field(min_length=1, max_length=32, description="Google Cloud region.")
    project: str | None = Field(
        default=None,
        min_length=6,
        max_length=30,
        description="Google Cloud project. Defaults to the project of the credentials.",
    )
    kubernetes_version: str = Field(default="1.35", description=_version("1.35"))
    credentials: Annotated[Credentials, Hidden()] | None = Field(default=None, description=_CREDENTIALS)


class EKSSource(EKSClusterSettings):
    """Cluster to create on EKS."""

    region: str = Field(min_length=1, max_length=32, description="AWS region.")
    kubernetes_version: str = Field(default="1.36", description=_version("1.36"))
    credentials: Annotated[Credentials, Hidden()] | None = Field(default=None, description=_CREDENTIALS)


class AKSSource(Model):
    """Cluster to create on AKS."""

    location: str = Field(min_length=1, max_length=32, description="Azure region.")
    kubernetes_version: str = Field(default="1.34", description=_version("1.34"))
    credentials: Annotated[Credentials, Hidden()] | None = Field(default=None, description=_CREDENTIALS)


class NebiusSource(Model):
    """Cluster to create on Nebius."""

    kubernetes_version: str = Field(default="1.34", description=_version("1.34"))
    credentials: Annotated[Credentials, Hidden()] | None = Field(default=None, description=_CREDENTIALS)


class VultrSource(Model):
    """Cluster to create on Vultr."""

    region: str = Field(min_length=1, max_length=32, description="Code of the Vultr region.")
    kubernetes_version: str = Field(
        default="v1.36.1+3", description="Exact version of the Vultr Kubernetes Engine. Defaults to v1.36.1+3."
    )
    credentials: Annotated[Credentials, Hidden()] | None = Field(default=None, description=_CREDENTIALS)


class ClusterSource(Model):
    """Source of the cluster."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        requires(("IC-2",), "source", "Existing", "existing"),
        requires(("IC-3",), "source", "GKE", "gke"),
        requires(("IC-4",), "source", "EKS", "eks"),
        requires(("IC-5",), "source", "AKS", "aks"),
        requires(("IC-6",), "source", "Nebius", "nebius"),
        requires(("IC-7",), "source", "Vultr", "vultr"),
    )

    source: Literal["GKE", "EKS", "AKS", "Nebius", "Vultr", "Existing"] = Field(
        description="Provider of the cluster. The field with the name of the provider is required."
    )
    existing: ExistingCluster | None = Field(
        default=None, description="Existing cluster. Required for source Existing."
    )
    gke: GKESource | None = Field(default=None, description="Cluster to create on GKE. Required for source GKE.")
    eks: EKSSource | None = Field(default=None, description="Cluster to create on EKS. Required for source EKS.")
    aks: AKSSource | None = Field(default=None, description="Cluster to create on AKS. Required for source AKS.")
    nebius: NebiusSource | None = Field(
        default=None, description="Cluster to create on Nebius. Required for source Nebius."
    )
    vultr: VultrSource | None = Field(
        default=None, description="Cluster to create on Vultr. Required for source Vultr."
    )


class Taint(Model):
    """Taint of the cluster, which repels replicas without a matching toleration. It does not taint nodes."""

    key: str = Field(min_length=1, description="Key of the taint.")
    value: str | None = Field(default=None, description="Value of the taint. Defaults to an empty value.")
    effect: Literal["NoSchedule", "NoExecute"] = Field(
        description="Effect on replicas without a matching toleration. NoSchedule prevents new replicas on the "
        "cluster. NoExecute also removes running replicas."
    )


class InfiniBand(Model):
    """InfiniBand network on Nebius."""

    fabric: str = Field(min_length=1, max_length=63, description="ID of an existing InfiniBand fabric.")


class Fabric(Model):
    """Network fabric between the nodes of a node pool."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            ids=("IC-8",),
            message="infiniband is allowed only when type is InfiniBand",
            cel="!has(self.infiniband) || self.type == 'InfiniBand'",
            check=lambda fabric: fabric.infiniband is None or fabric.type == "InfiniBand",
            hint="Set type: InfiniBand or remove infiniband",
            schema=allowed_if(has("type", "InfiniBand"), "infiniband"),
        ),
        Rule(
            ids=("IC-12",),
            message="name is allowed only with a type other than None",
            cel="!has(self.name) || self.type != 'None'",
            check=lambda fabric: fabric.name is None or fabric.type != "None",
            hint="Set type or remove name",
            schema={"if": has("type", "None", absent=True), "then": without("name")},
        ),
        Rule(
            ids=("IC-13",),
            message="name and infiniband.fabric must be equal",
            cel="!has(self.name) || !has(self.infiniband) || self.name == self.infiniband.fabric",
            check=lambda fabric: (
                fabric.name is None or fabric.infiniband is None or fabric.name == fabric.infiniband.fabric
            ),
            hint="Remove name",
        ),
    )

    type: Literal["None", "EFA", "InfiniBand", "NVLink"] = Field(
        default="None",
        description="Type of the fabric. EFA is available on EKS, InfiniBand on Nebius and AKS, and NVLink on systems "
        "with an NVLink domain across nodes. None is plain TCP. Defaults to None.",
    )
    name: str | None = Field(
        default=None,
        min_length=1,
        max_length=63,
        description="Name of the fabric. Node pools with the same type and name share a fabric.",
    )
    infiniband: InfiniBand | None = Field(
        default=None, description="InfiniBand network. Required for type InfiniBand on Nebius."
    )


class NodePool(Model):
    """Pool of GPU nodes of the same class."""

    NOT_HERE: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("instanceType", "machineType", "vmSize", "diskSizeGb", "accelerator", "gpu", "devices"),
        "The InferenceClass of className determines it",
    )
    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            ids=("IC-9",),
            message=f"a pool cannot be named {SYSTEM_POOL}: that pool is added to every cluster",
            cel=f"self.name != '{SYSTEM_POOL}'",
            check=lambda pool: pool.name != SYSTEM_POOL,
            hint="Choose another name",
            schema={"properties": {"name": other_than(SYSTEM_POOL)}},
        ),
        node_count_rule("IC-10"),
        Rule(
            ids=("IC-16",),
            message="eks.capacityType SPOT and capacityBlock exclude each other",
            cel="!(has(self.capacityBlock) && has(self.eks) && has(self.eks.capacityType) && "
            "self.eks.capacityType == 'SPOT')",
            check=lambda pool: pool.capacity_block is None or pool.eks is None or pool.eks.capacity_type != "SPOT",
            hint="Remove eks",
            schema={
                "if": {"required": ["capacityBlock"]},
                "then": {"properties": {"eks": {"properties": {"capacityType": other_than("SPOT")}}}},
            },
        ),
    )

    name: PoolName = Field(description="Name of the node pool, and value of the node label modelplane.ai/pool.")
    class_name: str = Field(min_length=1, max_length=253, description="InferenceClass of the nodes.")
    node_count: int = Field(
        default=1,
        ge=0,
        description="Number of nodes. If the node pool is autoscaled, initial number of nodes. Defaults to 1.",
    )
    min_node_count: int | None = Field(
        default=None,
        ge=0,
        description="Minimum number of nodes for the autoscaler. Defaults to nodeCount. If minNodeCount and "
        "maxNodeCount are unset, the size is fixed.",
    )
    max_node_count: int | None = Field(
        default=None,
        ge=1,
        description="Maximum number of nodes for the autoscaler. Defaults to nodeCount, but at least minNodeCount.",
    )
    zones: list[str] | None = Field(default=None, description="Zones of the nodes. Required on GKE and EKS.")
    capacity_block: CapacityBlock | None = Field(
        default=None, description="AWS Capacity Block that provides the nodes. If unset, eks.capacityType applies."
    )
    fabric: Fabric | None = Field(
        default=None, description="Network fabric between the nodes. If unset, the network is plain TCP."
    )
    eks: EKSPoolSettings | None = Field(default=None, description="Node pool settings for EKS.")
    gke: GKEPoolSettings | None = Field(default=None, description="Node pool settings for GKE.")

    @property
    def bounds(self) -> tuple[int, int]:
        """Minimum and maximum number of nodes. Without limits, the size is fixed."""
        minimum = self.node_count if self.min_node_count is None else self.min_node_count
        return minimum, max(self.node_count, minimum) if self.max_node_count is None else self.max_node_count

    @property
    def is_autoscaled(self) -> bool:
        """Return whether an autoscaler sets the size of the node pool. It then has at least one limit."""
        return self.min_node_count is not None or self.max_node_count is not None


def _settings_of(source: str, number: str) -> Rule:
    """Return the rule that allows the node pool settings of a source only for clusters of this source."""
    key = source.lower()

    def violations(spec: Any) -> list[Violation]:
        if spec.cluster.source == source:
            return []
        pools = enumerate(spec.node_pools or ())
        return [Violation(("nodePools", index, key)) for index, pool in pools if getattr(pool, key) is not None]

    return Rule(
        ids=(number,),
        message=f"{key} is allowed only when cluster.source is {source}",
        cel=f"self.cluster.source == '{source}' || !has(self.nodePools) || self.nodePools.all(p, !has(p.{key}))",
        check=violations,
        hint=f"Remove {key}",
        schema={
            "if": {"properties": {"cluster": has("source", source)}},
            "else": {"properties": {"nodePools": {"items": without(key)}}},
        },
    )


_NAMED_INFINIBAND: JSONSchema = {"if": has("type", "InfiniBand"), "then": {"required": ["infiniband"]}}


def _nebius_fabrics(spec: Any) -> list[Violation]:
    if spec.cluster.source != "Nebius":
        return []
    return [
        Violation(("nodePools", index, "fabric"))
        for index, pool in enumerate(spec.node_pools or ())
        if pool.fabric is not None and pool.fabric.type == "InfiniBand" and pool.fabric.infiniband is None
    ]


class PlacementMetadata(Model):
    """Metadata of the objects that are created for replicas on the cluster."""

    RULES: ClassVar[tuple[Rule, ...]] = template_label_rules(
        reserved=("IC-17",), syntax=("IC-18",), prefix=("IC-19",), value=("IC-20",)
    )

    labels: dict[str, LabelValue] | None = Field(
        default=None,
        max_length=16,
        description="Labels of ModelEndpoints for replicas on the cluster. Labels in the template of the "
        "ModelDeployment take precedence.",
    )


class ClusterPlacement(Model):
    """Properties of replicas on the cluster."""

    metadata: PlacementMetadata | None = Field(
        default=None, description="Metadata of the objects that are created for replicas on the cluster."
    )


class InferenceClusterSpec(Spec):
    """Desired state of the cluster."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            ids=("IC-1",),
            message="infiniband is required for InfiniBand pools when cluster.source is Nebius",
            cel=(
                "self.cluster.source != 'Nebius' || !has(self.nodePools) || self.nodePools.all(p, "
                "!has(p.fabric) || p.fabric.type != 'InfiniBand' || has(p.fabric.infiniband))"
            ),
            check=_nebius_fabrics,
            hint="Add infiniband: {fabric: <ID>}",
            schema={
                "if": {"properties": {"cluster": has("source", "Nebius")}},
                "then": {"properties": {"nodePools": {"items": {"properties": {"fabric": _NAMED_INFINIBAND}}}}},
            },
        ),
        _settings_of("GKE", "IC-14"),
        _settings_of("EKS", "IC-15"),
    )

    cluster: ClusterSource = Field(description="Source of the cluster.")
    taints: Annotated[list[Taint], ListMap(("key", "effect"))] | None = Field(
        default=None, description="Taints of the cluster, which repel replicas without a matching toleration."
    )
    node_pools: Annotated[list[NodePool], ListMap(("name",))] | None = Field(
        default=None,
        min_length=1,
        max_length=8,
        description="GPU node pools. The system node pool is added automatically.",
    )
    placement: ClusterPlacement | None = Field(default=None, description="Properties of replicas on the cluster.")


class ProviderConfigRef(Model):
    """Reference to the provider configuration of the cluster."""

    name: str | None = Field(default=None, description="Name of the ClusterProviderConfig.")


class GatewayStatus(Model):
    """Observed state of the cluster gateway."""

    address: str | None = Field(
        default=None,
        description="External address of the gateway. If unset, the cluster is not ready for new replicas.",
    )
    url: str | None = Field(
        default=None,
        max_length=512,
        description="Base URL of endpoints on the cluster. Defaults to http:// and the address.",
    )
    hostname: str | None = Field(
        default=None,
        max_length=253,
        description="Hostname of the cluster for Model gateways. Set when both sides have mutual TLS certificates.",
    )
    internal_address: str | None = Field(
        default=None, max_length=253, description="Address that hostname resolves to. Defaults to address."
    )
    ca_certificate: str | None = Field(
        default=None,
        max_length=16384,
        description="PEM-encoded CA certificate that issues the server certificate of the cluster gateway.",
    )


class PublishedFabric(Model):
    """Network fabric between the nodes of a node pool."""

    type: Literal["None", "EFA", "InfiniBand", "NVLink"] = Field(description="Type of the fabric.")
    name: str | None = Field(
        default=None,
        max_length=63,
        description="Name of the fabric. Node pools with the same type and name share a fabric.",
    )


class GPUPool(Model):
    """Node pool for replicas."""

    name: str = Field(description="Name of the node pool.")
    nodes: int | None = Field(default=None, description="Maximum number of nodes.")
    observed_nodes: int | None = Field(default=None, description="Observed number of nodes.")
    devices: Annotated[list[PublishedDevice], ListMap(("name",))] | None = Field(
        default=None, max_length=17, description="Devices of each node, including a device for the fabric."
    )
    fabric: PublishedFabric | None = Field(default=None, description="Network fabric between the nodes.")


class InferenceClusterStatus(Status):
    """Observed state of the cluster."""

    provider_config_ref: ProviderConfigRef | None = Field(
        default=None, description="Reference to the provider configuration of the cluster."
    )
    gateway: GatewayStatus | None = Field(default=None, description="Observed state of the cluster gateway.")
    cache: CacheStatus | None = Field(default=None, description="Storage for model weights.")
    gpu_pools: Annotated[list[GPUPool], ListMap(("name",))] | None = Field(
        default=None, max_length=8, description="Node pools for replicas."
    )
    namespace: str | None = Field(default=None, description="Namespace of the objects that describe the cluster.")


class InferenceCluster(Resource):
    """Member cluster of the fleet. The cluster is created in a cloud, or exists already."""

    RULES: ClassVar[tuple[Rule, ...]] = (name_rule("IC-11", label=False),)

    KIND: ClassVar[str] = "InferenceCluster"
    PLURAL: ClassVar[str] = "inferenceclusters"
    SHORT_NAMES: ClassVar[tuple[str, ...]] = ("ic",)
    NAMESPACED: ClassVar[bool] = False
    COLUMNS: ClassVar[tuple[Column, ...]] = (
        Column("SOURCE", ".spec.cluster.source"),
        Column("GATEWAY", ".status.gateway.address"),
    )

    spec: InferenceClusterSpec = Field(description="Desired state of the cluster.")
    status: InferenceClusterStatus | None = Field(default=None, description="Observed state of the cluster.")

    @property
    def placement_labels(self) -> Mapping[str, str]:
        """Labels of ModelEndpoints for replicas on the cluster."""
        metadata = self.spec.placement.metadata if self.spec.placement else None
        return (metadata.labels if metadata else None) or {}
