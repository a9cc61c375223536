# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Verdicts on the reasons of pending replicas: each statement that can be checked is read, and the solver is asked."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import (
    Cluster,
    Deployment,
    Engine,
    Fabric,
    Pending,
)
from ansible_collections.modelplane.fleet.tests.oracle.placement import rules
from ansible_collections.modelplane.fleet.tests.oracle.placement.facts import Facts
from ansible_collections.modelplane.fleet.tests.oracle.placement.rules import PoolKey
from ansible_collections.modelplane.fleet.tests.oracle.placement.solver import Question
from ansible_collections.modelplane.fleet.tests.oracle.placement.written import fabric_device
from ortools.sat.python import cp_model

_MESSAGE = re.compile(r"^(\d+) of (\d+) replicas scheduled")
_ENGINE = re.compile(r"(?:^|; )engine (\S+): ")
_DEVICES = re.compile(r"(\d+) of (\d+) (?!nodes? free)(\S+) free")
_ON_ONE_NODE = re.compile(r"(\S+) free, at most (\d+) on one node")
_NODES = re.compile(r"(\d+) of (\d+) nodes? free")
_APART = re.compile(r"^each of the engines (.+?) fits alone, not all together$")
_TOGETHER = re.compile(r"^pools (.+) of fabric .* together take (\d+) of the (\d+) pods of ")
_SAME_FABRIC = re.compile(r"^pools (.+) would take it together if they named the same fabric$")
_NEVER = re.compile(
    r"^(?:label |has no label (?!.*, over which spread )|taint .* is not tolerated|is not Ready|has no gateway address)"
)
_UNMATCHED = re.compile(
    r"^(?:no device for request |devices? .* match(?:es)?, but a node has |"
    r"requests .* together need more than a node has|no devices for requests |only Synthetic devices match)"
)
_BOUND = "ended at its bound"


def false_reasons(facts: Facts) -> Iterator[str]:
    """Yield what is not true of the reasons of an answer."""
    yield from _overcommitted(facts)
    for pending in facts.decided.pending:
        deployment = facts.deployments[(pending.namespace, pending.deployment)]
        yield from _of_message(facts, pending)
        for refusal in pending.refusals:
            facts.figures["reasons"] += len(refusal.clusters)
            facts.figures["reasons that name the bound"] += _BOUND in refusal.reason
            for cluster in refusal.clusters:
                for engines, reason in _parts(deployment, refusal.reason):
                    where = f"{deployment.name}, {refusal.pool or 'any pool'} on {cluster}: {reason}"
                    for error in _errors(facts, deployment, engines, cluster, refusal.pool, reason):
                        yield f"{where}; {error}"


def _overcommitted(facts: Facts) -> Iterator[str]:
    named = {(cluster, one.pool) for one in facts.decided.overcommitted for cluster in one.clusters}
    for cluster, name in sorted(named - facts.closed):
        yield f"pool {name} on {cluster} is not overcommitted"
    for cluster, name in sorted(facts.closed - named):
        yield f"pool {name} on {cluster} is overcommitted, which is not reported"


def _of_message(facts: Facts, pending: Pending) -> Iterator[str]:
    key = (pending.namespace, pending.deployment)
    desired, placed = facts.deployments[key].replicas, facts.deployments[key].replicas - facts.missing[key]
    placed += facts.placed[key]
    found = _MESSAGE.search(pending.message)
    if pending.count != desired - placed or (found and (int(found[1]), int(found[2])) != (placed, desired)):
        yield f"{pending.deployment}: {pending.count} pending, {pending.message}; {placed} of {desired} are placed"


def _parts(deployment: Deployment, reason: str) -> Iterator[tuple[Sequence[Engine], str]]:
    """Yield what a reason says of single engines, or of all of them."""
    engines = {engine.name: engine for engine in deployment.engines}
    first, *more = _ENGINE.split(reason)
    if first:
        yield deployment.engines, first
    for name, text in zip(more[::2], more[1::2], strict=True):
        yield (engines[name],), text


def _errors(
    facts: Facts, deployment: Deployment, engines: Sequence[Engine], on: str, pool: str, reason: str
) -> Iterator[str]:
    cluster = facts.clusters[on]
    if not pool:
        yield from _of_cluster(facts, deployment, engines, cluster, reason)
    elif (on, pool) in facts.closed:
        return
    elif _UNMATCHED.search(reason):
        found = [layout for engine in engines for layout in rules.layouts_of(engine, cluster) if layout.pools == {pool}]
        if found:
            yield f"{found[0].members} would match"
    elif _NODES.search(reason) or _DEVICES.search(reason):
        yield from _of_pool(facts, (on, pool), reason)
        if any(facts.takes_one_more(deployment, on, [engine], [pool]) for engine in engines):
            yield "it has room"


