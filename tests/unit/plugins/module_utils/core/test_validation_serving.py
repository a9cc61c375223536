# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Tests of where engines listen, of scripts that are not read, and of volumes of their pods."""

from __future__ import annotations

import pytest
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.little_fleet import (
    CONTAINER,
    DEPLOYMENT,
    change,
    fleet,
    only,
)

TGI = "ghcr.io/huggingface/text-generation-inference:3.3.6"
LLAMA = "ghcr.io/ggml-org/llama.cpp:server-cuda"
OLD_LLAMA = "ghcr.io/ggerganov/llama.cpp:server-cuda"
FULL_LLAMA = "ghcr.io/ggml-org/llama.cpp:full-cuda"
NIM = "nvcr.io/nim/meta/llama-3.1-8b-instruct:1.8"
SERVE = "command: [vllm, serve, m]"
SGLANG = "command: [python3, -m, sglang.launch_server, --model-path, m]"


def engine(container: str, fields: str = "", spec: str = "") -> str:
    """The deployment with this container, more fields of the engine, and more fields of the pod."""
    text = change(DEPLOYMENT, "{spec: {containers: [{name: engine, image: nvcr.io/nim/qwen}]}}\n", "")
    text = change(text, "      - name: main\n", f"      - name: main\n{fields}")
    return f"{text}{{spec: {{{spec}containers: [{{name: engine, {container}}}]}}}}\n"


@pytest.mark.parametrize(
    ("container", "says", "hint"),
    [
        (f"image: x, {SGLANG}", "listen on 127.0.0.1:30000, the default of SGLang", "--host=0.0.0.0 and --port=8000"),
        (
            f"image: x, {SGLANG}, args: [--host, 0.0.0.0]",
            "port 30000, the default of SGLang",
            "set --port=8000, or port",
        ),
        (f"image: x, {SGLANG}, args: [--port=8000]", "127.0.0.1:8000, the default of SGLang", "Set --host=0.0.0.0"),
        (
            f"image: x, {SERVE}, args: [--host=127.0.0.1]",
            "listen on 127.0.0.1:8000, where neither",
            "Set --host=0.0.0.0",
        ),
        (f"image: x, {SERVE}, args: [--host, localhost]", "listen on localhost:8000", "Set --host=0.0.0.0"),
        (
            f"image: x, {SERVE}, args: [--port=$(PORT)], env: [{{name: PORT, value: '9000'}}]",
            "listen on port 9000, but requests use another port",
            "set --port=8000",
        ),
        (f"image: x, {SERVE}, args: [--ssl-keyfile=/a, --ssl-certfile=/b]", "serve HTTPS", "Remove --ssl-certfile"),
        (f"image: '{TGI}', args: [--model-id=m]", "port 80 by the variable PORT", "set --port=8000"),
        ("image: x, command: [text-generation-launcher]", "port 3000, the default of Text Gen", "set --port=8000"),
        (f"image: x, {SERVE}, args: [--host=LOCALHOST]", "listen on LOCALHOST:8000", "Set --host=0.0.0.0"),
        (f"image: x, {SERVE}, args: [--host=localhost.localdomain]", "listen on localhost.local", "Set --host=0.0.0.0"),
        (f"image: x, {SERVE}, args: [--host=ip6-localhost]", "listen on ip6-localhost:8000", "Set --host=0.0.0.0"),
        (f"image: x, {SERVE}, args: ['--host=::ffff:127.0.0.1']", "listen on ::ffff:127.0.0.1", "Set --host=0.0.0.0"),
        (f"image: x, {SERVE}, args: ['--host=0:0::1']", "listen on 0:0::1:8000", "Set --host=0.0.0.0"),
        (f"image: x, {SERVE}, args: [--uds=/tmp/s]", "listen on a Unix socket", "Remove --uds"),
        (
            f"image: '{LLAMA}', args: [--port=8000, --api-prefix, /llm]",
            "moves all paths of the engine below /llm, while probes send requests to /health",
            "Set healthPath: /llm/health",
        ),
        (
            f"image: '{LLAMA}', args: [--port=8000], env: [{{name: LLAMA_ARG_API_PREFIX, value: /a}}]",
            "below /a, while",
            "Set healthPath: /a/health",
        ),
        (
            f"image: '{TGI}', args: [--port=8000], env: [{{name: HOSTNAME, value: 127.0.0.1}}]",
            "listen on 127.0.0.1:8000 by the variable HOSTNAME",
            "Set --hostname=0.0.0.0",
        ),
        (f"image: '{OLD_LLAMA}', args: [-m, /m]", "listen on port 8080, the default of llama.cpp", "set --port=8000"),
        (f"image: '{FULL_LLAMA}', args: [--server, -m, /m]", "listen on 127.0.0.1:8080", "Set --host=0.0.0.0"),
        (f"image: '{FULL_LLAMA}', args: [-s, --host=0.0.0.0]", "listen on port 8080", "set --port=8000"),
        (f"image: '{LLAMA}', args: [-m, /m]", "listen on port 8080, the default of llama.cpp", "set --port=8000"),
        ("image: x, command: [llama-server, --port, '8000']", "127.0.0.1:8000, the default of", "Set --host=0.0.0.0"),
        ("image: ollama/ollama", "listen on port 11434 by the variable OLLAMA_HOST", "OLLAMA_HOST to 0.0.0.0:8000"),
        (
            "image: ollama/ollama, env: [{name: OLLAMA_HOST, value: 'http://0.0.0.0'}]",
            "port 80 by the variable OLLAMA_HOST",
            "port: 80 next to members",
        ),
        (f"image: x, {SERVE}, args: [--por=9000]", "listen on port 9000, but", "set --port=8000"),
        ("image: x, command: [ollama, serve]", "listen on 127.0.0.1:11434, the default", "OLLAMA_HOST to 0.0.0.0:8000"),
        ("image: x, command: [trtllm-serve, m]", "listen on localhost:8000, the default of", "Set --host=0.0.0.0"),
        ("image: x, command: [tritonserver, --http-port=9000]", "listen on port 9000", "set --http-port=8000"),
        (
            f"image: '{NIM}', env: [{{name: NIM_SERVER_PORT, value: '9000'}}]",
            "port 9000 by the variable NIM_SERVER_PORT",
            "set the variable NIM_SERVER_PORT to 8000",
        ),
        ("image: x, command: [python3, -m, dynamo.frontend, --http-port, '9000']", "port 9000", "set --http-port=8000"),
        (
            f"image: x, {SERVE}, args: [--api-key=a], readinessProbe: {{httpGet: {{path: /v1/models, port: 8000}}}}",
            "with 401",
            "Use /health",
        ),
    ],
)
def test_unreachable_engines(container: str, says: str, hint: str) -> None:
    problem = only(fleet(deployment=engine(container)).problems)
    assert problem.severity == "warning"
    assert says in problem.message
    assert hint in problem.hint
    assert problem.line is not None


