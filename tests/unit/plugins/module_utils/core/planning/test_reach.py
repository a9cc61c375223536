# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Losses of clusters that run gateways in mode Model: what is left of the ways to services."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api, names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.model_service import Survival
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output import what_if as output
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning import Plan, plan
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning.question import read_question
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning.survival import Survey, survey
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning.what_if import Added, Answer, answer
from ansible_collections.modelplane.fleet.plugins.module_utils.core.problem import Ref
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import Options
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.planning.asked_fleet import (
    CLASS,
    cluster,
    deployment,
    planned,
    provider,
    resource,
    service,
)

PATH = resource("InferenceGateway", "default", {"backend": "Traefik", "traefik": {"version": "40.2.0"}})


def gateway(name: str, where: str, **labels: str) -> api.Resource:
    selector = {"serviceSelector": {"matchLabels": labels}} if labels else {}
    return resource("InferenceGateway", name, {"clusterName": where, **selector})


def labelled(name: str, behind: str, **labels: str) -> api.Resource:
    endpoints = [{"selector": {"matchLabels": {"modelplane.ai/deployment": behind}}}]
    return resource("ModelService", name, {"endpoints": endpoints}, namespace="team", labels=labels)


def fleet(*more: api.Resource) -> Sequence[api.Resource]:
    """A service with a replica on each of two clusters, and two clusters without nodes, for gateways."""
    places = [cluster("a", gpu=1), cluster("b", gpu=1), cluster("hub"), cluster("rim")]
    return [*places, deployment("one", 2), service("one", "one"), *more]


def ask(made: Plan, lose: Sequence[str], *added: api.Resource) -> Answer:
    known = [*fleet(), *made.context.fleet.model_gateways, *added]
    return answer(made, read_question({"lose": list(lose)}), Options(), Added([CLASS, *known]) if added else None)


def surveyed(made: Plan, clusters: int = 1) -> Survey:
    return survey(made, Options(), Survival(clusters=clusters))


def of_gateways(found: Survey) -> list[str]:
    return [str(each) for each in found.shortfalls if each.requirement.kind == "gateway"]


def test_a_lost_cluster_takes_the_only_gateway_of_a_service_though_all_replicas_stay() -> None:
    found = ask(planned(*fleet(gateway("eu", "hub"))), ["hub"])
    assert (found.moves, found.services) == ((), ())
    text = "\n".join(output.table(found))
    assert "LOST GATEWAY  CLUSTER  SERVICES\neu            hub      1\n" in text
    assert "    no gateway is left, so that clients get no answer: team/one" in text
    assert output.summary_text(found) == "0 replicas move, 1 service without a gateway"
    written = api.wire(output.document(found))
    assert written["lostGateways"] == [{"name": "eu", "cluster": "hub"}]
    assert written["reach"] == [
        {"namespace": "team", "name": "one", "lost": ["eu"], "left": [], "hasPath": False, "reached": False}
    ]
    assert written["summary"]["servicesWithoutGateway"] == 1


@pytest.mark.parametrize(
    ("more", "left"),
    [
        (gateway("us", "rim"), "us on rim"),
        (PATH, "the gateway in mode Path"),
    ],
)
def test_other_gateways_that_serve_a_service_are_named(more: api.Resource, left: str) -> None:
    found = ask(planned(*fleet(gateway("eu", "hub"), more)), ["hub"])
    assert f"    still served by {left}: team/one" in output.table(found)
    assert output.summary(found).services_without_gateway == 0


def test_a_gateway_that_selects_other_services_is_no_way_to_one() -> None:
    more = [gateway("us", "rim", tier="gold"), labelled("best", "one", tier="gold")]
    found = ask(planned(*fleet(gateway("eu", "hub"), *more)), ["hub"])
    assert output.table(found)[-3:] == [
        "eu            hub      2",
        "    no gateway is left, so that clients get no answer: team/one",
        "    still served by us on rim: team/best",
    ]


def test_a_gateway_that_is_not_made_is_no_way_to_a_service() -> None:
    """A cluster runs one, and one that is not in the fleet none."""
    found = ask(planned(*fleet(gateway("a", "hub"), gateway("b", "hub"), gateway("c", "nowhere"))), ["hub"])
    assert found.gateways
    assert (dict(found.gateways.clusters), len(found.gateways.cut_off)) == ({"a": "hub"}, 1)


def test_a_gateway_that_a_question_adds_is_a_way() -> None:
    made = planned(*fleet(gateway("eu", "hub")))
    found = ask(made, ["hub"], gateway("us", "rim"))
    assert "    still served by us on rim: team/one" in output.table(found)


def test_without_a_loss_of_a_gateway_nothing_is_shown_of_them() -> None:
    found = ask(planned(*fleet(gateway("eu", "hub"))), ["a"])
    assert not [line for line in output.table(found) if "GATEWAY" in line or "gateway" in line]
    written = api.wire(output.document(found))
    assert (written["lostGateways"], written["reach"]) == ([], [])


@pytest.mark.parametrize("gateways", [(), (PATH,)])
def test_a_fleet_without_a_gateway_in_mode_model_is_answered_as_before(gateways: tuple[api.Resource, ...]) -> None:
    made = planned(*fleet(*gateways))
    written = api.wire(output.document(ask(made, ["hub"])))
    assert not {"lostGateways", "reach"} & set(written)
    assert "servicesWithoutGateway" not in written["summary"]
    found = surveyed(made)
    assert {each.kind for each in found.requirements} == {"service"}
    assert not found.shortfalls


