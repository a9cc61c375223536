# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Statuses of a fleet with gateways in mode Model, as its clusters come to know each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.caller_policy import BudgetStatus
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.model_gateway.callers import KeySecret
from ansible_collections.modelplane.fleet.plugins.module_utils.core.names import child_name, joined_name
from ansible_collections.modelplane.fleet.plugins.module_utils.core.observation import (
    Component,
    Observed,
    ObservedBudget,
    ObservedCluster,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output import plan as plan_output
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output.status import PolicyStatus
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output.status import status as fleet_status
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output.status_tables import tables
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning.statuses import statuses
from ansible_collections.modelplane.fleet.plugins.module_utils.core.problem import Ref
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.expected import expected
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object, Objects
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.directory import Changes
from ansible_collections.modelplane.fleet.tests.model_fleet import (
    SYSTEM,
    TEAM,
    Built,
    build,
    certificate,
    cluster,
    document,
    fleet,
    policy,
    provider,
    provider_entry,
    service,
)
from ansible_collections.modelplane.fleet.tests.model_fleet import (
    gateway as gateway_document,
)

ENVOY_ADDRESSES = {"eu": "198.51.100.1", "east": "198.51.100.2"}


def gateway(name: str, address: str, **labels: str) -> Object:
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "Gateway",
        "metadata": {"name": name, "namespace": SYSTEM, "labels": labels},
        "status": {
            "addresses": [{"type": "IPAddress", "value": address}],
            "conditions": [{"type": "Programmed", "status": "True"}],
        },
    }


def authority(name: str, text: str) -> Object:
    metadata = {"name": name, "namespace": SYSTEM}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"ca.crt": certificate(text)}}


EAST_REF = Ref("InferenceCluster", "", "east")


def new_east() -> list[dict[str, Any]]:
    """The fleet without cluster west, and with nothing known of cluster east."""
    east = cluster("east", "203.0.113.10")
    del east["status"]
    return [each for each in fleet(service(), east=east) if each["metadata"]["name"] != "west"]


OURS = {"modelplane.ai/gateway": "eu"}
HUB = [gateway("inference-gateway", ENVOY_ADDRESSES["eu"], **OURS), authority("inference-gateway-ca", "new clients")]
EAST = [gateway("cluster-gateway", ENVOY_ADDRESSES["east"]), authority("cluster-gateway-ca", "new east")]
ACCEPTED = {
    "apiVersion": "aigateway.envoyproxy.io/v1beta1",
    "kind": "AIGatewayRoute",
    "metadata": {"name": "chat", "namespace": TEAM},
    "status": {"conditions": [{"type": "Accepted", "status": "True"}]},
}


def seen(**clusters: list[Object]) -> Observed:
    return Observed(
        clusters={
            name: ObservedCluster(stack=Component(True), objects=Objects(objects)) for name, objects in clusters.items()
        }
    )


def shown(built: Built) -> dict[tuple[str, str], Mapping[str, Any]]:
    found = statuses(built.plan, "2026-01-01T00:00:00Z")
    return {(value["kind"], value["metadata"]["name"]): value["status"] for value in found}


def condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    (found,) = [each for each in status["conditions"] if each["type"] == kind]
    return found


def test_a_cluster_has_a_hostname_once_it_asks_for_certificates_and_its_ca_is_known() -> None:
    for objects, known in ((EAST, True), (EAST[:1], False), (EAST[1:], False)):
        status = shown(build(new_east(), observed=seen(hub=HUB, east=objects)))["InferenceCluster", "east"]
        assert ("hostname" in status.get("gateway", {})) == known
    status = shown(build(fleet(service()), observed=seen(hub=HUB, east=EAST)))["InferenceCluster", "east"]
    assert status["gateway"] == {
        "address": "203.0.113.10",
        "hostname": f"{child_name('cluster', 'east')}.{SYSTEM}.svc.cluster.local",
        "internalAddress": "198.51.100.2",
        "caCertificate": certificate("new east"),
    }


