# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Which collections are there, asked as a playbook does."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ansible_collections.modelplane.fleet.tests.ansible_run import ROOT, run


def version(name: str, **environment: str) -> str:
    message = "msg={{ '" + name + "' | modelplane.fleet.collection_version }}"
    return "".join(run("ansible", "localhost", "-m", "ansible.builtin.debug", "-a", message, **environment))


def test_a_checkout_says_its_version() -> None:
    wanted = yaml.safe_load((ROOT / "galaxy.yml").read_text(encoding="utf-8"))["version"]
    assert f"msg: {wanted}" in version("modelplane.fleet")


def test_a_collection_that_was_installed_says_its_version(tmp_path: Path) -> None:
    folder = tmp_path / "ansible_collections/somebody/something"
    folder.mkdir(parents=True)
    (folder / "MANIFEST.json").write_text('{"collection_info": {"version": "4.5.6"}}', encoding="utf-8")
    path = f"{ROOT / '.collections'}:{tmp_path}"
    assert "msg: 4.5.6" in version("somebody.something", ANSIBLE_COLLECTIONS_PATH=path)


@pytest.mark.parametrize("name", ["somebody.nothing", "nobody.something"])
def test_one_that_is_not_there_has_none(name: str) -> None:
    assert "msg: '0'" in version(name)


def test_what_is_no_name_is_told() -> None:
    assert "must be the name of a collection" in version("amazon")
