# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Fixtures: an account, empty and with a cluster."""

from __future__ import annotations

import pytest
from ansible_collections.modelplane.fleet.tests.aws.double import Double
from ansible_collections.modelplane.fleet.tests.unit.plugins.modules.cloud_resources_eks.eks_account import Cluster


@pytest.fixture
def cluster(aws: Double) -> Cluster:
    """An empty account, in which nothing takes time unless a test says so."""
    aws.settings(phases=0)
    return Cluster(aws)


@pytest.fixture
def made(cluster: Cluster) -> Cluster:
    cluster.apply()
    cluster.sent()
    return cluster
