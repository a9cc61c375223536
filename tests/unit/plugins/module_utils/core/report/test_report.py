# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The page of a plan: one well-formed file that asks for nothing, with everything of the model in it, as text."""

from __future__ import annotations

import copy
import functools
import itertools
import re
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterator
from hashlib import sha256
from html.parser import HTMLParser
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.report.rendering import file_texts
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.report.sample_models import (
    cluster,
    distributed,
    empty,
    endpoint,
    large,
    occupant,
    pool,
    replica,
    small,
)
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.report.typed_models import html_of
from hypothesis import given
from hypothesis import strategies as st

SCRIPT, STYLE = file_texts()["report.js"], file_texts()["report.css"]
Model = dict[str, Any]
MODELS: dict[str, Callable[[], Model]] = {
    "empty": empty,
    "small": small,
    "distributed": distributed,
    "medium": lambda: large(40, 90),
}
# Words that are part of the form of a model, not of its text.
FORM = {"DRA", "Synthetic", "pending", "unready", "unreachable", "survival"}
FORM |= {"cluster", "deployment", "gateway", "replica", "service"}
VOID = {"input", "meta"}
HOSTILE = (
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "\" onmouseover=\"alert(1)",
    "' onfocus='alert(1)",
    "]]><!--",
    "</title></style></textarea>",
    "javascript:alert(1)",
    "&lt;b&gt;&amp;",
    "\u202egpj.exe",
    "a\x00b\x1b[31m\r",
    "\ud800 half a character",
    "",
)  # fmt: skip


class Page(HTMLParser):
    """A page read strictly: every element is closed where it was opened. `tree` is (tag, attributes), `text` what is
    neither style nor script."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tree: list[tuple[str, dict[str, str]]] = []
        self.pieces: list[str] = []
        self.raw: dict[str, str] = {}
        self.feed(html)
        self.close()
        assert not self.open, f"never closed: {self.open}"
        self.text = " ".join(self.pieces)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({key for key, _ in attrs}) == len(attrs), f"an attribute twice on {tag}: {attrs}"
        self.tree.append((tag, {key: value or "" for key, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1:] == [tag], f"</{tag}> closes {self.open[-3:]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("style", "script"):
            self.raw[self.open[-1]] = self.raw.get(self.open[-1], "") + data
        else:
            self.pieces.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")

    def values(self, key: str) -> list[str]:
        return [attributes[key] for _, attributes in self.tree if key in attributes]

    def tags(self) -> Counter[str]:
        return Counter(tag for tag, _ in self.tree)


def texts(value: Any) -> Iterator[str]:
    """Every piece of text in a model that is a value, and the keys of labels."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, entry in value.items():
            if key == "labels":
                yield from (f"{name}={label}" for name, label in entry.items())
            else:
                yield from texts(entry)
    elif isinstance(value, list):
        for entry in value:
            yield from texts(entry)


def budgets(model: dict[str, Any]) -> list[dict[str, Any]]:
    return [budget for policy in model["policies"] for budget in policy["budgets"]]


def renamed(value: Any, change: Callable[[str], str]) -> Any:
    """A model with every piece of text changed but the words that are part of its form."""
    if isinstance(value, str):
        return value if value in FORM else change(value)
    if isinstance(value, list):
        return [renamed(entry, change) for entry in value]
    if isinstance(value, dict):
        return {(change(key) if parent_is_free(value) else key): renamed(entry, change) for key, entry in value.items()}
    return value


def parent_is_free(value: dict[str, Any]) -> bool:
    """Return whether the keys of a mapping are names that users chose: labels, and numbers of devices."""
    fixed = {"name", "namespace", "clusters", "created", "role", "reason", "placed", "kind", "phase", "needs", "key"}
    fixed |= {"replicas", "asked", "cluster", "moved", "lose", "pool", "gateway", "number"}
    return not value.keys() & fixed


@pytest.mark.parametrize("name", MODELS)
def test_it_is_well_formed_and_asks_for_nothing(name: str) -> None:
    html = html_of(MODELS[name]())
    page = Page(html)
    ids = page.values("id")
    assert len(ids) == len(set(ids))
    assert {target[1:] for target in page.values("href")} <= set(ids)
    assert all(target.startswith("#") for target in page.values("href"))
    assert set(page.values("aria-labelledby")) <= set(ids)
    assert not page.tags().keys() & {"img", "link", "iframe", "object", "embed", "base", "form", "video", "audio"}
    keys = {key for _, attributes in page.tree for key in attributes}
    assert not {key for key in keys if key.startswith("on")}
    assert not keys & {"src", "style", "srcset", "action"}
    assert not re.search(r"url\(|@import|https?:", STYLE + SCRIPT)


