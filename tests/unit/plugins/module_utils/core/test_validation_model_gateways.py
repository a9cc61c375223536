# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Tests of what is wrong with gateways in mode Model, and with the ModelServices and ModelEndpoints that they serve."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core import names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.load import Source, load
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.little_fleet import (
    AUTH,
    CLUSTER,
    CONTAINER,
    DEPLOYMENT,
    ENDPOINT,
    EXPOSED,
    GATEWAY,
    HERE,
    KEYED,
    OPEN,
    PATH_GATEWAY,
    POLICY,
    SAAS,
    SERVICE,
    SHOWN,
    TLS,
    assert_one_problem,
    change,
    endpoint,
    engine,
    fleet,
    only,
)

DATA = Path(__file__).resolve().parents[4] / "data" / "manifests"
SELECTOR = "secretSelector: {matchLabels: {keys: callers}}"
TOKENS = "issuer: 'https://login.example', audiences: [a], jwks: {uri: 'https://login.example/keys'}"
ROUTE = """\
apiVersion: modelplane.ai/v1alpha1
kind: ModelRoute
metadata: {name: qwen, namespace: team}
spec: {gatewayName: edge, serviceName: qwen, endpoints: [{selector: {matchLabels: {a: b}}}]}
"""
EXPORTED = "{modelplane.ai/deployment: qwen, app.kubernetes.io/managed-by: modelplane.fleet}"


def entries(number: int) -> str:
    written = "".join(
        f"  - selector: {{matchLabels: {{modelplane.ai/deployment: qwen, part: x{i}}}}}\n" for i in range(number)
    )
    return change(SERVICE, "  - selector: {matchLabels: {modelplane.ai/deployment: qwen}}\n", written)


ANTHROPIC = endpoint(
    "{origin: 'https://a.example', api: {schema: Anthropic}, model: a, credential: {apiKey: {secretRef: {name: a}}}}"
)
RIGHT_NAME = "--served-model-name=team/qwen"
OF_API = " in the path of the API"
ONLY_SAAS = change(SERVICE, "modelplane.ai/deployment: qwen", "provider: saas")


def labelled(text: str) -> str:
    return change(text, "namespace: team", "namespace: team, labels: {a: b, exposed: yes-pleas}")


