# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""pytest fixtures, for all tests."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from .binaries import UnavailableError, find
from .control_plane import ControlPlane
from .fleet import Fleet


@pytest.fixture(scope="session")
def kubernetes_programs() -> Mapping[str, Path]:
    """The programs of a control plane by name. Where they are not to be had, what asks for them is skipped."""
    try:
        return find()
    except UnavailableError as error:
        pytest.skip(str(error))


@contextlib.contextmanager
def _resumed(paused: Fleet | ControlPlane) -> Iterator[None]:
    """Let control planes run while the context lasts; then remove their nodes and pause them again."""
    try:
        paused.resume()
        yield
        paused.remove_nodes()
    finally:
        paused.pause()


@pytest.fixture(scope="session")
def paused_fleet(kubernetes_programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """The fleet that `fleet` resumes, paused."""
    with Fleet(kubernetes_programs, tmp_path_factory.mktemp("fleet")) as started:
        started.pause()
        yield started


@pytest.fixture(scope="module")
def fleet(paused_fleet: Fleet) -> Iterator[Fleet]:
    """A control cluster and the workload clusters `east` and `west`, the same for all files, paused between them."""
    with _resumed(paused_fleet):
        yield paused_fleet


@pytest.fixture(scope="session")
def paused_cluster(
    kubernetes_programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """The cluster that `cluster` resumes, paused."""
    with ControlPlane(kubernetes_programs, "single", tmp_path_factory.mktemp("cluster")) as started:
        started.pause()
        yield started


@pytest.fixture(scope="module")
def cluster(paused_cluster: ControlPlane) -> Iterator[ControlPlane]:
    """One workload cluster, the same for all files that want no more than that, paused between them."""
    with _resumed(paused_cluster):
        yield paused_cluster
