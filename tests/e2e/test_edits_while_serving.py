# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Edits of serving models: models keep serving, `--check` lists the changes of a run, and exit codes report failures.

Each test continues with the state of the previous test."""

from __future__ import annotations

import threading
import time
from typing import Self

import pytest
from ansible_collections.modelplane.fleet.tests.e2e import fleets
from ansible_collections.modelplane.fleet.tests.e2e.live_fleet import LiveFleet
from ansible_collections.modelplane.fleet.tests.e2e.observing import engines, is_ready, placed, tags

OLD, NEW, NEWEST = "v0.23.0", "v0.24.0", "v0.25.0"


class Serving:
    """Watch a deployment on all clusters. `least`: minimum number of ready pods."""

    def __init__(self, live: LiveFleet, deployment: str) -> None:
        self._live, self._deployment = live, deployment
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.least = 1000

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.is_set():
            pods = [pod for cluster in self._live.workloads for pod in engines(self._live, cluster, self._deployment)]
            self.least = min(self.least, sum(map(is_ready, pods)))
            time.sleep(0.2)


def solo(tag: str = OLD, *, replicas: int = 3, **more: object) -> str:
    return fleets.deployment("solo", replicas, tag=tag, delay="2s", clusterSelector=ON_WEST, **more)


def single(tag: str = OLD, **more: object) -> str:
    return fleets.deployment("single", 1, tag=tag, delay="2s", clusterSelector=ON_EAST, **more)


ON_WEST = {"matchLabels": {"modelplane.ai/cluster": "west"}}
ON_EAST = {"matchLabels": {"modelplane.ai/cluster": "east"}}


@pytest.fixture(scope="module", autouse=True)
def first(live: LiveFleet) -> None:
    live.settings["fleet_wait"] = 60
    live.write("clusters.yaml", fleets.CLASSES + fleets.cluster("east") + fleets.cluster("west"))
    filler = fleets.deployment("filler", 3, clusterSelector=ON_WEST)
    live.write(
        "models.yaml", solo() + filler + single() + fleets.service("chat", "solo") + fleets.service("one", "single")
    )
    live.run("reconcile").ok()
    assert len(placed(live, "solo")) == 3


def test_replicas_on_a_full_cluster_restart_one_at_a_time(live: LiveFleet) -> None:
    live.edit("models.yaml", solo(OLD), solo(NEW))
    with Serving(live, "solo") as serving:
        run = live.run("reconcile").ok()
    assert serving.least == 2, run.output
    assert tags(live, "west", "solo") == {NEW}
    assert live.run("reconcile").ok().changed == 0


def test_a_single_replica_surges_where_there_is_room(live: LiveFleet) -> None:
    live.edit("models.yaml", single(OLD), single(NEW))
    with Serving(live, "single") as serving:
        run = live.run("reconcile").ok()
    assert serving.least == 1, run.output
    assert tags(live, "east", "single") == {NEW}
    assert len(placed(live, "single")) == 1
    assert live.run("reconcile").ok().changed == 0


def test_a_bad_image_stops_the_rollout_and_fails_the_run(live: LiveFleet) -> None:
    live.settings["fleet_wait"] = 8
    live.edit("models.yaml", solo(NEW), solo("missing"))
    with Serving(live, "solo") as serving:
        run = live.run("reconcile")
    assert run.code == 2, run.output
    assert serving.least == 2, run.output
    assert "team/solo: the rollout stopped with 1 of 3 replicas updated" in run.output
    assert "ImagePullBackOff" in run.output
    assert live.run("status").code == 2
    assert live.run("reconcile").code == 2
    assert serving.least == 2
    live.settings["fleet_wait"] = 60
    live.edit("models.yaml", solo("missing"), solo(NEWEST))
    with Serving(live, "solo") as serving:
        live.run("reconcile").ok()
    assert serving.least == 2
    assert tags(live, "west", "solo") == {NEWEST}


def test_replicas_that_nothing_fits_any_more_keep_serving(live: LiveFleet) -> None:
    huge = 'device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("200Gi")) >= 0'
    live.edit("models.yaml", solo(NEWEST), solo(NEWEST, selector=huge))
    live.settings["fleet_strict"] = ["pending"]
    for arguments in (("--check",), ()):
        run = live.run("reconcile", *arguments)
        assert run.code == 2
        assert "pending: team/solo: 3 of 3 replicas pending" in run.output, run.output
    del live.settings["fleet_strict"]
    with Serving(live, "solo") as serving:
        run = live.run("reconcile").ok()
    assert serving.least == 3
    assert "3 of 3 replicas no longer match the deployment and keep serving" in run.output
    live.edit("models.yaml", solo(NEWEST, selector=huge), solo(NEWEST))
    assert live.run("reconcile").ok()
    assert serving.least == 3
    assert len(placed(live, "solo")) == 3


def test_a_renamed_pool_keeps_what_serves(live: LiveFleet) -> None:
    text = (live.manifests / "clusters.yaml").read_text()
    renamed = text.replace('"name": "gpu"', '"name": "other"')
    assert renamed != text
    live.write("clusters.yaml", renamed)
    live.settings["fleet_wait"] = 5
    with Serving(live, "solo") as serving, Serving(live, "single") as one:
        run = live.run("reconcile")
    assert (serving.least, one.least) == (3, 1), run.output
    assert "no node has the label modelplane.ai/pool=other" in " ".join(run.output.split())
    live.write("clusters.yaml", text)
    live.settings["fleet_wait"] = 60
    with Serving(live, "solo") as serving:
        live.run("reconcile").ok()
    assert serving.least == 3
    assert live.run("reconcile").ok().changed == 0


def test_a_setting_of_the_fleet_that_changes_pods_restarts_one_at_a_time(live: LiveFleet) -> None:
    live.settings["fleet_stream_grace"] = 200
    checked = live.run("reconcile", "--check").ok()
    assert "team/solo: 0 of 3 updated; 3 steps: 3 restart; services: chat" in " ".join(checked.output.split())
    with Serving(live, "solo") as serving, Serving(live, "single") as one:
        run = live.run("reconcile").ok()
    assert (serving.least, one.least) == (2, 1), run.output
    for cluster in live.workloads:
        periods = {pod["spec"]["terminationGracePeriodSeconds"] for pod in engines(live, cluster)}
        assert len(periods) == 1, periods
    assert live.run("reconcile").ok().changed == 0


def test_an_edit_that_leaves_a_service_without_endpoints_changes_nothing(live: LiveFleet) -> None:
    live.edit("models.yaml", fleets.service("one", "single"), fleets.service("one", "misspelt"))
    for arguments in (("--check",), ()):
        run = live.run("reconcile", *arguments)
        assert run.code == 2
        output = " ".join(run.output.split())
        assert "ModelService team/one: The service would lose all serving endpoints" in output, run.output
        assert "fleet_allow_outage" in run.output
    live.settings["fleet_allow_outage"] = True
    live.run("reconcile").ok()
    del live.settings["fleet_allow_outage"]
    live.edit("models.yaml", fleets.service("one", "misspelt"), fleets.service("one", "single"))
    live.run("reconcile").ok()
