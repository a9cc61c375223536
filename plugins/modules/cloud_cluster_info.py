#!/usr/bin/python
# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.cloud_cluster_info."""

from __future__ import annotations

DOCUMENTATION = r"""
module: cloud_cluster_info
short_description: Which clusters of a fleet are to be made in a cloud, and as what
version_added: 0.1.0
description:
  - Tells of each InferenceCluster which EKSCluster or GKECluster it becomes, and of each EKSCluster and GKECluster that
    somebody wrote.
  - Tells what is wrong with each of them before anything is made. What is wrong with a pool of an InferenceCluster is
    told there.
  - Reads manifests, and the control cluster when one is given. What both have is taken from the manifests. What an
    InferenceCluster became earlier counts only if that InferenceCluster is no more.
  - An EKSCluster in the namespace C(modelplane-system), and an InferenceCluster of its name with source C(Existing) and
    the Secret of its kubeconfig, are one cluster. The name of that Secret is told when another one is written.
options:
  path:
    description:
      - The build folder. ModelReplicas are counted in it when there is no control cluster.
    type: path
extends_documentation_fragment:
  - modelplane.fleet.declared
  - modelplane.fleet.clusters.control
  - modelplane.fleet.attributes.read_only
author:
  - The modelplane.fleet authors (@modelplane)
"""

EXAMPLES = r"""
- name: See which clusters are to be made
  modelplane.fleet.cloud_cluster_info:
    resources: [manifests/]
  register: cloud

- name: Tell what is wrong with them
  ansible.builtin.debug:
    msg: "{{ cloud.clusters.values() | map(attribute='problems') | flatten }}"
"""

RETURN = r"""
clusters:
  description: Each InferenceCluster, and each EKSCluster and GKECluster that is written, by its name.
  returned: success
  type: dict
  contains:
    source:
      description: C(spec.cluster.source) of the InferenceCluster; without one, C(EKS) or C(GKE).
      type: str
      returned: always
    provider:
      description: V(eks) or V(gke); empty for a cluster that is not made in a cloud.
      type: str
      returned: always
    object:
      description:
        - The EKSCluster or GKECluster. Empty when there is none, or when the InferenceCluster cannot become one.
      type: dict
      returned: always
    cloud_name:
      description: The name of the cluster in its cloud; empty when it is not made in one.
      type: str
      returned: always
    project:
      description: The project in Google Cloud that is written; empty when that of the credentials is taken.
      type: str
      returned: always
    replicas:
      description: How many ModelReplicas are scheduled on it.
      type: int
      returned: always
    problems:
      description: What is wrong with it, a line each.
      type: list
      elements: str
      returned: always
  sample:
    eks-us-west:
      source: EKS
      provider: eks
      object:
        apiVersion: infrastructure.modelplane.ai/v1alpha1
        kind: EKSCluster
        metadata: {name: eks-us-west, namespace: modelplane-system}
        spec:
          region: us-west-2
          kubernetesVersion: "1.36"
          nodePools:
            - {name: system, role: System, instanceType: m6i.xlarge, nodeCount: 1, minNodeCount: 1, maxNodeCount: 2}
            - name: gpu-l4
              role: GPU
              instanceType: g6.12xlarge
              diskSizeGb: 200
              nodeCount: 1
              minNodeCount: 0
              maxNodeCount: 4
              gpu: {acceleratorType: nvidia-l4}
              zones: [us-west-2a]
      cloud_name: modelplane-system-eks-us-west-eks-03b8e
      project: ""
      replicas: 0
      problems: []
    gke-us-central:
      source: GKE
      provider: gke
      object:
        apiVersion: infrastructure.modelplane.ai/v1alpha1
        kind: GKECluster
        metadata: {name: gke-us-central, namespace: modelplane-system}
        spec:
          region: us-central1
          project: my-project
          kubernetesVersion: "1.35"
          nodePools:
            - {name: system, role: System, machineType: e2-standard-4, nodeCount: 1, minNodeCount: 1, maxNodeCount: 2}
            - name: gpu-l4
              role: GPU
              machineType: g2-standard-8
              diskSizeGb: 100
              nodeCount: 1
              minNodeCount: 1
              maxNodeCount: 4
              gpu: {acceleratorType: nvidia-l4, acceleratorCount: 1}
              zones: [us-central1-a, us-central1-c]
      cloud_name: modelplane-system-gke-us-central-g-f8ba7
      project: my-project
      replicas: 0
      problems: []
held:
  description:
    - The clusters that are to stay as they are, as their manifest, or that of a class of theirs, has errors. They are
      not in RV(clusters).
    - Always empty unless O(invalid=hold).
  returned: success
  type: list
  elements: str
  sample: []
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelplane.fleet.plugins.module_utils.arguments import declared_resources, libraries
from ansible_collections.modelplane.fleet.plugins.module_utils.arguments.manifests import prepare
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud import fleet
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.directory import StoreError
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases import build

ARGUMENTS: dict[str, Any] = {
    "argument_spec": {**declared_resources.ARGUMENTS, "path": {"type": "path"}},
    "supports_check_mode": True,
}
_KINDS = ("InferenceClass", "InferenceCluster", "EKSCluster", "GKECluster", "ModelReplica")


def work(module: AnsibleModule) -> None:
    """Do what the arguments ask for, and end the module with the result."""
    libraries.need(module, "urllib3")
    prepare(module)
    declared = declared_resources.declared(module, _KINDS)
    live = declared.live
    written = [api.wire(resource, set_only=True) for resource in declared.loaded.resources]
    if module.params["path"] and module.params["control"] is None:
        try:
            live = [*live, *map(api.wire, build.scheduled(module.params["path"]))]
        except StoreError as error:
            module.fail_json(msg=str(error))
    found = fleet.clusters(live, written, declared.loaded.locate)
    sound = {name: cluster for name, cluster in found.items() if name not in declared.held}
    module.exit_json(changed=False, clusters=sound, held=sorted(declared.held))


def main() -> None:
    work(AnsibleModule(**ARGUMENTS))


if __name__ == "__main__":
    main()
