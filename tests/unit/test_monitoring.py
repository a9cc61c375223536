# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Rules and dashboard of docs/monitoring: their queries parse, and ask for series that there are."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser as promql
import pytest
import yaml
from ansible_collections.modelplane.fleet.tests.kube import binaries

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/monitoring.md").read_text()
FOLDER = ROOT / "docs/monitoring"
RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load((FOLDER / "rules.yaml").read_text())["spec"]["groups"] for rule in group["rules"]
]
RECORDED = {rule["record"]: rule["expr"] for rule in RULES if "record" in rule}
ALERTS = {rule["alert"]: rule for rule in RULES if "alert" in rule}
DASHBOARD = json.loads((FOLDER / "dashboard.json").read_text())
PANELS = {panel["title"]: panel for panel in DASHBOARD["panels"]}
STACK = yaml.safe_load((ROOT / "roles/serving_stack/defaults/main.yml").read_text())

# https://docs.vllm.ai/en/stable/usage/metrics/; https://docs.sglang.io/references/production_metrics.html;
# https://www.envoyproxy.io/docs/envoy/latest/configuration/http/http_conn_man/stats; the metrics of llm-d's router v0.9
EXPORTED = {
    "envoy_http_downstream_rq_xx",
    "llm_d_epp_request_running",
    "sglang:e2e_request_latency_seconds_bucket",
    "sglang:generation_tokens_total",
    "sglang:num_queue_reqs",
    "sglang:num_running_reqs",
    "sglang:prompt_tokens_total",
    "sglang:time_to_first_token_seconds_bucket",
    "sglang:token_usage",
    "up",
    "vllm:e2e_request_latency_seconds_bucket",
    "vllm:generation_tokens_total",
    "vllm:kv_cache_usage_perc",
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:prompt_tokens_total",
    "vllm:time_to_first_token_seconds_bucket",
}
QUERIES = {
    **RECORDED,
    **{name: rule["expr"] for name, rule in ALERTS.items()},
    **{title: target["expr"] for title, panel in PANELS.items() for target in panel["targets"]},
}


def selectors(query: str) -> Iterator[promql.VectorSelector]:
    """Yield the selectors of series in a query."""
    pending: list[Any] = [promql.parse(query)]
    while pending:
        found = pending.pop()
        if isinstance(found, promql.VectorSelector):
            yield found
        parts = ("expr", "lhs", "rhs", "param", "vector_selector")
        pending += [part for name in parts if (part := getattr(found, name, None)) is not None]
        pending += getattr(found, "args", None) or []


def series(query: str) -> set[str]:
    """The names of the series that a query asks for."""
    names = set()
    for selector in selectors(query):
        by_label = [each.value for each in selector.matchers.matchers if each.name == "__name__"]
        names |= {selector.name} if selector.name else set("|".join(by_label).split("|"))
    return names


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_asks_for_series_that_there_are(name: str) -> None:
    known = EXPORTED if name in RECORDED else {*EXPORTED, *RECORDED, "ALERTS"}
    assert series(QUERIES[name])
    assert series(QUERIES[name]) - known == set()


def test_all_that_is_recorded_is_shown_and_documented() -> None:
    shown = set().union(*(series(query) for name, query in QUERIES.items() if name in PANELS))
    assert set(RECORDED) - shown == set()
    assert [name for name in (*RECORDED, *ALERTS) if f"`{name}`" not in PAGE] == []


def test_labels_and_jobs_are_those_that_the_stack_scrapes_by() -> None:
    stack = json.dumps(STACK["serving_stack_components"])
    jobs = {
        each.value
        for query in QUERIES.values()
        for selector in selectors(query)
        for each in selector.matchers.matchers
        if each.name == "job"
    }
    assert jobs == {"modelplane-system/modelplane-engines", "envoy-gateway-proxy"}
    for name in ("modelplane-engines", "envoy-gateway-proxy"):
        assert f'"{name}"' in stack
    labels = set(re.findall(r"modelplane_ai_(\w+)", json.dumps([*QUERIES.values()])))
    assert labels == {"namespace", "deployment", "replica"}
    for label in labels:
        assert f'"modelplane.ai/{label}"' in stack


