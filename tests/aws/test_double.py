# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The double of AWS, asked by boto3: each thing that it adds to moto, or that it is stricter in."""

from __future__ import annotations

import base64
import json
import urllib.request
from collections.abc import Callable
from typing import Any

import boto3
import pytest
from ansible_collections.modelplane.fleet.tests.aws.double import Double
from botocore.config import Config
from botocore.exceptions import ClientError, ConnectionClosedError
from botocore.signers import RequestSigner
from cryptography import x509

Json = dict[str, Any]


class refused:  # noqa: N801 it is used as a word
    """Expects an error of AWS by its code. `told` is what the message has to contain."""

    def __init__(self, code: str, told: str = "") -> None:
        self.code, self.told = code, told
        self.response: Json = {}

    def __enter__(self) -> refused:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        assert isinstance(error, ClientError), f"{self.code} was expected, not {error!r}"
        self.response = error.response  # type: ignore[assignment]
        assert error.response["Error"]["Code"] == self.code, error
        assert self.told in error.response["Error"]["Message"], error
        return True


class Account:
    """What tests need of an account: a network, roles, and a cluster in it."""

    def __init__(self, aws: Double) -> None:
        self.aws = aws
        self.ec2, self.eks, self.iam, self.efs = (aws.client(name) for name in ("ec2", "eks", "iam", "efs"))
        self.vpc = ""
        self.subnets: list[str] = []
        self.roles: dict[str, str] = {}

    def network(self) -> None:
        self.vpc = self.ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
        self.subnets = [
            self.ec2.create_subnet(
                VpcId=self.vpc, CidrBlock=f"10.0.{16 * i}.0/20", AvailabilityZone=f"us-west-2{zone}"
            )["Subnet"]["SubnetId"]
            for i, zone in enumerate("abc")
        ]

    def role(self, name: str, service: str, *policies: str) -> str:
        document = {
            "Version": "2012-10-17",
            "Statement": [{"Effect": "Allow", "Principal": {"Service": service}, "Action": "sts:AssumeRole"}],
        }
        made = self.iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(document))
        for policy in policies:
            self.iam.attach_role_policy(RoleName=name, PolicyArn=f"arn:aws:iam::aws:policy/{policy}")
        self.roles[name] = made["Role"]["Arn"]
        return self.roles[name]

    def cluster(self, **more: Any) -> Json:
        self.network()
        self.role("cluster", "eks.amazonaws.com", "AmazonEKSClusterPolicy")
        self.role("node", "ec2.amazonaws.com", "AmazonEKSWorkerNodePolicy", "AmazonEKS_CNI_Policy")
        self.role("pod", "pods.eks.amazonaws.com", "service-role/AmazonEFSCSIDriverPolicy")
        asked = {"name": "one", "version": "1.35", "roleArn": self.roles["cluster"]} | more
        asked.setdefault("resourcesVpcConfig", {"subnetIds": self.subnets})
        self.eks.create_cluster(**asked)
        return self.look("cluster", until="ACTIVE")

    def nodes(self, name: str = "system", until: str = "ACTIVE", **more: Any) -> Json:
        asked = {
            "nodeRole": self.roles["node"],
            "subnets": self.subnets,
            "scalingConfig": {"minSize": 1, "maxSize": 3, "desiredSize": 1},
        } | more
        self.eks.create_nodegroup(clusterName="one", nodegroupName=name, **asked)
        return self.look("nodegroup", name, until=until)

    def look(self, kind: str, name: str = "", until: str = "") -> Json:
        """Describes something until it is in a state, or just once."""
        for _ in range(5):
            if kind == "cluster":
                found = self.eks.describe_cluster(name=name or "one")["cluster"]
            else:
                method = getattr(self.eks, f"describe_{kind}")
                found = method(clusterName="one", **{f"{kind}Name": name})[kind]
            if not until or found["status"] == until:
                return dict(found)
        raise AssertionError(f"{kind} {name} is {found['status']}: {found.get('health')}")

    def updated(self, update: Json, **more: str) -> str:
        """What becomes of an update."""
        for _ in range(5):
            found = self.eks.describe_update(name="one", updateId=update["id"], **more)["update"]
            if found["status"] != "InProgress":
                return str(found["status"])
        raise AssertionError(found)


@pytest.fixture
def account(aws: Double) -> Account:
    return Account(aws)


# --- requests, the log, refusals


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
    told = aws.invalid()
    assert len(told) == 4
    assert told[0] == "eks CreateAddon: resolveConflicts: 'OVERWITE' is none of OVERWRITE, NONE, PRESERVE"
    assert all(call["error"] for call in aws.calls()[-4:])
    aws.reset()


def test_a_policy_that_is_attached_twice_counts_once(account: Account) -> None:
    account.role("node", "ec2.amazonaws.com", "AmazonEKSWorkerNodePolicy", "AmazonEKSWorkerNodePolicy")
    arn = "arn:aws:iam::aws:policy/AmazonEKSWorkerNodePolicy"
    assert account.iam.get_policy(PolicyArn=arn)["Policy"]["AttachmentCount"] == 1
    account.iam.detach_role_policy(RoleName="node", PolicyArn=arn)
    assert account.iam.get_policy(PolicyArn=arn)["Policy"]["AttachmentCount"] == 0


