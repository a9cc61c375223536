# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Managed node groups of EKS, and the Auto Scaling groups behind them."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from moto.ec2.models.instance_types import INSTANCE_TYPES

from . import launching
from .account import ACCOUNT, OPERATIONS, Account, Region, Staged, hexadecimal, now, pages
from .eks import VERSIONS, Cluster, Update, find, find_active, invalid, minor
from .wire import Asked, AwsError

_NO_SCHEDULE = ("NO_SCHEDULE", "NO_EXECUTE")


@dataclass
class NodeGroup(Staged):
    cluster: Cluster
    name: str
    version: str
    release: str
    ami_type: str
    capacity_type: str
    scaling: dict[str, int]
    instance_types: list[str]
    disk_size: int | None
    template: dict[str, str] | None
    subnets: list[str]
    role_arn: str
    labels: dict[str, str]
    taints: list[dict[str, str]]
    tags: dict[str, str]
    update_config: dict[str, int]
    status: str = "CREATING"
    issues: list[dict[str, Any]] = field(default_factory=list)
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    created: Any = field(default_factory=now)
    modified: Any = field(default_factory=now)
    updates: dict[str, Update] = field(default_factory=dict)
    nodes: int = 0

    @property
    def arn(self) -> str:
        region = self.cluster.region.name
        return f"arn:aws:eks:{region}:{ACCOUNT}:nodegroup/{self.cluster.name}/{self.name}/{self.id}"

    @property
    def scaling_group(self) -> str:
        return f"eks-{self.name}-{self.id}"

    @property
    def takes_any_pod(self) -> bool:
        """Whether a pod without tolerations runs on its nodes."""
        return self.nodes > 0 and not any(taint["effect"] in _NO_SCHEDULE for taint in self.taints)

    def described_template(self) -> dict[str, Any]:
        """The data of its launch template's version; empty without a template."""
        if self.template is None:
            return {}
        version = self.cluster.region.ec2.get_launch_template(self.template["id"]).get_version(self.template["version"])
        return dict(version.data)

    def describe(self) -> dict[str, Any]:
        described: dict[str, Any] = {
            "nodegroupName": self.name,
            "nodegroupArn": self.arn,
            "clusterName": self.cluster.name,
            "version": self.version,
            "releaseVersion": self.release,
            "createdAt": self.created,
            "modifiedAt": self.modified,
            "status": self.status,
            "capacityType": self.capacity_type,
            "scalingConfig": self.scaling,
            "subnets": self.subnets,
            "amiType": self.ami_type,
            "nodeRole": self.role_arn,
            "labels": self.labels,
            "health": {"issues": self.issues},
            "updateConfig": self.update_config,
            "tags": self.tags,
        }
        if self.taints:
            described["taints"] = self.taints
        if self.status != "CREATING":
            described["resources"] = {"autoScalingGroups": [{"name": self.scaling_group}]}
        if self.template is not None:
            described["launchTemplate"] = self.template
        if self.instance_types:
            described["instanceTypes"] = self.instance_types
        if self.disk_size is not None:
            described["diskSize"] = self.disk_size
        return described

    def change(self, account: Account, update: Update, apply: Any) -> dict[str, Any]:
        """Start an update; `apply` is done when it ends well."""
        self.updates[update.id] = update
        self.status = "UPDATING"

        def done() -> None:
            if update.status != "InProgress":
                return
            ending = account.ending("update", self.name)
            issues = [dict(issue) for issue in ending.issues] if ending else []
            if not ending:
                apply()
                issues = self.launch(account)
            update.end(issues if ending else None)
            self.issues = issues
            self.modified = now()
            self.status = "DEGRADED" if issues else "ACTIVE"

        self.begin(account.looks("update"), done)
        update.begin(account.looks("update"), done)
        return {"update": update.describe()}

    def instance_type(self) -> str:
        return str(self.described_template().get("InstanceType") or self.instance_types[0])

    def launch(self, account: Account) -> list[dict[str, Any]]:
        """Bring up as many nodes as are desired; what hinders it, as issues of the health of the group."""
        wanted = self.scaling["desiredSize"]
        why = launching.hindrance(account, self, wanted)
        if why is None:
            self.nodes = wanted
            return []
        self.nodes = 0
        code, message = why
        return [{"code": code, "message": message, "resourceIds": [self.scaling_group]}]


