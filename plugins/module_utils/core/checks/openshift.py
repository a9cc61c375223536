# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""OpenShift: which SecurityContextConstraints pods need there, and who is to get them.

OpenShift gives every pod a user and a group of its namespace, forbids volumes of the host, and so on, unless the pod's
ServiceAccount may use other SecurityContextConstraints (OpenShift documentation, "Managing security context
constraints"): those that a ClusterRole `system:openshift:scc:NAME`, which OpenShift installs, lets it use.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.pod_security import (
    BASELINE_CAPABILITIES,
    IPC_LOCK,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.checks.finding import Finding
from ansible_collections.modelplane.fleet.plugins.module_utils.core.checks.snapshot import Desired, Snapshot
from ansible_collections.modelplane.fleet.plugins.module_utils.core.names import MANAGED_BY, MANAGED_BY_LABEL
from ansible_collections.modelplane.fleet.plugins.module_utils.core.text import some
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import fields

SECURITY_GROUP = "security.openshift.io"
CONSTRAINTS = ("security.openshift.io/v1", "SecurityContextConstraints")
VERSIONS = ("config.openshift.io/v1", "ClusterVersion")
ENGINES = "modelplane-engines"
"""Of engines, and made by this collection: images of inference servers run as root, and write to folders of root. Of
OpenShift's own, `anyuid` lets pods do that and refuses those that name a seccomp profile, as engines do."""
NON_ROOT = "nonroot-v2"
"""Of controllers: their charts name a user that is not root."""
PRIVILEGED = "privileged"
"""Of what works on the nodes."""
_RBAC = "rbac.authorization.k8s.io"
_ROLES = {ENGINES: ENGINES}
"""ClusterRoles that let use what OpenShift does not install."""
_CHECK = "openshift"


@dataclass(frozen=True, order=True)
class Need:
    """ServiceAccounts of a namespace (all, or one) that have to be allowed to use a SecurityContextConstraints."""

    constraint: str
    namespace: str
    account: str = ""
    of: str = field(default="", compare=False)

    @property
    def key(self) -> tuple[str, str, str]:
        return self.namespace, self.account, self.constraint

    @property
    def subject(self) -> dict[str, str]:
        """As a binding names them (rbac.authorization.k8s.io/v1, Subject)."""
        if self.account:
            return {"kind": "ServiceAccount", "name": self.account, "namespace": self.namespace}
        return {"apiGroup": _RBAC, "kind": "Group", "name": f"system:serviceaccounts:{self.namespace}"}

    def review(self) -> dict[str, Any]:
        """Return what to ask whether it is allowed (authorization.k8s.io/v1, SubjectAccessReview)."""
        accounts = "system:serviceaccounts"
        return {
            "user": f"system:serviceaccount:{self.namespace}:{self.account or 'default'}",
            "groups": [accounts, f"{accounts}:{self.namespace}", "system:authenticated"],
            "resourceAttributes": {
                "group": SECURITY_GROUP,
                "resource": "securitycontextconstraints",
                "verb": "use",
                "name": self.constraint,
                "namespace": self.namespace,
            },
        }


def needs(desired: Desired) -> tuple[Need, ...]:
    """Return what engines and the pods of the stack need, sorted, each once."""
    found = {}
    if desired.engine_constraint:
        for namespace in desired.namespaces:
            need = Need(desired.engine_constraint, namespace, "default", "engines")
            found[need.key] = need
    for entry in desired.managed:
        if entry.get("chart"):
            constraint = PRIVILEGED if entry.get("privileged") else NON_ROOT
            need = Need(constraint, str(entry["namespace"]), of=str(entry["key"]))
            found.setdefault(need.key, need)
    return tuple(sorted(found.values()))


def bindings(desired: Iterable[Need]) -> list[dict[str, Any]]:
    """The ClusterRoleBindings that give all of it, one for each SecurityContextConstraints, and those constraints that
    OpenShift does not install. Namespaces need not be there yet, which those of engines are only once a replica is."""
    by_constraint: dict[str, list[Need]] = {}
    for need in desired:
        by_constraint.setdefault(need.constraint, []).append(need)
    made = [*_engine_constraint()] if ENGINES in by_constraint else []
    return made + [
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {
                "name": f"modelplane-{constraint.removeprefix('modelplane-')}",
                "labels": {MANAGED_BY_LABEL: MANAGED_BY},
            },
            "roleRef": {
                "apiGroup": _RBAC,
                "kind": "ClusterRole",
                "name": _ROLES.get(constraint, f"system:openshift:scc:{constraint}"),
            },
            "subjects": [need.subject for need in sorted(found)],
        }
        for constraint, found in sorted(by_constraint.items())
    ]


def _engine_constraint() -> tuple[dict[str, Any], ...]:
    """The SecurityContextConstraints of engines and the ClusterRole that lets use it: any user as with `anyuid`, and
    the seccomp profile and the capabilities that templates of members may ask for."""
    api_version, kind = CONSTRAINTS
    metadata = {"name": ENGINES, "labels": {MANAGED_BY_LABEL: MANAGED_BY}}
    hosts = ("HostDirVolumePlugin", "HostIPC", "HostNetwork", "HostPID", "HostPorts")
    constraint = {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": metadata,
        **{f"allow{each}": False for each in (*hosts, "PrivilegedContainer")},
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
    use = {"apiGroups": [SECURITY_GROUP], "resources": ["securitycontextconstraints"], "verbs": ["use"]}
    role = {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRole",
        "metadata": deepcopy(metadata),
        "rules": [{**use, "resourceNames": [ENGINES]}],
    }
    return constraint, role


def findings(snapshot: Snapshot, desired: Desired) -> Iterator[Finding]:
    """Yield what pods need on OpenShift and have not."""
    if snapshot.openshift is None:
        return
    required = needs(desired)
    there = snapshot.openshift.constraints
    for constraint in sorted({need.constraint for need in required}):
        of = [need for need in required if need.constraint == constraint]
        refused = [need for need in of if need.key in snapshot.openshift.refused]
        if CONSTRAINTS[1] not in snapshot.unread and constraint not in there and constraint not in _ROLES:
            yield Finding(
                _CHECK,
                f"SecurityContextConstraints {constraint}",
                f"it is not there, and pods of {some(need.of for need in of)} need it",
                "Restore it: it is part of OpenShift. For engines, existing_cluster_engine_constraint may name another",
            )
        elif refused and not desired.grants:
            places = some(f"{need.namespace} ({need.of})" for need in refused)
            yield Finding(
                _CHECK,
                f"SecurityContextConstraints {constraint}",
                f"ServiceAccounts of {places} may not use it, so their pods are refused",
                "ansible-playbook modelplane.fleet.check -e existing_cluster_state=present grants it",
            )
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
