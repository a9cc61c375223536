# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Calls to a double that fail because a test wants it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any, Protocol


class Refusal(Exception):  # noqa: N818 it is an answer
    """An error that a cloud answers: its code, its message, the HTTP status, and further members of its shape."""

    def __init__(self, code: str, message: str, status: int = 0, **members: Any) -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message, self.status, self.members = code, message, status, members


LOST = Refusal("", "The connection is closed.")


class Call(Protocol):
    """The parts of a call that matter here. An `operation` may have dots: its last parts are enough to name it."""

    @property
    def service(self) -> str: ...

    @property
    def operation(self) -> str: ...

    @property
    def region(self) -> str: ...

    @property
    def parameters(self) -> dict[str, Any]: ...

    @property
    def mutating(self) -> bool: ...


@dataclass
class _Requested:
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
    parameter: str

    def meets(self, call: Call) -> bool:
        if self.service not in ("", call.service) or self.parameter not in json.dumps(call.parameters, default=str):
            return False
        if self.operation:
            return f".{call.operation}".endswith(f".{self.operation}")
        return call.mutating


class Refusals:
    """Calls that are refused. `code` and `message`: what is answered unless a test says otherwise. `made_up`: names of
    parameters that the client makes up for each call, which say nothing of what the call does."""

    def __init__(self, code: str, message: str, made_up: Collection[str] = ()) -> None:
        self._code, self._message, self._made_up = code, message, frozenset(made_up)
        self._requested: list[_Requested] = []
        self._once: dict[str, Any] | None = None
        self._seen: set[str] = set()

    def add(
        self,
        at: int = 1,
        operation: str = "",
        service: str = "",
        code: str = "",
        message: str = "",
        status: int = 403,
        times: int = 1,
        after: bool = False,
        effect: bool = False,
        parameter: str = "",
    ) -> None:
        """Refuses the `at`-th mutating call from now (or call of an operation), and those after it, `times` in all.

        With `parameter` only calls count whose parameters have that text.
        With `after` the call takes effect and its answer gets lost; with `effect` it does and is reported as refused.
        """
        if at < 1 or times < 1:
            raise ValueError("at and times are 1 or more")
        code, message = code or self._code, message or self._message
        self._requested.append(
            _Requested(at - 1, times, service, operation, code, message, status, after, effect, parameter)
        )

    def each_once(
        self, enabled: bool = True, code: str = "", message: str = "", status: int = 403, after: bool = False
    ) -> None:
        """Refuses every distinct mutating call when it is seen first. Serves it from the second time on."""
        once = {"code": code or self._code, "message": message or self._message, "status": status, "after": after}
        self._once = once if enabled else None
        self._seen = set()

    def pending(self) -> list[dict[str, Any]]:
        return [asdict(desired) for desired in self._requested]

    def check(self, call: Call) -> Refusal | None:
        """Return the answer to a call although it takes effect: a refusal, or LOST. None for the answer that it has.

        :raises Refusal: for a call that is refused.
        """
        for desired in [desired for desired in self._requested if desired.meets(call)]:
            if desired.skip:
                desired.skip -= 1
                continue
            desired.times -= 1
            if not desired.times:
                self._requested.remove(desired)
            refusal = Refusal(desired.code, desired.message, desired.status)
            return self._refuse(refusal, desired.after, desired.effect)
        if self._once is not None and call.mutating:
            distinct = self._distinct(call)
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

    def _distinct(self, call: Call) -> str:
        """One text for calls of the same operation with the same parameters."""
        parameters = self._lasting(call.parameters)
        text = json.dumps([call.service, call.operation, call.region, parameters], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()

    def _lasting(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: self._lasting(each) for name, each in value.items() if name not in self._made_up}
        return [self._lasting(each) for each in value] if isinstance(value, list) else value
