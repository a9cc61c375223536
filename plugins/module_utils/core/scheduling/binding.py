# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Claims and planned nodes that allow kube-scheduler to bind all pods of a plan, in any order.

A plan packs all pods onto the nodes of a node pool. kube-scheduler uses any node with free capacity and any
device that a claim accepts. Therefore, it might end in a packing that makes a pod unschedulable. `bind` limits
claims to the planned kind of device, and adds numbers of planned nodes that keep pods together and apart. Running pods
do not change, and neither do pods that fit without these limits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from ..devices.distinction import distinguish
from ..devices.selector import SelectorError
from .allocating import FEW_DEVICES, slow_searches
from .capacity import Demand, PodSet
from .matching import Kind, Matcher, Vector, Way, request_selectors, with_kind
from .model import (
    Cluster,
    Options,
    PlacedEngine,
    PlacedMember,
    Placement,
    PlannedNodes,
    Pool,
    Refusal,
    Replica,
    Schedule,
    skew,
)
from .nodes import ANYWHERE, plan_pool
from .packing import Group, pack
from .search_budget import Work
from .selector_budget import Evaluations
from .stranding import Pods, may_strand

SEARCH_BUDGET = 50_000
"""Maximum steps of all searches for planned nodes of a plan. A usual search takes a few steps for each pod."""

_MAY_STRAND = (
    "its pods fit on its nodes, but kube-scheduler might place the pods in an order that makes a pod unschedulable. "
    "Add a node, or see docs/scheduling.md, Unschedulable pods"
)

_MAY_TIME_OUT = (
    "its pods fit on its nodes, but kube-scheduler might search for devices longer than 10 seconds on a node without "
    "enough free devices, and try no other node. Use pods that claim all devices of a node, or see docs/scheduling.md, "
    "Unschedulable pods"
)

_UNAVAILABLE = ("", 0, 0)
"""Engine key of unavailable devices, which belong to no engine."""

Nodes = PlannedNodes | None  # pylint: disable=unsupported-binary-operation
Place = tuple[int, int, int]
"""Positions of the placement, the engine and the member of a placed member."""


@dataclass(frozen=True)
class _Part:
    """The pods of a member on one pool. `open`: the pods are new, or an edit replaces them."""

    engine: tuple[str, int, int]
    place: Place | None
    member: PlacedMember
    copies: int
    pods: int
    vectors: tuple[Vector, ...]
    open: bool
    at_most: int = 0


def bind(
    decided: Schedule,
    clusters: Iterable[Cluster],
    replicas: Iterable[Replica],
    options: Options | None = None,
    evaluations: Evaluations | None = None,
) -> Schedule:
    """Return the schedule with claims and planned nodes that allow kube-scheduler to bind all pods.

    Selectors of claims get tests for attributes and capacities if devices of the pool lack them. A pod that is charged
    a whole node needs no limited claims. It needs numbers only to avoid slow searches (`allocating.py`) and because of
    unavailable devices. Raises OverBudgetError.

    decided: the schedule for the other arguments. Unchanged replicas keep their claims and planned nodes.
    """
    options = options or Options()
    clusters = list(clusters)
    existing = {(replica.namespace, replica.name): replica for replica in replicas}
    before = [
        existing.get((placement.namespace, placement.replica)) if placement.replica else None
        for placement in decided.placements
    ]
    placements = [_with_current_nodes(*pair) for pair in zip(decided.placements, before, strict=True)]
    matcher = Matcher("Exact", evaluations or Evaluations(options.selector_budget))
    shares_nodes = options.accounting == "Devices"
    bindable = [
        cluster
        for cluster in clusters
        if shares_nodes or any(pool.partly_unavailable or sum(pool.claimable) > FEW_DEVICES for pool in cluster.pools)
    ]
    if bindable:
        placed = {(placement.namespace, placement.replica) for placement in decided.placements if placement.replica}
        dropped = {(entry.replica.namespace, entry.replica.name) for entry in decided.dropped if not entry.has_devices}
        others = [replica for key, replica in sorted(existing.items()) if key not in placed]
        leaving = [replica for replica in others if replica.leaves or (replica.namespace, replica.name) in dropped]
        charged = [replica for replica in others if replica not in leaving]
        binder = _Binder(options, placements, before, matcher)
        for cluster in bindable:
            binder.bind(cluster, charged, leaving)
        placements = binder.placements
        decided = replace(decided, may_strand=tuple(binder.may_strand))
    pools = {(cluster.name, pool.name): pool for cluster in clusters for pool in cluster.pools}
    guarded = (_with_guards(*pair, pools, matcher) for pair in zip(placements, before, strict=True))
    return replace(decided, placements=tuple(guarded))


