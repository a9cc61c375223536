# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""EKS: clusters, their updates and tags. Node groups, addons and identities have files of their own.

moto's EKS knows 17 of 70 operations and no state but ACTIVE, so that it is not used.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.modelplane.fleet.tests.cloud.authority import authority, now
from ansible_collections.modelplane.fleet.tests.cloud.refusals import Refusal
from moto.ec2.models.availability_zones_and_regions import RegionsAndZonesBackend

from .wire import Call
from .world import ACCOUNT, Changing, Json, World, of_region

Handler = Callable[[World, Call], Json]
HANDLERS: dict[str, Handler] = {}

_SECURITY_GROUP_TEXT = (
    "EKS created security group applied to ENI that is attached to EKS Control Plane master nodes, as well as any"
    " managed workloads."
)
_MODES = ("CONFIG_MAP", "API_AND_CONFIG_MAP", "API")
_SKEW = 3
# So many refused changes count as one read of an object.
_REFUSALS = 5
_NO_CONTROL_PLANE = ("use1-az3", "usw1-az2", "cac1-az3")
_LOG_TYPES = ["api", "audit", "authenticator", "controllerManager", "scheduler"]


def operation(handler: Handler) -> Handler:
    """Registers a function as the operation that it is named after."""
    HANDLERS["".join(part.capitalize() for part in handler.__name__.strip("_").split("_"))] = handler
    return handler


class Update(Changing):
    """A change under way: of a cluster, a node group or an addon."""

    def __init__(self, kind: str, parameters: Mapping[str, Any]) -> None:
        self.id = str(uuid.uuid4())
        self.kind, self.status, self.created = kind, "InProgress", now()
        self.parameters = [{"type": name, "value": str(value)} for name, value in parameters.items()]
        self.errors: list[Json] = []

    def wire(self) -> Json:
        return {
            "id": self.id,
            "status": self.status,
            "type": self.kind,
            "params": self.parameters,
            "createdAt": self.created,
            "errors": self.errors,
        }


class Resource(Changing):
    """An object with a state and its updates, one at a time."""

    kind = ""

    def __init__(self, world: World, name: str, tags: Mapping[str, str] | None) -> None:
        self.world, self.name = world, name
        self.tags = dict(tags or {})
        self.status = "CREATING"
        self.created = self.modified = now()
        self.issues: list[Json] = []
        self.updates: dict[str, Update] = {}
        self.gone = False
        self.refused = 0

    def create(self, done: Callable[[], None]) -> None:
        def finish() -> None:
            failure = self.world.failure(self.kind, self.name)
            if failure:
                self.fail("CREATE_FAILED" if self.kind != "cluster" else "FAILED", failure["code"], failure["message"])
            else:
                self.status = "ACTIVE"
                done()

        self.world.after_phases(self, finish)

    def fail(self, status: str, code: str, message: str) -> None:
        self.status = status
        self.issues = [{"code": code, "message": message, "resourceIds": [self.name]}]

    def begin(self, kind: str, parameters: Mapping[str, Any], done: Callable[[], None]) -> Update:
        """Starts an update. Only an object at rest takes one."""
        update = Update(kind, parameters)
        before, self.status = self.status, "UPDATING"

        def finish() -> None:
            failure = self.world.failure("update", self.name)
            self.status, update.transition = before, None
            if failure:
                update.status = "Failed"
                update.errors = [
                    {"errorCode": failure["code"], "errorMessage": failure["message"], "resourceIds": [self.name]}
                ]
                return
            update.status, self.modified = "Successful", now()
            done()

        self.world.after_phases(self, finish)
        # An update and its object have one course: whichever is described, both go on.
        update.observe = self.observe  # type: ignore[method-assign]
        self.updates[update.id] = update
        return update

    def delete(self, done: Callable[[], None]) -> None:
        def finish() -> None:
            failure = self.world.failure(f"delete {self.kind}", self.name)
            if failure:
                self.fail("DELETE_FAILED" if self.kind != "cluster" else "FAILED", failure["code"], failure["message"])
                return
            self.gone = True
            done()

        self.status = "DELETING"
        self.world.after_phases(self, finish)


