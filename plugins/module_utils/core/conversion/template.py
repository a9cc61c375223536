# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Conversion of older formats of a member's pod template."""

from __future__ import annotations

from typing import Any

from .. import text
from .notes import Notes, given_entries


def pod_template(template: Any, path: str, notes: Notes) -> dict[str, Any] | None:
    """Return a member template with `containers` and `imagePullSecrets` moved under `spec`."""
    if not isinstance(template, dict):
        notes.error(path, "must be a mapping", text.short_value(template))
        return None
    bare = {name: template[name] for name in ("containers", "imagePullSecrets") if template.get(name) is not None}
    if template.get("spec") is not None:
        for name in bare:
            message = f"cannot be combined with {path}.spec"
            notes.error(f"{path}.{name}", message, hint=f"Move it to {path}.spec.{name}.")
        spec_path = f"{path}.spec"
        spec = template["spec"]
    else:
        other_fields = {
            key: value for key, value in template.items() if key not in ("spec", "containers", "imagePullSecrets")
        }
        template = {**other_fields, "spec": bare}
        spec_path, spec = path, bare
    if not isinstance(spec, dict):
        notes.error(spec_path, "must be a mapping", text.short_value(spec))
        return None
    return template if _one_engine(spec.get("containers"), f"{spec_path}.containers", notes) else None


def _one_engine(containers: Any, path: str, notes: Notes) -> bool:
    hint = "A template has exactly one container, and it is named engine."
    if containers is None or containers == []:
        notes.error(path, "there is no container named engine", hint=hint)
    elif not isinstance(containers, list):
        notes.error(path, "must be a list", text.short_value(containers), hint)
    elif len(containers) > 1:
        notes.error(path, f"there are {len(containers)} containers", hint=hint)
    elif not isinstance(containers[0], dict):
        notes.error(f"{path}[0]", "must be a mapping", text.short_value(containers[0]), hint)
    elif containers[0].get("name") != "engine":
        notes.error(f"{path}[0].name", "must be engine", text.short_value(containers[0].get("name")), hint)
    else:
        return True
    return False


def engine_template(engine: Any, path: str, notes: Notes) -> dict[str, Any] | None:
    """Convert the older block `engine {image, command, args, env, imagePullSecrets}` to a member template."""
    if not isinstance(engine, dict):
        notes.error(path, "must be a mapping", text.short_value(engine))
        return None
    of_container = ("image", "command", "args", "env")
    known_fields = (*of_container, "imagePullSecrets", "name", "version")
    engine_fields = given_entries(engine)
    for name in engine_fields:
        if name not in known_fields:
            notes.unknown(path, name, known_fields[:-2])
    container = {"name": "engine", **{name: engine_fields[name] for name in of_container if name in engine_fields}}
    spec: dict[str, Any] = {"containers": [container]}
    if "imagePullSecrets" in engine_fields:
        spec["imagePullSecrets"] = engine_fields["imagePullSecrets"]
    return {"spec": spec}
