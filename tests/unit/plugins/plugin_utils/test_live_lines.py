# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

from __future__ import annotations

import io
import re

import pytest
from ansible_collections.modelplane.fleet.plugins.callback.progress import is_live
from ansible_collections.modelplane.fleet.plugins.plugin_utils.live_lines import LiveLines

_PARTS = re.compile(r"\x1b\[(\d+)A|\x1b\[J|\x1b\[[\d;]*m|\r|\n|[^\x1b\r\n]+")


def screen(output: str, width: int) -> list[str]:
    """Return the rows that a terminal of this width shows of an output with the sequences of live lines."""
    rows, row, column = [""], 0, 0
    for part in _PARTS.finditer(output):
        if part[1]:
            row -= int(part[1])
            assert row >= 0, f"above the first row: {output!r}"
        elif part[0] == "\x1b[J":
            rows[row:] = [rows[row][:column]]
        elif part[0] == "\r":
            column = 0
        elif part[0] == "\n":
            row, column = row + 1, 0
            rows += [""] * (row + 1 - len(rows))
        elif not part[0].startswith("\x1b"):
            for letter in part[0]:
                if column == width:
                    row, column = row + 1, 0
                    rows += [""] * (row + 1 - len(rows))
                rows[row] = rows[row][:column] + letter + rows[row][column + 1 :]
                column += 1
    return rows


class Terminal:
    def __init__(self, width: int = 40) -> None:
        self.width, self.written = width, io.StringIO()
        self.live = LiveLines(self.written, lambda: self.width, str)

    def write(self, text: str) -> None:
        with self.live.other_output(ends_line=text.endswith("\n")):
            self.written.write(text)

    def rows(self) -> list[str]:
        return screen(self.written.getvalue(), self.width)


def test_lines_are_updated_in_place_and_removed() -> None:
    terminal = Terminal()
    terminal.write("TASK\n")
    terminal.live.show(["east: 1 s", "west: 1 s"])
    assert terminal.rows() == ["TASK", "east: 1 s", "west: 1 s", ""]
    terminal.live.show(["west: 2 s"])
    assert terminal.rows() == ["TASK", "west: 2 s", ""]
    terminal.live.show([])
    assert terminal.rows() == ["TASK", ""]


def test_what_does_not_change_is_not_written_again() -> None:
    terminal = Terminal()
    terminal.live.show(["east: 1 s"])
    before = terminal.written.getvalue()
    terminal.live.show(["east: 1 s"])
    assert terminal.written.getvalue() == before


def test_other_output_goes_above_them() -> None:
    terminal = Terminal()
    terminal.live.show(["east: 1 s"])
    terminal.write("ok: [east]\n")
    terminal.live.show(["west: 1 s"])
    terminal.write("[WARNING]: of two\nlines\n")
    terminal.live.show(["west: 2 s"])
    assert terminal.rows() == ["ok: [east]", "[WARNING]: of two", "lines", "west: 2 s", ""]


def test_a_line_that_is_not_at_its_end_is_left_alone() -> None:
    terminal = Terminal()
    terminal.live.show(["east: 1 s"])
    terminal.write("Continue? ")
    terminal.live.show(["east: 2 s"])
    assert terminal.rows() == ["Continue? "]
    terminal.write("yes\n")
    terminal.live.show(["east: 3 s"])
    assert terminal.rows() == ["Continue? yes", "east: 3 s", ""]


@pytest.mark.parametrize("width", [9, 8, 5, 4, 3])
def test_a_terminal_that_became_narrower_has_wrapped_them(width: int) -> None:
    live = LiveLines(written := io.StringIO(), lambda: width, str)
    written.write("TASK\n")
    live.show(["east: 1 s", "日本: 1 s"])
    live.show(["e"])
    # As it is drawn again, in the new width, by the terminal.
    assert screen(written.getvalue().replace("日本", "AABB"), width)[-2:] == ["e", ""]
    if width >= 4:
        assert screen(written.getvalue().replace("日本", "AABB"), width) == ["TASK", "e", ""]


def test_color_is_around_each_line_and_takes_no_room() -> None:
    written = io.StringIO()
    live = LiveLines(written, lambda: 10, lambda line: f"\x1b[0;34m{line}\x1b[0m")
    live.show(["east: 1 s"])
    live.show(["west: 1 s"])
    assert written.getvalue() == "\x1b[0;34meast: 1 s\x1b[0m\n\x1b[1A\r\x1b[J\x1b[0;34mwest: 1 s\x1b[0m\n"


@pytest.mark.parametrize(
    ("style", "terminal", "environment", "live"),
    [
        ("auto", True, {"TERM": "xterm"}, True),
        ("auto", False, {"TERM": "xterm"}, False),
        ("auto", True, {"TERM": "dumb"}, False),
        ("auto", True, {}, False),
        ("auto", True, {"TERM": "xterm", "CI": "true"}, False),
        ("auto", True, {"TERM": "xterm", "AWX_ISOLATED_DATA_DIR": "/runner/artifacts/1"}, False),
        ("lines", True, {"TERM": "xterm"}, False),
        ("live", False, {}, True),
    ],
)
def test_lines_are_live_on_terminals_of_people(
    style: str, terminal: bool, environment: dict[str, str], live: bool
) -> None:
    assert is_live(style, terminal, environment) is live
