# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
from __future__ import annotations

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.errors import AwsError, guarded, is_code
from botocore.exceptions import ClientError, EndpointConnectionError


def refused(code: str, message: str) -> AwsError:
    with pytest.raises(AwsError) as raised, guarded("make VPC west"):
        raise ClientError({"Error": {"Code": code, "Message": message}}, "CreateVpc")
    return raised.value


def test_what_was_done_the_code_the_message_and_what_to_do() -> None:
    error = refused("VpcLimitExceeded", "The maximum number of VPCs has been reached.")
    reported = str(error)
    assert reported.startswith("make VPC west: VpcLimitExceeded: The maximum number of VPCs has been reached. ")
    assert "VPCs per Region" in reported
    assert is_code(error, "Other", "VpcLimitExceeded")
    assert not is_code(error, "NotFound")


def test_without_hint() -> None:
    assert str(refused("Strange", "Who knows.")) == "make VPC west: Strange: Who knows"


def test_no_connection() -> None:
    with pytest.raises(AwsError) as raised, guarded("make VPC west"):
        raise EndpointConnectionError(endpoint_url="https://ec2.us-west-2.amazonaws.com/")
    assert raised.value.code == "EndpointConnectionError"
    assert "https://ec2.us-west-2.amazonaws.com/" in str(raised.value)
    assert "HTTPS_PROXY" in str(raised.value)
    assert raised.value.passing


def test_other_errors_go_through() -> None:
    with pytest.raises(ZeroDivisionError), guarded("count"):
        raise ZeroDivisionError
    with pytest.raises(AwsError, match="inner"), guarded("outer"):
        raise AwsError("inner")


def test_throttling_is_a_passing_error() -> None:
    assert refused("ThrottlingException", "Rate exceeded").passing
    assert not refused("AccessDeniedException", "no").passing


def test_signed_requests_and_blobs_do_not_show() -> None:
    signed = refused(
        "SignatureDoesNotMatch",
        "The request signature does not match.\n\nThe Canonical String for this request should have been\n"
        "'POST\n/\n\nhost:sts\nx-amz-security-token:TOKENTOKENTOKEN'",
    )
    assert "TOKENTOKENTOKEN" not in str(signed)
    assert "does not match" in str(signed)
    blob = refused(
        "UnauthorizedOperation", "You are not authorized. Encoded authorization failure message: " + "x" * 900
    )
    assert "xxx" not in str(blob)
    assert "AKIAIOSFODNN7EXAMPLE" not in str(refused("InvalidClientTokenId", "The key AKIAIOSFODNN7EXAMPLE is unknown"))
    assert len(refused("Strange", "y" * 5000).message) == 1000


MEANINGS = {
    "absent": (
        "NoSuchEntity",
        "ResourceNotFoundException",
        "InvalidVpcID.NotFound",
        "InvalidLaunchTemplateName.NotFoundException",
        "NatGatewayNotFound",
        "PolicyNotFound",
        "FileSystemNotFound",
    ),
    "exists": (
        "EntityAlreadyExists",
        "FileSystemAlreadyExists",
        "MountTargetConflict",
        "InvalidGroup.Duplicate",
        "InvalidSubnet.Conflict",
        "RouteAlreadyExists",
        "InvalidLaunchTemplateName.AlreadyExistsException",
    ),
    "busy": ("FileSystemInUse", "IncorrectMountTargetState", "IncorrectState", "ConcurrentModification"),
    "": ("AccessDenied", "DependencyViolation", "ResourceInUseException"),
}


@pytest.mark.parametrize("meaning", MEANINGS)
def test_the_meaning_of_codes(meaning: str) -> None:
    for code in MEANINGS[meaning]:
        error = refused(code, "Because.")
        found = {name for name in ("absent", "exists", "busy", "outdated") if getattr(error, name)}
        assert found == ({meaning} if meaning else set()), code
        # Who knows more of the call may know better.
        error.meaning = "outdated"
        assert (error.outdated, error.absent, error.exists, error.busy, error.passing) == (True, *[False] * 4)
