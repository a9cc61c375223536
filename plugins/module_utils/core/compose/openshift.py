# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""OpenShift: bindings that let pods use the SecurityContextConstraints they need.

OpenShift gives every pod a user and a group of its namespace, forbids volumes of the host, and so on, unless the pod's
ServiceAccount may use other SecurityContextConstraints (OpenShift documentation, "Managing security context
constraints"): those that a ClusterRole `system:openshift:scc:NAME`, which OpenShift installs, lets it use.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from .. import names
from ..api.pod_security import BASELINE_CAPABILITIES, IPC_LOCK

CONSTRAINTS = ("security.openshift.io/v1", "SecurityContextConstraints")
ROUTE = ("route.openshift.io/v1", "Route")
ENGINES = "modelplane-engines"
"""Name of the SecurityContextConstraints of engines, of the ClusterRole that permits their use, and of its bindings.

Images of inference servers run as root, and write to directories of root. OpenShift's own constraint `anyuid` permits
this, but rejects pods with a seccomp profile. Engines have such a profile."""
NON_ROOT = "nonroot-v2"
"""Of controllers: their charts name a user that is not root."""
PRIVILEGED = "privileged"
"""Of what works on the nodes."""

_RBAC = "rbac.authorization.k8s.io"


def engine_bindings(namespaces: Iterable[str]) -> list[dict[str, Any]]:
    """Return a RoleBinding for the pods of engines and of caches in the workload namespace of each namespace.

    Pickers have a ServiceAccount of their own, and need no binding: they run as any user that is not root.
    """
    return [
        _binding(
            ENGINES,
            workload,
            ENGINES,
            {"kind": "ServiceAccount", "name": "default", "namespace": workload},
            {names.NAMESPACE_LABEL: names.label_value(namespace)},
        )
        for namespace in sorted(set(namespaces))
        for workload in [names.workload_namespace(namespace)]
    ]


def stack_bindings(namespaces: Iterable[str], privileged: Collection[str]) -> list[dict[str, Any]]:
    """Return a RoleBinding for all ServiceAccounts of each namespace with pods of a Helm release: charts choose their
    names. `privileged`: the namespaces with pods that work on the nodes."""
    return [
        _binding(
            f"modelplane-{constraint}",
            namespace,
            f"system:openshift:scc:{constraint}",
            {"apiGroup": _RBAC, "kind": "Group", "name": f"system:serviceaccounts:{namespace}"},
        )
        for namespace in sorted(set(namespaces))
        for constraint in [PRIVILEGED if namespace in privileged else NON_ROOT]
    ]


def engine_rights(constraint: str) -> list[dict[str, Any]]:
    """Return the objects that bindings of engines refer to; empty if engines need no constraint.

    The result contains a ClusterRole that permits the use of the constraint. If the constraint is `ENGINES`, the result
    also contains the constraint itself.
    """
    if not constraint:
        return []
    role = {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRole",
        "metadata": _metadata(ENGINES),
        "rules": [
            {
                "apiGroups": [CONSTRAINTS[0].partition("/")[0]],
                "resources": ["securitycontextconstraints"],
                "verbs": ["use"],
                "resourceNames": [constraint],
            }
        ],
    }
    return [_engine_constraint(), role] if constraint == ENGINES else [role]


def _binding(
    name: str, namespace: str, role: str, subject: Mapping[str, str], labels: Mapping[str, str] = MappingProxyType({})
) -> dict[str, Any]:
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {names.MANAGED_BY_LABEL: names.MANAGED_BY, **labels},
        },
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [subject],
    }


def _metadata(name: str) -> dict[str, Any]:
    return {"name": name, "labels": {names.MANAGED_BY_LABEL: names.MANAGED_BY}}


def _engine_constraint() -> dict[str, Any]:
    """Return the SecurityContextConstraints of engines: any user as with `anyuid`, and the seccomp profile and the
    capabilities that templates of members may ask for."""
    api_version, kind = CONSTRAINTS
    hosts = ("HostDirVolumePlugin", "HostIPC", "HostNetwork", "HostPID", "HostPorts")
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": _metadata(ENGINES),
        **{f"allow{permission}": False for permission in (*hosts, "PrivilegedContainer")},
        "allowPrivilegeEscalation": True,
        "allowedCapabilities": sorted((*BASELINE_CAPABILITIES, IPC_LOCK)),
        "defaultAddCapabilities": [],
        "requiredDropCapabilities": [],
        "readOnlyRootFilesystem": False,
        "runAsUser": {"type": "RunAsAny"},
        "fsGroup": {"type": "RunAsAny"},
        "supplementalGroups": {"type": "RunAsAny"},
        "seLinuxContext": {"type": "MustRunAs"},
        "seccompProfiles": ["runtime/default"],
        # That of anyuid: before restricted-v2, which everybody may use and which would pick another user.
        "priority": 10,
        "volumes": [
            "configMap",
            "csi",
            "downwardAPI",
            "emptyDir",
            "ephemeral",
            "persistentVolumeClaim",
            "projected",
            "secret",
        ],
    }
