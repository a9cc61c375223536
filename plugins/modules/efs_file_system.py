#!/usr/bin/python
# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.efs_file_system."""

from __future__ import annotations

DOCUMENTATION = r"""
module: efs_file_system
short_description: A file system of Amazon EFS with its mount targets
version_added: 0.1.0
description:
  - Makes a file system and mount targets, changes throughput mode, tags, mount targets and their security groups in
    place, and removes all of it, the files included.
  - Whether a file system is encrypted cannot be changed; the module says so, and changes nothing.
options:
  creation_token:
    description:
      - What the file system is found by. There is one for each token in an account and region.
    type: str
    required: true
  throughput_mode:
    description:
      - How throughput is paid for. AWS takes a change back at the earliest a day later.
    type: str
    choices: [elastic, bursting]
    default: elastic
  encrypted:
    description:
      - Whether it is encrypted at rest.
    type: bool
    default: true
  mount_targets:
    description:
      - The mount targets, all of them, at most one for each zone. Others of the file system are removed. Without this
        option they are left alone.
    type: list
    elements: dict
    suboptions:
      subnet_id:
        description: The subnet that the mount target is in.
        type: str
        required: true
      security_group_ids:
        description: Its security groups, all of them.
        type: list
        elements: str
        required: true
extends_documentation_fragment:
  - modelplane.fleet.aws
"""

EXAMPLES = r"""
- name: Make the file system of the model caches
  modelplane.fleet.efs_file_system:
    region: us-west-2
    creation_token: modelplane-system-us-west-eks-03b8e
    mount_targets:
      - {subnet_id: subnet-0a, security_group_ids: [sg-0efs]}
      - {subnet_id: subnet-0b, security_group_ids: [sg-0efs]}
    tags:
      modelplane.ai/cluster: modelplane-system.us-west
      Name: us-west-efs

- name: Remove it with all files
  modelplane.fleet.efs_file_system:
    region: us-west-2
    creation_token: modelplane-system-us-west-eks-03b8e
    state: absent
    tags:
      modelplane.ai/cluster: modelplane-system.us-west
"""

