# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The status of a fleet that is observed, its tables, and the outcome that pipelines decide by."""

from __future__ import annotations

from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output import plan as plan_output
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output.changes import object_changes
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output.outcome import STRICT, outcome, refused
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output.status import FleetStatus
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output.status_tables import age, tables
from ansible_collections.modelplane.fleet.plugins.module_utils.core.report import view_model
from ansible_collections.modelplane.fleet.plugins.module_utils.core.report.views import Report
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases import build
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.observed_fleet import Fleet, Object, down, up

CREATED = "2026-11-01T08:00:00Z"
GATEWAY = """
---
apiVersion: modelplane.ai/v1alpha1
kind: InferenceGateway
metadata: {name: default}
spec: {backend: Traefik, traefik: {version: "40.2.0"}}
"""
NOW = "2026-11-04T09:00:00Z"


class WithPods(Fleet):
    """A fleet behind a gateway whose engines were created at CREATED, with a pod of each on these clusters."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.text += GATEWAY
        self.pods: dict[str, Object] = {}

    def observations(self) -> Object:
        found = super().observations()
        found["control"]["controller"] = {"ready": True, "addresses": ["203.0.113.10"]}
        for value in found["control"]["objects"]:
            if value["kind"] == "HTTPRoute":
                value["status"]["parents"] = [{"conditions": [{"type": "Accepted", "status": "True"}]}]
        for name, cluster in found["clusters"].items():
            for value in list(cluster.get("objects", ())):
                metadata = value["metadata"]
                replica = metadata.get("labels", {}).get("modelplane.ai/replica")
                if value["kind"] not in ("Deployment", "LeaderWorkerSet") or not replica:
                    continue
                value["metadata"] = {**metadata, "creationTimestamp": CREATED}
                if name in self.pods and "picker" not in metadata["name"]:
                    labels = {"modelplane.ai/replica": replica}
                    pod = {"name": f"{metadata['name']}-x", "namespace": metadata["namespace"], "labels": labels}
                    cluster["objects"].append(
                        {"apiVersion": "v1", "kind": "Pod", "metadata": pod, "status": self.pods[name]}
                    )
        return found


@pytest.fixture
def fleet(tmp_path: Path) -> WithPods:
    return WithPods(tmp_path)


def waiting(reason: str, message: str = "") -> Object:
    state = {"waiting": {"reason": reason, "message": message}}
    return {"phase": "Pending", "containerStatuses": [{"name": "engine", "ready": False, "state": state}]}


def status(fleet: Fleet, **more: Any) -> FleetStatus:
    found = fleet.run(check_mode=True, **more)
    return found.fleet_status


def by_cluster(found: FleetStatus) -> dict[str, Any]:
    (deployment,) = found.deployments
    return {row.cluster: row for row in deployment.replicas}


def test_a_fleet_that_serves_has_nothing_to_complain_about(fleet: WithPods) -> None:
    fleet.settle()
    found = status(fleet)
    (service,) = found.services
    assert (service.status, service.ready, service.endpoints, service.message) == ("Serving", 2, 3, "")
    (deployment,) = found.deployments
    assert (deployment.desired, deployment.ready, deployment.pending) == (2, 2, None)
    assert {(row.status, row.ready, row.since, row.command) for row in deployment.replicas} == {
        ("Serving", True, CREATED, None)
    }
    assert [(each.name, each.state, each.stack_ready) for each in found.clusters] == [
        ("east", "Ready", True),
        ("west", "Ready", True),
    ]
    (pool,) = found.clusters[0].pools
    assert (pool.ready_nodes, pool.nodes, pool.devices, pool.used_devices) == (4, 4, 4, 1)
    (cache,) = found.caches
    assert cache.ready == len(cache.clusters) == 2
    assert found.next_run.replicas == found.next_run.objects == []
    result = outcome(found, [])
    assert not refused(result, STRICT)
    assert result.summary == "2 clusters: 2 unchanged; no object changed; 2 of 2 replicas serve"


def served(fleet: WithPods) -> tuple[str, int, int, str]:
    (service,) = status(fleet).services
    return service.status, service.ready, service.desired, service.message


def test_replicas_without_an_endpoint_count_for_a_service(fleet: WithPods) -> None:
    """An external endpoint is on standby."""
    fleet.settle()
    assert served(fleet) == ("Serving", 2, 3, "")
    fleet.edit("replicas: 2", "replicas: 10")
    fleet.settle()
    assert served(fleet) == ("Degraded", 8, 11, "2 replicas of qwen pending")
    assert "8/11" in "\n".join(tables(status(fleet), NOW, 100))
    assert "8 of 11" in "\n".join(plan_output.services_table(fleet.run().plan, 100))
    fleet.shown = lambda cluster, value: down(value) if cluster == "west" else up(value)
    fleet.run()
    state, ready, desired, message = served(fleet)
    assert (state, ready, desired) == ("Degraded", 4, 11)
    assert message.startswith("2 replicas of qwen pending; qwen-")
    assert message.endswith(" without an endpoint yet")
    last = fleet.run()
    page = view_model.report_of(last.plan, last.changes, last.fleet_status, NOW, "")
    assert [each.status.desired for each in page.services] == [11]


def test_endpoints_of_leaving_replicas_count_only_as_ready(fleet: WithPods) -> None:
    fleet.settle()
    (service,) = fleet.run(drain=("east", "west")).fleet_status.services
    assert (service.status, service.ready, service.endpoints, service.desired) == ("Serving", 2, 3, 3)
    seen = fleet.objects("clusters/east", "Deployment")
    fleet.shown = lambda cluster, value: up(value) if cluster == "west" or value in seen else down(value)
    fleet.run(drain=("west",))
    (service,) = fleet.run(drain=("west",)).fleet_status.services
    assert (service.status, service.ready, service.desired) == ("Serving", 2, 3), "one leaves, one starts"


def test_a_service_that_selects_a_cluster_counts_replicas_there(fleet: WithPods) -> None:
    fleet.edit("{modelplane.ai/deployment: qwen}", "{modelplane.ai/cluster: west}")
    fleet.edit("replicas: 2", "replicas: 10")
    fleet.settle()
    assert served(fleet) == ("Serving", 4, 5, "")


def devices(found: FleetStatus) -> list[tuple[int, int]]:
    return [(pool.used_devices, pool.planned_devices) for each in found.clusters for pool in each.pools]


def test_devices_are_in_use_when_a_replica_exists(fleet: WithPods) -> None:
    found = status(fleet)
    assert devices(found) == [(0, 1), (0, 1)], "nothing is there"
    (row,) = (line for line in tables(found, NOW, 100) if line.startswith("CLUSTER"))
    assert row.split()[3:5] == ["DEVICES", "PLANNED"]
    page = build.draw(fleet.run(check_mode=True))
    assert "of 8 devices in use, 2 planned" in page
    original = fleet.observations
    fleet.run()

    def without_workloads() -> Object:
        seen = original()
        for cluster in seen["clusters"].values():
            cluster["objects"] = [each for each in cluster["objects"] if each["kind"] == "Gateway"]
        return seen

    fleet.observations = without_workloads  # type: ignore[method-assign]
    assert devices(status(fleet)) == [(0, 1), (0, 1)], "it was placed, and nothing is there yet"
    fleet.observations = original  # type: ignore[method-assign]
    fleet.shown = lambda _cluster, value: down(value)
    assert devices(status(fleet)) == [(1, 0), (1, 0)], "it is there, and does not serve yet"
    fleet.shown = lambda _cluster, value: up(value)
    fleet.settle()
    assert devices(status(fleet)) == [(1, 0), (1, 0)]
    assert "PLANNED" not in " ".join(tables(status(fleet), NOW, 100))
    fleet.silent = {"west"}
    assert devices(status(fleet)) == [(1, 0), (1, 0)], "what was there stays"
    fleet.silent = set()
    assert devices(status(fleet, drain=("east",))) == [(1, 0), (1, 1)], "one leaves, one comes"


def test_devices_of_a_cluster_that_is_not_read_are_in_use_once_a_run_has_placed_replicas(fleet: WithPods) -> None:
    fleet.declared = {"east", "west"}
    assert devices(status(fleet)) == [(0, 1), (0, 1)]
    assert devices(fleet.run_unseen(check_mode=True).fleet_status) == [(0, 1), (0, 1)]
    fleet.run()
    assert devices(status(fleet)) == [(1, 0), (1, 0)]
    assert devices(fleet.run_unseen(check_mode=True).fleet_status) == [(1, 0), (1, 0)]


def test_unavailable_nodes_are_not_schedulable_and_have_their_names_everywhere(fleet: WithPods) -> None:
    fleet.settle()
    original = fleet.observations

    def cordoned() -> Object:
        found = original()
        nodes = [{"name": f"gpu-{number}", "reason": "cordoned", "closed": True} for number in (0, 2, 3)]
        found["clusters"]["east"]["unavailable"] = {
            "gpu": [nodes[0], *({**node, "devices": {"gpu": 1}} for node in nodes[1:])]
        }
        return found

    fleet.observations = cordoned  # type: ignore[method-assign]
    outcome_ = fleet.run()
    east, west = outcome_.fleet_status.clusters
    names = "gpu-0 (cordoned), gpu-2 (cordoned), gpu-3 (cordoned)"
    message = f"3 of 4 nodes of pool gpu unavailable: {names}"
    assert (east.state, east.message, west.message) == ("Ready", message, "")
    (pool,) = east.pools
    assert (pool.ready_nodes, pool.schedulable_nodes, pool.nodes) == (4, 1, 4)
    assert [(node.name, node.devices) for node in pool.unavailable_nodes] == [("gpu-0", 0), ("gpu-2", 1), ("gpu-3", 1)]
    assert pool.unavailable_devices == 2
    conditions = fleet.status("InferenceCluster", "east")["conditions"]
    assert [each["message"] for each in conditions if each["type"] == "Ready"] == [message]
    shown = " ".join(" ".join(tables(outcome_.fleet_status, NOW, 200)).split())
    assert "east Ready 1/4 1/4 2 ready 0s" in shown
    assert message in shown
    assert f"1 of 4 nodes schedulable; unavailable: {names}" in build.draw(outcome_)


@pytest.mark.parametrize(
    ("pod", "word", "command"),
    [
        (waiting("ImagePullBackOff", "Back-off pulling image"), "ImagePullBackOff", "describe pod"),
        (waiting("CrashLoopBackOff"), "CrashLoopBackOff", "-c engine --previous"),
        (
            {
                "phase": "Pending",
                "conditions": [
                    {
                        "type": "PodScheduled",
                        "status": "False",
                        "reason": "Unschedulable",
                        "message": "0/4 nodes are available: 4 cannot allocate all claims.",
                    }
                ],
            },
            "Unschedulable",
            "describe pod",
        ),
        ({"phase": "Pending"}, "Starting", "get pods -l modelplane.ai/replica="),
    ],
)
def test_a_replica_has_the_reason_of_its_pods_and_the_command_that_shows_more(
    fleet: WithPods, pod: Object, word: str, command: str
) -> None:
    fleet.settle()
    fleet.pods = {"west": pod}
    fleet.shown = lambda cluster, value: down(value) if cluster == "west" else up(value)
    found = fleet.run().fleet_status
    row = by_cluster(found)["west"]
    assert (row.status, row.ready) == (word, False)
    assert row.command.startswith("kubectl -n mp-team-")
    assert command in row.command
    assert by_cluster(found)["east"].status == "Serving"
    lines = refused(outcome(found, []), ["unready"])
    assert any(f"on west: {word}" in line for line in lines), lines
    shown = "\n".join(tables(found, NOW, 100))
    assert word in shown
    assert row.command in shown


@pytest.mark.parametrize("serves_again", [False, True])
def test_an_engine_that_hung_has_its_restarts_in_the_status(fleet: WithPods, serves_again: bool) -> None:
    message = "modelplane: the engine hangs: no response within 20 s\n"
    last = {"exitCode": 0, "message": message, "finishedAt": "2026-11-04T08:00:00Z"}
    container = {"name": "engine", "ready": serves_again, "restartCount": 2, "lastState": {"terminated": last}}
    conditions = [{"type": "Ready", "status": str(serves_again)}]
    fleet.settle()
    fleet.pods = {"west": {"phase": "Running", "conditions": conditions, "containerStatuses": [container]}}
    if not serves_again:
        fleet.shown = lambda cluster, value: down(value) if cluster == "west" else up(value)
    ended = fleet.run()
    found = ended.fleet_status
    row = by_cluster(found)["west"]
    assert row.status == ("Serving" if serves_again else "EngineStalled")
    restarts = "2 restarts, last at 2026-11-04T08:00:00Z: no response within 20 s"
    (deployment,) = found.deployments
    assert f"-x on west: {restarts}" in deployment.stalls
    assert "EngineStalled" in "\n".join(tables(found, NOW, 200))
    if not serves_again:
        assert row.command.endswith("-c engine --previous")
        assert any("on west: EngineStalled" in line for line in refused(outcome(found, []), ["unready"]))
        assert "the engine stopped responding and was restarted: no response within 20 s" in build.draw(ended)


def test_names_of_pods_are_quoted_as_servers_choose_them(fleet: WithPods) -> None:
    fleet.settle()
    fleet.shown = lambda cluster, value: down(value) if cluster == "west" else up(value)
    fleet.pods = {"west": waiting("ErrImagePull")}
    original = fleet.observations

    def hostile() -> Object:
        found = original()
        for value in found["clusters"]["west"]["objects"]:
            if value["kind"] == "Pod":
                value["metadata"]["name"] = "x; rm -rf ~"
        return found

    fleet.observations = hostile  # type: ignore[method-assign]
    assert by_cluster(status(fleet))["west"].command.endswith("describe pod 'x; rm -rf ~'")


def test_what_does_not_answer_is_unknown_and_not_unready(fleet: WithPods) -> None:
    fleet.settle()
    fleet.silent = {"west"}
    found = status(fleet)
    assert by_cluster(found)["west"].status == "Unknown"
    assert by_cluster(found)["west"].ready is None
    (west,) = (each for each in found.clusters if each.name == "west")
    assert (west.state, west.message, west.stack_ready) == ("Unreachable", "connection refused", None)
    result = outcome(found, [], ["west"])
    assert refused(result, STRICT) == ["unreachable: cluster west: connection refused"]
    assert result.clusters.failed == 1


def test_a_service_counts_what_is_known_to_serve(fleet: WithPods) -> None:
    fleet.settle()
    for silent, expected in (
        (set[str](), (2, "Serving", "")),
        ({"west"}, (1, "Serving", "1 unknown, on west")),
        ({"east", "west"}, (0, "Unknown", "2 unknown, on east, west")),
    ):
        fleet.silent = silent
        (service,) = status(fleet).services
        assert (service.ready, service.status, service.message) == expected
        # Requests are led there still.
        assert fleet.backends() == ["east", "west"]


def test_clusters_of_files_are_declared(fleet: WithPods) -> None:
    fleet.declared = {"east", "west"}
    fleet.run()
    found = status(fleet)
    assert {row.status for row in by_cluster(found).values()} == {"Declared"}
    assert {each.state for each in found.clusters} == {"Declared"}
    assert not refused(outcome(found, []), ["pending", "unready", "unreachable", "drift"])


def test_a_service_without_a_gateway_has_no_ready_endpoint_in_any_view(fleet: WithPods) -> None:
    fleet.edit(GATEWAY, "")
    found = fleet.run_unseen()
    (service,) = found.fleet_status.services
    reason = "clients cannot reach it: declare an InferenceGateway"
    assert (service.ready, service.message) == (0, reason)
    assert reason in " ".join(" ".join(tables(found.fleet_status, NOW, 200)).split())
    assert reason in build.draw(found)


def test_pending_replicas_have_their_reasons(fleet: WithPods) -> None:
    fleet.edit("replicas: 2", "replicas: 11")
    fleet.settle()
    found = status(fleet)
    (deployment,) = found.deployments
    assert deployment.pending is not None
    assert (deployment.pending.count, deployment.pending.reason) == (3, "InsufficientCapacity")
    (line,) = refused(outcome(found, []), ["pending"])
    assert line.startswith("pending: team/qwen: 3 of 11 replicas pending: InsufficientCapacity: ")
    assert deployment.pending.hint == "Add nodes to pool gpu of east, west, or ask for fewer replicas or devices."
    shown = tables(found, NOW)
    assert max(map(len, shown)) <= 72
    (row,) = [line for line in shown if " Pending" in line]
    assert row.split() == ["team/qwen", "0/3", "-", "-", "-", "-", "Pending"]


def test_the_next_run_is_listed_by_replica_and_by_cluster(fleet: WithPods) -> None:
    fleet.settle()
    fleet.edit("replicas: 2", "replicas: 3")
    found = status(fleet)
    (change,) = found.next_run.replicas
    assert (change.action, change.deployment) == ("new", "qwen")
    places = {each.cluster: each for each in found.next_run.objects}
    assert places[change.cluster].created > 0
    assert places[""].created > 0, "its ModelReplica"
    result = outcome(found, found.next_run.objects, is_preview=True)
    assert result.changes
    assert "1 would change" in result.summary
    assert "objects would be created" in result.summary
    assert any(line.startswith("drift: cluster ") for line in refused(result, ["drift"]))


def test_a_status_is_the_same_in_every_form(fleet: WithPods) -> None:
    """Rows of the terminal are those of the document."""
    fleet.settle()
    found = status(fleet)
    document = api.wire(found)
    shown = "\n".join(tables(found, NOW, 200))
    for service in document["services"]:
        assert service["address"] in shown
    for cluster in document["clusters"]:
        assert cluster["name"] in shown
    assert document["schemaVersion"] == 2
    assert "3d" in shown


@pytest.mark.parametrize(
    ("before", "after", "reason", "hint"),
    [
        (
            'device.driver == "gpu.nvidia.com"',
            'device.driver == "gpu.amd.com"',
            "InsufficientCapacity",
            "Add a pool with",
        ),
        (
            "spec:\n  source: HuggingFace",
            "spec:\n  clusterSelector: {matchLabels: {tier: none}}\n  source: HuggingFace",
            "NoClusters",
            "Add an InferenceCluster with these labels",
        ),
    ],
)
def test_what_to_do_about_pending_replicas(fleet: WithPods, before: str, after: str, reason: str, hint: str) -> None:
    fleet.edit(before, after)
    (deployment,) = status(fleet).deployments
    assert deployment.pending is not None
    assert deployment.pending.reason == reason
    assert deployment.pending.hint.startswith(hint)


def view(found: build.Outcome) -> Report:
    return view_model.report_of(found.plan, found.changes, found.fleet_status, found.now, found.commit)


def test_the_page_has_the_rows_and_numbers_of_the_status(fleet: WithPods) -> None:
    fleet.settle()
    fleet.pods = {"west": waiting("ImagePullBackOff", "Back-off pulling `image`")}
    fleet.shown = lambda cluster, value: down(value) if cluster == "west" else up(value)
    fleet.run()
    fleet.edit("replicas: 2", "replicas: 11")
    found = fleet.run(check_mode=True)
    rows, page = found.fleet_status, view(found)
    assert [each.status for each in page.services] == rows.services
    assert [each.status for each in page.clusters] == rows.clusters
    pools = [pool.status for cluster in page.clusters for pool in cluster.pools]
    assert pools == [pool for cluster in rows.clusters for pool in cluster.pools]
    assert [(pool.used_devices, pool.planned_devices) for pool in pools] == [(1, 3), (1, 3)]
    (deployment,) = rows.deployments
    assert {(each.status.name, each.status.status, each.status.message) for each in page.replicas} == {
        (each.name, each.status, each.message) for each in deployment.replicas
    }
    changed = {(row.replica, row.action) for row in rows.next_run.replicas if row.action != "removed"}
    assert {(each.status.name, each.state) for each in page.replicas if each.state != "kept"} == changed
    result = outcome(rows, rows.next_run.objects)
    assert (len(page.services), len(page.clusters)) == (1, result.clusters.total)
    assert page.objects == len(found.plan.control) + sum(map(len, found.plan.workloads.values()))
    assert page.replica_counts == result.replicas
    lines = result.findings
    assert len(page.findings) == len(lines.pending) + len(lines.unready) + len(lines.unreachable)
    for kind in ("created", "changed", "removed"):
        assert (
            len(page.files[kind])
            == sum(getattr(each, kind) for each in page.object_changes)
            == getattr(result.objects, kind)
        )
    html = build.draw(found)
    assert "kubectl -n mp-team-" in html
    assert "Back-off pulling <code>image</code>" in html
    assert "Add nodes to pool gpu of" in html
    assert f'<time datetime="{found.now}">' in html


def test_what_does_not_answer_differs_on_the_page_from_what_fails_and_what_is_not_read(fleet: WithPods) -> None:
    fleet.settle()
    fleet.silent = {"west"}
    html = build.draw(fleet.run(check_mode=True))
    assert '<span class="b unknown">Unreachable</span>' in html
    assert "modelplane.fleet.check --limit west" in html
    assert '<span class="b bad">NotReady</span>' not in html
    declared = build.draw(fleet.run_unseen(check_mode=True))
    assert '<span class="b neutral">Declared</span>' in declared
    assert "No cluster was read" in declared
    assert "Unreachable" not in declared


def test_the_page_stays_until_something_changes(fleet: WithPods, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = "0123456789abcdef" * 2 + "01234567"
    (fleet.folder / ".git").mkdir()
    (fleet.folder / ".git" / "HEAD").write_text(commit)
    fleet.settle()
    fleet.edit("replicas: 2", "replicas: 1")
    fleet.settle()
    page = fleet.built / "report.html"
    before = page.read_text()
    assert f"<code>{commit[:12]}</code>" in before
    assert str(fleet.folder) not in before
    (fleet.folder / ".git" / "HEAD").write_text("f" * 40)
    monkeypatch.setattr(build, "datetime", Later)
    assert not fleet.run().changes
    assert page.read_text() == before
    fleet.edit("replicas: 1", "replicas: 3")
    fleet.run()
    assert "2099-01-01 00:00:00 UTC" in page.read_text()
    assert f"<code>{'f' * 12}</code>" in page.read_text()


class Later(datetime):
    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Later:
        return cls(2099, 1, 1, tzinfo=tz)


@pytest.mark.parametrize(
    ("since", "expected"),
    [
        ("2026-11-04T08:59:15Z", "45s"),
        ("2026-11-04T08:55:00Z", "5m"),
        ("2026-11-04T05:00:00Z", "4h"),
        ("2026-11-01T08:00:00Z", "3d"),
        ("2026-11-04T09:00:05Z", "0s"),
        ("", "-"),
        ("yesterday", "-"),
    ],
)
def test_ages_are_those_of_kubectl(since: str, expected: str) -> None:
    assert age(since, NOW) == expected


def test_objects_are_counted_by_the_places_of_their_files() -> None:
    class Files:
        added = ("clusters/east/namespaces/n/deployment-a.yaml", "plan.json", "status/namespaces/n/x.yaml")
        changed = ("control/namespaces/n/modelreplica-a.yaml",)
        removed = ("clusters/east/namespaces/n/service-b.yaml", "clusters/west/cluster-scoped/namespace-n.yaml")

    found = [(each.cluster, each.created, each.changed, each.removed) for each in object_changes(Files())]
    assert found == [("", 0, 1, 0), ("east", 1, 0, 1), ("west", 0, 0, 1)]
