# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Programs that run beside the tests: ports of their own, processes that end when the tests end."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, TypeVar

T = TypeVar("T")
# Below the ports that systems give to outgoing connections: the port of a server that was killed stays free.
_PORTS = range(16_000, 32_000)
# Asks the kernel to kill the process when the thread that started it is gone (prctl(2), PR_SET_PDEATHSIG); what exec
# starts keeps that. Where there is no prctl, a process outlives tests that are killed.
_GUARD = """
import ctypes, os, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, 9)
    if os.getppid() != int(sys.argv[1]):
        sys.exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""
# "Parent" is the thread for the kernel, so all are started by one that lives as long as the tests.
_starter = ThreadPoolExecutor(1, "start-processes")


class Port:
    """A free TCP port of 127.0.0.1, not given to other tests of this machine until `release`."""

    def __init__(self) -> None:
        folder = Path(tempfile.gettempdir()) / f"modelplane-fleet-ports-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        while True:
            self.number = random.choice(_PORTS)
            self._lock: IO[str] = (folder / str(self.number)).open("w")
            with contextlib.suppress(OSError):
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", self.number))
                return
            self._lock.close()

    def release(self) -> None:
        self._lock.close()

    def __str__(self) -> str:
        return str(self.number)


_held: list[Port] = []


def free_port() -> int:
    """The number of a free TCP port of 127.0.0.1, not given to other tests until this process ends."""
    _held.append(Port())
    return _held[-1].number


class ProcessDiedError(Exception):
    """A program ended by itself; the text has the end of its log."""


class Process:
    """A program with its output in `log`; killed when this process ends, however it does."""

    def __init__(self, command: Sequence[str | Path], log: Path, environment: Mapping[str, str] | None = None) -> None:
        self.name = log.stem
        self.log = log
        arguments = [str(part) for part in command]
        guarded = [sys.executable, "-I", "-S", "-c", _GUARD, str(os.getpid()), *arguments]
        with log.open("ab") as output:
            self._process = _starter.submit(
                subprocess.Popen,
                guarded,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # HOME: none of them has any business with the settings of the user. GOGC: programs in Go collect
                # garbage a quarter as often as they would, as memory is cheaper than processors here.
                env={"PATH": os.defpath, "HOME": str(log.parent), "GOGC": "400", **(environment or {})},
                cwd=log.parent,
                start_new_session=True,
            ).result()

    @property
    def id(self) -> int:
        return self._process.pid

    def check(self) -> None:
        """Raises ProcessDiedError when the program has ended."""
        status = self._process.poll()
        if status is not None:
            end = self.log.read_text(encoding="utf-8", errors="replace")[-2000:]
            raise ProcessDiedError(f"{self.name} ended with {status}, {self.log} ends with:\n{end}")

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def wait(self) -> int:
        """Wait until it ends; its status."""
        return self._process.wait()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def pause(self) -> None:
        """Stop it where it is, if it runs."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._process.send_signal(signal.SIGCONT)

    def memory(self) -> int:
        """Resident memory in bytes, the pages of the program file that are shared with others included (Linux)."""
        for line in Path(f"/proc/{self.id}/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        return 0


def wait_for(what: str, ask: Callable[[], T | None], *, seconds: float, alive: Sequence[Process] = ()) -> T:
    """The first true answer of `ask`. Raises TimeoutError with `what`, or ProcessDiedError when one of `alive` ends."""
    end = time.monotonic() + seconds
    pause = 0.02
    while True:
        answer = ask()
        if answer:
            return answer
        for process in alive:
            process.check()
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {seconds:g} s")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.5)
