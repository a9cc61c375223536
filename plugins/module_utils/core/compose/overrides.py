# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Images and arguments of the containers that are composed beside engines, as a ModelDeployment overrides them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.serving import Picker, Sidecar


def image(written: Picker | Sidecar | None, composed: str) -> str:
    """Return the image to run: the one written in `serving.picker` or `serving.sidecar`, else the composed one."""
    return (written.image if written else None) or composed


def args(
    written: Picker | Sidecar | None, composed: Sequence[str], renamed: Mapping[str, str] = MappingProxyType({})
) -> list[str]:
    """Return the arguments to run with: a written flag replaces the composed one of that name, others are added.

    `renamed` maps names that a flag has in other images to the composed one: an image refuses flags it does not know.

    What is written stays together and in its order, behind what is composed: a value may be an argument of its own
    (`--v 4`), and no order between different flags means anything to the Go flag packages. One hyphen or two are
    the same to them.
    """
    own = list((written.args if written else None) or ())
    names = [_flag(each) for each in own if each.startswith("-")]
    replaced = {renamed.get(name, name) for name in names}
    return [each for each in composed if _flag(each) not in replaced] + own


def _flag(argument: str) -> str:
    return argument.partition("=")[0].lstrip("-")
