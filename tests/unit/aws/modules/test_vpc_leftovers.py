# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module vpc_leftovers against a double of AWS in which controllers left things."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.leftovers import owners
from ansible_collections.modelplane.fleet.plugins.modules import eks_cluster, vpc_leftovers
from ansible_collections.modelplane.fleet.tests.unit.aws.modules.running import OURS, TAGS, good, refused
from ansible_collections.modelplane.fleet.tests.unit.aws.modules.site import CLUSTER, Site

OWNED = {f"kubernetes.io/cluster/{CLUSTER}": "owned"}
OF_ANOTHER = {"kubernetes.io/cluster/east": "owned"}
CONTROLLER = {"elbv2.k8s.aws/cluster": CLUSTER}


def pairs(tags: dict[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def group(site: Site, name: str, tags: dict[str, str]) -> str:
    made = site.aws.client("ec2").create_security_group(VpcId=site.vpc, GroupName=name, Description=name)["GroupId"]
    if tags:
        site.aws.client("ec2").create_tags(Resources=[made], Tags=pairs(tags))
    return str(made)


def classic(site: Site, name: str, groups: list[str], tags: dict[str, str]) -> None:
    site.aws.client("elb").create_load_balancer(
        LoadBalancerName=name,
        Listeners=[{"Protocol": "tcp", "LoadBalancerPort": 80, "InstancePort": 80}],
        Subnets=[site.subnets[0]],
        SecurityGroups=groups,
        Tags=pairs(tags) or [{"Key": "a", "Value": "b"}],
    )


def modern(site: Site, name: str, tags: dict[str, str], kind: str = "network") -> str:
    elbv2 = site.aws.client("elbv2")
    made = elbv2.create_load_balancer(Name=name, Subnets=list(site.subnets[:2]), Type=kind, Tags=pairs(tags))
    elbv2.create_target_group(Name=f"{name}-tg", Protocol="TCP", Port=80, VpcId=site.vpc, Tags=pairs(tags))
    return str(made["LoadBalancers"][0]["LoadBalancerArn"])


def refer(site: Site, place: str, source: str) -> None:
    """A rule in one group that names another."""
    rule = {"IpProtocol": "tcp", "FromPort": 80, "ToPort": 80, "UserIdGroupPairs": [{"GroupId": source}]}
    site.aws.client("ec2").authorize_security_group_ingress(GroupId=place, IpPermissions=[rule])


def interface(site: Site, description: str, tags: dict[str, str] | None = None, **more: Any) -> str:
    made = site.aws.plant_interface(site.subnets[0], description, **more)
    if tags:
        site.aws.client("ec2").create_tags(Resources=[made], Tags=pairs(tags))
    return made


def groups(site: Site) -> set[str]:
    found = site.aws.client("ec2").describe_security_groups(Filters=[{"Name": "vpc-id", "Values": [site.vpc]}])
    return {each["GroupName"] for each in found["SecurityGroups"]} - {"default"}


def interfaces(site: Site) -> set[str]:
    found = site.aws.client("ec2").describe_network_interfaces(Filters=[{"Name": "vpc-id", "Values": [site.vpc]}])
    return {each["NetworkInterfaceId"] for each in found["NetworkInterfaces"]}


def descriptions(site: Site, prefix: str) -> set[str]:
    found = site.aws.client("ec2").describe_network_interfaces()["NetworkInterfaces"]
    told = {each.get("Description", "") for each in found}
    return {each.removeprefix(prefix) for each in told if each.startswith(prefix)}


def balancers(site: Site) -> set[str]:
    old = site.aws.client("elb").describe_load_balancers()["LoadBalancerDescriptions"]
    new = site.aws.client("elbv2").describe_load_balancers()["LoadBalancers"]
    return {each["LoadBalancerName"] for each in (*old, *new)}


def sweep(site: Site, **more: Any) -> dict[str, Any]:
    return good(vpc_leftovers, **{"vpc_id": site.vpc, "cluster": CLUSTER, "tags": TAGS, **more})


def names(result: dict[str, Any]) -> list[str]:
    return [f"{each['kind']} {each['name']}" for each in result["removed"]]


def test_nothing_is_left(site: Site) -> None:
    assert sweep(site)["removed"] == []
    assert not sweep(site)["changed"]
    assert site.sent() == []


def test_load_balancers_go_while_the_cluster_is_there(site: Site) -> None:
    site.with_cluster()
    first = group(site, "k8s-elb-a0123", OWNED)
    classic(site, "a0123", [first], {**OWNED, "kubernetes.io/service-name": "a/b"})
    modern(site, "k8s-gateway", CONTROLLER)
    classic(site, "theirs", [site.group], {})
    modern(site, "east", OF_ANOTHER)
    pods = interface(site, "aws-K8S-i-0123", OWNED)
    (own,) = groups(site) - {"west-efs", "k8s-elb-a0123"}
    refer(site, next(iter(_ids(site, own))), first)
    site.aws.delay("interface", 3)
    site.sent()
    checked = sweep(site, check=True)
    assert (checked["changed"], site.sent()) == (True, [])
    done = sweep(site)
    assert names(done) == [
        "load balancer a0123",
        "load balancer k8s-gateway",
        "target group k8s-gateway-tg",
        "security group k8s-elb-a0123",
    ]
    assert (done["removed"], done["steps"]) == (checked["removed"], checked["steps"])
    assert balancers(site) == {"theirs", "east"}
    assert groups(site) == {"west-efs", own}
    assert pods in interfaces(site)
    of_balancers = {each.split("/")[1] if "/" in each else each for each in descriptions(site, "ELB ")}
    assert of_balancers == {"theirs", "east"}
    assert not sweep(site)["changed"]


def _ids(site: Site, name: str) -> list[str]:
    found = site.aws.client("ec2").describe_security_groups(Filters=[{"Name": "group-name", "Values": [name]}])
    return [each["GroupId"] for each in found["SecurityGroups"]]


def test_the_rest_goes_when_the_cluster_is_gone(site: Site) -> None:
    group(site, f"eks-cluster-sg-{CLUSTER}-0123456789", {**OWNED, "aws:eks:cluster-name": CLUSTER})
    traffic = group(site, "k8s-traffic-west-0123", CONTROLLER)
    backend = group(site, "k8s-backend", CONTROLLER)
    refer(site, traffic, backend)
    refer(site, backend, traffic)
    leaked = [
        interface(site, "aws-K8S-i-0123", {"cluster.k8s.amazonaws.com/name": CLUSTER}),
        interface(site, "aws-K8S-i"),
    ]
    kept = {
        interface(site, "aws-K8S-i-0456", {"cluster.k8s.amazonaws.com/name": "east"}),
        interface(site, "something else"),
    }
    group(site, "eks-cluster-sg-west-two-0123456789", {"kubernetes.io/cluster/west-two": "owned"})
    group(site, "east", OF_ANOTHER)
    group(site, "by-hand", {})
    ours = group(site, "west-efa", {**OURS, **OWNED})
    refer(site, ours, traffic)
    done = sweep(site)
    assert sorted(names(done)) == [
        "network interface aws-K8S-i",
        "network interface aws-K8S-i-0123",
        f"security group eks-cluster-sg-{CLUSTER}-0123456789",
        "security group k8s-backend",
        "security group k8s-traffic-west-0123",
    ]
    assert interfaces(site) == kept
    assert set(leaked).isdisjoint(interfaces(site))
    assert groups(site) == {"west-efs", "eks-cluster-sg-west-two-0123456789", "east", "by-hand", "west-efa"}
    assert not sweep(site)["changed"]


def test_in_a_vpc_of_somebody_else_a_name_alone_is_not_enough(site: Site) -> None:
    site.aws.client("ec2").delete_tags(Resources=[site.vpc], Tags=pairs(OURS))
    interface(site, "aws-K8S-i-0123")
    group(site, "k8s-elb-b0123", {})
    group(site, f"eks-cluster-sg-{CLUSTER}-x", {})
    site.sent()
    assert sweep(site)["removed"] == []
    site.aws.client("ec2").create_tags(Resources=[site.vpc], Tags=pairs(OURS))
    assert sweep(site, tags={"modelplane.ai/cluster": "a.b"})["removed"] == []
    assert sweep(site, tags=None)["removed"] == []
    site.aws.client("ec2").delete_tags(Resources=[site.vpc], Tags=pairs(OURS))
    assert site.sent() == []
    interface(site, "aws-K8S-i-0456", {"cluster.k8s.amazonaws.com/name": CLUSTER})
    classic(site, "b0123", [], OWNED)
    assert names(sweep(site)) == [
        "load balancer b0123",
        "network interface aws-K8S-i-0456",
        "security group k8s-elb-b0123",
    ]


def test_the_interfaces_of_eks_go_by_themselves(site: Site) -> None:
    site.with_cluster()
    site.aws.delay("interface", 4)
    good(eks_cluster, name=CLUSTER, state="absent", tags=TAGS)
    assert descriptions(site, "Amazon EKS ") == {CLUSTER}
    assert [name.rpartition("-")[0] for name in names(sweep(site))] == [f"security group eks-cluster-sg-{CLUSTER}"]
    assert descriptions(site, "Amazon EKS ") == set()
    assert groups(site) == {"west-efs"}


def test_what_is_in_use_is_waited_for_and_told(site: Site) -> None:
    site.with_cluster()
    good(eks_cluster, name=CLUSTER, state="absent", tags=TAGS)
    busy = interface(site, f"Amazon EKS {CLUSTER}", status="in-use")
    message = refused(vpc_leftovers, vpc_id=site.vpc, cluster=CLUSTER, wait_timeout=0.1)
    assert f"{busy} (Amazon EKS {CLUSTER}, in-use)" in message
    assert "run again to wait on" in message


def test_a_group_that_something_holds_is_told(site: Site) -> None:
    held = group(site, "k8s-elb-c0123", OWNED)
    interface(site, "somebody's", groups=(held,))
    arguments = {"vpc_id": site.vpc, "cluster": CLUSTER}
    message = refused(vpc_leftovers, **arguments, wait_timeout=0.1)
    assert f"security group {held} (k8s-elb-c0123) has to go: still not so" in message
    assert "DependencyViolation" in message
    assert "DependencyViolation" in refused(vpc_leftovers, **arguments, wait=False)


@pytest.mark.usefixtures("account")
def test_a_vpc_that_is_gone_has_no_leftovers() -> None:
    result = good(vpc_leftovers, vpc_id="vpc-0123456789abcdef0", cluster=CLUSTER)
    assert (result["changed"], result["removed"]) == (False, [])


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ({}, set()),
        ({"kubernetes.io/cluster/a": "owned"}, {"a"}),
        ({"kubernetes.io/cluster/a": "shared"}, set()),
        ({"elbv2.k8s.aws/cluster": "a", "kubernetes.io/cluster/b": "owned"}, {"a", "b"}),
        ({"cluster.k8s.amazonaws.com/name": "a"}, {"a"}),
        ({"aws:eks:cluster-name": "a"}, {"a"}),
        ({"Name": "a"}, set()),
    ],
)
def test_owners_by_tags(tags: dict[str, str], expected: set[str]) -> None:
    assert owners(tags) == expected