@pytest.mark.parametrize("address", ["203.0.113.10:8443", "[2001:db8::1]", "my_host", "169.254.1.1"])
def test_an_address_that_no_service_can_lead_to_is_not_known(address: str) -> None:
    inside = [gateway("cluster-gateway", address), EAST[1]]
    assert "hostname" not in shown(build(new_east(), observed=seen(hub=HUB, east=inside)))[
        "InferenceCluster", "east"
    ].get("gateway", {})
    before = {"hostname": "east.example", "internalAddress": address, "caCertificate": certificate("east")}
    built = build(new_east(), statuses={EAST_REF: {"gateway": before}})
    assert "has no address yet" in str([each.problems for each in built.plan.models.routes])
    assert not built.of("Service")


def test_a_service_leads_to_the_name_of_a_load_balancer_as_clusters_write_names() -> None:
    before = {"hostname": "east.example", "internalAddress": "LB.example.", "caCertificate": certificate("east")}
    (found,) = build(new_east(), statuses={EAST_REF: {"gateway": before}}).of("Service")
    assert found["spec"] == {"type": "ExternalName", "externalName": "lb.example"}


def test_what_is_known_of_a_cluster_stays_while_it_does_not_answer() -> None:
    silent = Observed(clusters={"east": ObservedCluster(unreachable="timed out")})
    status = shown(build(fleet(service()), observed=silent))["InferenceCluster", "east"]
    assert status["gateway"]["caCertificate"] == certificate("east")


def test_what_is_known_of_a_cluster_stays_while_its_ca_or_the_address_of_its_gateway_is_missing() -> None:
    """Such as while trust-manager, whose definitions go with it, is installed again."""
    known = shown(build(new_east(), observed=seen(hub=HUB, east=EAST)))["InferenceCluster", "east"]["gateway"]
    assert (known["internalAddress"], known["caCertificate"]) == (ENVOY_ADDRESSES["east"], certificate("new east"))
    bare = {**EAST[0], "status": {}}
    for objects in (EAST[:1], [bare, EAST[1]], EAST[1:], []):
        statuses_before = {EAST_REF: {"gateway": known}}
        built = build(new_east(), observed=seen(hub=HUB, east=objects), statuses=statuses_before)
        after = shown(built)["InferenceCluster", "east"]["gateway"]
        assert {name: after[name] for name in after if name != "address"} == {
            name: known[name] for name in known if name != "address"
        }


def test_clusters_trust_the_ca_that_a_gateway_has_now() -> None:
    built = build(fleet(service()), observed=seen(hub=HUB, east=EAST))
    for name in ("east", "west"):
        clients = built("ConfigMap", "cluster-gateway-clients", SYSTEM, name)
        assert clients["data"]["ca.crt"] == certificate("new clients")


def test_a_gateway_says_where_clients_reach_it_and_who_signs_its_certificates() -> None:
    status = shown(build(fleet(), observed=seen(hub=HUB)))["InferenceGateway", "eu"]
    assert status["address"] == "198.51.100.1"
    assert status["endpoints"] == {"openAI": "http://198.51.100.1/v1", "anthropic": "http://198.51.100.1/anthropic"}
    assert status["clientCACertificate"] == certificate("new clients")
    assert [(each["type"], each["status"]) for each in status["conditions"]] == [("Ready", "True")]


def test_the_gateway_of_the_serving_stack_is_not_taken_for_one_in_mode_model() -> None:
    of_the_stack = gateway("inference-gateway", "203.0.113.99")
    status = shown(build(fleet(), observed=seen(hub=[of_the_stack])))["InferenceGateway", "eu"]
    assert "address" not in status
    assert status["conditions"][0]["message"] == f"Gateway {SYSTEM}/inference-gateway does not exist yet"


def test_requests_for_replicas_get_past_a_gateway_that_their_cluster_hosts() -> None:
    hosting = cluster("hub", "203.0.113.7")
    del hosting["status"]

    def address(*objects: Object) -> str | None:
        built = build(fleet(service(), hub=hosting), observed=seen(hub=list(objects)))
        return shown(built)["InferenceCluster", "hub"].get("gateway", {}).get("address")

    assert address() is None
    assert address(*HUB) == ENVOY_ADDRESSES["eu"], "nothing else listens yet"
    assert address(*HUB, gateway("cluster-gateway", "198.51.100.3")) == "198.51.100.3"
    assert address(*HUB, gateway("cluster-gateway", "")) is None