@pytest.mark.parametrize("name", MODELS)
def test_only_its_own_style_and_script_may_run(name: str) -> None:
    html = html_of(MODELS[name]())
    page = Page(html)
    assert page.tags()["script"] == page.tags()["style"] == 1
    assert page.raw == {"script": SCRIPT, "style": STYLE}
    policy = next(entry["content"] for _, entry in page.tree if entry.get("http-equiv") == "Content-Security-Policy")
    for directive, source in (("script-src", SCRIPT), ("style-src", STYLE)):
        digest = b64encode(sha256(source.encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    assert "</" not in SCRIPT + STYLE


@pytest.mark.parametrize("name", MODELS)
def test_it_has_landmarks_headings_and_captions(name: str) -> None:
    page = Page(html_of(MODELS[name]()))
    tags = page.tags()
    assert [tags[tag] for tag in ("header", "nav", "main", "footer", "h1")] == [1] * 5
    assert tags["table"] == tags["caption"]
    assert tags["details"] == tags["summary"]
    levels = [int(tag[1]) for tag, _ in page.tree if re.fullmatch("h[1-6]", tag)]
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels)), levels
    drawings = [attributes for tag, attributes in page.tree if tag == "svg"]
    assert all(attributes.get("aria-hidden") == "true" for attributes in drawings)
    assert next(attributes for tag, attributes in page.tree if tag == "html")["lang"] == "en"


def test_every_item_of_a_model_is_there() -> None:
    model = small()
    page = Page(html_of(model))
    folders = {path for paths in model["files"].values() for path in paths}
    form = {*FORM, model["time"], model["commit"], *texts([each.get("resetsAt") for each in budgets(model)])}
    # Of a path, folder and file stand apart.
    desired = [text for text in texts(model) if text and text not in folders | form]
    desired += [part for path in folders for part in path.rpartition("/")[::2]]
    assert len(desired) > 100
    shown = re.sub(r"\s+", " ", page.text)
    missing = [
        text for text in desired if text.replace("`", "").rstrip("/") not in shown and text.capitalize() not in shown
    ]
    assert not missing
    for text in ("15.26 GiB", "4.50 GiB for 32,768 tokens", "20.69 GiB", "40.00 GiB", "9.00 GiB for 65,536 tokens"):
        assert text in shown
    for text in ("5 of 9 replicas serve", "2 pending", "6 problems", "2 services", "3 clusters", "78 objects"):
        assert text in shown
    assert "2026-11-26 19:00:06 UTC , manifests of commit 8f0c2a1b8f0c or edited since" in shown


def test_the_use_of_a_budget_stands_beside_its_limit() -> None:
    shown = re.sub(r"\s+", " ", Page(html_of(small())).text)
    for text in (
        "ml-team/customers tokens-a-day until 2026-11-27 00:00:00 UTC acme at edge 2,000,000 spent 2,000,000 Tokens "
        "per Day initech at edge 31,250 3 callers used less",
        "ml-team/customers together - not known 600 Requests per Minute",
        "CallerPolicy ml-team/customers : InferenceGateway edge, budget together: its rate limit service does not",
    ):
        assert text in shown
    assert "Use of budgets" not in Page(html_of(empty())).text


def test_distributions_are_written_in_words_beside_their_bars() -> None:
    shown = re.sub(r"\s+", " ", Page(html_of(distributed())).text)
    for text in (
        "Over topology.example.com/region At least 2 each.",
        "At most 3 each now: us-central has fewest, 1, and maxSkew is 2.",
        "us-central gcp-central 1 1 replica 1 too few",
        "us-west aws-west 4 4 replicas 1 too many",
        "without the label lab 1 1 replica 1 too many takes nothing new",
        "If possible at most 4 each now: gcp has fewest, 3, and maxSkew is 1.",
        "capacity: reserved , tier: prod aws-west 2 2 of 6 replicas",
        "All other clusters other-1 1, other-0 0 1 of 6 replicas",
        "leaving llama-405b-90ad4410fe of ml-team/llama-405b on aws-west "
        "returns to preferred cluster aws-west, which has free capacity; stays until another serves",
        "removed embed-00aa12bb34 of search/embed on aws-west preempted by ml-team/llama-405b",
    ):
        assert text in shown
    assert "Order and spread of replicas" not in Page(html_of(small())).text


