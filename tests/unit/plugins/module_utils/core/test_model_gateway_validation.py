# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Tests of what resources say of gateways in mode Model: their clusters, what they reach, and who may call it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.load import Source, load

sys.path.insert(0, str(Path(__file__).parent))

from little_fleet import CLUSTER, DEPLOYMENT, ENDPOINT, SERVICE, change, fleet, only

DATA = Path(__file__).resolve().parents[4] / "data" / "manifests"
AUTH = ", auth: {method: APIKey, apiKey: {secretSelector: {matchLabels: {keys: callers}}}}"
GATEWAY = f"""\
apiVersion: modelplane.ai/v1alpha1
kind: InferenceGateway
metadata: {{name: edge}}
spec: {{clusterName: west{AUTH}}}
"""
OPEN = change(GATEWAY, AUTH, "")
PATH = """\
apiVersion: modelplane.ai/v1alpha1
kind: InferenceGateway
metadata: {name: default}
spec: {backend: Traefik, traefik: {version: 39.0.0}}
"""
POLICY = """\
apiVersion: modelplane.ai/v1alpha1
kind: CallerPolicy
metadata: {name: acme, namespace: team}
spec: {callers: [{name: acme}]}
"""
HERE = CLUSTER + "  placement: {metadata: {labels: {where: here}}}\n"
OTHER_POLICY = change(POLICY, "{name: acme, ", "{name: b, ")
TOKENS = "unit: Tokens"
MANY = ", ".join(f"{{name: a{'x' * 60}{index}}}" for index in range(20))
"""More callers than the pattern of a rule can name."""
ROUTE = """\
apiVersion: modelplane.ai/v1alpha1
kind: ModelRoute
metadata: {name: qwen, namespace: team}
spec: {gatewayName: edge, serviceName: qwen, endpoints: [{selector: {matchLabels: {a: b}}}]}
"""
THERE = change(change(SERVICE, "namespace: team", "namespace: b, labels: {a: b}"), "modelplane.ai/deployment", "x")
ELSEWHERE = change(POLICY, "spec: {", "spec: {services: {matchLabels: {a: b}}, ")
EXPORTED = "{modelplane.ai/deployment: qwen, app.kubernetes.io/managed-by: modelplane.fleet}"
SAAS = "  - selector: {matchLabels: {provider: saas}}\n"
EXPOSED = change(GATEWAY, "west", "west, serviceSelector: {matchLabels: {exposed: yes-please}}")
CONTAINER = "spec.template.spec.engines[0].members[0].template.spec.containers[0]"
NAMED = "--served-model-name"
CHAIN = "env: [{name: A, value: h1dden}, {name: B, value: $(A)/b}], args: [--served-model-name=$(B)]"
RIGHT_NAMES = (
    "env: [{name: A, value: team}, {name: B, value: $(A)/qwen}], args: [--served-model-name=$(B)]",
    "command: [sh, -c, 'export N=team/qwen && exec vllm serve m --served-model-name $N $FLAGS']",
    "command: [sh, -c, '. /env; exec vllm serve m --served-model-name $MODELPLANE_SERVED_MODEL_NAME']",
    "args: [--config=/a.yaml, --served-model-name=$(MODELPLANE_SERVED_MODEL_NAME)]",
    "args: [--served-model-name, $(UNKNOWN), team/qwen]",
    "command: [python3, -m, sglang.launch_server, --served-model-name, team/qwen, --log-level, info]",
)
"""Fields of engines that serve the name that a gateway asks for."""


def engine(fields: str, text: str = DEPLOYMENT) -> str:
    """The deployment with more fields in its container."""
    return change(text, "image: vllm}", f"image: vllm/vllm-openai, {fields}}}")


def endpoint(spec: str) -> str:
    return change(ENDPOINT, 'spec: {url: "https://api.example.com/"}', f"spec: {spec}")


def entries(number: int) -> str:
    written = "".join(
        f"  - selector: {{matchLabels: {{modelplane.ai/deployment: qwen, part: x{i}}}}}\n" for i in range(number)
    )
    return change(SERVICE, "  - selector: {matchLabels: {modelplane.ai/deployment: qwen}}\n", written)