@pytest.mark.parametrize(
    ("changed", "severity", "path", "line", "says", "hint"),
    [
        pytest.param(
            {"gateway": change(GATEWAY, "west", "wets")},
            "error",
            "spec.clusterName",
            4,
            "names an InferenceCluster that does not exist",
            "Did you mean west?",
            id="unknown cluster",
        ),
        *(
            pytest.param(
                {"gateway": change(change(GATEWAY, TLS, ""), AUTH, auth)},
                "warning",
                "spec.auth",
                4,
                f"makes clients send their {credentials} unencrypted, because the gateway has no tls",
                "Set spec.tls.certificateRefs. If a proxy in front of the gateway terminates TLS",
                id=f"gateway without tls: {credentials}",
            )
            for auth, credentials in (
                (AUTH, "keys"),
                (f", auth: {{jwt: {{{TOKENS}}}}}", "tokens"),
                (f", auth: {{apiKey: {{{SELECTOR}}}, jwt: {{{TOKENS}, hostname: a.example}}}}", "keys and tokens"),
            )
        ),
        pytest.param(
            {"gateway": GATEWAY, "path": PATH_GATEWAY},
            "warning",
            "spec.backend",
            4,
            "asks callers for no key, unlike InferenceGateway edge: whoever reaches it may call",
            "Remove it once all clients",
            id="gateway without keys beside one with them",
        ),
        pytest.param(
            {"gateway": GATEWAY, "route": ROUTE},
            "warning",
            "kind",
            2,
            "has no effect: the fleet makes ModelRoutes",
            "Remove it",
            id="route in manifests",
        ),
        pytest.param(
            {"gateway": EXPOSED, "shown": SHOWN, "service": SERVICE + "  timeouts: {idle: 60s}\n"},
            "warning",
            "spec.timeouts",
            7,
            "has no effect: gateways in mode Model have time-outs",
            "Add a gateway in mode Model",
            id="timeouts without a gateway",
        ),
        pytest.param(
            {"gateway": EXPOSED, "service": labelled(SERVICE) + "  timeouts: {idle: 60s}\n"},
            "warning",
            "spec.serviceSelector.matchLabels",
            4,
            "matches no ModelService: the gateway serves none",
            "Labels of ModelServices are a: b, exposed: yes-pleas",
            id="gateway without services",
        ),
        pytest.param(
            {"gateway": EXPOSED},
            "warning",
            "spec.serviceSelector.matchLabels",
            4,
            "matches no ModelService: the gateway serves none",
            "No ModelService has labels",
            id="gateway without services, as none has labels",
        ),
        pytest.param(
            {"gateway": OPEN, "service": SERVICE + SAAS, "endpoint": KEYED},
            "warning",
            "spec",
            4,
            "has no auth, and sends the keys of ModelEndpoint saas: whoever reaches it spends them",
            "Add auth, or serve only ModelServices without such endpoints",
            id="everyone spends the key of a provider",
        ),
        pytest.param(
            {"gateway": GATEWAY, "service": SERVICE + SAAS, "endpoint": change(KEYED, "model: a, ", "")},
            "warning",
            "spec",
            4,
            "has no model: InferenceGateway edge asks the backend for team/qwen, a name that it hardly knows",
            "Add model, the backend's own name of the model",
            id="provider without its name of the model",
        ),
        pytest.param(
            {
                "gateway": GATEWAY,
                "service": SERVICE + change(SAAS, "- selector", "- priority: 1\n    selector"),
                "endpoint": ANTHROPIC,
            },
            "warning",
            "spec.api.schema",
            4,
            "is not what other endpoints of ModelService qwen speak: clients of OpenAI's API get 400 from it",
            "Give it a ModelService of its own",
            id="endpoint of another API",
        ),
        pytest.param(
            {
                "gateway": GATEWAY,
                "service": change(SERVICE, "modelplane.ai/deployment: qwen", "tier: any") + SAAS,
                "endpoint": ANTHROPIC,
                "other": change(change(ENDPOINT, "name: saas", "name: other"), "provider: saas", "tier: any"),
            },
            "warning",
            "spec.api.schema",
            4,
            "is not what other endpoints of ModelService qwen speak",
            "Give it a ModelService of its own",
            id="endpoint of another API than another endpoint",
        ),
        pytest.param(
            {
                "gateway": GATEWAY,
                "service": SERVICE + SAAS,
                "endpoint": endpoint("{url: 'http://203.0.113.9'}"),
            },
            "warning",
            "spec.url",
            4,
            "is not usable by InferenceGateway edge: gateways in mode Model reach backends by DNS name only",
            "Write one in origin in place of the url",
            id="endpoint with an address",
        ),
        pytest.param(
            {"gateway": GATEWAY, "endpoint": endpoint("{url: 'https://203.0.113.9'}")},
            "error",
            "spec.url",
            4,
            "gateways in mode Model reach backends by DNS name only",
            "Write one in origin in place of the url",
            id="address with a certificate",
        ),
        pytest.param(
            {"gateway": GATEWAY, "endpoint": endpoint("{url: 'https://'}")},
            "error",
            "spec.url",
            4,
            "has no host",
            "",
            id="no host",
        ),
        pytest.param(
            {"gateway": OPEN, "path": PATH_GATEWAY, "endpoint": endpoint("{url: 'https://a.example/openai/v1'}")},
            "warning",
            "spec.url",
            4,
            "has a path, which gateways in mode Path ignore: only its host and port are used",
            "Set spec.rewritePath",
            id="path where one gateway is in mode Path",
        ),
        pytest.param(
            {
                "gateway": GATEWAY,
                "service": SERVICE + SAAS,
                "endpoint": endpoint("{origin: 'https://a.example', tls: {caCertificateRef: {name: own}}}"),
            },
            "warning",
            "spec.tls.caCertificateRef",
            4,
            "trust only certificates that the system trusts",
            "Remove tls.caCertificateRef",
            id="endpoint with a CA of its own",
        ),
        *(
            pytest.param(
                {
                    "gateway": GATEWAY,
                    "service": SERVICE + SAAS,
                    "endpoint": endpoint(
                        f"{{origin: 'https://a.example', api: {{schema: {schema}}}, "
                        f"credential: {{apiKey: {{secretRef: {{name: a}}, {key}}}}}}}"
                    ),
                },
                "warning",
                "spec.credential.apiKey",
                4,
                f"send the key of a backend that speaks {schema} in {header} {prefix}",
                "Leave header and prefix out",
                id=f"key of {schema} with {key}",
            )
            for schema, key, header, prefix in (
                ("OpenAI", "header: api-key", "Authorization", "with the prefix 'Bearer '"),
                ("OpenAI", "prefix: 'Token '", "Authorization", "with the prefix 'Bearer '"),
                ("Anthropic", "header: Authorization", "x-api-key", "without a prefix"),
            )
        ),
        *(
            pytest.param(
                {
                    "gateway": GATEWAY,
                    "deployment": change(DEPLOYMENT, "name: qwen", f"name: {deployment}"),
                    "service": change(SERVICE, "deployment: qwen", f"deployment: {deployment}"),
                    name: change(text, old, f"name: {names.replica_name('team', deployment, 'any', 7)}"),
                },
                "error",
                "metadata.name",
                3,
                f"is a name of replicas of ModelDeployment {deployment}, {says}",
                "Choose another name",
                id=f"{name} named like a replica of {deployment}",
            )
            for deployment in ("qwen", "x" * 60)
            for name, text, old, says in (
                ("endpoint", ENDPOINT, "name: saas", "whose ModelEndpoint it would replace"),
                (
                    "other",
                    change(SERVICE, "deployment: qwen", f"deployment: {deployment}"),
                    "name: qwen",
                    "whose HTTPRoute it would replace",
                ),
            )
        ),
        *(
            pytest.param(
                {"gateway": change(GATEWAY, TLS, f", tls: {{certificateRefs: [{{name: own}}, {{name: {name}}}]}}")},
                "error",
                "spec.tls.certificateRefs[1].name",
                4,
                "is the name of a Secret of the fleet on the gateway's cluster, which its copy would replace",
                "Give the Secret of the certificate another name",
                id=f"certificate in {name}",
            )
            for name in (
                "inference-gateway-callers",
                "inference-gateway-client",
                "inference-gateway-ca",
                "cluster-gateway",
                "cluster-gateway-ca",
            )
        ),
        pytest.param(
            {"gateway": GATEWAY, "service": entries(33), "deployment": change(DEPLOYMENT, "tier: gold", "part: x0")},
            "error",
            "spec.endpoints",
            5,
            "has 33 items, and InferenceGateway edge, in mode Model, takes 32",
            "Divide it into several",
            id="too many entries",
        ),
        *(
            pytest.param(
                {"gateway": GATEWAY, "service": f"{SERVICE}  timeouts: {{{limits}}}\n"},
                "warning",
                "spec.timeouts.idle",
                7,
                f"is longer than a request may take: {says}",
                "raise timeouts.request",
                id=f"time-outs {limits}",
            )
            for limits, says in (
                ("request: 1m, idle: 61000ms", "timeouts.request ends it after 1m"),
                ("idle: 5m1s", "without timeouts.request it ends after 300s"),
            )
        ),
        *(
            pytest.param(
                {**gateways, "endpoint": endpoint(f"{{url: 'https://a.example/{part}'}}")},
                "warning",
                "spec.url",
                4,
                f"has a {says}, which no gateway sends: requests reach the backend without it",
                "a key belongs in a Secret that spec.credential names",
                id=f"{says} of a url beside {len(gateways)} gateways",
            )
            for gateways in ({}, {"gateway": GATEWAY}, {"gateway": OPEN, "path": PATH_GATEWAY})
            for part, says in (
                ("?api_key=h1dden", "query"),
                ("#h1dden", "fragment"),
                ("?a=h1dden#b", "query and a fragment"),
            )
        ),
        *(
            pytest.param(
                {"gateway": GATEWAY, name: text},
                severity,
                path,
                line,
                f"selects nothing, as no object can have such a label: {says}",
                "Write a label that the objects have",
                id=f"label that no object can have: {path}",
            )
            for name, text, severity, path, line, says in (
                (
                    "gateway",
                    change(EXPOSED, "yes-please", "yes please"),
                    "error",
                    "spec.serviceSelector.matchLabels.exposed",
                    4,
                    "its value must be letters",
                ),
                (
                    "gateway",
                    change(GATEWAY, "{keys: callers}", "{'my keys': callers}"),
                    "error",
                    'spec.auth.apiKey.secretSelector.matchLabels["my keys"]',
                    4,
                    "it is not a valid key",
                ),
                (
                    "policy",
                    change(POLICY, "{callers", "{callerSelector: {matchLabels: {team: -a}}, callers"),
                    "error",
                    "spec.callerSelector.matchLabels.team",
                    4,
                    "its value must be letters",
                ),
                (
                    "service",
                    change(SERVICE, "modelplane.ai/deployment: qwen", f"x: {'a' * 64}"),
                    "warning",
                    "spec.endpoints[0].selector.matchLabels.x",
                    6,
                    "its value must be at most 63 characters",
                ),
            )
        ),
        *(
            pytest.param(
                {**others, "endpoint": endpoint(f"{{{spec}}}")},
                severity,
                f"spec.{field}",
                4,
                f"has {odd}, which proxies and backends read in different ways",
                "Write the path that is meant",
                id=f"odd path: {spec}",
            )
            for others, spec, severity, field, odd in (
                ({"gateway": GATEWAY}, "url: 'https://a.example/a/../v1'", "error", "url", "the segment '..'" + OF_API),
                ({"gateway": GATEWAY}, "url: 'https://a.example/./v1'", "error", "url", "the segment '.'" + OF_API),
                (
                    {"gateway": GATEWAY},
                    "url: 'https://a.example/a//v1'",
                    "error",
                    "url",
                    "consecutive slashes" + OF_API,
                ),
                (
                    {"gateway": GATEWAY},
                    "url: 'https://a.example/%2E%2e/v1'",
                    "error",
                    "url",
                    "the segment '..'" + OF_API,
                ),
                (
                    {"gateway": OPEN, "path": PATH_GATEWAY, "service": SERVICE + SAAS},
                    "origin: 'https://a.example', api: {prefix: /a%2f../v1}",
                    "error",
                    "api.prefix",
                    "the segment '..'" + OF_API,
                ),
                (
                    {},
                    "url: 'https://a.example/a/../v1', rewritePath: /a/../v1",
                    "warning",
                    "rewritePath",
                    "the segment '..'",
                ),
            )
        ),
        pytest.param(
            {"endpoint": change(ENDPOINT, "{provider: saas}", "{modelplane.ai/deployment: qwen}")},
            "warning",
            'metadata.labels["modelplane.ai/deployment"]',
            3,
            "is the label of replicas: ModelServices that select those send requests of theirs to this endpoint",
            "Give it a label of your own",
            id="endpoint that passes for a replica",
        ),
        pytest.param(
            {
                "gateway": GATEWAY,
                "deployment": engine(
                    "env: [{name: A, valueFrom: {secretKeyRef: {name: inference-gateway-client, key: tls.key}}}]"
                ),
            },
            "error",
            "spec.template.spec.engines[0].members[0].template.spec.containers[0].env[0].valueFrom.secretKeyRef.name",
            20,
            "is the Secret of a gateway's own certificate",
            "Name a Secret of yours",
            id="the key of the gateway",
        ),
        *(
            pytest.param(
                {"gateway": GATEWAY, "deployment": engine(fields)},
                "warning",
                f"spec.template.spec.engines[0].members[0].template.spec.containers[0].{place}",
                20,
                "makes the engine ask for a key: InferenceGateway edge passes on none, and gets 401 for every request",
                "Remove it: the gateway asks callers for keys",
                id=f"key of an engine: {fields}",
            )
            for fields, place in (
                ("args: [--model=a, --api-key=h1dden]", "args[1]"),
                ("args: [--api_key, h1dden]", "args[0]"),
                (f"command: [sh, -c, 'exec vllm serve a {RIGHT_NAME} --api-key h1dden']", "command[2]"),
                (
                    "command: [python3, -m, sglang.launch_server, --host=0.0.0.0, --port=8000, --api-key, h1dden, "
                    f"{RIGHT_NAME}]",
                    "command[5]",
                ),
                ("env: [{name: VLLM_API_KEY, value: h1dden}]", "env[0]"),
                ("env: [{name: VLLM_API_KEY, valueFrom: {secretKeyRef: {name: a, key: b}}}]", "env[0]"),
            )
        ),
    ],
)
def test_problems(changed: dict[str, str], severity: str, path: str, line: int, says: str, hint: str) -> None:
    assert_one_problem(fleet(**changed), severity, path, line, says, hint, beside="matches no endpoint")


