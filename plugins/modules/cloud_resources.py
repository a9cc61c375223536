#!/usr/bin/python
# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.cloud_resources."""

from __future__ import annotations

DOCUMENTATION = r"""
module: cloud_resources
short_description: Create, update and delete the planned cloud resources of a cluster
version_added: 0.1.0
description:
  - Creates, updates or deletes the cloud resources in a plan, as returned by P(modelplane.fleet.eks_plan#filter) or
    P(modelplane.fleet.gke_plan#filter). One task manages a network, a cluster with its nodes, and their permissions.
  - Reads all resources first. If a resource has another owner, or if a field differs that the cloud cannot change, the
    module fails before any change. The message contains a fix.
  - Creates independent resources in parallel. Changes are sequential if the cloud accepts only one change at a time,
    for example for a cluster and its node pools in Google Cloud. The module waits for changes that another run or a
    user started.
  - Compares only the fields in O(resources[].body). Default values that the cloud sets are not a difference. The module
    reads a resource again immediately before it changes it.
  - Never changes or deletes a resource without the owner labels of the fleet, and fails instead. In AWS these are the
    tags C(modelplane.ai/managed-by), C(modelplane.ai/cluster) and C(modelplane.ai/fleet). In Google Cloud these are the
    labels C(modelplane-ai-managed-by), C(modelplane-ai-cluster) and C(modelplane-ai-fleet), or the same text in the
    description of a resource that does not support labels.
  - In Google Cloud, permissions are members in the IAM policy of the project. The module reads and writes the policy
    with its etag, so that concurrent changes of other users are kept.
  - Deletes and recreates a resource that never became usable, such as a cluster or node pool in the state C(ERROR).
options:
  resources:
    description: The resources, as C(resources) of a plan.
    type: list
    elements: dict
    required: true
    suboptions:
      key:
        description: The name of the resource in RV(resources), in O(resources[].needs), and in references.
        type: str
        required: true
      kind:
        description:
          - The kind of the resource. In Google Cloud V(network), V(subnetwork), V(router), V(service), V(cluster),
            V(node-pool), V(service-account) or V(iam-member).
          - In AWS V(vpc), V(subnet), V(internet-gateway), V(elastic-ip), V(nat-gateway), V(route-table),
            V(security-group), V(policy), V(role), V(cluster), V(launch-template), V(node-group), V(addon),
            V(pod-identity), V(file-system) or V(mount-target).
        type: str
        required: true
      name:
        description: The name of the resource. For a service account, its email address. For V(iam-member), any text.
        type: str
        required: true
      parent:
        description:
          - The path of the parent. In Google Cloud, for example C(projects/p/global) or
            C(projects/p/locations/us-central1).
          - In AWS the region, C(iam) for an IAM resource, or C(clusters/NAME) for a resource in a cluster.
        type: str
        required: true
      body:
        description:
          - The fields in the format of the cloud API. V(iam-member) has the fields C(role) and C(member).
          - A value can be a reference to a field of another resource in the list. A reference is a mapping of C(ref),
            the key of that resource, and C(field), a path with dots. The module replaces it with the value from the
            API. In check mode, it replaces it with V((known after creation\)) if that resource does not exist.
        type: dict
        default: {}
      initial:
        description: Additional fields for the creation of the resource. Later runs do not compare them.
        type: dict
        default: {}
      needs:
        description: The keys of resources that must exist first, in addition to the resources that the body refers to.
        type: list
        elements: str
        default: []
  purge:
    description:
      - Whether to delete existing resources that have the owner labels of listed resources but are not listed, such as
        node pools of a listed cluster. The module deletes them after it has processed the listed resources, even if one
        of these failed.
      - With O(cluster), the module keeps a node pool and the resources that it uses while replicas run on the node
        pool. RV(pending) contains these node pools.
    type: bool
    default: false
  kinds:
    description:
      - The kinds of resources to change or delete. Other kinds are only read, because resources can refer to them. If
        empty, all kinds are changed.
    type: list
    elements: str
    default: []
  state:
    description:
      - V(present) creates and updates the resources.
      - V(absent) deletes the resources in reverse order of their dependencies. Google Cloud APIs stay enabled because
        other workloads may use them. GKE node pools are deleted with their cluster.
    type: str
    choices: [present, absent]
    default: present
extends_documentation_fragment:
  - modelplane.fleet.clouds
  - modelplane.fleet.clouds.waiting
  - modelplane.fleet.clusters.cluster
attributes:
  check_mode:
    support: full
    description: Sends no requests that change anything.
  diff_mode:
    support: full
    description: Shows the changes of each resource by key.
  idempotent:
    support: full
    description: A newer version satisfies a requested version, because release channels upgrade clusters.
notes:
  - The module warns about a partly functional resource, such as a cluster in the state C(DEGRADED), with the reason
    from the cloud.
seealso:
  - plugin: modelplane.fleet.eks_plan
    plugin_type: filter
  - plugin: modelplane.fleet.gke_plan
    plugin_type: filter
  - module: modelplane.fleet.gcp_service_account_key
"""