def find_group(account: Account, asked: Asked) -> NodeGroup:
    cluster = find(account, asked)
    name = asked.parameters["nodegroupName"]
    if name not in cluster.node_groups:
        raise AwsError(
            "ResourceNotFoundException",
            f"No node group found for name: {name}.",
            clusterName=cluster.name,
            nodegroupName=name,
        )
    return cluster.node_groups[name]


def _changeable(account: Account, asked: Asked) -> NodeGroup:
    group = find_group(account, asked)
    if group.status not in ("ACTIVE", "DEGRADED"):
        raise AwsError(
            "ResourceInUseException",
            f"Nodegroup cannot be updated as it is currently not in Active State (it is {group.status})",
            clusterName=group.cluster.name,
            nodegroupName=group.name,
        )
    return group


@OPERATIONS.answers("eks", "CreateNodegroup")
def create_nodegroup(account: Account, asked: Asked) -> dict[str, Any]:
    given = asked.parameters
    cluster = find(account, asked)
    known = cluster.node_groups.get(given["nodegroupName"])
    if known is not None:
        raise AwsError(
            "ResourceInUseException",
            f"NodeGroup already exists with name {known.name} and cluster name {cluster.name}",
            clusterName=cluster.name,
            nodegroupName=known.name,
        )
    find_active(account, asked)
    _check_role(account, given["nodeRole"])
    _check_places(cluster, given["subnets"])
    template = _template(cluster.region, given)
    ami_type = given.get("amiType", "AL2023_x86_64_STANDARD")
    version = given.get("version", cluster.version)
    if version not in VERSIONS or minor(version) > cluster.minor():
        raise invalid(f"Requested Nodegroup version {version} is not supported with cluster version {cluster.version}")
    scaling = {"minSize": 1, "maxSize": 2, "desiredSize": 2, **given.get("scalingConfig", {})}
    _check_scaling(scaling)
    group = NodeGroup(
        cluster=cluster,
        name=given["nodegroupName"],
        version=version,
        release=given.get("releaseVersion", f"{version}.3-20260801"),
        ami_type=ami_type,
        capacity_type=given.get("capacityType", "ON_DEMAND"),
        scaling=scaling,
        instance_types=[] if _has(template, "InstanceType") else list(given.get("instanceTypes") or ["t3.medium"]),
        disk_size=None if template else given.get("diskSize", 20),
        template=_reference(template),
        subnets=list(given["subnets"]),
        role_arn=given["nodeRole"],
        labels=dict(given.get("labels", {})),
        taints=_checked_taints(given.get("taints", [])),
        tags=dict(given.get("tags", {})),
        update_config=dict(given.get("updateConfig") or {"maxUnavailable": 1}),
    )
    cluster.node_groups[group.name] = group
    _admit_nodes(cluster, group.role_arn)
    group.begin(account.looks("nodegroup"), lambda: _created(account, group))
    return {"nodegroup": group.describe()}


def _created(account: Account, group: NodeGroup) -> None:
    ending = account.ending("nodegroup", group.name)
    group.issues = [dict(issue) for issue in ending.issues] if ending else group.launch(account)
    group.status = ending.status if ending else "CREATE_FAILED" if group.issues else "ACTIVE"


def _check_role(account: Account, arn: str) -> None:
    if not account.usable(arn, "ec2.amazonaws.com", "sts:AssumeRole"):
        raise invalid(f"The role {arn} does not exist or EC2 may not assume it")


