# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""InferenceCluster: one Kubernetes cluster of the fleet."""

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
_CREDENTIALS = "Which provider configuration signs calls to the cloud; absent is the cluster-wide `default`."
_VERSION = "Version of the control plane."


class SecretRef(Model):
    """Secret in the namespace modelplane-system that holds a kubeconfig."""

    name: str = Field(min_length=1, max_length=253, description="Name of the Secret.")
    key: str = Field(default="kubeconfig", min_length=1, max_length=253, description="Key that holds the kubeconfig.")


class IdentitySecretRef(Model):
    """Secret in the namespace modelplane-system with a cloud identity, used on top of the kubeconfig."""

    name: str = Field(min_length=1, max_length=253, description="Name of the Secret.")
    key: str = Field(default="private_key", min_length=1, max_length=253, description="Key that holds the identity.")
    type: Literal["GoogleApplicationCredentials", "AWSWebIdentityCredentials", "NebiusServiceAccountCredentials"] = (
        Field(default="GoogleApplicationCredentials", description="What kind of identity it is.")
    )


class ExistingCache(Model):
    """Storage for model weights on a cluster of your own."""

    storage_class_name: str | None = Field(
        default=None, min_length=1, max_length=253, description="StorageClass (RWX) that you made."
    )


class ExistingCluster(Model):
    """A cluster that exists already."""

    secret_ref: Annotated[SecretRef, Hidden()] = Field(description="Where its kubeconfig is.")
    identity_secret_ref: Annotated[IdentitySecretRef, Hidden()] | None = Field(
        default=None, description="Cloud identity that logs in to it, if the kubeconfig alone does not."
    )
    cache: ExistingCache | None = Field(default=None, description="Storage for model weights.")


class GKESource(GKEClusterSettings):
    """A cluster to build on GKE."""

    region: str = Field(min_length=1, max_length=32, description="Google Cloud region.")
    project: str | None = Field(
        default=None,
        min_length=6,
        max_length=30,
        description="Google Cloud project; absent is that of the credentials.",
    )
    kubernetes_version: str = Field(default="1.35", description=_VERSION)
    credentials: Annotated[Credentials, Hidden()] | None = Field(default=None, description=_CREDENTIALS)


class EKSSource(EKSClusterSettings):
    """A cluster to build on EKS."""

    region: str = Field(min_length=1, max_length=32, description="AWS region.")
    kubernetes_version: str = Field(default="1.36", description=_VERSION)
    credentials: Annotated[Credentials, Hidden()] | None = Field(default=None, description=_CREDENTIALS)


class AKSSource(Model):
    """A cluster to build on AKS."""

    location: str = Field(min_length=1, max_length=32, description="Azure region.")
    kubernetes_version: str = Field(default="1.34", description=_VERSION)
    credentials: Annotated[Credentials, Hidden()] | None = Field(default=None, description=_CREDENTIALS)


class NebiusSource(Model):
    """A cluster to build on Nebius."""

    kubernetes_version: str = Field(default="1.34", description=_VERSION)
    credentials: Annotated[Credentials, Hidden()] | None = Field(default=None, description=_CREDENTIALS)


class VultrSource(Model):
    """A cluster to build on Vultr."""

    region: str = Field(min_length=1, max_length=32, description="Code of the Vultr region.")
    kubernetes_version: str = Field(default="v1.36.1+3", description="Exact build of the Vultr Kubernetes Engine.")
    credentials: Annotated[Credentials, Hidden()] | None = Field(default=None, description=_CREDENTIALS)


