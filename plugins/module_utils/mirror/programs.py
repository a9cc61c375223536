# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Programs with settings of their own in a folder that goes with the run."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.mirror_commands import environment

if TYPE_CHECKING:
    from ansible.module_utils.basic import AnsibleModule

ARGUMENTS: dict[str, Any] = {
    "registry_config": {"type": "str", "no_log": True},
    "ca_file": {"type": "path"},
    "environment": {"type": "dict", "default": {}},
    "plain_http": {"type": "bool", "default": False},
    "sources_plain_http": {"type": "bool", "default": False},
    "forks": {"type": "int", "default": 4},
    "on_error": {"type": "str", "choices": ["fail", "report"], "default": "fail"},
}
"""Arguments of the modules that run these programs."""

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Ran:
    """Answer of a program. `error`: what it printed as such, or why it did not start; empty if it succeeded."""

    output: bytes
    error: str

    @property
    def text(self) -> str:
        return self.output.decode("utf-8", "replace")


@dataclass(frozen=True)
class Workspace:
    """A folder of this run, and the environment that programs get."""

    folder: Path
    environment: Mapping[str, str]

    def run(self, command: Sequence[str], given: str = "", more: Mapping[str, str] | None = None) -> Ran:
        """Run a program with an input, and more variables."""
        try:
            # There is no module here. pylint: disable-next=ansible-bad-function
            done = subprocess.run(
                list(command),
                input=given.encode(),
                env={**os.environ, **self.environment, **(more or {})},
                capture_output=True,
                check=False,
            )
        except OSError as error:
            return Ran(b"", error.strerror or "it does not start")
        except ValueError as error:
            return Ran(b"", str(error))
        said = done.stderr.decode("utf-8", "replace").strip()
        return Ran(done.stdout, (said or f"it ended with {done.returncode}") if done.returncode else "")

    def below(self, *names: str) -> str:
        """The path of a folder in this one, which is made."""
        path = self.folder.joinpath(*names)
        path.mkdir(parents=True, exist_ok=True)
        return str(path)


@contextlib.contextmanager
def workspace(params: Mapping[str, Any]) -> Iterator[Workspace]:
    """A workspace for the arguments of a module, which is removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix="modelplane-mirror."))
    try:
        logins = folder / "logins" / "config.json"
        logins.parent.mkdir(mode=0o700)
        with os.fdopen(os.open(logins, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(params["registry_config"] or "{}")
        own = environment(str(folder), str(logins), params["ca_file"] or "")
        yield Workspace(folder, {**own, **{name: str(value) for name, value in params["environment"].items()}})
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def at_once(action: Callable[[T], R], each: Sequence[T], width: int) -> list[R]:
    """The results of an action for each value in their order, up to `width` at a time."""
    with ThreadPoolExecutor(max_workers=max(1, width)) as pool:
        return list(pool.map(action, each))


def end(
    module: AnsibleModule, *, actions: Sequence[str], problems: Sequence[str], before: str, after: str, **more: Any
) -> None:
    """End a module with what it did and what it could not do, as its argument `on_error` says."""
    diff = {"before": before, "after": after} if before != after else {}
    result = {"changed": bool(actions), "actions": list(actions), "problems": list(problems), "diff": diff, **more}
    if problems and module.params["on_error"] == "fail":
        module.fail_json(msg="\n".join(problems), **result)
    module.exit_json(**result)
