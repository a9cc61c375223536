# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The control interface that doubles have beside the API of their cloud: JSON under /double/."""

from __future__ import annotations

import functools
import json
import traceback
from typing import Any

from .refusals import Call, Refusal, Refusals

Json = dict[str, Any]
Answer = tuple[int, dict[str, str], bytes]
"""Status, headers and content of an answer. Status 0: none, the connection is closed."""

PREFIX = "/double/"
_JSON = {"Content-Type": "application/json"}


class Control:
    """Requests of a test to a double: each method `control_NAME` is served under /double/NAME (with dashes); what
    follows that is its first argument."""

    refusals: Refusals

    def __init__(self) -> None:
        self.calls: list[Json] = []
        self.invalid: list[str] = []

    @property
    def settings(self) -> Any:
        """The object whose attributes a test can set."""
        raise TypeError("a double says where its settings are")

    def control(self, path: str, body: bytes) -> Answer:
        name, _, of = path.removeprefix(PREFIX).partition("/")
        method = getattr(self, f"control_{name.replace('-', '_')}", None)
        if method is not None and of:
            method = functools.partial(method, of)
        if method is None:
            return 404, _JSON, b'{"message": "no such control"}'
        try:
            message = method(**(json.loads(body) if body else {}))
        except (TypeError, ValueError, KeyError) as error:
            return 400, _JSON, json.dumps({"message": str(error)}).encode()
        return 200, _JSON, json.dumps(message, default=str).encode()

    def record(self, call: Call) -> Json:
        """Notes a call. What its `error` is can be filled in later."""
        noted = {
            "service": call.service,
            "operation": call.operation,
            "region": call.region,
            "parameters": call.parameters,
            "mutating": call.mutating,
            "error": "",
        }
        self.calls.append(noted)
        return noted

    def internal_failure(self, call: Call) -> Refusal:
        """Notes an exception of the double itself. What is answered to the call."""
        self.invalid.append(f"{call.service} {call.operation}: {traceback.format_exc()}")
        return Refusal("InternalFailure", "The double failed; invalid() says how.", 500)

    def control_calls(self) -> list[Json]:
        return self.calls

    def control_forget_calls(self) -> None:
        self.calls = []

    def control_invalid(self) -> list[str]:
        return self.invalid

    def control_refuse(self, **desired: Any) -> None:
        self.refusals.add(**desired)

    def control_refusals(self) -> list[Json]:
        return self.refusals.pending()

    def control_refuse_each_once(self, **desired: Any) -> None:
        self.refusals.each_once(**desired)

    def control_settings(self, **desired: Any) -> Json:
        settings = self.settings
        for name, value in desired.items():
            if not hasattr(settings, name):
                raise ValueError(f"there is no setting {name}")
            setattr(settings, name, value)
        return dict(vars(settings))
