# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Diff of the devices that an InferenceClass promises and those that its nodes publish in ResourceSlices.

The plan matches selectors with what the class says, the scheduler of the cluster with what the driver publishes
(KEP-4381). Where the second offers less, replicas are placed whose pods never start. A driver that publishes more, be
it further devices, larger capacities or further attributes, breaks no promise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.devices.device import Device, split_name
from ansible_collections.modelplane.fleet.plugins.module_utils.core.text import listed, short_value
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object, entries, fields, number, text

_EXCLUDING = frozenset({"NoSchedule", "NoExecute"})
"""Effects of device taints that keep claims without tolerations away (KEP-5055)."""


@dataclass(frozen=True)
class Promise:
    """Devices that the nodes of a pool should have: those of the InferenceClass of the pool."""

    pool: str
    class_name: str
    devices: tuple[Device, ...]

    @classmethod
    def of(cls, pool: str, inference_class: api.InferenceClass) -> Promise:
        """Return the promise of an InferenceClass."""
        devices = tuple(Device.from_wire(api.wire(device)) for device in inference_class.spec.devices)
        return cls(pool, inference_class.name, devices)

    def claimed(self, driver: str) -> list[Device]:
        """The devices of a driver that pods claim; Synthetic ones exist in the plan alone."""
        return [device for device in self.devices if device.claim == "DRA" and device.driver == driver]

    @property
    def drivers(self) -> list[str]:
        return sorted({device.driver for device in self.devices if device.claim == "DRA"})

    @property
    def device_classes(self) -> list[str]:
        """The DeviceClasses that claims go through."""
        claimed = [device for device in self.devices if device.claim == "DRA"]
        return sorted({device.device_class_name for device in claimed if device.device_class_name})


@dataclass(frozen=True)
class Mismatch:
    """A promise that is not kept on some nodes of a pool: what is promised, and what is there."""

    pool: str
    nodes: tuple[str, ...]
    message: str

    def __str__(self) -> str:
        noun = "node" if len(self.nodes) == 1 else "nodes"
        return f"pool {self.pool}, {noun} {listed(self.nodes)}: {self.message}"


def mismatches(
    promises: Iterable[Promise], nodes: Mapping[str, Iterable[str]], slices: Iterable[Object]
) -> tuple[Mismatch, ...]:
    """Every promise that is not kept, nodes where the same is wrong as one, sorted.

    `nodes` are the names of the Ready nodes by pool; `slices` all ResourceSlices of the cluster (wire form,
    resource.k8s.io/v1). Devices that are published for several nodes count for each of them.
    """
    published = _Published(slices)
    found: dict[tuple[str, str], list[str]] = {}
    for promise in promises:
        for node in nodes.get(promise.pool, ()):
            for driver in promise.drivers:
                for message in _faults(promise, driver, published.on(node, driver), published.incomplete(node, driver)):
                    found.setdefault((promise.pool, message), []).append(node)
    return tuple(Mismatch(pool, tuple(sorted(names)), message) for (pool, message), names in sorted(found.items()))


class _Published:
    """The devices of ResourceSlices by node and driver; of each resource pool those of its newest generation."""

    def __init__(self, slices: Iterable[Object]) -> None:
        pools: dict[tuple[str, str], list[Object]] = {}
        for entry in slices:
            spec = fields(entry, "spec")
            pools.setdefault((text(spec, "driver"), text(spec, "pool", "name")), []).append(spec)
        self._devices: dict[tuple[str, str], list[Object]] = {}
        self._shared: dict[str, list[Object]] = {}
        self._incomplete: dict[tuple[str, str], str] = {}
        for (driver, pool), specs in sorted(pools.items()):
            newest = max(number(spec, "pool", "generation") for spec in specs)
            current = [spec for spec in specs if number(spec, "pool", "generation") == newest]
            expected = max(number(spec, "pool", "resourceSliceCount", default=1) for spec in current)
            for spec in current:
                self._add(driver, spec)
                if len(current) < expected and text(spec, "nodeName"):
                    message = f"{len(current)} of {expected} ResourceSlices of its pool {pool}"
                    self._incomplete[text(spec, "nodeName"), driver] = message

    def _add(self, driver: str, spec: Object) -> None:
        for device in entries(spec, "devices"):
            node = text(spec, "nodeName") or text(device, "nodeName")
            if node:
                self._devices.setdefault((node, driver), []).append(device)
            else:
                self._shared.setdefault(driver, []).append(device)

    def on(self, node: str, driver: str) -> list[Object]:
        return [*self._devices.get((node, driver), ()), *self._shared.get(driver, ())]

    def incomplete(self, node: str, driver: str) -> str:
        """How many slices the driver still has to publish, for which the scheduler waits; empty when it has all."""
        return self._incomplete.get((node, driver), "")


