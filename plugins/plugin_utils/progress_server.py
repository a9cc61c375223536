# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Socket for progress reports of a run, and a thread that reads and shows them."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core.progress import Board, Rank

# Maximum length of a report. A longer line is not from a sender of this collection.
_LONGEST = 1 << 14
_CHUNK = 1 << 16
_WAITING = 128


class Server:
    """Server that receives progress reports into a Board.

    A thread calls `show` with the Board every `pause` seconds, and soon after a report. `path`: path of the socket, in
    a directory that only this user can enter."""

    def __init__(self, show: Callable[[Board, float], None], pause: float) -> None:
        self._show, self._pause = show, pause
        self._board, self._lock = Board(), threading.Lock()
        self._rests: dict[socket.socket, bytes] = {}
        self._folder = tempfile.mkdtemp(prefix="modelplane-")
        self.path = os.path.join(self._folder, "progress")
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._awake, self._wake = socket.socketpair()
        try:
            self._listening.bind(self.path)
        except OSError:
            self._close()
            raise
        os.chmod(self.path, 0o600)
        self._listening.listen(_WAITING)
        self._ended = False
        self._selector = selectors.DefaultSelector()
        for endpoint in (self._listening, self._awake):
            endpoint.setblocking(False)
            self._selector.register(endpoint, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._serve, name="progress", daemon=True)
        self._thread.start()

    def take(self, source: Any, report: Mapping[str, Any], rank: Rank) -> None:
        """Take a report of this process."""
        with self._lock:
            self._board.take(source, report, time.monotonic(), rank)

    def stop(self) -> None:
        """End the thread, and remove the socket."""
        self._ended = True
        with contextlib.suppress(OSError):
            self._wake.send(b".")
        self._thread.join()
        for sender in list(self._rests):
            sender.close()
        self._selector.close()
        self._close()

    def _close(self) -> None:
        for endpoint in (self._listening, self._awake, self._wake):
            endpoint.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _serve(self) -> None:
        while not self._ended:
            for key, __ in self._selector.select(self._pause):
                if key.fileobj is self._listening:
                    self._accept()
                elif key.fileobj is not self._awake:
                    self._receive(key.fileobj)  # type: ignore[arg-type]
            if not self._ended:
                # The terminal may be gone.
                with self._lock, contextlib.suppress(OSError, ValueError):
                    self._show(self._board, time.monotonic())

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            sender, __ = self._listening.accept()
            sender.setblocking(False)
            self._selector.register(sender, selectors.EVENT_READ)
            self._rests[sender] = b""

    def _receive(self, sender: socket.socket) -> None:
        try:
            data = sender.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        *lines, incomplete_line = (self._rests[sender] + data).split(b"\n")
        with self._lock:
            for line in lines:
                report = _report(line)
                self._board.take(id(sender), report, time.monotonic())
            if not data or len(incomplete_line) > _LONGEST:
                # Of a process that was killed, too.
                self._board.forget(id(sender))
        self._rests[sender] = incomplete_line
        if not data or len(incomplete_line) > _LONGEST:
            self._selector.unregister(sender)
            del self._rests[sender]
            sender.close()


def _report(line: bytes) -> Mapping[str, Any]:
    try:
        report = json.loads(line) if len(line) <= _LONGEST else None
    except (ValueError, RecursionError):
        return {}
    return report if isinstance(report, dict) else {}