class Cluster(Resource):
    kind = "cluster"

    def __init__(self, world: World, call: Call) -> None:
        asked = call.parameters
        super().__init__(world, asked["name"], asked.get("tags"))
        self.region = call.region
        self.arn = f"arn:{call.partition}:eks:{call.region}:{ACCOUNT}:cluster/{self.name}"
        self.role, self.version = asked["roleArn"], asked.get("version") or world.settings.versions[-1]
        network = asked["resourcesVpcConfig"]
        self.subnets = list(network["subnetIds"])
        self.security_groups = list(network.get("securityGroupIds", []))
        self.public = network.get("endpointPublicAccess", True)
        self.private = network.get("endpointPrivateAccess", False)
        self.public_cidrs = list(network.get("publicAccessCidrs") or ["0.0.0.0/0"])
        self.vpc = world.ec2(call.region).get_subnet(self.subnets[0]).vpc_id
        self.mode = asked.get("accessConfig", {}).get("authenticationMode", "CONFIG_MAP")
        self.bootstrap_admin = asked.get("accessConfig", {}).get("bootstrapClusterCreatorAdminPermissions", True)
        self.logging = asked.get("logging") or {"clusterLogging": [{"types": _LOG_TYPES, "enabled": False}]}
        self.support = asked.get("upgradePolicy", {}).get("supportType", "EXTENDED")
        self.kubernetes_network = {
            "serviceIpv4Cidr": asked.get("kubernetesNetworkConfig", {}).get("serviceIpv4Cidr", "172.20.0.0/16"),
            "ipFamily": asked.get("kubernetesNetworkConfig", {}).get("ipFamily", "ipv4"),
        }
        self.encryption = asked.get("encryptionConfig", [])
        self.creator = world.principal(call.partition, call.access_key)
        self.protected = asked.get("deletionProtection", False)
        self.token = world.token(32, "0123456789ABCDEF")
        self.security_group = ""
        self.interfaces: list[str] = []
        self.node_groups: dict[str, Any] = {}
        self.addons: dict[str, Any] = {}
        self.associations: dict[str, Json] = {}
        self.entries: dict[str, Json] = {}

    def start(self) -> None:
        """Create what EKS makes in the VPC: its security group, and interfaces in two of the subnets."""
        ec2 = self.world.ec2(self.region)
        tags = {
            "Name": f"eks-cluster-sg-{self.name}-{self.world.number()}",
            f"kubernetes.io/cluster/{self.name}": "owned",
            "aws:eks:cluster-name": self.name,
        }
        group = ec2.create_security_group(tags["Name"], _SECURITY_GROUP_TEXT, vpc_id=self.vpc)
        set_tags(ec2, group.id, tags)
        self.security_group = group.id
        zones: dict[str, str] = {}
        for subnet in self.subnets:
            zones.setdefault(ec2.get_subnet(subnet).availability_zone, subnet)
        for subnet in list(zones.values())[:2]:
            interface = ec2.create_network_interface(
                ec2.get_subnet(subnet),
                None,
                group_ids=[group.id, *self.security_groups],
                description=f"Amazon EKS {self.name}",
            )
            interface.status, interface.requester_managed = "in-use", True
            self.interfaces.append(interface.id)

    def stop(self) -> None:
        ec2 = self.world.ec2(self.region)
        for interface in self.interfaces:
            ec2.enis.pop(interface, None)
        # A group that an interface of another owner still has stays behind.
        if not any(self.security_group in group_ids(one) for one in ec2.enis.values()):
            for groups in ec2.groups.values():
                groups.pop(self.security_group, None)
        del self.world.clusters[(self.region, self.name)]

    def wire(self) -> Json:
        reported: Json = {
            "name": self.name,
            "arn": self.arn,
            "createdAt": self.created,
            "version": self.version,
            "roleArn": self.role,
            "resourcesVpcConfig": {
                "subnetIds": self.subnets,
                "securityGroupIds": self.security_groups,
                "vpcId": self.vpc,
                "endpointPublicAccess": self.public,
                "endpointPrivateAccess": self.private,
                "publicAccessCidrs": self.public_cidrs if self.public else [],
            },
            "kubernetesNetworkConfig": self.kubernetes_network,
            "logging": self.logging,
            "status": self.status,
            "certificateAuthority": {},
            "platformVersion": "eks.9",
            "tags": self.tags,
            "health": {"issues": self.issues},
            "accessConfig": {"authenticationMode": self.mode},
            "upgradePolicy": {"supportType": self.support},
            "deletionProtection": self.protected,
        }
        if self.encryption:
            reported["encryptionConfig"] = self.encryption
        if self.security_group:
            server, authority_pem = self.world.servers.get(self.name) or self.world.servers.get("") or ("", "")
            reported["resourcesVpcConfig"]["clusterSecurityGroupId"] = self.security_group
            reported["endpoint"] = server or f"https://{self.token}.gr7.{self.region}.eks.amazonaws.com"
            data = base64.b64encode(authority_pem.encode()).decode() if authority_pem else authority()
            reported["certificateAuthority"] = {"data": data}
            reported["identity"] = {"oidc": {"issuer": f"https://oidc.eks.{self.region}.amazonaws.com/id/{self.token}"}}
        return reported


