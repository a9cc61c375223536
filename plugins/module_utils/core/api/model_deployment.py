# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""ModelDeployment: replicas of a model on the fleet."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from ..._pydantic import Field, model_validator
from .base import (
    Atomic,
    Column,
    DNSLabel,
    IntOrString,
    ListMap,
    Model,
    RequiredWithDefault,
    Rule,
    Violation,
    Words,
    has,
    whole_numbers_as_text,
    without,
)
from .engine import (
    ClusterSelector,
    DeviceConstraint,
    EngineBase,
    Mode,
    ReadOnlyCacheRef,
    Role,
    Selector,
    Worker,
    constraint_rule,
    phase_rules,
    shape_rule,
    worker_rule,
)
from .meta import KEY, LabelValue, template_label_rules
from .pod_template import PodTemplate
from .pricing import Amount, Currency
from .resource import Resource, Spec, Status, name_rule
from .serving import ServingBase

_KEY_WORDS = "must be the key of a label: letters, digits, '-', '_' and '.', with or without a DNS prefix and '/'"


class Serving(ServingBase):
    """Routing of requests to the engines."""

    mode: Annotated[Mode, RequiredWithDefault()] = Field(
        default="Unified",
        description="Serving mode. With Unified, each engine runs prefill and decode. With PrefillDecode, separate "
        "engines run them. Defaults to Unified.",
    )


class Toleration(Model):
    """Toleration of a cluster taint."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            ids=("MD-9",),
            message="key is required when operator is Equal",
            cel="self.operator != 'Equal' || (has(self.key) && self.key != '')",
            check=lambda toleration: toleration.operator != "Equal" or bool(toleration.key),
            hint="Give key, or set operator: Exists to tolerate every taint",
            schema={
                "if": has("operator", "Equal", absent=True),
                "then": {"required": ["key"], "properties": {"key": {"minLength": 1}}},
            },
        ),
        Rule(
            ids=("MD-10",),
            message="value is not allowed when operator is Exists",
            cel="self.operator != 'Exists' || !has(self.value)",
            check=lambda toleration: toleration.operator != "Exists" or toleration.value is None,
            hint="Remove value",
            schema={"if": has("operator", "Exists"), "then": without("value")},
        ),
    )

    key: str | None = Field(
        default=None, description="Key of the taint. If unset, operator must be Exists, and matches all taints."
    )
    operator: Literal["Exists", "Equal"] = Field(
        default="Equal",
        description="Comparison with the taint. Equal compares key and value, and Exists only the key. Defaults to "
        "Equal.",
    )
    value: str | None = Field(default=None, description="Value of the taint. Defaults to an empty value.")
    effect: Literal["NoSchedule", "NoExecute"] | None = Field(
        default=None, description="Effect of the taint. If unset, matches all effects."
    )


class DeviceRequest(Model):
    """Request for devices of a node."""

    name: DNSLabel = Field(description="Name of the request, also in the ResourceClaim.")
    count: int = Field(default=1, ge=1, le=64, description="Number of devices per pod. Defaults to 1.")
    selectors: Annotated[list[Selector], Atomic()] = Field(
        min_length=1, max_length=8, description="Selectors of the devices. A device must match all selectors."
    )


class NodeSelector(Model):
    """Devices that each pod requires from its node."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        constraint_rule("MD-24", "devices", "constraints", lambda node: (node.devices, node.constraints)),
    )

    devices: Annotated[list[DeviceRequest], ListMap(("name",))] = Field(
        min_length=1, max_length=16, description="Device requests. The nodes of a node pool must satisfy all requests."
    )
    constraints: Annotated[list[DeviceConstraint], Atomic()] | None = Field(
        default=None, max_length=8, description="Constraints on the devices that a pod claims together."
    )


class Member(Model):
    """Pods of an engine with the same role."""

    RULES: ClassVar[tuple[Rule, ...]] = (worker_rule("MD-13"),)

    role: Role = Field(
        default="Standalone",
        description="Role of the pods. Standalone is an engine with one pod. Leader and Worker are the roles of a "
        "multi-node engine (LeaderWorkerSet group). Defaults to Standalone.",
    )
    node_selector: NodeSelector | None = Field(
        default=None, description="Devices that each pod requires. If unset, the pods claim no devices."
    )
    worker: Worker | None = Field(
        default=None, description="Size of the Worker member. Defaults to one pod. Only allowed for role Worker."
    )
    template: PodTemplate = Field(description="Pod template of the member.")


