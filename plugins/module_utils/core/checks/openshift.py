# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Checks of OpenShift: SecurityContextConstraints for pods, Routes, and components that OpenShift runs itself."""

from __future__ import annotations

from collections.abc import Iterator

from ..compose.openshift import CONSTRAINTS, ENGINES, NON_ROOT, PRIVILEGED
from ..text import some
from ..wire import fields
from .finding import Finding
from .snapshot import Desired, Snapshot

_CHECK = "openshift"


def findings(snapshot: Snapshot, desired: Desired) -> Iterator[Finding]:
    """Yield missing requirements of pods on OpenShift, and Routes that are desired on other clusters."""
    if snapshot.openshift is None:
        if desired.routed:
            yield Finding(
                _CHECK,
                "serving_stack_gateway_exposure",
                "it is Route, and the cluster is not OpenShift",
                "Set it to LoadBalancer",
            )
        return
    if CONSTRAINTS[1] not in snapshot.unread:
        for constraint, users in sorted(_needs(desired).items()):
            if constraint not in snapshot.openshift:
                yield from _missing(constraint, users, desired)
    for entry in desired.managed:
        exporter = fields(entry, "values", "nodeExporter").get("enabled", True)
        if entry["key"] == "prometheus" and exporter is not False:
            yield Finding(
                _CHECK,
                "prometheus",
                "OpenShift's own node exporter has port 9100 of every node, and that of the stack finds no room",
                "Set serving_stack_states.prometheus to provided, or serving_stack_values.prometheus to "
                "{nodeExporter: {enabled: false}}",
            )


def _needs(desired: Desired) -> dict[str, list[str]]:
    """Return the components with pods that need each SecurityContextConstraints."""
    users_by_constraint: dict[str, list[str]] = {}
    if desired.engine_constraint:
        users_by_constraint[desired.engine_constraint] = ["engines"]
    for entry in desired.managed:
        if entry.get("chart"):
            constraint = PRIVILEGED if entry.get("privileged") else NON_ROOT
            users_by_constraint.setdefault(constraint, []).append(str(entry["key"]))
    return users_by_constraint


def _missing(constraint: str, users: list[str], desired: Desired) -> Iterator[Finding]:
    if constraint != ENGINES:
        hint = "Restore it: it is part of OpenShift. For engines, existing_cluster_engine_constraint may name another"
    elif desired.grants:
        # It is created after the check.
        return
    else:
        hint = "ansible-playbook modelplane.fleet.check -e existing_cluster_state=present creates it"
    where = f"SecurityContextConstraints {constraint}"
    yield Finding(_CHECK, where, f"it is not there, and pods of {some(users)} need it", hint)
