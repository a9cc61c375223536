# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Inventories of applied objects in ConfigMaps, in the namespace modelplane-system of the API server with the objects.

The name is `modelplane-record-<fleet>.<part>.<scope>`. A fleet name is a DNS label, so that all inventories have unique
names. The scope is the name of the inference cluster, or `control`, because one API server can be both.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from ..core import names
from ..core.applying.inventory import (
    RECORD_LABEL,
    Entry,
    Inventory,
    InventoryError,
    Key,
    Notes,
    of_parts,
    readable_entries,
    to_parts,
)
from ..core.change.difference import entry
from ..core.compose.constants import SYSTEM_NAMESPACE
from ..core.compose.control import system_namespace
from ..core.wire import Object, text
from .client import Client
from .errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound
from .labelled_objects import Live
from .write import GONE, Result

FLEET_LABEL = "modelplane.ai/fleet"
CONTROL_SCOPE = "control"
GATEWAY_SCOPE = "gateway.control-plane"
_SAME_OBJECTS = {CONTROL_SCOPE, GATEWAY_SCOPE}
"""Scopes of one fleet with possibly equal objects. Runs of the fleet and the role control_plane both apply the gateway
of the same InferenceGateway."""

_DATA = "objects"
# Maximum time for the deletion of a namespace, and the message of the server until then (NamespaceLifecycle admission).
_NAMESPACE_SECONDS = 60.0
_ENDING = "being terminated"
_POLL_SECONDS = 0.25


@dataclass
class RecordStore:
    """Inventory of one fleet and scope on one API server."""

    client: Client
    fleet: str
    scope: str
    own: dict[Key, Entry] | None = None
    """Entries, None without a readable inventory."""
    error: str = ""
    """Reason for an unreadable inventory."""
    others: Mapping[Key, str] = field(default_factory=dict)
    """Owner of each object in other inventories."""
    notes: Notes = field(default_factory=dict)
    """Notes of this inventory."""
    shared: frozenset[Key] = frozenset()
    """Objects that both inventories contain."""
    _parts: dict[str, Object] = field(default_factory=dict)

    def read(self) -> None:
        """Ask the server for all records: one request."""
        selector = f"{names.MANAGED_BY_LABEL}={names.MANAGED_BY},{RECORD_LABEL}"
        config_maps = self.client.list("v1", "ConfigMap", namespace=SYSTEM_NAMESPACE, labels=selector).items
        records: dict[tuple[str, str], dict[str, Object]] = {}
        for config_map in config_maps:
            labels = config_map["metadata"].get("labels") or {}
            record_key = (labels.get(FLEET_LABEL, ""), labels[RECORD_LABEL])
            records.setdefault(record_key, {})[config_map["metadata"]["name"]] = config_map
        self._parts = records.pop((self.fleet, names.label_value(self.scope)), {})
        self.own, self.notes, self.error = None, {}, ""
        if self._parts:
            try:
                self.own, self.notes = of_parts(text(config_map, "data", _DATA) for config_map in self._parts.values())
            except InventoryError as error:
                self.error = f"the record {self._name(1)} cannot be read: {error}"
        self.shared = frozenset(
            key
            for (fleet, scope), record_parts in records.items()
            if fleet == self.fleet and {scope, self.scope} == _SAME_OBJECTS
            for key in _readable(record_parts)
        )
        self.others = {
            key: f"fleet {fleet} ({scope})"
            for (fleet, scope), record_parts in records.items()
            for key in _readable(record_parts)
        }

    def write(self, record: Inventory, notes: Notes | None = None) -> None:
        """Write the inventory to the server. `notes`: None to keep the current notes. Unchanged parts are not sent.

        Raise Conflict or AlreadyExists if another run wrote the inventory concurrently.
        """
        new_notes = self.notes if notes is None else notes
        texts = {
            self._name(number): part_text for number, part_text in enumerate(to_parts(record, notes=new_notes), start=1)
        }
        for name, part_text in texts.items():
            config_map = self._parts.get(name)
            if config_map is None:
                self._parts[name] = self._create(self._part(name, part_text))
            elif text(config_map, "data", _DATA) != part_text:
                # With the resourceVersion that was read: of two runs at once, one fails here.
                self._parts[name] = self.client.replace({**config_map, "data": {_DATA: part_text}})
        for name in sorted(set(self._parts) - set(texts)):
            uid = text(self._parts[name], "metadata", "uid")
            self.client.delete("v1", "ConfigMap", name, SYSTEM_NAMESPACE, uid=uid)
            del self._parts[name]
        self.own, self.notes = dict(record), dict(new_notes)

    def keys(self) -> frozenset[Key]:
        """Return the ConfigMaps of this inventory."""
        return frozenset(Key("", "ConfigMap", SYSTEM_NAMESPACE, name) for name in self._parts)

    def _create(self, part: Object) -> Object:
        """Create a part in a namespace that might not exist yet, or might still be terminating."""
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


