# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
from __future__ import annotations

import pytest
from ansible_collections.modelplane.fleet.tests.aws.account import Account
from ansible_collections.modelplane.fleet.tests.aws.double import Double


@pytest.fixture
def account(aws: Double) -> Account:
    return Account(aws)
