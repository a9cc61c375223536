# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Input of a check: the desired state and the observed state of a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..compose import constants
from ..compose.openshift import ROUTE
from ..status.expected import ExpectedCluster, expected
from ..wire import Object, entries, number, text

NVIDIA = "gpu.nvidia.com"
"""The driver of NVIDIA's devices, and their DeviceClass."""
DEFINITION = "CustomResourceDefinition"


@dataclass(frozen=True, order=True)
class Right:
    """A request that a user may want to send: a verb on a resource of a group (`*` for any), in a namespace or
    (empty) in all, on one object or (empty) on any."""

    group: str
    resource: str
    verb: str
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        kind = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{self.verb} {kind}{f' {self.name}' if self.name else ''}" + (
            f" in {self.namespace}" if self.namespace else ""
        )


EVERYTHING = Right("*", "*", "*")
"""Permissions of cluster-admin. The installation of charts with ClusterRoles requires them."""


@dataclass(frozen=True)
class Desired:
    """Desired state of a cluster."""

    name: str
    cluster: Object | None = None
    """InferenceCluster (wire form), None if it is unknown."""
    classes: frozenset[str] = frozenset()
    expected: ExpectedCluster = field(default_factory=lambda: ExpectedCluster(""))
    """Devices that the InferenceClasses promise."""
    caches: bool = False
    """True if the fleet has caches."""
    cache_sizes: tuple[int, ...] = ()
    """Sizes of the caches in GiB."""
    planned: Sequence[Mapping[str, Any]] = ()
    """Components of the serving stack from `compose.stack.plan`; empty if conflicts are not checked."""
    problems: Sequence[str] = ()
    """Problems that prevented the plan of the serving stack."""
    stuck_after: float = 900.0
    adopt: Sequence[str] = ()
    gateway_api_crds: str = "chart"
    driver_root: str = ""
    """Directory of the NVIDIA driver."""
    control_secrets: Mapping[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    """Known keys of control cluster Secrets, by namespace and name."""
    pull_secrets: Sequence[str] = ()
    """Image pull secrets that the role serving_stack does not create."""
    rights: tuple[Right, ...] = ()
    """Operations of the fleet on the cluster."""
    engine_constraint: str = "modelplane-engines"
    """SecurityContextConstraints for engines on OpenShift, empty for none."""
    grants: bool = False
    """True if the bindings of engines are created after the check."""

    @property
    def managed(self) -> list[Mapping[str, Any]]:
        """The components that the role serving_stack installs."""
        return [entry for entry in self.planned if not entry["why"]]

    @property
    def routed(self) -> bool:
        """Return True if a Route of OpenShift exposes the gateway of the role serving_stack."""
        objects = (value for entry in self.managed for value in entries(entry, "objects"))
        return any(text(value, "kind") == ROUTE[1] for value in objects)


@dataclass(frozen=True)
class Snapshot:
    """Observed state of a cluster. Objects are in their wire format.

    `devices`: True if resource.k8s.io/v1 is served.
    `services`: Services of type LoadBalancer.
    `workloads`: Deployments and DaemonSets of all namespaces.
    `slices`: ResourceSlices of the expected drivers.
    `taint_rules`: DeviceTaintRules.
    `releases`, `definitions`, `recorded`, `has_model_gateway`: results of the module helm_release_info.
    `objects`: single CRDs, by name.
    `denied`: the permissions of `Desired.rights` and EVERYTHING that the credential lacks.
    `openshift`: names of the SecurityContextConstraints; None on clusters that are not OpenShift.
    `secrets`: keys with a value in the Secrets that pods and Gateways refer to, by namespace and name. Empty for
    missing Secrets.
    `unread`: kinds that could not be read, with the reason.
    """

    version: tuple[int, int] = (0, 0)
    devices: bool = True
    nodes: Sequence[Object] = ()
    storage_classes: Sequence[Object] = ()
    services: Sequence[Object] = ()
    workloads: Sequence[Object] = ()
    gateway_classes: Sequence[Object] = ()
    device_classes: Sequence[Object] = ()
    slices: Sequence[Object] = ()
    taint_rules: Sequence[Object] = ()
    namespaces: Sequence[Object] = ()
    policies: Sequence[Object] = ()
    releases: Sequence[Mapping[str, Any]] = ()
    definitions: Mapping[str, str] = field(default_factory=dict)
    recorded: Sequence[str] = ()
    has_model_gateway: bool = False
    objects: Mapping[str, Object] = field(default_factory=dict)
    denied: frozenset[Right] = frozenset()
    openshift: frozenset[str] | None = None
    secrets: Mapping[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    unread: Mapping[str, str] = field(default_factory=dict)

    @property
    def seen(self) -> dict[str, Any]:
        """As `compose.stack.actions` and `with_kept_needs` take it."""
        return {
            "releases": self.releases,
            "definitions": self.definitions,
            "recorded": self.recorded,
            "has_model_gateway": self.has_model_gateway,
        }


def desired_of(name: str, resources: Sequence[Object], **other_fields: Any) -> Desired:
    """Return the desired state of a cluster from the resources of a fleet (wire form). `other_fields`: the other fields
    of the desired state."""

    def of_kind(kind: str) -> list[Object]:
        return [value for value in resources if text(value, "kind") == kind]

    clusters = {text(value, "metadata", "name"): value for value in of_kind("InferenceCluster")}
    return Desired(
        name,
        cluster=clusters.get(name),
        classes=frozenset(text(value, "metadata", "name") for value in of_kind("InferenceClass")),
        expected=expected(resources).cluster(name),
        caches=bool(of_kind("ModelCache")),
        cache_sizes=tuple(number(value, "spec", "huggingFace", "sizeGiB") for value in of_kind("ModelCache")),
        **other_fields,
    )


def pool_of(node: Object) -> str:
    """Return the node pool in the labels of a node."""
    return text(node, "metadata", "labels", constants.POOL_LABEL)


def named(value: Object) -> str:
    """An object in a message: kind, namespace and name."""
    qualified_name = "/".join(filter(None, (text(value, "metadata", "namespace"), text(value, "metadata", "name"))))
    return f"{text(value, 'kind')} {qualified_name}"