@pytest.mark.parametrize(
    ("service", "body", "headers", "told"),
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
def test_unknown_members_are_told(aws: Double, service: str, body: bytes, headers: dict[str, str], told: str) -> None:
    scope = f"AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20261120/us-west-2/{service}/aws4_request, Signature=0"
    path = "/clusters" if service == "eks" else "/"
    request = urllib.request.Request(aws.url + path, data=body, headers={"Authorization": scope, **headers})
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(request)
    assert aws.invalid() == [told]
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


def test_unknown_controls_are_told(aws: Double) -> None:
    with pytest.raises(ValueError, match="there is no setting colour"):
        aws.settings(colour="red")
    with pytest.raises(ValueError, match="colour"):
        aws.refuse(colour="red")


def test_what_nobody_has_is_told(aws: Double) -> None:
    with refused("NotInTheDouble"):
        aws.client("eks").list_insights(clusterName="one")
    with refused("NotInTheDouble"):
        aws.client("ec2").create_capacity_reservation(
            InstanceType="p5.48xlarge", InstancePlatform="Linux/UNIX", InstanceCount=1
        )
    assert len(aws.invalid()) == 2
    aws.reset()


# --- who, and where


def test_caller(aws: Double) -> None:
    told = aws.client("sts").get_caller_identity()
    assert (told["Account"], told["Arn"]) == ("123456789012", "arn:aws:iam::123456789012:user/moto")


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
    told = session.client("sts", endpoint_url=aws.url).get_caller_identity()
    assert told["Arn"] == "arn:aws:sts::123456789012:assumed-role/fleet/session"


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
    assert len(quotas.list_service_quotas(ServiceCode="ec2")["Quotas"]) == 4
    with refused("NoSuchResourceException"):
        quotas.get_service_quota(ServiceCode="ec2", QuotaCode="L-00000000")


# --- clusters


def test_a_cluster_comes_and_goes(aws: Double, account: Account) -> None:
    account.network()
    role = account.role("cluster", "eks.amazonaws.com", "AmazonEKSClusterPolicy")
    aws.settings(phases=2)
    made = account.eks.create_cluster(
        name="one",
        version="1.36",
        roleArn=role,
        resourcesVpcConfig={"subnetIds": account.subnets, "endpointPrivateAccess": True},
        accessConfig={"authenticationMode": "API_AND_CONFIG_MAP", "bootstrapClusterCreatorAdminPermissions": True},
        tags={"a": "b"},
    )["cluster"]
    assert made["status"] == "CREATING"
    assert "endpoint" not in made
    assert made["certificateAuthority"] == {}
    assert made["resourcesVpcConfig"]["vpcId"] == account.vpc
    assert "clusterSecurityGroupId" not in made["resourcesVpcConfig"]
    with refused("ResourceInUseException"):
        account.eks.delete_cluster(name="one")
    assert [account.look("cluster")["status"] for _ in range(3)] == ["CREATING", "CREATING", "ACTIVE"]
    cluster = account.look("cluster")
    assert cluster["version"] == "1.36"
    assert cluster["accessConfig"] == {"authenticationMode": "API_AND_CONFIG_MAP"}
    assert cluster["endpoint"].endswith(".gr7.us-west-2.eks.amazonaws.com")
    x509.load_pem_x509_certificate(base64.b64decode(cluster["certificateAuthority"]["data"]))
    network = cluster["resourcesVpcConfig"]
    assert (network["endpointPublicAccess"], network["endpointPrivateAccess"]) == (True, True)
    group = account.ec2.describe_security_groups(GroupIds=[network["clusterSecurityGroupId"]])["SecurityGroups"][0]
    assert group["GroupName"].startswith("eks-cluster-sg-one-")
    assert {"Key": "aws:eks:cluster-name", "Value": "one"} in group["Tags"]
    found = account.ec2.describe_network_interfaces(Filters=[{"Name": "description", "Values": ["Amazon EKS one"]}])
    assert [one["Status"] for one in found["NetworkInterfaces"]] == ["in-use", "in-use"]
    with refused("AuthFailure"):
        account.ec2.delete_network_interface(NetworkInterfaceId=found["NetworkInterfaces"][0]["NetworkInterfaceId"])
    with refused("DependencyViolation"):
        account.ec2.delete_security_group(GroupId=group["GroupId"])
    with refused("ResourceInUseException", "already exists with name"):
        account.eks.create_cluster(name="one", roleArn=role, resourcesVpcConfig={"subnetIds": account.subnets})
    assert account.eks.delete_cluster(name="one")["cluster"]["status"] == "DELETING"
    assert [account.look("cluster")["status"] for _ in range(2)] == ["DELETING", "DELETING"]
    with refused("ResourceNotFoundException", "No cluster found for name: one."):
        account.look("cluster")
    assert account.ec2.describe_network_interfaces()["NetworkInterfaces"] == []
    names = [one["GroupName"] for one in account.ec2.describe_security_groups()["SecurityGroups"]]
    assert "eks-cluster-sg" not in " ".join(names)
    waiters = [call for call in aws.calls() if call["operation"] == "DescribeCluster"]
    assert waiters[-1]["error"] == "ResourceNotFoundException"


def test_a_call_that_is_sent_twice_makes_one(account: Account) -> None:
    account.cluster()
    asked = {
        "clusterName": "one",
        "nodegroupName": "system",
        "nodeRole": account.roles["node"],
        "subnets": account.subnets,
        "clientRequestToken": "t",
    }
    made = account.eks.create_nodegroup(**asked)["nodegroup"]
    assert account.eks.create_nodegroup(**asked)["nodegroup"]["nodegroupArn"] == made["nodegroupArn"]
    with refused("ResourceInUseException"):
        account.eks.create_nodegroup(**asked | {"clientRequestToken": "u"})


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"version": "9.99"}, "unsupported Kubernetes version"),
        ({"roleArn": "arn:aws:iam::123456789012:role/none"}, "could not be assumed"),
        ({"roleArn": "arn:aws:iam::123456789012:role/plain"}, "['AmazonEKSClusterPolicy'] are attached"),
        ({"roleArn": "arn:aws:iam::123456789012:role/other"}, "the trusted entity is not correct"),
        ({"resourcesVpcConfig": {"subnetIds": ["subnet-0"]}}, "The subnet ID 'subnet-0' does not exist"),
        ({"resourcesVpcConfig": {"subnetIds": "first"}}, "at least two different AZs"),
        ({"resourcesVpcConfig": {"endpointPublicAccess": False}}, "cannot both be disabled"),
    ],
)
def test_what_a_cluster_cannot_be(account: Account, change: Json, told: str) -> None:
    account.network()
    account.role("cluster", "eks.amazonaws.com", "AmazonEKSClusterPolicy")
    account.role("plain", "eks.amazonaws.com")
    account.role("other", "ec2.amazonaws.com", "AmazonEKSClusterPolicy")
    asked: Json = {
        "name": "one",
        "roleArn": account.roles["cluster"],
        "resourcesVpcConfig": {"subnetIds": account.subnets},
    }
    asked |= change
    if asked["resourcesVpcConfig"].get("subnetIds") == "first":
        asked["resourcesVpcConfig"]["subnetIds"] = account.subnets[:1]
    asked["resourcesVpcConfig"].setdefault("subnetIds", account.subnets)
    with refused("InvalidParameterException", told):
        account.eks.create_cluster(**asked)
    assert account.eks.list_clusters()["clusters"] == []


def test_a_cluster_can_fail(aws: Double, account: Account) -> None:
    account.network()
    role = account.role("cluster", "eks.amazonaws.com", "AmazonEKSClusterPolicy")
    aws.fail("cluster", "one", code="Ec2SubnetNotFound", message="It is gone.")
    account.eks.create_cluster(name="one", roleArn=role, resourcesVpcConfig={"subnetIds": account.subnets})
    cluster = account.look("cluster", until="FAILED")
    assert cluster["health"]["issues"][0]["message"] == "It is gone."


def test_server_of_a_cluster(aws: Double, account: Account) -> None:
    aws.cluster_server("https://127.0.0.1:6443", "a PEM")
    cluster = account.cluster()
    assert cluster["endpoint"] == "https://127.0.0.1:6443"
    assert base64.b64decode(cluster["certificateAuthority"]["data"]) == b"a PEM"
    aws.cluster_server("https://127.0.0.1:6444", "another", name="one")
    assert account.look("cluster")["endpoint"] == "https://127.0.0.1:6444"


def test_versions(aws: Double, account: Account) -> None:
    account.cluster(version="1.34")
    told = account.eks.describe_cluster_versions()["clusterVersions"]
    assert [one["clusterVersion"] for one in told] == ["1.36", "1.35", "1.34", "1.33", "1.32"]
    assert [one["clusterVersion"] for one in told if one["defaultVersion"]] == ["1.36"]
    assert len(account.eks.describe_cluster_versions(clusterVersions=["1.35", "1.99"])["clusterVersions"]) == 1
    with refused("InvalidParameterException", "Unsupported Kubernetes minor version update from 1.34 to 1.36"):
        account.eks.update_cluster_version(name="one", version="1.36")
    with refused("InvalidParameterException", "Unsupported Kubernetes minor version update from 1.34 to 1.33"):
        account.eks.update_cluster_version(name="one", version="1.33")
    with refused("InvalidParameterException", "already at the desired version"):
        account.eks.update_cluster_version(name="one", version="1.34")
    update = account.eks.update_cluster_version(name="one", version="1.35")["update"]
    assert (update["status"], update["type"]) == ("InProgress", "VersionUpdate")
    with refused("ResourceInUseException"):
        account.eks.update_cluster_version(name="one", version="1.35")
    with refused("ResourceInUseException"):
        account.eks.delete_cluster(name="one")
    assert account.look("cluster")["status"] == "UPDATING"
    assert account.updated(update) == "Successful"
    cluster = account.look("cluster")
    assert (cluster["status"], cluster["version"]) == ("ACTIVE", "1.35")
    assert account.eks.list_updates(name="one")["updateIds"] == [update["id"]]
    aws.fail("update", "one", code="SubnetNotFound", message="gone")
    update = account.eks.update_cluster_version(name="one", version="1.36")["update"]
    assert account.updated(update) == "Failed"
    assert account.look("cluster")["version"] == "1.35"


