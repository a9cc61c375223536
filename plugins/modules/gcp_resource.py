#!/usr/bin/python
# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.gcp_resource."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gcp_resource
short_description: Manage objects of Google Cloud that a plan lists
version_added: 0.1.0
description:
  - Brings the objects that P(modelplane.fleet.gke_plan#filter) lists to what they should be, or deletes them, by
    Google's REST APIs. A network, a subnetwork, a cluster with its node pools, a service account and its rights are all
    told in one task.
  - All are looked at first. Nothing is begun when one of them is another's, or when a field differs that Google cannot
    change; what to do about it is told.
  - Objects that do not need each other are made at once. Changes of one cluster and of its node pools go on one after
    the other, as GKE takes one at a time; an operation that somebody else began is waited for.
  - Only fields that O(resources[].body) has are compared, as the API returns them. Defaults that Google fills in are no
    difference.
  - An object without our mark is neither changed nor deleted, and fails the task. The mark is the labels
    C(modelplane-ai-managed-by), C(modelplane-ai-cluster) and C(modelplane-ai-fleet), or the same in the description of
    what has no labels.
  - Rights are members of the policy of the project. It is read and written with its etag, so that rights that others
    give meanwhile are kept.
  - A cluster or node pool that never came up (C(ERROR)) is deleted and made anew.
options:
  resources:
    description: The objects, as C(resources) of a plan.
    type: list
    elements: dict
    required: true
    suboptions:
      key:
        description: What the object is called in RV(resources) and in the O(resources[].needs) of others.
        type: str
        required: true
      kind:
        description: Its kind.
        type: str
        choices: [network, subnetwork, service, cluster, node-pool, service-account, iam-member]
        required: true
      name:
        description: Its name; of a service account the address, of a right any text.
        type: str
        required: true
      parent:
        description: The path of what it is in, such as C(projects/p/global) or C(projects/p/locations/us-central1).
        type: str
        required: true
      body:
        description: The fields, as the API takes them. A right has C(role) and C(member).
        type: dict
        default: {}
      needs:
        description: The keys of what has to be there before.
        type: list
        elements: str
        default: []
  purge:
    description:
      - Whether to delete node pools of the listed clusters that have the mark of the cluster and are not listed. They
        go once all that is listed is there.
    type: bool
    default: false
  state:
    description:
      - V(absent) deletes the objects, each before what it needs. APIs stay enabled, as others may use them. Node pools
        go with their cluster.
    type: str
    choices: [present, absent]
    default: present
extends_documentation_fragment:
  - modelplane.fleet.google
  - modelplane.fleet.google.waiting
attributes:
  check_mode:
    support: full
    description: Nothing is sent that changes anything.
  diff_mode:
    support: full
    description: What changes of each object is shown, by its key.
  idempotent:
    support: full
    description: Versions are fulfilled by newer ones, which release channels bring.
notes:
  - A cluster or node pool that works in part only (C(DEGRADED), C(RUNNING_WITH_ERROR)) is told as a warning, with the
    reason that Google gives.
seealso:
  - plugin: modelplane.fleet.gke_plan
    plugin_type: filter
  - module: modelplane.fleet.gcp_service_account_key
"""

EXAMPLES = r"""
- name: Make all that a cluster on GKE needs
  modelplane.fleet.gcp_resource:
    project: fleet-prod
    credentials_file: ~/keys/fleet-prod.json
    resources: "{{ (object | modelplane.fleet.gke_plan(project='fleet-prod')).resources }}"
    purge: true

- name: Make a network
  modelplane.fleet.gcp_resource:
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
resources:
  description: The objects by key, as their API returns them; in check mode as they are, of what is not there nothing.
  returned: when O(state=present)
  type: dict
  sample:
    network:
      name: modelplane-system-gke-us-central-gke-1a2b3
      autoCreateSubnetworks: false
      selfLink: https://www.googleapis.com/compute/v1/projects/fleet-prod/global/networks/modelplane-system-gke-us-central-gke-1a2b3
removed:
  description: The keys of what was there and is deleted (in check mode, would be).
  returned: when O(state=absent)
  type: list
  elements: str
  sample: [network, subnetwork, cluster, service-account, iam-member]
pending:
  description: What is not done yet, as it was not waited for; the next run goes on from there.
  returned: always
  type: list
  elements: str
  sample: []
waited:
  description: What was seen while waiting.
  returned: always
  type: list
  elements: str
  sample: ["make GKE cluster west: RUNNING (after 0 s)", "make GKE cluster west: DONE (after 6 min 12 s)"]
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelplane.fleet.plugins.module_utils.cloud import waiting
from ansible_collections.modelplane.fleet.plugins.module_utils.cloud.changes import Changes
from ansible_collections.modelplane.fleet.plugins.module_utils.cloud.waiting import Progress
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.gke.kinds import KINDS
from ansible_collections.modelplane.fleet.plugins.module_utils.google import session, task
from ansible_collections.modelplane.fleet.plugins.module_utils.google.client import Client
from ansible_collections.modelplane.fleet.plugins.module_utils.google.errors import GoogleError
from ansible_collections.modelplane.fleet.plugins.module_utils.google.resources import Resources

ARGUMENTS: dict[str, Any] = {
    "argument_spec": {
        **session.ARGUMENTS,
        **waiting.arguments(2700),
        "resources": {
            "type": "list",
            "elements": "dict",
            "required": True,
            "options": {
                "key": {"type": "str", "required": True, "no_log": False},
                "kind": {"type": "str", "choices": list(KINDS), "required": True},
                "name": {"type": "str", "required": True},
                "parent": {"type": "str", "required": True},
                "body": {"type": "dict", "default": {}},
                "needs": {"type": "list", "elements": "str", "default": []},
            },
        },
        "purge": {"type": "bool", "default": False},
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    },
    "supports_check_mode": True,
}


def work(module: AnsibleModule) -> None:
    """Do what the arguments ask for, and end the module with the result."""
    params = module.params

    def action(client: Client, changes: Changes, progress: Progress) -> dict[str, Any]:
        _check_project(params)
        wait = task.wait(params, progress)
        listed = Resources(client, params["resources"], changes, wait, until_done=params["wait"])
        if params["state"] == "absent":
            return {"removed": listed.remove(), "pending": listed.pending}
        return {"resources": listed.bring(purge=params["purge"]), "pending": listed.pending}

    task.run(module, action)


def _check_project(params: dict[str, Any]) -> None:
    """Raises GoogleError for what is in another project than the one that is given."""
    project = params["project"]
    for index, resource in enumerate(params["resources"]):
        parts = str(resource["parent"]).split("/")
        if parts[0] != "projects" or len(parts) < 2 or (project and parts[1] != project):
            where = f"project {project}" if project else "a project"
            raise GoogleError(f"resources[{index}].parent", f"{resource['parent']} is not in {where}")


def main() -> None:
    work(AnsibleModule(**ARGUMENTS))


if __name__ == "__main__":
    main()
