# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""One node pool: how much of it is taken, in numbers and as a drawing, and by whom."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from ..text import some
from .health import health
from .index import Index
from .markup import (
    HOLE,
    NOTHING,
    Markup,
    badge,
    code,
    count,
    el,
    gauge,
    items,
    join,
    linked,
    percent,
    pods_with,
    prose,
    shape,
)
from .packing import Packing, Pods, Run, pack

# The drawing, in px: cells of 14 with gaps of 2 in frames of nodes; it fits a telephone of 360 px.
_CELL = 14
_PITCH = 16
_WIDTH = 312
_MOST_PER_NODE = (_WIDTH - 4) // _PITCH
_MOST_CELLS = 256


@dataclass(frozen=True)
class Use:
    """Usage: how many of a pool's devices of one name are claimed, of how many that its nodes have."""

    device: str
    taken: int
    total: int

    def __str__(self) -> str:
        more = self.taken - self.total
        rest = f"{more:,} more than there are" if more > 0 else f"{-more:,} free"
        return f"{self.taken:,} of {self.total:,} {self.device} in use, {rest}"


@dataclass(frozen=True)
class Tenant:
    """A replica in a pool: its number there, and its entries (one per engine member)."""

    number: int
    namespace: str
    deployment: str
    replica: str
    entries: tuple[Mapping[str, Any], ...]

    @property
    def owner(self) -> str:
        return f"{self.namespace}/{self.deployment}"


def _uses(pool: Mapping[str, Any]) -> list[Use]:
    """The use of every kind of device that pods claim (DRA), in the order of the pool's class."""
    return [
        Use(device["name"], _taken(pool, device["name"]), device["count"] * pool["nodes"])
        for device in pool["devices"]
        if device["claim"] == "DRA"
    ]


def counted(pool: Mapping[str, Any]) -> Use | None:
    """The kind of device that stands for the pool: the one that most pods claim, of equals the first of the class."""
    found = _uses(pool)
    pods = {
        use.device: sum(entry["pods"] for entry in pool["occupied"] if entry["devices"].get(use.device))
        for use in found
    }
    return max(found, key=lambda use: pods[use.device]) if found else None


def _taken(pool: Mapping[str, Any], device: str) -> int:
    return sum(entry["pods"] * entry["devices"].get(device, 0) for entry in pool["occupied"])


def tenants(pool: Mapping[str, Any]) -> list[Tenant]:
    """The replicas in a pool, by namespace, deployment and name."""
    found: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for entry in pool["occupied"]:
        found.setdefault((entry["namespace"], entry["deployment"], entry["replica"]), []).append(entry)
    return [Tenant(number, *key, tuple(found[key])) for number, key in enumerate(sorted(found), 1)]


class DeviceUse(NamedTuple):
    """Numbers of devices.

    planned: devices of replicas that the next run creates.
    unavailable: free devices that new replicas cannot use."""

    used: int
    total: int
    planned: int
    unavailable: int

    @property
    def free(self) -> int:
        return max(0, self.total - self.used - self.planned - self.unavailable)

    @property
    def words(self) -> str:
        return f"{self.used:,} of {self.total:,} devices in use{self.others}"

    @property
    def others(self) -> str:
        """Return the numbers of planned and unavailable devices, each if there are any."""
        numbers = {"planned": self.planned, "unavailable": self.unavailable}
        return "".join(f", {number:,} {state}" for state, number in numbers.items() if number)


@lru_cache(maxsize=1 << 10, typed=True)
def load(use: DeviceUse) -> Markup:
    """Return the devices in use, as text and as a bar."""
    if not use.total:
        return el("span", "no device to claim", class_="m")
    label = el("span", el("strong", f"{use.used:,}"), f" of {use.total:,} devices in use{use.others}")
    return join([label, gauge(use.used, use.total)])


def nodes_of(pool: Mapping[str, Any]) -> str:
    """Return the node count of a pool. If the pool is observed, include the number of schedulable nodes and the
    unavailable nodes."""
    if pool["schedulable_nodes"] is None:
        return count(pool["nodes"], "node")
    unavailable = f"; unavailable: {some(pool['unavailable_nodes'])}" if pool["unavailable_nodes"] else ""
    return f"{pool['schedulable_nodes']:,} of {count(pool['nodes'], 'node')} schedulable{unavailable}"


