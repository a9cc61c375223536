# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Engines: common fields and rules of ModelDeployments and ModelReplicas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal

from ..._pydantic import Field
from .base import Atomic, DNSLabel, JSONSchema, Model, Rule, Violation, Words, allowed_if, has, without

Mode = Literal["Unified", "PrefillDecode"]
Phase = Literal["Prefill", "Decode"]
Role = Literal["Standalone", "Leader", "Worker"]
Layout = Literal["Folder", "HubCache"]

_SPLIT = "(has(self.serving) && self.serving.mode == 'PrefillDecode')"
_SPLIT_SCHEMA: JSONSchema = {
    "properties": {"serving": has("mode", "PrefillDecode")},
    "required": ["serving"],
}
_SHAPE_SCHEMA: JSONSchema = {
    "if": {"minItems": 2},
    "then": {"allOf": [{"contains": has("role", role)} for role in ("Leader", "Worker")]},
    "else": {"items": has("role", "Standalone", absent=True)},
}


class ModelCacheRef(Model):
    """Reference to a ModelCache in the same namespace."""

    name: str = Field(min_length=1, description="Name of the ModelCache.")


class ReadOnlyCacheRef(ModelCacheRef):
    """Reference to a ModelCache in the same namespace, with mount settings."""

    read_only: bool | None = Field(
        default=None,
        description="Whether pods mount the weights read-only, with a separate directory for Python modules of the "
        "model (HF_MODULES_CACHE). If unset, new replicas mount read-only, and existing replicas keep their mount "
        "until they roll.",
    )


class ClusterSelector(Model):
    """Selector of InferenceClusters by label."""

    match_labels: dict[str, str] | None = Field(
        default=None,
        description="Map of label keys and values. A cluster must match all entries. The label `modelplane.ai/cluster` "
        "contains the name of the cluster. If unset, selects all clusters.",
    )


class Selector(Model):
    """Condition on a device."""

    MIN_PROPERTIES: ClassVar[int] = 1

    cel: str | None = Field(
        default=None,
        min_length=1,
        max_length=10240,
        description="CEL expression that returns true for a matching device. It can read device.driver, "
        "device.attributes and device.capacity.",
    )


# FullyQualifiedName of resource.k8s.io/v1: a DNS subdomain as the domain, and a C identifier.
_ATTRIBUTE = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z_][A-Za-z0-9_]*$"


class DeviceConstraint(Model):
    """Constraint on the devices that a pod claims together."""

    requests: Annotated[list[DNSLabel], Atomic()] | None = Field(
        default=None,
        min_length=1,
        max_length=16,
        description="Names of the requests that the constraint applies to. If unset, the constraint applies to all "
        "requests.",
    )
    match_attribute: Annotated[str, Words("must be domain/name, such as resource.kubernetes.io/pcieRoot")] = Field(
        min_length=3,
        max_length=96,
        pattern=_ATTRIBUTE,
        description="Attribute (domain/name) that must have the same value for all devices of the requests.",
    )


def constraint_rule(identifier: str, requests: str, constraints: str, read: Callable[[Any], tuple[Any, Any]]) -> Rule:
    """Return the rule that constraints only contain names of existing requests.

    requests, constraints: names of the fields.
    read: returns the values of the fields.
    """

    def check(model: Any) -> list[Violation]:
        request_values, constraint_values = read(model)
        names = {request.name for request in request_values or ()}
        return [
            Violation((constraints, index, "requests", position), value=name)
            for index, constraint in enumerate(constraint_values or ())
            for position, name in enumerate(constraint.requests or ())
            if name not in names
        ]

    return Rule(
        ids=(identifier,),
        message=f"requests of a constraint must be names of {requests}",
        cel=(
            f"!has(self.{constraints}) || self.{constraints}.all(c, !has(c.requests) || "
            f"c.requests.all(r, has(self.{requests}) && self.{requests}.exists(d, d.name == r)))"
        ),
        check=check,
        hint="Write the name of a request, or leave requests out to mean all of them",
    )


class Worker(Model):
    """Size of the Worker member of an engine."""

    nodes: int = Field(
        ge=1, le=63, description="Number of Worker pods, each on a separate node. It does not include the Leader."
    )


class Stall(Model):
    """Detection of an engine that hangs: it responds to GET /health but computes no tokens."""

    seconds: int = Field(
        default=300,
        ge=60,
        le=3600,
        description="Number of seconds without progress after which the probe requests one token from the engine. "
        "Defaults to 300.",
    )
    action: Literal["Report", "Restart"] = Field(
        default="Report",
        description="Action if the engine does not respond. Report writes a line to the log of the container. Restart "
        "also restarts the container after three consecutive failures. Defaults to Report.",
    )


