# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Decision of a fleet that one run publishes and other runs apply: the desired state of each inference cluster.

It has a head, an index, and parts. The head contains the generation of the newest decision. The index contains the
digest of the desired state and the number of parts of each cluster. The parts of a cluster are compressed JSON. A chain
of digests from the head to every part ensures that a decision is read as a whole or rejected. Readers never mix two
decisions.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .. import names
from ..compose import constants
from ..wire import Object, identity, text
from .inventory import PART_BYTES
from .managed_fields import digest

FORMAT = "modelplane.fleet/decision/1"
LARGEST = 64 * 1024 * 1024
"""Maximum size of the objects of a cluster, or of an index, after decompression, in bytes."""

_WITHOUT_NAMESPACE = frozenset(
    {
        ("cert-manager.io", "ClusterIssuer", constants.MODEL_GATEWAY_CA),
        ("trust.cert-manager.io", "Bundle", constants.CLUSTER_GATEWAY_CA),
        ("trust.cert-manager.io", "Bundle", constants.MODEL_GATEWAY_CA),
    }
)
"""Objects without a namespace for inference clusters, in addition to Namespaces. Model gateways require them."""
_MOST_PARTS = LARGEST // PART_BYTES + 1
_GENERATION = re.compile("[1-9][0-9]{0,14}")

Labels = frozenset[tuple[tuple[str, str], ...]]


class DecisionError(Exception):
    """Reason why a decision cannot be read, or must not be applied."""


@dataclass(frozen=True)
class Head:
    """Head of the newest decision."""

    generation: int
    """Number of the decision, increasing."""
    index: str
    """Digest of its index."""
    holder: str
    """Run that published it."""
    at: str
    """Time of publication (RFC 3339)."""
    whole: bool = False
    """True if this run, or a teardown, applies to all clusters itself, so that other runs have nothing to apply."""

    def data(self) -> dict[str, str]:
        """Return the data of its ConfigMap."""
        return {
            "format": FORMAT,
            "generation": str(self.generation),
            "index": self.index,
            "holder": self.holder,
            "at": self.at,
            "whole": str(self.whole).lower(),
        }

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Head:
        """Return the head that the data of a ConfigMap has. Raise DecisionError."""
        generation = text(data, "generation")
        if text(data, "format") != FORMAT or not _GENERATION.fullmatch(generation):
            raise DecisionError("it is not in the format of this version")
        return cls(
            int(generation), text(data, "index"), text(data, "holder"), text(data, "at"), text(data, "whole") == "true"
        )


class Entry(NamedTuple):
    """Entry of a cluster in an index: the digest of its desired state, and the number of parts."""

    digest: str
    parts: int


Index = Mapping[str, Entry]


@dataclass(frozen=True)
class DesiredState:
    """Desired state of one inference cluster."""

    objects: Sequence[Object] = ()
    secret_copies: Sequence[Mapping[str, Any]] = ()
    """Entries of a plan with names of Secrets, without their content."""
    held: Labels = field(default_factory=frozenset)
    """Labels (name and value) of frozen objects."""
    is_blocked: bool = False
    """New replicas serve only after preempted replicas have left, and these leave when replacements serve on other
    clusters. Runs therefore do not wait for the new replicas."""
    replicas: Sequence[Object] = ()
    """ModelReplicas of the objects."""
    history: Sequence[str] | None = None
    """Digests of planned ModelReplicas, newest last. None if the build has no digests (`core/planning/recovery.py`)."""


class Packed(NamedTuple):
    """Desired state of a cluster in its published form: its entry in the index, and its parts."""

    entry: Entry
    parts: tuple[bytes, ...]


def packed(desired: DesiredState) -> Packed:
    """Return the desired state of a cluster in its published form."""
    return _packed(
        {
            "objects": list(desired.objects),
            "secretCopies": list(desired.secret_copies),
            "held": sorted(desired.held),
            **({"blocked": True} if desired.is_blocked else {}),
            **_history(desired),
        }
    )