EXAMPLES = r"""
- name: Create all cloud resources of a GKE cluster
  modelplane.fleet.cloud_resources:
    provider: gke
    project: fleet-prod
    credentials_file: ~/keys/fleet-prod.json
    resources: "{{ (object | modelplane.fleet.gke_plan(project='fleet-prod')).resources }}"
    purge: true
    cluster:
      gke: {cluster: modelplane-system-west-gke-1a2b3, location: us-central1, project: fleet-prod}

- name: Create a network
  modelplane.fleet.cloud_resources:
    provider: gke
    project: fleet-prod
    resources:
      - key: network
        kind: network
        name: fleet
        parent: projects/fleet-prod/global
        body:
          name: fleet
          autoCreateSubnetworks: false
          description: modelplane-ai-cluster=fleet modelplane-ai-managed-by=modelplane-fleet modelplane-ai-fleet=default
"""

RETURN = r"""
actions:
  description: The actions that were taken or, in check mode, would be taken, one line each.
  returned: always
  type: list
  elements: str
  sample: ["create VPC network west", "update node pool gpu: config.machineType; all its nodes are replaced"]
resources:
  description: The resources by key, as returned by the cloud API. Empty for a missing resource in check mode.
  returned: when O(state=present)
  type: dict
  sample:
    network:
      name: modelplane-system-gke-us-central-gke-1a2b3
      autoCreateSubnetworks: false
      selfLink: https://www.googleapis.com/compute/v1/projects/fleet-prod/global/networks/modelplane-system-gke-us-central-gke-1a2b3
removed:
  description: The keys of the deleted resources or, in check mode, of the resources to delete.
  returned: when O(state=absent)
  type: list
  elements: str
  sample: [network, subnetwork, cluster, service-account, iam-member]
pending:
  description:
    - Unfinished changes, because the module did not wait for them, or because replicas run on nodes that would be
      deleted. The next run continues.
  returned: always
  type: list
  elements: str
  sample: []
waited:
  description: The progress while waiting.
  returned: always
  type: list
  elements: str
  sample: ["create GKE cluster west: RUNNING (after 0 s)", "create GKE cluster west: DONE (after 6 min 12 s)"]
"""

from collections.abc import Callable
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelplane.fleet.plugins.module_utils.arguments import cluster_options, libraries
from ansible_collections.modelplane.fleet.plugins.module_utils.cloud import task, waiting
from ansible_collections.modelplane.fleet.plugins.module_utils.cloud.engine import Engine, cluster_of
from ansible_collections.modelplane.fleet.plugins.module_utils.cloud.registry import BACKENDS, arguments
from ansible_collections.modelplane.fleet.plugins.module_utils.cloud.task import Changes
from ansible_collections.modelplane.fleet.plugins.module_utils.cloud.waiting import Messages
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.engine.kinds import Resource
from ansible_collections.modelplane.fleet.plugins.module_utils.core.text import some
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.connection import Connection, connect
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.errors import ApiError
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.pool_pods import replicas_on_pool

ARGUMENTS: dict[str, Any] = {
    "argument_spec": {
        **arguments(),
        **waiting.ARGUMENTS,
        "resources": {
            "type": "list",
            "elements": "dict",
            "required": True,
            "options": {
                "key": {"type": "str", "required": True, "no_log": False},
                "kind": {"type": "str", "required": True},
                "name": {"type": "str", "required": True},
                "parent": {"type": "str", "required": True},
                "body": {"type": "dict", "default": {}},
                "initial": {"type": "dict", "default": {}},
                "needs": {"type": "list", "elements": "str", "default": []},
            },
        },
        **cluster_options.CLUSTER,
        "purge": {"type": "bool", "default": False},
        "kinds": {"type": "list", "elements": "str", "default": []},
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    },
    "supports_check_mode": True,
}


def work(module: AnsibleModule) -> None:
    """Run the module with its arguments, and exit with its result."""
    params = module.params
    occupants = _occupants(module)
    provider = BACKENDS[params["provider"]].connect(module)

    def action(changes: Changes, messages: Messages) -> dict[str, Any]:
        resources, kinds = params["resources"], params["kinds"]
        wait = task.wait(module, messages, provider.error, cluster_of(provider, resources))
        engine = Engine(provider, resources, changes, wait, until_done=params["wait"], kinds=kinds, occupants=occupants)
        if params["state"] == "absent":
            return {"removed": engine.absent(purge=params["purge"]), "pending": engine.pending}
        return {"resources": engine.present(purge=params["purge"]), "pending": engine.pending}

    task.run(module, action)


def _occupants(module: AnsibleModule) -> Callable[[Resource], str]:
    """Return a function that names the replicas on a node pool, empty for none. Replicas that cannot be read count."""
    if module.params["cluster"] is None:
        return lambda _pool: ""
    libraries.need(module, "PyYAML", "urllib3")
    try:
        target: Connection = cluster_options.connection(
            "cluster", module.params["cluster"], **cluster_options.limits(module.params)
        )
    except cluster_options.ArgumentsError as error:
        module.fail_json(msg=str(error))

    def occupants(pool: Resource) -> str:
        try:
            with connect(target, write_cache=not module.check_mode) as client:
                replicas = replicas_on_pool(client, pool["name"])
        except ApiError as error:
            return f"its replicas cannot be read: {error}"
        return f"replicas run there: {some(replicas)}. It is deleted once they have moved" if replicas else ""

    return occupants


def main() -> None:
    work(AnsibleModule(**ARGUMENTS))


if __name__ == "__main__":
    main()
