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
"""Engine key of unavailable devices. They belong to no engine."""

Nodes = PlannedNodes | None  # pylint: disable=unsupported-binary-operation
MemberKey = tuple[int, int, int]
"""Positions of the placement, the engine and the member of a placed member."""


@dataclass(frozen=True)
class _Part:
    """The pods of a member on one pool. `is_open`: the pods are new, or an edit replaces them."""

    engine: tuple[str, int, int]
    member_key: MemberKey | None
    member: PlacedMember
    copies: int
    pods: int
    vectors: tuple[Vector, ...]
    is_open: bool
    at_most: int = 0


def bind(
    decided: Schedule,
    clusters: Iterable[Cluster],
    replicas: Iterable[Replica],
    options: Options | None = None,
    evaluations: Evaluations | None = None,
) -> Schedule:
    """Return the schedule with claims and planned nodes that allow kube-scheduler to bind all pods.

    Selectors of claims receive tests for attributes and capacities if devices of the pool lack them. A pod that is
    charged a whole node needs no limited claims. It needs numbers only to avoid slow searches (`allocating.py`) and
    because of unavailable devices. Raises OverBudgetError.

    decided: the schedule for the other arguments. Unchanged replicas keep their claims and planned nodes.
    """
    options = options or Options()
    clusters = list(clusters)
    existing = {(replica.namespace, replica.name): replica for replica in replicas}
    current_replicas = [
        existing.get((placement.namespace, placement.replica)) if placement.replica else None
        for placement in decided.placements
    ]
    placements = [_with_current_nodes(*pair) for pair in zip(decided.placements, current_replicas, strict=True)]
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
        unplaced = [replica for key, replica in sorted(existing.items()) if key not in placed]
        leaving = [replica for replica in unplaced if replica.leaves or (replica.namespace, replica.name) in dropped]
        charged = [replica for replica in unplaced if replica not in leaving]
        binder = _Binder(options, placements, current_replicas, matcher)
        for cluster in bindable:
            binder.bind(cluster, charged, leaving)
        placements = binder.placements
        decided = replace(decided, may_strand=tuple(binder.may_strand))
    pools = {(cluster.name, pool.name): pool for cluster in clusters for pool in cluster.pools}
    guarded = (_with_guards(*pair, pools, matcher) for pair in zip(placements, current_replicas, strict=True))
    return replace(decided, placements=tuple(guarded))


def _with_current_nodes(placement: Placement, current_replica: Replica | None) -> Placement:
    """Return a placement with the planned nodes of its existing replica."""

    def with_nodes(engine: PlacedEngine, member: PlacedMember) -> PlacedMember:
        current = _current_member(current_replica, engine, member)
        return (
            replace(member, planned_nodes=current.planned_nodes) if current and current.pool == member.pool else member
        )

    return _with_members(placement, with_nodes)


def _with_guards(
    placement: Placement, current_replica: Replica | None, pools: Mapping[tuple[str, str], Pool], matcher: Matcher
) -> Placement:
    """Return a placement with guarded requests. Their selectors must test for attributes and capacities.

    Other selectors would replace the pods because a claim template is immutable. Therefore, running pods keep their
    selectors until an edit replaces the pods anyway.
    """

    def needs_guard(entry: Mapping[str, Any], member: PlacedMember) -> bool:
        keys = [(placement.cluster, name) for name, __ in member.pods_by_pool]
        with suppress(SelectorError):
            return any(matcher.needs_guard(entry, pools[key].devices) for key in keys if key in pools)
        return False

    def with_guards(engine: PlacedEngine, member: PlacedMember) -> PlacedMember:
        if _is_changed(placement, current_replica, engine, member):
            guarded = [entry["name"] for entry in member.device_requests if needs_guard(entry, member)]
        else:
            current = _current_member(current_replica, engine, member)
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


def _current_member(current_replica: Replica | None, engine: PlacedEngine, member: PlacedMember) -> PlacedMember | None:
    """Return the running member of a placed member, None without a replica or without such a member."""
    members = (
        current
        for current_engine in (current_replica.engines if current_replica else ())
        if current_engine.name == engine.name
        for current in current_engine.members
        if current.role == member.role
    )
    return next(members, None)


