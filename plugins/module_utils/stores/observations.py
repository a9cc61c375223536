# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The file in which one module leaves for another what it observed of a fleet (`core/observation.py`)."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils import atomic_file
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.directory import StoreError

# JSON may hold them as they are; YAML, whose reader the file meets as well, may not (YAML 1.2, 5.1).
_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")
_OURS = '{"clusters":'


def observations_text(document: Mapping[str, Any]) -> str:
    """The text of an observation: JSON, a line for each cluster, the same for the same observation."""
    clusters = document.get("clusters") or {}
    lines = ",\n".join(f"{_json(name)}:{_json(clusters[name])}" for name in sorted(clusters))
    return f'{_OURS}{{\n{lines}\n}},\n"control":{_json(document.get("control") or {})}}}\n'


def write_observations(path: str, document: Mapping[str, Any]) -> bool:
    """Write an observation to a file that its owner alone can read, atomically, when it differs from what is there.
    Whether it was written. Raises StoreError."""
    data = observations_text(document).encode()
    try:
        before = _read(path)
        if before == data and not os.stat(path).st_mode & 0o077:
            return False
        if before and not before.startswith(_OURS.encode()):
            raise StoreError(f"{path} is no observation that was written here: move it, or choose another path")
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        atomic_file.write(path, data)
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror}") from error
    return True


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as stream:
            return stream.read()
    except FileNotFoundError:
        return b""


def _json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
