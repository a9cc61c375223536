# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("moto", reason="moto is not installed")

from ansible_collections.modelplane.fleet.tests.aws.double import AwsDouble
from ansible_collections.modelplane.fleet.tests.unit.aws.site import Site


@pytest.fixture(scope="session")
def double() -> Iterator[AwsDouble]:
    with AwsDouble() as made:
        yield made


@pytest.fixture
def aws(double: AwsDouble, monkeypatch: pytest.MonkeyPatch) -> Iterator[AwsDouble]:
    """An empty account. Whatever a test does, each request has to be valid by the models of botocore."""
    double.reset()
    for name, value in double.environment.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_SESSION_TOKEN", "HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    yield double
    assert double.invalid == []
    assert double.defects == []


@pytest.fixture
def site(aws: AwsDouble) -> Site:
    """A network and roles, as they are before a cluster is made."""
    made = Site.make(aws)
    aws.clear_calls()
    return made
