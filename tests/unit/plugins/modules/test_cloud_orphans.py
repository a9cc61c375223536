# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module cloud_orphans against the doubles of the clouds: what goes, what stays, in which order, and again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks.plan import plan as eks_plan
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.gke.plan import plan
from ansible_collections.modelplane.fleet.plugins.modules import cloud_orphans, cloud_resources
from ansible_collections.modelplane.fleet.tests.aws.double import Double as Aws
from ansible_collections.modelplane.fleet.tests.gcp.double import Double
from ansible_collections.modelplane.fleet.tests.module_run import run_module
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.cloud.eks.clusters import eks
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.cloud.gke.clusters import gke, gpu
from ansible_collections.modelplane.fleet.tests.unit.plugins.modules.parents import make_role

pytestmark = pytest.mark.integration

Json = dict[str, Any]


# AWS

PLAN = eks_plan(eks())
NAME = PLAN["name"]
OWNED = f"kubernetes.io/cluster/{NAME}"


@dataclass
class Vpc:
    """A VPC with two subnets, and what tests put into it."""

    aws: Aws
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

    def sweep(self, *, check: bool = False, **more: Any) -> Json:
        self.aws.forget_calls()
        given = {
            "provider": "eks",
            **self.aws.credentials,
            "plan": PLAN,
            "wait_delay": 0.01,
            "wait_timeout": 60,
            **more,
        }
        return run_module(cloud_orphans, {**given, **more}, check_mode=check)

    def did(self) -> list[str]:
        """Return the mutating calls since the last time."""
        found = [call["operation"] for call in self.aws.calls(mutating=True)]
        self.aws.forget_calls()
        return found

    def left(self) -> dict[str, set[str]]:
        """Names and ids of what there is."""
        ec2, elbv2 = self.aws.client("ec2"), self.aws.client("elbv2")
        classic = self.aws.client("elb").describe_load_balancers()["LoadBalancerDescriptions"]
        return {
            "balancers": {each["LoadBalancerName"] for each in classic}
            | {each["LoadBalancerName"] for each in elbv2.describe_load_balancers()["LoadBalancers"]},
            "target groups": {each["TargetGroupName"] for each in elbv2.describe_target_groups()["TargetGroups"]},
            "interfaces": {
                each["NetworkInterfaceId"] for each in ec2.describe_network_interfaces()["NetworkInterfaces"]
            },
            "groups": {
                each["GroupId"] for each in ec2.describe_security_groups()["SecurityGroups"] if each["VpcId"] == self.id
            },
        }


def wire(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def network(aws: Aws, cidr: str = "10.0.0.0/16", **tags: str) -> Vpc:
    ec2 = aws.client("ec2")
    vpc = ec2.create_vpc(CidrBlock=cidr)["Vpc"]["VpcId"]
    ec2.create_tags(Resources=[vpc], Tags=wire({**PLAN["tags"], "Name": NAME, **tags}))
    head = cidr.split(".")[1]
    subnets = [
        ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.{head}.{16 * index}.0/20", AvailabilityZone=f"us-west-2{zone}")[
            "Subnet"
        ]["SubnetId"]
        for index, zone in enumerate("ab")
    ]
    return Vpc(aws, vpc, subnets)


@pytest.fixture
def vpc(aws: Aws) -> Vpc:
    return network(aws)


def create_cluster(vpc: Vpc) -> None:
    """An EKS cluster in the VPC."""
    role = make_role(vpc.aws, "cluster", "eks.amazonaws.com", "AmazonEKSClusterPolicy")
    eks = vpc.aws.client("eks")
    eks.create_cluster(name=NAME, version="1.36", roleArn=role, resourcesVpcConfig={"subnetIds": vpc.subnets})


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


# Google Cloud

REGION, ZONE = "us-central1", "us-central1-a"
UID = "0a1b2c3d"
VOLUME = "pvc-4df27b60-7c46-40e2-a2a1-4224c2755390"