def test_no_replica_is_too_many_where_no_cluster_takes_new_ones() -> None:
    model = distributed()
    (row, *__) = model["distributions"]
    row["topologies"][0] |= {"most": None}
    shown = re.sub(r"\s+", " ", Page(html_of(model)).text)
    assert "At least 2 each. No cluster with this label takes new replicas." in shown
    assert "us-west aws-west 4 4 replicas" in shown
    assert "us-west aws-west 4 4 replicas 1 too many" not in shown
    assert "us-west aws-west 4 4 replicas 4 too many" not in shown


def test_every_cluster_replica_and_service_of_a_large_model_is_there() -> None:
    model = large(40, 90)
    page = Page(html_of(model))
    names = {entry["name"] for key in ("clusters", "services") for entry in model[key]}
    names |= {entry["replica"] for entry in model["replicas"]}
    assert all(name in page.text for name in names)
    tiles = [entry for _, entry in page.tree if entry.get("class", "").startswith("tile ")]
    assert [entry["aria-label"].partition(":")[0] for entry in tiles] == [entry["name"] for entry in model["clusters"]]


@pytest.mark.parametrize("hostile", HOSTILE)
def test_no_name_becomes_markup(hostile: str) -> None:
    model = distributed()
    # A slash more in a path is a folder more.
    calm = Page(html_of(renamed(model, lambda text: text + re.sub("[^/]", "-", hostile) + "x")))
    page = Page(html_of(renamed(model, lambda text: f"{text}{hostile}x")))
    assert [tag for tag, _ in page.tree] == [tag for tag, _ in calm.tree]
    assert [sorted(attributes) for _, attributes in page.tree] == [sorted(attributes) for _, attributes in calm.tree]
    assert page.values("id") == calm.values("id")
    assert page.values("href") == calm.values("href")


@given(st.text(max_size=12))
def test_any_text_is_shown_as_it_is(name: str) -> None:
    model = small()
    model["clusters"][0]["name"] = f"[{name}]"
    html = html_of(model)
    html.encode()
    page = Page(html)
    unfit = "\x0b\x0c\r\x7f\u200e\u200f\ufffe\uffff"
    if all(ord(sign) >= 0xA0 and sign not in unfit and not 0x2028 <= ord(sign) <= 0x206F for sign in name):
        assert f"[{name}]" in page.text or any(0xFDD0 <= ord(sign) <= 0xFDEF for sign in name)


def test_an_answer_has_the_question_the_moves_and_the_numbers() -> None:
    page = Page(html_of(small()))
    assert "cluster aws-west is lost" in page.text
    assert "no place" in page.text
    assert "Services, and their usable endpoints" in page.text
    assert "Gateways that are lost" in page.text
    assert "no gateway is left, so that clients get no answer: ml-team/chat" in page.text
    assert "what-if" in page.values("id")
    assert "what-if" not in Page(html_of(empty())).values("id")


def test_losses_that_are_not_survived_are_wrong_and_say_what_would_fix_it() -> None:
    page = Page(html_of(small()))
    assert "does not survive" in page.text
    assert page.text.count("1 more node of pool gpu-l4 on gcp-central would fix it") == 2
    assert "3 losses of 3 that can matter were tried." in page.text
    assert "outside of the fleet" in page.text
    assert "gateways of a service, any 1 cluster" in page.text
    assert "the control cluster" in page.text
    assert "losses" not in Page(html_of(empty())).values("id")


def test_equal_models_give_equal_pages() -> None:
    assert html_of(small()) == html_of(copy.deepcopy(small()))
    assert html_of(large(30, 60)) == html_of(copy.deepcopy(large(30, 60)))
    model = small()
    before = copy.deepcopy(model)
    html_of(model)
    assert model == before


def test_a_fleet_of_300_clusters_and_1000_replicas() -> None:
    model = large(300, 1_000)
    before = time.process_time()
    html = html_of(model)
    seconds = time.process_time() - before
    assert len(html.encode()) < 3_000_000
    assert seconds < 10, "it takes less than one on an idle machine"
    assert not [attributes for tag, attributes in Page(html).tree if tag == "details" and "open" in attributes
                and attributes.get("class", "").startswith("card")]  # fmt: skip


def test_many_files_are_counted_by_folder() -> None:
    model = empty()
    model["objects"] = [{"cluster": "c0000", "created": 20_000, "changed": 0, "removed": 0}]
    model["files"]["created"] = [f"clusters/c{number % 1_500:04}/{number}.yaml" for number in range(20_000)]
    html = html_of(model)
    page = Page(html)
    assert "20,000 objects" in page.text
    assert "clusters/c0000/" in page.text
    assert "14 files" in page.text
    assert "And 500 more folders." in page.text
    assert len(html) < 150_000


