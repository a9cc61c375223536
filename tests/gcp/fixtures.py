# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""pytest fixtures of the double of Google Cloud, which all tests have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .double import Double


@pytest.fixture(scope="session")
def gcp_process() -> Iterator[Double]:
    """The process, which takes seconds to start. Tests ask for `gcp`."""
    # Most sessions do without.
    from .double import Double

    with Double() as started:
        yield started


@pytest.fixture
def gcp(gcp_process: Double) -> Iterator[Double]:
    """A double of Google Cloud with nothing in it. What a test asks of it has to be what Google allows."""
    gcp_process.reset()
    yield gcp_process
    assert gcp_process.invalid() == []
