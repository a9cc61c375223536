# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Filestore: the instances that the driver in a cluster makes for volumes, in zones and regions."""

from __future__ import annotations

import re

from ansible_collections.modelplane.fleet.tests.cloud.refusals import Refusal

from .operations import observed, serves, start_long
from .wire import Call, Json
from .world import World, base64_text, timestamp


def plant(world: World, project: str, location: str, name: str, network: str, labels: Json, tier: str) -> str:
    """An instance as the driver leaves it. Its path."""
    path = f"projects/{project}/locations/{location}/instances/{name}"
    world.instances[path] = {
        "name": path,
        "state": "READY",
        "tier": tier,
        "createTime": timestamp(),
        "labels": labels,
        "etag": base64_text(world.token(8)),
        "fileShares": [{"name": "vol1", "capacityGb": "1024"}],
        "networks": [
            {
                "network": network,
                "modes": ["MODE_IPV4"],
                "reservedIpRange": "10.143.255.0/26",
                "ipAddresses": ["10.143.255.2"],
                "connectMode": "DIRECT_PEERING",
            }
        ],
    }
    return path


@serves("file", "projects.locations.instances.list")
def list_(world: World, call: Call) -> Json:
    pattern = re.compile(re.escape(call.path).replace(r"locations/\-", "locations/[^/]+") + "/[^/]+")
    for path in list(world.instances):
        if pattern.fullmatch(path):
            world.observe(path)
    found = [each for path, each in sorted(world.instances.items()) if pattern.fullmatch(path)]
    size, start = int(call.parameters.get("pageSize") or 500), int(call.parameters.get("pageToken") or 0)
    answer: Json = {"instances": found[start : start + size]} if found[start : start + size] else {}
    if found[start + size :]:
        answer["nextPageToken"] = str(start + size)
    return answer


@serves("file", "projects.locations.instances.get")
def get(world: World, call: Call) -> Json:
    world.observe(call.path)
    return _found(world, call.path)


@serves("file", "projects.locations.instances.delete")
def delete(world: World, call: Call) -> Json:
    instance = _found(world, call.path)
    if world.running(call.path):
        world.observe(call.path)
        raise Refusal("FAILED_PRECONDITION", f"Resource '{call.path}' has an operation in progress.", 400)
    instance["state"] = "DELETING"
    location = "/".join(call.path.split("/")[:4])

    def gone() -> None:
        world.instances.pop(call.path, None)

    def failed(_: Json) -> None:
        instance["state"] = "ERROR"

    return start_long(
        world,
        "file",
        "delete instance",
        call.path,
        f"{location}/operations/{world.operation_name()}",
        lambda: {"@type": "type.googleapis.com/google.protobuf.Empty"},
        gone,
        {"@type": "type.googleapis.com/google.cloud.common.OperationMetadata", "target": call.path, "verb": "delete"},
        failed,
    )


@serves("file", "projects.locations.operations.get")
def get_operation(world: World, call: Call) -> Json:
    return observed(world, f"file/{call.path}")


@serves("file", "projects.locations.list")
def list_locations(_: World, call: Call) -> Json:
    return {"locations": [{"name": f"{call.path}/us-central1", "locationId": "us-central1"}]}


def _found(world: World, path: str) -> Json:
    if path not in world.instances:
        raise Refusal("NOT_FOUND", f"Resource '{path}' was not found", 404)
    return world.instances[path]
