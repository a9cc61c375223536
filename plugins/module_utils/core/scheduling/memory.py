# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Fit of a model and the memory of devices.

Every number is a lower bound for the memory of the engine, so that a refusal is always correct. Weights are parameters
times the bytes of their type, evenly divided over the devices of the engine's parallelism. Activations, graphs, and
scales of quantized weights are additional and not counted.

The KV cache of a token has a key and a value in each layer for each of its heads: 2 x layers x kvHeads x headDim
numbers. The source is Kwon et al., "Efficient Memory Management for Large Language Model Serving with PagedAttention",
https://arxiv.org/abs/2309.06180, section 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil
from typing import Any

from ..api.model_deployment import ServedModel
from ..devices.device import Device
from ..servers.command_line import CommandLine
from ..servers.flags import MemoryUse, memory_use
from .model import Cluster, Deployment, Engine, ImageNeed, Member, MemoryNeed, PlacedMember, Placement, Pool, Refusal

_BYTES: Mapping[str, Fraction] = {
    "float32": Fraction(4),
    "float16": Fraction(2),
    "bfloat16": Fraction(2),
    "float8": Fraction(1),
    "int8": Fraction(1),
    "float4": Fraction(1, 2),
    "int4": Fraction(1, 2),
}
UNSURE_CLASS = (
    "a claim may get another device of DeviceClass {}, whose memory the weights do not fit. Exclude that by a selector"
)
"""Reason why a device that fits a model does not match."""

_NUMBERS = {"M": 10**6, "B": 10**9, "T": 10**12}


def engine_memory(model: ServedModel, engine: Any) -> MemoryNeed | None:
    """Return the memory that a model needs on each device of an engine of a ModelDeployment. None if the flags of the
    serving pod do not determine it."""
    leader = next(member for member in engine.members if member.role != "Worker")
    use = memory_use(CommandLine.of(leader.template.spec.containers[0]))
    return memory_need(model, use) if use else None


def memory_need(model: ServedModel, use: MemoryUse) -> MemoryNeed:
    """Return the memory that a model needs on each device."""
    parameters = Fraction(model.parameters[:-1]) * _NUMBERS[model.parameters[-1]]
    tokens = model.context_length or use.context
    cache = tokens * _token_bytes(model, use)
    return MemoryNeed(
        weights=int(parameters * _BYTES[model.dtype] / use.shards),
        shards=use.shards,
        cache=int(cache),
        tokens=tokens if cache else 0,
        fraction=use.fraction,
    )


def _token_bytes(model: ServedModel, use: MemoryUse) -> Fraction:
    """Return the size of the KV cache of a token on one device, 0 if unknown. Each device has at least one head."""
    size = _cache_bytes(use.cache_type, model.dtype)
    if not (model.layers and model.kv_heads and model.head_dim and use.tensor and size):
        return Fraction(0)
    heads = max(Fraction(model.kv_heads, use.tensor), Fraction(1))
    return 2 * Fraction(model.layers, use.pipeline) * heads * model.head_dim * size


def _cache_bytes(cache_type: str, dtype: str) -> int:
    """Return the bytes of a number in the KV cache, 0 for an unknown type.

    Without a flag it is the type of the computations of the model
    (https://docs.vllm.ai/en/stable/api/vllm/config/cache/, cache_dtype). This type has 16 bits for smaller weights.
    """
    if cache_type in ("", "auto"):
        return max(ceil(_BYTES[dtype]), 2)
    if cache_type.startswith("fp8"):
        return 1
    return 2 if cache_type in ("float16", "bfloat16", "bf16") else 0


def device_memory(device: Device) -> int | None:
    """Return the published memory of a device in bytes, None if unpublished."""
    memory = device.capacity.get(f"{device.driver}/memory")
    return int(memory.value) if memory else None


def weights_refusal(need: MemoryNeed | None, device: Device) -> str:
    """Return the reason why the weights of a model do not fit the memory of a device, with numbers. Empty if they
    might.
    """
    memory = device_memory(device) if need else None
    if need is None or memory is None or need.weights <= memory * need.fraction:
        return ""
    return f"weights take {_weights(need)}, {_has(need, memory)}"


def holding(need: MemoryNeed | None, devices: Sequence[Device], matching: tuple[int, ...]) -> tuple[int, ...]:
    """Return the positions of matching devices that fit a model, for any device of their DeviceClass that the cluster
    allocates. The claim accepts all matching devices."""
    refused = {position for position in matching if weights_refusal(need, devices[position])}
    classes = {devices[position].device_class_name for position in refused if devices[position].claim == "DRA"}
    return tuple(
        position
        for position in matching
        if position not in refused
        and (devices[position].claim != "DRA" or devices[position].device_class_name not in classes)
    )


def cache_shortage(need: MemoryNeed | None, device: Device) -> str:
    """Return the reason why the KV cache of one request does not fit in addition to the weights, with numbers. Empty if
    it might fit."""
    memory = device_memory(device) if need else None
    if need is None or memory is None or not need.cache or need.weights + need.cache <= memory * need.fraction:
        return ""
    available = int(memory * need.fraction) - need.weights
    return (
        f"the KV cache of a request of {need.tokens:,} tokens takes {gib(need.cache)} of each device, and weights "
        f"leave {gib(available)}: they take {_weights(need)}, {_has(need, memory)}"
    )