def test_a_gateway_that_is_not_composed_says_why() -> None:
    was = {"address": "198.51.100.1", "clientCACertificate": certificate("of before")}
    second = {**document("InferenceGateway", "us", {"clusterName": "hub"}), "status": was}
    status = shown(build(fleet(second), observed=seen(hub=HUB)))["InferenceGateway", "us"]
    assert "address" not in status, "it is that of the other gateway"
    assert "clientCACertificate" not in status
    (ready,) = status["conditions"]
    assert (ready["status"], ready["message"]) == (
        "False",
        "cluster hub has InferenceGateway eu already: name another cluster",
    )


def test_a_service_says_the_name_of_its_model_and_where_it_is_served() -> None:
    documents = fleet(
        service(provider_entry("a"), provider_entry("b")), provider("a"), provider("b", url="http://192.0.2.1")
    )
    route = ("ModelRoute", joined_name("chat", "eu"))
    waiting = shown(build(documents, observed=seen(hub=HUB)))
    assert waiting["ModelService", "chat"]["routes"] == {"total": 1, "ready": 0}
    status = shown(build(documents, observed=seen(hub=[*HUB, ACCEPTED])))
    assert status["ModelService", "chat"]["model"] == "ml-team/chat"
    assert status["ModelService", "chat"]["routes"] == {"total": 1, "ready": 1}
    assert "address" not in status["ModelService", "chat"]
    assert {each["type"]: each["status"] for each in status["ModelService", "chat"]["conditions"]}["Ready"] == "True"
    assert status[route]["model"] == "ml-team/chat"
    assert status[route]["endpoints"] == {"total": 2, "ready": 1}
    assert status[route]["address"] == "198.51.100.1"


def test_a_route_names_the_first_endpoints_that_get_no_requests_and_why() -> None:
    names = [f"p{number}" for number in range(12)]
    unusable = [provider(name, url=f"http://192.0.2.{number}") for number, name in enumerate(names)]
    documents = fleet(service(*map(provider_entry, ["a", *names])), provider("a"), *unusable)
    route = shown(build(documents, observed=seen(hub=[*HUB, ACCEPTED])))["ModelRoute", joined_name("chat", "eu")]
    routing = condition(route, "RoutingReady")
    assert (routing["status"], routing["reason"]) == ("True", "RouteAccepted")
    said = "No requests go to p0, p1, p10, p11, p2 and 7 more: gateways in mode Model reach backends by DNS name only"
    assert routing["message"].startswith(said)
    only = shown(build(fleet(service(*map(provider_entry, names)), *unusable), observed=seen(hub=[*HUB, ACCEPTED])))
    refused = condition(only["ModelRoute", joined_name("chat", "eu")], "RoutingReady")
    assert refused["reason"] == "NoReadyEndpoints"
    assert refused["message"].startswith("None of its endpoints can be used: p0, p1, p10, p11, p2 and 7 more: gateways")


def test_a_service_that_no_gateway_selects_says_so() -> None:
    selecting = document(
        "InferenceGateway", "eu", {"clusterName": "hub", "serviceSelector": {"matchLabels": {"a": "b"}}}
    )
    status = shown(build(fleet(service(), eu=selecting), observed=seen(hub=HUB)))["ModelService", "chat"]
    messages = {each["type"]: each.get("message") for each in status["conditions"]}
    assert messages["RoutingReady"] == "No InferenceGateway serves it: none selects its labels"


def test_a_service_says_why_the_gateway_that_selects_it_is_not_made() -> None:
    selecting = {"clusterName": "hub", "serviceSelector": {"matchLabels": {"tier": "gold"}}}
    gateways = {name: document("InferenceGateway", name, selecting) for name in ("eu", "us")}
    gateways["eu"]["spec"]["serviceSelector"] = {"matchLabels": {"tier": "other"}}
    built = build(fleet(service(labels={"tier": "gold"}), gateways["us"], eu=gateways["eu"]), observed=seen(hub=HUB))
    routing = condition(shown(built)["ModelService", "chat"], "RoutingReady")
    assert (routing["status"], routing["reason"]) == ("False", "WaitingForGateway")
    said = "us is not made: cluster hub has InferenceGateway eu already: name another cluster"
    assert routing["message"] == f"No InferenceGateway serves it: {said}"