def _check_places(cluster: Cluster, subnets: list[str]) -> None:
    for subnet_id in subnets:
        subnet = cluster.region.subnet(subnet_id)
        if subnet is None:
            raise invalid(f"The subnet ID '{subnet_id}' does not exist")
        if subnet.vpc_id != cluster.vpc_id:
            raise invalid("Subnets specified must be in the same VPC as the cluster")


def _has(template: Any | None, member: str) -> bool:
    return template is not None and member in template[1].data


def _template(region: Region, given: Mapping[str, Any]) -> tuple[Any, Any] | None:
    """The launch template and its version that a group shall have. Raises AwsError for what does not go together."""
    named = given.get("launchTemplate")
    wanted = given.get("capacityType", "ON_DEMAND")
    if named is None:
        kinds = given.get("instanceTypes") or []
        unknown = [kind for kind in kinds if kind not in INSTANCE_TYPES]
        if unknown:
            raise invalid(f"The following supplied instance types do not exist: [{', '.join(unknown)}]")
        if wanted == "CAPACITY_BLOCK":
            raise invalid("Capacity type CAPACITY_BLOCK needs a launch template")
        return None
    found = find_template(region, named)
    data = found[1].data
    for member, name in (("diskSize", "Disk size"), ("remoteAccess", "Remote access configuration")):
        if given.get(member):
            raise invalid(f"{name} must be specified within the launch template.")
    if data.get("InstanceType") and given.get("instanceTypes"):
        raise invalid("You cannot specify instance types in both launch template and API request")
    if data.get("ImageId") and given.get("amiType", "CUSTOM") != "CUSTOM":
        raise invalid(
            "You cannot specify an AMI Type other than CUSTOM, when specifying an image id in your launch template."
        )
    market = data.get("InstanceMarketOptions", {}).get("MarketType")
    if (wanted == "CAPACITY_BLOCK") != (market == "capacity-block"):
        raise invalid(f"Capacity type {wanted} does not go with market type {market} of the launch template")
    for interface in data.get("NetworkInterfaces", []):
        if interface.get("SubnetId"):
            raise invalid("Launch template should not specify a subnet in its network interfaces")
        _check_groups(region, interface.get("Groups", []))
    return found


def _check_groups(region: Region, groups: list[str]) -> None:
    for group in groups:
        if region.ec2.get_security_group_from_id(group) is None:
            raise invalid(f"The security group '{group}' does not exist")


def find_template(region: Region, named: Mapping[str, str]) -> tuple[Any, Any]:
    """A launch template and the version that is named of it."""
    if ("name" in named) == ("id" in named):
        raise invalid("You must specify either the launch template ID or the launch template name, but not both.")
    templates = region.ec2.launch_templates
    found = next(
        (each for each in templates.values() if named.get("id", named.get("name")) in (each.id, each.name)), None
    )
    if found is None:
        raise invalid(f"Launch template {named.get('id', named.get('name'))} does not exist")
    wanted = named.get("version", "$Default")
    version = (
        found.latest_version() if wanted == "$Latest" else found.default_version() if wanted == "$Default" else None
    )
    version = version or next((each for each in found.versions if each and str(each.number) == wanted), None)
    if version is None:
        raise invalid(f"Launch template {found.name} has no version {wanted}")
    return found, version


def _reference(template: tuple[Any, Any] | None) -> dict[str, str] | None:
    if template is None:
        return None
    return {"name": template[0].name, "id": template[0].id, "version": str(template[1].number)}


def _check_scaling(scaling: Mapping[str, int]) -> None:
    least, most, desired = scaling["minSize"], scaling["maxSize"], scaling["desiredSize"]
    if least > most:
        raise invalid(f"Minimum capacity {least} can't be greater than maximum size {most}")
    if least > desired:
        raise invalid(f"Minimum capacity {least} can't be greater than desired size {desired}")
    if desired > most:
        raise invalid(f"desired capacity {desired} can't be greater than max size {most}")


def _checked_taints(taints: list[dict[str, str]]) -> list[dict[str, str]]:
    places = [(taint.get("key"), taint.get("effect")) for taint in taints]
    if len(set(places)) < len(places):
        raise invalid("Taints must not have duplicate key and effect")
    return [dict(taint) for taint in taints]


