# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The page of fleets with gateways in mode Model: what is wrong, how clients reach models, clusters of gateways."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.observation import Observed, ObservedCluster
from ansible_collections.modelplane.fleet.tests.model_fleet import (
    Built,
    build,
    cluster,
    fleet,
    gateway,
    provider,
    provider_entry,
    service,
)
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.output.test_model_tables import (
    PATH,
    PROVIDERS,
    URL,
    answers,
    drawn,
    plan_table,
    served,
    unread,
)
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.status.test_model_statuses import (
    ACCEPTED,
    EAST,
    HUB,
    RIM,
    SERVED,
    moved,
)
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.status.test_model_statuses import (
    gateway as gateway_object,
)
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.observed_fleet import up


def sections(built: Built) -> dict[str, str]:
    """The text of each section of the page, by its id."""
    found = re.split(r'<h2 id="([a-z-]+)">', drawn(built))
    texts = (unescape(re.sub(r"\s+", " ", re.sub("<[^>]+>", " ", part))).replace(" , ", ", ") for part in found[2::2])
    return dict(zip(found[1::2], texts, strict=True))


def observed(*documents: Any, **clusters: ObservedCluster) -> Built:
    return build(fleet(*documents), observed=Observed(clusters=clusters))


def test_endpoints_without_a_way_to_them_are_steps_that_are_left() -> None:
    built = build(unread())
    wrong = sections(built)["attention"]
    assert "Nothing is wrong" not in wrong
    reasons = [f"cluster {name} has no hostname for gateways in mode Model yet" for name in ("east", "west")]
    assert "Remaining setup steps 2 reasons" in wrong
    for reason in reasons:
        assert wrong.count(reason) == 1
        assert reason in plan_table(built).replace("\n      ", " "), "the words of the table"
    hint = (
        "The next run that observes the cluster adds it. If no run observes the cluster, copy hostname, caCertificate"
    )
    assert f"What to do: {hint}" in wrong
    assert "Endpoints that are not usable" not in wrong
    assert not re.search(r"\d problem", drawn(built).replace("<strong>", "").replace("</strong>", ""))


WAYS = {
    "files": (
        ObservedCluster(declared=True),
        "Remaining setup steps",
        "Apply the cluster's build directory, and copy hostname, caCertificate",
    ),
    "answers": (None, "Endpoints that are not usable", "Wait until Gateway cluster-gateway works there."),
    "silent": (
        ObservedCluster(unreachable="timed out"),
        "Endpoints that are not usable",
        "The next run that observes the cluster adds it.",
    ),
}


@pytest.mark.parametrize("name", WAYS)
def test_what_to_do_depends_on_how_the_cluster_is_read(name: str) -> None:
    seen, title, hint = WAYS[name]
    first = build(unread())
    existing = [*first.plan.composed, *first.plan.traffic.endpoints]
    address = gateway_object("inference-gateway", "203.0.113.10")
    east = seen or answers(*map(up, first.objects["east"].values()), address)
    clusters = {"hub": answers(*HUB), "west": answers(), "east": east}
    built = build(unread(), observed=Observed(clusters=clusters), existing=existing)
    wrong = sections(built)["attention"].partition(f"{title} 1 reason")[2]
    assert f"cluster east has no hostname for gateways in mode Model yet What to do: {hint}" in wrong


def test_endpoints_with_one_reason_stand_together_and_long_lists_are_short() -> None:
    names = [f"p{number}" for number in range(7)]
    entries = [provider_entry(name) for name in names]
    unusable = [provider(name, url=f"http://192.0.2.{number}") for number, name in enumerate(names)]
    services = [service(*entries, name=f"chat{number}") for number in range(14)]
    wrong = sections(served(*services, *unusable, hub=answers(*HUB, ACCEPTED)))["attention"]
    assert "Endpoints that are not usable 1 reason" in wrong
    assert wrong.count("gateways in mode Model reach backends by DNS name only") >= 1
    assert "Service ml-team/chat0 : p0, p1, p2, p3, p4 and 2 more" in wrong
    assert "And 2 more services." in wrong
    assert "What to do: Correct its ModelEndpoint." in wrong


def test_a_backend_that_only_one_mode_can_use_is_wrong_for_the_other() -> None:
    b = provider("b", url="http://192.0.2.1")
    built = served(service(provider_entry("a"), provider_entry("b")), provider("a"), b, PATH, hub=answers(*HUB))
    assert "For gateways in mode Model: gateways in mode Model reach" in sections(built)["attention"]


