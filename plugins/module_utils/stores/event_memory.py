# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""File with the reported incidents of the event source, so that a restart reports no incident twice."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from operator import itemgetter
from pathlib import Path
from typing import Any

from .. import atomic_file
from ..core import names
from ..core.incidents import Memory, Remembered, Subject
from ..core.wire import entries, text
from .directory import StoreError, document_text


def read_memory(path: str) -> Memory:
    """Return the incidents of a file, or none without a file. Raise StoreError."""
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, Mapping) or document.get("generator") != names.MANAGED_BY:
        raise StoreError(f"{path} was not written by the event source: move it, or choose another file as state")
    return {
        Subject(text(entry, "type"), text(entry, "namespace"), text(entry, "name")): Remembered(
            text(entry, "since"), entry.get("reported") is True
        )
        for entry in entries(document, "incidents")
        if text(entry, "since")
    }


def write_memory(path: str, memory: Memory) -> None:
    """Write the incidents atomically to a file that only its owner can read. Raise StoreError."""
    incidents: list[dict[str, Any]] = [
        {
            "type": subject.type,
            "namespace": subject.namespace,
            "name": subject.name,
            "since": remembered.since,
            "reported": remembered.reported,
        }
        for subject, remembered in sorted(memory.items(), key=itemgetter(0))
    ]
    try:
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        atomic_file.write(path, document_text({"incidents": incidents}))
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror}") from error