_POOL = shape(el("section", el("h4", "Pool ", code(HOLE)), el("p", HOLE, class_="m"), *[HOLE] * 4, class_="pool"))


def pool_section(pool: Mapping[str, Any], known: Index) -> Markup:
    """A pool of a cluster's card."""
    use = counted(pool)
    living = tenants(pool)
    about = [nodes_of(pool)]
    if pool["class"]:
        about.append(f"class {pool['class']}")
    if pool["fabric"]:
        about.append(f"fabric {pool['fabric']}")
    return _POOL(
        pool["name"],
        " · ".join(about),
        el("p", badge("Overcommitted", "bad"), " ", prose(pool["overcommitted"])) if pool["overcommitted"] else NOTHING,
        _drawing(pool, use, living, known) if use else el("p", "It has no device that a pod can claim.", class_="m"),
        items([_device(pool, device) for device in pool["devices"]], "dv"),
        el("ul", *(_tenant(tenant, known) for tenant in living), class_="tn") if living else NOTHING,
    )


_DEVICE = shape(join([el("strong", HOLE), el("span", " · ", HOLE, class_="m")]))


def _device(pool: Mapping[str, Any], device: Mapping[str, Any]) -> Markup:
    what = f": {device['what']}" if device["what"] else ""
    about = f"{device['count']:,} {device['name']} per node{what}"
    if device["claim"] != "DRA":
        return el("span", f"{about} (only matched, never claimed)", class_="m")
    use = Use(device["name"], _taken(pool, device["name"]), device["count"] * pool["nodes"])
    return _DEVICE(use, about)


_TENANT = shape(
    el(
        "li",
        el("span", HOLE, class_=join(["k d", HOLE])),
        el("div", code(HOLE), " ", *[HOLE] * 4, el("div", HOLE, class_="m"), HOLE),
    )
)


def _tenant(tenant: Tenant, known: Index) -> Markup:
    key = (tenant.namespace, tenant.replica)
    row = known.placed.get(key)
    state = row["state"] if row else "kept"
    return _TENANT(
        _colour(tenant, known),
        tenant.number,
        tenant.owner if tenant.deployment else tenant.namespace,
        linked(known.replicas.get(key), tenant.replica),
        join([" ", health(row["status"])]) if row else NOTHING,
        NOTHING if state == "kept" else join([" ", badge(state, state)]),
        el("div", prose(row["message"])) if row and row["message"] else NOTHING,
        "; ".join(_entry(entry) for entry in tenant.entries),
        _callers(key, known),
    )


def _entry(entry: Mapping[str, Any]) -> str:
    return f"{entry['engine']} {entry['role']}: {pods_with(entry['pods'], entry['devices'])}"


_CALLERS = shape(el("div", "← requests: ", HOLE, class_="m"))
_CALLER = shape(join([HOLE, " of ", HOLE]))


def _callers(key: tuple[str, str], known: Index) -> Markup:
    """Return who sends a replica requests: the request path, read from its end."""
    found = [
        _CALLER(percent(caller.weight, caller.whole), linked(f"s{caller.service}", caller.name))
        for caller in known.callers.get(key, ())
    ]
    return _CALLERS(join(found, ", ")) if found else NOTHING


def _colour(tenant: Tenant, known: Index) -> int:
    return known.colours[tenant.namespace, tenant.deployment]


def _grid(pool: Mapping[str, Any]) -> tuple[int, int] | None:
    """Nodes and cells per node of a pool that is drawn as nodes; None for one that is a bar or nothing."""
    use = counted(pool)
    if use is None or not use.total:
        return None
    per_node = use.total // pool["nodes"]
    return (pool["nodes"], per_node) if per_node <= _MOST_PER_NODE and use.total <= _MOST_CELLS else None


def grids(pools: Iterable[Mapping[str, Any]]) -> Markup:
    """The empty nodes, once for all pools that are alike; the drawings of pools refer to them."""
    shapes = []
    for nodes, per_node in sorted({grid for grid in map(_grid, pools) if grid}):
        width, places = _places(nodes, per_node)
        frames = "".join(f"M{x}.5 {y}.5h{width - 1}v{_PITCH + 1}h-{width - 1}z" for x, y in places)
        cells = "".join(f"M{x + 2} {y + 9}h{width - 4}" for x, y in places)
        parts = (el("path", class_="n", d=frames), el("path", class_="f", d=cells))
        shapes.append(el("g", *parts, id=f"n{nodes}x{per_node}"))
    return el("svg", el("defs", *shapes), class_="defs", width=0, height=0, aria_hidden="true") if shapes else NOTHING


