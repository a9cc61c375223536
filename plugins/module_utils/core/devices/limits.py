# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Limits of resource.k8s.io/v1, and the claims of a pod that needs more devices than one claim can have.

Each limit has the name of its constant in k8s.io/api/resource/v1/types.go (Kubernetes 1.36). The API server enforces
the limits (pkg/apis/resource/validation/validation.go), and kube-scheduler also enforces the limit on results
(k8s.io/dynamic-resource-allocation/structured). A pod can have any number of claims (pkg/apis/core/validation).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

MAX_RESULTS = 32
"""AllocationResultsMaxSize: devices of a ResourceClaim."""
MAX_EXPRESSION = 10 * 1024
"""CELSelectorExpressionMaxLength: bytes of a selector."""
MAX_COST = 1_000_000
"""CELSelectorExpressionMaxCost: estimated cost of a selector when it is written, and its cost on each device."""
MAX_ATTRIBUTES_AND_CAPACITIES = 32
"""ResourceSliceMaxAttributesAndCapacitiesPerDevice: attributes and capacities of a device together."""
MAX_ATTRIBUTE_VALUE = 64
"""DeviceAttributeMaxValueLength: bytes of a string or a version."""
MAX_DOMAIN = 63
"""DeviceMaxDomainLength: characters of the domain of an attribute or a capacity."""
MAX_ID = 32
"""DeviceMaxIDLength: characters of the name of an attribute or a capacity without its domain."""
MAX_DRIVER = 63
"""DriverNameMaxLength: characters of a driver name."""

Counts = Sequence[tuple[str, int]]
"""Names and counts of the requests of a pod."""
Constraints = Sequence[Sequence[str]]
"""Request names in each constraint. A constraint without names applies to all requests."""


class Part(NamedTuple):
    """Devices of a request in a claim."""

    request: int
    """Position of the request."""
    devices: int


def joined_requests(names: Sequence[str], constraints: Iterable[Sequence[str]]) -> list[list[int]]:
    """Return the positions of requests that must be in one claim, because a constraint applies to all of them, or to
    some of them and to a request of another constraint."""
    groups: list[list[int]] = []
    for covered_names in constraints:
        group = {position for position, name in enumerate(names) if not covered_names or name in covered_names}
        overlapping = [earlier_group for earlier_group in groups if group.intersection(earlier_group)]
        groups = [earlier_group for earlier_group in groups if earlier_group not in overlapping]
        if group:
            groups.append(sorted(group.union(*overlapping)))
    return sorted(groups)


def oversized(requests: Counts, constraints: Constraints) -> list[int]:
    """Return the positions of joined requests that need more devices than a claim can have, empty without any."""
    for group in joined_requests([name for name, __ in requests], constraints):
        if sum(requests[position][1] for position in group) > MAX_RESULTS:
            return group
    return []


def split(requests: Counts, constraints: Constraints) -> list[list[Part]]:
    """Return the claims of a pod. No claim has more devices than Kubernetes allows, unless a constraint joins them.

    A pod within the limit has one claim. Otherwise, each claim has the next requests that still fit, in their
    order. Only a request for more devices than a claim can have is divided.
    """
    if sum(count for __, count in requests) <= MAX_RESULTS:
        return [[Part(position, count) for position, (__, count) in enumerate(requests)]]
    claims: list[list[Part]] = []
    for claim_parts in _inseparable_parts(requests, constraints):
        claims_with_room = (
            claim for claim in claims if sum(claim_part.devices for claim_part in (*claim, *claim_parts)) <= MAX_RESULTS
        )
        claim = next(claims_with_room, None)
        if claim is None:
            claims.append(claim_parts)
        else:
            claim += claim_parts
    return claims


def _inseparable_parts(requests: Counts, constraints: Constraints) -> Iterator[list[Part]]:
    groups = joined_requests([name for name, __ in requests], constraints)
    for position, (__, count) in enumerate(requests):
        group = next((group for group in groups if position in group), None)
        if group is None:
            for start in range(0, count, MAX_RESULTS):
                yield [Part(position, min(count - start, MAX_RESULTS))]
        elif group[0] == position:
            yield [Part(member, requests[member][1]) for member in group]
