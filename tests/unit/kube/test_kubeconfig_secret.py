# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The Secret on a real control cluster that says how a cluster is reached."""

from __future__ import annotations

import base64
import itertools
import json
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.core.names import MANAGED_BY, MANAGED_BY_LABEL
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes import kubeconfig_secret
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.apply import Options, apply
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.client import Client
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.connection import (
    Connection,
    SecretRef,
    connect,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.credentials import AccessError
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.errors import ApiError, ConnectionInvalid
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.kubeconfig_secret import Written
from ansible_collections.modelplane.fleet.tests import ansible_run
from ansible_collections.modelplane.fleet.tests.gcp.double import Double
from ansible_collections.modelplane.fleet.tests.kube.control_plane import ControlPlane
from ansible_collections.modelplane.fleet.tests.unit.kube.rights import given

CLUSTER_LABEL = "modelplane.ai/cluster"
LABELS = {CLUSTER_LABEL: "west"}
_NUMBERS = itertools.count(1)


class Case:
    """A namespace that is not there, and a cluster that a program gives a new token for with each login."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.plane = plane
        self.login = plane.kubeconfig
        self.place = SecretRef(f"kubeconfigs-{next(_NUMBERS)}", "west-kubeconfig")
        self.logins = folder / "logins"
        program = folder / "token"
        program.write_text(
            f"#!/bin/sh\necho login >> {self.logins}\n"
            'echo \'{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": '
            f'{{"token": "token-\'$(wc -l < {self.logins})\'-of-west"}}}}\'\n'
        )
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        self.reach(folder, program)

    def reach(self, folder: Path, program: Path, server: str = "https://west.example:6443") -> None:
        exec_entry = {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": str(program),
            "interactiveMode": "Never",
        }
        authority = base64.b64encode(b"PEM of west").decode()
        self.program, self.folder = program, folder
        self.kubeconfig = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": server, "certificate-authority-data": authority}}],
            "users": [{"name": "u", "user": {"exec": exec_entry}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        self.file = folder / "west.kubeconfig"
        self.file.write_text(json.dumps(self.kubeconfig))

    def move(self, server: str) -> None:
        self.reach(self.folder, self.program, server)

    def control(self) -> Client:
        return connect(Connection("control", kubeconfig=str(self.login)), write_cache=False)

    def install(
        self, labels: dict[str, str] = LABELS, *, check_mode: bool = False, account_key: SecretRef | None = None
    ) -> Written:
        with (
            closing(self.control()) as control,
            closing(connect(Connection("west", kubeconfig=str(self.file)))) as west,
        ):
            return kubeconfig_secret.ensure(
                control, west, self.place, labels, check_mode=check_mode, account_key=account_key
            )

    def remove(self, labels: dict[str, str] = LABELS, *, check_mode: bool = False) -> Written:
        with closing(self.control()) as control:
            return kubeconfig_secret.remove(control, self.place, labels, check_mode=check_mode)

    def live(self) -> dict[str, Any] | None:
        found = self.plane.get("v1", "Secret", self.place.name, self.place.namespace)
        return dict(found) if found is not None else None

    def token(self) -> str:
        return str(self.held()["users"][0]["user"]["token"])

    def held(self) -> dict[str, Any]:
        live = self.live()
        assert live is not None
        found: dict[str, Any] = yaml.safe_load(base64.b64decode(live["data"]["kubeconfig"]))
        return found

    def edit(self, change: dict[str, Any]) -> None:
        self.plane.objects.patch("v1", "Secret", self.place.name, change, self.place.namespace)


@pytest.fixture
def case(cluster: ControlPlane, tmp_path: Path) -> Iterator[Case]:
    made = Case(cluster, tmp_path)
    yield made
    cluster.objects.delete("v1", "Secret", made.place.name, made.place.namespace)


def test_it_holds_a_kubeconfig_with_a_token_of_now(case: Case) -> None:
    done = case.install()
    assert (done.changed, done.renewed, done.server) == (True, False, "https://west.example:6443")
    live, held = case.live(), case.held()
    assert live is not None
    assert live["type"] == "Opaque"
    assert live["metadata"]["labels"] == {MANAGED_BY_LABEL: MANAGED_BY, **LABELS}
    authority = base64.b64encode(b"PEM of west").decode()
    assert held["clusters"] == [
        {"name": "west", "cluster": {"server": "https://west.example:6443", "certificate-authority-data": authority}}
    ]
    assert held["users"] == [{"name": "west", "user": {"token": "token-1-of-west"}}]


def test_a_new_token_is_no_change(case: Case) -> None:
    case.install()
    again = case.install()
    assert (again.changed, again.renewed) == (False, True)
    assert case.token() == "token-2-of-west"
    assert again.before == again.after


def test_another_server_and_drift_are_changes(case: Case) -> None:
    case.install()
    case.move("https://west-2.example:6443")
    moved = case.install()
    assert (moved.changed, moved.renewed) == (True, False)
    assert moved.before["kubeconfig"]["clusters"][0]["cluster"]["server"] == "https://west.example:6443"
    assert moved.after["kubeconfig"]["clusters"][0]["cluster"]["server"] == "https://west-2.example:6443"
    for broken in ("", "no: [yaml", "a: 1\n"):
        case.edit({"data": {"kubeconfig": base64.b64encode(broken.encode()).decode()}})
        assert case.install().changed, broken
        assert case.install().changed is False
    case.edit({"data": {"kubeconfig": None}, "metadata": {"labels": {"team": "a"}}})
    assert case.install().changed
    live = case.live()
    assert live is not None
    assert live["metadata"]["labels"]["team"] == "a"
    assert case.install({**LABELS, "more": "b"}).changed


def test_no_secret_is_reported(case: Case) -> None:
    case.install()
    message = f"{case.install()} {case.install(check_mode=True)} {case.remove(check_mode=True)}"
    assert "token-" not in message
    assert case.held()["clusters"][0]["cluster"]["certificate-authority-data"] in message


def test_check_mode_writes_nothing_and_makes_no_token(case: Case) -> None:
    since = case.plane.audit_position()
    assert case.install(check_mode=True).changed
    assert case.plane.write_requests(since) == []
    assert not case.logins.exists()
    case.install()
    since = case.plane.audit_position()
    assert (case.install(check_mode=True).changed, case.install(check_mode=True).renewed) == (False, True)
    case.move("https://west-2.example:6443")
    assert case.install(check_mode=True).changed
    assert case.remove(check_mode=True).changed
    assert case.plane.write_requests(since) == []
    assert case.logins.read_text().split() == ["login"]


def test_the_token_is_that_of_the_google_account_whose_key_is_given(case: Case, gcp: Double) -> None:
    key = SecretRef(case.place.namespace, "west-sa-key", "private_key")
    assert case.install(check_mode=True, account_key=key).changed
    with pytest.raises(AccessError, match=r"no key of a service account in .*/west-sa-key, key private_key"):
        case.install(account_key=key)
    case.plane.create_namespace(case.place.namespace)
    metadata = {"name": key.name, "namespace": key.namespace}
    content = {"private_key": json.dumps(gcp.key())}
    case.plane.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": content})
    assert case.install(account_key=key).changed
    place = f"v1/projects/{gcp.project}"
    assert gcp.request("cloudresourcemanager", "GET", place, token=case.token())[0] == 200
    # There is no login of the user who runs this.
    assert not case.logins.exists()
    before = case.token()
    gcp.expire_tokens()
    assert case.install(account_key=key).renewed
    assert case.token() != before


def test_in_check_mode_a_cluster_that_is_still_to_be_made_need_not_be_there(case: Case) -> None:
    with closing(case.control()) as control:
        nowhere = Connection("west", secret=SecretRef("nowhere", "nothing"))
        with closing(connect(nowhere, control)) as west:
            assert kubeconfig_secret.ensure(control, west, case.place, LABELS, check_mode=True).changed
            with pytest.raises(ConnectionInvalid, match="nowhere/nothing"):
                kubeconfig_secret.ensure(control, west, case.place, LABELS, check_mode=False)
    assert case.live() is None


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({}, "not made by modelplane.fleet"),
        (LABELS, "not made by modelplane.fleet"),
        ({MANAGED_BY_LABEL: MANAGED_BY, CLUSTER_LABEL: "east"}, "kubeconfig of another cluster .* names east"),
        ({MANAGED_BY_LABEL: MANAGED_BY}, "kubeconfig of another cluster .* names none"),
    ],
)
def test_what_is_not_ours_is_left_alone(case: Case, labels: dict[str, str], message: str) -> None:
    case.plane.create_namespace(case.place.namespace)
    metadata = {"name": case.place.name, "namespace": case.place.namespace, "labels": labels}
    case.plane.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"kubeconfig": "mine"}})
    since = case.plane.audit_position()
    for action in (case.install, case.remove):
        for check_mode in (True, False):
            with pytest.raises(ApiError, match=message):
                action(check_mode=check_mode)
    assert case.plane.write_requests(since) == []


def test_it_is_removed_once(case: Case) -> None:
    assert case.remove().changed is False
    case.install()
    assert case.remove().changed
    assert case.live() is None
    assert case.remove().changed is False


def test_the_rights_of_the_fleet_do(case: Case) -> None:
    case.place = SecretRef("modelplane-system", "west-kubeconfig")
    case.login = case.plane.user_kubeconfig("kubeconfig-writer", groups=["modelplane:control-plane"])
    with given(case.plane, "control-plane"):
        case.plane.wait_for("the authorizer knows the rights", lambda: authorized(case))
        assert case.install().changed
        case.move("https://west-2.example:6443")
        assert case.install().changed
        assert case.install().renewed
        assert case.remove().changed
    assert case.live() is None


def authorized(case: Case) -> bool:
    try:
        return case.install(check_mode=True).changed
    except ApiError:
        return False


def test_applying_to_a_cluster_that_is_its_own_control_cluster_leaves_it(case: Case) -> None:
    case.install()
    with closing(case.control()) as control:
        apply(control, [], Options(fleet=f"fleet-of-{case.place.namespace}", scope="west"))
    assert case.live() is not None


def test_the_module_writes_it_and_reports_a_renewal_and_no_secret(case: Case, tmp_path: Path) -> None:
    place = f"{{namespace: {case.place.namespace}, name: {case.place.name}}}"
    play = f"""
- hosts: localhost
  gather_facts: false
  vars: {{ansible_connection: local}}
  module_defaults:
    modelplane.fleet.kubeconfig_secret:
      control: {{kubeconfig: {case.plane.kubeconfig}}}
      clusters: [{{name: west, kubeconfig: {case.file}}}]
      secret: {place}
      labels: {{{CLUSTER_LABEL}: west}}
  tasks:
    - modelplane.fleet.kubeconfig_secret:
      check_mode: true
      register: preview
    - modelplane.fleet.kubeconfig_secret:
      register: made
    - modelplane.fleet.kubeconfig_secret:
      register: again
    - ansible.builtin.assert:
        that:
          - preview is changed and made is changed and again is not changed
          - again.renewed and not made.renewed
          - again.server == "https://west.example:6443"
          - again.secret.name == "west-kubeconfig" and again.secret.key == "kubeconfig"
    - modelplane.fleet.kubeconfig_secret: {{state: absent, clusters: []}}
      register: gone
    - ansible.builtin.assert: {{that: gone is changed}}
    - modelplane.fleet.kubeconfig_secret: {{clusters: []}}
"""
    (tmp_path / "play.yml").write_text(play)
    out, err = ansible_run.run("ansible-playbook", "play.yml", "-v", "--diff", cwd=tmp_path)
    assert "clusters has 0 entries: give one" in out, out + err
    assert "ok=6    changed=3    unreachable=0    failed=1" in out
    assert "token-" not in out
    assert case.live() is None