@pytest.mark.parametrize(
    ("container", "fields"),
    [
        (f"image: x, {SERVE}", ""),
        (f"image: x, {SGLANG}, args: [--host=0.0.0.0, --port=8000]", ""),
        (f"image: x, {SGLANG}, args: [--host, '0.0.0.0']", "        port: 30000\n"),
        (f"image: x, {SGLANG}, args: [$(MORE)]", ""),
        (f"image: x, {SGLANG}, args: [--config=/a.yaml]", ""),
        (f"image: x, {SERVE}, args: [--host=$(POD_IP), --port=$(PORT)]", ""),
        (f"image: '{TGI}', args: [--port, '8000']", ""),
        (f"image: '{TGI}'", "        port: 80\n"),
        (f"image: '{TGI}', env: [{{name: PORT, value: '8000'}}]", ""),
        (f"image: '{LLAMA}', env: [{{name: LLAMA_ARG_PORT, value: '8000'}}]", ""),
        ("image: ollama/ollama, env: [{name: OLLAMA_HOST, value: 'http://0.0.0.0:8000'}]", ""),
        ("image: ollama/ollama, env: [{name: OLLAMA_HOST, value: 'http://0.0.0.0'}]", "        port: 80\n"),
        ("image: ollama/ollama, env: [{name: OLLAMA_HOST, value: 'https://0.0.0.0/'}]", "        port: 443\n"),
        ("image: ollama/ollama, env: [{name: OLLAMA_HOST, value: '0.0.0.0'}]", "        port: 11434\n"),
        (f"image: '{LLAMA}', args: [--port=8000, --api-prefix=/llm]", "        healthPath: /llm/health\n"),
        (f"image: '{FULL_LLAMA}', args: [--convert, /m]", ""),
        (f"image: '{TGI}', args: [--port=8000], env: [{{name: HOSTNAME, value: 0.0.0.0}}]", ""),
        ("image: x, command: [vllm, bench, serve, --port, '9000']", ""),
        ("image: x, command: [/usr/bin/vllm, chat, --port=9000]", ""),
        ("image: x, command: [python3, -m, sglang.bench_serving, --port=30000]", ""),
        ("image: x, command: [sh, -c, 'exec vllm bench latency --port 9000']", ""),
        (f"image: '{NIM}'", ""),
        ("image: x, command: [tritonserver]", ""),
        ("image: x, command: [own-server, --host, 127.0.0.1]", ""),
        (f"image: x, {SERVE}, args: [--api-key=a]", ""),
    ],
)
def test_engines_that_are_reached_or_unknown(container: str, fields: str) -> None:
    assert [str(each) for each in fleet(deployment=engine(container, fields)).problems] == []


def test_a_script_has_one_hint() -> None:
    script = "command: [sh, -c, 'export A=b; exec vllm serve m --port 9000 --host 127.0.0.1 -tp x']"
    found = list(fleet(deployment=engine(f"image: x, {script}")).problems)
    hint = only([each for each in found if "is not read" in each.message])
    assert (hint.severity, hint.path) == ("warning", f"{CONTAINER}.command[2]")
    assert "sh -c 'exec vllm serve" in hint.hint
    assert len(found) == 2  # and the port, which is the only one there
    own = "command: [sh, -c, './start.sh; sleep 1']"
    assert fleet(deployment=engine(f"image: x, {own}")).problems == ()


