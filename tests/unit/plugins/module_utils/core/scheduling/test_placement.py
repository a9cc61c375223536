# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The rules of placement, one by one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.devices.device import Device
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import (
    Cluster,
    Constraint,
    Engine,
    Member,
    Options,
    PlacedEngine,
    PlacedMember,
    Replica,
    Request,
    Taint,
    Toleration,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.placement import schedule
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.scheduling import fleets
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.scheduling.fleets import (
    ask,
    at_least,
    cluster,
    deployment,
    gang,
    gpu,
    nic,
    pool,
    replicas_of,
    standalone,
    where,
)

NODES = Options(accounting="Nodes", search="Greedy")
CLAIM = {"name": "gpu", "deviceClassName": fleets.GPU, "count": 1, "selectors": [{"cel": fleets.ANY}]}


def running(name: str, on: str, index: int = 0, *, pool_name: str = "gpu", namespace: str = "ml-team") -> Replica:
    engines = (PlacedEngine("main", (PlacedMember(pool_name, (CLAIM,)),)),)
    return Replica(f"{name}-{on}-{index}", namespace, name, on, index, engines)


def test_replicas_spread_over_clusters_then_pack() -> None:
    fleet = [cluster("b", pool("gpu", 2)), cluster("a", pool("gpu", 1))]
    assert where(schedule([deployment("m", 3)], fleet, [])) == [("m", "a", 0), ("m", "b", 0), ("m", "b", 1)]


def test_a_new_replica_takes_the_smallest_free_index() -> None:
    fleet = [cluster("a", pool("gpu", 4))]
    decided = schedule([deployment("m", 3)], fleet, [running("m", "a", 1), running("m", "a", 3)])
    assert where(decided) == [("m", "a", 0), ("m", "a", 1), ("m", "a", 3)]


def test_replicas_stay_although_another_cluster_would_be_chosen_today() -> None:
    fleet = [cluster("a", pool("gpu", 4)), cluster("b", pool("gpu", 4))]
    assert where(schedule([deployment("m", 2)], fleet, [running("m", "b", 0), running("m", "b", 1)])) == [
        ("m", "b", 0),
        ("m", "b", 1),
    ]


def test_scaling_down_gives_up_the_fullest_cluster_the_later_name_the_highest_index() -> None:
    fleet = [cluster(name, pool("gpu", 4)) for name in "abc"]
    existing = [
        running("m", "a", 0),
        running("m", "b", 0),
        running("m", "b", 2),
        running("m", "c", 0),
        running("m", "c", 1),
    ]
    steps = [where(schedule([deployment("m", count)], fleet, existing)) for count in (4, 3, 2, 1)]
    assert steps == [
        [("m", "a", 0), ("m", "b", 0), ("m", "b", 2), ("m", "c", 0)],
        [("m", "a", 0), ("m", "b", 0), ("m", "c", 0)],
        [("m", "a", 0), ("m", "b", 0)],
        [("m", "a", 0)],
    ]


def test_scaled_to_zero_keeps_nothing_and_misses_nothing() -> None:
    decided = schedule([deployment("m", 0)], [cluster("a")], [running("m", "a")])
    assert not decided.placements
    assert not decided.pending
    assert [(entry.replica.name, entry.reason) for entry in decided.dropped] == [("m-a-0", "scaled down")]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (cluster("b"), "cluster a is gone"),
        (cluster("a", pool("other")), "pool gpu on a is gone"),
        (cluster("a", pool("gpu", 1, gpu("10Gi"))), "pool gpu on a no longer satisfies engine main"),
        (cluster("a", taints=(Taint("drain", "NoExecute", "now"),)), "taint drain=now:NoExecute on a is not tolerated"),
    ],
    ids=["cluster gone", "pool gone", "devices changed", "drained"],
)
def test_a_replica_that_cannot_stay_goes_with_its_reason(change: Cluster, reason: str) -> None:
    desired = deployment("m", 1, standalone(ask(1, at_least("20Gi"))))
    decided = schedule([desired], [change], [running("m", "a")])
    assert [entry.reason for entry in decided.dropped] == [reason]


