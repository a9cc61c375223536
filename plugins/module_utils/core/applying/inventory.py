# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The record: every object that a fleet applied to one API server, so that what is no longer wanted can be found.

It is text, a line of JSON each: a head, then `[apiVersion, kind, namespace, name, wanted, owned]` per object. `wanted`
is the digest of what was applied, `owned` that of the fields which our manager owned in the live object afterwards;
both are empty until that has happened, and for Secrets, of whose values no digest is written. A record that is too
large for one ConfigMap is cut into parts, whose heads hold a digest of the whole, so that parts of two versions are
never mixed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ansible_collections.modelplane.fleet.plugins.module_utils.core.applying.managed_fields import digest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object, identity

_FORMAT = "modelplane.fleet/record/1"
PART_BYTES = 900 * 1024
"""Most text in one part: a ConfigMap holds up to 1 MiB, managedFields and labels included."""


class Key(NamedTuple):
    """The identity of an object, whatever version of its API it is written in."""

    group: str
    kind: str
    namespace: str
    name: str

    @classmethod
    def of(cls, value: Object) -> Key:
        """The identity of an object in its wire form."""
        return cls(*identity(value))

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


@dataclass(frozen=True)
class Entry:
    """What is known of an object that was applied."""

    api_version: str
    wanted: str = ""
    owned: str = ""


Record = Mapping[Key, Entry]


class RecordError(ValueError):
    """A record cannot be read; the text says why."""


def to_parts(record: Record, limit: int = PART_BYTES) -> tuple[str, ...]:
    """The text of each part; none for an empty record. The same record gives the same texts."""
    lines = [
        _json([entry.api_version, key.kind, key.namespace, key.name, entry.wanted, entry.owned])
        for key, entry in sorted(record.items())
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
    whole = digest(lines)
    return tuple(
        "\n".join([_json([_FORMAT, number, len(bodies), whole]), *body]) + "\n"
        for number, body in enumerate(bodies, start=1)
    )


def of_parts(texts: Iterable[str]) -> dict[Key, Entry]:
    """The record that parts, in any order, make together. Raises RecordError."""
    bodies: dict[int, Sequence[str]] = {}
    heads = set()
    for part in texts:
        head, *lines = part.splitlines() or [""]
        number, count, whole = _head(head)
        bodies[number] = lines
        heads.add((count, whole))
    if len(heads) > 1:
        raise RecordError("its parts are of different versions")
    for count, whole in heads:
        lines = [line for number in sorted(bodies) for line in bodies[number]]
        if sorted(bodies) != list(range(1, count + 1)):
            raise RecordError(f"it has {len(bodies)} of {count} parts")
        if digest(lines) != whole:
            raise RecordError("it was changed by somebody else")
        return dict(map(_entry, lines))
    return {}


def lines_of(part: str) -> dict[Key, Entry]:
    """Every object that a part names, whatever became of the other parts."""
    found = {}
    for line in part.splitlines()[1:]:
        try:
            key, entry = _entry(line)
        except RecordError:
            continue
        found[key] = entry
    return found


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _head(line: str) -> tuple[int, int, str]:
    found = _loaded(line)
    if len(found) != 4 or found[0] != _FORMAT or not all(isinstance(value, int) for value in found[1:3]):
        raise RecordError("it is not written as this version writes it")
    return found[1], found[2], str(found[3])


def _entry(line: str) -> tuple[Key, Entry]:
    found = _loaded(line)
    if len(found) != 6 or not all(isinstance(value, str) for value in found):
        raise RecordError("it has a line that is no object")
    api_version, kind, namespace, name, wanted, owned = found
    group, slash, __ = api_version.partition("/")
    return Key(group if slash else "", kind, namespace, name), Entry(api_version, wanted, owned)


def _loaded(line: str) -> list[Any]:
    try:
        found = json.loads(line)
    except ValueError:
        found = None
    if not isinstance(found, list):
        raise RecordError("it has a line that is no JSON list")
    return found
