# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A task is done in the process of ansible-playbook where it can be, and says the same as the module by itself."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.modelplane.fleet.tests import ansible_run

ROOT = Path(__file__).parents[2]
FLEET = ROOT / "inventories/quickstart/manifests"
PASSWORD = "of the vault"


def run(folder: Path, tasks: list[dict[str, Any]], *arguments: str, **variables: object) -> subprocess.CompletedProcess:
    play = {"hosts": "localhost", "gather_facts": False, "tasks": tasks}
    (folder / "play.yml").write_text(yaml.safe_dump([play]))
    options = ("-i", "localhost,", "-c", "local", "-e", json.dumps(variables))
    return ansible_run.completed("ansible-playbook", "play.yml", *options, *arguments, cwd=folder)


@pytest.fixture(params=["in process", "as a module"])
def python(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The interpreter of a host: that of ansible-playbook, or another one, here with the same libraries."""
    if request.param == "in process":
        return sys.executable
    other = tmp_path / "python"
    other.write_text(f'#!/bin/sh\necho started >> "{tmp_path}/started"\nexec "{sys.executable}" "$@"\n')
    other.chmod(0o755)
    return str(other)


def outcome(folder: Path, python: str, module: str, *arguments: str, **given: Any) -> dict[str, Any]:
    """Return what a task of the module registers."""
    (found,) = outcomes(folder, python, module, [given], *arguments)
    return found


def outcomes(
    folder: Path, python: str, module: str, each: Sequence[Mapping[str, Any]], *arguments: str
) -> list[dict[str, Any]]:
    """Return what tasks of the module register, in their order, in one play."""
    tasks = [
        {f"modelplane.fleet.{module}": given, "register": f"found_{number}", "ignore_errors": True}
        for number, given in enumerate(each)
    ]
    every = ", ".join(f"found_{number}" for number in range(len(each)))
    keep = {
        "ansible.builtin.copy": {"content": f"{{{{ [{every}] | to_json }}}}", "dest": "{{ playbook_dir }}/found.json"}
    }
    keep.update({"check_mode": False, "diff": False, "vars": {"ansible_python_interpreter": sys.executable}})
    done = run(folder, [*tasks, keep], *arguments, ansible_python_interpreter="{{ python }}", python=python)
    assert done.returncode == 0, done.stdout + done.stderr
    started = folder / "started"
    # Each task starts the other Python, at least once.
    assert started.read_text().count("started") >= len(each) if python != sys.executable else not started.exists()
    found: list[dict[str, Any]] = json.loads((folder / "found.json").read_text())
    return found


def test_results_are_the_same(tmp_path: Path, python: str) -> None:
    found = outcome(tmp_path, python, "resource_info", resources=[str(FLEET)])
    assert (found["changed"], found["failed"], found["errors"]) == (False, False, [])
    assert sorted(found["resources"]["InferenceCluster"]) == ["byo-us-east", "eks-us-west", "gke-us-central"]


def test_check_mode_and_diff_are_the_same(tmp_path: Path, python: str) -> None:
    found = outcome(
        tmp_path, python, "build", "--check", "--diff", resources=[str(FLEET)], path=str(tmp_path / "build")
    )
    assert found["changed"]
    assert "plan.json" in found["added"]
    counts, *files = found["diff"]
    assert "cluster gke-us-central: " in counts["prepared"]
    assert {"control/", "clusters"} == {entry["after_header"][:8] for entry in files}
    assert not (tmp_path / "build").exists()


def test_the_report_is_the_same(tmp_path: Path, python: str) -> None:
    found = outcome(tmp_path, python, "build", resources=[str(FLEET)], path=str(tmp_path / "build"))
    assert "report.html" in found["added"]
    page = (tmp_path / "build" / "report.html").read_text()
    assert page.startswith("<!DOCTYPE html>")
    assert "gke-us-central" in page


def test_errors_are_the_same(tmp_path: Path, python: str) -> None:
    wrong = [
        ({"resources": ["x"], "pathh": "y"}, "Unsupported parameters for (modelplane.fleet.schedule) module: pathh."),
        ({}, "missing required arguments: resources"),
        ({"resources": ["x"], "accounting": "Cores"}, "value of accounting must be one of: Devices, Nodes, got: Cores"),
        ({"resources": ["nowhere"]}, "nowhere"),
    ]
    found = outcomes(tmp_path, python, "schedule", [given for given, _ in wrong])
    for each, (_, message) in zip(found, wrong, strict=True):
        assert each["failed"]
        assert message in "\n".join([each["msg"], *each.get("errors", ())])


def test_warnings_are_shown(tmp_path: Path, python: str) -> None:
    text = (FLEET / "models.yaml").read_text().replace("\nspec:", "\nspecs: {}\nspec:", 1)
    (tmp_path / "models.yaml").write_text(text)
    task = {"modelplane.fleet.resource_info": {"resources": [str(tmp_path / "models.yaml")], "fail_on_error": False}}
    done = run(tmp_path, [task], "-v", ansible_python_interpreter=python)
    assert "specs" in done.stdout + done.stderr


def test_paths_start_at_the_playbook(tmp_path: Path, python: str) -> None:
    (tmp_path / "fleet").symlink_to(FLEET)
    found = outcome(tmp_path, python, "resource_info", resources=["fleet"])
    assert not found["failed"], found["msg"]
    assert found["resources"]["InferenceClass"]


def test_the_environment_of_a_task_holds(tmp_path: Path, python: str) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home/fleet").symlink_to(FLEET)
    task = {
        "modelplane.fleet.resource_info": {"resources": ["~/fleet"]},
        "environment": {"HOME": "{{ playbook_dir }}/home"},
    }
    done = run(tmp_path, [task], ansible_python_interpreter=python)
    assert done.returncode == 0, done.stdout


def test_a_value_of_a_vault_is_opened(tmp_path: Path, python: str) -> None:
    (tmp_path / "password").write_text(PASSWORD)
    sealed = subprocess.run(
        [
            ansible_run.path("ansible-vault"),
            "encrypt_string",
            "--vault-password-file",
            "password",
            "--name",
            "fleet",
            str(FLEET),
        ],
        capture_output=True,
        check=True,
        text=True,
        cwd=tmp_path,
    ).stdout
    (tmp_path / "variables.yml").write_text(sealed)
    found = outcome(
        tmp_path,
        python,
        "resource_info",
        "--vault-password-file=password",
        "-e@variables.yml",
        resources=["{{ fleet }}"],
    )
    assert not found["failed"], found["msg"]
    assert found["resources"]["InferenceClass"]


PARSE = """
import sys
from ansible.plugins.loader import init_plugin_loader
init_plugin_loader([])
from ansible.parsing.mod_args import ModuleArgsParser
ModuleArgsParser({"modelplane.fleet.schedule": {}}).parse()
print("\\n".join(sorted(sys.modules)))
"""


def test_modules_and_filters_are_loaded_before_processes_are_forked_for_tasks() -> None:
    environment = {"ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".collections"), "HOME": "/nonexistent"}
    command = [sys.executable, "-c", PARSE]
    done = subprocess.run(command, capture_output=True, check=True, text=True, cwd="/", env=environment)
    for loaded in ("modules.schedule", "filter.topology", "filter.engines"):
        assert f"ansible_collections.modelplane.fleet.plugins.{loaded}" in done.stdout.split()
