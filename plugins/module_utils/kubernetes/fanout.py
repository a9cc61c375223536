# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The same work on many clusters at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from .errors import UNEXPECTED, ApiError, unexpected

T = TypeVar("T")


def fan_out(work: Mapping[str, Callable[[], T]], width: int = 32) -> dict[str, T | ApiError]:
    """Run all functions, up to `width` at a time. Return their results or ApiErrors, in the order of `work`.

    An unexpected exception becomes an `Unexpected` error of its cluster, so that a malformed response of one server
    does not stop the work on the other clusters.
    """
    if not work:
        return {}

    def attempt(name: str, action: Callable[[], T]) -> T | ApiError:
        try:
            return action()
        except ApiError as error:
            return error
        except UNEXPECTED as error:
            return unexpected(error, name)

    with ThreadPoolExecutor(max_workers=max(1, min(width, len(work))), thread_name_prefix="cluster") as pool:
        futures = {name: pool.submit(attempt, name, action) for name, action in work.items()}
        try:
            return {name: future.result() for name, future in futures.items()}
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
