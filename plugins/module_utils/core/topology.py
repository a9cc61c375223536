# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Conversion of the parallelism axes of one worker to its nodes and GPUs.

The axes are independent and multiply (vLLM: `--tensor-parallel-size`, `--pipeline-parallel-size`,
`--data-parallel-size`, `--data-parallel-size-local`):

    nodes per worker = pipeline * (data / dataLocal)
    GPUs per node    = tensor * dataLocal
    GPUs per worker  = tensor * data * pipeline

Paths of problems are relative to the block in the argument.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .problem import Problem
from .text import field_path, nearest_key, short_value

MAX_NODES_PER_WORKER = 64
"""One leader and at most 63 followers (`members[].worker.nodes`)."""

MAX_GPUS_PER_NODE = 64
"""Upper limit of a device request (`nodeSelector.devices[].count`)."""

MAX_COPIES = 64
"""Upper limit of `engines[].copies`."""

AXES = ("tensor", "pipeline", "data", "dataLocal")
STRATEGIES = ("Tensor", "TensorPipeline", "DataExpert")
KNOWN_KEYS = (*AXES, "strategy", "instances")


@dataclass(frozen=True)
class Axes:
    """Parallelism of a worker. Each axis is at least 1 and `data_local` divides `data`."""

    tensor: int
    pipeline: int = 1
    data: int = 1
    data_local: int = 1


@dataclass(frozen=True)
class Shape:
    """Demand of one worker: nodes, GPUs on each of them, and GPUs in all."""

    nodes_per_worker: int
    gpus_per_node: int
    gpus_per_worker: int


