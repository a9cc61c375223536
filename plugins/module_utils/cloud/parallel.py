# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Concurrent work in the order of dependencies."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from typing import Generic, TypeVar

from .errors import CloudError

_WIDTH = 16
T = TypeVar("T")
Needs = Mapping[str, Collection[str]]


@dataclass
class Outcome(Generic[T]):
    """Results and errors by key. `skipped`: keys that were not started, each with its missing dependency."""

    done: dict[str, T] = field(default_factory=dict)
    failed: dict[str, CloudError] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)

    def check(self, error: type[CloudError]) -> None:
        """Raise one error for all failed keys, and for the keys that were skipped because of them."""
        if not self.failed:
            return
        errors = list(self.failed.values())
        skipped_lines = [
            f"{key} was not begun, as it needs {required_key}" for key, required_key in self.skipped.items()
        ]
        if len(errors) == 1 and not skipped_lines:
            raise errors[0]
        lines = [*dict.fromkeys(str(failure).rstrip(".") for failure in errors), *skipped_lines]
        raise error(".\n".join(lines), passing=all(failure.passing for failure in errors))


def in_order(
    needs: Needs, work: Callable[[str, Mapping[str, T]], T], after: Mapping[str, Collection[str]] | None = None
) -> Outcome[T]:
    """Do the work of each key after the work of its dependencies.

    `work` gets the key, and the results of its dependencies. `after`: keys that must finish first, successfully or not.
    A CloudError only skips the dependents of the key. Any other exception is a bug: work that has not started is
    canceled, and the exception is raised after running work finishes.
    """
    outcome: Outcome[T] = Outcome()
    order = TopologicalSorter(
        {key: {*required_keys, *(after or {}).get(key, ())} for key, required_keys in needs.items()}
    )
    order.prepare()
    running: dict[Future[T], str] = {}
    with ThreadPoolExecutor(max_workers=max(1, min(_WIDTH, len(needs))), thread_name_prefix="cloud") as pool:
        while order.is_active():
            for key in order.get_ready():
                lacking = next((required_key for required_key in needs[key] if required_key not in outcome.done), "")
                if lacking:
                    outcome.skipped[key] = lacking
                    order.done(key)
                else:
                    running[
                        pool.submit(
                            work, key, {required_key: outcome.done[required_key] for required_key in needs[key]}
                        )
                    ] = key
            if not running:
                continue
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                key = running.pop(future)
                try:
                    outcome.done[key] = future.result()
                except CloudError as error:
                    outcome.failed[key] = error
                except BaseException:
                    pool.shutdown(wait=False, cancel_futures=True)
                    raise
                order.done(key)
    return outcome


def at_once(work: Mapping[str, Callable[[], T]]) -> Outcome[T]:
    """Do pieces of work without dependencies."""
    return in_order(dict.fromkeys(work, ()), lambda key, _needed: work[key]())
