# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""EKS: managed node groups, with the group of Auto Scaling that each of them has."""

from __future__ import annotations

import uuid
from typing import Any

from ansible_collections.modelplane.fleet.tests.cloud.authority import now
from ansible_collections.modelplane.fleet.tests.cloud.refusals import Refusal
from moto.ec2.models.instance_types import INSTANCE_TYPES

from .eks import Cluster, Resource, at_rest, check_role, check_subnets, cluster_of, invalid, kept, operation, page
from .wire import Call
from .world import ACCOUNT, Json, World

_NODE_POLICIES = ("AmazonEKSWorkerNodePolicy",)
_NODES_SHOWN = 2
_GPU_IMAGES = ("AL2023_x86_64_NVIDIA", "AL2_x86_64_GPU", "BOTTLEROCKET_x86_64_NVIDIA")


class NodeGroup(Resource):
    kind = "nodegroup"

    def __init__(self, cluster: Cluster, call: Call, template: Json | None) -> None:
        asked = call.parameters
        super().__init__(cluster.world, asked["nodegroupName"], asked.get("tags"))
        self.cluster, self.template = cluster, template
        self.id = str(uuid.uuid4())
        self.arn = f"arn:{call.partition}:eks:{call.region}:{ACCOUNT}:nodegroup/{cluster.name}/{self.name}/{self.id}"
        self.version = asked.get("version") or cluster.version
        self.role, self.subnets = asked["nodeRole"], list(asked["subnets"])
        self.ami_type = asked.get("amiType", "AL2023_x86_64_STANDARD")
        self.capacity_type = asked.get("capacityType", "ON_DEMAND")
        self.instance_types = asked.get("instanceTypes")
        self.disk_size = asked.get("diskSize")
        self.scaling = {"minSize": 1, "maxSize": 2, "desiredSize": 2} | asked.get("scalingConfig", {})
        self.labels = dict(asked.get("labels", {}))
        self.taints = list(asked.get("taints", []))
        self.update_config = {"maxUnavailable": 1, **(asked.get("updateConfig") or {})}
        self.scaling_group = f"eks-{self.name}-{self.id}"
        self.scaling_tags: dict[str, str] = {}
        self.interfaces: list[str] = []

    @property
    def takes_any_pod(self) -> bool:
        """Return whether pods without tolerations have a place here."""
        full = self.status in ("ACTIVE", "UPDATING") and self.scaling["desiredSize"] > 0
        return full and not any(taint["effect"] != "PREFER_NO_SCHEDULE" for taint in self.taints)

    def instance_type(self) -> str:
        inside = template_data(self.template).get("InstanceType") if self.template else None
        return str(inside or (self.instance_types or ["t3.medium"])[0])

    def wire(self) -> Json:
        message: Json = {
            "nodegroupName": self.name,
            "nodegroupArn": self.arn,
            "clusterName": self.cluster.name,
            "version": self.version,
            "releaseVersion": f"{self.version}.2-20261101",
            "createdAt": self.created,
            "modifiedAt": self.modified,
            "status": self.status,
            "capacityType": self.capacity_type,
            "scalingConfig": dict(self.scaling),
            "subnets": self.subnets,
            "amiType": self.ami_type,
            "nodeRole": self.role,
            "labels": self.labels,
            "taints": self.taints,
            "health": {"issues": self.issues},
            "updateConfig": self.update_config,
            "tags": self.tags,
        }
        if self.status != "CREATING":
            message["resources"] = {"autoScalingGroups": [{"name": self.scaling_group}]}
        if self.template:
            message["launchTemplate"] = {name: self.template[name] for name in ("id", "name", "version")}
        if self.instance_types or not self.template:
            message["instanceTypes"] = self.instance_types or ["t3.medium"]
        if not self.template:
            message["diskSize"] = self.disk_size or 20
        return message

    def start(self) -> None:
        """Create the nodes, of which the double has no more than their interfaces, two at most."""
        if not self._fits_reservation():
            return
        for index in range(min(self.scaling["desiredSize"], _NODES_SHOWN)):
            interface = self._interface(index, "")
            interface.status = "in-use"
            self.interfaces.append(interface.id)

    def stop(self) -> None:
        for interface in self.interfaces:
            self.world.ec2(self.cluster.region).enis.pop(interface, None)
        for index in range(self.world.settings.leaked_interfaces):
            self._interface(index, f"aws-K8S-i-{self.world.token(17, '0123456789abcdef')}")
        del self.cluster.node_groups[self.name]

    def _interface(self, index: int, description: str) -> Any:
        ec2 = self.world.ec2(self.cluster.region)
        subnet = ec2.get_subnet(self.subnets[index % len(self.subnets)])
        return ec2.create_network_interface(
            subnet, None, group_ids=[self.cluster.security_group], description=description
        )

    def _fits_reservation(self) -> bool:
        """Return whether a capacity reservation has room for the nodes, which only shows when they start."""
        if self.capacity_type != "CAPACITY_BLOCK":
            return True
        target = (
            template_data(self.template)
            .get("CapacityReservationSpecification", {})
            .get("CapacityReservationTarget", {})
        )
        expected = target.get("CapacityReservationId")
        held = next(
            (
                one
                for one in self.world.reservations.get(self.cluster.region, [])
                if one["CapacityReservationId"] == expected
            ),
            None,
        )
        reason = _why_not(held, self, str(expected)) if self.scaling["desiredSize"] else ""
        if reason:
            self.fail("CREATE_FAILED", "AsgInstanceLaunchFailures", f"Could not launch On-Demand Instances. {reason}")
        return not reason


