# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Questions about a planned fleet, and their answers."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output import what_if as output
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning.question import (
    QuestionError,
    read_question,
    read_survival,
)
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.planning.asked_fleet import (
    as_text,
    ask,
    cluster,
    deployment,
    moves,
    numbers,
    planned,
    resource,
    service,
)


def test_replicas_of_a_lost_cluster_are_placed_elsewhere_and_all_else_stays() -> None:
    fleet = planned(
        cluster("a", gpu=2), cluster("b", gpu=3), deployment("one", 2), deployment("two", 1), service("one", "one")
    )
    found = ask(fleet, {"lose": ["a"]})
    assert sorted(moves(found)) == [("one", "a", "b"), ("two", "a", "b")]
    assert numbers(found.deployments) == {"one": (2, 1, 2), "two": (1, 0, 1)}
    assert numbers(found.services) == {"one": (2, 1, 2)}
    assert not found.pending


def test_replicas_that_a_question_places_are_those_that_a_plan_would_have() -> None:
    gateway = resource("InferenceGateway", "eu", {"clusterName": "b"})
    rest = [cluster("b", gpu=1), deployment("one", 1), service("one", "one"), gateway]
    found = ask(planned(cluster("a", gpu=1), *rest), {"lose": ["a"]})
    (expected,) = planned(*rest).replicas
    assert found.after.resources == {("team", expected.name): expected}
    (variable,) = expected.spec.engines[0].members[0].template.spec.containers[0].env or ()
    assert (variable.name, variable.value) == ("MODELPLANE_SERVED_MODEL_NAME", "team/one")


def test_a_service_may_select_the_endpoints_of_a_region() -> None:
    def there(name: str, region: str) -> api.Resource:
        wire = api.wire(cluster(name, gpu=1))
        return api.parse({**wire, "spec": {**wire["spec"], "placement": {"metadata": {"labels": {"where": region}}}}})

    endpoints = [{"selector": {"matchLabels": {"where": "here"}}}]
    local = resource("ModelService", "local", {"endpoints": endpoints}, namespace="team")
    fleet = planned(there("a", "here"), there("b", "far"), there("c", "here"), deployment("one", 2), local)
    assert numbers(ask(fleet, {"lose": ["b"]}).services) == {"local": (1, 1, 2)}


def test_what_finds_no_place_is_refused_with_the_reason_in_the_order_of_priority() -> None:
    fleet = planned(cluster("a", gpu=2), cluster("b", gpu=1), deployment("late", 1), deployment("first", 1, priority=5))
    found = ask(fleet, {"lose": "a"})
    assert moves(found) == [("first", "a", "b"), ("late", "a", "")]
    (pending,) = found.pending
    assert (pending.deployment, pending.count, pending.reason) == ("late", 1, "InsufficientCapacity")
    assert "0 of 1 gpu free" in pending.refusals[0].reason


def test_a_service_without_another_endpoint_is_said_to_have_none() -> None:
    fleet = planned(cluster("a", gpu=1), deployment("one", 1), service("one", "one"))
    found = ask(fleet, {"lose": ["a"]})
    assert numbers(found.services) == {"one": (1, 0, 0)}
    assert "    no endpoint is usable" in output.table(found)
    assert output.summary(found).services_without_endpoint == 1
    assert (
        output.summary_text(found) == "0 replicas move, 1 gone, 1 without a place, 1 service without a usable endpoint"
    )


def test_pools_and_regions_are_lost_by_name_and_label() -> None:
    fleet = planned(
        cluster("a", gpu=1, more=1), cluster("b", "east", gpu=1, more=1), cluster("c", gpu=4), deployment("one", 6)
    )
    of_pool = ask(fleet, {"lose": [{"cluster": "a", "pool": "gpu"}]})
    assert dict(of_pool.lost.nodes) == {("a", "gpu"): 1}
    assert moves(of_pool) == [("one", "a", "c")]
    assert dict(ask(fleet, {"lose": [{"pool": "gpu"}]}).lost.nodes) == {
        ("a", "gpu"): 1,
        ("b", "gpu"): 1,
        ("c", "gpu"): 4,
    }
    by_name = ask(fleet, {"lose": [{"matchLabels": {"modelplane.ai/cluster": "b"}}]})
    assert by_name.lost.clusters == {"b"}
    by_label = ask(fleet, {"lose": [{"matchLabels": {"region": "west"}}]})
    assert by_label.lost.clusters == {"a", "c"}
    both = ask(fleet, {"lose": [{"matchLabels": {"region": "west"}, "pool": "more"}]})
    assert dict(both.lost.nodes) == {("a", "more"): 1}


