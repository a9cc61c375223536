# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Table of the kinds of objects in AWS for the engine: the compared fields, and the update of each field.

The `parent` of an object is its region, `iam` for objects of IAM, and `clusters/NAME` for objects in a cluster. AWS
assigns IDs to most objects at their creation. They are found by their names and tags (aws/find.py). `actual.py`
converts them to the compared form. requests.py has the calls that create, update and delete them.

=================  ==========================================  ======================================================
kind               found by                                    updated by
=================  ==========================================  ======================================================
vpc                tags                                        ModifyVpcAttribute
subnet             VPC, tag Name, range                        ModifySubnetAttribute
internet-gateway   tags                                        AttachInternetGateway
elastic-ip         tags                                        nothing
nat-gateway        VPC, tags                                   nothing
route-table        VPC, tag Name                               CreateRoute, ReplaceRoute, AssociateRouteTable
security-group     VPC, name                                   Authorize…, RevokeSecurityGroup…
policy             name                                        CreatePolicyVersion
role               name                                        UpdateAssumeRolePolicy, Attach…, DetachRolePolicy
cluster            name                                        UpdateClusterConfig, one kind of change in each;
                                                               UpdateClusterVersion, one minor version in each
launch-template    name                                        CreateLaunchTemplateVersion, ModifyLaunchTemplate
node-group         name                                        UpdateNodegroupConfig, UpdateNodegroupVersion
addon              name                                        UpdateAddon
pod-identity       namespace and name of the service account   UpdatePodIdentityAssociation
file-system        creation token                              UpdateFileSystem, PutFileSystemPolicy
mount-target       file system and subnet                      ModifyMountTargetSecurityGroups
=================  ==========================================  ======================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...names import MANAGED_BY
from ..engine import compare, kinds
from ..engine.kinds import Field, Phase
from ..engine.ownership import Owners
from . import compare as eks_compare
from . import names

OWNERS = Owners(
    cluster=names.CLUSTER_TAG,
    manager=names.MANAGED_BY_TAG,
    fleet=names.FLEET_TAG,
    managed_by=MANAGED_BY,
    word="tags",
    setting="eks_cluster_fleet",
)


@dataclass(frozen=True, kw_only=True)
class Kind(kinds.Kind):
    """A kind of object in AWS.

    `service`: the name of the service in the SDK. `id`: the field that identifies an object in calls that set tags; EKS
    uses ARNs. `named`: the fields of the actual state that identify the object in other calls, if they differ from
    `id`. `token`: True if a call that creates an object can be sent twice without creating two objects.
    """

    service: str
    named: tuple[str, ...] = ()
    token: bool = True


_PROVISION = "or remove the cluster and provision it again"
_SUBNET = f"AWS cannot change it: set spec.networking.subnetCidrs and zones back to what they were, {_PROVISION}"
_POOL = "EKS cannot change it: give the pool a new name, so that a new one is created and the old one deleted"
_RENEWED = "all its nodes are replaced"
_STATES: Mapping[str, tuple[str, Mapping[str, Phase]]] = {
    "ec2": ("State", {"pending": "creating", "available": "ready", "failed": "failed", "deleting": "deleting"}),
    "eks": (
        "status",
        {
            "CREATING": "creating",
            "ACTIVE": "ready",
            "DEGRADED": "degraded",
            "UPDATE_FAILED": "degraded",
            "FAILED": "failed",
            "CREATE_FAILED": "failed",
            "DELETE_FAILED": "failed",
            "DELETING": "deleting",
        },
    ),
}
"""By service: the field with the state of an object, and the phases. Kinds without states do not have the field."""


def _kind(service: str, title: str, identity: str, *fields: Field, **options: Any) -> Kind:
    """Return a kind of object with tags and with the states of its service. Tags are compared last."""
    tags = "tags" if service == "eks" else "Tags"
    status, phases = _STATES.get(service, ("", {}))
    options = {"status": status, "phases": phases, **options}
    compared = (*fields, Field(tags, compare.labels, update="tags"))
    return Kind(service=service, title=title, id=identity, owner=tags, fields=compared, **options)


