# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Tests of what engines claim, beside what they start and what pools have."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.load import Source, load
from ansible_collections.modelplane.fleet.plugins.module_utils.core.problem import Problem
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.little_fleet import (
    CLASS,
    CLUSTER,
    DEPLOYMENT,
    change,
    fleet,
    only,
)

CONTAINER = "spec.template.spec.engines[0].members[0].template.spec.containers[0]"
POOL = "spec.nodePools[0]"

EIGHT = change(
    change(CLASS, "gpu.nvidia.com, capacity", "gpu.nvidia.com, count: 8, capacity"), "count: 1}}", "count: 8}}"
)
EFA_CLASS = EIGHT + "  - {name: efa, driver: dra.net, deviceClassName: efa.networking.k8s.aws, count: 16}\n"
SERVE = "command: [vllm, serve, m], args: "


def claiming(devices: str, container: str, *, more: str = "") -> str:
    """The deployment with these device requests in place of its one GPU, and this container."""
    written = """\
            - name: gpu
              selectors:
              - cel: device.driver == "gpu.nvidia.com"
"""
    return change(change(DEPLOYMENT, written, devices + more), "image: nvcr.io/nim/qwen}", container + "}")


def request(name: str, cel: str, count: int = 1) -> str:
    return f"            - {{name: {name}, count: {count}, selectors: [{{cel: '{cel}'}}]}}\n"


def gpus(count: int) -> str:
    return request("gpu", 'device.driver == "gpu.nvidia.com"', count)


def cards(count: int) -> str:
    return request("nic", 'device.driver == "dra.net"', count)


def pods(devices: str, container: str, followers: int) -> str:
    """A gang, all pods of which claim and start the same."""
    single = change(claiming(devices, container), "role: Standalone", "role: Leader")
    member = single[single.index("        - role: Leader") :]
    return single + change(member, "role: Leader", f"role: Worker\n          worker: {{nodes: {followers}}}")


def of_devices(texts: dict[str, str]) -> list[Problem]:
    """Return the problems of a fleet without those of launching servers, which test_validation_serving.py has."""
    others = ("starts a separate", "listen on", "is not read")
    return [each for each in fleet(**texts).problems if not any(other in each.message for other in others)]


UNKNOWN = 'device.driver.startsWith("gpu")'
EITHER = 'device.driver == "gpu.nvidia.com" || device.driver == "dra.net"'
SELECTED = "spec.template.spec.engines[0].members[0].nodeSelector"


@pytest.mark.parametrize(
    ("written", "path", "says", "hint"),
    [
        (
            claiming(gpus(1), f"image: x, {SERVE}[--tensor-parallel-size=4]"),
            f"{CONTAINER}.args",
            "uses 4 GPUs, but the pod that claims GPUs has 1 (engine main)",
            "Set --tensor-parallel-size=1 or count: 4 in its devices",
        ),
        (
            claiming(gpus(4), f"image: x, {SERVE}[--port=8000]"),
            f"{CONTAINER}.args",
            "uses 1 GPU, as no flag sets its parallelism, but the pod that claims GPUs has 4",
            "Set --tensor-parallel-size=4 or count: 1",
        ),
        (
            claiming(gpus(8), f"image: x, {SERVE}[-tp, '4', -pp, '4']"),
            f"{CONTAINER}.args",
            "uses 16 GPUs, but the pod that claims GPUs has 8",
            "Set --tensor-parallel-size=2 or count: 16",
        ),
        (
            pods(gpus(8), "image: x, command: [sglang, serve, --tp, '8']", 1),
            f"{CONTAINER}.command",
            "uses 8 GPUs, but the 2 pods that claim GPUs have 16",
            "Set --tensor-parallel-size=16 or count: 4",
        ),
        (
            claiming(request("gpu", UNKNOWN, 4), f"image: x, {SERVE}[-tp=8]"),
            f"{CONTAINER}.args",
            "uses 8 GPUs, but the pod that claims devices has 4 (engine main)",
            "Set --tensor-parallel-size=4 or count: 8 in its devices",
        ),
        (
            claiming(request("gpu", EITHER), "image: x, command: [sglang, serve, --tp-size, '2']"),
            f"{CONTAINER}.command",
            "uses 2 GPUs, but the pod that claims devices has 1",
            "Set --tensor-parallel-size=1 or count: 2",
        ),
        (
            pods(request("any", UNKNOWN, 2) + gpus(4), "image: x, command: [sglang, serve, --tp, '16']", 1),
            f"{CONTAINER}.command",
            "uses 16 GPUs, but the 2 pods that claim devices have 12",
            "Set --tensor-parallel-size=12 or count: 8",
        ),
        (
            claiming(gpus(4) + cards(8), f"image: x, {SERVE}[-tp=4]"),
            SELECTED,
            "claims 4 of 8 GPUs of a node and 8 of 16 network cards",
            "Request each GPU and its cards separately",
        ),
        (
            claiming(gpus(1) + cards(1), "image: x"),
            SELECTED,
            "claims 1 of 8 GPUs of a node and 1 of 16 network cards",
            "Add constraints: [{requests: [gpu, nic], matchAttribute: resource.kubernetes.io/pcieRoot}]",
        ),
        (
            pods(gpus(8) + cards(16), "image: 'docker.io/vllm/vllm-openai:v0.23.0'", 1),
            f"{CONTAINER}.image",
            "has no libraries for EFA (libfabric, aws-ofi-nccl)",
            "Use an image that has them",
        ),
    ],
    ids=[
        "tensor",
        "no flag",
        "tensor and pipeline",
        "gang",
        "fewer devices of an unknown kind",
        "fewer devices of two kinds",
        "a gang with fewer devices of an unknown kind",
        "part of a node",
        "one pair",
        "image",
    ],
)
def test_what_is_claimed_does_not_fit(written: str, path: str, says: str, hint: str) -> None:
    found = of_devices({"class": EFA_CLASS, "deployment": written})
    first = found[0]
    assert {problem.severity for problem in found} == {"warning"}, [str(problem) for problem in found]
    assert (first.path, len({problem.message for problem in found})) == (path, 1), [str(problem) for problem in found]
    assert says in first.message
    assert hint in first.hint
    assert first.line is not None


