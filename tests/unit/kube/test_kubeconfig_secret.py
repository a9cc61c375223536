# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module kubeconfig_secret, on a real API server that is control cluster and workload cluster at once."""

from __future__ import annotations

import base64
from pathlib import Path

import yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.connection import Connection, connect
from ansible_collections.modelplane.fleet.tests import ansible_run
from ansible_collections.modelplane.fleet.tests.kube.control_plane import ControlPlane

PLAY = """
- hosts: localhost
  gather_facts: false
  vars: {{ansible_connection: local}}
  tasks:
    - modelplane.fleet.kubeconfig_secret: &write
        name: {name}
        namespace: default
        clusters: [{{name: east, kubeconfig: {kubeconfig}}}]
        control: {{kubeconfig: {kubeconfig}}}
      check_mode: true
      register: would
    - modelplane.fleet.kubeconfig_secret: *write
      register: first
    - modelplane.fleet.kubeconfig_secret: *write
      register: second
    - ansible.builtin.assert: {{that: [would.changed, first.changed, not second.changed]}}
"""
REMOVE = """
    - modelplane.fleet.kubeconfig_secret: &remove
        name: {name}
        namespace: default
        state: absent
        control: {{kubeconfig: {kubeconfig}}}
      register: gone
    - modelplane.fleet.kubeconfig_secret: *remove
      register: again
    - ansible.builtin.assert: {{that: [gone.changed, not again.changed]}}
"""


def test_its_life(cluster: ControlPlane, tmp_path: Path) -> None:
    values = {"name": "east-kubeconfig", "kubeconfig": cluster.kubeconfig}
    (tmp_path / "play.yml").write_text(PLAY.format(**values))
    out, _ = ansible_run.run("ansible-playbook", "play.yml", "-v", cwd=tmp_path)
    assert "failed=0" in out, out
    with connect(Connection("control", kubeconfig=str(cluster.kubeconfig))) as client:
        secret = client.get("v1", "Secret", "east-kubeconfig", "default")
        assert secret is not None
        text = base64.b64decode(secret["data"]["kubeconfig"]).decode()
        assert text not in out
        (tmp_path / "east").write_text(text)
        with connect(Connection("east", kubeconfig=str(tmp_path / "east"))) as east:
            assert east.list("v1", "Namespace").items
        credentials = yaml.safe_load(text)["users"][0]["user"]
        assert credentials
        assert not any(str(value) in out for value in credentials.values())
    (tmp_path / "play.yml").write_text(PLAY.format(**values) + REMOVE.format(**values))
    out, _ = ansible_run.run("ansible-playbook", "play.yml", cwd=tmp_path)
    assert "would.changed" in out, "nothing would change a second time"
    (tmp_path / "play.yml").write_text(PLAY.split("    - modelplane", maxsplit=1)[0].format() + REMOVE.format(**values))
    out, _ = ansible_run.run("ansible-playbook", "play.yml", cwd=tmp_path)
    assert "failed=0" in out, out


def test_a_secret_of_somebody_else(cluster: ControlPlane, tmp_path: Path) -> None:
    with connect(Connection("control", kubeconfig=str(cluster.kubeconfig))) as client:
        metadata = {"name": "theirs-kubeconfig", "namespace": "default"}
        client.create({"apiVersion": "v1", "kind": "Secret", "metadata": metadata})
    values = {"name": "theirs-kubeconfig", "kubeconfig": cluster.kubeconfig}
    (tmp_path / "play.yml").write_text(PLAY.format(**values))
    out, _ = ansible_run.run("ansible-playbook", "play.yml", cwd=tmp_path)
    assert "is there without the label app.kubernetes.io/managed-by=modelplane.fleet" in " ".join(out.split())
