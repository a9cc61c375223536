# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Snapshot of a real API server before anything is installed, with the rights of several users."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.checks import check
from ansible_collections.modelplane.fleet.plugins.module_utils.core.checks.snapshot import EVERYTHING, Desired, Snapshot
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.connection import Connection, connect
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.snapshot import take_snapshot
from ansible_collections.modelplane.fleet.tests.kube.control_plane import ControlPlane
from ansible_collections.modelplane.fleet.tests.unit.kube.rights import given
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.checks import places

REVIEWS = "authorization.k8s.io"


@pytest.fixture
def rights(cluster: ControlPlane) -> Iterator[None]:
    """The rights of the fleet are there, and so is the policy about its writes."""
    with given(cluster, "workload-cluster"):
        yield


def seen(kubeconfig: Path, want: Desired) -> Snapshot:
    with connect(Connection("onprem", kubeconfig=str(kubeconfig)), write_cache=False) as client:
        return take_snapshot(client, want)


def test_an_administrator_sees_everything_and_writes_nothing(cluster: ControlPlane) -> None:
    (name,) = cluster.add_nodes("checked", 1, labels={"modelplane.ai/pool": "checked"})
    cluster.publish_devices(name, places.NVIDIA, [{"name": "gpu-0", "capacity": {"memory": {"value": "40Gi"}}}])
    want = places.desired(cluster=places.inference_cluster(places.pool("checked", nodeCount=1)))
    since = cluster.audit_position()
    snapshot = seen(cluster.kubeconfig, want)
    assert (snapshot.unread, snapshot.denied, snapshot.openshift, snapshot.devices) == ({}, frozenset(), None, True)
    assert name in {node["metadata"]["name"] for node in snapshot.nodes}
    assert [request for request in cluster.write_requests(since) if request.group != REVIEWS] == []
    found = [str(finding) for finding in check(snapshot, want)]
    promised = f"Node {name} (pool checked): class h100 promises capacity memory 80Gi, the driver publishes 40Gi"
    assert [line for line in found if line.startswith(promised)]


def test_the_fleet_has_the_rights_that_are_asked_for(cluster: ControlPlane, rights: None) -> None:
    del rights
    kubeconfig = cluster.user_kubeconfig("checking-fleet", groups=["modelplane:workload-cluster"])
    want = places.desired()
    cluster.wait_for(
        "the authorizer knows the rights",
        lambda: seen(kubeconfig, want).denied == {EVERYTHING} or None,
        seconds=300,
    )
    snapshot = seen(kubeconfig, want)
    assert "Secret" in snapshot.unread
    assert "Node" not in snapshot.unread
    found = [finding for finding in check(snapshot, want) if finding.check == "permissions"]
    assert {finding.severity for finding in found} == {"warning"}


def test_who_may_do_nothing_learns_what_the_fleet_does(cluster: ControlPlane) -> None:
    want = places.desired()
    snapshot = seen(cluster.user_kubeconfig("checking-no-one"), want)
    assert snapshot.denied == {EVERYTHING, *places.RIGHTS}
    assert {"Node", "Secret", "StorageClass", "CustomResourceDefinition"} <= snapshot.unread.keys()
    errors = [finding for finding in check(snapshot, want) if finding.severity == "error"]
    assert [finding.check for finding in errors if finding.check == "permissions"] == ["permissions"]
