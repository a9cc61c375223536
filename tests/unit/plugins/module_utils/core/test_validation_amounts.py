# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Warnings about amounts that are valid and absurd, and about misspelt names of what devices have."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.load import Source, load
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.little_fleet import (
    CLASS,
    DEPLOYMENT,
    change,
    fleet,
    only,
)

DEVICE = "spec.devices[0]"
SELECTOR = "spec.template.spec.engines[0].members[0].nodeSelector.devices[0].selectors[0].cel"
RESOURCES = "spec.template.spec.engines[0].members[0].template.spec.containers[0].resources"
ROOT = Path(__file__).parents[5]


def with_capacity(capacity: str, driver: str = "gpu.nvidia.com") -> str:
    text = change(CLASS, "{memory: {value: 23034Mi}}", capacity)
    return text.replace("driver: gpu.nvidia.com", f"driver: {driver}")


def selecting(cel: str) -> str:
    return change(DEPLOYMENT, 'cel: device.driver == "gpu.nvidia.com"', f"cel: '{cel}'")


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        ('"80"', "Did you mean 80Gi?"),
        ("81559m", "Did you mean 81559Mi?"),
        ("80M", "Write the value that the driver reports, such as 81559Mi"),
        ("512Mi", "Write the value that the driver reports, such as 81559Mi"),
    ],
)
def test_no_gpu_has_less_than_a_gibibyte(value: str, hint: str) -> None:
    problem = only(fleet(**{"class": with_capacity(f"{{memory: {{value: {value}}}}}")}).problems)
    assert (problem.severity, problem.path, problem.hint) == ("warning", f'{DEVICE}.capacity["memory"].value', hint)
    assert problem.message == "is less than 1 GiB of memory, and every GPU has more"


@pytest.mark.parametrize("value", ["80Gi", "81559Mi", "80G", '"85520809984"'])
def test_memory_of_a_gpu_needs_no_warning(value: str) -> None:
    assert not fleet(**{"class": with_capacity(f"{{memory: {{value: {value}}}}}")}).problems


@pytest.mark.parametrize(
    ("name", "value", "hint"),
    [
        ("memory", "80GB", "Write 80G or 80Gi"),
        ("gpu.nvidia.com/memory", "80 gb", "Write 80G or 80Gi"),
        ("memory", "80gib", "Write 80Gi"),
        ("multiprocessors", "132 K", "Write 132k"),
        ("memory", "a lot", "Write a number and a unit, such as 81559Mi"),
        ("memory", "80Gig", "Write a number and a unit, such as 81559Mi"),
    ],
)
def test_an_invalid_quantity_is_reported_at_its_field(name: str, value: str, hint: str) -> None:
    problem = only(fleet(**{"class": with_capacity(f"{{{name}: {{value: {value}}}}}")}).problems)
    assert (problem.severity, problem.path) == ("error", f'{DEVICE}.capacity["{name}"].value')
    assert (problem.message, problem.hint) == ("is not a quantity of Kubernetes", hint)


@pytest.mark.parametrize(
    ("version", "hint"),
    [
        ('"8.9"', "Write 8.9.0"),
        ("v8.9.0", "Write major.minor.patch without leading zeros, such as 9.0.0"),
        ("08.9.0", "Write major.minor.patch without leading zeros, such as 9.0.0"),
    ],
)
def test_an_invalid_version_is_reported_at_its_field(version: str, hint: str) -> None:
    capability = f"capacity: {{memory: {{value: 80Gi}}}}, attributes: {{cudaComputeCapability: {{version: {version}}}}}"
    text = change(CLASS, "capacity: {memory: {value: 23034Mi}}", capability)
    problem = only(fleet(**{"class": text}).problems)
    assert (problem.severity, problem.path) == ("error", f'{DEVICE}.attributes["cudaComputeCapability"].version')
    assert (problem.message, problem.hint) == ("is not a semantic version", hint)


