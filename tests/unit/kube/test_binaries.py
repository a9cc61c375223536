# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""`make kube` with a `go` that only writes files: where programs are searched, and what happens if it goes wrong."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from ansible_collections.modelplane.fleet.tests.kube import binaries
from ansible_collections.modelplane.fleet.tests.kube.processes import wait_for

NAMES = [program.name for program in binaries.ALL]
# The package of each call goes to calls.log; it waits while there is a file `wait`, and fails if there is `fail`.
GO = """#!/bin/sh
here=$(dirname "$0")
while [ "$1" != -o ]; do shift; done
echo "$3" >> "$here/calls.log"
printf half > "$2"
while [ -e "$here/wait" ]; do sleep 0.05; done
if [ -e "$here/fail" ]; then echo "go: no such module" >&2; exit 1; fi
printf '#!/bin/sh\\n' > "$2"; chmod +x "$2"
"""


@pytest.fixture
def machine(tmp_path: Path) -> dict[str, str]:
    """The environment of a machine with a `go` in bin/ and an empty cache."""
    (tmp_path / "bin").mkdir()
    go = tmp_path / "bin" / "go"
    go.write_text(GO, encoding="utf-8")
    go.chmod(0o755)
    return {"PATH": f"{tmp_path / 'bin'}:{os.defpath}", "XDG_CACHE_HOME": str(tmp_path / "cache")}


def start(machine: Mapping[str, str]) -> subprocess.Popen[str]:
    command = [sys.executable, binaries.__file__]
    return subprocess.Popen(
        command, env=machine, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


def run(machine: Mapping[str, str]) -> tuple[int, list[str]]:
    with start(machine) as process:
        output, _errors = process.communicate(timeout=30)
    return process.returncode, output.splitlines()


def calls(tmp_path: Path) -> int:
    log = tmp_path / "bin" / "calls.log"
    return len(log.read_text(encoding="utf-8").splitlines()) if log.exists() else 0


def test_builds_once(machine: dict[str, str], tmp_path: Path) -> None:
    status, lines = run(machine)
    assert status == 0
    assert [line.split(":")[0] for line in lines if "building" in line] == NAMES
    status, lines = run(machine)
    assert status == 0
    assert [line.split(":")[0] for line in lines] == NAMES
    assert calls(tmp_path) == len(NAMES)


def test_takes_what_kubebuilder_assets_has(machine: dict[str, str], tmp_path: Path) -> None:
    assets = tmp_path / "assets"
    assets.mkdir()
    for name in ("etcd", "kube-apiserver", "kubectl"):
        (assets / name).touch(mode=0o755)
    status, lines = run({**machine, "KUBEBUILDER_ASSETS": str(assets)})
    assert status == 0
    assert f"etcd: {assets / 'etcd'}" in lines
    assert calls(tmp_path) == len(NAMES) - 3


def test_says_so_without_go(machine: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "bin" / "go").unlink()
    (tmp_path / "bin" / "dirname").symlink_to("/usr/bin/dirname")
    status, lines = run({**machine, "PATH": str(tmp_path / "bin")})
    assert status == 0
    assert lines == [
        f"Go was not found, so {', '.join(NAMES)} cannot be built: tests on real control planes will be skipped"
    ]


def test_says_what_go_says(machine: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "bin" / "fail").touch()
    status, lines = run(machine)
    assert status == 1
    assert lines[-1] == "etcd could not be built: go: no such module"


@pytest.mark.parametrize("who", ["all", "not go"])
def test_may_be_killed(machine: dict[str, str], tmp_path: Path, who: str) -> None:
    """A half-written program is never taken for a whole one, even when its compiler lives on."""
    wait = tmp_path / "bin" / "wait"
    wait.touch()
    with start(machine) as process:
        wait_for("the first build", lambda: calls(tmp_path), seconds=300)
        if who == "all":
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
        wait.unlink()
    status, _lines = run(machine)
    assert status == 0
    assert calls(tmp_path) == len(NAMES) + 1
    built = [path for path in (tmp_path / "cache").rglob("*") if path.is_file() and not path.name.startswith(".")]
    assert sorted(path.name for path in built) == sorted(NAMES)
    assert {path.read_text(encoding="utf-8") for path in built} == {"#!/bin/sh\n"}


def test_may_run_twice_at_once(machine: dict[str, str], tmp_path: Path) -> None:
    wait = tmp_path / "bin" / "wait"
    wait.touch()
    with start(machine) as first:
        wait_for("the first build", lambda: calls(tmp_path), seconds=300)
        with start(machine) as second:
            assert second.stdout
            assert second.stdout.readline() == "etcd: another process is building it, waiting\n"
            wait.unlink()
            second.communicate(timeout=30)
        first.communicate(timeout=30)
    assert (first.returncode, second.returncode) == (0, 0)
    assert calls(tmp_path) == len(NAMES)