class Project:
    """A project with the network of a cluster, and what tests put into it."""

    def __init__(self, gcp: Double) -> None:
        self.gcp = gcp
        self.plan = plan(gke(nodeServiceAccount="default"), gcp.project)
        self.name = self.plan["name"]
        self.base = f"projects/{gcp.project}"
        self.network = f"{self.base}/global/networks/{self.name}"
        self.subnetwork = f"{self.base}/regions/{REGION}/subnetworks/{self.name}"

    def create(self, *keys: str, state: str = "present") -> None:
        """Parts of the plan."""
        listed = [
            {**each, "needs": [other for other in each["needs"] if other in keys]}
            for each in self.plan["resources"]
            if each["key"] in keys
        ]
        result = self.run(cloud_resources, resources=listed, state=state)
        assert not result["failed"], result["msg"]
        self.gcp.forget_calls()

    def sweep(self, *, check: bool = False, **more: Any) -> Json:
        return self.run(cloud_orphans, check=check, **{"plan": self.plan, **more})

    def run(self, module: Any, *, check: bool = False, **more: Any) -> Json:
        given = {"provider": "gke", **self.gcp.credentials, "wait_delay": 0.0, "wait_timeout": 60, **more}
        return run_module(module, given, check_mode=check)

    def put(self, collection: str, name: str, **body: Any) -> str:
        """An object of Compute Engine; its path. `collection`: from the project on."""
        self.gcp.plant(f"{self.base}/{collection}", name=name, **body)
        return f"{self.base}/{collection}/{name}"

    def firewall(self, name: str, **body: Any) -> str:
        return self.put("global/firewalls", name, **{"network": link(self.network), **body})

    def endpoints(self, name: str, **body: Any) -> str:
        return self.put(f"zones/{ZONE}/networkEndpointGroups", name, **{"network": link(self.network), **body})

    def disk(self, name: str = VOLUME, location: str = REGION, **body: Any) -> str:
        labels = {"goog-k8s-cluster-name": self.name, "goog-k8s-cluster-location": location}
        return self.put(f"zones/{ZONE}/disks", name, **{"labels": labels, "status": "READY", **body})

    def objects(self) -> set[str]:
        """The paths of all that there is."""
        return set(self.gcp.objects())

    def did(self) -> list[str]:
        """The mutating calls since the last time, but for those that were refused."""
        found = [call["operation"] for call in self.gcp.calls(mutating=True) if not call["error"]]
        self.gcp.forget_calls()
        return found


def link(path: str) -> str:
    return f"https://www.googleapis.com/compute/v1/{path}"


@pytest.fixture
def project(gcp: Double) -> Iterator[Project]:
    gcp.settings(polls=0)
    made = Project(gcp)
    made.create("network", "subnetwork", "service-filestore")
    yield made
    assert gcp.invalid() == []


@pytest.fixture
def lived(project: Project) -> list[str]:
    """All that controllers make, of a cluster that is gone."""
    gcp = project.gcp
    gcp.settings(leaves_firewalls=True)
    before = project.objects()
    project.create("network", "subnetwork", "cluster")
    gcp.load_balancer(project.name)
    gcp.load_balancer(project.name, service="models/other")
    gcp.load_balancer(project.name, service="models/inside", internal=True)
    gcp.volume(project.name)
    gcp.volume(project.name, claim="zonal", tier="ZONAL")
    project.disk()
    project.put(f"regions/{REGION}/disks", "pvc-2", labels=gcp.object(project.disk("pvc-1"))["labels"], status="READY")
    with_endpoints(project)
    with_ingress(project)
    project.create("cluster", state="absent")
    assert before < project.objects()
    gcp.forget_calls()
    return sorted(project.objects() - before)


def with_endpoints(project: Project, name: str = f"k8s2-{UID}-envoy-gateway-syst-fleet-a1b2c3d4") -> str:
    """A load balancer from outside, as GKE makes it for endpoints. The path of its forwarding rule."""
    regional = f"regions/{REGION}"
    check = project.put("global/healthChecks", f"k8s2-{UID}-l4-shared-hc", type="HTTP")
    project.firewall(f"k8s2-{UID}-l4-shared-hc-fw")
    project.firewall(name)
    service = project.put(
        f"{regional}/backendServices",
        name,
        loadBalancingScheme="EXTERNAL",
        healthChecks=[link(check)],
        backends=[{"group": link(project.endpoints(name)), "balancingMode": "CONNECTION"}],
    )
    rule = project.put(
        f"{regional}/forwardingRules",
        name.replace("k8s2-", "k8s2-tcp-", 1),
        loadBalancingScheme="EXTERNAL",
        backendService=link(service),
    )
    address = project.put(f"{regional}/addresses", name, status="IN_USE", users=[link(rule)])
    assert address
    return rule


