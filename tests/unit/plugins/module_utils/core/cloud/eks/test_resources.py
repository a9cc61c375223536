# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The objects that a plan lists: each with its body, its references and what it needs."""

from __future__ import annotations

import json
from typing import Any

import botocore.session
import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks import requests
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks.kinds import KINDS, OWNERS
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks.plan import Options, plan
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.engine import graph
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.engine.compare import at
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.engine.graph import references
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.cloud.eks.clusters import eks, gpu

Json = dict[str, Any]
NAME = "modelplane-system-eks-us-west-eks-03b8e"
ZONES = [f"us-west-2{letter}" for letter in "abc"]
OWNER = {
    "modelplane.ai/cluster": NAME,
    "modelplane.ai/managed-by": "modelplane.fleet",
    "modelplane.ai/fleet": "default",
}
TAGS = {**OWNER, "Name": NAME}
ASSUME = "sts:AssumeRole"
PODS = [ASSUME, "sts:TagSession"]
READ = [
    "autoscaling:DescribeAutoScalingGroups",
    "autoscaling:DescribeAutoScalingInstances",
    "autoscaling:DescribeLaunchConfigurations",
    "autoscaling:DescribeScalingActivities",
    "ec2:DescribeImages",
    "ec2:DescribeInstanceTypes",
    "ec2:DescribeLaunchTemplateVersions",
    "ec2:GetInstanceTypesFromInstanceRequirements",
    "eks:DescribeNodegroup",
]
SCALE = ["autoscaling:SetDesiredCapacity", "autoscaling:TerminateInstanceInAutoScalingGroup"]
SHAPES = {
    "vpc": ("ec2", "Vpc"),
    "subnet": ("ec2", "Subnet"),
    "internet-gateway": ("ec2", "InternetGateway"),
    "elastic-ip": ("ec2", "Address"),
    "nat-gateway": ("ec2", "NatGateway"),
    "security-group": ("ec2", "SecurityGroup"),
    "launch-template": ("ec2", "LaunchTemplate"),
    "policy": ("iam", "Policy"),
    "role": ("iam", "Role"),
    "cluster": ("eks", "Cluster"),
    "file-system": ("efs", "FileSystemDescription"),
}


def listed(*pools: Json, options: Options | None = None, **spec: Any) -> dict[str, Json]:
    """Return the resources of a plan by key."""
    found = plan(eks(*pools, **spec), options=options)["resources"]
    by_key = {each["key"]: each for each in found}
    assert len(by_key) == len(found)
    return by_key


def ref(key: str, field: str) -> Json:
    return {"ref": key, "field": field}


def subnets(tier: str, zones: list[str] = ZONES) -> list[Json]:
    return [ref(f"subnet-{tier}-{zone}", "SubnetId") for zone in zones]


EVERYTHING = listed(
    gpu(), gpu("fast", instanceType="p4d.24xlarge", fabric="EFA"), logging={"types": ["api"]}, kubernetesVersion="1.35"
)


def test_a_default_plan_lists_each_object_once_and_after_what_it_needs() -> None:
    found = listed()
    assert {key: each["kind"] for key, each in found.items()} == {
        "vpc": "vpc",
        **{f"subnet-{tier}-{zone}": "subnet" for tier in ("public", "private") for zone in ZONES},
        "internet-gateway": "internet-gateway",
        "elastic-ip": "elastic-ip",
        "nat-gateway": "nat-gateway",
        **{f"route-table-{tier}": "route-table" for tier in ("public", "private")},
        "security-group-efs": "security-group",
        "policy-autoscaler": "policy",
        **{f"role-{key}": "role" for key in ("cluster", "node", "efs-csi", "autoscaler")},
        "cluster": "cluster",
        "file-system": "file-system",
        **{f"mount-target-{zone}": "mount-target" for zone in ZONES},
        "launch-template-system": "launch-template",
        "launch-template-gpu-l4": "launch-template",
        "node-group-system": "node-group",
        "node-group-gpu-l4": "node-group",
        **{
            f"addon-{name}": "addon"
            for name in ("vpc-cni", "kube-proxy", "eks-pod-identity-agent", "coredns", "aws-efs-csi-driver")
        },
        "pod-identity-efs-csi-controller-sa": "pod-identity",
        "pod-identity-cluster-autoscaler": "pod-identity",
    }
    assert {each["kind"] for each in EVERYTHING.values()} == set(KINDS)
    needs = graph.needs(EVERYTHING.values())
    assert graph.problem(needs) == ""
    keys = list(EVERYTHING)
    assert all(keys.index(other) < keys.index(key) for key, needed in needs.items() for other in needed)
    parents = {"iam", "us-west-2", f"clusters/{NAME}"}
    assert {each["parent"] for each in EVERYTHING.values()} == parents
    assert json.loads(json.dumps(EVERYTHING)) == EVERYTHING