def test_an_alert_has_a_severity_and_texts() -> None:
    for rule in ALERTS.values():
        assert rule["for"]
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert set(rule["annotations"]) == {"summary", "description"}


def test_panels_are_beside_each_other() -> None:
    places = [tuple(panel["gridPos"].values()) for panel in PANELS.values()]
    assert len(set(places)) == len(DASHBOARD["panels"]) == len({panel["id"] for panel in PANELS.values()})
    variables = {each["name"] for each in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(DASHBOARD["panels"])))
    assert used == variables


NAMES = {
    "vllm": ("num_requests_running", "prompt_tokens_total", "generation_tokens_total", "kv_cache_usage_perc"),
    "sglang": ("num_running_reqs", "prompt_tokens_total", "generation_tokens_total", "token_usage"),
}
STILL, GROWING = "7+0x20", "7+3x20"


def samples(engine: str, pod: str, running: str, prompts: str, generated: str, cache: str) -> list[dict[str, str]]:
    """Samples of a minute each, as `promtool` writes them, of a pod of the replica `r`."""
    labels = f'namespace="mp-a",pod="{pod}",modelplane_ai_namespace="a",modelplane_ai_deployment="d"'
    return [
        {"series": f'{engine}:{name}{{{labels},modelplane_ai_replica="r",model_name="m"}}', "values": values}
        for name, values in zip(NAMES[engine], (running, prompts, generated, cache), strict=True)
    ]


def picker(running: str) -> dict[str, str]:
    labels = 'pod="epp",modelplane_ai_namespace="a",modelplane_ai_deployment="d",modelplane_ai_replica="r"'
    return {"series": f'llm_d_epp_request_running{{namespace="mp-a",{labels},model_name="m"}}', "values": running}


def stalled(engine: str) -> dict[str, tuple[list[dict[str, str]], list[str]]]:
    """Samples of twenty minutes, and the pods of which the alert fires after ten."""
    hangs = samples(engine, "p", "2+0x20", STILL, STILL, STILL)
    says_none = samples(engine, "p", "0+0x20", STILL, STILL, STILL)
    serves = samples(engine, "q", "1+0x20", STILL, GROWING, STILL)
    return {
        "hangs with requests": (hangs, ["p"]),
        "hangs, and another pod serves": ([*hangs, *serves], ["p"]),
        "hangs without requests of its own": ([*says_none, picker("1+0x20")], ["p"]),
        "streams": (samples(engine, "p", "2+0x20", STILL, GROWING, STILL), []),
        "a long prompt": (samples(engine, "p", "1+0x20", STILL, STILL, "0+0.01x20"), []),
        "short answers": (samples(engine, "p", "2+0x20", GROWING, STILL, STILL), []),
        "idle": ([*says_none, picker("0+0x20")], []),
        "idle, and another pod serves": ([*says_none, *serves, picker("1+0x20")], []),
        "has had requests for four minutes": (samples(engine, "p", "0+0x6 2+0x14", STILL, STILL, STILL), []),
    }


@pytest.mark.integration
@pytest.mark.parametrize("engine", NAMES)
@pytest.mark.parametrize("name", stalled("vllm"))
def test_an_engine_that_hangs_is_an_alert(tmp_path: Path, engine: str, name: str) -> None:
    try:
        promtool = binaries.find([binaries.PROMTOOL])["promtool"]
    except binaries.UnavailableError as error:
        pytest.skip(str(error))
    given, pods = stalled(engine)[name]
    rule = ALERTS["ModelplaneEngineStalled"]
    groups = {"groups": [{"name": "g", "rules": [{**rule, "annotations": {}}]}]}
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(groups))
    replica = {"namespace": "a", "deployment": "d", "replica": "r"}
    labels = {"namespace": "mp-a", **{f"modelplane_ai_{label}": value for label, value in replica.items()}}
    firing = [{"exp_labels": {**rule["labels"], **labels, "pod": pod}} for pod in pods]
    verdict = {"eval_time": "10m", "alertname": rule["alert"], "exp_alerts": firing}
    case = {"interval": "1m", "input_series": given, "alert_rule_test": [verdict]}
    tests = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": [case]}
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump(tests))
    command = [str(promtool), "test", "rules", str(tmp_path / "tests.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
