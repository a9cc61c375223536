# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Diff of the devices that an InferenceClass promises and the devices that its nodes publish in ResourceSlices.

The plan matches selectors with the devices of the class. The scheduler of the cluster matches them with the devices of
the driver (KEP-4381). If the driver publishes less, pods of placed replicas never start. Additional devices or
attributes, and larger capacities, are not a mismatch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from .. import api
from ..devices.device import Device, split_name
from ..text import listed, short_value
from ..wire import Object, entries, fields, number, text
from .node_selectors import selects

_EXCLUDING = frozenset({"NoSchedule", "NoExecute"})
"""Effects of device taints that keep claims without tolerations away (KEP-5055)."""
DEVICE_KEY = ("driver", "pool", "device")
"""Fields that identify a device in a ResourceClaim and in a DeviceTaintRule."""
DeviceKey = tuple[str, str, str]
"""Driver, resource pool, and name of a device."""


@dataclass(frozen=True)
class Promise:
    """Expected devices on the nodes of a pool, from the InferenceClass of the pool."""

    pool: str
    class_name: str
    devices: tuple[Device, ...]

    @classmethod
    def of(cls, pool: str, inference_class: api.InferenceClass) -> Promise:
        """Return the promise of an InferenceClass."""
        devices = tuple(Device.from_wire(api.wire(device)) for device in inference_class.spec.devices)
        return cls(pool, inference_class.name, devices)

    def claimed(self, driver: str) -> list[Device]:
        """Return the devices of a driver that pods claim. Synthetic devices exist only in the plan."""
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
    """Device of a ResourceSlice."""

    key: DeviceKey
    """Driver, resource pool, and name."""
    value: Object
    taint: str = ""
    """Taint that excludes claims, as key=value:effect, "" without one."""
    pool_defect: str = ""
    """Reason for an unusable resource pool that Kubernetes does not allocate, "" for a valid pool."""

    @property
    def is_allocatable(self) -> bool:
        """Return True if a new claim can allocate the device."""
        return not (self.taint or self.pool_defect)

    def is_of(self, promised: Device) -> bool:
        """Return True if the device has all properties that an InferenceClass promises."""
        return not _differences(promised, self.value)


def mismatches(
    promises: Sequence[Promise], nodes: Mapping[str, Sequence[Object]], published: PublishedDevices
) -> tuple[Mismatch, ...]:
    """Return all mismatches, sorted, with the nodes of equal mismatches grouped.

    `nodes` are the Ready Nodes by pool.
    """
    node_names: dict[tuple[str, str], list[str]] = {}
    devices = published.by_node(promises, nodes)
    for promise in promises:
        for node in (text(node, "metadata", "name") for node in nodes.get(promise.pool, ())):
            for driver in promise.drivers:
                on_node = devices.get((node, driver), ())
                for message in _findings(promise, driver, on_node, is_shared=published.is_shared(driver)):
                    node_names.setdefault((promise.pool, message), []).append(node)
    return tuple(Mismatch(pool, tuple(sorted(names)), message) for (pool, message), names in sorted(node_names.items()))


@dataclass(frozen=True)
class _SharedDevice:
    """Device that several nodes can use. `target`: the ResourceSlice or the device that selects the nodes."""

    device: PublishedDevice
    target: Object

    def is_for(self, node: Object) -> bool:
        return self.target.get("allNodes") is True or selects(fields(self.target, "nodeSelector"), node)


