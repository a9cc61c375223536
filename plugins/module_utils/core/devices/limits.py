# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Limits of resource.k8s.io/v1, and the claims of a pod that needs more devices than one claim can have.

Each limit has the name of its constant in k8s.io/api/resource/v1/types.go (Kubernetes 1.36), where it is enforced by
pkg/apis/resource/validation/validation.go, and the limit on results also by
k8s.io/dynamic-resource-allocation/structured. A pod can have any number of claims (pkg/apis/core/validation).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

MAX_RESULTS = 32
"""AllocationResultsMaxSize: devices of a ResourceClaim."""
MAX_REQUESTS = MAX_RESULTS
"""DeviceRequestsMaxSize: requests of a ResourceClaim, and of a constraint."""
MAX_CONSTRAINTS = 32
"""DeviceConstraintsMaxSize: constraints of a ResourceClaim."""
MAX_SELECTORS = 32
"""DeviceSelectorsMaxSize: selectors of a request."""
MAX_EXPRESSION = 10 * 1024
"""CELSelectorExpressionMaxLength: bytes of a selector."""
MAX_COST = 1_000_000
"""CELSelectorExpressionMaxCost: estimated cost of a selector when it is written, and its cost on each device."""
MAX_ATTRIBUTES_AND_CAPACITIES = 32
"""ResourceSliceMaxAttributesAndCapacitiesPerDevice: attributes and capacities of a device together."""
MAX_ATTRIBUTE_VALUE = 64
"""DeviceAttributeMaxValueLength: bytes of a string or a version."""
MAX_ATTRIBUTE_VALUES = 48
"""ResourceSliceMaxAttributeValuesPerDevice: values of the lists of a device."""
MAX_DOMAIN = 63
"""DeviceMaxDomainLength: characters of the domain of an attribute or a capacity."""
MAX_ID = 32
"""DeviceMaxIDLength: characters of the name of an attribute or a capacity without its domain."""
MAX_DRIVER = 63
"""DriverNameMaxLength: characters of the name of a driver."""


class Part(NamedTuple):
    """Devices of a request that one claim has. `request`: position of the request."""

    request: int
    devices: int


def constrained(requests: Sequence[str], constraints: Iterable[Sequence[str]]) -> list[list[int]]:
    """Return the positions of requests that constraints join, directly or by others. They must be in one claim.

    requests: names. constraints: the names in each constraint, empty for all requests.
    """
    group = list(range(len(requests)))
    for names in constraints:
        covered = [at for at, name in enumerate(requests) if not names or name in names]
        joined = {group[at] for at in covered}
        group = [min(joined) if number in joined else number for number in group]
    return [[at for at, number in enumerate(group) if number == first] for first in dict.fromkeys(group)]


def oversized(requests: Sequence[tuple[str, int]], constraints: Sequence[Sequence[str]]) -> list[int]:
    """Return the positions of requests that constraints join and that need more devices than a claim can have; empty
    if the requests can be split.

    requests: names and counts. constraints: the names in each constraint, empty for all requests.
    """
    if sum(count for __, count in requests) <= MAX_RESULTS:
        return []
    for together in constrained([name for name, __ in requests], constraints):
        is_constrained = any(not names or requests[together[0]][0] in names for names in constraints)
        if is_constrained and sum(requests[at][1] for at in together) > MAX_RESULTS:
            return together
    return []


def split(requests: Sequence[tuple[str, int]], constraints: Sequence[Sequence[str]]) -> list[list[Part]]:
    """Return the claims of a pod. No claim has more devices than Kubernetes allows, unless a constraint joins them.

    A pod within the limit has one claim. Otherwise, each claim gets the next requests for which it has room, in their
    order. Only a request for more devices than a claim can have is divided.
    """
    if sum(count for __, count in requests) <= MAX_RESULTS:
        return [[Part(at, count) for at, (__, count) in enumerate(requests)]]
    claims: list[list[Part]] = []
    for parts in _parts(requests, constraints):
        needed = sum(part.devices for part in parts)
        room = (claim for claim in claims if sum(part.devices for part in claim) + needed <= MAX_RESULTS)
        claim = next(room, None)
        if claim is None:
            claims.append(parts)
        else:
            claim += parts
    return claims


def _parts(requests: Sequence[tuple[str, int]], constraints: Sequence[Sequence[str]]) -> Iterator[list[Part]]:
    """Yield the parts of requests that must be in one claim."""
    names = [name for name, __ in requests]
    for together in constrained(names, constraints):
        is_constrained = any(not covered or names[together[0]] in covered for covered in constraints)
        if is_constrained:
            yield [Part(at, requests[at][1]) for at in together]
            continue
        at, left = together[0], requests[together[0]][1]
        while left > 0:
            yield [Part(at, min(left, MAX_RESULTS))]
            left -= MAX_RESULTS
