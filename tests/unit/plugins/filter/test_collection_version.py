# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Tests of which collections are there: the filter itself, and once as a playbook asks it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ansible.errors import AnsibleFilterError
from ansible_collections.modelplane.fleet.plugins.filter.collection_version import collection_version
from ansible_collections.modelplane.fleet.tests.ansible_run import ROOT, run


def test_a_checkout_says_its_version() -> None:
    desired = yaml.safe_load((ROOT / "galaxy.yml").read_text(encoding="utf-8"))["version"]
    assert collection_version("modelplane.fleet") == desired


@pytest.mark.integration
def test_a_collection_that_was_installed_says_its_version(tmp_path: Path) -> None:
    folder = tmp_path / "ansible_collections/example/something"
    folder.mkdir(parents=True)
    (folder / "MANIFEST.json").write_text('{"collection_info": {"version": "4.5.6"}}', encoding="utf-8")
    message = (
        "msg={{ ['example.something', 'example.nothing'] | map('modelplane.fleet.collection_version') | join(' ') }}"
    )
    path = f"{ROOT / '.collections'}:{tmp_path}"
    out, _ = run("ansible", "localhost", "-m", "ansible.builtin.debug", "-a", message, ANSIBLE_COLLECTIONS_PATH=path)
    assert "msg: 4.5.6 0" in out


@pytest.mark.parametrize("name", ["example.nothing", "absent.something"])
def test_one_that_is_not_there_has_none(name: str) -> None:
    assert collection_version(name) == "0"


def test_what_is_no_name_is_reported() -> None:
    with pytest.raises(AnsibleFilterError, match="must be the name of a collection"):
        collection_version("amazon")