class Engine(EngineBase):
    """Inference engine: one pod, or a group of pods on several nodes."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        shape_rule("MD-11"),
        Rule(
            ids=("MD-12",),
            message="at least one member must have nodeSelector",
            cel="self.members.exists(m, has(m.nodeSelector))",
            check=lambda engine: any(member.node_selector is not None for member in engine.members),
            hint="Request devices in nodeSelector.devices",
            schema={"properties": {"members": {"contains": {"required": ["nodeSelector"]}}}},
        ),
    )

    members: Annotated[list[Member], Atomic()] = Field(
        min_length=1, max_length=2, description="Members of the engine: one Standalone, or one Leader and one Worker."
    )


class TemplateMetadata(Model):
    """Metadata of the objects that are created for each replica."""

    RULES: ClassVar[tuple[Rule, ...]] = template_label_rules(
        reserved=("MD-1",), syntax=("MD-2",), prefix=("MD-3",), value=("MD-4",)
    )

    labels: dict[str, LabelValue] | None = Field(
        default=None, max_length=32, description="Labels of ModelReplicas and ModelEndpoints."
    )


class ServedModel(Model):
    """Size of the model. The scheduler compares it with the memory of devices."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            ids=("MD-33",),
            message="layers, kvHeads and headDim must be given together",
            cel="has(self.layers) == has(self.kvHeads) && has(self.layers) == has(self.headDim)",
            check=lambda model: (model.layers is None) == (model.kv_heads is None) == (model.head_dim is None),
            hint="They are num_hidden_layers, num_key_value_heads and head_dim in the model's config.json",
            schema={"oneOf": [{"required": ["layers", "kvHeads", "headDim"]}, without("layers", "kvHeads", "headDim")]},
        ),
        Rule(
            ids=("MD-34",),
            message="parameters must be more than zero",
            cel="self.parameters.matches('[1-9]')",
            check=lambda model: (
                any(digit in model.parameters for digit in "123456789")
                or [Violation(("parameters",), "must be more than zero", model.parameters)]
            ),
            hint="Write how many the model has, such as 32.8B",
            schema={"properties": {"parameters": {"pattern": "[1-9]"}}},
        ),
    )

    parameters: Annotated[str, Words("must be a number of millions, billions or trillions such as 32.8B")] = Field(
        max_length=11,
        pattern=r"^[0-9]{1,6}(\.[0-9]{1,3})?[MBT]$",
        description="Number of parameters, including all experts, such as 32.8B.",
    )
    dtype: Literal["float32", "float16", "bfloat16", "float8", "int8", "float4", "int4"] = Field(
        description="Data type of the weights in device memory."
    )
    context_length: int | None = Field(
        default=None,
        ge=1,
        le=100_000_000,
        description="Maximum context length in tokens, including the response. Defaults to the context length in the "
        "flags of the engine.",
    )
    layers: int | None = Field(default=None, ge=1, le=10_000, description="Number of layers with a KV cache.")
    kv_heads: int | None = Field(default=None, ge=1, le=10_000, description="Number of key-value heads per layer.")
    head_dim: int | None = Field(default=None, ge=1, le=100_000, description="Dimension of each key and value vector.")


class ReplicaTemplateSpec(Model):
    """Desired state of each replica."""

    RULES: ClassVar[tuple[Rule, ...]] = phase_rules(("MD-5", "MD-6", "MD-7", "MD-8"))

    cluster_selector: ClusterSelector | None = Field(
        default=None, description="Selector of the clusters for replicas. If unset, selects all clusters."
    )
    model_cache_ref: ReadOnlyCacheRef | None = Field(
        default=None, description="ModelCache that all pods mount at /mnt/models. If unset, no weights are mounted."
    )
    model: ServedModel | None = Field(
        default=None,
        description="Size of the model. New replicas are only scheduled on devices with enough memory for the weights. "
        "If unset, the scheduler does not compare memory.",
    )
    serving: Serving | None = Field(
        default=None, description="Routing of requests to the engines. If unset, the mode is Unified."
    )
    tolerations: Annotated[list[Toleration], Atomic()] | None = Field(
        default=None, description="Tolerations of cluster taints. If unset, replicas tolerate no taints."
    )
    engines: Annotated[list[Engine], ListMap(("name",))] = Field(
        min_length=1, max_length=8, description="Engines of the model. Each replica runs all engines."
    )


class ReplicaTemplate(Model):
    """Template of the replicas."""

    metadata: TemplateMetadata | None = Field(
        default=None, description="Metadata of the objects that are created for each replica."
    )
    spec: ReplicaTemplateSpec = Field(description="Desired state of each replica.")