def spending(when: str, scope: str = "Caller", callers: str = "{name: acme}") -> str:
    budget = f"budgets: [{{name: a, unit: Tokens, limit: 5, per: Day, whenSpent: {when}, scope: {scope}}}]"
    return change(POLICY, "[{name: acme}]}", f"[{callers}], {budget}}}")


def budgets(*written: str) -> str:
    text = ", ".join(f"{{name: b{index}, {each}}}" for index, each in enumerate(written))
    return change(POLICY, "[{name: acme}]}", f"[{{name: acme}}], budgets: [{text}]}}")


OF_ALL = change(spending("Refuse"), "{name: acme, ", "{name: b, ")
OF_GOLD = change(spending("Refuse"), "spec: {", "spec: {services: {matchLabels: {a: b}}, ")
GOLD = "---\n".join(
    change(SERVICE, "{name: qwen,", f"{{name: qwen3-8b-instruct-{index}, labels: {{a: b}},") for index in range(10, 50)
)
"""More services than the pattern of a rule can name."""
ANTHROPIC = endpoint(
    "{origin: 'https://a.example', api: {schema: Anthropic}, credential: {apiKey: {secretRef: {name: a}}}}"
)
OF_API = " in the path of the API"
KEYED = endpoint("{origin: 'https://a.example', credential: {apiKey: {secretRef: {name: a}}}}")
ONLY_SAAS = change(SERVICE, "modelplane.ai/deployment: qwen", "provider: saas")
SHOWN = change(SERVICE, "name: qwen, namespace: team", "name: shown, namespace: team, labels: {exposed: yes-please}")


def labelled(text: str) -> str:
    return change(text, "namespace: team", "namespace: team, labels: {a: b, exposed: yes-pleas}")


