# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The filter `modelplane.fleet.control_connection`."""

from __future__ import annotations

DOCUMENTATION = r"""
name: control_connection
author:
  - The modelplane.fleet authors
version_added: 0.1.0
short_description: Connection to a fleet's control cluster
description:
  - Converts the variables of the host in the group C(control_plane) to the argument C(control) of the modules of this
    collection.
  - A fleet without C(fleet_control) and C(fleet_control_kubeconfig) has no control cluster. The result is then null,
    and the modules do not use a control cluster.
  - Messages do not contain values of connections.
notes:
  - Relative paths start from the directory of the host's inventory.
options:
  _input:
    description: The variables of the host.
    type: dict
    required: true
seealso:
  - plugin: modelplane.fleet.connections
    plugin_type: filter
  - plugin: modelplane.fleet.fleet
    plugin_type: inventory
"""

EXAMPLES = r"""
- name: Observe clusters whose kubeconfigs are on the control cluster
  modelplane.fleet.cluster_info:
    clusters: "{{ ansible_play_hosts | modelplane.fleet.connections(hostvars) }}"
    control: "{{ hostvars[groups['control_plane'] | first] | modelplane.fleet.control_connection }}"
  run_once: true
"""

RETURN = r"""
_value:
  description: The connection. Null for a fleet without a control cluster.
  type: dict
  returned: always
  sample: {kubeconfig: /etc/fleet/control.kubeconfig}
"""

from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError


def control_connection(variables: Any) -> dict[str, Any] | None:
    """Return the `control` argument of the modules for the host of the control plane."""
    from ansible_collections.modelplane.fleet.plugins.filter.connections import host_values
    from ansible_collections.modelplane.fleet.plugins.module_utils.arguments import connections as reading

    if not isinstance(variables, Mapping):
        raise AnsibleFilterError(
            "modelplane.fleet.control_connection: the input must be the variables of a host, such as "
            "hostvars[groups['control_plane'] | first]"
        )
    host = str(variables.get("inventory_hostname") or "control_plane")
    try:
        return reading.control_connection(host, host_values(variables, reading.CONTROL_VARIABLES))
    except reading.ConnectionsError as error:
        raise AnsibleFilterError(
            f"modelplane.fleet.control_connection: the control cluster cannot be reached:\n{error}"
        ) from None


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"control_connection": control_connection}