RETURN = r"""
file_system:
  description:
    - The file system. In check mode, what AWS gives to one that is not there yet is empty.
    - Empty when there is none.
  returned: success
  type: dict
  sample:
    id: fs-0123456789abcdef0
    arn: arn:aws:elasticfilesystem:us-west-2:111122223333:file-system/fs-0123456789abcdef0
    creation_token: modelplane-system-us-west-eks-03b8e
    life_cycle_state: available
    throughput_mode: elastic
    encrypted: true
    mount_targets:
      - id: fsmt-0123456789abcdef0
        subnet_id: subnet-0a
        security_group_ids: [sg-0efs]
        life_cycle_state: available
        ip_address: 10.0.48.10
        zone: us-west-2a
    tags: {modelplane.ai/cluster: modelplane-system.us-west, modelplane.ai/managed-by: modelplane.fleet}
id:
  description: Id of the file system; empty when there is none.
  returned: success
  type: str
  sample: fs-0123456789abcdef0
arn:
  description: ARN of the file system; empty when there is none.
  returned: success
  type: str
  sample: arn:aws:elasticfilesystem:us-west-2:111122223333:file-system/fs-0123456789abcdef0
steps:
  description: What was done, or would be in check mode, in this order.
  returned: always
  type: list
  elements: str
  sample: ["file system modelplane-system-us-west-eks-03b8e: create"]
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.comparison import (
    Comparison,
    change_text,
    unordered,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.efs import DELETING, FileSystem, MountTarget
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.errors import AwsError
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.tags import missing_tags
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.task import STATE, Step, Task, run

ARGUMENTS: dict[str, Any] = {
    "argument_spec": {
        **STATE,
        "creation_token": {"type": "str", "required": True, "no_log": False},
        "throughput_mode": {"type": "str", "choices": ["elastic", "bursting"], "default": "elastic"},
        "encrypted": {"type": "bool", "default": True},
        "mount_targets": {
            "type": "list",
            "elements": "dict",
            "options": {
                "subnet_id": {"type": "str", "required": True},
                "security_group_ids": {"type": "list", "elements": "str", "required": True},
            },
        },
    },
    "supports_check_mode": True,
}

_ANEW = "Keep it as it is, or remove the file system with all files (state: absent) and make it again"
_TARGETS = "mount_targets"


def work(module: AnsibleModule) -> None:
    """Do what the arguments ask for, and end the module with the result."""
    run(module, _work)


def _work(task: Task) -> None:
    there = FileSystem(task, task.params["creation_token"])
    if task.absent:
        _remove(task, there)
    wanted = _wanted(task, there)
    found = there.to_keep()
    if found is not None and task.waits:
        there.settled(found)
    targets = there.mount_targets(found)
    before = _compared(wanted, found, targets)
    if found is None:
        request = {"ThroughputMode": wanted["throughput_mode"], "Encrypted": wanted["encrypted"]}
        task.take([Step(f"{there.subject}: create", lambda: there.create(**request))])
    else:
        before.refuse(there.subject, ("encrypted",), _ANEW)
        _change(task, there, before, found)
    _mount(task, there, wanted, targets)
    _end(task, there, before, found)


def _wanted(task: Task, there: FileSystem) -> dict[str, Any]:
    params = task.params
    wanted = {
        "throughput_mode": params["throughput_mode"],
        "encrypted": params["encrypted"],
        "tags": task.tags,
    }
    given = params[_TARGETS]
    if given is not None:
        subnets = [target["subnet_id"] for target in given]
        twice = sorted({subnet for subnet in subnets if subnets.count(subnet) > 1})
        if twice:
            raise AwsError(f"{there.subject}: mount_targets names {', '.join(twice)} twice", "Name each subnet once")
        wanted[_TARGETS] = {target["subnet_id"]: unordered(target["security_group_ids"]) for target in given}
    return wanted


def _compared(
    wanted: Mapping[str, Any], found: Mapping[str, Any] | None, targets: Mapping[str, MountTarget]
) -> Comparison:
    now = _described(found, targets)
    if found is not None:
        now["tags"] = {key: value for key, value in now["tags"].items() if key in wanted["tags"]}
        asked = wanted.get(_TARGETS) or {}
        now[_TARGETS] = {
            subnet: asked.get(subnet) if target.groups is None else target.groups for subnet, target in targets.items()
        }
    return Comparison(wanted, now)


def _described(found: Mapping[str, Any] | None, targets: Mapping[str, MountTarget]) -> dict[str, Any]:
    """The file system as it is returned."""
    if not found:
        return {}
    return {
        "id": found.get("FileSystemId", ""),
        "arn": found.get("FileSystemArn", ""),
        "creation_token": found.get("CreationToken", ""),
        "life_cycle_state": found.get("LifeCycleState", ""),
        "throughput_mode": found.get("ThroughputMode", ""),
        "encrypted": bool(found.get("Encrypted")),
        _TARGETS: [
            {
                "id": target.id,
                "subnet_id": subnet,
                "security_group_ids": target.groups or [],
                "life_cycle_state": target.state,
                "ip_address": target.address,
                "zone": target.zone,
            }
            for subnet, target in sorted(targets.items())
        ],
        "tags": {tag["Key"]: tag["Value"] for tag in found.get("Tags") or ()},
    }


def _change(task: Task, there: FileSystem, comparison: Comparison, found: Mapping[str, Any]) -> None:
    wanted, now = comparison.wanted, comparison.found
    steps = []
    if missing := missing_tags(now["tags"], wanted["tags"]):
        steps.append(Step(f"{there.subject}: tags {', '.join(sorted(missing))}", lambda: there.tag(found, missing)))
    if comparison.any("throughput_mode"):
        text = change_text("throughput_mode", now["throughput_mode"], wanted["throughput_mode"])
        steps.append(Step(f"{there.subject}: {text}", lambda: there.update(found, wanted["throughput_mode"])))
    task.take(steps)


def _mount(task: Task, there: FileSystem, wanted: Mapping[str, Any], targets: Mapping[str, MountTarget]) -> None:
    """Bring the mount targets to what they should be. Removed ones go first: a zone takes one at a time."""
    # A file system takes mount targets only when it is there; without waiting a later run makes them.
    ready = task.check_mode or there.ready(wait=task.params["wait"])
    if _TARGETS not in wanted or not ready:
        return
    asked: Mapping[str, list[str]] = wanted[_TARGETS]
    surplus = {subnet: target for subnet, target in targets.items() if subnet not in asked}
    _unmount(task, there, surplus)
    if surplus and not task.check_mode and not task.waits:
        return
    steps = []
    for subnet, groups in sorted(asked.items()):
        place = f"{there.subject}: mount target in {subnet}"
        target = targets.get(subnet)
        if target is None:
            steps.append(Step(place, partial(there.mount, subnet, groups)))
        elif target.groups not in (None, groups):
            change = change_text("security_group_ids", target.groups, groups)
            steps.append(Step(f"{place}: {change}", partial(there.set_groups, target, groups)))
    task.take(steps)
    if task.waits:
        there.mounted(asked)


def _unmount(task: Task, there: FileSystem, targets: Mapping[str, MountTarget]) -> None:
    task.take(
        Step(f"{there.subject}: remove the mount target in {subnet}", partial(there.unmount, target))
        for subnet, target in sorted(targets.items())
    )
    if task.waits:
        there.unmounted(targets)


def _end(task: Task, there: FileSystem, comparison: Comparison, found: Mapping[str, Any] | None) -> None:
    wanted = comparison.wanted
    named = {"CreationToken": there.token}
    if task.check_mode:
        now = _described(found or named, there.mount_targets(found))
        now |= {name: value for name, value in wanted.items() if name != _TARGETS}
    else:
        last = there.look() or named
        now = _described(last, there.mount_targets(last))
    before = {} if found is None else comparison.before
    task.end(before, dict(wanted), there.subject, file_system=now, id=now["id"], arn=now["arn"])


def _remove(task: Task, there: FileSystem) -> None:
    found = there.ours()
    targets = there.mount_targets(found)
    if found is not None:
        if task.waits:
            there.settled(found)
        _unmount(task, there, targets)
        if task.waits:
            # Those that went already hold the file system too.
            there.unmounted()
        if found["LifeCycleState"] != DELETING:
            if task.check_mode or there.unmounted_now():
                task.take([Step(f"{there.subject}: delete", partial(there.delete, found))])
            else:
                task.warn(f"{there.subject} can go when its mount targets are gone: run again")
        if task.waits:
            there.gone()
    task.end(_described(found, targets), {}, there.subject, file_system={}, id="", arn="")


def main() -> None:
    work(AnsibleModule(**ARGUMENTS))


if __name__ == "__main__":
    main()
