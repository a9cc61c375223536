# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Steps of an installation and of a removal of components, from their plan (`stack`) and a snapshot of the cluster."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from ..wire import Object, entries, text
from .constants import SYSTEM_NAMESPACE
from .openshift import stack_bindings
from .stack import Choices, Component

INSTALLING = ("install", "upgrade", "recover")
_START = re.compile("^apiVersion:", re.MULTILINE)
_SEPARATOR = re.compile("^---", re.MULTILINE)
_PRIVILEGED = {"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}


def steps(
    planned: Sequence[Component], snapshot: Mapping[str, Any], choices: Choices, name: str, foundation: Iterable[Object]
) -> dict[str, Any]:
    """Return the steps of the tasks of a role for components with their actions.

    Existing namespaces of other owners are used unchanged.

    `name`: the name of the inventory of applied releases.
    `foundation`: objects that all others need.
    """
    foreign = snapshot.get("foreign_namespaces") or ()
    desired = [component for component in planned if not component["why"]]
    components = [_with_details(component, snapshot, desired) for component in planned]
    own_foundation = [value for value in foundation if text(value, "metadata", "name") not in foreign]
    base = [*_base(desired, snapshot, name, own_foundation), *own_foundation]
    return {
        "components": {component["key"]: component for component in components},
        "problems": [component["message"] for component in planned if component["action"] == "refuse"],
        "report": [component["message"] for component in planned if component["message"]],
        "needs_helm": any(component["action"] in (*INSTALLING, "remove") for component in planned),
        "is_empty": not desired and not snapshot["recorded"],
        "base": base,
        "objects": [*base, *(value for component in desired for value in entries(component, "objects"))],
        "readiness": _readiness(components),
        "waves": _waves(components),
        "credential_namespaces": image_namespaces(desired),
        "removal": [
            component["key"] for component in sorted(planned, key=lambda component: int(component.get("removal", 0)))
        ],
        "needed": [component["key"] for component in components if component["installed"] and component.get("kept_by")],
        "orphans": _orphans(planned, choices, foreign),
        "definition_groups": _definition_groups(planned, choices),
    }


def _with_details(component: Component, snapshot: Mapping[str, Any], desired: Sequence[Component]) -> dict[str, Any]:
    """Return a component with additional fields for its tasks.

    The field `installed` is its release, if this collection installed the release.
    """
    own_releases = [
        release
        for release in snapshot["releases"]
        if release["name"] in snapshot["recorded"]
        and (release["name"], release["namespace"]) == (component.get("release"), component.get("namespace"))
    ]
    blocked = [dependent["key"] for dependent in desired if dependent["key"] in component["holds"]]
    changes = bool(component.get("definitions_change") or component.get("external_groups"))
    return {
        **component,
        "installed": own_releases[0] if own_releases else {},
        "is_known": set(component.get("needs_definitions") or ()) <= set(snapshot["definitions"]),
        "applies_definitions": changes and component["action"] in INSTALLING,
        "consequence": f"\nNot tried before that works: {', '.join(blocked)}" if blocked else "",
    }


def _base(
    desired: Sequence[Component], snapshot: Mapping[str, Any], name: str, foundation: Sequence[Object]
) -> list[dict[str, Any]]:
    """Return the inventory of releases, the namespaces for components, and on OpenShift the bindings for their pods.

    Namespaces of other owners are omitted.
    """
    names = {release["name"] for release in snapshot["releases"]}
    recorded = {str(component["release"]) for component in desired if "release" in component} | names & {
        *snapshot["recorded"]
    }
    metadata = {"name": f"modelplane-{name}", "namespace": SYSTEM_NAMESPACE}
    data = {"releases": "\n".join(sorted(recorded))}
    existing = {*snapshot.get("foreign_namespaces", ()), *(text(value, "metadata", "name") for value in foundation)}
    privileged = _namespaces(component for component in desired if component.get("privileged"))
    charts = [component for component in desired if component.get("chart")]
    return [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data},
        *(
            {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": namespace, **(_PRIVILEGED if namespace in privileged else {})},
            }
            for namespace in sorted(_namespaces(desired) - existing)
        ),
        *(stack_bindings(_namespaces(charts), privileged) if snapshot.get("openshift") else ()),
    ]


