# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The filter `modelplane.fleet.connections`."""

from __future__ import annotations

DOCUMENTATION = r"""
name: connections
author:
  - The modelplane.fleet authors
version_added: 0.1.0
short_description: Connections to the clusters of a play
description:
  - Converts the variables of hosts in the group C(workload_clusters) to the argument C(clusters) of the modules of this
    collection.
  - Hosts whose C(fleet_target) is not V(kubernetes) are omitted.
  - All errors in the variables of all hosts are reported together. Messages do not contain values of connections.
notes:
  - Relative paths start from the directory of the host's inventory.
positional: hostvars
options:
  _input:
    description: The host names, such as C(ansible_play_hosts).
    type: list
    elements: str
    required: true
  hostvars:
    description: The variables of all hosts, in the format of the Ansible variable C(hostvars).
    type: dict
    required: true
seealso:
  - plugin: modelplane.fleet.control_connection
    plugin_type: filter
  - plugin: modelplane.fleet.fleet
    plugin_type: inventory
"""

EXAMPLES = r"""
- name: Observe the clusters of the play
  modelplane.fleet.cluster_info:
    clusters: "{{ ansible_play_hosts | modelplane.fleet.connections(hostvars) }}"
  run_once: true
"""

RETURN = r"""
_value:
  description: The connection of each cluster, in the order of the hosts.
  type: list
  elements: dict
  returned: always
  sample:
    - name: us-west
      secret: {namespace: modelplane-system, name: us-west-kubeconfig, key: kubeconfig}
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible.utils.display import Display


def connections(hosts: Any, hostvars: Any) -> list[dict[str, Any]]:
    """Return the `clusters` argument for hosts of the inventory."""
    from ansible_collections.modelplane.fleet.plugins.module_utils.arguments import connections as reading

    if isinstance(hosts, (str, Mapping)) or not isinstance(hosts, Iterable):
        raise AnsibleFilterError(
            "modelplane.fleet.connections: the input must be a list of host names, such as ansible_play_hosts"
        )
    if not isinstance(hostvars, Mapping):
        raise AnsibleFilterError("modelplane.fleet.connections: the argument must be hostvars")
    host_variables = {}
    for host in hosts:
        if host not in hostvars:
            raise AnsibleFilterError(f"modelplane.fleet.connections: {host} is no host of the inventory")
        host_variables[str(host)] = host_values(hostvars[host], reading.CLUSTER_VARIABLES)
    unused = [host for host, variables in host_variables.items() if reading.is_unused(variables)]
    if unused:
        Display().warning(
            f"fleet_target of {', '.join(unused)} is {reading.DIRECTORY}: fleet_kubeconfig and fleet_context have no "
            f"effect there; set fleet_target to {reading.KUBERNETES} to work on the clusters"
        )
    try:
        return reading.clusters(host_variables)
    except reading.ConnectionsError as error:
        raise AnsibleFilterError(f"modelplane.fleet.connections: the clusters cannot be reached:\n{error}") from None


def host_values(variables: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return the variables of a host that are set. Each variable is read once, because reading it templates it."""
    from ansible_collections.modelplane.fleet.plugins.module_utils.arguments.inventory_variables import is_blank

    values = {name: variables[name] for name in names if name in variables}
    return {name: value for name, value in values.items() if not is_blank(value)}


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"connections": connections}