@pytest.mark.parametrize(
    ("zones", "lost", "nodes"),
    [(["x"], ["x"], 5), (["x", "y"], ["x"], 3), (["x", "y"], ["x", "y"], 5), (["x", "y", "z"], ["y"], 2)],
)
def test_a_zone_takes_its_share_of_the_nodes_of_a_pool(zones: list[str], lost: list[str], nodes: int) -> None:
    fleet = planned(cluster("a", gpu=(5, zones)), cluster("b", gpu=2), deployment("one", 6))
    found = ask(fleet, {"lose": [{"zone": zone} for zone in lost]})
    assert dict(found.lost.nodes) == {("a", "gpu"): nodes}
    assert numbers(found.deployments).get("one", (6, 6, 6)) == (6, 6 - max(0, nodes - 1), min(6, 5 - nodes + 2))


def test_scaling_and_adding_are_asked_together_with_a_loss() -> None:
    fleet = planned(cluster("a", gpu=1), cluster("b", gpu=1), deployment("one", 1), deployment("two", 1))
    found = ask(
        fleet,
        {"lose": ["a"], "add": ["ignored.yaml"], "scale": {"team/one": 2, "team/three": 1}},
        cluster("c", gpu=3),
        deployment("three", 5),
    )
    assert moves(found) == [("one", "a", "c"), ("one", "", "c"), ("three", "", "c")]
    assert numbers(found.deployments) == {"one": (1, 0, 2), "three": (0, 0, 1)}
    less = ask(fleet, {"scale": {"team/one": 0}})
    assert moves(less) == [("one", "a", "")]
    assert less.moves[0].reason == "scaled down"
    assert output.summary(less).gone == 1


def test_an_answer_is_the_same_for_a_value_and_its_text() -> None:
    fleet = planned(cluster("a", gpu=1), cluster("b", gpu=1), deployment("one", 1))
    question = {"lose": ["a"]}
    assert ask(fleet, question) == ask(fleet, as_text(question)) == ask(fleet, "{lose: a}")


def test_nothing_that_changes_is_said_so() -> None:
    fleet = planned(cluster("a", gpu=1), cluster("b", gpu=1), deployment("one", 1))
    found = ask(fleet, {"lose": ["b"]})
    assert output.table(found) == ["What if", "    cluster b is lost", "", "Every replica stays where it is."]


def test_the_document_has_what_the_table_has() -> None:
    fleet = planned(cluster("a", gpu=2), cluster("b", gpu=1), deployment("one", 2, "west"), service("one", "one"))
    written = api.wire(output.document(ask(fleet, {"lose": ["b", {"cluster": "a", "pool": "gpu"}]})))
    assert written["schemaVersion"] == 1
    assert written["question"] == {"lose": [{"cluster": "b"}, {"cluster": "a", "pool": "gpu"}]}
    assert written["lostClusters"] == ["b"]
    assert written["lostPools"] == [{"cluster": "a", "pool": "gpu", "nodes": 2}]
    assert [move["fromCluster"] for move in written["moves"]] == ["a", "b"]
    assert not any("toCluster" in move for move in written["moves"])
    assert written["pending"][0]["replicas"] == 2
    assert written["services"] == [{"namespace": "team", "name": "one", "before": 2, "atOnce": 0, "after": 0}]
    assert written["summary"] == {
        "moved": 0,
        "placed": 0,
        "gone": 2,
        "pending": 2,
        "servicesWithoutEndpoint": 1,
        "overCeiling": 0,
    }
    assert "cost" not in written


