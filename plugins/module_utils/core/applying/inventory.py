# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Inventory of all objects that a fleet applied to one API server. Runs use it to find the objects to prune.

It is text, one JSON array per line: a header, then `[apiVersion, kind, namespace, name, desired, owned]` per object.
`desired` is the digest of the applied object. `owned` is the digest of the fields that the field manager then owned in
the live object. Both are empty until the object was applied. They are always empty for Secrets, because the values of
Secrets get no digest. An inventory that is too large for one ConfigMap is split into parts. Their headers contain a
digest of the whole, so that parts of two versions are never mixed.

An inventory also contains notes: lines `["note", name, chunk]`. The chunks form a compressed JSON value. On an
inference cluster, the note `replicas` contains the applied ModelReplicas. On the control cluster, the note `known`
contains the digests of the planned ModelReplicas of each inference cluster (`core/planning/recovery.py`).
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

from ..wire import Object, identity
from .managed_fields import digest

RECORD_LABEL = "modelplane.ai/record"
"""Label of inventory ConfigMaps. The value is the scope of the inventory."""
_FORMAT = "modelplane.fleet/record/1"
PART_BYTES = 900 * 1024
"""Maximum size of a part: a ConfigMap is limited to 1 MiB, including managedFields and labels."""


class Key(NamedTuple):
    """Identity of an object, independent of the version of its API."""

    group: str
    kind: str
    namespace: str
    name: str

    @classmethod
    def of(cls, value: Object) -> Key:
        """Return the identity of an object in its wire format."""
        return cls(*identity(value))

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


@dataclass(frozen=True)
class Entry:
    """Entry of an applied object."""

    api_version: str
    desired: str = ""
    owned: str = ""


Inventory = Mapping[Key, Entry]
Notes = Mapping[str, Any]
"""JSON values of notes by name."""

REPLICAS_NOTE = "replicas"
KNOWN_NOTE = "known"
_NOTE = "note"
_NOTE_START = '["note",'
_CHUNK_BYTES = 64 * 1024
_LARGEST_NOTE = 64 * 1024 * 1024
"""Maximum size of a note in bytes before compression."""


class InventoryError(ValueError):
    """Reason why an inventory is not readable."""


def to_parts(inventory: Inventory, limit: int = PART_BYTES, notes: Notes | None = None) -> tuple[str, ...]:
    """Return the texts of all parts, or none for an empty inventory. The result is deterministic."""
    if not inventory:
        return ()
    lines = [line for name, value in sorted((notes or {}).items()) for line in _note_lines(name, value)]
    lines += [
        _json([entry.api_version, key.kind, key.namespace, key.name, entry.desired, entry.owned])
        for key, entry in sorted(inventory.items())
    ]
    bodies: list[list[str]] = []
    room = 0
    for line in lines:
        size = len(line.encode()) + 1
        if size > room:
            bodies.append([])
            room = limit - 200
        bodies[-1].append(line)
        room -= size
    total_digest = digest(lines)
    return tuple(
        "\n".join([_json([_FORMAT, number, len(bodies), total_digest]), *body]) + "\n"
        for number, body in enumerate(bodies, start=1)
    )


def of_parts(texts: Iterable[str]) -> tuple[dict[Key, Entry], dict[str, Any]]:
    """Return the inventory and the notes of all parts, in any order. Raise InventoryError."""
    bodies: dict[int, Sequence[str]] = {}
    heads = set()
    for part_text in texts:
        head, *lines = part_text.splitlines() or [""]
        number, count, total_digest = _head(head)
        bodies[number] = lines
        heads.add((count, total_digest))
    if len(heads) > 1:
        raise InventoryError("its parts are of different versions")
    for count, total_digest in heads:
        lines = [line for number in sorted(bodies) for line in bodies[number]]
        if sorted(bodies) != list(range(1, count + 1)):
            raise InventoryError(f"it has {len(bodies)} of {count} parts")
        if digest(lines) != total_digest:
            raise InventoryError("it was changed by another manager")
        note_lines = [line for line in lines if line.startswith(_NOTE_START)]
        return dict(map(_entry, lines[len(note_lines) :])), _notes(note_lines)
    return {}, {}


def _note_lines(name: str, value: Any) -> list[str]:
    data = base64.b64encode(zlib.compress(json.dumps(value, separators=(",", ":"), sort_keys=True).encode())).decode()
    chunks = [data[start : start + _CHUNK_BYTES] for start in range(0, len(data), _CHUNK_BYTES)]
    return [_json([_NOTE, name, chunk]) for chunk in chunks]


def _notes(lines: Iterable[str]) -> dict[str, Any]:
    """Return the notes of an inventory with a valid digest. Raise InventoryError."""
    chunks: dict[str, str] = {}
    for line in lines:
        fields = _loaded(line)
        if len(fields) != 3 or not all(isinstance(value, str) for value in fields):
            raise InventoryError("it contains an invalid note line")
        chunks[fields[1]] = chunks.get(fields[1], "") + fields[2]
    return {name: _note(data) for name, data in chunks.items()}


def _note(data: str) -> Any:
    decompressor = zlib.decompressobj()
    try:
        text = decompressor.decompress(base64.b64decode(data, validate=True), _LARGEST_NOTE)
        return json.loads(text) if decompressor.eof else _unreadable()
    except (ValueError, RecursionError, zlib.error):
        _unreadable()


def _unreadable() -> NoReturn:
    raise InventoryError("it contains an unreadable note")


def readable_entries(part: str) -> dict[Key, Entry]:
    """Return every readable entry of a part, even when other parts are missing."""
    entries = {}
    for line in part.splitlines()[1:]:
        try:
            key, entry = _entry(line)
        except InventoryError:
            continue
        entries[key] = entry
    return entries


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _head(line: str) -> tuple[int, int, str]:
    fields = _loaded(line)
    if len(fields) != 4 or fields[0] != _FORMAT or not all(isinstance(value, int) for value in fields[1:3]):
        raise InventoryError("it is not in the format of this version")
    return fields[1], fields[2], str(fields[3])


def _entry(line: str) -> tuple[Key, Entry]:
    fields = _loaded(line)
    if len(fields) != 6 or not all(isinstance(value, str) for value in fields):
        raise InventoryError("it has a line that is not an object")
    api_version, kind, namespace, name, desired, owned = fields
    group, slash, __ = api_version.partition("/")
    return Key(group if slash else "", kind, namespace, name), Entry(api_version, desired, owned)


def _loaded(line: str) -> list[Any]:
    try:
        fields = json.loads(line)
    except ValueError:
        fields = None
    if not isinstance(fields, list):
        raise InventoryError("it has a line that is not a JSON array")
    return fields
