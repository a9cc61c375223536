# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Orphans of an EKS cluster in the double of AWS: what goes, what stays, in which order, and again."""

from __future__ import annotations

import pytest
from ansible_collections.modelplane.fleet.tests.aws.double import Double as Aws
from ansible_collections.modelplane.fleet.tests.unit.plugins.modules.cloud_orphans.vpc import (
    NAME,
    OWNED,
    Vpc,
    create_cluster,
    network,
)


def test_the_vpc_is_the_one_with_the_owner_tags(aws: Aws) -> None:
    other = network(aws, "10.1.0.0/16", **{"modelplane.ai/fleet": "another"})
    group = other.group("k8s-elb-a1b2c3", **{OWNED: "owned"})
    assert (other.sweep()["changed"], group in other.left()["groups"]) == (False, True)
    vpc = network(aws)
    vpc.group("k8s-elb-a1b2c3", **{OWNED: "owned"})
    assert [each["place"] for each in vpc.sweep()["removed"]] == [vpc.id]
    assert group in other.left()["groups"]


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


def test_all_that_a_cluster_left_in_its_vpc_is_removed(vpc: Vpc, full: dict[str, str]) -> None:
    result = vpc.sweep()
    assert result["failed"] is False, result.get("msg")
    assert result["changed"] is True
    assert [(each["kind"], each["name"]) for each in result["removed"]] == [
        ("classic load balancer", "a1b2c3"),
        ("network load balancer", "k8s-gateway-12"),
        ("application load balancer", "k8s-ingress-12"),
        ("target group", "k8s-gateway"),
        ("target group", "k8s-web"),
        *(("network interface", name) for name in sorted([full["idle"], full["own idle"]])),
        *(("security group", each["name"]) for each in result["removed"][-3:]),
    ]
    ids = {each["id"] for each in result["diff"]["before"].values()}
    assert {full["balancer group"], full["traffic group"], full["cluster group"]} < ids
    assert (result["left_alone"], result["pending"]) == ([], [])
    left = vpc.left()
    assert (left["balancers"], left["target groups"], left["interfaces"]) == (set(), set(), set())
    assert len(left["groups"]) == 1, "the default group is the VPC's"
    again = vpc.sweep()
    assert (again["failed"], again["changed"], vpc.did()) == (False, False, [])


@pytest.mark.usefixtures("full")
def test_the_order_is_that_in_which_aws_allows_it(vpc: Vpc) -> None:
    vpc.sweep()
    done = vpc.did()
    order = ["DeleteLoadBalancer", "DeleteNetworkInterface", "DeleteTargetGroup", "DeleteSecurityGroup"]
    first = [done.index(operation) for operation in order]
    last = [len(done) - 1 - done[::-1].index(operation) for operation in order]
    assert all(end < start for end, start in zip(last, first[1:], strict=False))
    assert done.index("RevokeSecurityGroupIngress") < last[-1]


@pytest.mark.usefixtures("full")
def test_check_mode_reports_the_same_and_changes_nothing(vpc: Vpc) -> None:
    before = vpc.left()
    checked = vpc.sweep(check=True)
    assert (checked["changed"], vpc.did(), vpc.left()) == (True, [], before)
    real = vpc.sweep()
    same = ("changed", "diff", "removed", "left_alone")
    assert {key: checked[key] for key in same} == {key: real[key] for key in same}


def test_what_is_of_others_stays_and_is_reported(vpc: Vpc) -> None:
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
    result = vpc.sweep()
    assert (result["failed"], result["changed"], vpc.did()) == (False, False, [])
    assert vpc.left() == before
    lines = "\n".join(result["left_alone"])
    for name in (*kept, *interfaces, *groups):
        assert name in lines
    assert len(result["left_alone"]) == len(kept) + len(interfaces) + len(groups)
    assert all("Delete it" in line or "Remove what uses it" in line for line in result["left_alone"])


def test_another_vpc_is_not_touched(vpc: Vpc) -> None:
    other = network(vpc.aws, "10.1.0.0/16", **{"modelplane.ai/cluster": "another", "Name": "another"})
    other.classic("elsewhere", **{OWNED: "owned"})
    other.modern("beyond", **{OWNED: "owned"})
    other.target_group("beyond", **{OWNED: "owned"})
    other.interface("aws-K8S-i-0123456789abcdef0")
    other.group("k8s-elb-elsewhere", **{OWNED: "owned"})
    result = vpc.sweep()
    assert (result["changed"], vpc.did(), result["left_alone"]) == (False, [], [])