KINDS: dict[str, Kind] = {
    "vpc": _kind(
        "ec2",
        "VPC",
        "VpcId",
        Field(
            "CidrBlock",
            remediation=f"AWS cannot change it: set spec.networking.vpcCidr back to {{before}}, {_PROVISION}",
        ),
        Field("EnableDnsSupport", update="dns support"),
        Field("EnableDnsHostnames", update="dns host names"),
        token=False,
    ),
    "subnet": _kind(
        "ec2",
        "subnet",
        "SubnetId",
        Field("CidrBlock", remediation=_SUBNET),
        Field("AvailabilityZone", remediation=_SUBNET),
        Field("MapPublicIpOnLaunch", update="public addresses"),
        uses=("vpc",),
    ),
    "internet-gateway": _kind(
        "ec2",
        "internet gateway",
        "InternetGatewayId",
        Field(
            "VpcId",
            update="attach",
            possible=lambda actual, _desired: not actual,
            remediation="It is attached to {before}: detach it there, or take the owner tags off it",
        ),
        token=False,
        uses=("vpc",),
    ),
    "elastic-ip": _kind("ec2", "Elastic IP", "AllocationId", token=False),
    "nat-gateway": _kind(
        "ec2",
        "NAT gateway",
        "NatGatewayId",
        Field(
            "SubnetId",
            remediation="AWS cannot move it: delete it, which cuts the nodes off until the next run has created "
            "another one",
        ),
        uses=("subnet", "elastic-ip", "internet-gateway"),
        usual="1 to 3 min",
    ),
    "route-table": _kind(
        "ec2",
        "route table",
        "RouteTableId",
        Field("Routes", compare.subset, update="routes"),
        Field("SubnetIds", compare.superset, update="subnets"),
        uses=("vpc", "subnet"),
    ),
    "security-group": _kind(
        "ec2",
        "security group",
        "GroupId",
        Field("Ingress", compare.members, update="ingress"),
        Field("Egress", compare.members, update="egress"),
        uses=("vpc",),
    ),
    "policy": _kind("iam", "IAM policy", "PolicyArn", Field("Document", eks_compare.document, update="document")),
    "role": _kind(
        "iam",
        "IAM role",
        "RoleName",
        Field("AssumeRolePolicyDocument", eks_compare.document, update="trust"),
        Field("PolicyArns", compare.members, update="policies"),
    ),
    "cluster": _kind(
        "eks",
        "EKS cluster",
        "arn",
        Field("roleArn", remediation=f"EKS cannot change it: let the cluster keep its role, {_PROVISION}"),
        Field(
            "resourcesVpcConfig.subnetIds",
            compare.members,
            update="subnets",
            possible=eks_compare.no_fewer,
            remediation=f"EKS keeps the zones of a cluster: put spec.networking.subnetCidrs back, {_PROVISION}",
        ),
        Field("accessConfig.authenticationMode", eks_compare.mode, update="authentication mode"),
        Field("resourcesVpcConfig.endpointPrivateAccess", update="endpoints"),
        Field("resourcesVpcConfig.endpointPublicAccess", update="endpoints"),
        Field("resourcesVpcConfig.publicAccessCidrs", eks_compare.cidrs, update="endpoints"),
        Field("logs", compare.members, update="logs"),
        Field(
            "encryptionKey",
            update="encryption",
            possible=lambda actual, _desired: not actual,
            remediation="EKS keeps the key that encrypts Secrets: set it back to {before}",
        ),
        Field(
            "version",
            compare.at_least,
            update="version",
            possible=eks_compare.within_skew,
            remediation=f"Nodes may be {eks_compare.MOST_MINORS} minor versions behind at most: go to a version "
            "between first, and on when the nodes have it",
        ),
        named=("name",),
        # API reference of CreateCluster.
        usual="10 to 15 min",
    ),
    "launch-template": _kind(
        "ec2",
        "launch template",
        "LaunchTemplateId",
        Field(
            "Data",
            eks_compare.template,
            actual="Latest",
            update="data",
            compared=lambda actual, _desired: (actual or {}).get("data", {}),
        ),
        uses=("security-group",),
        computed=("LatestVersionNumber",),
    ),
    "node-group": _kind(
        "eks",
        "node group",
        "nodegroupArn",
        Field("amiType", remediation=_POOL),
        Field("capacityType", remediation=_POOL),
        Field("diskSize", remediation=_POOL),
        Field("instanceTypes", compare.members, remediation=_POOL),
        Field("nodeRole", remediation=_POOL),
        Field("subnets", compare.members, remediation=_POOL),
        Field("hasLaunchTemplate", remediation=_POOL),
        Field("machineInTemplate", remediation=_POOL),
        Field("launchTemplate.id", remediation=_POOL),
        Field("scalingConfig", eks_compare.scaling, update="config"),
        Field("updateConfig", compare.subset, update="config"),
        Field("labels", update="config"),
        Field("taints", eks_compare.taints, update="config"),
        Field("launchTemplate.version", update="version", effect=_RENEWED),
        Field("version", compare.at_least, update="version", effect=_RENEWED),
        named=("clusterName", "nodegroupName"),
        uses=("cluster", "launch-template", "subnet", "role"),
        usual="2 to 5 min",
        has_nodes=True,
    ),
    "addon": _kind(
        "eks",
        "addon",
        "addonArn",
        Field("addonVersion", update="addon"),
        Field("kubernetesVersion", eks_compare.among, actual="kubernetesVersions", update="addon"),
        Field("configurationValues", eks_compare.configuration, update="addon"),
        named=("clusterName", "addonName"),
        usual="1 to 3 min",
        part_of="cluster",
    ),
    "pod-identity": _kind(
        "eks",
        "pod identity association",
        "associationArn",
        Field("roleArn", update="role"),
        named=("clusterName", "associationId"),
        part_of="cluster",
    ),
    "file-system": _kind(
        "efs",
        "EFS file system",
        "FileSystemId",
        Field(
            "Encrypted",
            remediation="EFS cannot change it: copy what is on it elsewhere, and remove it with its mount targets, "
            "so that it is created again",
        ),
        Field("ThroughputMode", update="throughput mode"),
        Field("Policy", eks_compare.document, update="policy"),
        status="LifeCycleState",
        # A file system in `error` may contain downloaded models, so it is not created again.
        phases={"creating": "creating", "available": "ready", "error": "degraded", "deleting": "deleting"},
    ),
    "mount-target": Kind(
        service="efs",
        title="mount target",
        id="MountTargetId",
        status="LifeCycleState",
        phases={"creating": "creating", "available": "ready", "error": "failed", "deleting": "deleting"},
        fields=(Field("SecurityGroups", compare.members, update="security groups"),),
    ),
}
