# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Flags of engines: port, block size, parallelism, values that no server starts with, flags of released versions."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.servers import flags, table
from ansible_collections.modelplane.fleet.plugins.module_utils.core.validation import serving
from ansible_collections.modelplane.fleet.tests.written import command_line
from hypothesis import given
from hypothesis import strategies as st

GANG = """\
# Ray's own port comes first; don't mistake it for the engine's.
ray start --head --node-ip-address=$(hostname -i) --port=6379 &&
exec vllm serve /mnt/models \\
  --node-rank=$(MODELPLANE_RANK) \\
  --port 8005  # behind the sidecar
"""


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        ({}, 0),
        ({"args": ["--port=8002"]}, 8002),
        ({"args": ["--port", "8002"]}, 8002),
        # The last one overrides the others, as in the servers.
        ({"args": ["--model=m", "--port", "8002", "--port=8003"]}, 8003),
        ({"args": ["--port=8002"], "command": ["vllm", "serve", "--port=8003"]}, 8002),
        ({"command": ["vllm", "serve", "m", "--port", "8003"]}, 8003),
        ({"command": ["/bin/sh", "-c", "exec vllm serve m --port=8004"]}, 8004),
        ({"command": ["/bin/sh", "-c"], "args": ["exec vllm serve m --port '8004'"]}, 8004),
        ({"args": ["--port=$(PORT)"], "env": [{"name": "PORT", "value": "8002"}]}, 8002),
        # Of scripts that are not read, the port is the only one behind the start of the server.
        ({"command": ["/bin/sh", "-c", "a;vllm serve m --port 8004;c"]}, 8004),
        ({"command": ["/bin/bash", "-c", GANG]}, 8005),
        ({"command": ["/bin/sh", "-c", "RAY_X=1 ray start --head --port=6379; exec vllm serve"]}, 0),
        ({"command": ["/bin/sh", "-c", "# --port 9000\nexec vllm serve; true"]}, 0),
        ({"command": ["/bin/sh", "-c", "vllm serve --port 1 || vllm serve --port 2"]}, 0),
        ({"args": ["--port=$(PORT)"]}, 0),
        ({"command": ["/bin/sh", "-c", "vllm serve --port $PORT"]}, 0),
        ({"args": ["--port=http"]}, 0),
        ({"args": ["--port="]}, 0),
        ({"args": ["--port"]}, 0),
        ({"args": ["--port=0"]}, 0),
        ({"args": ["--port=65536"]}, 0),
        ({"args": ["--port=" + "9" * 5000]}, 0),
        ({"args": ["--port=８００２"]}, 0),
        ({"args": ["--portal=8002", "--api-port=8002", "port=8002"]}, 0),
        ({"args": ['--chat-kwargs={"a": "--port 8002"}']}, 0),
    ],
)
def test_port(container: dict[str, Any], expected: int) -> None:
    assert command_line(container).number(("--port",), 65535) == expected


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        ({}, 16),
        ({"args": ["--block-size=32"]}, 32),
        ({"args": ["--block_size", "32"]}, 32),
        ({"args": ["--page-size", "64"]}, 64),
        ({"args": ["--page-size=64", "--block-size=32"]}, 32),
        ({"args": ["--block-size=auto"]}, 16),
        ({"args": ["--block-size=auto", "--block-size=32"]}, 32),
        ({"args": ["--block-size=0"]}, 16),
        ({"command": ["sh", "-c", "python3 -m sglang.launch_server --page-size 128"]}, 128),
    ],
)
def test_h7_block_size(container: dict[str, Any], expected: int) -> None:
    assert flags.block_size(command_line(container)) == expected


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        ({}, None),
        ({"command": ["python3", "-m", "sglang.launch_server"]}, "sglang"),
        ({"command": ["sh", "-c", "exec python3 -m sglang.launch_server --port 8000"]}, "sglang"),
        ({"args": ["python3", "-m", "sglang.launch_server"]}, "sglang"),
        ({"command": ["/usr/local/bin/sglang"], "args": ["serve"]}, "sglang"),
        # Which server a script starts is known even if its flags are not.
        ({"command": ["sh", "-c", "set -e\nexec sglang serve"]}, "sglang"),
        ({"command": ["sh", "-c", "vllm serve m & sglang serve"]}, None),
        ({"command": ["sh", "-c", "# vllm serve\npython3 own.py; true"]}, None),
        ({"command": ["trtllm-serve", "m"]}, "tensorrt-llm"),
        ({"command": ["python3", "-m", "dynamo.frontend"]}, "dynamo"),
        ({"command": ["/app/llama-server"], "args": ["-m", "m.gguf"]}, "llama.cpp"),
        ({"image": "ghcr.io/ggml-org/llama.cpp:server-cuda"}, "llama.cpp"),
        ({"image": "ghcr.io/ggml-org/llama.cpp:full-cuda"}, None),
        ({"image": "ghcr.io/huggingface/text-generation-inference:3.3.6"}, "tgi"),
        ({"image": "nvcr.io/nim/meta/llama-3.1-8b-instruct:1.8"}, "nim"),
        ({"image": "docker.io/ollama/ollama"}, "ollama"),
        ({"image": "docker.io/ollama/ollama", "command": ["own"]}, None),
        ({"command": ["vllm", "serve"], "args": ["--served-model-name", "sglang"]}, "vllm"),
        ({"image": "lmsysorg/sglang:v0.5.9"}, None),
    ],
)
def test_program(container: dict[str, Any], expected: str | None) -> None:
    assert getattr(command_line(container).server, "name", None) == expected


