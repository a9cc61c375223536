# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""pytest fixtures. A folder of tests that wants them imports them in its conftest.py."""

from __future__ import annotations

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


@pytest.fixture(scope="session")
def fleet(kubernetes_programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A control cluster and the workload clusters `east` and `west`, for all tests of the session."""
    with Fleet(kubernetes_programs, tmp_path_factory.mktemp("fleet")) as started:
        yield started


@pytest.fixture(scope="session")
def cluster(
    kubernetes_programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """One workload cluster, for all tests of the session that want no more than that."""
    with ControlPlane(kubernetes_programs, "single", tmp_path_factory.mktemp("cluster")) as started:
        yield started
