# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Attributes of modules: check mode, diff mode and second runs."""

from __future__ import annotations


class ModuleDocFragment:
    """Attributes of modules that only read."""

    READ_ONLY = r"""
attributes:
  check_mode:
    support: full
    description: The module changes nothing in any mode.
  diff_mode:
    support: none
    description: The module has nothing to compare.
  idempotent:
    support: full
    description: The module changes nothing.
options: {}
"""
