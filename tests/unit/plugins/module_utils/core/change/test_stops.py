# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Replicas and services that stop serving because of changes on API servers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core import names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.applying.inventory import Entry, Key
from ansible_collections.modelplane.fleet.plugins.module_utils.core.change.difference import Observed, Scope
from ansible_collections.modelplane.fleet.plugins.module_utils.core.change.objects import plan
from ansible_collections.modelplane.fleet.plugins.module_utils.core.change.outage import outages
from ansible_collections.modelplane.fleet.plugins.module_utils.core.change.stops import (
    Planned,
    PlannedReplica,
    Server,
    Stops,
    server,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.backend import backend_name

Object = dict[str, Any]
OLD, NEW = "engine:1", "engine:2"


def workload(replica: str, image: str = OLD, *, ready: int | None = 1, **spec: Any) -> Object:
    """Return the Deployment of a replica of the deployment chat. `ready`: number of available pods, None for
    the desired Deployment."""
    labels = {
        names.MANAGED_BY_LABEL: names.MANAGED_BY,
        names.NAMESPACE_LABEL: "team",
        names.DEPLOYMENT_LABEL: replica.rstrip("0123456789"),
        names.REPLICA_LABEL: replica,
    }
    strategy = {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
    pods = {"spec": {"containers": [{"name": "engine", "image": image, "args": ["--port=8000"]}]}}
    value: Object = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": replica,
            "namespace": "mp-team",
            "labels": labels,
            "annotations": {"modelplane.ai/spec-hash": str((image, spec))},
        },
        "spec": {"replicas": 1, "strategy": strategy, "template": pods, **spec},
    }
    return value if ready is None else {**value, "status": {"availableReplicas": ready}}


def changed(live: Iterable[Object], desired: Iterable[Object], cluster: str = "east", **scope: Any) -> Server:
    """Return the replicas of a server that a run changes from live to desired objects."""
    observed = {Key.of(value): value for value in live}
    inventory = {key: Entry("apps/v1", "", "") for key in observed}
    state = Observed(live=observed, own=inventory)
    return server(cluster, plan({Key.of(value): value for value in desired}, state, Scope(**scope)), state)


def of(*replicas: str, cluster: str = "east", serves: bool = False, **more: Any) -> Planned:
    """Return a plan with replicas. The name of a replica begins with the name of its deployment."""
    return Planned(
        {("team", name): PlannedReplica(name.rstrip("0123456789"), cluster, serves) for name in replicas}, **more
    )


def messages(planned: Planned, *servers: Server) -> list[str]:
    stops = Stops(servers, planned)
    refusals = outages(stops.deployments(), stops.services())
    return [f"{outage.kind} {outage.namespace}/{outage.name}: {outage.message}" for outage in refusals]


THREE = ("chat0", "chat1", "chat2")
OTHERS = ("chat3", "chat4", "chat5")
EDITED = changed([workload(name) for name in THREE], [workload(name, NEW, ready=None) for name in THREE])
EDIT = "the edit of spec.template.spec.containers[0].image restarts it on cluster east"


def test_an_edit_does_not_restart_all_replicas_at_once() -> None:
    assert messages(of(*THREE), EDITED) == [
        f"ModelDeployment team/chat: 3 of 3 serving replicas would stop serving: {EDIT} (chat0, chat1, chat2)"
    ]


def test_the_services_that_lose_all_endpoints_are_named() -> None:
    services = {("team", "one"): frozenset(THREE), ("team", "two"): frozenset({"chat0", "external"})}
    lines = messages(of(*THREE, services=services), EDITED)
    assert [message.partition(":")[0] for message in lines] == ["ModelDeployment team/chat", "ModelService team/one"]
    assert "would lose all serving endpoints (chat0, chat1, chat2)" in lines[1]


@pytest.mark.parametrize(
    ("live", "desired", "planned"),
    [
        pytest.param([], THREE, of(*THREE), id="first deployment"),
        pytest.param(["chat0"], [], of(), id="deleted deployment"),
        pytest.param(THREE, ["chat0"], of("chat0"), id="fewer replicas"),
        pytest.param(
            THREE,
            [],
            of(*OTHERS, cluster="west", serves=True),
            id="others serve on a cluster not read",
        ),
        pytest.param(["chat0"], [], of("chat1", cluster="west"), id="a single replica moves"),
    ],
)
def test_what_the_manifests_ask_for_is_no_outage(live: list[str], desired: list[str], planned: Planned) -> None:
    east = changed(map(workload, live), (workload(name, ready=None) for name in desired))
    assert messages(planned, east) == []