def with_ingress(project: Project) -> str:
    """A load balancer of an Ingress. The path of its forwarding rule."""
    group = project.endpoints(f"k8s1-{UID}-models-web-80-4d3c2b1a")
    check = project.put("global/healthChecks", f"k8s1-{UID}-models-web-80-4d3c2b1a", type="HTTP")
    service = project.put(
        "global/backendServices",
        f"k8s1-{UID}-models-web-80-4d3c2b1a",
        healthChecks=[link(check)],
        backends=[{"group": link(group), "balancingMode": "RATE"}],
    )
    mapping = project.put("global/urlMaps", f"k8s2-um-{UID}-models-web-4d3c2b1a", defaultService=link(service))
    proxies = [
        project.put(f"global/target{kind}Proxies", f"k8s2-t{kind[4:] or 'p'}-{UID}-models-web", urlMap=link(mapping))
        for kind in ("Http", "Https")
    ]
    rules = [
        project.put("global/forwardingRules", f"k8s2-fr-{UID}-models-web-{index}", target=link(proxy))
        for index, proxy in enumerate(proxies)
    ]
    project.firewall(f"k8s-fw-l7--{UID}")
    return rules[0]


def test_an_empty_project(gcp: Double) -> None:
    """No network, and an API that is not enabled."""
    gcp.disable_service("file.googleapis.com")
    result = Project(gcp).sweep()
    assert (result["failed"], result["changed"]) == (False, False), result
    gcp.disable_service("container.googleapis.com")
    gcp.disable_service("compute.googleapis.com")
    assert Project(gcp).sweep()["failed"] is False


def test_all_that_a_cluster_left_is_removed(project: Project, lived: list[str]) -> None:
    kinds = {path.split("/")[-2] for path in lived}
    assert kinds == {
        *("addresses", "backendServices", "disks", "firewalls", "forwardingRules", "healthChecks", "httpHealthChecks"),
        *("instanceGroups", "instances", "networkEndpointGroups", "targetHttpProxies", "targetHttpsProxies"),
        *("targetPools", "urlMaps"),
    }
    checked = project.sweep(check=True)
    assert (checked["failed"], checked["changed"], project.did()) == (False, True, [])

    result = project.sweep()
    assert result["failed"] is False, result.get("msg")
    assert project.objects() & set(lived) == set()
    assert {key: result[key] for key in ("changed", "diff", "left_alone")} == {
        key: checked[key] for key in ("changed", "diff", "left_alone")
    }
    assert sorted(map(str, result["removed"])) == sorted(map(str, checked["removed"]))
    assert (len(result["removed"]), result["left_alone"], result["pending"]) == (len(lived), [], [])
    assert sorted(each["path"] for each in result["diff"]["before"].values()) == lived
    assert {"kind": "disk", "name": VOLUME, "place": ZONE} in result["removed"]
    project.did()

    again = project.sweep()
    assert (again["failed"], again["changed"], project.did()) == (False, False, [])
    # Which is what it is good for.
    project.create("network", "subnetwork", state="absent")
    assert not {project.network, project.subnetwork} & project.objects()


@pytest.mark.usefixtures("lived")
def test_the_order_is_that_in_which_google_allows_it(project: Project) -> None:
    """Nothing is refused as it is in use, and what shows whose all is goes last."""
    project.gcp.settings(polls=1)
    result = project.sweep()
    assert result["failed"] is False, result.get("msg")
    assert [call for call in project.gcp.calls(mutating=True) if call["error"]] == []
    done = [each for each in project.did() if each not in ("disks.delete", "regionDisks.delete")]
    done = [each for each in done if not each.startswith("projects.locations.instances")]
    firewalls = done.count("firewalls.delete")
    assert firewalls > 8
    assert set(done[-firewalls:]) == {"firewalls.delete"}
    assert any(": RUNNING (after" in line for line in result["waited"])