SHELL = st.text(alphabet=" \n\t\\'\"#$(){}&|;<>=-_abport019é", max_size=60)


@given(args=st.lists(st.one_of(st.text(), SHELL)), command=st.lists(st.one_of(st.text(), SHELL)))
def test_h7_any_text_gives_a_usable_number(args: list[str], command: list[str]) -> None:
    container = {"args": args, "command": command}
    assert 1 <= (command_line(container).number(("--port",), 65535) or 8000) <= 65535
    assert flags.block_size(command_line(container)) >= 1


TP, PP, DP = "--tensor-parallel-size", "--pipeline-parallel-size", "--data-parallel-size"
NAME = "--served-model-name"
MEMORY, CONTEXT = "--gpu-memory-utilization", "--max-model-len"
SERVE = ["vllm", "serve", "m"]
TGI = "ghcr.io/huggingface/text-generation-inference:3.3.6"
SGLANG = ["python3", "-m", "sglang.launch_server"]


@pytest.mark.parametrize(
    ("container", "axes", "devices"),
    [
        ({"command": SERVE, "args": ["--tensor-parallel-size=4"]}, {TP: 4}, 4),
        ({"command": SERVE, "args": ["--tensor-parallel-size", "4", "-pp", "2"]}, {TP: 4, PP: 2}, 8),
        ({"command": SERVE, "args": ["-tp=4", "--data_parallel_size=3"]}, {TP: 4, DP: 3}, 12),
        ({"command": [*SERVE, "-dp", "2"], "args": ["-tp", "2", "--enable-expert-parallel"]}, {TP: 2, DP: 2}, 4),
        ({"command": ["vllm"], "args": ["serve", "m", "-tp", "2"]}, {TP: 2}, 2),
        ({"command": ["/opt/bin/vllm", "serve", "$(MODEL)", "-tp=2"]}, {TP: 2}, 2),
        ({"command": ["python3", "-m", "vllm.entrypoints.openai.api_server", "-tp=2"]}, {TP: 2}, 2),
        ({"image": "vllm/vllm-openai:v0.23.0", "args": ["--tensor-parallel-size=2"]}, {TP: 2}, 2),
        ({"image": "a.b:5000/x/vllm-openai@sha256:0", "args": ["-tp=2", "--host", "$(POD_IP)"]}, {TP: 2}, 2),
        ({"command": ["sh", "-c", "exec vllm serve m -tp 4 --port 8000"]}, {TP: 4}, 4),
        ({"command": ["bash", "-lc", "vllm serve m \\\n --tensor-parallel-size 4"]}, {TP: 4}, 4),
        # The first word behind a script is its name, $0.
        ({"command": ["sh", "-c", 'vllm serve "$@"', "-tp=2"], "args": ["m", "-pp=2"]}, {PP: 2}, 2),
        ({"command": ["sh", "-c", 'vllm serve m "$@"', "my name", "-tp=8"]}, {TP: 8}, 8),
        # Arguments that the script does not pass on do not reach the engine.
        ({"command": ["sh", "-c", "vllm serve m", "x"], "args": ["-tp=4"]}, {}, 1),
        ({"command": SGLANG, "args": ["--tp", "8"]}, {TP: 8}, 8),
        ({"command": SGLANG, "args": ["--tp-size=8", "--pp-size=2", "--ep-size=8"]}, {TP: 8, PP: 2}, 16),
        ({"command": SGLANG, "args": ["--tp=4", "--dp-size", "2"]}, {TP: 4, DP: 2}, 8),
        ({"command": SGLANG, "args": ["--tp=8", "--dp=8", "--enable-dp-attention"]}, {TP: 8, DP: 8}, 8),
        ({"command": ["sh", "-c", "sglang serve --tensor-parallel-size 2"]}, {TP: 2}, 2),
        ({"command": SERVE, "args": ["--port=8000"]}, {}, 1),
        ({"command": SGLANG, "args": ["--enable-dp-attention"]}, {}, 1),
    ],
)
def test_parallelism(container: dict[str, Any], axes: dict[str, int], devices: int) -> None:
    found = flags.parallelism(command_line(container))
    assert found is not None
    assert (found.axes, found.devices) == (axes, devices)


