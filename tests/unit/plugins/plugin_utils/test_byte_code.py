# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Byte code that is kept in a process of Ansible: that of this collection, and of nothing else."""

from __future__ import annotations

import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest
from ansible_collections.modelplane.fleet.plugins.plugin_utils import byte_code

PLUGINS = Path(byte_code.__file__).parents[1]
NAME = "ansible_collections.modelplane.fleet.plugins"


@pytest.mark.parametrize("name", ["module_utils._yaml", "module_utils.core.api"])
def test_files_and_packages_of_the_collection_keep_their_byte_code(name: str) -> None:
    folder = PLUGINS.joinpath(*name.split(".")[:-1])
    spec = byte_code.Finder.find_spec(f"{NAME}.{name}", [str(folder)])
    assert spec
    assert type(spec.loader) is SourceFileLoader
    assert "__pycache__" in (spec.cached or "")


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        pytest.param(f"{NAME}.module_utils", PLUGINS, id="a folder without __init__.py"),
        pytest.param(f"{NAME}.module_utils.nowhere", PLUGINS / "module_utils", id="nothing of that name"),
        pytest.param("ansible_collections.modelplane.other.plugins._yaml", PLUGINS / "module_utils", id="another one"),
        pytest.param("_yaml", PLUGINS / "module_utils", id="a package of Python"),
    ],
)
def test_everything_else_is_left_to_others(name: str, folder: Path) -> None:
    assert byte_code.Finder.find_spec(name, [str(folder)]) is None
    assert byte_code.Finder.find_spec(name, None) is None


def test_what_is_loaded_leaves_no_finder() -> None:
    before = list(sys.meta_path)
    byte_code.load("module_utils._yaml", "module_utils.core.text")
    assert sys.meta_path == before
    with pytest.raises(ModuleNotFoundError):
        byte_code.load("module_utils.nowhere")
    assert sys.meta_path == before