class SpreadConstraint(Model):
    """Spread of replicas over the values of a cluster label."""

    topology_key: Annotated[str, Words(_KEY_WORDS)] = Field(
        min_length=1,
        max_length=317,
        pattern=KEY,
        description="Label key of InferenceClusters. The label `modelplane.ai/cluster` contains the name of the "
        "cluster.",
    )
    max_skew: int = Field(
        default=1,
        ge=1,
        le=1000,
        description="Maximum difference between the numbers of replicas of any two label values. Defaults to 1.",
    )
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"] = Field(
        default="DoNotSchedule",
        description="Action if no cluster satisfies the constraint. DoNotSchedule leaves the replica pending. "
        "ScheduleAnyway only prefers label values with fewer replicas. Defaults to DoNotSchedule.",
    )


class PreferredClusters(Model):
    """Preferred clusters, by label."""

    match_labels: dict[str, LabelValue] = Field(
        min_length=1,
        max_length=16,
        description="Map of label keys and values. A cluster must match all entries. The label `modelplane.ai/cluster` "
        "contains the name of the cluster.",
    )


class ClusterPreferences(Model):
    """Order of clusters for scheduling."""

    terms: Annotated[list[PreferredClusters], Atomic()] = Field(
        min_length=1,
        max_length=8,
        description="Preferred clusters, most preferred first. If the clusters of a term have no free capacity, the "
        "clusters of the next term receive replicas. Clusters without a matching term are last.",
    )
    return_: bool = Field(
        default=False,
        alias="return",
        description="Whether replicas move back to more preferred clusters when these have free capacity. Replicas "
        "move one at a time, and a replica is removed when its replacement serves. Defaults to false.",
    )


class MinAvailable(Model):
    """Minimum number of replicas in the fleet, or per value of a cluster label."""

    topology_key: Annotated[str, Words(_KEY_WORDS)] | None = Field(
        default=None,
        min_length=1,
        max_length=317,
        pattern=KEY,
        description="Label key of InferenceClusters. The minimum applies to each value of the label. The label "
        "`modelplane.ai/cluster` contains the name of the cluster. If unset, the minimum applies to the fleet.",
    )
    replicas: int = Field(ge=1, le=1000, description="Minimum number of replicas.")


class SpotLimits(Model):
    """Limits on replicas on spot nodes."""

    max: int | None = Field(
        default=None,
        ge=0,
        le=1000,
        description="Maximum number of replicas on spot nodes. If unset, there is no limit.",
    )
    min_on_demand: int = Field(
        default=0, ge=0, le=1000, description="Minimum number of replicas that do not use spot nodes. Defaults to 0."
    )


