# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Folders of the user for what can be found out again: `~/.cache/modelplane-fleet`, or below `XDG_CACHE_HOME`."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def folder(name: str, *, make: bool) -> Path | None:
    """Return the folder of this name if it is there, or with `make` can be made, and no other user can write there."""
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
    """Return True for what belongs to this user, and others have none of these rights to: to write, if not said."""
    return status.st_uid == os.getuid() and not status.st_mode & others