def image_namespaces(installed: Iterable[Component]) -> list[str]:
    """Return the namespaces where pods of installed components, the gateway, and the fleet pull images."""
    return sorted({*_namespaces(installed), SYSTEM_NAMESPACE, "default"})


def _namespaces(components: Iterable[Component]) -> set[str]:
    return {str(component["namespace"]) for component in components if component.get("namespace")}


def _readiness(components: Sequence[Component]) -> dict[str, Any]:
    """Return the arguments of the module wait_ready for a cluster with nothing to install."""
    installed = [component for component in components if component["action"] == "none"]
    waited = [component for component in components if component["action"] == "apply" and is_waited(component)]
    return {
        "objects": [
            *(value for component in installed for value in entries(component["installed"], "objects")),
            *(value for component in installed for value in entries(component, "ready")),
            *(value for component in waited for value in entries(component, "objects")),
        ],
        "conditions": {
            kind: name for component in installed for kind, name in (component.get("conditions") or {}).items()
        },
        "accepted": [value for component in installed for value in entries(component, "accepted")],
    }


def is_waited(component: Component) -> bool:
    """Return True if a run waits for the objects of a component. Templates convert truth values to text."""
    return str(component.get("waited", True)).lower() not in ("false", "no", "off", "0")


def _waves(components: Sequence[Component]) -> list[dict[str, Any]]:
    """Return the waves with at least one action, each with keys of components: `apply`, `release` and `wait`."""
    actions = {"apply": ("apply",), "release": (*INSTALLING, "remove"), "wait": (*INSTALLING, "none")}
    waves = []
    for wave, wave_components in groupby(components, key=lambda component: int(component["wave"])):
        members = list(wave_components)
        chosen = {
            step: [component["key"] for component in members if component["action"] in those]
            for step, those in actions.items()
        }
        if any(chosen.values()):
            waves.append({"wave": wave, **chosen})
    return waves


def _orphans(planned: Sequence[Component], choices: Choices, foreign: Iterable[str]) -> list[dict[str, Any]]:
    """Return the objects that components leave behind in their namespaces, and the image pull secrets."""
    secrets = [{"apiVersion": "v1", "kind": "Secret", "name": name} for name in choices.image_pull_secrets]
    return [
        {
            "apiVersion": orphan["apiVersion"],
            "kind": orphan["kind"],
            "metadata": {"name": orphan["name"], "namespace": component["namespace"]},
        }
        for component in planned
        if component.get("namespace") and component["namespace"] not in foreign
        for orphan in (*(component.get("orphans") or ()), *secrets)
    ]


def _definition_groups(planned: Sequence[Component], choices: Choices) -> list[str]:
    """Return the API groups of CustomResourceDefinitions that remain after charts of this collection are removed."""
    managed = [
        component
        for component in planned
        if component.get("chart") and choices.states.get(component["key"], "managed") == "managed"
    ]
    external = {group for component in planned for group in component.get("external_groups") or ()}
    return sorted({group for component in managed for group in component.get("definition_groups") or ()} - external)


def separated(output: str) -> str:
    """Return the YAML files that `helm show crds` prints as documents. Helm 3 prints one after the other, and not every
    file begins with a separator."""
    if len(_SEPARATOR.findall(output)) >= len(_START.findall(output)):
        return output
    return _START.sub("---\napiVersion:", output)


def definitions(documents: Iterable[Any], without: Collection[str]) -> list[dict[str, Any]]:
    """Return the CustomResourceDefinitions among documents, except for some API groups."""
    return [
        value
        for value in documents
        if text(value, "kind") == "CustomResourceDefinition" and text(value, "spec", "group") not in without
    ]
