# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Tables, documents and the page of fleets with gateways in mode Model."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core import report as page
from ansible_collections.modelplane.fleet.plugins.module_utils.core.names import joined_name
from ansible_collections.modelplane.fleet.plugins.module_utils.core.observation import (
    NOT_THIS_RUN,
    Component,
    Observed,
    ObservedCluster,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output import plan as plan_output
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output.findings import findings
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output.status import FleetStatus, status
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output.status_tables import tables
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning.statuses import statuses
from ansible_collections.modelplane.fleet.plugins.module_utils.core.problem import Ref
from ansible_collections.modelplane.fleet.plugins.module_utils.core.report import view_model
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object, Objects
from ansible_collections.modelplane.fleet.tests.model_fleet import (
    SYSTEM,
    Built,
    Document,
    build,
    cluster,
    document,
    entry,
    fleet,
    gateway,
    policy,
    provider,
    provider_entry,
    service,
)
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.status.test_model_statuses import (
    ACCEPTED,
    HUB,
)

NO_CHANGES = SimpleNamespace(added=(), changed=(), removed=())
NOW = "2026-01-01T00:00:00Z"
PATH = document("InferenceGateway", "default", {"backend": "Traefik", "traefik": {"version": "40.2.0"}})
WIDTH = 100
URL = "http://198.51.100.1/v1"
READY = [{"type": kind, "status": "True", "reason": "Available"} for kind in ("RoutingReady", "Ready")]
"""Conditions that an earlier run gave a service, its route and its gateway."""
KNOWN = {
    Ref("ModelService", "ml-team", "chat"): {"conditions": READY},
    Ref("ModelRoute", "ml-team", joined_name("chat", "eu")): {"conditions": READY},
    Ref("InferenceGateway", "", "eu"): {"conditions": READY[1:], "address": "198.51.100.1"},
}


def answers(*objects: Object) -> ObservedCluster:
    return ObservedCluster(stack=Component(True), objects=Objects(list(objects)))


def silent(why: str = "timed out") -> ObservedCluster:
    return ObservedCluster(unreachable=why)


def served(*documents: Document, statuses: Any = None, **clusters: ObservedCluster) -> Built:
    options = {"statuses": statuses} if statuses else {}
    return build(fleet(*documents), observed=Observed(clusters=clusters), **options)


def found(built: Built) -> FleetStatus:
    return status(built.plan, statuses(built.plan, NOW), NO_CHANGES, NOW)


def plan_table(built: Built) -> str:
    return "\n".join(plan_output.services_table(built.plan, WIDTH))


def status_table(built: Built) -> str:
    return "\n".join(tables(found(built), NOW, WIDTH))


def drawn(built: Built) -> str:
    return page.html(view_model.report_of(built.plan, NO_CHANGES, found(built), NOW, ""))


PROVIDERS = (service(provider_entry("a"), provider_entry("b")), provider("a"), provider("b"))


def test_services_have_the_name_of_the_model_and_the_base_urls_of_gateways() -> None:
    built = served(*PROVIDERS, hub=answers(*HUB, ACCEPTED))
    assert plan_table(built).splitlines() == [
        "SERVICE       URL                 IN USE",
        "ml-team/chat  model ml-team/chat  2 of 2",
        "    to: a (weight 1), b (weight 1)",
        f"    at eu ({URL})",
        "",
        "GATEWAY  CLUSTER  STATE  MODELS  ADDRESS",
        "eu       hub      Ready  1 of 1  198.51.100.1",
    ]
    shown = status_table(built).splitlines()
    assert shown[:6] == [
        "SERVICE       READY  ADDRESS             STATUS   WHY",
        "ml-team/chat  2/2    model ml-team/chat  Serving",
        f"    at eu ({URL})",
        "",
        "GATEWAY  CLUSTER  STATE  MODELS  ADDRESS       WHY",
        "eu       hub      Ready  1 of 1  198.51.100.1",
    ]
    for text in ("\n".join(shown), plan_table(built), drawn(built)):
        assert "/ml-team/chat/" not in text
        assert URL in text
    (row,) = api.wire(found(built))["services"]
    assert (row["address"], row["model"]) == ("", "ml-team/chat")
    assert row["gateways"] == [{"name": "eu", "url": URL}]
    planned = api.wire(plan_output.document(built.plan))
    assert (planned["services"][0]["path"], planned["services"][0]["model"]) == ("", "ml-team/chat")
    assert [each["name"] for each in planned["gateways"]] == ["eu"]


def test_with_both_modes_services_have_their_url_and_the_name_of_the_model() -> None:
    b = provider("b", url="http://192.0.2.1")
    built = served(service(provider_entry("a"), provider_entry("b")), provider("a"), b, PATH, hub=answers(*HUB))
    for text in (plan_table(built), status_table(built)):
        assert "/ml-team/chat/ " in text
        assert f"model ml-team/chat at eu ({URL})" in text
    assert "2 of 2" in plan_table(built)
    assert "not usable at gateways in mode Model: b: gateways in mode Model reach backends" in plan_table(built)
    (row,) = api.wire(plan_output.document(built.plan))["services"]
    assert (row["path"], row["model"]) == ("/ml-team/chat/", "ml-team/chat")
    assert [each["name"] for each in row["unused"]] == ["b"]


def test_without_a_gateway_in_mode_model_nothing_is_said_of_it() -> None:
    documents = [each for each in fleet(*PROVIDERS, PATH) if each["metadata"]["name"] != "eu"]
    built = build(documents, observed=Observed(clusters={"hub": answers(*HUB)}))
    assert [line for line in plan_table(built).splitlines() if "model" in line.lower()] == []
    assert "GATEWAY" not in status_table(built)
    for each in (api.wire(found(built)), api.wire(plan_output.document(built.plan))):
        assert "gateways" not in each
        assert not {"model", "gateways", "unused"} & set(each["services"][0])


def unread() -> list[Document]:
    """A fleet whose clusters are files, and of whose gateways nothing is written."""
    east, west = (cluster(name, "203.0.113.10") for name in ("east", "west"))
    del east["status"], west["status"]
    return fleet(service(), east=east, west=west)


def test_no_route_is_in_use_while_clusters_have_no_hostname() -> None:
    built = build(unread())
    assert not built.of("AIGatewayRoute")
    text = plan_table(built)
    assert "0 of 2" in text
    assert "has no hostname for gateways in mode Model yet" in text
    assert "no route until an endpoint is usable: none of its endpoints is usable" in text
    assert "eu       hub      Declared  0 of 1  -" in text
    (row,) = found(built).services
    assert (row.ready, row.endpoints, row.status) == (0, 2, "Declared")
    assert "cluster east has no hostname for gateways in mode Model yet" in row.message
    (planned,) = plan_output.document(built.plan).services
    assert [each.usable for each in planned.endpoints] == [False, False]
    assert {each.reason for each in planned.unused or ()} == {
        f"cluster {name} has no hostname for gateways in mode Model yet" for name in ("east", "west")
    }
    assert "has no hostname for gateways in mode Model yet" in drawn(built)


def test_a_service_that_no_gateway_serves_uses_no_endpoint() -> None:
    selecting = gateway(serviceSelector={"matchLabels": {"tier": "gold"}})
    built = build(fleet(*PROVIDERS, eu=selecting), observed=Observed(clusters={"hub": answers(*HUB)}))
    assert "0 of 2" in plan_table(built)
    assert "no InferenceGateway serves it: none selects its labels" in plan_table(built)
    (row,) = found(built).services
    assert (row.ready, row.status, row.model, row.gateways) == (0, "Unavailable", "ml-team/chat", [])


def test_a_gateway_that_is_refused_is_there_with_its_reason() -> None:
    built = served(*PROVIDERS, gateway("us"), hub=answers(*HUB, ACCEPTED))
    reason = "cluster hub has InferenceGateway eu already: name another cluster"
    for text in (plan_table(built), status_table(built), drawn(built)):
        assert "Refused" in text
        assert reason in text
    planned = plan_output.document(built.plan).gateways or ()
    assert [(each.name, each.message) for each in planned] == [("eu", ""), ("us", reason)]


@pytest.mark.parametrize(
    ("invalid", "reason"),
    [
        ([], "there is no InferenceCluster rim"),
        ([Ref("InferenceCluster", "", "rim")], "the manifest of InferenceCluster rim has errors"),
    ],
)
def test_a_gateway_whose_cluster_is_not_planned_says_whether_it_is_missing(invalid: list[Ref], reason: str) -> None:
    built = build([*PROVIDERS, gateway("us", "rim")], invalid=invalid)
    refused = {each.name: each.message for each in found(built).gateways or () if each.state == "Refused"}
    assert refused == {"us": reason}
    assert reason in plan_table(built)


def test_a_gateway_that_is_not_ready_says_why() -> None:
    (row,) = found(served(*PROVIDERS, hub=answers())).gateways or ()
    assert (row.state, row.address) == ("NotReady", "")
    assert row.message == "Gateway modelplane-system/inference-gateway does not exist yet"


STANDBY = (service(entry(), provider_entry("a", priority=1)), provider("a"))


def before(observed: dict[str, ObservedCluster], *documents: Document) -> Built:
    """The fleet after a run that saw all of it."""
    first = build(fleet(*documents))
    existing = [*first.plan.composed, *first.plan.traffic.endpoints]
    return build(fleet(*documents), observed=Observed(clusters=observed), existing=existing, statuses=KNOWN)


def test_a_standby_serves_while_no_cluster_of_the_others_answers() -> None:
    down = {"hub": answers(*HUB, ACCEPTED), "east": silent(), "west": silent()}
    built = before(down, *STANDBY)
    (row,) = found(built).services
    assert (row.ready, row.endpoints, row.status) == (1, 3, "Degraded")
    assert row.message == "2 unknown, on east, west; requests that get no answer there go to a"
    (row,) = found(before({"hub": down["hub"], "west": silent()}, *STANDBY)).services
    assert (row.ready, row.message) == (1, "1 unknown, on west"), "one of the first priority answers"
    (row,) = found(before(down, service())).services
    assert (row.ready, row.endpoints, row.status) == (0, 2, "Unknown")


@pytest.mark.parametrize(("why", "said"), [("timed out", "did not answer"), (NOT_THIS_RUN, "is not part of this run")])
def test_a_gateway_whose_cluster_did_not_answer_is_unknown(why: str, said: str) -> None:
    built = before({"hub": silent(why)}, *PROVIDERS)
    kept = {value["kind"]: value["status"]["conditions"] for value in statuses(built.plan, NOW)}
    assert kept["InferenceGateway"] == READY[1:], "conditions keep the last state"
    (row,) = found(built).services
    assert (row.status, row.message) == ("Unknown", f"cluster hub {said}, so it is not known what eu does")
    (gateway_row,) = found(built).gateways or ()
    assert (gateway_row.state, gateway_row.message) == ("Unknown", f"cluster hub {said}; it was ready before")
    assert gateway_row.address == "198.51.100.1"
    assert f"cluster hub {said}" in status_table(built)


def test_a_service_with_another_gateway_serves_while_one_cannot_be_seen() -> None:
    documents = (*PROVIDERS, gateway("us", "rim"), cluster("rim"))
    known = {**KNOWN, Ref("ModelRoute", "ml-team", joined_name("chat", "us")): {"conditions": READY}}
    clusters = {"hub": answers(*HUB, ACCEPTED), "rim": silent()}
    built = build(fleet(*documents), observed=Observed(clusters=clusters), statuses=known)
    (row,) = found(built).services
    assert (row.status, row.message) == ("Serving", "cluster rim did not answer, so it is not known what us does")
    built = build(fleet(*documents), observed=Observed(clusters={**clusters, "rim": answers()}))
    (row,) = found(built).services
    assert row.status == "Degraded"
    assert row.message.startswith("Waiting for InferenceGateway us to accept AIGatewayRoute")


def test_a_service_names_the_endpoints_that_get_no_requests() -> None:
    names = [f"p{number}" for number in range(12)]
    entries = [provider_entry(name) for name in ("a", *names)]
    unusable = [provider(name, url=f"http://192.0.2.{number}") for number, name in enumerate(names)]
    built = served(service(*entries), provider("a"), *unusable, hub=answers(*HUB, ACCEPTED))
    (row,) = found(built).services
    assert (row.ready, row.endpoints, row.status) == (1, 13, "Degraded")
    assert row.message.startswith("not usable: p0, p1, p10, p11, p2 and 7 more: gateways in mode Model reach")
    assert len(row.message) < 500


def test_findings_have_gateways_that_are_not_ready_and_those_that_are_refused() -> None:
    built = served(*PROVIDERS, gateway("us"), hub=answers())
    said = {str(each) for each in findings(found(built)) if each.subject == "gateway"}
    assert said == {
        "gateway eu on hub: NotReady: Gateway modelplane-system/inference-gateway does not exist yet",
        "gateway us on hub: Refused: cluster hub has InferenceGateway eu already: name another cluster",
    }
    built = before({"hub": silent()}, *PROVIDERS)
    assert [each.subject for each in findings(found(built)) if each.name in ("eu", "hub")] == ["cluster"]


def test_of_a_gateway_and_engines_on_one_silent_cluster_nothing_is_known() -> None:
    down = {name: silent() for name in ("hub", "east", "west")}
    (row,) = found(before(down, *STANDBY)).services
    assert (row.ready, row.status) == (0, "Unknown")
    assert "go to a" not in row.message
    assert row.message.endswith("cluster hub did not answer, so it is not known what eu does")


def test_what_was_wrong_before_is_not_all_that_is_said_of_a_silent_cluster() -> None:
    waiting = [{**each, "status": "False", "message": "Waiting"} for each in READY]
    known = {ref: {**value, "conditions": waiting} for ref, value in KNOWN.items()}
    built = build(fleet(*PROVIDERS), observed=Observed(clusters={"hub": silent()}), statuses=known)
    (row,) = found(built).services
    assert row.status == "Unknown"
    assert row.message == "Waiting; cluster hub did not answer, so it is not known what eu does"
    (gateway_row,) = found(built).gateways or ()
    assert gateway_row.message == "cluster hub did not answer; it was not ready before"


TITLE = "Budgets while the rate limit service or Valkey does not answer"
RESTART = "    counters begin at zero when Valkey restarts, unless a volume keeps them"


def budget(name: str, when: str) -> Document:
    return {"name": name, "unit": "Requests", "limit": 20, "per": "Day", "whenUnavailable": when}


def budgeted(name: str, when: str) -> tuple[Document, Document]:
    """A service with a policy of its own that has a budget."""
    labels = {"audience": name}
    own = policy(name, services={"matchLabels": labels}, budgets=[budget("daily", when)])
    return service(provider_entry("a"), name=name, labels=labels), own


def uncounted(*documents: Document, **replaced: Document) -> tuple[list[str], list[Any]]:
    """The lines below the table of gateways, and what the plan has of each one."""
    built = build(fleet(provider("a"), *documents, **replaced))
    shown = plan_table(built).splitlines()
    planned = api.wire(plan_output.document(built.plan))["gateways"]
    return (shown[shown.index(TITLE) :] if TITLE in shown else []), [each.get("whenUnavailable") for each in planned]


def test_a_plan_says_what_happens_to_services_with_budgets_while_nothing_can_be_counted() -> None:
    free = service(provider_entry("a"), name="free")
    refused = "    refused with 500 (whenUnavailable: Refuse): "
    shown, planned = uncounted(*budgeted("chat", "Refuse"), *budgeted("code", "Refuse"), free)
    assert shown == [TITLE, f"{refused}ml-team/chat, ml-team/code", RESTART]
    assert planned == [{"action": "Refuse", "services": ["ml-team/chat", "ml-team/code"]}]
    shown, planned = uncounted(*budgeted("chat", "Allow"), free)
    assert shown == [TITLE, "    answered, and not counted (whenUnavailable: Allow): ml-team/chat", RESTART]
    assert planned == [{"action": "Allow", "services": ["ml-team/chat"]}]


def test_one_budget_that_refuses_decides_for_all_of_a_gateway() -> None:
    shown, planned = uncounted(*budgeted("chat", "Refuse"), *budgeted("code", "Allow"))
    assert shown[1:3] == [
        "    refused with 500 (whenUnavailable: Refuse): ml-team/chat, ml-team/code",
        "    of these, whenUnavailable is Allow, and a budget of others at the gateway decides: ml-team/code",
    ]
    assert planned[0]["overruled"] == ["ml-team/code"]


def test_gateways_that_answer_differently_are_named() -> None:
    only = gateway("us", "rim", serviceSelector={"matchLabels": {"audience": "code"}})
    shown, planned = uncounted(*budgeted("chat", "Refuse"), *budgeted("code", "Allow"), only, cluster("rim"))
    assert shown[1::2][:2] == [
        "    refused with 500 (whenUnavailable: Refuse): ml-team/chat, ml-team/code at eu",
        "    answered, and not counted (whenUnavailable: Allow): ml-team/code at us",
    ]
    assert [each["action"] for each in planned] == ["Refuse", "Allow"]


def test_without_budgets_that_are_counted_nothing_is_said_of_them() -> None:
    """A gateway that asks for no keys counts for no one, and one that is not made does nothing."""
    assert uncounted(service(provider_entry("a")), policy()) == ([], [None])
    keyless = gateway()
    del keyless["spec"]["auth"]
    assert uncounted(*budgeted("chat", "Refuse"), eu=keyless) == ([], [None])
    selecting = gateway(serviceSelector={"matchLabels": {"audience": "none"}})
    assert uncounted(*budgeted("chat", "Refuse"), gateway("us"), eu=selecting) == ([], [None, None])


def without_gateway(*documents: Document) -> list[Document]:
    return [each for each in fleet(*documents) if each["kind"] != "InferenceGateway"]


def test_without_any_gateway_no_service_has_an_address() -> None:
    built = build(without_gateway(*PROVIDERS))
    assert plan_table(built).splitlines() == [
        "SERVICE       URL         IN USE",
        "ml-team/chat  no gateway  0 of 2",
        "    not usable: a, b",
        "    clients cannot reach it: declare an InferenceGateway",
    ]
    (row,) = plan_output.document(built.plan).services
    assert (row.path, row.note) == ("/ml-team/chat/", "clients cannot reach it: declare an InferenceGateway")
    assert not any(endpoint.usable or endpoint.weight for endpoint in row.endpoints)
    assert "/ml-team/chat/ " in plan_table(build([*without_gateway(*PROVIDERS), PATH]))


def test_a_gateway_that_is_not_declared_is_there_when_it_has_an_address() -> None:
    live = {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway"}
    live |= {"metadata": {"name": "modelplane", "namespace": SYSTEM}, "status": {"addresses": [{"value": "192.0.2.7"}]}}
    built = build(without_gateway(*PROVIDERS), observed=Observed(control=Objects([live])))
    assert "http://192.0.2.7/ml-team/chat" in plan_table(built)
    assert "no gateway" not in plan_table(built)


def test_a_service_that_no_gateway_in_mode_model_serves_has_no_gateway() -> None:
    built = build(fleet(*PROVIDERS, eu=gateway(serviceSelector={"matchLabels": {"tier": "gold"}})))
    assert plan_table(built).splitlines()[1:4] == [
        "ml-team/chat  no gateway  0 of 2",
        "    not usable: a, b",
        "    no InferenceGateway serves it: none selects its labels",
    ]


def test_a_new_gateway_whose_manifest_has_errors_takes_no_paths() -> None:
    built = build(without_gateway(*PROVIDERS), invalid=[Ref("InferenceGateway", "", "eu")])
    assert built.plan.context.fleet.serves_paths, "of one that never was, no mode is known"


def test_a_gateway_in_mode_path_whose_manifest_has_errors_still_has_paths() -> None:
    first = build([*without_gateway(*PROVIDERS), PATH])
    ref = Ref("InferenceGateway", "", "default")

    def earlier(asked: Ref) -> list[tuple[str, Object]]:
        kinds = ("Gateway", "GatewayClass") if asked == ref else ()
        return [("", value) for value in first.plan.control if value["kind"] in kinds]

    built = build(without_gateway(*PROVIDERS), invalid=[ref], earlier=earlier)
    assert built.plan.context.fleet.serves_paths
    assert "/ml-team/chat/ " in plan_table(built)
