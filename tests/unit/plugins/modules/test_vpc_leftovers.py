# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module vpc_leftovers against the double of AWS: what goes, what stays, in which order, and again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.modules import vpc_leftovers
from ansible_collections.modelplane.fleet.tests.aws.double import Double
from ansible_collections.modelplane.fleet.tests.module_run import run_module
from ansible_collections.modelplane.fleet.tests.unit.plugins.modules.parents import make_role

NAME = "modelplane-system-west-eks-12345"
OWNED = f"kubernetes.io/cluster/{NAME}"
EVERYBODY = {"IpProtocol": "tcp", "FromPort": 80, "ToPort": 80, "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}


@dataclass
class Vpc:
    """A VPC with two subnets, and what tests put into it."""

    aws: Double
    id: str
    subnets: list[str]

    def group(self, name: str, **tags: str) -> str:
        ec2 = self.aws.client("ec2")
        identifier: str = ec2.create_security_group(GroupName=name, Description="x", VpcId=self.id)["GroupId"]
        if tags:
            ec2.create_tags(Resources=[identifier], Tags=wire(tags))
        return identifier

    def interface(self, description: str, subnet: int = 0, **tags: str) -> str:
        made = self.aws.client("ec2").create_network_interface(
            SubnetId=self.subnets[subnet],
            Description=description,
            **({"TagSpecifications": [{"ResourceType": "network-interface", "Tags": wire(tags)}]} if tags else {}),
        )
        identifier: str = made["NetworkInterface"]["NetworkInterfaceId"]
        return identifier

    def classic(self, name: str, **tags: str) -> str:
        self.aws.client("elb").create_load_balancer(
            LoadBalancerName=name,
            Listeners=[{"Protocol": "TCP", "LoadBalancerPort": 80, "InstancePort": 30080}],
            Subnets=self.subnets,
            # Without one, a group is made, as for a load balancer that a person makes.
            SecurityGroups=[self.default_group()],
            **({"Tags": wire(tags)} if tags else {}),
        )
        return name

    def default_group(self) -> str:
        groups = self.aws.client("ec2").describe_security_groups(
            Filters=[{"Name": "vpc-id", "Values": [self.id]}, {"Name": "group-name", "Values": ["default"]}]
        )
        identifier: str = groups["SecurityGroups"][0]["GroupId"]
        return identifier

    def modern(self, name: str, kind: str = "network", **tags: str) -> str:
        made = self.aws.client("elbv2").create_load_balancer(
            Name=name, Type=kind, Subnets=self.subnets, **({"Tags": wire(tags)} if tags else {})
        )
        arn: str = made["LoadBalancers"][0]["LoadBalancerArn"]
        return arn

    def target_group(self, name: str, balancer: str = "", **tags: str) -> str:
        elbv2 = self.aws.client("elbv2")
        made = elbv2.create_target_group(
            Name=name, Protocol="TCP", Port=80, VpcId=self.id, **({"Tags": wire(tags)} if tags else {})
        )
        arn: str = made["TargetGroups"][0]["TargetGroupArn"]
        if balancer:
            elbv2.create_listener(
                LoadBalancerArn=balancer,
                Protocol="TCP",
                Port=80,
                DefaultActions=[{"Type": "forward", "TargetGroupArn": arn}],
            )
        return arn

    def left(self) -> dict[str, set[str]]:
        """Names and ids of what there is."""
        ec2, elbv2 = self.aws.client("ec2"), self.aws.client("elbv2")
        classic = self.aws.client("elb").describe_load_balancers()["LoadBalancerDescriptions"]
        return {
            "balancers": {one["LoadBalancerName"] for one in classic}
            | {one["LoadBalancerName"] for one in elbv2.describe_load_balancers()["LoadBalancers"]},
            "target groups": {one["TargetGroupName"] for one in elbv2.describe_target_groups()["TargetGroups"]},
            "interfaces": {one["NetworkInterfaceId"] for one in ec2.describe_network_interfaces()["NetworkInterfaces"]},
            "groups": {
                one["GroupId"] for one in ec2.describe_security_groups()["SecurityGroups"] if one["VpcId"] == self.id
            },
        }


def wire(tags: dict[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def network(aws: Double, cidr: str = "10.0.0.0/16") -> Vpc:
    ec2 = aws.client("ec2")
    vpc = ec2.create_vpc(CidrBlock=cidr)["Vpc"]["VpcId"]
    head = cidr.split(".")[1]
    subnets = [
        ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.{head}.{16 * index}.0/20", AvailabilityZone=f"us-west-2{zone}")[
            "Subnet"
        ]["SubnetId"]
        for index, zone in enumerate("ab")
    ]
    return Vpc(aws, vpc, subnets)


@pytest.fixture
def vpc(aws: Double) -> Vpc:
    return network(aws)


def sweep(vpc: Vpc, *, check_mode: bool = False, **more: Any) -> dict[str, Any]:
    vpc.aws.forget_calls()
    given = {**vpc.aws.credentials, "vpc_id": vpc.id, "cluster": NAME, "wait_delay": 0.01, "wait_timeout": 60, **more}
    return run_module(vpc_leftovers, given, check_mode=check_mode)


def mutations(vpc: Vpc) -> list[str]:
    return [call["operation"] for call in vpc.aws.calls(mutating=True)]


def cluster(vpc: Vpc) -> None:
    """An EKS cluster in the VPC."""
    role = make_role(vpc.aws, "cluster", "eks.amazonaws.com", "AmazonEKSClusterPolicy")
    eks = vpc.aws.client("eks")
    eks.create_cluster(name=NAME, version="1.36", roleArn=role, resourcesVpcConfig={"subnetIds": vpc.subnets})


def test_an_empty_vpc_has_nothing_to_remove(vpc: Vpc) -> None:
    result = sweep(vpc)
    assert (result["failed"], result["changed"], mutations(vpc)) == (False, False, [])
    assert result["left_alone"] == []
    assert result["diff"] == {"before": "", "after": ""}


def test_a_vpc_that_does_not_exist_has_nothing_either(aws: Double) -> None:
    result = sweep(Vpc(aws, "vpc-0123456789abcdef0", []))
    assert (result["failed"], result["changed"]) == (False, False)


@pytest.fixture
def full(vpc: Vpc) -> dict[str, str]:
    """All that a cluster that is gone can leave, and as much of others."""
    made = {
        "classic": vpc.classic("a1b2c3", **{OWNED: "owned"}),
        "network": vpc.modern("k8s-gateway-12", **{OWNED: "owned"}),
        "application": vpc.modern("k8s-ingress-12", "application", **{"elbv2.k8s.aws/cluster": NAME}),
        "idle": vpc.interface("aws-K8S-i-0123456789abcdef0"),
        "own idle": vpc.interface("aws-K8S-i-1123456789abcdef0", 1, **{"cluster.k8s.amazonaws.com/name": NAME}),
        "balancer group": vpc.group("k8s-elb-a1b2c3", **{OWNED: "owned"}),
        "traffic group": vpc.group(f"k8s-traffic-{NAME}-abc", **{"elbv2.k8s.aws/cluster": NAME}),
        "cluster group": vpc.group(f"eks-cluster-sg-{NAME}-123456", **{OWNED: "owned"}),
    }
    made["targets"] = vpc.target_group("k8s-gateway", made["network"])
    made["tagged targets"] = vpc.target_group("k8s-web", **{"elbv2.k8s.aws/cluster": NAME})
    # As the controllers do: nodes are reached by load balancers.
    for group in ("balancer group", "traffic group"):
        vpc.aws.client("ec2").authorize_security_group_ingress(
            GroupId=made["cluster group"],
            IpPermissions=[{"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": made[group]}]}],
        )
    return made


