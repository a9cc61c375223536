# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Matching of the requests of a pod and the devices of a node.

One kind of device (an entry of the pool's InferenceClass) serves a request, because its DeviceClass is the DeviceClass
of the claim. `DRA` devices are claimed and count against a node. `Synthetic` devices are only matched.

Devices of one kind have the attributes of their kind. Therefore, a constraint is met if all kinds that serve its
requests publish one value, and violated if the values differ. If the value differs from device to device, no kind
publishes the attribute, so the devices that belong together are unknown. A pod is then charged all devices of these
kinds on its node, so that no other pod can use the device that it needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..devices.device import Device
from ..devices.guard import guarded
from ..devices.limits import oversized
from ..devices.selector import SelectorError, compile_selector
from .image_needs import image_refusal
from .memory import holding
from .model import Constraint, Member, Pool, Request, Search
from .search_budget import Work
from .selector_budget import Evaluations

Vector = tuple[int, ...]
Kind = tuple[str, str]
"""Name of a kind of device, and the selector that separates it from other kinds of its DeviceClass."""

# A pod with 16 requests over 16 kinds of device has too many assignments to search. A result that needs more than these
# limits is undecided.
MAX_VECTORS = 64
MAX_STEPS = 20_000


@dataclass(frozen=True)
class Resolution:
    """One way to serve a pod on a node of a pool.

    device_classes: DeviceClass to claim for each request, None for a Synthetic device.
    vectors: alternative charges of a node, in order of preference: the number of devices, by device of the pool. If
        several kinds of device have one DeviceClass, several vectors have the same claim.
    unpublished: attributes of constraints without published values. Their devices are charged completely.
    kinds: kinds of device that claims of a running replica are limited to, by the name of the request.
    """

    device_classes: tuple[str | None, ...]
    vectors: tuple[Vector, ...]
    unpublished: tuple[str, ...] = ()
    kinds: tuple[tuple[str, Kind], ...] = ()

    @property
    def claims(self) -> bool:
        return any(name is not None for name in self.device_classes)


@dataclass(frozen=True)
class Way:
    """One way to allocate a claim.

    vector: devices that the claim uses on a node.
    kinds: position of the kind of device that serves each request.
    accepted: positions of all kinds that each request accepts.
    """

    vector: Vector
    kinds: tuple[int, ...]
    accepted: tuple[tuple[int, ...], ...]


# Requests and constraints of a pod, and the id() of the devices of a pool. Other properties do not affect the result.
_Question = tuple[tuple[Request, ...], tuple[Constraint, ...], int]


class Matcher:
    """Resolver of members on pools. Each distinct pair is resolved once.

    The id() of the tuple of a pool identifies its devices. Pools of one InferenceClass share the tuple, so a fleet of
    thousands of pools requires no more work than its few classes.
    """

    def __init__(self, search: Search, evaluations: Evaluations | None = None, work: Work | None = None) -> None:
        self._search = search
        self._evaluations = evaluations or Evaluations()
        self.work = work or Work()
        # Queries with more results than the limit.
        self._limited: set[_Question] = set()
        self._resolved: dict[_Question, tuple[Resolution, ...]] = {}
        self._claiming: dict[_Question, tuple[Resolution, ...]] = {}
        self._candidates: dict[tuple[Request, int], tuple[int, ...]] = {}
        self._failing: dict[tuple[Request, int], list[Device]] = {}
        self._failures: dict[tuple[Request, int], dict[str | None, str]] = {}
        self._observed: dict[tuple[object, int], tuple[Vector, ...]] = {}
        # References to the tuples with the id() of a key above. Without them another object could have the same id().
        self._alive: dict[int, tuple[Device, ...]] = {}

    def resolve(
        self, member: Member, devices: tuple[Device, ...], *, claiming: bool = False, running: bool = False
    ) -> tuple[Resolution, ...]:
        """Return all distinct resolutions, the first-fit resolution first.

        claiming: only resolutions that claim at least one device.
        running: also resolutions with a selector that fails on a device, because running pods keep their nodes.
        """
        resolutions = self._all(member, devices, claiming=claiming)
        if running or not resolutions or not any(self.failures(request, devices) for request in member.requests):
            return resolutions
        return tuple(
            resolution
            for resolution in resolutions
            if not any(
                name in self.failures(request, devices)
                for request, name in zip(member.requests, resolution.device_classes, strict=True)
            )
        )

    def _all(self, member: Member, devices: tuple[Device, ...], *, claiming: bool) -> tuple[Resolution, ...]:
        key = (member.requests, member.constraints, id(devices))
        cache = self._claiming if claiming else self._resolved
        resolutions = cache.get(key)
        if resolutions is None:
            self._alive[id(devices)] = devices
            if claiming:
                resolutions = tuple(
                    resolution for resolution in self._all(member, devices, claiming=False) if resolution.claims
                )
            else:
                resolutions, is_complete = self._resolve(member.requests, member.constraints, devices)
                if not is_complete:
                    self._limited.add(key)
            cache[key] = resolutions
        if key in self._limited:
            self.work.undecided += 1
        return resolutions

    def claimable(self, member: Member, pools: Sequence[Pool]) -> Iterator[Pool]:
        """Return the pools with a device that a pod of the member would claim."""
        return (pool for pool in pools if self.resolve(member, pool.devices, claiming=True))

    def candidates(self, request: Request, devices: tuple[Device, ...]) -> tuple[int, ...]:
        """Return the positions of the devices that satisfy all selectors of a request and that fit its model,
        regardless of their count."""
        key = (request, id(devices))
        candidates = self._candidates.get(key)
        if candidates is None:
            self._alive[id(devices)] = devices
            matching = []
            failing = self._failing.setdefault(key, [])
            for position, device in enumerate(devices):
                if device.invalid or image_refusal(request.image, device):
                    continue
                mismatch = self._evaluations.first_mismatch(request.selectors, device)
                if mismatch is None:
                    matching.append(position)
                elif mismatch[1].error and device.claim == "DRA":
                    failing.append(device)
            candidates = self._candidates[key] = holding(request.memory, devices, tuple(matching))
        return candidates

    def failures(self, request: Request, devices: tuple[Device, ...]) -> Mapping[str | None, str]:
        """Return the DeviceClasses that cannot allocate a claim of a request, with the reason: a selector fails on a
        device of the class even if it tests for attributes and capacities."""
        key = (request, id(devices))
        failures = self._failures.get(key)
        if failures is None:
            failures = self._failures[key] = {}
            classes = {devices[position].device_class_name for position in self.candidates(request, devices)}
            # A DeviceClass without a candidate is not claimed.
            failing = [device for device in self._failing[key] if device.device_class_name in classes]
            selectors = [guarded(text) for text in request.selectors] if failing else []
            for device in failing:
                mismatch = self._evaluations.first_mismatch(selectors, device)
                if mismatch and mismatch[1].error:
                    reason = f"device {device.name}: {mismatch[1].error} in `{mismatch[0]}`"
                    failures.setdefault(device.device_class_name, reason)
        return failures

    def needs_guard(self, claimed: Mapping[str, Any], devices: tuple[Device, ...]) -> bool:
        """Return True if a selector of a claim fails on a device that kube-scheduler might evaluate: a device of the
        DeviceClass or of the same driver, because DeviceClasses can overlap. Raises SelectorError."""
        device_class, request = _claimed_request(claimed)
        self.candidates(request, devices)
        drivers = {
            device.driver for device in devices if device.claim == "DRA" and device.device_class_name == device_class
        }
        return any(device.driver in drivers for device in self._failing[request, id(devices)])

    def observed(
        self,
        claimed: tuple[Mapping[str, Any], ...],
        constraints: tuple[Mapping[str, Any], ...],
        devices: tuple[Device, ...],
    ) -> tuple[Vector, ...]:
        """Return the alternative charges of a running pod on a node, from the `deviceRequests` and `deviceConstraints`
        of its ModelReplica.

        If no device satisfies a selector because the class was edited, all devices of the DeviceClass count as
        accepted. A DeviceClass without devices in the pool is not charged.
        """
        entries = tuple(_claimed_request(entry) for entry in claimed)
        bound = tuple(_claimed_constraint(entry) for entry in constraints)
        key = ((entries, bound), id(devices))
        vectors = self._observed.get(key)
        if vectors is None:
            self._alive[id(devices)] = devices
            vectors = self._observed[key] = self._observe(entries, bound, devices)
        return vectors

    def ways(
        self,
        claimed: tuple[Mapping[str, Any], ...],
        constraints: tuple[Mapping[str, Any], ...],
        devices: tuple[Device, ...],
    ) -> tuple[Way, ...]:
        """Return the ways to allocate the claim of a pod on a node with these devices, with one kind of device for each
        request. The first choice comes first."""
        requests = tuple(_claimed_request(entry)[1] for entry in claimed)
        accepted = self.accepted(claimed, devices)
        node = _Node(requests, tuple(map(_claimed_constraint, constraints)), devices)
        allocations: dict[Vector, Way] = {}
        for assignment in _assignments(node, list(accepted))[0]:
            vector = node.vector(assignment)
            allocations.setdefault(vector, Way(vector, assignment, accepted))
        return tuple(allocations[vector] for vector in _least(allocations)[:MAX_VECTORS])

    def accepted(
        self, claimed: tuple[Mapping[str, Any], ...], devices: tuple[Device, ...]
    ) -> tuple[tuple[int, ...], ...]:
        """Return the positions of the kinds of device that each request of a claim accepts. Raises SelectorError."""
        return tuple(
            tuple(
                position
                for position in self.candidates(request, devices)
                if devices[position].claim == "DRA" and devices[position].device_class_name == device_class
            )
            for device_class, request in map(_claimed_request, claimed)
        )

    def narrowed(
        self, member: Member, resolution: Resolution, kinds: Mapping[str, Kind], devices: tuple[Device, ...]
    ) -> Resolution:
        """Return a resolution for a running pod with a claim that is limited to these kinds of device, by request.
        Return `resolution` if the pool no longer has the kinds."""
        requests = tuple(
            replace(request, selectors=(*request.selectors, kinds[request.name][1]))
            if request.name in kinds
            else request
            for request in member.requests
        )
        try:
            for __, selector in kinds.values():
                compile_selector(selector)
        except SelectorError:
            return resolution
        alike = self.resolve(replace(member, requests=requests), devices, running=True)
        narrowed_resolution = next(
            (candidate for candidate in alike if candidate.device_classes == resolution.device_classes), None
        )
        return replace(narrowed_resolution, kinds=tuple(kinds.items())) if narrowed_resolution else resolution

    def _resolve(
        self, requests: tuple[Request, ...], constraints: tuple[Constraint, ...], devices: tuple[Device, ...]
    ) -> tuple[tuple[Resolution, ...], bool]:
        """Return the resolutions, and True if they are complete."""
        choices = [self.candidates(request, devices) for request in requests]
        node = _Node(requests, constraints, devices)
        if self._search == "Greedy":
            greedy_assignment = _first_fit(node, choices)
            assignments, complete = [] if greedy_assignment is None else [greedy_assignment], True
        else:
            assignments, complete = _assignments(node, choices)
        vectors: dict[tuple[str | None, ...], dict[Vector, None]] = {}
        unpublished: dict[tuple[str | None, ...], dict[str, None]] = {}
        for assignment in assignments:
            if node.is_oversized(assignment):
                continue
            classes = tuple(
                devices[position].device_class_name or "" if devices[position].claim == "DRA" else None
                for position in assignment
            )
            vectors.setdefault(classes, {})[node.vector(assignment)] = None
            if constraints:
                unpublished.setdefault(classes, {}).update(dict.fromkeys(node.unpublished(assignment)))
        minimal_vectors = {classes: _least(class_vectors) for classes, class_vectors in vectors.items()}
        resolutions = tuple(
            Resolution(classes, class_vectors[:MAX_VECTORS], tuple(unpublished.get(classes, ())))
            for classes, class_vectors in minimal_vectors.items()
        )
        return resolutions[:MAX_VECTORS], complete and max(
            len(resolutions), *map(len, minimal_vectors.values()), 0
        ) <= MAX_VECTORS

    def _observe(
        self,
        entries: tuple[tuple[str, Request], ...],
        constraints: tuple[Constraint, ...],
        devices: tuple[Device, ...],
    ) -> tuple[Vector, ...]:
        choices = []
        requests = []
        for device_class, request in entries:
            same_class = tuple(
                position
                for position, device in enumerate(devices)
                if device.claim == "DRA" and device.device_class_name == device_class
            )
            if same_class:
                matching = tuple(position for position in same_class if self._satisfies(request, devices[position]))
                choices.append(matching or same_class)
                requests.append(request)
        node = _Node(tuple(requests), constraints, devices)
        assignments, __ = _assignments(node, choices)
        vectors = _least(node.vector(assignment) for assignment in assignments)[:MAX_VECTORS]
        if not vectors:
            vectors = (node.vector(tuple(positions[0] for positions in choices)),)
        return tuple(vector for vector in vectors if any(vector))

    def _satisfies(self, request: Request, device: Device) -> bool:
        try:
            return all(self._evaluations.matches(text, device) for text in request.selectors)
        except SelectorError:
            return False


class _Node:
    """Node to serve the requests of one pod, with the effect of the constraints on its devices.

    An assignment has a position among `devices` for each of `requests`.
    """

    def __init__(
        self, requests: tuple[Request, ...], constraints: tuple[Constraint, ...], devices: tuple[Device, ...]
    ) -> None:
        self.requests = requests
        self.devices = devices
        self._constraints = constraints
        self._of = [
            tuple(number for number, constraint in enumerate(constraints) if constraint.covers(request.name))
            for request in requests
        ]
        self._values = [[published(device, constraint) for device in devices] for constraint in constraints]

    def allows(self, chosen: tuple[int, ...], position: int) -> bool:
        """Return True if the device at `position` can serve the next request in addition to the chosen devices."""
        if not self._constraints or self.devices[position].claim != "DRA":
            return True
        return all(
            self._values[number][earlier] == self._values[number][position]
            for number in self._of[len(chosen)]
            for request, earlier in enumerate(chosen)
            if number in self._of[request] and self.devices[earlier].claim == "DRA"
        )

    def is_oversized(self, assignment: tuple[int, ...]) -> bool:
        """Return True if constraints join more claimed devices than the maximum of one claim."""
        claimed = [
            (request.name, request.count)
            for request, position in zip(self.requests, assignment, strict=True)
            if self.devices[position].claim == "DRA"
        ]
        return bool(oversized(claimed, [constraint.requests for constraint in self._constraints]))

    def vector(self, assignment: tuple[int, ...]) -> Vector:
        """Return the charge of a node, by device."""
        counts = [0] * len(self.devices)
        for request, position in zip(self.requests, assignment, strict=True):
            if self.devices[position].claim == "DRA":
                counts[position] += request.count
        for __, positions in self._whole(assignment) if self._constraints else ():
            for position in positions:
                counts[position] = max(counts[position], self.devices[position].count)
        return tuple(counts)

    def unpublished(self, assignment: tuple[int, ...]) -> tuple[str, ...]:
        """Return the attributes of constraints that the devices of an assignment do not publish."""
        return tuple(attribute for attribute, __ in self._whole(assignment))

    def _whole(self, assignment: tuple[int, ...]) -> list[tuple[str, list[int]]]:
        """Return (attribute, positions) of every constraint on several devices without a published value."""
        unpublished = []
        for number, constraint in enumerate(self._constraints):
            covered = [
                (position, request.count)
                for request, position in zip(self.requests, assignment, strict=True)
                if constraint.covers(request.name) and self.devices[position].claim == "DRA"
            ]
            positions = [position for position, __ in covered if self._values[number][position] is None]
            if positions and sum(count for __, count in covered) > 1:
                unpublished.append((constraint.match_attribute, positions))
        return unpublished


def published(device: Device, constraint: Constraint) -> tuple[str, str] | None:
    """Return the type and value that a kind of device publishes for the attribute of a constraint, None without one."""
    value = device.attributes.get(constraint.match_attribute)
    return None if value is None else (type(value).__name__, str(value))


def _first_fit(node: _Node, choices: list[tuple[int, ...]]) -> tuple[int, ...] | None:
    free = [device.count for device in node.devices]
    assignment: tuple[int, ...] = ()
    for request, candidates in zip(node.requests, choices, strict=True):
        fitting = (
            position for position in candidates if free[position] >= request.count and node.allows(assignment, position)
        )
        position = next(fitting, None)
        if position is None:
            return None
        free[position] -= request.count
        assignment = (*assignment, position)
    return assignment


def _assignments(node: _Node, choices: list[tuple[int, ...]]) -> tuple[list[tuple[int, ...]], bool]:
    """Return the assignments of requests to devices that one node can serve, and True if they are complete. They are in
    lexicographic order of the choices."""
    free = [device.count for device in node.devices]
    requests = node.requests
    assignments: list[tuple[int, ...]] = []
    steps = 0

    def assign(request: int, chosen: tuple[int, ...]) -> None:
        nonlocal steps
        if request == len(requests):
            assignments.append(chosen)
            return
        for position in choices[request]:
            steps += 1
            if steps > MAX_STEPS:
                return
            if free[position] >= requests[request].count and node.allows(chosen, position):
                free[position] -= requests[request].count
                assign(request + 1, (*chosen, position))
                free[position] += requests[request].count

    assign(0, ())
    return assignments, steps <= MAX_STEPS


def _least(vectors: Iterable[Vector]) -> tuple[Vector, ...]:
    """Return the vectors in order, without vectors that need at least as much as another vector."""
    minimal: list[Vector] = []
    for vector in vectors:
        if any(_covers(vector, candidate) for candidate in minimal):
            continue
        minimal = [candidate for candidate in minimal if not _covers(candidate, vector)]
        minimal.append(vector)
    return tuple(minimal)


def _covers(larger: Vector, smaller: Vector) -> bool:
    return all(have >= need for have, need in zip(larger, smaller, strict=True))


def device_requests(member: Member, resolution: Resolution) -> tuple[Mapping[str, Any], ...]:
    """Return the `deviceRequests` of the member of a ModelReplica: the requests of a pod that it claims through DRA."""
    kinds = dict(resolution.kinds)
    return tuple(
        with_kind(
            {
                "name": request.name,
                "deviceClassName": device_class,
                "count": request.count,
                "selectors": [{"cel": text} for text in request.selectors],
            },
            kinds.get(request.name),
        )
        for request, device_class in zip(member.requests, resolution.device_classes, strict=True)
        if device_class is not None
    )


def with_kind(entry: Mapping[str, Any], kind: Kind | None) -> Mapping[str, Any]:
    """Return an entry of `deviceRequests` that accepts only one kind of device. Unchanged without a kind."""
    if kind is None:
        return entry
    name, selector = kind
    return {**entry, "device": name, "selectors": [*entry["selectors"], {"cel": selector}]}


def kinds_of(claimed: Iterable[Mapping[str, Any]], requests: Iterable[Request]) -> dict[str, Kind]:
    """Return the kinds of device that entries of `deviceRequests` are limited to, by request.

    An entry is not limited if the selectors of its request changed, because the request can then accept other kinds.
    """
    selectors = {request.name: list(request.selectors) for request in requests}
    return {
        str(entry["name"]): (str(entry["device"]), str(entry["selectors"][-1].get("cel", "")))
        for entry in claimed
        if entry.get("device") and entry.get("selectors") and request_selectors(entry) == selectors.get(entry["name"])
    }


def request_selectors(entry: Mapping[str, Any]) -> list[str]:
    """Return the selectors of an entry of `deviceRequests`, without the selector of its kind."""
    selectors = [str(selector.get("cel", "")) for selector in entry.get("selectors") or ()]
    return selectors[:-1] if entry.get("device") else selectors


def device_constraints(member: Member, resolution: Resolution) -> tuple[Mapping[str, Any], ...]:
    """Return the `deviceConstraints` of the member of a ModelReplica: the constraints on its claimed requests.

    A constraint on only unclaimed requests is excluded, because without names it would apply to all requests.
    """
    claimed = {entry["name"] for entry in device_requests(member, resolution)}
    constraints: list[Mapping[str, Any]] = []
    for constraint in member.constraints:
        request_names = [name for name in constraint.requests if name in claimed]
        if request_names:
            constraints.append({"requests": request_names, "matchAttribute": constraint.match_attribute})
        elif claimed and not constraint.requests:
            constraints.append({"matchAttribute": constraint.match_attribute})
    return tuple(constraints)


def _claimed_request(entry: Mapping[str, Any]) -> tuple[str, Request]:
    """Return the DeviceClass and the request of an entry of `deviceRequests` of a ModelReplica."""
    selectors = tuple(str(selector["cel"]) for selector in entry.get("selectors") or () if selector.get("cel"))
    request = Request(str(entry.get("name", "")), int(entry.get("count", 1)), selectors)
    return str(entry.get("deviceClassName", "")), request


def _claimed_constraint(entry: Mapping[str, Any]) -> Constraint:
    """Return the constraint of an entry of `deviceConstraints` of a ModelReplica."""
    return Constraint(str(entry.get("matchAttribute", "")), tuple(map(str, entry.get("requests") or ())))