def test_a_model_is_not_served_by_a_gateway_without_an_address() -> None:
    documents = fleet(service(provider_entry("a")), provider("a"))
    without = gateway("inference-gateway", "", **OURS)
    found = shown(build(documents, observed=seen(hub=[without, ACCEPTED])))
    for key in (("ModelRoute", joined_name("chat", "eu")), ("ModelService", "chat")):
        routing = condition(found[key], "RoutingReady")
        assert routing["status"] == condition(found[key], "Ready")["status"] == "False"
        assert routing["message"] == "Waiting for InferenceGateway eu to have an address"
    assert found["ModelService", "chat"]["routes"] == {"total": 1, "ready": 0}
    assert "address" not in found["ModelRoute", joined_name("chat", "eu")]


def test_endpoints_say_whether_gateways_in_mode_model_use_them() -> None:
    used, unusable, unselected = provider("a"), provider("b", url="http://192.0.2.1"), provider("c")
    entries = [provider_entry("b"), provider_entry("a", priority=1)]
    found = shown(build(fleet(service(*entries), used, unusable, unselected), observed=seen(hub=[*HUB, ACCEPTED])))
    routing = {name: condition(found["ModelEndpoint", name], "RoutingReady") for name in "abc"}
    assert {name: each["status"] for name, each in routing.items()} == {"a": "True", "b": "False", "c": "True"}
    assert routing["b"]["reason"] == "WaitingForBackend"
    assert routing["b"]["message"].startswith("gateways in mode Model reach backends by DNS name only")
    assert "message" not in routing["a"]
    assert routing["c"]["message"] == "No ModelService on an InferenceGateway selects it, so it gets no requests"
    resolved = condition(found["ModelService", "chat"], "EndpointsResolved")["message"]
    assert "1 waiting for Backend: b" in resolved
    assert "requests go to priority 1" in resolved


def test_without_a_gateway_in_mode_path_the_control_cluster_has_no_paths() -> None:
    built = build(fleet(service(provider_entry("a")), provider("a")), observed=seen(hub=[*HUB, ACCEPTED]))
    assert not {value["kind"] for value in built.plan.control} & {"HTTPRoute", "Deployment", "Service"}
    status = shown(built)["ModelEndpoint", "a"]
    assert {each["type"]: each["status"] for each in status["conditions"]}["RoutingReady"] == "True"


def test_beside_a_gateway_in_mode_path_services_have_both() -> None:
    path = document("InferenceGateway", "default", {"backend": "Traefik", "traefik": {"version": "40.2.0"}})
    built = build(fleet(service(provider_entry("a")), provider("a"), path))
    kinds = {value["kind"] for value in built.plan.control}
    assert {"HTTPRoute", "ModelRoute", "GatewayClass"} <= kinds
    assert built("AIGatewayRoute", "chat")


OLD = Ref("InferenceGateway", "", "eu")


def moved(*services: dict[str, Any], gateways: bool = True, **clusters: list[Object]) -> Built:
    """The fleet after its gateway was moved from cluster hub to cluster rim, with what was observed of the clusters."""
    before = build(fleet(service()))
    composed = [("hub", value) for value in before.objects["hub"].values()]

    def earlier(ref: Ref) -> list[tuple[str, Object]]:
        return [(place, value) for place, value in composed if is_of(value, ref)]

    new = document("InferenceGateway", "rim", {"clusterName": "rim"})
    documents = fleet(*(services or (service(),)), cluster("rim"), *([new] if gateways else []))
    left = [each for each in documents if (each["kind"], each["metadata"]["name"]) != ("InferenceGateway", "eu")]
    return build(left, observed=seen(**clusters), earlier=earlier)


