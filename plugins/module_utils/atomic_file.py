# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Files that are written as a whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


def write(path: str | Path, content: str | bytes, mode: int = 0o600) -> None:
    """Write a file in an existing directory, and replace an earlier file. Raises OSError."""
    data = content.encode() if isinstance(content, str) else content
    # Only the owner can access a file from mkstemp.
    handle, name = tempfile.mkstemp(prefix=".new-", dir=os.path.dirname(os.path.abspath(path)))
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        if mode != 0o600:
            os.chmod(name, mode)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
