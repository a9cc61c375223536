# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Programs with separate settings in a temporary directory of the run."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from .. import progress
from ..core.compose.mirror_commands import environment
from ..core.progress import Progress, unseen
from ..processes import OutOfTimeError
from ..processes import run as run_program

if TYPE_CHECKING:
    from ansible.module_utils.basic import AnsibleModule

ARGUMENTS: dict[str, Any] = {
    "registry_config": {"type": "str", "no_log": True},
    "ca_file": {"type": "path"},
    "environment": {"type": "dict", "default": {}},
    "plain_http": {"type": "bool", "default": False},
    "sources_plain_http": {"type": "bool", "default": False},
    "forks": {"type": "int", "default": 4},
    "timeout": {"type": "float", "default": 3600.0},
    "on_error": {"type": "str", "choices": ["fail", "report"], "default": "fail"},
}
"""Arguments of the modules that run these programs."""

READ_SECONDS = 300.0
"""Time limit, in seconds, of a program that copies no image: an unresponsive registry must not use up the time of a
copy."""

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Ran:
    """Result of a program. `error`: its error output, or the reason why it did not start; empty if it succeeded."""

    output: bytes
    error: str

    @property
    def text(self) -> str:
        return self.output.decode("utf-8", "replace")


@dataclass(frozen=True)
class Workspace:
    """A directory of this run, and the environment of programs. `seconds`: time limit of a copy of an image."""

    folder: Path
    environment: Mapping[str, str]
    seconds: float = 3600.0
    progress: Progress = field(default=unseen)

    def run(
        self,
        command: Sequence[str],
        given: str = "",
        more: Mapping[str, str] | None = None,
        *,
        awaited: str,
        copies: bool = False,
    ) -> Ran:
        """Run a program with an input and additional variables. `awaited`: the progress message.

        `copies`: it has the time limit of a copy of an image.
        """
        seconds = self.seconds if copies else min(self.seconds, READ_SECONDS)
        try:
            with self.progress("mirror", awaited, ""):
                done = run_program(
                    command, seconds=seconds, given=given.encode(), env={**self.environment, **(more or {})}
                )
        except OutOfTimeError:
            return Ran(b"", f"{os.path.basename(command[0])} did not end within {seconds:g} s, and was stopped")
        except OSError as error:
            return Ran(b"", error.strerror or "it does not start")
        except ValueError as error:
            return Ran(b"", str(error))
        error_text = done.errors.decode("utf-8", "replace").strip()
        return Ran(done.output, (error_text or f"it ended with {done.code}") if done.code else "")

    def below(self, *names: str) -> str:
        """Create a directory in the workspace, and return its path."""
        path = self.folder.joinpath(*names)
        path.mkdir(parents=True, exist_ok=True)
        return str(path)


@contextlib.contextmanager
def workspace(module: AnsibleModule) -> Iterator[Workspace]:
    """Yield a workspace for the arguments of a module. It is removed at the end."""
    params: Mapping[str, Any] = module.params
    if not params["timeout"] > 0:
        module.fail_json(msg=f"timeout is {params['timeout']:g}, and must be more than 0 (seconds)")
    folder = Path(tempfile.mkdtemp(prefix="modelplane-mirror."))
    try:
        logins = folder / "logins" / "config.json"
        logins.parent.mkdir(mode=0o700)
        with os.fdopen(os.open(logins, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(params["registry_config"] or "{}")
        tool_variables = environment(str(folder), str(logins), params["ca_file"] or "")
        variables = {**tool_variables, **{name: str(value) for name, value in params["environment"].items()}}
        yield Workspace(folder, variables, params["timeout"], progress.of(module))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def at_once(action: Callable[[T], R], each: Sequence[T], width: int) -> list[R]:
    """Return the results of an action for each value in order, with up to `width` concurrent actions."""
    with ThreadPoolExecutor(max_workers=max(1, width)) as pool:
        return list(pool.map(action, each))


def end(
    module: AnsibleModule, *, actions: Sequence[str], problems: Sequence[str], before: str, after: str, **more: Any
) -> None:
    """Exit a module with its actions and its problems. Argument `on_error` controls the result of problems."""
    diff = {"before": before, "after": after} if before != after else {}
    result = {"changed": bool(actions), "actions": list(actions), "problems": list(problems), "diff": diff, **more}
    if problems and module.params["on_error"] == "fail":
        module.fail_json(msg="\n".join(problems), **result)
    module.exit_json(**result)
