#!/usr/bin/python
# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.gcp_leftovers."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gcp_leftovers
short_description: Remove what a GKE cluster left in its project
version_added: 0.1.0
description:
  - Controllers in a cluster make things in its project that nobody declared, that cost money, and that keep its network
    from being deleted. This module finds those that a cluster left, removes them, and waits until they are gone.
  - Load balancers of Services, Ingresses and Gateways, which are forwarding rules, target pools, target proxies, URL
    maps, backend services, network endpoint groups, instance groups, health checks and addresses.
  - Filestore instances in the network, and disks, of the cluster's volumes. B(The data in them is gone), also where a
    volume has the policy C(Retain); O(volumes=false) keeps them.
  - The firewall rules that GKE and the controllers made in the network (C(gke-...), C(k8s-...)).
  - Each cluster has a network of its own. A thing is the cluster's when it is in this network, or belongs to a load
    balancer whose other parts are, and has a name that GKE or a controller gives. Disks have the labels
    C(goog-k8s-cluster-name) and C(goog-k8s-cluster-location), and Filestore instances that of the driver.
  - What else is in the network, and what others use, is never removed. It is told in RV(left_alone).
  - The cluster has to be gone, as it would make everything again. In check mode it may be there.
  - A network of this name that is not the fleet's, as its description says, fails the task.
options:
  plan:
    description:
      - What the cluster was made of, as the filter P(modelplane.fleet.gke_plan#filter) tells it. What is looked at are
        C(name), C(project), C(region) and C(resources).
    type: dict
    required: true
  volumes:
    description: Whether disks and Filestore instances are removed.
    type: bool
    default: true
  state:
    description: V(absent) removes what is found.
    type: str
    choices: [absent]
    default: absent
extends_documentation_fragment:
  - modelplane.fleet.google
  - modelplane.fleet.google.waiting
attributes:
  check_mode:
    support: full
    description: Tells what would be removed if the cluster went now. Its own firewall rules go with it.
  diff_mode:
    support: full
    description: RV(ignore:diff) shows what is removed.
  idempotent:
    support: full
    description: Where nothing is left, nothing is done.
notes:
  - Besides C(roles/compute.networkAdmin), the identity needs C(roles/compute.loadBalancerAdmin),
    C(roles/compute.securityAdmin) for firewall rules, C(roles/compute.storageAdmin) for disks, and
    C(roles/file.editor). Where it may not look for disks or Filestore instances, that is a warning.
seealso:
  - module: modelplane.fleet.cloud_resources
"""

EXAMPLES = r"""
- name: Remove what the cluster left
  modelplane.fleet.gcp_leftovers:
    plan: "{{ cluster | modelplane.fleet.gke_plan(project='fleet-prod') }}"
  register: left

- name: Stop where something else uses the network, which cannot be deleted then
  ansible.builtin.assert:
    that: left.left_alone == []
    fail_msg: "{{ left.left_alone | join('\n') }}"
"""

RETURN = r"""
removed:
  description: What was removed (in check mode, would be).
  returned: success
  type: list
  elements: dict
  contains:
    kind:
      description: What it is, such as V(forwarding rule) or V(Filestore instance).
      type: str
      returned: always
    name:
      description: The name.
      type: str
      returned: always
    place:
      description: V(global), a region or a zone.
      type: str
      returned: always
  sample:
    - {kind: forwarding rule, name: a0123456789abcdef0123456789abcde, place: us-central1}
    - {kind: firewall rule, name: k8s-fw-a0123456789abcdef0123456789abcde, place: global}
left_alone:
  description: What keeps the network from being deleted and is not the cluster's, one line each, with what to do.
  returned: success
  type: list
  elements: str
  sample:
    - >-
      firewall rule allow-ssh is in the network modelplane-system-gke-us-central-gke-1a2b3 and was not made by the
      cluster, so it stays, and so does the network. Delete it when nobody needs it
pending:
  description: With O(wait=false), what is left for the next run, one line each.
  returned: success
  type: list
  elements: str
  sample: []
waited:
  description: What was waited for, one line for each change that was seen.
  returned: always
  type: list
  elements: str
  sample: ["delete firewall rule k8s-fw-a0123456789abcdef0123456789abcde: DONE (after 4 s)"]
diff:
  description: What was there, by what it is called, and that it is gone.
  returned: always
  type: dict
  sample:
    before:
      firewall rule gke-modelplane-system-gke-us-1a2b3-all:
        path: projects/fleet-prod/global/firewalls/gke-modelplane-system-gke-us-1a2b3-all
    after: {}
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelplane.fleet.plugins.module_utils.cloud import waiting
from ansible_collections.modelplane.fleet.plugins.module_utils.cloud.changes import Changes
from ansible_collections.modelplane.fleet.plugins.module_utils.cloud.task import plan_fault
from ansible_collections.modelplane.fleet.plugins.module_utils.cloud.waiting import Progress
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.gke.kinds import LEFT
from ansible_collections.modelplane.fleet.plugins.module_utils.google import session, task
from ansible_collections.modelplane.fleet.plugins.module_utils.google.client import Client
from ansible_collections.modelplane.fleet.plugins.module_utils.google.orphans import Leftovers

ARGUMENTS: dict[str, Any] = {
    "argument_spec": {
        **session.ARGUMENTS,
        **waiting.arguments(2700),
        "plan": {"type": "dict", "required": True},
        "volumes": {"type": "bool", "default": True},
        "state": {"type": "str", "choices": ["absent"], "default": "absent"},
    },
    "supports_check_mode": True,
}
_KEYS = ("name", "project", "region", "resources")


def work(module: AnsibleModule) -> None:
    """Do what the arguments ask for, and end the module with the result."""
    params = module.params
    fault = plan_fault(params["plan"], _KEYS, "gke_plan")
    if not fault and params["project"] not in (None, "", params["plan"]["project"]):
        fault = f"project: is {params['project']}, and the plan is for {params['plan']['project']}. Give that one"
    if fault:
        module.fail_json(msg=fault)

    def action(client: Client, changes: Changes, progress: Progress) -> dict[str, Any]:
        leftovers = Leftovers(
            client,
            params["plan"],
            changes,
            task.wait(params, progress),
            volumes=params["volumes"],
            until_done=params["wait"],
        )
        found = leftovers.look()
        removed = leftovers.remove(found)
        return {
            "removed": [{"kind": LEFT[each.kind].title, "name": each.name, "place": each.place} for each in removed],
            "left_alone": list(found.left_alone),
            "pending": leftovers.pending,
        }

    task.run(module, action)


def main() -> None:
    work(AnsibleModule(**ARGUMENTS))


if __name__ == "__main__":
    main()
