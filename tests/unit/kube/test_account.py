# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Kubeconfigs of a ServiceAccount, made of tokens of a real API server."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.connection import Connection, connect
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.errors import ApiError, Forbidden
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.service_account import (
    Account,
    Written,
    ensure,
)
from ansible_collections.modelplane.fleet.tests.kube.control_plane import ControlPlane

ROBOT = Account("accounts", "robot")
HOUR = 3600


@pytest.fixture
def plane(cluster: ControlPlane) -> Iterator[ControlPlane]:
    cluster.create_namespace(ROBOT.namespace)
    cluster.apply(_account())
    yield cluster
    cluster.objects.delete("v1", "ServiceAccount", ROBOT.name, ROBOT.namespace)


def _account() -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": ROBOT.name, "namespace": ROBOT.namespace},
    }


def written(plane: ControlPlane, path: Path, *, after: float = 0, check_mode: bool = False) -> Written:
    """The file, `after` so many seconds."""
    now = datetime.now(UTC) + timedelta(seconds=after)
    with closing(connect(Connection(plane.name, kubeconfig=str(plane.kubeconfig)))) as client:
        return ensure(client, ROBOT, path, seconds=3 * HOUR, renew_before=HOUR, now=now, check_mode=check_mode)


def token(path: Path) -> str:
    return str(yaml.safe_load(path.read_text())["users"][0]["user"]["token"])


def test_the_file_logs_in_as_the_account_and_no_one_else_reads_it(plane: ControlPlane, tmp_path: Path) -> None:
    path = tmp_path / "keys" / "robot.kubeconfig"
    made = written(plane, path)
    assert made.changed
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert [each.name for each in path.parent.iterdir()] == [path.name]
    ends = datetime.fromisoformat(made.expires)
    assert abs((ends - datetime.now(UTC)).total_seconds() - 3 * HOUR) < 120
    with closing(connect(Connection("robot", kubeconfig=str(path)))) as client:
        assert client.version() >= (1, 30)
        with pytest.raises(Forbidden, match="system:serviceaccount:accounts:robot"):
            client.list("v1", "Secret")


def test_it_stays_until_its_token_is_about_to_end(plane: ControlPlane, tmp_path: Path) -> None:
    path = tmp_path / "robot.kubeconfig"
    first = written(plane, path)
    content = path.read_text()
    since = plane.audit_position()
    assert written(plane, path) == Written(first.path, False, first.expires)
    assert plane.write_requests(since) == []
    assert path.read_text() == content
    assert written(plane, path, after=1.9 * HOUR).changed is False
    # A token made within the same second is the same.
    time.sleep(1.1)
    assert written(plane, path, after=2.1 * HOUR).changed
    assert path.read_text() != content


def test_it_is_made_again_when_it_is_of_no_use(plane: ControlPlane, tmp_path: Path) -> None:
    path = tmp_path / "robot.kubeconfig"
    for content in (
        "",
        "no: [yaml",
        "a: kubeconfig\n",
        "apiVersion: v1\nkind: Config\nusers: [{user: {token: a.b.c}}]\n",
    ):
        path.write_text(content)
        assert written(plane, path).changed, content
        assert not written(plane, path).changed
    moved = path.read_text().replace(plane.server, "https://elsewhere.example.com:6443")
    assert moved != path.read_text()
    path.write_text(moved)
    assert written(plane, path).changed
    # The token of an account that was created again is worth nothing.
    plane.objects.delete("v1", "ServiceAccount", ROBOT.name, ROBOT.namespace)
    plane.apply(_account())
    assert written(plane, path).changed


def test_check_mode_makes_no_token(plane: ControlPlane, tmp_path: Path) -> None:
    path = tmp_path / "keys" / "robot.kubeconfig"
    since = plane.audit_position()
    assert written(plane, path, check_mode=True) == Written(str(path), True)
    assert not path.parent.exists()
    plane.objects.delete("v1", "ServiceAccount", ROBOT.name, ROBOT.namespace)
    # The rights that create it may be what the same run would apply.
    assert written(plane, path, check_mode=True).changed
    assert plane.write_requests(since) == []


def test_an_account_that_is_not_there_is_reported(plane: ControlPlane, tmp_path: Path) -> None:
    plane.objects.delete("v1", "ServiceAccount", ROBOT.name, ROBOT.namespace)
    with pytest.raises(ApiError, match=r"no ServiceAccount accounts/robot.*rights of the fleet"):
        written(plane, tmp_path / "robot.kubeconfig")


def test_a_server_that_gives_no_certificate_is_written_as_it_is_reached(plane: ControlPlane, tmp_path: Path) -> None:
    path = tmp_path / "robot.kubeconfig"
    connection = Connection(plane.name, kubeconfig=str(plane.kubeconfig), verify=False)
    with closing(connect(connection)) as client:
        ensure(client, ROBOT, path, seconds=HOUR, renew_before=60, now=datetime.now(UTC), check_mode=False)
    reached = yaml.safe_load(path.read_text())["clusters"][0]["cluster"]
    assert reached == {"server": plane.server, "insecure-skip-tls-verify": True}
    assert token(path)
