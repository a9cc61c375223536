# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The filter `modelplane.fleet.fleet_hosts`."""

from __future__ import annotations

DOCUMENTATION = r"""
name: fleet_hosts
author:
  - The modelplane.fleet authors
version_added: 0.1.0
short_description: Clusters that an inventory has, and what a run does with each
description:
  - Reads the variables of hosts that say how playbooks of this collection treat their clusters.
positional: host, groups, hosts
options:
  _input:
    description: The variables of all hosts, as Ansible has them in C(hostvars).
    type: dict
    required: true
  host:
    description: The host whose variables are those of the fleet.
    type: str
    required: true
  groups:
    description: The groups of the inventory with their hosts, as Ansible has them in C(groups).
    type: dict
    required: true
  hosts:
    description: The hosts of the run, such as C(ansible_play_hosts).
    type: list
    elements: str
    required: true
seealso:
  - plugin: modelplane.fleet.connections
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Show the clusters that this run does not read
  ansible.builtin.debug:
    msg: "{{ (hostvars | modelplane.fleet.fleet_hosts('control', groups, ansible_play_hosts)).others }}"
"""

RETURN = r"""
_value:
  description:
    - Names of clusters. C(names) are those of all hosts, C(declared) those whose objects are files, C(others) those
      that are reached and are no part of the run, C(drain) those to drain.
    - C(absent) has the names in their cloud of clusters of the run that are not there, C(removes) whether a host says
      that its cluster in a cloud is to be removed.
    - C(provided) has those that others created (C(fleet_provision)).
    - C(promised) has the API groups that the collection installs beneath a fleet, when it does so on all clusters.
  type: dict
  returned: always
  sample:
    names: [us-west, us-central, onprem]
    declared: [onprem]
    others: [us-central]
    drain: []
    absent: []
    provided: [onprem]
    removes: false
    promised: []
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.modelplane.fleet.plugins.plugin_utils.plain import plain


def fleet_hosts(hostvars: Any, host: Any, groups: Any, hosts: Any) -> dict[str, Any]:
    """Return the clusters of a run by role, from the hosts of an inventory."""
    from ansible_collections.modelplane.fleet.plugins.filter.connections import host_values
    from ansible_collections.modelplane.fleet.plugins.module_utils.arguments import inventory_variables as reading

    if not isinstance(hostvars, Mapping) or not isinstance(groups, Mapping) or not isinstance(hosts, Iterable):
        raise AnsibleFilterError("modelplane.fleet.fleet_hosts: the input must be hostvars, groups a mapping")
    return reading.fleet_hosts(
        plain(host_values(hostvars[host], ("fleet_drain", "fleet_control_gateway"))),
        {
            str(name): plain(host_values(hostvars[name], reading.OF_HOSTS))
            for name in groups.get(reading.WORKLOAD_CLUSTERS) or ()
        },
        frozenset(map(str, hosts)),
    )


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"fleet_hosts": fleet_hosts}
