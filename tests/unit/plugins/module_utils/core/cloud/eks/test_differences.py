# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks import differences
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks.observed import Answers, observe
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.cloud.eks.whole_cloud import (
    ACCOUNT,
    Cloud,
    planned,
    set_tag,
)

FLEET = "modelplane.ai/fleet"
Damage = Callable[[Cloud], Any]


def told(cloud: Cloud, plan: dict[str, Any] | None = None) -> list[differences.Difference]:
    wanted = plan or cloud.plan
    return differences.differences(wanted, observe(wanted, cloud.answers()))


@pytest.mark.parametrize("efa", [False, True])
def test_what_is_as_planned_has_no_difference(efa: bool) -> None:
    assert told(Cloud(planned(efa=efa))) == []


def test_an_empty_account_needs_everything_in_order() -> None:
    plan = planned(efa=True)
    found = differences.differences(plan, observe(plan, Answers(account=ACCOUNT)))
    assert {one.action for one in found} == {"make"}
    # An address comes with the NAT gateway.
    parts = [part for part in differences.PARTS if part != "addresses"]
    assert list(dict.fromkeys(one.part for one in found)) == parts
    names = [one.name for one in found if one.part == "subnets"]
    assert names == [one["name"] for one in plan["subnets"]]
    assert len(found) == 1 + 4 + 1 + 1 + 2 + 2 + 1 + 4
    assert all(one.before == {} and one.after for one in found)


def drop(kind: str, index: int = 0) -> Damage:
    return lambda cloud: getattr(cloud, kind).pop(index)


def put(kind: str, index: Any, **values: Any) -> Damage:
    return lambda cloud: getattr(cloud, kind)[index].update(values)


def tag(kind: str, index: int, key: str, value: str | None) -> Damage:
    return lambda cloud: set_tag(getattr(cloud, kind)[index], key, value)


def route(index: int, **values: Any) -> Damage:
    def damage(cloud: Cloud) -> None:
        default = cloud.route_tables[index]["Routes"][1]
        for key in ("GatewayId", "NatGatewayId"):
            default.pop(key, None)
        default.update(values)

    return damage


def rule(side: str, *rules: dict[str, Any]) -> Damage:
    return lambda cloud: cloud.security_groups[0][side].extend(rules)


def statement(**values: Any) -> Damage:
    def damage(cloud: Cloud) -> None:
        cloud.roles["node"]["Role"]["AssumeRolePolicyDocument"]["Statement"][0].update(values)

    return damage


OPEN = {"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}
SSH = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}