@pytest.mark.parametrize(
    ("engines", "reason"),
    [
        ((standalone(name="renamed"),), "the set of engines changed"),
        ((standalone(), standalone(name="more")), "the set of engines changed"),
        ((gang(1),), "the members of engine main changed"),
    ],
)
def test_other_engines_make_another_replica(engines: tuple[Engine, ...], reason: str) -> None:
    decided = schedule([deployment("m", 1, *engines)], [cluster("a", pool("gpu", 4))], [running("m", "a")])
    assert [entry.reason for entry in decided.dropped] == [reason]
    assert [placement.state for placement in decided.placements] == ["new"]


@pytest.mark.parametrize(
    "change",
    [
        {"labels": {"region": "west"}},
        {"not_ready": "is not Ready"},
        {"gateway_address": ""},
        {"taints": (Taint("x", "NoSchedule"),)},
    ],
    ids=["selector narrowed", "not ready", "no address", "NoSchedule"],
)
def test_d11_what_only_steers_new_replicas_leaves_running_ones_alone(change: dict[str, object]) -> None:
    desired = deployment("m", 2, cluster_selector={"region": "east"})
    fleet = [cluster("a", pool("gpu", 4), **({"labels": {"region": "east"}} | change))]
    decided = schedule([desired], fleet, [running("m", "a")])
    assert [(placement.cluster, placement.state) for placement in decided.placements] == [("a", "kept")]
    assert not decided.dropped
    assert [pending.count for pending in decided.pending] == [1]


def test_h3_an_invalid_selector_holds_what_runs() -> None:
    desired = deployment("m", 3, standalone(ask(1, "bad(")))
    decided = schedule([desired, deployment("other", 1)], [cluster("a", pool("gpu", 4))], [running("m", "a")])
    assert [(p.deployment, p.state) for p in decided.placements] == [("m", "held"), ("other", "new")]
    assert decided.placements[0].engines == running("m", "a").engines
    assert [(pending.reason, pending.count) for pending in decided.pending] == [("InvalidNodeSelector", 2)]
    assert not decided.dropped


def test_h3_a_cluster_whose_pools_are_unknown_keeps_its_replicas() -> None:
    fleet = [Cluster("a", gateway_address="192.0.2.1", unknown="InferenceClass x does not exist")]
    decided = schedule([deployment("m", 2)], fleet, [running("m", "a")])
    assert [(placement.state, placement.reason) for placement in decided.placements] == [
        ("held", "InferenceClass x does not exist")
    ]
    assert [str(refusal) for refusal in decided.pending[0].refusals] == ["a: InferenceClass x does not exist"]


def test_h1_equal_names_in_two_namespaces_do_not_meet() -> None:
    fleet = [cluster("a", pool("gpu", 4))]
    desired = [deployment("m", 1, namespace="one"), deployment("m", 1, namespace="two")]
    decided = schedule(desired, fleet, [running("m", "a", namespace="one")])
    assert [(p.namespace, p.state) for p in decided.placements] == [("one", "kept"), ("two", "new")]


def test_of_two_replicas_with_one_identity_the_first_name_stays() -> None:
    twin = replace(running("m", "a"), name="aaa")
    decided = schedule([deployment("m", 1)], [cluster("a", pool("gpu", 4))], [running("m", "a"), twin])
    assert [placement.replica for placement in decided.placements] == ["aaa"]
    assert [entry.replica.name for entry in decided.dropped] == ["m-a-0"]


def test_a_missing_cache_holds_new_placements_only() -> None:
    desired = deployment("m", 2, hold="ModelCache x not found; holding replica placement")
    decided = schedule([desired], [cluster("a", pool("gpu", 4))], [running("m", "a")])
    assert [placement.state for placement in decided.placements] == ["kept"]
    assert [(pending.count, pending.reason) for pending in decided.pending] == [(1, "ModelCacheNotFound")]


def test_d9_order_is_priority_then_age_then_name() -> None:
    fleet = [cluster("a", pool("gpu", 1))]
    urgent, old, young = (
        deployment("z", 1, priority=1),
        deployment("y", 1, created="2025"),
        deployment("x", 1, created="2026"),
    )
    assert where(schedule([urgent, old, young], fleet, [])) == [("z", "a", 0)]
    assert where(schedule([old, young], fleet, [])) == [("y", "a", 0)]
    assert where(schedule([deployment("b", 1), deployment("a", 1)], fleet, [])) == [("a", "a", 0)]


