#!/usr/bin/python
# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.ec2_launch_template."""

from __future__ import annotations

DOCUMENTATION = r"""
module: ec2_launch_template
short_description: A launch template of Amazon EC2
version_added: 0.1.0
description:
  - Makes a launch template out of the data as EC2 takes them, several network cards and capacity blocks included, and
    removes it with all its versions.
  - Versions never change. Other data are a new version, which becomes the default one. Versions that are there are
    kept.
options:
  name:
    description: Name of the launch template.
    type: str
    required: true
  data:
    description:
      - What machines are made of, in the form of C(RequestLaunchTemplateData) of the EC2 API. It is needed for
        O(state=present).
      - It is compared with the latest version as EC2 describes it. Of a version that this module made, it is known
        which data it was made of; of others, what EC2 adds within an entry does not count.
    type: dict
extends_documentation_fragment:
  - modelplane.fleet.aws
seealso:
  - module: modelplane.fleet.eks_node_group
"""

EXAMPLES = r"""
- name: Make a template for machines of a capacity block
  modelplane.fleet.ec2_launch_template:
    region: us-west-2
    name: us-west-lt-gpu-h200-99b1f
    data:
      InstanceType: p5en.48xlarge
      BlockDeviceMappings:
        - DeviceName: /dev/xvda
          Ebs: {VolumeSize: 500}
      InstanceMarketOptions: {MarketType: capacity-block}
      CapacityReservationSpecification:
        CapacityReservationPreference: capacity-reservations-only
        CapacityReservationTarget: {CapacityReservationId: cr-0123456789abcdef0}
    tags:
      modelplane.ai/cluster: modelplane-system.us-west
  register: template
"""

RETURN = r"""
template:
  description:
    - The launch template. In check mode, C(id) of one that is not there yet is empty, and C(version) is the one that it
      would get.
    - Empty when there is none.
  returned: success
  type: dict
  sample:
    id: lt-0123456789abcdef0
    name: us-west-lt-gpu-h200-99b1f
    version: 2
    tags: {modelplane.ai/cluster: modelplane-system.us-west, modelplane.ai/managed-by: modelplane.fleet}
id:
  description: Id of the launch template; empty when there is none.
  returned: success
  type: str
  sample: lt-0123456789abcdef0
steps:
  description: What was done, or would be in check mode, in this order.
  returned: always
  type: list
  elements: str
  sample: ["launch template us-west-lt-gpu-h200-99b1f: version 2"]
"""

from collections.abc import Mapping
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelplane.fleet.plugins.module_utils.aws import launch_templates
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.client import Client
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.errors import AwsError, CallError
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.tags import as_dict, as_list, missing_tags, need_ours
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.task import STATE, Step, Task, run

ARGUMENTS: dict[str, Any] = {
    "argument_spec": {
        **STATE,
        "name": {"type": "str", "required": True},
        "data": {"type": "dict"},
    },
    "required_if": [("state", "present", ("data",))],
    "supports_check_mode": True,
}

_EXISTS = "InvalidLaunchTemplateName.AlreadyExistsException"


def work(module: AnsibleModule) -> None:
    """Do what the arguments ask for, and end the module with the result."""
    run(module, _work)


def _work(task: Task) -> None:
    subject = f"launch template {task.params['name']}"
    client = task.client("ec2")
    found = launch_templates.template(client, task.params["name"])
    if found is not None:
        need_ours(subject, as_dict(found.get("Tags")), task.tags)
    if task.absent:
        _remove(task, subject, client, found)
    elif found is None:
        _create(task, subject, client)
    else:
        _change(task, subject, client, found)


def _remove(task: Task, subject: str, client: Client, found: Mapping[str, Any] | None) -> None:
    if found is not None:
        key = {"LaunchTemplateId": found["LaunchTemplateId"]}
        task.take([Step(f"{subject}: delete", lambda: client.find("delete_launch_template", subject, **key))])
    task.end(_described(found), {}, subject, template={}, id="")


def _described(found: Mapping[str, Any] | None) -> dict[str, Any]:
    """The launch template as it is returned."""
    if not found:
        return {}
    return {
        "id": found.get("LaunchTemplateId", ""),
        "name": found.get("LaunchTemplateName", ""),
        "version": int(found.get("LatestVersionNumber", 1)),
        "tags": as_dict(found.get("Tags")),
    }


def _create(task: Task, subject: str, client: Client) -> None:
    data, name = task.params["data"], task.params["name"]
    made: dict[str, Any] = {"LaunchTemplateName": name, "Tags": as_list(task.tags)}

    def create() -> None:
        try:
            answer = client.call(
                "create_launch_template",
                subject,
                LaunchTemplateName=name,
                LaunchTemplateData=data,
                VersionDescription=launch_templates.description(data),
                TagSpecifications=[{"ResourceType": "launch-template", "Tags": as_list(task.tags)}],
            )
            made.update(answer["LaunchTemplate"])
        except CallError as error:
            twin = launch_templates.template(client, name) if error.code == _EXISTS else None
            if twin is None:
                raise
            need_ours(subject, as_dict(twin.get("Tags")), task.tags)
            made.update(twin)

    task.take([Step(f"{subject}: create", create)])
    now = _described(made)
    task.end({}, {"data": data, "tags": task.tags}, subject, template=now, id=now["id"])


def _change(task: Task, subject: str, client: Client, found: Mapping[str, Any]) -> None:
    data, identifier = task.params["data"], found["LaunchTemplateId"]
    latest = launch_templates.latest(client, subject, identifier)
    if latest is None:
        raise AwsError(f"{subject} has no version", "Remove it (state: absent), and make it again")
    number = int(latest["VersionNumber"])
    same = launch_templates.is_made_of(latest, data)
    wanted = number if same else number + 1
    tags = as_dict(found.get("Tags"))
    steps = []
    if missing := missing_tags(tags, task.tags):
        steps.append(
            Step(
                f"{subject}: tags {', '.join(sorted(missing))}",
                lambda: client.call("create_tags", subject, Resources=[identifier], Tags=as_list(missing)),
            )
        )
    if not same:
        steps.append(
            Step(
                f"{subject}: version {wanted}", lambda: launch_templates.add(client, subject, identifier, data, number)
            )
        )
    if found.get("DefaultVersionNumber") != wanted:
        steps.append(
            Step(
                f"{subject}: default version {wanted}",
                lambda: launch_templates.make_latest_default(client, subject, identifier),
            )
        )
    task.take(steps)
    now = {**_described(found), "version": wanted, "tags": {**tags, **task.tags}}
    before = {
        "data": data if same else latest["LaunchTemplateData"],
        "default_version": found.get("DefaultVersionNumber"),
        "tags": {key: value for key, value in tags.items() if key in task.tags},
    }
    after = {"data": data, "default_version": wanted, "tags": task.tags}
    task.end(before, after, subject, template=now, id=now["id"])


def main() -> None:
    work(AnsibleModule(**ARGUMENTS))


if __name__ == "__main__":
    main()