def test_references_are_to_fields_that_aws_returns() -> None:
    session = botocore.session.get_session()
    models = {service: session.get_service_model(service) for service, _ in SHAPES.values()}
    named = {found for each in EVERYTHING.values() for found in references(each["body"])}
    assert len(named) > 20
    for key, field in named:
        service, name = SHAPES[EVERYTHING[key]["kind"]]
        shape = models[service].shape_for(name)
        for part in field.split("."):
            assert part in shape.members, (key, field)
            shape = shape.members[part]


def test_compared_fields_are_in_bodies_and_all_objects_have_the_owner() -> None:
    """Except a mount target, which is in the file system, and fields that an option sets."""
    optional = {"encryptionKey", "diskSize", "addonVersion", "resourcesVpcConfig.publicAccessCidrs"}
    for name, kind in KINDS.items():
        bodies = [each["body"] for each in EVERYTHING.values() if each["kind"] == name]
        missing = {each.path for each in kind.fields if all(at(body, each.path) is None for body in bodies)}
        assert missing <= optional, (name, missing)
        for body in bodies:
            assert OWNERS.of(kind, body) == ({} if name == "mount-target" else OWNER)


def test_the_network() -> None:
    found = listed()
    vpc = ref("vpc", "VpcId")
    body = {"CidrBlock": "10.0.0.0/16", "EnableDnsSupport": True, "EnableDnsHostnames": True, "Tags": TAGS}
    assert found["vpc"]["body"] == body
    public, private = (found[f"subnet-{tier}-us-west-2b"] for tier in ("public", "private"))
    assert public["name"] == "eks-us-west-subnet-us-west-2b-28426"
    assert public["body"] == {
        "VpcId": vpc,
        "CidrBlock": "10.0.16.0/20",
        "AvailabilityZone": "us-west-2b",
        "MapPublicIpOnLaunch": True,
        "Tags": {**OWNER, "Name": public["name"], "kubernetes.io/role/elb": "1"},
    }
    assert private["body"] == {
        "VpcId": vpc,
        "CidrBlock": "10.0.64.0/20",
        "AvailabilityZone": "us-west-2b",
        "MapPublicIpOnLaunch": False,
        "Tags": {**OWNER, "Name": "eks-us-west-private-subnet-us-west-2b-ea643"},
    }
    assert found["internet-gateway"]["body"] == {"VpcId": vpc, "Tags": TAGS}
    nat = found["nat-gateway"]
    assert nat["body"] == {
        "SubnetId": subnets("public")[0],
        "AllocationId": ref("elastic-ip", "AllocationId"),
        "Tags": TAGS,
    }
    # Without a way out of the VPC a NAT gateway fails, and an address cannot be released once it is used.
    assert nat["needs"] == found["elastic-ip"]["needs"] == ["internet-gateway"]
    ways = {
        "public": ref("internet-gateway", "InternetGatewayId"),
        "private": ref("nat-gateway", "NatGatewayId"),
    }
    for tier, way in ways.items():
        assert found[f"route-table-{tier}"]["body"] == {
            "VpcId": vpc,
            "Routes": {"0.0.0.0/0": way},
            "SubnetIds": subnets(tier),
            "Tags": {**OWNER, "Name": f"{NAME}-{tier}"},
        }


def test_security_groups() -> None:
    found = listed(networking={"vpcCidr": "172.20.0.0/16", "subnetCidrs": ["172.20.0.0/21", "172.20.8.0/21"]})
    assert [key for key in found if key.startswith("security-group")] == ["security-group-efs"]
    group = found["security-group-efs"]
    assert (group["name"], group["body"]) == (
        "eks-us-west-efs",
        {
            "VpcId": ref("vpc", "VpcId"),
            "Description": "NFS access to the ModelCache EFS mount targets",
            "Ingress": ["tcp 2049 172.20.0.0/16"],
            "Egress": [],
            "Tags": {**OWNER, "Name": "eks-us-west-efs"},
        },
    )
    group = EVERYTHING["security-group-efa"]
    rules = (group["body"]["Ingress"], group["body"]["Egress"])
    assert (group["name"], *rules) == ("eks-us-west-efa", ["all self"], ["all self"])


REGIONS = {
    "us-west-2": ("aws", "ec2.amazonaws.com"),
    "eu-central-1": ("aws", "ec2.amazonaws.com"),
    "cn-north-1": ("aws-cn", "ec2.amazonaws.com.cn"),
    "us-gov-west-1": ("aws-us-gov", "ec2.amazonaws.com"),
    "us-iso-east-1": ("aws-iso", "ec2.c2s.ic.gov"),
    "us-isob-east-1": ("aws-iso-b", "ec2.sc2s.sgov.gov"),
}