def test_d9_what_runs_comes_before_what_is_urgent() -> None:
    decided = schedule(
        [deployment("old", 1), deployment("urgent", 1, priority=9)],
        [cluster("a", pool("gpu", 1))],
        [running("old", "a")],
    )
    assert where(decided) == [("old", "a", 0)]


def test_d7_pods_share_a_node_by_devices_and_not_by_nodes() -> None:
    fleet = [cluster("a", pool("gpu", 1, gpu(count=8)))]
    desired = [deployment("m", 4, standalone(ask(2)))]
    assert len(schedule(desired, fleet, []).placements) == 4
    assert len(schedule(desired, fleet, [], NODES).placements) == 1


def test_d7_the_pods_of_a_gang_go_on_different_nodes() -> None:
    desired = [deployment("m", 1, gang(1, ask(2)))]
    assert not schedule(desired, [cluster("a", pool("gpu", 1, gpu(count=8)))], []).placements
    decided = schedule(desired, [cluster("a", pool("gpu", 2, gpu(count=8)))], [])
    assert [member.pods for member in decided.placements[0].engines[0].members] == [1, 1]


def test_d7_two_gangs_share_the_nodes_of_one_pool() -> None:
    desired = [deployment("m", 3, gang(1, ask(4)))]
    assert len(schedule(desired, [cluster("a", pool("gpu", 2, gpu(count=8)))], []).placements) == 2


def test_d7_devices_left_on_two_nodes_do_not_make_a_big_one() -> None:
    fleet = [cluster("a", pool("gpu", 2, gpu(count=8)))]
    decided = schedule([deployment("a", 2, standalone(ask(5))), deployment("b", 1, standalone(ask(4)))], fleet, [])
    assert where(decided) == [("a", "a", 0), ("a", "a", 1)]
    assert str(decided.pending[0].refusals[0]) == (
        "pool gpu on a: 6 of 16 gpu free, at most 3 on one node, engine needs 1 pod with 4 gpu"
    )


def test_copies_and_followers_are_charged() -> None:
    engine = gang(2, copies=2)
    assert len(schedule([deployment("m", 9, engine)], [cluster("a", pool("gpu", 13))], [], NODES).placements) == 2


def test_a_leader_that_claims_nothing_takes_no_node() -> None:
    engine = Engine("main", (Member("Leader"), Member("Worker", 2, (ask(),))))
    decided = schedule([deployment("m", 1, engine)], [cluster("a", pool("gpu", 2))], [], NODES)
    leader, worker = decided.placements[0].engines[0].members
    assert (leader.pool, leader.device_requests) == ("gpu", ())
    assert [request["name"] for request in worker.device_requests] == ["gpu"]


def test_synthetic_devices_are_matched_and_not_claimed() -> None:
    infiniband = Request("nic", 8, ('device.driver == "nic.nvidia.com"',))
    desired = [deployment("m", 2, standalone(ask(4), infiniband))]
    decided = schedule(desired, [cluster("a", pool("gpu", 1, gpu(count=8), nic()))], [])
    assert len(decided.placements) == 2
    assert [request["name"] for request in decided.placements[0].engines[0].members[0].device_requests] == ["gpu"]
    refused = schedule([deployment("m", 1, standalone(infiniband))], [cluster("a", pool("gpu", 1, gpu(), nic()))], [])
    assert "only Synthetic devices match" in str(refused.pending[0].refusals[0])


def test_each_engine_goes_whole_onto_one_pool_and_engines_may_differ() -> None:
    small, large = pool("small", 3, gpu("24Gi")), pool("large", 2, gpu("80Gi", 2))
    engines = (standalone(ask(), copies=3, name="prefill"), standalone(ask(2), copies=2, name="decode"))
    decided = schedule([deployment("pd", 1, *engines)], [cluster("a", small, large)], [])
    assert fleets.pools_of(decided.placements[0].engines) == [["small"], ["large"]]


