# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Newest decision of a fleet on its control cluster: ConfigMaps in the namespace modelplane-system.

`modelplane-decision-<fleet>` is the head, `modelplane-decision-<fleet>.index` the index, and
`modelplane-decision-<fleet>.<part>.<cluster>` a part of the desired state of a cluster. Parts are written first and the
head last. The publishing run holds the lock of the fleet.
"""

from __future__ import annotations

import base64
import contextlib
import functools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from ..core import names
from ..core.applying.decision import (
    DecisionError,
    DesiredState,
    Entry,
    Head,
    Index,
    Packed,
    packed_index,
    unpacked,
    unpacked_index,
)
from ..core.compose.constants import SYSTEM_NAMESPACE
from ..core.wire import Object, fields, text
from .client import Client
from .errors import AlreadyExists, ApiError
from .fanout import fan_out
from .inventory import FLEET_LABEL
from .labelled_objects import DECISION_LABEL, ON_WORKLOAD, SECRET

T = TypeVar("T")

_DATA = "content"
_INDEX = "index"
AGAIN = "Run the playbook decide again"


@dataclass(frozen=True)
class Comparison:
    """Comparison of the desired state of clusters with the newest decision."""

    head: Head | None
    """Head of the newest decision."""
    before: Index
    """Index of the newest decision."""
    desired: Index
    """Desired index."""
    parts: Mapping[str, tuple[bytes, ...]]
    """Parts to write by cluster, because they differ or are unreadable."""

    @property
    def is_same(self) -> bool:
        """Return True if this is the newest decision."""
        same = self.before == self.desired and not self.parts
        return self.head is not None and not self.head.whole and same

    @property
    def changed(self) -> list[str]:
        """Return the clusters with a changed decision."""
        return sorted({*self.parts, *(name for name in self.before if name not in self.desired)})


class Decisions:
    """The decisions of one fleet on its control cluster."""

    def __init__(self, client: Client, fleet: str, forks: int = 32) -> None:
        self._client, self._fleet, self._forks = client, fleet, forks

    def head(self) -> Head | None:
        """Return the head, or None if no decision was published. Raise DecisionError."""
        config_map = self._get(self._name())
        return self._head(config_map) if config_map else None

    def newest(self, generation: int = 0) -> Head:
        """Return the head of the decision that other runs can apply now. Raise DecisionError.

        `generation`: required generation, 0 for any.
        """
        head = self.head()
        if head is None:
            raise DecisionError(f"the fleet {self._fleet} has no decision: run the playbook decide first")
        if head.whole:
            raise DecisionError(
                f"{head.holder} works on all clusters of the fleet {self._fleet} by itself since {head.at}, so nothing "
                f"is left to apply. {AGAIN} once that run has ended"
            )
        if generation and head.generation != generation:
            raise self._replaced(generation, head)
        return head

    def check(self, head: Head) -> None:
        """Raise DecisionError if a decision is no longer the newest decision, or other runs must not apply it."""
        newest_head = self.newest(head.generation)
        if newest_head != head:
            # Generations restart at 1 if all decisions were deleted, so heads are compared instead of generations.
            raise self._replaced(head.generation, newest_head)

    def index(self, head: Head) -> dict[str, Entry]:
        """Read the index of a decision. Raise DecisionError."""
        try:
            return unpacked_index(head.index, [self._content(self._name(_INDEX))])
        except DecisionError as error:
            raise DecisionError(f"decision {head.generation} cannot be read: {error}. {AGAIN}") from error

    def desired_state(self, index: Index, cluster: str) -> DesiredState:
        """Read the desired state of a cluster. Raise DecisionError."""
        if cluster not in index:
            raise DecisionError(
                f"the decision has no cluster {cluster}, so nothing is applied there or removed: check the name, and "
                "that the run that decides has it as a host"
            )
        entry = index[cluster]
        try:
            return unpacked(entry, self._parts(cluster, entry), ON_WORKLOAD.keys() - {SECRET})
        except DecisionError as error:
            raise DecisionError(f"what was decided for cluster {cluster} cannot be read: {error}. {AGAIN}") from error

    def compare(self, made: Mapping[str, Packed], others: Iterable[str]) -> Comparison:
        """Compare the desired state of clusters with the newest decision. Raise DecisionError.

        `others`: clusters that the run did not reach. Their previous decision is kept, unless another run has applied
        other objects to clusters without a decision since then.
        """
        head = self.head()
        published: dict[str, Entry] = {}
        if head is not None:
            # If the publishing run was killed, every part is written again.
            with contextlib.suppress(DecisionError):
                published = self.index(head)
        unreached = {name: published[name] for name in others if name in published and not (head and head.whole)}
        same = self._intact(
            {name: packed_parts for name, (entry, packed_parts) in made.items() if entry == published.get(name)},
            published,
        )
        return Comparison(
            head,
            published,
            {**unreached, **{name: entry for name, (entry, __) in made.items()}},
            {name: packed_parts for name, (__, packed_parts) in made.items() if name not in same},
        )

    def _intact(self, expected: Mapping[str, tuple[bytes, ...]], index: Index) -> set[str]:
        """Return the clusters with unchanged parts. Other parts might belong to a run that was killed before the
        index."""

        def is_intact(name: str) -> bool:
            try:
                # Other versions of zlib might compress to other bytes.
                return tuple(self._parts(name, index[name])) == expected[name] or bool(self.desired_state(index, name))
            except DecisionError:
                return False

        outcomes = fan_out({name: functools.partial(is_intact, name) for name in expected}, self._forks)
        return {name for name, intact in self._succeeded(outcomes).items() if intact}

    def publish(self, compared: Comparison, holder: str, at: str) -> Head:
        """Publish a changed decision, and return the head of the newest decision.

        `holder`: the run. `at`: the time (RFC 3339)."""
        if compared.head is not None and compared.is_same:
            return compared.head
        self._write_all(
            {
                self._name(str(number), name): content
                for name, packed_parts in compared.parts.items()
                for number, content in enumerate(packed_parts, start=1)
            }
        )
        entry, packed_parts = packed_index(compared.desired)
        self._write_all({self._name(_INDEX): b"".join(packed_parts)})
        new = Head((compared.head.generation if compared.head else 0) + 1, entry.digest, holder, at)
        self._write_head(new, compared.head)
        for name, old in compared.before.items():
            part_count = compared.desired[name].parts if name in compared.desired else 0
            for number in range(part_count + 1, old.parts + 1):
                self._client.delete("v1", "ConfigMap", self._name(str(number), name), SYSTEM_NAMESPACE)
        return new

    def supersede(self, holder: str, at: str) -> bool:
        """Prevent other runs from applying the newest decision, because this run applies to all clusters itself.

        Return False if no decision was published."""
        head = self.head()
        if head is None:
            return False
        if not (head.whole and head.holder == holder):
            self._write_head(Head(head.generation + 1, head.index, holder, at, whole=True), head)
        return True

    def clusters(self) -> list[str]:
        """Return the clusters of the newest decision. Raise DecisionError."""
        head = self.head()
        return sorted(self.index(head)) if head else []

    def withdraw(self) -> None:
        """Delete all decisions of the fleet, the head last."""
        selector = f"{DECISION_LABEL}=true,{FLEET_LABEL}={self._fleet}"
        config_maps = self._client.list("v1", "ConfigMap", namespace=SYSTEM_NAMESPACE, labels=selector).items
        config_map_names = sorted((text(config_map, "metadata", "name") for config_map in config_maps), reverse=True)
        for name in config_map_names:
            self._client.delete("v1", "ConfigMap", name, SYSTEM_NAMESPACE)

    def _replaced(self, generation: int, by: Head) -> DecisionError:
        return DecisionError(
            f"decision {generation} of the fleet {self._fleet} is not the newest: {by.holder} published "
            f"{by.generation} at {by.at}. Apply that one"
        )

    def _head(self, found: Object) -> Head:
        try:
            return Head.of(fields(found, "data"))
        except DecisionError as error:
            raise DecisionError(
                f"ConfigMap {SYSTEM_NAMESPACE}/{self._name()} of the control cluster cannot be read: {error}. Delete "
                "it, and run the playbook decide"
            ) from error

    def _write_head(self, head: Head, before: Head | None) -> None:
        """Write the head that follows one. Of two runs at once, one fails here."""
        if before is None:
            self._client.create(self._object(self._name(), {"data": head.data()}))
            return
        config_map = self._get(self._name())
        if config_map is None or self._head(config_map) != before:
            raise DecisionError(f"another run published a decision of the fleet {self._fleet} meanwhile. {AGAIN}")
        self._client.replace({**config_map, "data": head.data()})

    def _write_all(self, contents: Mapping[str, bytes]) -> None:
        work = {name: functools.partial(self._write, name, content) for name, content in contents.items()}
        self._succeeded(fan_out(work, self._forks))

    def _write(self, name: str, content: bytes) -> None:
        desired = {"binaryData": {_DATA: base64.b64encode(content).decode()}}
        try:
            self._client.create(self._object(name, desired))
        except AlreadyExists:
            config_map = self._get(name)
            if config_map is not None and fields(config_map, "binaryData") != desired["binaryData"]:
                self._client.replace({**config_map, **desired})

    @staticmethod
    def _succeeded(found: Mapping[str, T | ApiError]) -> dict[str, T]:
        """Return the results if none of them is an error. Raise the first error otherwise."""
        results = {}
        for name, outcome in found.items():
            if isinstance(outcome, ApiError):
                raise outcome
            results[name] = outcome
        return results

    def _parts(self, cluster: str, entry: Entry) -> Iterator[bytes]:
        return (self._content(self._name(str(number), cluster)) for number in range(1, entry.parts + 1))

    def _content(self, name: str) -> bytes:
        config_map = self._get(name)
        if config_map is None:
            raise DecisionError(f"there is no ConfigMap {SYSTEM_NAMESPACE}/{name} on the control cluster")
        try:
            return base64.b64decode(text(config_map, "binaryData", _DATA), validate=True)
        except ValueError as error:
            raise DecisionError(f"ConfigMap {SYSTEM_NAMESPACE}/{name} is no part of a decision") from error

    def _get(self, name: str) -> Object | None:
        return self._client.get("v1", "ConfigMap", name, SYSTEM_NAMESPACE)

    def _name(self, *parts: str) -> str:
        return ".".join([f"modelplane-decision-{self._fleet}", *(names.label_value(segment) for segment in parts)])

    def _object(self, name: str, content: Mapping[str, object]) -> Object:
        labels = {names.MANAGED_BY_LABEL: names.MANAGED_BY, FLEET_LABEL: self._fleet, DECISION_LABEL: "true"}
        metadata = {"name": name, "namespace": SYSTEM_NAMESPACE, "labels": labels}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, **content}
