# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""EC2 instance types: the architecture of their processors, by their names."""

from __future__ import annotations

import re

_ARM = re.compile(r"a1\.|[a-z]+\d+[a-z]*g[a-z]*[.-]|[^.]*-g[bh]\d+\.")
"""Types with Graviton or Grace processors: `g` after the number of the generation ("Amazon EC2 instance type naming
conventions"), and Grace Blackwell superchips."""


def architecture(instance_type: str) -> str:
    """Return the processor architecture of an instance type, in the format of the label kubernetes.io/arch."""
    return "arm64" if _ARM.match(instance_type) else "amd64"
