# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.errors import AwsError
from ansible_collections.modelplane.fleet.plugins.module_utils.cloud.errors import CloudError
from ansible_collections.modelplane.fleet.plugins.module_utils.cloud.waiting import PollResult, Wait


class SkyError(CloudError):
    """Of a cloud that is out of reach now and then."""

    cloud = "The sky"

    @property
    def passing(self) -> bool:
        return self.code == "Fog"


def until(poll: Callable[[], PollResult], what: str, timeout: float = 60, progress: list[str] | None = None) -> Any:
    lines = [] if progress is None else progress
    return Wait(timeout, 0, lines.append, SkyError).until(poll, what)


def observations(*found: PollResult | CloudError) -> Callable[[], PollResult]:
    rest: Iterator[PollResult | CloudError] = iter(found)

    def observe() -> PollResult:
        seen = next(rest)
        if isinstance(seen, CloudError):
            raise seen
        return seen

    return observe


def test_until_it_is_done_with_each_change_reported_once() -> None:
    message: list[str] = []
    creating = PollResult("west is CREATING")
    poll = observations(creating, creating, PollResult("west is ACTIVE", done=True, value=7))
    assert until(poll, "west", progress=message) == 7
    assert [line.partition(" (")[0] for line in message] == ["west is CREATING", "west is ACTIVE"]


def test_a_failure_ends_it() -> None:
    with pytest.raises(SkyError, match="wait for west: it failed, as the role is gone"):
        until(observations(PollResult("x"), PollResult("y", failure="it failed, as the role is gone")), "west")


def test_the_time_is_over() -> None:
    with pytest.raises(SkyError) as raised:
        until(observations(PollResult("west is CREATING")), "west to be active", timeout=0)
    message = str(raised.value)
    assert message.startswith(
        "wait for west to be active: WaitTimeout: not done after 0 s; last seen: west is CREATING. "
    )
    assert "The sky goes on, and so does the next run" in message
    assert "wait_timeout" in message


def test_the_cloud_may_be_out_of_reach_meanwhile() -> None:
    fog = SkyError("observe", "Nothing to see", code="Fog")
    assert until(observations(fog, PollResult("done", done=True, value=7)), "west") == 7
    with pytest.raises(SkyError, match="Nothing to see"):
        until(observations(fog), "west", timeout=0)


def test_other_errors_end_it() -> None:
    with pytest.raises(SkyError, match="Denied"):
        until(observations(SkyError("observe", "no", code="Denied")), "west")


def test_of_aws() -> None:
    busy = AwsError("observe", "Rate exceeded", code="ThrottlingException")
    with pytest.raises(AwsError, match=r"Rate exceeded.*AWS goes on"):
        Wait(0, 0, error=AwsError).until(observations(busy), "west")