@pytest.mark.parametrize(
    "changed",
    [
        {"gateway": GATEWAY},
        {"gateway": OPEN, "path": PATH_GATEWAY},
        {"gateway": GATEWAY, "service": SERVICE + "  timeouts: {idle: 60s}\n"},
        *(
            {"gateway": GATEWAY, "service": f"{SERVICE}  timeouts: {{{limits}}}\n"}
            for limits in ("request: 1m, idle: 60s", "idle: 5m", "idle: 0s", "request: 0s, idle: 9h")
        ),
        # An endpoint that was composed for a replica and exported with it.
        {"endpoint": change(ENDPOINT, "{provider: saas}", EXPORTED)},
        # No gateway in the manifests may be one on the control cluster.
        {"service": SERVICE + "  timeouts: {idle: 60s}\n"},
        {"gateway": GATEWAY, "service": SERVICE + SAAS, "endpoint": ENDPOINT},
        {"service": change(SERVICE, "qwen}}", "qwen, where: here}}"), "cluster": HERE},
        {"service": change(SERVICE, "{modelplane.ai/deployment: qwen}", "{where: here}"), "cluster": HERE},
        {"gateway": GATEWAY, "endpoint": endpoint("{url: 'http://203.0.113.9'}")},
        {"gateway": GATEWAY, "endpoint": endpoint("{url: 'https://a.example/openai/v1'}")},
        # All endpoints of a service speak Anthropic, or each of its own.
        {"gateway": GATEWAY, "service": ONLY_SAAS, "endpoint": ANTHROPIC},
        {"gateway": GATEWAY, "saas": change(ONLY_SAAS, "name: qwen", "name: saas"), "endpoint": ANTHROPIC},
        {"gateway": GATEWAY, "service": SERVICE + SAAS, "endpoint": KEYED},
        {"gateway": OPEN, "service": SERVICE + SAAS, "endpoint": ENDPOINT},
        {"gateway": OPEN, "endpoint": KEYED},
        # Callers' keys reach engines by gateways in mode Path; others have no such flag.
        {"path": PATH_GATEWAY, "deployment": engine("args: [--api-key=a]")},
        {"gateway": GATEWAY, "deployment": engine("args: [--api-key-file=a], env: [{name: VLLM_API_KEY, value: ''}]")},
        {
            "gateway": GATEWAY,
            "deployment": change(
                DEPLOYMENT, "image: nvcr.io/nim/qwen}", "image: a, command: [tritonserver, --api-key=a]}"
            ),
        },
        # Its name of the model does not matter where no gateway in mode Model uses it.
        {"gateway": GATEWAY, "endpoint": change(KEYED, "model: a, ", "")},
        {"path": PATH_GATEWAY, "service": SERVICE + SAAS, "endpoint": change(KEYED, "model: a, ", "")},
        {"gateway": GATEWAY, "endpoint": change(ENDPOINT, "name: saas", "name: qwen-0123456789x")},
        {"gateway": GATEWAY, "endpoint": change(ENDPOINT, "name: saas", "name: other-0123456789")},
    ],
)
def test_no_problem(changed: dict[str, str]) -> None:
    assert [str(problem) for problem in fleet(**changed).problems] == []


