# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A fleet whose resources are on the control cluster, put there by kubectl, without a manifest anywhere else."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.modelplane.fleet.tests.e2e import fleets
from ansible_collections.modelplane.fleet.tests.e2e.live_fleet import LiveFleet, Run
from ansible_collections.modelplane.fleet.tests.e2e.observing import (
    Writes,
    check_placement,
    check_ways,
    engines,
    placed,
    table,
    tags,
)


def kubectl_apply(live: LiveFleet, folder: Path, text: str) -> None:
    path = folder / "resources.yaml"
    path.write_text(text)
    live.kubectl("apply", "-f", str(path))


@pytest.fixture(scope="module", autouse=True)
def first(live: LiveFleet, tmp_path_factory: pytest.TempPathFactory) -> Run:
    live.settings["fleet_resources"] = []
    # The first run of all installs the definitions, if nothing else.
    live.run("reconcile")
    live.control.create_namespace("team")
    text = fleets.CLASSES + fleets.cluster("east") + fleets.cluster("west")
    text += fleets.deployment("solo", 1) + fleets.service("chat", "solo")
    kubectl_apply(live, tmp_path_factory.mktemp("resources"), text)
    return live.run("reconcile").ok()


def test_resources_of_the_control_cluster_are_reconciled(live: LiveFleet, first: Run) -> None:
    assert not first.failed
    assert live.is_true("ModelDeployment", "solo", "team")
    check_placement(live)
    check_ways(live, "chat", ["solo"])
    with Writes(live) as writes:
        again = live.run("reconcile").ok()
    assert (again.changed, writes.all) == (0, [])


def test_kubectl_scales_up_and_down(live: LiveFleet) -> None:
    for count in (3, 1):
        live.kubectl("-n", "team", "scale", "md/solo", f"--replicas={count}")
        live.run("reconcile").ok()
        assert len(placed(live, "solo")) == count
        assert sum(len(engines(live, cluster)) for cluster in live.workloads) == count
        row = table(live.kubectl("-n", "team", "get", "md/solo"))[0]
        assert (row["DESIRED"], row["REPLICAS"], row["READY"]) == (str(count), str(count), "True")
        check_placement(live)
        check_ways(live, "chat", ["solo"])


def test_an_edit_with_kubectl_is_rolled_out(live: LiveFleet, tmp_path: Path) -> None:
    kubectl_apply(live, tmp_path, fleets.deployment("solo", 1, tag="v0.24.0"))
    live.run("reconcile").ok()
    assert {tag for cluster in live.workloads for tag in tags(live, cluster)} == {"v0.24.0"}
    check_ways(live, "chat", ["solo"])


def test_what_kubectl_deletes_goes(live: LiveFleet) -> None:
    live.kubectl("-n", "team", "delete", "md/solo", "ms/chat")
    refused = live.run("reconcile")
    assert refused.code != 0
    assert "fleet_allow_empty" in refused.output
    assert sum(len(engines(live, cluster)) for cluster in live.workloads) == 1
    live.run("reconcile", "-e", "fleet_allow_empty=true").ok()
    assert sum(len(live.pods(cluster)) for cluster in live.workloads) == 0
    assert live.control.objects.list("gateway.networking.k8s.io/v1", "HTTPRoute") == []


def test_resources_of_users_survive_a_teardown(live: LiveFleet) -> None:
    live.run("teardown").ok()
    left = {value["metadata"]["name"] for value in live.control.objects.list(fleets.API, "InferenceCluster")}
    assert left == {"east", "west"}
