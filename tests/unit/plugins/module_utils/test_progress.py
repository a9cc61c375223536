# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

"""Reports of work on their way to the callback, and lines without it. Each wait for a thread ends with what it does."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils import progress
from ansible_collections.modelplane.fleet.plugins.module_utils.core.progress import Board, shown
from ansible_collections.modelplane.fleet.plugins.plugin_utils.progress_server import Server

_LONG = 60.0


class Shown:
    """Sink of what a server shows, of which a test waits for some."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._lines: list[str] = []

    def __call__(self, board: Board, now: float) -> None:
        with self._changed:
            self._lines = [line.partition(": ")[2].partition(": ")[2] for line in shown(board.lines(now), now, 99)]
            self._changed.notify_all()

    def wait_for(self, *lines: str) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self._lines == list(lines), _LONG), self._lines


@pytest.fixture
def seen() -> Shown:
    return Shown()


@pytest.fixture
def server(seen: Shown) -> Iterator[Server]:
    found = Server(seen, 0.01)
    yield found
    found.stop()


def test_reports_of_several_threads_are_shown_while_they_last(server: Server, seen: Shown) -> None:
    report = progress.Reporter(progress.Sender(server.path).send)
    go_on = threading.Event()

    def work(cluster: str) -> None:
        with report(cluster, f"pods of {cluster}", "") as show:
            show("0 of 2")
            assert go_on.wait(_LONG)

    threads = [threading.Thread(target=work, args=(name,)) for name in ("east", "west")]
    for thread in threads:
        thread.start()
    seen.wait_for("waiting for pods of east; last seen: 0 of 2", "waiting for pods of west; last seen: 0 of 2")
    go_on.set()
    for thread in threads:
        thread.join()
    seen.wait_for()


def test_waits_of_a_process_that_ends_are_forgotten(server: Server, seen: Shown) -> None:
    with socket.socket(socket.AF_UNIX) as sender:
        sender.connect(server.path)
        # In pieces, as they may come, with what is no report between.
        for piece in (b'{"wait": 1, "cluster": "west", "awai', b'ted": "pods"}\nnonsense\n[]\n{"wa'):
            sender.send(piece)
        seen.wait_for("waiting for pods")
    seen.wait_for()


def test_a_sender_of_endless_lines_is_not_heard(server: Server, seen: Shown) -> None:
    with socket.socket(socket.AF_UNIX) as sender:
        sender.connect(server.path)
        sender.send(b'{"wait": 1, "cluster": "west", "awaited": "pods"}\n')
        seen.wait_for("waiting for pods")
        with contextlib.suppress(OSError):
            while True:
                sender.send(b"x" * 4096)
        seen.wait_for()


def test_only_this_user_can_report(server: Server) -> None:
    path = Path(server.path)
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_the_end_removes_the_socket_and_work_goes_on(seen: Shown) -> None:
    server = Server(seen, 0.01)
    report = progress.Reporter(progress.Sender(server.path).send)
    with report("west", "pods", "") as show:
        server.stop()
        show("after the end")
        show("and again")
    assert not Path(server.path).parent.exists()
    with progress.Reporter(progress.Sender(server.path).send)("west", "pods", "") as show:
        show("never heard")


def test_a_reader_that_does_not_read_stops_no_work(tmp_path: object) -> None:
    path = f"{tmp_path}/s"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen(1)
        report = progress.Reporter(progress.Sender(path).send)
        with report("west", "pods", "") as show:
            for number in range(3_000):
                show(f"{number} of many, which together are more than any socket keeps: {' '.join('x' * 99)}")


def test_each_text_is_sent_once_and_masked() -> None:
    sent: list[progress.Report] = []
    report = progress.Reporter(sent.append, lambda text: text.replace("hunter2", "***"))
    with report("west", "pods of hunter2", "5 min") as show:
        for text in ("a", "a", "hunter2"):
            show(text)
    assert sent == [
        {"wait": 1, "cluster": "west", "awaited": "pods of ***", "usual": "5 min"},
        {"wait": 1, "seen": "a"},
        {"wait": 1, "seen": "***"},
        {"wait": 1, "over": True},
    ]


def test_without_the_callback_lines_come_until_the_last_wait_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(progress.ADDRESS, raising=False)
    monkeypatch.setenv(progress.INTERVAL, "0.01")
    lines, came = [], threading.Event()

    def show(line: str) -> None:
        lines.append(line)
        # Lines may come before both waits have begun.
        if line.startswith("west") and any(each.startswith("east") for each in lines):
            came.set()

    module = SimpleNamespace(no_log_values={"hunter2"}, log=_none, show=show)
    report = progress.of(module)
    with report("west", "pods", "2 min"), report("east", "hunter2", ""):
        assert came.wait(_LONG)
    assert not [thread for thread in threading.enumerate() if thread.name == "progress"]
    ended = len(lines)
    assert "east: 0 s: waiting for VALUE_SPECIFIED_IN_NO_LOG_PARAMETER" in lines
    assert "west: 0 s (usually 2 min): waiting for pods" in lines
    time.sleep(0.03)
    assert len(lines) == ended


def test_a_module_in_a_process_of_its_own_has_its_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(progress.ADDRESS, raising=False)
    monkeypatch.setenv(progress.INTERVAL, "0.01")
    came = threading.Event()
    with progress.of(SimpleNamespace(no_log_values=set(), log=lambda _line: came.set()))("west", "pods", ""):
        assert came.wait(_LONG)


def _none(_line: str) -> None:
    raise AssertionError
