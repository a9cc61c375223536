# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Fixtures of tests with gateways."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from ansible_collections.modelplane.fleet.tests.kube.binaries import UnavailableError
from ansible_collections.modelplane.fleet.tests.kube.control_plane import ControlPlane

from . import network, programs
from .equipment import COMPONENTS, GatewayCluster


@pytest.fixture(scope="module")
def gateway_cluster(
    kubernetes_programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayCluster]:
    """A cluster whose controllers run, without a Gateway. Where it cannot be, what asks for it is skipped."""
    try:
        network.require()
        programs.images()
        programs.chart()
    except UnavailableError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("gateway")
    with (
        ControlPlane(
            kubernetes_programs, "gateway", folder / "cluster", components=COMPONENTS, egress=folder / "egress"
        ) as cluster,
        GatewayCluster(cluster, folder) as running,
    ):
        running.network.proxy(folder / "egress")
        yield running