def test_a_service_does_not_survive_the_loss_of_its_only_gateway() -> None:
    found = surveyed(planned(*fleet(gateway("eu", "hub"))))
    assert of_gateways(found) == [
        "ModelService team/one has no gateway after a loss of hub. Only InferenceGateway eu on hub serves it. An "
        "InferenceGateway on another cluster whose serviceSelector matches its labels would fix it"
    ]
    assert len(found.shortfalls) == 1
    assert found.shortfalls[0].requirement.is_fatal


def test_two_gateways_survive_a_loss_of_one_cluster_and_not_of_two() -> None:
    made = planned(*fleet(gateway("eu", "hub"), gateway("us", "rim")))
    assert of_gateways(surveyed(made)) == []
    assert of_gateways(surveyed(made, 2)) == [
        "ModelService team/one has no gateway after a loss of hub and rim. Only InferenceGateway eu on hub, us on rim "
        "serve it. An InferenceGateway on another cluster whose serviceSelector matches its labels would fix it"
    ]
    assert of_gateways(surveyed(planned(*fleet(gateway("eu", "hub"), gateway("us", "rim"), PATH)), 2)) == []


def test_a_service_that_no_gateway_serves_does_not_survive_even_without_a_loss() -> None:
    found = surveyed(planned(*fleet(gateway("eu", "hub", tier="gold"))))
    assert of_gateways(found) == [
        "ModelService team/one has no gateway even without a loss. No InferenceGateway of the fleet serves it. An "
        "InferenceGateway on a cluster of the fleet whose serviceSelector matches its labels would fix it"
    ]


def test_endpoints_and_gateways_of_a_service_are_two_verdicts() -> None:
    places = [cluster("a", gpu=1), cluster("hub")]
    made = planned(*places, deployment("one", 1), service("one", "one"), gateway("eu", "a"))
    assert [(each.requirement.kind, each.lost) for each in surveyed(made).shortfalls] == [
        ("service", ("a",)),
        ("gateway", ("a",)),
    ]


def test_replicas_that_preempt_restore_no_gateway() -> None:
    places = [cluster("a", gpu=1), cluster("b", gpu=1)]
    owners = [deployment("low", 1), deployment("top", 1, priority=9, preemption="LowerPriority")]
    made = planned(*places, *owners, service("top", "top"), gateway("eu", "a"), gateway("us", "b", tier="gold"))
    (top,) = (each.cluster for each in made.running if each.deployment == "top")
    assert top == "a", "the loss of the gateway's cluster makes the replica take another place"
    assert [each.requirement.kind for each in surveyed(made).shortfalls] == ["gateway"]


def test_a_gateway_whose_manifest_has_errors_still_serves_what_it_served() -> None:
    outside = provider("one")
    made = planned(*fleet(gateway("eu", "hub"), gateway("us", "rim"), outside))
    composed = [(place, value) for place in ("hub", "rim") for value in made.workloads[place]]

    def earlier(ref: Ref) -> Sequence[tuple[str, Object]]:
        owner = {"ModelService": names.SERVICE_LABEL, "InferenceGateway": names.GATEWAY_LABEL}.get(ref.kind, "")
        return [each for each in composed if each[1]["metadata"].get("labels", {}).get(owner) == ref.name]

    routes = [value for place, value in earlier(Ref("ModelService", "team", "one")) if place == "rim"]
    assert "AIGatewayRoute" in {value["kind"] for value in routes}
    held = plan(
        [CLASS, *fleet(gateway("eu", "hub"), outside)], invalid=[Ref("InferenceGateway", "", "us")], earlier=earlier
    )
    assert "    still served by us on rim: team/one" in output.table(ask(held, ["hub"]))
    assert of_gateways(surveyed(held)) == []


def drained(name: str) -> api.Resource:
    return resource(
        "InferenceCluster",
        name,
        {
            "cluster": {"source": "Existing", "existing": {"secretRef": {"name": name}}},
            "taints": [{"key": names.DRAIN_TAINT, "effect": "NoExecute"}],
        },
    )


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ((), "Before the cluster goes, have another InferenceGateway elsewhere for team/one"),
        ((gateway("us", "rim"),), "Its services have other gateways"),
        ((gateway("us", "rim", tier="gold"), PATH), "Its services have other gateways"),
    ],
)
def test_a_plan_says_that_a_gateway_stays_on_a_cluster_that_is_drained(
    more: tuple[api.Resource, ...], what: str
) -> None:
    left = [each for each in fleet(gateway("eu", "hub"), *more) if each.name != "hub"]
    assert planned(*left, drained("hub")).warnings == (
        f"cluster hub is drained of replicas, and InferenceGateway eu stays on it. {what}",
    )
    assert planned(*fleet(gateway("eu", "hub"), *more)).warnings == ()


def test_gateways_on_drained_clusters_do_not_replace_each_other() -> None:
    left = [each for each in fleet(gateway("eu", "hub"), gateway("us", "rim")) if each.name not in ("hub", "rim")]
    found = planned(*left, drained("hub"), drained("rim")).warnings
    assert [each.endswith("have another InferenceGateway elsewhere for team/one") for each in found] == [True, True]
