# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""What somebody saw on the clusters of a fleet: Kubernetes objects as their API servers told them, and who did not answer.

Values of Secrets are never among them, only which keys have one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Object = Mapping[str, Any]


class Objects:
    """Kubernetes objects (wire form), found by kind, namespace and name."""

    def __init__(self, objects: Iterable[Object] = ()) -> None:
        self._by_kind: dict[str, dict[tuple[str, str], Object]] = {}
        for value in objects:
            metadata = value.get("metadata") or {}
            key = (metadata.get("namespace") or "", metadata.get("name") or "")
            self._by_kind.setdefault(value.get("kind") or "", {})[key] = value

    def find(self, kind: str, namespace: str, name: str) -> Object | None:
        """The object, or None when it was not seen. `namespace` is empty for cluster-scoped kinds."""
        return self._by_kind.get(kind, {}).get((namespace, name))

    def of_kind(self, kind: str) -> Iterator[Object]:
        """All objects of a kind, sorted by namespace and name."""
        found = self._by_kind.get(kind, {})
        return (found[key] for key in sorted(found))

    def like(self, wanted: Object) -> Object | None:
        """What was seen of an object that is composed."""
        metadata = wanted["metadata"]
        return self.find(wanted["kind"], metadata.get("namespace") or "", metadata["name"])


@dataclass(frozen=True)
class Component:
    """A part that is ready or not, and why not: a cloud cluster, a serving stack, a gateway's controller."""

    ready: bool = False
    message: str = ""


@dataclass(frozen=True)
class ObservedCluster:
    """What was seen of one workload cluster.

    `unreachable` says why it did not answer (empty: it did); then nothing is known of it now, and what was known last
    stays true. `provisioned` is the cloud cluster, None for one that was not made by the fleet. `stack` is the serving
    stack. `nodes` are the nodes per pool that are Ready.
    """

    unreachable: str = ""
    provisioned: Component | None = None
    stack: Component = field(default_factory=Component)
    objects: Objects = field(default_factory=Objects)
    nodes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Observed:
    """What was seen of a fleet. `secret_keys`: the keys that have a value, per Secret (namespace, name) of the control
    cluster. `controller` is the controller of the control gateway."""

    control: Objects = field(default_factory=Objects)
    secret_keys: Mapping[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    controller: Component = field(default_factory=Component)
    clusters: Mapping[str, ObservedCluster] = field(default_factory=dict)


def condition(value: Object | None, kind: str) -> str:
    """The status of a condition of an object: True, False or Unknown (also when there is no such condition).

    A condition that was written for an older generation of the object says nothing about this one (Kubernetes API
    conventions, "Typical status properties").
    """
    status = (value or {}).get("status") or {}
    generation = ((value or {}).get("metadata") or {}).get("generation")
    seen = status.get("observedGeneration")
    for entry in status.get("conditions") or ():
        if entry.get("type") == kind:
            about = entry.get("observedGeneration", seen)
            if generation is not None and about is not None and about < generation:
                return "Unknown"
            return str(entry.get("status") or "Unknown")
    return "Unknown"


def is_true(value: Object | None, kind: str) -> bool:
    """Whether a condition of an object holds for what the object asks for now."""
    return condition(value, kind) == "True"


def first_address(gateway: Object | None) -> str:
    """The address of a Gateway: the first that is an IP address, else the first; empty when it has none."""
    addresses = ((gateway or {}).get("status") or {}).get("addresses") or []
    values = [entry for entry in addresses if entry.get("value")]
    chosen = next((entry for entry in values if entry.get("type", "IPAddress") == "IPAddress"), None)
    if chosen is None and values:
        chosen = values[0]
    return str(chosen["value"]) if chosen else ""