@pytest.mark.parametrize(
    ("container", "field"),
    [
        ({"command": SERVE, "args": ["-tp=4"]}, "args"),
        ({"command": [*SERVE, "-tp=4"], "args": ["--port=8000"]}, "command"),
        ({"command": ["sh", "-c"], "args": ["vllm serve -tp 4"]}, "args"),
        ({"command": ["sh", "-c", "vllm serve -tp 4"]}, "command"),
        ({"command": SERVE, "args": ["--port=8000"]}, "args"),
        ({"command": ["sh", "-c", "vllm serve m"]}, "command"),
    ],
)
def test_where_the_axes_are_written(container: dict[str, Any], field: str) -> None:
    found = flags.parallelism(command_line(container))
    assert found is not None
    assert found.field == field


@pytest.mark.parametrize(
    "container",
    [
        {},
        {"image": "vllm/vllm-openai:v0.23.0"},
        {"command": ["my-engine"], "args": ["--tensor-parallel-size=4"]},
        {"image": "registry.example.com/my-engine:1", "args": ["--tensor-parallel-size=4"]},
        {"image": "lmsysorg/sglang:v0.5", "args": ["--tp=4"]},
        {"command": SERVE, "args": ["-tp=$(TP)"]},
        {"command": SERVE, "args": ["-tp", "$(TP)"]},
        {"command": SERVE, "args": ["-tp=4", "$(MORE)"]},
        {"command": ["sh", "-c", "vllm serve m -tp 4 $MORE"]},
        {"command": ["sh", "-c", "vllm serve m -tp 4 `cat /flags`"]},
        {"command": ["sh", "-c", "vllm serve m -tp $TP"]},
        {"command": ["sh", "-c", "vllm serve m -tp $(nvidia-smi -L | wc -l)"]},
        # Scripts of more than one command, and of several shells.
        {"command": ["sh", "-c", "vllm serve -tp 4 || vllm serve -tp 2"]},
        {"command": ["sh", "-c", "sleep 1; vllm serve -tp 4"]},
        {"command": ["sh", "-c", "bash -c 'vllm serve m -tp 4'"]},
        {"command": ["sh", "-c", "if true; then vllm serve m -tp 4; fi"]},
        {"command": ["sh", "-c", 'set -- -tp 2; vllm serve m "$@"']},
        {"command": ["sh", "-c", "echo -tp 2 | xargs vllm serve m"]},
        {"command": SERVE, "args": ["-tp=4", "-tp=2"]},
        {"command": SERVE, "args": ["-tp=four"]},
        {"command": SERVE, "args": ["-tp"]},
        {"command": SERVE, "args": ["-tp=4", "--config=a.yaml"]},
        {"command": SERVE, "args": ["-tp=1", "-dp=4", "--data-parallel-rank=0"]},
        {"command": SERVE, "args": ["-tp=4"], "env": [{"name": "VLLM_DP_SIZE", "value": "2"}]},
    ],
)
def test_parallelism_that_is_unknown(container: dict[str, Any]) -> None:
    assert flags.parallelism(command_line(container)) is None


