# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The filter `modelplane.fleet.fleet_hosts`."""

from __future__ import annotations

DOCUMENTATION = r"""
name: fleet_hosts
author:
  - The modelplane.fleet authors
version_added: 0.1.0
short_description: Clusters in an inventory and their role in a run
description:
  - Reads the host variables that determine how the playbooks of this collection handle clusters.
positional: host, groups, hosts
options:
  _input:
    description: The variables of all hosts, in the format of the Ansible variable C(hostvars).
    type: dict
    required: true
  host:
    description: The host with the fleet variables.
    type: str
    required: true
  groups:
    description: The groups of the inventory with their hosts, in the format of the Ansible variable C(groups).
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
- name: Show the clusters that this run does not observe
  ansible.builtin.debug:
    msg: "{{ (hostvars | modelplane.fleet.fleet_hosts('control', groups, ansible_play_hosts)).others }}"
"""

RETURN = r"""
_value:
  description:
    - C(names) contains all cluster names, C(declared) the clusters whose objects are files (GitOps clusters),
      C(others) the other clusters that are not part of the run, and C(drain) the clusters to drain.
    - C(absent) contains the cloud names of the run's missing clusters. C(removes) is V(true) if a host
      requests the removal of its cloud cluster.
    - C(provided) contains the existing clusters, which the fleet did not create (C(fleet_provision)).
    - C(pending_api_groups) contains the API groups that the collection installs, if it installs the serving stack on
      all clusters.
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
    pending_api_groups: []
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