def set_tags(ec2: Any, resource: str, tags: Mapping[str, str]) -> None:
    """Tags, also such that only AWS itself may set."""
    ec2.tags[resource].update(tags)


def group_ids(interface: Any) -> list[str]:
    return [group.id for group in interface.group_set]


def cluster_of(world: World, call: Call, name: str = "", active: bool = False) -> Cluster:
    desired = name or call.parameters.get("name") or call.parameters["clusterName"]
    cluster = world.clusters.get((call.region, desired))
    if cluster is None:
        raise Refusal("ResourceNotFoundException", f"No cluster found for name: {desired}.", 404)
    if active and cluster.status not in ("ACTIVE", "UPDATING"):
        raise Refusal("InvalidRequestException", f"Cluster '{desired}' is not in ACTIVE status")
    return cluster  # type: ignore[no-any-return]


def at_rest(thing: Resource, what: str) -> None:
    if thing.status in ("CREATING", "UPDATING", "DELETING"):
        message = f"{what} {thing.name} currently has an operation in progress ({thing.status})"
        thing.refused += 1
        # A change that is sent again and again is a way to wait, too.
        if thing.refused % _REFUSALS == 0:
            thing.observe()
        raise Refusal("ResourceInUseException", message, 409)


def invalid(message: str) -> Refusal:
    return Refusal("InvalidParameterException", message)


def check_role(world: World, call: Call, arn: str, trusted: str, policies: tuple[str, ...] = ()) -> None:
    """A role that is there, that the service may assume, and that has the managed policies it needs."""
    iam = world.iam(call.partition)
    role = next((role for role in iam.roles.values() if role.arn == arn), None)
    document = str(role.assume_role_policy_document) if role else ""
    if role is None or trusted not in document:
        raise invalid(
            f"The role {arn} could not be assumed because it does not exist or the trusted entity is not correct"
        )
    missing = [name for name in policies if not any(have.endswith(f"/{name}") for have in role.managed_policies)]
    if missing:
        raise invalid(
            "The provided role doesn't have the Amazon EKS Managed Policies associated with it. Please ensure the"
            f" following policies {missing} are attached"
        )


def check_subnets(world: World, call: Call, subnets: list[str]) -> list[Any]:
    ec2 = world.ec2(call.region)
    known = {subnet.id: subnet for zone in ec2.subnets.values() for subnet in zone.values()}
    for subnet in subnets:
        if subnet not in known:
            raise invalid(f"The subnet ID '{subnet}' does not exist (Service: Ec2, Status Code: 400)")
    if len({known[subnet].vpc_id for subnet in subnets}) > 1:
        raise invalid("Subnets specified must belong to the same VPC")
    return [known[subnet] for subnet in subnets]