def many_budgets(policies: int) -> list[str]:
    """Policies with as many budgets as each can have, of which none is without effect."""
    units = ("Requests", "Tokens", "InputTokens", "OutputTokens")
    windows = ("limit: 5, per: Hour", "limit: 6, per: Day")
    budgets = ", ".join(
        f"{{name: {unit.lower()}{len(each)}, unit: {unit}, {each}}}" for unit in units for each in windows
    )
    full = change(POLICY, "[{name: acme}]}", f"[{{name: acme}}], budgets: [{budgets}]}}")
    return [change(full, "{name: acme, ", f"{{name: a{index:02}, ") for index in range(policies)]


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
        pytest.param(
            {"gateway": GATEWAY, "path": PATH},
            "warning",
            "spec.backend",
            4,
            "asks callers for no key, as edge does",
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
                "policy": change(POLICY, "[{name: acme}]", "[{name: '*'}], callerSelector: {matchLabels: {a: b}}"),
            },
            "warning",
            "spec.callerSelector",
            4,
            "has no effect: '*' in callers is every caller that has a key",
            "Remove it, or '*'",
            id="group beside every caller",
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
            {"gateway": OPEN, "path": PATH, "endpoint": endpoint("{url: 'https://a.example/openai/v1'}")},
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
                {"gateway": GATEWAY, "deployment": engine(fields)},
                "error",
                f"{CONTAINER}.{place}",
                20,
                f"has another {NAMED}: InferenceGateway edge asks for team/qwen, and gets 404 for every request",
                "Write --served-model-name=$(MODELPLANE_SERVED_MODEL_NAME)",
                id=f"served name of {name}",
            )
            for name, fields, place in (
                ("one word", "args: [--model=m, --served-model-name=qwen]", "args[1]"),
                ("two words", "args: [--model=m, --served-model-name, qwen]", "args[1]"),
                ("underscores", "args: [--served_model_name, qwen, chat, --seed=1]", "args[0]"),
                ("a script", "command: [sh, -c, 'exec vllm serve m --served-model-name qwen']", "command[2]"),
                ("sglang", "command: [python3, -m, sglang.launch_server, --served-model-name, q]", "command[3]"),
                ("$$", "env: [{name: A, value: team/qwen}], args: [--served-model-name=$$(A)]", "args[0]"),
                ("no shell", "args: [--served-model-name=$MODELPLANE_SERVED_MODEL_NAME]", "args[0]"),
                ("an argument beside a file", "args: [--config=/a.yaml, --served-model-name=q]", "args[1]"),
                ("export", "command: [sh, -c, 'export N=q; vllm serve m --served-model-name $N']", "command[2]"),
            )
        ),
        pytest.param(
            {"gateway": GATEWAY, "deployment": engine(CHAIN)},
            "error",
            f"{CONTAINER}.args[0]",
            20,
            f"has another {NAMED}, by variables: InferenceGateway edge asks for team/qwen, and gets 404",
            "Write --served-model-name=$(MODELPLANE_SERVED_MODEL_NAME)",
            id="served name of a chain of variables",
        ),
        pytest.param(
            {
                "gateway": GATEWAY,
                "deployment": engine("command: [sglang, serve, --served-model-name, team/qwen, q]"),
            },
            "error",
            f"{CONTAINER}.command[2]",
            20,
            f"gives SGLang 2 names with {NAMED}, and it takes one: it does not start",
            "Write --served-model-name=$(MODELPLANE_SERVED_MODEL_NAME) alone",
            id="two names of sglang",
        ),
        *(
            pytest.param(
                {"gateway": GATEWAY, "deployment": engine(fields)},
                "warning",
                f"{CONTAINER}.{place}",
                20,
                says,
                hint,
                id=f"uncertain name: {fields}",
            )
            for fields, place, says, hint in (
                (
                    "args: [--served-model-name=$(C)], env: [{name: C, valueFrom: {fieldRef: {fieldPath: a.b}}}]",
                    "args[0]",
                    f"takes {NAMED} from $C, unknown before the pod runs: if it is not team/qwen, InferenceGateway",
                    "Write $(MODELPLANE_SERVED_MODEL_NAME), a variable that the fleet sets",
                ),
                (
                    "command: [sh, -c, 'vllm serve m --served-model-name `hostname`']",
                    "command[2]",
                    f"takes {NAMED} from a command of the shell, unknown before the pod runs",
                    "Write $(MODELPLANE_SERVED_MODEL_NAME)",
                ),
                (
                    "command: [sh, -c, 'exec vllm serve m $FLAGS']",
                    "command[2]",
                    f"may take {NAMED} from $FLAGS, unknown before the pod runs: unless it is team/qwen there, ",
                    "Write --served-model-name=$(MODELPLANE_SERVED_MODEL_NAME) behind it",
                ),
                (
                    "command: [vllm, serve, m], args: [--seed=1, --config=/a.yaml]",
                    "args[1]",
                    "reads flags from a file, whose content is not known here: unless it has that name, ",
                    f"Write served-model-name: team/qwen into it, or {NAMED}=$(MODELPLANE_SERVED_MODEL_NAME) here",
                ),
            )
        ),
        pytest.param(
            {
                "gateway": GATEWAY,
                "cluster": HERE,
                "service": change(SERVICE, "{modelplane.ai/deployment: qwen}", "{where: here}"),
                "deployment": engine("args: [--served-model-name=qwen]"),
            },
            "error",
            f"{CONTAINER}.args[0]",
            20,
            f"has another {NAMED}: InferenceGateway edge asks for team/qwen",
            "Write --served-model-name",
            id="served name where a service selects by a label of a cluster",
        ),
        pytest.param(
            {"gateway": GATEWAY, "deployment": engine("command: [sh, -c, 'exec vllm serve m']")},
            "error",
            f"{CONTAINER}.command[2]",
            20,
            "sets no --served-model-name: InferenceGateway edge asks for team/qwen",
            'Add --served-model-name="$MODELPLANE_SERVED_MODEL_NAME" to the command',
            id="script without a served name",
        ),
        pytest.param(
            {
                "gateway": GATEWAY,
                "deployment": engine("command: [sh, -c, 'exec vllm serve m'], args: [--served-model-name, team/qwen]"),
            },
            "error",
            f"{CONTAINER}.command[2]",
            20,
            "sets no --served-model-name: InferenceGateway edge asks for team/qwen",
            'Add --served-model-name="$MODELPLANE_SERVED_MODEL_NAME" to the command',
            id="served name that a script does not pass on",
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
        pytest.param(
            {"gateway": GATEWAY, "policy": change(POLICY, "spec: {", "spec: {services: {matchLabels: {a: b}}, ")},
            "warning",
            "spec.services.matchLabels",
            4,
            "matches no ModelService in namespace team",
            "labels of ModelServices of this namespace",
            id="policy without services",
        ),
        pytest.param(
            {"policy": POLICY},
            "warning",
            "spec",
            4,
            "has no effect without an InferenceGateway in mode Model, and the manifests have none",
            "Add one with auth that serves the ModelServices, unless the control cluster has it; or remove the policy",
            id="policy in a fleet without a gateway",
        ),
        pytest.param(
            {"gateway": OPEN, "policy": POLICY},
            "warning",
            "spec",
            4,
            "selects services of InferenceGateway edge, which has no auth",
            "Add auth to InferenceGateway edge",
            id="policy without keys",
        ),
        pytest.param(
            {"path": PATH, "policy": POLICY},
            "warning",
            "spec",
            4,
            "no gateway in mode Model serves the ModelServices; whoever reaches InferenceGateway default may call them",
            "Add a gateway in mode Model, with auth",
            id="policy without a gateway in mode Model",
        ),
        pytest.param(
            {"gateway": OPEN, "path": PATH, "policy": POLICY},
            "warning",
            "spec",
            4,
            "it refuses all their callers; whoever reaches InferenceGateway default may call them",
            "Add auth to InferenceGateway edge",
            id="policy beside gateways without keys",
        ),
        pytest.param(
            {"gateway": GATEWAY, "policy": ELSEWHERE, "there": THERE},
            "warning",
            "spec.services.matchLabels",
            4,
            "matches no ModelService in namespace team, and holds in no other one: those with these labels are b/qwen; "
            "every caller with a key may call b/qwen",
            "Write the policy into namespace b",
            id="policy for services of another namespace",
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
            for gateways in ({}, {"gateway": GATEWAY}, {"gateway": OPEN, "path": PATH})
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
                    {"gateway": OPEN, "path": PATH, "service": SERVICE + SAAS},
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
            {"gateway": GATEWAY, "policy": spending("Overflow")},
            "warning",
            "spec.budgets[0].whenSpent",
            4,
            "has no next priority to send requests to in ModelService qwen",
            "or write Refuse",
            id="overflow without a next priority",
        ),
        pytest.param(
            {"gateway": GATEWAY, "policy": change(POLICY, "{name: acme}]", "{name: acme}, {name: acme.next}]")},
            "error",
            "spec.callers[1].name",
            4,
            "is the name of a next key, and not of a caller: names must not end in .next",
            "Write acme, whose keys are both valid while they are rotated",
            id="caller named like a next key",
        ),
        pytest.param(
            {"gateway": GATEWAY, "policy": change(POLICY, "{name: acme}]", "{name: mpk_secret}]")},
            "error",
            "spec.callers[0].name",
            4,
            "is a key, and not the name of a caller",
            "revoke the key",
            id="a key in place of a name",
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
        pytest.param(
            {"gateway": GATEWAY, "policy": spending("Refuse", "Policy", MANY), "other": OTHER_POLICY},
            "warning",
            "spec.budgets[0].scope",
            4,
            "is not one limit for all callers together, but one for each group of them",
            "Name fewer callers, or select services that no other CallerPolicy selects",
            id="a budget of more names than a pattern holds",
        ),
        *(
            pytest.param(
                {"gateway": GATEWAY, "policy": budgets(first, second)},
                "warning",
                f"spec.budgets[{at}].limit",
                4,
                f"is never spent before budget b{1 - at}, which has 100 for each {per}",
                "Lower it, or raise the other one",
                id=f"{first} beside {second}",
            )
            for first, second, at, per in (
                (f"{TOKENS}, per: Hour, limit: 100", f"{TOKENS}, per: Day, limit: 100", 0, "Day"),
                (f"{TOKENS}, per: Month, limit: 100", f"{TOKENS}, per: Minute, limit: 101", 1, "Month"),
                (f"{TOKENS}, per: Day, limit: 100", f"{TOKENS}, per: Day, limit: 100", 1, "Day"),
                (f"{TOKENS}, per: Day, limit: 200", f"{TOKENS}, per: Day, limit: 100", 0, "Day"),
            )
        ),
        pytest.param(
            {"gateway": GATEWAY, "policy": "---\n".join(many_budgets(33))},
            "error",
            "spec.budgets",
            4,
            "are 264 rules of one object, together with those of CallerPolicy a01, a02, a03, a04, a05 and 27 more, and "
            "it can have 256: clusters refuse it",
            "Have fewer budgets, name fewer callers, or select services so that fewer policies share one",
            id="more budgets than an object holds",
        ),
        pytest.param(
            {"gateway": GATEWAY, "gold": GOLD, "policy": OF_GOLD, "other": OF_ALL},
            "warning",
            "spec.budgets[0]",
            4,
            "is not one limit for all services together, but one for each group of them",
            "Select fewer services, give them shorter names, or let policies with budgets select the same services",
            id="a budget of more services than a pattern holds",
        ),
    ],
)
def test_problems(changed: dict[str, str], severity: str, path: str, line: int, says: str, hint: str) -> None:
    problems = tuple(each for each in fleet(**changed).problems if "matches no endpoint" not in each.message)
    problem = only(problems)
    assert (problem.severity, problem.path, problem.line) == (severity, path, line)
    assert says in problem.message
    assert hint in problem.hint
    assert "h1dden" not in str(problem)


