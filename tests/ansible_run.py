# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Programs of Ansible, run as a user runs them in a checkout.

Starting Ansible and importing the collection is a third of what a run costs here. So in each environment the first run
of a program starts it as a user does, and the runs after it fork from a process that has imported all of that
(ansible_server). With the variable COLD in the environment of the tests, all runs start anew.
"""

from __future__ import annotations

import atexit
import itertools
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
# Seconds. One run takes half a minute at most, and many times as long on a machine that has much else to do.
LONGEST_RUN = 1800.0
_SERVED = frozenset({"ansible", "ansible-inventory", "ansible-playbook"})
# Variables that are read when a run needs them, and not as something is imported.
_LATE = ("AWS_", "GOOGLE_", "XDG_CACHE_HOME")
_servers: dict[tuple[tuple[str, str], ...], _Server | None] = {}


def run(program: str, *arguments: str, cwd: Path = ROOT, **variables: str) -> tuple[str, str]:
    """Return stdout and stderr of a program. No run may end in a traceback."""
    done = completed(program, *arguments, cwd=cwd, **variables)
    assert "Traceback" not in done.stdout + done.stderr, done.stderr
    return done.stdout, done.stderr


def completed(
    program: str, *arguments: str, cwd: Path = ROOT, merged: bool = False, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end. `merged`: stderr goes where stdout goes."""
    command, environment = [path(program), *arguments], environ(**variables)
    if program in _SERVED and "COLD" not in os.environ:
        key = tuple(sorted((name, value) for name, value in environment.items() if not name.startswith(_LATE)))
        if key in _servers:
            server = _servers[key] = _servers[key] or _Server(environment)
            return server.run(command, cwd, environment, merged=merged)
        _servers[key] = None
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if merged else subprocess.PIPE,
        check=False,
        text=True,
        cwd=cwd,
        env=environment,
        timeout=LONGEST_RUN,
    )


def start(program: str, *arguments: str, cwd: Path, **variables: str) -> subprocess.Popen[str]:
    """Start a program as a process of its own in a session of its own, stderr merged into stdout, a pipe."""
    return subprocess.Popen(
        [path(program), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=cwd,
        env=environ(**variables),
        start_new_session=True,
    )


def path(program: str) -> str:
    """Return where a program of the virtual environment of the tests is."""
    return str(Path(sys.executable).with_name(program))


def environ(**variables: str) -> dict[str, str]:
    """Return the environment of a program in a checkout."""
    found = {
        **os.environ,
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".collections"),
        "ANSIBLE_LOCALHOST_WARNING": "0",
        "ANSIBLE_NOCOLOR": "1",
        **variables,
    }
    # Without byte code every start compiles all of Ansible. The other one is another one in each test.
    for name in ("PYTHONDONTWRITEBYTECODE", "PYTEST_CURRENT_TEST"):
        found.pop(name, None)
    return found


class _Server:
    """Runs programs of Ansible in forks of one process."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="modelplane-fleet-runs-"))
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        command = [sys.executable, str(ROOT / "tests" / "ansible_server.py")]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=dict(environment)
        )
        atexit.register(self._process.kill)

    def run(
        self, command: Sequence[str], folder: Path, environment: Mapping[str, str], *, merged: bool
    ) -> subprocess.CompletedProcess[str]:
        """Run a program to its end. One after the other, whoever asks."""
        number = next(self._numbers)
        out = self._folder / f"{number}.out"
        errors = out if merged else out.with_suffix(".err")
        for file in {out, errors}:
            file.touch(mode=0o600)
        request = {
            "arguments": list(command),
            "folder": str(folder),
            "environment": dict(environment),
            "stdout": str(out),
            "stderr": str(errors),
            "seconds": LONGEST_RUN,
        }
        assert self._process.stdin
        assert self._process.stdout
        with self._lock:
            self._process.stdin.write(f"{json.dumps(request)}\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        assert answer, f"the server of Ansible ended with {self._process.wait()}"
        texts = (out.read_text(), "" if merged else errors.read_text())
        for file in {out, errors}:
            file.unlink()
        return subprocess.CompletedProcess(list(command), json.loads(answer)["code"], *texts)


def inventory(path: Path, *arguments: str, **environment: str) -> tuple[dict[str, Any], str]:
    """What `ansible-inventory --list` prints, and what goes to stderr, in one line."""
    out, told = run("ansible-inventory", "-i", str(path), "--list", *arguments, **environment)
    # Ansible marks text that is no template, as all that comes of manifests is.
    found = json.loads(out, object_hook=lambda value: value.get("__ansible_unsafe", value))
    return found, " ".join(told.split())
