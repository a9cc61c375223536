# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Every plugin file can be imported with the ansible-core that is installed, each by itself."""

from __future__ import annotations

import importlib
from pathlib import Path

# When it is imported first, it runs ldconfig.
import ansible.utils.encrypt  # noqa: F401
import pytest

COLLECTION = Path(__file__).parents[2]
FILES = sorted(path.relative_to(COLLECTION) for path in (COLLECTION / "plugins").rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=str)
def test_it_can_be_imported(path: Path) -> None:
    name = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
    importlib.import_module(f"ansible_collections.modelplane.fleet.{name}")
