# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Tests of what holds of every schedule, on random fleets."""

from __future__ import annotations

import itertools
import random
from collections import Counter, defaultdict
from dataclasses import replace

import hypothesis
import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.matching import Matcher
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import (
    Cluster,
    Deployment,
    Engine,
    Member,
    Options,
    PlacedMember,
    Placement,
    Pool,
    Schedule,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.placement import schedule
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.scheduling import fleets
from hypothesis import given, settings
from hypothesis import strategies as st

EXAMPLES = settings(max_examples=25)
OPTIONS = pytest.mark.parametrize(
    "options", fleets.OPTIONS, ids=lambda options: f"{options.accounting}-{options.search}"
)


def pods_on(decided: Schedule, cluster: str, pool: str) -> list[list[PlacedMember]]:
    """The claiming pods on a pool, as groups of one engine copy each."""
    groups = []
    for placement in decided.placements:
        if placement.cluster != cluster:
            continue
        for engine in placement.engines:
            pods = [
                member
                for member in engine.members
                for name, count in member.pods_by_pool
                for _ in range(count)
                if name == pool and member.device_requests
            ]
            groups += [pods] * engine.copies if pods else []
    return groups


def fits(pool: Pool, groups: list[list[PlacedMember]]) -> bool:
    """Return whether an assignment of pods to nodes, and of requests to devices, exists: all are tried."""
    flat = [(number, pod) for number, group in enumerate(groups) for pod in group]
    nodes = [[device.count for device in pool.devices] for _ in range(pool.nodes)]
    used: dict[int, set[int]] = defaultdict(set)
    failed: set[object] = set()

    def serve(free: list[int], entries: list[tuple[str, int]]) -> list[list[int]]:
        if not entries:
            return [free]
        (device_class, count), *rest = entries
        found = []
        for position, device in enumerate(pool.devices):
            if device.claim == "DRA" and device.device_class_name == device_class and free[position] >= count:
                found += serve([*free[:position], free[position] - count, *free[position + 1 :]], rest)
        return found

    def place(position: int) -> bool:
        if position == len(flat):
            return True
        group, pod = flat[position]
        state = (position, tuple(sorted((tuple(free), index in used[group]) for index, free in enumerate(nodes))))
        if state in failed:
            return False
        entries = [(request["deviceClassName"], request["count"]) for request in pod.device_requests]
        for index, free in enumerate(nodes):
            if index in used[group]:
                continue
            for after in serve(free, entries):
                nodes[index] = after
                used[group].add(index)
                if place(position + 1):
                    return True
                used[group].discard(index)
                nodes[index] = free
        failed.add(state)
        return False

    return place(0)


@OPTIONS
@EXAMPLES
@given(fleet=fleets.clusters(), desired=fleets.deployments())
def test_never_over_capacity(options: Options, fleet: list[Cluster], desired: list[Deployment]) -> None:
    decided = schedule(desired, fleet, [], options)
    for cluster in fleet:
        for pool in cluster.pools:
            groups = pods_on(decided, cluster.name, pool.name)
            if options.accounting == "Nodes":
                assert sum(map(len, groups)) <= pool.nodes
            assert fits(pool, groups)


@OPTIONS
@EXAMPLES
@given(fleet=fleets.clusters(), desired=fleets.deployments(), other=fleets.deployments())
def test_new_replicas_never_go_where_there_is_no_room(
    options: Options, fleet: list[Cluster], desired: list[Deployment], other: list[Deployment]
) -> None:
    """After any edit: a pool holds what fits, or nothing new, and then it is named."""
    edited = [replace(new, namespace=old.namespace, name=old.name) for old, new in zip(desired, other, strict=False)]
    decided = schedule(edited, fleet, fleets.replicas_of(schedule(desired, fleet, [], options)), options)
    named = {(refusal.clusters[0], refusal.pool) for refusal in decided.overcommitted}
    new = {
        (placement.cluster, name)
        for placement in decided.placements
        if placement.state == "new"
        for engine in placement.engines
        for member in engine.members
        for name, _ in member.pods_by_pool
        if member.device_requests
    }
    for cluster in fleet:
        for pool in cluster.pools:
            groups = pods_on(decided, cluster.name, pool.name)
            room = fits(pool, groups) and (options.accounting == "Devices" or sum(map(len, groups)) <= pool.nodes)
            assert room or (cluster.name, pool.name) in named
            assert room or (cluster.name, pool.name) not in new


@OPTIONS
@EXAMPLES
@given(fleet=fleets.clusters(), desired=fleets.deployments(), seed=st.integers(0, 1000))
def test_order_does_not_matter(options: Options, fleet: list[Cluster], desired: list[Deployment], seed: int) -> None:
    running = fleets.replicas_of(schedule(desired, fleet, [], options))
    grown = [replace(deployment, replicas=(deployment.replicas * 7 + seed) % 6) for deployment in desired]
    decided = schedule(grown, fleet, running, options)
    shuffled = random.Random(seed)
    for values in (grown, fleet, running):
        shuffled.shuffle(values)
    assert schedule(grown, fleet, running, options) == decided


@OPTIONS
@EXAMPLES
@given(fleet=fleets.clusters(), desired=fleets.deployments(), seed=st.integers(0, 1000))
def test_a_second_run_changes_nothing(
    options: Options, fleet: list[Cluster], desired: list[Deployment], seed: int
) -> None:
    """From nothing, and again after every deployment was scaled."""
    running = fleets.replicas_of(schedule(desired, fleet, [], options))
    desired = [replace(deployment, replicas=(deployment.replicas * 5 + seed) % 6) for deployment in desired]
    first = schedule(desired, fleet, running, options)
    second = schedule(desired, fleet, fleets.replicas_of(first), options)
    assert fleets.where(second) == fleets.where(first)
    assert [placement.engines for placement in second.placements] == [
        placement.engines for placement in first.placements
    ]
    assert not second.dropped
    assert {placement.state for placement in second.placements} <= {"kept"}
    assert second.pending == first.pending


@OPTIONS
@EXAMPLES
@given(fleet=fleets.clusters(), desired=fleets.deployments(), less=st.integers(1, 5))
def test_scale_down_keeps_a_subset(
    options: Options, fleet: list[Cluster], desired: list[Deployment], less: int
) -> None:
    first = schedule(desired, fleet, [], options)
    fewer = [replace(deployment, replicas=max(0, deployment.replicas - less)) for deployment in desired]
    second = schedule(fewer, fleet, fleets.replicas_of(first), options)
    before = {(p.namespace, p.deployment, p.cluster, p.index) for p in first.placements}
    kept = {(p.namespace, p.deployment, p.cluster, p.index) for p in second.placements if p.state == "kept"}
    assert kept <= before
    counts = Counter((p.namespace, p.deployment) for p in first.placements)
    left = Counter((p.namespace, p.deployment) for p in second.placements if p.state == "kept")
    for deployment in fewer:
        assert left[deployment.key] == min(counts[deployment.key], deployment.replicas)


@pytest.mark.parametrize("accounting", ["Devices", "Nodes"])
@EXAMPLES
@given(fleet=fleets.clusters(), desired=fleets.deployments(most=1))
def test_exact_places_no_fewer_than_greedy(accounting: str, fleet: list[Cluster], desired: list[Deployment]) -> None:
    """Of one deployment: on each cluster it places what greedy places there, and may go on. Among several deployments,
    a first that finds a place may take it from the next. A member for which only exact finds a claim has to have it."""
    able = [
        [any(True for _ in matcher.claimable(member, one.pools)) for one in fleet for member in members(desired)]
        for matcher in (Matcher("Exact"), Matcher("Greedy"))
    ]
    hypothesis.assume(able[0] == able[1])
    exact = schedule(desired, fleet, [], Options(accounting, "Exact"))  # type: ignore[arg-type]
    greedy = schedule(desired, fleet, [], Options(accounting, "Greedy"))  # type: ignore[arg-type]
    assert len(exact.placements) >= len(greedy.placements)


def members(desired: list[Deployment]) -> list[Member]:
    return [member for deployment in desired for engine in deployment.engines for member in engine.members]


@OPTIONS
@EXAMPLES
@given(fleet=fleets.clusters(), desired=fleets.deployments())
def test_who_would_claim_on_some_pool_of_the_cluster_claims(
    options: Options, fleet: list[Cluster], desired: list[Deployment]
) -> None:
    matcher = Matcher(options.search)
    pools = {cluster.name: cluster.pools for cluster in fleet}
    for placement in schedule(desired, fleet, [], options).placements:
        deployment = next(one for one in desired if one.key == (placement.namespace, placement.deployment))
        for engine, placed in zip(deployment.engines, placement.engines, strict=True):
            for member, there in zip(engine.members, placed.members, strict=True):
                assert there.device_requests or not list(matcher.claimable(member, pools[placement.cluster]))


@OPTIONS
@EXAMPLES
@given(fleet=fleets.clusters(), desired=fleets.deployments())
def test_every_missing_replica_has_its_reasons(
    options: Options, fleet: list[Cluster], desired: list[Deployment]
) -> None:
    decided = schedule(desired, fleet, [], options)
    placed = Counter((placement.namespace, placement.deployment) for placement in decided.placements)
    missing = {d.key: d.replicas - placed[d.key] for d in desired if d.replicas > placed[d.key]}
    assert {(pending.namespace, pending.deployment): pending.count for pending in decided.pending} == missing
    for pending in decided.pending:
        named = {name for refusal in pending.refusals for name in refusal.clusters}
        assert named == {cluster.name for cluster in fleet}
        assert all(refusal.reason for refusal in pending.refusals)


@st.composite
def crowded(draw: st.DrawFn) -> tuple[list[Cluster], list[Deployment]]:
    """Small pools of one fabric, something that runs there, and one gang."""
    kinds = st.builds(fleets.gpu, st.sampled_from(("40Gi", "80Gi", "80Gi")), st.sampled_from((1, 2, 4)))
    pools = [
        fleets.on_fabric(Pool(f"p{number}", draw(st.integers(1, 4)), (draw(kinds),)))
        for number in range(draw(st.integers(2, 3)))
    ]
    ask = st.builds(
        fleets.ask, st.sampled_from((1, 1, 2, 4)), st.sampled_from((fleets.at_least("40Gi"), fleets.at_least("80Gi")))
    )
    leader = Member("Leader", 1, draw(st.sampled_from(((), (draw(ask),)))))
    worker = Member("Worker", draw(st.integers(2, 5)), (draw(ask),))
    members = draw(st.permutations((leader, worker)))
    gang = Engine("main", tuple(members), draw(st.sampled_from((1, 1, 2))))
    others = fleets.deployment("first", draw(st.integers(0, 4)), fleets.standalone(draw(ask)), priority=1)
    return [fleets.cluster("a", *pools)], [others, fleets.deployment("gang", 1, gang)]


def possible(engine: Engine, fleet: Cluster, decided: Schedule, options: Options) -> bool:
    """Return whether the gang fits beside what is placed: any pool for the leader, any number of workers on each."""
    by_role = {member.role: member for member in engine.members}

    def takes(pool: Pool, member: Member) -> bool:
        matcher = Matcher("Exact")
        return bool(matcher.resolve(member, pool.devices))

    def pods(role: str, count: int) -> list[PlacedMember]:
        claims = tuple({"deviceClassName": fleets.GPU, "count": request.count} for request in by_role[role].requests)
        return [PlacedMember("", claims, role)] * count if claims else []

    workers = by_role["Worker"].pods
    for leader, shares in itertools.product(
        range(len(fleet.pools)), itertools.product(range(workers + 1), repeat=len(fleet.pools))
    ):
        if sum(shares) != workers or not takes(fleet.pools[leader], by_role["Leader"]):
            continue
        for position, (pool, share) in enumerate(zip(fleet.pools, shares, strict=True)):
            if share and not takes(pool, by_role["Worker"]):
                break
            copy = pods("Leader", int(position == leader)) + pods("Worker", share)
            groups = pods_on(decided, fleet.name, pool.name) + ([copy] * engine.copies if copy else [])
            if not fits(pool, groups) or (options.accounting == "Nodes" and sum(map(len, groups)) > pool.nodes):
                break
        else:
            return True
    return False


@pytest.mark.parametrize("accounting", ["Devices", "Nodes"])
@settings(max_examples=60)
@given(state=crowded())
def test_a_gang_is_refused_only_when_no_spread_fits(
    accounting: str, state: tuple[list[Cluster], list[Deployment]]
) -> None:
    fleet, desired = state
    options = Options(accounting)  # type: ignore[arg-type]
    decided = schedule(desired, fleet, [], options)
    for pool in fleet[0].pools:
        groups = pods_on(decided, "a", pool.name)
        assert fits(pool, groups)
        assert accounting == "Devices" or sum(map(len, groups)) <= pool.nodes
    placed = [placement for placement in decided.placements if placement.deployment == "gang"]
    hypothesis.event("refused" if not placed else f"{len(pools_used(placed[0]))} pools")
    if not placed:
        assert not possible(desired[1].engines[0], fleet[0], decided, options)
    again = schedule(desired, fleet, fleets.replicas_of(decided), options)
    assert [placement.engines for placement in again.placements] == [
        placement.engines for placement in decided.placements
    ]


def pools_used(placement: Placement) -> set[str]:
    return {name for engine in placement.engines for member in engine.members for name, _ in member.pods_by_pool}


@pytest.mark.parametrize("accounting", ["Devices", "Nodes"])
@settings(max_examples=50)
@given(state=crowded(), followers=st.integers(1, 7))
def test_a_spread_gang_that_is_edited_keeps_its_pools(
    accounting: str, state: tuple[list[Cluster], list[Deployment]], followers: int
) -> None:
    fleet, desired = state
    options = Options(accounting)  # type: ignore[arg-type]
    first = schedule(desired, fleet, [], options)
    engine = desired[1].engines[0]
    members = tuple(replace(one, pods=followers) if one.role == "Worker" else one for one in engine.members)
    edited = [desired[0], replace(desired[1], engines=(replace(engine, members=members),))]
    second = schedule(edited, fleet, fleets.replicas_of(first), options)
    before = {placement.deployment: pools_used(placement) for placement in first.placements}
    for placement in second.placements:
        assert placement.deployment not in before or placement.state == "kept"
        if placement.deployment == "gang":
            assert pools_used(placement) <= before.get("gang", {pool.name for pool in fleet[0].pools})
            worker = next(one for one in placement.engines[0].members if one.role == "Worker")
            assert sum(pods for _, pods in worker.pods_by_pool) == worker.pods == followers
    named = {refusal.pool for refusal in second.overcommitted}
    for pool in fleet[0].pools:
        assert pool.name in named or fits(pool, pods_on(second, "a", pool.name))