def _faults(promise: Promise, driver: str, published: Sequence[Object], incomplete: str) -> list[str]:
    """What a node lacks of one driver."""
    if not published:
        return [f"no ResourceSlice of driver {driver}: is the DRA driver running there?"]
    if incomplete:
        return [f"driver {driver} has published {incomplete}, and nothing is allocated until all are there"]
    wanted = promise.claimed(driver)
    offers = [_Offer(_taint(device), [_differences(kind, device) for kind in wanted]) for device in published]
    left = list(offers)
    found = []
    # The pickiest first: what it leaves suits others, not the reverse.
    for index in sorted(range(len(wanted)), key=lambda index: sum(not offer.wrong[index] for offer in offers)):
        suitable = [offer for offer in left if not offer.wrong[index] and not offer.taint][: wanted[index].count]
        left = [offer for offer in left if offer not in suitable]
        if len(suitable) < wanted[index].count:
            found.append((index, len(suitable)))
    return [
        message
        for index, there in sorted(found)
        for message in _shortage(promise, wanted[index], there, [(offer.taint, offer.wrong[index]) for offer in left])
    ]


@dataclass(frozen=True, eq=False)
class _Offer:
    """A published device: the taint that keeps claims away, and how it differs from each of the promised kinds."""

    taint: str
    wrong: Sequence[tuple[str, ...]]


def _shortage(promise: Promise, device: Device, there: int, left: Sequence[tuple[str, tuple[str, ...]]]) -> list[str]:
    """Why there are fewer of a promised kind: devices of the driver that nothing else of the class takes are other than
    promised, or tainted, or there are none."""
    what = f"class {promise.class_name} promises"
    unequal = sorted(wrong for taint, wrong in left if wrong and not taint)
    tainted = sorted(taint for taint, wrong in left if taint and not wrong)
    if unequal and not tainted and there + len(unequal) >= device.count:
        nearest = min(unequal, key=lambda wrong: (len(wrong), wrong))
        alike = unequal.count(nearest)
        of = "" if alike == device.count else f" (on {_count(alike, 'device')})"
        return [f"{what} {difference}{of}" for difference in nearest]
    message = f"{what} {_count(device.count, 'device')} of {device.driver}, the driver publishes {there}"
    if len(promise.claimed(device.driver)) > 1:
        message = (
            f"{what} {_count(device.count, 'device')} {device.name} of {device.driver}, the driver publishes {there}"
        )
    if tainted:
        message += f" and {len(tainted)} that may not be used: {listed(tainted)}"
    if unequal:
        message += f" and {len(unequal)} of another kind: its {'; its '.join(unequal[0])}"
    return [message]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _taint(device: Object) -> str:
    """The first taint that keeps claims away from a device, as people write it; empty when there is none."""
    for taint in entries(device, "taints"):
        if text(taint, "effect") in _EXCLUDING:
            value = f"={text(taint, 'value')}" if text(taint, "value") else ""
            return f"{text(taint, 'key')}{value}:{text(taint, 'effect')}"
    return ""


def _differences(promised: Device, published: Object) -> tuple[str, ...]:
    """What a published device has not as it was promised, each with both values; empty when it is as promised."""
    found = []
    attributes = _by_name(published, "attributes", promised.driver, promised.attributes)
    capacity = _by_name(published, "capacity", promised.driver, promised.capacity)
    offered = Device.from_wire({"driver": promised.driver, "attributes": attributes, "capacity": capacity})
    for key, value in sorted(promised.attributes.items()):
        # Kinds of attributes that are newer than this code cannot be compared.
        if key in attributes and key not in offered.attributes:
            continue
        there = offered.attributes.get(key)
        if type(there) is not type(value) or there != value:
            found.append(_difference("attribute", _short_name(key, promised.driver), value, there))
    for key, quantity in sorted(promised.capacity.items()):
        amount = offered.capacity.get(key)
        if key in capacity and amount is None:
            continue
        if amount is None or amount < quantity:
            found.append(_difference("capacity", _short_name(key, promised.driver), quantity, amount))
    return tuple(found)


def _by_name(device: Object, part: str, driver: str, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes or capacities of a published device that were promised, by full name."""
    found = {"/".join(split_name(str(name), driver)): value for name, value in fields(device, part).items()}
    return {name: value for name, value in found.items() if name in wanted}


def _difference(what: str, name: str, promised: object, there: object) -> str:
    published = f"publishes {_shown(there)}" if there is not None else "publishes none"
    return f"{what} {name} {_shown(promised)}, the driver {published}"


def _shown(value: object) -> str:
    return short_value(value if isinstance(value, (str, bool, int)) else str(value)).strip('"')


def _short_name(key: str, driver: str) -> str:
    """A full name as drivers write it: without their own domain."""
    return key.removeprefix(f"{driver}/")
