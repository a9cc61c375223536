# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core import progress
from ansible_collections.modelplane.fleet.plugins.module_utils.core.progress import Board, Rank


def board(*waits: tuple[str, str, float], rank: Rank = "reported") -> Board:
    """Waits of one sender: cluster, what for, and when they began."""
    found = Board()
    for number, (cluster, awaited, since) in enumerate(waits):
        found.take("sender", progress.begun(number, cluster, awaited, ""), since, rank)
    return found


def texts(found: Board, now: float, least: float = 0.0, most: int = 20, width: int = 0) -> list[str]:
    return progress.shown(found.lines(now, least), now, most, width)


def test_a_line_has_all_that_is_known() -> None:
    found = Board()
    found.take(1, progress.begun(7, "west", "EKS cluster west to be ready", "10 to 15 min"), 100.0)
    assert texts(found, 145.0) == ["west: 45 s (usually 10 to 15 min): waiting for EKS cluster west to be ready"]
    found.take(1, progress.seen(7, "EKS cluster west is CREATING"), 150.0)
    assert texts(found, 470.0) == [
        "west: 6 min 10 s (usually 10 to 15 min): waiting for EKS cluster west to be ready; last seen: "
        "EKS cluster west is CREATING"
    ]
    found.take(1, progress.over(7), 480.0)
    assert texts(found, 480.0) == []


@pytest.mark.parametrize(
    ("width", "line"),
    [
        (200, "west: 1 min 1 s (usually 5 min): waiting for node group gpu; last seen: node group gpu is CREATING"),
        (80, "west: 1 min 1 s: node group gpu is CREATING"),
        (30, "west: 1 min 1 s: node group g…"),
        (12, "west: 1 min…"),
        (1, "west: 1 m…"),
    ],
)
def test_a_narrow_terminal_shows_what_was_seen(width: int, line: str) -> None:
    found = Board()
    found.take(1, progress.begun(7, "west", "node group gpu", "5 min"), 0.0)
    found.take(1, progress.seen(7, "node group gpu is CREATING"), 0.0)
    assert texts(found, 61.0, width=width) == [line]
    assert progress.columns(line) <= max(width, 10)


def test_wide_letters_take_two_columns() -> None:
    assert progress.columns("日本e\u0301") == 5
    assert progress.clipped("日本語", 6) == "日本語"
    assert progress.clipped("日本語", 5) == "日本…"
    assert progress.clipped("日本語", 4) == "日…"


def test_one_line_for_each_cluster_with_its_oldest_wait_of_which_something_is_known() -> None:
    found = board(("west", "update", 0), ("west", "pool a", 1), ("west", "pool b", 2), ("east", "pool c", 3))
    for number in (1, 2):
        found.take("sender", progress.seen(number, "CREATING"), 4)
    assert texts(found, 10) == [
        "east: 7 s: waiting for pool c",
        "west: 9 s: waiting for pool a; last seen: CREATING (and 2 more)",
    ]


def test_the_whole_run_has_a_line_only_where_no_cluster_waits() -> None:
    found = board(("", "the step: Observe", 0), ("", "the step: Plan", 5))
    found.take("task", progress.begun(1, "", "the task Reconcile", ""), 0, "task")
    assert texts(found, 10) == ["fleet: 5 s: waiting for the step: Plan"]
    found.take("sender", progress.begun(9, "west", "pods", ""), 6)
    assert texts(found, 10) == ["west: 4 s: waiting for pods"]


def test_a_task_is_shown_where_nothing_is_reported() -> None:
    found = board(("west", "the task Install", 0), ("east", "the task Install", 0), rank="task")
    found.take("other", progress.begun(1, "west", "pods", ""), 5)
    assert texts(found, 10) == ["east: 10 s: waiting for the task Install", "west: 5 s: waiting for pods"]


def test_short_waits_and_all_of_one_that_is_gone_are_not_shown() -> None:
    found = board(("west", "pods", 0), ("east", "pods", 9.5))
    assert texts(found, 10, least=1) == ["west: 10 s: waiting for pods"]
    found.forget("sender")
    assert texts(found, 100) == []


def test_of_many_clusters_those_that_wait_longest_are_shown() -> None:
    found = board(*((f"c{index}", "pods", float(10 - index)) for index in range(6)))
    assert texts(found, 10, most=3) == ["c4: 4 s: waiting for pods", "c5: 5 s: waiting for pods", "and 4 more clusters"]
    assert texts(found, 10, most=1) == ["and 6 more clusters"]


@pytest.mark.parametrize(
    "report",
    [
        {},
        {"wait": "7", "awaited": "x"},
        {"wait": None},
        {"wait": 7},
        {"wait": 8, "seen": "x"},
        {"wait": 8, "over": True},
        {"cluster": "west"},
    ],
)
def test_what_is_no_report_is_ignored(report: dict[str, Any]) -> None:
    found = Board()
    found.take(1, report, 0)
    assert not found.waits


def test_texts_of_others_are_cut_printable_and_without_secrets() -> None:
    found = Board()
    found.take(1, {"wait": 1, "cluster": "w\x1b[2Jest", "awaited": "x" * 9999, "usual": 7}, 0)
    found.take(1, {"wait": 1, "seen": "a\r\nb \u202e Authorization: Bearer abcdefghijklmnop"}, 0)
    (line,) = texts(found, 0)
    assert line.isprintable()
    assert len(line) < 1000
    assert line.startswith("w\\x1b[2Jest: 0 s: waiting for xxx")
    assert "abcdefghijklmnop" not in line
    assert len(str(progress.begun(1, "c" * 9999, "a" * 9999, "u" * 9999))) < 1000


def test_a_sender_cannot_fill_the_memory() -> None:
    found = Board()
    for number in range(10_100):
        found.take(1, {"wait": number, "awaited": "x"}, 0)
    assert len(found.waits) == 10_000


@pytest.mark.parametrize(("seconds", "text"), [(-1, "0 s"), (59.4, "59 s"), (60, "1 min 0 s"), (3725, "62 min 5 s")])
def test_durations(seconds: float, text: str) -> None:
    assert progress.duration(seconds) == text