def _is_changed(
    placement: Placement, current_replica: Replica | None, engine: PlacedEngine, member: PlacedMember
) -> bool:
    """Return True if the pods of a member are new, or if an edit replaces them."""
    if placement.state == "held":
        return False
    current = _current_member(current_replica, engine, member)
    if current is None or current_replica is None or placement.state == "new":
        return True
    copies = next(old.copies for old in current_replica.engines if old.name == engine.name)
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
        current_replicas: Sequence[Replica | None],
        matcher: Matcher,
    ) -> None:
        self.placements = placements
        self.may_strand: list[Refusal] = []
        self._current_replicas = current_replicas
        self._matcher = matcher
        self._work = Work(min(options.search_budget, SEARCH_BUDGET))
        self._shares_nodes = options.accounting == "Devices"
        self._on: dict[str, list[int]] = {}
        for index, placement in enumerate(placements):
            self._on.setdefault(placement.cluster, []).append(index)

    def bind(self, cluster: Cluster, charged: Iterable[Replica], leaving: Iterable[Replica]) -> None:
        """Set the claims and planned nodes of new pods on a cluster.

        charged: replicas without a placement that use devices.
        leaving: replicas that are removed.
        """
        placed = self._on.get(cluster.name, [])
        if not any(self._is_open(index) for index in placed):
            return
        pools = {pool.name: pool for pool in cluster.pools}
        parts_by_pool: dict[str, list[_Part]] = {}
        stranded = []
        for index in placed:
            current_replica = self._current_replicas[index]
            if current_replica is not None and current_replica.stranded:
                stranded.append(current_replica)
                continue
            for name, member_part in self._parts(self.placements[index].engines, pools, index):
                parts_by_pool.setdefault(name, []).append(member_part)
        neighbors = [replica for replica in charged if replica.cluster == cluster.name]
        stranded += [replica for replica in neighbors if replica.stranded]
        for number, replica in enumerate(replica for replica in neighbors if not replica.stranded):
            for name, member_part in self._parts(replica.engines, pools, -1 - number):
                parts_by_pool.setdefault(name, []).append(member_part)
        # New pods with the same number would wait for the same nodes.
        unusable = [*stranded, *(replica for replica in leaving if replica.cluster == cluster.name)]
        used_numbers = _numbers(engine for replica in unusable for engine in replica.engines)
        for name, pool_parts in sorted(parts_by_pool.items()):
            is_open = any(member_part.is_open for member_part in pool_parts)
            reason = self._bind_pool(pools[name], pool_parts, used_numbers.get(name, set())) if is_open else ""
            if reason:
                self.may_strand.append(Refusal(reason, name, (cluster.name,)))

    def _is_open(self, index: int) -> bool:
        """Return True if pods of a placement are new, or if an edit replaces them."""
        placement = self.placements[index]
        return any(
            _is_changed(placement, self._current_replicas[index], engine, member)
            for engine in placement.engines
            for member in engine.members
        )

    def _parts(
        self, engines: Sequence[PlacedEngine], pools: Mapping[str, Pool], index: int
    ) -> Iterator[tuple[str, _Part]]:
        for number, engine in enumerate(engines):
            for position, placed_member in enumerate(engine.members):
                if not placed_member.device_requests:
                    continue
                member_key = (index, number, position) if index >= 0 else None
                is_open = index >= 0 and _is_changed(
                    self.placements[index], self._current_replicas[index], engine, placed_member
                )
                is_spread = is_open and placed_member.shares and self._shares_nodes
                member = self._set(member_key, planned_nodes=ANYWHERE) if member_key and is_spread else placed_member
                for name, pods in member.pods_by_pool:
                    if name not in pools:
                        continue
                    vectors = self._matcher.observed(
                        member.device_requests, member.device_constraints, pools[name].devices
                    )
                    if vectors:
                        member_part = _Part(
                            (engine.name, index, number), member_key, member, engine.copies, pods, vectors, is_open
                        )
                        yield name, replace(member_part, at_most=_at_most(engine, member, pools[name]))

    def _bind_pool(self, pool: Pool, member_parts: list[_Part], used_numbers: set[int]) -> str:
        """Return the reason why a pod might be unschedulable in some order. Empty if each pod finds a node."""
        node = pool.claimable
        if not self._shares_nodes:
            pods = self._pods(pool, member_parts)
            if pool.partly_unavailable and may_strand(node, pool.open_nodes, pods):
                return _MAY_STRAND
            current = [member_part.member.planned_nodes for member_part in member_parts]
            slow = {position for position, part_pods in enumerate(pods) if part_pods.slow}
            return self._separate(node, member_parts, pods, current, slow, used_numbers)
        previous_placements = list(self.placements)
        narrowed = self._narrow(pool, node, member_parts) if sum(map(bool, node)) > 1 else member_parts
        reason = self._number(pool, node, narrowed, used_numbers)
        if not reason:
            return ""
        # Planned nodes might exist for pods that use any kind of device, but not for pods that use one kind.
        narrowed_placements, self.placements = self.placements, previous_placements
        if narrowed != member_parts and not self._number(pool, node, member_parts, used_numbers):
            return ""
        self.placements = narrowed_placements
        return reason

    # Kinds of device

    def _narrow(self, pool: Pool, node: Vector, member_parts: list[_Part]) -> list[_Part]:
        """Limit claims to one kind of device if other kinds of the pool could also serve them.

        Each claim in turn has the first kind that still allows to pack all pods. Members that need several kinds
        to fit and members that are spread over pools claim all kinds that the deployment accepts.
        """
        member_parts = list(member_parts)
        for index, member_part in enumerate(member_parts):
            if not member_part.is_open or member_part.member_key is None or member_part.member.shares:
                continue
            member = member_part.member
            allocations = self._matcher.ways(member.device_requests, member.device_constraints, pool.devices)
            for allocation in allocations:
                if all(len(accepted) == 1 for accepted in allocation.accepted):
                    break
                narrowed = replace(member_part, vectors=(allocation.vector,))
                if len(allocations) > 1 and not self._packs(
                    pool, node, [*member_parts[:index], narrowed, *member_parts[index + 1 :]]
                ):
                    continue
                kinds = _kinds(pool, allocation)
                if kinds is None:
                    break
                member_parts[index] = replace(
                    narrowed, member=self._set(member_part.member_key, device_requests=_limited(member, kinds))
                )
                break
        return member_parts

    def _packs(self, pool: Pool, node: Vector, member_parts: Sequence[_Part]) -> bool:
        engines: dict[tuple[str, int, int], list[_Part]] = {}
        for member_part in member_parts:
            engines.setdefault(member_part.engine, []).append(member_part)
        load: Counter[Group] = Counter()
        for same in engines.values():
            demand = Demand(
                same[0].copies, tuple(PodSet(member_part.pods, member_part.vectors) for member_part in same)
            )
            load[demand.group] += demand.copies
        unavailable = Demand(1, tuple(PodSet(count, (vector,)) for vector, count in pool.partly_unavailable.items()))
        if unavailable.pod_sets:
            load[unavailable.group] += 1
        return pack(node, pool.open_nodes, tuple(sorted(load.items())), self._work).free is not None

    # Planned nodes

    def _number(self, pool: Pool, node: Vector, member_parts: Sequence[_Part], used_numbers: set[int]) -> str:
        pods = self._pods(pool, member_parts)
        has_numbers = any(member_part.member.planned_nodes and not member_part.is_open for member_part in member_parts)
        strands = may_strand(node, pool.open_nodes, pods)
        slow = {position for position, part_pods in enumerate(pods) if part_pods.slow}
        slow_on_whole_node = {position for position in slow if pods[position].vectors == (node,)}
        if has_numbers or strands or slow - slow_on_whole_node:
            planned = plan_pool(node, pool.open_nodes, pods, used_numbers, self._work)
            if planned is not None:
                return self._plan(node, member_parts, pods, planned)
        current = [
            ANYWHERE if has_numbers and member_part.is_open else member_part.member.planned_nodes
            for member_part in member_parts
        ]
        # A number excludes no node that a pod of a whole node could use.
        reason = self._separate(node, member_parts, pods, current, slow_on_whole_node, used_numbers)
        return _MAY_STRAND if has_numbers or strands else reason

    def _pods(self, pool: Pool, member_parts: Sequence[_Part]) -> list[Pods]:
        """Return the pods of all parts and the unavailable devices of the pool. Searches are slow if they might be slow
        without planned nodes."""
        pods = _pods(pool, member_parts)
        if sum(pool.claimable) <= FEW_DEVICES:
            return pods
        for position, member_part in enumerate(member_parts):
            requests = member_part.member.device_requests
            # Only running pods can have invalid selectors. They use the devices that they are charged.
            with suppress(SelectorError):
                accepted = map(frozenset, self._matcher.accepted(requests, pool.devices))
                counts = [int(entry.get("count", 1)) for entry in requests]
                pods[position] = replace(pods[position], requests=tuple(zip(counts, accepted, strict=True)))
        planned = [None if part_pods.is_open else part_pods.planned for part_pods in pods]
        slow = slow_searches(pool.claimable, pods, planned)
        # Pods that are spread over pools have no numbers.
        return [
            replace(part_pods, slow=position in slow and not part_pods.at_most)
            for position, part_pods in enumerate(pods)
        ]

    def _separate(
        self,
        node: Vector,
        member_parts: Sequence[_Part],
        pods: Sequence[Pods],
        planned: Sequence[Nodes],
        chosen: Collection[int],
        used_numbers: set[int],
    ) -> str:
        """Set planned nodes, with separate nodes for the pods at the chosen positions. Return a reason if searches
        remain slow."""
        separate = list(planned)
        used = used_numbers.union(*(part_pods.planned.numbers for part_pods in pods if part_pods.planned))
        for position in sorted(chosen):
            number = min(set(range(1, len(used) + 2)) - used)
            used.add(number)
            separate[position] = PlannedNodes((number,), "OnePerNode")
        return self._plan(node, member_parts, pods, separate)

    def _plan(self, node: Vector, member_parts: Sequence[_Part], pods: Sequence[Pods], planned: Sequence[Nodes]) -> str:
        """Set planned nodes of open pods. Return a reason if searches remain slow."""
        result = [part_pods.planned for part_pods in pods]
        for position, member_part in enumerate(member_parts):
            if member_part.is_open and member_part.member_key is not None and not member_part.member.shares:
                result[position] = planned[position]
                self._set(member_part.member_key, planned_nodes=planned[position])
        return _MAY_TIME_OUT if slow_searches(node, pods, result) else ""

    def _set(self, member_key: MemberKey, **changes: Any) -> PlacedMember:
        index, number, position = member_key
        placement = self.placements[index]
        engine = placement.engines[number]
        member = replace(engine.members[position], **changes)
        members = (*engine.members[:position], member, *engine.members[position + 1 :])
        engines = (*placement.engines[:number], replace(engine, members=members), *placement.engines[number + 1 :])
        self.placements[index] = replace(placement, engines=engines)
        return member


