# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Ownership of objects in a cloud. Objects without the owner labels of the fleet are never changed or deleted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .compare import at
from .kinds import Kind


@dataclass(frozen=True)
class Owners:
    """The owner labels of a cloud.

    `cluster`, `manager`, `fleet`: their keys. `managed_by`: the value of `manager` on all objects of the collection.
    `word`: the term of the cloud for labels (`labels`, `tags`). `setting`: the variable of the role for the name of the
    fleet.
    """

    cluster: str
    manager: str
    fleet: str
    managed_by: str
    word: str
    setting: str

    @property
    def keys(self) -> tuple[str, str, str]:
        return (self.cluster, self.manager, self.fleet)

    def of(self, kind: Kind, value: Mapping[str, Any]) -> dict[str, str]:
        """Return the owner labels of an object or of a body. Missing labels are omitted."""
        owner_labels = labels(at(value, kind.owner)) if kind.owner else {}
        return {key: owner_labels[key] for key in self.keys if key in owner_labels}

    def conflict(self, kind: Kind, title: str, actual: Mapping[str, Any], desired: Mapping[str, Any]) -> str:
        """Return the reason why this fleet does not own an object; empty if it does, or if the kind has no owner.

        `title`: the object in messages. `desired`: its body.
        """
        if not kind.owner:
            return ""
        actual_owner, desired_owner = self.of(kind, actual), self.of(kind, desired)
        if actual_owner == desired_owner:
            return ""
        location = "description" if kind.owner.endswith("description") else self.word
        if actual_owner.get(self.manager) != self.managed_by:
            return (
                f"{title} exists already, and was not created by this collection: it has no "
                f"{self.manager}={self.managed_by} in its {location}. Remove or rename it, or give the cluster another "
                "name"
            )
        conflicts = [key for key in self.keys if actual_owner.get(key) != desired_owner.get(key)]
        theirs = ", ".join(f"{key}={actual_owner.get(key, '')}" for key in conflicts)
        return (
            f"{title} exists already, and has another owner: {theirs} in its {location}, not "
            f"{', '.join(desired_owner.get(key, '') for key in conflicts)}. Give the cluster another name, or set "
            f"{self.setting} to the name of the fleet that it belongs to"
        )


def labels(value: Any) -> dict[str, str]:
    """Return labels as a mapping: from a mapping, a list of `{"Key": .., "Value": ..}`, or a text `key=value …`."""
    if isinstance(value, Mapping):
        return {str(key): str(entry) for key, entry in value.items()}
    if isinstance(value, str):
        pairs = (pair_text.partition("=") for pair_text in value.split())
        return {key: content for key, sign, content in pairs if sign}
    return {str(entry["Key"]): str(entry.get("Value", "")) for entry in value or ()}
