# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Diff of the devices that an InferenceClass promises and those that its nodes publish in ResourceSlices.

The plan matches selectors with the devices of the class, the scheduler of the cluster with those that the driver
publishes (KEP-4381). When the driver publishes less, pods of placed replicas never start. Additional devices or
attributes and larger capacities are no mismatch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.devices.device import Device, split_name
from ansible_collections.modelplane.fleet.plugins.module_utils.core.text import listed, short_value
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object, entries, fields, number, text

_EXCLUDING = frozenset({"NoSchedule", "NoExecute"})
"""Effects of device taints that keep claims without tolerations away (KEP-5055)."""
DEVICE_KEY = ("driver", "pool", "device")
"""Fields that identify a device in a ResourceClaim and in a DeviceTaintRule."""


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
        """Return the devices of a driver that pods claim; Synthetic devices exist in the plan only."""
        return [device for device in self.devices if device.claim == "DRA" and device.driver == driver]

    @property
    def drivers(self) -> list[str]:
        return sorted({device.driver for device in self.devices if device.claim == "DRA"})

    @property
    def device_classes(self) -> list[str]:
        """DeviceClasses of the claims."""
        claimed = [device for device in self.devices if device.claim == "DRA"]
        return sorted({device.device_class_name for device in claimed if device.device_class_name})


@dataclass(frozen=True)
class Mismatch:
    """Mismatch of promised and published devices on nodes of a pool."""

    pool: str
    nodes: tuple[str, ...]
    message: str

    def __str__(self) -> str:
        noun = "node" if len(self.nodes) == 1 else "nodes"
        return f"pool {self.pool}, {noun} {listed(self.nodes)}: {self.message}"


@dataclass(frozen=True, eq=False)
class PublishedDevice:
    """Device of a ResourceSlice. `key`: driver, resource pool, and name. `taint`: the taint that excludes claims, as
    key=value:effect, "" without one."""

    key: tuple[str, str, str]
    value: Object
    taint: str

    def is_of(self, promised: Device) -> bool:
        """Return whether the device has all that an InferenceClass promises."""
        return not _differences(promised, self.value)


def mismatches(
    promises: Iterable[Promise], nodes: Mapping[str, Iterable[str]], published: PublishedDevices
) -> tuple[Mismatch, ...]:
    """Return all mismatches, sorted, with the nodes of equal mismatches grouped.

    `nodes` are the names of the Ready nodes by pool. Devices that are published for several nodes count for each of
    them.
    """
    found: dict[tuple[str, str], list[str]] = {}
    for promise in promises:
        for node in nodes.get(promise.pool, ()):
            for driver in promise.drivers:
                for message in _findings(
                    promise, driver, published.on(node, driver), published.incomplete(node, driver)
                ):
                    found.setdefault((promise.pool, message), []).append(node)
    return tuple(Mismatch(pool, tuple(sorted(names)), message) for (pool, message), names in sorted(found.items()))


class PublishedDevices:
    """Devices of ResourceSlices by node and driver; only the newest generation of each resource pool.

    `slices` are ResourceSlices and `rules` are DeviceTaintRules (wire format, resource.k8s.io/v1). The API server does
    not write the taint of a rule into the ResourceSlices (KEP-5055)."""

    def __init__(self, slices: Iterable[Object], rules: Iterable[Object] = ()) -> None:
        self._rules = [
            (fields(rule, "spec", "deviceSelector"), fields(rule, "spec", "taint"))
            for rule in rules
            if "deviceSelector" in fields(rule, "spec")
        ]
        pools: dict[tuple[str, str], list[Object]] = {}
        for entry in slices:
            spec = fields(entry, "spec")
            pools.setdefault((text(spec, "driver"), text(spec, "pool", "name")), []).append(spec)
        self._devices: dict[tuple[str, str], list[PublishedDevice]] = {}
        self._shared: dict[str, list[PublishedDevice]] = {}
        self._incomplete: dict[tuple[str, str], str] = {}
        for (driver, pool), specs in sorted(pools.items()):
            newest = max(number(spec, "pool", "generation") for spec in specs)
            current = [spec for spec in specs if number(spec, "pool", "generation") == newest]
            expected = max(number(spec, "pool", "resourceSliceCount", default=1) for spec in current)
            for spec in current:
                self._add(driver, pool, spec)
                if len(current) < expected and text(spec, "nodeName"):
                    message = f"{len(current)} of {expected} ResourceSlices of its pool {pool}"
                    self._incomplete[text(spec, "nodeName"), driver] = message

    def _add(self, driver: str, pool: str, spec: Object) -> None:
        for observed in entries(spec, "devices"):
            key = (driver, pool, text(observed, "name"))
            taints = [*entries(observed, "taints"), *self._taints_of_rules(key)]
            device = PublishedDevice(key, observed, _taint(taints))
            node = text(spec, "nodeName") or text(observed, "nodeName")
            if node:
                self._devices.setdefault((node, driver), []).append(device)
            else:
                self._shared.setdefault(driver, []).append(device)

    def _taints_of_rules(self, key: tuple[str, str, str]) -> Iterator[Object]:
        """Yield the taints of the rules that select a device. An empty selector selects all devices."""
        for selector, taint in self._rules:
            if all(text(selector, name) in ("", value) for name, value in zip(DEVICE_KEY, key, strict=True)):
                yield taint

    def on(self, node: str, driver: str) -> list[PublishedDevice]:
        """Return the devices of a driver on a node."""
        return [*self._devices.get((node, driver), ()), *self._shared.get(driver, ())]

    def incomplete(self, node: str, driver: str) -> str:
        """Return the number of published slices if the driver has not published all; "" when it has.

        The scheduler waits for all slices.
        """
        return self._incomplete.get((node, driver), "")