def test_configuration(account: Account) -> None:
    account.cluster()
    with refused("InvalidParameterException", "Only one type of update"):
        account.eks.update_cluster_config(
            name="one", resourcesVpcConfig={"endpointPrivateAccess": True}, accessConfig={"authenticationMode": "API"}
        )
    with refused("InvalidParameterException", "cannot be updated in one request"):
        account.eks.update_cluster_config(
            name="one", resourcesVpcConfig={"endpointPrivateAccess": True, "subnetIds": account.subnets[:2]}
        )
    with refused("InvalidParameterException", "already at the desired configuration"):
        account.eks.update_cluster_config(name="one", resourcesVpcConfig={"endpointPrivateAccess": False})
    with refused("InvalidParameterException", "from CONFIG_MAP to API"):
        account.eks.update_cluster_config(name="one", accessConfig={"authenticationMode": "API"})
    for change in (
        {"resourcesVpcConfig": {"endpointPrivateAccess": True, "publicAccessCidrs": ["192.0.2.0/24"]}},
        {"resourcesVpcConfig": {"subnetIds": account.subnets[:2]}},
        {"accessConfig": {"authenticationMode": "API_AND_CONFIG_MAP"}},
        {"logging": {"clusterLogging": [{"types": ["api"], "enabled": True}]}},
        {"upgradePolicy": {"supportType": "STANDARD"}},
    ):
        update = account.eks.update_cluster_config(name="one", **change)["update"]
        with refused("ResourceInUseException"):
            account.eks.update_cluster_config(name="one", **change)
        assert account.updated(update) == "Successful"
    cluster = account.look("cluster")
    network = cluster["resourcesVpcConfig"]
    assert network["subnetIds"] == account.subnets[:2]
    assert network["publicAccessCidrs"] == ["192.0.2.0/24"]
    assert network["endpointPrivateAccess"] is True
    assert network["endpointPublicAccess"] is True
    assert cluster["accessConfig"]["authenticationMode"] == "API_AND_CONFIG_MAP"
    with refused("InvalidParameterException", "from API_AND_CONFIG_MAP to CONFIG_MAP"):
        account.eks.update_cluster_config(name="one", accessConfig={"authenticationMode": "CONFIG_MAP"})


def test_tags(account: Account) -> None:
    cluster = account.cluster(tags={"a": "1"})
    group = account.nodes(tags={"b": "2"})
    addon = account.eks.create_addon(clusterName="one", addonName="vpc-cni")["addon"]
    association = account.eks.create_pod_identity_association(
        clusterName="one", namespace="x", serviceAccount="y", roleArn=account.roles["pod"]
    )["association"]
    for arn in (cluster["arn"], group["nodegroupArn"], addon["addonArn"], association["associationArn"]):
        before = account.eks.list_tags_for_resource(resourceArn=arn)["tags"]
        account.eks.tag_resource(resourceArn=arn, tags={"k": "v", "l": "w"})
        account.eks.untag_resource(resourceArn=arn, tagKeys=["l", "none"])
        assert account.eks.list_tags_for_resource(resourceArn=arn)["tags"] == before | {"k": "v"}
    assert account.look("nodegroup", "system")["tags"] == {"b": "2", "k": "v"}
    with refused("NotFoundException"):
        account.eks.tag_resource(resourceArn=cluster["arn"] + "-none", tags={"k": "v"})


# --- node groups


def test_a_node_group_comes_and_goes(account: Account) -> None:
    account.cluster()
    made = account.eks.create_nodegroup(
        clusterName="one", nodegroupName="system", nodeRole=account.roles["node"], subnets=account.subnets
    )["nodegroup"]
    assert made["status"] == "CREATING"
    assert made["scalingConfig"] == {"minSize": 1, "maxSize": 2, "desiredSize": 2}
    assert (made["instanceTypes"], made["diskSize"], made["amiType"]) == (["t3.medium"], 20, "AL2023_x86_64_STANDARD")
    assert made["updateConfig"] == {"maxUnavailable": 1}
    assert made["version"] == "1.35"
    assert [account.look("nodegroup", "system")["status"] for _ in range(2)] == ["CREATING", "ACTIVE"]
    name = account.look("nodegroup", "system")["resources"]["autoScalingGroups"][0]["name"]
    scaling = account.aws.client("autoscaling")
    group = scaling.describe_auto_scaling_groups(AutoScalingGroupNames=[name])["AutoScalingGroups"][0]
    assert (group["MinSize"], group["MaxSize"], group["DesiredCapacity"]) == (1, 2, 2)
    tags = {tag["Key"]: tag["Value"] for tag in group["Tags"]}
    assert tags["k8s.io/cluster-autoscaler/one"] == "owned"
    assert tags["k8s.io/cluster-autoscaler/enabled"] == "true"
    assert tags["eks:nodegroup-name"] == "system"
    found = scaling.describe_auto_scaling_groups(Filters=[{"Name": "tag:eks:cluster-name", "Values": ["two"]}])
    assert found["AutoScalingGroups"] == []
    assert len(scaling.describe_tags(Filters=[{"Name": "auto-scaling-group", "Values": [name]}])["Tags"]) == 5
    scaling.create_or_update_tags(
        Tags=[
            {
                "ResourceId": name,
                "ResourceType": "auto-scaling-group",
                "Key": "k",
                "Value": "v",
                "PropagateAtLaunch": True,
            }
        ]
    )
    assert len(scaling.describe_tags()["Tags"]) == 6
    scaling.set_desired_capacity(AutoScalingGroupName=name, DesiredCapacity=1)
    assert account.look("nodegroup", "system")["scalingConfig"]["desiredSize"] == 1
    with refused("ResourceInUseException", "Cluster has nodegroups attached"):
        account.eks.delete_cluster(name="one")
    assert account.eks.list_nodegroups(clusterName="one")["nodegroups"] == ["system"]
    assert account.eks.delete_nodegroup(clusterName="one", nodegroupName="system")["nodegroup"]["status"] == "DELETING"
    assert account.look("nodegroup", "system")["status"] == "DELETING"
    with refused("ResourceInUseException"):
        account.eks.delete_cluster(name="one")
    with refused("ResourceNotFoundException"):
        account.look("nodegroup", "system")
    account.eks.delete_cluster(name="one")