def check_cluster_subnets(world: World, call: Call, subnets: list[str]) -> list[Any]:
    found = check_subnets(world, call, subnets)
    if len({subnet.availability_zone for subnet in found}) < 2:
        raise invalid("Subnets specified must be in at least two different AZs")
    check_zones(call, found)
    return found


def check_zones(call: Call, subnets: list[Any]) -> None:
    """The zones that hold no control plane are refused, with those that do."""
    refused = sorted({each.availability_zone for each in subnets if each.availability_zone_id in _NO_CONTROL_PLANE})
    if refused:
        valid = [
            zone.name for zone in RegionsAndZonesBackend.zones[call.region] if zone.zone_id not in _NO_CONTROL_PLANE
        ]
        raise Refusal(
            "UnsupportedAvailabilityZoneException",
            f"Cannot create cluster '{call.parameters.get('name')}' because {refused[0]}, the targeted availability "
            "zone, does not currently have sufficient capacity to support the cluster. Retry and choose from these "
            f"availability zones: {', '.join(valid)}",
            400,
            validZones=valid,
        )


@operation
def create_cluster(world: World, call: Call) -> Json:
    asked = call.parameters
    have = world.clusters.get((call.region, asked["name"]))
    if have is not None:
        raise Refusal("ResourceInUseException", f"Cluster already exists with name: {asked['name']}", 409)
    if asked.get("version", world.settings.versions[-1]) not in world.settings.versions:
        raise invalid("unsupported Kubernetes version")
    network = asked["resourcesVpcConfig"]
    if not network.get("endpointPublicAccess", True) and not network.get("endpointPrivateAccess", False):
        raise invalid("Private and public endpoint access cannot both be disabled")
    subnets = check_cluster_subnets(world, call, network.get("subnetIds", []))
    groups = world.ec2(call.region).groups[subnets[0].vpc_id]
    for group in network.get("securityGroupIds", []):
        if group not in groups:
            raise invalid(f"Security group {group} not in VPC {subnets[0].vpc_id}")
    check_role(world, call, asked["roleArn"], "eks.amazonaws.com", ("AmazonEKSClusterPolicy",))
    cluster = Cluster(world, call)
    world.clusters[(call.region, cluster.name)] = cluster
    cluster.create(cluster.start)
    return {"cluster": cluster.wire()}


@operation
def describe_cluster(world: World, call: Call) -> Json:
    cluster_of(world, call).observe()
    return {"cluster": cluster_of(world, call).wire()}


def page(call: Call, key: str, names: list[Any]) -> Json:
    """A page of a list: `maxResults` of it after `nextToken`."""
    start = int(call.parameters.get("nextToken") or 0)
    end = start + int(call.parameters.get("maxResults") or 100)
    return {key: names[start:end], **({"nextToken": str(end)} if end < len(names) else {})}


@operation
def list_clusters(world: World, call: Call) -> Json:
    return page(call, "clusters", [cluster.name for cluster in of_region(world, call.region)])


@operation
def delete_cluster(world: World, call: Call) -> Json:
    cluster = cluster_of(world, call)
    if cluster.node_groups:
        raise Refusal("ResourceInUseException", "Cluster has nodegroups attached", 409)
    if cluster.protected:
        raise Refusal("InvalidRequestException", "Cluster has deletion protection enabled")
    at_rest(cluster, "Cluster")
    cluster.delete(cluster.stop)
    return {"cluster": cluster.wire()}


