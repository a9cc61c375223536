# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Tests of spread, minimum, preferred clusters, and of what returns to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import (
    Cluster,
    Deployment,
    Minimum,
    Replica,
    Schedule,
    Spread,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.placement import schedule
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.scheduling import fleets
from hypothesis import given
from hypothesis import strategies as st

REGION = "modelplane.ai/region"


def regions(**rooms: int) -> list[Cluster]:
    """Return clusters by `region_name=room`: as many replicas with one GPU fit there."""
    found = []
    for key, room in rooms.items():
        region, __, name = key.partition("_")
        found.append(fleets.cluster(f"{region}-{name}", fleets.pool("gpu", room), labels={REGION: region}))
    return found


def counts(decided: Schedule, fleet: Sequence[Cluster], name: str = "d") -> dict[str, int]:
    """Return replicas by region."""
    region = {cluster.name: cluster.labels.get(REGION, cluster.name) for cluster in fleet}
    return dict(Counter(region[placement.cluster] for placement in decided.placements if placement.deployment == name))


def reasons(decided: Schedule, name: str = "d") -> dict[str, str]:
    """Return refusals of a pending deployment by cluster."""
    return {
        cluster: refusal.reason
        for pending in decided.pending
        if pending.deployment == name
        for refusal in pending.refusals
        for cluster in refusal.clusters
    }


def again(deployment: Deployment, fleet: Iterable[Cluster], decided: Schedule) -> Schedule:
    return schedule([deployment], fleet, fleets.replicas_of(decided))


def test_replicas_spread_over_regions_and_not_over_clusters_alone() -> None:
    fleet = regions(east_a=9, east_b=9, east_c=9, west_a=9)
    assert counts(schedule([fleets.deployment("d", 4)], fleet, []), fleet) == {"east": 3, "west": 1}
    spread = fleets.deployment("d", 4, spread=(Spread(REGION),))
    assert counts(schedule([spread], fleet, []), fleet) == {"east": 2, "west": 2}


def test_a_required_spread_keeps_replicas_pending_and_says_why() -> None:
    fleet = regions(east_a=9, west_a=1)
    decided = schedule([fleets.deployment("d", 6, spread=(Spread(REGION, 2),))], fleet, [])
    assert counts(decided, fleet) == {"east": 3, "west": 1}
    assert reasons(decided) == {
        "east-a": "modelplane.ai/region east would have 4 replicas and west has 1, which is over maxSkew 2 of spread",
        "west-a": "0 of 1 gpu free, at most 0 on one node, engine needs 1 pod with 1 gpu",
    }


def test_a_spread_that_is_not_required_only_orders() -> None:
    fleet = regions(east_a=9, west_a=1)
    decided = schedule([fleets.deployment("d", 6, spread=(Spread(REGION, required=False),))], fleet, [])
    assert counts(decided, fleet) == {"east": 5, "west": 1}


def test_a_cluster_without_the_label_takes_none_of_a_required_spread() -> None:
    fleet = [*regions(east_a=1), fleets.cluster("bare", fleets.pool("gpu", 9))]
    decided = schedule([fleets.deployment("d", 2, spread=(Spread(REGION),))], fleet, [])
    assert counts(decided, fleet) == {"east": 1}
    assert reasons(decided)["bare"] == "has no label modelplane.ai/region, over which spread distributes the replicas"


def test_clusters_are_values_of_the_cluster_label() -> None:
    fleet = regions(east_a=9, east_b=2)
    decided = schedule([fleets.deployment("d", 9, spread=(Spread("modelplane.ai/cluster"),))], fleet, [])
    assert Counter(placement.cluster for placement in decided.placements) == {"east-a": 3, "east-b": 2}


