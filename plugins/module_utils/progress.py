# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Sinks of the progress reports of modules: the callback `progress` of this run, or separate lines.

The callback puts the path of its socket into the environment of forks of ansible-playbook and of modules on the
controller. Work never waits for the callback, and never fails because of it: a report that it does not accept
immediately is lost.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ansible.module_utils.common.parameters import remove_values

from .core import progress
from .core.progress import Board, Progress, Seen

ADDRESS = "MODELPLANE_FLEET_PROGRESS"
"""The environment variable with the path of the socket of the callback."""
INTERVAL = "MODELPLANE_FLEET_PROGRESS_INTERVAL"
"""The environment variable with the seconds between two lines about running waits, with and without the callback."""
_SECONDS = 30.0
_LINES = 20
Report = Mapping[str, Any]


def of(module: Any) -> Progress:
    """Return the progress reporter of a module. The reporter masks the values of secret arguments."""
    secrets = module.no_log_values
    address = os.environ.get(ADDRESS, "")
    # A module in a separate process has no access to the terminal.
    send = Sender(address).send if address else Lines(getattr(module, "show", module.log), _interval()).take
    return Reporter(send, lambda text: str(remove_values(text, secrets)))


def _interval() -> float:
    try:
        seconds = float(os.environ.get(INTERVAL, ""))
    except ValueError:
        return _SECONDS
    return seconds if 0 < seconds < float("inf") else _SECONDS


class Reporter:
    """A Progress that sends reports to a function, with texts that `mask` returns. Safe for several threads."""

    def __init__(self, send: Callable[[Report], None], mask: Callable[[str], str] = str) -> None:
        self._send, self._mask, self._numbers = send, mask, itertools.count(1)

    @contextlib.contextmanager
    def __call__(self, cluster: str, awaited: str, usual: str) -> Iterator[Seen]:
        number = next(self._numbers)
        last_text = ""

        def seen(text: str) -> None:
            nonlocal last_text
            if text != last_text:
                self._send(progress.seen(number, self._mask(text)))
                last_text = text

        self._send(progress.begun(number, cluster, self._mask(awaited), usual))
        try:
            yield seen
        finally:
            self._send(progress.over(number))


class Sender:
    """Sender of reports to a socket, each as a line of JSON, while its reader accepts them."""

    def __init__(self, address: str) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        with contextlib.suppress(OSError):
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._socket.setblocking(False)
            self._socket.connect(address)
            return
        self._close()

    def send(self, report: Report) -> None:
        line = f"{json.dumps(report)}\n".encode()
        with self._lock:
            if self._socket is None:
                return
            try:
                is_complete = self._socket.send(line) == len(line)
            except OSError:
                is_complete = False
            if not is_complete:
                # The rest of the line could not be sent immediately, and the next line would become part of it.
                self._close()

    def _close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class Lines:
    """Output of running waits every `interval` seconds, from a thread that ends after the last wait."""

    def __init__(self, show: Callable[[str], None], interval: float) -> None:
        self._show, self._interval = show, interval
        self._board = Board()
        self._lock = threading.Lock()
        self._idle = threading.Event()
        self._thread: threading.Thread | None = None

    def take(self, report: Report) -> None:
        """Process a report. After the last report of all waits, the thread ends and the output stops."""
        finished_thread = None
        with self._lock:
            self._board.take(None, report, time.monotonic())
            if self._board.waits and self._thread is None:
                self._idle = threading.Event()
                work = functools.partial(self._show_until, self._idle)
                self._thread = threading.Thread(target=work, name="progress", daemon=True)
                self._thread.start()
            elif not self._board.waits and self._thread is not None:
                self._idle.set()
                finished_thread, self._thread = self._thread, None
        # If a process ends while its thread writes to the queue of Ansible, that queue stays locked.
        if finished_thread is not None:
            finished_thread.join()

    def _show_until(self, idle: threading.Event) -> None:
        while not idle.wait(self._interval):
            with self._lock:
                current_time = time.monotonic()
                texts = progress.shown(self._board.lines(current_time, self._interval), current_time, _LINES)
            for text in texts:
                self._show(text)