def test_endpoints_are_not_compared_with_all_others() -> None:
    """The cost of validation would be the square of those that do not speak OpenAI."""
    count = 50
    endpoints = {f"e{number}": change(ANTHROPIC, "name: saas", f"name: saas-{number}") for number in range(count)}
    asked = 0

    def profile(frame: FrameType, event: str, _value: object) -> None:
        nonlocal asked
        asked += event == "call" and frame.f_code.co_name == "schema_name"

    sys.setprofile(profile)
    try:
        loaded = fleet(gateway=GATEWAY, service=ONLY_SAAS, **endpoints)
    finally:
        sys.setprofile(None)
    assert not loaded.problems
    assert count <= asked <= 10 * count


def test_other_services_of_an_endpoint_hide_no_mixed_one() -> None:
    """The service that has the endpoint to itself comes first, by its name and in the manifests."""
    alone = change(ONLY_SAAS, "name: qwen", "name: claude")
    texts = {"a": alone, "service": SERVICE + SAAS, "b": change(SERVICE + SAAS, "name: qwen", "name: rwen")}
    for order in (("a", "service", "b"), ("b", "service", "a")):
        found = only(fleet(gateway=GATEWAY, **{each: texts[each] for each in order}, endpoint=ANTHROPIC).problems)
        assert found.path == "spec.api.schema"
        assert "other endpoints of ModelService qwen, rwen speak" in found.message


