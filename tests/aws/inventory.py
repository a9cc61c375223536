# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Everything that is in the account beyond what a fresh account has."""

from __future__ import annotations

from collections.abc import Iterator

from moto.ec2.models import ec2_backends
from moto.elb.models import elb_backends
from moto.elbv2.models import elbv2_backends

from .account import ACCOUNT, Account


def leftovers(account: Account) -> list[str]:
    """The objects, as `<region>: <kind> <id or name>`, sorted, without capacity reservations: users buy them."""
    found = [f"global: {thing}" for thing in _identity(account)]
    for name in sorted({*ec2_backends[ACCOUNT], *account.regions}):
        region = account.region(name)
        found += [f"{name}: {thing}" for thing in (*_network(account, name), *_balancers(name))]
        for cluster in region.clusters.values():
            found.append(f"{name}: cluster {cluster.name}")
            found += [f"{name}: node group {cluster.name}/{group}" for group in cluster.node_groups]
        for system in region.file_systems.values():
            found.append(f"{name}: file system {system.id}")
            found += [f"{name}: mount target {target}" for target in system.targets]
            found += [f"{name}: access point {point}" for point in system.access_points]
    return sorted(found)


def _identity(account: Account) -> Iterator[str]:
    iam = account.iam
    yield from (f"role {role.name}" for role in iam.roles.values())
    yield from (f"policy {arn}" for arn in iam.managed_policies if ":aws:policy/" not in arn)
    yield from (f"instance profile {profile.name}" for profile in iam.instance_profiles.values())


def _network(account: Account, name: str) -> Iterator[str]:
    ec2 = account.region(name).ec2
    own = {vpc.id for vpc in ec2.vpcs.values() if not vpc.is_default}
    yield from (f"VPC {vpc}" for vpc in own)
    for zone in ec2.subnets.values():
        yield from (f"subnet {subnet.id}" for subnet in zone.values() if not subnet.default_for_az)
    for groups in ec2.groups.values():
        yield from (f"security group {group.id} {group.name}" for group in groups.values() if not group.is_default)
    for gateway in ec2.internet_gateways.values():
        if gateway.vpc is None or gateway.vpc.id in own:
            yield f"internet gateway {gateway.id}"
    for table in ec2.route_tables.values():
        if table.main_association_id is None:
            yield f"route table {table.id}"
    yield from (f"NAT gateway {gateway.id}" for gateway in ec2.nat_gateways.values() if gateway.state != "deleted")
    yield from (f"address {address.allocation_id}" for address in ec2.addresses)
    yield from (f"network interface {interface.id} {interface.description}" for interface in ec2.enis.values())
    yield from (f"launch template {template.name}" for template in ec2.launch_templates.values())
    yield from (f"volume {volume}" for volume in ec2.volumes)
    for reserved in ec2.reservations.values():
        for instance in reserved.instances:
            if instance.state != "terminated":
                yield f"instance {instance.id}"


def _balancers(name: str) -> Iterator[str]:
    yield from (f"load balancer {each}" for each in elb_backends[ACCOUNT][name].load_balancers)
    yield from (f"load balancer {each.name}" for each in elbv2_backends[ACCOUNT][name].load_balancers.values())
    yield from (f"target group {each.name}" for each in elbv2_backends[ACCOUNT][name].target_groups.values())
