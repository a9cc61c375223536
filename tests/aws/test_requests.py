# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Requests are held against the models of AWS, logged and refused on demand; who asks, and where."""

from __future__ import annotations

import urllib.request
from collections.abc import Callable
from typing import Any

import boto3
import pytest
from ansible_collections.modelplane.fleet.tests.aws.account import Account, refused
from ansible_collections.modelplane.fleet.tests.aws.double import Double
from botocore.exceptions import ConnectionClosedError


def test_requests_are_held_against_the_models(aws: Double, account: Account) -> None:
    account.cluster()
    with refused("ValidationException", "resolveConflicts: 'OVERWITE' is none of OVERWRITE, NONE, PRESERVE"):
        account.eks.create_addon(clusterName="one", addonName="vpc-cni", resolveConflicts="OVERWITE")
    with refused("InvalidParameterValue", "InstanceType: 'p9.large' is none of"):
        account.ec2.create_launch_template(LaunchTemplateName="x", LaunchTemplateData={"InstanceType": "p9.large"})
    with refused("ValidationException", "ThroughputMode: 'bogus' is none of bursting, provisioned, elastic"):
        account.efs.create_file_system(CreationToken="t", ThroughputMode="bogus")
    with refused("ValidationException", "is not like"):
        account.iam.create_policy(PolicyName="a b", PolicyDocument="{}")
    reported = aws.invalid()
    assert len(reported) == 4
    assert reported[0] == "eks CreateAddon: resolveConflicts: 'OVERWITE' is none of OVERWRITE, NONE, PRESERVE"
    assert all(call["error"] for call in aws.calls()[-4:])
    aws.reset()


@pytest.mark.parametrize(
    ("service", "body", "headers", "reported"),
    [
        (
            "ec2",
            b"Action=CreateVpc&Version=2016-11-15&CidrBlock=10.0.0.0%2F16&Colour=red",
            {"Content-Type": "application/x-www-form-urlencoded"},
            "ec2 CreateVpc: Colour: is unknown",
        ),
        (
            "eks",
            b'{"name": "a", "roleArn": "b", "resourcesVpcConfig": {"subnets": []}}',
            {"Content-Type": "application/json"},
            "eks CreateCluster: resourcesVpcConfig.subnets: is unknown",
        ),
        (
            "ec2",
            b"Action=MakeVpc&Version=2016-11-15",
            {"Content-Type": "application/x-www-form-urlencoded"},
            "ec2: MakeVpc",
        ),
    ],
)
def test_unknown_members_are_reported(
    aws: Double, service: str, body: bytes, headers: dict[str, str], reported: str
) -> None:
    scope = f"AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20261120/us-west-2/{service}/aws4_request, Signature=0"
    path = "/clusters" if service == "eks" else "/"
    request = urllib.request.Request(aws.url + path, data=body, headers={"Authorization": scope, **headers})
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(request)
    assert aws.invalid() == [reported]
    aws.reset()


def test_log(aws: Double, account: Account) -> None:
    account.network()
    aws.forget_calls()
    account.ec2.describe_vpcs()
    account.ec2.create_tags(Resources=[account.vpc], Tags=[{"Key": "a", "Value": "b"}])
    with refused("ResourceNotFoundException"):
        account.eks.describe_cluster(name="none")
    with refused("NoSuchEntity"):
        account.iam.get_role(RoleName="none")
    calls = aws.calls()
    assert [(call["service"], call["operation"], call["mutating"], call["error"]) for call in calls] == [
        ("ec2", "DescribeVpcs", False, ""),
        ("ec2", "CreateTags", True, ""),
        ("eks", "DescribeCluster", False, "ResourceNotFoundException"),
        ("iam", "GetRole", False, "NoSuchEntity"),
    ]
    assert calls[1]["parameters"] == {"Resources": [account.vpc], "Tags": [{"Key": "a", "Value": "b"}]}
    assert calls[1]["region"] == "us-west-2"
    assert aws.calls(mutating=True) == [calls[1]]


def test_refused_calls_have_no_effect(aws: Double, account: Account) -> None:
    account.network()
    aws.refuse(at=2, code="UnauthorizedOperation", message="No & never.")
    account.ec2.create_vpc(CidrBlock="10.1.0.0/16")
    account.ec2.describe_vpcs()
    before = len(account.ec2.describe_vpcs()["Vpcs"])
    assert len(aws.refusals()) == 1
    with refused("UnauthorizedOperation", "No & never."):
        account.ec2.create_vpc(CidrBlock="10.2.0.0/16")
    account.ec2.create_vpc(CidrBlock="10.2.0.0/16")
    assert len(account.ec2.describe_vpcs()["Vpcs"]) == before + 1
    assert aws.refusals() == []


@pytest.mark.parametrize(
    ("service", "call"),
    [
        ("ec2", lambda client: client.create_vpc(CidrBlock="10.0.0.0/16")),
        ("iam", lambda client: client.delete_role(RoleName="none")),
        ("eks", lambda client: client.delete_cluster(name="none")),
        ("efs", lambda client: client.create_file_system(CreationToken="a")),
        ("service-quotas", lambda client: client.get_service_quota(ServiceCode="ec2", QuotaCode="L-1216C47A")),
        ("autoscaling", lambda client: client.describe_auto_scaling_groups()),
    ],
)
@pytest.mark.parametrize("status", [400, 403, 503])
def test_refusals_have_the_form_of_the_service(
    aws: Double, service: str, call: Callable[[Any], Any], status: int
) -> None:
    operation = {"service-quotas": "GetServiceQuota", "autoscaling": "DescribeAutoScalingGroups"}.get(service, "")
    aws.refuse(operation=operation, code="OddException", message='It is "so".', status=status)
    with refused("OddException", 'It is "so".') as got:
        call(aws.client(service))
    assert got.response["ResponseMetadata"]["HTTPStatusCode"] == status


