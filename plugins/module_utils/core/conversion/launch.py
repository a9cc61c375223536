# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""How a multi-node engine without a command of its own is started: a vLLM gang over several pods.

Only the conversion of the `workers` form (`workers.py`) uses this. The leader starts a Ray head, waits for the
other nodes and becomes the OpenAI-compatible server; the others join Ray and block. vLLM's images carry Ray up to
v0.18; where there is none, the same gang runs on vLLM's own multi-node launch (`--nnodes`, `--node-rank`,
`--master-addr`, `--headless`).

The arguments reach vLLM as `"$@"`: no shell ever parses them, while Kubernetes has expanded `$(VAR)` in them before.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core.topology import Axes

RAY_PORT = 6379
CACHE_MOUNT = "/mnt/models"
DECODE_PORT = 8001
"""Where a decode engine listens: a sidecar takes the engine port 8000 in front of it."""

_BEFORE_RAY = (
    # The shell is process 1 of its pod while it waits, and such a one passes over signals that it does not handle.
    "trap 'exit 143' TERM",
    # Ray reports to its authors otherwise.
    'export RAY_USAGE_STATS_ENABLED="${RAY_USAGE_STATS_ENABLED:-0}"',
)

LEADER = "$(MODELPLANE_LEADER_ADDRESS)"
RANK = "$(MODELPLANE_RANK)"

_SHORT_FLAGS = {
    "-tp": "--tensor-parallel-size",
    "-pp": "--pipeline-parallel-size",
    "-dp": "--data-parallel-size",
    "-dpl": "--data-parallel-size-local",
    "-dpb": "--data-parallel-backend",
}

_ALL_NODES_JOINED = (
    "import ray, sys; "
    'ray.init(address="auto", logging_level="ERROR", log_to_driver=False); '
    'sys.exit(sum(node["Alive"] for node in ray.nodes()) < int(sys.argv[1]))'
)
_HEAD_ANSWERS = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 5).close()"


@dataclass(frozen=True)
class Gang:
    """What the launch of a gang depends on besides its container.

    `cached`: a ModelCache is mounted, and the model is served from there when no `--model` is given.
    `decode`: the gang is the decode half of a split pair.
    """

    axes: Axes
    nodes: int
    cached: bool = False
    decode: bool = False


def lacks_command(container: dict[str, Any]) -> bool:
    """Whether the engine is started by the image's entrypoint. Malformed args are left to the validator: False."""
    args = container.get("args")
    well_formed = args is None or (isinstance(args, list) and all(isinstance(arg, str) for arg in args))
    return well_formed and container.get("command") in (None, [])


def has_flag(args: Sequence[str], flag: str) -> bool:
    """Whether `args` hold `flag` in a spelling that vLLM reads: `--a-b=1`, `--a-b 1`, `--a_b`, or its short form."""
    return any(_flag_name(arg) == flag for arg in args)


def launched(container: dict[str, Any], gang: Gang, *, leader: bool) -> dict[str, Any]:
    """The engine container with command and args of a leader or of a follower. The input is left as it is."""
    given: list[str] = container.get("args") or []
    args = [*given, *_missing_flags(given, gang)]
    script = _leader_script(given, gang) if leader else _follower_script(given, gang)
    return {**container, "command": ["/bin/sh", "-c", script, "vllm"], "args": args}


def _flag_name(arg: str) -> str:
    name = re.split(r"[=\s]", arg, maxsplit=1)[0]
    return _SHORT_FLAGS.get(name, name.replace("_", "-"))


def _missing_flags(args: Sequence[str], gang: Gang) -> list[str]:
    axes = gang.axes
    wanted = [("--tensor-parallel-size", axes.tensor), ("--pipeline-parallel-size", axes.pipeline)]
    if axes.data > 1:
        wanted += [("--data-parallel-size", axes.data), ("--data-parallel-size-local", axes.data_local)]
    flags = [f"--model={CACHE_MOUNT}"] if gang.cached and not has_flag(args, "--model") else []
    flags += [f"{flag}={value}" for flag, value in wanted if not has_flag(args, flag)]
    if gang.decode and not has_flag(args, "--port"):
        flags.append(f"--port={DECODE_PORT}")
    return flags


def _leader_script(args: Sequence[str], gang: Gang) -> str:
    lines = [
        f"ray start --head --port={RAY_PORT}",
        f"until python3 -c '{_ALL_NODES_JOINED}' {gang.nodes}; do sleep 5; done",
    ]
    if gang.axes.data > 1 and gang.axes.pipeline > 1:
        # One data-parallel rank spans nodes here; by default vLLM keeps each rank on one.
        lines.append("export VLLM_RAY_DP_PACK_STRATEGY=span")
    lines.append(f'exec vllm serve "$@"{_ray_flags(args, gang)}')
    return _script(lines, args, gang)


def _follower_script(args: Sequence[str], gang: Gang) -> str:
    # A follower that gave up before the head is there would restart, and its restart recreates the whole gang.
    lines = [
        f"until python3 -c '{_HEAD_ANSWERS}' \"{LEADER}\" {RAY_PORT} 2>/dev/null; do sleep 2; done",
        f'exec ray start --address="{LEADER}:{RAY_PORT}" --block',
    ]
    return _script(lines, args, gang, extra=" --headless")


def _script(with_ray: Sequence[str], args: Sequence[str], gang: Gang, extra: str = "") -> str:
    """Ray where the image has it, vLLM's own launch elsewhere; a backend the user names leaves only that one."""
    backend = _flag_value(args, "--distributed-executor-backend")
    with_ray = (*_BEFORE_RAY, *with_ray)
    native = f'exec vllm serve "$@" --nnodes={gang.nodes} --node-rank={RANK} --master-addr="{LEADER}"{extra}'
    if backend is None:
        native += " --distributed-executor-backend=mp"
        lines = ["if command -v ray >/dev/null 2>&1; then", *(f"  {line}" for line in with_ray), "fi", native]
    else:
        lines = [native] if backend == "mp" else list(with_ray)
    return "\n".join(["set -e", *lines, ""])


def _flag_value(args: Sequence[str], flag: str) -> str | None:
    for position, arg in enumerate(args):
        if _flag_name(arg) == flag:
            inline = arg.partition("=")
            return inline[2] if inline[1] else next(iter(args[position + 1 : position + 2]), "")
    return None


def _ray_flags(args: Sequence[str], gang: Gang) -> str:
    wanted = []
    if gang.axes.tensor * gang.axes.pipeline > 1:
        wanted.append("--distributed-executor-backend")
    if gang.axes.data > 1:
        wanted.append("--data-parallel-backend")
    return "".join(f" {flag}=ray" for flag in wanted if not has_flag(args, flag))