PAIRED = "            constraints: [{requests: [gpu, nic], matchAttribute: resource.kubernetes.io/pcieRoot}]\n"


@pytest.mark.parametrize(
    "written",
    [
        claiming(gpus(4), f"image: x, {SERVE}[--tensor-parallel-size=4]"),
        claiming(gpus(4), "image: x, command: [own], args: [--tensor-parallel-size=8]"),
        claiming(gpus(4), f"image: x, {SERVE}['--tensor-parallel-size=$(TP)']"),
        claiming(gpus(1), f"image: x, {SERVE}[--port=8000]"),
        claiming(request("gpu", UNKNOWN, 4), f"image: x, {SERVE}[--port=8000]"),
        claiming(request("gpu", UNKNOWN, 8), f"image: x, {SERVE}[-tp=4]"),
        claiming(request("gpu", EITHER, 4) + cards(4), f"image: x, {SERVE}[-tp=4]"),
        pods(gpus(8), f"image: x, {SERVE}[-tp=8, -pp=3]", 2),
        claiming(gpus(8) + cards(16), "image: x"),
        claiming(gpus(8) + cards(8), "image: x"),
        claiming(gpus(1) + cards(1), "image: x", more=PAIRED),
        claiming(gpus(8) + cards(16), "image: 'vllm/vllm-openai:v0.23.0'"),
        pods(gpus(8) + cards(16), "image: 'registry.example.com/vllm-efa:v0.23.0'", 1),
        pods(gpus(8), "image: 'vllm/vllm-openai:v0.23.0'", 1),
        pods(
            gpus(8) + cards(16),
            "image: 'vllm/vllm-openai:v0.23.0', command: [sh, -c, 'efa_installer.sh && vllm serve -tp=16']",
            1,
        ),
    ],
    ids=[
        "the same number",
        "unknown program",
        "expanded value",
        "one GPU without a flag",
        "unknown request without a flag",
        "unknown request",
        "one of two",
        "gang",
        "whole node",
        "all GPUs",
        "constraint",
        "one pod",
        "image with libraries",
        "no fabric",
        "installed at the start",
    ],
)
def test_nothing_is_said_where_nothing_is_sure(written: str) -> None:
    found = of_devices({"class": EFA_CLASS, "deployment": written})
    assert not found, [str(problem) for problem in found]


@pytest.mark.parametrize("driver", ["tpu.google.com", "example.com"])
def test_devices_of_other_kinds_may_be_several_processors(driver: str) -> None:
    other = f"{EIGHT}  - {{name: slice, driver: {driver}, deviceClassName: slice}}\n"
    written = claiming(request("any", UNKNOWN), f"image: x, {SERVE}[-tp=4]")
    assert fleet(deployment=written).problems
    assert not fleet(**{"class": other, "deployment": written}).problems


