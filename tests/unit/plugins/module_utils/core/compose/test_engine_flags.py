# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""What an engine's command line says about it, and what it does not say."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose import engine_flags
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
    assert engine_flags.port(container, 8001) == expected


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
    assert engine_flags.block_size(container) == expected


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        ({}, False),
        ({"command": ["python3", "-m", "sglang.launch_server"]}, True),
        ({"command": ["sh", "-c", "exec python3 -m sglang.launch_server --port 8000"]}, True),
        ({"args": ["python3", "-m", "sglang.launch_server"]}, True),
        ({"command": ["/usr/local/bin/sglang"], "args": ["serve"]}, True),
        ({"command": ["sh", "-c", "set -e\nexec sglang serve"]}, True),
        ({"command": ["vllm", "serve"], "args": ["--served-model-name", "sglang"]}, False),
        ({"image": "lmsysorg/sglang:v0.5.9"}, False),
    ],
)
def test_is_sglang(container: dict[str, Any], expected: bool) -> None:
    assert engine_flags.is_sglang(container) is expected


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
    assert engine_flags.has_model({"args": args}) is expected


SHELL = st.text(alphabet=" \n\t\\'\"#$(){}&|;<>=-_abport019é", max_size=60)


@given(args=st.lists(st.one_of(st.text(), SHELL)), command=st.lists(st.one_of(st.text(), SHELL)))
def test_h7_any_text_gives_a_usable_number(args: list[str], command: list[str]) -> None:
    container = {"args": args, "command": command}
    assert 1 <= engine_flags.port(container, 8000) <= 65535
    assert engine_flags.block_size(container) >= 1