def test_lost_answers_take_effect(aws: Double, account: Account) -> None:
    before = len(account.ec2.describe_vpcs()["Vpcs"])
    aws.refuse(operation="CreateVpc", after=True)
    with pytest.raises(ConnectionClosedError):
        account.ec2.create_vpc(CidrBlock="10.0.0.0/16")
    assert len(account.ec2.describe_vpcs()["Vpcs"]) == before + 1
    aws.refuse(operation="CreateVpc", effect=True, code="InternalError", status=500)
    with refused("InternalError"):
        account.ec2.create_vpc(CidrBlock="10.1.0.0/16")
    assert len(account.ec2.describe_vpcs()["Vpcs"]) == before + 2


def test_each_call_is_refused_once(aws: Double, account: Account) -> None:
    aws.refuse_each_once(code="RequestLimitExceeded", status=503)
    for cidr in ("10.0.0.0/16", "10.1.0.0/16"):
        with refused("RequestLimitExceeded"):
            account.ec2.create_vpc(CidrBlock=cidr)
        account.ec2.create_vpc(CidrBlock=cidr)
    account.ec2.describe_vpcs()
    aws.refuse_each_once(enabled=False)
    account.ec2.create_vpc(CidrBlock="10.2.0.0/16")


def test_unknown_controls_are_reported(aws: Double) -> None:
    with pytest.raises(ValueError, match="there is no setting colour"):
        aws.settings(colour="red")
    with pytest.raises(ValueError, match="colour"):
        aws.refuse(colour="red")


def test_operations_that_the_double_lacks_are_reported(aws: Double) -> None:
    with refused("NotInTheDouble"):
        aws.client("eks").list_insights(clusterName="one")
    with refused("NotInTheDouble"):
        aws.client("ec2").create_capacity_reservation(
            InstanceType="p5.48xlarge", InstancePlatform="Linux/UNIX", InstanceCount=1
        )
    assert len(aws.invalid()) == 2
    aws.reset()


def test_caller(aws: Double) -> None:
    reported = aws.client("sts").get_caller_identity()
    assert (reported["Account"], reported["Arn"]) == ("123456789012", "arn:aws:iam::123456789012:user/moto")


def test_unknown_credentials(aws: Double) -> None:
    aws.settings(access_keys=["AKIAIOSFODNN7OTHER"])
    for service, operation, code in (
        ("sts", "get_caller_identity", "InvalidClientTokenId"),
        ("ec2", "describe_vpcs", "AuthFailure"),
        ("eks", "list_clusters", "UnrecognizedClientException"),
    ):
        with refused(code):
            getattr(aws.client(service), operation)()


def test_assumed_roles_are_known(aws: Double, account: Account) -> None:
    aws.settings(access_keys=["AKIAIOSFODNN7EXAMPLE"])
    arn = account.role("fleet", "ec2.amazonaws.com")
    keys = aws.client("sts").assume_role(RoleArn=arn, RoleSessionName="session")["Credentials"]

    session = boto3.session.Session(keys["AccessKeyId"], keys["SecretAccessKey"], keys["SessionToken"], "us-west-2")
    reported = session.client("sts", endpoint_url=aws.url).get_caller_identity()
    assert reported["Arn"] == "arn:aws:sts::123456789012:assumed-role/fleet/session"


def test_regions(aws: Double) -> None:
    aws.settings(disabled_regions=["ap-southeast-3"])
    ec2 = aws.client("ec2")
    assert "ap-southeast-3" not in [one["RegionName"] for one in ec2.describe_regions()["Regions"]]
    all_of_them = {one["RegionName"]: one["OptInStatus"] for one in ec2.describe_regions(AllRegions=True)["Regions"]}
    assert all_of_them["ap-southeast-3"] == "not-opted-in"
    assert all_of_them["us-west-2"] == "opt-in-not-required"
    with refused("AuthFailure"):
        aws.client("ec2", "ap-southeast-3").describe_vpcs()
    with refused("InvalidParameterValue"):
        ec2.describe_regions(RegionNames=["us-middle-1"])


def test_quotas(aws: Double) -> None:
    quotas = aws.client("service-quotas")
    assert quotas.get_service_quota(ServiceCode="ec2", QuotaCode="L-417A185B")["Quota"]["Value"] == 768.0
    aws.settings(quotas={"ec2": {"L-417A185B": 8}})
    assert quotas.get_service_quota(ServiceCode="ec2", QuotaCode="L-417A185B")["Quota"]["Value"] == 8.0
    listed = quotas.list_service_quotas(ServiceCode="ec2")["Quotas"]
    # On-Demand and Spot of P machines.
    assert {"L-417A185B", "L-7212CCBC"} <= {each["QuotaCode"] for each in listed}
    with refused("NoSuchResourceException"):
        quotas.get_service_quota(ServiceCode="ec2", QuotaCode="L-00000000")
