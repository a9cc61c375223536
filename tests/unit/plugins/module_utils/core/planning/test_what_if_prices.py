# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Questions about prices: what a fleet costs then, who is placed elsewhere, and who is refused by a ceiling."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output import what_if as output
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output.cost import limit_notes
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning import Plan, plan
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning.question import (
    QuestionError,
    read_question,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning.scenario import planned as everything_runs
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning.what_if import Answer, answer
from ansible_collections.modelplane.fleet.plugins.module_utils.core.pricing import Catalogue
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import Options
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.planning.asked_fleet import (
    CLASS,
    deployment,
    moves,
    resource,
)


def node_class(name: str, price: str = "", currency: str = "USD") -> api.Resource:
    spec = api.wire(CLASS)["spec"]
    pricing = {"pricing": {"currency": currency, "asOf": "2026-11-01", "onDemand": price}} if price else {}
    return resource("InferenceClass", name, {**spec, **pricing})


def cluster(name: str, nodes: int) -> api.Resource:
    """A cluster with one pool, whose class has the name of the cluster."""
    source = {"source": "Existing", "existing": {"secretRef": {"name": name}}}
    pool = {"name": "gpu", "className": name, "nodeCount": nodes}
    return resource("InferenceCluster", name, {"cluster": source, "nodePools": [pool]})


def limited(name: str, replicas: int, **cost: Any) -> api.Resource:
    written = api.wire(deployment(name, replicas))
    return api.parse({**written, "spec": {**written["spec"], "cost": cost}})


FLEET = (node_class("a", "1.00"), node_class("b", "2.00"), cluster("a", 3), cluster("b", 3))


def ask(fleet: Plan, question: Any, catalogue: Catalogue | None = None) -> Answer:
    return answer(fleet, read_question(question), Options(), None, catalogue)


def ran(fleet: Plan, resources: tuple[api.Resource, ...]) -> Plan:
    """The fleet in the next run, in which all that was planned runs."""
    return plan(resources, fleet.replicas)


def test_what_runs_stays_whatever_it_costs_and_the_difference_is_shown() -> None:
    resources = (*FLEET, limited("cheap", 2))
    fleet = ran(plan(resources), resources)
    found = ask(fleet, {"price": {"a": {"onDemand": 12.5}}})
    assert not found.moves
    written = api.wire(output.document(found))
    assert (written["costBefore"]["perHour"], written["cost"]["perHour"]) == ("9.0000", "43.5000")
    table = "\n".join(output.table(found))
    assert "a node of InferenceClass a costs 12.5 per hour on demand" in table
    assert "Every replica stays where it is." in table
    assert table.split()[table.split().index("team/cheap") :][:5] == ["team/cheap", "-", "25.00", "18,250.00", "+23.00"]
    assert [each["perHour"] for each in api.wire(output.document(found))["costBefore"]["deployments"]] == ["2.0000"]


def test_what_does_not_run_yet_is_placed_by_the_prices_of_the_question_and_the_plan_stays() -> None:
    resources = (*FLEET, limited("cheap", 2), deployment("even", 2))
    fleet = plan(resources)
    before = fleet.schedule
    found = ask(fleet, "{price: {a: {onDemand: 9}}}")
    assert moves(found) == [("cheap", "a", "b"), ("cheap", "a", "b")]
    assert "decide on its place" in found.moves[0].reason
    # It is the plan of the same manifests with these prices.
    dear = plan((node_class("a", "9"), *FLEET[1:], *resources[4:]))
    placed = sorted((each.deployment, each.cluster) for each in found.after.running)
    assert placed == sorted((each.deployment, each.cluster) for each in dear.schedule.placements)
    assert fleet.schedule is before
    assert str(fleet.context.prices.node_price(*_pool(fleet, "a")).per_hour) == "1.00"  # type: ignore[union-attr]


def _pool(fleet: Plan, name: str) -> tuple[Any, Any]:
    found = fleet.context.fleet.clusters[name]
    return found, (found.spec.node_pools or ())[0]


def test_a_ceiling_refuses_what_is_new_and_names_what_runs_above_it() -> None:
    resources = (*FLEET, limited("capped", 2, ceilingPerHour="3.00"))
    new = ask(plan(resources), {"price": {"a": {"onDemand": 2}}})
    (pending,) = new.pending
    assert (pending.deployment, pending.count) == ("capped", 1)
    assert "2.00 USD per hour there, and 2.00 USD of the 3.00 USD of spec.cost.ceilingPerHour" in str(pending.refusals)
    running = ask(ran(plan(resources), resources), {"price": {"a": {"onDemand": 2}}})
    assert not running.pending
    assert not running.moves
    assert [str(each) for each in running.over] == [
        "team/capped costs 4.00 USD per hour, more than the 3.00 USD of its spec.cost.ceilingPerHour: what runs stays, "
        "and no more of its replicas are placed"
    ]
    assert output.summary_text(running) == "0 replicas move, 1 deployment over the ceiling"
    assert "Over the ceiling" in output.table(running)
    (document,) = api.wire(output.document(running))["overCeiling"]
    assert document == {
        "namespace": "team", "name": "capped", "perHour": "4.0000", "ceilingPerHour": "3.0000", "currency": "USD",
    }  # fmt: skip
    assert not ask(ran(plan(resources), resources), {"price": {"a": {"onDemand": "1.5"}}}).over


def test_a_lower_price_places_what_a_ceiling_keeps_out() -> None:
    resources = (*FLEET, limited("capped", 2, ceilingPerHour="1.00"))
    found = ask(plan(resources), {"price": {"b": {"onDemand": 0.5}}})
    assert moves(found) == [("capped", "a", "b"), ("capped", "", "b")]


def test_the_page_has_what_is_used_of_limits() -> None:
    resources = (
        *FLEET,
        limited("capped", 2, ceilingPerHour="3.00", spot={"max": 1}),
        limited("free", 1),
        deployment("even", 1),
    )
    found = plan(resources)
    assert limit_notes(found.deployments, found.clusters, everything_runs(found, Options()).running) == {
        "team/capped": ("replicas cost 2.00 of 3.00 USD per hour at most", "0 replicas on spot nodes, 1 at most"),
        "team/free": (),
    }


def test_prices_are_asked_together_with_a_loss_and_more_replicas() -> None:
    resources = (*FLEET, limited("cheap", 2))
    fleet = ran(plan(resources), resources)
    found = ask(fleet, {"price": {"b": {"onDemand": 7}}, "lose": ["a"], "scale": {"team/cheap": 3}})
    assert moves(found) == [("cheap", "a", "b"), ("cheap", "a", "b"), ("cheap", "", "b")]
    assert api.wire(output.document(found))["cost"]["perHour"] == "21.0000"


def test_an_asked_price_wins_in_every_zone_and_only_for_its_purchase_option() -> None:
    local = api.wire(FLEET[0])
    local["spec"]["pricing"]["locations"] = [{"region": "eu", "onDemand": "4.00"}]
    fleet = plan((api.parse(local), *FLEET[1:], limited("cheap", 1)))
    assert api.wire(output.document(ask(fleet, {"price": {"a": {"onDemand": 3}}})))["cost"]["perHour"] == "15.0000"
    assert api.wire(output.document(ask(fleet, {"price": {"a": {"spot": 3}}})))["cost"]["perHour"] == "9.0000"


def test_a_catalogue_takes_the_place_of_the_one_of_the_fleet() -> None:
    old = Catalogue(currency="USD", prices=[])
    fleet = plan((*FLEET, limited("cheap", 1)), catalogue=old)
    new = Catalogue(currency="USD", prices=[])
    found = ask(fleet, {"prices": "new.yaml"}, new)
    assert found.after.context.catalogue is new
    assert fleet.context.catalogue is old
    assert "    prices are those of new.yaml" in output.table(found)


@pytest.mark.parametrize(
    ("classes", "question", "says"),
    [
        (FLEET, {"price": {"aa": {"spot": 1}}}, "the fleet has no InferenceClass aa. Did you mean a?"),
        (
            FLEET,
            {"price": {"a": {"spot": 1, "currency": "EUR"}}},
            'price["a"].currency: prices in EUR cannot be compared with those of the fleet, which are in USD',
        ),
        (FLEET, {"prices": "eur.yaml"}, "fleet_what_if.prices: prices in EUR cannot be compared"),
        (
            (node_class("a"), cluster("a", 1)),
            {"price": {"a": {"onDemand": 1}}},
            "fleet_what_if.price: the fleet knows no prices, and so no currency. Give it: currency: USD",
        ),
    ],
)
def test_prices_that_cannot_be_used_are_refused(classes: tuple[api.Resource, ...], question: Any, says: str) -> None:
    catalogue = Catalogue(currency="EUR", prices=[]) if "prices" in question else None
    with pytest.raises(QuestionError) as error:
        ask(plan(classes), question, catalogue)
    assert says in str(error.value)


def test_a_fleet_without_prices_is_asked_with_a_currency() -> None:
    fleet = plan((node_class("a"), cluster("a", 1)))
    found = ask(fleet, {"price": {"a": {"onDemand": 2, "currency": "EUR"}}})
    written = api.wire(output.document(found))
    assert "costBefore" not in written
    assert (written["cost"]["currency"], written["cost"]["perHour"]) == ("EUR", "2.0000")
