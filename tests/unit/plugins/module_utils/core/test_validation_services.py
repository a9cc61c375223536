# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Tests of what is wrong with ModelServices and ModelEndpoints in mode Path."""

from __future__ import annotations

import pytest
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.little_fleet import (
    ENDPOINT,
    GATEWAY,
    SERVICE,
    assert_one_problem,
    change,
    endpoint,
    fleet,
    only,
    service,
)

ELSEWHERE = change(SERVICE, "namespace: team", "namespace: other")
QWEN = "selector: {matchLabels: {modelplane.ai/deployment: qwen}}"
QWEN_0 = 'selector: {matchLabels: {modelplane.ai/deployment: qwen, modelplane.ai/replica-index: "0"}}'
GOLD = "selector: {matchLabels: {tier: gold}}"
KEY = "credential: {apiKey: {secretRef: {name: key}}}"


@pytest.mark.parametrize(
    ("changed", "severity", "path", "line", "says", "hint"),
    [
        pytest.param(
            {"service": change(SERVICE, "deployment: qwen", "deployment: qwem")},
            "warning",
            "spec.endpoints[0].selector.matchLabels",
            6,
            "matches no endpoint in namespace team",
            "Did you mean qwen?",
            id="service",
        ),
        pytest.param(
            {"service": change(SERVICE, "namespace: team", "namespace: other")},
            "warning",
            "spec.endpoints[0].selector.matchLabels",
            6,
            "matches no endpoint in namespace other",
            "No ModelDeployment in other exists",
            id="service elsewhere",
        ),
        *(
            pytest.param(
                {
                    "gateway": GATEWAY,
                    "e": ENDPOINT,
                    "service": change(ELSEWHERE, "modelplane.ai/deployment: qwen", labels),
                },
                "warning",
                "spec.endpoints[0].selector.matchLabels",
                6,
                "matches no endpoint in namespace other",
                hint,
                id=f"service elsewhere of a gateway in mode Model: {labels}",
            )
            for labels, hint in (
                ("modelplane.ai/deployment: qwen", "Endpoints with these labels are in namespace team: a ModelService"),
                ("provider: saas", "Endpoints with these labels are in namespace team"),
                ("tier: gold, modelplane.ai/cluster: west", "Endpoints with these labels are in namespace team"),
                ("provider: sass", "Select the endpoints of a deployment by its name"),
            )
        ),
        pytest.param(
            {"service": change(SERVICE, "qwen}}", "qwen, tier: silver}}")},
            "warning",
            "spec.endpoints[0].selector.matchLabels",
            6,
            "matches no endpoint",
            "",
            id="service with another template label",
        ),
        pytest.param(
            {"e": endpoint('{url: "ftp://api.example.com/"}')},
            "error",
            "spec.url",
            4,
            "neither http:// nor https://",
            "https://api.example.com",
            id="scheme",
        ),
        pytest.param({"e": endpoint("{url: 'https://'}")}, "error", "spec.url", 4, "has no host", "", id="no host"),
        pytest.param(
            {"e": endpoint("{url: 'http://a.example:99999'}")}, "error", "spec.url", 4, "port", "", id="no port"
        ),
        pytest.param(
            {"e": endpoint("{url: 'https://[2001:db8::1]/'}")},
            "error",
            "spec.url",
            4,
            "https to the address 2001:db8::1",
            "tls.serverName",
            id="https to an address",
        ),
        pytest.param(
            {"e": endpoint(f"{{url: 'http://a.example', {KEY}}}")},
            "warning",
            "spec.url",
            4,
            "unencrypted",
            "Write https://",
            id="key in the clear",
        ),
        pytest.param(
            {"e": endpoint("{url: 'https://a.example/openai/v1'}")},
            "warning",
            "spec.url",
            4,
            "only its host and port are used",
            "spec.rewritePath",
            id="path of the url",
        ),
        pytest.param(
            {"e": endpoint("{url: 'https://a.example', rewritePath: //}")},
            "warning",
            "spec.rewritePath",
            4,
            "consecutive slashes",
            "one slash",
            id="two slashes",
        ),
        pytest.param(
            {"service": service(f"{{priority: 2, {GOLD}}}", f"{{priority: 2, {QWEN_0}}}")},
            "warning",
            "spec.endpoints[0].priority",
            6,
            "all entries have the same",
            "",
            id="equal priorities",
        ),
        pytest.param(
            {"service": service(f"{{{QWEN}}}", f"{{priority: 1, {QWEN_0}}}")},
            "warning",
            "spec.endpoints[1].selector.matchLabels",
            7,
            "endpoints[0] comes first and matches all of them",
            "Put it before endpoints[0]",
            id="wide before narrow",
        ),
    ],
)
def test_problems(changed: dict[str, str], severity: str, path: str, line: int, says: str, hint: str) -> None:
    assert_one_problem(fleet(**changed), severity, path, line, says, hint)


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"service": change(SERVICE, "qwen}}", "qwen, tier: gold}}")}, id="template label"),
        pytest.param(
            {"service": change(SERVICE, "modelplane.ai/deployment: qwen", "tier: gold")}, id="template label only"
        ),
        pytest.param(
            {"service": change(SERVICE, "modelplane.ai/deployment: qwen", "provider: saas"), "e": ENDPOINT},
            id="endpoint",
        ),
        pytest.param({"service": change(SERVICE, "qwen}}", "qwen, modelplane.ai/cluster: west}}")}, id="cluster label"),
        pytest.param(
            {"service": change(SERVICE, "qwen}}", 'qwen, modelplane.ai/replica-index: "3"}}')}, id="index label"
        ),
        pytest.param({"service": change(SERVICE, "{modelplane.ai/deployment: qwen}", "{}")}, id="everything"),
        pytest.param({"e": endpoint('{url: "http://[2001:db8::1]:8000"}')}, id="IPv6"),
        pytest.param({"e": endpoint('{url: "https://10.0.0.1", tls: {serverName: a.example}}')}, id="IP with a name"),
        pytest.param({"e": endpoint(f'{{url: "https://a.example", {KEY}}}')}, id="key over https"),
        pytest.param({"service": service(f"{{priority: 1, {GOLD}}}", f"{{{QWEN_0}}}")}, id="priorities"),
        pytest.param({"service": service(f"{{{QWEN_0}}}", f"{{{QWEN}}}")}, id="narrow before wide"),
        pytest.param({"service": service(f"{{{QWEN}}}", f"{{{GOLD}}}")}, id="selectors that overlap"),
    ],
)
def test_no_problem(changed: dict[str, str]) -> None:
    assert fleet(**changed).problems == ()


def test_a_password_in_a_url_is_not_repeated() -> None:
    problem = only(fleet(e=endpoint("{url: 'https://me:hunter2@a.example/'}")).problems)
    assert problem.path == "spec.url"
    assert "hunter2" not in str(problem)
    assert "Secret" in problem.hint
