# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The program crane, which copies images between registries, built once from its Go module."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

from ansible_collections.modelplane.fleet.tests.packages import UnavailableError, cache, once

MODULE = Path(__file__).resolve().parent / "build" / "crane"
PACKAGE = "github.com/google/go-containerregistry/cmd/crane"


def crane() -> Path:
    """Its path. Raises UnavailableError with what to do."""
    pinned = b"".join((MODULE / name).read_bytes() for name in ("go.mod", "go.sum"))
    digest = hashlib.sha256(pinned + f"{sys.platform} {platform.machine()}".encode()).hexdigest()

    def make(folder: Path) -> None:
        if not shutil.which("go"):
            raise UnavailableError("Go was not found, so crane cannot be built: install Go")
        done = subprocess.run(
            ["go", "build", "-trimpath", "-ldflags", "-s -w", "-o", str(folder / "crane"), PACKAGE],
            cwd=MODULE,
            env={**os.environ, "CGO_ENABLED": "0", "GOWORK": "off"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            lines = done.stderr.strip().splitlines() or ["go said nothing"]
            raise UnavailableError("crane could not be built: " + "\n".join(lines[-5:]))

    return once(cache() / "crane" / digest[:16], make) / "crane"
