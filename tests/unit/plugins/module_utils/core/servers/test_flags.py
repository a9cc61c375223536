# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Tests of what an engine's command line says about it, and what it does not say."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.servers import flags as engine_flags
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
        ({}, 8001),
        ({"args": ["--port=8002"]}, 8002),
        ({"args": ["--port", "8002"]}, 8002),
        ({"args": ["--model=m", "--port", "8002", "--port=8003"]}, 8002),
        ({"args": ["--port=8002"], "command": ["vllm", "serve", "--port=8003"]}, 8002),
        ({"command": ["vllm", "serve", "m", "--port", "8003"]}, 8003),
        ({"command": ["/bin/sh", "-c", "exec vllm serve m --port=8004"]}, 8004),
        ({"command": ["/bin/sh", "-c", "exec vllm serve m --port '8004'"]}, 8004),
        ({"command": ["/bin/sh", "-c"], "args": ["exec vllm serve m --port 8004"]}, 8004),
        ({"command": ["/bin/sh", "-c", "a;b --port 8004;c"]}, 8004),
        ({"command": ["/bin/sh", "-c", "(sleep 1&&vllm serve --port 8004)"]}, 8004),
        ({"command": ["/bin/bash", "-c", GANG]}, 8005),
        ({"command": ["/bin/sh", "-c", "RAY_X=1 ray start --head --port=6379; exec vllm serve"]}, 8001),
        ({"command": ["/bin/sh", "-c", "ray start --node-ip=$(POD_IP) --port=6379; exec vllm serve"]}, 8001),
        ({"command": ["/bin/sh", "-c", "# --port 9000\nexec vllm serve"]}, 8001),
        ({"command": ["/bin/sh", "-c", "echo 'unbalanced --port 8006"]}, 8006),
        ({"command": ["/bin/sh", "-c", "vllm serve --chat-template '--port 1 --x' --port 8007"]}, 8007),
        ({"args": ["--port=$(PORT)"]}, 8001),
        ({"command": ["/bin/sh", "-c", "vllm serve --port=$(PORT) --model m"]}, 8001),
        ({"command": ["/bin/sh", "-c", "vllm serve --port $PORT"]}, 8001),
        ({"args": ["--port=http"]}, 8001),
        ({"args": ["--port="]}, 8001),
        ({"args": ["--port"]}, 8001),
        ({"args": ["--port=0"]}, 8001),
        ({"args": ["--port=-1"]}, 8001),
        ({"args": ["--port=65536"]}, 8001),
        ({"args": ["--port=" + "9" * 5000]}, 8001),
        ({"args": ["--port=８００２"]}, 8001),
        ({"args": ["--port=8_002"]}, 8001),
        ({"args": ["--portal=8002", "--api-port=8002", "port=8002"]}, 8001),
        ({"args": ['--chat-kwargs={"a": "--port 8002"}']}, 8001),
        ({"args": None, "command": None}, 8001),
    ],
)
def test_h7_port(container: dict[str, Any], expected: int) -> None:
    assert (command_line(container).number(("--port",), 65535) or 8001) == expected


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        ({}, 16),
        ({"args": ["--block-size=32"]}, 32),
        ({"args": ["--block_size", "32"]}, 32),
        ({"args": ["--page-size", "64"]}, 64),
        ({"args": ["--page-size=64", "--block-size=32"]}, 64),
        ({"args": ["--block-size=auto"]}, 16),
        ({"args": ["--block-size=auto", "--block-size=32"]}, 16),
        ({"args": ["--block-size=0"]}, 16),
        ({"command": ["sh", "-c", "python3 -m sglang.launch_server --page-size 128"]}, 128),
    ],
)
def test_h7_block_size(container: dict[str, Any], expected: int) -> None:
    assert engine_flags.block_size(command_line(container)) == expected


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        ({}, None),
        ({"command": ["python3", "-m", "sglang.launch_server"]}, "sglang"),
        ({"command": ["sh", "-c", "exec python3 -m sglang.launch_server --port 8000"]}, "sglang"),
        ({"args": ["python3", "-m", "sglang.launch_server"]}, "sglang"),
        ({"command": ["/usr/local/bin/sglang"], "args": ["serve"]}, "sglang"),
        ({"command": ["sh", "-c", "set -e\nexec sglang serve"]}, "sglang"),
        ({"command": ["vllm", "serve"], "args": ["--served-model-name", "sglang"]}, "vllm"),
        ({"image": "lmsysorg/sglang:v0.5.9"}, None),
    ],
)
def test_program(container: dict[str, Any], expected: str | None) -> None:
    assert getattr(command_line(container).server, "name", None) == expected


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (None, False),
        ([], False),
        (["--model=m"], True),
        (["--model", "m"], True),
        (["--model-path=m"], False),
        (["--served-model-name=m"], False),
        (["m", "--tokenizer=--model"], False),
    ],
)
def test_has_model(args: list[str] | None, expected: bool) -> None:
    assert engine_flags.has_model(command_line({"args": args})) is expected