def test_d8_exact_finds_the_devices_that_first_fit_misses() -> None:
    """Any GPU serves the first request; only the device it takes first serves the second."""
    fleet = [cluster("a", pool("gpu", 1, gpu("80Gi", 1, name="big"), gpu("24Gi", 1, name="small")))]
    desired = [deployment("m", 1, standalone(ask(name="any"), ask(1, at_least("40Gi"), name="large")))]
    assert not schedule(desired, fleet, [], Options(search="Greedy")).placements
    assert len(schedule(desired, fleet, [], Options(search="Exact")).placements) == 1


def test_d8_exact_finds_the_pools_that_first_fit_misses() -> None:
    """Both pools serve the first engine; only the pool it takes first serves the second."""
    fleet = [cluster("a", pool("big", 1, gpu("80Gi")), pool("small", 1, gpu("24Gi")))]
    desired = [deployment("m", 1, standalone(name="any"), standalone(ask(1, at_least("40Gi")), name="large"))]
    greedy = schedule(desired, fleet, [], Options(search="Greedy"))
    exact = schedule(desired, fleet, [], Options(search="Exact"))
    assert not greedy.placements
    assert fleets.pools_of(exact.placements[0].engines) == [["small"], ["big"]]
    assert str(greedy.pending[0].refusals[0]) == "a: each of the engines any, large fits alone, not all together"


def test_an_engine_that_first_fit_places_is_placed_the_same_by_exact() -> None:
    fleet = [cluster("a", pool("one", 2), pool("two", 2))]
    desired = [deployment("m", 4)]
    assert schedule(desired, fleet, [], Options(search="Exact")) == schedule(
        desired, fleet, [], Options(search="Greedy")
    )


@pytest.mark.parametrize(
    ("toleration", "covered"),
    [
        (Toleration("k", "Equal", "v"), True),
        (Toleration("k", "Equal", "w"), False),
        (Toleration("k", "Equal"), False),
        (Toleration("k", "Exists"), True),
        (Toleration("", "Exists"), True),
        (Toleration("j", "Exists"), False),
        (Toleration("k", "Exists", effect="NoExecute"), False),
        (Toleration("k", "Exists", effect="NoSchedule"), True),
    ],
)
def test_tolerations(toleration: Toleration, covered: bool) -> None:
    fleet = [cluster("a", taints=(Taint("k", "NoSchedule", "v"),))]
    decided = schedule([deployment("m", 1, tolerations=(toleration,))], fleet, [])
    assert bool(decided.placements) is covered
    if not covered:
        assert [str(refusal) for refusal in decided.pending[0].refusals] == ["a: taint k=v:NoSchedule is not tolerated"]


def test_replicas_of_others_take_their_nodes() -> None:
    fleet = [cluster("a", pool("gpu", 2))]
    others = [running("other", "a"), running("other", "gone"), running("other", "a", 1, pool_name="gone")]
    for options in (Options(), NODES):
        assert len(schedule([deployment("m", 2)], fleet, others, options).placements) == 1


@pytest.mark.parametrize(
    ("fleet", "reason"),
    [
        (cluster("a", pool("gpu", 3, gpu("23034Mi"))), "memory 23034Mi < 40Gi"),
        (cluster("a", pool("gpu", 0)), "pool gpu on a: 0 of 0 nodes free, engine needs 1"),
        (cluster("a", labels={"region": "west"}), "a: label region is west, clusterSelector asks for east"),
        (cluster("a", labels={}), "a: has no label region, clusterSelector asks for east"),
        (cluster("a", not_ready="is not Ready (Installing)"), "a: is not Ready (Installing)"),
        (cluster("a", gateway_address=""), "a: has no gateway address yet"),
        (Cluster("a", gateway_address="192.0.2.1"), "a: has no node pools"),
    ],
)
def test_reasons_of_a_refusal(fleet: Cluster, reason: str) -> None:
    labels = fleet.labels if "region" in reason else {"region": "east"}
    desired = deployment("m", 1, standalone(ask(1, at_least("40Gi"))), cluster_selector={"region": "east"})
    decided = schedule([desired], [replace(fleet, labels=labels)], [], NODES)
    assert reason in str(decided.pending[0].refusals[0])


def test_reasons_with_numbers_of_nodes() -> None:
    decided = schedule(
        [deployment("m", 1, gang(1))],
        [cluster("eks-us-west", pool("gpu-l4", 3))],
        [running("o", "eks-us-west", n, pool_name="gpu-l4") for n in range(2)],
        NODES,
    )
    assert str(decided.pending[0].refusals[0]) == "pool gpu-l4 on eks-us-west: 1 of 3 nodes free, engine needs 2"


