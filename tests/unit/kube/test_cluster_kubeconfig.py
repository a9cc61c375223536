# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Kubeconfig files for other programs: what is in them, and that a real API server lets them in."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
import yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.core.manifest_text import to_yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes import kubeconfig_file
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.connection import Connection, connect
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.credentials import (
    ClientCertificate,
    Fixed,
    Grant,
    Minted,
    basic,
    bearer,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.errors import Forbidden
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.target import Target
from ansible_collections.modelplane.fleet.tests import ansible_run
from ansible_collections.modelplane.fleet.tests.kube.control_plane import ControlPlane

URL = "https://api.example:6443"


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    ("target", "cluster", "user"),
    [
        pytest.param(
            Target(URL, Fixed(bearer("secret-token")), ca="PEM"),
            {"certificate-authority-data": encoded("PEM")},
            {"token": "secret-token"},
            id="token",
        ),
        pytest.param(
            Target(URL, Minted(lambda _refused: Grant("minted-token", seconds=900.0))),
            {},
            {"token": "minted-token"},
            id="cloud",
        ),
        pytest.param(
            Target(URL, Fixed(basic("ann", "a:b"))), {}, {"username": "ann", "password": "a:b"}, id="user and password"
        ),
        pytest.param(
            Target(URL, Fixed("", ClientCertificate("CERT", "KEY")), tls_server_name="kubernetes"),
            {"tls-server-name": "kubernetes"},
            {"client-certificate-data": encoded("CERT"), "client-key-data": encoded("KEY")},
            id="certificate",
        ),
        pytest.param(
            Target(URL, ca="PEM", verify=False, proxy="socks5h://proxy:1080", impersonate="ann"),
            {"insecure-skip-tls-verify": True, "proxy-url": "socks5://proxy:1080"},
            {"as": "ann"},
            id="proxy, another user, no verification",
        ),
    ],
)
def test_all_of_a_connection_is_in_the_file(target: Target, cluster: dict[str, object], user: dict[str, str]) -> None:
    found = kubeconfig_file.kubeconfig_of("east", target)
    assert found["clusters"] == [{"name": "east", "cluster": {"server": URL, **cluster}}]
    assert found["users"] == [{"name": "east", "user": user}]
    assert found["current-context"] == "east"


def test_the_file_is_its_owners_and_goes_again(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "east"
    kubeconfig_file.write(path, kubeconfig_file.kubeconfig_of("east", Target(URL)))
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in path.parent.iterdir()] == ["east"]
    kubeconfig_file.remove(path)
    kubeconfig_file.remove(path)
    assert not path.exists()


@pytest.mark.parametrize("changes", [{}, {"impersonate": "other-user"}], ids=["itself", "another user"])
def test_a_server_lets_in_who_has_the_file(cluster: ControlPlane, tmp_path: Path, changes: dict[str, str]) -> None:
    given = Connection("east", kubeconfig=str(cluster.kubeconfig), **changes)
    path = tmp_path / "east"
    with connect(given) as client:
        kubeconfig_file.write(path, kubeconfig_file.kubeconfig_of("east", client.target()))
    with connect(Connection("east", kubeconfig=str(path))) as client:
        if changes:
            with pytest.raises(Forbidden, match="other-user"):
                client.list("v1", "Namespace")
        else:
            assert client.list("v1", "Namespace").items


def test_the_module_writes_it_and_reports_no_change_and_no_secret(cluster: ControlPlane, tmp_path: Path) -> None:
    path = tmp_path / "east.kubeconfig"
    play = f"""
- hosts: localhost
  gather_facts: false
  vars: {{ansible_connection: local}}
  tasks:
    - modelplane.fleet.cluster_kubeconfig: &write
        path: {path}
        clusters: [{{name: east, kubeconfig: {cluster.kubeconfig}}}]
    - ansible.builtin.stat: {{path: {path}}}
      register: file
    - ansible.builtin.assert: {{that: "file.stat.mode == '0600'"}}
    - modelplane.fleet.cluster_kubeconfig: {{path: {path}, state: absent}}
    - modelplane.fleet.cluster_kubeconfig: *write
      check_mode: true
    - modelplane.fleet.cluster_kubeconfig: {{path: {path}, clusters: []}}
"""
    (tmp_path / "play.yml").write_text(play)
    out, _ = ansible_run.run("ansible-playbook", "play.yml", "-v", cwd=tmp_path)
    assert "clusters has 0 entries: give one" in out
    assert "ok=5    changed=0    unreachable=0    failed=1" in out
    assert not path.exists()
    secrets = yaml.safe_load(Path(cluster.kubeconfig).read_text())["users"][0]["user"]
    assert not any(str(value) in out for value in secrets.values())
    assert to_yaml(secrets) not in out
