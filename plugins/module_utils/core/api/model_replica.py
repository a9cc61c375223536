# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""ModelReplica: scheduled replica of a ModelDeployment."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from ..._pydantic import Field
from .base import Atomic, Column, DNSLabel, ListMap, Model, Rule, Words
from .engine import (
    DeviceConstraint,
    EngineBase,
    Layout,
    ModelCacheRef,
    ReadOnlyCacheRef,
    Role,
    Selector,
    Worker,
    constraint_rule,
    phase_rules,
    shape_rule,
    worker_rule,
)
from .pod_template import PodTemplate
from .resource import Resource, Spec, Status, name_rule
from .serving import ServingBase


class ReplicaServing(ServingBase):
    """Routing of requests to the engines, from the ModelDeployment."""


VolumeId = Annotated[str, Words("must be 10 hexadecimal digits")]


class PreviousVolume(ModelCacheRef):
    """Volume that pods might still mount."""

    volume: VolumeId | None = Field(
        default=None,
        pattern=r"^[0-9a-f]{10}$",
        description="Volume of the ModelCache, as in modelCacheRef. Defaults to the first volume.",
    )


class MountedCache(ReadOnlyCacheRef):
    """Reference to a ModelCache in the same namespace, with the mounted volume."""

    layout: Layout = Field(
        default="Folder", description="Layout of the weights in the mounted volume. Defaults to Folder."
    )
    volume: VolumeId | None = Field(
        default=None,
        pattern=r"^[0-9a-f]{10}$",
        description="Volume of the ModelCache, as a digest of its artifact. Defaults to the first volume.",
    )
    previous: PreviousVolume | None = Field(
        default=None, description="Previously mounted volume. It is retained while pods might mount it."
    )


class ResolvedDeviceRequest(Model):
    """Device request in the ResourceClaimTemplate of a pod."""

    name: DNSLabel = Field(description="Name of the request.")
    device_class_name: str = Field(min_length=1, max_length=253, description="DeviceClass of the request.")
    device: str | None = Field(
        default=None,
        min_length=1,
        description=(
            "Planned device of the InferenceClass. Set if other devices of the class have the same DeviceClass. The "
            "last selector then matches only this device."
        ),
    )
    count: int = Field(default=1, ge=1, le=64, description="Number of devices. Defaults to 1.")
    selectors: Annotated[list[Selector], Atomic()] | None = Field(
        default=None,
        max_length=9,
        description="Device selectors of the ModelDeployment, and the selector for the planned device.",
    )
    guarded: bool | None = Field(
        default=None,
        description=(
            "Whether the selectors of the claim check that each attribute and capacity exists before they read it. Set "
            "if some devices of the node pool lack an attribute or capacity."
        ),
    )


class PlannedNodes(Model):
    """Placement of the pods of a member on planned nodes. A planned node is a slot for pods, not a Node object."""

    numbers: Annotated[list[Annotated[int, Field(ge=1)]], Atomic()] | None = Field(
        default=None,
        min_length=1,
        max_length=4,
        description="Numbers of planned nodes, unique in the node pool. The last number is the planned node of the "
        "pods. The numbers before it are the planned nodes of other pods, whose nodes the pods share.",
    )
    sharing: Literal["Together", "OnePerNode", "Alone", "Any", "Apart"] = Field(
        description=(
            "Sharing of nodes. Together: all pods run on one node, with pods of the same number. OnePerNode: each pod "
            "runs on a separate node. Alone: other pods cannot run on the nodes of the pods. Any: the pods run on any "
            "node with free capacity. Apart: like Any, but each pod runs on a separate node."
        )
    )


class PoolShare(Model):
    """Number of pods of a member on one of several node pools."""

    name: str = Field(min_length=1, max_length=63, description="Name of the node pool.")
    pods: int = Field(ge=1, le=63, description="Number of pods of each engine copy on the node pool.")


def _pods(member: Any) -> int:
    return member.worker.nodes if member.worker is not None else 1


