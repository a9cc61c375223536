# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""ModelReplica: one placed instance of a ModelDeployment."""

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
    """Routing of requests to the engines, as in the ModelDeployment."""


VolumeId = Annotated[str, Words("must be 10 hexadecimal digits")]


class PreviousVolume(ModelCacheRef):
    """A volume that pods may still mount."""

    volume: VolumeId | None = Field(
        default=None,
        pattern=r"^[0-9a-f]{10}$",
        description="As in modelCacheRef; absent is the first of the ModelCache.",
    )


class MountedCache(ReadOnlyCacheRef):
    """A ModelCache of the same namespace, as it is mounted."""

    layout: Layout = Field(default="Folder", description="Layout of the weights in the mounted volume.")
    volume: VolumeId | None = Field(
        default=None,
        pattern=r"^[0-9a-f]{10}$",
        description="Which volume of the ModelCache, by a digest of its artifact; absent is its first.",
    )
    previous: PreviousVolume | None = Field(
        default=None, description="What was mounted before; it stays while pods may mount it."
    )


class ResolvedDeviceRequest(Model):
    """Devices that one pod claims."""

    name: DNSLabel = Field(description="Name of the request.")
    device_class_name: str = Field(min_length=1, max_length=253, description="DeviceClass to claim through.")
    device: str | None = Field(
        default=None,
        min_length=1,
        description=(
            "Planned device of the InferenceClass, where others of it have the DeviceClass too; the last selector then "
            "accepts this one only."
        ),
    )
    count: int = Field(default=1, ge=1, le=64, description="How many devices.")
    selectors: Annotated[list[Selector], Atomic()] | None = Field(
        default=None, max_length=9, description="Conditions of the deployment, unchanged, then that of device."
    )
    guarded: bool | None = Field(
        default=None,
        description=(
            "If true, selectors of the claim test for each attribute and capacity that they read, because devices of "
            "the pool lack some of them."
        ),
    )


class PlannedNodes(Model):
    """Sharing of nodes between the pods of a member and others."""

    numbers: Annotated[list[Annotated[int, Field(ge=1)]], Atomic()] | None = Field(
        default=None,
        min_length=1,
        max_length=4,
        description="Numbers of planned nodes, unique in the pool: last the pods' own, before it those they go beside.",
    )
    sharing: Literal["Together", "OnePerNode", "Alone", "Any", "Apart"] = Field(
        description=(
            "Together: all pods share one node with those of the same number. OnePerNode: each pod has another node. "
            "Alone: no other pods are on their nodes. Any: they go where there is room. Apart: so do they, each on "
            "another node."
        )
    )


class PoolShare(Model):
    """Pods of a member that run on one of several pools."""

    name: str = Field(min_length=1, max_length=63, description="Name of the pool.")
    pods: int = Field(ge=1, le=63, description="Pods of each copy on this pool.")


def _pods(member: Any) -> int:
    return member.worker.nodes if member.worker is not None else 1


class PlacedMember(Model):
    """A kind of pod in an engine, with the pool it runs on."""

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
            message="the pods of nodePools must sum up to the pods of the member in each copy",
            cel=(
                "!has(self.nodePools) || "
                "self.nodePools.map(p, p.pods).sum() == (has(self.worker) ? self.worker.nodes : 1)"
            ),
            check=lambda member: (
                not member.node_pools or sum(share.pods for share in member.node_pools) == _pods(member)
            ),
        ),
    )

    role: Role = Field(default="Standalone", description="As in the ModelDeployment.")
    node_pool_name: str = Field(min_length=1, description="Pool that the pods run on.")
    node_pools: Annotated[list[PoolShare], ListMap(("name",))] | None = Field(
        default=None,
        min_length=2,
        max_length=8,
        description="Pools of one fabric that the pods are spread over; absent is all of them on nodePoolName.",
    )
    device_requests: Annotated[list[ResolvedDeviceRequest], ListMap(("name",))] | None = Field(
        default=None, min_length=1, max_length=16, description="What a pod claims; absent is nothing."
    )
    device_constraints: Annotated[list[DeviceConstraint], Atomic()] | None = Field(
        default=None, max_length=8, description="What the devices that a pod claims must have in common."
    )
    planned_nodes: PlannedNodes | None = Field(
        default=None, description="How the pods share nodes with others; absent is where there is room."
    )
    worker: Worker | None = Field(default=None, description="Size of the Worker part; absent is one node.")
    template: PodTemplate = Field(description="The pod.")


class PlacedEngine(EngineBase):
    """An engine of the deployment, placed."""

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
        min_length=1, max_length=2, description="One Standalone, or one Leader and one Worker."
    )


ClaimNames = Literal["Digest"]
"""Names of ResourceClaimTemplates that contain a digest of their content."""


class ModelReplicaSpec(Spec):
    """Cluster and engines of the replica."""

    RULES: ClassVar[tuple[Rule, ...]] = phase_rules(("MR-1", "MR-2", "MR-3", "MR-4"))

    cluster_name: str = Field(min_length=1, description="InferenceCluster the replica stays on.")
    claim_names: ClaimNames | None = Field(
        default=None,
        description="Names of the ResourceClaimTemplates. Digest adds a digest of their content, so that an edit "
        "creates another object. If unset, the names have no digest.",
    )
    model_cache_ref: MountedCache | None = Field(default=None, description="ModelCache mounted into every pod.")
    serving: ReplicaServing | None = Field(default=None, description="How requests reach the engines.")
    engines: Annotated[list[PlacedEngine], ListMap(("name",))] = Field(
        min_length=1, max_length=8, description="Engines with the pools they run on."
    )


class ModelReplicaStatus(Status):
    """Observed state of the replica."""


class ModelReplica(Resource):
    """One instance of a model on one cluster; written by the scheduler."""

    RULES: ClassVar[tuple[Rule, ...]] = (name_rule("MR-17", label=True),)

    KIND: ClassVar[str] = "ModelReplica"
    PLURAL: ClassVar[str] = "modelreplicas"
    SHORT_NAMES: ClassVar[tuple[str, ...]] = ("mr",)
    COLUMNS: ClassVar[tuple[Column, ...]] = (Column("CLUSTER", ".spec.clusterName"),)

    spec: ModelReplicaSpec = Field(description="Where the replica runs, and what.")
    status: ModelReplicaStatus | None = Field(default=None, description="What is known of the replica.")
