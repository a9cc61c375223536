# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Tests of plans with images that name the architecture or the CUDA version that they are for."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning import Plan, plan
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.image_needs import image_need
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.planning import asked_fleet

EKS = "instanceType"
GKE = "machineType"


def planned(image: str, field: str, machine: str, pool: dict[str, Any] | None = None, **attributes: Any) -> Plan:
    """Return the plan of one replica with an image, for a cluster in a cloud with one pool of a machine."""
    cloud = "EKS" if field == EKS else "GKE"
    device = {
        "name": "gpu",
        "driver": "gpu.nvidia.com",
        "deviceClassName": "gpu.nvidia.com",
        "count": 1,
        "attributes": {"productName": {"string": "GPU"}, **attributes},
    }
    block = {field: machine, "accelerator": {"type": "nvidia", "count": 1}}
    provisioning = {"provider": cloud, cloud.lower(): block}
    kind = asked_fleet.resource("InferenceClass", "gpu", {"provisioning": provisioning, "devices": [device]})
    region, zone = ("us-west-2", "us-west-2a") if cloud == "EKS" else ("us-central1", "us-central1-a")
    place = {"source": cloud, cloud.lower(): {"region": region}}
    pools = [{"name": "gpu", "className": "gpu", "nodeCount": 1, "zones": [zone], **(pool or {})}]
    cluster = asked_fleet.resource("InferenceCluster", "west", {"cluster": place, "nodePools": pools})
    container = {"name": "engine", "image": image, "args": ["--model=m"]}
    member = {
        "nodeSelector": {"devices": [{"name": "gpu", "selectors": [{"cel": asked_fleet.ANY}]}]},
        "template": {"spec": {"containers": [container]}},
    }
    body: dict[str, Any] = {"engines": [{"name": "main", "members": [member]}]}
    desired = asked_fleet.resource("ModelDeployment", "qwen3", {"template": {"spec": body}}, namespace="ml-team")
    resources: list[api.Resource] = [kind, cluster, desired]
    return plan(resources)


@pytest.mark.parametrize(
    ("image", "architecture"),
    [
        ("vllm/vllm-openai:v0.23.0-x86_64", "amd64"),
        ("vllm/vllm-openai:v0.23.0-aarch64", "arm64"),
        ("lmsysorg/sglang:v0.5.6-cu129-amd64", "amd64"),
        ("lmsysorg/sglang:v0.5.6-cu130-arm64", "arm64"),
        ("lmsysorg/sglang:v0.4.10.post2-cu128-gb200", "arm64"),
        ("docker.io/arm64v8/python:3.13", "arm64"),
        ("rocm/vllm:rocm7.0.0_vllm_0.10", "amd64"),
        ("vllm/vllm-openai:v0.23.0", ""),
        ("registry.example.org/charm64/engine:1", ""),
        ("example.org/engine:amd64-arm64", ""),
        ("example.org/engine@sha256:" + "0" * 64, ""),
        ("NOT AN IMAGE", ""),
    ],
)
def test_architectures_that_images_name(image: str, architecture: str) -> None:
    assert image_need(image).architecture == architecture


@pytest.mark.parametrize(
    ("image", "cuda"),
    [
        ("vllm/vllm-openai:v0.23.0-cu130", 13),
        ("lmsysorg/sglang:v0.5.6-cu129", 12),
        ("ghcr.io/ggml-org/llama.cpp:server-cuda13", 13),
        ("example.org/engine:cuda-13.0.1-py3", 13),
        ("nvidia/cuda:13.0.1-devel-ubuntu24.04", 13),
        ("nvidia/cuda:12.8.1-base-ubuntu24.04", 12),
        ("vllm/vllm-openai:v13.0.1", 0),
        ("example.org/cute13:1", 0),
    ],
)
def test_versions_of_cuda_that_images_name(image: str, cuda: int) -> None:
    assert image_need(image).cuda == cuda


