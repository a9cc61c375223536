# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Clusters of EKS: what moto does not have of them, or is less strict in."""

from __future__ import annotations

import base64

import pytest
from ansible_collections.modelplane.fleet.tests.aws.account import Account, Json, refused
from ansible_collections.modelplane.fleet.tests.aws.double import Double
from cryptography import x509


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
    assert [account.describe("cluster")["status"] for _ in range(3)] == ["CREATING", "CREATING", "ACTIVE"]
    cluster = account.describe("cluster")
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
    assert [account.describe("cluster")["status"] for _ in range(2)] == ["DELETING", "DELETING"]
    with refused("ResourceNotFoundException", "No cluster found for name: one."):
        account.describe("cluster")
    assert account.ec2.describe_network_interfaces()["NetworkInterfaces"] == []
    names = [one["GroupName"] for one in account.ec2.describe_security_groups()["SecurityGroups"]]
    assert "eks-cluster-sg" not in " ".join(names)
    waiters = [call for call in aws.calls() if call["operation"] == "DescribeCluster"]
    assert waiters[-1]["error"] == "ResourceNotFoundException"


def test_zones_without_a_control_plane_are_refused(aws: Double, account: Account) -> None:
    role = account.role("cluster", "eks.amazonaws.com", "AmazonEKSClusterPolicy")
    ec2, eks = (aws.client(name, "us-east-1") for name in ("ec2", "eks"))
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    subnets = [
        ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.0.{index}.0/24", AvailabilityZone=f"us-east-1{zone}")["Subnet"]
        for index, zone in enumerate("ae")
    ]
    assert subnets[1]["AvailabilityZoneId"] == "use1-az3"
    with pytest.raises(eks.exceptions.UnsupportedAvailabilityZoneException) as refusal:
        eks.create_cluster(
            name="one", roleArn=role, resourcesVpcConfig={"subnetIds": [subnet["SubnetId"] for subnet in subnets]}
        )
    assert refusal.value.response["validZones"] == [f"us-east-1{letter}" for letter in "abcdf"]


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
    ("change", "reported"),
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
def test_what_a_cluster_cannot_be(account: Account, change: Json, reported: str) -> None:
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
    with refused("InvalidParameterException", reported):
        account.eks.create_cluster(**asked)
    assert account.eks.list_clusters()["clusters"] == []


def test_a_cluster_can_fail(aws: Double, account: Account) -> None:
    account.network()
    role = account.role("cluster", "eks.amazonaws.com", "AmazonEKSClusterPolicy")
    aws.fail("cluster", "one", code="Ec2SubnetNotFound", message="It is gone.")
    account.eks.create_cluster(name="one", roleArn=role, resourcesVpcConfig={"subnetIds": account.subnets})
    cluster = account.describe("cluster", until="FAILED")
    assert cluster["health"]["issues"][0]["message"] == "It is gone."


def test_server_of_a_cluster(aws: Double, account: Account) -> None:
    aws.cluster_server("https://127.0.0.1:6443", "a PEM")
    cluster = account.cluster()
    assert cluster["endpoint"] == "https://127.0.0.1:6443"
    assert base64.b64decode(cluster["certificateAuthority"]["data"]) == b"a PEM"
    aws.cluster_server("https://127.0.0.1:6444", "another", name="one")
    assert account.describe("cluster")["endpoint"] == "https://127.0.0.1:6444"


def test_versions(aws: Double, account: Account) -> None:
    account.cluster(version="1.34")
    reported = account.eks.describe_cluster_versions()["clusterVersions"]
    assert [one["clusterVersion"] for one in reported] == ["1.36", "1.35", "1.34", "1.33", "1.32"]
    assert [one["clusterVersion"] for one in reported if one["defaultVersion"]] == ["1.36"]
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
    assert account.describe("cluster")["status"] == "UPDATING"
    assert account.updated(update) == "Successful"
    cluster = account.describe("cluster")
    assert (cluster["status"], cluster["version"]) == ("ACTIVE", "1.35")
    assert account.eks.list_updates(name="one")["updateIds"] == [update["id"]]
    aws.fail("update", "one", code="SubnetNotFound", message="gone")
    update = account.eks.update_cluster_version(name="one", version="1.36")["update"]
    assert account.updated(update) == "Failed"
    assert account.describe("cluster")["version"] == "1.35"


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
    cluster = account.describe("cluster")
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
    assert account.describe("nodegroup", "system")["tags"] == {"b": "2", "k": "v"}
    with refused("NotFoundException"):
        account.eks.tag_resource(resourceArn=cluster["arn"] + "-none", tags={"k": "v"})
