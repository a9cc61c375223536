# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
from __future__ import annotations

import pytest
from ansible_collections.modelplane.fleet.tests.gcp.double import Double
from ansible_collections.modelplane.fleet.tests.gcp.made import Project


@pytest.fixture
def project(gcp: Double) -> Project:
    """An empty project, in which nothing takes time unless a test says so."""
    gcp.settings(polls=0)
    return Project(gcp)