class EngineBase(Model):
    """Common fields of the engines of ModelDeployments and ModelReplicas."""

    name: DNSLabel = Field(description="Name of the engine. It is part of the names of workloads.")
    copies: int = Field(
        default=1,
        ge=1,
        le=64,
        description="Number of engine copies (data-parallel groups) in each replica. Defaults to 1.",
    )
    phase: Phase | None = Field(
        default=None,
        description="Phase of the engine in serving mode PrefillDecode. Required in this mode, otherwise not allowed.",
    )
    startup_minutes: int | None = Field(
        default=None,
        ge=1,
        le=1440,
        description="Maximum startup time of the engine in minutes, after which its container restarts. Defaults to "
        "60.",
    )
    port: int | None = Field(
        default=None,
        ge=1,
        le=65535,
        description="Port of the engine's API, which the gateway and probes use. It does not configure the engine. "
        "Defaults to 8000, or for a Decode engine to its `--port` or 8001. The sidecar uses the port of the Prefill "
        "engine.",
    )
    health_path: Annotated[str, Words("must be a path such as /health")] | None = Field(
        default=None,
        min_length=1,
        max_length=256,
        pattern=r"^/[!-~]*$",
        description="Path of the startup and readiness probes. Defaults to the path of the inference server if it is "
        "known, otherwise to /health.",
    )
    stall: Stall | None = Field(
        default=None, description="Detection of an engine that hangs. If unset, the defaults of its fields apply."
    )


def _split(spec: Any) -> bool:
    return spec.serving is not None and spec.serving.mode == "PrefillDecode"


def _one_phase(phase: str) -> Any:
    def check(spec: Any) -> bool:
        return not _split(spec) or sum(engine.phase == phase for engine in spec.engines) == 1

    return check


def _phases_without_split(spec: Any) -> list[Violation]:
    if _split(spec):
        return []
    return [
        Violation(("engines", index, "phase"), value=engine.phase)
        for index, engine in enumerate(spec.engines)
        if engine.phase is not None
    ]


def phase_rules(ids: tuple[str, str, str, str]) -> tuple[Rule, ...]:
    """Return the rules with these ids for engines and the serving mode."""
    two, prefill, decode, unified = ids
    return (
        Rule(
            ids=(two,),
            message="serving mode PrefillDecode needs exactly two engines",
            cel=f"!{_SPLIT} || self.engines.size() == 2",
            check=lambda spec: not _split(spec) or len(spec.engines) == 2,
            hint="Give one engine with phase: Prefill and one with phase: Decode",
            schema={"if": _SPLIT_SCHEMA, "then": {"properties": {"engines": {"minItems": 2, "maxItems": 2}}}},
        ),
        *(
            Rule(
                ids=(identifier,),
                message=f"serving mode PrefillDecode needs exactly one engine with phase {phase}",
                cel=f"!{_SPLIT} || self.engines.exists_one(e, has(e.phase) && e.phase == '{phase}')",
                check=_one_phase(phase),
                hint=f"Set phase: {phase} on one engine",
                schema={
                    "if": _SPLIT_SCHEMA,
                    "then": {"properties": {"engines": {"contains": has("phase", phase)}}},
                },
            )
            for identifier, phase in ((prefill, "Prefill"), (decode, "Decode"))
        ),
        Rule(
            ids=(unified,),
            message="phase is allowed only when serving mode is PrefillDecode",
            cel=f"{_SPLIT} || self.engines.all(e, !has(e.phase))",
            check=_phases_without_split,
            hint="Remove phase, or set serving: {mode: PrefillDecode}",
            schema={
                "if": _SPLIT_SCHEMA,
                "else": {"properties": {"engines": {"items": without("phase")}}},
            },
        ),
    )


def _shape(engine: Any) -> bool:
    roles = [member.role for member in engine.members]
    return roles == ["Standalone"] or (roles.count("Leader") == 1 and "Worker" in roles and "Standalone" not in roles)


def shape_rule(identifier: str) -> Rule:
    """Return the rule with this id for the roles of the members of an engine."""
    return Rule(
        ids=(identifier,),
        message="members must be one Standalone, or one Leader and one Worker",
        cel=(
            "(self.members.size() == 1 && self.members[0].role == 'Standalone') || "
            "(self.members.exists_one(m, m.role == 'Leader') && self.members.exists(m, m.role == 'Worker') && "
            "!self.members.exists(m, m.role == 'Standalone'))"
        ),
        check=_shape,
        hint="A Standalone engine has one pod. A Leader and a Worker are a multi-node engine",
        schema={"properties": {"members": _SHAPE_SCHEMA}},
    )


def worker_rule(identifier: str) -> Rule:
    """Return the rule with this id that allows `worker` only for the role Worker."""
    return Rule(
        ids=(identifier,),
        message="worker is allowed only when role is Worker",
        cel="!has(self.worker) || self.role == 'Worker'",
        check=lambda member: member.worker is None or member.role == "Worker",
        hint="Set role: Worker or remove worker",
        schema=allowed_if(has("role", "Worker"), "worker"),
    )
