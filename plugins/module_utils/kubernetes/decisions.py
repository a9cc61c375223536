# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The newest decision of a fleet on its control cluster: ConfigMaps in the namespace modelplane-system.

`modelplane-decision-<fleet>` is the head, `modelplane-decision-<fleet>.index` the index, and
`modelplane-decision-<fleet>.<part>.<cluster>` a part of what a cluster should have. Parts are written first and the
head last. Who publishes holds the lock of the fleet.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ansible_collections.modelplane.fleet.plugins.module_utils.core import names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.applying.decision import (
    DecisionError,
    DesiredState,
    Entry,
    Head,
    Index,
    packed,
    packed_index,
    unpacked,
    unpacked_index,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.constants import SYSTEM_NAMESPACE
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object, fields, text
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.client import Client
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.errors import AlreadyExists
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.fanout import fan_out
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.inventory import FLEET_LABEL
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.labelled_objects import (
    DECISION_LABEL,
    ON_WORKLOAD,
    SECRET,
)

_DATA = "content"
_INDEX = "index"
AGAIN = "Run the playbook decide again"


@dataclass(frozen=True)
class Comparison:
    """Comparison of the desired state of clusters with the newest decision: its head and index, the index as it should
    be, and the parts of clusters that are to be written."""

    head: Head | None
    before: Index
    desired: Index
    parts: Mapping[str, tuple[bytes, ...]]

    @property
    def is_same(self) -> bool:
        """Return whether this is the newest decision."""
        return self.head is not None and not self.head.whole and self.before == self.desired

    @property
    def changed(self) -> list[str]:
        """Return the clusters for which something else was decided."""
        names_of_both = sorted({*self.before, *self.desired})
        return [name for name in names_of_both if self.before.get(name) != self.desired.get(name)]


class Decisions:
    """The decisions of one fleet on its control cluster."""

    def __init__(self, client: Client, fleet: str, forks: int = 32) -> None:
        self._client, self._fleet, self._forks = client, fleet, forks

    def head(self) -> Head | None:
        """Read the head; None where nothing was published. Raises DecisionError."""
        found = self._get(self._name())
        return self._head(found) if found else None

    def newest(self, generation: int = 0) -> Head:
        """Read the head of the decision that others may apply now. `generation`: it has to be this one, 0 for any.

        Raises DecisionError.
        """
        head = self.head()
        if head is None:
            raise DecisionError(f"the fleet {self._fleet} has no decision: run the playbook decide first")
        if generation and head.generation != generation:
            raise DecisionError(
                f"decision {generation} of the fleet {self._fleet} is not the newest: {head.holder} published "
                f"{head.generation} at {head.at}. Apply that one"
            )
        if head.whole:
            raise DecisionError(
                f"{head.holder} works on all clusters of the fleet {self._fleet} by itself since {head.at}, so nothing "
                f"is left to apply. {AGAIN} once that run has ended"
            )
        return head

    def index(self, head: Head) -> dict[str, Entry]:
        """Read the index of a decision. Raises DecisionError."""
        try:
            return unpacked_index(head.index, [self._content(self._name(_INDEX))])
        except DecisionError as error:
            raise DecisionError(f"decision {head.generation} cannot be read: {error}. {AGAIN}") from error

    def desired_state(self, index: Index, cluster: str) -> DesiredState:
        """Read what a cluster should have. Raises DecisionError."""
        if cluster not in index:
            raise DecisionError(
                f"the decision has no cluster {cluster}, so nothing is applied there or removed: check the name, and "
                "that the run that decides has it as a host"
            )
        entry = index[cluster]
        try:
            parts = (self._content(self._name(str(number), cluster)) for number in range(1, entry.parts + 1))
            return unpacked(entry, parts, ON_WORKLOAD.keys() - {SECRET})
        except DecisionError as error:
            raise DecisionError(f"what was decided for cluster {cluster} cannot be read: {error}. {AGAIN}") from error

    def compare(self, states: Mapping[str, DesiredState], others: Iterable[str]) -> Comparison:
        """Compare what clusters should have with the newest decision. Raises DecisionError.

        Of `others`, clusters that the run did not reach, what was decided before stays.
        """
        head = self.head()
        before: dict[str, Entry] = {}
        if head is not None:
            # After a run that was killed meanwhile, every part is written again.
            with contextlib.suppress(DecisionError):
                before = self.index(head)
        made = {name: packed(state) for name, state in states.items()}
        kept = {name: before[name] for name in others if name in before}
        return Comparison(
            head,
            before,
            {**kept, **{name: entry for name, (entry, __) in made.items()}},
            {name: parts for name, (entry, parts) in made.items() if entry != before.get(name)},
        )

    def publish(self, compared: Comparison, holder: str, at: str) -> Head:
        """Publish a decision, and return its head: the newest one if that is the same. `holder`: the run. `at`: the
        time (RFC 3339)."""
        if compared.head is not None and compared.is_same:
            return compared.head
        self._write_all(
            {
                self._name(str(number), name): content
                for name, parts in compared.parts.items()
                for number, content in enumerate(parts, start=1)
            }
        )
        entry, parts = packed_index(compared.desired)
        self._write_all({self._name(_INDEX): b"".join(parts)})
        new = Head((compared.head.generation if compared.head else 0) + 1, entry.digest, holder, at)
        self._write_head(new)
        for name, old in compared.before.items():
            left = compared.desired[name].parts if name in compared.desired else 0
            for number in range(left + 1, old.parts + 1):
                self._client.delete("v1", "ConfigMap", self._name(str(number), name), SYSTEM_NAMESPACE)
        return new

    def supersede(self, holder: str, at: str) -> bool:
        """Keep others from applying the newest decision, as a run works on all clusters by itself; False where none
        was published."""
        head = self.head()
        if head is None:
            return False
        if not (head.whole and head.holder == holder):
            self._write_head(Head(head.generation + 1, head.index, holder, at, whole=True))
        return True

    def withdraw(self) -> None:
        """Delete all decisions of the fleet, the head last."""
        selector = f"{DECISION_LABEL}=true,{FLEET_LABEL}={self._fleet}"
        found = self._client.list("v1", "ConfigMap", namespace=SYSTEM_NAMESPACE, labels=selector).items
        named = sorted((text(each, "metadata", "name") for each in found), reverse=True)
        for name in named:
            self._client.delete("v1", "ConfigMap", name, SYSTEM_NAMESPACE)

    def _head(self, found: Object) -> Head:
        try:
            return Head.of(fields(found, "data"))
        except DecisionError as error:
            raise DecisionError(
                f"ConfigMap {SYSTEM_NAMESPACE}/{self._name()} of the control cluster cannot be read: {error}. Delete "
                "it, and run the playbook decide"
            ) from error

    def _write_head(self, head: Head) -> None:
        found = self._get(self._name())
        if found is None:
            self._client.create(self._object(self._name(), {"data": head.data()}))
        else:
            # Of two runs at once, one fails here.
            self._client.replace({**found, "data": head.data()})

    def _write_all(self, contents: Mapping[str, bytes]) -> None:
        work = {name: functools.partial(self._write, name, content) for name, content in contents.items()}
        for found in fan_out(work, self._forks).values():
            if isinstance(found, Exception):
                raise found

    def _write(self, name: str, content: bytes) -> None:
        desired = {"binaryData": {_DATA: base64.b64encode(content).decode()}}
        try:
            self._client.create(self._object(name, desired))
        except AlreadyExists:
            found = self._get(name)
            if found is not None and fields(found, "binaryData") != desired["binaryData"]:
                self._client.replace({**found, **desired})

    def _content(self, name: str) -> bytes:
        try:
            return base64.b64decode(text(self._get(name) or {}, "binaryData", _DATA), validate=True)
        except binascii.Error as error:
            raise DecisionError(f"ConfigMap {SYSTEM_NAMESPACE}/{name} is no part of a decision") from error

    def _get(self, name: str) -> Object | None:
        return self._client.get("v1", "ConfigMap", name, SYSTEM_NAMESPACE)

    def _name(self, *parts: str) -> str:
        return ".".join([f"modelplane-decision-{self._fleet}", *(names.label_value(part) for part in parts)])

    def _object(self, name: str, content: Mapping[str, object]) -> Object:
        labels = {names.MANAGED_BY_LABEL: names.MANAGED_BY, FLEET_LABEL: self._fleet, DECISION_LABEL: "true"}
        metadata = {"name": name, "namespace": SYSTEM_NAMESPACE, "labels": labels}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, **content}
