# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Reports of a fleet match the next run and the running replicas. Each test continues with the state of the previous
test."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.tests.e2e import fleets
from ansible_collections.modelplane.fleet.tests.e2e.live_fleet import LiveFleet, Run
from ansible_collections.modelplane.fleet.tests.e2e.observing import built, engines, table

pytestmark = pytest.mark.interrupted

OLD, NEW = "v0.23.0", "v0.24.0"
REPLICAS = 5
DRIFT = ("plan", "--check", "-e", "fleet_detailed_exit=true")


def status(live: LiveFleet) -> Any:
    """Return the document of `status`."""
    path = live.folder / "status.json"
    live.run("status", "-e", f"fleet_report={path}").ok()
    return json.loads(path.read_text())


def reordered(before: dict[Path, bytes], after: dict[Path, bytes]) -> list[str]:
    """Return the files that differ only in the order of their lines."""
    both = [path for path in before.keys() & after.keys() if path.suffix == ".yaml" and before[path] != after[path]]
    return [str(path) for path in both if sorted(before[path].splitlines()) == sorted(after[path].splitlines())]


def check_quiet(live: LiveFleet) -> None:
    """No command reports a change, and no run makes a change."""
    assert status(live)["nextRun"]["objects"] == []
    live.run(*DRIFT).ok()
    before = built(live)
    assert "no object would be changed" in live.run("reconcile", "--check").ok().output
    assert live.run("reconcile").ok().changed == 0
    assert built(live) == before


def test_before_the_first_run_nothing_is_in_use(live: LiveFleet) -> None:
    live.write("clusters.yaml", fleets.CLASSES + fleets.cluster("east") + fleets.cluster("west"))
    live.write("models.yaml", fleets.deployment("mover", REPLICAS) + fleets.service("chat", "mover"))
    document = status(live)
    pools = [pool for cluster in document["clusters"] for pool in cluster["pools"]]
    assert sum(pool["usedDevices"] for pool in pools) == 0
    assert sum(pool["plannedDevices"] for pool in pools) == REPLICAS
    (service,) = document["services"]
    assert (service["ready"], service["desired"]) == (0, REPLICAS)
    live.run("site").ok()
    document = status(live)
    pools = [pool for cluster in document["clusters"] for pool in cluster["pools"]]
    assert sum(pool["usedDevices"] for pool in pools) == REPLICAS
    assert sum(pool["plannedDevices"] for pool in pools) == 0
    check_quiet(live)


def announced(run: Run) -> dict[str, dict[str, int]]:
    """Return the numbers of objects to create, change and remove on each cluster that a run in check mode prints."""
    found = {}
    for line in run.output.splitlines():
        if cluster := re.match(r"\s*(?:control cluster|cluster (\S+)): (\d.*)", line):
            counts = re.findall(r"(\d+) (?:objects? )?(created|changed|removed)", cluster[2])
            found[cluster[1] or ""] = {action: int(number) for number, action in counts}
    return found


def test_an_edit_leaves_no_drift(live: LiveFleet) -> None:
    live.edit("models.yaml", OLD, NEW)
    before = built(live)
    next_run = {entry.pop("cluster"): entry for entry in status(live)["nextRun"]["objects"]}
    checked = announced(live.run("reconcile", "--check", "--diff").ok())
    assert {cluster: Counter(counts) for cluster, counts in next_run.items()} == {
        cluster: Counter(counts) for cluster, counts in checked.items()
    }
    live.run("reconcile").ok()
    assert reordered(before, built(live)) == []
    check_quiet(live)


def test_a_drain_leaves_no_drift(live: LiveFleet) -> None:
    before = built(live)
    live.run("drain", "-e", "fleet_drain=east").ok()
    assert reordered(before, built(live)) == []
    check_quiet(live)


def test_a_drain_to_nowhere_counts_what_serves(live: LiveFleet) -> None:
    assert live.run("drain", "-e", "fleet_drain=east,west").code != 0
    assert len(engines(live, "west")) == REPLICAS
    (row,) = table(live.kubectl("-n", "team", "get", "md/mover"))
    assert (row["PLACED"], row["REPLICAS"], row["READY"]) == (str(REPLICAS), str(REPLICAS), "True")
    path = "/apis/modelplane.ai/v1alpha1/namespaces/team/modeldeployments/mover/scale"
    assert json.loads(live.kubectl("get", "--raw", path))["status"]["replicas"] == REPLICAS
    live.run("reconcile").ok()
    check_quiet(live)


def test_pending_replicas_count_for_a_service(live: LiveFleet) -> None:
    """Both clusters have 12 small devices in their node pools."""
    live.edit("models.yaml", f'"replicas": {REPLICAS}', '"replicas": 14')
    live.run("reconcile").ok()
    (service,) = status(live)["services"]
    assert (service["ready"], service["desired"], service["status"]) == (12, 14, "Degraded")
    assert "2 replicas of mover pending" in service["message"]


def test_unavailable_nodes_are_shown(live: LiveFleet) -> None:
    for node in ("gpu-0", "gpu-1"):
        live.kubectl("cordon", node, cluster="east")
    try:
        shown = " ".join(live.run("status").ok().output.split())
        assert "east Ready 3/5 " in shown
        message = "2 of 3 nodes of pool gpu unavailable: gpu-0 (cordoned), gpu-1 (cordoned)"
        assert message in shown
        (pool, *_) = status(live)["clusters"][0]["pools"]
        assert (pool["readyNodes"], pool["schedulableNodes"]) == (3, 1)
        assert [node["name"] for node in pool["unavailableNodes"]] == ["gpu-0", "gpu-1"]
        live.run("reconcile").ok()
        conditions = live.resource("InferenceCluster", "east")["status"]["conditions"]
        assert [condition["message"] for condition in conditions if condition["type"] == "Ready"] == [message]
    finally:
        for node in ("gpu-0", "gpu-1"):
            live.kubectl("uncordon", node, cluster="east")