def served(tier: int | None, *endpoints: dict[str, Any]) -> Page:
    model = empty()
    used = occupant("ml", "a", "a-0")
    model["clusters"] = [cluster("one", pool("gpu", 2, "L4", used))]
    model["replicas"] = [replica(used, "one", "gpu")]
    service = {
        "namespace": "ml",
        "name": "s",
        "path": "/ml/s/",
        "at": "",
        "address": "",
        "tier": tier,
        "status": "Serving",
    }
    service["message"] = ""
    model["services"] = [service | {"endpoints": list(endpoints), "desired": len(endpoints)}]
    return Page(html_of(model))


@pytest.mark.parametrize(
    ("tier", "endpoints", "shares", "call"),
    [
        pytest.param(0, [endpoint("a-0", 1)], ["100%"], "100% of", id="one"),
        pytest.param(0, [endpoint("a-0", 1), endpoint("b", 2)], ["33.3%", "66.7%"], "33.3% of", id="thirds"),
        pytest.param(0, [endpoint("a-0", 1), endpoint("b", 2_999)], ["<0.1%", "100%"], "<0.1% of", id="a trace"),
        pytest.param(0, [endpoint("a-0", 1), endpoint("b", 9, usable=False)], ["100%"], "100% of", id="unusable"),
        pytest.param(
            1, [endpoint("b", 9, usable=False), endpoint("a-0", 5, priority=1)], ["100%"], "100% of", id="tier"
        ),
        pytest.param(0, [endpoint("b", 9), endpoint("a-0", 5, priority=1)], ["100%"], "", id="stands by"),
        pytest.param(0, [endpoint("b", 9), endpoint("a-0", 0)], ["100%"], "", id="no weight"),
        pytest.param(None, [endpoint("a-0", 9)], [], "", id="withheld"),
    ],
)
def test_shares_are_of_the_endpoints_in_use(
    tier: int | None, endpoints: list[dict[str, Any]], shares: list[str], call: str
) -> None:
    page = served(tier, *endpoints)
    text = re.sub(r"\s+", " ", page.text)
    assert re.findall(r"(<?[\d.]+%) of requests", text) == shares
    assert f"{len(shares)} of {len(endpoints)} endpoint" in text
    assert re.findall(r"← requests: (\S+ of)", text) == ([call] if call else [])


def test_a_spread_member_is_reported_with_its_pods_on_each_pool() -> None:
    model = empty()
    used = occupant("ml", "a", "a-0", 4, role="Worker", devices={"gpu": 8})
    model["clusters"] = [cluster("one", pool("reserved", 2, "H100"), pool("on-demand", 3, "H100"))]
    spread = replica(used, "one", "reserved")
    spread["engines"][0]["members"][0]["pools"] = [{"name": "reserved", "pods": 1}, {"name": "on-demand", "pods": 3}]
    model["replicas"] = [spread]
    text = re.sub(r"\s+", " ", Page(html_of(model)).text)
    assert "main Worker: 4 pods each with 8 gpu: 1 pod in reserved , 3 pods in on-demand" in text.replace(
        "reserved,", "reserved ,"
    )


def test_an_endpoint_that_stands_by_is_reported_without_a_weight_and_a_path_without_an_address() -> None:
    text = re.sub(r"\s+", " ", served(0, endpoint("b", 9), endpoint("a-0", 0, priority=1)).text)
    assert "priority 1 · entry 0" in text
    assert "weight 0" not in text
    assert "The address of the gateway is not known yet." in text


REASONS = (
    "clusters.reason",
    "clusters.pools.overcommitted",
    "replicas.reason",
    "services.message",
    "replicas.message",
    "clusters.message",
    "findings.message",
    "findings.hint",
    "findings.command",
    "caches.clusters.message",
    "pending.refusals.reason",
    "removed.reason",
    "distributions.leaving.reason",
    "distributions.preempted.reason",
    "policies.message",
    "policies.budgets.name",
    "policies.budgets.unit",
    "unusable.reason",
    "unusable.hint",
    "services.at",
)


def reworded(value: Any, path: str, text: str) -> Any:
    """A model with one text in place of all at a path, also where there was none; all else stays, and stays empty."""
    if isinstance(value, list):
        return [reworded(entry, path, text) for entry in value]
    first, _, rest = path.partition(".")
    return text if not path else value | {first: reworded(value[first], rest, text)}


