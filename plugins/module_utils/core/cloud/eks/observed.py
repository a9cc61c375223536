# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""What AWS has of a planned EKS cluster, in the form that comparing, the role and removal read.

An object is ours when its tags name the cluster and this collection, and no other fleet. Where AWS has names that are
unique (roles, policies, the cluster, groups, templates), things of the planned names are looked at too, so that what
somebody else has under such a name is told instead of taken.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks.described import (
    Wire,
    document,
    mount_target,
    name_of,
    nat_gateway,
    plain_tags,
    route_table,
    security_group,
    subnet,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks.names import (
    CLUSTER_TAG,
    FLEET_TAG,
    MANAGED_BY_TAG,
    REGION_TAG,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.names import MANAGED_BY

# A gateway that is gone is still described for an hour.
_GONE = "deleted"
_LIVELINESS = ("available", "pending", "failed", "deleting")


@dataclass(frozen=True)
class Answers:
    """What AWS answered, in its own words (wire form), each list with every object only once.

    `vpcs` are those with our tag or the planned name; what lies in a VPC is what has our tag or lies in our VPC.
    `roles` are `{key: {"Role": .., "Attached": [arn]}}`, `policies` are `{key: {"Policy": .., "Document": ..}}`; a key
    is missing for what is not there. `dns` are the attributes of our VPC: `{"support": bool, "hostnames": bool}`.
    """

    account: str
    vpcs: Sequence[Wire] = ()
    dns: Mapping[str, bool] = field(default_factory=dict)
    subnets: Sequence[Wire] = ()
    internet_gateways: Sequence[Wire] = ()
    nat_gateways: Sequence[Wire] = ()
    addresses: Sequence[Wire] = ()
    route_tables: Sequence[Wire] = ()
    security_groups: Sequence[Wire] = ()
    launch_templates: Sequence[Wire] = ()
    roles: Mapping[str, Wire] = field(default_factory=dict)
    policies: Mapping[str, Wire] = field(default_factory=dict)
    cluster: Wire = field(default_factory=dict)
    node_groups: Sequence[str] = ()
    file_systems: Sequence[Wire] = ()
    mount_targets: Sequence[Wire] = ()


@dataclass(frozen=True)
class Observed:
    """`found`: what is ours and planned; `unplanned`: what is ours besides, `{part: [object]}`; `foreign`: lines
    for people; `left`: all that is ours, `{kind, id, name}`, in the order in which it can be removed."""

    found: dict[str, Any]
    ids: dict[str, Any]
    unplanned: dict[str, list[dict[str, Any]]]
    foreign: list[str]
    left: list[dict[str, str]]


def ours(tags: Mapping[str, str], plan: Wire) -> bool:
    """Whether tags are those of the planned cluster, and of no other fleet."""
    wanted = plan["tags"]
    return (
        tags.get(CLUSTER_TAG) == plan["name"]
        and tags.get(MANAGED_BY_TAG) == MANAGED_BY
        and tags.get(FLEET_TAG, wanted.get(FLEET_TAG)) == wanted.get(FLEET_TAG)
    )


def observe(plan: Wire, answers: Answers) -> Observed:
    """Sort what AWS answered into what is planned, what is left over, and what is not ours."""
    sorter = _Sorter(plan, answers)
    found = sorter.found()
    return Observed(
        found=found,
        ids=ids(plan, found),
        unplanned=sorter.unplanned,
        foreign=sorted(set(sorter.foreign)),
        left=sorter.left(found),
    )


def ids(plan: Wire, found: Wire) -> dict[str, Any]:
    """What the next steps need to name, flat; "" for what is not there. Those of roles and policies are computed."""
    subnets = {subnet["name"]: found["subnets"].get(subnet["name"], {}).get("id", "") for subnet in plan["subnets"]}
    tiers = {tier: [one for one in plan["subnets"] if one["tier"] == tier] for tier in ("public", "private")}
    arn = f"arn:{plan['partition']}:iam::{found['account']}"
    cluster = found["cluster"]
    return {
        "account": found["account"],
        "vpc": found["vpc"].get("id", ""),
        "subnets": subnets,
        "public_subnets": [subnets[one["name"]] for one in tiers["public"]],
        "private_subnets": {one["zone"]: subnets[one["name"]] for one in tiers["private"]},
        "internet_gateway": found["internet_gateway"].get("id", ""),
        "nat_gateway": found["nat_gateway"].get("id", "") if alive(found["nat_gateway"]) else "",
        "eip": found["nat_gateway"].get("allocation", ""),
        "route_tables": {
            one["tier"]: found["route_tables"].get(one["tier"], {}).get("id", "") for one in plan["route_tables"]
        },
        "security_groups": {
            one["key"]: found["security_groups"].get(one["key"], {}).get("id", "") for one in plan["security_groups"]
        },
        "cluster_security_group": cluster.get("resourcesVpcConfig", {}).get("clusterSecurityGroupId", ""),
        "roles": {
            one["key"]: found["roles"].get(one["key"], {}).get("arn") or f"{arn}:role/{one['name']}"
            for one in plan["roles"]
        },
        "policies": {
            one["key"]: found["policies"].get(one["key"], {}).get("arn") or f"{arn}:policy/{one['name']}"
            for one in plan["policies"]
        },
        "file_system": found["file_system"].get("id", ""),
        "launch_templates": {
            one["name"]: found["launch_templates"].get(one["name"], {}).get("id", "")
            for one in plan["launch_templates"]
        },
        "cluster": cluster.get("arn", ""),
        "cluster_status": cluster.get("status", ""),
        "endpoint": cluster.get("endpoint", ""),
        "certificate_authority": cluster.get("certificateAuthority", {}).get("data", ""),
    }


def alive(nat_gateway: Wire) -> bool:
    """Whether a NAT gateway is there, or about to be."""
    return nat_gateway.get("state") in ("available", "pending")


class _Sorter:
    """Takes the answers apart once; collects what is not planned and what is not ours on the way."""

    def __init__(self, plan: Wire, answers: Answers) -> None:
        self.plan, self.answers = plan, answers
        self.unplanned: dict[str, list[dict[str, Any]]] = {}
        self.foreign: list[str] = []

    def found(self) -> dict[str, Any]:
        vpc = self._vpc()
        vpc_id = vpc.get("id", "")
        gateway = self._nat_gateway(vpc_id)
        return {
            "account": self.answers.account,
            "vpc": vpc,
            "subnets": self._subnets(vpc_id),
            "internet_gateway": self._internet_gateway(vpc_id),
            "nat_gateway": gateway,
            "addresses": self._addresses(gateway),
            "route_tables": self._route_tables(vpc_id),
            "security_groups": self._security_groups(vpc_id),
            "roles": self._roles(),
            "policies": self._policies(),
            "cluster": self._cluster(vpc_id),
            "node_groups": sorted(self.answers.node_groups) if self._cluster_is_ours() else [],
            "file_system": self._file_system(),
            "launch_templates": self._launch_templates(),
        }

    # What is whose

    def _ours(self, what: str, one: Wire, *, named: bool) -> bool:
        """Whether an object is ours; if not, it is told where it has our tag, or where it stands in the way."""
        tags = plain_tags(one.get("Tags", one.get("tags")))
        if ours(tags, self.plan):
            return True
        cluster, fleet = tags.get(CLUSTER_TAG, ""), tags.get(FLEET_TAG, "")
        if cluster == self.plan["name"] and fleet not in ("", self.plan["tags"].get(FLEET_TAG)):
            why = f"belongs to the fleet {fleet} (tag {FLEET_TAG}), which has a cluster of the same name"
            self._tell(what, why, "Give the cluster here another name, or run with that fleet's name.")
        elif cluster == self.plan["name"]:
            why = f"has the tag {CLUSTER_TAG}={cluster}, but not {MANAGED_BY_TAG}={MANAGED_BY}"
            self._tell(what, why, "If it belongs to this cluster, give it that tag; if not, take the first one away.")
        elif named:
            why = f"belongs to the cluster {cluster} (tag {CLUSTER_TAG})" if cluster else f"has no tag {CLUSTER_TAG}"
            self._tell(what, f"stands where the plan has one, but {why}", "Rename or remove it, or the cluster here.")
        return False

    def _ours_here(self, what: str, one: Wire) -> bool:
        """Whether something of IAM, which counts in all regions, is ours and of the cluster in this one."""
        if not self._ours(what, one, named=True):
            return False
        here: str = self.plan["region"]
        region = plain_tags(one.get("Tags", one.get("tags"))).get(REGION_TAG, here)
        if region != here:
            why = f"belongs to the cluster of this name in {region} (tag {REGION_TAG})"
            advice = (
                f"Set the region back to {region} and remove that cluster first, or give the one here another name."
            )
            self._tell(what, why, advice)
        return region == here

    def _tell(self, what: str, why: str, advice: str) -> None:
        self.foreign.append(f"{what} {why}, and is not touched. {advice}")

    def _besides(self, part: str, objects: Iterable[dict[str, Any]]) -> None:
        rest = sorted(objects, key=lambda one: (one["name"], one["id"]))
        if rest:
            self.unplanned.setdefault(part, []).extend(rest)

    # The network

    def _vpc(self) -> dict[str, Any]:
        mine = [
            {
                "id": one["VpcId"],
                "name": plain_tags(one.get("Tags")).get("Name", ""),
                "cidr": one["CidrBlock"],
                "state": one.get("State", ""),
                "dns_support": self.answers.dns.get("support", False),
                "dns_hostnames": self.answers.dns.get("hostnames", False),
                "tags": plain_tags(one.get("Tags")),
            }
            for one in self.answers.vpcs
            if self._ours(f"VPC {one['VpcId']} ({name_of(one) or one['CidrBlock']})", one, named=True)
        ]
        if not mine:
            return {}
        vpc_id = our_vpc(self.plan, self.answers.vpcs, self.answers.subnets)
        self._besides("vpc", [one for one in mine if one["id"] != vpc_id])
        return next(one for one in mine if one["id"] == vpc_id)

    def _subnets(self, vpc_id: str) -> dict[str, dict[str, Any]]:
        planned = {one["name"]: one for one in self.plan["subnets"]}
        ranges = [ipaddress.ip_network(one["cidr"]) for one in planned.values()]
        mine = []
        for one in self.answers.subnets:
            within = one["VpcId"] == vpc_id
            inside = within and any(ipaddress.ip_network(one["CidrBlock"]).overlaps(known) for known in ranges)
            if self._ours(f"Subnet {one['SubnetId']} ({one['CidrBlock']})", one, named=inside):
                mine.append(subnet(one))
        result = _matched(
            [one for one in mine if one["vpc"] == vpc_id],
            planned,
            lambda one: one["name"],
            lambda one: next((name for name, subnet in planned.items() if subnet["cidr"] == one["cidr"]), ""),
        )
        taken = {one["id"] for one in result.values()}
        self._besides("subnets", [one for one in mine if one["id"] not in taken])
        return result

    def _internet_gateway(self, vpc_id: str) -> dict[str, Any]:
        mine = []
        for one in self.answers.internet_gateways:
            vpcs = [str(attached.get("VpcId", "")) for attached in one.get("Attachments", ())]
            what = f"Internet gateway {one['InternetGatewayId']}"
            if self._ours(what, one, named=bool(vpc_id) and vpc_id in vpcs):
                found = {"id": one["InternetGatewayId"], "name": name_of(one), "vpc": "".join(vpcs[:1])}
                mine.append({**found, "tags": plain_tags(one.get("Tags"))})
        mine.sort(key=lambda one: (one["vpc"] != vpc_id, one["id"]))
        self._besides("internet_gateway", mine[1:])
        return mine[0] if mine else {}

    def _nat_gateway(self, vpc_id: str) -> dict[str, Any]:
        mine = []
        for one in self.answers.nat_gateways:
            if one.get("State") == _GONE:
                continue
            planned = name_of(one) == self.plan["nat_gateway"]["name"] and one.get("VpcId") == vpc_id
            if self._ours(f"NAT gateway {one['NatGatewayId']}", one, named=planned):
                mine.append(nat_gateway(one))
        mine.sort(key=lambda one: (one["vpc"] != vpc_id, _LIVELINESS.index(one["state"]), one["id"]))
        here = [one for one in mine if one["vpc"] == vpc_id]
        # One that failed or goes is no gateway too many: AWS forgets it by itself.
        self._besides("nat_gateway", [one for one in mine if one not in here[:1] and alive(one)])
        return here[0] if here else {}

    def _addresses(self, gateway: Wire) -> dict[str, dict[str, Any]]:
        found = {
            one["AllocationId"]: {
                "id": one["AllocationId"],
                "name": name_of(one),
                "public_ip": one.get("PublicIp", ""),
                "in_use": bool(one.get("AssociationId")),
                "tags": plain_tags(one.get("Tags")),
            }
            for one in sorted(self.answers.addresses, key=lambda one: str(one["AllocationId"]))
            if self._ours(f"Elastic IP {one['AllocationId']}", one, named=False)
        }
        if alive(gateway):
            rest = [one for one in found.values() if one["id"] != gateway.get("allocation") and not one["in_use"]]
            self._besides("addresses", rest)
        return found

    def _route_tables(self, vpc_id: str) -> dict[str, dict[str, Any]]:
        tiers = {one["name"]: one["tier"] for one in self.plan["route_tables"]}
        mine = []
        for one in self.answers.route_tables:
            planned = one["VpcId"] == vpc_id and name_of(one) in tiers
            if self._ours(f"Route table {one['RouteTableId']} ({name_of(one)})", one, named=planned):
                mine.append(route_table(one))
        mine.sort(key=lambda one: (not one["associations"], one["id"]))
        result: dict[str, dict[str, Any]] = {}
        for one in mine:
            if one["vpc"] == vpc_id and one["name"] in tiers:
                result.setdefault(tiers[one["name"]], one)
        taken = {one["id"] for one in result.values()}
        self._besides("route_tables", [one for one in mine if one["id"] not in taken])
        return result

    def _security_groups(self, vpc_id: str) -> dict[str, dict[str, Any]]:
        keys = {one["name"]: one["key"] for one in self.plan["security_groups"]}
        result, rest = {}, []
        for one in self.answers.security_groups:
            within = one.get("VpcId") == vpc_id
            planned = within and one["GroupName"] in keys
            if not self._ours(f"Security group {one['GroupId']} ({one['GroupName']})", one, named=planned):
                continue
            if planned:
                result[keys[one["GroupName"]]] = security_group(one)
            else:
                rest.append(security_group(one))
        self._besides("security_groups", rest)
        return dict(sorted(result.items()))

    # Access

    def _roles(self) -> dict[str, dict[str, Any]]:
        result = {}
        for key, answer in sorted(self.answers.roles.items()):
            role = answer["Role"]
            if self._ours_here(f"IAM role {role['RoleName']}", role):
                result[key] = {
                    "arn": role["Arn"],
                    "name": role["RoleName"],
                    "trust": document(role["AssumeRolePolicyDocument"]),
                    "managed_policies": sorted(answer["Attached"]),
                    "tags": plain_tags(role.get("Tags")),
                }
        return result

    def _policies(self) -> dict[str, dict[str, Any]]:
        result = {}
        for key, answer in sorted(self.answers.policies.items()):
            policy = answer["Policy"]
            if self._ours_here(f"IAM policy {policy['PolicyName']}", policy):
                result[key] = {
                    "arn": policy["Arn"],
                    "name": policy["PolicyName"],
                    "document": document(answer["Document"]),
                    "tags": plain_tags(policy.get("Tags")),
                }
        return result

    # The cluster and what is beside it

    def _cluster_is_ours(self) -> bool:
        cluster = self.answers.cluster
        return bool(cluster) and ours(plain_tags(cluster.get("tags")), self.plan)

    def _cluster(self, vpc_id: str) -> dict[str, Any]:
        cluster = self.answers.cluster
        if not cluster or not self._ours(f"EKS cluster {cluster['name']}", cluster, named=True):
            return {}
        where = cluster.get("resourcesVpcConfig", {}).get("vpcId", "")
        if where and where != vpc_id:
            instead = f"not in {vpc_id}, which is the VPC of the plan" if vpc_id else "which does not have our tags"
            advice = f"Give {where} the tags of the plan, if the cluster belongs there; a cluster cannot move."
            self._tell(f"EKS cluster {cluster['name']}", f"is in the VPC {where}, {instead}", advice)
        return dict(cluster)

    def _file_system(self) -> dict[str, Any]:
        for one in self.answers.file_systems:
            if self._ours(f"EFS file system {one['FileSystemId']} ({one.get('CreationToken', '')})", one, named=True):
                return {
                    "id": one["FileSystemId"],
                    "name": one.get("Name", ""),
                    "state": one["LifeCycleState"],
                    "encrypted": one.get("Encrypted", False),
                    "throughput_mode": one.get("ThroughputMode", ""),
                    "tags": plain_tags(one.get("Tags")),
                }
        return {}

    def _launch_templates(self) -> dict[str, dict[str, Any]]:
        planned = {one["name"] for one in self.plan["launch_templates"]}
        result = {}
        for one in sorted(self.answers.launch_templates, key=lambda one: str(one["LaunchTemplateName"])):
            name = one["LaunchTemplateName"]
            if self._ours(f"Launch template {name}", one, named=name in planned):
                version = one.get("LatestVersionNumber", 0)
                result[name] = {"id": one["LaunchTemplateId"], "name": name, "latest_version": version}
        return result

    # Afterwards

    def left(self, found: Wire) -> list[dict[str, str]]:
        """All that is ours, in the order in which it can be removed."""
        more = self.unplanned
        lists: list[tuple[str, Iterable[Wire]]] = [
            ("node_group", [{"id": name, "name": name} for name in found["node_groups"]]),
            (
                "mount_target",
                [mount_target(one) for one in self.answers.mount_targets] if found["file_system"] else (),
            ),
            ("file_system", [found["file_system"]]),
            ("launch_template", found["launch_templates"].values()),
            ("cluster", [{"id": found["cluster"].get("arn", ""), "name": found["cluster"].get("name", "")}]),
            ("security_group", [*found["security_groups"].values(), *more.get("security_groups", ())]),
            ("nat_gateway", [found["nat_gateway"], *more.get("nat_gateway", ())]),
            ("elastic_ip", self._left_addresses(found)),
            ("route_table", [*found["route_tables"].values(), *more.get("route_tables", ())]),
            ("subnet", [*found["subnets"].values(), *more.get("subnets", ())]),
            ("internet_gateway", [found["internet_gateway"], *more.get("internet_gateway", ())]),
            ("vpc", [found["vpc"], *more.get("vpc", ())]),
            ("role", [{"id": one["arn"], "name": one["name"]} for one in found["roles"].values()]),
            ("policy", [{"id": one["arn"], "name": one["name"]} for one in found["policies"].values()]),
        ]
        return [
            {"kind": kind, "id": one["id"], "name": one.get("name", "")}
            for kind, objects in lists
            for one in objects
            if one.get("id") and not (kind == "nat_gateway" and one.get("state") == "failed")
        ]

    def _left_addresses(self, found: Wire) -> list[Wire]:
        """Those with our tags, and that of the NAT gateway, which may have none."""
        known = dict(found["addresses"])
        gateway = found["nat_gateway"]
        if gateway.get("allocation"):
            known.setdefault(gateway["allocation"], {"id": gateway["allocation"], "name": gateway["name"]})
        return list(known.values())


def our_vpc(plan: Wire, vpcs: Iterable[Wire], subnets: Iterable[Wire]) -> str:
    """The id of the VPC of the plan among those that AWS answered; "" when there is none.

    Should there be several with our tags, it is the one with most subnets that have them, then the one of the planned
    CIDR and name, in this order, then of ids.
    """
    mine = [one for one in vpcs if ours(plain_tags(one.get("Tags")), plan)]
    inside = Counter(str(one["VpcId"]) for one in subnets if ours(plain_tags(one.get("Tags")), plan))
    mine.sort(
        key=lambda one: (
            -inside[one["VpcId"]],
            one["CidrBlock"] != plan["vpc"]["cidr"],
            name_of(one) != plan["vpc"]["name"],
            one["VpcId"],
        )
    )
    return str(mine[0]["VpcId"]) if mine else ""


def _matched(objects: Sequence[dict[str, Any]], planned: Wire, *keys: Any) -> dict[str, dict[str, Any]]:
    """The objects by the planned name that the first of the keys gives which gives one."""
    result: dict[str, dict[str, Any]] = {}
    for key in keys:
        taken = {one["id"] for one in result.values()}
        for one in sorted(objects, key=lambda one: str(one["id"])):
            name = key(one)
            if one["id"] not in taken and name in planned and name not in result:
                result[name] = one
    return {name: result[name] for name in planned if name in result}
