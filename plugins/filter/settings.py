# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The filter `modelplane.fleet.settings`."""

from __future__ import annotations

DOCUMENTATION = r"""
name: settings
author:
  - The modelplane.fleet authors
version_added: 0.1.0
short_description: Settings of a fleet
description:
  - Returns the C(fleet_*) variables of a host that are set. Null, empty text, and text with only spaces count as unset,
    because AWX passes a blank survey field as empty text.
  - For a list variable, comma-separated text is converted to a list.
options:
  _input:
    description: The variables of the host of the fleet.
    type: dict
    required: true
seealso:
  - plugin: modelplane.fleet.problems
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Show the clusters to drain
  ansible.builtin.debug:
    msg: "{{ (hostvars['control'] | modelplane.fleet.settings).fleet_drain | default([]) }}"
"""

RETURN = r"""
_value:
  description: The variables with a value, by name.
  type: dict
  returned: always
  sample: {fleet_name: default, fleet_strict: [unready, pending]}
"""

from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError


def settings(variables: Any) -> dict[str, Any]:
    """Return the fleet variables with a value."""
    from ansible_collections.modelplane.fleet.plugins.module_utils.arguments import inventory_variables

    if not isinstance(variables, Mapping):
        raise AnsibleFilterError(
            "modelplane.fleet.settings: the input must be the variables of a host, such as "
            "hostvars[groups['control_plane'] | first]"
        )
    return inventory_variables.set_values(variables)


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"settings": settings}