@pytest.mark.usefixtures("lived")
def test_an_interrupted_run_is_gone_on_with(project: Project, lived: list[str]) -> None:
    """Every call that changes something is refused once."""
    project.gcp.refuse_each_once()
    for _turn in range(12):
        result = project.sweep()
        if not result["failed"]:
            break
        assert "does not have permission" in result["msg"]
        assert "not begun" not in result["msg"], "what comes later is not listed one by one"
    assert result["failed"] is False, result["msg"]
    assert project.objects() & set(lived) == set()


@pytest.mark.usefixtures("lived")
@pytest.mark.parametrize("kind", ["delete firewall", "delete forwardingRule", "delete instance", "delete disk"])
def test_an_operation_that_fails_is_reported_and_the_next_run_goes_on(
    project: Project, kind: str, lived: list[str]
) -> None:
    project.gcp.fail(kind, code="INTERNAL", message="It broke.")
    result = project.sweep()
    assert result["failed"] is True
    assert "It broke" in result["msg"]
    assert result["msg"].startswith("delete ")
    assert project.sweep()["failed"] is False
    assert project.objects() & set(lived) == set()


def test_what_is_of_others_in_the_network_stays_and_is_reported(project: Project, lived: list[str]) -> None:
    kept = [
        project.firewall("allow-ssh"),
        project.endpoints("web"),
        project.put(f"zones/{ZONE}/instanceGroups", "bastions", network=link(project.network)),
        project.put(f"regions/{REGION}/forwardingRules", "database", network=link(project.network)),
        project.put(f"regions/{REGION}/addresses", "reserved", subnetwork=link(project.subnetwork)),
    ]
    body = {"name": "theirs", "network": project.network, "ipCidrRange": "10.9.0.0/24"}
    status, _ = project.gcp.request("compute", "POST", f"compute/v1/{project.base}/regions/{REGION}/subnetworks", body)
    assert status == 200
    project.gcp.forget_calls()
    result = project.sweep()
    assert result["failed"] is False, result.get("msg")
    assert project.objects() & set(lived) == set()
    assert set(kept) < project.objects()
    lines = "\n".join(result["left_alone"])
    for path in kept:
        assert path.rpartition("/")[2] in lines
    assert "subnetwork theirs in us-central1" in lines
    assert len(result["left_alone"]) == len(kept) + 1
    assert all("Delete it" in line for line in result["left_alone"])
    again = project.sweep()
    assert (again["changed"], again["left_alone"]) == (False, result["left_alone"])


def test_what_others_have_elsewhere_is_not_touched(project: Project) -> None:
    """Names that controllers give, of another cluster in the project, and of people."""
    other = f"{project.base}/global/networks/other"
    project.put("global/networks", "other", autoCreateSubnetworks=False)
    service = "a" + "1" * 31
    project.firewall(f"k8s-fw-{service}", network=link(other))
    pool = project.put(f"regions/{REGION}/targetPools", service)
    project.put(f"regions/{REGION}/forwardingRules", service, target=link(pool))
    project.put("regions/europe-west4/forwardingRules", "a" + "2" * 31)
    group = project.endpoints(f"k8s1-{UID}-models-web-80-4d3c2b1a", network=link(other))
    project.put("global/backendServices", f"k8s1-{UID}-models-web", backends=[{"group": link(group)}])
    project.put("global/healthChecks", f"k8s1-{UID}-models-web", type="HTTP")
    project.put("global/addresses", "web")
    project.disk(location="europe-west4")
    project.put(f"zones/{ZONE}/disks", "pvc-of-another", labels={"goog-k8s-cluster-name": "another"})
    project.disk("boot-disk")
    before = project.objects()
    result = project.sweep()
    assert (result["failed"], result["changed"], result["left_alone"]) == (False, False, [])
    assert project.objects() == before