class TopologyError(ValueError):
    """Invalid topology. `problems`: all its problems."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: tuple[Problem, ...] = tuple(problems)
        super().__init__(" ".join(str(problem) for problem in self.problems))


def positive_integer(value: object, path: str) -> tuple[int | None, Problem | None]:
    """Return `value` as an integer of at least 1, or its problem. Text, floats, and booleans are not integers."""
    if isinstance(value, bool) or not isinstance(value, int):
        hint = "Write it without quotes." if isinstance(value, str) and value.strip().isdecimal() else ""
        return None, Problem("must be a whole number", path, short_value(value), hint)
    if value < 1:
        return None, Problem("must be at least 1", path, short_value(value))
    return int(value), None


def derive(topology: object) -> Shape:
    """Return the shape of a worker from its `topology` block as a user wrote it: `{tensor, pipeline, data, dataLocal}`.

    Null counts as missing. Of the keys of earlier formats, `strategy` is only checked, and `instances` is not part of
    the shape (see `copies`). Raise TopologyError with all problems.
    """
    return resolve(topology)[1]


def resolve(topology: object) -> tuple[Axes, Shape]:
    """Return the axes and the shape of a worker. See `derive`."""
    if topology is None:
        raise TopologyError([Problem("topology is missing", hint="Give at least tensor: the GPUs one rank spans.")])
    if not isinstance(topology, Mapping):
        raise TopologyError([Problem("topology must be a mapping", value=short_value(topology), hint=_example())])
    problems = [
        Problem("is not a known field of a topology", field_path("", key), hint=nearest_key(key, AXES))
        for key in topology
        if key not in KNOWN_KEYS
    ]
    values = {key: value for key, value in topology.items() if value is not None}
    axes, wrong = _axes(values)
    problems += wrong
    if axes is None:
        raise TopologyError(problems + _strategy_name(values))
    shape = Shape(
        nodes_per_worker=axes.pipeline * (axes.data // axes.data_local),
        gpus_per_node=axes.tensor * axes.data_local,
        gpus_per_worker=axes.tensor * axes.data * axes.pipeline,
    )
    problems += _limits(shape)
    problems += _strategy_name(values) or _strategy_axes(values, axes)
    if problems:
        raise TopologyError(problems)
    return axes, shape


def copies(workers: Mapping[str, Any]) -> int:
    """Return the number of identical workers of a replica from the `workers` block: `count`, or its alias
    `topology.instances`.

    Defaults to 1. Raise TopologyError. Its paths are relative to `workers`.
    """
    count = workers.get("count")
    topology = workers.get("topology")
    instances = topology.get("instances") if isinstance(topology, Mapping) else None
    if count is not None and instances is not None:
        raise TopologyError(
            [Problem("is the earlier spelling of count, and both are given", "topology.instances", hint="Keep count.")]
        )
    value, path = (count, "count") if count is not None else (instances, "topology.instances")
    if value is None:
        return 1
    number, problem = positive_integer(value, path)
    if number is not None and number > MAX_COPIES:
        problem = Problem(
            f"must be at most {MAX_COPIES}", path, short_value(value), "More serving capacity comes from spec.replicas."
        )
    if number is None or problem:
        raise TopologyError([problem] if problem else [])
    return number


def _axes(values: Mapping[str, Any]) -> tuple[Axes | None, list[Problem]]:
    problems: list[Problem] = []
    numbers: dict[str, int] = {}
    for name in AXES:
        if name not in values:
            continue
        number, problem = positive_integer(values[name], name)
        if number is not None:
            numbers[name] = number
        if problem:
            problems.append(problem)
    if "tensor" not in values:
        problems.insert(0, Problem("tensor is missing", "tensor", hint=_example()))
    if problems:
        return None, problems
    axes = Axes(numbers["tensor"], numbers.get("pipeline", 1), numbers.get("data", 1), numbers.get("dataLocal", 1))
    if axes.data % axes.data_local == 0:
        return axes, []
    local, data = short_value(axes.data_local), short_value(axes.data)
    if "data" not in values:
        message, hint = "dataLocal is given without data", "Give data: how many data-parallel ranks the worker has."
    elif axes.data_local > axes.data:
        message, hint = f"dataLocal {local} is more than data {data}", "A node cannot hold more ranks than there are."
    else:
        message = f"data {data} does not divide into nodes of {local} ranks (dataLocal)"
        hint = "Choose a dataLocal that divides data."
    return None, [Problem(message, "dataLocal", local, hint)]


def _limits(shape: Shape) -> list[Problem]:
    problems = []
    if shape.nodes_per_worker > MAX_NODES_PER_WORKER:
        problems.append(
            Problem(
                f"a worker may span at most {MAX_NODES_PER_WORKER} nodes (pipeline * data / dataLocal)",
                value=f"{short_value(shape.nodes_per_worker)} nodes",
                hint="Lower pipeline, or raise dataLocal so that more data-parallel ranks share a node.",
            )
        )
    if shape.gpus_per_node > MAX_GPUS_PER_NODE:
        problems.append(
            Problem(
                f"a node may give a worker at most {MAX_GPUS_PER_NODE} GPUs (tensor * dataLocal)",
                value=f"{short_value(shape.gpus_per_node)} GPUs",
                hint="Tensor and dataLocal count within one node; spread over nodes with pipeline or data.",
            )
        )
    return problems


def _strategy_name(values: Mapping[str, Any]) -> list[Problem]:
    strategy = values.get("strategy")
    if strategy is None or strategy in STRATEGIES:
        return []
    hint = "Leave it out: the axes say everything."
    return [Problem(f"must be one of {', '.join(STRATEGIES)}", "strategy", short_value(strategy), hint)]


def _strategy_axes(values: Mapping[str, Any], axes: Axes) -> list[Problem]:
    strategy = values.get("strategy")
    if strategy == "Tensor" and (axes.pipeline > 1 or axes.data > 1):
        needs = "pipeline and data to be 1"
    elif strategy == "TensorPipeline" and axes.pipeline < 2:
        needs = "pipeline to be at least 2"
    elif strategy == "DataExpert" and not ("data" in values and "dataLocal" in values):
        needs = "data and dataLocal"
    else:
        return []
    return [Problem(f"strategy {strategy} needs {needs}", "strategy", hint="Leave strategy out: the axes decide.")]


def _example() -> str:
    return "For example {tensor: 8, pipeline: 2}: two nodes with eight GPUs each."
