# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Byte code of this collection, stored in the location for byte code of other packages."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from types import ModuleType

_PLUGINS = __name__.partition("plugin_utils.")[0]


class Finder:
    """Finder of the modules of this collection for the default Python loader.

    The collection loader of Ansible compiles every file in every process (`get_code` in
    ansible.utils.collection_loader). This takes a third of the start time of ansible-playbook for this collection.
    """

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None, _target: ModuleType | None = None) -> ModuleSpec | None:
        if not name.startswith(_PLUGINS):
            return None
        for folder in path or ():
            spec = FileFinder(folder, (SourceFileLoader, SOURCE_SUFFIXES)).find_spec(name)
            # A directory without __init__.py is only a package for Ansible's loader.
            if spec and spec.loader:
                return spec
        return None


def load(*names: str) -> None:
    """Import modules of this collection with their imports. `names`: paths below plugins with dots."""
    finder = Finder()
    sys.meta_path.insert(0, finder)
    try:
        for name in names:
            importlib.import_module(_PLUGINS + name)
    finally:
        sys.meta_path.remove(finder)