class PublishedDevices:
    """Devices of ResourceSlices by node and driver, only of the newest generation of each resource pool.

    `slices`: ResourceSlices. `rules`: DeviceTaintRules (wire format, resource.k8s.io/v1). The API server does not write
    the taint of a rule into the ResourceSlices (KEP-5055)."""

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
        self._shared: dict[str, list[_SharedDevice]] = {}
        for (driver, pool), specs in sorted(pools.items()):
            newest = max(number(spec, "pool", "generation") for spec in specs)
            current = [spec for spec in specs if number(spec, "pool", "generation") == newest]
            devices = [(observed, spec) for spec in current for observed in entries(spec, "devices")]
            counts = Counter(text(observed, "name") for observed, __ in devices)
            defect = _pool_defect(pool, current, counts)
            for observed, spec in devices:
                # A device that is published twice is one device.
                if counts.pop(text(observed, "name"), 0):
                    self._add((driver, pool, text(observed, "name")), observed, spec, defect)

    def _add(self, key: DeviceKey, observed: Object, spec: Object, defect: str) -> None:
        taints = [*entries(observed, "taints"), *self._taints_of_rules(key)]
        device = PublishedDevice(key, observed, _taint(taints), defect)
        target = observed if spec.get("perDeviceNodeSelection") is True else spec
        node = text(target, "nodeName")
        if node:
            self._devices.setdefault((node, key[0]), []).append(device)
        else:
            self._shared.setdefault(key[0], []).append(_SharedDevice(device, target))

    def _taints_of_rules(self, key: DeviceKey) -> Iterator[Object]:
        """Yield the taints of the rules that select a device. An empty selector selects all devices."""
        for selector, taint in self._rules:
            if all(text(selector, name) in ("", value) for name, value in zip(DEVICE_KEY, key, strict=True)):
                yield taint

    @property
    def taints(self) -> dict[DeviceKey, str]:
        """Return the devices with a taint that excludes claims, each with its taint."""
        shared = [entry.device for entries_of_driver in self._shared.values() for entry in entries_of_driver]
        devices = [device for on_node in self._devices.values() for device in on_node]
        return {device.key: device.taint for device in (*devices, *shared) if device.taint}

    def is_shared(self, driver: str) -> bool:
        """Return True if a driver publishes devices that several nodes can use."""
        return driver in self._shared

    def by_node(
        self,
        promises: Sequence[Promise],
        nodes: Mapping[str, Iterable[Object]],
        in_use: Mapping[DeviceKey, str] = MappingProxyType({}),
    ) -> dict[tuple[str, str], list[PublishedDevice]]:
        """Return the devices of each node, by node name and driver.

        A device that several nodes can use counts on one node: the node of its ResourceClaim (`in_use`), or one of
        `nodes` (by pool) with fewer devices than the InferenceClass promises.
        """
        devices = {key: list(published) for key, published in self._devices.items()}
        for driver, shared in sorted(self._shared.items()):
            free = []
            for entry in shared:
                if entry.device.key in in_use:
                    devices.setdefault((in_use[entry.device.key], driver), []).append(entry.device)
                else:
                    free.append(entry)
            _share(free, _vacancies(promises, nodes, driver, devices), devices)
        return devices


@dataclass
class _Vacancy:
    """Number of promised devices of a driver that a node lacks."""

    node: Object
    key: tuple[str, str]
    lacking: int


def _vacancies(
    promises: Iterable[Promise],
    nodes: Mapping[str, Iterable[Object]],
    driver: str,
    devices: Mapping[tuple[str, str], Sequence[PublishedDevice]],
) -> list[_Vacancy]:
    vacancies = []
    for promise in promises:
        promised = sum(device.count for device in promise.claimed(driver))
        for node in sorted(nodes.get(promise.pool, ()), key=lambda node: text(node, "metadata", "name")):
            key = (text(node, "metadata", "name"), driver)
            vacancies.append(_Vacancy(node, key, promised - len(devices.get(key, ()))))
    return [vacancy for vacancy in vacancies if vacancy.lacking > 0]


def _share(
    shared: Iterable[_SharedDevice],
    vacancies: Sequence[_Vacancy],
    devices: dict[tuple[str, str], list[PublishedDevice]],
) -> None:
    """Add each device to one node.

    Devices that the fewest nodes can use have priority. Devices that no new claim can have are last."""
    candidates = [(entry, [vacancy for vacancy in vacancies if entry.is_for(vacancy.node)]) for entry in shared]
    candidates.sort(key=lambda item: (not item[0].device.is_allocatable, len(item[1]), item[0].device.key))
    for entry, usable in candidates:
        vacancy = next((vacancy for vacancy in usable if vacancy.lacking > 0), None)
        if vacancy:
            vacancy.lacking -= 1
            devices.setdefault(vacancy.key, []).append(entry.device)


def _pool_defect(pool: str, specs: Sequence[Object], devices: Mapping[str, int]) -> str:
    """Return the reason why Kubernetes allocates no device of a resource pool: ResourceSlices are missing, or device
    names are not unique. Return "" for a valid pool. `devices`: number of devices by name."""
    expected = max(number(spec, "pool", "resourceSliceCount", default=1) for spec in specs)
    if len(specs) != expected:
        return f"{len(specs)} of {expected} ResourceSlices of its pool {pool}"
    name, highest_count = min(devices.items(), key=lambda item: (-item[1], item[0]), default=("", 0))
    return f"{highest_count} devices with the name {name} in its pool {pool}" if highest_count > 1 else ""