def _places(nodes: int, per_node: int) -> tuple[int, list[tuple[int, int]]]:
    """The width of a node's frame, and where the frames stand."""
    frame = per_node * _PITCH + 2
    across = max(1, (_WIDTH + 4) // (frame + 4))
    return frame, [(node % across * (frame + 4), node // across * (_PITCH + 6)) for node in range(nodes)]


def _drawing(pool: Mapping[str, Any], use: Use, living: Sequence[Tenant], known: Index) -> Markup:
    """The pool as nodes with a cell per device, or as one bar where that would be too much to read."""
    if not use.total:
        return NOTHING
    grid = _grid(pool) if known.is_drawn else None
    if grid is None:
        return _bar(use, living, known)
    devices = {device["name"]: device["count"] for device in pool["devices"] if device["claim"] == "DRA"}
    groups = [Pods(tenant.number, entry["pods"], entry["devices"]) for tenant in living for entry in tenant.entries]
    packing = pack(pool["nodes"], devices, use.device, groups)
    return join([_nodes(grid, packing, living, known), _in_words(pool, packing) if living else NOTHING])


def _in_words(pool: Mapping[str, Any], packing: Packing) -> Markup:
    words = f"Drawn on {packing.nodes:,} of {count(pool['nodes'], 'node')}"
    if packing.missing:
        words += f"; {count(packing.missing, 'claimed device')} found no place"
    return el("p", f"{words}.", class_="m")


def _nodes(grid: tuple[int, int], packing: Packing, living: Sequence[Tenant], known: Index) -> Markup:
    frame, places = _places(*grid)
    shapes = [el("use", href="#n{}x{}".format(*grid))]
    numbers: list[Markup] = []
    for tenant in living:
        runs = [run for run in packing.runs if run.owner == tenant.number]
        starts = [_start(run, places) for run in runs]
        line = "".join(f"M{x} {y}h{run.length * _PITCH - 2}" for (x, y), run in zip(starts, runs, strict=True))
        if line:
            tip = el("title", f"{tenant.number}: {tenant.owner}")
            shapes.append(el("path", tip, class_=f"t d{_colour(tenant, known)}", d=line))
        numbers += [el("text", str(tenant.number), x=x + _CELL // 2, y=y + 4) for x, y in starts]
    width = max(x for x, __ in places) + frame
    return _svg(width, places[-1][1] + _PITCH + 2, [*shapes, *numbers])


def _start(run: Run, places: Sequence[tuple[int, int]]) -> tuple[int, int]:
    x, y = places[run.node]
    return x + 2 + run.start * _PITCH, y + 9


_REST = el("path", class_="f w", d=f"M0 9h{_WIDTH}")
_PART = shape(el("path", el("title", HOLE, ": ", HOLE), class_=join(["t w d", HOLE]), d=join(["M", HOLE, " 9h", HOLE])))
_NUMBER = shape(el("text", HOLE, x=HOLE, y=13))


def _bar(use: Use, living: Sequence[Tenant], known: Index) -> Markup:
    whole = max(use.total, use.taken)
    shapes = [_REST]
    numbers: list[Markup] = []
    before = 0
    for tenant in living:
        taken = sum(entry["pods"] * entry["devices"].get(use.device, 0) for entry in tenant.entries)
        start, end = _WIDTH * before // whole, _WIDTH * (before + taken) // whole
        before += taken
        if taken:
            # Also the least part of a large pool can be seen.
            line = min(start, _WIDTH - 2), max(2, end - start - 1)
            shapes.append(_PART(_colour(tenant, known), *line, tenant.number, tenant.owner))
            if end - start > _CELL:
                numbers.append(_NUMBER((start + end) // 2, tenant.number))
    return _svg(_WIDTH, 18, [*shapes, *numbers])


def _svg(width: int, height: int, shapes: Sequence[Markup]) -> Markup:
    """A drawing that only repeats what the text beside it says; hence nothing of it is read out."""
    return el("svg", *shapes, width=width, height=height, viewBox=f"0 0 {width} {height}", aria_hidden="true")