def is_of(value: Object, ref: Ref) -> bool:
    return ref == OLD and value["metadata"].get("labels", {}).get("modelplane.ai/gateway") == ref.name


SERVED = {**ACCEPTED, "metadata": {**ACCEPTED["metadata"], "labels": OURS}}
RIM = [gateway("inference-gateway", "198.51.100.3", **{"modelplane.ai/gateway": "rim"})]


def test_a_gateway_that_was_moved_stays_until_the_new_one_answers_for_its_services() -> None:
    for there in ([], [gateway("inference-gateway", "", **{"modelplane.ai/gateway": "rim"})], RIM):
        built = moved(hub=[*HUB, SERVED], rim=there, east=EAST)
        assert built("AIGatewayRoute", "chat")["metadata"]["labels"]["modelplane.ai/gateway"] == "eu"
        assert [each.ref for each in built.plan.models.leaving] == [OLD]
        held = plan_output.document(built.plan).held
        assert [(each.kind, each.name) for each in held] == [("InferenceGateway", "eu")]
        (warning,) = (each for each in built.plan.warnings if "has left the manifests" in each)
        assert ("ml-team/chat" in warning) == (there is RIM)
        leaving = "Has left the manifests, and stays until " + warning.partition(" until ")[2]
        rows = "\n".join(plan_output.services_table(built.plan, 120)).splitlines()
        (row,) = [index for index, line in enumerate(rows) if line.startswith("eu ")]
        assert rows[row].split() == ["eu", "hub", "Leaving", "1", "of", "1", "198.51.100.1"]
        assert rows[row + 1].strip() == leaving
        assert (plan_output.document(built.plan).gateways or [])[-1].message == leaving
    built = moved(hub=[*HUB, SERVED], rim=[*RIM, ACCEPTED], east=EAST)
    assert "hub" not in built.objects or not built.of("AIGatewayRoute")
    assert built.plan.models.leaving == ()


def test_listeners_of_a_gateway_that_was_moved_take_routes_of_its_own_namespace() -> None:
    """By the label that they ask for: `/healthz` and the redirect to HTTPS are there."""
    built = moved(hub=[*HUB, SERVED], rim=RIM, east=EAST)
    assert built("HTTPRoute", "inference-gateway-healthz", SYSTEM, "hub")
    listener, *_ = built("Gateway", "inference-gateway", SYSTEM, "hub")["spec"]["listeners"]
    (asked,) = listener["allowedRoutes"]["namespaces"]["selector"]["matchExpressions"]
    assert asked["key"] in built("Namespace", SYSTEM, "", "hub")["metadata"]["labels"]


def test_clusters_let_in_a_gateway_that_was_moved() -> None:
    known = built_clients(moved(hub=[*HUB, SERVED], rim=RIM, east=EAST))
    assert certificate("new clients") in known
    assert certificate("new clients") not in built_clients(
        moved(hub=[*HUB, SERVED], rim=[*RIM, ACCEPTED, authority("inference-gateway-ca", "rim")], east=EAST)
    )


SILENT = ObservedCluster(unreachable="timed out")
GONE = ObservedCluster(stack=Component(True))
KNOWN_OF_OLD = {OLD: {"clientCACertificate": certificate("clients of eu"), "address": ENVOY_ADDRESSES["eu"]}}
NEW = [
    gateway("inference-gateway", "198.51.100.3", **{"modelplane.ai/gateway": "new"}),
    authority("inference-gateway-ca", "clients of new"),
    ACCEPTED,
]


def left(hub: ObservedCluster, was_on: str = "hub", new_on: str = "rim") -> Built:
    """The fleet after gateway eu, which was on cluster `was_on` ("" where that is not known), left the manifests for
    another one that answers; `hub` is what was observed there."""
    new = document("InferenceGateway", "new", {"clusterName": new_on})
    documents = [each for each in fleet(service(), cluster("rim"), new) if each["metadata"]["name"] != "eu"]
    copies = [document("InferenceGateway", "eu", {"clusterName": was_on})] if was_on else []
    clusters = {"hub": hub, **seen(rim=NEW, east=EAST, west=[]).clusters}
    return build(documents, observed=Observed(clusters=clusters, control=Objects(copies)), statuses=KNOWN_OF_OLD)


