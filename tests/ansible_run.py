# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Programs of Ansible, run as a user runs them in a checkout.

Starting Ansible and importing the collection is a third of what a run costs here. So in each environment the first run
of a program is a new process, as a user starts it, and the runs after it are forked from processes that have imported
all of that (ansible_server). With COLD in the environment of the tests, every run is a new process.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
# Seconds. One run takes half a minute at most, and many times as long on a machine that has much else to do.
LONGEST_RUN = 1800.0
_SERVED = frozenset({"ansible", "ansible-inventory", "ansible-playbook"})
# Variables that are read when a run needs them, and not as something is imported.
_LATE = ("AWS_", "GOOGLE_", "XDG_CACHE_HOME")
Environment = tuple[tuple[str, str], ...]
_started: set[tuple[str, Environment]] = set()
_servers: dict[Environment, deque[_Server]] = {}


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
        if (program, key) in _started:
            return _server(key, environment).run(command, cwd, environment, merged=merged)
        _started.add((program, key))
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
    # Without byte code every start compiles all of Ansible. pytest changes PYTEST_CURRENT_TEST with every test.
    for name in ("PYTHONDONTWRITEBYTECODE", "PYTEST_CURRENT_TEST"):
        found.pop(name, None)
    return found


def _server(key: Environment, environment: Mapping[str, str]) -> _Server:
    """Return one of two servers in turn. All forks of a process iterate over sets in the same order, by one hash seed:
    a second run would not show what depends on that."""
    servers = _servers.setdefault(key, deque())
    if len(servers) < 2:
        servers.append(_Server(environment))
    else:
        servers.rotate()
    if not servers[-1].alive:
        servers[-1] = _Server(environment)
    return servers[-1]


@functools.cache
def _templates() -> str:
    """Return a folder for compiled templates, which is there until this process ends."""
    folder = tempfile.mkdtemp(prefix="templates-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


class _Server:
    """Runs programs of Ansible in forks of one process, which ends when this one does."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        # -P: the folder of the script is not on the path of modules, as it is not for users.
        command = [sys.executable, "-P", str(ROOT / "tests" / "ansible_server.py"), _templates()]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=dict(environment)
        )
        # A request and its answer belong together, also for tests that run several programs at a time.
        self._lock = threading.Lock()

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def run(
        self, command: Sequence[str], folder: Path, environment: Mapping[str, str], *, merged: bool
    ) -> subprocess.CompletedProcess[str]:
        """Run a program to its end. Raises AssertionError for one that a signal ended."""
        assert self._process.stdin
        assert self._process.stdout
        with self._lock, tempfile.NamedTemporaryFile() as out, tempfile.NamedTemporaryFile() as errors:
            request = {
                "arguments": list(command),
                "folder": str(folder),
                "environment": dict(environment),
                "stdout": out.name,
                "stderr": out.name if merged else errors.name,
                "seconds": LONGEST_RUN,
            }
            try:
                self._process.stdin.write(f"{json.dumps(request)}\n")
                self._process.stdin.flush()
                answer = self._process.stdout.readline()
            except BaseException:
                # It ends the run; an answer would be that of the next request.
                self._process.terminate()
                raise
            texts = [file.read().decode() for file in (out, errors)]
        assert answer, f"the server of Ansible ended with {self._process.wait()}"
        code = json.loads(answer)["code"]
        assert code >= 0, f"{command} was ended by signal {-code}: {texts}"
        return subprocess.CompletedProcess(list(command), code, *texts)


def inventory(path: Path, *arguments: str, **environment: str) -> tuple[dict[str, Any], str]:
    """Return what `ansible-inventory --list` prints, and what goes to stderr, in one line."""
    out, reported = run("ansible-inventory", "-i", str(path), "--list", *arguments, **environment)
    # Ansible tags text that is no template, as all that comes of manifests is.
    found = json.loads(out, object_hook=lambda value: value.get("__ansible_unsafe", value))
    return found, " ".join(reported.split())
