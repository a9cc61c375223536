# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Tests of what models take of the memory of devices, and of what does not fit."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.model_deployment import ServedModel
from ansible_collections.modelplane.fleet.plugins.module_utils.core.devices.device import Device
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.memory import (
    cache_shortage,
    memory_fits,
    memory_need,
    memory_shortages,
    weights_refusal,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import (
    Cluster,
    Engine,
    MemoryNeed,
    Schedule,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.placement import schedule
from ansible_collections.modelplane.fleet.plugins.module_utils.core.servers.flags import MemoryUse, memory_use
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.scheduling import fleets
from ansible_collections.modelplane.fleet.tests.written import command_line

GIB = 2**30
QWEN = {"parameters": "32.8B", "dtype": "bfloat16", "layers": 64, "kvHeads": 8, "headDim": 128}


def use(*args: str, image: str = "vllm/vllm-openai:v1", **container: Any) -> MemoryUse | None:
    return memory_use(command_line({"image": image, "args": list(args), **container}))


def need(use: MemoryUse | None = None, **fields: Any) -> MemoryNeed:
    return memory_need(ServedModel.model_validate({**QWEN, **fields}), use or MemoryUse())


@pytest.mark.parametrize(
    ("args", "shards", "tensor", "pipeline"),
    [
        ([], 1, 1, 1),
        (["-tp", "4"], 4, 4, 1),
        (["-tp=4", "-pp=2"], 8, 4, 2),
        (["-tp=2", "--data-parallel-size=4"], 8, 2, 1),
        (["-tp=8", "--decode-context-parallel-size=2"], 8, 0, 1),
    ],
)
def test_vllm_divides_weights_over_all_axes(args: list[str], shards: int, tensor: int, pipeline: int) -> None:
    assert use(*args) == MemoryUse(shards, tensor, pipeline, Fraction(92, 100))


@pytest.mark.parametrize(
    ("args", "shards", "tensor"),
    [("--tp 4", 4, 4), ("--tp 2 --dp 4", 2, 2), ("--tp 8 --dp 4 --enable-dp-attention", 8, 2)],
)
def test_sglang_has_whole_copies_unless_attention_alone_is_parallel(args: str, shards: int, tensor: int) -> None:
    line = command_line({"command": ["/bin/sh", "-c", f"python3 -m sglang.launch_server {args}"]})
    assert memory_use(line) == MemoryUse(shards, tensor)


@pytest.mark.parametrize(
    "args", [["--cpu-offload-gb=10"], ["--offload_backend", "uva"], ["-tp=$(SIZE)"], ["--config=/etc/vllm.yaml"]]
)
def test_what_flags_leave_open_is_not_known(args: list[str]) -> None:
    assert use(*args) is None


def test_other_programs_are_not_known() -> None:
    assert use(image="example.org/llama-server:1") is None


@pytest.mark.parametrize(
    ("args", "fraction"),
    [
        ([], Fraction(92, 100)),
        (["--gpu-memory-utilization=0.8"], Fraction(8, 10)),
        (["--gpu_memory_utilization", ".95"], Fraction(95, 100)),
        (["--gpu-memory-utilization=$(SHARE)"], Fraction(1)),
        (["--gpu-memory-utilization=2"], Fraction(1)),
        (["--gpu-memory-utilization=0"], Fraction(1)),
        (["--kv-cache-memory-bytes=1000"], Fraction(1)),
    ],
)
def test_fraction(args: list[str], fraction: Fraction) -> None:
    found = use(*args)
    assert found
    assert found.fraction == fraction


@pytest.mark.parametrize(
    ("value", "tokens"),
    [
        ("32768", 32_768),
        ("128k", 128_000),
        ("128K", 131_072),
        ("25.6k", 25_600),
        ("1m", 1_000_000),
        ("1M", 1_048_576),
        ("1.5K", 0),
        ("1.5", 0),
        ("auto", 0),
        ("-1", 0),
        ("9g", 0),
        ("$(TOKENS)", 0),
    ],
)
def test_the_context_is_read_as_vllm_reads_it(value: str, tokens: int) -> None:
    found = use(f"--max-model-len={value}")
    assert found
    assert found.context == tokens
    assert need(found).tokens == tokens


@pytest.mark.parametrize(
    ("parameters", "dtype", "size"),
    [
        ("8.19B", "bfloat16", 16_380_000_000),
        ("8B", "float32", 32_000_000_000),
        ("600M", "float8", 600_000_000),
        ("1.04T", "int4", 520_000_000_000),
    ],
)
def test_weights_are_parameters_times_bytes(parameters: str, dtype: str, size: int) -> None:
    assert need(parameters=parameters, dtype=dtype).weights == size


def test_weights_and_cache_are_divided() -> None:
    found = need(use("-tp=4", "-pp=2"), contextLength=1024)
    assert found.weights == 65_600_000_000 // 8
    assert found.cache == 2 * (64 // 2) * (8 // 4) * 128 * 2 * 1024


def test_each_device_has_a_head_at_least() -> None:
    assert need(use("-tp=16"), contextLength=1).cache == 2 * 64 * 1 * 128 * 2


@pytest.mark.parametrize(
    ("args", "dtype", "cache"),
    [
        ([], "bfloat16", 2),
        (["--kv-cache-dtype=auto"], "float8", 2),
        ([], "int4", 2),
        ([], "float32", 4),
        (["--kv-cache-dtype", "fp8_e4m3"], "bfloat16", 1),
        (["--kv-cache-dtype=turbo"], "bfloat16", 0),
    ],
)
def test_type_of_the_cache(args: list[str], dtype: str, cache: int) -> None:
    assert need(use(*args), dtype=dtype, contextLength=1).cache == 2 * 64 * 8 * 128 * cache


def test_context_is_that_of_the_model_else_that_of_the_flags() -> None:
    assert need(use("--max-model-len=4096")).tokens == 4096
    assert need(use("--max-model-len=4096"), contextLength=1024).tokens == 1024
    assert need(use()).cache == 0


def test_without_its_shape_a_model_has_no_known_cache() -> None:
    model = ServedModel.model_validate({"parameters": "8B", "dtype": "int8", "contextLength": 4096})
    assert memory_need(model, MemoryUse()) == MemoryNeed(8_000_000_000)


def test_refusal_has_the_numbers() -> None:
    found = MemoryNeed(30 * GIB, 2, fraction=Fraction(9, 10))
    assert weights_refusal(found, fleets.gpu("32Gi")) == (
        "weights take 30.00 GiB of each device, as 2 share them, and it has 32.00 GiB of which the engine uses 90%"
    )
    assert weights_refusal(found, fleets.gpu("40Gi")) == ""
    assert weights_refusal(None, fleets.gpu("1Gi")) == ""


def test_weights_that_fill_the_memory_fit() -> None:
    assert weights_refusal(MemoryNeed(32 * GIB), fleets.gpu("32Gi")) == ""
    assert weights_refusal(MemoryNeed(32 * GIB + 1), fleets.gpu("32Gi"))


def test_a_device_of_unknown_memory_refuses_nothing() -> None:
    assert weights_refusal(MemoryNeed(10**15, cache=1), fleets.nic()) == ""
    assert cache_shortage(MemoryNeed(10**15, cache=1), fleets.nic()) == ""


def test_cache_shortage_has_the_numbers() -> None:
    found = MemoryNeed(30 * GIB, cache=3 * GIB, tokens=32768)
    assert cache_shortage(found, fleets.gpu("32Gi")) == (
        "the KV cache of a request of 32,768 tokens takes 3.00 GiB of each device, and weights leave 2.00 GiB: they "
        "take 30.00 GiB of each device, and it has 32.00 GiB"
    )
    assert cache_shortage(found, fleets.gpu("33Gi")) == ""


def with_memory(memory: MemoryNeed | None) -> Engine:
    found = fleets.standalone()
    member = found.members[0]
    requests = tuple(replace(request, memory=memory) for request in member.requests)
    return replace(found, members=(replace(member, requests=requests),))


def decide(memory: MemoryNeed | None, replicas: list[Any], *devices: Device) -> tuple[Schedule, list[Cluster]]:
    clusters = [fleets.cluster("west", fleets.pool("gpu", 1, *devices))]
    return schedule([fleets.deployment("d", 1, with_memory(memory))], clusters, replicas), clusters


def test_new_replicas_go_where_the_weights_fit() -> None:
    small, large = fleets.gpu("24Gi", name="small"), fleets.gpu("80Gi", name="large", device_class="large")
    decided, __ = decide(MemoryNeed(30 * GIB), [], small, large)
    assert decided.placements[0].engines[0].members[0].device_requests[0]["deviceClassName"] == "large"


def test_a_claim_that_may_get_a_small_device_is_refused() -> None:
    small, large = fleets.gpu("24Gi", name="small"), fleets.gpu("80Gi", name="large")
    decided, __ = decide(MemoryNeed(30 * GIB), [], small, large)
    assert decided.placements == ()
    assert decided.pending[0].refusals[0].reason == (
        "no device for request gpu: device large: a claim may get another device of DeviceClass gpu.nvidia.com, whose "
        "memory the weights do not fit. Exclude that by a selector"
    )


def test_a_replica_that_runs_stays_with_a_warning() -> None:
    before, __ = decide(None, [], fleets.gpu("24Gi"))
    running = fleets.replicas_of(before)
    need = MemoryNeed(30 * GIB)
    decided, clusters = decide(need, running, fleets.gpu("24Gi"))
    assert [placement.state for placement in decided.placements] == ["kept"]
    found = memory_shortages([fleets.deployment("d", 1, with_memory(need))], clusters, decided.placements)
    assert [(refusal.pool, refusal.clusters) for refusal in found] == [("gpu", ("west",))]
    assert "weights take 30.00 GiB" in found[0].reason
    assert memory_shortages([fleets.deployment("d", 1, with_memory(None))], clusters, decided.placements) == ()


@pytest.mark.parametrize(
    ("limited_to", "devices", "warns"), [("small", ["small"], True), ("", ["small", "large"], False)]
)
def test_a_warning_and_the_report_are_about_the_devices_that_a_claim_may_get(
    limited_to: str, devices: list[str], warns: bool
) -> None:
    kinds = fleets.gpu("24Gi", name="small"), fleets.gpu("80Gi", name="large")
    decided, clusters = decide(None, [], *kinds)
    (placement,) = decided.placements
    (engine,) = placement.engines
    (member,) = engine.members
    requests = tuple({**request, "device": limited_to} for request in member.device_requests)
    placed = replace(placement, engines=(replace(engine, members=(replace(member, device_requests=requests),)),))
    deployments = [fleets.deployment("d", 1, with_memory(MemoryNeed(30 * GIB)))]
    assert sorted(each.device for each in memory_fits(deployments, clusters, [placed])) == sorted(devices)
    assert bool(memory_shortages(deployments, clusters, [placed])) is warns