def _with_current_nodes(placement: Placement, before: Replica | None) -> Placement:
    """Return a placement with the planned nodes of its existing replica."""

    def with_nodes(engine: PlacedEngine, member: PlacedMember) -> PlacedMember:
        current = _current_member(before, engine, member)
        return (
            replace(member, planned_nodes=current.planned_nodes) if current and current.pool == member.pool else member
        )

    return _with_members(placement, with_nodes)


def _with_guards(
    placement: Placement, before: Replica | None, pools: Mapping[tuple[str, str], Pool], matcher: Matcher
) -> Placement:
    """Return a placement with the claims whose selectors must test for attributes and capacities.

    Other selectors would replace the pods because a claim template is immutable. Therefore, running pods keep their
    selectors until an edit replaces the pods anyway.
    """

    def needs_guard(entry: Mapping[str, Any], member: PlacedMember) -> bool:
        keys = [(placement.cluster, name) for name, __ in member.pods_by_pool]
        with suppress(SelectorError):
            return any(matcher.needs_guard(entry, pools[key].devices) for key in keys if key in pools)
        return False

    def with_guards(engine: PlacedEngine, member: PlacedMember) -> PlacedMember:
        if _is_changed(placement, before, engine, member):
            guarded = [entry["name"] for entry in member.device_requests if needs_guard(entry, member)]
        else:
            current = _current_member(before, engine, member)
            guarded = [entry["name"] for entry in current.device_requests if entry.get("guarded")] if current else []
        requests = (
            {**entry, "guarded": True} if entry["name"] in guarded else entry for entry in member.device_requests
        )
        return replace(member, device_requests=tuple(requests)) if guarded else member

    return _with_members(placement, with_guards)


def _with_members(placement: Placement, change: Callable[[PlacedEngine, PlacedMember], PlacedMember]) -> Placement:
    engines = tuple(
        replace(engine, members=tuple(change(engine, member) for member in engine.members))
        for engine in placement.engines
    )
    return placement if engines == placement.engines else replace(placement, engines=engines)


def _current_member(before: Replica | None, engine: PlacedEngine, member: PlacedMember) -> PlacedMember | None:
    """Return the running member of a placed member, None without a replica or without such a member."""
    members = (
        current
        for current_engine in (before.engines if before else ())
        if current_engine.name == engine.name
        for current in current_engine.members
        if current.role == member.role
    )
    return next(members, None)


def _is_changed(placement: Placement, before: Replica | None, engine: PlacedEngine, member: PlacedMember) -> bool:
    """Return whether the pods of a member are new, or an edit replaces them."""
    if placement.state == "held":
        return False
    current = _current_member(before, engine, member)
    if current is None or before is None or placement.state == "new":
        return True
    copies = next(old.copies for old in before.engines if old.name == engine.name)
    return (current.pool, current.pods, copies, _claimed(current)) != (
        member.pool,
        member.pods,
        engine.copies,
        _claimed(member),
    )


def _claimed(member: PlacedMember) -> list[tuple[str, str, int, list[str]]]:
    """Return the claimed requests of a member, without the kinds of device that its claim is limited to."""
    return [
        (str(entry["name"]), str(entry["deviceClassName"]), int(entry.get("count", 1)), request_selectors(entry))
        for entry in member.device_requests
    ]