def test_a_gateway_of_mode_path_that_is_not_used_asks_no_one_for_keys() -> None:
    loaded = fleet(gateway=GATEWAY, path=change(PATH_GATEWAY, "name: default", "name: defaultt"))
    assert only(loaded.problems).path == "metadata.name"


def test_a_misspelt_cluster_is_one_error() -> None:
    problem = only(fleet(gateway=change(GATEWAY, "clusterName", "clustername")).problems)
    assert (problem.path, problem.message) == ("spec.clustername", "is not a known field")
    assert problem.hint == "Did you mean clusterName?"


def test_two_gateways_of_a_cluster_are_both_an_error() -> None:
    """One of them may be there already, and must not be replaced by another one."""
    gateways = {"a": change(OPEN, "edge", "a"), "b": change(GATEWAY, "edge", "b")}
    loaded = fleet(**gateways, policy=POLICY)
    found = {(each.ref.name, each.path, each.message) for each in loaded.errors if each.ref}
    assert found == {
        (name, "spec.clusterName", f"is the cluster of InferenceGateway {other} too, and a cluster has one gateway")
        for name, other in (("a", "b"), ("b", "a"))
    }
    assert {ref.name for ref in loaded.invalid} == {"a", "b"}


def test_an_open_gateway_beside_one_with_keys() -> None:
    other = change(change(OPEN, "edge", "other"), "clusterName: west", "clusterName: east")
    east = change(CLUSTER, "name: west", "name: east")
    found = only(
        [each for each in fleet(gateway=GATEWAY, other=other, east=east).problems if each.file == "other.yaml"]
    )
    assert (found.severity, found.path, found.hint) == ("warning", "spec", "Add auth")
    assert found.message.startswith("asks callers for no key, unlike InferenceGateway edge: whoever reaches it may")