def test_what_others_use_stays(project: Project) -> None:
    """A group of endpoints that others' load balancer uses; a disk that is in another machine."""
    group = project.endpoints(f"k8s1-{UID}-models-web-80-4d3c2b1a")
    project.put("global/backendServices", "web", backends=[{"group": link(group)}])
    disk = project.disk(users=[link(f"{project.base}/zones/{ZONE}/instances/bastion")])
    result = project.sweep()
    assert (result["failed"], result["changed"]) == (False, False)
    assert {group, disk} < project.objects()
    (line,) = result["left_alone"]
    assert "is used by" in line
    assert line.startswith("network endpoint group k8s1-")
    assert any(VOLUME in each and "bastion" in each for each in result["warnings"]), "it keeps nothing"


def test_a_filestore_instance_of_others_stays(project: Project) -> None:
    project.create("network", "subnetwork", "cluster")
    gcp = project.gcp
    mine = gcp.volume(project.name)
    elsewhere = gcp.volume(project.name, claim="elsewhere", network="default")
    theirs = gcp.volume(project.name, claim="theirs")
    gcp.change(theirs, labels={"team": "data"})
    project.create("cluster", state="absent")
    result = project.sweep()
    assert [each["kind"] for each in result["removed"]] == ["Filestore instance"]
    assert mine not in project.objects()
    assert {elsewhere, theirs} <= project.objects()
    (line,) = result["left_alone"]
    assert theirs.rpartition("/")[2] in line


def test_volumes_can_be_kept(project: Project) -> None:
    project.create("network", "subnetwork", "cluster")
    volume = project.gcp.volume(project.name)
    project.create("cluster", state="absent")
    disk, firewall = project.disk(), project.firewall("gke-left")
    result = project.sweep(volumes=False)
    assert [each["name"] for each in result["removed"]] == ["gke-left"]
    assert {volume, disk} < project.objects()
    assert firewall not in project.objects()
    assert "as volumes is false" in result["left_alone"][0]
    assert any(VOLUME in each for each in result["warnings"])


def test_while_the_cluster_is_there_nothing_is_done(project: Project) -> None:
    project.create("network", "subnetwork", "cluster")
    project.gcp.load_balancer(project.name)
    project.gcp.forget_calls()
    result = project.sweep()
    assert (result["failed"], result["changed"], project.did()) == (True, False, [])
    assert "the cluster still exists" in result["msg"]
    checked = project.sweep(check=True)
    assert (checked["failed"], checked["changed"], checked["left_alone"]) == (False, True, [])
    names = {each["name"] for each in checked["removed"]}
    assert any(name.startswith("k8s-fw-") for name in names)
    assert not any(name.startswith("gke-") for name in names), "these go with the cluster"


def test_a_network_of_others_is_refused(gcp: Double) -> None:
    gcp.settings(polls=0)
    project = Project(gcp)
    project.put("global/networks", project.name, autoCreateSubnetworks=False)
    project.firewall("k8s-fw-a" + "1" * 31)
    result = project.sweep()
    assert (result["failed"], project.did()) == (True, [])
    assert "was not created by this collection" in result["msg"]


def test_a_cluster_in_another_region_is_left_alone(project: Project) -> None:
    """It is not gone, though there is none where the plan says."""
    project.create("network", "subnetwork", "cluster")
    volume = project.gcp.volume(project.name)
    project.plan = plan(gke(region="us-east4", nodePools=[gpu(zones=["us-east4-a"])]), project.gcp.project)
    for check in (True, False):
        result = project.sweep(check=check)
        assert (result["failed"], project.did()) == (True, [])
        assert "set spec.region back to us-central1" in result["msg"]
    assert volume in project.objects()


def test_what_is_still_in_use_is_tried_again(project: Project) -> None:
    firewall = project.firewall("gke-left")
    project.gcp.refuse(
        operation="firewalls.delete", code="resourceInUseByAnotherResource", message="in use", status=400, times=3
    )
    result = project.sweep()
    assert result["failed"] is False, result.get("msg")
    assert firewall not in project.objects()
    assert any("is still used: in use" in line for line in result["waited"])


