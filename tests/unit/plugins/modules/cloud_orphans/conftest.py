# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Fixtures: the network of a cluster in each cloud, without anything in it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from ansible_collections.modelplane.fleet.tests.aws.double import Double as Aws
from ansible_collections.modelplane.fleet.tests.gcp.double import Double
from ansible_collections.modelplane.fleet.tests.unit.plugins.modules.cloud_orphans.project import Project
from ansible_collections.modelplane.fleet.tests.unit.plugins.modules.cloud_orphans.vpc import Vpc, network


@pytest.fixture
def vpc(aws: Aws) -> Vpc:
    return network(aws)


@pytest.fixture
def project(gcp: Double) -> Iterator[Project]:
    gcp.settings(polls=0)
    made = Project(gcp)
    made.create("network", "subnetwork", "service-filestore")
    yield made
    assert gcp.invalid() == []