def test_new_replicas_of_others_give_way_to_a_spread() -> None:
    """The first deployment alone takes the only place in the west, as its cluster has the first name."""
    fleet = regions(west_a=1, zeast_b=3)
    first, spread = fleets.deployment("a", 1), fleets.deployment("d", 2, spread=(Spread(REGION),))
    assert counts(schedule([first], fleet, []), fleet, "a") == {"west": 1}
    decided = schedule([first, spread], fleet, [])
    assert counts(decided, fleet) == {"west": 1, "zeast": 1}
    assert counts(decided, fleet, "a") == {"zeast": 1}
    assert not decided.pending


def test_replicas_are_kept_for_what_a_minimum_lacks() -> None:
    fleet = regions(east_a=9, west_a=1)
    decided = schedule([fleets.deployment("d", 5, minimum=(Minimum(2, REGION),))], fleet, [])
    assert counts(decided, fleet) == {"east": 3, "west": 1}
    assert reasons(decided)["east-a"] == (
        "the replicas that are left are kept for minAvailable: west of modelplane.ai/region has 1 of 2"
    )
    grown = regions(east_a=9, west_a=2)
    decided = again(fleets.deployment("d", 5, minimum=(Minimum(2, REGION),)), grown, decided)
    assert counts(decided, grown) == {"east": 3, "west": 2}


def test_scaling_down_leaves_what_a_minimum_needs() -> None:
    fleet = regions(east_a=9, west_a=9)
    minimum = (Minimum(2, REGION),)
    running = schedule([fleets.deployment("d", 3, cluster_selector={REGION: "east"})], fleet, [])
    more = schedule([fleets.deployment("d", 5, minimum=minimum)], fleet, fleets.replicas_of(running))
    assert counts(more, fleet) == {"east": 3, "west": 2}
    fewer = again(fleets.deployment("d", 4, minimum=minimum), fleet, more)
    assert counts(fewer, fleet) == {"east": 2, "west": 2}


TERMS = ({REGION: "east"}, {REGION: "west"})


def test_preferred_clusters_fill_up_first_and_the_next_take_the_rest() -> None:
    fleet = regions(east_a=1, east_b=1, north_a=9, west_a=2)
    decided = schedule([fleets.deployment("d", 6, preferences=TERMS)], fleet, [])
    assert counts(decided, fleet) == {"east": 2, "west": 2, "north": 2}


def test_a_cluster_can_be_preferred_by_its_name() -> None:
    fleet = regions(east_a=1, west_a=1)
    named = fleets.deployment("d", 1, preferences=({"modelplane.ai/cluster": "west-a"},))
    assert counts(schedule([named], fleet, []), fleet) == {"west": 1}


def test_a_cluster_can_be_selected_by_its_name() -> None:
    fleet = regions(east_a=1, west_a=2)
    decided = schedule([fleets.deployment("d", 3, cluster_selector={"modelplane.ai/cluster": "west-a"})], fleet, [])
    assert counts(decided, fleet) == {"west": 2}
    assert reasons(decided)["east-a"] == "label modelplane.ai/cluster is east-a, clusterSelector asks for west-a"
    assert decided.pending[0].message == "2 of 3 replicas scheduled (checked 1 cluster)"


def test_scaling_down_begins_with_the_least_preferred() -> None:
    fleet = regions(east_a=1, north_a=9, west_a=1)
    running = schedule([fleets.deployment("d", 5, preferences=TERMS)], fleet, [])
    fewer = again(fleets.deployment("d", 2, preferences=TERMS), fleet, running)
    assert counts(fewer, fleet) == {"east": 1, "west": 1}
    assert not any(entry.evicted for entry in fewer.dropped)


