# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Launch command of a multi-node engine without a command: a vLLM gang over several pods.

Only the conversion of the `workers` format (`workers.py`) uses this module. The leader starts a Ray head, waits for the
other nodes, and then starts the OpenAI-compatible server. The other nodes join Ray and block. The images of vLLM
contain Ray up to v0.18. Without Ray, the gang uses the multi-node launch of vLLM (`--nnodes`, `--node-rank`,
`--master-addr`, `--headless`).

vLLM receives the arguments as `"$@"`. No shell parses them, but Kubernetes expands `$(VAR)` in them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..topology import Axes

RAY_PORT = 6379
CACHE_MOUNT = "/mnt/models"
DECODE_PORT = 8001
"""Port of a decode engine. The sidecar in front of the engine listens on the engine port 8000."""

_BEFORE_RAY = (
    # The waiting shell is process 1 of its container. Process 1 ignores signals without a handler.
    "trap 'exit 143' TERM",
    # Ray sends usage statistics by default.
    'export RAY_USAGE_STATS_ENABLED="${RAY_USAGE_STATS_ENABLED:-0}"',
)

_SERVE = 'exec vllm serve "$@"'
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
    """Parameters of the launch of a gang.

    cached: a ModelCache is mounted, and the engine loads the model from it without `--model`.
    decode: the gang is the decode engine of a PrefillDecode pair.
    """

    axes: Axes
    nodes: int
    cached: bool = False
    decode: bool = False


def lacks_command(container: dict[str, Any]) -> bool:
    """Return True if the image's entrypoint starts the engine. False for malformed args, because validation rejects
    them later."""
    args = container.get("args")
    well_formed = args is None or (isinstance(args, list) and all(isinstance(arg, str) for arg in args))
    return well_formed and container.get("command") in (None, [])


def is_launch(script: str) -> bool:
    """Return True if a script is a launch that passes its arguments to vLLM."""
    return script.startswith("set -e\n") and (
        f"{_SERVE} --nnodes=" in script or (_SERVE in script and _BEFORE_RAY[0] in script)
    )


def has_flag(args: Sequence[str], flag: str) -> bool:
    """Return True if `args` contain a flag in a spelling that vLLM accepts: `--a-b=1`, `--a-b 1`, `--a_b`, or short."""
    return any(_flag_name(arg) == flag for arg in args)


def launched(container: dict[str, Any], gang: Gang, *, leader: bool) -> dict[str, Any]:
    """Return the engine container with command and args of a leader or of a follower. The input is not modified."""
    container_args: list[str] = container.get("args") or []
    args = [*container_args, *_missing_flags(container_args, gang)]
    script = _leader_script(container_args, gang) if leader else _follower_script(container_args, gang)
    return {**container, "command": ["/bin/sh", "-c", script, "vllm"], "args": args}


def _flag_name(arg: str) -> str:
    name = re.split(r"[=\s]", arg, maxsplit=1)[0]
    return _SHORT_FLAGS.get(name, name.replace("_", "-"))


def _missing_flags(args: Sequence[str], gang: Gang) -> list[str]:
    axes = gang.axes
    required_flags = [("--tensor-parallel-size", axes.tensor), ("--pipeline-parallel-size", axes.pipeline)]
    if axes.data > 1:
        required_flags += [("--data-parallel-size", axes.data), ("--data-parallel-size-local", axes.data_local)]
    flags = [f"--model={CACHE_MOUNT}"] if gang.cached and not has_flag(args, "--model") else []
    flags += [f"{flag}={value}" for flag, value in required_flags if not has_flag(args, flag)]
    if gang.decode and not has_flag(args, "--port"):
        flags.append(f"--port={DECODE_PORT}")
    return flags


def _leader_script(args: Sequence[str], gang: Gang) -> str:
    lines = [
        f"ray start --head --port={RAY_PORT}",
        f"until python3 -c '{_ALL_NODES_JOINED}' {gang.nodes}; do sleep 5; done",
    ]
    if gang.axes.data > 1 and gang.axes.pipeline > 1:
        # A data-parallel rank is on several nodes here. The default of vLLM is one node for each rank.
        lines.append("export VLLM_RAY_DP_PACK_STRATEGY=span")
    lines.append(f"{_SERVE}{_ray_flags(args, gang)}")
    return _script(lines, args, gang)


def _follower_script(args: Sequence[str], gang: Gang) -> str:
    # A follower that exits before the head is ready would restart, and a restart recreates the whole gang.
    lines = [
        f"until python3 -c '{_HEAD_ANSWERS}' \"{LEADER}\" {RAY_PORT} 2>/dev/null; do sleep 2; done",
        f'exec ray start --address="{LEADER}:{RAY_PORT}" --block',
    ]
    return _script(lines, args, gang, extra=" --headless")


def _script(with_ray: Sequence[str], args: Sequence[str], gang: Gang, extra: str = "") -> str:
    """Return the script. It uses Ray if the image has it, otherwise the launch of vLLM. A backend in the args
    decides."""
    backend = _flag_value(args, "--distributed-executor-backend")
    with_ray = (*_BEFORE_RAY, *with_ray)
    native = f'{_SERVE} --nnodes={gang.nodes} --node-rank={RANK} --master-addr="{LEADER}"{extra}'
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
    flags = []
    if gang.axes.tensor * gang.axes.pipeline > 1:
        flags.append("--distributed-executor-backend")
    if gang.axes.data > 1:
        flags.append("--data-parallel-backend")
    return "".join(f" {flag}=ray" for flag in flags if not has_flag(args, flag))