def test_a_name_that_is_given_twice_is_an_error_of_its_device() -> None:
    twice = "{memory: {value: 80Gi}, gpu.nvidia.com/memory: {value: 80Gi}}"
    problem = only(fleet(**{"class": with_capacity(twice)}).problems)
    assert (problem.path, problem.message) == (
        DEVICE,
        "is not a valid device of Kubernetes: capacity gpu.nvidia.com/memory is given twice",
    )


def test_other_devices_may_have_less_memory() -> None:
    card = CLASS + "  - {name: nic, driver: dra.net, deviceClassName: nic, capacity: {memory: {value: 8Mi}}}\n"
    assert not fleet(**{"class": card}).problems


@pytest.mark.parametrize(
    ("written", "near"),
    [
        ("capacity: {memroy: {value: 23034Mi}}", "memory"),
        ("capacity: {Memory: {value: 23034Mi}}", "memory"),
        ("capacity: {gpu.nvidia.com/memoy: {value: 23034Mi}}", "memory"),
        ("attributes: {archtecture: {string: Ada}}", "architecture"),
        ("attributes: {cudaComputeCapabilty: {version: 8.9.0}}", "cudaComputeCapability"),
    ],
)
def test_a_misspelt_name_has_a_warning(written: str, near: str) -> None:
    text = change(CLASS, "capacity: {memory: {value: 23034Mi}}", written)
    problem = only(fleet(**{"class": text}).problems)
    assert (problem.severity, problem.hint) == ("warning", f"Did you mean {near}?")
    assert problem.path.startswith(f"{DEVICE}.")


@pytest.mark.parametrize(
    "written",
    [
        "capacity: {memoryBandwidth: {value: 2Ti}}",
        "capacity: {memory: {value: 23034Mi}, memory2: {value: 2Ti}}",
        "attributes: {cudaVersion: {version: 13.0.0}, rocmDriverVersion: {version: 7.0.0}, tier: {string: gold}}",
    ],
)
def test_a_name_of_your_own_has_none(written: str) -> None:
    assert not fleet(**{"class": change(CLASS, "capacity: {memory: {value: 23034Mi}}", written)}).problems


MEMORY = 'device.capacity["gpu.nvidia.com"].memory'
ENOUGH = f'{MEMORY}.compareTo(quantity("20Gi")) >= 0'


def test_a_selector_names_a_capacity_that_no_class_has() -> None:
    misspelt = with_capacity("{vram: {value: 23034Mi}}")
    problem = only(fleet(**{"class": misspelt, "deployment": selecting(ENOUGH)}).problems)
    assert (problem.severity, problem.path) == ("warning", SELECTOR)
    assert problem.message == "names a capacity that no InferenceClass has"
    assert problem.hint == "InferenceClasses have vram in domain gpu.nvidia.com"
    attribute = selecting('device.driver == "gpu.nvidia.com" && device.attributes["gpu.nvidia.com"].brand == "L4"')
    problem = only(fleet(deployment=attribute).problems)
    assert problem.message == "names an attribute that no InferenceClass has"
    assert problem.hint == "InferenceClasses have none in domain gpu.nvidia.com"


@pytest.mark.parametrize(
    "cel",
    [
        ENOUGH,
        'has(device.attributes["gpu.nvidia.com"].brand)',
        f'device.attributes["gpu.nvidia.com"].brand == "L4" || {ENOUGH}',
        'device.attributes["gpu.nvidia.com"].?brand.orValue("L4") == "L4"',
    ],
)
def test_a_value_that_may_be_absent_needs_no_class(cel: str) -> None:
    problems = fleet(deployment=selecting(cel)).problems
    assert not [problem for problem in problems if "no InferenceClass has" in problem.message], problems


@pytest.mark.parametrize(("amount", "hint"), [("80", "Did you mean 80Gi?"), ("81559m", "Did you mean 81559Mi?")])
def test_a_selector_compares_memory_with_its_unit(amount: str, hint: str) -> None:
    cel = f'{MEMORY}.compareTo(quantity("{amount}")) >= 0'
    problem = only(fleet(deployment=selecting(cel)).problems)
    assert (problem.severity, problem.path, problem.hint) == ("warning", SELECTOR, hint)
    assert problem.message == "compares the memory of a device with less than 1 GiB"