@pytest.mark.parametrize("returns", [False, True])
def test_replicas_return_one_at_a_time(returns: bool) -> None:
    full, roomy = regions(east_a=1, west_a=3), regions(east_a=3, west_a=3)
    desired = fleets.deployment("d", 3, preferences=TERMS, returns=returns)
    running = schedule([desired], full, [])
    assert counts(running, full) == {"east": 1, "west": 2}
    first = again(desired, roomy, running)
    if not returns:
        assert counts(first, roomy) == {"east": 1, "west": 2}
        return
    assert counts(first, roomy) == {"east": 2, "west": 1}
    [left] = first.dropped
    assert (left.evicted, left.reason) == (True, "returns to preferred cluster east-a, which has free capacity")
    # Until the new one serves, the old one is still there, and no other one returns.
    old = Replica("old", "ml-team", "d", left.replica.cluster, left.replica.index, left.replica.engines)
    waiting = schedule([desired], roomy, [*fleets.replicas_of(first), old])
    assert counts(waiting, roomy) == {"east": 2, "west": 1}
    [still] = waiting.dropped
    assert still.evicted
    last = again(desired, roomy, first)
    assert counts(last, roomy) == {"east": 3}
    done = again(desired, roomy, last)
    assert counts(done, roomy) == {"east": 3}
    assert not done.dropped


def test_what_leaves_for_a_preferred_cluster_has_its_devices_meanwhile() -> None:
    full, roomy = regions(east_a=1, west_a=1), regions(east_a=2, west_a=1)
    desired = fleets.deployment("d", 2, preferences=TERMS, returns=True)
    running = schedule([desired], full, [])
    other = fleets.deployment("other", 1)
    decided = schedule([desired, other], roomy, fleets.replicas_of(running))
    assert counts(decided, roomy) == {"east": 1, "west": 1}
    assert counts(decided, roomy, "other") == {"east": 1}
    decided = schedule([desired], roomy, fleets.replicas_of(running))
    waiting = schedule([desired, other], roomy, [*fleets.replicas_of(decided), *fleets.replicas_of(running)[1:]])
    assert counts(waiting, roomy, "other") == {}


RACK = "rack"


def racks(**rooms: int) -> list[Cluster]:
    """Return clusters a (preferred) and b in rack 1, and c in rack 2, with so much room."""
    labels = {"a": {REGION: "east", RACK: "1"}, "b": {REGION: "west", RACK: "1"}, "c": {RACK: "2"}}
    return [fleets.cluster(name, fleets.pool("gpu", room), labels=labels[name]) for name, room in rooms.items()]


def clusters_of(decided: Schedule, name: str = "d") -> list[str]:
    return [placement.cluster for placement in decided.placements if placement.deployment == name]


def test_the_replica_returns_that_spread_lets_go() -> None:
    """The least preferred one, on c, may not: rack 2 would have none, and rack 1 two."""
    desired = fleets.deployment("d", 2, preferences=TERMS, returns=True, spread=(Spread(RACK),))
    running = fleets.replicas_of(schedule([desired], racks(a=0, b=1, c=1), []))
    first = schedule([desired], racks(a=1, b=1, c=1), running)
    assert clusters_of(first) == ["a", "c"]
    [left] = first.dropped
    assert (left.replica.cluster, left.reason) == ("b", "returns to preferred cluster a, which has free capacity")
    # The old one goes also when a later run finds both.
    both = [*fleets.replicas_of(first), left.replica]
    waiting = schedule([desired], racks(a=1, b=1, c=1), both)
    assert clusters_of(waiting) == ["a", "c"]
    assert [entry.replica.cluster for entry in waiting.dropped] == ["b"]


def test_replicas_return_while_those_of_other_deployments_are_pending() -> None:
    desired = fleets.deployment("d", 1, preferences=TERMS, returns=True)
    large = fleets.deployment("large", 1, fleets.standalone(fleets.ask(9)), priority=1)
    running = fleets.replicas_of(schedule([desired], regions(east_a=0, west_a=1), []))
    decided = schedule([large, desired], regions(east_a=1, west_a=1), running)
    assert clusters_of(decided) == ["east-a"]
    assert [pending.deployment for pending in decided.pending] == ["large"]