SHELL = st.text(alphabet=" \n\t\\'\"#$(){}&|;<>=-_abport019é", max_size=60)


@given(args=st.lists(st.one_of(st.text(), SHELL)), command=st.lists(st.one_of(st.text(), SHELL)))
def test_h7_any_text_gives_a_usable_number(args: list[str], command: list[str]) -> None:
    container = {"args": args, "command": command}
    assert 1 <= (command_line(container).number(("--port",), 65535) or 8000) <= 65535
    assert engine_flags.block_size(command_line(container)) >= 1


TP, PP, DP = "--tensor-parallel-size", "--pipeline-parallel-size", "--data-parallel-size"
NAME = "--served-model-name"
MEMORY, CONTEXT = "--gpu-memory-utilization", "--max-model-len"
SERVE = ["vllm", "serve", "m"]
SGLANG = ["python3", "-m", "sglang.launch_server"]
BOTH_WAYS = """\
if command -v ray; then
  ray start --head --port=6379
  exec vllm serve "$@" --distributed-executor-backend=ray
fi
exec vllm serve "$@" --nnodes=2 --node-rank=$(MODELPLANE_RANK) --master-addr="$(MODELPLANE_LEADER_ADDRESS)"
"""


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
        ({"command": ["sh", "-c"], "args": ["sleep 1; vllm serve m \\\n --tensor-parallel-size 4"]}, {TP: 4}, 4),
        ({"command": ["sh", "-c", "bash -c 'vllm serve m -tp 4'"]}, {TP: 4}, 4),
        ({"command": ["sh", "-c", 'bash -x -c -- "vllm serve m -tp 4"']}, {TP: 4}, 4),
        ({"command": ["sh", "-c", "bash -c -euo pipefail 'vllm serve m -tp 4'"]}, {TP: 4}, 4),
        (
            {"command": ["sh", "-c", "if env -u A B=/sh nice -n 5 /bin/bash -c 'vllm serve -tp 4'; then :; fi"]},
            {TP: 4},
            4,
        ),
        ({"command": ["sh", "-c", 'bash -c \'vllm serve m "$@"\' -- "$@"', "--", "-tp=4"]}, {TP: 4}, 4),
        # No shell runs these.
        ({"command": ["sh", "-c", 'echo bash -c "vllm serve m -tp 4"; vllm serve m -tp 2']}, {TP: 2}, 2),
        ({"command": ["sh", "-c", 'env echo bash -c "vllm serve m -tp 4"; vllm serve m -tp 2']}, {TP: 2}, 2),
        ({"command": ["sh", "-c", 'bash -x -- -c "vllm serve m -tp 4"; vllm serve m -tp 2']}, {TP: 2}, 2),
        ({"command": ["sh", "-c", "vllm serve m 2>&1 -tp 2"]}, {TP: 2}, 2),
        # The first word behind a script is its name, $0.
        ({"command": ["sh", "-c", 'vllm serve "$@"', "-tp=2"], "args": ["m", "-pp=2"]}, {PP: 2}, 2),
        ({"command": ["sh", "-c", 'vllm serve m "$@"', "my name", "-tp=8"]}, {TP: 8}, 8),
        ({"command": ["sh", "-c", BOTH_WAYS, "vllm"], "args": ["--model=m", "-tp=8", "-pp=2"]}, {TP: 8, PP: 2}, 16),
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
    found = engine_flags.parallelism(command_line(container))
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
    found = engine_flags.parallelism(command_line(container))
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
        {"command": ["sh", "-c", "vllm serve -tp 4 || vllm serve -tp 2"]},
        {"command": ["sh", "-c", "vllm serve -tp 4 || vllm serve"]},
        {"command": ["sh", "-c", "vllm serve m", "x"], "args": ["-tp=4"]},
        {"command": ["sh", "-c", "vllm serve " + '"$@" ' * 9], "args": ["-tp=4"]},
        {"command": ["sh", "-c", "vllm serve -tp 4; sglang serve --tp 4"]},
        # The shell around a script expands what is in double quotes.
        {"command": ["sh", "-c", 'exec bash -c "exec vllm serve m $*"', "--", "-tp=2"]},
        {"command": ["sh", "-c", 'exec bash -c "exec vllm serve $*"', "--", "m", "-tp=2"]},
        {"command": ["sh", "-c", 'bash -c "vllm serve m $@"', "--", "--seed=1", "-tp=2"]},
        {"command": ["sh", "-c", 'bash -c "vllm serve m --port ${*}"', "--", "8000", "-tp=2"]},
        {"command": ["sh", "-c", 'bash -c "vllm serve m --port=$*"', "--", "8000", "-tp=2"]},
        {"command": ["sh", "-c", "bash -c \"bash -c 'vllm serve m $*' -- -tp=4\"", "--", "-tp=2"]},
        {"command": ["sh", "-c", 'bash -c "vllm serve m $MORE"']},
        {"command": ["sh", "-c", 'set -- -tp 2; vllm serve m "$@"']},
        {"command": ["sh", "-c", 'serve() { vllm serve m "$@"; }; serve -tp 2']},
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
    assert engine_flags.parallelism(command_line(container)) is None