def test_reasons_with_counts_of_devices() -> None:
    decided = schedule([deployment("m", 1, standalone(ask(8)))], [cluster("a")], [])
    assert str(decided.pending[0].refusals[0]) == (
        "pool gpu on a: device gpu matches, but a node has 1, request gpu needs 8"
    )


def test_alike_refusals_of_many_clusters_are_one() -> None:
    fleet = [cluster(f"c{number}") for number in range(5)]
    decided = schedule([deployment("m", 1, standalone(ask(8)))], fleet, [])
    assert [refusal.clusters for refusal in decided.pending[0].refusals] == [("c0", "c1", "c2", "c3", "c4")]
    assert str(decided.pending[0].refusals[0]).startswith("pool gpu on c0, c1, c2 and 2 more: ")


def test_the_message_of_a_shortfall_counts() -> None:
    pending = schedule([deployment("m", 3)], [cluster("a", pool("gpu", 2))], []).pending[0]
    assert (pending.count, pending.reason, pending.message) == (
        1,
        "InsufficientCapacity",
        "2 of 3 replicas scheduled (checked 1 cluster)",
    )
    nowhere = schedule([deployment("m", 1, cluster_selector={"x": "y"})], [cluster("a")], []).pending[0]
    assert nowhere.reason == "NoClusters"


def test_an_edit_of_copies_is_charged_to_kept_replicas() -> None:
    first = schedule([deployment("m", 1)], [cluster("a", pool("gpu", 3))], [])
    grown = deployment("m", 1, standalone(copies=3))
    second = schedule([grown, deployment("n", 1)], [cluster("a", pool("gpu", 3))], replicas_of(first))
    assert where(second) == [("m", "a", 0)]


def test_a_kept_replica_claims_through_the_class_it_has() -> None:
    twice = pool("gpu", 1, gpu(name="a", device_class="first"), gpu(name="b", device_class="second"))
    claim = {**CLAIM, "deviceClassName": "second"}
    engines = (PlacedEngine("main", (PlacedMember("gpu", (claim,)),)),)
    decided = schedule([deployment("m", 1)], [cluster("a", twice)], [Replica("r", "ml-team", "m", "a", 0, engines)])
    assert decided.placements[0].engines[0].members[0].device_requests[0]["deviceClassName"] == "second"


def test_h3_an_invalid_deployment_is_not_drained_for_tolerations_that_are_unknown() -> None:
    fleet = [cluster("a", pool("gpu", 4), taints=(Taint("drain", "NoExecute"),))]
    decided = schedule([deployment("m", 0, invalid="its manifest has errors")], fleet, [running("m", "a")])
    assert [(placement.state, placement.reason) for placement in decided.placements] == [
        ("held", "its manifest has errors")
    ]


def test_a_pool_that_is_too_small_for_what_runs_is_named_with_numbers() -> None:
    fleet = [cluster("a", pool("gpu", 2))]
    first = schedule([deployment("m", 1)], fleet, [])
    grown = [deployment("m", 1, standalone(copies=4))]
    decided = schedule(grown, fleet, replicas_of(first))
    assert [str(refusal) for refusal in decided.overcommitted] == [
        "pool gpu on a: its replicas do not fit on its 2 nodes: 4 gpu claimed, 2 available"
    ]
    by_nodes = schedule(grown, fleet, replicas_of(first), NODES)
    assert [str(refusal) for refusal in by_nodes.overcommitted] == [
        "pool gpu on a: its replicas need 4 nodes, and it has 2"
    ]


def test_greedy_says_when_another_order_would_fit() -> None:
    fleet = [cluster("a", pool("gpu", 1, gpu("80Gi", 1, name="big"), gpu("24Gi", 1, name="small")))]
    desired = [deployment("m", 1, standalone(ask(name="any"), ask(1, at_least("40Gi"), name="large")))]
    decided = schedule(desired, fleet, [], Options(search="Greedy"))
    assert "search Exact finds a way" in str(decided.pending[0].refusals[0])


