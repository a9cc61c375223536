# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Answers with planted errors for distributed fleets, each of which `check` has to find."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning import Plan
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning.survival import Survey
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import (
    Dropped,
    Pending,
    Placement,
    Refusal,
    Schedule,
)
from ansible_collections.modelplane.fleet.tests.oracle.placement.losses import by_the_survey
from ansible_collections.modelplane.fleet.tests.oracle.placement.promises import check
from ansible_collections.modelplane.fleet.tests.oracle.placement.written import Fleet, Written, read

PREFERRED: Written = {"preferences": [{"tier": "best"}]}
RETURNING: Written = {**PREFERRED, "returns": True}
SPREAD: Written = {"spread": [["region", 1, True]]}
MINIMUM: Written = {"minimum": {"region": 1}}


def clusters(nodes: int) -> list[Written]:
    """Return a, which is preferred and cheap, and b, with nodes that one replica fills."""
    devices = [{"name": "gpu", "count": 2}]
    return [
        {
            "name": name,
            "labels": labels,
            "pools": [{"name": "x", "nodes": nodes, "devices": devices, "price": price}],
        }
        for name, labels, price in (
            ("a", {"region": "east", "tier": "best"}, "1"),
            ("b", {"region": "west"}, "2"),
        )
    ]


def deployment(name: str, replicas: int, **more: object) -> Written:
    members = [{"role": "Standalone", "requests": {"gpu": [2, "gpu"]}}]
    return {"name": name, "replicas": replicas, "engines": [{"name": "one", "members": members}], **more}


def fleet(*deployments: Written, running: Mapping[str, str] | None = None, nodes: int = 2, **more: object) -> Fleet:
    """Return a fleet. `running`: the clusters of the replicas of each deployment, a letter for each replica."""
    claims = {"gpu": [2, "gpu", "gpu.nvidia.com"]}
    members = [{"role": "Standalone", "pods": {"x": 1}, "claims": claims}]
    replicas = [
        {"deployment": name, "cluster": cluster, "index": index, "engines": [{"name": "one", "members": members}]}
        for name, places in (running or {}).items()
        for index, cluster in enumerate(places)
    ]
    return read({"clusters": clusters(nodes), "deployments": list(deployments), "running": replicas, **more})


def answer(given: Fleet, new: Mapping[str, str], dropped: Sequence[Dropped] = ()) -> Schedule:
    """Return an answer with these new replicas, in which all running replicas stay that are not dropped."""
    gone = {entry.replica.name for entry in dropped}
    template = fleet(deployment("d", 1), running={"d": "a"}).running[0].engines
    placements = [
        Placement(one.namespace, one.deployment, one.cluster, one.index, one.engines, "kept", replica=one.name)
        for one in given.running
        if one.name not in gone
    ]
    placements += [
        Placement("ml-team", name, cluster, 10 + index, template, "new")
        for name, places in new.items()
        for index, cluster in enumerate(places)
    ]
    placed = Counter(one.deployment for one in placements)
    pending = [
        Pending(one.namespace, one.name, one.replicas - placed[one.name], "InsufficientCapacity", "")
        for one in given.deployments
        if one.replicas > placed[one.name]
    ]
    ordered = sorted(placements, key=lambda one: (one.deployment, one.cluster, one.index))
    return Schedule(tuple(ordered), tuple(pending), tuple(dropped))


def kinds(given: Fleet, planted: Schedule) -> set[str]:
    """Return the kinds of findings of an answer, which later runs leave as it is."""
    return {one.kind for one in check(given, lambda asked: planted if asked is given else answer(asked, {})).findings}


def preempted(given: Fleet, number: int, by: str) -> Dropped:
    return Dropped(given.running[number], "planted", preempted_by=f"ml-team/{by}")


