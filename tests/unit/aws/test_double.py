# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The double of AWS itself: what it records, what it refuses, how it fails, and whom its clusters let in."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from typing import Any

import boto3
import botocore.session
import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes import eks as tokens
from ansible_collections.modelplane.fleet.tests.aws.account import OPERATIONS
from ansible_collections.modelplane.fleet.tests.aws.double import AwsDouble
from ansible_collections.modelplane.fleet.tests.unit.aws.account import cluster, network, refused, role, trust
from botocore.config import Config
from botocore.exceptions import ClientError
from moto.core.utils import get_service_model


def careless(aws: AwsDouble, service: str) -> Any:
    """A client that sends whatever it is given."""
    return boto3.session.Session(
        aws_access_key_id=aws.environment["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=aws.environment["AWS_SECRET_ACCESS_KEY"],
    ).client(service, "us-west-2", endpoint_url=aws.url, config=Config(parameter_validation=False))


@pytest.fixture
def as_user(aws: AwsDouble, monkeypatch: pytest.MonkeyPatch) -> AwsDouble:
    """The environment of this process is the one that turns boto3 to the double."""
    for name, value in aws.environment.items():
        monkeypatch.setenv(name, value)
    tokens.forget()
    return aws


def test_the_environment_is_all_that_boto3_needs(as_user: AwsDouble) -> None:
    assert boto3.session.Session().client("sts").get_caller_identity()["Arn"].endswith(":user/provisioner")
    assert [(call.service, call.operation, call.mutating, call.code) for call in as_user.calls] == [
        ("sts", "GetCallerIdentity", False, "")
    ]


def test_calls_are_recorded_with_their_parameters(aws: AwsDouble) -> None:
    ec2 = aws.client("ec2", recorded=True)
    ec2.create_vpc(CidrBlock="10.0.0.0/16")
    refused("InvalidVpcID.NotFound", ec2.delete_vpc, VpcId="vpc-0")
    assert [(call.operation, call.parameters, call.code) for call in aws.mutations] == [
        ("CreateVpc", {"CidrBlock": "10.0.0.0/16"}, ""),
        ("DeleteVpc", {"VpcId": "vpc-0"}, "InvalidVpcID.NotFound"),
    ]
    aws.clear_calls()
    aws.client("ec2").describe_vpcs()
    assert aws.calls == []


INVALID = {
    "an enumeration": ("eks", "create_nodegroup", {"amiType": "AL2032_x86_64"}, "AL2032_x86_64"),
    "a type": ("eks", "create_nodegroup", {"scalingConfig": {"minSize": "1"}}, "scalingConfig"),
    "a missing member": ("eks", "create_nodegroup", {"nodeRole": None}, "nodeRole"),
    "a name that nobody knows": (
        "ec2",
        "create_subnet",
        {"VpcId": "vpc-1", "CidrBlock": "x", "Colour": "red"},
        "Colour",
    ),
    "an unknown throughput mode": (
        "efs",
        "create_file_system",
        {"CreationToken": "a", "ThroughputMode": "bogus"},
        "bogus",
    ),
    "too long": ("efs", "create_file_system", {"CreationToken": "a" * 65}, "65"),
}
NODE_GROUP = {"clusterName": "west", "nodegroupName": "a", "subnets": ["subnet-1"], "nodeRole": "arn"}


@pytest.mark.parametrize(("service", "operation", "given", "told"), INVALID.values(), ids=INVALID)
def test_a_request_that_no_model_allows_is_refused(
    aws: AwsDouble, service: str, operation: str, given: dict[str, Any], told: str
) -> None:
    given = {**(NODE_GROUP if operation == "create_nodegroup" else {}), **given}
    client = careless(aws, service)
    if "Colour" in given:
        given.pop("Colour")
        client.meta.events.register("before-call", lambda params, **_: params["body"].update(Colour="red"))
    given = {name: value for name, value in given.items() if value is not None}
    message = refused("ValidationException", getattr(client, operation), **given)
    assert told in message
    assert told in aws.invalid[0]


def test_a_valid_request_is_not_called_invalid(aws: AwsDouble) -> None:
    cluster(aws)
    ec2 = aws.client("ec2", recorded=True)
    interfaces = [{"NetworkCardIndex": 0, "DeviceIndex": 0, "InterfaceType": "efa", "Groups": ["sg-1"]}]
    ec2.create_launch_template(
        LaunchTemplateName="a",
        LaunchTemplateData={
            "InstanceType": "p5.48xlarge",
            "NetworkInterfaces": interfaces,
            "BlockDeviceMappings": [
                {"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 100, "DeleteOnTermination": True}}
            ],
            "InstanceMarketOptions": {"MarketType": "capacity-block"},
        },
        TagSpecifications=[{"ResourceType": "launch-template", "Tags": [{"Key": "a", "Value": "b c/d=e&f"}]}],
    )
    aws.client("iam", recorded=True).create_role(RoleName="r", AssumeRolePolicyDocument=trust("ec2.amazonaws.com"))
    eks = aws.client("eks", recorded=True)
    eks.describe_access_entry(clusterName="west", principalArn="arn:aws:iam::123456789012:user/provisioner")
    eks.tag_resource(resourceArn=eks.describe_cluster(name="west")["cluster"]["arn"], tags={"a/b": "c"})
    assert aws.invalid == []


def test_an_unknown_access_key_is_nobody(aws: AwsDouble) -> None:
    session = boto3.session.Session("AKIAAAAAAAAAAAAAAAAA", "x", region_name="us-west-2")
    codes = {"ec2": "AuthFailure", "sts": "InvalidClientTokenId", "eks": "UnrecognizedClientException"}
    asking = {"ec2": "describe_vpcs", "sts": "get_caller_identity", "eks": "list_clusters"}
    for service, code in codes.items():
        refused(code, getattr(session.client(service, endpoint_url=aws.url), asking[service]))


def test_other_services_are_recorded_too(aws: AwsDouble) -> None:
    boto3.session.Session(
        aws.environment["AWS_ACCESS_KEY_ID"], aws.environment["AWS_SECRET_ACCESS_KEY"], region_name="us-west-2"
    ).client("kms", endpoint_url=aws.url).create_key()
    assert [(call.service, call.operation, call.mutating) for call in aws.calls] == [("kms", "CreateKey", True)]


# What it answers


def test_the_operations_of_the_double_are_those_of_botocore() -> None:
    table = OPERATIONS
    for service, operation in {*table.handlers, *table.guards, *table.followers}:
        assert operation in get_service_model(service).operation_names, (service, operation)


WRONG_ANSWERS: dict[str, dict[str, Any]] = {
    "a member too many": {"cluster": {"name": "west", "colour": "red"}},
    "another type": {"cluster": {"name": 1}},
    "an unknown status": {"cluster": {"name": "west", "status": "READY"}},
}


@pytest.mark.parametrize("result", WRONG_ANSWERS.values(), ids=WRONG_ANSWERS)
def test_an_answer_that_the_model_does_not_have_is_a_defect(
    aws: AwsDouble, monkeypatch: pytest.MonkeyPatch, result: dict[str, Any]
) -> None:
    monkeypatch.setitem(OPERATIONS.handlers, ("eks", "DescribeCluster"), lambda *_: result)
    refused("DefectOfTheDouble", aws.client("eks").describe_cluster, name="west")
    assert "does not have" in aws.defects[0]
    aws.reset()


def test_what_moto_lacks_is_a_defect_and_not_asked_twice(aws: AwsDouble) -> None:
    ec2 = aws.client("ec2", recorded=True)
    assert "has not been implemented" in refused("DefectOfTheDouble", ec2.describe_instance_topology)
    assert len(aws.calls) == len(aws.defects) == 1
    aws.reset()


# Failures


def test_the_nth_mutating_call_fails_once(aws: AwsDouble) -> None:
    ec2 = aws.client("ec2", recorded=True)
    aws.fail(1, "RequestLimitExceededForTest", "too many")
    ec2.create_vpc(CidrBlock="10.0.0.0/16")
    ec2.describe_vpcs()
    assert refused("RequestLimitExceededForTest", ec2.create_vpc, CidrBlock="10.1.0.0/16") == "too many"
    assert aws.failed
    ec2.create_vpc(CidrBlock="10.1.0.0/16")
    assert [call.code for call in aws.mutations] == ["", "RequestLimitExceededForTest", ""]
    assert sum("VPC" in each for each in aws.leftovers()) == 2


def test_an_operation_fails_by_name_be_it_a_read(aws: AwsDouble) -> None:
    aws.fail("sts:GetCallerIdentity", "ExpiredToken", "The security token included in the request is expired")
    sts = aws.client("sts", recorded=True)
    refused("ExpiredToken", sts.get_caller_identity)
    sts.get_caller_identity()


def test_a_lost_answer_has_taken_effect_and_is_asked_again(aws: AwsDouble) -> None:
    """boto3 repeats a request whose answer was lost; a VPC has no client token, so there are two of them then."""
    aws.fail("CreateVpc", after=True)
    aws.client("ec2", recorded=True).create_vpc(CidrBlock="10.0.0.0/16")
    assert [call.code for call in aws.mutations] == ["lost", ""]
    assert sum("VPC" in each for each in aws.leftovers()) == 2


def test_a_client_token_makes_a_repeated_request_one(aws: AwsDouble) -> None:
    _, subnets = network(aws)
    arn = role(aws, "cluster", "eks.amazonaws.com")
    aws.fail("CreateCluster", after=True)
    eks = aws.client("eks", recorded=True)
    eks.create_cluster(name="west", roleArn=arn, resourcesVpcConfig={"subnetIds": subnets})
    assert [call.code for call in aws.mutations] == ["lost", ""]
    refused(
        "ResourceInUseException",
        eks.create_cluster,
        name="west",
        roleArn=arn,
        resourcesVpcConfig={"subnetIds": subnets},
    )


def test_a_controller_that_dies_gets_nothing_through_until_it_is_back(aws: AwsDouble) -> None:
    ec2 = aws.client("ec2", recorded=True)
    aws.fail(0, after=True, halt=True)
    refused("UnauthorizedOperation", ec2.create_vpc, CidrBlock="10.0.0.0/16")
    refused("UnauthorizedOperation", ec2.describe_vpcs)
    assert sum("VPC" in each for each in aws.leftovers()) == 1
    aws.resume()
    assert len(ec2.describe_vpcs()["Vpcs"]) == 2


def test_a_right_that_is_missing_stays_missing(aws: AwsDouble) -> None:
    aws.deny("GetServiceQuota")
    quotas = aws.client("service-quotas", recorded=True)
    for _ in range(2):
        refused("AccessDeniedException", quotas.get_service_quota, ServiceCode="ec2", QuotaCode="L-417A185B")


def test_reset_leaves_nothing(aws: AwsDouble) -> None:
    cluster(aws)
    aws.fail(3)
    aws.delay("cluster", 2)
    aws.reset()
    assert (aws.leftovers(), aws.calls, aws.failed) == ([], [], True)
    assert aws.client("eks").list_clusters()["clusters"] == []


# Tokens


def test_a_token_of_the_collection_is_let_in(as_user: AwsDouble) -> None:
    cluster(as_user)
    token = tokens.minter("west")("").token
    assert as_user.identity(token, "west").arn.endswith(":user/provisioner")
    with pytest.raises(ValueError, match="signature"):
        as_user.identity(token, "east")


def _presigned(aws: AwsDouble, secret: str = "", expires: int = 60, headers: dict[str, str] | None = None) -> str:
    session = botocore.session.Session()
    session.set_credentials(aws.environment["AWS_ACCESS_KEY_ID"], secret or aws.environment["AWS_SECRET_ACCESS_KEY"])
    client = session.create_client("sts", "us-west-2", endpoint_url=aws.url)
    signed = {"x-k8s-aws-id": "west"} if headers is None else headers
    parts = {
        "method": "GET",
        "url": f"{aws.url}/?Action=GetCallerIdentity&Version=2011-06-15",
        "body": {},
        "headers": signed,
        "context": {},
    }
    return str(
        client._request_signer.generate_presigned_url(
            parts, region_name="us-west-2", expires_in=expires, operation_name=""
        )
    )


def _as_token(url: str) -> str:
    return "k8s-aws-v1." + base64.urlsafe_b64encode(url.encode()).decode().rstrip("=")


BAD_TOKENS = {
    "no prefix": (lambda _: "abc", "does not begin"),
    "another secret key": (lambda aws: _as_token(_presigned(aws, secret="wrong")), "signature"),
    "too long a life": (lambda aws: _as_token(_presigned(aws, expires=3600)), "X-Amz-Expires"),
    "no name of a cluster": (lambda aws: _as_token(_presigned(aws, headers={})), "x-k8s-aws-id"),
    "a parameter too many": (lambda aws: _as_token(_presigned(aws) + "&a=b"), "parameters a"),
    "another host": (lambda aws: _as_token(_presigned(aws).replace("127.0.0.1", "example.com")), "no host of STS"),
    "padding": (lambda aws: _as_token(_presigned(aws)) + "=", "padded"),
}


@pytest.mark.parametrize(("make", "told"), BAD_TOKENS.values(), ids=BAD_TOKENS)
def test_a_bad_token_is_told_from_a_good_one(aws: AwsDouble, make: Any, told: str) -> None:
    assert aws.identity(_as_token(_presigned(aws)), "west")
    with pytest.raises(ValueError, match=told):
        aws.identity(make(aws), "west")


def test_a_presigned_request_is_answered_like_that_of_sts(aws: AwsDouble) -> None:
    request = urllib.request.Request(_presigned(aws), headers={"x-k8s-aws-id": "west"})
    with urllib.request.urlopen(request) as answer:
        assert b":user/provisioner</Arn>" in answer.read()
    request = urllib.request.Request(_presigned(aws), headers={"x-k8s-aws-id": "east"})
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(request)


def _review(aws: AwsDouble, token: str) -> dict[str, Any]:
    where = json.loads(aws.authenticator("west"))["clusters"][0]["cluster"]["server"]
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
    request = urllib.request.Request(where, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return dict(json.load(answer)["status"])


def test_the_creator_of_a_cluster_is_its_administrator(aws: AwsDouble) -> None:
    cluster(aws)
    status = _review(aws, _as_token(_presigned(aws)))
    assert (status["authenticated"], status["user"]["groups"]) == (True, ["system:masters"])


def test_without_an_access_entry_nobody_gets_in(aws: AwsDouble) -> None:
    access = {"authenticationMode": "API", "bootstrapClusterCreatorAdminPermissions": False}
    cluster(aws, accessConfig=access)
    assert not _review(aws, _as_token(_presigned(aws)))["authenticated"]
    eks = aws.client("eks")
    user = "arn:aws:iam::123456789012:user/provisioner"
    eks.create_access_entry(clusterName="west", principalArn=user, kubernetesGroups=["viewers"])
    assert _review(aws, _as_token(_presigned(aws)))["user"]["groups"] == ["viewers"]


def test_a_role_that_was_assumed_is_another_principal(as_user: AwsDouble) -> None:
    document = {
        "Version": "2012-10-17",
        "Statement": [
            {"Effect": "Allow", "Principal": {"AWS": "arn:aws:iam::123456789012:root"}, "Action": "sts:AssumeRole"}
        ],
    }
    iam = as_user.client("iam")
    arn = iam.create_role(RoleName="ops", AssumeRolePolicyDocument=json.dumps(document))["Role"]["Arn"]
    token = tokens.minter("west", role_arn=arn)("").token
    assert as_user.identity(token, "west").entry == arn
    with pytest.raises(ClientError, match="not authorized"):
        as_user.client("sts").assume_role(RoleArn=f"{arn}x", RoleSessionName="me")
