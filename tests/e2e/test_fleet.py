# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The life of a fleet on real control planes, step by step: each test goes on where the one before it ended."""

from __future__ import annotations

import json
import re

import pytest
from ansible_collections.modelplane.fleet.tests.e2e import fleets
from ansible_collections.modelplane.fleet.tests.e2e.live_fleet import SYSTEM, LiveFleet, Run
from ansible_collections.modelplane.fleet.tests.e2e.observing import (
    Writes,
    built,
    check_placement,
    check_ways,
    contents,
    engines,
    everything,
    placed,
    planes,
    table,
)

OLD, NEW = "v0.23.0", "v0.24.0"


def small(tag: str) -> str:
    return fleets.deployment("small", 2, copies=2, tag=tag, modelCacheRef={"name": "weights"})


# `elastic` says nothing of its replicas. When it has three of them, every device of the pools `gpu` is taken.
MODELS = (
    fleets.cache("weights"),
    small(OLD),
    fleets.deployment("elastic", copies=2),
    fleets.gang("big"),
    fleets.split("pair"),
    fleets.service("chat", "small"),
)


@pytest.fixture(scope="module", autouse=True)
def first(live: LiveFleet) -> Run:
    """The first run, from nothing, with a gateway that takes its time."""
    live.control_gateway.delay = 3
    live.write("clusters.yaml", fleets.CLASSES + fleets.cluster("east") + fleets.cluster("west"))
    live.write("models.yaml", "".join(MODELS))
    try:
        return live.run("site").ok()
    finally:
        live.control_gateway.delay = 0


def test_the_first_run_makes_everything_ready(live: LiveFleet, first: Run) -> None:
    assert set(first.recap) == {"control", "east", "west"}
    assert not first.failed
    ready = {
        "InferenceCluster": ["east", "west"],
        "InferenceGateway": ["default"],
        "ModelCache": ["team/weights"],
        "ModelDeployment": ["team/big", "team/elastic", "team/pair", "team/small"],
        "ModelService": ["team/chat"],
    }
    for kind, names in ready.items():
        for name in names:
            namespace, _, short = name.rpartition("/")
            assert live.is_true(kind, short, namespace), live.resource(kind, short, namespace).get("status")
    names_placed = [(entry["namespace"], entry["replica"]) for entry in live.plan()["placements"]]
    assert len(names_placed) == 5
    for kind in ("ModelReplica", "ModelEndpoint"):
        assert all(live.is_true(kind, name, namespace) for namespace, name in names_placed)


def test_the_real_scheduler_puts_every_pod_where_the_plan_wants_it(live: LiveFleet) -> None:
    check_placement(live)
    (gang,) = placed(live, "big")
    nodes = {pod["spec"]["nodeName"] for pod in engines(live, gang["cluster"], "big")}
    assert nodes == {"large-0", "large-1"}


def test_kubectl_shows_the_fleet(live: LiveFleet) -> None:
    listed = table(live.kubectl("get", "md,mr,ms,me,ic,mc", "-A"))
    rows = {row["NAME"]: row for row in listed}
    assert {row["READY"] for row in listed} == {"True", "2/2"}
    assert rows["modelcache.modelplane.ai/weights"]["READY"] == "2/2"
    small = rows["modeldeployment.modelplane.ai/small"]
    assert (small["NAMESPACE"], small["DESIRED"], small["PLACED"], small["REPLICAS"]) == ("team", "2", "2", "2")
    for entry in live.plan()["placements"]:
        name = entry["replica"]
        assert rows[f"modelreplica.modelplane.ai/{name}"]["CLUSTER"] == entry["cluster"]
        url = f"http://{live.addresses[entry['cluster']]}/team/{name}/v1"
        assert rows[f"modelendpoint.modelplane.ai/{name}"]["URL"] == url
    assert rows["modelservice.modelplane.ai/chat"]["ADDRESS"] == "http://198.51.100.1/team/chat"
    for cluster, address in live.addresses.items():
        assert rows[f"inferencecluster.modelplane.ai/{cluster}"]["GATEWAY"] == address


