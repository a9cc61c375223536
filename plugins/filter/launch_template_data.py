# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The filter `modelplane.fleet.launch_template_data`."""

from __future__ import annotations

DOCUMENTATION = r"""
name: launch_template_data
author:
  - The modelplane.fleet authors
version_added: 0.1.0
short_description: The whole data of a launch template of a plan
description:
  - Adds the network interfaces to the data of a launch template of P(modelplane.fleet.eks_plan#filter), one for each
    network card of a pool with EFA.
positional: groups
options:
  _input:
    description: One of the C(launch_templates) of a plan.
    type: dict
    required: true
  groups:
    description: The IDs of the security groups of each interface, for EFA and of the cluster. EKS adds none to these.
    type: list
    elements: str
    required: true
"""

EXAMPLES = r"""
- name: Show the data of a launch template
  ansible.builtin.debug:
    msg: "{{ template | modelplane.fleet.launch_template_data(['sg-0a1b2c3d4e5f60718', 'sg-08f7e6d5c4b3a2910']) }}"
  vars:
    template:
      pool: gpu-h200
      name: eks-us-west-lt-gpu-h200-99b1f
      network_cards: 16
      data:
        InstanceType: p5en.48xlarge
        BlockDeviceMappings:
          - DeviceName: /dev/xvda
            Ebs: {VolumeSize: 500}
"""

RETURN = r"""
_value:
  description: C(LaunchTemplateData) of the EC2 API.
  type: dict
  returned: always
"""

from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.modelplane.fleet.plugins.plugin_utils.plain import plain

_NAME = "modelplane.fleet.launch_template_data"


def launch_template_data(template: Any, groups: Any) -> dict[str, Any]:
    """The whole data of a launch template."""
    from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks.launch_templates import complete_data

    if not isinstance(template, Mapping) or not {"data", "network_cards"} <= set(template):
        raise AnsibleFilterError(f"{_NAME}: the input must be a launch template of a plan, with data and network_cards")
    if not isinstance(groups, (list, tuple)) or not all(isinstance(group, str) and group for group in groups):
        raise AnsibleFilterError(f"{_NAME}: the argument must be a list of IDs of security groups")
    return complete_data(plain(template), plain(groups))


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"launch_template_data": launch_template_data}