@pytest.mark.parametrize(
    ("container", "wrong"),
    [
        ({"command": SERVE, "args": ["--tensor-parallel-size=eight"]}, (TP, "eight", "1 or more", "args")),
        ({"command": SERVE, "args": ["-tp", "0"]}, ("-tp", "0", "1 or more", "args")),
        ({"command": [*SERVE, "-pp=-1"]}, ("-pp", "-1", "1 or more", "command")),
        ({"command": ["sh", "-c", "vllm serve m --tensor_parallel_size 2.0"]}, (TP, "2.0", "1 or more", "command")),
        ({"command": SERVE, "args": [TP]}, (TP, "nothing", "1 or more", "args")),
        ({"command": SGLANG, "args": ["--dp=x"]}, ("--dp", "x", "1 or more", "args")),
        ({"command": SERVE, "args": ["--gpu-memory-utilization=2.5"]}, (MEMORY, "2.5", "above 0 and up to 1", "args")),
        ({"command": SERVE, "args": ["--gpu_memory_utilization", "0"]}, (MEMORY, "0", "above 0", "args")),
        ({"command": SERVE, "args": ["--gpu-memory-utilization=90%"]}, (MEMORY, "90%", "above 0", "args")),
        ({"command": SGLANG, "args": ["--mem-fraction-static=nan"]}, ("--mem-fraction-static", "nan", "above", "args")),
        ({"command": SERVE, "args": ["--max-model-len=1.5K"]}, (CONTEXT, "1.5K", "32K (32,768)", "args")),
        ({"command": SERVE, "args": ["--max-model-len=many"]}, (CONTEXT, "many", "32k (32,000)", "args")),
        ({"command": SGLANG, "args": ["--context-length=32k"]}, ("--context-length", "32k", "whole number", "args")),
        ({"command": SERVE, "args": ["--served_model_name"]}, (NAME, "nothing", "a name", "args")),
        ({"command": SGLANG, "args": [NAME, "--tp=2"]}, (NAME, "nothing", "a name", "args")),
    ],
)
def test_values_that_no_server_starts_with(container: dict[str, Any], wrong: tuple[str, str, str, str]) -> None:
    (found,) = serving.wrong_flags(command_line(container), "engine")
    assert (found.value.strip('"'), found.path.partition("[")[0]) == (wrong[1], f"engine.{wrong[3]}")
    assert wrong[0] in found.message
    assert wrong[2] in found.hint


