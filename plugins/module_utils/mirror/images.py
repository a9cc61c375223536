# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Images: compare the contents of two registries, and copy missing images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from ..core.compose.mirror_commands import Image, ImageTool, MirrorError, no_tool_finding
from .programs import Workspace, at_once


@dataclass(frozen=True)
class Copied:
    """Result of one image: digests of the copy before and after, empty without a copy."""

    image: Image
    previous_digest: str = ""
    current_digest: str = ""
    problem: str = ""

    @property
    def changed(self) -> bool:
        return not self.problem and self.previous_digest != self.current_digest


def tool(space: Workspace, named: str, images: Sequence[Image], *, plain: bool, sources_plain: bool) -> ImageTool:
    """Return the first program that runs. Raises MirrorError."""
    for program in [named] if named else ["crane", "skopeo"]:
        image_tool = ImageTool(program, plain, sources_plain)
        if not space.run(image_tool.version(), awaited=program).error:
            return image_tool
    raise MirrorError(no_tool_finding(named, images))


def copy(
    space: Workspace,
    program: ImageTool,
    images: Sequence[Image],
    *,
    check_mode: bool,
    forks: int,
    log: Callable[[str], None],
) -> list[Copied]:
    """Copy missing and different images concurrently. A failed image does not affect other images."""
    return at_once(partial(_copied, space, program, check_mode, log), images, forks)


def _copied(space: Workspace, program: ImageTool, check_mode: bool, log: Callable[[str], None], image: Image) -> Copied:
    original = space.run(program.inspect(image.source, copy=False), awaited=f"the digest of {image.source}")
    if original.error:
        return _failed(log, image, f"cannot be read from {image.source}: {original.error}")
    # A copy that cannot be read might still be writable.
    copy_lookup = space.run(program.inspect(image.destination, copy=True), awaited=f"the digest of {image.destination}")
    copy_digest = "" if copy_lookup.error else program.digest(copy_lookup.output)
    source_digest = program.digest(original.output)
    if copy_digest != source_digest and not check_mode:
        error = space.run(program.copy(image, source_digest), awaited=f"the copy of {image.image}", copies=True).error
        if error:
            return _failed(log, image, f"is not copied to {image.destination}: {error}")
        log(f"{image.image} copied to {image.destination}")
    return Copied(image, copy_digest, source_digest)


def _failed(log: Callable[[str], None], image: Image, message: str) -> Copied:
    problem = f"{image.image} {message}"
    log(problem)
    return Copied(image, problem=problem)
