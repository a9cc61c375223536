# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Control cluster restored from an old backup: a run adopts the running replicas, or stops."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator

import pytest
from ansible_collections.modelplane.fleet.tests.e2e import fleets
from ansible_collections.modelplane.fleet.tests.e2e.live_fleet import KINDS, LiveFleet, Object, until
from ansible_collections.modelplane.fleet.tests.e2e.observing import engines

pytestmark = pytest.mark.interrupted

BASE = fleets.CLASSES + fleets.cluster("west") + fleets.cluster("east") + fleets.deployment("other", 1)
VERSIONS = {kind: api_version for api_version, kind in KINDS}
VOLATILE = ("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "ownerReferences")

Backup = dict[tuple[str, str, str], Object]


def uids(live: LiveFleet) -> set[str]:
    """Return the UIDs of all engine pods."""
    return {pod["metadata"]["uid"] for cluster in live.kubeconfigs for pod in engines(live, cluster)}


def restore(live: LiveFleet, backup: Backup, *, with_inventory: bool) -> None:
    """Restore the fleet's objects on the control cluster from a backup, and delete the build directory."""
    left = [key for key in live.ours(live.control) if key[0] != "Namespace"]
    for kind, namespace, name in left:
        if (kind, namespace, name) not in backup or kind == "ConfigMap":
            live.control.objects.delete(VERSIONS[kind], kind, name, namespace)
    until("they are gone", lambda: not (set(left) - set(backup)) & set(live.ours(live.control)), 60)
    restored = [
        _without_volatile(value)
        for (kind, *_), value in backup.items()
        if kind != "Namespace" and (kind != "ConfigMap" or with_inventory)
    ]
    path = live.folder / "backup.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": restored}))
    # As in an etcd backup, all fields belong to the field manager that applied them.
    options = ("--server-side", "--field-manager=modelplane.fleet", "--force-conflicts")
    live.kubectl("apply", *options, "-f", str(path))
    shutil.rmtree(live.folder / "build", ignore_errors=True)


def _without_volatile(value: Object) -> Object:
    metadata = {key: item for key, item in value["metadata"].items() if key not in VOLATILE}
    return {**{key: item for key, item in value.items() if key != "status"}, "metadata": metadata}


@pytest.fixture(autouse=True)
def cleared(live: LiveFleet) -> Iterator[None]:
    live.write("fleet.yaml", BASE)
    live.run("reconcile").ok()
    yield
    live.run("teardown").ok()
    shutil.rmtree(live.folder / "build", ignore_errors=True)


@pytest.mark.parametrize("with_inventory", [True, False], ids=["whole", "without the inventory"])
def test_a_backup_from_before_the_deployment(live: LiveFleet, with_inventory: bool) -> None:
    backup = live.ours(live.control)
    live.write("fleet.yaml", BASE + fleets.deployment("solo", 1) + fleets.service("chat", "solo"))
    live.run("reconcile").ok()
    before = uids(live)
    assert len(before) == 2
    restore(live, backup, with_inventory=with_inventory)
    checked = live.run("reconcile", "--check").ok()
    assert "deployment solo, serving" in checked.output
    live.run("reconcile").ok()
    assert uids(live) == before
    again = live.run("reconcile").ok()
    assert (again.changed, "adopted" in again.output) == (0, False)


def test_a_backup_from_before_a_scale_up(live: LiveFleet) -> None:
    live.write("fleet.yaml", BASE + fleets.deployment("solo", 1))
    live.run("reconcile").ok()
    backup = live.ours(live.control)
    live.write("fleet.yaml", BASE + fleets.deployment("solo", 3))
    live.run("reconcile").ok()
    before = uids(live)
    assert len(before) == 4
    restore(live, backup, with_inventory=True)
    live.run("reconcile").ok()
    assert uids(live) == before


def test_a_number_that_an_autoscaler_had_set_is_needed(live: LiveFleet) -> None:
    live.write("fleet.yaml", BASE + fleets.deployment("solo"))
    live.run("reconcile").ok()
    backup = live.ours(live.control)
    live.kubectl("-n", "team", "scale", "md/solo", "--replicas=3")
    live.run("reconcile").ok()
    before = uids(live)
    assert len(before) == 4
    restore(live, backup, with_inventory=True)
    stopped = live.run("reconcile")
    assert stopped.code != 0
    assert "runs 3 replicas" in stopped.output
    assert uids(live) == before
    live.kubectl("-n", "team", "scale", "md/solo", "--replicas=3")
    live.run("reconcile").ok()
    assert uids(live) == before


def test_a_deployment_that_only_the_lost_control_cluster_had_stops_the_run(live: LiveFleet) -> None:
    backup = live.ours(live.control)
    live.write("fleet.yaml", BASE + fleets.deployment("solo", 1))
    live.run("reconcile").ok()
    before = uids(live)
    live.write("fleet.yaml", BASE)
    restore(live, backup, with_inventory=True)
    for arguments in ((), ("--check",)):
        stopped = live.run("reconcile", *arguments)
        assert stopped.code != 0
        assert "deployment solo, serving" in stopped.output
        assert uids(live) == before