@pytest.mark.parametrize(
    "container",
    [
        {"command": SERVE, "args": ["-tp=8", "--gpu-memory-utilization=0.9234567", "--max-model-len=-1"]},
        {"command": SERVE, "args": ["--gpu-memory-utilization", "1", "--max-model-len", "auto"]},
        {"command": SERVE, "args": ["--gpu-memory-utilization=.95", "--max-model-len=25.6k"]},
        {"command": SERVE, "args": ["-tp=$(TP)", "--gpu-memory-utilization={{ part }}"]},
        {"command": ["sh", "-c", "vllm serve m -tp $(nvidia-smi -L | wc -l) --max-model-len `cat tokens`"]},
        {"command": ["sh", "-c", "vllm serve m -tp x; true"]},
        {"command": ["other"], "args": ["--tensor-parallel-size=eight"]},
        {"command": SERVE, "args": ["--context-length=x"]},
        {"command": [*SERVE, "--tensor-parallel-size"], "args": ["2"]},
        {"command": [*SERVE, NAME], "args": ["a", "b"]},
        {"command": ["sh", "-c", f'vllm serve m {NAME} "$@"', "--", "a"]},
    ],
)
def test_values_that_may_be_right(container: dict[str, Any]) -> None:
    assert list(serving.wrong_flags(command_line(container), "engine")) == []


VLLM, IMAGE_SGLANG = "docker.io/vllm/vllm-openai", "lmsysorg/sglang"


@pytest.mark.parametrize(
    ("container", "says", "hint"),
    [
        ({"image": f"{VLLM}:v0.31.0", "args": ["--max-modle-len=1"]}, "vLLM 0.31.0 has no", "mean --max-model-len?"),
        (
            {"image": f"{VLLM}:v0.11.0-x86_64", "args": ["--tensor_paralel_size", "2"]},
            "0.11.0",
            "--tensor-parallel-size?",
        ),
        ({"image": f"{VLLM}:v0.10.0", "args": ["--nnodes=2"]}, "vLLM 0.10.0 has no", "vLLM has it since 0.11.1"),
        ({"image": f"{VLLM}:v0.19.0", "args": ["--swap-space=4"]}, "0.19.0 has no", "0.17.1 was the last version"),
        ({"image": f"{VLLM}:v0.19.0", "args": ["--zzzzzz"]}, "--zzzzzz: vLLM 0.19.0", "Remove it"),
        (
            {"image": f"{IMAGE_SGLANG}:v0.5.4.post1-cu129", "command": SGLANG, "args": ["--max-model-len=1"]},
            "SGLang 0.5.4.post1 has no such flag",
            "",
        ),
        ({"image": "x", "command": SERVE, "args": ["--port 8000"]}, "is one word with a space", "Write --port=8000"),
    ],
)
def test_flags_that_a_version_does_not_have(container: dict[str, Any], says: str, hint: str) -> None:
    (found,) = serving.wrong_flags(command_line(container), "engine")
    assert says in found.message
    assert hint in found.hint
    assert found.path == "engine.args[0]"


@pytest.mark.parametrize(
    "container",
    [
        *(
            {"image": f"{VLLM}:{tag}", "args": ["--max-modle-len=1"]}
            for tag in ("latest", "nightly", "v0.31.0rc1", "v9.9.9")
        ),
        {"image": f"{VLLM}@sha256:{'0' * 64}", "args": ["--max-modle-len=1"]},
        {"image": "registry.example.com/own/vllm-openai:v0.31.0", "args": ["--max-modle-len=1"]},
        {"image": f"{VLLM}:v0.31.0", "command": ["own-server"], "args": ["--max-modle-len=1"]},
        {"image": f"{VLLM}:v0.31.0", "command": ["sh", "-c", "vllm serve m --max-modle-len 1; true"]},
        # Other spellings that the parsers accept.
        {
            "image": f"{VLLM}:v0.11.0",
            "args": [
                *("--max_model_len=1", "--no-enable-prefix-caching", "--enable-auto-tool", "-O3", "-tp=2"),
                *("--compilation-config.level=3", "--hf-overrides.a.b", "c", "--speculative-config.model=a", "-1"),
            ],
        },
        {"image": f"{IMAGE_SGLANG}:v0.5.9", "command": SGLANG, "args": ["--tp=8", "--dp", "2", "--mem-fraction=0.8"]},
        {"image": f"{IMAGE_SGLANG}:v0.5.23", "command": SGLANG, "args": ["--tp-size=8", "--page-size=64"]},
    ],
)
def test_flags_that_a_version_may_have(container: dict[str, Any]) -> None:
    assert list(serving.wrong_flags(command_line(container), "engine")) == []