@pytest.mark.parametrize(
    ("container", "wrong"),
    [
        ({"command": SERVE, "args": ["--tensor-parallel-size=eight"]}, (TP, "eight", "1 or more", "args")),
        ({"command": SERVE, "args": ["-tp", "0"]}, ("-tp", "0", "1 or more", "args")),
        ({"command": [*SERVE, "-pp=-1"]}, ("-pp", "-1", "1 or more", "command")),
        ({"command": ["sh", "-c", "vllm serve m --tensor_parallel_size 2.0"]}, (TP, "2.0", "1 or more", "command")),
        ({"command": SERVE, "args": [TP]}, (TP, "", "1 or more", "args")),
        ({"command": SGLANG, "args": ["--dp=x"]}, ("--dp", "x", "1 or more", "args")),
        ({"command": SERVE, "args": ["--gpu-memory-utilization=2.5"]}, (MEMORY, "2.5", "above 0 and up to 1", "args")),
        ({"command": SERVE, "args": ["--gpu_memory_utilization", "0"]}, (MEMORY, "0", "above 0", "args")),
        ({"command": SERVE, "args": ["--gpu-memory-utilization=90%"]}, (MEMORY, "90%", "above 0", "args")),
        ({"command": SGLANG, "args": ["--mem-fraction-static=nan"]}, ("--mem-fraction-static", "nan", "above", "args")),
        ({"command": SERVE, "args": ["--max-model-len=1.5K"]}, (CONTEXT, "1.5K", "32K (32,768)", "args")),
        ({"command": SERVE, "args": ["--max-model-len=many"]}, (CONTEXT, "many", "32k (32,000)", "args")),
        ({"command": SGLANG, "args": ["--context-length=32k"]}, ("--context-length", "32k", "whole number", "args")),
        ({"command": SERVE, "args": ["--served_model_name"]}, (NAME, "", "a name", "args")),
        ({"command": SGLANG, "args": [NAME, "--tp=2"]}, (NAME, "--tp=2", "a name", "args")),
        ({"command": ["sh", "-c", f"vllm serve m {NAME}; sleep 1"]}, (NAME, "", "a name", "command")),
        ({"command": ["sh", "-c", f"bash -c 'vllm serve m {NAME}'"]}, (NAME, "", "a name", "command")),
    ],
)
def test_values_that_no_server_starts_with(container: dict[str, Any], wrong: tuple[str, str, str, str]) -> None:
    (found,) = engine_flags.wrong_values(command_line(container))
    assert (found.flag, found.value, found.field) == (wrong[0], wrong[1], wrong[3])
    assert wrong[2] in found.must


@pytest.mark.parametrize(
    "container",
    [
        {"command": SERVE, "args": ["-tp=8", "--gpu-memory-utilization=0.9234567", "--max-model-len=-1"]},
        {"command": SERVE, "args": ["--gpu-memory-utilization", "1", "--max-model-len", "auto"]},
        {"command": SERVE, "args": ["--gpu-memory-utilization=.95", "--max-model-len=25.6k"]},
        {"command": SERVE, "args": ["-tp=$(TP)", "--gpu-memory-utilization={{ part }}"]},
        {"command": ["sh", "-c", "vllm serve m -tp $(nvidia-smi -L | wc -l) --max-model-len `cat tokens`"]},
        {"command": ["sh", "-c", 'bash -c "vllm serve m -tp $TP --max-model-len $*"']},
        {"command": ["sh", "-c", "other -tp x; vllm serve m"]},
        {"command": ["other"], "args": ["--tensor-parallel-size=eight"]},
        {"command": SERVE, "args": ["--context-length=x"]},
        {"command": [*SERVE, "--tensor-parallel-size"], "args": ["2"]},
        {"command": [*SERVE, NAME], "args": ["a", "b"]},
        {"command": ["sh", "-c", f'vllm serve m {NAME} "$@"', "--", "a"]},
    ],
)
def test_values_that_may_be_right(container: dict[str, Any]) -> None:
    assert list(engine_flags.wrong_values(command_line(container))) == []
