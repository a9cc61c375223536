# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Other programs end in time, with all that they started."""

from __future__ import annotations

import ast
import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils import processes
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.mirror_commands import (
    Chart,
    Helm,
    Image,
    ImageTool,
    MirrorError,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.credentials import AccessError
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.exec_plugin import Program
from ansible_collections.modelplane.fleet.plugins.module_utils.mirror import images
from ansible_collections.modelplane.fleet.plugins.module_utils.mirror.charts import Charts, Settings
from ansible_collections.modelplane.fleet.plugins.module_utils.mirror.programs import Workspace

PLUGINS = Path(__file__).parents[4] / "plugins"
HANGS = "#!/bin/sh\necho started >&2\nsleep 300 &\necho $! > {child}\nsleep 300\n"


@pytest.fixture
def hanging(tmp_path: Path) -> Path:
    """A program that hangs, with a child that keeps its output open."""
    program = tmp_path / "hangs"
    program.write_text(HANGS.format(child=tmp_path / "child"))
    program.chmod(0o755)
    return program


def is_gone(pid: int) -> bool:
    for _ in range(100):
        state = Path(f"/proc/{pid}/stat")
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):
            os.kill(pid, 0)
            if ") Z" not in state.read_text():
                time.sleep(0.05)
                continue
        return True
    return False


@contextlib.contextmanager
def quick() -> Iterator[None]:
    start = time.monotonic()
    yield
    assert time.monotonic() - start < 20


def space(tmp_path: Path, shown: list[str] | None = None) -> Workspace:
    @contextlib.contextmanager
    def progress(_cluster: str, awaited: str, _usual: str = "") -> Iterator[object]:
        if shown is not None:
            shown.append(awaited)
        yield lambda _text: None

    return Workspace(tmp_path, {}, 0.5, progress)


@pytest.mark.integration
def test_a_program_is_killed_with_its_children(hanging: Path) -> None:
    with quick(), pytest.raises(processes.OutOfTimeError):
        processes.run([str(hanging)], seconds=1, env={})
    assert is_gone(int((hanging.parent / "child").read_text()))


@pytest.mark.integration
def test_a_child_that_outlives_a_program_is_killed_when_it_ends(tmp_path: Path) -> None:
    program = tmp_path / "leaves"
    program.write_text(f"#!/bin/sh\nsleep 300 >/dev/null 2>&1 &\necho $! > {tmp_path / 'child'}\necho out\nexit 3\n")
    program.chmod(0o755)
    with quick():
        done = processes.run([str(program)], seconds=10, given=b"in", env={})
    assert (done.code, done.output) == (3, b"out\n")
    assert is_gone(int((tmp_path / "child").read_text()))


@pytest.mark.integration
def test_a_program_gets_its_input_variables_and_folder() -> None:
    done = processes.run(["/bin/sh", "-c", 'cat; echo "$A"; pwd'], seconds=10, given=b"in ", env={"A": "a"}, folder="/")
    assert (done.code, done.output) == (0, b"in a\n/\n")


@pytest.mark.integration
@pytest.mark.parametrize("name", ["version", "template", "pull"])
def test_helm_that_hangs_is_a_problem_of_its_chart(hanging: Path, tmp_path: Path, name: str) -> None:
    shown: list[str] = []
    settings = Settings(folder="", copies=False, replace=False, check_mode=False, logins={}, forks=1)
    charts = Charts(space(tmp_path, shown), Helm(str(hanging), False, False), settings, lambda _text: None)
    if name == "version":
        with quick(), pytest.raises(MirrorError, match=r"did not end within 0\.5 s"):
            charts.prepare()
    else:
        archive = tmp_path / "a-1.tgz"
        archive.write_bytes(b"")
        given = str(archive) if name == "template" else ""
        render = {"release": "a", "namespace": "b", "values": {}}
        chart = Chart.of(
            dict.fromkeys(("chart", "version", "source", "file", "ref"), "a")
            | {"repository": "", "archive": given, "destination": "", "renders": [render]}
        )
        with quick():
            (found,) = charts.copy([chart])
        assert "hangs did not end within 0.5 s, and was stopped" in found.problem
    assert shown


@pytest.mark.integration
@pytest.mark.parametrize("program", ["crane", "skopeo"])
def test_a_registry_that_hangs_is_a_problem_of_its_image(hanging: Path, tmp_path: Path, program: str) -> None:
    path = hanging.with_name(program)
    hanging.rename(path)
    shown: list[str] = []
    image = Image("a:1", "a.example/a:1", "a.example/a", "b.example/a:1")
    tool = ImageTool(str(path), False, False)
    with quick():
        (found,) = images.copy(space(tmp_path, shown), tool, [image], check_mode=False, forks=1, log=lambda _text: None)
    assert f"{program} did not end within 0.5 s, and was stopped" in found.problem
    assert shown == ["the digest of a.example/a:1"]


@pytest.mark.integration
def test_a_credential_plugin_that_hangs_is_killed_with_its_children(hanging: Path) -> None:
    plugin = Program(command=str(hanging), api_version="client.authentication.k8s.io/v1", seconds=1)
    with quick(), pytest.raises(AccessError, match="gave no answer in 1 s"):
        plugin.mint()
    assert is_gone(int((hanging.parent / "child").read_text()))


def test_programs_are_started_in_one_place() -> None:
    starters = {"subprocess", "pty", "pexpect"}
    found = set()
    for path in PLUGINS.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            calls = isinstance(node, ast.Attribute) and node.attr in (
                "system",
                "popen",
                "run_command",
                "execv",
                "spawnv",
            )
            if calls or starters & {name.partition(".")[0] for name in names}:
                found.add(path.relative_to(PLUGINS).as_posix())
    assert found == {"module_utils/processes.py"}
