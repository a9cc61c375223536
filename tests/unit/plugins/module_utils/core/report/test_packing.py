# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The packing that is drawn: within the nodes, a gang on different nodes, nothing lost."""

from __future__ import annotations

from collections import Counter

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.report.packing import Packing, Pods, Run, pack
from hypothesis import given
from hypothesis import strategies as st


def gpu(owner: int, count: int, each: int) -> Pods:
    return Pods(owner, count, {"gpu": each})


@pytest.mark.parametrize(
    ("nodes", "per_node", "groups", "runs", "missing"),
    [
        pytest.param(2, 8, [], [], 0, id="nothing"),
        pytest.param(2, 8, [gpu(1, 1, 8)], [(0, 0, 8, 1)], 0, id="a whole node"),
        pytest.param(2, 8, [gpu(1, 2, 2)], [(0, 0, 2, 1), (1, 0, 2, 1)], 0, id="a gang on different nodes"),
        pytest.param(1, 8, [gpu(1, 2, 2)], [(0, 0, 2, 1), (0, 2, 2, 1)], 0, id="more pods than nodes"),
        pytest.param(1, 8, [gpu(1, 1, 2), gpu(2, 1, 6)], [(0, 0, 6, 2), (0, 6, 2, 1)], 0, id="larger pods first"),
        pytest.param(1, 4, [gpu(1, 3, 2)], [(0, 0, 2, 1), (0, 2, 2, 1)], 2, id="more than there is"),
        pytest.param(2, 3, [gpu(1, 3, 2)], [(0, 0, 2, 1), (0, 2, 1, 1), (1, 0, 2, 1), (1, 2, 1, 1)], 0, id="pieces"),
        pytest.param(0, 8, [gpu(1, 1, 3)], [], 3, id="no nodes"),
        pytest.param(2, 8, [Pods(1, 1, {}), Pods(2, 1, {"tpu": 3})], [], 0, id="pods without such devices"),
    ],
)
def test_runs(nodes: int, per_node: int, groups: list[Pods], runs: list[tuple[int, ...]], missing: int) -> None:
    used = len({run[0] for run in runs})
    assert pack(nodes, {"gpu": per_node}, "gpu", groups) == Packing(tuple(Run(*run) for run in runs), used, missing)


def test_devices_that_are_not_drawn_are_heeded() -> None:
    groups = [Pods(1, 1, {"gpu": 2, "nic": 1}), Pods(2, 1, {"gpu": 2, "nic": 1})]
    assert {run.node for run in pack(2, {"gpu": 8, "nic": 1}, "gpu", groups).runs} == {0, 1}


@given(
    st.integers(0, 6),
    st.integers(1, 8),
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), max_size=6),
)
def test_every_device_is_drawn_once_or_missing(nodes: int, per_node: int, sizes: list[tuple[int, int]]) -> None:
    groups = [gpu(owner, count, each) for owner, (count, each) in enumerate(sizes)]
    packing = pack(nodes, {"gpu": per_node}, "gpu", groups)
    cells = Counter((run.node, run.start + step) for run in packing.runs for step in range(run.length))
    assert set(cells.values()) <= {1}
    assert all(0 <= node < nodes and 0 <= cell < per_node for node, cell in cells)
    drawn = Counter[int]()
    for run in packing.runs:
        drawn[run.owner] += run.length
    desired = sum(group.count * group.devices["gpu"] for group in groups)
    assert sum(drawn.values()) + packing.missing == desired
    assert packing.missing == max(0, desired - nodes * per_node)
    assert all(drawn[group.owner] <= group.count * group.devices["gpu"] for group in groups)