def _pods(pool: Pool, member_parts: Iterable[_Part]) -> list[Pods]:
    """Return the pods of all parts, then the unavailable devices of the pool. Like pods of one engine, unavailable
    devices of several nodes share no node."""
    pods = [
        Pods(
            member_part.engine,
            member_part.copies,
            member_part.pods,
            member_part.vectors,
            member_part.member.planned_nodes,
            member_part.is_open and member_part.member_key is not None,
            member_part.at_most,
            member_part.member.role == "Leader",
            len(member_part.vectors) > 1 and not member_part.member.device_constraints,
        )
        for member_part in member_parts
    ]
    return pods + [
        Pods(_UNAVAILABLE, 1, count, (vector,), is_open=False, unavailable=True)
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
        engine_member.pool == pool.name and bool(engine_member.device_requests)
        for engine_member in engine.members
        if engine_member.role == "Leader"
    )
    pools = len(member.shares)
    maximum = (member.pods + (pools - 1) * skew(pods for __, pods in member.shares)) // pools
    return min(pool.open_nodes - leaders, maximum if member.planned_nodes == ANYWHERE else member.pods)


def _numbers(engines: Iterable[PlacedEngine]) -> dict[str, set[int]]:
    """Return the numbers of planned nodes of engines, by pool."""
    numbers: dict[str, set[int]] = {}
    for engine in engines:
        for member in engine.members:
            if member.planned_nodes:
                numbers.setdefault(member.pool, set()).update(member.planned_nodes.numbers)
    return numbers


def _kinds(pool: Pool, allocation: Way) -> list[Kind | None] | None:
    """Return the kind to limit each request to, None for a request that accepts only one kind. Return None if the
    accepted kinds cannot be separated."""
    kinds: list[Kind | None] = []
    for position, accepted in zip(allocation.kinds, allocation.accepted, strict=True):
        other_devices = [pool.devices[index] for index in accepted if index != position]
        if not other_devices:
            kinds.append(None)
            continue
        selector = distinguish(pool.devices[position], other_devices)
        if selector is None:
            return None
        kinds.append((pool.devices[position].name, selector))
    return kinds


def _limited(member: PlacedMember, kinds: Sequence[Kind | None]) -> tuple[Mapping[str, Any], ...]:
    return tuple(with_kind(entry, kind) for entry, kind in zip(member.device_requests, kinds, strict=True))