@pytest.mark.parametrize(
    ("asked", "good", "bad", "kind"),
    [
        (SPREAD, "ab", "aa", "spread"),
        (MINIMUM, "ab", "aa", "minAvailable"),
        (PREFERRED, "aa", "ab", "preferences"),
        ({}, "ab", "a", "false rejects"),
        ({"cost": {"ceiling": "2"}}, "aa", "ab", "cost"),
        ({"cost": {}}, "aa", "ab", "cheapest"),
    ],
)
def test_a_wrong_place_is_found(asked: Written, good: str, bad: str, kind: str) -> None:
    given = fleet(deployment("d", 2, **asked))
    assert kinds(given, answer(given, {"d": good})) == set()
    assert kind in kinds(given, answer(given, {"d": bad}))


@pytest.mark.parametrize("asked", [SPREAD, MINIMUM])
def test_a_replica_that_does_not_return_is_found(asked: Written) -> None:
    """Another replica is pending in the second fleet, because cluster c of region north has no room."""
    alone = fleet(deployment("d", 1, **RETURNING), running={"d": "b"})
    assert kinds(alone, answer(alone, {})) == {"return"}
    written = clusters(2)
    written[0]["labels"]["region"] = "west"
    written.append({"name": "c", "labels": {"region": "north"}, "pools": [{**written[0]["pools"][0], "nodes": 0}]})
    given = replace(
        fleet(deployment("d", 2, **RETURNING, **asked), running={"d": "b"}),
        clusters=read({"clusters": written, "deployments": []}).clusters,
    )
    assert kinds(given, answer(given, {})) == {"return"}


def test_replicas_that_always_return_are_found() -> None:
    given = fleet(deployment("d", 1, **RETURNING), running={"d": "b"})

    def returns(asked: Fleet) -> Schedule:
        [old] = asked.running
        cluster = "a" if old.cluster == "b" else "b"
        return answer(asked, {"d": cluster}, [Dropped(old, "planted", evicted=True)])

    assert "return" in {one.kind for one in check(given, returns).findings}


def test_a_return_that_takes_the_place_of_a_pending_replica_is_found() -> None:
    given = fleet(deployment("d", 3, **RETURNING), running={"d": "bb"}, nodes=1)
    planted = answer(given, {"d": "a"}, [Dropped(given.running[1], "planted", evicted=True)])
    assert "return" in kinds(given, planted)


@pytest.mark.parametrize("asked", [{}, RETURNING])
def test_a_return_to_no_preferred_cluster_is_found(asked: Written) -> None:
    given = fleet(deployment("d", 1, **asked), running={"d": "a"})
    assert "return" in kinds(given, answer(given, {"d": "b"}, [Dropped(given.running[0], "planted", evicted=True)]))


def test_several_returns_at_once_are_found() -> None:
    given = fleet(deployment("d", 2, **RETURNING), running={"d": "bb"})
    dropped = [Dropped(one, "planted", evicted=True) for one in given.running]
    assert "return" in kinds(given, answer(given, {"d": "aa"}, dropped))


def test_a_return_that_leaves_a_minimum_is_found() -> None:
    given = fleet(deployment("d", 2, **RETURNING, **MINIMUM), running={"d": "ab"})
    planted = answer(given, {"d": "a"}, [Dropped(given.running[1], "planted", evicted=True)])
    assert "return" in kinds(given, planted)


HIGH: Written = {"priority": 1, "preempts": True}


def test_a_missed_preemption_is_found() -> None:
    given = fleet(deployment("low", 2), deployment("high", 1, **HIGH), running={"low": "ab"}, nodes=1)
    good = answer(given, {"high": "b"}, [preempted(given, 1, "high")])
    assert kinds(given, good) == set()
    assert kinds(given, answer(given, {})) == {"preemption"}


@pytest.mark.parametrize("high", [{"preempts": True}, {"priority": 1}, {**HIGH, "cost": {}}])
def test_a_wrong_victim_is_found(high: Written) -> None:
    """The deployment has no higher priority, does not preempt, or has limits on its cost."""
    given = fleet(deployment("low", 2), deployment("high", 1, **high), running={"low": "ab"}, nodes=1)
    assert "victims" in kinds(given, answer(given, {"high": "b"}, [preempted(given, 1, "high")]))


