# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The derivation of nodes and GPUs from parallelism axes, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.topology import (
    Axes,
    Shape,
    TopologyError,
    copies,
    derive,
    nearest_key,
    resolve,
    short_value,
)
from hypothesis import given
from hypothesis import strategies as st

VALID = {
    "tensor only": ({"tensor": 2}, Shape(1, 2, 2)),
    "pipeline is nodes": ({"tensor": 8, "pipeline": 2}, Shape(2, 8, 16)),
    "all ranks on one node": ({"tensor": 1, "data": 8, "dataLocal": 8}, Shape(1, 8, 8)),
    "ranks over two nodes": ({"tensor": 1, "data": 16, "dataLocal": 8}, Shape(2, 8, 16)),
    "every axis": ({"tensor": 2, "pipeline": 2, "data": 8, "dataLocal": 4}, Shape(4, 8, 32)),
    "without dataLocal each rank takes a node": ({"tensor": 1, "data": 8}, Shape(8, 1, 8)),
    "null is absent": ({"tensor": 4, "pipeline": None, "data": None, "dataLocal": None}, Shape(1, 4, 4)),
    "most nodes": ({"tensor": 1, "pipeline": 64}, Shape(64, 1, 64)),
    "most GPUs per node": ({"tensor": 64}, Shape(1, 64, 64)),
    "strategy Tensor": ({"tensor": 4, "strategy": "Tensor"}, Shape(1, 4, 4)),
    "strategy TensorPipeline": ({"tensor": 4, "pipeline": 2, "strategy": "TensorPipeline"}, Shape(2, 4, 8)),
    "strategy DataExpert": ({"tensor": 1, "data": 8, "dataLocal": 8, "strategy": "DataExpert"}, Shape(1, 8, 8)),
    "instances is no axis": ({"tensor": 4, "instances": 3}, Shape(1, 4, 4)),
}


@pytest.mark.parametrize(("topology", "shape"), VALID.values(), ids=VALID)
def test_derives_nodes_and_gpus(topology: dict[str, Any], shape: Shape) -> None:
    assert derive(topology) == shape


INVALID: dict[str, tuple[Any, list[tuple[str, str]]]] = {
    "missing": (None, [("", "topology is missing")]),
    "no mapping": ([8], [("", "must be a mapping")]),
    "empty": ({}, [("tensor", "tensor is missing")]),
    "tensor null": ({"tensor": None}, [("tensor", "tensor is missing")]),
    "zero": ({"tensor": 0}, [("tensor", "at least 1")]),
    "negative": ({"tensor": 1, "pipeline": -1}, [("pipeline", "at least 1")]),
    "bool": ({"tensor": True}, [("tensor", "whole number")]),
    "float": ({"tensor": 8.0}, [("tensor", "whole number")]),
    "text": ({"tensor": "8"}, [("tensor", "whole number")]),
    "two at once": ({"tensor": "8", "data": 0}, [("tensor", "whole number"), ("data", "at least 1")]),
    "does not divide": ({"tensor": 1, "data": 6, "dataLocal": 4}, [("dataLocal", "does not divide")]),
    "more local than there are": ({"tensor": 1, "data": 4, "dataLocal": 8}, [("dataLocal", "more than data")]),
    "local without data": ({"tensor": 1, "dataLocal": 8}, [("dataLocal", "without data")]),
    "too many nodes": ({"tensor": 1, "pipeline": 65}, [("", "at most 64 nodes")]),
    "too many GPUs": ({"tensor": 65}, [("", "at most 64 GPUs")]),
    "too many of both": ({"tensor": 65, "pipeline": 65}, [("", "at most 64 nodes"), ("", "at most 64 GPUs")]),
    "unknown key": ({"tensor": 1, "tensr": 2}, [("tensr", "not a known field")]),
    "unknown key and a wrong value": ({"expert": 1}, [("expert", "not a known field"), ("tensor", "missing")]),
    "key that is no name": ({"tensor": 1, "a.b": 2}, [('["a.b"]', "not a known field")]),
    "key that is no text": ({"tensor": 1, 7: 2}, [("[7]", "not a known field")]),
    "unknown strategy": ({"tensor": 1, "strategy": "Expert"}, [("strategy", "one of Tensor")]),
    "Tensor with pipeline": ({"tensor": 1, "pipeline": 2, "strategy": "Tensor"}, [("strategy", "Tensor needs")]),
    "Tensor with data": ({"tensor": 1, "data": 2, "strategy": "Tensor"}, [("strategy", "Tensor needs")]),
    "TensorPipeline without": ({"tensor": 1, "strategy": "TensorPipeline"}, [("strategy", "at least 2")]),
    "DataExpert without local": ({"tensor": 1, "data": 2, "strategy": "DataExpert"}, [("strategy", "dataLocal")]),
}