# What happened in AWS, and the only part, action, and words of a person's line that follow.
CASES: dict[str, tuple[Damage, str, str, str]] = {
    "vpc of another cidr": (put("vpcs", 0, CidrBlock="10.1.0.0/16"), "vpc", "refuse", "vpcCidr back to 10.1.0.0/16"),
    "vpc without host names": (
        lambda cloud: cloud.dns.update(hostnames=False),
        "vpc",
        "change",
        "DNS host names from false to true",
    ),
    "vpc without dns": (lambda cloud: cloud.dns.update(support=False), "vpc", "change", "DNS support from false"),
    "vpc without a tag": (tag("vpcs", 0, FLEET, None), "vpc", "change", "tags modelplane.ai/fleet=default"),
    "vpc of another name": (tag("vpcs", 0, "Name", "mine"), "vpc", "change", "tags Name="),
    "subnet in another zone": (put("subnets", 0, AvailabilityZone="us-west-2d"), "subnets", "refuse", "us-west-2d"),
    "subnet of another cidr": (put("subnets", 0, CidrBlock="10.0.0.0/24"), "subnets", "refuse", "10.0.0.0/24"),
    "subnet without public addresses": (
        put("subnets", 0, MapPublicIpOnLaunch=False),
        "subnets",
        "change",
        "public addresses at launch from false to true",
    ),
    "private subnet with public addresses": (
        put("subnets", 2, MapPublicIpOnLaunch=True),
        "subnets",
        "change",
        "from true to false",
    ),
    "subnet without the tag of load balancers": (
        tag("subnets", 1, "kubernetes.io/role/elb", None),
        "subnets",
        "change",
        "tags kubernetes.io/role/elb=1",
    ),
    "subnet without a name": (tag("subnets", 1, "Name", None), "subnets", "change", "tags Name="),
    "gateway detached": (
        put("internet_gateways", 0, Attachments=[]),
        "internet_gateway",
        "change",
        "attached to the VPC vpc-1",
    ),
    "gateway elsewhere": (
        put("internet_gateways", 0, Attachments=[{"VpcId": "vpc-2"}]),
        "internet_gateway",
        "refuse",
        "Detach it there",
    ),
    "gateway without a tag": (tag("internet_gateways", 0, "Name", None), "internet_gateway", "change", "tags Name="),
    "nat in another subnet": (
        put("nat_gateways", 0, SubnetId="subnet-1"),
        "nat_gateway",
        "refuse",
        "Elastic IP eipalloc-1",
    ),
    "nat without a tag": (tag("nat_gateways", 0, FLEET, None), "nat_gateway", "change", "tags modelplane.ai/fleet"),
    "address without a tag": (
        lambda cloud: put("addresses", 0, Tags=[t for t in cloud.nat_gateways[0]["Tags"] if t["Key"] != FLEET])(cloud),
        "nat_gateway",
        "change",
        "tags modelplane.ai/fleet=default of its Elastic IP",
    ),
    "public route elsewhere": (route(0, GatewayId="igw-9"), "route_tables", "change", "igw-1 instead of igw-9"),
    "private route to the internet": (route(1, GatewayId="igw-1"), "route_tables", "change", "nat-1 instead of igw-1"),
    "route that leads nowhere": (
        route(1, NatGatewayId="nat-1", State="blackhole"),
        "route_tables",
        "change",
        "nat-1, as there is none",
    ),
    "no default route": (
        lambda cloud: cloud.route_tables[0]["Routes"].pop(1),
        "route_tables",
        "change",
        "default route to igw-1, as there is none",
    ),
    "no association": (
        lambda cloud: cloud.route_tables[1]["Associations"].pop(),
        "route_tables",
        "change",
        "subnets adds west-private-subnet-us-west-2b-",
    ),
    "association elsewhere": (
        lambda cloud: cloud.route_tables[1]["Associations"].append(cloud.route_tables[0]["Associations"].pop()),
        "route_tables",
        "change",
        "subnets adds west-subnet-us-west-2b-",
    ),
    "no route table": (drop("route_tables"), "route_tables", "make", "default route to the internet gateway"),
    "no group": (drop("security_groups"), "security_groups", "make", "NFS access"),
    "group with a port more": (rule("IpPermissions", SSH), "security_groups", "change", "ingress removes tcp 22 0.0"),
    "group with a rule less": (
        lambda cloud: cloud.security_groups[0].update(IpPermissions=[]),
        "security_groups",
        "change",
        "ingress adds tcp 2049 10.0.0.0/16",
    ),
    "group with the egress of AWS": (
        rule("IpPermissionsEgress", OPEN),
        "security_groups",
        "change",
        "egress removes all 0.0.0.0/0",
    ),
    "group without a tag": (tag("security_groups", 0, FLEET, None), "security_groups", "change", "tags"),
    "no policy": (lambda cloud: cloud.policies.clear(), "policies", "make", "IAM policy"),
    "other document": (
        lambda cloud: cloud.policies["autoscaler"].update(Document='{"Statement": []}'),
        "policies",
        "change",
        "document is not that of the plan",
    ),
    "policy without a tag": (
        lambda cloud: set_tag(cloud.policies["autoscaler"]["Policy"], FLEET, None),
        "policies",
        "change",
        "tags",
    ),
    "no role": (lambda cloud: cloud.roles.pop("efs_csi"), "roles", "make", "IAM role"),
    "role for another service": (
        statement(Principal={"Service": "lambda.amazonaws.com"}),
        "roles",
        "change",
        "who may assume it",
    ),
    "role for more services": (
        statement(Principal={"Service": ["ec2.amazonaws.com", "lambda.amazonaws.com"]}),
        "roles",
        "change",
        "who may assume it",
    ),
    "role with a policy less": (
        lambda cloud: cloud.roles["node"]["Attached"].pop(),
        "roles",
        "change",
        "attached policies adds arn:aws:iam::aws:policy/AmazonEC2ContainerRegistryReadOnly",
    ),
    "role with a policy more": (
        lambda cloud: cloud.roles["node"]["Attached"].append("arn:aws:iam::aws:policy/AdministratorAccess"),
        "roles",
        "change",
        "removes arn:aws:iam::aws:policy/AdministratorAccess",
    ),
    "role without its own policy": (
        lambda cloud: cloud.roles["autoscaler"]["Attached"].clear(),
        "roles",
        "change",
        f"adds arn:aws:iam::{ACCOUNT}:policy/",
    ),
    "role without a tag": (
        lambda cloud: set_tag(cloud.roles["node"]["Role"], FLEET, None),
        "roles",
        "change",
        "tags",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_every_drift_is_told_alone(case: str) -> None:
    damage, part, action, words = CASES[case]
    cloud = Cloud(planned())
    damage(cloud)
    found = told(cloud)
    assert [(one.part, one.action) for one in found] == [(part, action)]
    assert words in found[0].told
    assert found[0].before != found[0].after
    assert bool(differences.diff(found)) == (action != "refuse")


# What hangs together: of the object that is gone, and of those that lead to it.
TOGETHER: dict[str, tuple[Damage, dict[str, list[str]]]] = {
    "subnet gone": (drop("subnets", 3), {"subnets": ["make"], "route_tables": ["change"]}),
    "gateway gone": (drop("internet_gateways"), {"internet_gateway": ["make"], "route_tables": ["change"]}),
    "nat gone": (drop("nat_gateways"), {"nat_gateway": ["make"], "route_tables": ["change"]}),
    "nat deleted": (put("nat_gateways", 0, State="deleted"), {"nat_gateway": ["make"], "route_tables": ["change"]}),
    "nat going": (put("nat_gateways", 0, State="deleting"), {"nat_gateway": ["make"], "route_tables": ["change"]}),
    "nat failed": (
        put("nat_gateways", 0, State="failed", FailureCode="Gateway.NotAttached"),
        {"nat_gateway": ["make"], "route_tables": ["change"]},
    ),
    "vpc gone": (
        lambda cloud: [
            getattr(cloud, kind).clear()
            for kind in ("vpcs", "subnets", "internet_gateways", "nat_gateways", "route_tables", "security_groups")
        ],
        {
            "vpc": ["make"],
            "subnets": ["make"] * 4,
            "internet_gateway": ["make"],
            "nat_gateway": ["make"],
            "route_tables": ["make"] * 2,
            "security_groups": ["make"],
        },
    ),
}


@pytest.mark.parametrize("case", TOGETHER)
def test_what_depends_on_what_is_gone_is_told_too(case: str) -> None:
    damage, expected = TOGETHER[case]
    cloud = Cloud(planned())
    damage(cloud)
    actions: dict[str, list[str]] = {}
    for one in told(cloud):
        actions.setdefault(one.part, []).append(one.action)
    assert actions == expected


def test_why_a_gateway_failed_is_told() -> None:
    cloud = Cloud(planned())
    cloud.nat_gateways[0].update(State="failed", FailureCode="Gateway.NotAttached", FailureMessage="no gateway")
    line = next(one.told for one in told(cloud) if one.part == "nat_gateway")
    assert "is failed (Gateway.NotAttached: no gateway): another one is made" in line


def test_what_others_add_is_no_difference() -> None:
    cloud = Cloud(planned())
    cloud.route_tables[0]["Routes"].append({"DestinationCidrBlock": "172.16.0.0/12", "GatewayId": "vgw-1"})
    cloud.route_tables[0]["Associations"].append({"SubnetId": "subnet-theirs", "RouteTableAssociationId": "a"})
    for one in (cloud.vpcs[0], *cloud.subnets):
        set_tag(one, f"kubernetes.io/cluster/{cloud.plan['name']}", "shared")
    assert told(cloud) == []


@pytest.mark.parametrize(
    "written",
    [
        lambda document: {**document, "Statement": document["Statement"][::-1]},
        lambda document: {**document, "Statement": [{"Sid": "a", **one} for one in document["Statement"]]},
        lambda document: {**document, "Statement": [{**one, "Resource": "*"} for one in document["Statement"]]},
        lambda document: {
            **document,
            "Statement": [
                {**one, "Action": [action.lower() for action in reversed(one["Action"])]}
                for one in document["Statement"]
            ],
        },
        json.dumps,
    ],
)
def test_documents_that_mean_the_same_are_equal(written: Callable[[Any], Any]) -> None:
    cloud = Cloud(planned())
    cloud.policies["autoscaler"]["Document"] = written(cloud.plan["policies"][0]["document"])
    assert told(cloud) == []


def test_a_document_of_more_rights_differs() -> None:
    document = planned()["policies"][0]["document"]
    more = {**document, "Statement": [{**document["Statement"][0], "Action": "*"}, *document["Statement"][1:]]}
    assert differences.normal_document(document) != differences.normal_document(more)


def test_the_group_of_efa_goes_with_the_last_pool_of_it() -> None:
    cloud = Cloud(planned(efa=True))
    [one] = told(cloud, planned())
    assert (one.part, one.name, one.action) == ("security_groups", "west-efa", "remove")
    assert "is removed once nothing uses it" in one.told
    assert one.after == {}


def test_a_subnet_that_the_plan_no_longer_has_is_refused() -> None:
    found = told(Cloud(planned(subnets=3)), planned(subnets=2))
    assert [(one.part, one.action) for one in found] == [("subnets", "refuse")] * 2
    assert all("spec.networking.subnetCidrs" in one.told for one in found)


UNPLANNED = {
    "vpc": ("vpcs", "VpcId", "vpc-0"),
    "internet_gateway": ("internet_gateways", "InternetGatewayId", "igw-2"),
    "nat_gateway": ("nat_gateways", "NatGatewayId", "nat-2"),
    "route_tables": ("route_tables", "RouteTableId", "rtb-zz"),
}


@pytest.mark.parametrize("part", UNPLANNED)
def test_one_too_many_needs_a_person(part: str) -> None:
    kind, key, twin = UNPLANNED[part]
    cloud = Cloud(planned())
    more = {**getattr(cloud, kind)[0], key: twin}
    if part == "vpc":
        more["CidrBlock"] = "10.9.0.0/16"
    if part == "route_tables":
        more["Associations"] = []
    getattr(cloud, kind).append(more)
    found = told(cloud)
    assert [(one.part, one.action) for one in found] == [(part, "refuse")]
    assert twin in found[0].told


def test_what_was_made_twice_goes_where_nothing_uses_it() -> None:
    """As when AWS makes something and its answer is lost: there are no tokens for these that would prevent it."""
    cloud = Cloud(planned())
    cloud.vpcs.append({**cloud.vpcs[0], "VpcId": "vpc-0"})
    cloud.internet_gateways.append({**cloud.internet_gateways[0], "InternetGatewayId": "igw-2", "Attachments": []})
    spare = {"AllocationId": "eipalloc-2", "PublicIp": "192.0.2.2", "Tags": cloud.nat_gateways[0]["Tags"]}
    cloud.addresses.append(spare)
    found = told(cloud)
    assert [(one.part, one.name, one.action) for one in found] == [
        ("vpc", "vpc-0", "remove"),
        ("internet_gateway", "igw-2", "remove"),
        ("addresses", "eipalloc-2", "remove"),
    ]
    cloud.subnets.append({**cloud.subnets[0], "VpcId": "vpc-0", "SubnetId": "subnet-twin"})
    assert ("vpc", "refuse") in [(one.part, one.action) for one in told(cloud)]


def test_an_address_without_a_gateway_waits_for_it() -> None:
    cloud = Cloud(planned())
    cloud.nat_gateways.clear()
    assert "addresses" not in [one.part for one in told(cloud)]


def test_a_group_of_ours_in_another_vpc_is_not_removed() -> None:
    cloud = Cloud(planned())
    cloud.security_groups.append({**cloud.group("efs"), "GroupId": "sg-2", "VpcId": "vpc-2"})
    [one] = told(cloud)
    assert one.action == "refuse"
    assert "in another VPC" in one.told


def test_the_diff_shows_both_sides() -> None:
    cloud = Cloud(planned())
    cloud.dns["hostnames"] = False
    [shown] = differences.diff(told(cloud))
    assert shown["before_header"] == f"vpc: {cloud.plan['name']}"
    assert shown["before"] == "dns_hostnames: false\n"
    assert shown["after"] == "dns_hostnames: true\n"


def test_the_rules_of_aws_are_those_of_a_plan() -> None:
    """A rule for all protocols has no ports, whatever AWS or a plan writes there."""
    every = [{"proto": "-1", "ports": [0, 0], "self": True}, {"proto": "all", "self": True}]
    assert differences.planned_rules(every) == [("-1", None, None, "self")]