@dataclass
class RunInventory:
    """Inventory of a run, written before the first and after the last object."""

    store: RecordStore
    live: Live
    desired: Mapping[Key, Object]
    orphans: Mapping[Key, Entry]
    """Objects with the fleet label, if no inventory exists."""
    held: Collection[Key] = frozenset()
    """Frozen objects, because it is unknown if they are desired."""
    partial: bool = False
    """True if the run does not prune, and its desired objects are only a part of the inventory."""
    notes: list[str] = field(default_factory=list)
    own_notes: Notes | None = None
    """Desired notes of the inventory, None if the notes on the server are up to date."""

    def begin(self, keys: Iterable[Key]) -> None:
        """Write the keys of objects before they are created."""
        current = self.store.own or {}
        new = {key: Entry(text(self.desired[key], "apiVersion")) for key in keys if key not in current}
        if new or self.own_notes is not None:
            self._write({**current, **self.orphans, **new})

    def finish(self, results: Mapping[Key, Result], unfinished: Collection[Key]) -> None:
        """Write the applied and deleted objects."""
        removals = {key: result for key, result in results.items() if key not in self.desired}
        deleted = {key for key, result in removals.items() if result.action in GONE}
        record = {key: value for key, value in (self.store.own or {}).items() if self._is_retained(key, deleted)}
        for key, result in results.items():
            if key in self.desired and result.action != "failed" and key not in unfinished and is_ours(result.after):
                record[key] = entry(self.desired[key], result.after or {})
        for key, result in removals.items():
            # A created user namespace belongs to the users.
            if key not in deleted and key in self.live.objects:
                record.setdefault(key, Entry(result.api_version))
        if record or self.store.keys():
            try:
                self._write(record)
            except ApiError as error:
                # The inventory contains all created objects, and the next run compares each object again.
                self.notes.append(f"the record could not be updated: {error}")

    def _is_retained(self, key: Key, deleted: Collection[Key]) -> bool:
        """Return True if the inventory keeps an entry: desired objects, and orphans that no other inventory has."""
        # A partial run keeps shared objects in both inventories.
        if key in self.desired or (key in self.store.others and not (self.partial and key in self.store.shared)):
            return key in self.desired
        group_kind = (key.group, key.kind)
        is_unread = (group_kind in self.live.not_served or self.live.error(key) is not None) and (
            group_kind not in self.live.gone
        )
        return (key in self.live.objects and key not in deleted) or is_unread or key in self.held

    def _write(self, record: Mapping[Key, Entry]) -> None:
        try:
            self.store.write(record, self.own_notes)
        except (Conflict, AlreadyExists) as error:
            raise type(error)(
                f"another run of fleet {self.store.fleet} is at work here: {error.message}",
                cluster=error.cluster,
                action=error.action,
                code=error.code,
                reason=error.reason,
                hint="Run again after the other run",
            ) from error


class NoInventory:
    """Inventory in check mode, without writes."""

    def begin(self, keys: Iterable[Key]) -> None:
        """Write nothing."""

    def finish(self, results: Mapping[Key, Result], unfinished: Collection[Key]) -> None:
        """Write nothing."""


def is_ours(live: Object | None) -> bool:
    """Return True if an object has the label of the fleet."""
    return text(live, "metadata", "labels", names.MANAGED_BY_LABEL) == names.MANAGED_BY


def _readable(record_parts: Mapping[str, Object]) -> Inventory:
    """Return the inventory of another scope, or its readable entries."""
    try:
        return of_parts(text(config_map, "data", _DATA) for config_map in record_parts.values())[0]
    except InventoryError:
        readable: dict[Key, Entry] = {}
        for config_map in record_parts.values():
            readable.update(readable_entries(text(config_map, "data", _DATA)))
        return readable
