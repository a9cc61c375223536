#!/usr/bin/python
# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.cloud_resources."""

from __future__ import annotations

DOCUMENTATION = r"""
module: cloud_resources
short_description: Create, update and delete the objects of a cloud that a plan lists
version_added: 0.1.0
description:
  - Creates and updates the objects that a plan lists, or deletes them. A plan is what
    P(modelplane.fleet.eks_plan#filter) and P(modelplane.fleet.gke_plan#filter) return. A network, a cluster with its
    nodes, and the rights of both are one task.
  - All are read first. Nothing is begun when one of them has another owner, or when a field differs that the cloud
    cannot change; the message says what to do about it.
  - Objects that do not need each other are created at the same time. Changes of what takes one change at a time, such
    as a cluster with its node pools in Google Cloud, follow one another; a change that another run or a person began
    is waited for.
  - Only fields that O(resources[].body) has are compared. Defaults that the cloud fills in are no difference. Each
    change is computed from a reading of a moment ago.
  - An object without our owner labels is neither changed nor deleted, and fails the task. They are the tags
    C(modelplane.ai/managed-by), C(modelplane.ai/cluster) and C(modelplane.ai/fleet) in AWS, and the labels
    C(modelplane-ai-managed-by), C(modelplane-ai-cluster) and C(modelplane-ai-fleet) in Google Cloud, or the same in the
    description of what has no labels.
  - Rights in Google Cloud are members of the policy of the project. It is read and written with its etag, so that
    rights that others give meanwhile are kept.
  - An object that never became usable, such as a cluster or node pool in C(ERROR), is deleted and created again.
options:
  resources:
    description: The objects, as C(resources) of a plan.
    type: list
    elements: dict
    required: true
    suboptions:
      key:
        description: Its name in RV(resources), and in the O(resources[].needs) and references of others.
        type: str
        required: true
      kind:
        description:
          - Its kind. In Google Cloud V(network), V(subnetwork), V(router), V(service), V(cluster),
            V(node-pool), V(service-account) or V(iam-member).
          - In AWS V(vpc), V(subnet), V(internet-gateway), V(elastic-ip), V(nat-gateway), V(route-table),
            V(security-group), V(policy), V(role), V(cluster), V(launch-template), V(node-group), V(addon),
            V(pod-identity), V(file-system) or V(mount-target).
        type: str
        required: true
      name:
        description: Its name; of a service account the address, of a right any text.
        type: str
        required: true
      parent:
        description:
          - The path of what it is in, such as C(projects/p/global) or C(projects/p/locations/us-central1) in Google
            Cloud.
          - In AWS the region, C(iam) for an object of IAM, and C(clusters/NAME) for what is in a cluster.
        type: str
        required: true
      body:
        description:
          - The fields, as the API takes them. A right has C(role) and C(member).
          - A value may be a reference to a field of another listed object, a mapping of C(ref), the key of that object,
            and C(field), a path with dots. It is replaced by what the API returns of that object, or in check mode by
            V((known after creation\)) where that does not exist.
        type: dict
        default: {}
      initial:
        description: More fields that it is created with; they are not compared later.
        type: dict
        default: {}
      needs:
        description: The keys of what has to exist before. What the body refers to is needed, too.
        type: list
        elements: str
        default: []
  purge:
    description:
      - Whether to delete what exists beside the listed objects, has their owner labels and is not listed, such as node
        pools of listed clusters. It goes once the listed objects are done, well or not.
      - With O(cluster), a node pool stays as long as replicas run on it, and so does what it uses. RV(pending) names
        them.
    type: bool
    default: false
  kinds:
    description:
      - The kinds of objects to change or delete; the others are read only, as objects may refer to them. Without it,
        all.
    type: list
    elements: str
    default: []
  state:
    description:
      - V(absent) deletes the objects, each before what it needs. APIs of Google Cloud stay enabled, as others may use
        them, and node pools of GKE go with their cluster.
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
    description: Nothing is sent that changes anything.
  diff_mode:
    support: full
    description: What changes of each object is shown, by its key.
  idempotent:
    support: full
    description: Versions are fulfilled by newer ones, as release channels install them.
notes:
  - An object that works in part only, such as a cluster in C(DEGRADED), is a warning, with the reason that the cloud
    gives.
seealso:
  - plugin: modelplane.fleet.eks_plan
    plugin_type: filter
  - plugin: modelplane.fleet.gke_plan
    plugin_type: filter
  - module: modelplane.fleet.gcp_service_account_key
"""

EXAMPLES = r"""
- name: Create all that a cluster on GKE needs
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
  description: What was done, or in check mode would be, in words.
  returned: always
  type: list
  elements: str
  sample: ["create VPC network west", "update node pool gpu: config.machineType; all its nodes are replaced"]
resources:
  description: The objects by key, as their API returns them; empty for what does not exist in check mode.
  returned: when O(state=present)
  type: dict
  sample:
    network:
      name: modelplane-system-gke-us-central-gke-1a2b3
      autoCreateSubnetworks: false
      selfLink: https://www.googleapis.com/compute/v1/projects/fleet-prod/global/networks/modelplane-system-gke-us-central-gke-1a2b3
removed:
  description: The keys of what existed and is deleted (in check mode, would be).
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
    """Do what the arguments ask for, and end the module with the result."""
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
