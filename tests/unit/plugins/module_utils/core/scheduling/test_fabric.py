# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Gangs over several pools of one fabric, rule by rule."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.devices.device import Device
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.fabric import (
    FabricViews,
    fabrics_of,
    pair_warnings,
    published,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import (
    Cluster,
    Deployment,
    Engine,
    Fabric,
    Member,
    Options,
    PlacedEngine,
    PlacedMember,
    Pool,
    Replica,
    Request,
    Schedule,
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
    on_fabric,
    pool,
    replicas_of,
    standalone,
)

DEVICES = Options()
NODES = Options(accounting="Nodes")
EACH = pytest.mark.parametrize("options", [DEVICES, NODES], ids=["Devices", "Nodes"])
FABRIC = Request("fabric", 1, (fleets.EFA,))


def rail(name: str, nodes: int, *devices: Device, fabric: str = "rail", kind: str = "EFA") -> Pool:
    return on_fabric(pool(name, nodes, *devices), fabric, kind)


def places(decided: Schedule) -> list[list[tuple[tuple[str, int], ...]]]:
    """Per placement and engine: the pools of every member with the pods there."""
    return [
        [member.pods_by_pool for engine in placement.engines for member in engine.members]
        for placement in decided.placements
    ]


def reasons(decided: Schedule) -> list[str]:
    """The refusals that speak of no single pool."""
    return [str(refusal) for pending in decided.pending for refusal in pending.refusals if not refusal.pool]


def test_a_spread_member_lists_its_pools_and_stands_on_the_first() -> None:
    decided = schedule([deployment("m", 1, gang(4))], [cluster("a", rail("x", 2), rail("y", 3))], [])
    leader, worker = decided.placements[0].engines[0].members
    assert (leader.pool, leader.pods, leader.shares) == ("x", 1, ())
    assert (worker.pool, worker.pods, worker.shares) == ("x", 4, (("x", 1), ("y", 3)))


@EACH
@pytest.mark.parametrize(
    ("pools", "followers", "expected"),
    [
        ((rail("x", 2), rail("y", 5)), 4, [(("y", 1),), (("y", 4),)]),
        ((rail("x", 2), rail("y", 4)), 4, [(("x", 1),), (("y", 4),)]),
        ((rail("x", 2), rail("y", 3)), 4, [(("x", 1),), (("x", 1), ("y", 3))]),
        ((rail("x", 1), rail("y", 2), rail("z", 3)), 3, [(("x", 1),), (("z", 3),)]),
        ((rail("x", 1), rail("y", 1), rail("z", 1)), 2, [(("x", 1),), (("y", 1), ("z", 1))]),
        ((rail("x", 3, gpu("24Gi")), rail("y", 2), rail("z", 2)), 3, [(("y", 1),), (("y", 1), ("z", 2))]),
        ((rail("x", 2), pool("y", 9, gpu("24Gi")), rail("z", 2)), 3, [(("x", 1),), (("x", 1), ("z", 2))]),
    ],
    ids=[
        "one pool first",
        "workers together",
        "the leader among workers",
        "the fewest",
        "all",
        "only what matches",
        "only what is on it",
    ],
)
def test_as_few_pools_as_can_be(
    pools: tuple[Pool, ...], followers: int, expected: list[tuple[tuple[str, int], ...]], options: Options
) -> None:
    desired = deployment("m", 1, gang(followers, ask(1, at_least("80Gi"))))
    assert places(schedule([desired], [cluster("a", *pools)], [], options)) == [expected]


@pytest.mark.parametrize(
    "pools",
    [
        (pool("x", 2), pool("y", 2)),
        (rail("x", 2), pool("y", 2)),
        (rail("x", 2), rail("y", 2, fabric="other")),
        (rail("x", 2, kind="EFA"), rail("y", 2, kind="InfiniBand")),
        (rail("x", 2, fabric=""), rail("y", 2, fabric="")),
    ],
    ids=["no fabric", "one has none", "other names", "other types", "no names"],
)
def test_only_pools_that_name_the_same_fabric(pools: tuple[Pool, ...]) -> None:
    decided = schedule([deployment("m", 1, gang(3))], [cluster("a", *pools)], [])
    assert not decided.placements
    assert reasons(decided) == ["a: pools x and y would take it together if they named the same fabric"]


def test_pools_of_two_clusters_share_nothing() -> None:
    decided = schedule([deployment("m", 1, gang(3))], [cluster("a", rail("x", 2)), cluster("b", rail("y", 2))], [])
    assert not decided.placements
    assert not reasons(decided)


def test_only_gangs_are_spread() -> None:
    fleet = [cluster("a", rail("x", 1), rail("y", 1))]
    copies = schedule([deployment("m", 1, standalone(copies=2))], fleet, [])
    assert not copies.placements
    assert not reasons(copies)


def test_a_class_may_publish_the_fabric() -> None:
    def switch(name: str, driver: str = "switch.example.com", claim: str = "Synthetic") -> Device:
        wire = {"name": "s", "driver": driver, "claim": claim, "count": 1, "deviceClassName": "s"}
        return Device.from_wire({**wire, "attributes": {"fabric": {"string": name}}})

    def two(one: Device, other: Device) -> Cluster:
        kinds = [(gpu(), device) for device in (one, other)]
        return cluster("a", *(Pool(f"p{n}", 2, devices, fabrics_of(devices)) for n, devices in enumerate(kinds)))

    for other, placed in (
        (switch("s1"), 1),
        (switch("s2"), 0),
        (switch("s1", driver="another.example.com"), 0),
        (switch("s1", claim="DRA"), 0),
    ):
        decided = schedule([deployment("m", 1, gang(3))], [two(switch("s1"), other)], [])
        assert len(decided.placements) == placed, other


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        (fleets.fabric_device("EFA", "rail"), Fabric("EFA", "rail")),
        (fleets.fabric_device("NVLink"), Fabric("NVLink")),
        (gpu(), None),
        (Device("d", "d.example.com", "Synthetic", attributes={"d.example.com/fabric": 7}), None),
        (Device("d", "d.example.com", "Synthetic", attributes={"d.example.com/fabric": "f"}, invalid="x"), None),
        (Device("d", "d.example.com", "Synthetic", attributes={"e.example.com/fabric": "f"}), None),
        (Device("d", "fabric.modelplane.ai", "Synthetic", attributes={"fabric.modelplane.ai/name": "f"}), None),
    ],
    ids=["named", "unnamed", "gpu", "a number", "invalid", "another domain", "no type"],
)
def test_what_a_device_says_of_a_fabric(device: Device, expected: Fabric | None) -> None:
    assert published(device) == expected
    assert fabrics_of([device]) == ((expected,) if expected and expected.name else ())


