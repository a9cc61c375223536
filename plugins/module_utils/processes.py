# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The only code that starts other programs. Each program has a time limit, and ends with all its child processes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


class OutOfTimeError(Exception):
    """A program exceeded its time limit, and was killed."""


@dataclass(frozen=True)
class Ended:
    """Result of a program that ended."""

    code: int
    output: bytes
    errors: bytes


def run(
    command: Sequence[str], *, seconds: float, given: bytes = b"", env: Mapping[str, str], folder: str | None = None
) -> Ended:
    """Run a command in a directory, with an input and additional environment variables.

    Raises OutOfTimeError after `seconds`, OSError if the command does not start, ValueError for invalid arguments.
    Child processes are killed together with the command, because they would keep its output open.
    """
    # This code has no module object. pylint: disable-next=ansible-bad-function
    with subprocess.Popen(
        list(command),
        env={**os.environ, **env},
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            output, errors = process.communicate(given, timeout=seconds)
        except subprocess.TimeoutExpired:
            raise OutOfTimeError from None
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
    return Ended(process.returncode, output, errors)
