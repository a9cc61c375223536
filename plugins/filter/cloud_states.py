# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The filter `modelplane.fleet.cloud_states`."""

from __future__ import annotations

DOCUMENTATION = r"""
name: cloud_states
author:
  - The modelplane.fleet authors
version_added: 0.1.0
short_description: States that hosts ask for of their clusters in clouds
description:
  - Reads the variables of hosts that say to the role of a cloud what is to become of its clusters, which is
    V(present) or V(absent).
positional: hostvars
options:
  _input:
    description: Names of hosts, such as C(ansible_play_hosts).
    type: list
    elements: str
    required: true
  hostvars:
    description: The variables of all hosts, as Ansible has them in C(hostvars).
    type: dict
    required: true
seealso:
  - plugin: modelplane.fleet.cloud_names
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Check that no cluster is to be removed
  ansible.builtin.assert:
    that: "'absent' not in ansible_play_hosts | modelplane.fleet.cloud_states(hostvars)"
"""

RETURN = r"""
_value:
  description: The states, each once, sorted. A host that says nothing of a cloud has none.
  type: list
  elements: str
  returned: always
  sample: [absent, present]
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError


def cloud_states(hosts: Any, hostvars: Any) -> list[str]:
    """Return the states that variables of hosts ask for."""
    from ansible_collections.modelplane.fleet.plugins.filter.cloud_names import cloud_names
    from ansible_collections.modelplane.fleet.plugins.filter.connections import host_values

    if isinstance(hosts, (str, Mapping)) or not isinstance(hosts, Iterable) or not isinstance(hostvars, Mapping):
        raise AnsibleFilterError(
            "modelplane.fleet.cloud_states: the input must be a list of host names, the first argument hostvars"
        )
    names = cloud_names("{}_cluster_state")
    return sorted({str(value) for host in hosts for value in host_values(hostvars[host], names).values()})


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"cloud_states": cloud_states}
