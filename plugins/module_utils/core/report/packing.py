# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Positions of pods in drawings: a packing of the pods of a pool on its nodes.

The packing shows the used devices, not the actual nodes of pods, because Kubernetes binds a pod to a node when the pod
starts. The packing is first fit by size. If no single node fits a pod although the pool has enough devices, the pod is
drawn in several parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Pods:
    """Equal pods of one engine member: `count` pods with `devices` of a node (by name), drawn as pods of `owner`."""

    owner: int
    count: int
    devices: Mapping[str, int]


@dataclass(frozen=True, order=True)
class Run:
    """Adjacent devices of one node that one owner uses, from `start` on."""

    node: int
    start: int
    length: int
    owner: int


@dataclass(frozen=True)
class Packing:
    """Packing with `runs` in the order of nodes. `nodes`: nodes with a run. `missing`: devices without a position."""

    runs: tuple[Run, ...]
    nodes: int
    missing: int


def pack(nodes: int, per_node: Mapping[str, int], drawn: str, groups: Sequence[Pods]) -> Packing:
    """Pack pods on `nodes` nodes with `per_node` devices each. Only devices with the name `drawn` are drawn.

    Other devices only limit the nodes for a pod. Pods of a group use different nodes as long as possible, because the
    pods of one gang do the same. Devices that the nodes do not have are ignored.
    """
    free = [dict(per_node) for __ in range(nodes)]
    runs: list[Run] = []
    pieces: list[tuple[int, int]] = []
    for group in sorted(groups, key=lambda group: (-group.devices.get(drawn, 0), group.owner)):
        needs = {name: number for name, number in group.devices.items() if number > 0 and name in per_node}
        length = needs.get(drawn, 0)
        if not length:
            continue
        first = 0
        for __ in range(group.count):
            node = _fitting(free, needs, first)
            if node is None and first:
                first = 0
                node = _fitting(free, needs, first)
            if node is None:
                pieces.append((group.owner, length))
                continue
            runs.append(Run(node, per_node[drawn] - free[node][drawn], length, group.owner))
            for name, number in needs.items():
                free[node][name] -= number
            first = node + 1
    missing = 0
    for owner, length in pieces:
        missing += _in_pieces(free, per_node[drawn], drawn, Run(0, 0, length, owner), runs)
    return Packing(tuple(sorted(runs)), len({run.node for run in runs}), missing)


def _fitting(free: Sequence[Mapping[str, int]], needs: Mapping[str, int], first: int) -> int | None:
    for node in range(first, len(free)):
        if all(free[node][name] >= number for name, number in needs.items()):
            return node
    return None


def _in_pieces(free: Sequence[dict[str, int]], size: int, drawn: str, desired: Run, runs: list[Run]) -> int:
    """Add a run on all free devices in several parts, and return the number of its devices without a position."""
    left = desired.length
    for node, devices in enumerate(free):
        taken = min(left, devices[drawn])
        if taken > 0:
            runs.append(Run(node, size - devices[drawn], taken, desired.owner))
            devices[drawn] -= taken
            left -= taken
    return left