def test_who_asks_for_a_fabric_means_the_one_between_the_pods() -> None:
    """Both pools are on EFA, but not on the same; an NVLink domain that they share is not what was asked for."""

    def both(name: str, efa: str) -> Pool:
        devices = (gpu(), fleets.fabric_device("NVLink", "rack"), fleets.fabric_device("EFA", efa))
        return Pool(name, 2, devices, fabrics_of(devices))

    fleet = [cluster("a", both("x", "one"), both("y", "two"))]
    assert not schedule([deployment("m", 1, gang(3, ask(), FABRIC))], fleet, []).placements
    assert schedule([deployment("m", 1, gang(3, ask()))], fleet, []).placements
    assert schedule([deployment("m", 1, gang(1, ask(), FABRIC))], fleet, []).placements


def test_devices_of_other_fabrics_are_hidden_in_place() -> None:
    views = FabricViews()
    devices = (fleets.fabric_device("EFA", "one"), gpu(), fleets.fabric_device("EFA", "two"))
    seen = views.on(Fabric("EFA", "two"), devices)
    assert [device.count for device in seen] == [0, 1, 64]
    assert views.on(Fabric("EFA", "two"), devices) is seen
    alone = (gpu(), fleets.fabric_device("EFA", "one"))
    assert views.on(Fabric("EFA", "one"), alone) is alone