def test_a_quantity_in_a_selector_gets_no_thousandths() -> None:
    problem = only(fleet(deployment=selecting(f'{MEMORY}.compareTo(quantity("80 m")) >= 0')).problems)
    assert "80m" not in str(problem)


@pytest.mark.parametrize("part", ["requests", "limits"])
@pytest.mark.parametrize(("resource", "amount"), [("memory", "80"), ("memory", "512m"), ("ephemeral-storage", "100")])
def test_memory_of_a_container_below_a_mebibyte(part: str, resource: str, amount: str) -> None:
    image = f"image: vllm, resources: {{{part}: {{{resource}: {amount}}}}}}}"
    problem = only(fleet(deployment=change(DEPLOYMENT, "image: nvcr.io/nim/qwen}", image)).problems)
    number = amount.removesuffix("m")
    assert (problem.severity, problem.path) == ("warning", f"{RESOURCES}.{part}.{resource}")
    assert problem.hint == f"Add the unit, such as {number}Mi or {number}Gi"


@pytest.mark.parametrize("part", ["requests", "limits"])
@pytest.mark.parametrize(
    ("amount", "cores", "hint"),
    [
        ("16Gi", "17,179,869,184", "Write a number of cores, such as 4 or 500m"),
        ("80G", "80,000,000,000", "Write a number of cores, such as 4 or 500m"),
        ("2k", "2,000", "Write a number of cores, such as 4 or 500m"),
        ("9e999", "more than 10^18", "Write a number of cores, such as 4 or 500m"),
        ("500M", "500,000,000", "Did you mean 500m?"),
        ("1500", "1,500", "Did you mean 1500m?"),
    ],
)
def test_a_cpu_of_more_cores_than_a_gpu_node_has(part: str, amount: str, cores: str, hint: str) -> None:
    image = f"image: vllm, resources: {{{part}: {{cpu: '{amount}'}}}}}}"
    problem = only(fleet(deployment=change(DEPLOYMENT, "image: nvcr.io/nim/qwen}", image)).problems)
    assert (problem.severity, problem.path) == ("warning", f"{RESOURCES}.{part}.cpu")
    assert problem.message == f"is {cores} cores, and GPU nodes have fewer than 1,000"
    assert problem.hint == hint


@pytest.mark.parametrize("amount", ["1000", "500m", "1000000m"])
def test_a_cpu_of_a_node(amount: str) -> None:
    image = f"image: vllm, resources: {{requests: {{cpu: {amount}}}}}}}"
    assert not fleet(deployment=change(DEPLOYMENT, "image: nvcr.io/nim/qwen}", image)).problems


def test_a_cpu_and_no_memory_need_no_unit() -> None:
    image = "image: vllm, resources: {requests: {cpu: 8, memory: 0}, limits: {memory: 64Gi}}}"
    assert not fleet(deployment=change(DEPLOYMENT, "image: nvcr.io/nim/qwen}", image)).problems


FOLDERS = [
    *(ROOT / "docs/examples").glob("*/manifests"),
    *(ROOT / "tests/data/manifests/getting-started").glob("*/"),
    ROOT / "playbooks/files/classes/gke",
    ROOT / "playbooks/files/classes/eks",
    ROOT / "inventories/quickstart/manifests",
    ROOT / "tests/data/manifests/concepts",
    ROOT / "tests/data/manifests/e2e",
]
NEW = (
    *("is less than", "and GPU nodes have fewer", "is not a name that the drivers", "that no InferenceClass has"),
    "compares the memory",
)


@pytest.mark.parametrize("folder", sorted(folder.relative_to(ROOT).as_posix() for folder in FOLDERS))
def test_manifests_that_run_have_none_of_these_warnings(folder: str) -> None:
    texts = [file.read_bytes() for file in sorted((ROOT / folder).rglob("*.yaml"))]
    assert texts
    problems = load([Source(f"{number}.yaml", text) for number, text in enumerate(texts)]).problems
    assert not [str(problem) for problem in problems if any(part in problem.message for part in NEW)]
