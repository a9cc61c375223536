# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""pytest fixtures of the double of Google Cloud. A folder of tests that wants them imports them in its conftest.py."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .double import Double


@pytest.fixture(scope="module")
def gcp() -> Iterator[Double]:
    """A double of Google Cloud for the tests of a module. Tests that need it empty call `gcp.reset()` first."""
    with Double() as started:
        yield started