def test_a_member_has_one_claim_template_for_all_its_pools() -> None:
    fleet = [cluster("a", rail("x", 2, gpu(device_class="one")), rail("y", 2, gpu(device_class="two")))]
    assert not schedule([deployment("m", 1, gang(3))], fleet, []).placements
    split = schedule([deployment("m", 1, gang(2))], fleet, [])
    assert places(split) == [[(("x", 1),), (("y", 2),)]]
    classes = [member.device_requests[0]["deviceClassName"] for member in split.placements[0].engines[0].members]
    assert classes == ["one", "two"]


def test_the_claim_is_one_that_all_pools_have() -> None:
    """Pool x would claim through class one first; only class two is on both."""
    x = rail("x", 2, gpu(device_class="one"), gpu(name="b", device_class="two"))
    y = rail("y", 2, gpu(name="b", device_class="two"))
    decided = schedule([deployment("m", 1, gang(3))], [cluster("a", x, y)], [])
    worker = decided.placements[0].engines[0].members[1]
    assert [entry["deviceClassName"] for entry in worker.device_requests] == ["two"]
    again = schedule([deployment("m", 1, gang(3))], [cluster("a", x, y)], replicas_of(decided))
    assert again.placements[0].engines == decided.placements[0].engines


@EACH
def test_copies_are_spread_alike(options: Options) -> None:
    """Four and two nodes take two copies of three pods; three and three do not, as no copy may differ from another."""
    fleet = [cluster("a", rail("x", 4), rail("y", 2))]
    decided = schedule([deployment("m", 1, gang(2, copies=2))], fleet, [], options)
    assert places(decided) == [[(("y", 1),), (("x", 2),)]]
    odd = [cluster("a", rail("x", 3), rail("y", 3))]
    assert not schedule([deployment("m", 1, gang(2, copies=2))], odd, [], options).placements


@EACH
@pytest.mark.parametrize("busy", [1, 2, 3, 4])
def test_pools_take_what_others_leave(busy: int, options: Options) -> None:
    """Pool x has nine nodes, some of them taken; the gang needs all that is left and two nodes of pool y."""
    others = deployment("first", busy, standalone(), priority=1)
    fleet = [cluster("a", rail("x", 9), rail("y", 2))]
    left = 9 - busy
    decided = schedule([others, deployment("m", 1, gang(left + 1))], fleet, [], options)
    assert places(decided)[busy:] == [[(("x", 1),), (("x", left - 1), ("y", 2))]]
    refused = schedule([others, deployment("m", 1, gang(left + 2))], fleet, [], options)
    assert reasons(refused) == [
        f"a: pools x and y of fabric EFA rail together take {left + 2} of the {left + 3} pods of the engine"
    ]


def test_pods_of_a_copy_go_on_different_nodes() -> None:
    fleet = [cluster("a", rail("x", 1, gpu(count=8)), rail("y", 2, gpu(count=8)))]
    assert schedule([deployment("m", 1, gang(2))], fleet, []).placements
    assert not schedule([deployment("m", 1, gang(3))], fleet, []).placements


@EACH
def test_a_leader_that_claims_nothing_goes_where_workers_go(options: Options) -> None:
    engine = Engine("main", (Member("Leader"), Member("Worker", 4, (ask(1, at_least("80Gi")),))))
    fleet = [cluster("a", rail("small", 9, gpu("24Gi")), rail("x", 2), rail("y", 2))]
    assert places(schedule([deployment("m", 1, engine)], fleet, [], options)) == [[(("x", 1),), (("x", 2), ("y", 2))]]


def test_engines_of_a_replica_make_room_for_each_other() -> None:
    """The first gang has to give up its first choice, as only pool y has what the second one asks for."""
    small, big = gpu("24Gi"), gpu("80Gi")
    fleet = [cluster("a", rail("x", 2, small), rail("y", 3, big), rail("z", 2, small))]
    desired = [deployment("m", 1, gang(3, name="any"), gang(2, ask(1, at_least("80Gi")), name="big"))]
    assert places(schedule(desired, fleet, [])) == [[(("x", 1),), (("x", 1), ("z", 2)), (("y", 1),), (("y", 2),)]]