def unpacked(entry: Entry, parts: Iterable[bytes], kinds: Iterable[tuple[str, str]]) -> DesiredState:
    """Return the desired state in the parts of a cluster. Raise DecisionError.

    `kinds`: group and kind of the objects that fleets compose for inference clusters. Objects of other kinds, in
    namespaces outside the fleet, or without a namespace are rejected, except the objects of gateways without a
    namespace.
    """
    value = _unpacked(entry, parts)
    objects, secret_copies, held_labels = (_list(value, name) for name in ("objects", "secretCopies", "held"))
    known_kinds = frozenset(kinds)
    for entry_object in objects:
        group, kind, namespace, name = identity(entry_object)
        if not name or (group, kind) not in known_kinds or not _is_in_place(group, kind, namespace, name):
            raise DecisionError("it has an object that no fleet composes")
    for entry_object in secret_copies:
        if not names.is_fleet_namespace(text(entry_object, "to", "namespace")):
            raise DecisionError("it has a copy of a Secret that no fleet makes")
    history = value.get("history")
    return DesiredState(
        tuple(objects),
        tuple(secret_copies),
        frozenset(map(_labels, held_labels)),
        is_blocked=value.get("blocked") is True,
        replicas=tuple(replica for replica in _list(value, "replicas") if isinstance(replica, dict)),
        history=[digest for digest in history if isinstance(digest, str)] if isinstance(history, list) else None,
    )


def _history(desired: DesiredState) -> dict[str, Any]:
    if desired.history is None:
        return {}
    return {"replicas": list(desired.replicas), "history": list(desired.history)}


def _is_in_place(group: str, kind: str, namespace: str, name: str) -> bool:
    """Return True if an object is in a location for objects of its kind that a fleet composes."""
    if namespace or (group, kind) == ("", "Namespace"):
        return names.is_fleet_namespace(namespace or name)
    return (group, kind, name) in _WITHOUT_NAMESPACE


def packed_index(index: Index) -> Packed:
    """Return the entry and the parts of an index. The head contains the digest of the entry."""
    return _packed({cluster: list(entry) for cluster, entry in sorted(index.items())})


def unpacked_index(expected: str, parts: Iterable[bytes]) -> dict[str, Entry]:
    """Return the index with the digest `expected`. Raise DecisionError."""
    entries = _unpacked(Entry(expected, 1), parts)
    index = {}
    for cluster, entry in entries.items():
        if not (
            isinstance(entry, list)
            and len(entry) == 2
            and isinstance(entry[0], str)
            and isinstance(entry[1], int)
            and 0 < entry[1] <= _MOST_PARTS
        ):
            raise DecisionError(f"its index has an entry that cannot be read ({cluster})")
        index[cluster] = Entry(*entry)
    return index


def _packed(value: Any) -> Packed:
    data = zlib.compress(json.dumps(value, separators=(",", ":"), sort_keys=True).encode())
    chunks = tuple(data[start : start + PART_BYTES] for start in range(0, len(data), PART_BYTES))
    return Packed(Entry(digest(value), len(chunks)), chunks)


def _unpacked(entry: Entry, parts: Iterable[bytes]) -> dict[str, Any]:
    """Return the content of packed parts. The size is limited before the content is read, because a server sent it."""
    decompressor = zlib.decompressobj()
    try:
        data = decompressor.decompress(b"".join(parts), LARGEST)
        value = json.loads(data) if decompressor.eof else None
        content_digest = digest(value)
    except (ValueError, RecursionError, zlib.error):
        value, content_digest = None, ""
    if not isinstance(value, dict) or content_digest != entry.digest:
        raise DecisionError("it was changed while it was read, or by another manager")
    return value


def _labels(value: Any) -> tuple[tuple[str, str], ...]:
    """Return the labels of a state. Raise DecisionError."""
    if not isinstance(value, list):
        raise DecisionError("it has labels that cannot be read")
    labels = []
    for pair in value:
        if not (isinstance(pair, list) and len(pair) == 2 and all(isinstance(text, str) for text in pair)):
            raise DecisionError("it has labels that cannot be read")
        labels.append((pair[0], pair[1]))
    return tuple(labels)


def _list(value: Mapping[str, Any], name: str) -> list[Any]:
    entries = value.get(name)
    return entries if isinstance(entries, list) else []
