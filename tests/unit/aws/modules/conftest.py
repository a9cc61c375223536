# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
from __future__ import annotations

from collections.abc import Iterator

import pytest
from ansible_collections.modelplane.fleet.tests.aws.double import AwsDouble
from ansible_collections.modelplane.fleet.tests.unit.aws.modules.site import Site


@pytest.fixture
def account(aws: AwsDouble, monkeypatch: pytest.MonkeyPatch) -> Iterator[AwsDouble]:
    """An empty account that the modules find by themselves; each of their requests has to be valid."""
    for name, value in aws.environment.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_SESSION_TOKEN", "HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    yield aws
    assert aws.invalid == []
    assert aws.defects == []


@pytest.fixture
def site(account: AwsDouble) -> Site:
    """A network and roles, as they are before a cluster is made."""
    made = Site.make(account)
    account.clear_calls()
    return made
