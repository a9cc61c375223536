# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Permissions that a credential needs to install the serving stack and to do the work of the fleet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..compose.constants import AI_GROUP, ENVOY_GROUP, GATEWAY_GROUP
from ..compose.stack import actions
from ..status.expected import ExpectedCluster
from ..text import some
from ..wire import Object, entries, text
from .finding import Finding, warning
from .snapshot import EVERYTHING, Desired, Right, Snapshot

_OF_GATEWAYS = frozenset({AI_GROUP, ENVOY_GROUP, "cert-manager.io", "discovery.k8s.io", "trust.cert-manager.io"})
"""API groups with objects on inference clusters only for Model gateways."""
_BINDINGS = ("ClusterRoleBinding", "RoleBinding")
_PENDING = ("install", "upgrade", "recover", "remove")


def bound(objects: Iterable[Object]) -> tuple[Right, ...]:
    """Return all permissions of a subject of the bindings among these objects, by their roles, sorted.

    The objects are from rbac.authorization.k8s.io/v1. A role without a binding grants no permission.
    """
    values = list(objects)
    rights: set[Right] = set()
    for binding in values:
        if text(binding, "kind") in _BINDINGS:
            space = text(binding, "metadata", "namespace")
            role = (text(binding, "roleRef", "kind"), text(binding, "roleRef", "name"))
            for value in values:
                if (text(value, "kind"), text(value, "metadata", "name")) == role:
                    rights.update(_of_rules(entries(value, "rules"), space))
    return tuple(sorted(rights))


def _of_rules(rules: Iterable[Mapping[str, Any]], namespace: str) -> Iterator[Right]:
    for rule in rules:
        for group in rule.get("apiGroups") or ():
            for resource in rule.get("resources") or ():
                for verb in rule.get("verbs") or ():
                    for name in rule.get("resourceNames") or ("",):
                        yield Right(str(group), str(resource), str(verb), namespace, str(name))


def needed(rights: Iterable[Right], cluster: ExpectedCluster) -> tuple[Right, ...]:
    """Return the permissions that a fleet needs, with permissions for Model gateways only if the fleet has one."""
    return tuple(right for right in rights if cluster.has_cluster_gateway or not _is_for_gateways(right))


def _is_for_gateways(right: Right) -> bool:
    writes = right.verb not in ("get", "list")
    if (right.group, right.resource) == ("", "services/proxy"):
        return True
    return right.group in _OF_GATEWAYS or (right.group == GATEWAY_GROUP and right.resource == "gateways" and writes)


def findings(snapshot: Snapshot, desired: Desired) -> Iterator[Finding]:
    """Yield missing permissions of the credential.

    If the credential has all permissions, nothing else is checked. A credential with the permissions of the fleet can
    work with the cluster once another owner has installed the stack.
    """
    if EVERYTHING not in snapshot.denied:
        return
    missing = [right for right in desired.rights if right in snapshot.denied]
    admin = "a kubeconfig of an administrator (cluster-admin) for the playbooks serving_stack and control_plane"
    if missing:
        yield Finding(
            "permissions",
            "credential",
            f"it may not install the serving stack (any verb on any resource), nor do what the fleet does: "
            f"{some(map(str, missing))}",
            f"Use {admin}; the latter gives the fleet its rights (control_plane_workload_rights)",
        )
    elif desired.managed and _pending(snapshot, desired):
        yield warning(
            "permissions",
            "credential",
            "it may do what the fleet does, and not install the serving stack, of which something is missing",
            f"Use {admin}",
        )


def _pending(snapshot: Snapshot, desired: Desired) -> bool:
    if "Secret" in snapshot.unread:
        return bool(snapshot.unread)
    decisions = actions(desired.planned, snapshot.seen, desired.stuck_after, desired.adopt)
    return any(entry["action"] in _PENDING for entry in decisions)
