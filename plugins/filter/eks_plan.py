# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The filter `modelplane.fleet.eks_plan`."""

from __future__ import annotations

DOCUMENTATION = r"""
name: eks_plan
author:
  - The modelplane.fleet authors
version_added: 0.1.0
short_description: All that an EKSCluster becomes in AWS
description:
  - Turns an EKSCluster into the names and settings of everything that is created for it, from the VPC to the addons.
    IDs, which objects get when they are created, are references.
  - All findings in the EKSCluster are reported at once. For one that is composed of an InferenceCluster, they name the
    place in the InferenceCluster.
options:
  _input:
    description: The EKSCluster, such as RV(modelplane.fleet.cloud_cluster_info#module:clusters) has it.
    type: dict
    required: true
  fleet:
    description: The name of the fleet, which becomes the tag C(modelplane.ai/fleet) of everything in AWS.
    type: str
    default: default
  options:
    description: What is chosen beside the EKSCluster.
    type: dict
    default: {}
    suboptions:
      tags:
        description: More tags for everything in AWS.
        type: dict
      zones:
        description:
          - The names of the zones of the region that a control plane can be in. Those that node pools name get the
            subnets, then the first of the others. Without this list, the zones have the letters a, b, c and so on.
          - C(networking.zones) of the EKSCluster is used as it is written.
        type: list
        elements: str
      subnet_zones:
        description:
          - The zones that subnets of the cluster have already, by their ranges, such as
            RV(modelplane.fleet.cloud_preflight_info#module:subnet_zones) has them. They stay.
        type: dict
      groups_without_template:
        description:
          - The node groups of the cluster that exist without a launch template, such as
            RV(modelplane.fleet.cloud_preflight_info#module:groups_without_template) has them. EKS adds none to them, so
            they stay without. All others get one.
        type: list
        elements: str
      public_access_cidrs:
        description: The ranges of addresses that reach the public endpoint of the API server. Without it, as they are.
        type: list
        elements: str
      addons:
        description:
          - By the name of an addon, its C(version) (a text; empty is what EKS chooses) and its C(configuration) (a
            mapping). Addons of other names are added.
        type: dict
"""

EXAMPLES = r"""
- name: Create all that a cluster on EKS needs
  modelplane.fleet.cloud_resources:
    provider: eks
    region: us-west-2
    resources: "{{ (cluster | modelplane.fleet.eks_plan(fleet='production')).resources }}"
    purge: true
  vars:
    cluster:
      apiVersion: infrastructure.modelplane.ai/v1alpha1
      kind: EKSCluster
      metadata: {name: eks-us-west, namespace: modelplane-system}
      spec:
        region: us-west-2
        nodePools:
          - name: gpu-l4
            role: GPU
            instanceType: g6.12xlarge
            gpu: {acceleratorType: nvidia-l4}
            zones: [us-west-2a]
"""

RETURN = r"""
_value:
  description:
    - C(resources), all objects, as O(modelplane.fleet.cloud_resources#module:resources) takes them.
    - C(object) (namespace and name), C(name) (in AWS), C(region), C(version), C(zones), C(tags), C(vpc), C(subnets),
      C(launch_templates) and C(node_groups) (those of controllers first), which
      M(modelplane.fleet.cloud_preflight_info) reads.
    - C(storage_class) (without the ID of the file system), C(secret) (where its kubeconfig goes on the control cluster)
      and C(efa) (whether a pool has it).
  type: dict
  returned: always
"""

from collections.abc import Callable
from typing import Any

from ansible_collections.modelplane.fleet.plugins.plugin_utils.cloud_plan import planned, texts


def eks_plan(cluster: Any, fleet: Any = "default", options: Any = None) -> dict[str, Any]:
    """Return the plan of an EKSCluster."""
    from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks.plan import Options, plan

    return planned(
        "EKSCluster",
        cluster,
        options,
        lambda wire, chosen: plan(wire, str(fleet), Options(**{**chosen, "tags": texts(chosen["tags"])})),
        mappings=("addons", "subnet_zones", "tags"),
        lists=("groups_without_template", "public_access_cidrs", "zones"),
    )


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"eks_plan": eks_plan}