def test_all_that_a_cluster_left_is_removed(vpc: Vpc, full: dict[str, str]) -> None:
    result = sweep(vpc)
    assert result["failed"] is False, result.get("msg")
    assert result["changed"] is True
    assert [(one["name"], one["type"]) for one in result["load_balancers"]] == [
        ("a1b2c3", "classic"),
        ("k8s-gateway-12", "network"),
        ("k8s-ingress-12", "application"),
    ]
    assert result["target_groups"] == ["k8s-gateway", "k8s-web"]
    assert result["network_interfaces"] == sorted([full["idle"], full["own idle"]])
    assert {one["id"] for one in result["security_groups"]} == {
        full["balancer group"],
        full["traffic group"],
        full["cluster group"],
    }
    assert result["left_alone"] == []
    left = vpc.left()
    assert (left["balancers"], left["target groups"], left["interfaces"]) == (set(), set(), set())
    assert len(left["groups"]) == 1, "the default group is the VPC's"
    assert "security group" in result["diff"]["before"]
    again = sweep(vpc)
    assert (again["failed"], again["changed"], mutations(vpc)) == (False, False, [])


@pytest.mark.usefixtures("full")
def test_the_order_is_that_in_which_aws_allows_it(vpc: Vpc) -> None:
    sweep(vpc)
    done = mutations(vpc)
    order = ["DeleteLoadBalancer", "DeleteNetworkInterface", "DeleteTargetGroup", "DeleteSecurityGroup"]
    first = [done.index(operation) for operation in order]
    last = [len(done) - 1 - done[::-1].index(operation) for operation in order]
    assert all(end < start for end, start in zip(last, first[1:], strict=False))
    assert done.index("RevokeSecurityGroupIngress") < last[-1]