MOUNTED = f"image: x, {SERVE}, volumeMounts: [{{name: a, mountPath: /dev/shm}}], args: [-tp=1]"
MEMORY = "resources: {limits: {memory: 8Gi}}"


@pytest.mark.parametrize(
    ("container", "volumes", "severity", "path", "says"),
    [
        (
            f"{MOUNTED}, {MEMORY}",
            "{name: a, emptyDir: {medium: Memory, sizeLimit: 16Gi}}",
            "warning",
            "sizeLimit",
            "8Gi",
        ),
        (MOUNTED, "{name: a, emptyDir: {}}", "warning", "volumes[0]", "is not in memory"),
        ("image: x", "{name: a, configMap: {name: b}}", "warning", "volumes[0].name", "is not mounted"),
        (MOUNTED, "{name: b, emptyDir: {}}", "error", "volumeMounts[0].name", "is not a volume of the pod"),
        (
            "image: x, volumeMounts: [{name: dshm, mountPath: /a}]",
            "{name: dshm, emptyDir: {}}",
            "error",
            "volumes[0].name",
            "that the fleet adds",
        ),
        (
            "image: x, volumeMounts: [{name: a, mountPath: /mnt/models/x}]",
            "{name: a, emptyDir: {}}",
            "error",
            "mountPath",
            "path of the weights",
        ),
    ],
)
def test_volumes(container: str, volumes: str, severity: str, path: str, says: str) -> None:
    found = fleet(deployment=engine(container, spec=f"volumes: [{volumes}], ")).problems
    problem = next(each for each in found if says in each.message)
    assert problem.severity == severity
    assert problem.path.endswith(path)


@pytest.mark.parametrize(
    ("first", "second", "path", "says"),
    [
        # Kubernetes limits such a volume to the memory limit of the pod.
        ("medium: Memory", "", "", ""),
        ("medium: Memory, sizeLimit: 8Gi", "", "volumes[0].emptyDir.sizeLimit", "is not less than limits.memory"),
        ("medium: Memory, sizeLimit: 9Gi", "", "volumes[0].emptyDir.sizeLimit", "is not less than limits.memory"),
        (
            "medium: Memory, sizeLimit: 4Gi",
            "medium: Memory, sizeLimit: 4Gi",
            "volumes[1].emptyDir.sizeLimit",
            "sizes of",
        ),
        (
            "medium: Memory, sizeLimit: 7Gi",
            "medium: Memory, sizeLimit: 2Gi",
            "volumes[1].emptyDir.sizeLimit",
            "sizes of",
        ),
        ("medium: Memory, sizeLimit: 4Gi", "medium: Memory", "", ""),
        ("medium: Memory, sizeLimit: 4Gi", "medium: Memory, sizeLimit: 3Gi", "", ""),
        ("medium: Memory, sizeLimit: 7Gi", "sizeLimit: 100Gi", "", ""),
    ],
)
def test_volumes_in_memory(first: str, second: str, path: str, says: str) -> None:
    mounts = "volumeMounts: [{name: a, mountPath: /dev/shm}, {name: b, mountPath: /b}]"
    volumes = f"volumes: [{{name: a, emptyDir: {{{first}}}}}, {{name: b, emptyDir: {{{second}}}}}], "
    found = fleet(deployment=engine(f"image: x, {SERVE}, {mounts}, args: [-tp=1], {MEMORY}", spec=volumes)).problems
    assert [problem.severity for problem in found] == (["warning"] if says else [])
    assert all(problem.path.endswith(path) and says in problem.message for problem in found)


@pytest.mark.parametrize("name", ["dshm", "shm", "cache-volume"])
def test_own_shared_memory(name: str) -> None:
    mount = f"image: x, {SERVE}, volumeMounts: [{{name: {name}, mountPath: /dev/shm}}], args: [-tp=1], {MEMORY}"
    volume = f"{{name: {name}, emptyDir: {{medium: Memory, sizeLimit: 2Gi}}}}"
    assert fleet(deployment=engine(mount, spec=f"volumes: [{volume}], ")).problems == ()


def test_shared_memory_for_tensor_parallelism() -> None:
    container = f"image: x, {SERVE}, args: [-tp=2], resources: {{requests: {{memory: 1Gi}}}}"
    found = fleet(deployment=engine(container)).problems
    problem = next(each for each in found if "shared memory" in each.message)
    assert "512Mi" in problem.message
    assert "requests.memory" in problem.hint


def test_engines_of_a_replica_have_one_port() -> None:
    head, one, body = engine(f"image: x, {SERVE}, args: [--port=9000]", "        port: 9000\n").partition(
        "      - name: main\n"
    )
    other = body.replace("port: 9000", "port: 9001").replace("--port=9000", "--port=9001")
    problem = only(fleet(deployment=f"{head}{one}{body}      - name: other\n{other}").errors)
    assert problem.path == "spec.template.spec.engines[1].port"