class _Binder:
    """Sets the claims and planned nodes of the placements of a schedule, pool by pool."""

    def __init__(
        self,
        options: Options,
        placements: list[Placement],
        before: Sequence[Replica | None],
        matcher: Matcher,
    ) -> None:
        self.placements = placements
        self.may_strand: list[Refusal] = []
        self._before = before
        self._matcher = matcher
        self._work = Work(min(options.search_budget, SEARCH_BUDGET))
        self._shares_nodes = options.accounting == "Devices"
        self._on: dict[str, list[int]] = {}
        for at, placement in enumerate(placements):
            self._on.setdefault(placement.cluster, []).append(at)

    def bind(self, cluster: Cluster, others: Iterable[Replica], leaving: Iterable[Replica]) -> None:
        """Set the claims and planned nodes of new pods on a cluster.

        others: replicas without a placement that use devices.
        leaving: replicas that are removed.
        """
        placed = self._on.get(cluster.name, [])
        if not any(self._is_open(at) for at in placed):
            return
        pools = {pool.name: pool for pool in cluster.pools}
        parts: dict[str, list[_Part]] = {}
        stranded = []
        for at in placed:
            before = self._before[at]
            if before is not None and before.stranded:
                stranded.append(before)
                continue
            for part in self._parts(self.placements[at].engines, pools, at):
                parts.setdefault(part[0], []).append(part[1])
        neighbors = [replica for replica in others if replica.cluster == cluster.name]
        stranded += [replica for replica in neighbors if replica.stranded]
        for number, replica in enumerate(replica for replica in neighbors if not replica.stranded):
            for part in self._parts(replica.engines, pools, -1 - number):
                parts.setdefault(part[0], []).append(part[1])
        # New pods with the same number would wait for the same nodes.
        unusable = [*stranded, *(replica for replica in leaving if replica.cluster == cluster.name)]
        taken = _numbers(engine for replica in unusable for engine in replica.engines)
        for name, pool_parts in sorted(parts.items()):
            is_open = any(part.open for part in pool_parts)
            reason = self._bind_pool(pools[name], pool_parts, taken.get(name, set())) if is_open else ""
            if reason:
                self.may_strand.append(Refusal(reason, name, (cluster.name,)))

    def _is_open(self, at: int) -> bool:
        """Return whether pods of a placement are new, or an edit replaces them."""
        placement = self.placements[at]
        return any(
            _is_changed(placement, self._before[at], engine, member)
            for engine in placement.engines
            for member in engine.members
        )

    def _parts(
        self, engines: Sequence[PlacedEngine], pools: Mapping[str, Pool], at: int
    ) -> Iterator[tuple[str, _Part]]:
        for number, engine in enumerate(engines):
            for position, placed_member in enumerate(engine.members):
                if not placed_member.device_requests:
                    continue
                place = (at, number, position) if at >= 0 else None
                is_open = at >= 0 and _is_changed(self.placements[at], self._before[at], engine, placed_member)
                is_spread = is_open and placed_member.shares and self._shares_nodes
                member = self._set(place, planned_nodes=ANYWHERE) if place and is_spread else placed_member
                for name, pods in member.pods_by_pool:
                    if name not in pools:
                        continue
                    vectors = self._matcher.observed(
                        member.device_requests, member.device_constraints, pools[name].devices
                    )
                    if vectors:
                        part = _Part((engine.name, at, number), place, member, engine.copies, pods, vectors, is_open)
                        yield name, replace(part, at_most=_at_most(engine, member, pools[name]))

    def _bind_pool(self, pool: Pool, parts: list[_Part], taken: set[int]) -> str:
        """Return why a pod might be unschedulable in some order. Empty if each pod finds a node."""
        node = pool.claimable
        if not self._shares_nodes:
            pods = self._pods(pool, parts)
            if pool.partly_unavailable and may_strand(node, pool.open_nodes, pods):
                return _MAY_STRAND
            current = [part.member.planned_nodes for part in parts]
            slow = {position for position, part_pods in enumerate(pods) if part_pods.slow}
            return self._separate(node, parts, pods, current, slow, taken)
        before = list(self.placements)
        narrowed = self._narrow(pool, node, parts) if sum(map(bool, node)) > 1 else parts
        reason = self._number(pool, node, narrowed, taken)
        if not reason:
            return ""
        # Planned nodes might exist for pods that use any kind of device, but not for pods that use one kind.
        after, self.placements = self.placements, before
        if narrowed != parts and not self._number(pool, node, parts, taken):
            return ""
        self.placements = after
        return reason

    # Kinds of device

    def _narrow(self, pool: Pool, node: Vector, parts: list[_Part]) -> list[_Part]:
        """Limit claims to one kind of device if other kinds of the pool could also serve them.

        Each claim in turn has the first kind that still allows to pack all pods. Members that need several kinds
        to fit and members that are spread over pools claim all kinds that the deployment accepts.
        """
        parts = list(parts)
        for at, part in enumerate(parts):
            if not part.open or part.place is None or part.member.shares:
                continue
            member = part.member
            ways = self._matcher.ways(member.device_requests, member.device_constraints, pool.devices)
            for way in ways:
                if all(len(accepted) == 1 for accepted in way.accepted):
                    break
                narrowed = replace(part, vectors=(way.vector,))
                if len(ways) > 1 and not self._packs(pool, node, [*parts[:at], narrowed, *parts[at + 1 :]]):
                    continue
                kinds = _kinds(pool, way)
                if kinds is None:
                    break
                parts[at] = replace(narrowed, member=self._set(part.place, device_requests=_limited(member, kinds)))
                break
        return parts

    def _packs(self, pool: Pool, node: Vector, parts: Sequence[_Part]) -> bool:
        engines: dict[tuple[str, int, int], list[_Part]] = {}
        for part in parts:
            engines.setdefault(part.engine, []).append(part)
        load: Counter[Group] = Counter()
        for same in engines.values():
            demand = Demand(same[0].copies, tuple(PodSet(part.pods, part.vectors) for part in same))
            load[demand.group] += demand.copies
        unavailable = Demand(1, tuple(PodSet(count, (vector,)) for vector, count in pool.partly_unavailable.items()))
        if unavailable.pod_sets:
            load[unavailable.group] += 1
        return pack(node, pool.open_nodes, tuple(sorted(load.items())), self._work).free is not None

    # Planned nodes

    def _number(self, pool: Pool, node: Vector, parts: Sequence[_Part], taken: set[int]) -> str:
        pods = self._pods(pool, parts)
        has_numbers = any(part.member.planned_nodes and not part.open for part in parts)
        strands = may_strand(node, pool.open_nodes, pods)
        slow = {position for position, part_pods in enumerate(pods) if part_pods.slow}
        slow_on_whole_node = {position for position in slow if pods[position].vectors == (node,)}
        if has_numbers or strands or slow - slow_on_whole_node:
            planned = plan_pool(node, pool.open_nodes, pods, taken, self._work)
            if planned is not None:
                return self._plan(node, parts, pods, planned)
        current = [ANYWHERE if has_numbers and part.open else part.member.planned_nodes for part in parts]
        # A number excludes no node that a pod of a whole node could use.
        reason = self._separate(node, parts, pods, current, slow_on_whole_node, taken)
        return _MAY_STRAND if has_numbers or strands else reason

    def _pods(self, pool: Pool, parts: Sequence[_Part]) -> list[Pods]:
        """Return the pods of all parts and the unavailable devices of the pool. Searches are slow if they might be slow
        without planned nodes."""
        pods = _pods(pool, parts)
        if sum(pool.claimable) <= FEW_DEVICES:
            return pods
        for position, part in enumerate(parts):
            requests = part.member.device_requests
            # Pods with invalid selectors, which only running pods can have, use the devices that they are charged.
            with suppress(SelectorError):
                accepted = map(frozenset, self._matcher.accepted(requests, pool.devices))
                counts = [int(entry.get("count", 1)) for entry in requests]
                pods[position] = replace(pods[position], requests=tuple(zip(counts, accepted, strict=True)))
        planned = [None if part_pods.open else part_pods.planned for part_pods in pods]
        slow = slow_searches(pool.claimable, pods, planned)
        # Pods that are spread over pools have no numbers.
        return [
            replace(part_pods, slow=position in slow and not part_pods.at_most)
            for position, part_pods in enumerate(pods)
        ]

    def _separate(
        self,
        node: Vector,
        parts: Sequence[_Part],
        pods: Sequence[Pods],
        planned: Sequence[Nodes],
        chosen: Collection[int],
        taken: set[int],
    ) -> str:
        """Set planned nodes, with separate nodes for the pods at the chosen positions. Return a reason if searches
        remain slow."""
        separate = list(planned)
        used = taken.union(*(part_pods.planned.numbers for part_pods in pods if part_pods.planned))
        for position in sorted(chosen):
            number = min(set(range(1, len(used) + 2)) - used)
            used.add(number)
            separate[position] = PlannedNodes((number,), "OnePerNode")
        return self._plan(node, parts, pods, separate)

    def _plan(self, node: Vector, parts: Sequence[_Part], pods: Sequence[Pods], planned: Sequence[Nodes]) -> str:
        """Set planned nodes of open pods. Return a reason if searches remain slow."""
        result = [part_pods.planned for part_pods in pods]
        for position, part in enumerate(parts):
            if part.open and part.place is not None and not part.member.shares:
                result[position] = planned[position]
                self._set(part.place, planned_nodes=planned[position])
        return _MAY_TIME_OUT if slow_searches(node, pods, result) else ""

    def _set(self, place: Place, **changes: Any) -> PlacedMember:
        at, number, position = place
        placement = self.placements[at]
        engine = placement.engines[number]
        member = replace(engine.members[position], **changes)
        members = (*engine.members[:position], member, *engine.members[position + 1 :])
        engines = (*placement.engines[:number], replace(engine, members=members), *placement.engines[number + 1 :])
        self.placements[at] = replace(placement, engines=engines)
        return member


