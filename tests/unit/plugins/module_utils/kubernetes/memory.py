# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A cluster that is a list of objects: reads only, and refuses what a test says."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object, fields
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.client import Listing
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.discovery import ResourceType
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.errors import ApiError, NotServed


class MemoryClient:
    """Reads as `client.Client` does. `unserved` are kinds that the server does not have, `failures` what happens when a
    kind is read."""

    warnings: tuple[str, ...] = ()

    def __init__(
        self, objects: Iterable[Object], unserved: Iterable[str] = (), failures: Mapping[str, ApiError] | None = None
    ) -> None:
        self.name = "east"
        self.requests: Counter[str] = Counter()
        self.objects = list(objects)
        self.unserved = set(unserved)
        self.failures = dict(failures or {})
        self.asked: list[tuple[str, ...]] = []
        self.resources: set[str] = set()

    def version(self) -> tuple[int, int]:
        self._ask("version", "")
        return 1, 36

    def serves(self, _api_version: str, kind: str) -> bool:
        return kind not in self.unserved

    def resource(self, api_version: str, kind: str) -> ResourceType:
        self.resources.add(kind)
        return ResourceType(api_version, kind, kind.lower(), namespaced=False, verbs=frozenset({"get", "list"}))

    def fetch(self, path: str, _query: Mapping[str, str], _action: str) -> bytes:
        """All objects of a kind, as an API server writes them."""
        __, __, group, version, plural = path.split("/")
        (kind,) = (each for each in self.resources if each.lower() == plural)
        items = self.list(f"{group}/{version}", kind).items
        return json.dumps({"kind": f"{kind}List", "apiVersion": f"{group}/{version}", "items": items}).encode()

    def get(self, api_version: str, kind: str, name: str, namespace: str = "") -> Any:
        self._ask("get", kind, namespace, name)
        for value in self._of(api_version, kind):
            if value["metadata"]["name"] == name and value["metadata"].get("namespace", "") == namespace:
                return deepcopy(value)
        return None

    def list(self, api_version: str, kind: str, *, namespace: str = "", labels: str = "", fields: str = "") -> Listing:
        self._ask("list", kind, namespace, labels, fields)
        if kind in self.unserved:
            raise NotServed(f"{kind} is not served", cluster=self.name)
        found = [
            deepcopy(value)
            for value in self._of(api_version, kind)
            if namespace in ("", value["metadata"].get("namespace"))
            and _labelled(value, labels)
            and all(_field(value, term) for term in fields.split(",") if term)
        ]
        return Listing(tuple(found), "1")

    def _of(self, api_version: str, kind: str) -> Iterable[Any]:
        return (value for value in self.objects if (value["apiVersion"], value["kind"]) == (api_version, kind))

    def _ask(self, verb: str, kind: str, *rest: str) -> None:
        self.requests[verb] += 1
        self.asked.append((verb, kind, *rest))
        if kind in self.failures:
            raise self.failures[kind]


def _labelled(value: Object, selector: str) -> bool:
    labels = fields(value, "metadata", "labels")
    if found := re.fullmatch(r"(\S+) in \((.*)\)", selector):
        return labels.get(found[1]) in found[2].split(",")
    return all(_has(labels, term) for term in selector.split(",") if term)


def _has(labels: Mapping[str, Any], term: str) -> bool:
    key, equals, desired = term.partition("=")
    return labels.get(key) == desired if equals else key[1:] not in labels if key.startswith("!") else key in labels


def _field(value: Any, term: str) -> bool:
    path, _, desired = term.partition("=")
    for part in path.split("."):
        value = value.get(part, {})
    return bool(value == desired)
