# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The filter `modelplane.fleet.provisioned_clusters`."""

from __future__ import annotations

DOCUMENTATION = r"""
name: provisioned_clusters
author:
  - The modelplane.fleet authors
version_added: 0.1.0
short_description: Hosts whose cloud clusters the fleet creates
description:
  - Selects the hosts whose connection uses the cloud name that the fleet gives their cluster. If a host uses another
    name, or if its C(fleet_provision) is V(provided), its cluster is an existing cluster.
positional: hostvars, clusters
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
  clusters:
    description: The clusters, as in RV(modelplane.fleet.cloud_cluster_info#module:clusters).
    type: dict
    required: true
seealso:
  - module: modelplane.fleet.cloud_cluster_info
"""

EXAMPLES = r"""
- name: Show the clusters that the fleet creates
  ansible.builtin.debug:
    msg: "{{ ansible_play_hosts | modelplane.fleet.provisioned_clusters(hostvars, clouds.clusters) }}"
"""

RETURN = r"""
_value:
  description: The value of each cluster in O(clusters), by host.
  type: dict
  returned: always
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.modelplane.fleet.plugins.plugin_utils.plain import plain


def provisioned_clusters(hosts: Any, hostvars: Any, clusters: Any) -> dict[str, Any]:
    """Return the description of each cluster that the fleet creates, by host."""
    from ansible_collections.modelplane.fleet.plugins.filter.connections import host_values
    from ansible_collections.modelplane.fleet.plugins.module_utils.arguments import connections as reading

    if isinstance(hosts, (str, Mapping)) or not isinstance(hosts, Iterable) or not isinstance(hostvars, Mapping):
        raise AnsibleFilterError(
            "modelplane.fleet.provisioned_clusters: the input must be a list of host names, the first argument hostvars"
        )
    known_clusters = plain(clusters or {})
    names = (*reading.CLUSTER_VARIABLES, *reading.PROVISION_VARIABLES)
    try:
        clusters_by_host = {
            str(host): reading.provisioned(str(host), plain(host_values(hostvars[host], names)), known_clusters)
            for host in hosts
        }
    except reading.ConnectionsError as error:
        raise AnsibleFilterError(f"modelplane.fleet.provisioned_clusters: {error}") from None
    return {host: about for host, about in clusters_by_host.items() if about}


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"provisioned_clusters": provisioned_clusters}