def test_while_the_cluster_is_there_its_own_things_stay(vpc: Vpc) -> None:
    create_cluster(vpc)
    planes = vpc.left()["interfaces"]
    vpc.classic("a1b2c3", **{OWNED: "owned"})
    balancers = vpc.group("k8s-elb-a1b2c3", **{OWNED: "owned"})
    nodes = vpc.group("nodes", **{OWNED: "owned"})
    before = vpc.left()
    result = vpc.sweep()
    assert result["failed"] is False, result.get("msg")
    assert [each["name"] for each in result["removed"]] == ["a1b2c3", "k8s-elb-a1b2c3"]
    left = vpc.left()
    assert left["interfaces"] == planes
    assert before["groups"] - left["groups"] == {balancers}
    assert nodes in left["groups"]
    assert result["left_alone"] == [], "who uses the VPC is reported once the cluster is gone"
    assert vpc.sweep()["changed"] is False


def test_it_waits_until_interfaces_of_load_balancers_are_gone(vpc: Vpc) -> None:
    vpc.classic("a1b2c3", **{OWNED: "owned"})
    group = vpc.group("k8s-elb-a1b2c3", **{OWNED: "owned"})
    interface = vpc.interface("ELB a1b2c3")
    result = vpc.sweep(wait_timeout=0)
    assert result["failed"] is True
    assert f"{interface} (ELB a1b2c3)" in result["msg"]
    assert "DeleteSecurityGroup" not in vpc.did()
    assert result["waited"], "the progress is reported"
    vpc.aws.client("ec2").delete_network_interface(NetworkInterfaceId=interface)
    result = vpc.sweep()
    assert (result["failed"], result["changed"]) == (False, True)
    assert vpc.did() == ["DeleteSecurityGroup"]
    assert group not in vpc.left()["groups"]


def test_interfaces_of_what_stays_are_not_waited_for(vpc: Vpc) -> None:
    arn = vpc.modern("front")
    vpc.classic("web")
    for name in (arn.partition(":loadbalancer/")[2], "web"):
        vpc.interface(f"ELB {name}")
    result = vpc.sweep(wait_timeout=0)
    assert (result["failed"], result["changed"], vpc.did()) == (False, False, [])


def test_interfaces_of_a_control_plane_that_is_gone_are_waited_for(vpc: Vpc) -> None:
    interface = vpc.interface(f"Amazon EKS {NAME}")
    result = vpc.sweep(wait_timeout=0)
    assert result["failed"] is True
    assert interface in result["msg"]
    assert vpc.did() == [], "AWS deletes it"


def test_without_waiting_what_is_in_use_stays_for_the_next_run(vpc: Vpc) -> None:
    vpc.interface("ELB a1b2c3")
    vpc.classic("a1b2c3", **{OWNED: "owned"})
    result = vpc.sweep(wait=False, wait_timeout=0)
    assert (result["failed"], result["changed"]) == (False, True)
    assert vpc.left()["balancers"] == set()
    (line,) = result["pending"]
    assert line.endswith("Run again")


@pytest.mark.usefixtures("full")
@pytest.mark.parametrize("operation", ["DeleteNetworkInterface", "DeleteTargetGroup", "DeleteSecurityGroup"])
def test_what_aws_still_uses_is_tried_again(vpc: Vpc, operation: str) -> None:
    code = {"DeleteTargetGroup": "ResourceInUse", "DeleteNetworkInterface": "InvalidParameterValue"}
    vpc.aws.refuse(operation=operation, code=code.get(operation, "DependencyViolation"), message="in use", times=3)
    result = vpc.sweep()
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
def test_a_refusal_is_reported_and_the_next_run_goes_on(vpc: Vpc, operation: str, code: str) -> None:
    vpc.aws.refuse(operation=operation, code=code, message="You may not.", times=1)
    result = vpc.sweep()
    assert result["failed"] is True
    assert f"{code}: You may not." in result["msg"]
    assert result["msg"].startswith("delete ")
    assert vpc.sweep()["failed"] is False
    assert (vpc.left()["balancers"], vpc.left()["interfaces"]) == (set(), set())


def test_rules_of_others_are_not_changed(vpc: Vpc) -> None:
    group = vpc.group("k8s-elb-a1b2c3", **{OWNED: "owned"})
    others = vpc.group("database")
    vpc.aws.client("ec2").authorize_security_group_ingress(
        GroupId=others, IpPermissions=[{"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": group}]}]
    )
    vpc.aws.refuse(operation="DeleteSecurityGroup", code="DependencyViolation", message="in use", times=100)
    result = vpc.sweep(wait_timeout=0)
    assert result["failed"] is True
    assert "k8s-elb-a1b2c3" in result["msg"]
    assert "RevokeSecurityGroupIngress" not in vpc.did()


def test_a_load_balancer_that_goes_meanwhile_is_no_error(vpc: Vpc) -> None:
    vpc.classic("a1b2c3", **{OWNED: "owned"})
    vpc.aws.refuse(operation="DeleteLoadBalancer", code="LoadBalancerNotFound", message="It is gone.", effect=True)
    assert vpc.sweep()["failed"] is False
