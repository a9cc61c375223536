# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Both filters as a playbook uses them: one run of ansible-playbook from the checkout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[4]

PLAY = """
- hosts: localhost
  gather_facts: false
  vars:
    deployment:
      apiVersion: modelplane.ai/v1alpha1
      kind: ModelDeployment
      metadata: {name: big, namespace: team-a}
      spec:
        replicas: 1
        nodeSelector:
          devices:
            - name: gpu
              selectors:
                - cel: device.driver == "gpu.nvidia.com"
        workers:
          topology: "{{ axes }}"
          template:
            containers:
              - name: engine
                image: "{{ 'vllm/vllm-openai' }}:v0.18.0"
                command: [/start.sh]
    axes: {tensor: "{{ 4 * 2 }}", pipeline: 2}
  tasks:
    - name: Read an impossible topology
      ansible.builtin.debug:
        msg: "{{ {'tensor': 1, 'data': 6, 'dataLocal': 4, 'expert': 2} | modelplane.fleet.topology }}"
      ignore_errors: true
      register: impossible
    - name: Read a deployment of two formats
      ansible.builtin.debug:
        msg: "{{ deployment | combine({'spec': {'engines': []}}, recursive=true) | modelplane.fleet.engines }}"
      ignore_errors: true
      register: mixed
    - name: Keep what came out
      ansible.builtin.copy:
        dest: "{{ result_file }}"
        mode: "0600"
        content: >-
          {{ {'shape': axes | modelplane.fleet.topology,
              'engines': deployment | modelplane.fleet.engines,
              'messages': [impossible.msg, mixed.msg]} | to_json }}
"""


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return what the filters gave: values, and the messages of the two tasks that had to fail."""
    folder = tmp_path_factory.mktemp("play")
    (folder / "play.yml").write_text(PLAY, encoding="utf-8")
    result = folder / "result.json"
    command = [
        *(sys.executable, "-m", "ansible.cli.playbook", "-i", "localhost,", "-c", "local"),
        *("-e", f"result_file={result}", str(folder / "play.yml")),
    ]
    environment = {
        **os.environ,
        "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".collections"),
        "ANSIBLE_LOCALHOST_WARNING": "false",
        "ANSIBLE_PYTHON_INTERPRETER": sys.executable,
        "ANSIBLE_HOME": str(folder / "home"),
    }
    run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    found: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
    return found


def test_topology_gives_nodes_and_gpus(played: dict[str, Any]) -> None:
    assert played["shape"] == {"nodes_per_worker": 2, "gpus_per_node": 8, "gpus_per_worker": 16}


def test_engines_are_canonical(played: dict[str, Any]) -> None:
    (engine,) = played["engines"]
    leader, worker = engine["members"]
    request = yaml.safe_load("{name: gpu, count: 8, selectors: [{cel: 'device.driver == \"gpu.nvidia.com\"'}]}")
    container = {"name": "engine", "image": "vllm/vllm-openai:v0.18.0", "command": ["/start.sh"]}
    template = {"spec": {"containers": [container]}}
    body = {"nodeSelector": {"devices": [request]}, "template": template}
    assert leader == {"role": "Leader", **body}
    assert worker == {"role": "Worker", "worker": {"nodes": 1}, **body}


def test_errors_name_every_problem(played: dict[str, Any]) -> None:
    impossible, mixed = played["messages"]
    assert "- expert: Is not a known field" in impossible
    assert "- dataLocal: Data 6 does not divide" in impossible
    assert "- spec.workers: Cannot be combined with spec.engines" in mixed
    assert "- spec.nodeSelector: Cannot be combined with spec.engines" in mixed