@pytest.mark.usefixtures("full")
def test_check_mode_tells_the_same_and_touches_nothing(vpc: Vpc) -> None:
    before = vpc.left()
    told = sweep(vpc, check_mode=True)
    assert (told["changed"], mutations(vpc), vpc.left()) == (True, [], before)
    real = sweep(vpc)
    same = ("changed", "diff", "load_balancers", "target_groups", "network_interfaces", "security_groups", "left_alone")
    assert {key: told[key] for key in same} == {key: real[key] for key in same}


def test_what_is_of_others_stays_and_is_told(vpc: Vpc) -> None:
    kept = [
        vpc.classic("web"),
        vpc.classic("shared", **{OWNED: "shared"}),
        "front",
        "theirs",
    ]
    vpc.modern("front")
    vpc.modern("theirs", **{"elbv2.k8s.aws/cluster": f"{NAME}-two"})
    vpc.target_group("front")
    vpc.target_group("theirs", **{"elbv2.k8s.aws/cluster": f"{NAME}-two"})
    interfaces = [
        vpc.interface("aws-K8S-i-0123456789abcdef0", **{"cluster.k8s.amazonaws.com/name": "another"}),
        vpc.interface("Amazon EKS another"),
        vpc.interface("database"),
    ]
    groups = [
        vpc.group("k8s-elb-web"),
        vpc.group(f"eks-cluster-sg-{NAME}-two-123456", **{f"kubernetes.io/cluster/{NAME}-two": "owned"}),
        vpc.group("database"),
    ]
    # What this collection makes is removed by those who made it.
    vpc.group("west-efs", **{"modelplane.ai/managed-by": "modelplane.fleet"})
    before = vpc.left()
    result = sweep(vpc)
    assert (result["failed"], result["changed"], mutations(vpc)) == (False, False, [])
    assert vpc.left() == before
    told = "\n".join(result["left_alone"])
    for name in (*kept, *interfaces, *groups):
        assert name in told
    assert len(result["left_alone"]) == len(kept) + len(interfaces) + len(groups)
    assert all("Delete it" in line or "Remove what uses it" in line for line in result["left_alone"])


def test_another_vpc_is_not_touched(vpc: Vpc) -> None:
    other = network(vpc.aws, "10.1.0.0/16")
    other.classic("elsewhere", **{OWNED: "owned"})
    other.modern("beyond", **{OWNED: "owned"})
    other.target_group("beyond", **{OWNED: "owned"})
    other.interface("aws-K8S-i-0123456789abcdef0")
    other.group("k8s-elb-elsewhere", **{OWNED: "owned"})
    result = sweep(vpc)
    assert (result["changed"], mutations(vpc), result["left_alone"]) == (False, [], [])


def test_while_the_cluster_is_there_its_own_things_stay(vpc: Vpc) -> None:
    cluster(vpc)
    planes = vpc.left()["interfaces"]
    vpc.classic("a1b2c3", **{OWNED: "owned"})
    balancers = vpc.group("k8s-elb-a1b2c3", **{OWNED: "owned"})
    nodes = vpc.group("nodes-of-somebody", **{OWNED: "owned"})
    before = vpc.left()
    result = sweep(vpc)
    assert result["failed"] is False, result.get("msg")
    assert [one["name"] for one in result["load_balancers"]] == ["a1b2c3"]
    assert [one["id"] for one in result["security_groups"]] == [balancers]
    left = vpc.left()
    assert left["interfaces"] == planes
    assert before["groups"] - left["groups"] == {balancers}
    assert nodes in left["groups"]
    assert result["left_alone"] == [], "who uses the VPC is told once the cluster is gone"
    assert sweep(vpc)["changed"] is False


