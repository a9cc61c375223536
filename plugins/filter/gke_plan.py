# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The filter `modelplane.fleet.gke_plan`."""

from __future__ import annotations

DOCUMENTATION = r"""
name: gke_plan
author:
  - The modelplane.fleet authors
version_added: 0.1.0
short_description: All that a GKECluster becomes in Google Cloud
description:
  - Turns a GKECluster into everything that is created for it, from the network to the rights of its service account,
    each object with the fields that Google's API takes.
  - All findings in the GKECluster are reported at once. For one that is composed of an InferenceCluster, they name the
    place in the InferenceCluster.
options:
  _input:
    description: The GKECluster, such as RV(modelplane.fleet.cloud_cluster_info#module:clusters) has it.
    type: dict
    required: true
  project:
    description:
      - The ID of the project, such as that of the credentials. A project that the GKECluster itself says wins over it.
    type: str
    default: ""
  fleet:
    description: The name of the fleet, which becomes the label C(modelplane-ai-fleet) of everything in Google Cloud.
    type: str
    default: default
  options:
    description: What is chosen beside the GKECluster.
    type: dict
    default: {}
    suboptions:
      labels:
        description: More labels for everything in Google Cloud that takes labels.
        type: dict
"""

EXAMPLES = r"""
- name: Show what would be created
  ansible.builtin.debug:
    msg: "{{ cluster | modelplane.fleet.gke_plan(project='my-project', fleet='production') }}"
  vars:
    cluster:
      apiVersion: infrastructure.modelplane.ai/v1alpha1
      kind: GKECluster
      metadata: {name: gke-us-central, namespace: modelplane-system}
      spec:
        region: us-central1
        nodePools:
          - name: gpu-l4
            role: GPU
            machineType: g2-standard-8
            gpu: {acceleratorType: nvidia-l4}
            zones: [us-central1-a, us-central1-c]
"""

RETURN = r"""
_value:
  description:
    - C(object) (namespace and name), C(name) (of the cluster, its network and its subnetwork), C(project), C(region),
      C(version), C(labels) and C(service_account) (its address).
    - C(resources), in the order in which they can be created, each with C(key), C(kind), C(name), C(parent) (the path
      of what it is in), C(body) (the fields that its API takes) and C(needs) (keys of those that have to exist
      first).
    - C(storage_class), and C(secrets) (where the kubeconfig and the key of the service account go on the control
      cluster).
  type: dict
  returned: always
"""

from collections.abc import Callable
from typing import Any

from ansible_collections.modelplane.fleet.plugins.plugin_utils.cloud_plan import planned, texts


def gke_plan(cluster: Any, project: Any = "", fleet: Any = "default", options: Any = None) -> dict[str, Any]:
    """Return the plan of a GKECluster."""
    from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.gke.plan import Options, plan

    return planned(
        "GKECluster",
        cluster,
        options,
        lambda wire, chosen: plan(wire, str(project or ""), str(fleet), Options(labels=texts(chosen["labels"]))),
        mappings=("labels",),
    )


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"gke_plan": gke_plan}
