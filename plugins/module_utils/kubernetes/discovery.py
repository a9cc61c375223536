# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Discovery of the kinds that an API server serves: asked once per group and version, cached on disk for an hour."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from .. import atomic_file

_SECONDS = 3600.0
_FORMAT = 1
_LARGEST = 4 << 20

Served = dict[str, "ResourceType"]


@dataclass(frozen=True)
class ResourceType:
    """Type of a kind that the server serves."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool
    verbs: frozenset[str]
    subresources: frozenset[str] = frozenset()

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the path of the collection, or of an object in it."""
        segments = ["/apis" if "/" in self.api_version else "/api", self.api_version]
        if self.namespaced and namespace:
            segments += ["namespaces", quote(namespace, safe="")]
        return "/".join([*segments, self.plural, *filter(None, (quote(name, safe=""), subresource))])


def group_path(api_version: str) -> str:
    """Return the discovery path of a group and version."""
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"


def parse(api_version: str, answer: Mapping[str, Any]) -> Served:
    """Return the kinds of an APIResourceList (meta/v1). Malformed entries are left out."""
    resource_types: Served = {}
    subresources: dict[str, set[str]] = {}
    entries = answer.get("resources")
    for entry in entries if isinstance(entries, list) else ():
        if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str):
            continue
        plural, slash, subresource = entry["name"].partition("/")
        if slash:
            subresources.setdefault(plural, set()).add(subresource)
        elif isinstance(entry.get("kind"), str):
            verbs = entry.get("verbs")
            resource_types[entry["kind"]] = ResourceType(
                api_version=api_version,
                kind=entry["kind"],
                plural=plural,
                namespaced=entry.get("namespaced") is True,
                verbs=frozenset(str(verb) for verb in verbs) if isinstance(verbs, list) else frozenset(),
            )
    return {
        kind: ResourceType(
            resource.api_version,
            kind,
            resource.plural,
            resource.namespaced,
            resource.verbs,
            frozenset(subresources.get(resource.plural, ())),
        )
        for kind, resource in resource_types.items()
    }


class Discovery:
    """Discovery of the kinds that one server serves.

    `ask`: function that returns the APIResourceList of a group and version, or None if it is not served."""

    def __init__(self, ask: Callable[[str], Mapping[str, Any] | None], cache: Cache | None = None) -> None:
        self._ask = ask
        self._cache = cache
        self._asked: dict[str, Served] = {}
        self._remembered: dict[str, Served] | None = None

    def find(self, api_version: str, kind: str) -> ResourceType | None:
        """Return the type of a kind, or None if it is not served. Uncached kinds are requested from the server."""
        if api_version not in self._asked:
            remembered = self._from_cache().get(api_version, {}).get(kind)
            if remembered is not None:
                return remembered
            self._fetch(api_version)
        return self._asked[api_version].get(kind)

    def kinds(self, api_version: str) -> list[ResourceType]:
        """Return all kinds of a group and version."""
        if api_version not in self._asked:
            self._fetch(api_version)
        return list(self._asked[api_version].values())

    def again(self, api_version: str, kind: str) -> ResourceType | None:
        """Return the current type of a kind after the server rejected the cached type."""
        if api_version not in self._asked:
            self._fetch(api_version)
        return self._asked[api_version].get(kind)

    def forget(self) -> None:
        """Forget all discovered kinds, including the kinds on disk."""
        self._asked, self._remembered = {}, {}

    def _fetch(self, api_version: str) -> None:
        answer = self._ask(api_version)
        served = parse(api_version, answer or {})
        self._asked[api_version] = served
        if self._cache is not None:
            self._cache.save(api_version, served)

    def _from_cache(self) -> dict[str, Served]:
        if self._remembered is None:
            self._remembered = self._cache.load() if self._cache is not None else {}
        return self._remembered


class Cache:
    """Discovery cache file of a server. A broken file counts as empty, and file errors are ignored."""

    def __init__(self, server: str, ca: str, *, write: bool) -> None:
        key = hashlib.sha256(f"{server}\n{ca}".encode()).hexdigest()[:40]
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        self._folder = Path(os.path.expanduser(base)) / "modelplane-fleet" / "discovery"
        self._path = self._folder / f"{key}.json"
        self._write = write

    def load(self) -> dict[str, Served]:
        """Return the entries that were saved within the last hour."""
        return {api_version: parse(api_version, entry) for api_version, entry in self._read().items()}

    def save(self, api_version: str, served: Served) -> None:
        """Cache the served kinds of a group and version. An empty list is not cached."""
        if not self._write or not self._folder_is_ours(make=True):
            return
        entries = self._read()
        entries.pop(api_version, None)
        if served:
            entries[api_version] = {"at": time.time(), "resources": _written(served)}
        with contextlib.suppress(OSError):
            atomic_file.write(self._path, json.dumps({"format": _FORMAT, "groups": entries}, separators=(",", ":")))

    def _read(self) -> dict[str, Mapping[str, Any]]:
        if not self._folder_is_ours(make=False):
            return {}
        try:
            if self._path.stat().st_size > _LARGEST:
                return {}
            read = json.loads(self._path.read_bytes())
        except (OSError, ValueError, RecursionError):
            return {}
        groups = read.get("groups") if isinstance(read, dict) and read.get("format") == _FORMAT else None
        current_time = time.time()
        return {
            api_version: entry
            for api_version, entry in (groups.items() if isinstance(groups, dict) else ())
            if isinstance(entry, dict)
            and isinstance(entry.get("at"), int | float)
            and 0 <= current_time - entry["at"] < _SECONDS
        }

    def _folder_is_ours(self, *, make: bool) -> bool:
        """Return True if no other user can write to the cache directory."""
        try:
            if make:
                self._folder.parent.parent.mkdir(parents=True, exist_ok=True)
                self._folder.parent.mkdir(mode=0o700, exist_ok=True)
                self._folder.mkdir(mode=0o700, exist_ok=True)
            folder_status = self._folder.lstat()
        except OSError:
            return False
        return (
            stat.S_ISDIR(folder_status.st_mode)
            and folder_status.st_uid == os.getuid()
            and not folder_status.st_mode & 0o022
        )


def _written(served: Served) -> list[dict[str, Any]]:
    """Return the resources of an APIResourceList, with only the fields that `parse` reads."""
    resources: list[dict[str, Any]] = []
    for resource in served.values():
        resources.append(
            {
                "name": resource.plural,
                "kind": resource.kind,
                "namespaced": resource.namespaced,
                "verbs": sorted(resource.verbs),
            }
        )
        resources += [{"name": f"{resource.plural}/{name}"} for name in sorted(resource.subresources)]
    return resources
