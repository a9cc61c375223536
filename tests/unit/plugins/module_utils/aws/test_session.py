# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Credentials for AWS: those that the arguments and the environment name, and the errors when none can be used."""

from __future__ import annotations

import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.errors import AwsError
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.session import from_params
from ansible_collections.modelplane.fleet.plugins.modules import cloud_resources
from ansible_collections.modelplane.fleet.tests.aws.double import Double
from ansible_collections.modelplane.fleet.tests.module_run import run_module

KEYS = {"access_key": "AKIAIOSFODNN7EXAMPLE", "secret_key": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"}


@pytest.fixture(autouse=True)
def config(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without any credentials; the file of its profiles."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    return tmp_path / "config"


def error_message(**params: Any) -> str:
    with pytest.raises(AwsError) as raised:
        from_params({"region": "us-west-2", **params})
    return str(raised.value)


def test_clients_are_made_once_each() -> None:
    account = from_params({"region": "eu-central-1", **KEYS, "endpoint_url": "http://127.0.0.1:9"})
    eks = account.client("eks")
    assert eks is account.client("eks")
    assert eks is not account.client("ec2")
    assert eks.meta.region_name == account.region == "eu-central-1"
    assert eks.meta.endpoint_url == "http://127.0.0.1:9"
    assert "modelplane.fleet" in eks.meta.config.user_agent_extra
    assert eks.meta.config.retries["mode"] == "standard"


def test_a_profile(config: Path) -> None:
    config.write_text("[profile prod]\naws_access_key_id = AKIAIOSFODNN7EXAMPLE\naws_secret_access_key = x\n")
    assert from_params({"region": "us-west-2", "profile": "prod"}).region == "us-west-2"


@pytest.mark.parametrize(
    ("region", "message"),
    [
        ("us-wets-2", "there is no region us-wets-2. Did you mean us-west-2?"),
        ("us-west-2a", "us-west-2a seems to be a zone of us-west-2, which is the region"),
        ("us west", "there is no region us west"),
    ],
)
def test_no_such_region(region: str, message: str) -> None:
    assert message in error_message(region=region, **KEYS)
    assert "pip install -U boto3" in error_message(region=region, **KEYS)


def test_a_region_of_a_test_server_is_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert from_params({"region": "moon-1", **KEYS, "endpoint_url": "http://127.0.0.1:9"}).region == "moon-1"
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    assert from_params({"region": "moon-1", **KEYS}).region == "moon-1"


def test_no_such_profile(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "there is no profile prod. There are none in ~/.aws/config" in error_message(profile="prod")
    config.write_text("[profile prod]\nregion = us-west-2\n")
    assert "there is no profile prdo. Did you mean prod?" in error_message(profile="prdo")
    monkeypatch.setenv("AWS_PROFILE", "stage")
    assert "there is no profile stage" in error_message()


def test_no_credentials(config: Path) -> None:
    assert "no credentials were found. Set AWS_PROFILE, or AWS_ACCESS_KEY_ID" in error_message()
    config.write_text("[profile prod]\nregion = us-west-2\n")
    assert "profile prod has no credentials" in error_message(profile="prod")


def test_a_login_that_has_ended(config: Path) -> None:
    config.write_text(
        "[profile prod]\nsso_session = work\nsso_account_id = 123456789012\nsso_role_name = admin\n"
        "[sso-session work]\nsso_region = us-west-2\nsso_start_url = https://example.com/start\n"
    )
    assert "aws sso login" in error_message(profile="prod")


def test_a_file_that_cannot_be_read(config: Path) -> None:
    config.write_text("no section\n")
    assert str(config) in error_message()


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"access_key": "a"}, "secret_key is missing"),
        ({"secret_key": "a"}, "access_key is missing"),
        ({"session_token": "a"}, "session_token is given without access_key and secret_key"),
        ({**KEYS, "profile": "prod"}, "both profile and access_key are given"),
        ({**KEYS, "aws_ca_bundle": "/nowhere.pem"}, "aws_ca_bundle /nowhere.pem is no file"),
    ],
)
def test_arguments_that_do_not_go_together(params: dict[str, str], message: str) -> None:
    assert message in error_message(**params)


def test_a_module_says_so_and_fails() -> None:
    result = run_module(cloud_resources, {"provider": "eks", "resources": [], "region": "us-wets-2", **KEYS})
    assert result["failed"]
    assert "Did you mean us-west-2?" in result["msg"]


def test_without_boto3(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] in ("botocore", "boto3")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "botocore", None)
    result = run_module(cloud_resources, {"provider": "eks", "resources": [], "region": "us-west-2"})
    assert result["failed"]
    assert "boto3" in result["msg"]
    assert sys.executable in result["msg"]


# A role


@pytest.fixture
def role(aws: Double) -> str:
    statement = {"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "sts:AssumeRole"}
    trust = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    arn: str = aws.client("iam").create_role(RoleName="fleet", AssumeRolePolicyDocument=trust)["Role"]["Arn"]
    return arn


@pytest.mark.parametrize("profile", [False, True], ids=["keys", "profile"])
def test_a_role_is_assumed_and_its_credentials_are_renewed(aws: Double, role: str, profile: bool, config: Path) -> None:
    given = {**aws.credentials, "role_arn": role}
    if profile:
        keys = "".join(f"aws_{key}_id = {given.pop(key)}\n" for key in ("access_key",))
        config.write_text(f"[profile prod]\n{keys}aws_secret_access_key = {given.pop('secret_key')}\n")
        given["profile"] = "prod"
    account = from_params(given)

    def assumed() -> int:
        return sum(call["operation"] == "AssumeRole" for call in aws.calls())

    identity = account.client("sts").get_caller_identity()
    assert identity["Arn"].endswith(":assumed-role/fleet/modelplane-fleet")
    assert (account.client("ec2").describe_addresses()["Addresses"], assumed()) == ([], 1)
    # Clients that exist get new credentials, too.
    account._session.get_credentials()._expiry_time = datetime.now(UTC)
    assert (account.client("ec2").describe_addresses()["Addresses"], assumed()) == ([], 2)


def test_a_role_that_cannot_be_assumed(aws: Double, role: str) -> None:
    message = "User: arn:aws:iam::123456789012:user/ci is not authorized to perform: sts:AssumeRole"
    aws.refuse(operation="AssumeRole", code="AccessDenied", message=message, status=403)
    report = error_message(**aws.credentials, role_arn=role)
    assert report.startswith(f"the role {role} cannot be assumed: AccessDenied: {message}")
    assert "Its trust policy has to name the principal" in report
    aws.refuse(operation="AssumeRole", code="Throttling", message="Rate exceeded", status=400, times=99)
    assert "Its trust policy" not in error_message(**aws.credentials, role_arn=role)