@pytest.mark.parametrize(
    ("image", "field", "machine", "nodes"),
    [
        ("vllm/vllm-openai:v0.23.0-x86_64", EKS, "g5g.xlarge", "arm64"),
        ("lmsysorg/sglang:v0.5.6-cu129-amd64", EKS, "p6e-gb200.36xlarge", "arm64"),
        ("lmsysorg/sglang:v0.5.6-cu129-amd64", GKE, "a4x-highgpu-4g", "arm64"),
        ("vllm/vllm-openai:v0.23.0-aarch64", EKS, "g6.12xlarge", "amd64"),
        ("lmsysorg/sglang:v0.4.10.post2-cu128-gb200", GKE, "a4-highgpu-8g", "amd64"),
    ],
)
def test_an_image_for_another_architecture_is_not_placed(image: str, field: str, machine: str, nodes: str) -> None:
    found = planned(image, field, machine)
    assert found.schedule.placements == ()
    (refusal,) = found.schedule.pending[0].refusals
    image_is_for = "arm64" if nodes == "amd64" else "amd64"
    assert refusal.reason == (
        f"no device for request gpu: device gpu: the image is for {image_is_for}, and its nodes are {nodes}"
    )


@pytest.mark.parametrize(
    ("image", "field", "machine"),
    [
        ("vllm/vllm-openai:v0.23.0", EKS, "g5g.xlarge"),
        ("vllm/vllm-openai:v0.23.0-aarch64", EKS, "g5g.xlarge"),
        ("vllm/vllm-openai:v0.23.0-x86_64", GKE, "g2-standard-4"),
        ("example.org/engine@sha256:" + "0" * 64, GKE, "a4x-highgpu-4g"),
    ],
)
def test_an_image_that_may_run_is_placed(image: str, field: str, machine: str) -> None:
    assert len(planned(image, field, machine).schedule.placements) == 1


OLD = "the image has CUDA 13, which needs driver 580 or newer, and GKE's default one may be older"


@pytest.mark.parametrize(
    ("image", "pool", "warned"),
    [
        ("vllm/vllm-openai:v0.23.0-cu130", {}, True),
        ("nvidia/cuda:13.0.1-devel-ubuntu24.04", {"gke": {"spot": True}}, True),
        ("lmsysorg/sglang:v0.5.6-cu130", {"gke": {"gpuDriverVersion": "DEFAULT"}}, True),
        ("vllm/vllm-openai:v0.23.0-cu130", {"gke": {"gpuDriverVersion": "LATEST"}}, False),
        ("vllm/vllm-openai:v0.23.0-cu130", {"gke": {"gpuDriverVersion": "INSTALLATION_DISABLED"}}, False),
        ("vllm/vllm-openai:v0.23.0-cu129", {}, False),
        ("vllm/vllm-openai:v0.23.0", {}, False),
    ],
)
def test_cuda_13_on_the_default_driver_of_gke_is_a_warning(image: str, pool: dict[str, Any], warned: bool) -> None:
    found = planned(image, GKE, "g2-standard-4", pool)
    assert len(found.schedule.placements) == 1
    assert any(OLD in line for line in found.warnings) is warned
    if warned:
        assert found.warnings[0].startswith(
            "pool gpu on west: engine main of ModelDeployment ml-team/qwen3: the image has"
        )


@pytest.mark.parametrize(("version", "warned"), [("12.8.0", True), ("13.0.0", False)])
@pytest.mark.parametrize(("field", "machine"), [(EKS, "g6.12xlarge"), (GKE, "g2-standard-4")])
def test_the_cuda_version_that_devices_publish_counts(field: str, machine: str, version: str, warned: bool) -> None:
    found = planned("vllm/vllm-openai:v0.23.0-cu130", field, machine, cudaDriverVersion={"version": version})
    message = f"the image has CUDA 13, and the driver of its nodes supports CUDA {version} at most"
    assert any(message in line for line in found.warnings) is warned
    assert not any(OLD in line for line in found.warnings)
