# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Waiting until a cloud has done what it was asked for: by polls, as clouds have nothing to watch."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.cloud.errors import CloudError

WAIT_TIMEOUT = "WaitTimeout"
"""Code of the error of what is not done in time."""


ARGUMENTS: dict[str, Any] = {
    "wait": {"type": "bool", "default": True},
    "wait_timeout": {"type": "int", "default": 2700},
    "wait_delay": {"type": "float", "default": 15.0},
}
"""The arguments of modules that wait."""


@dataclass(frozen=True)
class PollResult:
    """Result of one reading.

    `message`: the state in words, such as "node group gpu is CREATING". `done`: it is as it should be. `failure`: why
    it never will be, with what to do about it; empty while it may. `value`: the object as the cloud describes it.
    """

    message: str
    done: bool = False
    failure: str = ""
    value: Any = None


class Progress:
    """Sink of the messages of a wait: into `lines`, for the result, and to the log, which -v shows while it lasts."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self.lines: list[str] = []

    def __call__(self, line: str) -> None:
        self.lines.append(line)
        self._module.log(line)


@dataclass(frozen=True)
class Wait:
    """Limits of waiting in seconds, where progress goes, and the class of the errors."""

    timeout: float
    delay: float
    progress: Callable[[str], None] = lambda _line: None
    error: type[CloudError] = CloudError

    def at_most(self, delay: float) -> Wait:
        """Return the limits with this many seconds between two polls, at most."""
        return replace(self, delay=min(self.delay, delay))

    def until(self, poll: Callable[[], PollResult], what: str) -> Any:
        """Poll every `delay` seconds until it is done, and return the value of the last poll.

        `what` says what is waited for ("cluster west to become active"). Every change of its message goes to
        `progress`. Raises an `error` when it failed for good, or is not done after `timeout` seconds. That the cloud is
        busy or out of reach for a while ends no wait. It polls at least once.
        """
        started = time.monotonic()
        last, message, failure = "", "", ""
        while True:
            try:
                seen = poll()
            except CloudError as caught:
                if not caught.passing:
                    raise
                failure = str(caught)
            else:
                failure, message = "", seen.message
                if seen.failure:
                    raise self.error(f"wait for {what}", seen.failure)
                if message and message != last:
                    self.progress(f"{message} (after {_duration(time.monotonic() - started)})")
                    last = message
                if seen.done:
                    return seen.value
            left = self.timeout - (time.monotonic() - started)
            if left <= 0:
                seen_last = "; ".join(filter(None, (message, failure)))
                raise self.error(
                    f"wait for {what}",
                    f"not done after {_duration(self.timeout)}; last seen: {seen_last}",
                    code=WAIT_TIMEOUT,
                    hint=f"Nothing is lost: {self.error.cloud} goes on, and so does the next run. A longer "
                    "wait_timeout waits longer",
                )
            time.sleep(min(self.delay, left))


def _duration(seconds: float) -> str:
    """Seconds for people: "45 s", "12 min 5 s"."""
    whole = round(seconds)
    return f"{whole // 60} min {whole % 60} s" if whole >= 60 else f"{whole} s"