@pytest.mark.parametrize("region", REGIONS)
def test_rights_in_each_partition(region: str) -> None:
    partition, service = REGIONS[region]
    found = listed(gpu(zones=[f"{region}a"]), region=region)
    arn = f"arn:{partition}:iam::aws:policy"
    expected: dict[str, tuple[str, str, Any, list[Any]]] = {
        "cluster": ("cluster-80cb4", "eks.amazonaws.com", ASSUME, [f"{arn}/AmazonEKSClusterPolicy"]),
        "node": (
            "node-6c58f",
            service,
            ASSUME,
            [
                f"{arn}/{policy}"
                for policy in (
                    "AmazonEKSWorkerNodePolicy",
                    "AmazonEKS_CNI_Policy",
                    "AmazonEC2ContainerRegistryReadOnly",
                )
            ],
        ),
        "efs-csi": (
            "efs-csi-0efb6",
            "pods.eks.amazonaws.com",
            PODS,
            [f"{arn}/service-role/AmazonEFSCSIDriverPolicy"],
        ),
        "autoscaler": (
            "cluster-autoscaler-ac5d4",
            "pods.eks.amazonaws.com",
            PODS,
            [ref("policy-autoscaler", "Arn")],
        ),
    }
    for key, (name, principal, action, policies) in expected.items():
        role = found[f"role-{key}"]
        assert role["name"] == f"modelplane-system-eks-us-west-{name}"
        statement = {"Effect": "Allow", "Action": action, "Principal": {"Service": principal}}
        assert role["body"] == {
            "AssumeRolePolicyDocument": {"Version": "2012-10-17", "Statement": [statement]},
            "PolicyArns": policies,
            # IAM has no regions.
            "Tags": {**OWNER, "modelplane.ai/region": region},
        }
    policy = found["policy-autoscaler"]
    condition = {"StringEquals": {f"aws:ResourceTag/k8s.io/cluster-autoscaler/{NAME}": "owned"}}
    assert policy["name"] == "modelplane-system-eks-us-west-cluster-autoscaler-ac5d4"
    assert policy["body"]["Document"]["Statement"] == [
        {"Effect": "Allow", "Action": READ, "Resource": ["*"]},
        {"Effect": "Allow", "Action": SCALE, "Resource": ["*"], "Condition": condition},
    ]


def test_the_cluster() -> None:
    body = {
        "version": "1.36",
        "roleArn": ref("role-cluster", "Arn"),
        "vpc": ref("vpc", "VpcId"),
        "resourcesVpcConfig": {
            "endpointPrivateAccess": True,
            "endpointPublicAccess": True,
            "subnetIds": [*subnets("public"), *subnets("private")],
        },
        "accessConfig": {"authenticationMode": "API_AND_CONFIG_MAP"},
        "tags": OWNER,
    }
    found = listed()["cluster"]
    assert found["body"] == body
    assert found["initial"] == {"accessConfig": {"bootstrapClusterCreatorAdminPermissions": True}}
    key = "arn:aws:kms:us-west-2:123456789012:key/1"
    settings = {"logging": {"types": ["audit", "api"]}, "encryptionConfig": {"keyArn": key}}
    chosen = listed(options=Options(public_access_cidrs=["192.0.2.0/24"], tags={"team": "ml"}), **settings)["cluster"]
    assert chosen["body"]["resourcesVpcConfig"]["publicAccessCidrs"] == ["192.0.2.0/24"]
    assert (chosen["body"]["logs"], chosen["body"]["encryptionKey"]) == (["api", "audit"], key)
    assert chosen["body"]["tags"] == {**OWNER, "team": "ml"}
    sent = requests.create(chosen).parameters
    assert sent["logging"] == {"clusterLogging": [{"types": ["api", "audit"], "enabled": True}]}
    assert sent["encryptionConfig"] == [{"resources": ["secrets"], "provider": {"keyArn": key}}]


