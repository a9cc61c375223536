# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The filter `modelplane.fleet.gke_plan`."""

from __future__ import annotations

DOCUMENTATION = r"""
name: gke_plan
author:
  - The modelplane.fleet authors
version_added: 0.1.0
short_description: Plan the Google Cloud resources of a GKECluster
description:
  - Converts a GKECluster to all its Google Cloud resources, from the network to the permissions of its service account.
    Each resource has the fields of the Google Cloud API.
  - All errors in the GKECluster are reported together. If the GKECluster is composed from an InferenceCluster, the
    errors contain the field of the InferenceCluster.
options:
  _input:
    description: The GKECluster, for example from RV(modelplane.fleet.cloud_cluster_info#module:clusters).
    type: dict
    required: true
  project:
    description:
      - The project ID, for example the project of the credentials. The project of the GKECluster overrides it.
    type: str
    default: ""
  fleet:
    description: The name of the fleet, which is the value of the label C(modelplane-ai-fleet) of all resources.
    type: str
    default: default
  options:
    description: Settings that are not part of the GKECluster.
    type: dict
    default: {}
    suboptions:
      labels:
        description: Additional labels for all Google Cloud resources that support labels.
        type: dict
"""

EXAMPLES = r"""
- name: Show the planned resources
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
      C(version), C(labels) and C(service_account) (its email address).
    - C(resources) contains the resources in order of creation. Each has C(key), C(kind), C(name),
      C(parent) (the path of the parent), C(body) (the fields of the API) and C(needs) (keys of resources that must
      exist first).
    - C(storage_class), and C(secrets) (the Secrets on the control cluster for the kubeconfig and the service account
      key).
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