def test_clusters_let_in_a_gateway_that_left_until_its_cluster_is_read() -> None:
    """It may be the only one that serves."""
    for was_on in ("hub", ""):
        built = left(SILENT, was_on)
        assert certificate("clients of eu") in built_clients(built)
        (warning,) = (each for each in built.plan.warnings if "has left the manifests" in each)
        assert warning.endswith("stays on cluster hub until cluster hub is read")
        assert shown(built)["InferenceGateway", "eu"]["clientCACertificate"] == certificate("clients of eu")


@pytest.mark.parametrize(
    ("hub", "was_on"),
    [
        (GONE, "hub"),
        (GONE, ""),
        (ObservedCluster(declared=True), "hub"),
        (SILENT, "west"),
        (SILENT, "one that has left the fleet"),
    ],
)
def test_clusters_forget_a_gateway_that_is_not_there_or_whose_cluster_has_left_the_fleet(
    hub: ObservedCluster, was_on: str
) -> None:
    built = left(hub, was_on)
    assert built_clients(built) == certificate("clients of new")
    assert ("InferenceGateway", "eu") not in shown(built)
    assert not built.plan.models.leaving


def test_a_gateway_that_takes_the_place_of_one_on_a_cluster_that_is_not_read_is_let_in() -> None:
    """Both have one CA."""
    built = left(SILENT, new_on="hub")
    assert built_clients(built) == certificate("clients of eu")
    assert built("Gateway", "inference-gateway", SYSTEM)["metadata"]["labels"]["modelplane.ai/gateway"] == "new"


def built_clients(built: Built) -> str:
    return str(built("ConfigMap", "cluster-gateway-clients", SYSTEM, "east")["data"]["ca.crt"])


def test_a_gateway_stays_for_no_service_that_has_left_and_for_no_gateway_that_never_comes() -> None:
    other = service(name="other")
    assert moved(other, hub=[*HUB, SERVED], rim=RIM, east=EAST).plan.models.leaving == ()
    assert moved(gateways=False, hub=[*HUB, SERVED], rim=[], east=EAST).plan.models.leaving == ()


NOW = "2026-11-27T14:00:00Z"
DAILY = {"name": "daily", "unit": "Requests", "limit": 20, "per": "Day"}

BUDGETED = (provider("paid"), service(provider_entry("paid")), policy(budgets=[DAILY]))


def counted(**used: int) -> Observed:
    """The cluster of the gateway with this use of the budget, and one of a policy that is gone."""
    budgets = (
        ObservedBudget("ml-team", "team", "daily", used, "2026-11-28T00:00:00Z"),
        ObservedBudget("ml-team", "gone", "daily", {"alice": 3}),
    )
    return Observed(clusters={"hub": ObservedCluster(stack=Component(True), budgets=budgets)})


@pytest.mark.parametrize(
    ("observed", "said"),
    [
        (counted(alice=7), ("True", "Counted")),
        (seen(hub=[]), ("False", "NotCounted")),
        (Observed(clusters={"hub": ObservedCluster(unreachable="it is down")}), ("Unknown", "NotObserved")),
        (Observed(clusters={"hub": ObservedCluster(declared=True)}), ("Unknown", "NotObserved")),
        (Observed(), ("Unknown", "NotObserved")),
    ],
)
def test_a_policy_says_how_much_of_its_budgets_is_used(observed: Observed, said: tuple[str, str]) -> None:
    built = build(fleet(*BUDGETED), observed=observed)
    found = shown(built)["CallerPolicy", "team"]
    [known] = found["conditions"]
    assert (known["status"], known["reason"]) == said
    [budget] = found["budgets"]
    assert budget["use"] == ([{"gateway": "eu", "caller": "alice", "used": 7}] if said[0] == "True" else [])


def test_a_policy_without_a_gateway_with_keys_is_counted_nowhere() -> None:
    without_keys = gateway_document(auth=None)
    built = build(fleet(*BUDGETED, eu=without_keys), observed=counted())
    assert shown(built)["CallerPolicy", "team"]["conditions"][0]["reason"] == "NoRoute"