def test_as_few_engines_are_spread_as_can_be() -> None:
    """The first choice of the small gang leaves the big one no pool; moving it costs less than spreading."""
    fleet = [cluster("a", rail("x", 4), rail("y", 2))]
    decided = schedule([deployment("m", 1, gang(1, name="small"), gang(3, name="big"))], fleet, [])
    assert places(decided) == [[(("y", 1),), (("y", 1),), (("x", 1),), (("x", 3),)]]


def test_greedy_does_not_spread_and_says_who_does() -> None:
    fleet = [cluster("a", rail("x", 2), rail("y", 2))]
    decided = schedule([deployment("m", 1, gang(3))], fleet, [], Options(search="Greedy"))
    assert not decided.placements
    assert reasons(decided) == ["a: search Exact puts the engine on pools x and y of one fabric"]


def test_greedy_keeps_what_is_spread() -> None:
    fleet = [cluster("a", rail("x", 2), rail("y", 2))]
    first = schedule([deployment("m", 1, gang(3))], fleet, [])
    kept = schedule([deployment("m", 1, gang(3))], fleet, replicas_of(first), Options(search="Greedy"))
    assert [(placement.state, placement.engines) for placement in kept.placements] == [
        ("kept", first.placements[0].engines)
    ]


@EACH
def test_every_pool_is_charged_for_what_it_has(options: Options) -> None:
    fleet = [cluster("a", rail("x", 3), rail("y", 3))]
    first = schedule([deployment("m", 1, gang(4))], fleet, [], options)
    assert places(first) == [[(("x", 1),), (("x", 2), ("y", 2))]]
    for running in (replicas_of(first), [replace(one, deployment="") for one in replicas_of(first)]):
        desired = [deployment("m", 1, gang(4))] if running[0].deployment else []
        decided = schedule([*desired, deployment("n", 2)], fleet, running, options)
        new = [placement for placement in decided.placements if placement.deployment == "n"]
        assert [placement.engines[0].members[0].pool for placement in new] == ["y"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ((rail("x", 3),), "pool y on a is gone"),
        (
            (rail("x", 3), rail("y", 3, fabric="other")),
            "pools x and y on a no longer share a fabric, engine main needs one",
        ),
        ((rail("x", 3), pool("y", 3)), "pools x and y on a no longer share a fabric, engine main needs one"),
        ((rail("x", 3), rail("y", 3, gpu("24Gi"))), "pool x and y on a no longer satisfies engine main"),
        ((rail("x", 3), rail("y", 3, gpu(device_class="z"))), "pool x and y on a no longer satisfies engine main"),
    ],
    ids=["pool gone", "fabric renamed", "fabric gone", "devices changed", "class changed"],
)
def test_a_spread_replica_that_cannot_stay_goes_with_its_reason(change: tuple[Pool, ...], reason: str) -> None:
    desired = [deployment("m", 1, gang(4, ask(1, at_least("80Gi"))))]
    first = schedule(desired, [cluster("a", rail("x", 3), rail("y", 3))], [])
    decided = schedule(desired, [cluster("a", *change)], replicas_of(first))
    assert [entry.reason for entry in decided.dropped] == [reason]


def test_leader_and_workers_on_two_pools_need_their_fabric_too() -> None:
    fleet = [cluster("a", rail("x", 1), rail("y", 3))]
    first = schedule([deployment("m", 1, gang(3))], fleet, [])
    assert places(first) == [[(("x", 1),), (("y", 3),)]]
    bare = [cluster("a", pool("x", 1), pool("y", 3))]
    decided = schedule([deployment("m", 1, gang(3))], bare, replicas_of(first))
    assert [entry.reason for entry in decided.dropped] == [
        "pools x and y on a no longer share a fabric, engine main needs one"
    ]
    # The reference implementation keeps each member where it is.
    greedy = schedule([deployment("m", 1, gang(3))], bare, replicas_of(first), Options("Nodes", "Greedy"))
    assert [placement.state for placement in greedy.placements] == ["kept"]