def test_services_of_a_policy_that_no_label_can_select() -> None:
    """They are an error, which says all that there is to say."""
    problem = only(fleet(gateway=GATEWAY, policy=change(ELSEWHERE, "{a: b}", "{a: b c}")).problems)
    assert (problem.severity, problem.path) == ("error", "spec.services.matchLabels.a")


def test_gateways_that_ask_for_no_keys_keep_no_budgets_that_are_too_many() -> None:
    documents = {"policy": "---\n".join(many_budgets(33)), "gold": GOLD, "part": change(OF_GOLD, "acme", "part")}
    for gateway, expected in ((OPEN, set()), (GATEWAY, {"error", "warning"})):
        problems = fleet(gateway=gateway, **documents).problems
        said = ("rules of one object", "one limit for all services")
        assert {each.severity for each in problems if any(text in each.message for text in said)} == expected


@pytest.mark.parametrize(
    "changed",
    [
        {"gateway": GATEWAY},
        {"gateway": GATEWAY, "policy": POLICY},
        {"gateway": GATEWAY, "policy": spending("Refuse")},
        {"gateway": GATEWAY, "policy": change(POLICY, "{name: acme}]", "{name: next.acme}, {name: acmenext}]")},
        # No one else is let in, so names are not needed.
        {"gateway": GATEWAY, "policy": spending("Refuse", "Policy", MANY)},
        {"gateway": GATEWAY, "policy": spending("Refuse", "Caller", MANY), "other": OTHER_POLICY},
        {"gateway": GATEWAY, "policy": spending("Refuse", "Policy"), "other": OTHER_POLICY},
        {"gateway": GATEWAY, "policy": "---\n".join(many_budgets(32))},
        # No other service shares a budget with these, so names are not needed.
        {"gateway": GATEWAY, "gold": GOLD, "policy": OF_GOLD, "other": OTHER_POLICY},
        *(
            {"gateway": GATEWAY, "policy": budgets(f"{TOKENS}, per: Hour, limit: 100", other)}
            for other in (
                f"{TOKENS}, per: Day, limit: 101",
                "unit: Requests, per: Day, limit: 5",
                f"{TOKENS}, per: Day, limit: 5, scope: Policy",
            )
        ),
        {"gateway": OPEN, "path": PATH},
        {"gateway": GATEWAY, "service": SERVICE + "  timeouts: {idle: 60s}\n"},
        *(
            {"gateway": GATEWAY, "service": f"{SERVICE}  timeouts: {{{limits}}}\n"}
            for limits in ("request: 1m, idle: 60s", "idle: 5m", "idle: 0s", "request: 0s, idle: 9h")
        ),
        # An endpoint that was composed for a replica and exported with it.
        {"endpoint": change(ENDPOINT, "{provider: saas}", EXPORTED)},
        # No gateway in the manifests may be one on the control cluster.
        {"service": SERVICE + "  timeouts: {idle: 60s}\n"},
        # A gateway that does not serve the service has no say in it.
        {
            "gateway": EXPOSED,
            "shown": change(SHOWN, "modelplane.ai/deployment: qwen", "provider: saas"),
            "deployment": engine("args: [--served-model-name=qwen]"),
            "endpoint": ENDPOINT,
        },
        {"path": PATH, "deployment": engine("args: [--served-model-name=qwen]")},
        {"gateway": GATEWAY, "deployment": engine("args: [--model=m]")},
        {"gateway": GATEWAY, "deployment": engine("args: [--served-model-name, qwen, team/qwen]")},
        {"gateway": GATEWAY, "deployment": engine("args: [--served-model-name=$(MODELPLANE_SERVED_MODEL_NAME)]")},
        *({"gateway": GATEWAY, "deployment": engine(fields)} for fields in RIGHT_NAMES),
        {"gateway": GATEWAY, "deployment": engine("command: [/bin/own-server]")},
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
    ],
)
def test_no_problem(changed: dict[str, str]) -> None:
    assert [str(problem) for problem in fleet(**changed).problems] == []


