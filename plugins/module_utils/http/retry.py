# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Retries of requests: their number, and the pauses between them."""

from __future__ import annotations

import email.utils
import random
import time
from dataclasses import dataclass, field

# The same request might succeed after one of these codes (Kubernetes API conventions, "HTTP Status codes").
RETRIED_CODES = frozenset({429, 500, 502, 503, 504})
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 8.0


def retry_after(header: str | None, now: float) -> float | None:
    """Return the seconds of a Retry-After header (RFC 9110, 10.2.3): a number or a date; None without a valid
    header."""
    if not header:
        return None
    text = header.strip()
    if text.isascii() and text.isdigit():
        return float(min(int(text[:9]), 86_400))
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - now)
    except (ValueError, TypeError, OverflowError):
        return None


@dataclass
class Attempts:
    """Retry budget of one request: at most `retries` retries, and no pause that would end after `seconds` (from now).

    Pauses double from half a second up to eight seconds. A random part of up to half is subtracted, so that clients
    that failed together do not retry together. A server that responds (429, 5xx) gets twice the time of a silent
    server.
    """

    retries: int
    seconds: float
    began: float = field(default_factory=time.monotonic)
    repetitions: int = 0

    def again(self, *, asked: float | None = None, answered: bool = False) -> bool:
        """Wait for the next attempt; return False immediately without another attempt. `asked`: delay in seconds from
        the server."""
        if self.repetitions >= self.retries:
            return False
        pause = min(_FIRST_PAUSE * 2**self.repetitions, _LONGEST_PAUSE) * random.uniform(0.5, 1.0)
        if asked is not None:
            pause = max(asked, pause * 0.1)
        if pause >= self.left(answered=answered):
            return False
        self.repetitions += 1
        time.sleep(pause)
        return True

    def left(self, *, answered: bool = False) -> float:
        """Return the remaining seconds of the budget."""
        return self.seconds * (2 if answered else 1) - (time.monotonic() - self.began)
