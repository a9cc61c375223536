# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.errors import AwsError
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.waiting import Seen, wait_for


def looks(*found: Seen | AwsError) -> Callable[[], Seen]:
    rest: Iterator[Seen | AwsError] = iter(found)

    def look() -> Seen:
        seen = next(rest)
        if isinstance(seen, AwsError):
            raise seen
        return seen

    return look


def test_until_it_is_done_telling_each_change_once() -> None:
    told: list[str] = []
    creating = Seen("west is CREATING")
    poll = looks(creating, creating, Seen("west is ACTIVE", done=True, value=7))
    assert wait_for(poll, timeout=60, delay=0, what="west", progress=told.append).value == 7
    assert [line.partition(" (")[0] for line in told] == ["west is CREATING", "west is ACTIVE"]


def test_a_failure_ends_it() -> None:
    with pytest.raises(AwsError, match="wait for west: it failed, as the role is gone"):
        wait_for(
            looks(Seen("x"), Seen("y", failure="it failed, as the role is gone")), timeout=60, delay=0, what="west"
        )


def test_the_time_is_over() -> None:
    with pytest.raises(AwsError) as raised:
        wait_for(looks(Seen("west is CREATING")), timeout=0, delay=0, what="west to be active")
    told = str(raised.value)
    assert told.startswith("wait for west to be active: WaitTimeout: not done after 0 s; last seen: west is CREATING. ")
    assert "so does the next run" in told
    assert "wait_timeout" in told


def test_aws_may_be_busy_meanwhile() -> None:
    busy = AwsError("look", "Rate exceeded", code="ThrottlingException")
    assert wait_for(looks(busy, Seen("done", done=True)), timeout=60, delay=0, what="west").done
    with pytest.raises(AwsError, match="Rate exceeded"):
        wait_for(looks(busy), timeout=0, delay=0, what="west")


def test_other_errors_end_it() -> None:
    with pytest.raises(AwsError, match="AccessDenied"):
        wait_for(looks(AwsError("look", "no", code="AccessDenied")), timeout=60, delay=0, what="west")