def returning() -> tuple[Deployment, list[Cluster], Schedule]:
    """Return a deployment whose replica of rack 1 returns from b to a, while its replica of rack 2 is pending."""
    desired = fleets.deployment("d", 2, preferences=TERMS, returns=True, spread=(Spread(RACK),))
    running = fleets.replicas_of(schedule([desired], racks(a=0, b=1, c=0), []))
    fleet = racks(a=1, b=1, c=0)
    return desired, fleet, schedule([desired], fleet, running)


def marked(decided: Schedule) -> Replica:
    """Return the replica that leaves as the next run finds it."""
    [dropped] = decided.dropped
    return replace(dropped.replica, preempted_by=dropped.preempted_by)


def test_a_replica_returns_while_another_one_is_pending() -> None:
    desired, fleet, first = returning()
    assert clusters_of(first) == ["a"]
    assert [(entry.deployment, entry.count) for entry in first.pending] == [("d", 1)]
    # Until the new replica serves, both exist, and no number of replicas shows which one leaves.
    waiting = schedule([desired], fleet, [*fleets.replicas_of(first), marked(first)])
    assert clusters_of(waiting) == ["a"]
    [dropped] = waiting.dropped
    assert (dropped.replica.cluster, dropped.evicted, dropped.preempted_by) == ("b", True, "ml-team/d")
    assert waiting.pending == first.pending
    done = schedule([desired], fleet, fleets.replicas_of(waiting))
    assert (clusters_of(done), done.dropped) == (["a"], ())


def test_a_replica_that_returns_keeps_its_devices_while_another_one_is_pending() -> None:
    desired, fleet, first = returning()
    other = fleets.deployment("other", 1)
    waiting = schedule([desired, other], fleet, [*fleets.replicas_of(first), marked(first)])
    assert clusters_of(waiting, "other") == []


def test_a_replica_stays_if_the_replica_that_replaces_it_is_lost() -> None:
    desired, __, first = returning()
    without_a = schedule([desired], racks(b=1, c=0), [*fleets.replicas_of(first), marked(first)])
    assert [(placement.cluster, placement.state) for placement in without_a.placements] == [("b", "kept")]


def test_both_replicas_stay_if_spread_allows_both() -> None:
    """Rack 2 has free devices now, and its second replica allows another one in rack 1."""
    desired, __, first = returning()
    more = replace(desired, replicas=4)
    running = [*fleets.replicas_of(first), marked(first)]
    later = schedule([more], racks(a=1, b=1, c=1), running)
    assert clusters_of(later) == ["a", "c"]
    again = schedule([more], racks(a=1, b=1, c=1), [*fleets.replicas_of(later), marked(first)])
    assert (clusters_of(again), again.dropped) == (["a", "b", "c"], ())


def test_a_pending_replica_has_priority_over_one_that_returns() -> None:
    """With one more node, a takes the pending replica of rack 1 first."""
    desired = fleets.deployment("d", 3, preferences=TERMS, returns=True, spread=(Spread(RACK),))
    running = fleets.replicas_of(schedule([desired], racks(a=0, b=1, c=1), []))
    decided = schedule([desired], racks(a=1, b=1, c=1), running)
    assert (clusters_of(decided), decided.dropped) == (["a", "b", "c"], ())


def test_a_replica_returns_while_min_available_keeps_another_one_pending() -> None:
    desired = fleets.deployment("d", 2, preferences=TERMS, returns=True, minimum=(Minimum(1, RACK),))
    running = fleets.replicas_of(schedule([desired], racks(a=0, b=1, c=0), []))
    decided = schedule([desired], racks(a=1, b=1, c=0), running)
    assert clusters_of(decided) == ["a"]
    assert [entry.count for entry in decided.pending] == [1]
    waiting = schedule([desired], racks(a=1, b=1, c=0), [*fleets.replicas_of(decided), marked(decided)])
    assert clusters_of(waiting) == ["a"]