def _of_pool(facts: Facts, pool: PoolKey, reason: str) -> Iterator[str]:
    nodes = facts.nodes[pool]
    load = facts.load(facts.everything).get(pool, Counter())
    for free, there in _NODES.findall(reason):
        taken = sum(count * copies for pods, copies in load.items() for _, count in pods)
        if (int(free), int(there)) != (nodes.count - taken, nodes.count):
            yield f"{nodes.count - taken} of {nodes.count} nodes are free"
    for free, there, device in _DEVICES.findall(reason):
        kind = _kind(facts, pool, device)
        total = nodes.devices[kind] * nodes.count
        if int(there) != total or not _may_leave(facts, pool, kind, int(free)):
            yield f"no packing leaves {free} of {there} {device}"
    for device, most in _ON_ONE_NODE.findall(reason):
        best = _largest(facts, pool, _kind(facts, pool, device))
        if best not in (None, int(most)):
            yield f"some packing leaves {best} {device} on one node"


def _may_leave(facts: Facts, pool: PoolKey, kind: int, free: int) -> bool:
    """Return whether some packing of what is on a pool leaves so many devices of a kind, or that is not known."""
    total = facts.nodes[pool].devices[kind] * facts.nodes[pool].count
    least, most = _taken(facts, pool, kind)
    if least == most:
        return total - least == free
    question, used = _packing(facts, pool, kind)
    question.model.add(cp_model.LinearExpr.sum(used) == total - free)
    return facts.ask(question.possible) is not False


def _largest(facts: Facts, pool: PoolKey, kind: int) -> int | None:
    """Return the largest number of devices of a kind that some packing leaves on one node; None if not known."""
    nodes = facts.nodes[pool]
    least, most = _taken(facts, pool, kind)
    if not most or least == nodes.devices[kind] * nodes.count:
        return 0 if most or not nodes.count else nodes.devices[kind]
    question, used = _packing(facts, pool, kind)
    question.model.maximize(nodes.devices[kind] - used[0])
    return facts.ask(question.most)


def _taken(facts: Facts, pool: PoolKey, kind: int) -> tuple[int, int]:
    """Return how many devices of a kind what is on a pool takes, at least and at most, by choice of other kinds."""
    load = facts.load(facts.everything).get(pool, Counter())
    taken = [
        (times * count, [vector[kind] for vector in charges]) for pods, times in load.items() for charges, count in pods
    ]
    return sum(pods * min(each) for pods, each in taken), sum(pods * max(each) for pods, each in taken)


def _packing(facts: Facts, pool: PoolKey, kind: int) -> tuple[Question, list[cp_model.LinearExpr]]:
    """Everything that is placed on a pool, and the devices of a kind that are used on each node."""
    question = facts.question()
    question.charge(pool, facts.load(facts.everything).get(pool, Counter()))
    question.fill(interchangeable=False)
    return question, [node[kind] for node in question.used[pool]]


def _kind(facts: Facts, pool: PoolKey, device: str) -> int:
    devices = next(one.devices for one in facts.clusters[pool[0]].pools if one.name == pool[1])
    return next(place for place, one in enumerate(devices) if one.name == device)


def _of_cluster(
    facts: Facts, deployment: Deployment, engines: Sequence[Engine], cluster: Cluster, reason: str
) -> Iterator[str]:
    if _NEVER.search(reason) and not rules.ineligible(deployment, cluster):
        yield "the cluster takes new replicas"
    if found := _APART.search(reason):
        named = [engine for engine in engines if engine.name in found[1].split(", ")]
        for engine in named:
            if facts.takes_one_more(deployment, cluster.name, [engine]) is False:
                yield f"{engine.name} does not fit alone"
        if facts.takes_one_more(deployment, cluster.name, named):
            yield "they fit together"
    if found := _TOGETHER.search(reason):
        for engine in engines:
            yield from _taken_together(facts, deployment, engine, cluster, _names(found[1]), int(found[2]))
    if found := _SAME_FABRIC.search(reason):
        joined = _joined(facts, cluster, _names(found[1]))
        for engine in engines:
            if joined.takes_one_more(deployment, cluster.name, [engine], _names(found[1])) is False:
                yield "they do not take it"


def _names(text: str) -> list[str]:
    return re.split(r", | and ", text)


def _taken_together(
    facts: Facts, deployment: Deployment, engine: Engine, cluster: Cluster, pools: Sequence[str], pods: int
) -> Iterator[str]:
    """Yield that pools take fewer pods of a gang than it says, or more."""
    sizes: Mapping[int, bool | None] = {
        size: facts.takes_one_more(deployment, cluster.name, [_with_workers(engine, size - 1)], pools)
        for size in (pods, pods + 1)
        if size > 1
    }
    if sizes.get(pods) is False:
        yield f"they do not take {pods}"
    if sizes.get(pods + 1):
        yield f"they take {pods + 1}"


def _with_workers(engine: Engine, workers: int) -> Engine:
    members = tuple(replace(one, pods=workers) if one.role == "Worker" else one for one in engine.members)
    return replace(engine, members=members)


def _joined(facts: Facts, cluster: Cluster, pools: Sequence[str]) -> Facts:
    """The facts of a fleet in which pools are on one fabric."""
    joined = replace(
        cluster,
        pools=tuple(
            replace(
                one,
                devices=(*(device for device in one.devices if device.name != "fabric"), fabric_device("joined")),
                fabrics=(Fabric("EFA", "joined"),),
            )
            if one.name in pools
            else one
            for one in cluster.pools
        ),
    )
    clusters = tuple(joined if one is cluster else one for one in facts.fleet.clusters)
    found = Facts(replace(facts.fleet, clusters=clusters), facts.decided)
    found.figures = facts.figures
    return found
