# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Hints about errors of AWS."""

from __future__ import annotations

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks.hints import HINTS, hint_for

KNOWN = [
    ("InsufficientInstanceCapacity", "", "add zones to the pool"),
    ("VcpuLimitExceeded", "", "Running On-Demand instances"),
    ("InstanceLimitExceeded", "", "vCPU quota"),
    ("MaxSpotInstanceCountExceeded", "", "Spot"),
    ("ReservationCapacityExceeded", "", "no free instance left"),
    ("CapacityBlockNotActive", "", "wait until its start"),
    ("InvalidCapacityReservationId.NotFound", "", "describe-capacity-reservations"),
    ("UnsupportedAvailabilityZoneException", "", "describe-instance-type-offerings"),
    ("Unsupported", "Your requested instance type is not supported in your requested Availability Zone", "zone"),
    ("AddressLimitExceeded", "", "Elastic IP"),
    ("VpcLimitExceeded", "", "VPCs per Region"),
    ("NatGatewayLimitExceeded", "", "NAT gateways per Availability Zone"),
    ("InternetGatewayLimitExceeded", "", "Internet gateways per Region"),
    ("SubnetLimitExceeded", "", "Amazon VPC"),
    ("VpcSecurityGroupLimitExceeded", "", "Amazon VPC"),
    ("ResourceLimitExceededException", "", "the quota in the message"),
    ("FileSystemLimitExceeded", "", "Amazon EFS"),
    ("RequestLimitExceeded", "", "rate of calls"),
    ("Throttling", "", "rate of calls"),
    ("ThrottlingException", "", "rate of calls"),
    ("TooManyRequestsException", "", "rate of calls"),
    ("AccessDenied", "", "Grant the identity"),
    ("AccessDeniedException", "", "Grant the identity"),
    ("UnauthorizedOperation", "", "Grant the identity"),
    ("AuthFailure", "", "access key"),
    ("ExpiredToken", "", "Log in again"),
    ("ExpiredTokenException", "", "Log in again"),
    ("InvalidClientTokenId", "", "access key"),
    ("UnrecognizedClientException", "", "access key"),
    ("com.amazonaws.eks#UnrecognizedClientException", "", "access key"),
    ("OptInRequired", "", "Enable the region"),
    ("DependencyViolation", "", "still uses this"),
    ("ResourceInUseException", "", "run again when"),
    ("NodeCreationFailure", "Instances failed to join the kubernetes cluster", "did not join"),
    ("IamNodeRoleNotFound", "", "run provision, which creates it again"),
    ("InsufficientFreeAddresses", "", "subnetCidrs"),
    ("InsufficientFreeAddressesInSubnet", "", "subnetCidrs"),
    ("PodEvictionFailure", "", "PodDisruptionBudgets"),
    ("InsufficientNumberOfReplicas", "", "kube-system"),
    ("InternalFailure", "", "on the side of AWS"),
    ("ServerException", "", "on the side of AWS"),
]


@pytest.mark.parametrize(("code", "message", "reported"), KNOWN, ids=[code for code, _, _ in KNOWN])
def test_what_to_do(code: str, message: str, reported: str) -> None:
    assert reported in hint_for(code, message)


# Codes that say that something failed, and the messages that say why.
WITHIN = [
    (
        "AsgInstanceLaunchFailures",
        "Could not launch On-Demand Instances. InsufficientInstanceCapacity - We currently do not have sufficient "
        "p5.48xlarge capacity in the Availability Zone you requested (us-west-2b). Launching EC2 instance failed.",
        "InsufficientInstanceCapacity",
    ),
    (
        "AsgInstanceLaunchFailures",
        "Could not launch On-Demand Instances. VcpuLimitExceeded - You have requested more vCPU capacity than your "
        "current vCPU limit of 64 allows for the instance bucket. Launching EC2 instance failed.",
        "VcpuLimitExceeded",
    ),
    (
        "AsgInstanceLaunchFailures",
        "Could not launch Capacity Block Instances. ReservationCapacityExceeded - The requested reservation does not "
        "have sufficient compatible and available capacity for this request.",
        "ReservationCapacityExceeded",
    ),
    (
        "AsgInstanceLaunchFailures",
        "You've attempted to launch an instance into a Capacity Block that is not active.",
        "CapacityBlockNotActive",
    ),
    (
        "AsgInstanceLaunchFailures",
        "The requested reservation does not have sufficient capacity",
        "ReservationCapacityExceeded",
    ),
    (
        "InvalidParameterException",
        "The targeted availability zone, us-east-1e, does not currently have sufficient capacity to support the "
        "cluster.",
        "InsufficientInstanceCapacity",
    ),
    ("InvalidParameterException", "Not enough free addresses in subnet subnet-1", "InsufficientFreeAddresses"),
    ("InvalidRequestException", "User is not authorized to perform: iam:PassRole on resource: r", "AccessDenied"),
    ("InvalidParameterException", "unsupported Kubernetes version", "UnsupportedVersion"),
    ("Unknown", "Something about UnauthorizedOperation happened", "UnauthorizedOperation"),
]


@pytest.mark.parametrize(("code", "message", "as_code"), WITHIN, ids=[f"{as_code}" for _, _, as_code in WITHIN])
def test_the_message_of_a_vague_code_decides(code: str, message: str, as_code: str) -> None:
    assert hint_for(code, message) == hint_for(as_code, "") != ""


def test_a_vague_code_without_a_reason() -> None:
    assert "activity of the Auto Scaling group" in hint_for("AsgInstanceLaunchFailures", "launching failed")
    assert "correct the field" in hint_for("InvalidParameterValue", "Value (x) is odd")
    assert "trust policy" in hint_for("InvalidParameterException", "The provided role doesn't exist: Role is not valid")
    assert hint_for("Unknown", "who knows") == ""
    assert "deletion protection" in hint_for(
        "OperationNotPermitted", "cannot be deleted because deletion protection is on"
    )
    assert hint_for("OperationNotPermitted", "") == hint_for("AccessDenied", "")


@pytest.mark.parametrize("code", ["", "SomethingNew", "ResourceNotFoundException", "NoSuchEntity", "404"])
def test_nothing_is_made_up(code: str) -> None:
    assert hint_for(code, "InsufficientInstanceCapacity is only a word here") == ""


def test_every_hint_is_a_sentence_that_can_follow_another() -> None:
    for codes, reported in HINTS.codes.items():
        assert reported[0].isupper(), codes
        assert not reported.endswith((".", " ")), codes
        assert "  " not in reported, codes


def test_no_code_is_said_twice() -> None:
    codes = " ".join(HINTS.codes).split()
    assert len(codes) == len(set(codes))
