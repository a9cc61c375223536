# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Programs of Ansible, run as a user runs them in a checkout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def run(program: str, *arguments: str, cwd: Path = ROOT, timeout: float = 300, **environment: str) -> tuple[str, str]:
    """stdout and stderr of a program. No run may end in a traceback."""
    full = {
        **os.environ,
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".collections"),
        "ANSIBLE_LOCALHOST_WARNING": "0",
        "ANSIBLE_NOCOLOR": "1",
        **environment,
    }
    # Without byte code every start compiles all of Ansible.
    full.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [str(Path(sys.executable).with_name(program)), *arguments]
    done = subprocess.run(command, capture_output=True, check=False, text=True, cwd=cwd, env=full, timeout=timeout)
    assert "Traceback" not in done.stdout + done.stderr, done.stderr
    return done.stdout, done.stderr


def inventory(path: Path, *arguments: str, **environment: str) -> tuple[dict[str, Any], str]:
    """What `ansible-inventory --list` prints, and what goes to stderr, in one line."""
    out, told = run("ansible-inventory", "-i", str(path), "--list", *arguments, **environment)
    # Ansible marks text that is no template, as all that comes of manifests is.
    found = json.loads(out, object_hook=lambda value: value.get("__ansible_unsafe", value))
    return found, " ".join(told.split())
