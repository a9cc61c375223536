# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Applying Secrets with rights that have no Secrets but those of namespaces of the fleet."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.apply import Applied, Options, apply
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.connection import Connection, connect
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.secret_access import SECRETS_ROLE
from ansible_collections.modelplane.fleet.tests.kube.control_plane import ControlPlane
from ansible_collections.modelplane.fleet.tests.unit.kube.rights import given, manifests

GROUP = "modelplane:workload-cluster"
RBAC_API = "rbac.authorization.k8s.io/v1"
PLACE = "mp-secrets"

Object = dict[str, Any]


def namespace() -> Object:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": PLACE}}


def secret(value: str = "planted", name: str = "token") -> Object:
    data = {"key": base64.b64encode(value.encode()).decode()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": PLACE}, "data": data}


class Limited:
    """A fleet with the rights for workload clusters."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self.kubeconfig = plane.user_kubeconfig("limited", groups=[GROUP])

    def apply(self, *desired: Object, check_mode: bool = False) -> Applied:
        options = Options(fleet="limited", scope="single", check_mode=check_mode)
        with closing(connect(Connection("single", kubeconfig=str(self.kubeconfig)))) as client:
            return apply(client, desired, options)

    def actions(self, *desired: Object, check_mode: bool = False) -> dict[str, str]:
        applied = self.apply(*desired, check_mode=check_mode)
        assert not applied.failed, applied
        return {found.kind: found.action for found in applied.results if found.namespace or found.name == PLACE}

    def there(self, name: str = "token") -> str:
        found = self.plane.get("v1", "Secret", name, PLACE)
        return base64.b64decode(found["data"]["key"]).decode() if found else ""


@pytest.fixture
def limited(cluster: ControlPlane) -> Iterator[Limited]:
    with given(cluster, "workload-cluster"):
        yield Limited(cluster)
    if cluster.get("v1", "Namespace", PLACE):
        cluster.objects.delete("v1", "Namespace", PLACE)
    cluster.wait_for("the namespace is gone", lambda: cluster.get("v1", "Namespace", PLACE) is None)


def test_a_secret_comes_stays_changes_and_goes(limited: Limited) -> None:
    assert limited.actions(namespace(), secret(), check_mode=True) == {"Namespace": "created", "Secret": "created"}
    assert limited.plane.get("v1", "Namespace", PLACE) is None
    assert limited.actions(namespace(), secret()) == {"Namespace": "created", "Secret": "created"}
    assert limited.there() == "planted"
    since = limited.plane.audit_position()
    assert set(limited.actions(namespace(), secret()).values()) == {"unchanged"}
    assert limited.plane.write_requests(since) == []
    assert limited.actions(namespace(), secret("other"))["Secret"] == "updated"
    assert limited.there() == "other"
    assert limited.actions(namespace())["Secret"] == "deleted"
    assert limited.actions()["Namespace"] == "deleted"


def test_a_first_secret_in_a_namespace_that_is_there(limited: Limited) -> None:
    limited.actions(namespace())
    since = limited.plane.audit_position()
    assert limited.actions(namespace(), secret(), check_mode=True)["Secret"] == "created"
    assert [each for each in limited.plane.write_requests(since) if "dryRun=All" not in each.uri] == []
    assert limited.there() == ""
    assert limited.actions(namespace(), secret())["Secret"] == "created"
    assert limited.there() == "planted"


def test_a_secret_of_a_user_keeps_the_namespace(limited: Limited) -> None:
    limited.actions(namespace(), secret())
    limited.plane.apply(secret("theirs", "theirs"))
    assert limited.actions() == {"Namespace": "skipped", "Secret": "deleted"}
    assert limited.there("theirs") == "theirs"


def test_without_the_role_nothing_else_suffers(limited: Limited) -> None:
    limited.plane.objects.delete(RBAC_API, "ClusterRole", SECRETS_ROLE)
    applied = limited.apply(namespace(), secret())
    assert {found.kind: found.action for found in applied.results if found.kind == "Secret"} == {"Secret": "failed"}
    message = next(found.message for found in applied.results if found.kind == "Secret")
    assert "cannot" in message
    assert "planted" not in message
    assert limited.plane.get("v1", "Namespace", PLACE)
    limited.plane.apply([value for value in manifests("workload-cluster") if value["kind"] == "ClusterRole"])
    assert limited.actions(namespace(), secret())["Secret"] == "created"
