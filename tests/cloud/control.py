# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The control interface that doubles have beside the API of their cloud: JSON under /double/."""

from __future__ import annotations

import json
from typing import Any

from .refusals import Call, Refusals

Json = dict[str, Any]
Answer = tuple[int, dict[str, str], bytes]
"""Status, headers and content of an answer. Status 0: none, the connection is closed."""

PREFIX = "/double/"
_JSON = {"Content-Type": "application/json"}


class Control:
    """What a test asks of a double: each method `control_NAME` is served under /double/NAME (with dashes). `settings`
    is an object whose attributes can be set."""

    refusals: Refusals

    def __init__(self) -> None:
        self.calls: list[Json] = []
        self.invalid: list[str] = []

    def settings(self) -> Any:
        raise TypeError("a double says where its settings are")

    def control(self, path: str, body: bytes) -> Answer:
        name = path.removeprefix(PREFIX).replace("-", "_").strip("/")
        method = getattr(self, f"control_{name}", None)
        if method is None:
            return 404, _JSON, b'{"message": "no such control"}'
        try:
            told = method(**(json.loads(body) if body else {}))
        except (TypeError, ValueError, KeyError) as error:
            return 400, _JSON, json.dumps({"message": str(error)}).encode()
        return 200, _JSON, json.dumps(told, default=str).encode()

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

    def control_calls(self) -> list[Json]:
        return self.calls

    def control_forget_calls(self) -> None:
        self.calls = []

    def control_invalid(self) -> list[str]:
        return self.invalid

    def control_refuse(self, **wanted: Any) -> None:
        self.refusals.add(**wanted)

    def control_refusals(self) -> list[Json]:
        return self.refusals.pending()

    def control_refuse_each_once(self, **wanted: Any) -> None:
        self.refusals.each_once(**wanted)

    def control_settings(self, **wanted: Any) -> Json:
        settings = self.settings()
        for name, value in wanted.items():
            if not hasattr(settings, name):
                raise ValueError(f"there is no setting {name}")
            setattr(settings, name, value)
        return dict(vars(settings))
