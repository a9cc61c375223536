# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Overrides of a ModelDeployment for images and arguments of pickers and sidecars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from ..api.serving import Picker, Sidecar


def image(settings: Picker | Sidecar | None, composed: str) -> str:
    """Return the image to run: that of `serving.picker` or `serving.sidecar`, else the composed one."""
    return (settings.image if settings else None) or composed


def args(
    settings: Picker | Sidecar | None, composed: Sequence[str], renamed: Mapping[str, str] = MappingProxyType({})
) -> list[str]:
    """Return the arguments to run with: a written flag replaces the composed flag of the same name, other flags are
    added.

    Written arguments stay together and in order, after the composed arguments, because a value may be a separate
    argument (`--v 4`). The order of different flags, and one hyphen or two, make no difference to the flag packages of
    Go.

    `renamed`: the composed name of flags by their name in other versions of the image. An image rejects unknown flags.
    """
    user_args = list((settings.args if settings else None) or ())
    names = [_flag(argument) for argument in user_args if argument.startswith("-")]
    replaced = {renamed.get(name, name) for name in names}
    return [argument for argument in composed if _flag(argument) not in replaced] + user_args


def _flag(argument: str) -> str:
    return argument.partition("=")[0].lstrip("-")
