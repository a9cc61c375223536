# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Claims whose selectors must test for the attributes and capacities that they read (`core/devices/guard.py`).

A claim template is immutable, so that other selectors replace the pods. Therefore, selectors get tests only if devices
of the pool need them, and only when a replica is placed or an edit replaces its pods anyway.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core.devices.device import Device
from ansible_collections.modelplane.fleet.plugins.module_utils.core.devices.selector import SelectorError
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.matching import request_selectors
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import (
    Cluster,
    PlacedEngine,
    PlacedMember,
    Placement,
    Replica,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.selector_budget import Evaluations

_Requests = tuple[Mapping[str, Any], ...]


def is_changed(placement: Placement, before: Replica | None, engine: PlacedEngine, member: PlacedMember) -> bool:
    """Return whether the claims of a member are others than those of its running pods. `before`: the replica as it
    is."""
    if placement.state == "held":
        return False
    known = _running(before, engine, member) if before is not None else None
    if known is None or before is None or placement.state == "new":
        return True
    copies = next(old.copies for old in before.engines if old.name == engine.name)
    return (known.pool, known.pods, copies, _requested(known)) != (
        member.pool,
        member.pods,
        engine.copies,
        _requested(member),
    )


def guard_claims(
    placements: Iterable[Placement],
    before: Iterable[Replica | None],
    clusters: Iterable[Cluster],
    evaluations: Evaluations,
) -> Iterator[Placement]:
    """Yield placements whose claims say if their selectors must test for values. `before`: the replica of each
    placement. Raises OverBudgetError."""
    pools = {(cluster.name, pool.name): pool.devices for cluster in clusters for pool in cluster.pools}
    known: dict[object, bool] = {}
    for placement, replica in zip(placements, before, strict=True):
        engines = []
        for engine in placement.engines:
            members = []
            for member in engine.members:
                if not is_changed(placement, replica, engine, member):
                    requests = _as_before(member, _running(replica, engine, member))
                else:
                    on = [pools.get((placement.cluster, name), ()) for name, __ in member.pods_by_pool]
                    requests = tuple(_guarded(entry, on, evaluations, known) for entry in member.device_requests)
                members.append(
                    member if requests == member.device_requests else replace(member, device_requests=requests)
                )
            engines.append(replace(engine, members=tuple(members)))
        yield placement if engines == list(placement.engines) else replace(placement, engines=tuple(engines))


def _running(before: Replica | None, engine: PlacedEngine, member: PlacedMember) -> PlacedMember | None:
    """Return a member as it runs; None if its replica or its engine has no such member."""
    members = (known for old in (before.engines if before else ()) if old.name == engine.name for known in old.members)
    return next((known for known in members if known.role == member.role), None)


def _requested(member: PlacedMember) -> list[tuple[str, str, int, list[str]]]:
    """Return what a member claims, without the kinds of device that its claim is limited to."""
    return [
        (str(entry["name"]), str(entry["deviceClassName"]), int(entry.get("count", 1)), request_selectors(entry))
        for entry in member.device_requests
    ]


def _as_before(member: PlacedMember, known: PlacedMember | None) -> _Requests:
    names = {entry["name"] for entry in (known.device_requests if known else ()) if entry.get("guarded")}
    return tuple({**entry, "guarded": True} if entry["name"] in names else entry for entry in member.device_requests)


def _guarded(
    entry: Mapping[str, Any],
    pools: Sequence[tuple[Device, ...]],
    evaluations: Evaluations,
    known: dict[object, bool],
) -> Mapping[str, Any]:
    selectors = tuple(str(selector["cel"]) for selector in entry.get("selectors") or () if selector.get("cel"))
    for devices in pools:
        key = (entry["deviceClassName"], selectors, id(devices))
        if key not in known:
            known[key] = _fails(entry["deviceClassName"], selectors, devices, evaluations)
        if known[key]:
            return {**entry, "guarded": True}
    return entry


def _fails(
    device_class: object, selectors: tuple[str, ...], devices: tuple[Device, ...], evaluations: Evaluations
) -> bool:
    """Return whether a selector fails on a device that kube-scheduler might evaluate it on. That is any device of the
    DeviceClass, and any device of the same driver because DeviceClasses can overlap."""
    claimed = [device for device in devices if device.claim == "DRA" and not device.invalid]
    drivers = {device.driver for device in claimed if device.device_class_name == device_class}
    reached = [device for device in claimed if device.driver in drivers]
    if len(reached) < 2:
        return False
    try:
        return any(evaluations.failure(selectors, device) for device in reached)
    except SelectorError:
        return False