def test_node_groups_and_launch_templates() -> None:
    first = ["addon-vpc-cni", "addon-kube-proxy", "addon-eks-pod-identity-agent", "route-table-private"]
    plain, fast = EVERYTHING["node-group-gpu-l4"], EVERYTHING["node-group-fast"]
    body = {
        "nodeRole": ref("role-node", "Arn"),
        "subnets": subnets("private", ZONES[:1]),
        "amiType": "AL2023_x86_64_NVIDIA",
        "capacityType": "ON_DEMAND",
        "scalingConfig": {"minSize": 0, "maxSize": 8},
        "updateConfig": {"maxUnavailable": 1, "updateStrategy": "MINIMAL"},
        "labels": {"modelplane.ai/pool": "gpu-l4", "modelplane.ai/gpu": "nvidia-l4"},
        "taints": [{"key": "nvidia.com/gpu", "value": "true", "effect": "NO_SCHEDULE"}],
        "hasLaunchTemplate": True,
        "machineInTemplate": False,
        "instanceTypes": ["g6.12xlarge"],
        "launchTemplate": {
            "id": ref("launch-template-gpu-l4", "LaunchTemplateId"),
            "version": ref("launch-template-gpu-l4", "LatestVersionNumber"),
        },
        "version": ref("cluster", "version"),
        "tags": OWNER,
    }
    assert plain["body"] == body
    assert plain["initial"] == {"scalingConfig": {"desiredSize": 1}}
    assert plain["needs"] == [*first, *(f"mount-target-{zone}" for zone in ZONES)]
    old = listed(options=Options(groups_without_template=["gpu-l4"]))
    as_it_was = {**body, "hasLaunchTemplate": False, "diskSize": 100}
    del as_it_was["launchTemplate"]
    assert old["node-group-gpu-l4"]["body"] == as_it_was
    assert "launch-template-gpu-l4" not in old
    # A machine of the system pool has another one beside it while it is replaced.
    assert not {"updateConfig", "diskSize"} & set(EVERYTHING["node-group-system"]["body"])
    template = "launch-template-fast"
    assert fast["body"]["launchTemplate"] == {
        "id": ref(template, "LaunchTemplateId"),
        "version": ref(template, "LatestVersionNumber"),
    }
    assert not {"instanceTypes", "diskSize"} & set(fast["body"])
    assert (fast["body"]["hasLaunchTemplate"], fast["body"]["machineInTemplate"]) == (True, True)
    data = EVERYTHING[template]["body"]["Data"]
    groups = [ref("security-group-efa", "GroupId"), ref("cluster", "resourcesVpcConfig.clusterSecurityGroupId")]
    assert [each["Groups"] for each in data["NetworkInterfaces"]] == [groups] * 4
    block = listed(gpu(capacityBlock={"capacityReservationId": "cr-0a"}))["launch-template-gpu-l4"]
    assert "NetworkInterfaces" not in block["body"]["Data"]


def test_addons_and_pod_identities() -> None:
    addons = {"coredns": {"version": "v1.13.2-eksbuild.1"}, "adot": {"configuration": {"b": [1], "a": 2}}}
    found = listed(options=Options(addons={**addons, "ebs": {}}))
    latest = {"kubernetesVersion": ref("cluster", "version")}
    expected: dict[str, tuple[Json, list[str]]] = {
        "vpc-cni": ({**latest, "configurationValues": "{}"}, ["cluster"]),
        "coredns": (
            {"addonVersion": "v1.13.2-eksbuild.1", "configurationValues": "{}"},
            ["cluster", "node-group-system"],
        ),
        "adot": ({**latest, "configurationValues": '{"a": 2, "b": [1]}'}, ["cluster", "node-group-system"]),
    }
    for name, (body, needs) in expected.items():
        addon = found[f"addon-{name}"]
        assert (addon["body"], addon["needs"]) == ({**body, "tags": OWNER}, needs)
    assert [key for key in found if key.startswith("addon")][-2:] == ["addon-adot", "addon-ebs"]
    for account, role in {"efs-csi-controller-sa": "efs-csi", "cluster-autoscaler": "autoscaler"}.items():
        identity = found[f"pod-identity-{account}"]
        assert (identity["name"], identity["needs"]) == (f"kube-system/{account}", ["cluster"])
        assert identity["body"] == {
            "namespace": "kube-system",
            "serviceAccount": account,
            "roleArn": ref(f"role-{role}", "Arn"),
            "tags": OWNER,
        }


def test_files() -> None:
    found = listed()
    system = found["file-system"]
    assert system["name"] == NAME
    assert {key: system["body"][key] for key in ("Encrypted", "ThroughputMode", "Tags")} == {
        "Encrypted": True,
        "ThroughputMode": "elastic",
        "Tags": TAGS,
    }
    mount, plain = system["body"]["Policy"]["Statement"]
    assert (mount["Effect"], mount["Condition"]) == (
        "Allow",
        {"Bool": {"elasticfilesystem:AccessedViaMountTarget": "true"}},
    )
    assert (plain["Effect"], plain["Condition"]) == ("Deny", {"Bool": {"aws:SecureTransport": "false"}})
    for zone in ZONES:
        assert found[f"mount-target-{zone}"]["body"] == {
            "FileSystemId": ref("file-system", "FileSystemId"),
            "SubnetId": ref(f"subnet-private-{zone}", "SubnetId"),
            "SecurityGroups": [ref("security-group-efs", "GroupId")],
        }