def _why_not(held: Json | None, group: NodeGroup, expected: str) -> str:
    zones = {group.world.ec2(group.cluster.region).get_subnet(subnet).availability_zone for subnet in group.subnets}
    if held is None:
        return f"InvalidCapacityReservationId.NotFound - The capacity reservation ID '{expected}' does not exist."
    if held["State"] != "active" or held.get("ReservationType") != "capacity-block":
        return f"ReservationCapacityExceeded - The capacity reservation {expected} is not an active Capacity Block."
    if held["InstanceType"] != group.instance_type() or held["AvailabilityZone"] not in zones:
        return f"ReservationCapacityExceeded - The requested configuration does not match the reservation {expected}."
    if group.scaling["desiredSize"] > held["AvailableInstanceCount"]:
        return (
            f"ReservationCapacityExceeded - The requested reservation does not have sufficient capacity ({expected})."
        )
    return ""


def template_data(template: Json | None) -> Json:
    return template["data"] if template else {}


def _template(world: World, call: Call, asked: Json | None) -> Json | None:
    """A launch template with its id, its name, the number of its version and its data."""
    if asked is None:
        return None
    if bool(asked.get("id")) == bool(asked.get("name")):
        raise invalid(
            "You must specify either the launch template ID or the launch template name in the request, but not both."
        )
    for template in world.ec2(call.region).launch_templates.values():
        if asked.get("id") == template.id or asked.get("name") == template.name:
            break
    else:
        raise invalid(
            f"Launch template {asked.get('id') or asked['name']} not found (InvalidLaunchTemplate.NotFoundException)"
        )
    version = str(asked.get("version") or "$Default")
    number = {"$Latest": len(template.versions), "$Default": template.default_version_number}.get(version) or version
    found = next((one for one in template.versions if str(one.number) == str(number)), None)
    if found is None:
        raise invalid(f"Launch template {template.name} has no version {version}")
    return {"id": template.id, "name": template.name, "version": str(number), "data": found.data}


def _check_template(asked: Json, data: Json) -> None:
    capacity_block = data.get("InstanceMarketOptions", {}).get("MarketType") == "capacity-block"
    if asked.get("diskSize"):
        raise invalid("Disk size must be specified within the launch template.")
    if asked.get("remoteAccess"):
        raise invalid("Remote access configuration cannot be specified with a launch template.")
    if data.get("InstanceType") and asked.get("instanceTypes"):
        raise invalid("Cannot specify instance types in launch template and API request")
    if data.get("IamInstanceProfile") or any(one.get("SubnetId") for one in data.get("NetworkInterfaces", [])):
        raise invalid("Launch template should not specify an instance profile or a subnet")
    if data.get("ImageId") and asked.get("amiType", "CUSTOM") != "CUSTOM":
        raise invalid("You cannot specify an AMI Type other than CUSTOM with a launch template that has an image")
    if data.get("NetworkInterfaces") and data.get("SecurityGroupIds"):
        raise invalid("A launch template cannot have security groups beside network interfaces")
    if capacity_block != (asked.get("capacityType") == "CAPACITY_BLOCK"):
        raise invalid(
            "Capacity type CAPACITY_BLOCK goes with the market type capacity-block of the launch template, and only so"
        )
    if capacity_block and not data.get("CapacityReservationSpecification", {}).get("CapacityReservationTarget"):
        raise invalid("A launch template for a Capacity Block needs the target of its capacity reservation")
    if capacity_block and not data.get("InstanceType"):
        raise invalid("Capacity Blocks require the instance type in the launch template")


