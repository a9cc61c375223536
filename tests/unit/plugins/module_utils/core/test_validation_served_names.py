# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Tests of the model names that engines serve, beside those that gateways in mode Model ask for."""

from __future__ import annotations

import pytest
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.little_fleet import (
    CONTAINER,
    DEPLOYMENT,
    ENDPOINT,
    EXPOSED,
    GATEWAY,
    HERE,
    IMAGE,
    PATH_GATEWAY,
    SERVICE,
    SHOWN,
    assert_one_problem,
    change,
    engine,
    fleet,
    only,
)

NAMED = "--served-model-name"
SGLANG = "python3, -m, sglang.launch_server, --host, 0.0.0.0, --port, '8000'"
CHAIN = "env: [{name: A, value: h1dden}, {name: B, value: $(A)/b}], args: [--served-model-name=$(B)]"
RIGHT_NAMES = (
    "env: [{name: A, value: team}, {name: B, value: $(A)/qwen}], args: [--served-model-name=$(B)]",
    "command: [sh, -c, 'exec vllm serve m --served-model-name $MODELPLANE_SERVED_MODEL_NAME']",
    "command: [sh, -c, 'exec vllm serve m --served-model-name $NAME'], env: [{name: NAME, value: team/qwen}]",
    "args: [--config=/a.yaml, --served-model-name=$(MODELPLANE_SERVED_MODEL_NAME)]",
    "args: [--served-model-name, $(UNKNOWN), team/qwen]",
    f"command: [{SGLANG}, --served-model-name, team/qwen, --log-level, info]",
)
"""Fields of engines that serve the name that a gateway asks for."""
PORT_AND_HEALTH = "        port: 8000\n        healthPath: /healthz\n"
STATED = (
    "args: [--name=$(MODELPLANE_SERVED_MODEL_NAME)]",
    "args: [--served-model-name=team/qwen]",
    "args: [--served-model-name, qwen, $(MODELPLANE_SERVED_MODEL_NAME)]",
    "env: [{name: MODEL_NAME, value: $(MODELPLANE_SERVED_MODEL_NAME)}]",
    "command: [sh, -c, 'cd /srv; ./start --name $MODELPLANE_SERVED_MODEL_NAME']",
)
"""Fields of engines whose unknown server gets the name that a gateway asks for."""


def own(fields: str, more: str = PORT_AND_HEALTH) -> str:
    """Return the deployment with an unknown image, these fields of its container, and `more` fields of its engine."""
    deployment = change(DEPLOYMENT, IMAGE, f"image: 'registry.example.com/ml/mystery:2'{fields and ', '}{fields}}}")
    return change(deployment, "        members:\n", f"{more}        members:\n")


@pytest.mark.parametrize(
    ("changed", "severity", "path", "line", "says", "hint"),
    [
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
                ("sglang", f"command: [{SGLANG}, --served-model-name, q]", "command[7]"),
                ("$$", "env: [{name: A, value: team/qwen}], args: [--served-model-name=$$(A)]", "args[0]"),
                ("no shell", "args: [--served-model-name=$MODELPLANE_SERVED_MODEL_NAME]", "args[0]"),
                ("an argument beside a file", "args: [--config=/a.yaml, --served-model-name=q]", "args[1]"),
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
                "deployment": engine(f"command: [{SGLANG}, --served-model-name, team/qwen, q]"),
            },
            "error",
            f"{CONTAINER}.command[7]",
            20,
            f"gives SGLang 2 names with {NAMED}, and it takes one: it does not start",
            "Write --served-model-name=$(MODELPLANE_SERVED_MODEL_NAME) only",
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
                    "args: [--served-model-name=$(C)], "
                    "env: [{name: C, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]",
                    "args[0]",
                    f"takes {NAMED} from $C, unknown before the pod runs: if it is not team/qwen, InferenceGateway",
                    "Write --served-model-name=$(MODELPLANE_SERVED_MODEL_NAME), a variable that the fleet sets",
                ),
                (
                    "command: [sh, -c, 'vllm serve m --served-model-name `hostname`']",
                    "command[2]",
                    f"takes {NAMED} from a command of the shell, unknown before the pod runs",
                    "Write --served-model-name=$(MODELPLANE_SERVED_MODEL_NAME)",
                ),
                (
                    "command: [sh, -c, 'exec vllm serve m $FLAGS']",
                    "command[2]",
                    f"may take {NAMED} from $FLAGS, unknown before the pod runs: unless it is team/qwen there, ",
                    "Write --served-model-name=$(MODELPLANE_SERVED_MODEL_NAME) after it",
                ),
                (
                    "command: [vllm, serve, m], args: [--seed=1, --config=/a.yaml]",
                    "args[1]",
                    "reads flags from a file, whose content is unknown: unless it has that name, ",
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
    ],
)
def test_problems(changed: dict[str, str], severity: str, path: str, line: int, says: str, hint: str) -> None:
    assert_one_problem(fleet(**changed), severity, path, line, says, hint, beside="matches no endpoint")