def _admit_nodes(cluster: Cluster, role_arn: str) -> None:
    from .eks_access import AccessEntry

    if cluster.mode != "CONFIG_MAP" and role_arn not in cluster.entries:
        user = "system:node:{{EC2PrivateDNSName}}"
        cluster.entries[role_arn] = AccessEntry(
            cluster.name, cluster.region.name, role_arn, "EC2_LINUX", user, ["system:nodes"], {}
        )


@OPERATIONS.answers("eks", "DescribeNodegroup")
def describe_nodegroup(account: Account, asked: Asked) -> dict[str, Any]:
    find_group(account, asked).look()
    return {"nodegroup": find_group(account, asked).describe()}


@OPERATIONS.answers("eks", "ListNodegroups")
def list_nodegroups(account: Account, asked: Asked) -> dict[str, Any]:
    return pages(asked, "nodegroups", sorted(find(account, asked).node_groups))


@OPERATIONS.answers("eks", "DeleteNodegroup")
def delete_nodegroup(account: Account, asked: Asked) -> dict[str, Any]:
    group = find_group(account, asked)
    if group.status in ("CREATING", "UPDATING", "DELETING"):
        raise AwsError(
            "ResourceInUseException",
            f"Nodegroup is in {group.status} status",
            clusterName=group.cluster.name,
            nodegroupName=group.name,
        )
    group.status = "DELETING"
    group.begin(account.looks("nodegroup"), lambda: _deleted(account, group))
    return {"nodegroup": group.describe()}


def _deleted(account: Account, group: NodeGroup) -> None:
    ending = account.ending("nodegroup", group.name)
    if ending:
        group.status, group.issues = ending.status, [dict(issue) for issue in ending.issues]
        return
    del group.cluster.node_groups[group.name]


@OPERATIONS.answers("eks", "UpdateNodegroupConfig")
def update_nodegroup_config(account: Account, asked: Asked) -> dict[str, Any]:
    group = _changeable(account, asked)
    given = asked.parameters
    scaling = {**group.scaling, **given.get("scalingConfig", {})}
    _check_scaling(scaling)
    labels = dict(group.labels)
    changed = given.get("labels", {})
    for key in changed.get("removeLabels", []):
        if labels.pop(key, None) is None:
            raise invalid(f"Label {key} to be removed does not exist")
    labels.update(changed.get("addOrUpdateLabels", {}))
    taints = {(taint["key"], taint["effect"]): taint for taint in group.taints}
    changed = given.get("taints", {})
    for taint in changed.get("removeTaints", []):
        if taints.pop((taint["key"], taint["effect"]), None) is None:
            raise invalid(f"Taint {taint} to be removed does not exist")
    taints.update({(taint["key"], taint["effect"]): dict(taint) for taint in changed.get("addOrUpdateTaints", [])})
    said = {name: str(given[name]) for name in ("scalingConfig", "labels", "taints", "updateConfig") if name in given}
    names = {
        "scalingConfig": "DesiredSize",
        "labels": "LabelsToAdd",
        "taints": "TaintsToAdd",
        "updateConfig": "MaxUnavailable",
    }
    update = Update("ConfigUpdate", {names[name]: value for name, value in said.items()})

    def apply() -> None:
        group.scaling, group.labels, group.taints = scaling, labels, list(taints.values())
        group.update_config = dict(given.get("updateConfig", group.update_config))

    return group.change(account, update, apply)


