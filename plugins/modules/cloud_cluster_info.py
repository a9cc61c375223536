#!/usr/bin/python
# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.cloud_cluster_info."""

from __future__ import annotations

DOCUMENTATION = r"""
module: cloud_cluster_info
short_description: Gather the cloud clusters of a fleet
version_added: 0.1.0
description:
  - Returns the cloud cluster of each InferenceCluster, and each EKSCluster or GKECluster that a user created.
  - Returns the problems of each cluster before anything is created. Problems of an InferenceCluster's node pool are
    returned with that InferenceCluster.
  - Reads manifests, and the control cluster if O(control) is given. Manifests override resources of the same name on
    the control cluster. The cloud cluster of an earlier run is included only if its InferenceCluster no longer exists.
  - An EKSCluster or GKECluster in the namespace C(modelplane-system) belongs to the InferenceCluster of the same name,
    if that InferenceCluster has the source C(Existing) and refers to the cluster's kubeconfig Secret. If it refers to
    another Secret, the problem contains the expected Secret name.
options:
  path:
    description:
      - The build directory. Used to count ModelReplicas if no control cluster is given.
    type: path
extends_documentation_fragment:
  - modelplane.fleet.declared
  - modelplane.fleet.clusters.control
  - modelplane.fleet.attributes.read_only
"""

EXAMPLES = r"""
- name: Gather the cloud clusters
  modelplane.fleet.cloud_cluster_info:
    resources: [manifests/]
  register: cloud

- name: Show their problems
  ansible.builtin.debug:
    msg: "{{ cloud.clusters.values() | map(attribute='problems') | flatten }}"
"""

RETURN = r"""
clusters:
  description: Each InferenceCluster, and each EKSCluster or GKECluster, by name.
  returned: success
  type: dict
  contains:
    source:
      description: The C(spec.cluster.source) of the InferenceCluster. Without an InferenceCluster, the cloud's source.
      type: str
      returned: always
    provider:
      description: The name of the cloud, as in variable names. Empty for a cluster that is not created in a cloud.
      type: str
      returned: always
    object:
      description:
        - The EKSCluster or GKECluster object. Empty if the cluster is not created in a cloud, or if the
          InferenceCluster has errors that prevent it.
      type: dict
      returned: always
    cloud_name:
      description: The name of the cluster in its cloud. Empty for a cluster that is not created in a cloud.
      type: str
      returned: always
    project:
      description: The cloud project of the cluster. Empty if the project of the credentials is used.
      type: str
      returned: always
    replicas:
      description: The number of ModelReplicas that are scheduled on the cluster.
      type: int
      returned: always
    problems:
      description: The problems of the cluster, one line each.
      type: list
      elements: str
      returned: always
  sample:
    onprem:
      source: Existing
      provider: ""
      object: {}
      cloud_name: ""
      project: ""
      replicas: 2
      problems: []
networks:
  description: The CIDR ranges of the cluster networks, by cloud name, in the format that preflight checks use.
  returned: success
  type: dict
  sample: {eks: [{name: eks-us-west, region: us-west-2, cidr: 10.0.0.0/16}]}
held:
  description:
    - The clusters that are frozen because their manifest, or the manifest of one of their classes, has errors. They are
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
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud import fleet, registry
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.directory import StoreError
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases import build

ARGUMENTS: dict[str, Any] = {
    "argument_spec": {**declared_resources.ARGUMENTS, "path": {"type": "path"}},
    "supports_check_mode": True,
}
_KINDS = ("InferenceClass", *registry.CLUSTER_KINDS, "ModelReplica")


def work(module: AnsibleModule) -> None:
    """Run the module with its arguments, and exit with its result."""
    libraries.need(module, "urllib3")
    prepare(module)
    declared = declared_resources.declared(module, _KINDS)
    live = declared.live
    declared_objects = [api.wire(resource, set_only=True) for resource in declared.loaded.resources]
    if module.params["path"] and module.params["control"] is None:
        try:
            live = [*live, *map(api.wire, build.scheduled(module.params["path"]))]
        except StoreError as error:
            module.fail_json(msg=str(error))
    clusters = fleet.clusters(live, declared_objects, declared.loaded.locate)
    sound = {name: cluster for name, cluster in clusters.items() if name not in declared.held_clusters}
    module.exit_json(
        changed=False, clusters=sound, networks=fleet.networks(clusters), held=sorted(declared.held_clusters)
    )


def main() -> None:
    work(AnsibleModule(**ARGUMENTS))


if __name__ == "__main__":
    main()