class PlacedMember(Model):
    """Pods of an engine with the same role, and their node pools."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        worker_rule("MR-7"),
        constraint_rule(
            "MR-24",
            "deviceRequests",
            "deviceConstraints",
            lambda member: (member.device_requests, member.device_constraints),
        ),
        Rule(
            ids=("MR-20",),
            message="nodePoolName must be the first of nodePools",
            cel="!has(self.nodePools) || self.nodePools[0].name == self.nodePoolName",
            check=lambda member: not member.node_pools or member.node_pools[0].name == member.node_pool_name,
        ),
        Rule(
            ids=("MR-21",),
            message="the sum of pods in nodePools must be the number of pods of the member",
            cel=(
                "!has(self.nodePools) || "
                "self.nodePools.map(p, p.pods).sum() == (has(self.worker) ? self.worker.nodes : 1)"
            ),
            check=lambda member: (
                not member.node_pools or sum(share.pods for share in member.node_pools) == _pods(member)
            ),
        ),
    )

    role: Role = Field(
        default="Standalone", description="Role of the pods, from the ModelDeployment. Defaults to Standalone."
    )
    node_pool_name: str = Field(min_length=1, description="Node pool of the pods.")
    node_pools: Annotated[list[PoolShare], ListMap(("name",))] | None = Field(
        default=None,
        min_length=2,
        max_length=8,
        description="Node pools of the pods, if the pods run on several pools with the same fabric. If unset, all pods "
        "run on nodePoolName.",
    )
    device_requests: Annotated[list[ResolvedDeviceRequest], ListMap(("name",))] | None = Field(
        default=None,
        min_length=1,
        max_length=16,
        description="Device requests of each pod. If unset, the pods claim no devices.",
    )
    device_constraints: Annotated[list[DeviceConstraint], Atomic()] | None = Field(
        default=None, max_length=8, description="Constraints on the devices that a pod claims together."
    )
    planned_nodes: PlannedNodes | None = Field(
        default=None,
        description="Placement of the pods on planned nodes. If unset, the pods run on any node with free capacity.",
    )
    worker: Worker | None = Field(
        default=None, description="Number of Worker pods. If unset, the member has one pod per engine copy."
    )
    template: PodTemplate = Field(description="Pod template of the member.")


class PlacedEngine(EngineBase):
    """Engine of the replica, with its node pools."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        shape_rule("MR-5"),
        Rule(
            ids=("MR-6",),
            message="at least one member must have deviceRequests",
            cel="self.members.exists(m, has(m.deviceRequests))",
            check=lambda engine: any(member.device_requests is not None for member in engine.members),
            schema={"properties": {"members": {"contains": {"required": ["deviceRequests"]}}}},
        ),
    )

    members: Annotated[list[PlacedMember], Atomic()] = Field(
        min_length=1, max_length=2, description="Members of the engine: one Standalone, or one Leader and one Worker."
    )


ClaimNames = Literal["Digest"]
"""Format of ResourceClaimTemplate names with a digest of their content."""


class ModelReplicaSpec(Spec):
    """Desired state of the replica."""

    RULES: ClassVar[tuple[Rule, ...]] = phase_rules(("MR-1", "MR-2", "MR-3", "MR-4"))

    cluster_name: str = Field(min_length=1, description="InferenceCluster of the replica.")
    claim_names: ClaimNames | None = Field(
        default=None,
        description="Format of ResourceClaimTemplate names. Digest adds a digest of the content, and an edit creates a "
        "new object. If unset, the names have no digest.",
    )
    model_cache_ref: MountedCache | None = Field(default=None, description="ModelCache that all pods mount.")
    serving: ReplicaServing | None = Field(
        default=None, description="Routing of requests to the engines. If unset, the mode is Unified."
    )
    engines: Annotated[list[PlacedEngine], ListMap(("name",))] = Field(
        min_length=1, max_length=8, description="Engines of the replica, with their node pools."
    )


class ModelReplicaStatus(Status):
    """Observed state of the replica."""


class ModelReplica(Resource):
    """Scheduled replica of a ModelDeployment on a cluster. The scheduler creates it."""

    RULES: ClassVar[tuple[Rule, ...]] = (name_rule("MR-17", label=True),)

    KIND: ClassVar[str] = "ModelReplica"
    PLURAL: ClassVar[str] = "modelreplicas"
    SHORT_NAMES: ClassVar[tuple[str, ...]] = ("mr",)
    COLUMNS: ClassVar[tuple[Column, ...]] = (Column("CLUSTER", ".spec.clusterName"),)

    spec: ModelReplicaSpec = Field(description="Desired state of the replica.")
    status: ModelReplicaStatus | None = Field(default=None, description="Observed state of the replica.")
