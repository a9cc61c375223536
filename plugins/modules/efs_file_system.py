#!/usr/bin/python
# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.efs_file_system."""

from __future__ import annotations

DOCUMENTATION = r"""
module: efs_file_system
short_description: Manage a file system of EFS and its mount targets
version_added: 0.1.0
description:
  - Makes a file system of Amazon EFS with a mount target in each subnet, waits for them, and keeps throughput mode,
    security groups and tags as they are wanted. The creation token says which file system it is, so that none is made
    twice.
  - Whether a file system is encrypted cannot be changed. Where it is not as wanted, the task fails and says what to do.
  - A file system without the tag C(modelplane.ai/managed-by=modelplane.fleet), or with those of another fleet or
    cluster, is neither changed nor deleted, and fails the task. Mount targets in other subnets stay as they are.
options:
  creation_token:
    description: The creation token of the file system, at most 64 characters.
    type: str
    required: true
  name:
    description: The tag C(Name); O(creation_token) by default.
    type: str
    default: ''
  encrypted:
    description: Whether it is encrypted.
    type: bool
    default: true
  throughput_mode:
    description: How much throughput it has.
    type: str
    choices: [bursting, elastic]
    default: elastic
  mount_targets:
    description: Where it can be mounted. A zone has room for one mount target.
    type: list
    elements: dict
    default: []
    suboptions:
      subnet_id:
        description: The subnet.
        type: str
        required: true
      security_group_ids:
        description: The security groups. Without any, that of the VPC is taken, and those that are there stay.
        type: list
        elements: str
        default: []
  tags:
    description:
      - Tags of the file system, besides C(Name). C(modelplane.ai/managed-by) is always set.
      - Other tags that it has stay, unless they start with C(modelplane.ai/).
    type: dict
    default: {}
  state:
    description:
      - V(absent) removes the file system B(with all that is on it), its access points and its mount targets.
    type: str
    choices: [present, absent]
    default: present
extends_documentation_fragment:
  - modelplane.fleet.aws
  - modelplane.fleet.aws.waiting
attributes:
  check_mode:
    support: full
    description:
      - Nothing is sent that changes anything. A file system that would be made has an empty id.
      - An O(mount_targets[].subnet_id) may be empty, for a subnet that would be made.
  diff_mode:
    support: full
    description: What changes of the file system and of each mount target is shown.
  idempotent:
    support: full
    description: What is as wanted stays as it is.
notes:
  - With O(wait=false) mount targets are not waited for. The file system is, as it takes none before, and so are mount
    targets when it is removed, as it cannot be removed before.
"""

EXAMPLES = r"""
- name: Make the file system of a cluster
  modelplane.fleet.efs_file_system:
    region: us-west-2
    creation_token: modelplane-system-eks-us-west-eks-03b8e
    mount_targets:
      - {subnet_id: subnet-0123456789abcdef0, security_group_ids: [sg-0123456789abcdef0]}
      - {subnet_id: subnet-0123456789abcdef1, security_group_ids: [sg-0123456789abcdef0]}
    tags:
      modelplane.ai/cluster: modelplane-system-eks-us-west-eks-03b8e

- name: Remove it
  modelplane.fleet.efs_file_system:
    region: us-west-2
    creation_token: modelplane-system-eks-us-west-eks-03b8e
    state: absent
"""

RETURN = r"""
file_system:
  description: The file system as EFS describes it; of one that was removed, its C(FileSystemId), empty without one.
  returned: always
  type: dict
  sample:
    FileSystemId: fs-0123456789abcdef0
    CreationToken: modelplane-system-eks-us-west-eks-03b8e
    LifeCycleState: available
    Encrypted: true
    ThroughputMode: elastic
mount_targets:
  description: The mount targets by subnet, as EFS describes them.
  returned: when O(state=present)
  type: dict
  sample:
    subnet-0123456789abcdef0:
      MountTargetId: fsmt-0123456789abcdef0
      SubnetId: subnet-0123456789abcdef0
      LifeCycleState: available
      IpAddress: 10.0.48.17
waited:
  description: What was seen while waiting.
  returned: always
  type: list
  elements: str
  sample: [EFS file system modelplane-system-eks-us-west-eks-03b8e is available (after 5 s)]
"""

from collections.abc import Mapping
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelplane.fleet.plugins.module_utils.aws import session, task, waiting
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.changes import Changes, described
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.errors import AwsError
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.file_systems import FileSystems, Wanted
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.session import Account
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.waiting import Progress

ARGUMENTS: dict[str, Any] = {
    "argument_spec": {
        **session.ARGUMENTS,
        **waiting.ARGUMENTS,
        "creation_token": {"type": "str", "required": True, "no_log": False},
        "name": {"type": "str", "default": ""},
        "encrypted": {"type": "bool", "default": True},
        "throughput_mode": {"type": "str", "choices": ["bursting", "elastic"], "default": "elastic"},
        "mount_targets": {
            "type": "list",
            "elements": "dict",
            "default": [],
            "options": {
                "subnet_id": {"type": "str", "required": True},
                "security_group_ids": {"type": "list", "elements": "str", "default": []},
            },
        },
        "tags": {"type": "dict", "default": {}},
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    },
    "supports_check_mode": True,
}


def work(module: AnsibleModule) -> None:
    """Do what the arguments ask for, and end the module with the result."""
    params = module.params

    def action(account: Account, changes: Changes, progress: Progress) -> dict[str, Any]:
        systems = FileSystems(account.client("efs"), changes, task.wait(params, progress))
        tags = task.own_tags(params)
        if params["state"] == "absent":
            return {"file_system": {"FileSystemId": systems.remove(params["creation_token"], tags)}}
        wanted = _wanted(params, tags, check_mode=module.check_mode)
        found, targets = systems.bring(wanted, until_available=params["wait"])
        return {"file_system": described(found), "mount_targets": described(targets)}

    task.run(module, action)


def _wanted(params: Mapping[str, Any], tags: Mapping[str, str], *, check_mode: bool) -> Wanted:
    subnets = [str(each["subnet_id"]) for each in params["mount_targets"]]
    if not check_mode and not all(subnets):
        raise AwsError(f"mount_targets[{subnets.index('')}].subnet_id", "it is empty", hint="Give the id of the subnet")
    task.check_unique("mount_targets", filter(None, subnets))
    name = params["name"] or params["creation_token"]
    return Wanted(
        token=params["creation_token"],
        name=name,
        encrypted=params["encrypted"],
        throughput_mode=params["throughput_mode"],
        tags={**tags, "Name": name},
        mount_targets={each["subnet_id"]: each["security_group_ids"] for each in params["mount_targets"]},
    )


def main() -> None:
    work(AnsibleModule(**ARGUMENTS))


if __name__ == "__main__":
    main()
