# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The page in a real Chromium: no violation that axe-core knows, nothing cut off, by keyboard alone, quickly."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.tests.report import browser
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.report.sample_models import (
    budgeted,
    distributed,
    empty,
    large,
    small,
)
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.report.typed_models import html_of

pytestmark = pytest.mark.integration

MODELS = {"small": small, "distributed": distributed, "empty": empty, "many clusters": lambda: large(61, 12)}
MODELS["many budgets"] = budgeted
# Model, width, and whether it is dark.
SHOWN = [
    *itertools.product(["small"], [1280, 390], [False, True]),
    ("distributed", 1280, False),
    ("distributed", 390, True),
    ("empty", 390, False),
    ("many clusters", 1280, True),
    ("many budgets", 390, False),
]
# Of what is shown and can be read, all that sticks out of the window.
WIDE = """
[...document.querySelectorAll('body *')].filter((node) => !node.closest('.skip') && node.getBoundingClientRect().right
  > innerWidth + 1).slice(0, 5).map((node) => node.outerHTML.slice(0, 80))
"""
AXE = """
axe.run(document, {resultTypes: ['violations']}).then((found) => found.violations.map(
  (each) => `${each.id}: ${each.help}: ${each.nodes.map((node) => node.html.slice(0, 160)).slice(0, 3).join(' | ')}`))
"""
FOCUSED = "document.activeElement.id || document.activeElement.textContent.trim()"


@pytest.fixture(scope="module")
def chromium() -> Iterator[browser.Browser]:
    try:
        with browser.Browser() as started:
            yield started
    except browser.UnavailableError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def axe() -> str:
    try:
        return browser.axe()
    except browser.UnavailableError as error:
        pytest.skip(str(error))


def page(folder: Path, model: dict[str, Any]) -> Path:
    path = folder / "report.html"
    path.write_text(html_of(model), encoding="utf-8")
    return path


@pytest.mark.parametrize(("name", "width", "dark"), SHOWN)
def test_it_has_no_violation_and_is_not_cut_off(
    chromium: browser.Browser, axe: str, tmp_path: Path, name: str, width: int, dark: bool
) -> None:
    chromium.show(page(tmp_path, MODELS[name]()), width, dark=dark)
    assert chromium.run("innerWidth") == width
    assert chromium.run(WIDE) == []
    chromium.run(f"{axe};0")
    assert chromium.run(AXE) == []


def test_axe_finds_what_is_wrong(chromium: browser.Browser, axe: str, tmp_path: Path) -> None:
    """Otherwise the absence of violations would mean nothing."""
    chromium.show(page(tmp_path, empty()), 1280)
    chromium.run("document.documentElement.style.setProperty('--dim', '#c0c0c0')")
    chromium.run("document.getElementById('sort').parentNode.replaceWith(document.getElementById('sort'))")
    chromium.run(f"{axe};0")
    assert {found.partition(":")[0] for found in chromium.run(AXE)} >= {"color-contrast", "select-name"}


def test_it_can_be_used_by_keyboard_alone(chromium: browser.Browser, tmp_path: Path) -> None:
    chromium.show(page(tmp_path, small()), 1280)
    order = []
    for _ in range(18):
        chromium.press("Tab", 9)
        order.append(chromium.run(FOCUSED))
    assert order[:3] == ["Skip to the fleet", "2 pending", "6 problems"]
    assert order[3:13] == [
        "What is wrong", "Services, clusters and pools", "What if", "Losses of clusters", "What it costs",
        "Models and memory", "Use of budgets", "What changes", "Clusters in detail", "Model caches",
    ]  # fmt: skip
    assert order[13:18] == ["filter", "sort", "open", "close", "lab"]
    # The link to the cluster opens and focuses it, also when it was folded.
    chromium.run("document.getElementById('close').click()")
    chromium.press("Enter", 13)
    assert chromium.run("new Promise((done) => setTimeout(() => done(document.activeElement.id), 50))") == "c2"
    assert chromium.run("document.activeElement.parentNode.open")
    chromium.run("document.getElementById('filter').focus()")
    chromium.call("Input.insertText", text="us-west-2")
    found = "new Promise((done) => setTimeout(() => done(document.getElementById('message').textContent), 300))"
    assert chromium.run(found).startswith("Found: 1 of 3 clusters")


def test_a_budget_is_filtered_as_a_whole(chromium: browser.Browser, tmp_path: Path) -> None:
    chromium.show(page(tmp_path, small()), 1280)
    chromium.run("document.getElementById('filter').focus()")
    chromium.call("Input.insertText", text="initech")
    found = "new Promise((done) => setTimeout(() => done(document.getElementById('message').textContent), 300))"
    assert "1 of 2 budgets" in chromium.run(found)
    shown = "[...document.querySelectorAll('.budgets tbody tr')].filter((row) => row.offsetParent).length"
    assert chromium.run(shown) == 3, "the callers beside it, which have its name and its limit"


def test_a_screen_reader_gets_names_and_states(chromium: browser.Browser, tmp_path: Path) -> None:
    chromium.show(page(tmp_path, small()), 1280)
    nodes = chromium.call("Accessibility.getFullAXTree")["nodes"]
    named = {
        (node["role"]["value"], node["name"]["value"])
        for node in nodes
        if not node["ignored"] and node.get("name", {}).get("value")
    }
    for title in ("What is wrong", "Services, clusters and pools", "What changes"):
        assert ("region", title) in named
        assert ("heading", title) in named
    assert ("searchbox", "Filter") in named
    text = json.dumps(nodes)
    for word in (
        "Unreachable",
        "ImagePullBackOff",
        "devices in use",
        "kubectl -n mp-ml-team-51733 describe pod qwen-x",
    ):
        assert word in text


def test_1000_clusters_can_be_used_within_three_seconds(chromium: browser.Browser, tmp_path: Path) -> None:
    path = page(tmp_path, large(1_000, 1_000))
    chromium.call("Performance.enable", timeDomain="threadTicks")
    before = busy(chromium)
    chromium.show(path, 1280)
    # The time of the processor, as others may have it on a machine that is shared.
    assert busy(chromium) - before < 3
    assert chromium.run("document.getElementById('tools').hidden") is False
    assert chromium.run("document.querySelectorAll('#tiles > li').length") == 1_000
    assert chromium.run("document.querySelectorAll('#cards > details:not([hidden])').length") == 24


def busy(chromium: browser.Browser) -> float:
    metrics = {each["name"]: each["value"] for each in chromium.call("Performance.getMetrics")["metrics"]}
    found: float = metrics["TaskDuration"]
    return found