TEMPLATE = {
    "InstanceType": "p5.48xlarge",
    "BlockDeviceMappings": [{"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 200}}],
}


@pytest.mark.parametrize(
    ("change", "code", "told"),
    [
        ({"subnets": ["subnet-0"]}, "InvalidParameterException", "does not exist"),
        ({"nodeRole": "arn:aws:iam::123456789012:role/none"}, "InvalidParameterException", "could not be assumed"),
        ({"nodeRole": "arn:aws:iam::123456789012:role/cluster"}, "InvalidParameterException", "trusted entity"),
        ({"instanceTypes": ["p9.huge"]}, "InvalidParameterException", "do not exist: [p9.huge]"),
        (
            {"amiType": "AL2023_x86_64_NVIDIA", "instanceTypes": ["m6i.xlarge"]},
            "InvalidRequestException",
            "not a valid",
        ),
        (
            {"amiType": "AL2023_x86_64_STANDARD", "instanceTypes": ["m6g.large"]},
            "InvalidRequestException",
            "not a valid",
        ),
        (
            {"scalingConfig": {"minSize": 3, "maxSize": 4, "desiredSize": 2}},
            "InvalidParameterException",
            "Minimum capacity 3",
        ),
        ({"scalingConfig": {"minSize": 1, "maxSize": 2, "desiredSize": 3}}, "InvalidParameterException", "max size 2"),
        ({"labels": {"eks.amazonaws.com/x": "y"}}, "InvalidParameterException", "reserved prefix"),
        ({"version": "1.36"}, "InvalidParameterException", "cannot be newer"),
        ({"launchTemplate": {"name": "none"}}, "InvalidParameterException", "none not found"),
        ({"launchTemplate": {"name": "gpu", "version": "7"}}, "InvalidParameterException", "has no version 7"),
        ({"launchTemplate": {"name": "gpu"}, "diskSize": 20}, "InvalidParameterException", "Disk size must be"),
        (
            {"launchTemplate": {"name": "gpu"}, "instanceTypes": ["p5.48xlarge"]},
            "InvalidParameterException",
            "Cannot specify instance types",
        ),
        ({"capacityType": "CAPACITY_BLOCK"}, "InvalidParameterException", "needs a launch template"),
        (
            {"capacityType": "CAPACITY_BLOCK", "launchTemplate": {"name": "gpu"}},
            "InvalidParameterException",
            "market type capacity-block",
        ),
        ({"launchTemplate": {"name": "block"}}, "InvalidParameterException", "market type capacity-block"),
    ],
)
def test_what_a_node_group_cannot_be(account: Account, change: Json, code: str, told: str) -> None:
    account.cluster()
    account.ec2.create_launch_template(LaunchTemplateName="gpu", LaunchTemplateData=TEMPLATE)
    block = TEMPLATE | {"InstanceMarketOptions": {"MarketType": "capacity-block"}}
    account.ec2.create_launch_template(LaunchTemplateName="block", LaunchTemplateData=block)
    asked = {"nodeRole": account.roles["node"], "subnets": account.subnets} | change
    with refused(code, told):
        account.eks.create_nodegroup(clusterName="one", nodegroupName="gpu", **asked)
    assert account.eks.list_nodegroups(clusterName="one")["nodegroups"] == []


def test_node_groups_need_a_cluster_at_rest(account: Account) -> None:
    account.network()
    role = account.role("cluster", "eks.amazonaws.com", "AmazonEKSClusterPolicy")
    asked = {"nodegroupName": "a", "nodeRole": role, "subnets": account.subnets}
    with refused("ResourceNotFoundException", "No cluster found for name: one."):
        account.eks.create_nodegroup(clusterName="one", **asked)
    account.eks.create_cluster(name="one", roleArn=role, resourcesVpcConfig={"subnetIds": account.subnets})
    with refused("InvalidRequestException", "not in ACTIVE status"):
        account.eks.create_nodegroup(clusterName="one", **asked)
    with refused("InvalidRequestException", "not in ACTIVE status"):
        account.eks.create_addon(clusterName="one", addonName="vpc-cni")


def test_changes_of_a_node_group(account: Account) -> None:
    account.cluster()
    taint = {"key": "nvidia.com/gpu", "value": "true", "effect": "NO_SCHEDULE"}
    account.nodes(labels={"a": "1", "b": "2"}, taints=[taint])
    with refused("InvalidParameterException", "Minimum capacity 2 can't be greater than desired size 1"):
        account.eks.update_nodegroup_config(
            clusterName="one", nodegroupName="system", scalingConfig={"minSize": 2, "maxSize": 4}
        )
    other = {"key": "x", "effect": "NO_EXECUTE"}
    update = account.eks.update_nodegroup_config(
        clusterName="one",
        nodegroupName="system",
        scalingConfig={"minSize": 0, "maxSize": 4},
        labels={"addOrUpdateLabels": {"b": "3"}, "removeLabels": ["a"]},
        taints={"addOrUpdateTaints": [other], "removeTaints": [taint]},
        updateConfig={"maxUnavailable": 2},
    )["update"]
    with refused("ResourceInUseException"):
        account.eks.update_nodegroup_config(clusterName="one", nodegroupName="system", scalingConfig={"maxSize": 5})
    with refused("ResourceInUseException"):
        account.eks.delete_nodegroup(clusterName="one", nodegroupName="system")
    assert account.look("nodegroup", "system")["status"] == "UPDATING"
    assert account.updated(update, nodegroupName="system") == "Successful"
    group = account.look("nodegroup", "system")
    assert group["scalingConfig"] == {"minSize": 0, "maxSize": 4, "desiredSize": 1}
    assert (group["labels"], group["taints"], group["updateConfig"]) == ({"b": "3"}, [other], {"maxUnavailable": 2})
    with refused("ResourceNotFoundException"):
        account.eks.describe_update(name="one", updateId=update["id"])


def test_versions_of_a_node_group(account: Account) -> None:
    account.cluster(version="1.35")
    account.ec2.create_launch_template(LaunchTemplateName="gpu", LaunchTemplateData=TEMPLATE)
    account.ec2.create_launch_template(LaunchTemplateName="other", LaunchTemplateData=TEMPLATE)
    gpu = account.nodes(
        "gpu", launchTemplate={"name": "gpu", "version": "$Latest"}, amiType="AL2023_x86_64_NVIDIA", version="1.34"
    )
    assert gpu["launchTemplate"]["version"] == "1"
    assert gpu["launchTemplate"]["id"].startswith("lt-")
    assert "instanceTypes" not in gpu
    assert "diskSize" not in gpu
    account.nodes()
    new = TEMPLATE | {"BlockDeviceMappings": [{"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 300}}]}
    account.ec2.create_launch_template_version(LaunchTemplateName="gpu", LaunchTemplateData=new)
    with refused("InvalidParameterException", "made without one"):
        account.eks.update_nodegroup_version(clusterName="one", nodegroupName="system", launchTemplate={"name": "gpu"})
    with refused("InvalidParameterException", "cannot be changed to another one"):
        account.eks.update_nodegroup_version(clusterName="one", nodegroupName="gpu", launchTemplate={"name": "other"})
    with refused("InvalidParameterException", "cannot be newer"):
        account.eks.update_nodegroup_version(clusterName="one", nodegroupName="gpu", version="1.36")
    update = account.eks.update_nodegroup_version(
        clusterName="one", nodegroupName="gpu", launchTemplate={"name": "gpu", "version": "2"}
    )["update"]
    assert account.updated(update, nodegroupName="gpu") == "Successful"
    assert account.look("nodegroup", "gpu")["launchTemplate"]["version"] == "2"
    assert account.look("nodegroup", "gpu")["version"] == "1.34"
    update = account.eks.update_nodegroup_version(clusterName="one", nodegroupName="gpu")["update"]
    assert account.updated(update, nodegroupName="gpu") == "Successful"
    assert account.look("nodegroup", "gpu")["version"] == "1.35"


def test_node_groups_can_fail(aws: Double, account: Account) -> None:
    account.cluster()
    aws.fail("nodegroup", "gpu", code="Ec2InstanceTypeDoesNotExist", message="No such type here.")
    account.nodes("system")
    group = account.nodes("gpu", until="CREATE_FAILED")
    assert group["health"]["issues"][0]["code"] == "Ec2InstanceTypeDoesNotExist"
    account.eks.delete_nodegroup(clusterName="one", nodegroupName="gpu")


@pytest.mark.parametrize(
    ("reservation", "told"),
    [
        ({}, ""),
        ({"State": "expired"}, "not an active Capacity Block"),
        ({"ReservationType": "default"}, "not an active Capacity Block"),
        ({"InstanceType": "p4d.24xlarge"}, "does not match"),
        ({"AvailabilityZone": "us-west-2d"}, "does not match"),
        ({"TotalInstanceCount": 1}, "does not have sufficient capacity"),
        (None, "does not exist"),
    ],
)
def test_capacity_blocks(aws: Double, account: Account, reservation: Json | None, told: str) -> None:
    account.cluster()
    held = {"CapacityReservationId": "cr-0"}
    if reservation is not None:
        held = aws.capacity_reservation(**({"InstanceType": "p5.48xlarge", "TotalInstanceCount": 2} | reservation))
        found = account.ec2.describe_capacity_reservations(CapacityReservationIds=[held["CapacityReservationId"]])
        assert found["CapacityReservations"][0]["AvailabilityZone"] == held["AvailabilityZone"]
    data = TEMPLATE | {
        "InstanceMarketOptions": {"MarketType": "capacity-block"},
        "CapacityReservationSpecification": {
            "CapacityReservationPreference": "capacity-reservations-only",
            "CapacityReservationTarget": {"CapacityReservationId": held["CapacityReservationId"]},
        },
    }
    account.ec2.create_launch_template(LaunchTemplateName="gpu", LaunchTemplateData=data)
    group = account.nodes(
        "gpu",
        until="CREATE_FAILED" if told else "ACTIVE",
        launchTemplate={"name": "gpu", "version": "1"},
        capacityType="CAPACITY_BLOCK",
        amiType="AL2023_x86_64_NVIDIA",
        scalingConfig={"minSize": 0, "maxSize": 2, "desiredSize": 2},
    )
    assert told in " ".join(issue["message"] for issue in group["health"]["issues"])


def test_unknown_reservations(aws: Double, account: Account) -> None:
    with refused("InvalidCapacityReservationId.NotFound"):
        account.ec2.describe_capacity_reservations(CapacityReservationIds=["cr-0"])
    aws.capacity_reservation(State="scheduled")
    active = [{"Name": "state", "Values": ["active"]}]
    assert account.ec2.describe_capacity_reservations(Filters=active)["CapacityReservations"] == []
    with refused("InvalidParameterValue"):
        account.ec2.describe_capacity_reservations(Filters=[{"Name": "colour", "Values": ["red"]}])


def test_leaked_interfaces(aws: Double, account: Account) -> None:
    cluster = account.cluster()
    aws.settings(leaked_interfaces=1)
    account.nodes()
    account.eks.delete_nodegroup(clusterName="one", nodegroupName="system")
    account.look("nodegroup", "system")
    with refused("ResourceNotFoundException"):
        account.look("nodegroup", "system")
    wanted = [{"Name": "description", "Values": ["aws-K8S-*"]}, {"Name": "status", "Values": ["available"]}]
    found = account.ec2.describe_network_interfaces(Filters=wanted)["NetworkInterfaces"]
    assert len(found) == 1
    account.eks.delete_cluster(name="one")
    account.look("cluster")
    with refused("ResourceNotFoundException"):
        account.look("cluster")
    group = cluster["resourcesVpcConfig"]["clusterSecurityGroupId"]
    with refused("DependencyViolation"):
        account.ec2.delete_security_group(GroupId=group)
    account.ec2.delete_network_interface(NetworkInterfaceId=found[0]["NetworkInterfaceId"])
    account.ec2.delete_security_group(GroupId=group)


# --- addons and identities


def test_addons(aws: Double, account: Account) -> None:
    account.cluster()
    with refused("InvalidParameterException", "Addon none specified is not supported"):
        account.eks.create_addon(clusterName="one", addonName="none")
    with refused("InvalidParameterException", "v9 specified is not supported"):
        account.eks.create_addon(clusterName="one", addonName="coredns", addonVersion="v9")
    with refused("InvalidParameterException", "ConfigurationValue"):
        account.eks.create_addon(clusterName="one", addonName="coredns", configurationValues="[1")
    made = account.eks.create_addon(
        clusterName="one", addonName="coredns", configurationValues='{"replicaCount": 3}', resolveConflicts="OVERWRITE"
    )["addon"]
    assert made["status"] == "CREATING"
    with refused("ResourceInUseException"):
        account.eks.create_addon(clusterName="one", addonName="coredns")
    assert account.look("addon", "coredns")["status"] == "CREATING"
    with refused("ResourceInUseException"):
        account.eks.delete_addon(clusterName="one", addonName="coredns")
    addon = account.look("addon", "coredns", until="DEGRADED")
    assert addon["health"]["issues"][0]["code"] == "InsufficientNumberOfReplicas"
    account.nodes("gpu", taints=[{"key": "a", "effect": "NO_SCHEDULE"}])
    assert account.look("addon", "coredns")["status"] == "DEGRADED"
    account.nodes()
    addon = account.look("addon", "coredns", until="ACTIVE")
    assert addon["configurationValues"] == '{"replicaCount": 3}'
    older = account.eks.describe_addon_versions(addonName="coredns")["addons"][0]["addonVersions"][1]["addonVersion"]
    update = account.eks.update_addon(clusterName="one", addonName="coredns", addonVersion=older)["update"]
    assert account.updated(update, addonName="coredns") == "Successful"
    assert account.look("addon", "coredns")["addonVersion"] == older
    assert account.eks.list_addons(clusterName="one")["addons"] == ["coredns"]
    account.eks.delete_addon(clusterName="one", addonName="coredns", preserve=False)
    assert account.look("addon", "coredns")["status"] == "DELETING"
    with refused("ResourceNotFoundException"):
        account.look("addon", "coredns")
    aws.fail("addon", "vpc-cni", code="ConfigurationConflict", message="Conflicts found")
    account.eks.create_addon(clusterName="one", addonName="vpc-cni")
    assert (
        account.look("addon", "vpc-cni", until="CREATE_FAILED")["health"]["issues"][0]["message"] == "Conflicts found"
    )


def test_versions_of_addons_follow_the_cluster(account: Account) -> None:
    account.cluster(version="1.35")
    account.eks.create_addon(clusterName="one", addonName="kube-proxy")
    assert account.look("addon", "kube-proxy", until="ACTIVE")["addonVersion"].startswith("v1.35.")
    told = account.eks.describe_addon_versions(kubernetesVersion="1.36", addonName="kube-proxy")["addons"][0]
    default = [one for one in told["addonVersions"] if one["compatibilities"][0]["defaultVersion"]]
    assert default[0]["addonVersion"].startswith("v1.36.")
    schema = account.eks.describe_addon_configuration(addonName="kube-proxy", addonVersion="v1.36.0-eksbuild.2")
    assert json.loads(schema["configurationSchema"])["type"] == "object"


def test_waiters(account: Account) -> None:
    account.cluster()
    account.nodes()
    quick = {"Delay": 0, "MaxAttempts": 4}
    account.eks.create_addon(clusterName="one", addonName="coredns")
    account.eks.get_waiter("addon_active").wait(clusterName="one", addonName="coredns", WaiterConfig=quick)
    account.eks.delete_addon(clusterName="one", addonName="coredns")
    account.eks.get_waiter("addon_deleted").wait(clusterName="one", addonName="coredns", WaiterConfig=quick)
    account.eks.delete_nodegroup(clusterName="one", nodegroupName="system")
    account.eks.get_waiter("nodegroup_deleted").wait(clusterName="one", nodegroupName="system", WaiterConfig=quick)
    account.eks.delete_cluster(name="one")
    account.eks.get_waiter("cluster_deleted").wait(name="one", WaiterConfig=quick)


def test_pod_identities(account: Account) -> None:
    account.cluster()
    asked = {"clusterName": "one", "namespace": "kube-system", "serviceAccount": "driver"}
    with refused("InvalidParameterException", "trusted entity"):
        account.eks.create_pod_identity_association(**asked, roleArn=account.roles["node"])
    made = account.eks.create_pod_identity_association(**asked, roleArn=account.roles["pod"], tags={"a": "b"})[
        "association"
    ]
    assert made["associationId"].startswith("a-")
    with refused("ResourceInUseException", f"Association already exists: {made['associationId']}"):
        account.eks.create_pod_identity_association(**asked, roleArn=account.roles["pod"])
    found = account.eks.list_pod_identity_associations(**asked)["associations"]
    assert [one["associationId"] for one in found] == [made["associationId"]]
    assert "roleArn" not in found[0]
    assert account.eks.list_pod_identity_associations(clusterName="one", namespace="x")["associations"] == []
    other = account.role("pod2", "pods.eks.amazonaws.com")
    key = {"clusterName": "one", "associationId": made["associationId"]}
    account.eks.update_pod_identity_association(**key, roleArn=other)
    assert account.eks.describe_pod_identity_association(**key)["association"]["roleArn"] == other
    account.eks.delete_pod_identity_association(**key)
    with refused("ResourceNotFoundException"):
        account.eks.describe_pod_identity_association(**key)


def test_access_entries(account: Account) -> None:
    account.cluster()
    key = {"clusterName": "one", "principalArn": account.roles["node"]}
    with refused("InvalidRequestException", "authentication mode"):
        account.eks.create_access_entry(**key)
    update = account.eks.update_cluster_config(name="one", accessConfig={"authenticationMode": "API_AND_CONFIG_MAP"})
    account.updated(update["update"])
    account.eks.create_access_entry(**key, kubernetesGroups=["a"])
    with refused("ResourceInUseException"):
        account.eks.create_access_entry(**key)
    policy = "arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"
    account.eks.associate_access_policy(**key, policyArn=policy, accessScope={"type": "cluster"})
    found = account.eks.list_associated_access_policies(**key)["associatedAccessPolicies"]
    assert [one["policyArn"] for one in found] == [policy]
    account.eks.update_access_entry(**key, kubernetesGroups=["b"])
    assert account.eks.describe_access_entry(**key)["accessEntry"]["kubernetesGroups"] == ["b"]
    assert account.eks.list_access_entries(clusterName="one")["accessEntries"] == [account.roles["node"]]
    account.eks.disassociate_access_policy(**key, policyArn=policy)
    account.eks.delete_access_entry(**key)
    assert account.eks.list_access_entries(clusterName="one")["accessEntries"] == []


# --- the network


def _nat(account: Account) -> tuple[str, str]:
    gateway = account.ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    account.ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=account.vpc)
    address = account.ec2.allocate_address(Domain="vpc")["AllocationId"]
    return gateway, address


def test_a_nat_gateway_comes_and_goes(account: Account) -> None:
    account.network()
    gateway, address = _nat(account)
    tags = [{"ResourceType": "natgateway", "Tags": [{"Key": "Name", "Value": "nat"}]}]
    asked = {"SubnetId": account.subnets[0], "AllocationId": address, "ClientToken": "t", "TagSpecifications": tags}
    nat = account.ec2.create_nat_gateway(**asked)["NatGateway"]
    assert nat["State"] == "pending"
    assert account.ec2.create_nat_gateway(**asked)["NatGateway"]["NatGatewayId"] == nat["NatGatewayId"]
    with refused("Resource.AlreadyAssociated"):
        account.ec2.create_nat_gateway(**asked | {"ClientToken": "u"})
    with refused("IdempotentParameterMismatch"):
        account.ec2.create_nat_gateway(**asked | {"SubnetId": account.subnets[1]})
    by_tag = [{"Name": "tag:Name", "Values": ["nat"]}, {"Name": "state", "Values": ["pending", "available"]}]

    def states() -> list[str]:
        found = account.ec2.describe_nat_gateways(Filter=by_tag[:1])["NatGateways"]
        return [str(one["State"]) for one in found]

    assert [states() for _ in range(2)] == [["pending"], ["available"]]
    found = account.ec2.describe_nat_gateways(Filter=by_tag)["NatGateways"][0]
    assert found["NatGatewayAddresses"][0]["AllocationId"] == address
    table = account.ec2.create_route_table(VpcId=account.vpc)["RouteTable"]["RouteTableId"]
    account.ec2.create_route(RouteTableId=table, DestinationCidrBlock="0.0.0.0/0", NatGatewayId=nat["NatGatewayId"])
    with refused("InvalidIPAddress.InUse"):
        account.ec2.release_address(AllocationId=address)
    with refused("DependencyViolation", "mapped public address"):
        account.ec2.detach_internet_gateway(InternetGatewayId=gateway, VpcId=account.vpc)
    with refused("DependencyViolation"):
        account.ec2.delete_subnet(SubnetId=account.subnets[0])
    account.ec2.delete_nat_gateway(NatGatewayId=nat["NatGatewayId"])
    assert [states() for _ in range(2)] == [["deleting"], ["deleted"]]
    routes = account.ec2.describe_route_tables(RouteTableIds=[table])["RouteTables"][0]["Routes"]
    assert [route["State"] for route in routes if route.get("NatGatewayId")] == ["blackhole"]
    account.ec2.delete_route_table(RouteTableId=table)
    assert account.ec2.describe_nat_gateways(Filter=by_tag)["NatGateways"] == []
    account.ec2.release_address(AllocationId=address)
    with refused("DependencyViolation"):
        account.ec2.delete_internet_gateway(InternetGatewayId=gateway)
    with refused("DependencyViolation"):
        account.ec2.delete_vpc(VpcId=account.vpc)
    account.ec2.detach_internet_gateway(InternetGatewayId=gateway, VpcId=account.vpc)
    account.ec2.delete_internet_gateway(InternetGatewayId=gateway)
    for subnet in account.subnets:
        account.ec2.delete_subnet(SubnetId=subnet)
    account.ec2.delete_vpc(VpcId=account.vpc)
    with refused("NatGatewayNotFound"):
        account.ec2.delete_nat_gateway(NatGatewayId="nat-0")
    with refused("NatGatewayNotFound"):
        account.ec2.describe_nat_gateways(NatGatewayIds=["nat-0"])


def test_a_nat_gateway_needs_an_internet_gateway(account: Account) -> None:
    account.network()
    address = account.ec2.allocate_address(Domain="vpc")["AllocationId"]
    nat = account.ec2.create_nat_gateway(SubnetId=account.subnets[0], AllocationId=address)["NatGateway"][
        "NatGatewayId"
    ]
    for _ in range(2):
        found = account.ec2.describe_nat_gateways(NatGatewayIds=[nat])["NatGateways"][0]
    assert (found["State"], found["FailureCode"]) == ("failed", "Gateway.NotAttached")
    account.ec2.release_address(AllocationId=address)


def test_types_of_tags(account: Account) -> None:
    account.network()
    _, address = _nat(account)
    nat = account.ec2.create_nat_gateway(SubnetId=account.subnets[0], AllocationId=address)["NatGateway"][
        "NatGatewayId"
    ]
    account.ec2.create_tags(Resources=[nat, address], Tags=[{"Key": "Name", "Value": "x"}])
    with refused("InvalidParameterValue", "reserved for internal use"):
        account.ec2.create_tags(Resources=[nat], Tags=[{"Key": "aws:x", "Value": "x"}])
    for kind, identifier in (("natgateway", nat), ("elastic-ip", address)):
        found = account.ec2.describe_tags(Filters=[{"Name": "resource-type", "Values": [kind]}])["Tags"]
        assert [(tag["ResourceId"], tag["ResourceType"]) for tag in found] == [(identifier, kind)]


def test_route_tables(account: Account) -> None:
    account.network()
    first, second = (account.ec2.create_route_table(VpcId=account.vpc)["RouteTable"]["RouteTableId"] for _ in range(2))
    asked = {"RouteTableId": first, "SubnetId": account.subnets[0]}
    association = account.ec2.associate_route_table(**asked)["AssociationId"]
    assert account.ec2.associate_route_table(**asked)["AssociationId"] == association
    with refused("Resource.AlreadyAssociated"):
        account.ec2.associate_route_table(**asked | {"RouteTableId": second})
    account.ec2.replace_route_table_association(AssociationId=association, RouteTableId=second)


def test_security_groups_in_use(account: Account) -> None:
    account.network()
    one, two = (
        account.ec2.create_security_group(GroupName=name, Description="d", VpcId=account.vpc)["GroupId"]
        for name in ("one", "two")
    )
    rule = {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": one}]}
    account.ec2.authorize_security_group_ingress(GroupId=one, IpPermissions=[rule])
    account.ec2.authorize_security_group_ingress(GroupId=two, IpPermissions=[rule])
    with refused("DependencyViolation"):
        account.ec2.delete_security_group(GroupId=one)
    account.ec2.delete_security_group(GroupId=two)
    interface = account.ec2.create_network_interface(SubnetId=account.subnets[0], Groups=[one])["NetworkInterface"]
    with refused("DependencyViolation", f"resource {one} has a dependent object"):
        account.ec2.delete_security_group(GroupId=one)
    with refused("DependencyViolation"):
        account.ec2.delete_subnet(SubnetId=account.subnets[0])
    account.ec2.delete_network_interface(NetworkInterfaceId=interface["NetworkInterfaceId"])
    account.ec2.delete_security_group(GroupId=one)
    groups = account.ec2.describe_security_groups(Filters=[{"Name": "vpc-id", "Values": [account.vpc]}])
    with refused("CannotDelete"):
        account.ec2.delete_security_group(GroupId=groups["SecurityGroups"][0]["GroupId"])


@pytest.mark.parametrize("service", ["elbv2", "elb"])
def test_load_balancers_hold_the_network(aws: Double, account: Account, service: str) -> None:
    account.network()
    _nat(account)
    client = aws.client(service)
    if service == "elbv2":
        made = client.create_load_balancer(Name="lb", Subnets=account.subnets[:2])["LoadBalancers"][0]
        deletion = {"LoadBalancerArn": made["LoadBalancerArn"]}
    else:
        listeners = [{"Protocol": "TCP", "LoadBalancerPort": 80, "InstancePort": 80}]
        client.create_load_balancer(LoadBalancerName="lb", Subnets=account.subnets[:2], Listeners=listeners)
        deletion = {"LoadBalancerName": "lb"}
    found = account.ec2.describe_network_interfaces()["NetworkInterfaces"]
    assert [one["Status"] for one in found] == ["in-use", "in-use"]
    with refused("DependencyViolation"):
        account.ec2.delete_subnet(SubnetId=account.subnets[0])
    client.delete_load_balancer(**deletion)
    assert len(account.ec2.describe_network_interfaces()["NetworkInterfaces"]) == 2
    assert account.ec2.describe_network_interfaces()["NetworkInterfaces"] == []
    account.ec2.delete_subnet(SubnetId=account.subnets[0])


def test_launch_templates(account: Account) -> None:
    interfaces = [
        {"NetworkCardIndex": card, "DeviceIndex": min(card, 1), "InterfaceType": kind, "Groups": ["sg-1", "sg-2"]}
        for card, kind in enumerate(["efa", "efa-only", "efa-only"])
    ]
    data = TEMPLATE | {"NetworkInterfaces": interfaces}
    tags = [{"ResourceType": "launch-template", "Tags": [{"Key": "a", "Value": "b"}]}]
    account.ec2.create_launch_template(LaunchTemplateName="gpu", LaunchTemplateData=data, TagSpecifications=tags)

    def latest() -> Json:
        found = account.ec2.describe_launch_template_versions(LaunchTemplateName="gpu", Versions=["$Latest"])
        return dict(found["LaunchTemplateVersions"][0]["LaunchTemplateData"])

    assert latest() == data
    account.ec2.create_launch_template_version(
        LaunchTemplateName="gpu", SourceVersion="1", LaunchTemplateData={"InstanceType": "p5en.48xlarge"}
    )
    assert latest() == data | {"InstanceType": "p5en.48xlarge"}
    account.ec2.create_launch_template_version(LaunchTemplateName="gpu", LaunchTemplateData=TEMPLATE)
    assert latest() == TEMPLATE
    with refused("InvalidParameterCombination"):
        account.ec2.create_launch_template(
            LaunchTemplateName="x", LaunchTemplateData=data | {"SecurityGroupIds": ["sg-1"]}
        )
    with refused("InvalidLaunchTemplateName.NotFoundException"):
        account.ec2.describe_launch_templates(LaunchTemplateNames=["none"])


# --- EFS


def test_a_file_system_comes_and_goes(account: Account) -> None:
    account.network()
    group = account.ec2.create_security_group(GroupName="efs", Description="d", VpcId=account.vpc)["GroupId"]
    asked = {
        "CreationToken": "t",
        "Encrypted": True,
        "ThroughputMode": "elastic",
        "Tags": [{"Key": "Name", "Value": "n"}],
    }
    made = account.efs.create_file_system(**asked)
    assert (made["LifeCycleState"], made["ThroughputMode"], made["Name"]) == ("creating", "elastic", "n")
    identifier = made["FileSystemId"]
    with refused("FileSystemAlreadyExists") as got:
        account.efs.create_file_system(**asked)
    assert got.response["FileSystemId"] == identifier
    with refused("IncorrectFileSystemLifeCycleState"):
        account.efs.create_mount_target(FileSystemId=identifier, SubnetId=account.subnets[0])
    with refused("IncorrectFileSystemLifeCycleState"):
        account.efs.delete_file_system(FileSystemId=identifier)

    def state() -> str:
        return str(account.efs.describe_file_systems(CreationToken="t")["FileSystems"][0]["LifeCycleState"])

    assert [state() for _ in range(2)] == ["creating", "available"]
    assert account.efs.describe_tags(FileSystemId=identifier)["Tags"] == asked["Tags"]
    changed = account.efs.update_file_system(FileSystemId=identifier, ThroughputMode="bursting")
    assert (changed["LifeCycleState"], changed["ThroughputMode"]) == ("updating", "bursting")
    assert [state() for _ in range(2)] == ["updating", "available"]
    with refused("SecurityGroupNotFound"):
        account.efs.create_mount_target(
            FileSystemId=identifier, SubnetId=account.subnets[0], SecurityGroups=["sg-00000000"]
        )
    target = account.efs.create_mount_target(
        FileSystemId=identifier, SubnetId=account.subnets[0], SecurityGroups=[group]
    )
    assert target["LifeCycleState"] == "creating"
    key = {"MountTargetId": target["MountTargetId"]}

    def target_states() -> list[str]:
        found = account.efs.describe_mount_targets(FileSystemId=identifier)["MountTargets"]
        return [str(one["LifeCycleState"]) for one in found]

    assert [target_states() for _ in range(2)] == [["creating"], ["available"]]
    assert account.efs.describe_mount_target_security_groups(**key)["SecurityGroups"] == [group]
    with refused("MountTargetConflict"):
        account.efs.create_mount_target(FileSystemId=identifier, SubnetId=account.subnets[0])
    with refused("DependencyViolation"):
        account.ec2.delete_security_group(GroupId=group)
    with refused("DependencyViolation"):
        account.ec2.delete_subnet(SubnetId=account.subnets[0])
    with refused("FileSystemInUse"):
        account.efs.delete_file_system(FileSystemId=identifier)
    account.efs.delete_mount_target(**key)
    with refused("IncorrectMountTargetState"):
        account.efs.describe_mount_target_security_groups(**key)
    assert [target_states() for _ in range(2)] == [["deleting"], []]
    with refused("MountTargetNotFound"):
        account.efs.describe_mount_targets(**key)
    account.ec2.delete_security_group(GroupId=group)
    point = account.efs.create_access_point(ClientToken="c", FileSystemId=identifier)["AccessPointId"]
    with refused("FileSystemInUse", "access points"):
        account.efs.delete_file_system(FileSystemId=identifier)
    account.efs.delete_access_point(AccessPointId=point)
    account.efs.delete_file_system(FileSystemId=identifier)
    assert state() == "deleting"
    assert account.efs.describe_file_systems(CreationToken="t")["FileSystems"] == []
    with refused("FileSystemNotFound"):
        account.efs.describe_file_systems(FileSystemId=identifier)
    account.efs.create_file_system(**asked)


# --- IAM


@pytest.mark.parametrize("document", ["no JSON", "{}", '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow"}]}'])
def test_documents(account: Account, document: str) -> None:
    with refused("MalformedPolicyDocument"):
        account.iam.create_role(RoleName="r", AssumeRolePolicyDocument=document)
    with refused("MalformedPolicyDocument"):
        account.iam.create_policy(PolicyName="p", PolicyDocument=document)


def test_policies_in_use(account: Account) -> None:
    account.role("r", "ec2.amazonaws.com", "AmazonEKSWorkerNodePolicy")
    document = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "ec2:*", "Resource": "*"}]}
    arn = account.iam.create_policy(PolicyName="p", PolicyDocument=json.dumps(document))["Policy"]["Arn"]
    account.iam.attach_role_policy(RoleName="r", PolicyArn=arn)
    with refused("DeleteConflict", "attached"):
        account.iam.delete_policy(PolicyArn=arn)
    with refused("DeleteConflict"):
        account.iam.delete_role(RoleName="r")
    account.iam.detach_role_policy(RoleName="r", PolicyArn=arn)
    account.iam.create_policy_version(PolicyArn=arn, PolicyDocument=json.dumps(document))
    with refused("DeleteConflict", "version"):
        account.iam.delete_policy(PolicyArn=arn)
    account.iam.delete_policy_version(PolicyArn=arn, VersionId="v2")
    account.iam.delete_policy(PolicyArn=arn)


# --- tokens


def _token(client: Any, cluster: str, header: str = "x-k8s-aws-id", action: str = "GetCallerIdentity") -> str:
    """A token as EKS has them, made with botocore."""
    signer: RequestSigner = client._request_signer
    request = {
        "method": "GET",
        "url": f"https://sts.us-west-2.amazonaws.com/?Action={action}&Version=2011-06-15",
        "body": {},
        "headers": {header: cluster},
        "context": {},
    }
    url = signer.generate_presigned_url(request, region_name="us-west-2", expires_in=60, operation_name="")
    return "k8s-aws-v1." + base64.urlsafe_b64encode(url.encode()).decode().rstrip("=")


def test_token_reviews(aws: Double, account: Account) -> None:
    sts = aws.client("sts")
    review = aws.token_review(_token(sts, "one"))
    assert review["status"]["error"] == "the token is for none of the clusters in us-west-2"
    account.cluster()
    review = aws.token_review(_token(sts, "one"))
    assert (review["apiVersion"], review["kind"]) == ("authentication.k8s.io/v1", "TokenReview")
    assert review["status"]["authenticated"] is True
    assert "system:masters" in review["status"]["user"]["groups"]
    assert aws.token_review(_token(sts, "one"), "one")["status"]["authenticated"] is True
    assert aws.token_review(_token(sts, "one"), "two")["status"]["error"] == "the token is for cluster one"
    for token, told in (
        ("x", "does not begin with"),
        ("k8s-aws-v1.!", "not base64url"),
        ("k8s-aws-v1.aHR0cHM6Ly9leGFtcGxlLmNvbS8", "not one of STS"),
        (_token(sts, "one", header="x-other"), "not host and x-k8s-aws-id"),
        (_token(sts, "one", action="GetSessionToken"), "GetSessionToken, not GetCallerIdentity"),
        (_token(sts, "two"), "for none of the clusters"),
    ):
        status = aws.token_review(token)["status"]
        assert status["authenticated"] is False
        assert told in status["error"]


def test_tokens_of_others(aws: Double, account: Account) -> None:
    """Who made a cluster is its administrator; others need an access entry."""
    account.cluster(accessConfig={"authenticationMode": "API_AND_CONFIG_MAP"})
    arn = account.role("fleet", "ec2.amazonaws.com")
    keys = aws.client("sts").assume_role(RoleArn=arn, RoleSessionName="session")["Credentials"]
    session = boto3.session.Session(keys["AccessKeyId"], keys["SecretAccessKey"], keys["SessionToken"], "us-west-2")
    token = _token(session.client("sts"), "one")
    assert "nor has an access entry" in aws.token_review(token)["status"]["error"]
    key = {"clusterName": "one", "principalArn": arn}
    account.eks.create_access_entry(**key, kubernetesGroups=["readers"])
    assert aws.token_review(token)["status"]["user"]["groups"] == ["readers", "system:authenticated"]
    policy = "arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"
    account.eks.associate_access_policy(**key, policyArn=policy, accessScope={"type": "cluster"})
    assert "system:masters" in aws.token_review(token)["status"]["user"]["groups"]
    stranger = boto3.session.Session("AKIAIOSFODNN7OTHER", "secret", region_name="us-west-2")
    assert aws.token_review(_token(stranger.client("sts"), "one"))["status"]["error"] == "the access key is unknown"


def test_presigned_questions_are_answered(aws: Double) -> None:
    """Who sends the URL of a token to STS is told who it is of."""
    url = aws.client("sts").generate_presigned_url("get_caller_identity")
    with urllib.request.urlopen(url) as answer:
        assert "arn:aws:iam::123456789012:user/moto" in answer.read().decode()


def test_own_answers_are_held_against_the_models(account: Account) -> None:
    """The fixture sees that nothing invalid was told, also of the answers to a walk over all reads."""
    account.cluster()
    account.nodes()
    account.eks.describe_addon_versions()
    account.eks.list_updates(name="one")
    assert Config(retries={"total_max_attempts": 1}).retries == {"total_max_attempts": 1}
