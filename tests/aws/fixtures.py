# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""pytest fixtures of the double of AWS, which all tests have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .double import Double


@pytest.fixture(scope="session")
def aws_process() -> Iterator[Double]:
    """The process, which takes seconds to start. Tests ask for `aws`."""
    # Most sessions do without, and without boto3.
    from .double import Double

    with Double() as started:
        yield started


@pytest.fixture
def aws(aws_process: Double) -> Iterator[Double]:
    """A double of AWS with nothing in it. What a test asks of it has to be what AWS allows."""
    aws_process.reset()
    yield aws_process
    assert aws_process.invalid() == []
