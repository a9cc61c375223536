# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Tables for terminals: rows in columns, each with indented lines of text below."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from ..text import printable

NO_BREAK = "\u00a0"
"""Space without a line break."""
_LEAST = 10

Row = tuple[Sequence[str], list[str]]
"""Cells of a row, and the lines of text below it."""


def lines(titles: Sequence[str], rows: Sequence[Row], width: int, why: str = "") -> list[str]:
    """Return the titles, and each row followed by its indented reasons. Return no lines without rows.

    `why`: title of a last column for reasons. It contains the first reason of a row that fits into the line."""
    width = max(width, 60)
    widths = _widths(titles, [cells for cells, __ in rows], width)
    gap = 2 if sum(widths) + 2 * (len(widths) - 1) <= width else 1
    table_lines = [_line((*titles, why), (*widths, len(why)), gap)]
    used = sum(widths) + gap * len(widths)
    if len(table_lines[0]) > width:
        table_lines = [_line(titles, widths, gap)]
    for cells, reasons in rows:
        inline = reasons[0] if why and reasons and used + len(reasons[0]) <= width else ""
        table_lines.append(_line((*cells, inline), (*widths, len(inline)), gap))
        table_lines += wrapped(reasons[1:] if inline else reasons, width)
    return [printable(line) for line in table_lines] if rows else []


def wrapped(texts: Sequence[str], width: int) -> list[str]:
    """Return texts as indented lines of at most `width` characters."""
    indented = []
    for paragraph in texts:
        paragraph_lines = textwrap.wrap(
            paragraph, width, initial_indent="    ", subsequent_indent="      ", break_on_hyphens=False
        )
        indented += [line.replace(NO_BREAK, " ") for line in paragraph_lines]
    return indented


def _widths(titles: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """Return fitting column widths. The widest column is shortened first."""
    widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
    while sum(widths) + len(widths) - 1 > width:
        widest = max(range(len(widths)), key=lambda position: widths[position])
        if widths[widest] <= _LEAST:
            break
        widths[widest] -= 1
    return widths


def _line(cells: Sequence[str], widths: Sequence[int], gap: int) -> str:
    padded = [_shortened(cell, width).ljust(width) for cell, width in zip(cells, widths, strict=True)]
    return (" " * gap).join(padded).rstrip()


def _shortened(text: str, width: int) -> str:
    """Shorten a text in the middle: names of replicas differ at the end, names of deployments at the start."""
    if len(text) <= width:
        return text
    tail = (width - 1) // 2
    return f"{text[: width - 1 - tail]}…{text[len(text) - tail :]}"
