# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The execution environment, as ansible-builder makes its build context; and what the collection says that it needs."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.modelplane.fleet.tests import ansible_run
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = ansible_run.ROOT
FOLDER = ROOT / "extensions/awx/execution-environment"
DEFINITION: dict[str, Any] = yaml.safe_load((FOLDER / "execution-environment.yml").read_text())
METADATA: dict[str, Any] = yaml.safe_load((ROOT / "meta/execution-environment.yml").read_text())


def builder(*arguments: str) -> str:
    command = [ansible_run.path("ansible-builder"), *arguments]
    done = subprocess.run(command, capture_output=True, check=False, text=True, env=ansible_run.environ())
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("builder") / "context"
    definition = FOLDER / "execution-environment.yml"
    builder("create", "--file", str(definition), "--context", str(folder), "--output-filename", "Containerfile")
    return folder


def test_the_build_context_has_what_a_job_needs(context: Path) -> None:
    text = (context / "Containerfile").read_text()
    assert DEFINITION["images"]["base_image"]["name"] in text
    assert "/usr/bin/python3.12" in text
    assert DEFINITION["dependencies"]["ansible_core"]["package_pip"] in text
    assert DEFINITION["dependencies"]["ansible_runner"]["package_pip"] in text
    (collection,) = yaml.safe_load((context / "_build/requirements.yml").read_text())["collections"]
    assert collection["name"].removesuffix(".git") == yaml.safe_load((ROOT / "galaxy.yml").read_text())["repository"]
    assert (context / "_build/configs/helm.sha256").read_bytes() == (FOLDER / "helm.sha256").read_bytes()
    galaxy = text.partition("# Galaxy build stage")[2]
    assert galaxy.index("install -y git-core") < galaxy.index("ansible-galaxy collection install")
    # Once all else is there, and before the user of the image is no longer root.
    final = text.partition("# Final build stage")[2]
    assert final.index("COPY _build/configs/helm.sha256") < final.index("sha256sum --check") < final.rindex("USER ")


def test_versions_are_those_that_the_collection_takes() -> None:
    requirements = {
        each.name: each
        for line in (ROOT / "requirements.txt").read_text().splitlines()
        if line and not line.startswith(("#", "-")) and (each := Requirement(line))
    }
    core = Requirement(DEFINITION["dependencies"]["ansible_core"]["package_pip"])
    assert core.specifier == requirements["ansible-core"].specifier
    archives = re.findall(
        r"^[0-9a-f]{64}  helm-v([\d.]+)-linux-(\w+)\.tar\.gz$", (FOLDER / "helm.sha256").read_text(), re.M
    )
    assert [architecture for _, architecture in archives] == ["amd64", "arm64"]
    (version,) = {Version(version) for version, _ in archives}
    (tested,) = re.findall(
        r"^helm-binary==([\d.]+?)(?:\.post\d+)?;", (ROOT / "tests/requirements.txt").read_text(), re.M
    )
    assert version == Version(tested)


def test_helm_is_the_archive_of_the_machine(tmp_path: Path) -> None:
    (step,) = [each for each in DEFINITION["additional_build_steps"]["append_final"] if each.startswith("RUN ")]
    commands = step.removeprefix("RUN cd /tmp/helm && ").split(" && ")
    shutil.copy(FOLDER / "helm.sha256", tmp_path)
    chosen = " && ".join([*commands[: [each.startswith("curl") for each in commands].index(True)], 'echo "$archive"'])
    for machine, architecture in (("x86_64", "amd64"), ("aarch64", "arm64")):
        command = chosen.replace("uname -m", f"echo {machine}")
        done = subprocess.run(["sh", "-euc", command], cwd=tmp_path, capture_output=True, check=True, text=True)
        assert re.fullmatch(rf"helm-v[\d.]+-linux-{architecture}\.tar\.gz\n", done.stdout)
        assert (tmp_path / "archive.sha256").read_text().split()[1] == done.stdout.strip()


def test_the_builder_finds_what_the_collection_needs() -> None:
    # No path of it is that of a file elsewhere: the builder reads them in the folder of the collection.
    assert METADATA["dependencies"].keys() == {"python", "system"}
    found = yaml.safe_load(builder("introspect", str(ROOT / ".collections")))
    python = {Requirement(line.partition("#")[0].strip()).name for line in found["python"]}
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    # The definition of the image says which Ansible.
    assert python | {"ansible-core"} == {Requirement(line).name for line in lines if line and not line.startswith("#")}
    assert all(line.endswith("# from collection modelplane.fleet") for line in found["python"] + found["system"])
    assert [line.split()[0] for line in found["system"]] == ["skopeo"]