@operation
def update_cluster_version(world: World, call: Call) -> Json:
    cluster, desired = cluster_of(world, call), call.parameters["version"]
    at_rest(cluster, "Cluster")
    if desired not in world.settings.versions:
        raise invalid("unsupported Kubernetes version")
    if _minor(desired) == _minor(cluster.version):
        raise invalid(f"Cluster is already at the desired version {desired}")
    if _minor(desired) != _minor(cluster.version) + 1:
        raise invalid(f"Unsupported Kubernetes minor version update from {cluster.version} to {desired}")
    old = [group.name for group in cluster.node_groups.values() if _minor(group.version) + _SKEW < _minor(desired)]
    if old:
        raise invalid(f"Nodegroups {', '.join(old)} must be updated before the cluster is updated to {desired}")

    def done() -> None:
        cluster.version = desired

    return {"update": cluster.begin("VersionUpdate", {"Version": desired, "PlatformVersion": "eks.9"}, done).wire()}


def _minor(version: str) -> int:
    return int(version.split(".")[1])


@operation
def update_cluster_config(world: World, call: Call) -> Json:
    cluster, asked = cluster_of(world, call), call.parameters
    kinds = [name for name in asked if name not in ("name", "clientRequestToken")]
    if len(kinds) != 1:
        raise invalid(f"Only one type of update can be made in a request, not {', '.join(kinds) or 'none'}")
    at_rest(cluster, "Cluster")
    kind, parameters, done = _CONFIG[kinds[0]](world, call, cluster, asked[kinds[0]])
    return {"update": cluster.begin(kind, parameters, done).wire()}


Change = tuple[str, Json, Callable[[], None]]


def _network_change(world: World, call: Call, cluster: Cluster, asked: Json) -> Change:
    access = [name for name in asked if name in ("endpointPublicAccess", "endpointPrivateAccess", "publicAccessCidrs")]
    if access and len(access) < len(asked):
        raise invalid("Endpoint access and the subnets or security groups cannot be updated in one request")
    if access:
        return _endpoint_change(cluster, asked)
    subnets = list(asked.get("subnetIds", cluster.subnets))
    groups = list(asked.get("securityGroupIds", cluster.security_groups))
    found = check_cluster_subnets(world, call, subnets)
    if found[0].vpc_id != cluster.vpc:
        raise invalid("Subnets specified must belong to the VPC of the cluster")
    if (sorted(subnets), sorted(groups)) == (sorted(cluster.subnets), sorted(cluster.security_groups)):
        raise invalid("Cluster is already at the desired configuration")

    def done() -> None:
        cluster.subnets, cluster.security_groups = subnets, groups

    return "VpcConfigUpdate", {"Subnets": subnets, "SecurityGroups": groups}, done


def _endpoint_change(cluster: Cluster, asked: Json) -> Change:
    public = asked.get("endpointPublicAccess", cluster.public)
    private = asked.get("endpointPrivateAccess", cluster.private)
    cidrs = list(asked.get("publicAccessCidrs", cluster.public_cidrs))
    if not public and not private:
        raise invalid("Private and public endpoint access cannot both be disabled")
    if (public, private, sorted(cidrs)) == (cluster.public, cluster.private, sorted(cluster.public_cidrs)):
        raise invalid(
            f"Cluster is already at the desired configuration with endpointPrivateAccess: {str(private).lower()} ,"
            f" endpointPublicAccess: {str(public).lower()}, and Public Endpoint Restrictions: {cidrs}"
        )

    def done() -> None:
        cluster.public, cluster.private, cluster.public_cidrs = public, private, cidrs

    reported = {"EndpointPublicAccess": public, "EndpointPrivateAccess": private, "PublicAccessCidrs": cidrs}
    return "EndpointAccessUpdate", reported, done


def _access_change(_world: World, _call: Call, cluster: Cluster, asked: Json) -> Change:
    mode = asked.get("authenticationMode", cluster.mode)
    if _MODES.index(mode) != _MODES.index(cluster.mode) + 1:
        raise invalid(f"Unsupported authentication mode update from {cluster.mode} to {mode}")

    def done() -> None:
        cluster.mode = mode

    return "AccessConfigUpdate", {"AuthenticationMode": mode}, done


