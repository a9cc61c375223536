# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Fleets with a finding, cut down as far as the finding remains."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ansible_collections.modelplane.fleet.tests.oracle.placement import rules
from ansible_collections.modelplane.fleet.tests.oracle.placement.comparison import (
    Outcome,
    compare,
)
from ansible_collections.modelplane.fleet.tests.oracle.placement.written import Fleet, Written, read

_OPTIONAL = frozenset(
    {
        "class",
        "copies",
        "cost",
        "created",
        "fabric",
        "gateway",
        "hold",
        "labels",
        "memory",
        "minimum",
        "preempts",
        "preferences",
        "price",
        "priority",
        "ready",
        "returns",
        "root",
        "selector",
        "silent",
        "spot",
        "spread",
        "survive",
        "surge",
        "synthetic",
        "taints",
        "together",
        "tolerates",
    }
)


def shrink(fleet: Written, kind: str, compared: Callable[[Fleet], Outcome] = compare) -> Written:
    """Return a fleet from which nothing more can be taken without losing the last finding of a kind."""
    while True:
        found = next((one for one in _smaller(fleet) if _has(one, kind, compared)), None)
        if found is None:
            return fleet
        fleet = found


def _has(fleet: Written, kind: str, compared: Callable[[Fleet], Outcome]) -> bool:
    try:
        model = read(fleet)
    except (IndexError, KeyError, TypeError, ValueError):
        return False
    return _is_sound(model) and any(finding.kind == kind for finding in compared(model).findings)


def _is_sound(fleet: Fleet) -> bool:
    """Return whether replicas run where there are devices for their claims, and nothing lacks what it needs."""
    clusters = {cluster.name: cluster for cluster in fleet.clusters}
    for replica in fleet.running:
        cluster = clusters.get(replica.cluster)
        pools = {pool.name: pool for pool in cluster.pools} if cluster else {}
        members = [member for engine in replica.engines for member in engine.members]
        if not members or any(name not in pools for member in members for name, _ in member.pods_by_pool):
            return False
        if any(
            member.device_requests and not rules.has_claims(member, pools[name])
            for member in members
            for name, _ in member.pods_by_pool
        ):
            return False
    engines = [engine for deployment in fleet.deployments for engine in deployment.engines]
    return (
        all(cluster.pools for cluster in fleet.clusters)
        and all(deployment.engines for deployment in fleet.deployments)
        and all({member.role for member in one.members} in ({"Standalone"}, {"Leader", "Worker"}) for one in engines)
    )


def _smaller(value: Any, key: str = "") -> Iterator[Any]:
    """Yield a written value with one thing less: large things first, then what they consist of."""
    if isinstance(value, dict):
        for name in [name for name in value if name in _OPTIONAL or key == "requests"]:
            yield {other: value[other] for other in value if other != name}
        for name in value:
            for less in _smaller(value[name], name):
                yield {**value, name: less}
    elif isinstance(value, list):
        for place in range(len(value)):
            yield value[:place] + value[place + 1 :]
        for place, one in enumerate(value):
            for less in _smaller(one):
                yield [*value[:place], less, *value[place + 1 :]]
    elif isinstance(value, int) and not isinstance(value, bool) and value > 1:
        yield from dict.fromkeys((1, value // 2, value - 1))
