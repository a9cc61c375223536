# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The filter `modelplane.fleet.eks_plan`."""

from __future__ import annotations

DOCUMENTATION = r"""
name: eks_plan
author:
  - The modelplane.fleet authors
version_added: 0.1.0
short_description: What the clusters of a fleet on Amazon EKS are in AWS
description:
  - Makes a plan of each InferenceCluster of source C(EKS) and of each EKSCluster - networks, roles, node groups, launch
    templates, addons and storage, with all names and settings - without asking AWS for anything.
  - Tells what AWS would refuse, and what would not work.
positional: zones
options:
  _input:
    description:
      - Resources of the fleet, as M(modelplane.fleet.cloud_cluster_info) returns them. Other kinds are passed over.
    type: list
    elements: dict
    required: true
  zones:
    description:
      - By cluster, the zones of its subnets, for regions and accounts that do not have the first ones (C(a), C(b), …).
    type: dict
    default: {}
seealso:
  - module: modelplane.fleet.cloud_cluster_info
    plugin_type: module
"""

EXAMPLES = r"""
- name: Read which clusters there are to be
  modelplane.fleet.cloud_cluster_info:
    resources: [manifests/]
  register: declared

- name: Tell their node groups
  ansible.builtin.debug:
    msg: "{{ (declared.resources | modelplane.fleet.eks_plan).plans['eks-us-west'].node_groups }}"
"""

RETURN = r"""
_value:
  description: Plans and problems.
  type: dict
  returned: always
  contains:
    plans:
      description: The plan of each cluster without errors, by its name.
      type: dict
    problems:
      description: What is wrong, with C(cluster), C(severity) (V(error) or V(warning)) and C(message).
      type: list
      elements: dict
"""

from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.plain import plain
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud import eks

_NAME = "modelplane.fleet.eks_plan"


def eks_plan(resources: Any, zones: Any = None) -> dict[str, Any]:
    """The plans of all clusters on EKS."""
    if isinstance(resources, (str, Mapping)) or not isinstance(zones or {}, Mapping):
        raise AnsibleFilterError(f"{_NAME}: the input must be a list of resources, zones a mapping of lists by cluster")
    given = plain({"resources": list(resources), "zones": zones or {}}).content
    try:
        fleet = eks.plans(given["resources"], {name: value for name, value in given["zones"].items() if value})
    except (KeyError, TypeError) as error:
        raise AnsibleFilterError(f"{_NAME}: a resource is not valid: {type(error).__name__} {error}") from None
    return {
        "plans": fleet.plans,
        "problems": [
            {"cluster": name, "severity": problem.severity, "message": str(problem)} for name, problem in fleet.problems
        ],
    }


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"eks_plan": eks_plan}