def test_it_waits_until_interfaces_of_load_balancers_are_gone(vpc: Vpc) -> None:
    vpc.classic("a1b2c3", **{OWNED: "owned"})
    group = vpc.group("k8s-elb-a1b2c3", **{OWNED: "owned"})
    interface = vpc.interface("ELB a1b2c3")
    result = sweep(vpc, wait_timeout=0)
    assert result["failed"] is True
    assert f"{interface} (ELB a1b2c3)" in result["msg"]
    assert "DeleteSecurityGroup" not in mutations(vpc)
    assert result["waited"], "what was seen is told"
    vpc.aws.client("ec2").delete_network_interface(NetworkInterfaceId=interface)
    result = sweep(vpc)
    assert (result["failed"], result["changed"]) == (False, True)
    assert mutations(vpc) == ["DeleteSecurityGroup"]
    assert group not in vpc.left()["groups"]


def test_interfaces_of_what_stays_are_not_waited_for(vpc: Vpc) -> None:
    arn = vpc.modern("front")
    vpc.classic("web")
    for name in (arn.partition(":loadbalancer/")[2], "web"):
        vpc.interface(f"ELB {name}")
    result = sweep(vpc, wait_timeout=0)
    assert (result["failed"], result["changed"], mutations(vpc)) == (False, False, [])


def test_interfaces_of_a_control_plane_that_is_gone_are_waited_for(vpc: Vpc) -> None:
    interface = vpc.interface(f"Amazon EKS {NAME}")
    result = sweep(vpc, wait_timeout=0)
    assert result["failed"] is True
    assert interface in result["msg"]
    assert mutations(vpc) == [], "AWS takes it away"


def test_without_waiting_what_is_in_use_stays_for_the_next_run(vpc: Vpc) -> None:
    vpc.interface("ELB a1b2c3")
    vpc.classic("a1b2c3", **{OWNED: "owned"})
    result = sweep(vpc, wait=False, wait_timeout=0)
    assert (result["failed"], result["changed"]) == (False, True)
    assert vpc.left()["balancers"] == set()


@pytest.mark.usefixtures("full")
@pytest.mark.parametrize("operation", ["DeleteNetworkInterface", "DeleteTargetGroup", "DeleteSecurityGroup"])
def test_what_is_still_in_use_is_tried_again(vpc: Vpc, operation: str) -> None:
    code = {"DeleteTargetGroup": "ResourceInUse", "DeleteNetworkInterface": "InvalidParameterValue"}
    vpc.aws.refuse(operation=operation, code=code.get(operation, "DependencyViolation"), message="in use", times=3)
    result = sweep(vpc)
    assert result["failed"] is False, result.get("msg")
    left = vpc.left()
    assert (left["balancers"], left["target groups"], left["interfaces"]) == (set(), set(), set())
    assert any("still" in line for line in result["waited"])


@pytest.mark.usefixtures("full")
@pytest.mark.parametrize(
    ("operation", "code"),
    [
        ("DeleteLoadBalancer", "OperationNotPermitted"),
        ("DeleteNetworkInterface", "UnauthorizedOperation"),
        ("DeleteTargetGroup", "AccessDenied"),
        ("DeleteSecurityGroup", "UnauthorizedOperation"),
    ],
)
def test_a_refusal_is_told_and_the_next_run_goes_on(vpc: Vpc, operation: str, code: str) -> None:
    vpc.aws.refuse(operation=operation, code=code, message="You may not.", times=1)
    result = sweep(vpc)
    assert result["failed"] is True
    assert f"{code}: You may not." in result["msg"]
    assert result["msg"].startswith("delete ")
    assert sweep(vpc)["failed"] is False
    assert (vpc.left()["balancers"], vpc.left()["interfaces"]) == (set(), set())


def test_rules_of_others_are_not_changed(vpc: Vpc) -> None:
    group = vpc.group("k8s-elb-a1b2c3", **{OWNED: "owned"})
    others = vpc.group("database")
    vpc.aws.client("ec2").authorize_security_group_ingress(
        GroupId=others, IpPermissions=[{"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": group}]}]
    )
    vpc.aws.refuse(operation="DeleteSecurityGroup", code="DependencyViolation", message="in use", times=100)
    result = sweep(vpc, wait_timeout=0)
    assert result["failed"] is True
    assert "k8s-elb-a1b2c3" in result["msg"]
    assert "RevokeSecurityGroupIngress" not in mutations(vpc)


def test_a_load_balancer_that_goes_while_one_looks_is_no_error(vpc: Vpc) -> None:
    vpc.classic("a1b2c3", **{OWNED: "owned"})
    vpc.aws.refuse(operation="DeleteLoadBalancer", code="LoadBalancerNotFound", message="It is gone.", effect=True)
    assert sweep(vpc)["failed"] is False
