# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Labels and affinity of pods that share nodes as planned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.tests.written import replica_objects

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
LABEL = "modelplane.ai/planned-node"
Make = Callable[..., dict[str, Any]]


def deployment(replica: dict[str, Any]) -> dict[str, Any]:
    return next(
        each
        for each in replica_objects(replica)
        if each["kind"] == "Deployment" and "modelplane.ai/workload" in each["spec"]["selector"]["matchLabels"]
    )


def composed(make_replica: Make, planned: dict[str, Any] | None, copies: int = 1) -> dict[str, Any]:
    replica = make_replica()
    engine = replica["spec"]["engines"][0]
    engine["copies"] = copies
    if planned:
        engine["members"][0]["plannedNodes"] = planned
    template: dict[str, Any] = deployment(replica)["spec"]["template"]
    return template


def expressions(term: dict[str, Any]) -> list[tuple[str, str, list[str]]]:
    assert term["namespaceSelector"] == {}
    assert term["topologyKey"] == "kubernetes.io/hostname"
    return [
        (each["key"].removeprefix("modelplane.ai/"), each["operator"], each.get("values", []))
        for each in term["labelSelector"]["matchExpressions"]
    ]


def apart(template: dict[str, Any]) -> list[list[tuple[str, str, list[str]]]]:
    return [expressions(term) for term in template["spec"]["affinity"]["podAntiAffinity"][REQUIRED]]


def test_pods_without_planned_nodes_are_as_they_were(make_replica: Make) -> None:
    template = composed(make_replica, None)
    assert "affinity" not in template["spec"]
    assert LABEL not in template["metadata"]["labels"]


def test_pods_of_one_number_attract_each_other_and_no_others(make_replica: Make) -> None:
    template = composed(make_replica, {"numbers": [3], "sharing": "Together"})
    value = template["metadata"]["labels"][LABEL]
    assert value.endswith(".3")
    assert apart(template) == [
        [("workload", "Exists", []), ("planned-node", "NotIn", [value, "any"])],
        [("gang", "Exists", []), ("planned-node", "NotIn", [value, "any"])],
    ]
    together = template["spec"]["affinity"]["podAffinity"][REQUIRED]
    assert [expressions(term) for term in together] == [[("planned-node", "In", [value])]]


def test_pods_beside_others_wait_for_them_and_keep_apart(make_replica: Make) -> None:
    template = composed(make_replica, {"numbers": [3, 4], "sharing": "OnePerNode"})
    labels = template["metadata"]["labels"]
    first, second = labels[LABEL], labels[f"{LABEL}-2"]
    assert (first[-2:], second[-2:]) == (".3", ".4")
    assert apart(template)[2:] == [
        [("planned-node", "In", [first]), ("planned-node-2", "Exists", []), ("planned-node-2", "NotIn", [second])],
        [("planned-node-2", "In", [second]), ("planned-node-3", "DoesNotExist", [])],
    ]
    together = template["spec"]["affinity"]["podAffinity"]
    assert [expressions(term) for term in together[REQUIRED]] == [
        [("planned-node", "In", [first]), ("planned-node-2", "DoesNotExist", [])]
    ]
    assert [expressions(each["podAffinityTerm"]) for each in together[PREFERRED]] == [
        [("planned-node-2", "In", [second])]
    ]


def test_pods_alone_fill_one_node_after_the_other(make_replica: Make) -> None:
    template = composed(make_replica, {"numbers": [3], "sharing": "Alone"})
    assert REQUIRED not in template["spec"]["affinity"]["podAffinity"]
    assert template["spec"]["topologySpreadConstraints"][0]["whenUnsatisfiable"] == "ScheduleAnyway"


def test_pods_that_go_anywhere_only_say_so(make_replica: Make) -> None:
    template = composed(make_replica, {"sharing": "Any"})
    assert template["metadata"]["labels"][LABEL] == "any"
    assert "affinity" not in template["spec"]


@pytest.mark.parametrize(("sharing", "budgets"), [("Together", 0), ("Alone", 1)])
def test_a_drain_of_a_shared_node_evicts_all_copies(make_replica: Make, sharing: str, budgets: int) -> None:
    replica = make_replica()
    replica["spec"]["engines"][0]["copies"] = 2
    replica["spec"]["engines"][0]["members"][0]["plannedNodes"] = {"numbers": [1], "sharing": sharing}
    name = deployment(replica)["metadata"]["name"]
    found = [
        each
        for each in replica_objects(replica)
        if (each["kind"], each["metadata"]["name"]) == ("PodDisruptionBudget", name)
    ]
    assert len(found) == budgets