def test_the_use_of_budgets_is_in_the_status_of_the_fleet() -> None:
    callers = {f"c{number}": number for number in range(8)}
    built = build(fleet(*BUDGETED), observed=counted(**callers))
    found = fleet_status(built.plan, statuses(built.plan, NOW), Changes((), (), ()), NOW)
    [row] = found.policies
    assert (row.name, row.message, len(row.budgets[0].use)) == ("team", "", 8)
    lines = tables(found, NOW)
    first = next(number for number, line in enumerate(lines) if line.startswith("POLICY"))
    assert lines[first].split()[:6] == ["POLICY", "BUDGET", "CALLER", "USED", "OF", "LEFT"]
    assert [line.split()[2:] for line in lines[first + 1 : first + 3]] == [
        ["c7", "7", "20", "Requests/Day", "10h"],
        ["c6", "6", "20", "Requests/Day", "10h"],
    ]
    assert lines[first + 6].strip() == "3 callers used less"


def test_gateways_are_named_where_there_are_several() -> None:
    use = [{"gateway": name, "used": 1} for name in ("eu", "us")]
    budget = BudgetStatus.model_validate({**DAILY, "use": use})
    row = PolicyStatus(namespace="ml-team", name="team", budgets=[budget], message="")
    built = build(fleet())
    found = fleet_status(built.plan, [], Changes((), (), ()), NOW)
    lines = [line.split() for line in tables(found.model_copy(update={"policies": [row]}), NOW, 100)]
    assert ["ml-team/team", "daily", "all", "1", "20", "Requests/Day", "-", "us"] in lines


def test_why_use_is_not_known_is_in_the_status_of_the_fleet() -> None:
    observed = Observed(clusters={"hub": ObservedCluster(unreachable="it is down")})
    built = build(fleet(*BUDGETED), observed=observed)
    found = fleet_status(built.plan, statuses(built.plan, NOW), Changes((), (), ()), NOW)
    text = " ".join(" ".join(tables(found, NOW)).split())
    assert "ml-team/team daily - - 20 Requests/Day -" in text
    assert "InferenceGateway eu: cluster hub has not been observed: it is down" in text


@pytest.mark.parametrize(
    ("spec", "callers"),
    [
        ({"callers": [{"name": "alice"}, {"name": "zoe"}]}, ["alice", "zoe"]),
        ({"callers": [{"name": "*"}]}, ["alice", "bob", "carol"]),
        ({"callerSelector": {"matchLabels": {"team": "search"}}}, ["carol"]),
    ],
)
def test_the_use_of_callers_is_read_whom_a_policy_names(spec: dict[str, Any], callers: list[str]) -> None:
    """Those of `*` and of groups by their keys for the gateway, of which two may be one caller's."""
    keys = [
        KeySecret({"modelplane.ai/keys": "eu"}, ("alice", "alice.next", "bob")),
        KeySecret({"modelplane.ai/keys": "eu", "team": "search"}, ("carol",)),
        KeySecret({"modelplane.ai/keys": "us", "team": "search"}, ("dave",)),
    ]
    with_budget = {**policy(budgets=[DAILY]), "spec": {**spec, "budgets": [DAILY]}}
    clusters = expected(fleet(with_budget, policy("without")), keys).clusters
    found = {key: list(names) for key, names in clusters["hub"].callers.items()}
    assert found == {("ml-team", "team"): callers}
    assert not clusters["east"].callers
    without_keys = fleet(with_budget, eu=gateway_document(auth=None))
    assert not expected(without_keys, keys).cluster("hub").callers


def test_of_two_gateways_of_a_cluster_the_callers_are_those_of_the_one_that_is_composed() -> None:
    keys = [KeySecret({"modelplane.ai/keys": "us"}, ("dave",)), KeySecret({"modelplane.ai/keys": "eu"}, ("alice",))]
    everyone = policy(callers=[{"name": "*"}], budgets=[DAILY])
    found = expected(fleet(gateway_document("us"), everyone), keys).cluster("hub").callers
    assert list(found["ml-team", "team"]) == ["alice"]