def _logging_change(_world: World, _call: Call, cluster: Cluster, asked: Json) -> Change:
    def done() -> None:
        cluster.logging = asked

    return "LoggingUpdate", {"ClusterLogging": asked.get("clusterLogging")}, done


def _support_change(_world: World, _call: Call, cluster: Cluster, asked: Json) -> Change:
    def done() -> None:
        cluster.support = asked.get("supportType", cluster.support)

    return "UpgradePolicyUpdate", {"UpgradePolicy": asked.get("supportType")}, done


def _protection_change(_world: World, _call: Call, cluster: Cluster, asked: bool) -> Change:
    def done() -> None:
        cluster.protected = asked

    return "DeletionProtectionUpdate", {"DeletionProtection": asked}, done


_CONFIG: dict[str, Callable[[World, Call, Cluster, Any], Change]] = {
    "resourcesVpcConfig": _network_change,
    "accessConfig": _access_change,
    "logging": _logging_change,
    "upgradePolicy": _support_change,
    "deletionProtection": _protection_change,
}


@operation
def describe_update(world: World, call: Call) -> Json:
    update = _updates(world, call).get(call.parameters["updateId"])
    if update is None:
        raise Refusal("ResourceNotFoundException", f"No update found for ID: {call.parameters['updateId']}", 404)
    update.observe()
    return {"update": update.wire()}


@operation
def list_updates(world: World, call: Call) -> Json:
    return page(call, "updateIds", list(_updates(world, call)))


def _updates(world: World, call: Call) -> dict[str, Update]:
    cluster, asked = cluster_of(world, call), call.parameters
    if asked.get("nodegroupName"):
        return dict(kept(cluster.node_groups, asked["nodegroupName"], "node group").updates)
    if asked.get("addonName"):
        return dict(kept(cluster.addons, asked["addonName"], "addon").updates)
    return cluster.updates


def kept(things: Mapping[str, Any], name: str, what: str) -> Any:
    if name not in things:
        raise Refusal("ResourceNotFoundException", f"No {what} found for name: {name}.", 404)
    return things[name]


@operation
def describe_cluster_versions(world: World, call: Call) -> Json:
    asked = call.parameters
    offered = [
        version for version in reversed(world.settings.versions) if version in asked.get("clusterVersions", [version])
    ]
    newest = world.settings.versions[-1]
    reported = [
        {
            "clusterVersion": version,
            "clusterType": "eks",
            "defaultPlatformVersion": "eks.9",
            "defaultVersion": version == newest,
            "status": "standard-support",
            "versionStatus": "STANDARD_SUPPORT",
            "kubernetesPatchVersion": f"{version}.2",
        }
        for version in offered
        if version == newest or not asked.get("defaultOnly")
    ]
    return page(call, "clusterVersions", reported)


def _tagged(world: World, call: Call) -> dict[str, str]:
    """The tags of the object that an ARN names."""
    arn = call.parameters["resourceArn"]
    for cluster in of_region(world, call.region):
        if cluster.arn == arn:
            return cluster.tags  # type: ignore[no-any-return]
        for thing in (*cluster.node_groups.values(), *cluster.addons.values()):
            if thing.arn == arn:
                return thing.tags  # type: ignore[no-any-return]
        for record in (*cluster.associations.values(), *cluster.entries.values()):
            if arn in (record.get("associationArn"), record.get("accessEntryArn")):
                return record["tags"]  # type: ignore[no-any-return]
    raise Refusal("NotFoundException", f"Resource was not found: {arn}", 404)


@operation
def tag_resource(world: World, call: Call) -> Json:
    _tagged(world, call).update(call.parameters["tags"])
    return {}


@operation
def untag_resource(world: World, call: Call) -> Json:
    tags = _tagged(world, call)
    for key in call.parameters["tagKeys"]:
        tags.pop(key, None)
    return {}


@operation
def list_tags_for_resource(world: World, call: Call) -> Json:
    return {"tags": dict(_tagged(world, call))}