class ClusterSource(Model):
    """Origin of a cluster."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        requires(("IC-2",), "source", "Existing", "existing"),
        requires(("IC-3",), "source", "GKE", "gke"),
        requires(("IC-4",), "source", "EKS", "eks"),
        requires(("IC-5",), "source", "AKS", "aks"),
        requires(("IC-6",), "source", "Nebius", "nebius"),
        requires(("IC-7",), "source", "Vultr", "vultr"),
    )

    source: Literal["GKE", "EKS", "AKS", "Nebius", "Vultr", "Existing"] = Field(
        description="Who provides the cluster; the block of the same name must be given."
    )
    existing: ExistingCluster | None = Field(default=None, description="A cluster that exists already.")
    gke: GKESource | None = Field(default=None, description="A cluster to build on GKE.")
    eks: EKSSource | None = Field(default=None, description="A cluster to build on EKS.")
    aks: AKSSource | None = Field(default=None, description="A cluster to build on AKS.")
    nebius: NebiusSource | None = Field(default=None, description="A cluster to build on Nebius.")
    vultr: VultrSource | None = Field(default=None, description="A cluster to build on Vultr.")


class Taint(Model):
    """Keeps replicas away from a cluster; nothing to do with the taints of its nodes."""

    key: str = Field(min_length=1, description="Key of the taint.")
    value: str | None = Field(default=None, description="Value of the taint; absent is the same as empty.")
    effect: Literal["NoSchedule", "NoExecute"] = Field(
        description="NoSchedule keeps new replicas away; NoExecute also removes those that run."
    )


class InfiniBand(Model):
    """An InfiniBand network."""

    fabric: str = Field(min_length=1, max_length=63, description="ID of a physical fabric that exists already.")


class Fabric(Model):
    """Fast network between the nodes of a pool."""

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
            message="name and infiniband.fabric are the same thing and must be equal",
            cel="!has(self.name) || !has(self.infiniband) || self.name == self.infiniband.fabric",
            check=lambda fabric: (
                fabric.name is None or fabric.infiniband is None or fabric.name == fabric.infiniband.fabric
            ),
            hint="Remove name",
        ),
    )

    type: Literal["None", "EFA", "InfiniBand", "NVLink"] = Field(
        default="None",
        description="EFA exists on EKS, InfiniBand on Nebius and AKS, NVLink where a domain spans nodes; "
        "None is plain TCP.",
    )
    name: str | None = Field(
        default=None,
        min_length=1,
        max_length=63,
        description="Pools whose fabrics have the same type and name share one fabric.",
    )
    infiniband: InfiniBand | None = Field(default=None, description="Which InfiniBand network, on Nebius.")


class NodePool(Model):
    """A pool of equal GPU nodes."""

    NOT_HERE: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("instanceType", "machineType", "vmSize", "diskSizeGb", "accelerator", "gpu", "devices"),
        "The InferenceClass that className names decides that",
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

    name: PoolName = Field(description="Name of the pool; nodes carry it as the label modelplane.ai/pool.")
    class_name: str = Field(min_length=1, max_length=253, description="InferenceClass of the nodes.")
    node_count: int = Field(default=1, ge=0, description="Number of nodes: fixed, or at the start if autoscaled.")
    min_node_count: int | None = Field(default=None, ge=0, description="Fewest nodes the autoscaler leaves.")
    max_node_count: int | None = Field(default=None, ge=1, description="Most nodes the autoscaler makes.")
    zones: list[str] | None = Field(default=None, description="Zones the nodes are in; needed on GKE and EKS.")
    capacity_block: CapacityBlock | None = Field(default=None, description="AWS Capacity Block to take nodes from.")
    fabric: Fabric | None = Field(default=None, description="Fast network between the nodes; absent is plain TCP.")
    eks: EKSPoolSettings | None = Field(default=None, description="Settings that only node pools of EKS have.")
    gke: GKEPoolSettings | None = Field(default=None, description="Settings that only node pools of GKE have.")

    @property
    def bounds(self) -> tuple[int, int]:
        """The fewest and the most nodes of the pool. Without limits its size is fixed; with only one of them, the
        number that it starts with is the other one."""
        least = self.node_count if self.min_node_count is None else self.min_node_count
        return least, max(self.node_count, least) if self.max_node_count is None else self.max_node_count

    @property
    def is_autoscaled(self) -> bool:
        """Return whether an autoscaler sets the size of the pool, which then has at least one limit."""
        return self.min_node_count is not None or self.max_node_count is not None


def _settings_of(source: str, number: str) -> Rule:
    """Return the rule that settings of node pools of one source are allowed for that source only."""
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
    """Metadata of what is made for replicas on the cluster."""

    RULES: ClassVar[tuple[Rule, ...]] = template_label_rules(
        reserved=("IC-17",), syntax=("IC-18",), prefix=("IC-19",), value=("IC-20",)
    )

    labels: dict[str, LabelValue] | None = Field(
        default=None,
        max_length=16,
        description="Labels for ModelEndpoints of replicas; those of the deployment's template override them.",
    )


class ClusterPlacement(Model):
    """Properties that replicas get because they are on the cluster."""

    metadata: PlacementMetadata | None = Field(default=None, description="Metadata of what is made for them.")


class InferenceClusterSpec(Spec):
    """Origin and pools of the cluster."""

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

    cluster: ClusterSource = Field(description="Where the cluster comes from.")
    taints: Annotated[list[Taint], ListMap(("key", "effect"))] | None = Field(
        default=None, description="What keeps replicas away that do not tolerate it."
    )
    node_pools: Annotated[list[NodePool], ListMap(("name",))] | None = Field(
        default=None, min_length=1, max_length=8, description="GPU pools; the system pool is added by itself."
    )
    placement: ClusterPlacement | None = Field(
        default=None, description="What replicas get because they are on the cluster."
    )


class ProviderConfigRef(Model):
    """Handle to reach the cluster."""

    name: str | None = Field(default=None, description="Name of the cluster-wide provider configuration.")


class GatewayStatus(Model):
    """The gateway of the cluster."""

    address: str | None = Field(default=None, description="External address; without one nothing new is placed here.")
    url: str | None = Field(
        default=None,
        max_length=512,
        description="What the URLs of its endpoints begin with; absent is http:// and the address.",
    )
    hostname: str | None = Field(
        default=None,
        max_length=253,
        description="Name by which gateways in mode Model reach it; absent until both sides have certificates.",
    )
    internal_address: str | None = Field(
        default=None, max_length=253, description="Address behind hostname; absent is that of address."
    )
    ca_certificate: str | None = Field(
        default=None, max_length=16384, description="Who signs the certificate of its gateway (PEM)."
    )


class PublishedFabric(Model):
    """Fast network between the nodes of a pool."""

    type: Literal["None", "EFA", "InfiniBand", "NVLink"] = Field(description="Kind of the network.")
    name: str | None = Field(
        default=None, max_length=63, description="Pools with the same type and name share one fabric."
    )


class GPUPool(Model):
    """A pool that replicas can be placed on."""

    name: str = Field(description="Name of the pool.")
    nodes: int | None = Field(default=None, description="Nodes the pool may grow to.")
    observed_nodes: int | None = Field(default=None, description="Nodes seen in the cluster.")
    devices: Annotated[list[PublishedDevice], ListMap(("name",))] | None = Field(
        default=None, max_length=17, description="Devices of one node, and the fabric between nodes."
    )
    fabric: PublishedFabric | None = Field(default=None, description="Fast network between the nodes.")


class InferenceClusterStatus(Status):
    """Observed state of the cluster."""

    provider_config_ref: ProviderConfigRef | None = Field(default=None, description="Handle to reach the cluster.")
    gateway: GatewayStatus | None = Field(default=None, description="The gateway of the cluster.")
    cache: CacheStatus | None = Field(default=None, description="Storage for model weights.")
    gpu_pools: Annotated[list[GPUPool], ListMap(("name",))] | None = Field(
        default=None, max_length=8, description="What replicas can be placed on."
    )
    namespace: str | None = Field(default=None, description="Namespace of the objects made for the cluster.")


class InferenceCluster(Resource):
    """One Kubernetes cluster of the fleet: created in a cloud, or existing."""

    RULES: ClassVar[tuple[Rule, ...]] = (name_rule("IC-11", label=False),)

    KIND: ClassVar[str] = "InferenceCluster"
    PLURAL: ClassVar[str] = "inferenceclusters"
    SHORT_NAMES: ClassVar[tuple[str, ...]] = ("ic",)
    NAMESPACED: ClassVar[bool] = False
    COLUMNS: ClassVar[tuple[Column, ...]] = (
        Column("SOURCE", ".spec.cluster.source"),
        Column("GATEWAY", ".status.gateway.address"),
    )

    spec: InferenceClusterSpec = Field(description="Where the cluster comes from and which pools it has.")
    status: InferenceClusterStatus | None = Field(default=None, description="What is known of the cluster.")

    @property
    def placement_labels(self) -> Mapping[str, str]:
        """Labels of ModelEndpoints because their replicas are on the cluster."""
        metadata = self.spec.placement.metadata if self.spec.placement else None
        return (metadata.labels if metadata else None) or {}
