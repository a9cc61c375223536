# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Semantic versions of DRA attributes as in Kubernetes: semver.org 2.0, with numbers of 64 bits."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache, total_ordering

_MAX_NUMBER = 2**64 - 1
_NUMBER = re.compile(r"0|[1-9][0-9]*", re.ASCII)
_IDENTIFIER = re.compile(r"[0-9A-Za-z-]+", re.ASCII)


class SemverError(ValueError):
    """Invalid semantic version. The message contains the expected format."""


@total_ordering
@dataclass(frozen=True, eq=False)
class Semver:
    """Semantic version, equal and ordered by precedence (semver.org, clause 11), so build metadata does not count."""

    text: str
    major: int
    minor: int
    patch: int
    # Every pre-release identifier as (is text, number, text). Numbers come before texts.
    prerelease: tuple[tuple[bool, int, str], ...] = field(default=())

    @staticmethod
    def parse(text: str, normalize: bool = False) -> Semver:
        """Parse a version. `normalize` also accepts `v1`, `1.2`, and leading zeros, like CEL's `semver(text, true)`."""
        return _parse(_normalized(text) if normalize else text)

    @property
    def _precedence(self) -> tuple[int, int, int, bool, tuple[tuple[bool, int, str], ...]]:
        return (self.major, self.minor, self.patch, not self.prerelease, self.prerelease)

    def __str__(self) -> str:
        return self.text

    def __eq__(self, other: object) -> bool:
        return self._precedence == other._precedence if isinstance(other, Semver) else NotImplemented

    def __lt__(self, other: Semver) -> bool:
        return self._precedence < other._precedence

    def __hash__(self) -> int:
        return hash(self._precedence)


def _normalized(text: str) -> str:
    components = text.removeprefix("v").split(".", 2)
    for index, component in enumerate(components):
        if len(component) > 1:
            stripped = component.lstrip("0")
            components[index] = stripped if stripped[:1] in tuple("0123456789") else "0" + stripped
    if len(components) < 3 and any(sign in components[-1] for sign in "+-"):
        raise SemverError(f"{text!r} is short, and a short version cannot have pre-release or build metadata")
    return ".".join((*components, "0", "0")[:3] if len(components) < 3 else components)


@lru_cache(maxsize=1024)
def _parse(text: str) -> Semver:
    components = text.split(".", 2)
    if len(components) != 3:
        raise SemverError(f"{text!r} is no version of the form major.minor.patch")
    patch_text, plus, build = components[2].partition("+")
    patch, dash, prerelease = patch_text.partition("-")
    if plus and not all(map(_IDENTIFIER.fullmatch, build.split("."))):
        raise SemverError(f"{text!r} has build metadata with an empty part or a sign that is not allowed")
    major, minor, patch_number = (_number(text, component) for component in (components[0], components[1], patch))
    identifiers = tuple(_identifier(text, component) for component in prerelease.split(".")) if dash else ()
    return Semver(text, major, minor, patch_number, identifiers)


def _number(text: str, component: str) -> int:
    if not _NUMBER.fullmatch(component) or len(component) > 20 or int(component) > _MAX_NUMBER:
        raise SemverError(
            f"{text!r} is no version: {component!r} is no number without leading zeros of at most 64 bits"
        )
    return int(component)


def _identifier(text: str, component: str) -> tuple[bool, int, str]:
    if component.isascii() and component.isdigit():
        return (False, _number(text, component), "")
    if not _IDENTIFIER.fullmatch(component):
        raise SemverError(f"{text!r} has a pre-release with an empty part or a sign that is not allowed")
    return (True, 0, component)
