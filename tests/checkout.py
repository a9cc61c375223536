# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The files of the checkout."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def files() -> list[str]:
    """Return the paths of the files that git has or would add, without links."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    paths = ((name, ROOT / name) for name in sorted(set(listed.split("\0"))) if name)
    return [name for name, path in paths if path.is_file() and not path.is_symlink()]
