#!/usr/bin/python
# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.cloud_orphans."""

from __future__ import annotations

DOCUMENTATION = r"""
module: cloud_orphans
short_description: Delete what controllers of a cluster left in its cloud
version_added: 0.1.0
description:
  - Controllers in a cluster create objects in its cloud that no plan lists, that cost money, and that keep its network
    from being deleted. This module finds those that a cluster left, deletes them, and waits until they are gone.
  - Each cluster has a network of its own. Where that does not exist any more, nothing is done. What else is in the
    network, and what others use, is never deleted; it is reported in RV(left_alone).
  - In AWS these are load balancers of all kinds with the tag C(kubernetes.io/cluster/NAME=owned) or
    C(elbv2.k8s.aws/cluster=NAME), their target groups and their security groups, and network interfaces of the VPC CNI
    (C(aws-K8S-...)) that nothing uses. Those of load balancers and of the control plane are deleted by AWS, which is
    waited for. The VPC is the one of the plan with the owner tags.
  - The cluster in AWS may still exist, as controllers have to run until its load balancers are gone; its security group
    C(eks-cluster-sg-NAME-...) is deleted, and what else uses the VPC reported, once it does not. So this is done before
    and after deleting it.
  - In Google Cloud these are load balancers of Services, Ingresses and Gateways, which are forwarding rules, target
    pools, target proxies, URL maps, backend services, network endpoint groups, instance groups, health checks and
    addresses; firewall rules of GKE and of controllers (C(gke-...), C(k8s-...)); disks and Filestore instances of
    volumes. An object is the cluster's when it is in its network, or belongs to a load balancer whose other parts are,
    and has a name that GKE or a controller gives. Disks have the labels C(goog-k8s-cluster-name) and
    C(goog-k8s-cluster-location), and Filestore instances that of the driver.
  - The cluster in Google Cloud must not exist any more, as it would create everything again; in check mode it may. A
    network of the planned name that has another owner fails the task.
options:
  plan:
    description:
      - The plan of the cluster, as P(modelplane.fleet.eks_plan#filter) or P(modelplane.fleet.gke_plan#filter) returns
        it. C(name), C(region), in Google Cloud C(project), and C(resources) are read.
    type: dict
    required: true
  volumes:
    description:
      - Whether disks and Filestore instances of volumes are deleted. B(The data in them is lost), also where a volume
        has the policy C(Retain).
      - Of O(provider=gke).
    type: bool
    default: true
extends_documentation_fragment:
  - modelplane.fleet.clouds
  - modelplane.fleet.clouds.waiting
attributes:
  check_mode:
    support: full
    description:
      - Reports what would be deleted if the cluster went now. Its own firewall rules in Google Cloud go with it.
  diff_mode:
    support: full
    description: RV(ignore:diff) shows what is deleted.
  idempotent:
    support: full
    description: Where nothing is left, nothing is done.
notes:
  - In Google Cloud, besides C(roles/compute.networkAdmin), the identity needs C(roles/compute.loadBalancerAdmin),
    C(roles/compute.securityAdmin) for firewall rules, C(roles/compute.storageAdmin) for disks, and
    C(roles/file.editor). Where it may not list disks or Filestore instances, that is a warning.
seealso:
  - module: modelplane.fleet.cloud_resources
"""

EXAMPLES = r"""
- name: Delete what controllers of the cluster created
  modelplane.fleet.cloud_orphans:
    provider: gke
    plan: "{{ cluster | modelplane.fleet.gke_plan(project='fleet-prod') }}"
  register: orphans

- name: Refuse to delete a network that others use
  ansible.builtin.assert:
    that: orphans.left_alone == []
    fail_msg: "{{ orphans.left_alone | join('\n') }}"
"""

RETURN = r"""
removed:
  description: What was deleted (in check mode, would be).
  returned: success
  type: list
  elements: dict
  contains:
    kind:
      description: Its kind, such as V(network load balancer), V(forwarding rule) or V(Filestore instance).
      type: str
      returned: always
    name:
      description: The name; of a network interface in AWS the id.
      type: str
      returned: always
    place:
      description: In AWS the VPC, in Google Cloud V(global), a region or a zone.
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
      firewall rule allow-ssh is in the network modelplane-system-gke-us-central-gke-1a2b3 and was not created by the
      cluster, so it stays, and so does the network. Delete it when it is no longer needed
pending:
  description: With O(wait=false), what is left for the next run, one line each.
  returned: success
  type: list
  elements: str
  sample: []
waited:
  description: The progress while waiting.
  returned: always
  type: list
  elements: str
  sample: ["delete firewall rule k8s-fw-a0123456789abcdef0123456789abcde: DONE (after 4 s)"]
diff:
  description: What was deleted, by kind and name.
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
from ansible_collections.modelplane.fleet.plugins.module_utils.cloud import task, waiting
from ansible_collections.modelplane.fleet.plugins.module_utils.cloud.registry import BACKENDS, arguments

ARGUMENTS: dict[str, Any] = {
    "argument_spec": {
        **arguments(),
        **waiting.ARGUMENTS,
        "plan": {"type": "dict", "required": True},
        "volumes": {"type": "bool", "default": True},
    },
    "supports_check_mode": True,
}


def work(module: AnsibleModule) -> None:
    """Do what the arguments ask for, and end the module with the result."""
    orphans = BACKENDS[module.params["provider"]].orphans
    task.run(module, lambda changes, messages: orphans(module, changes, messages))


def main() -> None:
    work(AnsibleModule(**ARGUMENTS))


if __name__ == "__main__":
    main()
