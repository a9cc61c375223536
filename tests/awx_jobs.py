# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Jobs as AWX runs them: an imported inventory, a slice of it, and a private data folder for ansible-runner."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.modelplane.fleet.tests import ansible_run

PROJECT = ansible_run.ROOT / "extensions/awx/project"
Inventory = dict[str, Any]
Event = dict[str, Any]

# What AWX adds to the extra variables of every job (a part of it).
_OF_AWX = {"awx_job_id": 7, "awx_job_launch_type": "manual", "awx_user_name": "ada", "tower_job_id": 7}


@dataclass(frozen=True)
class Job:
    """Results of a job, from its private data folder."""

    code: int
    status: str
    events: tuple[Event, ...]
    output: str

    @property
    def recap(self) -> Event:
        """The data of the last event: counts by host, and the artifacts."""
        (found,) = [event["event_data"] for event in self.events if event["event"] == "playbook_on_stats"]
        return dict(found)

    def ok(self) -> Job:
        assert (self.code, self.status) == (0, "successful"), self.output
        return self

    @property
    def outcome(self) -> Event:
        """The artifact that the next node of a workflow gets."""
        return dict(self.recap["artifact_data"]["fleet_outcome"])

    def messages(self, task: str) -> str:
        """Return what a task printed (`msg`), as text."""
        results = [event["event_data"].get("res", {}) for event in self.events if _task(event) == task]
        return json.dumps([result["msg"] for result in results if "msg" in result])


def imported(source: Path, **environment: str) -> Inventory:
    """Return an inventory as AWX imports it: variables of groups and hosts as they are, not merged."""
    # Text of manifests is no template, which Ansible says in this format, and reads again.
    out, _ = ansible_run.run("ansible-inventory", "-i", str(source), "--list", "--export", **environment)
    return dict(json.loads(out))


def sliced(inventory: Inventory, number: int, count: int) -> Inventory:
    """Return what AWX gives to slice `number` (from 1) of `count`: every so manieth host by name, and all groups."""
    groups = {name: group for name, group in inventory.items() if name != "_meta"}
    variables = inventory["_meta"]["hostvars"]
    every = sorted({host for group in groups.values() for host in group.get("hosts", ())} | set(variables))
    kept = every[number - 1 :: count]
    return {
        **{
            name: {**group, "hosts": [each for each in group.get("hosts", ()) if each in kept]}
            for name, group in groups.items()
        },
        "_meta": {"hostvars": {host: variables.get(host, {}) for host in kept}},
    }


def launch(
    folder: Path,
    project: Path,
    playbook: str,
    inventory: Inventory,
    answers: Mapping[str, Any] | None = None,
    *options: str,
) -> Job:
    """Run a playbook of the project in a private data folder of its own, as AWX lays it out. `answers`: to the survey,
    and what credentials inject. `options`: of ansible-playbook."""
    # A process of its own, as it forks, and tests have threads.
    command = prepare(folder, project, playbook, inventory, answers)
    (folder / "env/cmdline").write_text(" ".join(options))
    done = subprocess.run(command, check=False, env=ansible_run.environ())
    return result(folder, done.returncode)


def prepare(
    folder: Path, project: Path, playbook: str, inventory: Inventory, answers: Mapping[str, Any] | None = None
) -> list[str]:
    """Return the command that runs a playbook, in a private data folder as for `launch`."""
    for name in ("env", "inventory"):
        (folder / name).mkdir(parents=True)
    (folder / "project").symlink_to(project, target_is_directory=True)
    script = folder / "inventory/hosts"
    script.write_text(f"#!{sys.executable}\nprint({json.dumps(inventory)!r})\n")
    script.chmod(0o700)
    (folder / "env/extravars").write_text(_unsafe({**_OF_AWX, **(answers or {})}))
    (folder / "env/settings").write_text(json.dumps({"suppress_ansible_output": True, "idle_timeout": 600}))
    (folder / "env/ansible.cfg").touch()
    (folder / "env/envvars").write_text(
        json.dumps(
            {
                "ANSIBLE_COLLECTIONS_PATH": str(ansible_run.ROOT / ".collections"),
                # That of the checkout is none of a job's.
                "ANSIBLE_CONFIG": str(folder / "env/ansible.cfg"),
                "ANSIBLE_FORCE_COLOR": "0",
                "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            }
        )
    )
    program = [ansible_run.path("ansible-runner"), "run", "--quiet", "--ident", "7"]
    return [*program, "--playbook", f"playbooks/{playbook}.yml", str(folder)]


def result(folder: Path, code: int) -> Job:
    """Return what a job that ended left in its folder."""
    artifacts = folder / "artifacts/7"
    events = (json.loads(path.read_text()) for path in (artifacts / "job_events").glob("*-*.json"))
    output = (artifacts / "stdout").read_text()
    assert "Traceback" not in output, output
    assert int((artifacts / "rc").read_text()) == code
    status = (artifacts / "status").read_text()
    return Job(code, status, tuple(sorted(events, key=lambda event: event["counter"])), output)


def answers(template: Mapping[str, Any]) -> dict[str, Any]:
    """Return what AWX makes of a survey in which a user changes nothing: defaults, and empty text."""
    found = {question["variable"]: question for question in template["survey_spec"]["spec"]}
    return {
        variable: question.get("default", "").splitlines()
        if question["type"] == "multiselect"
        else question.get("default", "")
        for variable, question in found.items()
    }


def templates() -> dict[str, Any]:
    """Return the job templates, by the name of their playbook."""
    text = (PROJECT.parent / "definitions/job_templates.yml").read_text()
    return {Path(each["playbook"]).stem: each for each in yaml.safe_load(text)["controller_templates"]}


def _task(event: Event) -> str:
    return str(event["event_data"].get("task", "")) if event["event"].startswith("runner_on_") else ""


def _unsafe(variables: Mapping[str, Any]) -> str:
    """Return variables as AWX writes them: no text is a template."""
    return "".join(f"{json.dumps(name)}: {_tagged(value)}\n" for name, value in variables.items())


def _tagged(value: Any) -> str:
    if isinstance(value, str):
        return f"!unsafe {json.dumps(value)}"
    if isinstance(value, list):
        return f"[{', '.join(map(_tagged, value))}]"
    return json.dumps(value)
