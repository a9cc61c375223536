# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Records of what was applied: ConfigMaps in the namespace modelplane-system of the API server that they are about.

`modelplane-record-<fleet>.<part>.<scope>`; a fleet is a DNS label, so that no two records share a name. The scope is
the workload cluster's name, or `control`: one API server may be both.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from ansible_collections.modelplane.fleet.plugins.module_utils.core import names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.applying.inventory import (
    Entry,
    Inventory,
    InventoryError,
    Key,
    Notes,
    of_parts,
    readable_entries,
    to_parts,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.constants import SYSTEM_NAMESPACE
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.control import system_namespace
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object, text
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.client import Client
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.errors import Forbidden, NotFound

FLEET_LABEL = "modelplane.ai/fleet"
RECORD_LABEL = "modelplane.ai/record"
"""On the ConfigMaps of records: their scope."""
CONTROL_SCOPE = "control"
GATEWAY_SCOPE = "gateway.control-plane"
_SAME_OBJECTS = {CONTROL_SCOPE, GATEWAY_SCOPE}
"""Scopes of one fleet that may want the same objects: runs of the fleet and the role control_plane both
apply the gateway, out of the same InferenceGateway."""

_DATA = "objects"
# How long a namespace may take to be gone, and how the server says that it is not yet (NamespaceLifecycle admission).
_NAMESPACE_SECONDS = 60.0
_ENDING = "being terminated"
_POLL_SECONDS = 0.25


@dataclass
class RecordStore:
    """The record of one fleet and scope on one API server.

    `own` is None when there is a record that cannot be read, with `error` saying why, and when there is none.
    `others` says of every object of the other records whose it is, `shared` which of them both desire. `notes` are
    those of the own record.
    """

    client: Client
    fleet: str
    scope: str
    own: dict[Key, Entry] | None = None
    error: str = ""
    others: Mapping[Key, str] = field(default_factory=dict)
    notes: Notes = field(default_factory=dict)
    shared: frozenset[Key] = frozenset()
    _parts: dict[str, Object] = field(default_factory=dict)

    def read(self) -> None:
        """Ask the server for all records: one request."""
        selector = f"{names.MANAGED_BY_LABEL}={names.MANAGED_BY},{RECORD_LABEL}"
        found = self.client.list("v1", "ConfigMap", namespace=SYSTEM_NAMESPACE, labels=selector).items
        records: dict[tuple[str, str], dict[str, Object]] = {}
        for part in found:
            labels = part["metadata"].get("labels") or {}
            place = (labels.get(FLEET_LABEL, ""), labels[RECORD_LABEL])
            records.setdefault(place, {})[part["metadata"]["name"]] = part
        self._parts = records.pop((self.fleet, names.label_value(self.scope)), {})
        self.own, self.notes, self.error = None, {}, ""
        if self._parts:
            try:
                self.own, self.notes = of_parts(text(part, "data", _DATA) for part in self._parts.values())
            except InventoryError as error:
                self.error = f"the record {self._name(1)} cannot be read: {error}"
        self.shared = frozenset(
            key
            for (fleet, scope), parts in records.items()
            if fleet == self.fleet and {scope, self.scope} == _SAME_OBJECTS
            for key in _readable(parts)
        )
        self.others = {
            key: f"fleet {fleet} ({scope})" for (fleet, scope), parts in records.items() for key in _readable(parts)
        }

    def write(self, record: Inventory, notes: Notes | None = None) -> None:
        """Write the record to the server, with its present notes if None are given; nothing is sent for a part that is
        as it should be.

        Raises Conflict or AlreadyExists when another run wrote the record meanwhile.
        """
        noted = self.notes if notes is None else notes
        texts = {self._name(number): part for number, part in enumerate(to_parts(record, notes=noted), start=1)}
        for name, part in texts.items():
            there = self._parts.get(name)
            if there is None:
                self._parts[name] = self._create(self._part(name, part))
            elif text(there, "data", _DATA) != part:
                # With the resourceVersion that was read: of two runs at once, one fails here.
                self._parts[name] = self.client.replace({**there, "data": {_DATA: part}})
        for name in sorted(set(self._parts) - set(texts)):
            uid = text(self._parts[name], "metadata", "uid")
            self.client.delete("v1", "ConfigMap", name, SYSTEM_NAMESPACE, uid=uid)
            del self._parts[name]
        self.own, self.notes = dict(record), dict(noted)

    def keys(self) -> frozenset[Key]:
        """The ConfigMaps that hold this record."""
        return frozenset(Key("", "ConfigMap", SYSTEM_NAMESPACE, name) for name in self._parts)

    def _create(self, part: Object) -> Object:
        """Create a part, in a namespace that may not be there yet, or still be on its way out."""
        deadline = time.monotonic() + _NAMESPACE_SECONDS
        while True:
            try:
                return self.client.create(dict(part))
            except NotFound:
                if time.monotonic() >= deadline:
                    raise
                self.client.apply(system_namespace())
            except Forbidden as error:
                if _ENDING not in error.message or time.monotonic() >= deadline:
                    raise
                time.sleep(_POLL_SECONDS)

    def _name(self, number: int) -> str:
        return f"modelplane-record-{self.fleet}.{number}.{names.label_value(self.scope)}"

    def _part(self, name: str, part: str) -> Object:
        labels = {
            names.MANAGED_BY_LABEL: names.MANAGED_BY,
            FLEET_LABEL: self.fleet,
            RECORD_LABEL: names.label_value(self.scope),
        }
        metadata = {"name": name, "namespace": SYSTEM_NAMESPACE, "labels": labels}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {_DATA: part}}


def _readable(parts: Mapping[str, Object]) -> Inventory:
    """The record of others, or what can be read of it."""
    try:
        return of_parts(text(part, "data", _DATA) for part in parts.values())[0]
    except InventoryError:
        found: dict[Key, Entry] = {}
        for part in parts.values():
            found.update(readable_entries(text(part, "data", _DATA)))
        return found
