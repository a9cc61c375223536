# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""ModelDeployment: run a model on the fleet, in so many replicas."""

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
        default="Unified", description="Unified: each engine does it all. PrefillDecode: a pair shares the work."
    )


class Toleration(Model):
    """Lets replicas onto clusters with a taint."""

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

    key: str | None = Field(default=None, description="Key of the taint; absent, with Exists, is every taint.")
    operator: Literal["Exists", "Equal"] = Field(
        default="Equal", description="Equal compares key and value, Exists the key alone."
    )
    value: str | None = Field(default=None, description="Value of the taint; absent is the same as empty.")
    effect: Literal["NoSchedule", "NoExecute"] | None = Field(
        default=None, description="Effect of the taint; absent is both."
    )


class DeviceRequest(Model):
    """Devices that one pod needs."""

    name: DNSLabel = Field(description="Name of the request, carried into the claim.")
    count: int = Field(default=1, ge=1, le=64, description="How many devices of one node.")
    selectors: Annotated[list[Selector], Atomic()] = Field(
        min_length=1, max_length=8, description="Conditions that a device must meet, all of them."
    )


class NodeSelector(Model):
    """Requirements on a node."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        constraint_rule("MD-24", "devices", "constraints", lambda node: (node.devices, node.constraints)),
    )

    devices: Annotated[list[DeviceRequest], ListMap(("name",))] = Field(
        min_length=1, max_length=16, description="Requests; a pool must meet all of them."
    )
    constraints: Annotated[list[DeviceConstraint], Atomic()] | None = Field(
        default=None, max_length=8, description="What the claimed devices must have in common."
    )


class Member(Model):
    """A kind of pod in an engine."""

    RULES: ClassVar[tuple[Rule, ...]] = (worker_rule("MD-13"),)

    role: Role = Field(
        default="Standalone", description="Standalone is the whole engine; Leader and Worker make a gang."
    )
    node_selector: NodeSelector | None = Field(
        default=None, description="Devices one pod needs; absent claims nothing."
    )
    worker: Worker | None = Field(default=None, description="Size of the Worker part; absent is one node.")
    template: PodTemplate = Field(description="The pod.")


class Engine(EngineBase):
    """An inference engine: one pod, or a gang of pods on several nodes."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        shape_rule("MD-11"),
        Rule(
            ids=("MD-12",),
            message="at least one member must have nodeSelector",
            cel="self.members.exists(m, has(m.nodeSelector))",
            check=lambda engine: any(member.node_selector is not None for member in engine.members),
            hint="Ask for devices in nodeSelector.devices",
            schema={"properties": {"members": {"contains": {"required": ["nodeSelector"]}}}},
        ),
    )

    copies: int = Field(default=1, ge=1, le=64, description="Equal copies of the engine in each replica.")
    members: Annotated[list[Member], Atomic()] = Field(
        min_length=1, max_length=2, description="One Standalone, or one Leader and one Worker."
    )


class TemplateMetadata(Model):
    """Metadata of what is made for a replica."""

    RULES: ClassVar[tuple[Rule, ...]] = template_label_rules(
        reserved=("MD-1",), syntax=("MD-2",), prefix=("MD-3",), value=("MD-4",)
    )

    labels: dict[str, LabelValue] | None = Field(
        default=None, max_length=32, description="Labels for ModelReplicas and ModelEndpoints."
    )


class ServedModel(Model):
    """Size of a model, for comparison with the memory of devices."""

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
        description="Parameters, those of all experts included, such as 32.8B.",
    )
    dtype: Literal["float32", "float16", "bfloat16", "float8", "int8", "float4", "int4"] = Field(
        description="Type of the weights in the memory of devices."
    )
    context_length: int | None = Field(
        default=None,
        ge=1,
        le=100_000_000,
        description="Tokens, of prompt and answer, of the longest request; absent is what the engine's flags set.",
    )
    layers: int | None = Field(default=None, ge=1, le=10_000, description="Layers that have a KV cache.")
    kv_heads: int | None = Field(default=None, ge=1, le=10_000, description="Heads of keys and values in each layer.")
    head_dim: int | None = Field(default=None, ge=1, le=100_000, description="Numbers in each key and each value.")


class ReplicaTemplateSpec(Model):
    """A replica of the model."""

    RULES: ClassVar[tuple[Rule, ...]] = phase_rules(("MD-5", "MD-6", "MD-7", "MD-8"))

    cluster_selector: ClusterSelector | None = Field(
        default=None, description="Which clusters replicas may be placed on; absent is any."
    )
    model_cache_ref: ReadOnlyCacheRef | None = Field(
        default=None, description="ModelCache mounted into every pod at /mnt/models."
    )
    model: ServedModel | None = Field(
        default=None,
        description="Size of the model; new replicas go only where its weights fit the memory of devices. Absent is "
        "not known.",
    )
    serving: Serving | None = Field(default=None, description="How requests reach the engines; absent is Unified.")
    tolerations: Annotated[list[Toleration], Atomic()] | None = Field(
        default=None, description="Taints of clusters that do not keep replicas away."
    )
    engines: Annotated[list[Engine], ListMap(("name",))] = Field(
        min_length=1, max_length=8, description="Engines; every replica runs all of them."
    )


