# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Room of a route in mode Model for endpoints: the AI gateway makes one rule of an HTTPRoute of the rule of a service,
and the API server refuses one with more backends."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from ... import api, names
from ..route_tree import WIDTH
from ..service import MatchedEndpoint, Resolution

NO_ROOM = f"a route in mode Model has at most {WIDTH} endpoints"


def without_room(service: api.ModelService, resolution: Resolution) -> frozenset[str]:
    """Return the names of the endpoints that exceed the capacity of a service's route.

    Earlier priorities are first, but each priority has space for one endpoint. Within a priority, entries alternate,
    and within an entry, clusters alternate.
    """
    by_priority: dict[int, list[MatchedEndpoint]] = defaultdict(list)
    for member in resolution.members:
        if member.weight:
            by_priority[service.spec.endpoints[member.entry].priority].append(member)
    room, excess = WIDTH, list[MatchedEndpoint]()
    for later, priority in zip(reversed(range(len(by_priority))), sorted(by_priority), strict=True):
        members = _in_turns(by_priority[priority])
        count = max(room - later, min(room, 1))
        room -= len(members[:count])
        excess += members[count:]
    return frozenset(member.endpoint.name for member in excess)


def _in_turns(members: Iterable[MatchedEndpoint]) -> list[MatchedEndpoint]:
    by_entry: dict[int, list[tuple[int, str, MatchedEndpoint]]] = defaultdict(list)
    counts = Counter[tuple[int, str]]()
    for member in members:
        cluster = member.endpoint.labels.get(names.CLUSTER_LABEL, "")
        by_entry[member.entry].append((counts[member.entry, cluster], cluster, member))
        counts[member.entry, cluster] += 1
    turns = [
        (turn, entry, member)
        for entry, entry_members in by_entry.items()
        for turn, (*__, member) in enumerate(sorted(entry_members, key=lambda each: each[:2]))
    ]
    return [member for *__, member in sorted(turns, key=lambda each: each[:2])]
