# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Progress of long operations: the awaited event of each cluster, its start, the last observation, and the usual
duration.

Code reports a wait to a `Progress` while it lasts. A Board stores the active waits and has a line for each cluster.
"""

from __future__ import annotations

import contextlib
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from .text import cut

Seen = Callable[[str], None]
"""Function that receives the last observation of the awaited object."""
Progress = Callable[[str, str, str], AbstractContextManager[Seen]]
"""Context that lasts as long as a wait. Arguments: the cluster, empty for the whole run. The awaited state ("node group
gpu to be ready"). The usual duration ("10 to 15 min"), empty if unknown."""
Rank = Literal["reported", "task"]
"""Source of a wait. A task is only shown without a report, because a report is more precise."""

RUN = "fleet"
"""The name, in lines, of the whole run."""
_CHARACTERS = 300
_WAITS = 10_000
_LEAST_WIDTH = 10


@contextlib.contextmanager
def unseen(_cluster: str, _awaited: str, _usual: str = "") -> Iterator[Seen]:
    """Report a wait to nothing."""
    yield lambda _text: None


@dataclass(frozen=True)
class Wait:
    """Active wait."""

    cluster: str
    awaited: str
    usual: str
    since: float
    """Start time by the clock of the board."""
    seen: str = ""
    rank: Rank = "reported"


@dataclass(frozen=True)
class Line:
    """Line of a cluster: its oldest wait, and how many more it has."""

    wait: Wait
    more: int = 0

    def text(self, now: float, width: int = 0) -> str:
        """Return the line with at most `width` columns, or without a limit for 0."""
        wait = self.wait
        usual = f" (usually {wait.usual})" if wait.usual else ""
        suffix = f" (and {self.more} more)" if self.more else ""
        # The last observation often begins with the awaited object.
        seen = f"; last seen: {wait.seen}" if wait.seen else ""
        head = f"{wait.cluster or RUN}: {duration(now - wait.since)}"
        full_text = f"{head}{usual}: waiting for {wait.awaited}{seen}{suffix}"
        if not width or columns(full_text) <= width:
            return full_text
        short = wait.seen or wait.awaited
        return clipped(f"{head}: {short}{suffix}", max(width, _LEAST_WIDTH))


@dataclass
class Board:
    """Active waits, by their reporter and number.

    Reports are untrusted: invalid reports are ignored, and texts are printable and limited in length."""

    waits: dict[tuple[Any, int], Wait] = field(default_factory=dict)

    def take(self, source: Any, report: Mapping[str, Any], now: float, rank: Rank = "reported") -> None:
        """Store a report of `begun`, `seen`, or `over`."""
        number = report.get("wait")
        if not isinstance(number, int):
            return
        key = (source, number)
        current = self.waits.get(key)
        if report.get("over"):
            self.waits.pop(key, None)
        elif current is not None:
            self.waits[key] = replace(current, seen=_text(report, "seen"))
        elif "awaited" in report and len(self.waits) < _WAITS:
            texts = {name: _text(report, name) for name in ("cluster", "awaited", "usual")}
            self.waits[key] = Wait(**texts, since=now, rank=rank)

    def forget(self, source: Any) -> None:
        """Remove all waits of a source that sends no more reports."""
        self.waits = {key: wait for key, wait in self.waits.items() if key[0] != source}

    def lines(self, now: float, least: float = 0.0) -> list[Line]:
        """Return a line for each cluster that has waited for `least` seconds, by name.

        Without waiting clusters, return a line for the whole run."""
        waits = [wait for wait in self.waits.values() if now - wait.since >= least]
        by_cluster: dict[str, list[Wait]] = {}
        for wait in sorted(waits, key=lambda wait: (not wait.seen, wait.since)):
            by_cluster.setdefault(wait.cluster, []).append(wait)
        # The last step of a run is its current step.
        run_waits = by_cluster.pop("", [])
        if not by_cluster and run_waits:
            return [Line(max(run_waits, key=lambda wait: (wait.rank != "task", wait.since)))]
        reported = {
            name: [wait for wait in cluster_waits if wait.rank == "reported"]
            for name, cluster_waits in by_cluster.items()
        }
        chosen = {name: reported[name] or cluster_waits for name, cluster_waits in by_cluster.items()}
        return [Line(cluster_waits[0], len(cluster_waits) - 1) for __, cluster_waits in sorted(chosen.items())]


def begun(number: int, cluster: str, awaited: str, usual: str) -> dict[str, Any]:
    """Return the report of a wait that begins."""
    texts = {"cluster": cluster, "awaited": awaited, "usual": usual}
    return {"wait": number, **{name: cut(text, _CHARACTERS) for name, text in texts.items()}}


def seen(number: int, text: str) -> dict[str, Any]:
    """Return a report of the last observation."""
    return {"wait": number, "seen": cut(text, _CHARACTERS)}


def over(number: int) -> dict[str, Any]:
    """Return the report of a wait that is over."""
    return {"wait": number, "over": True}


def shown(lines: list[Line], now: float, most: int, width: int = 0) -> list[str]:
    """Return the texts of at most `most` lines. The last line contains the number of omitted clusters."""
    if len(lines) <= most:
        return [line.text(now, width) for line in lines]
    # A run waits for the longest waits, so they are shown, in their order.
    longest = sorted(lines, key=lambda line: line.wait.since)[: max(most - 1, 0)]
    remainder = f"and {len(lines) - len(longest)} more clusters"
    return [
        *(line.text(now, width) for line in lines if line in longest),
        clipped(remainder, width) if width else remainder,
    ]


def duration(seconds: float) -> str:
    """Return seconds as text: "45 s", "12 min 5 s"."""
    rounded = round(max(0.0, seconds))
    return f"{rounded // 60} min {rounded % 60} s" if rounded >= 60 else f"{rounded} s"


def columns(text: str) -> int:
    """Return the number of terminal columns of a text."""
    return sum(map(_columns, text))


def clipped(text: str, width: int) -> str:
    """Return a text in at most `width` columns."""
    if columns(text) <= width:
        return text
    prefix, columns_left = "", width - 1
    for letter in text:
        columns_left -= _columns(letter)
        if columns_left < 0:
            break
        prefix += letter
    return f"{prefix.rstrip()}…"


def _columns(letter: str) -> int:
    if unicodedata.combining(letter):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def _text(report: Mapping[str, Any], name: str) -> str:
    value = report.get(name)
    return cut(value, _CHARACTERS) if isinstance(value, str) else ""
