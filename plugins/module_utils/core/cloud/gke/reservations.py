# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Reservations of node pools of a plan: problems of their existence, their machines, and their free capacity.

Fields are from Reservation and ShareSettings of the Compute Engine API.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..preflight import Line

Wire = Mapping[str, Any]
Found = Mapping[str, Mapping[str, Wire]]
"""Reservations by path (`projects/PROJECT/reservations/NAME`), and by zone. Paths that could not be read are
missing."""

SPECIFIC = "SPECIFIC_RESERVATION"
_ATTACHING = "n1-"
"""Machines with attached GPUs. A reservation must specify the GPUs of these machines."""
_READY = ("READY", "UPDATING")
_LOCAL = ("", "LOCAL", "SHARE_TYPE_UNSPECIFIED")


def named(pool: Wire, project: str) -> list[str]:
    """Return the paths of the reservations of a pool in the format of the request.

    A reservation without a project belongs to the project of the plan.
    """
    affinity = pool["config"].get("reservationAffinity") or {}
    if affinity.get("consumeReservationType") != SPECIFIC:
        return []
    values = [str(value).partition("/reservationBlocks/")[0] for value in affinity.get("values") or ()]
    return [value if "/" in value else f"projects/{project}/reservations/{value}" for value in dict.fromkeys(values)]


class Judge:
    """Check of the pools of a plan, in order, because they share the free capacity of a reservation."""

    def __init__(self, project: str, found: Found) -> None:
        self._project, self._found = project, found
        self._left = {
            (path, zone): usable(reservation) - in_use(reservation)
            for path, by_zone in found.items()
            for zone, reservation in by_zone.items()
        }

    def pool(self, pool: Wire, *, new: bool) -> Iterator[Line]:
        """Yield the problems of the reservations of a pool. `new`: the pool needs machines that are not in use yet."""
        paths = named(pool, self._project)
        known_paths = [path for path in paths if path in self._found]
        zones = list(pool.get("locations") or ())
        for path in known_paths:
            yield from self._one(path, pool, zones)
        # Reservations of the pool that could not be read might be in the other zones.
        if known_paths and len(known_paths) == len(paths) and all(self._found[path] for path in known_paths):
            for zone in zones:
                yield from self._zone(known_paths, pool, zone, new=new)

    def _one(self, path: str, pool: Wire, zones: Sequence[str]) -> Iterator[Line]:
        project, name = path.split("/")[1], path.rpartition("/")[2]
        by_zone = self._found[path]
        if not by_zone:
            yield Line(
                f"reservation {name} does not exist in project {project}. Create it for {_machine(pool)} in "
                f"{', '.join(zones) or 'the region'}, or correct reservationAffinity.values"
            )
            return
        by_pool_zone = {
            zone: pool_reservation for zone, pool_reservation in sorted(by_zone.items()) if not zones or zone in zones
        }
        if not by_pool_zone:
            yield Line(
                f"reservation {name} is in {', '.join(sorted(by_zone))}, and the pool in {', '.join(zones)}. Set zones "
                "of the pool to it, or name another reservation"
            )
        for zone, reservation in by_pool_zone.items():
            subject = f"reservation {name} in {zone}"
            yield from _state(subject, reservation)
            yield from _shape(subject, pool, reservation)
            yield from self._shared(subject, project, reservation)

    def _shared(self, subject: str, project: str, reservation: Wire) -> Iterator[Line]:
        share = str((reservation.get("shareSettings") or {}).get("shareType") or "")
        if project != self._project and share in _LOCAL:
            yield Line(
                f"{subject} is of project {project}, which does not share it. Have it shared with {self._project}, or "
                "name one of your own"
            )

    def _zone(self, paths: Sequence[str], pool: Wire, zone: str, *, new: bool) -> Iterator[Line]:
        """Yield a problem if the reservations of a pool in a zone have too few machines. A new pool uses up its
        machines."""
        zone_paths = [path for path in paths if zone in self._found[path]]
        every = ", ".join(path.rpartition("/")[2] for path in paths)
        if not zone_paths:
            if any(self._in_pool(path, pool) for path in paths):
                yield Line(
                    f"zone {zone} has none of the reservations {every}: no node starts there. Leave the zone out of "
                    "the pool, or reserve machines there and name that reservation too"
                )
            return
        if any("specificReservation" not in self._found[path][zone] for path in zone_paths):
            return
        names = ", ".join(path.rpartition("/")[2] for path in zone_paths)
        total = sum(usable(self._found[path][zone]) for path in zone_paths)
        start, max_nodes = int(pool["initialNodeCount"]), int(pool["autoscaling"].get("maxNodeCount") or 0)
        free = sum(max(self._left[path, zone], 0) for path in zone_paths)
        if new and start > free:
            yield Line(
                f"starts with {start} nodes in {zone}, and of the {total} machines of reservation {names} there {free} "
                "are free. Lower nodeCount, reserve more, or stop what else uses them"
            )
        elif max_nodes > total:
            yield Line(
                f"may grow to {max_nodes} nodes in {zone}, and reservation {names} has {total} machines there: more "
                "will not start",
                problem=False,
            )
        if new:
            self._take(zone_paths, zone, start)

    def _in_pool(self, path: str, pool: Wire) -> bool:
        return any(zone in self._found[path] for zone in pool.get("locations") or ())

    def _take(self, paths: Sequence[str], zone: str, nodes: int) -> None:
        for path in paths:
            used_machines = min(nodes, max(self._left[path, zone], 0))
            self._left[path, zone] -= used_machines
            nodes -= used_machines


