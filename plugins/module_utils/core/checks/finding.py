# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Findings of the check of a cluster, and their report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..problem import Severity
from ..text import count


@dataclass(frozen=True)
class Finding:
    """Problem with a cluster."""

    check: str
    """Name of the check, one word for programs."""
    where: str
    """Object, field of a manifest, or variable with the problem."""
    message: str
    """Description of the problem."""
    hint: str
    """Fix for the problem."""
    severity: Severity = "error"
    """An error prevents the operation of the stack or replicas; a warning does so later or under some condition."""

    def __str__(self) -> str:
        return f"{self.where}: {self.message}. {self.hint}"

    def wire(self) -> dict[str, str]:
        """The fields, for programs."""
        return {
            "severity": self.severity,
            "check": self.check,
            "where": self.where,
            "message": self.message,
            "hint": self.hint,
        }


def warning(check: str, where: str, message: str, hint: str) -> Finding:
    return Finding(check, where, message, hint, "warning")


def sorted_findings(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings with errors first, otherwise in the same order."""
    return tuple(sorted(findings, key=lambda finding: finding.severity))


def errors(findings: Iterable[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.severity == "error"]


def report(name: str, findings: Sequence[Finding]) -> list[str]:
    """Return the report of a cluster as lines: a summary, then each finding and its hint on separate lines."""
    wrong = len(errors(findings))
    lines = [f"{name}: {_counts(wrong, len(findings) - wrong)}"]
    for finding in findings:
        lines.append(f"  {finding.severity}: {finding.where}: {finding.message}")
        lines.append(f"    {finding.hint}")
    return lines


def _counts(wrong: int, warned: int) -> str:
    counts = [count(number, noun) for number, noun in ((wrong, "error"), (warned, "warning")) if number]
    return ", ".join(counts) or "nothing stands in the way"