def test_pods_of_a_gang_keep_apart_as_before(make_replica: Make, make_engine: Make, make_member: Make) -> None:
    worker = {**make_member("Worker"), "plannedNodes": {"numbers": [2], "sharing": "Together"}}
    replica = make_replica(make_engine("main", make_member("Leader"), worker))
    gang = next(each for each in replica_objects(replica) if each["kind"] == "LeaderWorkerSet")["spec"]
    templates = gang["leaderWorkerTemplate"]
    leader, follower = (
        templates[name]["spec"]["affinity"]["podAntiAffinity"][REQUIRED]
        for name in ("leaderTemplate", "workerTemplate")
    )
    assert len(leader) == 1
    assert follower[0] == leader[0]
    assert len(follower) == 3


def test_copies_apart_are_on_nodes_of_their_own_beside_others(make_replica: Make) -> None:
    template = composed(make_replica, {"sharing": "Apart"}, copies=2)
    labels = template["metadata"]["labels"]
    assert labels[LABEL] == "any"
    own = {"modelplane.ai/workload": labels["modelplane.ai/workload"]}
    assert template["spec"]["affinity"]["podAntiAffinity"][REQUIRED] == [
        {"labelSelector": {"matchLabels": own}, "topologyKey": "kubernetes.io/hostname"}
    ]


def worker_template(make_replica: Make, *members: dict[str, Any]) -> dict[str, Any]:
    replica = make_replica({"name": "main", "copies": 1, "members": list(members)})
    gang = next(each for each in replica_objects(replica) if each["kind"] == "LeaderWorkerSet")
    template: dict[str, Any] = gang["spec"]["leaderWorkerTemplate"]["workerTemplate"]
    return template


def test_workers_that_go_anywhere_wait_for_their_leader(make_replica: Make, make_member: Make) -> None:
    worker = {**make_member("Worker"), "plannedNodes": {"sharing": "Any"}}
    template = worker_template(make_replica, make_member("Leader"), worker)
    gang = {"modelplane.ai/gang": template["metadata"]["labels"]["modelplane.ai/gang"]}
    assert template["spec"]["affinity"]["podAffinity"][REQUIRED] == [
        {
            "labelSelector": {"matchLabels": {**gang, "modelplane.ai/lws-role": "leader"}},
            "matchLabelKeys": ["leaderworkerset.sigs.k8s.io/group-index"],
            "topologyKey": "kubernetes.io/os",
        }
    ]
    assert "topologySpreadConstraints" not in template["spec"]


def test_workers_of_several_pools_keep_to_their_shares(make_replica: Make, make_member: Make) -> None:
    pools = [{"name": "gpu", "pods": 1}, {"name": "more", "pods": 3}]
    worker = {**make_member("Worker"), "nodePoolName": "gpu", "nodePools": pools, "worker": {"nodes": 4}}
    assert "podAffinity" not in worker_template(make_replica, make_member("Leader"), worker)["spec"]["affinity"]
    template = worker_template(make_replica, make_member("Leader"), {**worker, "plannedNodes": {"sharing": "Any"}})
    gang = {"modelplane.ai/gang": template["metadata"]["labels"]["modelplane.ai/gang"]}
    without_leader = {"key": "modelplane.ai/lws-role", "operator": "DoesNotExist"}
    assert template["spec"]["topologySpreadConstraints"] == [
        {
            "maxSkew": 2,
            "minDomains": 2,
            "topologyKey": "modelplane.ai/pool",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": gang, "matchExpressions": [without_leader]},
            "matchLabelKeys": ["leaderworkerset.sigs.k8s.io/group-index"],
        }
    ]


def test_workers_do_not_wait_for_a_leader_without_devices(make_replica: Make, make_member: Make) -> None:
    leader = {key: value for key, value in make_member("Leader").items() if key != "deviceRequests"}
    worker = {**make_member("Worker"), "plannedNodes": {"sharing": "Any"}}
    assert "podAffinity" not in worker_template(make_replica, leader, worker)["spec"]["affinity"]