def _findings(promise: Promise, driver: str, published: Sequence[PublishedDevice], incomplete: str) -> list[str]:
    """Return the mismatches of a node for one driver."""
    if not published:
        return [f"no ResourceSlice of driver {driver}: is the DRA driver running there?"]
    if incomplete:
        return [f"driver {driver} has published {incomplete}, and nothing is allocated until it has published all"]
    promised = promise.claimed(driver)
    offers = [_Offer(device.taint, [_differences(kind, device.value) for kind in promised]) for device in published]
    left = list(offers)
    short = []
    # Kinds that the fewest devices match come first: the devices that they leave match other kinds, not the reverse.
    for index in sorted(range(len(promised)), key=lambda index: sum(not offer.wrong[index] for offer in offers)):
        suitable = [offer for offer in left if not offer.wrong[index] and not offer.taint][: promised[index].count]
        left = [offer for offer in left if offer not in suitable]
        if len(suitable) < promised[index].count:
            short.append((index, len(suitable)))
    return [
        message
        for index, count in sorted(short)
        for message in _shortage(promise, promised[index], count, [(offer.taint, offer.wrong[index]) for offer in left])
    ]


@dataclass(frozen=True, eq=False)
class _Offer:
    """Published device: the taint that excludes claims, and its differences from each of the promised kinds."""

    taint: str
    wrong: Sequence[tuple[str, ...]]


def _shortage(
    promise: Promise, device: Device, published: int, left: Sequence[tuple[str, tuple[str, ...]]]
) -> list[str]:
    """Return the reasons for missing devices of a promised kind: the remaining devices of the driver differ, are
    tainted, or there are none."""
    promises = f"class {promise.class_name} promises"
    unequal = sorted(wrong for taint, wrong in left if wrong and not taint)
    tainted = sorted(taint for taint, wrong in left if taint and not wrong)
    if unequal and not tainted and published + len(unequal) >= device.count:
        nearest = min(unequal, key=lambda wrong: (len(wrong), wrong))
        alike = unequal.count(nearest)
        of = "" if alike == device.count else f" (on {_count(alike, 'device')})"
        return [f"{promises} {difference}{of}" for difference in nearest]
    kind = f"{device.name} " if len(promise.claimed(device.driver)) > 1 else ""
    message = f"{promises} {_count(device.count, 'device')} {kind}of {device.driver}, the driver publishes {published}"
    if tainted:
        message += f" and {len(tainted)} with taints: {listed(tainted)}"
    if unequal:
        message += f" and {len(unequal)} of another kind: its {'; its '.join(unequal[0])}"
    return [message]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _taint(taints: Iterable[Object]) -> str:
    """Return the first taint that excludes claims, as key=value:effect; "" when there is none."""
    for taint in taints:
        if text(taint, "effect") in _EXCLUDING:
            value = f"={text(taint, 'value')}" if text(taint, "value") else ""
            return f"{text(taint, 'key')}{value}:{text(taint, 'effect')}"
    return ""


def _differences(promised: Device, published: Object) -> tuple[str, ...]:
    """Return the differences of a published device from the promise, each with both values."""
    found = []
    attributes = _by_name(published, "attributes", promised.driver, promised.attributes)
    capacity = _by_name(published, "capacity", promised.driver, promised.capacity)
    offered = Device.from_wire({"driver": promised.driver, "attributes": attributes, "capacity": capacity})
    for key, value in sorted(promised.attributes.items()):
        # Attribute types that are newer than this code cannot be compared.
        if key in attributes and key not in offered.attributes:
            continue
        published_value = offered.attributes.get(key)
        if type(published_value) is not type(value) or published_value != value:
            found.append(_difference("attribute", _short_name(key, promised.driver), value, published_value))
    for key, quantity in sorted(promised.capacity.items()):
        amount = offered.capacity.get(key)
        if key in capacity and amount is None:
            continue
        if amount is None or amount < quantity:
            found.append(_difference("capacity", _short_name(key, promised.driver), quantity, amount))
    return tuple(found)


def _by_name(device: Object, part: str, driver: str, promised: Mapping[str, Any]) -> dict[str, Any]:
    """Return the promised attributes or capacities of a published device by full name."""
    values = {"/".join(split_name(str(name), driver)): value for name, value in fields(device, part).items()}
    return {name: value for name, value in values.items() if name in promised}


def _difference(kind: str, name: str, promised: object, published: object) -> str:
    value = _shown(published) if published is not None else "none"
    return f"{kind} {name} {_shown(promised)}, the driver publishes {value}"


def _shown(value: object) -> str:
    return short_value(value if isinstance(value, (str, bool, int)) else str(value)).strip('"')


def _short_name(key: str, driver: str) -> str:
    """Return a full name without the domain of its driver, as drivers publish it."""
    return key.removeprefix(f"{driver}/")