def test_a_missing_key_of_a_backend_is_wrong_in_both_modes() -> None:
    key = {"apiKey": {"secretRef": {"name": "together", "key": "token"}}}
    documents = (service(provider_entry("a")), provider("a", credential=key))
    for gateways in ((), (PATH,)):
        wrong = sections(served(*documents, *gateways, hub=answers(*HUB, ACCEPTED)))["attention"]
        assert wrong.count("Secret ml-team/together is missing or has no key token") >= 1
        assert "What to do: Create it on the control cluster" in wrong


def test_a_service_that_no_gateway_serves_is_wrong_once() -> None:
    selecting = gateway(serviceSelector={"matchLabels": {"tier": "gold"}})
    reason = "no InferenceGateway serves it: none selects its labels"
    planned = sections(build(fleet(*PROVIDERS, eu=selecting)))["attention"]
    assert planned.count(reason) == 1
    assert "What to do: Correct its labels, or serviceSelector of an InferenceGateway." in planned
    seen = build(fleet(*PROVIDERS, eu=selecting), observed=Observed(clusters={"hub": answers(*HUB)}))
    assert sections(seen)["attention"].lower().count(reason.lower()) == 1


def test_nothing_is_wrong_where_all_endpoints_are_usable() -> None:
    assert "Nothing is wrong with the plan" in sections(build(fleet(*PROVIDERS)))["attention"]


def test_without_a_gateway_in_mode_path_no_url_of_it_is_on_the_page() -> None:
    built = served(service(), hub=answers(*HUB, ACCEPTED), east=ObservedCluster(declared=True))
    for plan in (built, build(unread())):
        page = drawn(plan)
        assert "fleet.internal" not in page
        assert "/ml-team/qwen-" not in page
        assert "model <code>ml-team/qwen</code>" in page
        assert "<code>model ml-team/chat</code>" in page
    assert f"at eu ({URL})" in sections(built)["picture"]
    with_path = drawn(build([*unread(), PATH]))
    assert "http://east.fleet.internal/ml-team/qwen-" in with_path
    assert "Gateway <code>east.fleet.internal</code>" in with_path


def test_a_provider_has_its_url_in_both_modes() -> None:
    named = provider("a", model="qwen-large")
    for gateways in ((), (PATH,)):
        page = sections(build(fleet(service(provider_entry("a")), named, *gateways)))["picture"]
        assert "https://api.a.example · model qwen-large" in page


def test_without_a_service_replicas_cannot_be_reached_by_gateways_in_mode_model() -> None:
    assert "There is no ModelService: replicas cannot be reached." in sections(build(fleet()))["picture"]
    assert "cluster's gateway only" in sections(build(fleet(PATH)))["picture"]


def test_a_cluster_that_only_runs_a_gateway_is_that_of_its_gateway() -> None:
    shown = sections(build(fleet(service(), cluster("spare"))))
    without = shown["picture"].partition("Clusters without endpoints")[2]
    assert "spare" in without
    assert "hub" not in without
    card = shown["fleet"].partition(" hub ")[2]
    assert "Runs InferenceGateway eu" in card
    assert "It has no pool" not in card.partition(" spare ")[0]
    assert "It has no pool" in card


def test_a_cluster_with_pools_and_a_gateway_may_be_without_endpoints() -> None:
    documents = fleet(gateway("us", "lab"), cluster("lab", "203.0.113.30"), service(provider_entry("a")), provider("a"))
    picture = sections(build(documents))["picture"]
    assert "lab" in picture.partition("Clusters without endpoints")[2]


def test_tiles_of_large_fleets_name_the_gateways_of_clusters() -> None:
    spare = [cluster(f"spare-{number:02}") for number in range(12)]
    page = drawn(build(fleet(service(), *spare)))
    assert 'aria-label="hub: Declared, 0 of 0 devices in use, runs InferenceGateway eu"' in page


def test_a_refused_gateway_runs_nowhere() -> None:
    shown = sections(build(fleet(service(), gateway("us"))))["fleet"]
    assert "Runs InferenceGateway eu" in shown
    assert "Runs InferenceGateway us" not in shown


def test_a_cluster_that_keeps_a_gateway_that_was_moved_runs_it() -> None:
    cards = sections(moved(hub=[*HUB, SERVED], rim=RIM, east=EAST))["fleet"]
    for name, of in (("eu", " hub "), ("rim", " rim ")):
        assert cards.partition(of)[2].partition("Runs InferenceGateway ")[2].startswith(name)