class ReplicaTemplate(Model):
    """Template of each replica."""

    metadata: TemplateMetadata | None = Field(default=None, description="Metadata of what is made for a replica.")
    spec: ReplicaTemplateSpec = Field(description="A replica of the model.")


class SpreadConstraint(Model):
    """A label of clusters over whose values the replicas are spread."""

    topology_key: Annotated[str, Words(_KEY_WORDS)] = Field(
        min_length=1,
        max_length=317,
        pattern=KEY,
        description="Label of InferenceClusters; `modelplane.ai/cluster` is their name.",
    )
    max_skew: int = Field(
        default=1, ge=1, le=1000, description="How many replicas a value may have more than the one with fewest."
    )
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"] = Field(
        default="DoNotSchedule",
        description="DoNotSchedule keeps replicas pending; ScheduleAnyway only prefers values with fewer replicas.",
    )


class PreferredClusters(Model):
    """Clusters that replicas prefer."""

    match_labels: dict[str, LabelValue] = Field(
        min_length=1,
        max_length=16,
        description="Labels of the clusters, all of them; `modelplane.ai/cluster` is the name.",
    )


class ClusterPreferences(Model):
    """Order of clusters that replicas go to."""

    terms: Annotated[list[PreferredClusters], Atomic()] = Field(
        min_length=1,
        max_length=8,
        description="Most preferred first. When clusters of a term are full, those of the next take replicas; clusters "
        "of no term are last.",
    )
    return_: bool = Field(
        default=False,
        alias="return",
        description="Whether replicas come back to more preferred clusters that have room, one at a time, each removed "
        "once the new one serves.",
    )


class MinAvailable(Model):
    """Fewest replicas of a part of the fleet."""

    topology_key: Annotated[str, Words(_KEY_WORDS)] | None = Field(
        default=None,
        min_length=1,
        max_length=317,
        pattern=KEY,
        description="Label of InferenceClusters, each value of which has the replicas; `modelplane.ai/cluster` is "
        "their name. Absent is the whole fleet.",
    )
    replicas: int = Field(ge=1, le=1000, description="How many replicas at least.")


class SpotLimits(Model):
    """Replicas on spot nodes."""

    max: int | None = Field(default=None, ge=0, le=1000, description="Most replicas on spot nodes; absent is all.")
    min_on_demand: int = Field(default=0, ge=0, le=1000, description="Replicas that are kept off spot nodes.")


class CostLimits(Model):
    """Limits on the cost of a deployment. What runs is never removed for them."""

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
        default=None, description="Most that all replicas may cost together for an hour; absent is no limit."
    )
    currency: Currency | None = Field(
        default=None, description="Currency of ceilingPerHour; absent is that of the prices of the fleet."
    )
    spot: SpotLimits | None = Field(default=None, description="How many replicas may be on spot nodes; absent is all.")


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
    """Replicas of a model."""

    replicas: int = Field(default=1, ge=0, le=1000, description="How many replicas; 0 runs nothing, absent is one.")
    spread: Annotated[list[SpreadConstraint], ListMap(("topologyKey",))] | None = Field(
        default=None, max_length=4, description="Labels of clusters over whose values the replicas are spread."
    )
    cluster_preferences: ClusterPreferences | None = Field(
        default=None, description="Order of clusters that replicas go to; absent is any."
    )
    min_available: Annotated[list[MinAvailable], Atomic()] | None = Field(
        default=None, max_length=4, description="Fewest replicas, of the fleet or of each value of a label of clusters."
    )
    preemption: Literal["Never", "LowerPriority"] | None = Field(
        default=None,
        description="LowerPriority: new replicas may take the place of running replicas of deployments with a lower "
        "`modelplane.ai/priority`. Absent is Never.",
    )
    rollout: Rollout | None = Field(
        default=None, description="Pace of rollouts. If unset, the defaults of the fields apply."
    )
    template: ReplicaTemplate = Field(description="What each replica is made from.")
    cost: CostLimits | None = Field(
        default=None, description="Limits on cost; when given, new replicas take the cheapest places there are."
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
    selector: str | None = Field(default=None, description="Labels of its ModelReplicas, for autoscalers.")


class ModelDeployment(Resource):
    """A model that runs on the fleet, in so many replicas."""

    RULES: ClassVar[tuple[Rule, ...]] = (name_rule("MD-23", label=True),)

    KIND: ClassVar[str] = "ModelDeployment"
    PLURAL: ClassVar[str] = "modeldeployments"
    SHORT_NAMES: ClassVar[tuple[str, ...]] = ("md",)
    COLUMNS: ClassVar[tuple[Column, ...]] = (
        Column("DESIRED", ".spec.replicas", "integer"),
        Column("PLACED", ".status.replicas.total", "integer", "Existing replicas."),
        Column("REPLICAS", ".status.replicas.ready", "integer", "Replicas that serve."),
        Column("UPDATED", ".status.replicas.updated", "integer", "Replicas that a rollout has updated."),
    )
    SCALE: ClassVar[tuple[str, str, str] | None] = (".spec.replicas", ".status.replicas.total", ".status.selector")

    spec: ModelDeploymentSpec = Field(description="How many replicas of which model.")
    status: ModelDeploymentStatus | None = Field(default=None, description="What is known of the replicas.")
