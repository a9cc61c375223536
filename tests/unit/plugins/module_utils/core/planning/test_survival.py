# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Losses of clusters that services have to survive."""

from __future__ import annotations

import itertools

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.model_service import Survival
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning import Plan, survival
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning.context import Context
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning.fleet import Fleet
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning.loss import Loss, without
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning.scenario import (
    Scenario,
    usable_endpoints,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning.scenario import (
    planned as everything_runs,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning.survival import Shortfall, Survey, survey
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.binding import bind
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import (
    Cluster,
    Deployment,
    Options,
    Schedule,
    Search,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.placement import schedule
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.planning.asked_fleet import (
    CLASS,
    cluster,
    deployment,
    planned,
    provider,
    resource,
    service,
)
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.scheduling import fleets
from hypothesis import given
from hypothesis import strategies as st

ONE = Survival(clusters=1)


def surveyed(fleet: Plan, of_fleet: Survival | None = ONE) -> Survey:
    return survey(fleet, Options(), of_fleet)


def only(found: Survey) -> Shortfall:
    (shortfall,) = found.shortfalls
    return shortfall


def test_nothing_is_tried_where_nothing_has_to_be_survived() -> None:
    fleet = planned(cluster("a", gpu=1), deployment("one", 1), service("one", "one"))
    assert surveyed(fleet, None) == Survey()


def test_a_service_survives_where_its_replica_finds_another_place() -> None:
    fleet = planned(cluster("a", gpu=1), cluster("b", gpu=1), deployment("one", 1), service("one", "one"))
    found = surveyed(fleet)
    assert (found.losses, found.tried, found.shortfalls) == (1, 1, ())


def test_a_loss_that_is_not_survived_is_named_with_the_reason_and_the_cheapest_addition() -> None:
    fleet = planned(
        cluster("a", gpu=1), cluster("b", gpu=1), deployment("one", 1), deployment("two", 1), service("one", "one")
    )
    found = only(surveyed(fleet))
    assert (found.lost, found.left) == (("a",), 0)
    assert str(found.remediation) == "1 more node of pool gpu on b"
    assert "ModelService team/one has no endpoint after a loss of a." in str(found)
    assert "team/one: 0 of 1 replicas scheduled" in str(found)
    assert str(found).endswith(
        "1 more node of pool gpu on b would fix it (the fewest nodes that do, as prices are not known)"
    )


def test_the_clusters_that_could_take_it_are_the_first_reasons() -> None:
    """Those that `clusterSelector` leaves out decide nothing, and are first by their names."""
    fleet = planned(
        cluster("a", gpu=1),
        cluster("aa", "east", gpu=1),
        cluster("ab", "north", gpu=1),
        cluster("b", gpu=0),
        deployment("one", 1, "west"),
        service("one", "one"),
    )
    assert only(surveyed(fleet)).why == [
        "team/one: 0 of 1 replicas scheduled (checked 1 cluster); "
        "pool gpu on b: 0 of 0 gpu free, at most 0 on one node, engine needs 1 pod with 1 gpu; "
        "aa: label region is east, clusterSelector asks for west; and 1 more"
    ]


def priced(**prices: str) -> list[api.Resource]:
    """A class for each cluster of this name, with the price of a node; empty for one that is not known."""
    return [
        resource("InferenceClass", name, {**api.wire(CLASS)["spec"], **({"pricing": pricing(price)} if price else {})})
        for name, price in prices.items()
    ]


def pricing(price: str) -> dict[str, str]:
    return {"currency": "USD", "asOf": "2026-11-01", "onDemand": price}


def of_own_class(name: str, nodes: int) -> api.Resource:
    written = api.wire(cluster(name, gpu=nodes), set_only=True)
    written["spec"]["nodePools"][0]["className"] = name
    return api.parse(written)


@pytest.mark.parametrize(
    ("prices", "fixes"),
    [
        ({"a": "3", "b": "5.00", "c": "2.50"}, "1 more node of pool gpu on c would fix it, for 2.50 USD per hour"),
        ({"a": "3", "b": "2", "c": "2.50"}, "1 more node of pool gpu on b would fix it, for 2.00 USD per hour"),
        # A price that is not known is not a low one.
        (
            {"a": "3", "b": "", "c": "9"},
            "Another cluster like a, with 1 node in pool gpu would fix it, for 3.00 USD per hour",
        ),
        (
            {"a": "", "b": "", "c": "", "d": "1"},
            "1 more node of pool gpu on b would fix it (the fewest nodes that do, as its price is not known)",
        ),
    ],
)
def test_the_cheapest_addition_is_the_one_with_the_lowest_price(prices: dict[str, str], fixes: str) -> None:
    fleet = planned(
        *priced(**prices),
        *(of_own_class(name, 1) for name in "abc"),
        *(deployment(name, 1) for name in ("one", "three", "two")),
        service("one", "one"),
    )
    found = only(surveyed(fleet))
    assert found.lost == ("a",)
    assert found.fixes == fixes


def test_a_loss_that_lets_a_replica_preempt_is_tried() -> None:
    """Spread holds back the second replica of high, until the cluster without nodes is lost."""
    spread = [{"topologyKey": "region", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]
    fleet = planned(
        cluster("a", "west", gpu=2),
        cluster("b", "east", gpu=0),
        deployment("high", 2, priority=5, spread=spread, preemption="LowerPriority"),
        deployment("low", 1),
        service("low", "low"),
    )
    found = only(surveyed(fleet))
    assert (found.lost, found.losses, found.left) == (("a",), 2, 0)


def test_replicas_that_preempt_survive_in_the_place_of_others_which_do_not() -> None:
    fleet = planned(
        cluster("a", gpu=1),
        cluster("b", gpu=1),
        deployment("high", 1, priority=5, preemption="LowerPriority"),
        deployment("low", 1),
        service("high", "high"),
        service("low", "low"),
    )
    found = only(surveyed(fleet))
    assert (found.requirement.name, found.lost, found.losses) == ("low", ("a",), 2)
    assert "team/low on b: preempted by team/high, which has a higher priority" in str(found)
    assert str(found.remediation) == "another cluster like a, with 1 node in pool gpu"
    never = planned(*(each for each in _resources(fleet)), deployment("high", 1, priority=5))
    assert {each.requirement.name for each in surveyed(never).shortfalls} == {"high", "low"}


def _resources(fleet: Plan) -> list[api.Resource]:
    known = fleet.context.fleet
    return [*known.clusters.values(), *known.deployments.values(), *known.services.values()]


def test_each_label_needs_its_replicas_while_a_cluster_with_it_is_left() -> None:
    clusters = (cluster("a", gpu=2), cluster("b", gpu=1), cluster("c", "east", gpu=2))
    required = [{"topologyKey": "region", "replicas": 2}]
    fleet = planned(*clusters, deployment("one", 4, minAvailable=required), service("one", "one"))
    found = only(surveyed(fleet))
    assert (found.requirement.label, found.lost) == ("region=west", ("a",))
    assert "ModelDeployment team/one has 1 of 2 replicas on clusters with region=west after a loss of a" in str(found)
    # All of the east is lost with c, and has no cluster left on which replicas could be.
    assert {each.label for each in surveyed(fleet).requirements} == {"", "region=east", "region=west"}
    wider = planned(*clusters, cluster("d", gpu=2), deployment("one", 4, minAvailable=required), service("one", "one"))
    assert surveyed(wider).shortfalls == ()


def test_replicas_on_hardware_that_is_there_are_cheaper_than_hardware() -> None:
    fleet = planned(
        cluster("a", gpu=2),
        cluster("b", gpu=1),
        deployment("high", 1, priority=5),
        deployment("low", 1),
        service("low", "low"),
    )
    found = only(surveyed(fleet))
    assert found.lost == ("a",)
    assert str(found.remediation) == "1 more replica of team/low"


def test_another_cluster_is_proposed_where_no_pool_could_take_it() -> None:
    fleet = planned(
        cluster("a", gpu=1), cluster("b", "east", gpu=1), deployment("one", 1, "west"), service("one", "one")
    )
    assert str(only(surveyed(fleet)).remediation) == "another cluster like a, with 1 node in pool gpu"


def test_an_endpoint_outside_of_the_fleet_survives_every_loss() -> None:
    fleet = planned(cluster("a", gpu=1), deployment("one", 1), service("one", "one"), provider("one"))
    assert surveyed(fleet) == Survey(surveyed(fleet).requirements, 0, 0, ())


def test_a_service_that_has_no_endpoint_at_all_is_named() -> None:
    fleet = planned(cluster("a", gpu=0), deployment("one", 1), service("one", "one"))
    found = only(surveyed(fleet))
    assert found.lost == ()
    assert "ModelService team/one has no endpoint even without a loss" in str(found)
    assert found.fixes == (
        "1 more node of pool gpu on a would fix it as long as nothing is lost (the fewest nodes that do, as prices "
        "are not known), not after a loss of a. Nothing was found that would do both"
    )


def test_more_replicas_that_do_without_a_loss_are_named_where_nothing_does_more() -> None:
    deployments = (deployment("one", 1, available=2), service("one", "one"))
    found = only(surveyed(planned(cluster("a", gpu=1), cluster("b", gpu=1), *deployments)))
    assert str(found) == (
        "ModelDeployment team/one has 1 of 2 replicas even without a loss. team/one: replicas is 1, and none is "
        "pending. 1 more replica of team/one would fix it as long as nothing is lost, not after a loss of a. "
        "Nothing was found that would do both"
    )
    roomy = only(surveyed(planned(cluster("a", gpu=2), cluster("b", gpu=2), *deployments)))
    assert roomy.fixes == "1 more replica of team/one would fix it"


def test_the_field_of_a_service_wins_and_says_what_is_only_a_warning() -> None:
    fleet = planned(
        cluster("a", gpu=2),
        deployment("one", 1),
        deployment("two", 1),
        service("one", "one", survive={"whenUnsatisfiable": "Warn"}),
        service("two", "two"),
    )
    assert {each.requirement.name: each.requirement.is_fatal for each in surveyed(fleet).shortfalls} == {
        "one": False,
        "two": True,
    }
    assert [each.requirement.name for each in surveyed(fleet, None).shortfalls] == ["one"]


def test_two_clusters_are_lost_in_pairs_with_every_other_one() -> None:
    fleet = planned(*(cluster(name, gpu=1) for name in "abcd"), deployment("one", 1), service("one", "one"))
    found = surveyed(fleet, Survival(clusters=2))
    assert (found.losses, found.shortfalls) == (4, ())
    full = planned(
        cluster("a", gpu=1), cluster("b", gpu=1), cluster("c", gpu=1), deployment("one", 1), deployment("x", 1),
        service("one", "one"),
    )  # fmt: skip
    lost = only(surveyed(full, Survival(clusters=2)))
    assert (lost.lost, lost.losses) == (("a", "c"), 1)


def test_a_deployment_below_what_is_required_is_named() -> None:
    clusters = cluster("a", gpu=1), cluster("b", gpu=1)
    found = only(surveyed(planned(*clusters, deployment("one", 2, available=2), service("one", "one"))))
    assert str(found).startswith(
        "ModelDeployment team/one has 1 of 2 replicas after a loss of a, the first of 2 such losses"
    )
    fleet = planned(*clusters, deployment("one", 2, available=1), service("one", "one"))
    assert surveyed(fleet).shortfalls == ()


def test_losses_that_are_left_out_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survival, "MOST_LOSSES", 1)
    fleet = planned(*(cluster(name, gpu=1) for name in "abcd"), deployment("one", 1), service("one", "one"))
    found = surveyed(fleet, Survival(clusters=2))
    assert found.left_out.startswith("1 of 4 losses that services have to survive were tried")


def brute(fleet: Plan, lost: tuple[str, ...]) -> dict[str, int]:
    """Usable endpoints of each service after a loss, by a plan of the whole fleet."""
    after, __ = without(everything_runs(fleet, Options()), Loss(frozenset(lost)))
    after = after.after(after.schedule())
    return {key[1]: len(found) for key, found in usable_endpoints(after, after.resources.values()).items()}


@given(
    st.lists(st.integers(0, 3), min_size=2, max_size=4),
    st.lists(st.tuples(st.integers(1, 3), st.integers(0, 2), st.booleans()), min_size=1, max_size=4),
    st.integers(1, 2),
)
def test_the_losses_that_are_found_are_those_of_all_plans(
    nodes: list[int], asked: list[tuple[int, int, bool]], most: int
) -> None:
    """No loss that is left out, as it could not matter, leaves a service without an endpoint."""
    names = [f"c{number}" for number in range(len(nodes))]
    fleet = planned(
        *(cluster(name, gpu=number) for name, number in zip(names, nodes, strict=True)),
        *(
            deployment(f"d{at}", replicas, priority=rank, preemption="LowerPriority" if preempts else "Never")
            for at, (replicas, rank, preempts) in enumerate(asked)
        ),
        *(service(f"d{at}", f"d{at}") for at in range(len(asked))),
    )
    unmet = {
        name
        for size in range(most + 1)
        for lost in itertools.combinations(names, size)
        for name, left in brute(fleet, lost).items()
        if not left
    }
    assert {each.requirement.name for each in surveyed(fleet, Survival(clusters=most)).shortfalls} == unmet


@given(fleets.clusters(), fleets.deployments())
def test_placing_what_is_missing_alone_is_what_a_plan_of_all_would_place(clusters: list, deployments: list) -> None:
    for options in fleets.OPTIONS:
        decided = schedule(deployments, clusters, (), options)
        for lost in clusters:
            alone, of_all = placed_after(lost, clusters, deployments, decided, options)
            assert alone == of_all


# Of the second, claims cannot be limited to a kind of device, as nothing separates the two kinds.
@pytest.mark.parametrize(("memory", "is_bound"), [("80Gi", False), ("24Gi", True)])
@pytest.mark.parametrize(("search", "expected"), [("Exact", [("d0", "c1", 0)]), ("Greedy", [])])
def test_what_is_missing_finds_no_place_that_greedy_does_not_see(
    search: Search, expected: list[tuple[str, str, int]], memory: str, is_bound: bool
) -> None:
    """On each node of c1, three pods have a device of the first kind. One is left, and two are of the second kind:
    `Greedy` only asks for two of the first, and never gives those that run any of the second."""
    kinds = fleets.gpu("24Gi", 4), fleets.gpu(memory, 2, name="big")
    small = fleets.cluster("c0", fleets.pool("gpu", 1, fleets.gpu("24Gi", 2)))
    clusters = [small, fleets.cluster("c1", fleets.pool("gpu", 4, *kinds))]
    deployments = [
        fleets.deployment("d0", 1, fleets.standalone(fleets.ask(2))),
        fleets.deployment("d1", 1, fleets.gang(3, copies=3)),
    ]
    options = Options("Devices", search)
    decided = schedule(deployments, clusters, (), options)
    assert fleets.where(decided) == [("d0", "c0", 0), ("d1", "c1", 0)]
    decided = bind(decided, clusters, (), options) if is_bound else decided
    assert placed_after(small, clusters, deployments, decided, options) == (expected, expected)


def placed_after(
    lost: Cluster, clusters: list[Cluster], deployments: list[Deployment], decided: Schedule, options: Options
) -> tuple[list[tuple[str, str, int]], list[tuple[str, str, int]]]:
    """Return the new places of deployments that lose replicas with a cluster: of these alone, and in a plan of all."""
    running = tuple(fleets.replicas_of(decided))
    whole = Scenario(Context(Fleet()), tuple(deployments), tuple(clusters), running, {}, options)
    after, displaced = without(whole, Loss(frozenset([lost.name])))
    keys = {(each.replica.namespace, each.replica.deployment) for each in displaced}
    return new(after.schedule_missing(keys), keys), new(after.schedule(), keys)


def new(decided: Schedule, keys: set[tuple[str, str]]) -> list[tuple[str, str, int]]:
    return [
        (each.deployment, each.cluster, each.index)
        for each in decided.placements
        if each.state == "new" and (each.namespace, each.deployment) in keys
    ]
