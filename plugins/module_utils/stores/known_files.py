# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Cache of build files that match their inputs, so that unchanged files are not composed again.

The cache has a seal for each group of files, such as a cluster. A seal is a digest of the inputs and of the composed
files, keyed with a secret of the user. Inputs and files are compared in their current state, so a seal only proves that
both belong together. No change of the cache can forge this proof, because a seal requires the key. A seal of another
fleet, cluster, or time belongs to other inputs or files. The code that composes objects is part of the inputs. The
result of a run is therefore equal with any cache, and without a cache.

The cache contains no text of a fleet. It is in the cache directory of the user. The build directory is not suitable,
because others might have written it, for example with Git, and because its files appear in every diff.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import os
import secrets
import stat
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path

from .. import atomic_file, user_cache

_FOLDER = "builds"
_KEY = "key"
_KEY_BYTES = 32
_SEAL_BYTES = 20
_FORMAT = 1
_LARGEST = 16 << 20
_MOST_BUILDS = 64
_CODE = ("core", "stores", "usecases")
_PACKAGES = ("pydantic", "pydantic-core", "PyYAML")


Inputs = Callable[[], Iterable[str]]
"""Function that returns the input texts of a group of files. It is called only to compute a seal."""


class KnownFiles:
    """Seals of a build directory. A run continues without them if they cannot be read or written."""

    def __init__(self, folder: str | Path, *, write: bool) -> None:
        """Read the seals of a build directory. Without `write`, nothing is written to the cache."""
        self._name = f"{hashlib.sha256(os.fsencode(os.path.realpath(folder))).hexdigest()[:40]}.json"
        self._place = user_cache.folder(_FOLDER, make=write) if _code() else None
        self._key = _key(self._place, make=write) if self._place else b""
        self._before = _seals(self._place / self._name) if self._place and self._key else {}
        self._after: dict[str, str] = {}
        self._write = write

    def prove(self, group: str, inputs: Inputs, files: Mapping[str, str]) -> bool:
        """Return True if a seal proves that these inputs are composed to these files (texts by name)."""
        known_seal = self._before.get(group)
        if known_seal is None:
            return False
        seal = _seal(self._key, inputs, files)
        if not secrets.compare_digest(seal.encode(), known_seal.encode()):
            return False
        self._after[group] = seal
        return True

    def note(self, group: str, inputs: Inputs, files: Mapping[str, str]) -> None:
        """Note that these inputs were composed to these files."""
        if self._key and self._write:
            self._after[group] = _seal(self._key, inputs, files)

    def save(self) -> None:
        """Write the proved and noted seals, if any of them is new."""
        if not (self._write and self._place and self._key) or self._after == self._before:
            return
        with contextlib.suppress(OSError):
            atomic_file.write(self._place / self._name, json.dumps({"format": _FORMAT, "seals": self._after}))
            builds = sorted(self._place.glob("*.json"), key=lambda path: path.stat().st_mtime)
            for path in builds[:-_MOST_BUILDS]:
                path.unlink()


def _seal(key: bytes, inputs: Inputs, files: Mapping[str, str]) -> str:
    """Return the digest of inputs and files. The length of each text separates the texts."""
    digest = hashlib.blake2b(_code(), key=key, digest_size=_SEAL_BYTES)
    for texts in (tuple(inputs()), tuple(entry_text for file in sorted(files.items()) for entry_text in file)):
        lengths = ",".join(map(str, map(len, texts)))
        digest.update(f"{lengths}:".encode())
        digest.update("".join(texts).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _seals(path: Path) -> dict[str, str]:
    data = _own_content(path, _LARGEST)
    try:
        read = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    seals = read.get("seals") if isinstance(read, dict) and read.get("format") == _FORMAT else None
    if not isinstance(seals, dict):
        return {}
    return {group: seal for group, seal in seals.items() if isinstance(seal, str)}


def _key(place: Path, *, make: bool) -> bytes:
    """Return the key of the user, or b"" without one."""
    path = place / _KEY
    key_bytes = _own_content(path, _KEY_BYTES, others=0o077)
    if len(key_bytes) != _KEY_BYTES and make:
        key_bytes = secrets.token_bytes(_KEY_BYTES)
        try:
            atomic_file.write(path, key_bytes)
        except OSError:
            return b""
    return key_bytes if len(key_bytes) == _KEY_BYTES else b""


def _own_content(path: Path, most: int, others: int = 0o022) -> bytes:
    """Return the content of a file of this user, or b"" for other files and for files with permissions for others.

    `others`: the rejected permissions, as mode bits. `most`: the maximum size in bytes."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
            status = os.fstat(stream.fileno())
            if not stat.S_ISREG(status.st_mode) or not user_cache.is_own(status, others) or status.st_size > most:
                return b""
            return stream.read()
    except OSError:
        return b""


@cache
def _code() -> bytes:
    """Return a digest of all code that affects composed objects, or b"" if its files cannot be read.

    The files cannot be read in a module that Ansible sends to another machine."""
    top = Path(__file__).parents[1]
    try:
        versions = [importlib.metadata.version(name) for name in _PACKAGES]
        digest = hashlib.sha256("\n".join([sys.version, *versions]).encode())
        paths = sorted(path for name in _CODE for path in (top / name).rglob("*.py"))
        for path in paths:
            digest.update(str(path.relative_to(top)).encode())
            digest.update(path.read_bytes())
    except (OSError, importlib.metadata.PackageNotFoundError):
        return b""
    return digest.digest() if paths else b""
