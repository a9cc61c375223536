# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Clusters of EKS and their updates, as the API reference of EKS and its user guide have them."""

from __future__ import annotations

import ipaddress
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from . import authority, interfaces
from .account import ACCOUNT, OPERATIONS, Account, Region, Staged, encoded, hexadecimal, now, pages
from .wire import Asked, AwsError

if TYPE_CHECKING:
    from .eks_access import AccessEntry, PodIdentity
    from .eks_addons import Addon
    from .eks_nodegroups import NodeGroup

# Oldest first; in standard support are the newest four (EKS: "Kubernetes version lifecycle").
VERSIONS = ("1.31", "1.32", "1.33", "1.34", "1.35", "1.36")
DEFAULT_VERSION = "1.36"
# Zones in which EKS places no control plane (EKS user guide, "Subnet requirements for clusters").
UNSUPPORTED_ZONES = frozenset({"use1-az3", "usw1-az2", "cac1-az3"})
_PRIVATE = [ipaddress.ip_network(each) for each in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")]
_NEXT_MODES = {"CONFIG_MAP": ("API_AND_CONFIG_MAP",), "API_AND_CONFIG_MAP": ("API",), "API": ()}
_LOG_TYPES = ["api", "audit", "authenticator", "controllerManager", "scheduler"]


@dataclass
class Update(Staged):
    """An asynchronous change of a cluster, a node group or an addon."""

    kind: str
    parameters: Mapping[str, str]
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    status: str = "InProgress"
    errors: list[dict[str, Any]] = field(default_factory=list)
    created: Any = field(default_factory=now)

    def describe(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "status": self.status,
            "type": self.kind,
            "params": [{"type": name, "value": value} for name, value in self.parameters.items()],
            "createdAt": self.created,
            "errors": self.errors,
        }

    def end(self, issues: list[dict[str, Any]] | None = None) -> None:
        """It is over; with `issues` it failed."""
        self.status = "Failed" if issues else "Successful"
        self.errors = [
            {"errorCode": issue["code"], "errorMessage": issue["message"], "resourceIds": issue.get("resourceIds", [])}
            for issue in issues or []
        ]


@dataclass
class Cluster(Staged):
    region: Region
    name: str
    version: str
    role_arn: str
    subnets: list[str]
    vpc_id: str
    security_groups: list[str]
    own_group: str
    network: dict[str, Any]
    public: bool
    private: bool
    public_cidrs: list[str]
    mode: str
    bootstrap_admin: bool
    self_managed_addons: bool
    tags: dict[str, str]
    creator: str
    logging: dict[str, Any]
    interfaces: list[str] = field(default_factory=list)
    status: str = "CREATING"
    issues: list[dict[str, Any]] = field(default_factory=list)
    created: Any = field(default_factory=now)
    id: str = field(default_factory=lambda: hexadecimal(32).upper())
    node_groups: dict[str, NodeGroup] = field(default_factory=dict)
    addons: dict[str, Addon] = field(default_factory=dict)
    identities: dict[str, PodIdentity] = field(default_factory=dict)
    entries: dict[str, AccessEntry] = field(default_factory=dict)
    updates: dict[str, Update] = field(default_factory=dict)

    @property
    def arn(self) -> str:
        return f"arn:aws:eks:{self.region.name}:{ACCOUNT}:cluster/{self.name}"

    def minor(self) -> int:
        return minor(self.version)

    def describe(self, account: Account) -> dict[str, Any]:
        described: dict[str, Any] = {
            "name": self.name,
            "arn": self.arn,
            "createdAt": self.created,
            "version": self.version,
            "platformVersion": "eks.1",
            "roleArn": self.role_arn,
            "resourcesVpcConfig": {
                "subnetIds": self.subnets,
                "securityGroupIds": self.security_groups,
                "vpcId": self.vpc_id,
                "endpointPublicAccess": self.public,
                "endpointPrivateAccess": self.private,
                "publicAccessCidrs": self.public_cidrs,
            },
            "kubernetesNetworkConfig": self.network,
            "logging": self.logging,
            "status": self.status,
            "tags": self.tags,
            "health": {"issues": self.issues},
            "accessConfig": {
                "authenticationMode": self.mode,
                "bootstrapClusterCreatorAdminPermissions": self.bootstrap_admin,
            },
            "upgradePolicy": {"supportType": "EXTENDED"},
            "deletionProtection": False,
        }
        if self.status not in ("CREATING", "FAILED"):
            issuer = f"https://oidc.eks.{self.region.name}.amazonaws.com/id/{self.id}"
            served = account.served.get(self.name)
            endpoint = f"https://{self.id}.gr7.{self.region.name}.eks.amazonaws.com"
            described["resourcesVpcConfig"]["clusterSecurityGroupId"] = self.own_group
            described["endpoint"] = served.server if served else endpoint
            described["certificateAuthority"] = {"data": encoded(served.ca_pem if served else authority.certificate())}
            described["identity"] = {"oidc": {"issuer": issuer}}
        return described

    def change(self, account: Account, update: Update, apply: Any) -> Update:
        """Start an update of the cluster itself; `apply` is done when it ends well."""
        self.updates[update.id] = update
        self.status = "UPDATING"

        def finish() -> None:
            ending = account.ending("update", self.name)
            update.end([dict(issue) for issue in ending.issues] if ending else None)
            if not ending:
                apply()
            self.status = "ACTIVE"

        def done() -> None:
            if update.status == "InProgress":
                finish()

        self.begin(account.looks("update"), done)
        update.begin(account.looks("update"), done)
        return update


def minor(version: str) -> int:
    return int(version.split(".")[1])


def find(account: Account, asked: Asked, key: str = "clusterName") -> Cluster:
    """The cluster that is meant. Raises ResourceNotFoundException."""
    name = asked.parameters[key]
    cluster = account.region(asked.region).clusters.get(name)
    if cluster is None:
        raise AwsError("ResourceNotFoundException", f"No cluster found for name: {name}.", clusterName=name)
    return cluster


def find_active(account: Account, asked: Asked, key: str = "clusterName") -> Cluster:
    """The cluster that is meant, which must not be made, changed or deleted at the moment."""
    cluster = find(account, asked, key)
    if cluster.status == "UPDATING":
        raise AwsError(
            "ResourceInUseException",
            f"Cluster {cluster.name} currently has an update in progress",
            clusterName=cluster.name,
        )
    if cluster.status != "ACTIVE":
        raise AwsError("InvalidRequestException", f"Cluster '{cluster.name}' is not in ACTIVE status")
    return cluster


def invalid(message: str, **members: Any) -> AwsError:
    return AwsError("InvalidParameterException", message, **members)


@OPERATIONS.answers("eks", "CreateCluster")
def create_cluster(account: Account, asked: Asked) -> dict[str, Any]:
    given = asked.parameters
    region = account.region(asked.region)
    known = region.clusters.get(given["name"])
    if known is not None:
        raise AwsError(
            "ResourceInUseException", f"Cluster already exists with name: {given['name']}", clusterName=given["name"]
        )
    if not account.usable(given["roleArn"], "eks.amazonaws.com", "sts:AssumeRole"):
        raise invalid(
            f"Role with arn: {given['roleArn']}, could not be assumed because it does not exist or the trusted entity "
            "is not correct"
        )
    version = given.get("version", DEFAULT_VERSION)
    if version not in VERSIONS:
        raise invalid(f"unsupported Kubernetes version {version}")
    wanted = given["resourcesVpcConfig"]
    vpc_id = _check_subnets(region, wanted.get("subnetIds", []))
    _check_groups(region, vpc_id, wanted.get("securityGroupIds", []))
    public, private = wanted.get("endpointPublicAccess", True), wanted.get("endpointPrivateAccess", False)
    _check_access(public, private, wanted.get("publicAccessCidrs", []))
    access = given.get("accessConfig", {})
    cluster = Cluster(
        region=region,
        name=given["name"],
        version=version,
        role_arn=given["roleArn"],
        subnets=list(wanted["subnetIds"]),
        vpc_id=vpc_id,
        security_groups=list(wanted.get("securityGroupIds", [])),
        own_group=_own_group(region, account, given["name"], vpc_id),
        network=_network(region, vpc_id, given.get("kubernetesNetworkConfig", {})),
        public=public,
        private=private,
        public_cidrs=list(wanted.get("publicAccessCidrs") or (["0.0.0.0/0"] if public else [])),
        mode=access.get("authenticationMode", "CONFIG_MAP"),
        bootstrap_admin=access.get("bootstrapClusterCreatorAdminPermissions", True),
        self_managed_addons=given.get("bootstrapSelfManagedAddons", True),
        tags=dict(given.get("tags", {})),
        creator=asked.access_key,
        logging=given.get("logging") or {"clusterLogging": [{"types": _LOG_TYPES, "enabled": False}]},
    )
    region.clusters[cluster.name] = cluster
    _admit_creator(account, cluster)
    cluster.begin(account.looks("cluster"), lambda: _created(account, cluster))
    return {"cluster": cluster.describe(account)}


def _created(account: Account, cluster: Cluster) -> None:
    ending = account.ending("cluster", cluster.name)
    cluster.status = ending.status if ending else "ACTIVE"
    cluster.issues = [dict(issue) for issue in ending.issues] if ending else []
    if ending:
        return
    groups = [cluster.own_group, *cluster.security_groups]
    for subnet in cluster.subnets[:2]:
        cluster.interfaces.append(interfaces.make(cluster.region, subnet, f"Amazon EKS {cluster.name}", groups).id)


def _check_subnets(region: Region, subnets: list[str]) -> str:
    """The VPC of the subnets of a cluster. Raises AwsError."""
    if not subnets:
        raise invalid("subnets cannot be empty")
    found = []
    for subnet_id in subnets:
        subnet = region.subnet(subnet_id)
        if subnet is None:
            raise invalid(f"The subnet ID '{subnet_id}' does not exist")
        found.append(subnet)
    if len({subnet.vpc_id for subnet in found}) > 1:
        raise invalid("Subnets specified must belong to the same VPC")
    refused = sorted({subnet.availability_zone for subnet in found if subnet.availability_zone_id in UNSUPPORTED_ZONES})
    if refused:
        usable = [
            zone.name for zone in region.ec2.describe_availability_zones() if zone.zone_id not in UNSUPPORTED_ZONES
        ]
        raise AwsError(
            "UnsupportedAvailabilityZoneException",
            f"Cannot create cluster because {', '.join(refused)}, the targeted availability zone, does not currently "
            f"have sufficient capacity to support the cluster. Retry and choose from these availability zones: "
            f"{', '.join(usable)}",
            validZones=usable,
        )
    if len({subnet.availability_zone for subnet in found}) < 2:
        raise invalid("Subnets specified must be in at least two different AZs")
    return str(found[0].vpc_id)


def _check_groups(region: Region, vpc_id: str, groups: list[str]) -> None:
    for group_id in groups:
        group = region.ec2.get_security_group_from_id(group_id)
        if group is None or group.vpc_id != vpc_id:
            raise invalid(f"Security group(s) [{group_id}] are not in the same VPC as the subnets.")


def _check_access(public: bool, private: bool, cidrs: list[str]) -> None:
    if not public and not private:
        raise invalid("Private and public endpoint access cannot be false")
    if cidrs and not public:
        raise invalid("You must enable public access to specify public access CIDRs")
    for cidr in cidrs:
        try:
            network = ipaddress.ip_network(cidr)
        except ValueError as error:
            raise invalid(f"The following CIDRs are invalid: {cidr}") from error
        if any(network.overlaps(reserved) for reserved in _PRIVATE) and network.prefixlen:
            raise invalid(f"The following CIDRs are not allowed in publicAccessCidrs: {cidr}")


def _network(region: Region, vpc_id: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The network of services: given, or the one of two that does not overlap with the VPC (EKS API reference)."""
    vpc = ipaddress.ip_network(region.ec2.vpcs[vpc_id].cidr_block)
    own = given.get("serviceIpv4Cidr")
    if own and ipaddress.ip_network(own).overlaps(vpc):
        raise invalid(f"The serviceIpv4Cidr {own} overlaps with the CIDR block of the VPC")
    default = "172.20.0.0/16" if not ipaddress.ip_network("172.20.0.0/16").overlaps(vpc) else "10.100.0.0/16"
    return {
        "serviceIpv4Cidr": own or default,
        "ipFamily": given.get("ipFamily", "ipv4"),
        "elasticLoadBalancing": {"enabled": False},
    }


def _own_group(region: Region, account: Account, name: str, vpc_id: str) -> str:
    """The security group that EKS makes for a cluster, in moto."""
    group_name = f"eks-cluster-sg-{name}-{account.number():010d}"
    group = region.ec2.create_security_group(
        group_name,
        "EKS created security group applied to ENI that is attached to EKS Control Plane master nodes, as well as any "
        "managed workloads.",
        vpc_id=vpc_id,
        tags={"Name": group_name, f"kubernetes.io/cluster/{name}": "owned", "aws:eks:cluster-name": name},
    )
    region.ec2.authorize_security_group_ingress(
        group.id, "-1", "-1", "-1", [], {}, [{"GroupId": group.id}], vpc_id=vpc_id
    )
    return str(group.id)


def _admit_creator(account: Account, cluster: Cluster) -> None:
    from .eks_access import ADMIN_POLICY, AccessEntry

    if cluster.bootstrap_admin and cluster.mode != "CONFIG_MAP":
        creator = account.principals[cluster.creator].entry
        entry = AccessEntry(cluster.name, cluster.region.name, creator, "STANDARD", creator, [], {})
        entry.policies[ADMIN_POLICY] = {"type": "cluster", "namespaces": []}
        cluster.entries[creator] = entry


@OPERATIONS.answers("eks", "DescribeCluster")
def describe_cluster(account: Account, asked: Asked) -> dict[str, Any]:
    find(account, asked, "name").look()
    return {"cluster": find(account, asked, "name").describe(account)}


@OPERATIONS.answers("eks", "ListClusters")
def list_clusters(account: Account, asked: Asked) -> dict[str, Any]:
    return pages(asked, "clusters", sorted(account.region(asked.region).clusters))


@OPERATIONS.answers("eks", "DeleteCluster")
def delete_cluster(account: Account, asked: Asked) -> dict[str, Any]:
    cluster = find(account, asked, "name")
    if cluster.node_groups:
        raise AwsError(
            "ResourceInUseException",
            "Cluster has nodegroups attached",
            clusterName=cluster.name,
            nodegroupName=",".join(sorted(cluster.node_groups)),
        )
    if cluster.status in ("CREATING", "UPDATING", "DELETING"):
        raise AwsError("ResourceInUseException", f"Cluster is in {cluster.status} status", clusterName=cluster.name)
    cluster.status = "DELETING"
    cluster.begin(account.looks("cluster"), lambda: _deleted(account, cluster))
    return {"cluster": cluster.describe(account)}


def _deleted(account: Account, cluster: Cluster) -> None:
    interfaces.remove(account, cluster.region, cluster.interfaces)
    # EKS does not wait for who uses the group, and leaves it then.
    if not interfaces.holds_group(cluster.region, cluster.own_group):
        cluster.region.ec2.delete_security_group(group_id=cluster.own_group)
    del cluster.region.clusters[cluster.name]


@OPERATIONS.answers("eks", "UpdateClusterVersion")
def update_cluster_version(account: Account, asked: Asked) -> dict[str, Any]:
    cluster = find_active(account, asked, "name")
    version = asked.parameters["version"]
    if version not in VERSIONS:
        raise invalid(f"unsupported Kubernetes version {version}")
    if version == cluster.version:
        raise invalid(f"Cluster is already at version {version}")
    if minor(version) != cluster.minor() + 1:
        raise invalid(f"Unsupported Kubernetes minor version update from {cluster.version} to {version}")
    old = sorted(name for name, group in cluster.node_groups.items() if minor(group.version) < minor(version) - 3)
    if old:
        raise AwsError(
            "InvalidRequestException",
            f"Kubelet version of Fargate pods or of node groups {', '.join(old)} must be updated to match the cluster "
            "version before updating the cluster",
        )
    update = Update("VersionUpdate", {"Version": version, "PlatformVersion": "eks.1"})
    cluster.change(account, update, lambda: setattr(cluster, "version", version))
    return {"update": update.describe()}


@OPERATIONS.answers("eks", "UpdateClusterConfig")
def update_cluster_config(account: Account, asked: Asked) -> dict[str, Any]:
    cluster = find_active(account, asked, "name")
    given = {name: value for name, value in asked.parameters.items() if name not in ("name", "clientRequestToken")}
    if len(given) != 1:
        raise invalid("Only one type of update can be allowed." if given else "No changes needed for the update.")
    kind, wanted = next(iter(given.items()))
    if kind == "resourcesVpcConfig":
        update = _change_network(account, cluster, wanted)
    elif kind == "accessConfig":
        update = _change_access(account, cluster, wanted)
    elif kind == "logging":
        update = Update("LoggingUpdate", {"ClusterLogging": str(wanted)})
        cluster.change(account, update, lambda: setattr(cluster, "logging", wanted))
    else:
        raise invalid(f"the double does not change {kind}")
    return {"update": update.describe()}


def _change_network(account: Account, cluster: Cluster, wanted: Mapping[str, Any]) -> Update:
    ends = {"endpointPublicAccess", "endpointPrivateAccess", "publicAccessCidrs"} & set(wanted)
    places = {"subnetIds", "securityGroupIds"} & set(wanted)
    if ends and places:
        raise invalid("Only one type of update can be allowed.")
    if places:
        subnets = list(wanted.get("subnetIds", cluster.subnets))
        groups = list(wanted.get("securityGroupIds", cluster.security_groups))
        if _check_subnets(cluster.region, subnets) != cluster.vpc_id:
            raise invalid("Subnets specified must belong to the VPC of the cluster")
        _check_groups(cluster.region, cluster.vpc_id, groups)
        new: dict[str, Any] = {"subnets": subnets, "security_groups": groups}
        update = Update("VpcConfigUpdate", {"Subnets": str(subnets), "SecurityGroups": str(groups)})
    else:
        new = {
            "public": wanted.get("endpointPublicAccess", cluster.public),
            "private": wanted.get("endpointPrivateAccess", cluster.private),
        }
        kept = cluster.public_cidrs or ["0.0.0.0/0"]
        new["public_cidrs"] = list(wanted.get("publicAccessCidrs", kept)) if new["public"] else []
        _check_access(new["public"], new["private"], wanted.get("publicAccessCidrs", []))
        update = Update(
            "EndpointAccessUpdate",
            {
                "EndpointPublicAccess": str(new["public"]).lower(),
                "EndpointPrivateAccess": str(new["private"]).lower(),
                "PublicAccessCidrs": str(new["public_cidrs"]),
            },
        )
    if all(_same(getattr(cluster, name), value) for name, value in new.items()):
        raise invalid("Cluster is already at the desired configuration")
    return cluster.change(account, update, lambda: vars(cluster).update(new))


def _same(one: Any, other: Any) -> bool:
    return sorted(one) == sorted(other) if isinstance(one, list) else bool(one == other)


def _change_access(account: Account, cluster: Cluster, wanted: Mapping[str, Any]) -> Update:
    mode = wanted.get("authenticationMode")
    if mode == cluster.mode or mode is None:
        raise invalid(f"Unsupported authentication mode update from {cluster.mode} to {mode}")
    if mode not in _NEXT_MODES[cluster.mode]:
        raise invalid(f"Unsupported authentication mode update from {cluster.mode} to {mode}")

    def apply() -> None:
        cluster.mode = mode
        _admit_creator(account, cluster)

    return cluster.change(account, Update("AccessConfigUpdate", {"AuthenticationMode": mode}), apply)


def _updates(account: Account, asked: Asked) -> dict[str, Update]:
    cluster = find(account, asked, "name")
    group, addon = asked.parameters.get("nodegroupName"), asked.parameters.get("addonName")
    if group:
        if group not in cluster.node_groups:
            raise AwsError("ResourceNotFoundException", f"No node group found for name: {group}.", nodegroupName=group)
        return cluster.node_groups[group].updates
    if addon:
        if addon not in cluster.addons:
            raise AwsError("ResourceNotFoundException", f"No addon: {addon} found in cluster: {cluster.name}")
        return cluster.addons[addon].updates
    return cluster.updates


@OPERATIONS.answers("eks", "DescribeUpdate")
def describe_update(account: Account, asked: Asked) -> dict[str, Any]:
    update = _updates(account, asked).get(asked.parameters["updateId"])
    if update is None:
        raise AwsError("ResourceNotFoundException", f"No update found for ID: {asked.parameters['updateId']}")
    update.look()
    return {"update": update.describe()}


@OPERATIONS.answers("eks", "ListUpdates")
def list_updates(account: Account, asked: Asked) -> dict[str, Any]:
    return pages(asked, "updateIds", list(_updates(account, asked)))


@OPERATIONS.answers("eks", "DescribeClusterVersions")
def describe_cluster_versions(_account: Account, asked: Asked) -> dict[str, Any]:
    wanted = asked.parameters.get("clusterVersions") or VERSIONS
    found = []
    for version in reversed(VERSIONS):
        standard = version in VERSIONS[-4:]
        said = "STANDARD_SUPPORT" if standard else "EXTENDED_SUPPORT"
        statuses = (asked.parameters.get("versionStatus") or said, (asked.parameters.get("status") or said).upper())
        default = asked.parameters.get("defaultOnly") and version != DEFAULT_VERSION
        if version in wanted and set(statuses) == {said} and not default:
            found.append(
                {
                    "clusterVersion": version,
                    "clusterType": "eks",
                    "defaultPlatformVersion": "eks.1",
                    "defaultVersion": version == DEFAULT_VERSION,
                    "status": said.lower().replace("_", "-"),
                    "versionStatus": said,
                    "kubernetesPatchVersion": f"{version}.3",
                }
            )
    return pages(asked, "clusterVersions", found)


def tagged(account: Account, asked: Asked) -> dict[str, str]:
    """The tags of the object of EKS that an ARN names. Raises NotFoundException."""
    arn = asked.parameters["resourceArn"]
    for cluster in account.region(asked.region).clusters.values():
        parts = (cluster.node_groups, cluster.addons, cluster.identities, cluster.entries)
        for thing in [cluster, *(thing for part in parts for thing in part.values())]:
            if thing.arn == arn:
                return thing.tags
    raise AwsError("NotFoundException", f"{arn} does not exist")


@OPERATIONS.answers("eks", "TagResource")
def tag_resource(account: Account, asked: Asked) -> dict[str, Any]:
    tagged(account, asked).update(asked.parameters["tags"])
    return {}


@OPERATIONS.answers("eks", "UntagResource")
def untag_resource(account: Account, asked: Asked) -> dict[str, Any]:
    tags = tagged(account, asked)
    for key in asked.parameters["tagKeys"]:
        tags.pop(key, None)
    return {}


@OPERATIONS.answers("eks", "ListTagsForResource")
def list_tags_for_resource(account: Account, asked: Asked) -> dict[str, Any]:
    return {"tags": tagged(account, asked)}