def _findings(promise: Promise, driver: str, published: Sequence[PublishedDevice], *, is_shared: bool) -> list[str]:
    """Return the mismatches of a node for one driver."""
    if not published and not is_shared:
        return [f"no ResourceSlice of driver {driver}: is the DRA driver running there?"]
    promised = promise.claimed(driver)
    defect = next((device.pool_defect for device in published if device.pool_defect), "")
    published = [device for device in published if not device.pool_defect]
    offers = [_Offer(device.taint, [_differences(kind, device.value) for kind in promised]) for device in published]
    remaining_offers = list(offers)
    short = []
    # Kinds with the fewest matching devices have priority, because the remaining devices match other kinds.
    for index in sorted(range(len(promised)), key=lambda index: sum(not offer.wrong[index] for offer in offers)):
        suitable = [offer for offer in remaining_offers if not offer.wrong[index] and not offer.taint][
            : promised[index].count
        ]
        remaining_offers = [offer for offer in remaining_offers if offer not in suitable]
        if len(suitable) < promised[index].count:
            short.append((index, len(suitable)))
    if short and defect:
        return [f"driver {driver} has published {defect}, so Kubernetes allocates no device of this pool"]
    return [
        message
        for index, count in sorted(short)
        for message in _shortage(
            promise, promised[index], count, [(offer.taint, offer.wrong[index]) for offer in remaining_offers]
        )
    ]


@dataclass(frozen=True, eq=False)
class _Offer:
    """Published device: the taint that excludes claims, and its differences from each of the promised kinds."""

    taint: str
    wrong: Sequence[tuple[str, ...]]


def _shortage(
    promise: Promise, device: Device, published: int, remaining_devices: Sequence[tuple[str, tuple[str, ...]]]
) -> list[str]:
    """Return the reasons for missing devices of a promised kind.

    The remaining devices of the driver differ or have taints, or the driver has no remaining devices."""
    promises = f"class {promise.class_name} promises"
    unequal = sorted(wrong for taint, wrong in remaining_devices if wrong and not taint)
    tainted = sorted(taint for taint, wrong in remaining_devices if taint and not wrong)
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
    """Return the first taint that excludes claims, as key=value:effect, or "" without one."""
    for taint in taints:
        if text(taint, "effect") in _EXCLUDING:
            value = f"={text(taint, 'value')}" if text(taint, "value") else ""
            return f"{text(taint, 'key')}{value}:{text(taint, 'effect')}"
    return ""


def _differences(promised: Device, published: Object) -> tuple[str, ...]:
    """Return the differences of a published device from the promise, each with both values."""
    differences = []
    attributes = _by_name(published, "attributes", promised.driver, promised.attributes)
    capacity = _by_name(published, "capacity", promised.driver, promised.capacity)
    offered = Device.from_wire({"driver": promised.driver, "attributes": attributes, "capacity": capacity})
    for key, value in sorted(promised.attributes.items()):
        # Attribute types that are newer than this code cannot be compared.
        if key in attributes and key not in offered.attributes:
            continue
        published_value = offered.attributes.get(key)
        if type(published_value) is not type(value) or published_value != value:
            differences.append(_difference("attribute", _short_name(key, promised.driver), value, published_value))
    for key, quantity in sorted(promised.capacity.items()):
        amount = offered.capacity.get(key)
        if key in capacity and amount is None:
            continue
        if amount is None or amount < quantity:
            differences.append(_difference("capacity", _short_name(key, promised.driver), quantity, amount))
    return tuple(differences)


def _by_name(device: Object, field: str, driver: str, promised: Mapping[str, Any]) -> dict[str, Any]:
    """Return the promised attributes or capacities of a published device by full name."""
    values = {"/".join(split_name(str(name), driver)): value for name, value in fields(device, field).items()}
    return {name: value for name, value in values.items() if name in promised}


def _difference(kind: str, name: str, promised: object, published: object) -> str:
    value = _shown(published) if published is not None else "none"
    return f"{kind} {name} {_shown(promised)}, the driver publishes {value}"


def _shown(value: object) -> str:
    return short_value(value if isinstance(value, (str, bool, int)) else str(value)).strip('"')


def _short_name(key: str, driver: str) -> str:
    """Return a full name without the domain of its driver, the form in which drivers publish it."""
    return key.removeprefix(f"{driver}/")
