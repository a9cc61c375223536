# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Work that goes on at once as far as its pieces do not need each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ansible_collections.modelplane.fleet.plugins.module_utils.google.errors import GoogleError

_WIDTH = 16
T = TypeVar("T")


@dataclass
class Outcome(Generic[T]):
    """What became of the pieces, by their keys. `skipped`: those that were not begun, with what they need and lack."""

    done: dict[str, T] = field(default_factory=dict)
    failed: dict[str, GoogleError] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)

    def check(self) -> None:
        """Raises GoogleError with all that failed, and what was not begun because of it."""
        if not self.failed:
            return
        errors = list(self.failed.values())
        rest = [f"{key} was not begun, as it needs {needed}" for key, needed in self.skipped.items()]
        if len(errors) == 1 and not rest:
            raise errors[0]
        raise GoogleError(
            ".\n".join([*(str(error).rstrip(".") for error in errors), *rest]), passing=all(e.passing for e in errors)
        )


def check(needs: Mapping[str, Sequence[str]]) -> None:
    """Raises GoogleError for keys that need unknown ones, or each other in a circle."""
    for key, needed in needs.items():
        for other in needed:
            if other not in needs:
                raise GoogleError("resources", f"{key} needs {other}, which is not among them")
    left = {key: set(needed) for key, needed in needs.items()}
    while left:
        free = {key for key, needed in left.items() if not needed}
        if not free:
            raise GoogleError("resources", f"these need each other: {', '.join(sorted(left))}")
        left = {key: needed - free for key, needed in left.items() if key not in free}


def in_order(needs: Mapping[str, Sequence[str]], work: Callable[[str], T]) -> Outcome[T]:
    """Do the work of each key once that of all which it needs is done; a GoogleError stops only what needs it.

    Any other exception is a bug: what has not begun is cancelled, and it goes on up once what runs has ended.
    """
    outcome: Outcome[T] = Outcome()
    waiting = dict(needs)
    running: dict[Future[T], str] = {}
    with ThreadPoolExecutor(max_workers=max(1, min(_WIDTH, len(needs))), thread_name_prefix="google") as pool:
        while waiting or running:
            for key, needed in list(waiting.items()):
                lacking = [other for other in needed if other in outcome.failed or other in outcome.skipped]
                if lacking:
                    outcome.skipped[key] = lacking[0]
                    del waiting[key]
                elif all(other in outcome.done for other in needed):
                    running[pool.submit(work, key)] = key
                    del waiting[key]
            if not running:
                # Another turn sees what was skipped in this one.
                continue
            ended, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in ended:
                key = running.pop(future)
                try:
                    outcome.done[key] = future.result()
                except GoogleError as error:
                    outcome.failed[key] = error
                except BaseException:
                    pool.shutdown(wait=False, cancel_futures=True)
                    raise
    return outcome


def reversed_needs(needs: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Who has to be gone first: of each key those that need it."""
    return {key: [other for other, needed in needs.items() if key in needed] for key in needs}
