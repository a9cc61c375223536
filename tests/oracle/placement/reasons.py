# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Verdicts on the reasons of pending replicas: each statement with numbers is read, and the solver is asked for it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import Deployment, Refusal
from ansible_collections.modelplane.fleet.tests.oracle.placement.facts import Facts
from ansible_collections.modelplane.fleet.tests.oracle.placement.rules import PoolKey
from ansible_collections.modelplane.fleet.tests.oracle.placement.solver import Question
from ortools.sat.python import cp_model

_DEVICES = re.compile(r"(\d+) of (\d+) (?!nodes? free)(\S+) free")
_ON_ONE_NODE = re.compile(r"(\S+) free, at most (\d+) on one node")
_NODES = re.compile(r"^(\d+) of (\d+) nodes? free")
_APART = re.compile(r"each of the engines (.+?) fits alone, not all together")


def false_reasons(facts: Facts) -> Iterator[str]:
    """Yield what is not true of the reasons of an answer."""
    yield from _overcommitted(facts)
    seen: set[tuple[PoolKey, str]] = set()
    for pending in facts.decided.pending:
        deployment = facts.deployments[(pending.namespace, pending.deployment)]
        for refusal in pending.refusals:
            facts.figures["reasons"] += len(refusal.clusters)
            for cluster in refusal.clusters:
                if refusal.pool and (cluster, refusal.pool) in facts.closed:
                    continue
                if refusal.pool and ((cluster, refusal.pool), refusal.reason) not in seen:
                    seen.add(((cluster, refusal.pool), refusal.reason))
                    yield from _of_pool(facts, (cluster, refusal.pool), refusal.reason)
                if not refusal.pool:
                    yield from _of_cluster(facts, deployment, cluster, refusal)


def _overcommitted(facts: Facts) -> Iterator[str]:
    named = {(cluster, one.pool) for one in facts.decided.overcommitted for cluster in one.clusters}
    for cluster, name in sorted(named - facts.closed):
        yield f"pool {name} on {cluster} is not overcommitted"
    for cluster, name in sorted(facts.closed - named):
        yield f"pool {name} on {cluster} is overcommitted, which is not reported"


def _of_pool(facts: Facts, pool: PoolKey, reason: str) -> Iterator[str]:
    nodes = facts.nodes[pool]
    load = facts.load(facts.everything).get(pool, Counter())
    if found := _NODES.search(reason):
        taken = sum(count * copies for pods, copies in load.items() for _, count in pods)
        if (int(found[1]), int(found[2])) != (nodes.count - taken, nodes.count):
            yield f"{_where(pool, reason)}; {nodes.count - taken} of {nodes.count} nodes are free"
    for free, there, device in _DEVICES.findall(reason):
        kind = _kind(facts, pool, device)
        total = nodes.devices[kind] * nodes.count
        question, used = _packing(facts, pool, kind)
        question.model.add(cp_model.LinearExpr.sum(used) == total - int(free))
        if int(there) != total or facts.ask(question.possible, unknown=True) is False:
            yield f"{_where(pool, reason)}; no packing leaves {free} of {there} {device}"
    for device, most in _ON_ONE_NODE.findall(reason):
        kind = _kind(facts, pool, device)
        question, used = _packing(facts, pool, kind)
        if used:
            question.model.maximize(nodes.devices[kind] - used[0])
        best = facts.ask(question.most, unknown=None) if used else 0
        if best not in (None, int(most)):
            yield f"{_where(pool, reason)}; some packing leaves {best} {device} on one node"


def _packing(facts: Facts, pool: PoolKey, kind: int) -> tuple[Question, list[cp_model.LinearExpr]]:
    """Everything that is placed on a pool, and the devices of a kind that are used on each node."""
    question = facts.question()
    question.charge(pool, facts.load(facts.everything).get(pool, Counter()))
    question.fill(interchangeable=False)
    return question, [node[kind] for node in question.used[pool]]


def _kind(facts: Facts, pool: PoolKey, device: str) -> int:
    devices = next(one.devices for one in facts.clusters[pool[0]].pools if one.name == pool[1])
    return next(place for place, one in enumerate(devices) if one.name == device)


def _of_cluster(facts: Facts, deployment: Deployment, cluster: str, refusal: Refusal) -> Iterator[str]:
    if found := _APART.search(refusal.reason):
        names = found[1].split(", ")
        engines = [engine for engine in deployment.engines if engine.name in names]
        for engine in engines:
            if facts.takes_one_more(deployment, [cluster], [engine]) is False:
                yield f"{deployment.name} on {cluster}: {refusal.reason}; {engine.name} does not fit alone"
        if facts.takes_one_more(deployment, [cluster], engines):
            yield f"{deployment.name} on {cluster}: {refusal.reason}; they fit together"


def _where(pool: PoolKey, reason: str) -> str:
    return f"pool {pool[1]} on {pool[0]}: {reason}"