@pytest.mark.parametrize(
    ("edited", "planned", "is_outage"),
    [
        ("2", of(*THREE), False),
        ("2", of(*THREE, unavailable={("team", "chat"): 0}), False),
        ("12", of(*THREE), True),
        ("12", of(*THREE, unavailable={("team", "chat"): 2}), False),
        ("012", of(*THREE, unavailable={("team", "chat"): 3}), False),
        ("12", of(*THREE, "chat3", "chat4", "chat5", cluster="west", serves=True), False),
    ],
)
def test_a_rollout_restarts_as_many_as_it_may(edited: str, planned: Planned, is_outage: bool) -> None:
    desired = [workload(name, NEW if name[-1] in edited else OLD, ready=None) for name in THREE]
    assert bool(messages(planned, changed(map(workload, THREE), desired))) == is_outage


def test_a_single_replica_that_must_not_stop_moves_when_its_replacement_serves() -> None:
    leaving = changed([workload("chat0")], [])
    planned = of("chat1", cluster="west", unavailable={("team", "chat"): 0})
    assert messages(planned, leaving)
    serving = [workload("chat1")]
    assert not messages(planned, leaving, changed(serving, serving, "west"))


def test_an_emptied_folder_removes_no_replica_that_the_plan_has() -> None:
    live = [workload(name) for name in THREE]
    assert messages(of(*THREE), changed(live, [])) == [
        "ModelDeployment team/chat: 3 of 3 serving replicas would stop serving: it would be removed from cluster "
        "east before another replica serves instead (chat0, chat1, chat2)"
    ]
    assert messages(of(*THREE), changed(live, [], prune=False)) == []


def test_replicas_do_not_leave_before_their_replacements_serve() -> None:
    west = [workload(name) for name in OTHERS]
    leaving = changed(map(workload, THREE), [])
    planned = of(*OTHERS, cluster="west")
    assert messages(planned, leaving, changed([], west, "west"))
    assert not messages(planned, leaving, changed(west, west, "west"))


@pytest.mark.parametrize(
    ("live", "desired"),
    [
        (workload("chat0", ready=0), workload("chat0", NEW, ready=None)),
        (workload("chat0", replicas=2), workload("chat0", NEW, ready=None, replicas=2)),
        (workload("chat0"), workload("chat0", NEW, ready=None, strategy={"rollingUpdate": {"maxSurge": 1}})),
        (workload("chat0"), workload("chat0", ready=None, progressDeadlineSeconds=60)),
    ],
    ids=["does not serve", "several copies", "surge", "pods stay"],
)
def test_an_edit_stops_no_serving_pods(live: Object, desired: Object) -> None:
    east = changed([live], [desired])
    assert not east.restarted
    assert not east.removed


def test_of_two_deployments_behind_a_service_not_both_restart() -> None:
    replicas = ("chat0", "other0")
    east = changed(map(workload, replicas), (workload(name, NEW, ready=None) for name in replicas))
    planned = of(*replicas, services={("team", "shared"): frozenset(replicas)})
    assert [message.partition(":")[0] for message in messages(planned, east)] == ["ModelService team/shared"]


def http_route(*backends: str) -> Object:
    labels = {names.MANAGED_BY_LABEL: names.MANAGED_BY, names.SERVICE_LABEL: "one", names.NAMESPACE_LABEL: "team"}
    metadata = {"name": "one-route", "namespace": "team", "labels": labels}
    rules = [{"backendRefs": [{"name": name, "port": 80} for name in backends]}]
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": metadata,
        "spec": {"rules": rules},
    }


@pytest.mark.parametrize(
    ("backends", "planned", "is_outage"),
    [
        (["chat0"], of("chat0"), True),
        (["chat1"], of("chat0"), False),
        ([], of("chat0"), False),
        (["chat0"], of(), False),
    ],
    ids=["serves", "another replica", "no route yet", "deleted deployment"],
)
def test_a_route_keeps_an_endpoint_that_serves(backends: list[str], planned: Planned, is_outage: bool) -> None:
    services: Mapping[tuple[str, str], frozenset[str]] = {("team", "one"): frozenset()}
    east = changed([workload("chat0")], [workload("chat0", ready=None)])
    control = changed([http_route(*map(backend_name, backends))], [http_route("one-unavailable")], "")
    lines = messages(Planned(planned.replicas, services=services), east, control)
    assert [message.partition(":")[0] for message in lines] == ["ModelService team/one"] * is_outage
