# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Tests of how long is waited, what servers say in errors, and how work is spread over clusters."""

from __future__ import annotations

import json
import re
import threading
import time

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.http.retry import Attempts, retry_after
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.errors import (
    ApiError,
    Conflict,
    ServerError,
    Unexpected,
    Unreachable,
    from_answer,
    hidden,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.fanout import fan_out
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("5", 5.0),
        (" 0 ", 0.0),
        ("99999999999999999999", 86_400.0),
        ("Thu, 01 Jan 1970 00:01:40 GMT", 40.0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
        ("soon", None),
        ("-1", None),
        ("5.5", None),
        ("٣", None),
        ("", None),
        (None, None),
    ],
)
def test_retry_after(header: str | None, seconds: float | None) -> None:
    assert retry_after(header, now=60.0) == seconds


@given(st.text())
def test_any_retry_after_is_borne(header: str) -> None:
    seconds = retry_after(header, now=0.0)
    assert seconds is None or seconds >= 0


def test_attempts_end_with_their_number() -> None:
    attempts = Attempts(2, 60.0)
    assert [attempts.again(asked=0.0) for _ in range(3)] == [True, True, False]


def test_a_pause_that_would_end_too_late_is_not_begun() -> None:
    began = time.monotonic()
    assert not Attempts(5, 60.0).again(asked=65.0)
    assert not Attempts(5, 0.1).again()
    assert time.monotonic() - began < 60


def test_who_answers_gets_more_time() -> None:
    assert Attempts(5, 0.3).again(asked=0.4, answered=True)


@given(st.integers(min_value=300, max_value=599), st.binary() | st.text())
def test_any_answer_becomes_an_error(code: int, body: bytes | str) -> None:
    error = from_answer(code, body, cluster="west", action="read X")
    assert str(error).startswith("cluster west: read X: ")
    assert error.code == code


@pytest.mark.parametrize("details", [None, [], {"causes": 3}, {"causes": [3]}, {"causes": [{"reason": 1}]}])
def test_odd_details_are_borne(details: object) -> None:
    body = {"kind": "Status", "reason": "Conflict", "message": "m", "details": details}
    error = from_answer(409, json.dumps(body), cluster="west", action="x")
    assert isinstance(error, Conflict)
    assert error.managers == ()


def test_texts_are_cut_and_short_values_stay() -> None:
    assert hidden("a secret here", ["secret", "a"]) == "a ******** here"
    assert len(hidden("x" * 5000, [])) < 1100


def test_the_order_of_work_is_kept_and_failures_stay_apart() -> None:
    def slow() -> str:
        time.sleep(0.2)
        return "slow"

    def dead() -> str:
        raise Unreachable("no", cluster="dead")

    results = fan_out({"slow": slow, "dead": dead, "fast": lambda: "fast"})
    assert list(results) == ["slow", "dead", "fast"]
    assert isinstance(results["dead"], Unreachable)
    assert (results["slow"], results["fast"]) == ("slow", "fast")
    assert fan_out({}) == {}


def test_no_more_at_a_time_than_desired() -> None:
    running, most, lock = 0, 0, threading.Lock()

    def work() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.02)
        with lock:
            running -= 1

    fan_out({str(index): work for index in range(20)}, width=3)
    assert most == 3


def test_what_no_one_expects_of_a_cluster_ends_no_other() -> None:
    def wrong() -> str:
        return str({"items": []}["metadata"])

    results = fan_out({"wrong": wrong, "fast": lambda: "fast"}, width=1)
    assert results["fast"] == "fast"
    assert isinstance(results["wrong"], Unexpected)
    assert re.match(r"cluster wrong: KeyError in test_retry.py:\d+ over what it answers\. ", str(results["wrong"]))


def test_the_end_of_the_run_ends_all() -> None:
    done: list[str] = []

    def interrupted() -> None:
        raise KeyboardInterrupt

    work = {"first": interrupted, **{str(index): lambda: (time.sleep(0.05), done.append("x")) for index in range(50)}}
    with pytest.raises(KeyboardInterrupt):
        fan_out(work, width=1)
    assert len(done) < 50


def test_errors_are_one_sentence_with_what_to_do() -> None:
    error = ServerError("it broke.", cluster="west", action="read X", code=500, hint="Try later")
    assert str(error) == "cluster west: read X: it broke. Try later"
    assert repr(error) == "ServerError('cluster west: read X: it broke. Try later')"
    assert str(ApiError("it broke", cluster="west")) == "cluster west: it broke"
