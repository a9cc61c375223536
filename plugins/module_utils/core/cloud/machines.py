# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Kinds of machines that a fleet has in its clouds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Machine:
    """A kind of machine in a region of a cloud, and the zones of that region that pools of it are in."""

    provider: str
    name: str
    region: str
    zones: tuple[str, ...] = ()