@functools.cache
def page_with(path: str, reason: str) -> Page:
    model = distributed()
    # Of all clusters, of one without a pool, and of more than are listed.
    names = [entry["name"] for entry in model["clusters"]]
    for clusters in (names, names[:1], [*names, *(f"gone-{number}" for number in range(20))]):
        model["pending"][0]["refusals"].append({"clusters": clusters, "pool": "", "reason": "no room"})
    return Page(html_of(reworded(model, path, reason)))


@pytest.mark.parametrize("path", REASONS)
@pytest.mark.parametrize("hostile", HOSTILE)
def test_no_reason_becomes_markup(path: str, hostile: str) -> None:
    calm, page = page_with(path, "a reason"), page_with(path, f"{hostile}x")
    assert "a reason" in calm.text
    assert [tag for tag, _ in page.tree] == [tag for tag, _ in calm.tree]
    assert [sorted(attributes) for _, attributes in page.tree] == [sorted(attributes) for _, attributes in calm.tree]


def test_a_pool_is_drawn_with_a_cell_per_device_or_as_one_bar() -> None:
    model = empty()
    used = occupant("ml", "a", "a-0", 2, devices={"gpu": 3})
    model["clusters"] = [cluster("one", pool("few", 3, "H100", used), pool("many", 900, "H100", used))]
    page = Page(html_of(model))
    runs = [
        attributes["d"]
        for tag, attributes in page.tree
        if tag == "path" and attributes.get("class", "").startswith("t")
    ]
    # Two nodes beside each other (frames of 130 px, 4 apart), three cells of 14 px with gaps of 2 on each.
    assert runs[0] == "M2 9h46M136 9h46"
    assert runs[1:] == ["M0 9h2"]
    assert "6 of 24 gpu in use, 18 free" in page.text
    assert "6 of 7,200 gpu in use, 7,194 free" in page.text
    assert "Drawn on 2 of 3 nodes." in page.text


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param(pool("p", 0, "L4"), id="no nodes"),
        pytest.param(pool("p", 0, "L4", occupant("ml", "a", "a-0")), id="no nodes but pods"),
        pytest.param(pool("p", 2, "L4", devices=[]), id="no devices"),
        pytest.param(pool("p", 2, "L4", occupant("ml", "a", "a-0"), devices=[]), id="no devices but pods"),
        pytest.param(pool("p", 2, "L4", occupant("ml", "a", "a-0", devices={"tpu": 4})), id="unknown device"),
        pytest.param(pool("p", 2, "L4", occupant("ml", "a", "a-0", devices={})), id="a pod without devices"),
        pytest.param(pool("p", 2, "L4", occupant("ml", "a", "a-0", 0)), id="no pods"),
        pytest.param(pool("p", 2, "L4", occupant("ml", "a", "a-0", 50)), id="far too many pods"),
    ],
)
def test_odd_pools_are_reported_and_drawn(odd: dict[str, Any]) -> None:
    model = empty()
    model["clusters"] = [cluster("one", odd)]
    page = Page(html_of(model))
    assert "Pool" in page.text
    assert all(entry["replica"] in page.text for entry in odd["occupied"])


def test_of_many_services_those_that_fail_come_first() -> None:
    model = large(3, 30)
    model["services"][17]["status"] = "Unavailable"
    model["services"][4]["status"] = "Unknown"
    page = Page(html_of(model))
    ids = [id_ for id_ in page.values("id") if re.fullmatch("s[0-9]+", id_)]
    assert ids[:3] == ["s17", "s4", "s0"]
    assert len(ids) == 30


@pytest.mark.parametrize(
    ("state", "kind", "flag"), [("NotReady", "bad", "!"), ("Unreachable", "unknown", "?"), ("Declared", "neutral", "")]
)
def test_a_tile_has_the_health_of_its_cluster(state: str, kind: str, flag: str) -> None:
    model = large(20, 5)
    model["clusters"][3] |= {"state": state, "reason": ""}
    page = Page(html_of(model))
    tiles = [entry for _, entry in page.tree if entry.get("class", "").startswith("tile ")]
    assert tiles[3]["class"].endswith(f" t-{kind}")
    assert f": {state}, " in tiles[3]["aria-label"]
    cluster_ = model["clusters"][3]
    used, total = (sum(pool_[key] for pool_ in cluster_["pools"]) for key in ("used", "total"))
    assert f"{used}/{total} {flag}".strip() in re.sub(r"\s+", " ", page.text)


def test_backticks_are_code_and_a_single_one_stays() -> None:
    model = small()
    model["findings"][0]["hint"] = "run `one <two>` and `three`, not `four"
    html = html_of(model)
    assert "run <code>one &lt;two&gt;</code> and <code>three</code>, not `four" in html
