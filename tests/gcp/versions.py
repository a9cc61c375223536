# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Versions of GKE: those of a release channel, and which one a text as `1.35` means."""

from __future__ import annotations

import re

from ansible_collections.modelplane.fleet.tests.cloud.refusals import Refusal

from .world import World


def key(version: str) -> tuple[int, ...]:
    """The numbers of a version, which order it."""
    return tuple(int(part) for part in re.findall(r"\d+", version))


def default(world: World, channel: str) -> str:
    """The version that a cluster of a channel gets when it asks for none: the newest but one."""
    return offered(world, channel)[-2:][0]


def offered(world: World, channel: str) -> list[str]:
    """The versions of a channel, the newest last."""
    return sorted(world.settings.versions.get(channel) or world.settings.versions["REGULAR"], key=key)


def chosen(world: World, desired: str, channel: str) -> str:
    """The version that is meant: the newest of those that begin with it."""
    if desired in ("", "-"):
        return default(world, channel)
    if desired == "latest":
        return offered(world, channel)[-1]
    found = [each for each in offered(world, channel) if matches(each, desired)]
    if not found:
        raise Refusal(
            "INVALID_ARGUMENT", f'Master version "{desired}" is unsupported in the release channel {channel}.', 400
        )
    return found[-1]


def matches(version: str, desired: str) -> bool:
    """Return whether a version is one of those that a text as `1`, `1.35`, `1.35.2` or a whole version means."""
    return version == desired or version.startswith((f"{desired}.", f"{desired}-"))
