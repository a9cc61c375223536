# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Budgets on the page: of few and many policies, of gateways that say nothing, and of names that are markup."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.observation import Observed, ObservedCluster
from ansible_collections.modelplane.fleet.tests.model_fleet import (
    Built,
    build,
    fleet,
    policy,
    provider,
    provider_entry,
    service,
)
from ansible_collections.modelplane.fleet.tests.model_fleet import gateway as gateway_document
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.output.test_model_tables import drawn
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.report.sample_models import budgeted
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.report.test_report import HOSTILE, Page
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.report.typed_models import html_of
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.status.test_model_statuses import (
    BUDGETED,
    counted,
)


def text(markup: str) -> str:
    return unescape(re.sub(r"\s+", " ", re.sub("<[^>]+>", " ", markup)))


def section(built: Built) -> str:
    """The text of the section of a fleet, empty without it."""
    __, __, rest = drawn(built).partition('<h2 id="budgets">')
    return text(rest.partition("</section>")[0])


def budgets_section(policies: list[dict[str, Any]]) -> str:
    """The section as HTML, empty if there is none."""
    html = html_of({**budgeted(0), "policies": policies})
    __, __, rest = html.partition('<h2 id="budgets">Use of budgets</h2>')
    return rest.partition("</section>")[0]


def budget(used: dict[str, int], limit: int = 100, **fields: Any) -> dict[str, Any]:
    use = [{"gateway": "eu", "caller": caller, "used": number} for caller, number in used.items()]
    return {"name": "daily", "unit": "Tokens", "limit": limit, "per": "Day", "use": use, **fields}


def of(name: str, *budgets: dict[str, Any], message: str = "") -> dict[str, Any]:
    return {"namespace": "ml", "name": name, "message": message, "budgets": list(budgets)}


def order(markup: str) -> list[str]:
    return re.findall("<code>ml/([a-z]+)</code> <code>daily", markup)


def test_what_is_spent_or_nearly_spent_comes_first() -> None:
    found = budgets_section(
        [
            of("calm", budget({"a": 10})),
            of("silent", budget({}), message="timed out"),
            of("nearly", budget({"a": 5, "b": 80})),
            of("spent", budget({"a": 100})),
            of("over", budget({"a": 150})),
            of("busy", budget({"a": 79})),
            of("unused", budget({})),
        ]
    )
    assert order(found) == ["over", "spent", "nearly", "busy", "calm", "unused", "silent"]
    shown = text(found)
    assert "7 budgets of 7 CallerPolicies: 2 spent, 1 nearly spent, 1 not known" in shown
    assert "80 nearly spent" in shown
    assert "79 nearly spent" not in shown
    assert "no caller" in shown.partition("ml/unused")[2]


def test_of_200_policies_few_are_shown_and_those_with_least_left_are_among_them() -> None:
    markup = budgets_section(budgeted()["policies"])
    few, __, more = markup.partition("<details>")
    assert few.count("<tbody>") == 12
    assert more.count("<tbody>") == 188
    assert "188 more budgets" in text(more)
    first = re.findall("policy-[0-9]+", few)
    assert first[:2] == ["policy-197", "policy-198"]
    assert "200 budgets of 200 CallerPolicies: 1 spent, 1 nearly spent, 67 not known" in text(few)
    notes = text(more).rpartition("CallerPolicies ")[2]
    assert "and 55 more: InferenceGateway lab: cluster lab has not been observed: timed out." in notes
    assert text(more).count("cluster lab has not been observed") == 1
    html = html_of(budgeted())
    Page(html)
    assert len(html) < 250_000


def test_without_budgets_there_is_no_section() -> None:
    assert section(build(fleet(*BUDGETED))) == "", "nothing is read"
    rights = (service(provider_entry("a")), provider("a"), policy())
    assert section(build(fleet(*rights), observed=counted())) == ""
    assert budgets_section([of("rights")]) == ""


SILENT = {
    "it does not answer": (ObservedCluster(unreachable="timed out"), "cluster hub has not been observed: timed out."),
    "its objects are files": (ObservedCluster(declared=True), "cluster hub is not observed, as its objects are files."),
}


@pytest.mark.parametrize("name", SILENT)
def test_a_gateway_that_says_nothing_is_the_reason(name: str) -> None:
    seen, why = SILENT[name]
    shown = section(build(fleet(*BUDGETED), observed=Observed(clusters={"hub": seen})))
    assert "ml-team/team daily - not known 20 Requests per Day" in shown
    assert f"CallerPolicy ml-team/team : InferenceGateway eu: {why}" in shown
    assert "1 budget of 1 CallerPolicy: 1 not known" in shown


def test_without_a_gateway_with_keys_nothing_is_known_and_the_page_says_why() -> None:
    shown = section(build(fleet(*BUDGETED, eu=gateway_document(auth=None)), observed=counted(alice=3)))
    assert "daily - not known 20 Requests per Day" in shown
    assert "No gateway with keys routes requests to a service of the policy." in shown
    assert "alice" not in shown


def test_use_is_that_of_the_callers_that_the_gateway_counts() -> None:
    shown = section(build(fleet(*BUDGETED), observed=counted(alice=20, bob=1)))
    assert "until 2026-11-28 00:00:00 UTC alice at eu 20 spent 20 Requests per Day bob at eu 1" in shown
    assert "CallerPolicy ml-team/team :" not in shown


@pytest.mark.parametrize("hostile", HOSTILE)
def test_no_name_becomes_markup(hostile: str) -> None:
    def tags(name: str) -> list[str]:
        use = [{"gateway": f"g{name}", "caller": f"c{name}", "used": 3}]
        found = {**budget({}), "use": use, "name": f"n{name}", "unit": f"u{name}", "per": f"p{name}"}
        model = budgeted(0)
        model["policies"] = [{**of(f"p{name}", found, budget({}), message=f"m{name}"), "namespace": f"ns{name}"}]
        return [tag for tag, __ in Page(html_of(model)).tree]

    assert tags(hostile) == tags("calm")
