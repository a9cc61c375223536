# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Sizes of node groups, in an account of the double of AWS."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.aws import login
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.errors import AwsError
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.pool_sizes import NodeGroups
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks.names import tags
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.pool_size import PoolSize
from ansible_collections.modelplane.fleet.tests.aws.account import Account
from ansible_collections.modelplane.fleet.tests.aws.double import Double

OPTIONS = {"cluster": "one", "region": "us-west-2"}
GROUPS = NodeGroups(busy_seconds=5, busy_delay=0.01)


@pytest.fixture
def account(aws: Double, monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    """A cluster with an empty node group of ours, gpu, and a group of others, theirs."""
    for name, value in aws.environment.items():
        monkeypatch.setenv(name, value)
    login.forget()
    found = Account(aws)
    found.cluster()
    for name, owner in (("gpu", tags("one", "default")), ("theirs", {})):
        found.nodes(name, scalingConfig={"minSize": 0, "maxSize": 4, "desiredSize": 0}, tags=owner)
    aws.forget_calls()
    yield found
    login.forget()


def size(account: Account) -> dict[str, int]:
    found: dict[str, int] = account.describe("nodegroup", "gpu", until="ACTIVE")["scalingConfig"]
    return found


@pytest.mark.usefixtures("account")
def test_a_size_is_read_by_one_call(aws: Double) -> None:
    assert GROUPS.read(OPTIONS, "gpu", "default") == PoolSize(0, 0, 4)
    assert [call["operation"] for call in aws.calls()] == ["DescribeNodegroup"]


@pytest.mark.usefixtures("account")
def test_a_group_of_others_or_of_another_fleet_is_not_owned() -> None:
    assert GROUPS.read(OPTIONS, "theirs", "default") == PoolSize(0, 0, 4, owned=False)
    assert GROUPS.read(OPTIONS, "gpu", "other") == PoolSize(0, 0, 4, owned=False)


@pytest.mark.usefixtures("account")
def test_what_is_not_there_has_no_size() -> None:
    assert GROUPS.read(OPTIONS, "none", "default") is None
    assert GROUPS.read({**OPTIONS, "cluster": "two"}, "gpu", "default") is None


def test_the_reason_why_nodes_do_not_start_is_reported(account: Account, aws: Double) -> None:
    aws.fail("nodegroup", "bad", "AsgInstanceLaunchFailures", "We currently do not have sufficient capacity.")
    account.nodes("bad", until="CREATE_FAILED", tags=tags("one", "default"))
    found = GROUPS.read(OPTIONS, "bad", "default")
    assert found is not None
    assert found.trouble.startswith("AsgInstanceLaunchFailures: We currently do not have sufficient capacity (bad). ")


def test_a_size_is_set_within_the_bounds(account: Account, aws: Double) -> None:
    GROUPS.resize(OPTIONS, "gpu", 3)
    assert size(account) == {"minSize": 0, "maxSize": 4, "desiredSize": 3}
    assert [call["operation"] for call in aws.calls(mutating=True)] == ["UpdateNodegroupConfig"]
    with pytest.raises(AwsError, match=r"set the size of node group gpu of one to 5: .*max size 4"):
        GROUPS.resize(OPTIONS, "gpu", 5)


def test_another_update_is_waited_for(account: Account, aws: Double) -> None:
    aws.refuse(operation="UpdateNodegroupConfig", code="ResourceInUseException", status=409, times=2)
    GROUPS.resize(OPTIONS, "gpu", 1)
    assert size(account)["desiredSize"] == 1
    aws.refuse(operation="UpdateNodegroupConfig", code="ResourceInUseException", status=409, times=9)
    with pytest.raises(AwsError, match="EKS does another update of node group gpu of one"):
        NodeGroups(busy_seconds=0, busy_delay=0).resize(OPTIONS, "gpu", 2)


@pytest.mark.usefixtures("account")
def test_a_refusal_says_what_was_to_be_done(aws: Double) -> None:
    aws.refuse(operation="UpdateNodegroupConfig", code="AccessDeniedException", status=403, message="no")
    with pytest.raises(AwsError, match="set the size of node group gpu of one to 1: AccessDeniedException: no"):
        GROUPS.resize(OPTIONS, "gpu", 1)


@pytest.mark.usefixtures("account")
def test_a_login_that_fails_is_an_error_of_the_call() -> None:
    with pytest.raises(AwsError, match=r"read node group gpu of one: .*profile"):
        GROUPS.read({**OPTIONS, "profile": "none"}, "gpu", "default")
