# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Engines: what a ModelDeployment asks for and a ModelReplica runs, and the rules both share."""

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
    """A ModelCache of the same namespace."""

    name: str = Field(min_length=1, description="Name of the ModelCache.")


class ReadOnlyCacheRef(ModelCacheRef):
    """A ModelCache of the same namespace, and how pods mount it."""

    read_only: bool | None = Field(
        default=None,
        description="Whether pods mount the weights read-only, with a separate directory for Python modules of the "
        "model (HF_MODULES_CACHE). If unset, new replicas mount read-only, others keep their mount until they roll.",
    )


class ClusterSelector(Model):
    """Selector of clusters by their labels."""

    match_labels: dict[str, str] | None = Field(
        default=None,
        description="Labels a cluster must have, all of them with these values; `modelplane.ai/cluster` is its name.",
    )


class Selector(Model):
    """A condition on one device."""

    MIN_PROPERTIES: ClassVar[int] = 1

    cel: str | None = Field(
        default=None,
        min_length=1,
        max_length=10240,
        description="CEL expression over device.driver, device.attributes and device.capacity.",
    )


# resource.k8s.io/v1: a FullyQualifiedName, the domain of which is a DNS subdomain and the rest a C identifier.
_ATTRIBUTE = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z_][A-Za-z0-9_]*$"


class DeviceConstraint(Model):
    """Attributes that the devices of one pod must have in common."""

    requests: Annotated[list[DNSLabel], Atomic()] | None = Field(
        default=None, min_length=1, max_length=16, description="Requests whose devices are meant; absent is all."
    )
    match_attribute: Annotated[str, Words("must be domain/name, such as resource.kubernetes.io/pcieRoot")] = Field(
        min_length=3,
        max_length=96,
        pattern=_ATTRIBUTE,
        description="Attribute (domain/name) that all these devices must have, with the same value.",
    )


def constraint_rule(identifier: str, requests: str, constraints: str, read: Callable[[Any], tuple[Any, Any]]) -> Rule:
    """The rule that constraints name requests, under this id: the fields of both, and how to read them."""

    def check(model: Any) -> list[Violation]:
        asked, written = read(model)
        names = {request.name for request in asked or ()}
        return [
            Violation((constraints, index, "requests", position), value=name)
            for index, constraint in enumerate(written or ())
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
    """Size of the Worker part of an engine."""

    nodes: int = Field(ge=1, le=63, description="Worker pods, one on each node; the Leader is not counted.")


class Stall(Model):
    """Detection of an engine that hangs: it responds to GET /health but computes no tokens."""

    seconds: int = Field(
        default=300,
        ge=60,
        le=3600,
        description="Number of seconds without progress after which the probe requests one token from the engine.",
    )
    action: Literal["Report", "Restart"] = Field(
        default="Report",
        description="Action if the engine does not respond. Report writes a line to the log of the container. Restart "
        "also restarts the container after three consecutive failures.",
    )


class EngineBase(Model):
    """Fields that the engines of a deployment and of its replicas share."""

    name: DNSLabel = Field(description="Name of the engine; part of workload names.")
    copies: int = Field(default=1, ge=1, le=64, description="Equal copies of the engine.")
    phase: Phase | None = Field(default=None, description="Half of a PrefillDecode pair; not allowed otherwise.")
    startup_minutes: int | None = Field(
        default=None,
        ge=1,
        le=1440,
        description="Maximum startup time of the engine in minutes. Then its container restarts. Defaults to 60.",
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
    """The rules on engines and the serving mode, under these ids."""
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
    """The rule on the roles of an engine's members, under this id."""
    return Rule(
        ids=(identifier,),
        message="members must be one Standalone, or one Leader and one Worker",
        cel=(
            "(self.members.size() == 1 && self.members[0].role == 'Standalone') || "
            "(self.members.exists_one(m, m.role == 'Leader') && self.members.exists(m, m.role == 'Worker') && "
            "!self.members.exists(m, m.role == 'Standalone'))"
        ),
        check=_shape,
        hint="One member is one pod on one node; Leader and Worker together are a gang over several nodes",
        schema={"properties": {"members": _SHAPE_SCHEMA}},
    )


def worker_rule(identifier: str) -> Rule:
    """The rule that only a Worker has a size, under this id."""
    return Rule(
        ids=(identifier,),
        message="worker is allowed only when role is Worker",
        cel="!has(self.worker) || self.role == 'Worker'",
        check=lambda member: member.worker is None or member.role == "Worker",
        hint="Set role: Worker or remove worker",
        schema=allowed_if(has("role", "Worker"), "worker"),
    )