def _check_scaling(scaling: Json) -> None:
    least, most, desired = scaling["minSize"], scaling["maxSize"], scaling["desiredSize"]
    if least > desired:
        raise invalid(f"Minimum capacity {least} can't be greater than desired size {desired}")
    if desired > most:
        raise invalid(f"Desired capacity {desired} can't be greater than max size {most}")


def _check_instance_types(ami_type: str, names: list[str]) -> None:
    for name in names:
        kind = INSTANCE_TYPES.get(name)
        if kind is None:
            raise invalid(f"The following supplied instance types do not exist: [{name}]")
        architectures = kind.get("ProcessorInfo", {}).get("SupportedArchitectures", [])
        arm = "ARM_64" in ami_type.upper()
        if ami_type != "CUSTOM" and ("arm64" if arm else "x86_64") not in architectures:
            raise Refusal(
                "InvalidRequestException", f"[{name}] is not a valid instance type for requested amiType {ami_type}"
            )
        if ami_type in _GPU_IMAGES and "GpuInfo" not in kind:
            raise Refusal(
                "InvalidRequestException", f"[{name}] is not a valid instance type for requested amiType {ami_type}"
            )


def _check_labels(labels: Json) -> None:
    for name in labels:
        if name.startswith(("eks.amazonaws.com/", "kubernetes.io/", "k8s.io/")):
            raise invalid(f"Label key {name} has a reserved prefix")


def _check_tainted(taints: list[Json]) -> None:
    pairs = [(taint.get("key"), taint.get("effect")) for taint in taints]
    if len(set(pairs)) != len(pairs):
        raise invalid("Taints must be unique by key and effect")


@operation
def create_nodegroup(world: World, call: Call) -> Json:
    asked, cluster = call.parameters, cluster_of(world, call)
    name = asked["nodegroupName"]
    if name in cluster.node_groups:
        message = f"NodeGroup already exists with name {name} and cluster name {cluster.name}"
        raise Refusal("ResourceInUseException", message, 409)
    if cluster.status != "ACTIVE":
        raise Refusal("InvalidRequestException", f"Cluster '{cluster.name}' is not in ACTIVE status")
    for subnet in check_subnets(world, call, asked["subnets"]):
        if subnet.vpc_id != cluster.vpc:
            raise invalid(f"Subnet {subnet.id} is not in the VPC of the cluster")
    check_role(world, call, asked["nodeRole"], "ec2.amazonaws.com", _NODE_POLICIES)
    template = _template(world, call, asked.get("launchTemplate"))
    if template:
        _check_template(asked, template["data"])
    elif asked.get("capacityType") == "CAPACITY_BLOCK":
        raise invalid("Capacity type CAPACITY_BLOCK needs a launch template")
    if asked.get("version", cluster.version) > cluster.version:
        raise invalid("Nodegroup Kubernetes version cannot be newer than that of the cluster")
    _check_labels(asked.get("labels", {}))
    _check_tainted(asked.get("taints", []))
    group = NodeGroup(cluster, call, template)
    _check_scaling(group.scaling)
    _check_instance_types(group.ami_type, [group.instance_type(), *(group.instance_types or [])[1:]])
    cluster.node_groups[name] = group
    group.create(group.start)
    return {"nodegroup": group.wire()}


def _group(world: World, call: Call) -> Any:
    return kept(cluster_of(world, call).node_groups, call.parameters["nodegroupName"], "node group")


@operation
def describe_nodegroup(world: World, call: Call) -> Json:
    _group(world, call).observe()
    return {"nodegroup": _group(world, call).wire()}