@pytest.mark.parametrize(
    ("image", "args", "name", "value"),
    [
        ("vllm/vllm-openai:v0.14.0", ["--tensor-parallel", "2"], "--tensor-parallel-size", "2"),
        ("vllm/vllm-openai:v0.14.0", ["--por=9000"], "--port", "9000"),
        ("vllm-openai", ["--max_model", "32k"], "--max-model-len", "32k"),
        ("vllm-openai", ["--served-model", "a"], "--served-model-name", "a"),
        ("vllm-openai", ["--model", "a"], "--model", "a"),
        ("vllm-openai", ["--data-parallel", "2"], "--data-parallel", "2"),
        ("vllm-openai", ["--unknown", "2"], "--unknown", "2"),
    ],
)
def test_beginnings_of_flags(image: str, args: list[str], name: str, value: str) -> None:
    flag = command_line({"image": image, "args": args}).flags[0]
    assert (flag.name, flag.value) == (name, value)


def test_beginnings_of_flags_of_sglang() -> None:
    line = command_line({"image": "x", "command": [*SGLANG, "--tensor=4", "--pipeline-par=2", "--por", "8000"]})
    assert flags.axes(line) == {"--tensor-parallel-size": 4, "--pipeline-parallel-size": 2}
    assert line.number(("--port",), 65535) == 8000


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        ({"image": TGI, "args": ["--num-shard", "4"]}, "--num-shard=4"),
        ({"image": TGI, "env": [{"name": "NUM_SHARD", "value": "4"}]}, "--num-shard=4"),
        ({"image": TGI, "args": ["--num-shard=2"], "env": [{"name": "NUM_SHARD", "value": "4"}]}, "--num-shard=2"),
        ({"command": ["trtllm-serve", "m", "--tp_size", "4"]}, "--tp_size=4"),
        ({"command": ["trtllm-serve", "m", "--tp_size=4", "--pp_size=2"]}, "--tp_size=4 --pp_size=2"),
        ({"command": ["vllm", "serve", "m", "-tp=4"]}, "--tensor-parallel-size=4"),
        ({"command": ["vllm", "serve", "m"]}, ""),
    ],
)
def test_parallelism_has_the_flags_of_the_server(container: dict[str, Any], expected: str) -> None:
    assert str(flags.parallelism(command_line({"image": "x", **container}))) == expected


@pytest.mark.parametrize(
    "container",
    [
        {"image": TGI, "args": ["--model-id=m"]},
        {"image": TGI, "env": [{"name": "NUM_SHARD", "value": "$(SHARDS)"}]},
        {"command": ["trtllm-serve", "m"]},
        {"command": ["trtllm-serve", "m", "--tp_size=4", "--extra_llm_api_options=/a.yaml"]},
    ],
)
def test_parallelism_of_other_servers_that_is_unknown(container: dict[str, Any]) -> None:
    assert flags.parallelism(command_line({"image": "x", **container})) is None


@pytest.mark.parametrize("beginning", ["--data-parallel", "--data-parallel-s", "--p"])
def test_ambiguous_axes_are_unknown(beginning: str) -> None:
    assert flags.axes(command_line({"image": "vllm-openai", "args": [f"{beginning}=2"]})) is None


def test_released_flags_have_those_of_every_version() -> None:
    always = {
        "vllm": ("model", "max-model-len", "served-model-name", "port"),
        "sglang": ("model-path", "tp-size", "port"),
    }
    for name, expected in always.items():
        versions = table.released(name)
        assert len(versions) > 30
        for version, found in versions.items():
            assert found.issuperset(expected), (name, version)
