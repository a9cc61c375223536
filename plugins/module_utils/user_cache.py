# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Cache directories of the user: `~/.cache/modelplane-fleet`, or below `XDG_CACHE_HOME`."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def folder(name: str, *, make: bool) -> Path | None:
    """Return the directory with this name, if no other user can write to it; None otherwise.

    `make`: create the directory if it does not exist.
    """
    base = Path(os.path.expanduser(os.environ.get("XDG_CACHE_HOME") or "~/.cache"))
    path = base / "modelplane-fleet" / name
    try:
        if make:
            base.mkdir(parents=True, exist_ok=True)
            path.parent.mkdir(mode=0o700, exist_ok=True)
            path.mkdir(mode=0o700, exist_ok=True)
        status = path.lstat()
    except OSError:
        return None
    return path if stat.S_ISDIR(status.st_mode) and is_own(status) else None


def is_own(status: os.stat_result, others: int = 0o022) -> bool:
    """Return True if a file belongs to this user, and other users have none of the permissions `others`.

    By default, `others` are the write permissions.
    """
    return status.st_uid == os.getuid() and not status.st_mode & others
