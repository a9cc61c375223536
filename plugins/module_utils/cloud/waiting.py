# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Waiting until a cloud has finished a change: by polling, because clouds do not support watches."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ..core.progress import Progress, Seen, duration, unseen
from .errors import CloudError

WAIT_TIMEOUT = "WaitTimeout"
"""Error code of a wait that timed out."""


ARGUMENTS: dict[str, Any] = {
    "wait": {"type": "bool", "default": True},
    "wait_timeout": {"type": "int", "default": 2700},
    "wait_delay": {"type": "float", "default": 15.0},
}
"""The arguments of modules that wait."""


@dataclass(frozen=True)
class PollResult:
    """Result of one read.

    `message`: the state in words, such as "node group gpu is CREATING". `done`: the desired state is reached.
    `failure`: the reason why it is never reached, with a fix; empty while it might be. `value`: the object in the
    format of the cloud.
    """

    message: str
    done: bool = False
    failure: str = ""
    value: Any = None


class Messages:
    """Sink of the messages of waits: into `lines`, for the result, and to the log. Option -v shows the log during the
    wait."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self.lines: list[str] = []

    def __call__(self, line: str) -> None:
        self.lines.append(line)
        self._module.log(line)


@dataclass(frozen=True)
class Wait:
    """Limits of waiting in seconds, the sink of messages, the class of errors, and the progress report of a wait for
    `cluster`."""

    timeout: float
    delay: float
    messages: Callable[[str], None] = lambda _line: None
    error: type[CloudError] = CloudError
    progress: Progress = unseen
    cluster: str = ""

    def at_most(self, delay: float) -> Wait:
        """Return the limits with this maximum number of seconds between two polls."""
        return replace(self, delay=min(self.delay, delay))

    def until(self, poll: Callable[[], PollResult], what: str, usual: str = "") -> Any:
        """Poll every `delay` seconds until the result is done, and return the value of the last poll.

        `what` is the awaited state ("cluster west to become active"), `usual` its usual duration. Every change of its
        message is sent to `messages`. Raises an `error` if the result has a failure, or is not done after `timeout`
        seconds. A busy or unreachable cloud does not end the wait before that. The method polls at least once.
        """
        with self.progress(self.cluster, what, usual) as show:
            return self._until(poll, what, show)

    def _until(self, poll: Callable[[], PollResult], what: str, show: Seen) -> Any:
        started = time.monotonic()
        last_message, message, failure = "", "", ""
        while True:
            try:
                seen = poll()
            except CloudError as caught:
                if not caught.passing:
                    raise
                failure = str(caught)
                show(failure)
            else:
                failure, message = "", seen.message
                show(message)
                if seen.failure:
                    raise self.error(f"wait for {what}", seen.failure)
                if message and message != last_message:
                    self.messages(f"{message} (after {duration(time.monotonic() - started)})")
                    last_message = message
                if seen.done:
                    return seen.value
            remaining_seconds = self.timeout - (time.monotonic() - started)
            if remaining_seconds <= 0:
                seen_last = "; ".join(filter(None, (message, failure)))
                raise self.error(
                    f"wait for {what}",
                    f"not done after {duration(self.timeout)}; last seen: {seen_last}",
                    code=WAIT_TIMEOUT,
                    hint=f"Nothing is lost: {self.error.cloud} goes on, and so does the next run. A longer "
                    "wait_timeout waits longer",
                )
            time.sleep(min(self.delay, remaining_seconds))
