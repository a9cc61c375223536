# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The modules for AWS are documented as they are, and Ansible runs them as they are documented."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.modelplane.fleet.tests import ansible_run
from ansible_collections.modelplane.fleet.tests.aws.double import AwsDouble
from ansible_collections.modelplane.fleet.tests.unit.aws.modules.running import TAGS

MODULES = (
    "ec2_launch_template",
    "efs_file_system",
    "eks_addon",
    "eks_cluster",
    "eks_node_group",
    "eks_pod_identity",
    "eks_preflight",
    "vpc_leftovers",
)
PLUGINS = "ansible_collections.modelplane.fleet.plugins"
COMPARED = ("type", "elements", "choices", "default", "required")


@pytest.fixture(scope="module")
def documentation() -> dict[str, Any]:
    names = [f"modelplane.fleet.{name}" for name in MODULES]
    out, told = ansible_run.run("ansible-doc", "--json", "-t", "module", *names)
    assert told == ""
    return dict(json.loads(out))


def of_option(option: Mapping[str, Any]) -> dict[str, Any]:
    """What counts of an option, in the argument spec and in the documentation alike."""
    found = {key: option.get(key) for key in COMPARED}
    found["required"] = bool(found["required"])
    found["type"] = found["type"] or "str"
    if found["type"] == "float" and found["default"] is not None:
        found["default"] = float(found["default"])
    return found


def compare(place: str, spec: Mapping[str, Any], documented: Mapping[str, Any]) -> None:
    assert set(spec) == set(documented), place
    for name, option in spec.items():
        assert of_option(option) == of_option(documented[name]), f"{place}.{name}"
        if option.get("options"):
            compare(f"{place}.{name}", option["options"], documented[name]["suboptions"])


@pytest.mark.parametrize("name", MODULES)
def test_options_are_documented_as_they_are(documentation: dict[str, Any], name: str) -> None:
    module = importlib.import_module(f"{PLUGINS}.modules.{name}")
    doc = documentation[f"modelplane.fleet.{name}"]["doc"]
    compare(name, module.ARGUMENTS["argument_spec"], doc["options"])
    assert module.ARGUMENTS["supports_check_mode"]
    assert set(doc["attributes"]) == {"check_mode", "diff_mode", "idempotent"}


@pytest.mark.parametrize("name", MODULES)
def test_examples_and_samples_name_options_and_keys_that_are(documentation: dict[str, Any], name: str) -> None:
    entry = documentation[f"modelplane.fleet.{name}"]
    options = set(entry["doc"]["options"])
    tasks = [task for task in yaml.safe_load(entry["examples"]) if f"modelplane.fleet.{name}" in task]
    assert tasks
    for task in tasks:
        assert set(task[f"modelplane.fleet.{name}"]) <= options
    assert entry["return"]


def test_every_module_is_in_the_action_group_and_is_an_action() -> None:
    runtime = yaml.safe_load((ansible_run.ROOT / "meta" / "runtime.yml").read_text())
    assert set(MODULES) <= set(runtime["action_groups"]["aws"])
    for name in MODULES:
        action = importlib.import_module(f"{PLUGINS}.action.{name}")
        assert action.ActionModule.module is importlib.import_module(f"{PLUGINS}.modules.{name}")


def test_a_playbook_runs_them(account: AwsDouble, tmp_path: Path) -> None:
    data = {
        "InstanceType": "p5.48xlarge",
        "BlockDeviceMappings": [{"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 9}}],
    }
    task = {"name": "Make it", "modelplane.fleet.ec2_launch_template": {"name": "west-gpu", "data": data, "tags": TAGS}}
    look = {"name": "Look", "modelplane.fleet.eks_preflight": {"clusters": [{"name": "west", "zones": ["us-west-2z"]}]}}
    show = {"name": "Show", "ansible.builtin.debug": {"msg": "{{ looked.findings[0].message }}"}}
    # The second time as a module of its own, as on a host that is not the controller.
    play = {
        "name": "AWS",
        "hosts": "localhost",
        "gather_facts": False,
        "module_defaults": {"group/modelplane.fleet.aws": {"region": "us-west-2", "timeout": 30}},
        "tasks": [task, {**task, "async": 60, "poll": 1}, {**look, "register": "looked"}, show],
    }
    path = tmp_path / "play.yml"
    path.write_text(yaml.safe_dump([play]))
    environment = {key: value for key, value in os.environ.items() if key.startswith("AWS_")}
    out, _ = ansible_run.run("ansible-playbook", str(path), "--diff", cwd=tmp_path, **environment)
    assert "changed=1" in out
    assert "failed=0" in out
    assert "+        InstanceType: p5.48xlarge" in out
    assert "zone us-west-2z is not there" in out
    assert [call.operation for call in account.mutations] == ["CreateLaunchTemplate"]