@operation
def list_nodegroups(world: World, call: Call) -> Json:
    return page(call, "nodegroups", sorted(cluster_of(world, call).node_groups))


@operation
def delete_nodegroup(world: World, call: Call) -> Json:
    group = _group(world, call)
    at_rest(group, "Nodegroup")
    group.delete(group.stop)
    return {"nodegroup": group.wire()}


@operation
def update_nodegroup_config(world: World, call: Call) -> Json:
    group, asked = _group(world, call), call.parameters
    at_rest(group, "Nodegroup")
    scaling = group.scaling | asked.get("scalingConfig", {})
    _check_scaling(scaling)
    labels = group.labels | asked.get("labels", {}).get("addOrUpdateLabels", {})
    for name in asked.get("labels", {}).get("removeLabels", []):
        labels.pop(name, None)
    _check_labels(labels)
    taints = _changed_taints(group.taints, asked.get("taints", {}))

    def done() -> None:
        group.scaling, group.labels, group.taints = scaling, labels, taints
        group.update_config = {**group.update_config, **asked.get("updateConfig", {})}

    message: Json = {}
    for name, members in _UPDATE_PARAMETERS.items():
        message |= {kind: asked[name][member] for member, kind in members.items() if member in asked.get(name, {})}
    return {"update": group.begin("ConfigUpdate", message, done).wire()}


_UPDATE_PARAMETERS = {
    "labels": {"addOrUpdateLabels": "LabelsToAdd", "removeLabels": "LabelsToRemove"},
    "taints": {"addOrUpdateTaints": "TaintsToAdd", "removeTaints": "TaintsToRemove"},
    "scalingConfig": {"minSize": "MinSize", "maxSize": "MaxSize", "desiredSize": "DesiredSize"},
    "updateConfig": {"maxUnavailable": "MaxUnavailable", "maxUnavailablePercentage": "MaxUnavailablePercentage"},
}


def _changed_taints(have: list[Json], asked: Json) -> list[Json]:
    def key(taint: Json) -> tuple[Any, Any]:
        return taint.get("key"), taint.get("effect")

    for taint in asked.get("removeTaints", []):
        if key(taint) not in map(key, have):
            raise invalid(f"Taint {key(taint)} is not there and cannot be removed")
    new = asked.get("addOrUpdateTaints", [])
    _check_tainted([*new, *asked.get("removeTaints", [])])
    dropped = {key(taint) for taint in (*new, *asked.get("removeTaints", []))}
    return [taint for taint in have if key(taint) not in dropped] + new


@operation
def update_nodegroup_version(world: World, call: Call) -> Json:
    group, asked = _group(world, call), call.parameters
    at_rest(group, "Nodegroup")
    if group.capacity_type == "CAPACITY_BLOCK" and group.scaling["desiredSize"]:
        # "When upgrading ... be sure to set the desired size to 0" (Amazon EKS User Guide, "Create a managed node group
        # with Capacity Blocks for ML"): there is no room for new nodes beside the old ones.
        raise Refusal("InvalidRequestException", "The Capacity Block has no room for the nodes of an update")
    template = _template(world, call, asked.get("launchTemplate"))
    if template and not group.template:
        raise invalid("You cannot specify a launch template for a node group that was made without one")
    if template and template["id"] != group.template["id"]:
        raise invalid("Launch template cannot be changed to another one, only to another version of it")
    if template and template["data"].get("InstanceType") != template_data(group.template).get("InstanceType"):
        raise invalid("You cannot change the instance type of a node group through its launch template")
    if template:
        created_with = {"capacityType": group.capacity_type if group.capacity_type == "CAPACITY_BLOCK" else None}
        _check_template(created_with, template["data"])
    version = asked.get("version") or (group.version if template else group.cluster.version)
    if version > group.cluster.version:
        raise invalid("Nodegroup Kubernetes version cannot be newer than that of the cluster")
    if version < group.version:
        raise invalid(f"Requested Nodegroup version {version} is older than {group.version}")

    def done() -> None:
        group.version, group.template, group.modified = version, template or group.template, now()

    message = {"Version": version, "ReleaseVersion": f"{version}.2-20261101"}
    if template:
        message |= {"LaunchTemplateName": template["name"], "LaunchTemplateVersion": template["version"]}
    return {"update": group.begin("VersionUpdate", message, done).wire()}