@pytest.mark.parametrize(
    ("changed", "path"),
    [
        ({"gateway": change(GATEWAY, "west", "wset")}, "spec.clusterName"),
        ({"policy": change(POLICY, "{name: acme}]", "{name: mpk_secret}]")}, "spec.callers[0].name"),
    ],
)
def test_a_gateway_or_a_policy_with_any_error_can_only_be_held(changed: dict[str, str], path: str) -> None:
    loaded = fleet(**{"gateway": GATEWAY, "policy": POLICY, **changed})
    assert [problem.path for problem in loaded.errors] == [path]
    assert {ref.kind for ref in loaded.invalid} == {loaded.errors[0].ref.kind}
    assert not loaded.unresolved


@pytest.mark.parametrize("key", ["sk-0123456789abcdef0123456789abcdef", "sk-ant-api03-0123456789-abcdefABCDEF"])
@pytest.mark.parametrize(
    ("name", "text", "path", "of"),
    [
        ("gateway", change(GATEWAY, "west", "KEY"), "spec.clusterName", "an InferenceCluster"),
        (
            "gateway",
            change(GATEWAY, TLS, ", tls: {certificateRefs: [{name: a}, {name: KEY}]}"),
            "spec.tls.certificateRefs[1].name",
            "a Secret",
        ),
        ("endpoint", change(KEYED, "name: a", "name: KEY"), "spec.credential.apiKey.secretRef.name", "a Secret"),
        (
            "endpoint",
            change(KEYED, "name: a", "name: a, key: KEY"),
            "spec.credential.apiKey.secretRef.key",
            "an entry of a Secret",
        ),
        ("policy", change(POLICY, "[{name: acme}]", "[{name: b}, {name: KEY}]"), "spec.callers[1].name", "a caller"),
    ],
)
def test_a_key_in_the_place_of_a_name_is_not_repeated(key: str, name: str, text: str, path: str, of: str) -> None:
    found = fleet(**{"gateway": GATEWAY, name: text.replace("KEY", key)}).problems
    assert {problem.path for problem in found if problem.severity == "error"} == {path}
    known = [problem for problem in found if problem.message == "is a key, or has one in it"]
    assert known
    assert all(problem.value == "" and "revoke this one" in problem.hint for problem in known)
    assert "0123456789" not in str([str(problem) for problem in found])
    for ordinary in ("sk-learn-large-de06b15fe6", "nvapi-credentials", "risk-model"):
        more = {"cluster": change(CLUSTER, "name: west", f"name: {ordinary}")} if of == "an InferenceCluster" else {}
        assert not fleet(**{"gateway": GATEWAY, name: text.replace("KEY", ordinary), **more}).errors