def test_a_kept_replica_claims_what_it_claims_for_the_same_requests() -> None:
    """Four real GPUs and pretended ones: which of two requests has the claim must not change."""
    fleet = [cluster("a", pool("gpu", 1, gpu(count=4), gpu(count=9, name="pretend", claim="Synthetic")))]
    desired = [deployment("m", 2, standalone(ask(2, name="a"), ask(1, name="b")))]
    first = schedule(desired, fleet, [])
    second = schedule(desired, fleet, replicas_of(first))
    assert [placement.engines for placement in second.placements] == [
        placement.engines for placement in first.placements
    ]
    assert not second.overcommitted


SMALL = 'device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("40Gi")) < 0'
# The leader takes a small device, the worker a large one.
PAIR = Engine("main", (Member("Leader", 1, (ask(1, SMALL),)), Member("Worker", 1, (ask(1, at_least("40Gi")),))))
HALF = pool("half", 4, gpu("80Gi", 8, name="big"), gpu("24Gi", 8, name="small", claim="Synthetic"))
FULL = pool("full", 2, gpu("80Gi", 8, name="big"), gpu("24Gi", 8, name="small"))
EACH = pytest.mark.parametrize("options", fleets.OPTIONS, ids=lambda one: f"{one.accounting}-{one.search}")


@EACH
def test_d26_a_cluster_without_room_where_all_members_claim_is_refused_with_the_reason(options: Options) -> None:
    decided = schedule([deployment("m", 1, PAIR)], [cluster("a", HALF, replace(FULL, nodes=1))], [], options)
    assert not decided.placements
    reasons = {refusal.pool: refusal.reason for refusal in decided.pending[0].refusals}
    assert reasons["half"] == "only Synthetic devices match for the Leader, which would claim devices on another pool"
    assert "engine needs" in reasons["full"]


@EACH
def test_d26_a_member_that_claims_nowhere_on_the_cluster_goes_beside_the_others(options: Options) -> None:
    decided = schedule([deployment("m", 1, PAIR)], [cluster("a", HALF)], [], options)
    leader, worker = decided.placements[0].engines[0].members
    assert (leader.device_requests, len(worker.device_requests)) == ((), 1)
    assert not decided.claimless


@EACH
def test_d26_what_runs_without_a_claim_stays_and_is_reported(options: Options) -> None:
    desired = [deployment("m", 1, PAIR)]
    there = replicas_of(schedule(desired, [cluster("a", HALF)], [], options))
    decided = schedule(desired, [cluster("a", HALF, FULL)], there, options)
    assert [(placement.state, placement.engines) for placement in decided.placements] == [("kept", there[0].engines)]
    assert [str(refusal) for refusal in decided.claimless] == [
        "pool half on a: the Leader of engine main of ModelReplica ml-team/m-a-0 claims no device there, and would on "
        "pool full. It stays where it is; delete the ModelReplica to have it placed again"
    ]
    assert not schedule([deployment("m", 0, PAIR)], [cluster("a", HALF, FULL)], there, options).claimless


def by_root(name: str, driver: str, root: str | None, count: int = 1) -> Device:
    attributes = {"resource.kubernetes.io/pcieRoot": {"string": root}} if root else {}
    return Device.from_wire(
        {"name": name, "driver": driver, "deviceClassName": driver, "count": count, "attributes": attributes}
    )


def aligned(*requests: str, gpus: int = 1) -> Engine:
    """A GPU and a network card that have to be at one root."""
    asked = (ask(gpus), ask(1, 'device.driver == "dra.net"', name="nic"))
    constraint = Constraint("resource.kubernetes.io/pcieRoot", requests)
    return Engine("main", (Member("Standalone", 1, asked, (constraint,)),))


def roots(*, gpus: str, cards: str, nodes: int = 1) -> Cluster:
    devices = [by_root(f"gpu-{root}", fleets.GPU, root) for root in gpus]
    devices += [by_root(f"nic-{root}", "dra.net", root) for root in cards]
    return cluster("a", pool("gpu", nodes, *devices))