def test_events_say_what_became_of_the_fleet(live: LiveFleet) -> None:
    events = json.loads(live.kubectl("get", "events", "-A", "-o", "json"))["items"]
    ours = [event for event in events if event["source"].get("component") == "modelplane.fleet"]
    placed_events = [event["message"] for event in ours if event["reason"] == "ReplicaPlaced"]
    for entry in live.plan()["placements"]:
        assert any(f"{entry['replica']} on " in message and entry["cluster"] in message for message in placed_events)
    assert {"AllReplicasReady", "RouteConfigured"} <= {event["reason"] for event in ours}
    described = live.kubectl("-n", "team", "describe", "modeldeployment", "small")
    assert "ReplicaPlaced" in described


def test_a_request_would_find_its_way_to_ready_pods(live: LiveFleet) -> None:
    check_ways(live, "chat", ["small"])


def test_a_second_run_changes_nothing_and_writes_nothing(live: LiveFleet) -> None:
    with Writes(live) as writes:
        second = live.run("site").ok()
    assert second.changed == 0, second.output
    assert writes.all == []
    planned = live.run("plan", "--check", "--diff").ok()
    assert "after: control/" not in planned.output, "the copies of manifests are there, and stay"


def test_check_mode_reports_what_a_run_changes_and_writes_nothing(live: LiveFleet) -> None:
    live.edit("models.yaml", fleets.split("pair"), fleets.split("pair", tag=NEW))
    live.edit("models.yaml", fleets.service("chat", "small"), fleets.service("chat", "small", "elastic"))
    before, files = contents(live), built(live)
    with Writes(live) as writes:
        checked = live.run("site", "--check", "--diff").ok()
    assert contents(live) == before
    assert built(live) == files
    assert writes.lasting == []
    reported = set(re.findall(r"^\+\+\+ after: ((?:control|east|west): \S+ \S+?)$", checked.output, re.MULTILINE))
    done = live.run("site").ok()
    after = contents(live)
    assert reported == {key for key in {*before, *after} if before.get(key) != after.get(key)}
    assert checked.changed > 0
    assert done.changed > 0
    check_placement(live)
    check_ways(live, "chat", ["small", "elastic"])
    assert "another run" not in checked.output


def test_kubectl_scale_is_followed(live: LiveFleet) -> None:
    live.kubectl("-n", "team", "scale", "md/elastic", "--replicas=3")
    live.run("site").ok()
    assert len(placed(live, "elastic")) == 3
    assert live.is_true("ModelDeployment", "elastic", "team")
    assert table(live.kubectl("-n", "team", "get", "md/elastic"))[0]["REPLICAS"] == "3"
    check_placement(live)
    check_ways(live, "chat", ["small", "elastic"])
    assert live.run("site").ok().changed == 0


def test_a_number_that_a_manifest_has_as_well_is_a_conflict(live: LiveFleet) -> None:
    live.kubectl("-n", "team", "scale", "md/small", "--replicas=1")
    live.edit("models.yaml", fleets.split("pair", tag=NEW), fleets.split("pair"))
    before = contents(live)
    run = live.run("site")
    assert run.code != 0
    assert contents(live) == before
    assert re.search(
        r"ModelDeployment team/small\b.*kubectl.*spec\.replicas|spec\.replicas.*kubectl", " ".join(run.output.split())
    )
    assert "created" not in run.output, "nothing was done"
    live.edit("models.yaml", fleets.split("pair"), fleets.split("pair", tag=NEW))
    live.run("site", "-e", "fleet_force=true").ok()
    assert live.resource("ModelDeployment", "small", "team")["spec"]["replicas"] == 2
    assert live.is_true("ModelDeployment", "small", "team")


def test_teardown_leaves_nothing_of_ours_and_all_of_others(live: LiveFleet) -> None:
    metadata = {"name": "of-another-user", "namespace": SYSTEM}
    plant = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    foreign = [(plane, plane.apply(plant)[0]["metadata"]["uid"]) for plane in planes(live)]
    live.run("teardown").ok()
    left = {plane.name: everything(plane) for plane in planes(live)}
    assert (left["east"], left["west"]) == ([], [])
    # The namespace of the fleet's records holds an object of another user.
    assert {name.partition("/")[0] for name in left["control"]} == {"configmap", "namespace"}
    for plane, uid in foreign:
        there = plane.get("v1", "ConfigMap", "of-another-user", SYSTEM)
        assert there is not None
        assert there["metadata"]["uid"] == uid
        plane.objects.delete("v1", "ConfigMap", "of-another-user", SYSTEM)
    assert live.run("teardown").ok().changed == 1
    assert {plane.name: everything(plane) for plane in planes(live)} == {"control": [], "east": [], "west": []}
    assert live.run("teardown").ok().changed == 0
