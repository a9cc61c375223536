# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""How warnings are made."""

from __future__ import annotations

from ansible_collections.modelplane.fleet.plugins.module_utils.core.problem import Problem


def warning(message: str, path: str, hint: str = "", value: str = "") -> Problem:
    """A problem that keeps nothing from working."""
    return Problem(message, path, value, hint, "warning")