def test_a_spread_replica_stays_while_a_pool_would_take_it_whole() -> None:
    desired = [deployment("m", 1, gang(3))]
    first = schedule(desired, [cluster("a", rail("x", 2), rail("y", 2))], [])
    decided = schedule(desired, [cluster("a", rail("x", 9), rail("y", 9))], replicas_of(first))
    assert decided.placements[0].engines == first.placements[0].engines


@EACH
@pytest.mark.parametrize(
    ("followers", "expected"),
    [
        (1, [(("x", 1),), (("x", 1),)]),
        (2, [(("x", 1),), (("x", 2),)]),
        (3, [(("x", 1),), (("x", 2), ("y", 1))]),
        (4, [(("x", 1),), (("x", 2), ("y", 2))]),
        (5, [(("x", 1),), (("x", 3), ("y", 2))]),
        (6, [(("x", 1),), (("x", 3), ("y", 3))]),
    ],
)
def test_an_edit_of_the_workers_keeps_the_pools(
    followers: int, expected: list[tuple[tuple[str, int], ...]], options: Options
) -> None:
    first = schedule([deployment("m", 1, gang(4))], [cluster("a", rail("x", 3), rail("y", 2))], [], options)
    assert places(first) == [[(("x", 1),), (("x", 2), ("y", 2))]]
    grown = [cluster("a", rail("x", 4), rail("y", 3))]
    desired = [deployment("m", 1, gang(followers))]
    second = schedule(desired, grown, replicas_of(first), options)
    assert places(second) == [expected]
    assert second.placements[0].state == "kept"
    assert second.placements[0].engines[0].members[1].pods == followers
    third = schedule(desired, grown, replicas_of(second), options)
    assert third.placements[0].engines == second.placements[0].engines
    assert not third.overcommitted


def test_workers_are_added_where_what_stays_leaves_room() -> None:
    """Pool x has a free node only until all that is kept is charged, and deployment n comes after m."""
    eight = ask(8)
    other = deployment("n", 1, standalone(eight))
    fleet = [cluster("a", rail("x", 3, gpu(count=8)), rail("y", 3, gpu(count=8)))]
    first = schedule([deployment("m", 1, gang(4, eight))], fleet, [])
    wider = [cluster("a", rail("x", 4, gpu(count=8)), rail("y", 3, gpu(count=8)))]
    both = schedule([deployment("m", 1, gang(4, eight)), other], wider, replicas_of(first))
    assert places(both) == [[(("x", 1),), (("x", 2), ("y", 2))], [(("x", 1),)]]
    edited = schedule([deployment("m", 1, gang(5, eight)), other], wider, replicas_of(both))
    assert places(edited) == [[(("x", 1),), (("x", 2), ("y", 3))], [(("x", 1),)]]
    assert not edited.overcommitted


def test_workers_that_fit_nowhere_overcommit_a_pool_that_is_named() -> None:
    fleet = [cluster("a", rail("x", 2), rail("y", 3))]
    first = schedule([deployment("m", 1, gang(4))], fleet, [])
    decided = schedule([deployment("m", 1, gang(6))], fleet, replicas_of(first))
    assert [placement.state for placement in decided.placements] == ["kept"]
    assert sum(pods for member in places(decided)[0] for _, pods in member) == 7
    assert [refusal.pool for refusal in decided.overcommitted]
    again = schedule([deployment("m", 1, gang(6))], fleet, replicas_of(decided))
    assert again.placements[0].engines == decided.placements[0].engines


def test_a_hand_made_spread_gets_the_size_of_its_member() -> None:
    claim = {"name": "gpu", "deviceClassName": fleets.GPU, "count": 1, "selectors": [{"cel": fleets.ANY}]}
    members = (
        PlacedMember("x", (claim,), "Leader"),
        PlacedMember("x", (claim,), "Worker", 3, (("x", 5), ("y", 5))),
    )
    found = Replica("m-a-0", "ml-team", "m", "a", 0, (PlacedEngine("main", members),))
    decided = schedule([deployment("m", 1, gang(3))], [cluster("a", rail("x", 9), rail("y", 9))], [found])
    assert places(decided) == [[(("x", 1),), (("x", 3),)]]