def replica(device_requests: str, args: str) -> str:
    return f"""\
apiVersion: modelplane.ai/v1alpha1
kind: ModelReplica
metadata: {{name: own, namespace: team}}
spec:
  clusterName: west
  engines:
  - name: main
    members:
    - nodePoolName: gpu
      deviceRequests: {device_requests}
      template: {{spec: {{containers: [{{name: engine, image: x, command: [vllm, serve, m], args: {args}}}]}}}}
"""


@pytest.mark.parametrize(("count", "expected"), [(1, 1), (2, 0), (4, 0)])
def test_a_request_of_a_replica_needs_no_selectors(count: int, expected: int) -> None:
    requests = f"[{{name: gpu, deviceClassName: gpu.nvidia.com, count: {count}}}]"
    problems = fleet(**{"class": EIGHT, "replica": replica(requests, "[-tp=2]")}).problems
    assert len(problems) == expected, [str(problem) for problem in problems]
    assert all("uses 2 GPUs, but the pod that claims devices has 1" in problem.message for problem in problems)


def test_a_pretended_gpu_is_not_counted() -> None:
    pretended = EIGHT + "  - {name: model, driver: gpu.nvidia.com, claim: Synthetic}\n"
    written = claiming(gpus(1), f"image: x, {SERVE}[-tp=4]")
    assert not fleet(**{"class": pretended, "deployment": written}).problems


ROOT = Path(__file__).parents[5]
FOLDERS = [
    folder.relative_to(ROOT).as_posix()
    for folder in (
        *(ROOT / "docs/examples").glob("*/manifests"),
        *(ROOT / "tests/data/manifests/getting-started").glob("*/"),
        ROOT / "inventories/quickstart/manifests",
        ROOT / "tests/data/formats",
        ROOT / "tests/data/manifests/concepts",
        ROOT / "tests/data/manifests/e2e",
    )
]
SIZE = re.compile(r"(--tensor-parallel-size=|--tp-size=|\btensor: )(\d+)")


def of_parallelism(texts: list[str]) -> list[Problem]:
    """The problems of the numbers of GPUs that manifests use."""
    problems = load([Source(f"{number}.yaml", text.encode()) for number, text in enumerate(texts)]).problems
    return [problem for problem in problems if re.match(r"uses \d+ GPU", problem.message)]


@pytest.mark.parametrize("folder", sorted(FOLDERS))
def test_no_manifest_that_fits_has_a_warning_and_each_that_does_not_has_one(folder: str) -> None:
    texts = [file.read_text() for file in sorted((ROOT / folder).glob("*.yaml"))]
    assert texts
    assert of_parallelism(texts) == []
    # Both numbers of a topology are derived from it, so they cannot differ.
    flags = [re.sub(r"(?m)^.*\btensor: .*$", "", text) for text in texts]
    doubled = [SIZE.sub(lambda found: f"{found[1]}{2 * int(found[2])}", text) for text in texts]
    assert bool(of_parallelism(doubled)) == any(SIZE.search(text) for text in flags)


POOLS = """\
  - name: gpu
    className: l4
    zones: [us-west1-a, us-west1-b]
    fabric: {type: InfiniBand, name: rail}
"""
SECOND = change(change(POOLS, "name: gpu", "name: more"), "[us-west1-a, us-west1-b]", "[us-west1-b]")


def pools(*written: str) -> str:
    return CLUSTER[: CLUSTER.index("  - name: gpu")] + "".join(written)


def test_a_fabric_does_not_leave_its_zone() -> None:
    problem = only(fleet(cluster=pools(POOLS)).problems)
    assert (problem.severity, problem.path, problem.line) == ("warning", f"{POOL}.zones", 9)
    assert "a fabric (InfiniBand) cannot span zones" in problem.message
    assert "zones: [us-west1-a]" in problem.hint
    one = change(POOLS, "[us-west1-a, us-west1-b]", "[us-west1-a]")
    problem = only(fleet(cluster=pools(one, SECOND)).problems)
    assert (problem.severity, problem.path) == ("warning", "spec.nodePools[1].fabric")
    assert "is also the fabric of pool gpu, which is in us-west1-a" in problem.message
    assert not fleet(cluster=pools(one, change(SECOND, "name: rail", "name: other"))).problems
    assert not fleet(cluster=pools(one, change(SECOND, "[us-west1-b]", "[us-west1-a]"))).problems
    assert not fleet(cluster=pools(change(POOLS, "    fabric: {type: InfiniBand, name: rail}\n", ""))).problems
