# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Problem of user input, in the format of all packages."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from .secrets import without_keys
from .text import sentence

Severity = Literal["error", "warning"]


@dataclass(frozen=True, order=True)
class Ref:
    """Identity of a resource: kind, namespace (empty for cluster-scoped kinds), and name."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


@dataclass(frozen=True)
class Problem:
    """Error or warning: the message, the location, the wrong value, and a hint.

    As text, the message and the hint are sentences and contain no key of a known format. The field is the subject of
    the message sentence.
    """

    message: str
    """Rest of the sentence after the field."""
    path: str = ""
    """Field path as the user wrote it (`spec.nodePools[0].className`), empty for a whole document."""
    value: str = ""
    """Wrong value in short form, never of a secret. Empty without a value."""
    hint: str = ""
    """Imperative fix."""
    severity: Severity = "error"
    ref: Ref | None = None
    file: str = ""
    """Name of the text that was read."""
    line: int | None = None
    """Line in the file, from 1."""
    document: int | None = None
    """Document in the file, from 1."""

    def at(self, *, file: str, line: int | None, document: int | None, ref: Ref | None = None) -> Problem:
        """Return the problem with its location in a file."""
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
    """Return the problem of a key in place of another value. The problem does not repeat the key."""
    hint = (
        "Write what belongs here, keep keys in Secrets of the cluster, and revoke this one: everyone who reads this "
        "manifest has it"
    )
    return Problem("is a key, or has one in it", path, hint=hint)


def warning(message: str, path: str, hint: str = "", value: str = "") -> Problem:
    """Return a warning: a problem that stops no run."""
    return Problem(message, path, value, hint, "warning")
