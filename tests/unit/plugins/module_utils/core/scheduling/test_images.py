# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Tests of the scheduler with images that run on one architecture only."""

from __future__ import annotations

from dataclasses import replace

from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import Engine, ImageNeed
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.placement import schedule
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.scheduling import fleets


def engine(architecture: str) -> Engine:
    found = fleets.standalone()
    member = found.members[0]
    requests = tuple(replace(request, image=ImageNeed(architecture)) for request in member.requests)
    return replace(found, members=(replace(member, requests=requests),))


def test_a_replica_that_runs_stays_where_it_is() -> None:
    """The name of its image may mislead, and the pods may run."""
    clusters = [fleets.cluster("west", fleets.pool("gpu", 1, replace(fleets.gpu(), architecture="arm64")))]
    before = schedule([fleets.deployment("d", 1, engine(""))], clusters, [])
    running = fleets.replicas_of(before)
    decided = schedule([fleets.deployment("d", 1, engine("amd64"))], clusters, running)
    assert [placement.state for placement in decided.placements] == ["kept"]
    assert schedule([fleets.deployment("d", 1, engine("amd64"))], clusters, []).placements == ()


def test_the_architecture_chooses_the_pool() -> None:
    pools = [fleets.pool(name, 1, replace(fleets.gpu(), architecture=name)) for name in ("amd64", "arm64")]
    for name in ("amd64", "arm64"):
        decided = schedule([fleets.deployment("d", 1, engine(name))], [fleets.cluster("west", *pools)], [])
        assert [placement.engines[0].members[0].pool for placement in decided.placements] == [name]
