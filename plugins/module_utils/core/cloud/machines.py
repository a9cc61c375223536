# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Machine types of a fleet in its clouds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Machine:
    """A machine type in a region of a cloud, and the zones of its pools in that region."""

    provider: str
    name: str
    region: str
    zones: tuple[str, ...] = ()
