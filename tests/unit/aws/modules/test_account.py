# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Who the modules are at AWS, and how calls that fail are told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.client import Client
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.errors import (
    AwsError,
    CallError,
    MissingError,
    hint_for,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.session import Account
from ansible_collections.modelplane.fleet.plugins.modules import eks_cluster
from ansible_collections.modelplane.fleet.tests.aws.double import AwsDouble
from ansible_collections.modelplane.fleet.tests.unit.aws.modules.running import REGION, TAGS, refused

ROLE = "arn:aws:iam::123456789012:role/provisioner"
ABSENT = {"name": "west", "state": "absent", "tags": TAGS}


def who(account: Account) -> str:
    return str(account.client("sts").call("get_caller_identity", "us")["Arn"])


@pytest.fixture
def role(account: AwsDouble) -> str:
    statement = {"Effect": "Allow", "Principal": {"AWS": "arn:aws:iam::123456789012:root"}, "Action": "sts:AssumeRole"}
    trust = {"Version": "2012-10-17", "Statement": [statement]}
    account.client("iam").create_role(RoleName="provisioner", AssumeRolePolicyDocument=json.dumps(trust))
    return ROLE


@pytest.mark.usefixtures("role")
def test_a_role_is_assumed_first(account: AwsDouble) -> None:
    given = Account(REGION, role_arn=ROLE)
    assert "provisioner/modelplane-fleet" in who(given)
    given.client("eks").find("describe_cluster", "cluster west", name="west")
    assert [call.operation for call in account.calls] == ["AssumeRole", "GetCallerIdentity", "DescribeCluster"]
    assert account.calls[0].parameters["RoleSessionName"] == "modelplane-fleet"


def test_a_profile_is_taken(account: AwsDouble, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = tmp_path / "config"
    keys = account.environment
    config.write_text(
        f"[profile ops]\naws_access_key_id = {keys['AWS_ACCESS_KEY_ID']}\n"
        f"aws_secret_access_key = {keys['AWS_SECRET_ACCESS_KEY']}\n"
    )
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    assert who(Account(REGION, profile="ops"))
    message = refused(eks_cluster, **ABSENT, profile="nobody")
    assert "nobody" in message
    assert "Look at the AWS profile" in message
    with pytest.raises(MissingError, match="no AWS credentials were found"):
        who(Account(REGION))


def test_a_role_that_may_not_be_assumed_is_told(account: AwsDouble) -> None:
    message = refused(eks_cluster, **ABSENT, role_arn=ROLE)
    assert "is not authorized to perform: sts:AssumeRole" in message
    assert "lack the right" in message
    assert [call.operation for call in account.calls] == ["AssumeRole"]


@pytest.mark.usefixtures("role")
def test_an_endpoint_is_taken(account: AwsDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    assert who(Account(REGION, endpoint_url=account.url))
    assert who(Account(REGION, endpoint_url=account.url, role_arn=ROLE))


def test_what_does_not_answer_is_told(monkeypatch: pytest.MonkeyPatch, account: AwsDouble) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    message = refused(eks_cluster, **ABSENT, retries=0, timeout=2)
    assert message.startswith("eks DescribeCluster of cluster west: ")
    assert "Look at the network, the region and endpoint_url" in message
    assert "is 0, and must be" in refused(eks_cluster, **ABSENT, timeout=0)
    assert account.calls == []


def test_without_boto3_that_is_what_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "botocore.auth", None)
    assert "the Python package boto3 is not installed" in refused(eks_cluster, **ABSENT)


@pytest.fixture
def client(account: AwsDouble) -> Client:
    del account
    return Account(REGION).client("eks")


def test_only_the_code_of_absence_means_absence(account: AwsDouble, client: Client) -> None:
    assert client.find("describe_cluster", "cluster west", name="west") is None
    for code in ("404", "NotFoundException", "AccessDeniedException"):
        account.fail("DescribeCluster", code, "no")
        with pytest.raises(CallError) as told:
            client.find("describe_cluster", "cluster west", name="west")
        assert told.value.code == code


def test_a_wrong_request_is_told_before_it_is_sent(account: AwsDouble, client: Client) -> None:
    with pytest.raises(AwsError, match="Correct the value"):
        client.call("create_cluster", "cluster west", name=1)
    assert account.calls == []


HINTS = {
    "InsufficientInstanceCapacity": "AWS has no such machines left",
    "VcpuLimitExceeded": "higher quota of running instances",
    "ReservationCapacityExceeded": "capacity block",
    "UnsupportedAvailabilityZoneException": "choose other zones",
    "Unsupported": "zone that offers the instance type",
    "UnauthorizedOperation": "lack the right",
    "RequestExpired": "log in anew",
    "AuthFailure": "does not take the credentials",
    "ThrottlingException": "busy",
    "VpcLimitExceeded": "quota of the account",
    "DependencyViolation": "still uses it",
    "InvalidParameterException": "",
}


@pytest.mark.parametrize("code", HINTS)
def test_a_code_asks_for_something(code: str) -> None:
    found = hint_for(code)
    assert HINTS[code] in found
    assert bool(found) is bool(HINTS[code])


@pytest.mark.parametrize(
    "text",
    [
        "The Capacity Block is scheduled and not active",
        "InvalidCapacityReservationState - The Capacity Block is expired and not active",
        "Capacity reservation cr-0123 has expired",
        "InvalidCapacityReservationId.NotFound - The capacity reservation does not exist",
    ],
)
def test_texts_of_capacity_blocks_are_understood(text: str) -> None:
    assert "while its capacity block is active" in hint_for(text)
