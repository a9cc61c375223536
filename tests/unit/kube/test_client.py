# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The client and the lock against a real API server."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.client import Client
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.connection import Connection, connect
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.errors import (
    ApiError,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    NotServed,
    Unauthorized,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.lease import Lease
from ansible_collections.modelplane.fleet.tests.kube.control_plane import ControlPlane

NAMESPACE = "client-tests"


def config_map(name: str, **data: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"of": "test"}},
        "data": data,
    }


@pytest.fixture
def client(cluster: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with connect(Connection("west", kubeconfig=str(cluster.kubeconfig))) as made:
        made.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        yield made


def test_conflicts_name_manager_and_field(client: Client) -> None:
    client.apply(config_map("contested", a="1"))
    with pytest.raises(Conflict) as caught:
        client.apply(config_map("contested", a="2"), manager="other")
    assert caught.value.managers == (("modelplane.fleet", ".data.a"),)
    assert client.apply(config_map("contested", a="2"), manager="other", force=True)["data"] == {"a": "2"}


def test_trying_changes_nothing(client: Client) -> None:
    assert client.apply(config_map("tried", a="1"), dry_run=True)["data"] == {"a": "1"}
    assert client.get("v1", "ConfigMap", "tried", NAMESPACE) is None


@pytest.mark.parametrize(
    ("desired", "expected", "message"),
    [
        ({**config_map("x"), "dota": {}}, Invalid, "field not declared in schema"),
        (config_map("x", a=3), Invalid, "expected string"),
        ({**config_map("x"), "metadata": {"name": "x", "namespace": "nowhere"}}, NotFound, '"nowhere" not found'),
        ({"apiVersion": "v1", "kind": "Widget", "metadata": {"name": "x"}}, NotServed, "serves no Widget of v1"),
        ({**config_map("x"), "kind": "Secret", "data": {"a": "planted value"}}, Invalid, "illegal base64"),
        ({**config_map("x"), "kind": "Secret", "data": {"a": ["planted"]}}, Invalid, "expected string, got"),
    ],
    ids=["unknown field", "wrong type", "no namespace", "no kind", "secret that is not base64", "secret of no type"],
)
def test_what_the_server_refuses(client: Client, desired: Any, expected: type[ApiError], message: str) -> None:
    before = client.requests["apply"]
    with pytest.raises(expected) as caught:
        client.apply(desired)
    assert message in str(caught.value)
    assert "planted" not in repr(caught.value)
    assert client.requests["apply"] - before <= 1


def test_pages_and_watches(cluster: ControlPlane, client: Client) -> None:
    for index in range(501):
        client.apply(config_map(f"many-{index:03}"))
    listed = client.list("v1", "ConfigMap", namespace=NAMESPACE, labels="of=test")
    assert (
        len({item["metadata"]["name"] for item in listed.items if item["metadata"]["name"].startswith("many")}) == 501
    )
    change = {"data": {"b": "2"}}
    threading.Timer(0.3, cluster.objects.patch, ("v1", "ConfigMap", "many-007", change, NAMESPACE)).start()
    for event, item in client.watch(
        "v1", "ConfigMap", namespace=NAMESPACE, resource_version=listed.resource_version, timeout=20
    ):
        assert (event, item["data"]) == ("MODIFIED", {"b": "2"})
        break
    else:
        pytest.fail("the watch had no event")


def test_only_that_very_object_is_deleted_or_replaced(client: Client) -> None:
    made = client.apply(config_map("precious"))
    with pytest.raises(Conflict):
        client.delete("v1", "ConfigMap", "precious", NAMESPACE, uid="another user's")
    client.replace({**made, "data": {"a": "1"}})
    with pytest.raises(Conflict):
        client.replace({**made, "data": {"a": "2"}})
    assert client.delete("v1", "ConfigMap", "precious", NAMESPACE, uid=made["metadata"]["uid"])
    assert not client.delete("v1", "ConfigMap", "precious", NAMESPACE)


def test_a_user_who_may_little(cluster: ControlPlane, client: Client) -> None:
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]
    limited = cluster.user_kubeconfig("reader", rules=rules)
    with connect(Connection("west", kubeconfig=str(limited))) as reader:
        assert reader.list("v1", "ConfigMap", namespace=NAMESPACE).resource_version
        with pytest.raises(Forbidden, match="cluster west: apply ConfigMap client-tests/x"):
            reader.apply(config_map("x"))
    connection = Connection("west", server=client.server, token="planted", verify=False)
    with connect(connection) as unknown, pytest.raises(Unauthorized, match="renew the token"):
        unknown.list("v1", "ConfigMap")


def test_a_lock_has_one_holder_and_is_taken_over_when_it_expired(client: Client) -> None:
    one, two = (Lease(client, "lock", NAMESPACE, holder, duration=2) for holder in ("one", "two"))
    assert one.acquire()
    assert not two.acquire()
    assert two.held_by == "one"
    with one.kept() as lost:
        assert not two.acquire(wait=3)
        assert not lost()
    began = time.monotonic()
    assert two.acquire(wait=30)
    assert time.monotonic() - began >= 1.5
    with pytest.raises(Conflict, match="was taken by two"):
        one.renew()
    one.release()
    assert not one.acquire()
    two.renew()
    two.release()
    assert one.acquire()
    spec = (client.get("coordination.k8s.io/v1", "Lease", "lock", NAMESPACE) or {})["spec"]
    assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("one", 2)
    one.release()


def test_of_many_at_once_one_gets_the_lock(cluster: ControlPlane, client: Client) -> None:
    assert client.version() >= (1, 34)
    taken: list[str] = []

    def take(name: str) -> None:
        with connect(Connection("west", kubeconfig=str(cluster.kubeconfig))) as other:
            if Lease(other, "contested", NAMESPACE, name, duration=60).acquire():
                taken.append(name)

    threads = [threading.Thread(target=take, args=(f"holder-{index}",)) for index in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(taken) == 1


def test_a_server_that_is_killed_and_comes_back(cluster: ControlPlane, client: Client) -> None:
    client.apply(config_map("before"))
    cluster.kill_api_server()
    starter = threading.Timer(1.0, cluster.start_api_server)
    starter.start()
    try:
        assert client.apply(config_map("before", a="2"))["data"] == {"a": "2"}
    finally:
        starter.join()