def _pods(pool: Pool, parts: Iterable[_Part]) -> list[Pods]:
    """Return the pods of all parts, then the unavailable devices of the pool. Like pods of one engine, unavailable
    devices of several nodes share no node."""
    pods = [
        Pods(
            part.engine,
            part.copies,
            part.pods,
            part.vectors,
            part.member.planned_nodes,
            part.open and part.place is not None,
            part.at_most,
            part.member.role == "Leader",
            len(part.vectors) > 1 and not part.member.device_constraints,
        )
        for part in parts
    ]
    return pods + [
        Pods(_UNAVAILABLE, 1, count, (vector,), open=False, unavailable=True)
        for vector, count in sorted(pool.partly_unavailable.items())
    ]


def _at_most(engine: PlacedEngine, member: PlacedMember, pool: Pool) -> int:
    """Return the maximum number of pods on a pool in a copy of a member that is spread over pools. 0 for other members.

    Workers wait for their leader, and the numbers of workers on two pools differ by at most `skew`
    (`core/compose/sharing.py`).
    """
    if not member.shares:
        return 0
    leaders = sum(
        other.pool == pool.name and bool(other.device_requests) for other in engine.members if other.role == "Leader"
    )
    pools = len(member.shares)
    most = (member.pods + (pools - 1) * skew(pods for __, pods in member.shares)) // pools
    return min(pool.open_nodes - leaders, most if member.planned_nodes == ANYWHERE else member.pods)


def _numbers(engines: Iterable[PlacedEngine]) -> dict[str, set[int]]:
    """Return the numbers of planned nodes of engines, by pool."""
    found: dict[str, set[int]] = {}
    for engine in engines:
        for member in engine.members:
            if member.planned_nodes:
                found.setdefault(member.pool, set()).update(member.planned_nodes.numbers)
    return found


def _kinds(pool: Pool, way: Way) -> list[Kind | None] | None:
    """Return the kind to limit each request to, None where it accepts one only; None when kinds that it accepts cannot
    be separated."""
    found: list[Kind | None] = []
    for position, accepted in zip(way.kinds, way.accepted, strict=True):
        others = [pool.devices[other] for other in accepted if other != position]
        if not others:
            found.append(None)
            continue
        selector = distinguish(pool.devices[position], others)
        if selector is None:
            return None
        found.append((pool.devices[position].name, selector))
    return found


def _limited(member: PlacedMember, kinds: Sequence[Kind | None]) -> tuple[Mapping[str, Any], ...]:
    return tuple(with_kind(entry, kind) for entry, kind in zip(member.device_requests, kinds, strict=True))