@pytest.mark.parametrize(("topology", "expected"), INVALID.values(), ids=INVALID)
def test_refuses(topology: Any, expected: list[tuple[str, str]]) -> None:
    with pytest.raises(TopologyError) as caught:
        derive(topology)
    found = caught.value.problems
    assert [problem.path for problem in found] == [path for path, _words in expected]
    for problem, (_path, words) in zip(found, expected, strict=True):
        assert words in problem.message


def test_the_error_of_a_quoted_number_says_how_to_write_it() -> None:
    with pytest.raises(TopologyError) as caught:
        derive({"tensor": "8"})
    assert "without quotes" in caught.value.problems[0].hint
    assert caught.value.problems[0].value == '"8"'


@pytest.mark.parametrize(
    ("key", "hint"),
    [("data_local", "Did you mean dataLocal?"), ("TENSOR", "Did you mean tensor?"), ("x", "Known here")],
)
def test_nearest_key(key: str, hint: str) -> None:
    assert hint in nearest_key(key, ("tensor", "pipeline", "data", "dataLocal"))


COPIES = {
    "absent": ({}, 1),
    "count": ({"count": 5}, 5),
    "null": ({"count": None, "topology": {"instances": None}}, 1),
    "instances": ({"topology": {"tensor": 1, "instances": 3}}, 3),
    "most": ({"count": 64}, 64),
}


@pytest.mark.parametrize(("workers", "expected"), COPIES.values(), ids=COPIES)
def test_copies(workers: dict[str, Any], expected: int) -> None:
    assert copies(workers) == expected


BAD_COPIES = {
    "zero": ({"count": 0}, "count", "at least 1"),
    "too many": ({"count": 65}, "count", "at most 64"),
    "bool": ({"count": True}, "count", "whole number"),
    "text": ({"count": "3"}, "count", "whole number"),
    "instances": ({"topology": {"instances": 0}}, "topology.instances", "at least 1"),
    "both": ({"count": 1, "topology": {"instances": 1}}, "topology.instances", "both are given"),
}


@pytest.mark.parametrize(("workers", "path", "words"), BAD_COPIES.values(), ids=BAD_COPIES)
def test_refuses_copies(workers: dict[str, Any], path: str, words: str) -> None:
    with pytest.raises(TopologyError) as caught:
        copies(workers)
    (problem,) = caught.value.problems
    assert problem.path == path
    assert words in problem.message


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        ("x" * 100, '"' + "x" * 58 + "…"),
        ({"a": 1}, "a mapping"),
        ([1], "a list"),
        (10**5000, "an integer of 16610 bits"),
        (b"\0", "bytes"),
        (float("nan"), "NaN"),
        ("\ud800", '"\\ud800"'),
    ],
    ids=["null", "bool", "long", "mapping", "list", "huge", "bytes", "nan", "surrogate"],
)
def test_short_value(value: object, text: str) -> None:
    assert short_value(value) == text


AXIS = st.integers(min_value=1, max_value=70)


@given(AXIS, AXIS, AXIS, AXIS)
def test_the_axes_multiply(tensor: int, pipeline: int, data: int, local: int) -> None:
    written = {"tensor": tensor, "pipeline": pipeline, "data": data, "dataLocal": local}
    fits = data % local == 0 and pipeline * (data // local) <= 64 and tensor * local <= 64
    try:
        axes, shape = resolve(written)
    except TopologyError:
        assert not fits
        return
    assert fits
    assert axes == Axes(tensor, pipeline, data, local)
    assert shape.gpus_per_worker == shape.nodes_per_worker * shape.gpus_per_node == tensor * pipeline * data


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner))
KEYS = st.sampled_from(["tensor", "pipeline", "data", "dataLocal", "strategy", "instances", "count", "topology"])
TOPOLOGIES = JSON | st.dictionaries(KEYS | st.text(max_size=3), st.integers(-1, 70) | JSON, max_size=6)


@given(TOPOLOGIES)
def test_any_input_gives_a_shape_or_problems(topology: Any) -> None:
    try:
        shape = derive(topology)
    except TopologyError as error:
        problems = error.problems
    else:
        assert 1 <= shape.nodes_per_worker <= 64
        assert 1 <= shape.gpus_per_node <= 64
        return
    assert problems
    assert all(problem.message and problem.severity == "error" for problem in problems)


@given(st.dictionaries(KEYS, st.integers(-1, 70) | JSON, max_size=3))
def test_any_workers_block_gives_copies_or_a_problem(workers: dict[str, Any]) -> None:
    try:
        number = copies(workers)
    except TopologyError as error:
        problems = error.problems
    else:
        assert 1 <= number <= 64
        return
    assert problems
