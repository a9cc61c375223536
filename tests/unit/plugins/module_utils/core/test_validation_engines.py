# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Tests of what is wrong with containers of engines: ports, images, variables, resources and flags."""

from __future__ import annotations

import pytest
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.little_fleet import (
    CONTAINER,
    DEPLOYMENT,
    REPLICA,
    assert_one_problem,
    change,
    engine,
    fleet,
)

SERVE = "command: [vllm, serve, m], args: "


def pair(prefill: str, decode: str) -> str:
    """The deployment as a PrefillDecode pair with these args."""
    head, engines, body = DEPLOYMENT.partition("      - name: main\n")
    halves = (
        f"      - name: {name}\n        phase: {phase}\n"
        + change(body, "image: nvcr.io/nim/qwen}", f"image: vllm, args: {args}}}")
        for name, phase, args in (("p", "Prefill", prefill), ("d", "Decode", decode))
    )
    assert engines
    return change(head, "      engines:\n", "      serving: {mode: PrefillDecode}\n      engines:\n") + "".join(halves)


@pytest.mark.parametrize(
    ("changed", "severity", "path", "line", "says", "hint"),
    [
        pytest.param(
            {"deployment": engine("args: [--model=m, --port, '9000']")},
            "warning",
            f"{CONTAINER}.args",
            20,
            "listen on port 9000",
            "set --port=8000",
            id="port of a Unified engine",
        ),
        pytest.param(
            {"deployment": engine('command: [sh, -c, "exec vllm serve m --port 9000"]')},
            "warning",
            f"{CONTAINER}.command",
            20,
            "listen on port 9000",
            "set --port=8000",
            id="port in a script",
        ),
        pytest.param(
            {"deployment": pair("[--port=8001]", "[]")},
            "warning",
            f"{CONTAINER}.args",
            22,
            "listen on port 8001",
            "set --port=8000",
            id="port of a Prefill engine",
        ),
        pytest.param(
            {"deployment": pair("[]", "[--port=8000]")},
            "error",
            CONTAINER.replace("engines[0]", "engines[1]") + ".args",
            32,
            "cannot listen on port 8000: its sidecar",
            "--port=8001",
            id="port of a Decode engine",
        ),
        pytest.param(
            {"deployment": change(DEPLOYMENT, "image: nvcr.io/nim/qwen}", "image: '{{ registry }}/vllm'}")},
            "error",
            f"{CONTAINER}.image",
            20,
            "is not a reference to an image",
            "Nothing is templated",
            id="template of an image",
        ),
        pytest.param(
            {"deployment": change(DEPLOYMENT, "image: nvcr.io/nim/qwen}", "image: 'vllm:'}")},
            "error",
            f"{CONTAINER}.image",
            20,
            "is not a reference to an image",
            "registry.example.com/folder/name:tag",
            id="image without its tag",
        ),
        pytest.param(
            {"deployment": engine("args: ['--chat-template={{ a }} {{ b }}', '--model={{ model }}']")},
            "warning",
            f"{CONTAINER}.args[1]",
            20,
            "is a template",
            "Nothing is templated",
            id="template of an argument",
        ),
        pytest.param(
            {"deployment": engine("env: [{name: A, value: '{{ a }}'}]")},
            "warning",
            f"{CONTAINER}.env[0].value",
            20,
            "is a template",
            "Nothing is templated",
            id="template of a variable",
        ),
        pytest.param(
            {"deployment": engine("env: [{name: A, value: x}, {name: B, value: x}, {name: A, value: z}]")},
            "error",
            f"{CONTAINER}.env[2].name",
            20,
            "is a duplicate of env[0]",
            "Keep one",
            id="variable twice",
        ),
        pytest.param(
            {"deployment": engine("resources: {requests: {memory: 2Gi}, limits: {memory: 2000M}}")},
            "error",
            f"{CONTAINER}.resources.requests.memory",
            20,
            "is more than the limit, 2000M",
            "raise or remove limits.memory",
            id="more than the limit",
        ),
        pytest.param(
            {"deployment": engine("resources: {requests: {ephemeral-storage: 2Gi}, limits: {ephemeral-storage: 1Gi}}")},
            "error",
            f"{CONTAINER}.resources.requests.ephemeral-storage",
            20,
            "is more than the limit, 1Gi",
            "",
            id="more disk than the limit",
        ),
        pytest.param(
            {"deployment": engine("resources: {limits: {memory: 1e99999}}")},
            "error",
            f"{CONTAINER}.resources.limits.memory",
            20,
            "is not a valid quantity",
            "",
            id="absurd amount",
        ),
        pytest.param(
            {
                "replica": change(REPLICA, "east", "west").replace(
                    "image: nvcr.io/nim/qwen}", "image: vllm, args: [--port=1]}"
                )
            },
            "warning",
            "spec.engines[0].members[0].template.spec.containers[0].args",
            12,
            "listen on port 1,",
            "",
            id="replica's port",
        ),
        pytest.param(
            {"deployment": change(DEPLOYMENT, "image: nvcr.io/nim/qwen}", f"image: x, {SERVE}[-tp=eight]}}")},
            "warning",
            f"{CONTAINER}.args[0]",
            20,
            "has an invalid value of -tp, so the engine does not start",
            "It must be a whole number of 1 or more",
            id="no number of GPUs",
        ),
        pytest.param(
            {
                "deployment": change(
                    DEPLOYMENT, "image: nvcr.io/nim/qwen}", f"image: x, {SERVE}[--gpu-memory-utilization=2.5]}}"
                )
            },
            "warning",
            f"{CONTAINER}.args[0]",
            20,
            "has an invalid value of --gpu-memory-utilization, so the engine does not start",
            "It must be a number above 0 and up to 1, such as 0.9",
            id="more than all memory",
        ),
    ],
)
def test_problems(changed: dict[str, str], severity: str, path: str, line: int, says: str, hint: str) -> None:
    assert_one_problem(fleet(**changed), severity, path, line, says, hint)


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"deployment": engine("args: [--port=8000]")}, id="port"),
        pytest.param({"deployment": engine("args: [--port=$(PORT)]")}, id="port that is unknown"),
        pytest.param({"deployment": engine("args: [--port=$(PORT)], command: [x, --port=9000]")}, id="first port"),
        pytest.param({"deployment": pair("[]", "[]")}, id="pair"),
        pytest.param({"deployment": pair("[--port=8000]", "[--port, '8001']")}, id="pair with ports"),
        pytest.param({"deployment": engine("env: [{name: A, value: x}, {name: a, value: x}]")}, id="env"),
        pytest.param(
            {
                "deployment": engine(
                    "resources: {requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 1000m, memory: 1024Mi}}"
                )
            },
            id="as much as the limit",
        ),
        pytest.param({"deployment": engine("resources: {requests: {cpu: 4}, limits: {memory: 1Gi}}")}, id="no limit"),
    ],
)
def test_no_problem(changed: dict[str, str]) -> None:
    assert fleet(**changed).problems == ()