@pytest.mark.parametrize(
    ("question", "says"),
    [
        (
            {"lose": ["west-on"]},
            "fleet_what_if.lose[0].cluster: the fleet has no cluster west-on. Did you mean west-one?",
        ),
        (
            {"lose": [{"cluster": "west-one", "pool": "gpus"}]},
            "lose[0].pool: no such cluster has a node pool gpus. Did you",
        ),
        ({"lose": [{"zone": "zone-b"}]}, "no such node pool is in the zone zone-b. Did you mean zone-a?"),
        ({"lose": [{"zone": "x", "cluster": "other"}]}, "no such node pool is in the zone x. There is none."),
        ({"lose": [{"matchLabels": {"regio": "west"}}]}, "no such cluster has a label regio. Did you mean region?"),
        ({"lose": [{"matchLabels": {"region": "wets"}}]}, "has the label region=wets. Did you mean west?"),
        (
            {"scale": {"team/on": 1}},
            'fleet_what_if.scale["team/on"]: the fleet has no ModelDeployment team/on. Did you mean team/one?',
        ),
    ],
)
def test_names_that_the_fleet_does_not_have_are_errors_with_the_nearest(question: Any, says: str) -> None:
    fleet = planned(cluster("west-one", gpu=(1, ["zone-a"])), cluster("other", gpu=1), deployment("one", 1))
    with pytest.raises(QuestionError) as error:
        ask(fleet, question)
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"loose": ["a"]}, "fleet_what_if.loose: Is not a known field. Did you mean lose?"),
        ({"prise": {"h100": 3}}, "fleet_what_if.prise: Is not a known field. Did you mean price?"),
        ({"price": {"h100": 3}}, 'fleet_what_if.price["h100"]: Must be a mapping, is a whole number (got 3).'),
        ({"price": {}}, "fleet_what_if.price: Must not be empty."),
        ({"price": {"h100": {"currency": "USD"}}}, 'price["h100"]: One of onDemand, spot and reserved must be given.'),
        ({"price": {"h100": {"ondemand": 3}}}, 'price["h100"].ondemand: Is not a known field. Did you mean onDemand?'),
        ({"price": {"h100": {"spot": -3}}}, 'price["h100"].spot: Must be an amount of zero or more'),
        ({"price": {"h100": {"spot": "-3"}}}, 'price["h100"].spot: Must be an amount of zero or more'),
        ({"price": {"h100": {"spot": True}}}, "spot: Must be an amount of zero or more, of up to 9 digits"),
        ({"price": {"h100": {"spot": float("inf")}}}, 'such as 12.34 (got "inf").'),
        ({"price": {"h100": {"spot": 10**30}}}, 'price["h100"].spot: Must be an amount of zero or more'),
        ({"price": {"h100": {"spot": 3, "currency": True}}}, "Must be text, is true or false (got true). It must be"),
        ({"price": {"h100": {"spot": 3, "currency": "usd"}}}, 'price["h100"].currency: Must be three capital'),
        ({"prices": ["a"]}, 'fleet_what_if.prices: Must be text, is a list. Write "a", without a list.'),
        ({"prices": float("inf")}, "Put it in quotes."),
        ({"lose": [{"clutser": "a"}]}, "fleet_what_if.lose[0].clutser: Is not a known field. Did you mean cluster?"),
        ({"lose": [{}]}, "fleet_what_if.lose[0]: Must not be empty."),
        *(
            ({"lose": ["a", each]}, "lose[1]: Must be the name of a cluster, or a mapping")
            for each in ("", 3, None, ["a"])
        ),
        ({"lose": []}, "fleet_what_if.lose: Must not be empty."),
        ({"scale": {"team/one": 1001}}, 'fleet_what_if.scale["team/one"]: Must be at most 1000 (got 1001).'),
        ({"scale": {"team/one": "two"}}, "Must be a whole number"),
        ({}, "fleet_what_if: Must not be empty."),
        ("{lose:", "fleet_what_if is no YAML"),
        ("", "fleet_what_if is no YAML"),
        ("a", "fleet_what_if must be a mapping"),
        (["a"], "fleet_what_if must be a mapping"),
    ],
)
def test_a_question_that_is_not_one_is_refused(given: Any, says: str) -> None:
    with pytest.raises(QuestionError) as error:
        read_question(given)
    assert says in str(error.value)


def test_a_number_that_no_document_can_hold_is_one_error() -> None:
    with pytest.raises(QuestionError) as error:
        read_question({"scale": {"ml/m": 10**20}})
    assert error.value.problems == ['fleet_what_if.scale["ml/m"]: Must be at most 1000.']


def test_all_names_that_the_fleet_does_not_have_are_reported_together() -> None:
    question = {
        "lose": ["wset", {"pool": "gpus"}],
        "scale": {"team/two": 2, "team/on": 1},
        "price": {"h10": {"spot": 1}},
    }
    with pytest.raises(QuestionError) as error:
        ask(planned(cluster("west", gpu=1), deployment("one", 1)), question)
    assert [each.partition(": the")[0].partition(": no")[0] for each in error.value.problems] == [
        'fleet_what_if.price["h10"]',
        'fleet_what_if.scale["team/on"]',
        'fleet_what_if.scale["team/two"]',
        "fleet_what_if.lose[0].cluster",
        "fleet_what_if.lose[1].pool",
    ]


def test_what_is_asked_twice_happens_once() -> None:
    asked = read_question({"add": ["a.yaml", "b.yaml", "a.yaml"], "lose": ["west", {"cluster": "west"}, "west"]})
    assert asked.parts == ["cluster west is lost", "a.yaml is added", "b.yaml is added"]


def test_what_a_fleet_survives_has_the_fields_of_a_service() -> None:
    assert read_survival("{clusters: 2, whenUnsatisfiable: Warn}") == read_survival(
        {"clusters": 2, "whenUnsatisfiable": "Warn"}
    )
    with pytest.raises(QuestionError, match=r"fleet_survive\.clusters: Must be at most 2"):
        read_survival({"clusters": 3})