class CostLimits(Model):
    """Cost limits of the deployment. They never remove running replicas."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            ids=("MD-32",),
            message="currency is allowed only with ceilingPerHour",
            cel="!has(self.currency) || has(self.ceilingPerHour)",
            check=lambda cost: cost.currency is None or cost.ceiling_per_hour is not None,
            hint="Remove currency, or give ceilingPerHour",
            schema={"if": {"required": ["currency"]}, "then": {"required": ["ceilingPerHour"]}},
        ),
    )

    ceiling_per_hour: Amount | None = Field(
        default=None, description="Maximum cost of all replicas per hour. If unset, there is no limit."
    )
    currency: Currency | None = Field(
        default=None, description="Currency of ceilingPerHour. Defaults to the currency of the node prices."
    )
    spot: SpotLimits | None = Field(
        default=None, description="Limits on replicas on spot nodes. If unset, there is no limit."
    )


ReplicaBound = Annotated[
    str, Words("must be a number of replicas such as 2, or a percentage such as 25%"), IntOrString()
]
_BOUND = r"^(0|[1-9][0-9]{0,3}|(0|[1-9][0-9]?|100)%)$"
_NONE = ("0", "0%")


class Rollout(Model):
    """Pace of a rollout. All fields count the replicas of the deployment on all clusters."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            ids=("MD-35",),
            message="maxUnavailable and maxSurge must not both be 0",
            cel="!has(self.maxUnavailable) || !has(self.maxSurge) || "
            "!(string(self.maxUnavailable) in ['0', '0%'] && string(self.maxSurge) in ['0', '0%'])",
            check=lambda rollout: rollout.max_unavailable not in _NONE or rollout.max_surge not in _NONE,
            hint="Set maxSurge: 1 to start each new replica before an old replica stops, or maxUnavailable: 1 to "
            "restart replicas in place",
            schema={
                "if": {
                    "required": ["maxUnavailable", "maxSurge"],
                    "properties": {"maxUnavailable": {"enum": [0, *_NONE]}},
                },
                "then": {"properties": {"maxSurge": {"not": {"enum": [0, *_NONE]}}}},
            },
        ),
    )

    max_unavailable: ReplicaBound | None = Field(
        default=None,
        max_length=4,
        pattern=_BOUND,
        description="Maximum number of replicas that can be unavailable during a rollout: a number, or a percentage "
        "of spec.replicas, rounded down. If maxUnavailable and maxSurge both round to 0, maxUnavailable is 1. Defaults "
        "to 25%, but at least 1.",
    )
    max_surge: ReplicaBound | None = Field(
        default=None,
        max_length=4,
        pattern=_BOUND,
        description="Maximum number of replicas above spec.replicas during a rollout: a number, or a percentage of "
        "spec.replicas, rounded up. Surge replicas require free devices. Defaults to 25%.",
    )

    @model_validator(mode="before")
    @classmethod
    def _whole_numbers_as_text(cls, value: Any) -> Any:
        return whole_numbers_as_text(value)

    def unavailable(self, replicas: int) -> int:
        """Return maxUnavailable as a number of replicas. If both bounds round to 0, maxUnavailable is 1, as in
        Kubernetes, because no rollout could proceed otherwise."""
        bound = max(1, replicas // 4) if self.max_unavailable is None else _replicas_of(self.max_unavailable, replicas)
        return bound or int(self.surge(replicas) == 0)

    def surge(self, replicas: int) -> int:
        """Return maxSurge as a number of replicas."""
        return _replicas_of(self.max_surge or "25%", replicas, round_up=True)


def _replicas_of(bound: str, replicas: int, *, round_up: bool = False) -> int:
    if not bound.endswith("%"):
        return int(bound)
    share = int(bound[:-1]) * replicas
    return -(-share // 100) if round_up else share // 100


class ModelDeploymentSpec(Spec):
    """Desired state of the deployment."""

    replicas: int = Field(
        default=1,
        ge=0,
        le=1000,
        description="Desired number of replicas. Set 0 to remove all replicas. Defaults to 1.",
    )
    spread: Annotated[list[SpreadConstraint], ListMap(("topologyKey",))] | None = Field(
        default=None, max_length=4, description="Spread of replicas over the values of cluster labels."
    )
    cluster_preferences: ClusterPreferences | None = Field(
        default=None, description="Order of clusters for scheduling. If unset, there is no preference."
    )
    min_available: Annotated[list[MinAvailable], Atomic()] | None = Field(
        default=None,
        max_length=4,
        description="Minimum number of replicas in the fleet, or per value of a cluster label.",
    )
    preemption: Literal["Never", "LowerPriority"] | None = Field(
        default=None,
        description="Preemption policy. With LowerPriority, pending replicas can replace running replicas of "
        "deployments with a lower annotation `modelplane.ai/priority`. Defaults to Never.",
    )
    rollout: Rollout | None = Field(
        default=None, description="Pace of rollouts. If unset, the defaults of its fields apply."
    )
    template: ReplicaTemplate = Field(description="Template of the replicas.")
    cost: CostLimits | None = Field(
        default=None,
        description="Cost limits of the deployment. If set, new replicas are scheduled on the cheapest nodes with free "
        "capacity.",
    )


class ReplicaCounts(Model):
    """Numbers of replicas."""

    total: int | None = Field(
        default=None,
        description="Number of existing replicas, including replicas that remain until their replacements serve.",
    )
    ready: int | None = Field(default=None, description="Number of serving replicas.")
    updated: int | None = Field(
        default=None,
        description="Number of replicas with the current revision. If unset, all replicas have the current revision.",
    )
    leaving: int | None = Field(
        default=None,
        description="Number of replicas that are removed when their replacements serve. If unset, no replica is "
        "removed.",
    )


class ModelDeploymentStatus(Status):
    """Observed state of the replicas."""

    replicas: ReplicaCounts | None = Field(default=None, description="Numbers of replicas.")
    selector: str | None = Field(
        default=None, description="Label selector of the ModelReplicas, for the scale subresource."
    )


class ModelDeployment(Resource):
    """Replicas of a model on the clusters of the fleet."""

    RULES: ClassVar[tuple[Rule, ...]] = (name_rule("MD-23", label=True),)

    KIND: ClassVar[str] = "ModelDeployment"
    PLURAL: ClassVar[str] = "modeldeployments"
    SHORT_NAMES: ClassVar[tuple[str, ...]] = ("md",)
    COLUMNS: ClassVar[tuple[Column, ...]] = (
        Column("DESIRED", ".spec.replicas", "integer"),
        Column("PLACED", ".status.replicas.total", "integer", "Number of existing replicas."),
        Column("REPLICAS", ".status.replicas.ready", "integer", "Number of serving replicas."),
        Column("UPDATED", ".status.replicas.updated", "integer", "Number of replicas with the current revision."),
    )
    SCALE: ClassVar[tuple[str, str, str] | None] = (".spec.replicas", ".status.replicas.total", ".status.selector")

    spec: ModelDeploymentSpec = Field(description="Desired state of the deployment.")
    status: ModelDeploymentStatus | None = Field(default=None, description="Observed state of the deployment.")
