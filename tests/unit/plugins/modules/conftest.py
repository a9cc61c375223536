# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
from __future__ import annotations

import pytest
from ansible_collections.modelplane.fleet.tests.aws.double import Double
from ansible_collections.modelplane.fleet.tests.unit.plugins.modules.parents import Parents, make_parents
from ansible_collections.modelplane.fleet.tests.unit.plugins.modules.runner import Runner


@pytest.fixture
def run(aws: Double) -> Runner:
    return Runner(aws)


@pytest.fixture
def parents(aws: Double) -> Parents:
    """An account with what a cluster needs, and nothing else; no call has been counted yet."""
    made = make_parents(aws)
    aws.forget_calls()
    return made
