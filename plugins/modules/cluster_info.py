#!/usr/bin/python
# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.cluster_info."""

from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_info
short_description: Observe the clusters of a fleet
version_added: 0.1.0
description:
  - Returns the version of every cluster, the nodes of each node pool, the state of the serving stack, the address of
    the gateway, the workloads of the fleet, and failures of pods.
  - Compares the devices that DRA drivers publish with the devices in the InferenceClass of each node pool, and warns
    about nodes with fewer devices. Devices of a node pool are compared only if its InferenceCluster and its
    InferenceClass are available.
  - Writes the observed state to a file for M(modelplane.fleet.build).
  - An unreachable cluster never fails the task, regardless of O(on_error). It is in RV(failed_clusters), and the file
    records it as unreachable. The control cluster must be reachable, because otherwise all its objects would count as
    deleted.
options:
  path:
    description:
      - The file for the observed state, for the option O(modelplane.fleet.build#module:observations).
      - Only its owner can read it. It contains no values of Secrets, only the names of keys with a value.
      - It is written atomically, and only if it changes. In check mode it is not written.
    type: path
  fleet:
    description:
      - The name of the fleet, as in M(modelplane.fleet.apply). The fleet's inventory on each cluster contains the
        applied ModelReplicas. A plan adopts these ModelReplicas if the state of the fleet was lost.
      - Workloads of other fleets are ignored.
    type: str
    default: default
extends_documentation_fragment:
  - modelplane.fleet.observed
  - modelplane.fleet.observed.unobserved
  - modelplane.fleet.clusters
attributes:
  check_mode:
    support: full
    description: The module changes nothing on any cluster. In check mode it does not write O(path).
  diff_mode:
    support: none
    description: There is nothing to compare.
  idempotent:
    support: full
    description: The module changes nothing on any cluster. A changed O(path) does not count as a change.
notes:
  - The credentials must allow reading all observed objects. The module warns about missing permissions for Secrets,
    DeviceClasses, ResourceSlices and Events, and assumes that an unreadable Secret has the expected keys. A cluster
    that denies access to any other kind counts as unreachable.
seealso:
  - module: modelplane.fleet.build
  - module: modelplane.fleet.apply
"""

EXAMPLES = r"""
- name: Observe two clusters
  modelplane.fleet.cluster_info:
    resources:
      - manifests/
    clusters:
      - name: us-west
        kubeconfig: ~/.kube/us-west
      - name: onprem
        kubeconfig: ~/.kube/onprem
    control:
      kubeconfig: ~/.kube/control
    path: .cache/observed.json
  register: seen

- name: Build with the observed state
  modelplane.fleet.build:
    resources:
      - manifests/
    path: build/
    observations: .cache/observed.json
"""

RETURN = r"""
clusters:
  description: The observed state of each cluster. An unreachable cluster has only C(failed), C(msg) and C(changed).
  returned: success
  type: dict
  contains:
    changed:
      description: Always V(false).
      type: bool
      returned: always
    failed:
      description: Whether the cluster could not be observed.
      type: bool
      returned: always
    msg:
      description: The reason if the cluster could not be observed. Otherwise its problems in one line, empty if none.
      type: str
      returned: always
    version:
      description: The version of the API server.
      type: str
      returned: when the cluster is reachable
    nodes:
      description: The nodes of each node pool, by the label C(modelplane.ai/pool).
      type: dict
      returned: when the cluster is reachable
    gateway:
      description: The address of the gateway. Empty if the gateway has no address.
      type: str
      returned: when the cluster is reachable
    stack:
      description: Whether all components that replicas need are ready, and the missing components.
      type: dict
      returned: when the cluster is reachable
    workloads:
      description: The workloads of the fleet on the cluster.
      type: list
      elements: dict
      returned: when the cluster is reachable
    failing_pods:
      description: The pods that do not run, with the reasons.
      type: list
      elements: dict
      returned: when the cluster is reachable
    warnings:
      description: Differences between devices and their class, and objects that could not be read.
      type: list
      elements: str
      returned: when the cluster is reachable
  sample:
    onprem:
      changed: false
      failed: false
      msg: ""
      version: "1.36"
      nodes: {gpu-h100: {ready: 4, total: 4, cordoned: []}}
      gateway: 203.0.113.10
      stack: {ready: true, message: ""}
      workloads:
        - kind: Deployment
          namespace: mp-ml-team-51733
          name: qwen3-8b-6e732e38e8-main
          replica: qwen3-8b-6e732e38e8
          ready: true
          message: ""
      failing_pods: []
      warnings: []
control:
  description: The observed state of the control cluster.
  returned: when O(control) is given
  type: dict
  sample:
    version: "1.36"
    controller: {ready: true, message: ""}
    failing_pods: []
    warnings: []
failed_clusters:
  description: The clusters that could not be observed.
  returned: success
  type: list
  elements: str
  sample: []
requests:
  description: The number of requests to inference clusters and the control cluster.
  returned: success
  type: int
  sample: 24
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelplane.fleet.plugins.module_utils.arguments import libraries, observed_fleet
from ansible_collections.modelplane.fleet.plugins.module_utils.arguments.cluster_options import CLUSTERS, ArgumentsError
from ansible_collections.modelplane.fleet.plugins.module_utils.arguments.manifests import prepare
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.errors import ApiError
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.directory import StoreError
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.observations import write_observations

ARGUMENTS: dict[str, Any] = {
    "argument_spec": {
        **CLUSTERS,
        "resources": {"type": "list", "elements": "path", "default": []},
        "chdir": {"type": "path"},
        "path": {"type": "path"},
        "fleet": {"type": "str", "default": "default"},
        **observed_fleet.UNREAD,
    },
    "supports_check_mode": True,
}


def work(module: AnsibleModule) -> None:
    """Run the module with its arguments, and exit with its result."""
    libraries.need(module, "urllib3")
    prepare(module)
    try:
        fleet = observed_fleet.observe(module.params, write_cache=not module.check_mode)
        if module.params["path"] and not module.check_mode:
            write_observations(module.params["path"], fleet.document())
    except (ApiError, ArgumentsError, StoreError) as error:
        module.fail_json(msg=str(error))
    for line in [*observed_fleet.silent(fleet), *observed_fleet.warnings(fleet)]:
        module.warn(line)
    result: dict[str, Any] = {
        "changed": False,
        "clusters": observed_fleet.clusters(fleet),
        "failed_clusters": [name for name, seen in fleet.clusters.items() if seen.unreachable],
        "requests": fleet.requests,
    }
    if module.params["control"] is not None:
        result["control"] = {
            "version": fleet.control.version,
            "controller": fleet.control.entry["controller"],
            "failing_pods": list(fleet.control.failing_pods),
            "warnings": list(fleet.control.warnings),
        }
    module.exit_json(**result)


def main() -> None:
    work(AnsibleModule(**ARGUMENTS))


if __name__ == "__main__":
    main()
