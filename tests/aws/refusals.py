# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Calls that fail because a test wants it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any

from .wire import Call, Refusal

# Parameters that say how, not what: a token that the client makes up anew for each call.
IDEMPOTENCY = ("clientRequestToken", "ClientToken", "ClientRequestToken")


LOST = Refusal("", "The connection is closed.")


@dataclass
class _Wanted:
    """`skip` mutating calls pass, then `times` are refused. With an operation, calls of that one count instead."""

    skip: int
    times: int
    service: str
    operation: str
    code: str
    message: str
    status: int
    after: bool
    effect: bool

    def meets(self, call: Call) -> bool:
        if self.operation:
            return call.operation == self.operation and self.service in ("", call.service)
        return call.mutating and self.service in ("", call.service)


class Refusals:
    """Which calls are refused."""

    def __init__(self) -> None:
        self._wanted: list[_Wanted] = []
        self._once: dict[str, Any] | None = None
        self._seen: set[str] = set()

    def add(
        self,
        at: int = 1,
        operation: str = "",
        service: str = "",
        code: str = "AccessDenied",
        message: str = "You are not authorized to perform this operation.",
        status: int = 403,
        times: int = 1,
        after: bool = False,
        effect: bool = False,
    ) -> None:
        """Refuses the `at`-th mutating call from now (or call of an operation), and those after it, `times` in all.

        With `after` the call takes effect and its answer gets lost; with `effect` it does and is told as refused.
        """
        if at < 1 or times < 1:
            raise ValueError("at and times are 1 or more")
        self._wanted.append(_Wanted(at - 1, times, service, operation, code, message, status, after, effect))

    def each_once(
        self,
        enabled: bool = True,
        code: str = "AccessDenied",
        message: str = "You are not authorized to perform this operation.",
        status: int = 403,
        after: bool = False,
    ) -> None:
        """Refuses every distinct mutating call when it is seen first. Serves it from the second time on."""
        self._once = {"code": code, "message": message, "status": status, "after": after} if enabled else None
        self._seen = set()

    def pending(self) -> list[dict[str, Any]]:
        return [asdict(wanted) for wanted in self._wanted]

    def check(self, call: Call) -> Refusal | None:
        """What is answered to a call although it takes effect: a refusal, or LOST. None for the answer that it has.

        :raises Refusal: for a call that is refused.
        """
        for wanted in [wanted for wanted in self._wanted if wanted.meets(call)]:
            if wanted.skip:
                wanted.skip -= 1
                continue
            wanted.times -= 1
            if not wanted.times:
                self._wanted.remove(wanted)
            refusal = Refusal(wanted.code, wanted.message, wanted.status)
            return self._refuse(refusal, wanted.after, wanted.effect)
        if self._once is not None and call.mutating:
            distinct = _distinct(call)
            if distinct not in self._seen:
                self._seen.add(distinct)
                once = dict(self._once)
                after = once.pop("after")
                return self._refuse(Refusal(**once), after)
        return None

    @staticmethod
    def _refuse(refusal: Refusal, after: bool, effect: bool = False) -> Refusal:
        if after:
            return LOST
        if effect:
            return refusal
        raise refusal


def _distinct(call: Call) -> str:
    """One text for calls of the same operation with the same parameters."""
    parameters = {name: value for name, value in call.parameters.items() if name not in IDEMPOTENCY}
    text = json.dumps([call.service, call.operation, call.region, parameters], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()
