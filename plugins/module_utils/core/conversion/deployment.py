# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Conversion of a ModelDeployment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .. import text
from . import workers
from .notes import Notes, given_entries

ENGINE_NAME = "main"
TEMPLATE = "spec.template"
REPLICA = "spec.template.spec"
REPLICA_FIELDS = ("clusterSelector", "modelCacheRef", "serving", "tolerations")
WORKER_FIELDS = ("workers", "nodeSelector", "engine", "prefill", "decode")

FORMER_FIELDS = {
    **workers.FORMER_FIELDS,
    "topology": "Move it to spec.workers.topology.",
    "environmentSelector": "Write spec.template.spec.clusterSelector.",
    "scaling": "Set spec.replicas, or let an autoscaler set it through the scale subresource.",
    "model": "Name the model in the args of the engine (--model=...), or refer to a ModelCache with modelCacheRef.",
}


def model_deployment(spec: dict[str, Any], notes: Notes) -> dict[str, Any]:
    spec_fields = given_entries(spec)
    for name, hint in FORMER_FIELDS.items():
        if name in spec_fields:
            notes.error(f"spec.{name}", "is a field of an earlier design that has no counterpart", hint=hint)
    if "template" in spec_fields:
        _refuse_mix(spec_fields, (*REPLICA_FIELDS, "engines", *WORKER_FIELDS), "template", notes)
        return spec
    if "engines" in spec_fields:
        _refuse_mix(spec_fields, WORKER_FIELDS, "engines", notes)
        return _from_flat_engines(spec, notes)
    if "workers" in spec_fields or "decode" in spec_fields:
        return _from_workers(spec_fields, notes)
    for name in ("nodeSelector", "engine", "prefill"):
        if name in spec_fields:
            notes.error(
                f"spec.{name}",
                "has no effect without spec.workers",
                hint="Add spec.workers with topology and template, or describe engines in spec.template.spec.engines.",
            )
    return spec


def _refuse_mix(spec_fields: Mapping[str, Any], names: Iterable[str], format_field: str, notes: Notes) -> None:
    for name in names:
        if name not in spec_fields:
            continue
        if name in REPLICA_FIELDS or name == "engines":
            hint = f"Move it to spec.template.spec.{name}."
        else:
            hint = "Keep one of the two; engines and their members express all that workers, prefill and decode do."
        notes.error(f"spec.{name}", f"cannot be combined with spec.{format_field}, which is another format", hint=hint)


def _from_flat_engines(spec: dict[str, Any], notes: Notes) -> dict[str, Any]:
    """Convert the v0.1 format with the fields of `spec.template.spec` directly under `spec`."""
    notes.older("spec.engines", "spec.template.spec.engines")
    moved = {name: spec[name] for name in (*REPLICA_FIELDS, "engines") if spec.get(name) is not None}
    notes.origin.update({TEMPLATE: "spec", REPLICA: "spec"})
    former = (*REPLICA_FIELDS, "engines", "template", *WORKER_FIELDS)
    other_fields = {name: value for name, value in spec.items() if name not in former}
    return {**other_fields, "template": {"spec": moved}}


def _from_workers(spec: dict[str, Any], notes: Notes) -> dict[str, Any]:
    """Convert the format with `workers` and `topology` to one engine, or to a prefill and a decode engine."""
    notes.origin.update({TEMPLATE: "spec", REPLICA: "spec"})
    base = "spec"
    block: Any = {name: spec[name] for name in workers.ROLE_FIELDS if name in spec}
    if "decode" in spec:
        for name in block:
            notes.error(f"spec.{name}", "cannot be combined with spec.decode", hint=f"Move it to spec.decode.{name}.")
        if "prefill" not in spec:
            notes.error(
                "spec.decode",
                "spec.decode requires spec.prefill",
                hint="Add spec.prefill, or put nodeSelector and workers directly under spec.",
            )
        base, block = "spec.decode", spec["decode"]
    moved = {name: spec[name] for name in REPLICA_FIELDS if name in spec}
    cached = "modelCacheRef" in spec
    roles: list[tuple[str, str | None, str, Any]]
    if "prefill" in spec:
        moved["serving"] = _split_serving(spec.get("serving"), notes)
        roles = [("prefill", "Prefill", "spec.prefill", spec["prefill"]), ("decode", "Decode", base, block)]
    else:
        serving = spec.get("serving")
        if isinstance(serving, dict) and serving.get("mode") == "PrefillDecode":
            notes.error("spec.serving.mode", "PrefillDecode needs spec.prefill", hint="Add spec.prefill.")
        roles = [(ENGINE_NAME, None, base, block)]
    engines = []
    for index, (name, phase, path, content) in enumerate(roles):
        role = workers.Role(name, phase, path, f"{REPLICA}.engines[{index}]", cached)
        engine = role.engine(content, notes)
        if engine is not None:
            engines.append(engine)
    other_fields = {name: value for name, value in spec.items() if name not in (*REPLICA_FIELDS, *WORKER_FIELDS)}
    return {**other_fields, "template": {"spec": {**moved, "engines": engines}}}


def _split_serving(serving: Any, notes: Notes) -> dict[str, Any]:
    if serving is None:
        return {"mode": "PrefillDecode"}
    if not isinstance(serving, dict):
        notes.error("spec.serving", "must be a mapping", text.short_value(serving))
        return {}
    mode = serving.get("mode")
    if mode not in (None, "PrefillDecode"):
        notes.error(
            "spec.serving.mode",
            "contradicts spec.prefill, which makes the deployment PrefillDecode",
            text.short_value(mode),
            "Leave spec.serving out, or remove spec.prefill.",
        )
    return {**serving, "mode": "PrefillDecode"}