def test_what_stays_in_use_ends_in_an_error(project: Project) -> None:
    project.firewall("gke-left")
    project.gcp.refuse(
        operation="firewalls.delete", code="resourceInUseByAnotherResource", message="in use", status=400, times=1000
    )
    result = project.sweep(wait_timeout=0)
    assert result["failed"] is True
    assert "firewall rule gke-left is still used: in use" in result["msg"]


@pytest.mark.usefixtures("lived")
def test_without_waiting_the_next_runs_go_on(project: Project, lived: list[str]) -> None:
    project.gcp.settings(polls=1)
    first = project.sweep(wait=False)
    assert (first["failed"], first["changed"], first["waited"]) == (False, True, [])
    assert any("run again" in line for line in first["pending"])
    for _turn in range(20):
        result = project.sweep(wait=False)
        assert result["failed"] is False, result["msg"]
        if not result["removed"]:
            break
    assert result["pending"] == []
    assert project.objects() & set(lived) == set()


def test_an_instance_that_goes_already_is_waited_for(project: Project) -> None:
    project.create("network", "subnetwork", "cluster")
    volume = project.gcp.volume(project.name)
    project.create("cluster", state="absent")
    project.gcp.settings(polls=3)
    assert project.gcp.request("file", "DELETE", f"v1/{volume}")[0] == 200
    project.gcp.forget_calls()
    result = project.sweep()
    assert (result["failed"], result["changed"], project.did()) == (False, False, [])
    assert volume not in project.objects()


def test_a_right_that_is_missing_is_reported(project: Project) -> None:
    project.firewall("gke-left")
    project.gcp.refuse(
        operation="firewalls.delete",
        code="PERMISSION_DENIED",
        message="Required 'compute.firewalls.delete' permission for 'gke-left'",
        status=403,
    )
    result = project.sweep()
    assert result["failed"] is True
    assert "compute.firewalls.delete" in result["msg"]
    assert "roles" in result["msg"]


@pytest.mark.parametrize("operation", ["disks.aggregatedList", "instances.list"])
def test_volumes_that_may_not_be_listed_are_a_warning(project: Project, operation: str) -> None:
    firewall = project.firewall("gke-left")
    project.gcp.refuse(operation=operation, code="PERMISSION_DENIED", message="Denied.", status=403)
    result = project.sweep()
    assert (result["failed"], firewall in project.objects()) == (False, False)
    (warning,) = result["warnings"]
    assert warning.startswith(f"not checked: list {operation.partition('.')[0]} of project")
    assert warning.endswith("they stay")


def test_what_keeps_the_network_has_to_be_listed(project: Project) -> None:
    project.firewall("gke-left")
    project.gcp.refuse(operation="firewalls.list", code="PERMISSION_DENIED", message="Denied.", status=403)
    result = project.sweep()
    assert (result["failed"], project.did()) == (True, [])
    assert result["msg"].startswith("list firewalls of project")


def test_wrong_arguments(project: Project) -> None:
    assert project.sweep(project="another")["msg"].endswith("Give the project of the plan")
    assert "plan.resources: has no GKE cluster" in project.sweep(plan={**project.plan, "resources": []})["msg"]


# In every cloud


@pytest.fixture(params=["vpc", "project"])
def place(request: pytest.FixtureRequest) -> Vpc | Project:
    found: Vpc | Project = request.getfixturevalue(request.param)
    return found


def test_a_network_without_orphans(place: Vpc | Project) -> None:
    for check in (True, False):
        result = place.sweep(check=check)
        assert (result["failed"], result["changed"], place.did()) == (False, False, [])
        assert (result["removed"], result["left_alone"], result["pending"]) == ([], [], [])
        assert result["diff"] == {"before": {}, "after": {}}


def test_no_network(aws: Aws, gcp: Double) -> None:
    for place in (Vpc(aws, "", []), Project(gcp)):
        result = place.sweep()
        assert (result["failed"], result["changed"], result["removed"]) == (False, False, [])


def test_a_plan_without_what_is_needed(place: Vpc | Project) -> None:
    result = place.sweep(plan={})
    assert result["failed"] is True
    assert result["msg"].startswith("plan: has no name, ")
