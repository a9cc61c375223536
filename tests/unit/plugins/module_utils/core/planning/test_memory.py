# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Tests of plans of models whose size is given, from their manifests."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning import Plan, plan
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.memory import gib, memory_fits
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.planning import asked_fleet

SHAPE = {"layers": 36, "kvHeads": 8, "headDim": 128}


def planned(model: dict[str, Any] | None, *args: str, image: str = "vllm/vllm-openai:v0.23.0") -> Plan:
    """Return the plan of one replica for a cluster of devices with 23034 MiB."""
    container = {"name": "engine", "image": image, "args": ["--model=m", *args]}
    member = {
        "nodeSelector": {"devices": [{"name": "gpu", "selectors": [{"cel": asked_fleet.ANY}]}]},
        "template": {"spec": {"containers": [container]}},
    }
    body: dict[str, Any] = {"engines": [{"name": "main", "members": [member]}]}
    if model:
        body["model"] = model
    desired = asked_fleet.resource("ModelDeployment", "qwen3", {"template": {"spec": body}}, namespace="ml-team")
    resources: list[api.Resource] = [asked_fleet.CLASS, asked_fleet.cluster("west", gpu=1), desired]
    return plan(resources)


def test_weights_that_fit_nowhere_are_pending_with_the_numbers() -> None:
    found = planned({"parameters": "14.8B", "dtype": "bfloat16"})
    assert found.schedule.placements == ()
    assert [str(refusal) for refusal in found.schedule.pending[0].refusals] == [
        "pool gpu on west: no device for request gpu: device gpu: weights take 27.57 GiB of each device, and it has "
        "22.49 GiB of which the engine uses 92%"
    ]


def test_a_cache_without_room_is_a_warning_with_the_numbers() -> None:
    found = planned({"parameters": "8.19B", "dtype": "bfloat16", **SHAPE}, "--max-model-len=40960")
    assert len(found.schedule.placements) == 1
    assert found.warnings == (
        "pool gpu on west: engine main of ModelDeployment ml-team/qwen3: device gpu: the KV cache of a request of "
        "40,960 tokens takes 5.62 GiB of each device, and weights leave 5.44 GiB: they take 15.26 GiB of each device, "
        "and it has 22.49 GiB of which the engine uses 92%",
    )


def test_the_page_has_what_a_model_takes_of_its_device() -> None:
    found = planned({"parameters": "8.19B", "dtype": "bfloat16", **SHAPE}, "--max-model-len=40960")
    (fit,) = memory_fits(found.deployments, found.clusters, found.schedule.placements)
    assert (fit.deployment, fit.engine, fit.pool, fit.device, fit.clusters) == (
        "qwen3",
        "main",
        "gpu",
        "gpu",
        ("west",),
    )
    assert [gib(size) for size in (fit.weights, fit.cache, fit.usable)] == ["15.26 GiB", "5.62 GiB", "20.69 GiB"]
    assert fit.tokens == 40960
    unknown = planned(None)
    assert memory_fits(unknown.deployments, unknown.clusters, unknown.schedule.placements) == ()


@pytest.mark.parametrize(
    ("model", "args", "image"),
    [
        (None, (), "vllm/vllm-openai:v0.23.0"),
        ({"parameters": "8.19B", "dtype": "bfloat16", **SHAPE}, ("--max-model-len=32768",), "vllm/vllm-openai:v0.23.0"),
        ({"parameters": "8.19B", "dtype": "bfloat16"}, ("--max-model-len=1000000",), "vllm/vllm-openai:v0.23.0"),
        ({"parameters": "70B", "dtype": "bfloat16"}, ("--cpu-offload-gb=200",), "vllm/vllm-openai:v0.23.0"),
        ({"parameters": "70B", "dtype": "bfloat16"}, (), "example.org/server:1"),
    ],
)
def test_what_fits_or_is_not_known_is_placed_without_a_warning(
    model: dict[str, Any] | None, args: tuple[str, ...], image: str
) -> None:
    found = planned(model, *args, image=image)
    assert (len(found.schedule.placements), found.warnings) == (1, ())


def test_the_model_is_no_part_of_a_replica() -> None:
    model = {"parameters": "8.19B", "dtype": "bfloat16"}
    assert planned(model).replicas == planned(None).replicas