@pytest.mark.parametrize("spec", ["{clusterName: west, mode: Odd}", "[unread"])
def test_a_policy_may_have_the_gateway_that_has_errors(spec: str) -> None:
    problems = fleet(policy=POLICY, gateway=change(OPEN, "{clusterName: west}", spec)).problems
    assert problems
    assert not any("the manifests have none" in each.message for each in problems)


def test_a_misspelt_cluster_is_one_error() -> None:
    problem = only(fleet(gateway=change(GATEWAY, "clusterName", "clustername")).problems)
    assert (problem.path, problem.message) == ("spec.clustername", "is not a known field")
    assert problem.hint == "Did you mean clusterName?"


def test_services_of_another_namespace_that_a_policy_selects_are_not_open() -> None:
    selecting = change(POLICY, "team", "b")
    found = fleet(gateway=GATEWAY, policy=ELSEWHERE, there=THERE, other=selecting).problems
    problem = only(tuple(each for each in found if "matches no endpoint" not in each.message))
    assert problem.message.endswith("those with these labels are b/qwen")


def test_where_a_policy_lets_no_one_in_no_key_is_spent() -> None:
    changed = {"gateway": OPEN, "service": SERVICE + SAAS, "endpoint": KEYED, "policy": POLICY}
    problem = only(fleet(**changed).problems)
    assert "it refuses all their callers" in problem.message


def test_a_policy_in_a_misspelt_namespace() -> None:
    found = only(
        fleet(gateway=GATEWAY, service=SERVICE, policy=change(ELSEWHERE, "namespace: team", "namespace: taem")).problems
    )
    assert (found.path, found.hint) == ("spec.services.matchLabels", "ModelServices are in namespace team")


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
    assert found.message.startswith("asks callers for no key, as edge does")


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


def test_an_engine_with_another_name_can_only_be_held() -> None:
    """It would replace one that answers, and get no request."""
    loaded = fleet(gateway=GATEWAY, service=SERVICE, deployment=engine("args: [--served-model-name=other]"))
    assert [ref.kind for ref in loaded.invalid] == ["ModelDeployment"]


def test_the_variable_of_the_fleet_is_not_set_by_hand() -> None:
    env = "env: [{name: A, value: b}, {name: MODELPLANE_SERVED_MODEL_NAME, value: foo}]"
    found = only(fleet(gateway=GATEWAY, service=SERVICE, deployment=engine(env)).errors)
    assert (found.path.rpartition(".env")[2], found.value) == ("[1].name", "MODELPLANE_SERVED_MODEL_NAME")


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