@pytest.mark.parametrize(
    ("desired", "expected"),
    [
        (
            deployment("m", 1, gang(5)),
            ["a: pools x and y of fabric EFA rail together take 5 of the 6 pods of the engine"],
        ),
        (
            deployment("m", 1, gang(2, copies=2)),
            ["a: pools x and y of fabric EFA rail together take 2 of the 3 pods of each of the engine's 2 copies"],
        ),
        (
            deployment("m", 1, gang(5, name="one"), standalone(name="two")),
            ["a: engine one: pools x and y of fabric EFA rail together take 5 of the 6 pods of the engine"],
        ),
        (
            deployment("m", 1, gang(2, name="one"), gang(2, name="two")),
            ["a: each of the engines one, two fits alone, not all together"],
        ),
        (deployment("m", 1, gang(5, ask(1, at_least("1Ti")))), []),
    ],
    ids=["too few nodes", "copies", "several engines", "not all together", "nothing matches"],
)
def test_reasons_with_numbers(desired: Deployment, expected: list[str]) -> None:
    decided = schedule([desired], [cluster("a", rail("x", 2), rail("y", 3))], [])
    assert reasons(decided) == expected


def test_both_notes_when_another_pool_would_help() -> None:
    fleet = [cluster("a", rail("x", 2), rail("y", 2), pool("z", 4))]
    decided = schedule([deployment("m", 1, gang(5))], fleet, [])
    assert reasons(decided) == [
        "a: pools x and y of fabric EFA rail together take 4 of the 6 pods of the engine",
        "a: pools x and z would take it together if they named the same fabric",
    ]


FAST, LARGE = gpu("24Gi"), gpu("80Gi")
PAIR = (
    replace(standalone(ask(1, at_least("80Gi")), name="prefill"), phase="Prefill"),
    replace(standalone(ask(1, fleets.ANY + " && !(" + at_least("80Gi") + ")"), name="decode"), phase="Decode"),
)
APART = {
    "other names": (rail("a", 1, LARGE, fabric="zone-a"), rail("b", 1, FAST, fabric="zone-b")),
    "no names": (rail("a", 1, LARGE, fabric=""), rail("b", 1, FAST, fabric="")),
    "other types": (rail("a", 1, LARGE), rail("b", 1, FAST, kind="InfiniBand")),
    "one name": (rail("a", 1, LARGE, fabric=""), rail("b", 1, FAST)),
}


@pytest.mark.parametrize("pools", APART.values(), ids=APART)
def test_a_pair_on_pools_without_a_common_fabric_is_a_warning(pools: tuple[Pool, ...]) -> None:
    pair, clusters = deployment("pair", 1, *PAIR), [cluster("east", *pools)]
    decided = schedule([pair], clusters, [])
    (found,) = pair_warnings([pair], clusters, decided.placements)
    assert "ModelDeployment ml-team/pair: the Prefill and Decode engines" in str(found)
    assert "node pools a and b, which share no fabric" in str(found)
    kept = schedule([pair], clusters, replicas_of(decided))
    assert [placement.state for placement in kept.placements] == ["kept"]


TOGETHER = {
    "one fabric": (rail("a", 1, LARGE), rail("b", 1, FAST)),
    "one pool": (rail("a", 2, LARGE, FAST, fabric=""),),
    "plain network": (pool("a", 1, LARGE), pool("b", 1, FAST)),
    "one half without a fabric": (rail("a", 1, LARGE), pool("b", 1, FAST)),
}


@pytest.mark.parametrize("pools", TOGETHER.values(), ids=TOGETHER)
def test_other_pairs_are_no_warning(pools: tuple[Pool, ...]) -> None:
    pair, clusters = deployment("pair", 1, *PAIR), [cluster("east", *pools)]
    decided = schedule([pair], clusters, [])
    assert len(decided.placements) == 1
    assert not pair_warnings([pair], clusters, decided.placements)
    apart = [cluster("east", *APART["no names"])]
    unified = deployment("pair", 1, *(replace(engine, phase="") for engine in PAIR))
    assert not pair_warnings([unified], apart, schedule([unified], apart, []).placements)