def test_a_victim_on_a_cluster_that_does_not_answer_is_found() -> None:
    given = fleet(deployment("low", 2), deployment("high", 1, **HIGH), running={"low": "ab"}, nodes=1)
    silent = replace(given, clusters=tuple(replace(cluster, silent=True) for cluster in given.clusters))
    assert "victims" in kinds(silent, answer(silent, {"high": "b"}, [preempted(silent, 1, "high")]))


def test_a_victim_for_nothing_is_found() -> None:
    given = fleet(deployment("low", 1), deployment("high", 1, **HIGH), running={"low": "b"}, nodes=1)
    found = kinds(given, answer(given, {}, [preempted(given, 0, "high")]))
    assert {"victims", "false rejects"} <= found


def test_a_needless_victim_is_found() -> None:
    """Its devices stay free, because the replica that preempts it goes elsewhere."""
    given = fleet(deployment("low", 1), deployment("high", 1, **HIGH), running={"low": "b"}, nodes=1)
    assert "needless victims" in kinds(given, answer(given, {"high": "a"}, [preempted(given, 0, "high")]))


@pytest.mark.parametrize(("removed", "is_wrong"), [(0, True), (1, False)])
def test_a_replica_that_is_removed_out_of_order_is_found(removed: int, is_wrong: bool) -> None:
    """Scaling down removes the least preferred replica first."""
    given = fleet(deployment("d", 1, **PREFERRED), running={"d": "ab"})
    planted = answer(given, {}, [Dropped(given.running[removed], "scaled down")])
    assert kinds(given, planted) == ({"moves"} if is_wrong else set())


def test_a_false_reason_is_found() -> None:
    """Both values of the label have one replica, so that each may have another one; the pools have no room."""
    given = fleet(deployment("d", 3, **SPREAD), nodes=1)
    planted = answer(given, {"d": "ab"})
    reason = "region east would have 2 replicas and west has 0, which is over maxSkew 1 of spread"
    false = replace(planted.pending[0], refusals=(Refusal(reason, "", ("a",)),))
    assert kinds(given, planted) == set()
    found = check(given, lambda asked: replace(planted if asked is given else answer(asked, {}), pending=(false,)))
    assert {one.kind for one in found.findings} == {"false reasons"}


def test_a_second_run_that_differs_is_found() -> None:
    given = fleet(deployment("d", 1))
    planted = answer(given, {"d": "a"})
    moved = tuple(replace(one, cluster="b") for one in planted.placements)
    answers = {True: planted, False: replace(planted, placements=moved)}
    found = check(given, lambda asked: answers[asked is given])
    assert {one.kind for one in found.findings} == {"changes of a second run"}


@pytest.mark.parametrize("survive", [1, 2])
def test_a_loss_that_the_survey_misses_is_found(survive: int) -> None:
    given = fleet(deployment("d", 1), nodes=1, survive=survive)
    full = replace(given, clusters=given.clusters[:1])

    def nothing_lost(asked: Fleet, planned: Plan) -> Survey:
        return replace(by_the_survey(asked, planned), shortfalls=())

    assert {one.kind for one in check(full).findings} == set()
    assert {one.kind for one in check(full, surveyor=nothing_lost).findings} == {"survive"}


def test_a_loss_that_a_service_survives_and_the_survey_reports_is_found() -> None:
    given = fleet(deployment("d", 1), survive=1)

    def of_one_cluster(asked: Fleet, planned: Plan) -> Survey:
        return by_the_survey(asked, replace(planned, clusters=planned.clusters[:1]))

    assert {one.kind for one in check(given).findings} == set()
    assert {one.kind for one in check(given, surveyor=of_one_cluster).findings} == {"survive"}
