# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""What moto lacks or does otherwise than AWS, outside of EKS. The tables are in README.md."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .wire import Answer, Call, Refusal
from .world import ACCOUNT, Json, World

Forward = Callable[[], Answer]
Hook = Callable[[World, Call, Forward], Any]
HOOKS: dict[tuple[str, str], Hook] = {}


def hook(service: str, *operations: str) -> Callable[[Hook], Hook]:
    """Registers a function for operations of a service. It answers itself, or has moto answer."""

    def register(function: Hook) -> Hook:
        HOOKS.update({(service, operation): function for operation in operations})
        return function

    return register


def add_reservation(world: World, region: str, given: Json) -> Json:
    """A capacity reservation: what a test says of it, and defaults."""
    total = given.get("TotalInstanceCount", 1)
    reservation = {
        "CapacityReservationId": f"cr-{world.token(17, '0123456789abcdef')}",
        "OwnerId": ACCOUNT,
        "InstanceType": "p5.48xlarge",
        "InstancePlatform": "Linux/UNIX",
        "AvailabilityZone": f"{region}a",
        "Tenancy": "default",
        "TotalInstanceCount": total,
        "AvailableInstanceCount": total,
        "State": "active",
        "InstanceMatchCriteria": "targeted",
        "EndDateType": "limited",
        "ReservationType": "capacity-block",
        **given,
    }
    world.reservations.setdefault(region, []).append(reservation)
    return reservation


@hook("ec2", "DescribeCapacityReservations")
def describe_capacity_reservations(world: World, call: Call, _forward: Forward) -> Json:
    held = world.reservations.get(call.region, [])
    wanted = call.parameters.get("CapacityReservationIds")
    for identifier in wanted or []:
        if identifier not in [one["CapacityReservationId"] for one in held]:
            raise Refusal(
                "InvalidCapacityReservationId.NotFound", f"The capacity reservation '{identifier}' was not found", 400
            )
    return {"CapacityReservations": [one for one in held if not wanted or one["CapacityReservationId"] in wanted]}


@hook("ec2", "CreateLaunchTemplate")
def create_launch_template(world: World, call: Call, forward: Forward) -> Answer:
    """moto writes the tags of the template into the data of its first version as well."""
    answer = forward()
    wanted = call.parameters.get("LaunchTemplateData", {}).get("TagSpecifications")
    for template in world.ec2(call.region).launch_templates.values():
        if template.name == call.parameters["LaunchTemplateName"] and not wanted:
            template.versions[0].data.pop("TagSpecifications", None)
    return answer


@hook("ec2", "DescribeLaunchTemplates")
def describe_launch_templates(world: World, call: Call, forward: Forward) -> Answer:
    """moto tells the tags that a template was made with, whatever became of them."""
    for template in world.ec2(call.region).launch_templates.values():
        template.tags = template.get_tags()
    return forward()