def test_manifests_of_the_fleet_gateway_have_no_problems() -> None:
    folder = DATA / "fleet-gateway"
    sources = [Source(path.name, path.read_bytes()) for path in sorted(folder.glob("*.yaml"))]
    loaded = load([*sources, Source("cluster.yaml", CLUSTER.encode())])
    assert {resource.kind for resource in loaded.resources} > {"InferenceGateway", "CallerPolicy", "ModelEndpoint"}
    assert [str(problem) for problem in loaded.problems if "InferenceClass" not in str(problem)] == []


def test_engines_have_no_paths_of_the_apis() -> None:
    for name in ("v1", "anthropic"):
        moved = change(DEPLOYMENT, "namespace: team", f"namespace: {name}")
        said = [each for each in fleet(gateway=GATEWAY, deployment=moved).problems if each.path == "metadata.namespace"]
        assert "is a path of the API of gateways in mode Model" in only(tuple(said)).message
        assert not [each for each in fleet(deployment=moved).problems if each.path == "metadata.namespace"]


TOKEN_BUDGET = change(
    POLICY, "[{name: acme}]}", "[{name: acme}], budgets: [{name: day, unit: Tokens, limit: 1000, per: Day}]}"
)
COST_BUDGET = change(TOKEN_BUDGET, "unit: Tokens, limit: 1000", "unit: Cost, amount: '5.00', currency: USD")
REQUEST_BUDGET = change(TOKEN_BUDGET, "budgets: [", "budgets: [{name: bound, unit: Requests, limit: 9, per: Day}, ")
SGLANG = f"command: [python3, -m, sglang.launch_server, --host=0.0.0.0, --port=8000, {RIGHT_NAME}"
VLLM = f"args: [--model=a, {RIGHT_NAME}"
UNCOUNTED = "reports no tokens of streams of /v1/completions"


@pytest.mark.parametrize(
    ("fields", "policy", "place", "flag"),
    [
        pytest.param(f"{VLLM}]", TOKEN_BUDGET, "args", "--enable-force-include-usage", id="vLLM, tokens"),
        pytest.param(f"{VLLM}]", COST_BUDGET, "args", "--enable-force-include-usage", id="vLLM, cost"),
        pytest.param(
            f"{SGLANG}]", TOKEN_BUDGET, "command", "--stream-response-default-include-usage", id="SGLang, tokens"
        ),
    ],
)
def test_engines_that_report_no_tokens_of_streams(fields: str, policy: str, place: str, flag: str) -> None:
    loaded = fleet(gateway=GATEWAY, deployment=engine(fields), policy=policy)
    problem = only([problem for problem in loaded.problems if UNCOUNTED in problem.message])
    assert problem.severity == "warning"
    assert problem.path == f"{CONTAINER}.{place}"
    assert "budgets of CallerPolicy acme do not count them" in problem.message
    assert problem.hint == f"Add {flag}, which replaces the pods, or add a request budget"


@pytest.mark.parametrize(
    ("gateway", "fields", "policy"),
    [
        pytest.param(GATEWAY, f"{VLLM}, --enable-force-include-usage]", TOKEN_BUDGET, id="vLLM with the flag"),
        pytest.param(
            GATEWAY, f"{SGLANG}, --stream-response-default-include-usage]", TOKEN_BUDGET, id="SGLang with the flag"
        ),
        pytest.param(GATEWAY, f"{VLLM}]", REQUEST_BUDGET, id="a budget of requests"),
        pytest.param(GATEWAY, f"{VLLM}]", POLICY, id="no budget"),
        pytest.param(OPEN, f"{VLLM}]", TOKEN_BUDGET, id="no authentication"),
    ],
)
def test_engines_whose_streams_are_counted(gateway: str, fields: str, policy: str) -> None:
    loaded = fleet(gateway=gateway, deployment=engine(fields), policy=policy)
    assert not [problem for problem in loaded.problems if UNCOUNTED in problem.message]
