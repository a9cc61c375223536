# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Lines at the bottom of a terminal that are updated in place, below all other output."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TextIO

from ansible_collections.modelplane.fleet.plugins.module_utils.core.progress import columns

_UP_AND_CLEAR = "\x1b[{}A\r\x1b[J"


class LiveLines:
    """`width`: the columns of the terminal now. `color`: adds color to a line. Safe for several threads."""

    def __init__(self, terminal: TextIO, width: Callable[[], int], color: Callable[[str], str]) -> None:
        self._terminal, self._width, self._color = terminal, width, color
        self._lock = threading.RLock()
        self._drawn: list[str] = []
        self._at_start = True

    def show(self, lines: Sequence[str]) -> None:
        """Replace the current lines. Each line must be narrower than the terminal."""
        with self._lock:
            if self._at_start and list(lines) != self._drawn:
                self._draw(list(lines))

    @contextlib.contextmanager
    def other_output(self, *, ends_line: bool) -> Iterator[None]:
        """Clear the lines for other output. The next call of `show` shows lines below it.

        If the other output does not end its line (`ends_line`), no lines are shown."""
        with self._lock:
            if self._drawn:
                self._draw([])
            try:
                yield
            finally:
                self._at_start = ends_line

    def _draw(self, lines: list[str]) -> None:
        erase = _UP_AND_CLEAR.format(self._rows()) if self._drawn else ""
        self._terminal.write(erase + "".join(f"{self._color(line)}\n" for line in lines))
        self._terminal.flush()
        self._drawn = lines

    def _rows(self) -> int:
        """Return the current number of rows of the lines, because a narrower terminal wraps them."""
        width = max(1, self._width())
        return sum(max(1, -(-columns(line) // width)) for line in self._drawn)
