# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Requests to an API server, from its audit log."""

from __future__ import annotations

import json
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

READS = frozenset({"get", "list", "watch"})
# An answer is logged when it has been sent, so the client may have it a moment before the log does.
_ANSWERED_WITHIN = 1.0


@dataclass(frozen=True)
class Request:
    """A request to an API server. `code` is the HTTP status, 0 where no answer was logged (the server was killed).

    `resource` is plural with its subresource (`pods/binding`), empty for paths that are no resource.
    """

    user: str
    user_agent: str
    verb: str
    group: str
    resource: str
    namespace: str
    name: str
    uri: str
    code: int


def policy(components: Collection[str]) -> dict[str, Any]:
    """The audit policy: metadata of all requests but for reads and leases of `components` (users), and events."""
    return {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "rules": [
            {"level": "None", "users": ["system:apiserver", *sorted(components)], "verbs": sorted(READS)},
            {
                "level": "None",
                "users": ["system:apiserver", *sorted(components)],
                "resources": [{"group": "coordination.k8s.io", "resources": ["leases"]}],
            },
            {
                "level": "None",
                "resources": [
                    {"group": "", "resources": ["events"]},
                    {"group": "events.k8s.io", "resources": ["events"]},
                ],
            },
            {"level": "Metadata"},
        ],
    }


class AuditLog:
    """The log of one API server, kept over its restarts."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def position(self) -> int:
        """Return where the log ends now: what `requests` takes as `since`."""
        return self.path.stat().st_size if self.path.exists() else 0

    def requests(self, since: int = 0) -> list[Request]:
        """Requests that came in after this position, in their order."""
        end = time.monotonic() + _ANSWERED_WITHIN
        while True:
            received, codes = self._read(since)
            if time.monotonic() > end or all(each["auditID"] in codes for each in received if each["verb"] != "watch"):
                return [_request(each, codes.get(each["auditID"], 0)) for each in received]
            time.sleep(0.02)

    def _read(self, since: int) -> tuple[list[dict[str, Any]], dict[str, int]]:
        received, codes = [], {}
        if self.path.exists():
            with self.path.open("rb") as file:
                file.seek(since)
                # A killed server may leave half a line; one that still runs may be writing one.
                for line in file:
                    try:
                        event = json.loads(line)
                    except ValueError:
                        continue
                    if event["stage"] == "RequestReceived":
                        received.append(event)
                    else:
                        codes[event["auditID"]] = event.get("responseStatus", {}).get("code", 0)
        return received, codes


def _request(event: dict[str, Any], code: int) -> Request:
    target = event.get("objectRef", {})
    return Request(
        user=event.get("user", {}).get("username", ""),
        user_agent=event.get("userAgent", ""),
        verb=event["verb"],
        group=target.get("apiGroup", ""),
        resource="/".join(part for part in (target.get("resource"), target.get("subresource")) if part),
        namespace=target.get("namespace", ""),
        name=target.get("name", ""),
        uri=event["requestURI"],
        code=code,
    )
