# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The filter `modelplane.fleet.problems`."""

from __future__ import annotations

DOCUMENTATION = r"""
name: problems
author:
  - The modelplane.fleet authors
version_added: 0.1.0
short_description: Problems in fleet variables
description:
  - Validates the variables of this collection's playbooks before a run uses them.
  - Reports misspelled names, wrong types and choices, and invalid connections together. Messages do not contain values
    of connections.
  - With O(groups), also reports misspelled groups, and an inventory without hosts of a fleet.
positional: host, hosts
options:
  _input:
    description: The variables of all hosts, in the format of the Ansible variable C(hostvars).
    type: dict
    required: true
  host:
    description: The host with the fleet variables.
    type: str
    required: true
  hosts:
    description: The hosts of clusters.
    type: list
    elements: str
    required: true
  build:
    description: Whether manifests and a build directory are required.
    type: bool
    default: true
  groups:
    description: The groups of the inventory with their hosts, in the format of the Ansible variable C(groups).
    type: dict
    default: {}
seealso:
  - plugin: modelplane.fleet.connections
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Check the fleet variables
  ansible.builtin.assert:
    that: problems | length == 0
    fail_msg: "{{ problems | join('\n') }}"
  vars:
    problems: "{{ hostvars | modelplane.fleet.problems(groups['control_plane'] | first, ansible_play_hosts) }}"
  run_once: true
"""

RETURN = r"""
_value:
  description: The problems, one line each.
  type: list
  elements: str
  returned: always
  sample:
    - "control: fleet_biuld is no variable of modelplane.fleet, which all begin with fleet_. Did you mean fleet_build?"
"""

import functools
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible.module_utils.common.yaml import yaml_load
from ansible_collections.modelplane.fleet.plugins.plugin_utils.plain import plain

_ROLE_FOLDER = Path(__file__).parents[2] / "roles"
_ROLES = {
    "serving_stack_": "serving_stack",
    "existing_cluster_": "existing_cluster",
    "control_plane_gateway_": "control_plane",
}


def problems(hostvars: Any, host: Any, hosts: Any, build: bool = True, groups: Any = None) -> list[str]:
    """Return the problems of the variables of a fleet."""
    from ansible_collections.modelplane.fleet.plugins.module_utils.arguments import connections, inventory_variables

    if not isinstance(hostvars, Mapping) or isinstance(hosts, (str, Mapping)) or not isinstance(hosts, Iterable):
        raise AnsibleFilterError("modelplane.fleet.problems: the input must be hostvars, and hosts a list of names")
    of_roles = _of_roles()
    prefixes = (inventory_variables.PREFIX, *of_roles)
    return inventory_variables.problems(
        str(host),
        _read(hostvars[host], {*inventory_variables.OF_FLEET, *connections.CONTROL_VARIABLES}, prefixes),
        {
            str(name): _read(
                hostvars[name], {*inventory_variables.OF_CLUSTER, *connections.CLUSTER_VARIABLES}, prefixes
            )
            for name in hosts
            if name != host
        },
        build=build,
        of_roles=of_roles,
        groups={str(name): [str(member) for member in members] for name, members in (groups or {}).items()},
    )


@functools.cache
def _of_roles() -> dict[str, frozenset[str]]:
    """Return the variables that roles read, by the prefix that is unique to the role."""
    from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud import registry

    variables_by_prefix = {}
    of_clouds = {f"{name}_cluster_": f"{name}_cluster" for name in registry.BY_NAME}
    for prefix, role in {**_ROLES, **of_clouds}.items():
        text = (_ROLE_FOLDER / role / "meta" / "argument_specs.yml").read_text(encoding="utf-8")
        specs = yaml_load(text)
        options = (name for entry in specs["argument_specs"].values() for name in entry.get("options", ()))
        variables_by_prefix[prefix] = frozenset(name for name in options if name.startswith(prefix))
    return variables_by_prefix


def _read(variables: Mapping[str, Any], names: set[str], prefixes: tuple[str, ...]) -> dict[str, Any]:
    """Return the variables with these names as plain data, and variables with similar names as None.

    Ansible templates a variable when it is read, and a copy of a lazy variable includes its template engine."""
    return {
        name: plain(variables[name]) if name in names else None
        for name in variables
        if name in names or name.startswith(prefixes)
    }


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"problems": problems}
