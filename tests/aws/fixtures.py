# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""pytest fixtures. A folder of tests that wants them imports them in its conftest.py."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .double import AwsDouble


@pytest.fixture(scope="session")
def aws_server() -> Iterator[AwsDouble]:
    """The double, for all tests of the session."""
    with AwsDouble() as started:
        yield started


@pytest.fixture
def aws(aws_server: AwsDouble) -> Iterator[AwsDouble]:
    """The double with a fresh account. Whatever a test did, the double itself must not have failed in it."""
    aws_server.reset()
    yield aws_server
    assert aws_server.defects == []
