# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Every pod of a plan is bound by a real kube-scheduler, with real allocation of devices, in any order."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
from ansible_collections.modelplane.fleet.tests.kube.control_plane import ControlPlane
from ansible_collections.modelplane.fleet.tests.oracle.binding import heterogeneous, trial
from ansible_collections.modelplane.fleet.tests.oracle.placement.written import Fleet, read

# On slow machines pods take long to get a node; a pod that finds none costs a failing test as much.
PATIENCE_SECONDS = 60.0

_ONE = {"role": "Standalone", "requests": {"gpu": [1, "gpu"]}}
_WHOLE = {"role": "Standalone", "requests": {"gpu": [8, "gpu"]}}
_LARGE = {"role": "Standalone", "requests": {"gpu": [1, "large"]}}


@pytest.fixture(scope="module")
def plane(cluster: ControlPlane) -> Iterator[ControlPlane]:
    trial.prepare(cluster)
    yield cluster
    trial.forget(cluster)


def _written(devices: list[dict[str, object]], nodes: int, members: dict[str, tuple[int, dict[str, object]]]) -> Fleet:
    return read(
        {
            "clusters": [{"name": "a", "pools": [{"name": "p", "nodes": nodes, "devices": devices}]}],
            "deployments": [
                {"name": name, "replicas": replicas, "engines": [{"name": "one", "members": [member]}]}
                for name, (replicas, member) in members.items()
            ],
        }
    )


def _bind(plane: ControlPlane, tried: trial.Trial, order: int, patience: float = PATIENCE_SECONDS) -> list[str]:
    return trial.run(plane, tried, random.Random(f"{tried.name}/{order}"), patience=patience)


SPREAD = _written([{"name": "gpu", "count": 8}], 2, {"one": (4, _ONE), "whole": (1, _WHOLE)})
ANY = _written(
    [{"name": "gpu", "count": 1}, {"name": "little", "count": 1, "memory": "24Gi"}],
    1,
    {"any": (1, _ONE), "large": (1, _LARGE)},
)


@pytest.mark.parametrize(("fleet", "name"), [(SPREAD, "spread"), (ANY, "any")], ids=["spread", "any"])
def test_what_would_strand_a_pod_is_bound(plane: ControlPlane, fleet: Fleet, name: str) -> None:
    loose = trial.plan(fleet, f"{name}-loose", bound=False)
    # The small pods first, as they are in the plan.
    assert trial.run(plane, loose, None, patience=PATIENCE_SECONDS, trusting=True) != []
    assert trial.run(plane, trial.plan(fleet, f"{name}-bound"), None, patience=PATIENCE_SECONDS) == []


def _claim(gpus: int, cards: int = 0) -> dict[str, object]:
    desired = {"gpu": [gpus, "gpu"], "nic": [cards, "nic"]}
    return {"role": "Standalone", "requests": {name: claim for name, claim in desired.items() if claim[0]}}


def _large(gpus: int, cards: int, nodes: int, *members: tuple[int, dict[str, object]]) -> Fleet:
    """Return a pool of large nodes. The pods of the first members leave too few free devices for the last ones."""
    devices = [{"name": "gpu", "count": gpus}, {"name": "nic", "count": cards, "nic": True}]
    return _written([one for one in devices if one["count"]], nodes, {f"m{at}": one for at, one in enumerate(members)})


@pytest.mark.parametrize(
    ("name", "fleet"),
    {
        "whole": _large(32, 0, 2, (1, _claim(8)), (1, _claim(32))),
        "whole-split": _large(64, 0, 2, (1, _claim(16)), (1, _claim(64))),
        "part": _large(64, 0, 2, (1, _claim(40)), (1, _claim(32))),
        "part-split": _large(64, 0, 2, (1, _claim(32)), (1, _claim(40))),
        "two-requests": _large(8, 32, 2, (1, _claim(1, 4)), (1, _claim(4, 32))),
        "one-node": _large(64, 0, 1, (2, _claim(8)), (1, _claim(48))),
    }.items(),
)
def test_large_pods_are_bound_beside_partly_used_nodes(plane: ControlPlane, name: str, fleet: Fleet) -> None:
    """kube-scheduler tries each subset of too few free devices, until it gives up the pod after 10 seconds."""
    tried = trial.plan(fleet, name)
    assert tried.may_strand == ()
    assert trial.run(plane, tried, None, patience=PATIENCE_SECONDS) == []


def test_large_pods_are_bound_beside_running_ones_without_a_number(plane: ControlPlane) -> None:
    fleet = _large(32, 0, 3, (1, _claim(8)), (1, _claim(8)), (1, _claim(32)))
    tried = trial.plan(
        fleet, "grown", running=trial.ran(trial.plan(replace(fleet, deployments=fleet.deployments[:2]), "grown"))
    )
    assert [one.engines[0].members[0].planned_nodes for one in tried.placements[:2]] == [None, None]
    assert trial.run(plane, tried, None, patience=PATIENCE_SECONDS) == []


@pytest.mark.parametrize("number", trial.STRANDING)
def test_plans_are_bound(plane: ControlPlane, number: int) -> None:
    tried = trial.trial(1, number, f"sample-{number}")
    assert tried.pods
    assert _bind(plane, tried, 0) == []


@pytest.mark.parametrize("number", [5, 6, 7, 13])
def test_large_pods_are_bound_on_nodes_with_devices_that_lack_attributes(plane: ControlPlane, number: int) -> None:
    tried = trial.plan(heterogeneous.generate(1, number), f"mixed-{number}")
    assert tried.pods
    assert _bind(plane, tried, 0) == []


@pytest.mark.interrupted
@pytest.mark.parametrize("number", range(120))
def test_heterogeneous_plans_are_bound_in_any_order(plane: ControlPlane, number: int) -> None:
    for order in range(2):
        tried = trial.plan(heterogeneous.generate(2, number), f"mixed-{number}-{order}")
        if tried.pods and not tried.may_strand:
            assert _bind(plane, tried, order) == []


@pytest.mark.interrupted
@pytest.mark.parametrize("number", range(120))
def test_plans_are_bound_in_any_order(plane: ControlPlane, number: int) -> None:
    for order in range(3):
        tried = trial.trial(1, number, f"order-{number}-{order}")
        if tried.pods and not tried.may_strand:
            assert _bind(plane, tried, order) == []


@pytest.mark.interrupted
def test_few_plans_say_that_a_pod_may_find_no_node() -> None:
    may_strand = [number for number in range(120) if trial.trial(1, number, f"t{number}").may_strand]
    assert len(may_strand) <= 2, may_strand
