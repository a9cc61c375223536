# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""An EKS cluster in an account of the double of AWS, which the module cloud_resources creates there."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks import names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks.plan import Options, plan
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.engine.graph import UNKNOWN
from ansible_collections.modelplane.fleet.plugins.modules import cloud_resources
from ansible_collections.modelplane.fleet.tests.aws.double import Double
from ansible_collections.modelplane.fleet.tests.module_run import run_module
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.cloud.eks.clusters import eks, gpu

Json = dict[str, Any]
NETWORKING = {"subnetCidrs": ["10.0.0.0/20", "10.0.16.0/20"]}
OPTIONS = Options(tags={"team": "ml"})
VOLATILE = ("modifiedAt", "OtherVersions", "DefaultVersionId", "Associations", "health", "IpPermissions", "SizeInBytes")


class Cluster:
    """An EKSCluster whose plan the module applies to the account of the double."""

    def __init__(self, aws: Double) -> None:
        self.aws = aws
        self.ec2, self.eks, self.iam, self.efs = (aws.client(name) for name in ("ec2", "eks", "iam", "efs"))
        self.found: Json = {}
        self.become()

    def become(self, *pools: Json, fleet: str = "default", options: Options = OPTIONS, **spec: Any) -> None:
        """Set another plan, by default for two zones."""
        self.plan = plan(eks(*pools, **{"networking": NETWORKING, **spec}), fleet, options)

    @property
    def name(self) -> str:
        return str(self.plan["name"])

    def entry(self, key: str) -> Json:
        found: Json = next(each for each in self.plan["resources"] if each["key"] == key)
        return found

    def id(self, key: str, field: str) -> str:
        return str(self.found[key][field])

    def live(self, key: str) -> Json:
        """Return an object as the module finds it."""
        found: Json = self.run(check=True)["resources"][key]
        return found

    def run(self, *, check: bool = False, **more: Any) -> Json:
        arguments = {"resources": self.plan["resources"], "wait_delay": 0.0, "wait_timeout": 60}
        given = {"provider": "eks", **self.aws.credentials, **arguments, **more}
        return run_module(cloud_resources, given, check_mode=check)

    def apply(self, **more: Any) -> Json:
        result = self.run(**more)
        assert not result["failed"], result["msg"]
        self.found = result.get("resources", self.found)
        return result

    def unchanged(self, **more: Any) -> Json:
        """Run it, and assert that it changes nothing and sends nothing that would."""
        self.sent()
        result = self.apply(**more)
        assert (result["changed"], result["actions"], self.sent()) == (False, [], [])
        return result

    def converge(self, turns: int = 80, **more: Any) -> int:
        """Run until nothing fails, and return how often something did."""
        for failed in range(turns):
            result = self.run(**more)
            if not result["failed"]:
                self.found = result.get("resources", self.found)
                return failed
        raise AssertionError(result["msg"])

    def sent(self) -> list[str]:
        """Return the mutating operations since the last time, without those that were refused."""
        return [call["operation"] for call in self.requests()]

    def requests(self, operation: str = "") -> list[Json]:
        found = [call for call in self.aws.calls(mutating=True) if not call["error"]]
        self.aws.forget_calls()
        return [call for call in found if operation in ("", call["operation"])]

    def parameters(self, calls: list[Json], operation: str) -> list[Json]:
        given = [call["parameters"] for call in calls if call["operation"] == operation]
        return [{key: value for key, value in each.items() if key != "clientRequestToken"} for each in given]

    def settle(self, describe: Callable[[], str], *states: str) -> None:
        """Read until a change by hand is over."""
        for _ in range(20):
            if describe() in (states or ("ACTIVE", "available")):
                return
        raise AssertionError("it never settles")

    def cluster_status(self) -> str:
        return str(self.eks.describe_cluster(name=self.name)["cluster"]["status"])

    def group(self, name: str = "gpu-l4") -> Json:
        found: Json = self.eks.describe_nodegroup(clusterName=self.name, nodegroupName=name)["nodegroup"]
        return found

    def addon(self, name: str) -> Json:
        found: Json = self.eks.describe_addon(clusterName=self.name, addonName=name)["addon"]
        return found

    def configure(self, **config: Any) -> None:
        """Change the cluster by hand."""
        self.eks.update_cluster_config(name=self.name, **config)
        self.settle(self.cluster_status)

    def configure_group(self, name: str = "gpu-l4", **config: Any) -> None:
        """Change a node group by hand."""
        self.eks.update_nodegroup_config(clusterName=self.name, nodegroupName=name, **config)
        self.settle(lambda: str(self.group(name)["status"]))

    def account(self) -> list[str]:
        """Return what there is in the account, without what AWS provides."""
        ec2, eks, region = self.ec2, self.eks, {"Name": "tag-key", "Values": [names.CLUSTER_TAG]}
        found = [f"vpc {len(each['Tags'])}" for each in ec2.describe_vpcs(Filters=[region])["Vpcs"]]
        found += [f"subnet {each['CidrBlock']}" for each in ec2.describe_subnets(Filters=[region])["Subnets"]]
        for gateway in ec2.describe_internet_gateways(Filters=[region])["InternetGateways"]:
            found.append(f"internet gateway {len(gateway['Attachments'])}")
        found += ["address" for _ in ec2.describe_addresses()["Addresses"]]
        found += [
            f"nat {each['State']}" for each in ec2.describe_nat_gateways()["NatGateways"] if each["State"] != "deleted"
        ]
        for table in ec2.describe_route_tables(Filters=[region])["RouteTables"]:
            found.append(f"route table {len(table['Associations'])} {len(table['Routes'])}")
        groups = ec2.describe_security_groups(Filters=[region])["SecurityGroups"]
        found += [f"group {each['GroupName']} {len(each['IpPermissions'])}" for each in groups]
        templates = ec2.describe_launch_templates()["LaunchTemplates"]
        found += [f"template {each['LaunchTemplateName']}" for each in templates]
        for role in self.iam.list_roles()["Roles"]:
            attached = self.iam.list_attached_role_policies(RoleName=role["RoleName"])["AttachedPolicies"]
            found.append(f"role {role['RoleName']} {len(attached)}")
        found += [f"policy {each['PolicyName']}" for each in self.iam.list_policies(Scope="Local")["Policies"]]
        for system in self.efs.describe_file_systems()["FileSystems"]:
            found.append(f"file system {system['CreationToken']} {system['NumberOfMountTargets']}")
        for cluster in eks.list_clusters()["clusters"]:
            found.append(f"cluster {cluster}")
            found += [f"node group {each}" for each in eks.list_nodegroups(clusterName=cluster)["nodegroups"]]
            found += [f"addon {each}" for each in eks.list_addons(clusterName=cluster)["addons"]]
            identities = eks.list_pod_identity_associations(clusterName=cluster)["associations"]
            found += [f"pod identity {each['serviceAccount']}" for each in identities]
        return sorted(found)


