# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The filters for connections: over an inventory written by hand, with a vault, in runs of ansible-playbook."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.modelplane.fleet.plugins.filter.connections import connections
from ansible_collections.modelplane.fleet.plugins.filter.control_connection import control_connection
from ansible_collections.modelplane.fleet.tests.ansible_run import run

TOKEN = "t0p-secret-token"
PLAY = """
- hosts: workload_clusters
  gather_facts: false
  tasks:
    - name: Keep what the modules would be given
      ansible.builtin.copy:
        dest: "{{ result_file }}"
        mode: "0600"
        content: >-
          {{ {'clusters': ansible_play_hosts | modelplane.fleet.connections(hostvars),
              'control': hostvars[groups['control_plane'] | first] | modelplane.fleet.control_connection} | to_json }}
      run_once: true
      no_log: "{{ quiet | default(true) }}"
"""
BY_HAND = """
all:
  vars:
    ansible_connection: local
    ansible_python_interpreter: "{{ ansible_playbook_python }}"
    region: us-west-2
  children:
    control_plane:
      hosts:
        control: {fleet_control_kubeconfig: keys/control.yaml}
    workload_clusters:
      vars: {fleet_target: kubernetes}
      hosts:
        west: {fleet_kubeconfig: keys/west.yaml, fleet_context: admin}
        east: {fleet_connection: {eks: {cluster: east, region: "{{ region }}"}}}
        north: {fleet_cluster: north-1, fleet_connection: {server: "https://north:6443", token: "{{ north_token }}"}}
        later: {fleet_target: directory}
"""


def played(folder: Path, *arguments: str) -> tuple[dict[str, Any], str]:
    """Return what came out, empty when the play failed, and what was printed at -vvv."""
    (folder / "play.yml").write_text(PLAY)
    result = folder / "result.json"
    options = ["-i", "hosts.yml", "-vvv", "-e", f"result_file={result}", "play.yml", *arguments]
    output = "".join(run("ansible-playbook", *options, cwd=folder))
    return (json.loads(result.read_text()) if result.exists() else {}), output


@pytest.mark.integration
def test_an_inventory_by_hand_with_a_vaulted_token(tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").write_text(BY_HAND)
    (tmp_path / "password").write_text("pass")
    vaulted, _ = run("ansible-vault", "encrypt_string", "--vault-password-file", "password", TOKEN, cwd=tmp_path)
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars/all.yml").write_text("north_token: " + vaulted[vaulted.index("!vault") :].split("\n\n")[0])
    found, output = played(tmp_path, "--vault-password-file", "password")
    assert found == {
        "clusters": [
            {"name": "west", "kubeconfig": str(tmp_path / "keys/west.yaml"), "context": "admin"},
            {"name": "east", "eks": {"cluster": "east", "region": "us-west-2"}},
            {"name": "north-1", "server": "https://north:6443", "token": TOKEN},
        ],
        "control": {"kubeconfig": str(tmp_path / "keys/control.yaml")},
    }
    assert TOKEN not in output


@pytest.mark.integration
def test_a_limited_play_has_only_its_clusters(tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").write_text(BY_HAND)
    found, _ = played(tmp_path, "--limit", "east,later")
    assert [each["name"] for each in found["clusters"]] == ["east"]


@pytest.mark.integration
def test_errors_report_all_that_is_wrong_and_no_value(tmp_path: Path) -> None:
    wrong = BY_HAND.replace("fleet_kubeconfig: keys", "fleet_conection: x, fleet_connection: {kubconfig: keys")
    wrong = wrong.replace("fleet_context: admin", f"token: {TOKEN}, eks: {TOKEN}}}").replace(
        '"{{ north_token }}"', f"[{TOKEN}]"
    )
    (tmp_path / "hosts.yml").write_text(wrong)
    found, output = played(tmp_path, "-e", "quiet=false")
    assert found == {}
    for line in (
        "west: fleet_connection.kubconfig is not a known key. Did you mean kubeconfig?",
        "west: fleet_connection.eks must be a mapping",
        "north: fleet_connection.token must be text, is a list",
    ):
        assert line in output, output
    assert TOKEN not in output


@pytest.mark.integration
def test_an_undefined_variable_is_named(tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").write_text(BY_HAND)
    _, output = played(tmp_path, "-e", "quiet=false")
    assert "'north_token' is undefined" in output
    assert "hosts.yml:" in output


def test_a_kubeconfig_without_effect_is_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    hostvars = {"aks-1": {"fleet_target": "directory", "fleet_kubeconfig": "/k"}}
    assert connections(["aks-1"], hostvars) == []
    reported = " ".join(capsys.readouterr().err.split())
    assert "fleet_target of aks-1 is directory: fleet_kubeconfig and fleet_context have no effect there" in reported


REFUSED: dict[str, tuple[Any, Any, str]] = {
    "a name instead of names": ("west", {"west": {}}, "the input must be a list of host names"),
    "hostvars first": ({"west": {}}, {"west": {}}, "the input must be a list of host names"),
    "one host's variables": (["west"], [], "the argument must be hostvars"),
    "an unknown host": (["north"], {"west": {}}, "north is no host of the inventory"),
}


@pytest.mark.parametrize(("hosts", "hostvars", "words"), REFUSED.values(), ids=REFUSED)
def test_refused(hosts: Any, hostvars: Any, words: str) -> None:
    with pytest.raises(AnsibleFilterError, match=words):
        connections(hosts, hostvars)


def test_control_wants_the_variables_of_a_host() -> None:
    with pytest.raises(AnsibleFilterError, match="the input must be the variables of a host"):
        control_connection("control")