def test_nothing_returns_from_a_cluster_that_does_not_answer() -> None:
    desired = fleets.deployment("d", 1, preferences=TERMS, returns=True)
    running = fleets.replicas_of(schedule([desired], regions(west_a=1), []))
    silent = [fleets.cluster("west-a", fleets.pool("gpu", 1), labels={REGION: "west"}, silent=True)]
    decided = schedule([desired], [*regions(east_a=1), *silent], running)
    assert clusters_of(decided) == ["west-a"]


@pytest.mark.parametrize("replicas", [0, 1])
def test_what_is_scaled_down_gives_up_its_devices_in_the_same_run(replicas: int) -> None:
    """Of those that are removed, one may have returned, as replicas return one at a time."""
    fleet = regions(east_a=1, west_a=3)
    desired = fleets.deployment("d", 4, preferences=TERMS, returns=True)
    running = fleets.replicas_of(schedule([desired], fleet, []))
    fewer = fleets.deployment("d", replicas, preferences=TERMS, returns=True)
    decided = schedule([fewer, fleets.deployment("other", 9)], fleet, running)
    assert counts(decided, fleet, "other") == ({"east": 1, "west": 3} if replicas == 0 else {"west": 2})
    reasons = Counter(entry.reason for entry in decided.dropped)
    assert reasons["scaled down"] == (4 if replicas == 0 else 2)


def test_scaling_down_leaves_a_required_spread_as_even_as_it_can_be() -> None:
    """A preference alone would leave both in rack 1."""
    fleet = racks(a=1, b=1, c=1)
    desired = fleets.deployment("d", 3, preferences=TERMS, spread=(Spread(RACK),))
    running = fleets.replicas_of(schedule([desired], fleet, []))
    fewer = fleets.deployment("d", 2, preferences=TERMS, spread=(Spread(RACK),))
    assert clusters_of(schedule([fewer], fleet, running)) == ["a", "c"]


def test_scaling_down_removes_a_replica_without_a_label_before_a_minimum() -> None:
    """No value of the label requires the replica on the cluster without the label."""
    labels: dict[str, dict[str, str]] = {"a": {RACK: "1"}, "b": {}}
    fleet = [fleets.cluster(name, fleets.pool("gpu", 1), labels=labels[name]) for name in labels]
    running = fleets.replicas_of(schedule([fleets.deployment("d", 2)], fleet, []))
    fewer = fleets.deployment("d", 1, minimum=(Minimum(1, RACK),), preferences=({"modelplane.ai/cluster": "b"},))
    assert clusters_of(schedule([fewer], fleet, running)) == ["a"]


LABELS = st.sampled_from(("east", "west", "north"))


@given(
    fleet=st.lists(st.tuples(LABELS, st.integers(0, 4)), min_size=1, max_size=5),
    replicas=st.integers(0, 8),
    skew=st.integers(1, 2),
    least=st.integers(0, 2),
)
def test_any_answer_has_what_was_asked_for(fleet: list[tuple[str, int]], replicas: int, skew: int, least: int) -> None:
    clusters = [
        fleets.cluster(f"c{number}", fleets.pool("gpu", room), labels={REGION: region})
        for number, (region, room) in enumerate(fleet)
    ]
    minimum = (Minimum(least, REGION),) if least else ()
    desired = fleets.deployment("d", replicas, spread=(Spread(REGION, skew),), minimum=minimum)
    decided = schedule([desired], clusters, [])
    rooms = Counter[str]()
    for region, room in fleet:
        rooms[region] += room
    values = [counts(decided, clusters).get(region, 0) for region in rooms]
    assert max(values) - min(values) <= skew
    if not least:
        fewest = min(rooms.values())
        best = sum(min(room, fewest + skew) for room in rooms.values())
        assert sum(values) == min(replicas, best)
    elif least * len(rooms) <= replicas:
        lacking = sum(max(0, least - value) for value in values)
        assert sum(values) + lacking <= replicas
    second = schedule([desired], clusters, fleets.replicas_of(decided))
    assert fleets.where(second) == fleets.where(decided)
    assert not second.dropped