@pytest.mark.parametrize(
    "changed",
    [
        # A gateway that does not serve the service has no say in it.
        {
            "gateway": EXPOSED,
            "shown": change(SHOWN, "modelplane.ai/deployment: qwen", "provider: saas"),
            "deployment": engine("args: [--served-model-name=qwen]"),
            "endpoint": ENDPOINT,
        },
        {"path": PATH_GATEWAY, "deployment": engine("args: [--served-model-name=qwen]")},
        {"gateway": GATEWAY, "deployment": engine("args: [--model=m]")},
        {"gateway": GATEWAY, "deployment": engine("args: [--served-model-name, qwen, team/qwen]")},
        {"gateway": GATEWAY, "deployment": engine("args: [--served-model-name=$(MODELPLANE_SERVED_MODEL_NAME)]")},
        *({"gateway": GATEWAY, "deployment": engine(fields)} for fields in RIGHT_NAMES),
        *({"gateway": GATEWAY, "deployment": own(fields)} for fields in STATED),
        {"path": PATH_GATEWAY, "deployment": own("command: [/bin/own-server]")},
    ],
)
def test_no_problem(changed: dict[str, str]) -> None:
    assert [str(problem) for problem in fleet(**changed).problems] == []


UNKNOWN = "starts an unknown server, so no check covers its "
PASS = "Pass $(MODELPLANE_SERVED_MODEL_NAME) to it, because InferenceGateway edge asks for team/qwen"
SET = "et port and healthPath next to members, unless the defaults are right"


@pytest.mark.parametrize(
    ("deployment", "location", "message", "hint"),
    [
        (own("", ""), "image", "port, health path, served model name", f"{PASS}; s{SET}"),
        (
            own("command: [/bin/own-server]", ""),
            "command",
            "port, health path, served model name",
            f"{PASS}; s{SET}",
        ),
        (own("command: [sh, -c, 'cd /srv; ./start']"), "command[2]", "served model name", PASS),
        (own("args: [--model=m]"), "image", "served model name", PASS),
        (own(STATED[0], ""), "image", "port, health path", f"S{SET}"),
        (own(STATED[1], "        port: 8080\n"), "image", "health path", "Set healthPath next to members"),
    ],
)
def test_settings_of_unknown_servers_that_are_not_checked(
    deployment: str, location: str, message: str, hint: str
) -> None:
    problem = only(fleet(gateway=GATEWAY, deployment=deployment).problems)
    assert (problem.severity, problem.path) == ("warning", f"{CONTAINER}.{location}")
    assert problem.message == f"{UNKNOWN}{message}"
    assert problem.hint.startswith(hint)
    assert problem.value == ('"registry.example.com/ml/mystery:2"' if location == "image" else "")


def test_an_unknown_server_with_another_served_name() -> None:
    problem = only(fleet(gateway=GATEWAY, deployment=own("args: [--served-model-name=mystery]")).problems)
    assert (problem.severity, problem.path) == ("error", f"{CONTAINER}.args[0]")
    assert problem.message.startswith("has another --served-model-name: InferenceGateway edge asks for team/qwen")


def test_an_engine_with_another_name_can_only_be_held() -> None:
    """It would replace one that answers, and get no request."""
    loaded = fleet(gateway=GATEWAY, service=SERVICE, deployment=engine("args: [--served-model-name=other]"))
    assert [ref.kind for ref in loaded.invalid] == ["ModelDeployment"]


@pytest.mark.parametrize("key", ["sk-0123456789abcdef0123456789abcdef", "mpk_0123456789abcdefABCDEF"])
def test_a_key_in_the_place_of_a_served_name_is_not_repeated(key: str) -> None:
    args = f"args: [--served-model-name, {key}]"
    found = only(fleet(gateway=GATEWAY, service=SERVICE, deployment=engine(args)).errors)
    assert found.message.startswith("has another --served-model-name")
    assert "0123456789" not in str(found)


def test_the_variable_of_the_fleet_is_not_set_by_hand() -> None:
    env = "env: [{name: A, value: b}, {name: MODELPLANE_SERVED_MODEL_NAME, value: foo}]"
    found = only(fleet(gateway=GATEWAY, service=SERVICE, deployment=engine(env)).errors)
    assert (found.path.rpartition(".env")[2], found.value) == ("[1].name", "MODELPLANE_SERVED_MODEL_NAME")
