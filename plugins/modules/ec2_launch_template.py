#!/usr/bin/python
# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.ec2_launch_template."""

from __future__ import annotations

DOCUMENTATION = r"""
module: ec2_launch_template
short_description: Manage launch templates with all that EC2 knows
version_added: 0.1.0
description:
  - Makes launch templates whose data are written as the API of EC2 has them, several network cards, EFA interfaces and
    capacity reservations included, which M(amazon.aws.ec2_launch_template) has no options for.
  - The last version of a template is compared with O(templates[].data). Where it differs, a version with all of the
    data is written and made the default one. No version is ever changed or removed.
  - A template without the tag C(modelplane.ai/managed-by=modelplane.fleet), or with those of another fleet or cluster,
    is neither changed nor deleted, and fails the task.
options:
  templates:
    description: The templates.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: The name.
        type: str
        required: true
      data:
        description:
          - The data as C(LaunchTemplateData) of the API has them, with its names of fields.
          - They are not looked at with O(state=absent).
        type: dict
        default: {}
  tags:
    description:
      - Tags of the templates, besides C(Name). C(modelplane.ai/managed-by) is always set.
      - Other tags that a template has stay, unless they start with C(modelplane.ai/).
    type: dict
    default: {}
  purge:
    description:
      - Whether to remove the templates of the cluster that are not listed. Its name is the tag C(modelplane.ai/cluster)
        of O(tags), which has to be given then.
    type: bool
    default: false
  state:
    description: V(absent) removes the listed templates, and with O(purge) all of the cluster.
    type: str
    choices: [present, absent]
    default: present
extends_documentation_fragment:
  - modelplane.fleet.aws
attributes:
  check_mode:
    support: full
    description: Nothing is sent that changes anything. A template that would be made has an empty RV(templates.id).
  diff_mode:
    support: full
    description: What changes of each template is shown.
  idempotent:
    support: full
    description:
      - The order of network interfaces, block devices and groups means nothing, and neither do defaults that EC2 adds.
seealso:
  - module: modelplane.fleet.eks_nodegroup
"""

EXAMPLES = r"""
- name: Give a pool in a Capacity Block its template
  modelplane.fleet.ec2_launch_template:
    region: us-west-2
    templates:
      - name: eks-us-west-lt-gpu-h200-99b1f
        data:
          InstanceType: p5en.48xlarge
          BlockDeviceMappings:
            - {DeviceName: /dev/xvda, Ebs: {VolumeSize: 500}}
          InstanceMarketOptions: {MarketType: capacity-block}
          CapacityReservationSpecification:
            CapacityReservationPreference: capacity-reservations-only
            CapacityReservationTarget: {CapacityReservationId: cr-0123456789abcdef0}
    tags:
      modelplane.ai/cluster: modelplane-system-eks-us-west-eks-03b8e
    purge: true

- name: Remove all templates of a cluster
  modelplane.fleet.ec2_launch_template:
    region: us-west-2
    tags:
      modelplane.ai/cluster: modelplane-system-eks-us-west-eks-03b8e
    purge: true
    state: absent
"""

RETURN = r"""
templates:
  description: The templates by name.
  returned: when O(state=present)
  type: dict
  contains:
    id:
      description: The id; empty in check mode for one that would be made.
      type: str
      returned: always
    version:
      description: The number of the version that has the data.
      type: int
      returned: always
    default_version:
      description: The number of the default version, which is the same.
      type: int
      returned: always
  sample:
    eks-us-west-lt-gpu-h200-99b1f: {id: lt-0123456789abcdef0, version: 2, default_version: 2}
removed:
  description: The names of the templates that were removed (in check mode, would be).
  returned: always
  type: list
  elements: str
  sample: []
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelplane.fleet.plugins.module_utils.aws import launch_templates, session, task
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.changes import Changes
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.session import Account

ARGUMENTS: dict[str, Any] = {
    "argument_spec": {
        **session.ARGUMENTS,
        "templates": {
            "type": "list",
            "elements": "dict",
            "default": [],
            "options": {"name": {"type": "str", "required": True}, "data": {"type": "dict", "default": {}}},
        },
        "tags": {"type": "dict", "default": {}},
        "purge": {"type": "bool", "default": False},
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    },
    "supports_check_mode": True,
}


def work(module: AnsibleModule) -> None:
    """Do what the arguments ask for, and end the module with the result."""

    def action(account: Account, changes: Changes, _progress: Any) -> dict[str, Any]:
        return _brought(account.client("ec2"), module.params, changes)

    task.run(module, action)


def _brought(ec2: Any, params: dict[str, Any], changes: Changes) -> dict[str, Any]:
    wanted, tags = params["templates"], task.own_tags(params)
    listed = [entry["name"] for entry in wanted]
    task.check_unique("templates", listed)
    task.check_purge(params, tags)
    others = [name for name in launch_templates.of_cluster(ec2, tags) if name not in listed] if params["purge"] else []
    if params["state"] == "absent":
        return {"removed": launch_templates.remove(ec2, [*listed, *others], tags, changes)}
    templates = launch_templates.bring(ec2, wanted, tags, changes)
    return {"templates": templates, "removed": launch_templates.remove(ec2, others, tags, changes)}


def main() -> None:
    work(AnsibleModule(**ARGUMENTS))


if __name__ == "__main__":
    main()
