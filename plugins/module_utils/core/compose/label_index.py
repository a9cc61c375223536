# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Index of resources by the labels that selectors of other resources ask for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar

from .. import api

Labelled = TypeVar("Labelled", bound=api.Resource)


class LabelIndex(Generic[Labelled]):
    """Index of resources of a kind by namespace and labels."""

    def __init__(self, resources: Iterable[Labelled]) -> None:
        self._all: dict[str, dict[str, Labelled]] = {}
        for resource in resources:
            self._all.setdefault(resource.namespace, {})[resource.name] = resource
        self._by_label: dict[tuple[str, str, str], set[str]] = {}
        for namespace, resources_by_name in self._all.items():
            for name, resource in resources_by_name.items():
                for key, value in resource.labels.items():
                    self._by_label.setdefault((namespace, key, value), set()).add(name)

    def matching(self, namespace: str, labels: Mapping[str, str]) -> list[Labelled]:
        """Return the resources of a namespace with all of these labels, sorted by name. No labels match all of them."""
        resources = self._all.get(namespace, {})
        sets = [self._by_label.get((namespace, key, value), set()) for key, value in labels.items()]
        sets.sort(key=len)
        matches = sets[0].intersection(*sets[1:]) if sets else resources
        return [resources[name] for name in sorted(matches)]