@EACH
@pytest.mark.parametrize("requests", [(), ("gpu", "nic")], ids=["all", "named"])
def test_a_constraint_is_met_by_devices_that_publish_one_value(options: Options, requests: tuple[str, ...]) -> None:
    decided = schedule([deployment("m", 1, aligned(*requests))], [roots(gpus="ab", cards="bc")], [], options)
    if options.search == "Greedy":
        assert "search Exact finds a way" in str(decided.pending[0].refusals[0])
        return
    (member,) = decided.placements[0].engines[0].members
    named = {"requests": ["gpu", "nic"]} if requests else {}
    assert member.device_constraints == ({**named, "matchAttribute": "resource.kubernetes.io/pcieRoot"},)


@EACH
def test_devices_with_other_values_do_not_meet_a_constraint(options: Options) -> None:
    fleet = [roots(gpus="ab", cards="cd")]
    decided = schedule([deployment("m", 1, aligned("gpu", "nic"))], fleet, [], options)
    assert str(decided.pending[0].refusals[0]) == (
        "pool gpu on a: no devices for requests gpu, nic have one value of resource.kubernetes.io/pcieRoot: "
        "gpu-a has a, gpu-b has b, nic-c has c, nic-d has d"
    )
    assert schedule([deployment("m", 1, aligned("gpu"))], fleet, [], options).placements


def test_a_device_without_the_attribute_does_not_go_with_one_that_has_it() -> None:
    devices = (by_root("gpu", fleets.GPU, "a"), by_root("nic", "dra.net", None))
    decided = schedule([deployment("m", 1, aligned())], [cluster("a", pool("gpu", 1, *devices))], [])
    assert "gpu has a, nic has none" in str(decided.pending[0].refusals[0])


def test_each_value_is_counted_by_itself() -> None:
    """Three roots of which two have both devices: two pods on a node, and the third finds devices, but apart."""
    fleet = [roots(gpus="abc", cards="bcd")]
    assert len(schedule([deployment("m", 3, aligned())], fleet, []).placements) == 2
    assert len(schedule([deployment("m", 3, replace_constraints(aligned()))], fleet, []).placements) == 3


def replace_constraints(engine: Engine) -> Engine:
    return replace(engine, members=tuple(replace(member, constraints=()) for member in engine.members))


def test_a_value_that_no_one_publishes_takes_all_devices_of_a_node() -> None:
    """Only the node knows which devices go together: another pod could take the one that is needed."""
    devices = (by_root("gpu", fleets.GPU, None, 8), by_root("nic", "dra.net", None, 8))
    fleet = [cluster("a", pool("gpu", 2, *devices))]
    desired = [deployment("m", 9, aligned("gpu", "nic"))]
    decided = schedule(desired, fleet, [])
    assert len(decided.placements) == 2
    assert (
        "its class does not say which devices share resource.kubernetes.io/pcieRoot, so a pod is counted with all"
    ) in str(decided.pending[0].refusals[0])
    assert [request["count"] for request in decided.placements[0].engines[0].members[0].device_requests] == [1, 1]
    again = schedule(desired, fleet, replicas_of(decided))
    assert (where(again), again.overcommitted) == (where(decided), ())
    others = [replace(one, deployment="") for one in replicas_of(decided)]
    assert not schedule([deployment("x", 1)], fleet, others).placements


def test_a_constraint_on_one_device_takes_that_device_alone() -> None:
    devices = (by_root("gpu", fleets.GPU, None, 8), by_root("nic", "dra.net", None, 8))
    decided = schedule([deployment("m", 9, aligned("gpu"))], [cluster("a", pool("gpu", 1, *devices))], [])
    assert len(decided.placements) == 8


def test_constraints_name_what_is_claimed_only() -> None:
    devices = (gpu(count=8), nic())
    infiniband = Request("nic", 8, ('device.driver == "nic.nvidia.com"',))
    constraints = (Constraint("a.b/c", ("gpu", "nic")), Constraint("a.b/d", ("nic",)), Constraint("a.b/e"))
    engine = Engine("main", (Member("Standalone", 1, (ask(), infiniband), constraints),))
    (placement,) = schedule([deployment("m", 1, engine)], [cluster("a", pool("gpu", 1, *devices))], []).placements
    assert placement.engines[0].members[0].device_constraints == (
        {"requests": ["gpu"], "matchAttribute": "a.b/c"},
        {"matchAttribute": "a.b/e"},
    )