def _weights(need: MemoryNeed) -> str:
    of = f", as {need.shards} share them" if need.shards > 1 else ""
    return f"{gib(need.weights)} of each device{of}"


def _has(need: MemoryNeed, memory: int) -> str:
    uses = f" of which the engine uses {float(need.fraction):.0%}" if need.fraction < 1 else ""
    return f"and it has {gib(memory)}{uses}"


def gib(size: int) -> str:
    """Return a size in GiB as text."""
    return f"{size / 2**30:,.2f} GiB"


def as_resident(member: Member) -> Member:
    """Return a member without the needs of its model and its image, because running pods keep their nodes."""
    if not any(request.memory or request.image.architecture for request in member.requests):
        return member
    requests = tuple(replace(request, memory=None, image=ImageNeed()) for request in member.requests)
    return replace(member, requests=requests)


def memory_shortages(
    deployments: Iterable[Deployment], clusters: Iterable[Cluster], placements: Iterable[Placement]
) -> tuple[Refusal, ...]:
    """Return warnings about devices with too little memory for placed replicas. Equal warnings of several clusters are
    merged. They concern weights of running replicas, and KV caches."""
    names_by_shortage: dict[tuple[str, str], set[str]] = {}
    for placed in _placed(deployments, clusters, placements):
        reason = _shortage(placed.need, placed.member, placed.pool)
        if reason:
            text = f"engine {placed.engine} of ModelDeployment {'/'.join(placed.owner)}: {reason}"
            names_by_shortage.setdefault((placed.pool.name, text), set()).add(placed.cluster)
    return tuple(Refusal(text, pool, tuple(sorted(names))) for (pool, text), names in sorted(names_by_shortage.items()))


@dataclass(frozen=True)
class MemoryFit:
    """Memory of a device of a pool and its use by a model, in bytes: weights, and the KV cache of a request of `tokens`
    if known. `usable`: the part of `memory` that the engine may use."""

    namespace: str
    deployment: str
    engine: str
    pool: str
    device: str
    clusters: tuple[str, ...]
    weights: int
    cache: int
    tokens: int
    memory: int
    usable: int


def memory_fits(
    deployments: Iterable[Deployment], clusters: Iterable[Cluster], placements: Iterable[Placement]
) -> tuple[MemoryFit, ...]:
    """Return the memory use of models on their devices. Equal results of several clusters are merged."""
    needs_by_key: dict[tuple[str, str, str, str, str, int], tuple[MemoryNeed, set[str]]] = {}
    for placed in _placed(deployments, clusters, placements):
        for request in placed.member.device_requests:
            for device in _claimable(request, placed.pool):
                memory = device_memory(device)
                if memory:
                    key = (*placed.owner, placed.engine, placed.pool.name, device.name, memory)
                    needs_by_key.setdefault(key, (placed.need, set()))[1].add(placed.cluster)
    return tuple(
        MemoryFit(
            *key[:5],
            tuple(sorted(names)),
            need.weights,
            need.cache,
            need.tokens,
            key[5],
            int(key[5] * need.fraction),
        )
        for key, (need, names) in sorted(needs_by_key.items(), key=lambda entry: entry[0])
    )


@dataclass(frozen=True)
class _Placed:
    """Pods of a model on a pool."""

    owner: tuple[str, str]
    engine: str
    cluster: str
    pool: Pool
    member: PlacedMember
    need: MemoryNeed


def _placed(
    deployments: Iterable[Deployment], clusters: Iterable[Cluster], placements: Iterable[Placement]
) -> Iterator[_Placed]:
    """Yield the pods of models with a known size, by pool."""
    needs = {deployment.key: engine_needs for deployment in deployments if (engine_needs := _needs(deployment.engines))}
    pools = {(cluster.name, pool.name): pool for cluster in clusters for pool in cluster.pools} if needs else {}
    for placement in placements:
        key = (placement.namespace, placement.deployment)
        for engine in placement.engines if key in needs else ():
            need = needs[key].get(engine.name)
            for member in engine.members if need else ():
                for name, __ in member.pods_by_pool:
                    pool = pools.get((placement.cluster, name))
                    if pool and need:
                        yield _Placed(key, engine.name, placement.cluster, pool, member, need)


def _needs(engines: Iterable[Engine]) -> dict[str, MemoryNeed]:
    return {
        engine.name: request.memory
        for engine in engines
        for member in engine.members
        for request in member.requests
        if request.memory
    }


def _claimable(request: Mapping[str, Any], pool: Pool) -> list[Device]:
    """Return the kinds of devices of a pool for a claimed request: the kind that it is limited to, or all kinds of its
    DeviceClass."""
    kinds = [device for device in pool.devices if device.device_class_name == request["deviceClassName"]]
    return [device for device in kinds if device.name == request.get("device")] or kinds


def _shortage(need: MemoryNeed | None, member: PlacedMember, pool: Pool) -> str:
    """Return the reason why the memory for a member on a pool is too small. Empty if one accepted kind of device
    fits."""
    for request in member.device_requests:
        kinds = _claimable(request, pool)
        reasons = [weights_refusal(need, device) or cache_shortage(need, device) for device in kinds]
        if reasons and all(reasons):
            return f"device {kinds[0].name}: {reasons[0]}"
    return ""
