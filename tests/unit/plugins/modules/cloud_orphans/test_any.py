# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module cloud_orphans in any cloud: no orphans, no network, a plan without what is needed."""

from __future__ import annotations

import pytest
from ansible_collections.modelplane.fleet.tests.aws.double import Double as Aws
from ansible_collections.modelplane.fleet.tests.gcp.double import Double
from ansible_collections.modelplane.fleet.tests.unit.plugins.modules.cloud_orphans.project import Project
from ansible_collections.modelplane.fleet.tests.unit.plugins.modules.cloud_orphans.vpc import Vpc


@pytest.fixture(params=["vpc", "project"])
def place(request: pytest.FixtureRequest) -> Vpc | Project:
    found: Vpc | Project = request.getfixturevalue(request.param)
    return found


def test_a_network_without_orphans(place: Vpc | Project) -> None:
    for check in (True, False):
        result = place.sweep(check=check)
        assert (result["failed"], result["changed"], place.did()) == (False, False, [])
        assert (result["removed"], result["left_alone"], result["pending"]) == ([], [], [])
        assert result["diff"] == {"before": {}, "after": {}}


def test_no_network(aws: Aws, gcp: Double) -> None:
    for place in (Vpc(aws, "", []), Project(gcp)):
        result = place.sweep()
        assert (result["failed"], result["changed"], result["removed"]) == (False, False, [])


def test_a_plan_without_what_is_needed(place: Vpc | Project) -> None:
    result = place.sweep(plan={})
    assert result["failed"] is True
    assert result["msg"].startswith("plan: has no name, ")
