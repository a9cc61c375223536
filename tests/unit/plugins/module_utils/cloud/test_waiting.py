# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.errors import AwsError
from ansible_collections.modelplane.fleet.plugins.module_utils.cloud import waiting
from ansible_collections.modelplane.fleet.plugins.module_utils.cloud.errors import CloudError
from ansible_collections.modelplane.fleet.plugins.module_utils.cloud.waiting import PollResult


class SkyError(CloudError):
    """Of a cloud that is out of reach now and then."""

    cloud = "The sky"

    @property
    def passing(self) -> bool:
        return self.code == "Fog"


wait_for = functools.partial(waiting.wait_for, error=SkyError)


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
    assert wait_for(poll, timeout=60, delay=0, what="west", progress=message.append).value == 7
    assert [line.partition(" (")[0] for line in message] == ["west is CREATING", "west is ACTIVE"]


def test_a_failure_ends_it() -> None:
    with pytest.raises(SkyError, match="wait for west: it failed, as the role is gone"):
        wait_for(
            observations(PollResult("x"), PollResult("y", failure="it failed, as the role is gone")),
            timeout=60,
            delay=0,
            what="west",
        )


def test_the_time_is_over() -> None:
    with pytest.raises(SkyError) as raised:
        wait_for(observations(PollResult("west is CREATING")), timeout=0, delay=0, what="west to be active")
    message = str(raised.value)
    assert message.startswith(
        "wait for west to be active: WaitTimeout: not done after 0 s; last seen: west is CREATING. "
    )
    assert "The sky goes on, and so does the next run" in message
    assert "wait_timeout" in message


def test_the_cloud_may_be_out_of_reach_meanwhile() -> None:
    fog = SkyError("observe", "Nothing to see", code="Fog")
    assert wait_for(observations(fog, PollResult("done", done=True)), timeout=60, delay=0, what="west").done
    with pytest.raises(SkyError, match="Nothing to see"):
        wait_for(observations(fog), timeout=0, delay=0, what="west")


def test_other_errors_end_it() -> None:
    with pytest.raises(SkyError, match="Denied"):
        wait_for(observations(SkyError("observe", "no", code="Denied")), timeout=60, delay=0, what="west")


def test_of_aws() -> None:
    busy = AwsError("observe", "Rate exceeded", code="ThrottlingException")
    with pytest.raises(AwsError, match=r"Rate exceeded.*AWS goes on"):
        waiting.wait_for(observations(busy), timeout=0, delay=0, what="west", error=AwsError)