def block(cluster: Cluster, name: str = "gpu-h200", **more: Any) -> Json:
    """Return a pool with EFA on a Capacity Block that the account has."""
    reservation = cluster.aws.capacity_reservation(InstanceType="p5en.48xlarge", TotalInstanceCount=2)
    return gpu(
        name,
        instanceType="p5en.48xlarge",
        gpu={"acceleratorType": "nvidia-h200-141gb"},
        nodeCount=2,
        minNodeCount=0,
        maxNodeCount=2,
        fabric="EFA",
        capacityBlock={"capacityReservationId": reservation["CapacityReservationId"]},
        **more,
    )


def changed_keys(result: Json) -> set[str]:
    return {*result["diff"]["before"], *result["diff"]["after"]}


def same_but_unknown(expected: Any, actual: Any) -> bool:
    """Compare values of which check mode may not know some."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        return set(expected) == set(actual) and all(same_but_unknown(expected[key], actual[key]) for key in expected)
    if isinstance(expected, list) and isinstance(actual, list):
        return len(expected) == len(actual) and all(map(same_but_unknown, expected, actual))
    return bool(expected in (actual, UNKNOWN))


def steady(resources: Json) -> Json:
    """Return actual states without what a change and its reversal leave behind."""
    return {
        key: {
            field: sorted(value) if field == "SubnetIds" else value
            for field, value in each.items()
            if field not in VOLATILE
        }
        for key, each in resources.items()
    }


def change_policies(cluster: Cluster) -> None:
    """Change by hand which policies the role of nodes has."""
    role, policies = cluster.id("role-node", "RoleName"), "arn:aws:iam::aws:policy"
    cluster.iam.detach_role_policy(RoleName=role, PolicyArn=f"{policies}/AmazonEKS_CNI_Policy")
    cluster.iam.attach_role_policy(RoleName=role, PolicyArn=f"{policies}/AmazonSSMManagedInstanceCore")


def change_document(cluster: Cluster) -> None:
    """Write versions of the policy until no more fit."""
    arn = cluster.id("policy-autoscaler", "Arn")
    for action in ("s3:GetObject", "s3:PutObject", "s3:ListBucket", "s3:DeleteObject"):
        statement = {"Effect": "Allow", "Action": action, "Resource": "*"}
        document = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        cluster.iam.create_policy_version(PolicyArn=arn, PolicyDocument=document, SetAsDefault=True)
