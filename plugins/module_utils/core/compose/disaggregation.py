# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""PrefillDecode serving: one engine prefills the prompt, another decodes, and NIXL transfers the KV cache.

Roles come from `phase`, never from an engine's name. Only the pods that serve the API change: those of a Standalone
member or of a gang's leader.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..api.model_deployment import Engine
from ..api.model_replica import ModelReplicaSpec, PlacedEngine, ReplicaServing
from ..api.serving import Sidecar
from ..servers.command_line import CommandLine
from . import constants, overrides
from .member import Member, serving_member
from .options import Options
from .pod import missing_variables, ordered_container, shared_memory_volume
from .pod_security import confined
from .probes import health_path, health_probe
from .workload import serving_template

_MODE = "PrefillDecode"
_MAX_PORT = 65535
_SIDE_CHANNEL_ENV = (
    {"name": "VLLM_NIXL_SIDE_CHANNEL_HOST", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
    {"name": "VLLM_NIXL_SIDE_CHANNEL_PORT", "value": "5557"},
)
# Later versions of the sidecar have renamed the flag for the port of the engine.
_RENAMED_FLAGS = {"model-server-port": "vllm-port"}


def is_disaggregated(spec: ModelReplicaSpec) -> bool:
    """Return True for the spec of a ModelReplica that serves in the mode PrefillDecode."""
    return spec.serving is not None and spec.serving.mode == _MODE


def disaggregate(
    workload: dict[str, Any],
    members: Sequence[Member],
    engine: PlacedEngine,
    serving: ReplicaServing,
    options: Options,
    pool: int,
) -> None:
    """Turn the workload of an engine with a `phase` into its half of a PrefillDecode pair, in place.

    `pool` is the port of the pair for requests. `serving` of the ModelReplica has a `sidecar` that overrides the
    composed image and flags. The variables of vLLM's NIXL side channel are set for every engine. Other engines ignore
    them.
    """
    member = serving_member(members)
    template = serving_template(workload)
    template["metadata"]["labels"].update(
        {
            "llm-d.ai/role": (engine.phase or "").lower(),
            "llm-d.ai/inference-serving": "true",
            constants.APP_LABEL: member.owner.prefix,
        }
    )
    spec = template["spec"]
    container = spec["containers"][0]
    spec["volumes"].append(shared_memory_volume("nixl-shm", member.container))
    variables = container.get("env", [])
    container["env"] = variables + missing_variables(_SIDE_CHANNEL_ENV, variables)
    spec["containers"] = [ordered_container(container)]
    if engine.phase == constants.DECODE:
        port = decode_port(engine)
        spec["containers"][0]["ports"] = [{"containerPort": port}]
        sidecar = _sidecar(port, pool, health_path(member.container, engine), serving.sidecar, options.sidecar_image)
        spec["initContainers"] = [sidecar]


def pool_port(engines: Iterable[PlacedEngine | Engine]) -> int:
    """Return the serving port of the pods of a replica with these engines."""
    return next((engine.port for engine in engines if engine.phase != constants.DECODE and engine.port), None) or (
        constants.ENGINE_PORT
    )


def decode_port(engine: PlacedEngine | Engine) -> int:
    """Return the port of a Decode engine behind its sidecar."""
    leader = next(member for member in engine.members if member.role != constants.WORKER)
    line = CommandLine.of(leader.template.spec.containers[0])
    return engine.port or line.number(("--port",), _MAX_PORT) or constants.DECODE_PORT


def _sidecar(port: int, pool: int, health: str, settings: Sidecar | None, image: str) -> dict[str, Any]:
    """Return the proxy of a Decode engine. It sends the prompt to the prefill pod that the endpoint picker chose.

    Kubernetes stops an init container with `restartPolicy: Always` after the engine. This order matters because streams
    of the engine pass through the proxy.
    """
    args = (
        "--secure-proxy=false",
        "--kv-connector=nixlv2",
        f"--vllm-port={port}",
        # Retries reach the same prefill pod, so that a reset or refused connection does not fail a request.
        "--prefill-max-retries=2",
        *([f"--port={pool}"] if pool != constants.ENGINE_PORT else []),
    )
    return {
        "name": "pd-sidecar",
        "image": overrides.image(settings, image),
        "args": overrides.args(settings, args, _RENAMED_FLAGS),
        "restartPolicy": "Always",
        "ports": [{"containerPort": pool}],
        "securityContext": confined(),
        "readinessProbe": health_probe(pool, health),
    }
