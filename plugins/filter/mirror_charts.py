# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The filter `modelplane.fleet.mirror_charts`."""

from __future__ import annotations

DOCUMENTATION = r"""
name: mirror_charts
author:
  - The modelplane.fleet authors
version_added: 0.1.0
short_description: Helm charts for the clusters of a fleet and their values
description:
  - Converts host variables to the list of chart archives that the roles of this collection would install. Each
    archive is in the list once.
  - Mirrors in the variables are ignored, because the list contains the original sources of the charts.
positional: hosts, components, clusters
options:
  _input:
    description: The variables of all hosts, in the format of the Ansible variable C(hostvars).
    type: dict
    required: true
  hosts:
    description: The hosts of clusters.
    type: list
    elements: str
    required: true
  components:
    description: The default components, for hosts without a variable for components.
    type: list
    elements: dict
    required: true
  clusters:
    description:
      - The result of M(modelplane.fleet.serving_stack_info). A cluster that is missing from the result gets all
        components, except the components of Model gateways, which run only on declared clusters.
    type: dict
    default: {}
  prefix:
    description: The prefix of the variable names.
    type: str
    default: serving_stack
  places:
    description:
      - C(sources) (replacement URLs by URL prefix of a repository), and C(charts_dir) and C(chart_registry) for the
        copies.
    type: dict
    default: {}
  archives:
    description: The file names in C(charts_dir).
    type: list
    elements: str
    default: []
  only_problems:
    description: Whether to return the problems of the variables instead of the charts.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Show the charts for all clusters
  ansible.builtin.debug:
    msg: "{{ hostvars | modelplane.fleet.mirror_charts(groups['workload_clusters'], serving_stack_components) }}"
"""

RETURN = r"""
_value:
  description:
    - The archives, each with C(chart), C(version), C(source), C(file), C(ref), C(repository) and C(destination).
    - C(renders) contains C(release), C(namespace) and C(values) of each installation.
    - If O(only_problems) is V(true), one line for each problem of the variables, such as an unsupported old version.
  type: list
  elements: raw
  returned: always
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ansible.errors import AnsibleFilterError
from ansible_collections.modelplane.fleet.plugins.plugin_utils.plain import plain

if TYPE_CHECKING:
    from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.mirror import ClusterStack

_NAME = "modelplane.fleet.mirror_charts"
# Keys of a component that define its release. Its objects might require files of a role.
_KEYS = (
    "key",
    "wave",
    "needs",
    "gateway_need",
    "variants",
    "unneeded",
    "state",
    "chart",
    "source",
    "version",
    "version_field",
    "least_version",
    "least_version_reason",
    "namespace",
    "values",
    "values_from",
)


def mirror_charts(
    hostvars: Any,
    hosts: Any,
    components: Any,
    clusters: Any = None,
    prefix: str = "serving_stack",
    places: Any = None,
    archives: Any = (),
    only_problems: bool = False,
) -> list[Any]:
    """Return the charts that hosts need, or only the problems of their variables."""
    from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.mirror import Locations, charts
    from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.stack import StackError

    if not isinstance(hostvars, Mapping) or isinstance(hosts, (str, Mapping)) or not isinstance(hosts, Iterable):
        raise AnsibleFilterError(f"{_NAME}: the input must be hostvars, and hosts a list of names")
    if not (hosts := list(hosts)):
        # Nor are components templated that no host has.
        return []
    known_clusters = plain(clusters or {})
    default = _components(components)
    missing = [str(host) for host in hosts if host not in hostvars]
    if missing:
        raise AnsibleFilterError(f"{_NAME}: there is no host {', '.join(missing)}")
    users = [_user(str(host), hostvars[host], default, known_clusters, prefix) for host in hosts]
    try:
        chart_list = charts(users, Locations(**plain(places or {})), plain(archives))
        return [] if only_problems else chart_list
    except StackError as error:
        if only_problems:
            return list(error.problems)
        raise AnsibleFilterError(f"the variables of the serving stack cannot be used:\n{error}") from None
    except (TypeError, KeyError) as error:
        raise AnsibleFilterError(f"{_NAME}: {error}") from None


def _user(
    host: str, variables: Mapping[str, Any], default: list[dict[str, Any]], known: Mapping[str, Any], prefix: str
) -> ClusterStack:
    from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.mirror import ClusterStack
    from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.stack import Choices

    read = {
        name: plain(variables[f"{prefix}_{name}"])
        for name in ("cluster", "drivers", "states", "versions", "values")
        if f"{prefix}_{name}" in variables
    }
    for name in ("states", "versions", "values"):
        if not isinstance(read.get(name, {}), Mapping):
            raise AnsibleFilterError(f"{host}: {prefix}_{name} must be a mapping, by component")
    cluster = str(read.pop("cluster", None) or variables.get("fleet_cluster") or host)
    about = known.get(cluster)
    drivers = read.pop("drivers", None if about is None else about["drivers"])
    components = _components(variables[f"{prefix}_components"]) if f"{prefix}_components" in variables else default
    if prefix != "serving_stack":
        read["variables"] = prefix
    declared = about or {}
    choices = Choices(
        **read,
        drivers=drivers or (),
        gateway_needs=declared.get("gateway_needs") or (),
        stack=declared.get("stack") or {},
    )
    return ClusterStack(cluster, components, choices, devices_known=drivers is not None)


def _components(given: Any) -> list[dict[str, Any]]:
    return [{key: plain(component[key]) for key in _KEYS if key in component} for component in given]


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"mirror_charts": mirror_charts}
