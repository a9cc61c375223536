# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Which devices of a node can serve the requests of one pod.

A request is served by one kind of device (an entry of the pool's InferenceClass), as the DeviceClass that its claim
names is taken from there. `DRA` devices are claimed and count against a node; `Synthetic` ones are only matched.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core.devices.device import Device
from ansible_collections.modelplane.fleet.plugins.module_utils.core.devices.selector import (
    SelectorError,
    compile_selector,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import Member, Request, Search

Vector = tuple[int, ...]

# A pod with 16 requests over 16 kinds of device has more assignments than anybody can look at; more alternatives than
# this never changed an answer in practice, and work stays bounded.
MAX_VECTORS = 16
MAX_STEPS = 2_000


@dataclass(frozen=True)
class Resolution:
    """One way in which a pool's node serves a pod.

    `device_classes`: per request the DeviceClass to claim through, None for a Synthetic device. `vectors`: the device
    counts a node may be charged with, one entry per device of the pool, in the order in which they are tried. Several
    vectors belong to one resolution when kinds of device share a DeviceClass: the claim is then the same.
    """

    device_classes: tuple[str | None, ...]
    vectors: tuple[Vector, ...]

    @property
    def claims(self) -> bool:
        return any(name is not None for name in self.device_classes)


class Matcher:
    """Resolves members against pools, each distinct pair once.

    Devices are told apart by the identity of the pool's tuple: pools of one InferenceClass share it, which makes a
    fleet of thousands of pools cost as much as its few classes.
    """

    def __init__(self, search: Search) -> None:
        self._search = search
        self._resolved: dict[tuple[tuple[Request, ...], int], tuple[Resolution, ...]] = {}
        self._candidates: dict[tuple[Request, int], tuple[int, ...]] = {}
        self._observed: dict[tuple[tuple[tuple[str, Request], ...], int], tuple[Vector, ...]] = {}
        # Keeps the tuples whose id() is a key above from being collected, and their id from being given away again.
        self._alive: dict[int, tuple[Device, ...]] = {}

    def resolve(self, requests: tuple[Request, ...], devices: tuple[Device, ...]) -> tuple[Resolution, ...]:
        """Every distinct resolution, the one that a first-fit choice gives first; empty when there is none."""
        key = (requests, id(devices))
        found = self._resolved.get(key)
        if found is None:
            self._alive[id(devices)] = devices
            found = self._resolved[key] = self._resolve(requests, devices)
        return found

    def candidates(self, request: Request, devices: tuple[Device, ...]) -> tuple[int, ...]:
        """Positions of the devices that satisfy all selectors of a request, whatever their count."""
        key = (request, id(devices))
        found = self._candidates.get(key)
        if found is None:
            self._alive[id(devices)] = devices
            selectors = [compile_selector(text) for text in request.selectors]
            found = self._candidates[key] = tuple(
                position
                for position, device in enumerate(devices)
                if not device.invalid and all(selector.evaluate(device).match for selector in selectors)
            )
        return found

    def observed(self, claimed: tuple[Mapping[str, Any], ...], devices: tuple[Device, ...]) -> tuple[Vector, ...]:
        """What a pod that already runs may take from a node, told from the `deviceRequests` of its ModelReplica.

        A selector that no longer fits (the class was edited) does not make the pod disappear: then its DeviceClass
        alone decides. A DeviceClass that no device of the pool has takes nothing.
        """
        entries = tuple(_claimed_request(entry) for entry in claimed)
        key = (entries, id(devices))
        found = self._observed.get(key)
        if found is None:
            self._alive[id(devices)] = devices
            found = self._observed[key] = _observed(entries, devices)
        return found

    def _resolve(self, requests: tuple[Request, ...], devices: tuple[Device, ...]) -> tuple[Resolution, ...]:
        choices = [self.candidates(request, devices) for request in requests]
        if self._search == "Greedy":
            first = _first_fit(requests, choices, devices)
            assignments: Iterator[tuple[int, ...]] = iter([] if first is None else [first])
        else:
            assignments = _assignments(requests, choices, devices)
        vectors: dict[tuple[str | None, ...], dict[Vector, None]] = {}
        for assignment in assignments:
            classes = tuple(
                devices[position].device_class_name or "" if devices[position].claim == "DRA" else None
                for position in assignment
            )
            vectors.setdefault(classes, {})[_vector(requests, assignment, devices)] = None
            if sum(map(len, vectors.values())) >= MAX_VECTORS:
                break
        return tuple(Resolution(classes, tuple(found)) for classes, found in vectors.items())


def _first_fit(
    requests: tuple[Request, ...], choices: list[tuple[int, ...]], devices: tuple[Device, ...]
) -> tuple[int, ...] | None:
    free = [device.count for device in devices]
    assignment = []
    for request, candidates in zip(requests, choices, strict=True):
        position = next((position for position in candidates if free[position] >= request.count), None)
        if position is None:
            return None
        free[position] -= request.count
        assignment.append(position)
    return tuple(assignment)


def _assignments(
    requests: tuple[Request, ...], choices: list[tuple[int, ...]], devices: tuple[Device, ...]
) -> Iterator[tuple[int, ...]]:
    """All assignments of requests to devices that one node can serve, in lexicographic order of the choices."""
    free = [device.count for device in devices]
    steps = 0

    def assign(request: int, chosen: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        nonlocal steps
        if request == len(requests):
            yield chosen
            return
        for position in choices[request]:
            steps += 1
            if steps > MAX_STEPS:
                return
            if free[position] >= requests[request].count:
                free[position] -= requests[request].count
                yield from assign(request + 1, (*chosen, position))
                free[position] += requests[request].count

    yield from assign(0, ())


def _vector(requests: tuple[Request, ...], assignment: tuple[int, ...], devices: tuple[Device, ...]) -> Vector:
    counts = [0] * len(devices)
    for request, position in zip(requests, assignment, strict=True):
        if devices[position].claim == "DRA":
            counts[position] += request.count
    return tuple(counts)


def device_requests(member: Member, resolution: Resolution) -> tuple[Mapping[str, Any], ...]:
    """The `deviceRequests` of a ModelReplica's member: what of the pod's requests is claimed through DRA."""
    return tuple(
        {
            "name": request.name,
            "deviceClassName": device_class,
            "count": request.count,
            "selectors": [{"cel": text} for text in request.selectors],
        }
        for request, device_class in zip(member.requests, resolution.device_classes, strict=True)
        if device_class is not None
    )


def _observed(entries: tuple[tuple[str, Request], ...], devices: tuple[Device, ...]) -> tuple[Vector, ...]:
    choices = []
    requests = []
    for device_class, request in entries:
        same_class = tuple(
            position
            for position, device in enumerate(devices)
            if device.claim == "DRA" and device.device_class_name == device_class
        )
        if same_class:
            matching = tuple(position for position in same_class if _satisfies(request, devices[position]))
            choices.append(matching or same_class)
            requests.append(request)
    vectors: dict[Vector, None] = {}
    for assignment in _assignments(tuple(requests), choices, devices):
        vectors[_vector(tuple(requests), assignment, devices)] = None
        if len(vectors) >= MAX_VECTORS:
            break
    if not vectors:
        vectors[_vector(tuple(requests), tuple(positions[0] for positions in choices), devices)] = None
    return tuple(vector for vector in vectors if any(vector))


def _claimed_request(entry: Mapping[str, Any]) -> tuple[str, Request]:
    """DeviceClass and request of one entry of a ModelReplica's `deviceRequests`."""
    selectors = tuple(str(selector["cel"]) for selector in entry.get("selectors") or () if selector.get("cel"))
    request = Request(str(entry.get("name", "")), int(entry.get("count", 1)), selectors)
    return str(entry.get("deviceClassName", "")), request


def _satisfies(request: Request, device: Device) -> bool:
    try:
        return all(compile_selector(text).evaluate(device).match for text in request.selectors)
    except SelectorError:
        return False
