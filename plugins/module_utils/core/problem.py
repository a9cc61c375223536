# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Problem in something a user wrote, as every package reports it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from .secrets import without_keys
from .text import sentence

Severity = Literal["error", "warning"]


@dataclass(frozen=True, order=True)
class Ref:
    """The identity of a resource: kind, namespace (empty for cluster-scoped kinds) and name."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong: what (`message`), where, the value that is wrong, and what to do about it (`hint`).

    As a text, message and hint are sentences, and no key of a known form is in it; the message itself is the rest of
    one that begins with the field.

    `path` is the field path as the user wrote it (`spec.nodePools[0].className`), empty for a whole document.
    `value` is the offending value in short form (never of a secret), empty where there is none.
    `line` and `document` count from 1; `file` is the name the text was read under.
    """

    message: str
    path: str = ""
    value: str = ""
    hint: str = ""
    severity: Severity = "error"
    ref: Ref | None = None
    file: str = ""
    line: int | None = None
    document: int | None = None

    def at(self, *, file: str, line: int | None, document: int | None, ref: Ref | None = None) -> Problem:
        """The same problem, with its place in a file."""
        return replace(self, file=file, line=line, document=document, ref=ref or self.ref)

    def __str__(self) -> str:
        position = ":".join(str(element) for element in (self.file, self.line) if element)
        where = ", ".join(
            str(element)
            for element in (
                position,
                f"document {self.document}" if self.document else "",
                self.ref or "",
                self.path,
            )
            if element
        )
        got = f" (got {self.value})" if self.value else ""
        description = sentence(f"{self.message}{got}")
        if self.hint:
            description = f"{description} {sentence(self.hint)}"
        return without_keys(f"{where}: {description}" if where else description)


def pasted_key(path: str) -> Problem:
    """Return the problem of a key where something else is due. It does not repeat the key."""
    hint = (
        "Write what belongs here, keep keys in Secrets of the cluster, and revoke this one: everyone who reads this "
        "manifest has it"
    )
    return Problem("is a key, or has one in it", path, hint=hint)


def warning(message: str, path: str, hint: str = "", value: str = "") -> Problem:
    """Return a warning: a problem that stops no run."""
    return Problem(message, path, value, hint, "warning")