@OPERATIONS.answers("eks", "UpdateNodegroupVersion")
def update_nodegroup_version(account: Account, asked: Asked) -> dict[str, Any]:
    group = _changeable(account, asked)
    given = asked.parameters
    version = given.get("version", group.version)
    named = given.get("launchTemplate")
    if version not in VERSIONS or minor(version) > group.cluster.minor() or minor(version) < minor(group.version):
        raise invalid(
            f"Nodegroup version {version} is not between {group.version}, its own, and {group.cluster.version}"
        )
    template = group.template
    if named is not None:
        if template is None:
            raise invalid("You cannot specify a launch template for a nodegroup that was created without one")
        found = find_template(group.cluster.region, named)
        if found[0].id != template["id"]:
            raise invalid("You cannot change the launch template of a nodegroup, but only its version")
        template = _reference(found)
        _template(group.cluster.region, {"launchTemplate": named, "capacityType": group.capacity_type})
    release = given.get("releaseVersion", f"{version}.3-20260801")
    update = Update("VersionUpdate", {"Version": version, "ReleaseVersion": release})

    def apply() -> None:
        group.version, group.release, group.template = version, release, template

    return group.change(account, update, apply)


@OPERATIONS.answers("autoscaling", "DescribeAutoScalingGroups")
def describe_groups(account: Account, asked: Asked) -> dict[str, Any]:
    wanted = asked.parameters.get("AutoScalingGroupNames")
    found = [
        _scaling_group(group) for group in _groups(account, asked.region) if not wanted or group.scaling_group in wanted
    ]
    for condition in asked.parameters.get("Filters", []):
        if condition["Name"].startswith("tag:"):
            key = condition["Name"].removeprefix("tag:")
            pairs = {(key, value) for value in condition["Values"]}
            found = [each for each in found if pairs & {(tag["Key"], tag["Value"]) for tag in each["Tags"]}]
        elif condition["Name"] == "tag-key":
            keys = set(condition["Values"])
            found = [each for each in found if keys & {tag["Key"] for tag in each["Tags"]}]
    return {"AutoScalingGroups": found}


@OPERATIONS.answers("autoscaling", "DescribeTags")
def describe_group_tags(account: Account, asked: Asked) -> dict[str, Any]:
    tags = [tag for group in _groups(account, asked.region) for tag in _scaling_group(group)["Tags"]]
    members = {"auto-scaling-group": "ResourceId", "key": "Key", "value": "Value"}
    for condition in asked.parameters.get("Filters", []):
        member = members[condition["Name"]]
        tags = [tag for tag in tags if tag[member] in condition["Values"]]
    return {"Tags": tags}


def _groups(account: Account, region: str) -> list[NodeGroup]:
    clusters = account.region(region).clusters.values()
    return [group for cluster in clusters for group in cluster.node_groups.values() if group.status != "CREATING"]


def _scaling_group(group: NodeGroup) -> dict[str, Any]:
    cluster = group.cluster.name
    tags = {
        "eks:cluster-name": cluster,
        "eks:nodegroup-name": group.name,
        "k8s.io/cluster-autoscaler/enabled": "true",
        f"k8s.io/cluster-autoscaler/{cluster}": "owned",
        f"kubernetes.io/cluster/{cluster}": "owned",
    }
    zones = sorted({group.cluster.region.subnet(subnet).availability_zone for subnet in group.subnets})
    return {
        "AutoScalingGroupName": group.scaling_group,
        "MinSize": group.scaling["minSize"],
        "MaxSize": group.scaling["maxSize"],
        "DesiredCapacity": group.scaling["desiredSize"],
        "DefaultCooldown": 300,
        "AvailabilityZones": zones,
        "HealthCheckType": "EC2",
        "CreatedTime": group.created,
        "VPCZoneIdentifier": ",".join(group.subnets),
        "Instances": [
            {
                "InstanceId": f"i-{hexadecimal(17)}",
                "InstanceType": group.instance_type(),
                "AvailabilityZone": zones[index % len(zones)],
                "LifecycleState": "InService",
                "HealthStatus": "Healthy",
                "ProtectedFromScaleIn": False,
            }
            for index in range(group.nodes)
        ],
        "Tags": [
            {
                "ResourceId": group.scaling_group,
                "ResourceType": "auto-scaling-group",
                "Key": key,
                "Value": value,
                "PropagateAtLaunch": True,
            }
            for key, value in tags.items()
        ],
    }
