# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The filter `modelplane.fleet.eks_plan`."""

from __future__ import annotations

DOCUMENTATION = r"""
name: eks_plan
author:
  - The modelplane.fleet authors
version_added: 0.1.0
short_description: Plan the AWS resources of an EKSCluster
description:
  - Converts an EKSCluster to the names and settings of all its AWS resources, from the VPC to the addons. The plan
    contains references for IDs that AWS assigns at creation.
  - All errors in the EKSCluster are reported together. If the EKSCluster is composed from an InferenceCluster, the
    errors contain the field of the InferenceCluster.
options:
  _input:
    description: The EKSCluster, for example from RV(modelplane.fleet.cloud_cluster_info#module:clusters).
    type: dict
    required: true
  fleet:
    description: The name of the fleet, which is the value of the tag C(modelplane.ai/fleet) of all AWS resources.
    type: str
    default: default
  options:
    description: Settings that are not part of the EKSCluster.
    type: dict
    default: {}
    suboptions:
      tags:
        description: Additional tags for all AWS resources.
        type: dict
      zones:
        description:
          - The names of the zones that support the control plane. Subnets use the zones of node pools first, and then
            the first of the other zones. If unset, the zones of the region have the suffixes a, b, c and so on.
          - If the EKSCluster has C(networking.zones), its zones are used.
        type: list
        elements: str
      subnet_zones:
        description:
          - The zones of existing subnets of the cluster, by CIDR range, for example from
            RV(modelplane.fleet.cloud_preflight_info#module:subnet_zones). Existing subnets keep their zones.
        type: dict
      groups_without_template:
        description:
          - The existing node groups of the cluster without a launch template, for example from
            RV(modelplane.fleet.cloud_preflight_info#module:groups_without_template). They stay without a launch
            template, because EKS cannot add one. All other node groups get a launch template.
        type: list
        elements: str
      public_access_cidrs:
        description: CIDR ranges with access to the public endpoint of the API server. If unset, access is not changed.
        type: list
        elements: str
      addons:
        description:
          - The addons by name, each with C(version) (a string, or empty for the version that EKS selects) and
            C(configuration) (a mapping). New names are additional addons.
        type: dict
"""

EXAMPLES = r"""
- name: Create all AWS resources of an EKS cluster
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
    - C(resources) contains all resources, in the format of O(modelplane.fleet.cloud_resources#module:resources).
    - C(object) (namespace and name), C(name) (in AWS), C(region), C(version), C(zones), C(tags), C(vpc), C(subnets),
      C(launch_templates) and C(node_groups) (node groups of controllers first) are input for
      M(modelplane.fleet.cloud_preflight_info).
    - C(storage_class) (without the ID of the file system), C(secret) (the kubeconfig Secret on the control cluster) and
      C(efa) (whether a node pool uses EFA).
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