def _state(subject: str, reservation: Wire) -> Iterator[Line]:
    status = str(reservation.get("status") or "READY")
    if status not in _READY:
        yield Line(f"{subject} is {status}, so no node starts in it. Name one that is READY, or wait until it is")
    if not reservation.get("specificReservationRequired"):
        yield Line(
            f"{subject} is not for named use only (specificReservationRequired), so any machine of its type may take "
            "what the pool needs. Create one that is, or set consumeReservationType: ANY_RESERVATION",
            problem=False,
        )


def _shape(subject: str, pool: Wire, reservation: Wire) -> Iterator[Line]:
    """Yield the differences between the machines of a reservation and the machines of a pool.

    Reservations without an instance shape are not compared.
    """
    properties = _properties(reservation)
    machine = machine_of(reservation)
    if machine and machine != _machine(pool):
        yield Line(f"{subject} is for {machine}, and the pool has {_machine(pool)}. Name one for {_machine(pool)}")
    elif machine.startswith(_ATTACHING):
        has, asks = _accelerators(properties), _accelerators(pool["config"], "accelerators")
        if has != asks:
            yield Line(
                f"{subject} has machines with {_text(has)}, and the pool asks for {_text(asks)}. Name one with "
                f"{_text(asks)}"
            )


def machine_of(reservation: Wire) -> str:
    """Return the machine type of a reservation; empty if it does not have a machine type."""
    return str(_properties(reservation).get("machineType") or "").rpartition("/")[2]


def _properties(reservation: Wire) -> Wire:
    properties: Wire = (reservation.get("specificReservation") or {}).get("instanceProperties") or {}
    return properties


def _accelerators(subject: Wire, field: str = "guestAccelerators") -> dict[str, int]:
    return {
        str(accelerator.get("acceleratorType")).rpartition("/")[2]: int(accelerator.get("acceleratorCount") or 0)
        for accelerator in subject.get(field) or ()
    }


def _text(accelerators: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(accelerators.items())) or "no accelerators"


def _machine(pool: Wire) -> str:
    return str(pool["config"]["machineType"])


def usable(reservation: Wire) -> int:
    """Return the number of machines of a reservation: the assured machines, if their number is known."""
    specific = reservation.get("specificReservation") or {}
    return _number(reservation, "assuredCount" if "assuredCount" in specific else "count")


def in_use(reservation: Wire) -> int:
    """Return the number of machines of a reservation that are in use."""
    return _number(reservation, "inUseCount")


def _number(reservation: Wire, field: str) -> int:
    """Return a 64-bit number from its JSON text."""
    return int((reservation.get("specificReservation") or {}).get(field) or 0)
