# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The collection as `ansible-galaxy` builds and installs it."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
from ansible_collections.modelplane.fleet.tests import ansible_run
from ansible_collections.modelplane.fleet.tests.checkout import ROOT, files
from ansible_collections.modelplane.fleet.tests.playbooks.test_playbooks import changed, recap

FOLDERS = ("changelogs", "docs", "extensions/eda", "inventories", "meta", "playbooks", "plugins", "roles")
SINGLE = {"CHANGELOG.rst", "LICENSE", "README.md", "bindep.txt", "requirements.txt", "requirements.yml"}
WRITTEN = {"FILES.json", "MANIFEST.json"}
LEFT_OUT = ("changelogs/config.yaml", "changelogs/fragments/", "docs/docsite/build.py", "docs/docsite/conf.py")


@pytest.fixture(scope="module")
def tarball(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tarball")
    ansible_run.run("ansible-galaxy", "collection", "build", str(ROOT), "--output-path", str(folder))
    return next(folder.glob("*.tar.gz"))


def test_the_tarball_has_what_users_need_and_nothing_else(tarball: Path) -> None:
    with tarfile.open(tarball) as archive:
        packed = {member.name for member in archive if not member.isdir()}
    of_users = {name for name in files() if name.startswith(tuple(f"{folder}/" for folder in FOLDERS))}
    assert packed == {name for name in of_users if not name.startswith(LEFT_OUT)} | SINGLE | WRITTEN


def test_the_sample_fleet_runs_from_what_is_installed(tarball: Path, tmp_path: Path) -> None:
    configuration = tmp_path / "ansible.cfg"
    configuration.write_text("[defaults]\n")
    variables = {"ANSIBLE_CONFIG": str(configuration), "ANSIBLE_COLLECTIONS_PATH": str(tmp_path)}
    install = ("collection", "install", str(tarball), "--no-deps", "--offline", "--collections-path", str(tmp_path))
    ansible_run.run("ansible-galaxy", *install, cwd=tmp_path, **variables)
    installed = tmp_path / "ansible_collections" / "modelplane" / "fleet"
    sample = installed / "inventories" / "quickstart" / "hosts.yml"
    arguments = ("modelplane.fleet.site", "-i", str(sample), "-e", f"fleet_build={tmp_path / 'build'}")
    output, _ = ansible_run.run("ansible-playbook", *arguments, cwd=tmp_path, **variables)
    assert changed(output) == 4
    assert set(recap(output)) == {"control", "byo-us-east", "eks-us-west", "gke-us-central"}
    assert (tmp_path / "build" / "plan.json").is_file()
