# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Drawings of node pools in the HTML report.

A pool is drawn as nodes with a cell for each device, or as a bar if it is large.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from . import words
from .packing import Packing, Pods, Run, pack
from .pools import ClaimedDevices, Tenant, main_devices
from .views import ClusterView, PoolView

# In px: cells of 14 with gaps of 2 in frames of nodes. The drawing fits a telephone of 360 px.
_CELL = 14
_PITCH = 16
_WIDTH = 312
_BAR_HEIGHT = 18
_MAX_PER_NODE = (_WIDTH - 4) // _PITCH
_MAX_CELLS = 256


@dataclass(frozen=True, order=True)
class Grid:
    """Empty nodes. All pools of this size share them."""

    nodes: int
    devices_per_node: int

    @property
    def id(self) -> str:
        return f"n{self.nodes}x{self.devices_per_node}"

    @property
    def frame_width(self) -> int:
        return self.devices_per_node * _PITCH + 2

    @property
    def positions(self) -> list[tuple[int, int]]:
        """Return the position of each node."""
        step = self.frame_width + 4
        columns = max(1, (_WIDTH + 4) // step)
        return [(node % columns * step, node // columns * (_PITCH + 6)) for node in range(self.nodes)]

    @property
    def frames_path(self) -> str:
        width = self.frame_width - 1
        return "".join(f"M{x}.5 {y}.5h{width}v{_PITCH + 1}h-{width}z" for x, y in self.positions)

    @property
    def cells_path(self) -> str:
        return "".join(f"M{x + 2} {y + 9}h{self.frame_width - 4}" for x, y in self.positions)


@dataclass(frozen=True)
class Shape:
    """Devices of a replica. `path` is empty without devices. `numbers`: positions of the number of the replica."""

    tenant: Tenant
    path: str
    numbers: Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Drawing:
    """Drawing of a pool.

    grid_id: ID of the empty nodes, empty for a bar.
    caption: text below the drawing, possibly empty.
    """

    width: int
    height: int
    grid_id: str
    shapes: Sequence[Shape]
    caption: str = ""

    @property
    def bar_path(self) -> str:
        """Return the path of the empty bar."""
        return f"M0 9h{self.width}"


def empty_grids(clusters: Iterable[ClusterView]) -> list[Grid]:
    """Return the unique grids of the pools of these clusters."""
    grids = {_grid(pool, main_devices(pool)) for cluster in clusters for pool in cluster.pools}
    return sorted(grid for grid in grids if grid)


def pool_drawing(pool: PoolView, tenants: Sequence[Tenant], *, with_nodes: bool) -> Drawing | None:
    """Return the drawing of a pool, None if it has no devices that pods can claim.

    with_nodes: draw nodes unless the pool is large.
    """
    devices = main_devices(pool)
    if devices is None or not devices.total:
        return None
    grid = _grid(pool, devices) if with_nodes else None
    return _nodes(pool, grid, devices.device, tenants) if grid else _bar(devices, tenants)


def _grid(pool: PoolView, devices: ClaimedDevices | None) -> Grid | None:
    """Return the grid of a pool, None if it is empty or too large."""
    if devices is None or not devices.total:
        return None
    grid = Grid(pool.status.nodes, devices.total // pool.status.nodes)
    return grid if grid.devices_per_node <= _MAX_PER_NODE and devices.total <= _MAX_CELLS else None


def _nodes(pool: PoolView, grid: Grid, device: str, tenants: Sequence[Tenant]) -> Drawing:
    per_node = {device.name: device.count for device in pool.devices if device.claim == "DRA"}
    groups = [Pods(tenant.number, pods.pods, pods.devices) for tenant in tenants for pods in tenant.pods]
    packing = pack(grid.nodes, per_node, device, groups)
    positions = grid.positions
    runs: dict[int, list[Run]] = {tenant.number: [] for tenant in tenants}
    for run in packing.runs:
        runs[run.owner].append(run)
    return Drawing(
        width=max(x for x, __ in positions) + grid.frame_width,
        height=positions[-1][1] + _PITCH + 2,
        grid_id=grid.id,
        shapes=[_node_shape(tenant, runs[tenant.number], positions) for tenant in tenants],
        caption=_packing_text(packing, grid) if tenants else "",
    )


def _node_shape(tenant: Tenant, runs: Sequence[Run], positions: Sequence[tuple[int, int]]) -> Shape:
    path, numbers = "", []
    for run in runs:
        x, y = positions[run.node]
        start, middle = x + 2 + run.start * _PITCH, y + 9
        path += f"M{start} {middle}h{run.length * _PITCH - 2}"
        numbers.append((start + _CELL // 2, middle + 4))
    return Shape(tenant, path, numbers)


def _packing_text(packing: Packing, grid: Grid) -> str:
    text = f"Drawn on {packing.nodes:,} of {words.count(grid.nodes, 'node')}"
    if packing.missing:
        text += f"; {words.count(packing.missing, 'claimed device')} found no place"
    return f"{text}."


def _bar(devices: ClaimedDevices, tenants: Sequence[Tenant]) -> Drawing:
    whole = max(devices.total, devices.claimed)
    shapes, position = [], 0
    for tenant in tenants:
        claimed = sum(pods.pods * pods.devices.get(devices.device, 0) for pods in tenant.pods)
        start, end = _WIDTH * position // whole, _WIDTH * (position + claimed) // whole
        position += claimed
        if claimed:
            # The smallest part of a large pool must be visible.
            path = f"M{min(start, _WIDTH - 2)} 9h{max(2, end - start - 1)}"
            shapes.append(Shape(tenant, path, [((start + end) // 2, 13)] if end - start > _CELL else []))
    return Drawing(_WIDTH, _BAR_HEIGHT, "", shapes)
