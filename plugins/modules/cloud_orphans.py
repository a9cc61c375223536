#!/usr/bin/python
# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.cloud_orphans."""

from __future__ import annotations

DOCUMENTATION = r"""
module: cloud_orphans
short_description: Delete orphaned cloud resources of a cluster's controllers
version_added: 0.1.0
description:
  - Controllers in a cluster create cloud resources that are not part of the plan. These resources cost money, and
    prevent the deletion of the cluster's network. This module finds the orphaned resources of a cluster, deletes them,
    and waits for the deletion.
  - Each cluster has its own network. If the network no longer exists, the module does nothing. The module never deletes
    other resources in the network, or resources that others use. It reports them in RV(left_alone).
  - In AWS the module deletes load balancers of all types with the tag C(kubernetes.io/cluster/NAME=owned) or
    C(elbv2.k8s.aws/cluster=NAME), their target groups and their security groups. It also deletes unused network
    interfaces of the VPC CNI (C(aws-K8S-...)). AWS deletes the network interfaces of load balancers and of the control
    plane, and the module waits for that. The VPC is the VPC of the plan with the owner tags.
  - In AWS the cluster can still exist, because its controllers must run until its load balancers are deleted. Run the
    module before and after you delete the cluster. After the deletion, the module also deletes the security group
    C(eks-cluster-sg-NAME-...) and reports other users of the VPC.
  - In Google Cloud the module deletes the parts of load balancers of Services, Ingresses and Gateways. These are
    forwarding rules, target pools, target proxies, URL maps, backend services, network endpoint groups, instance
    groups, health checks and addresses. It also deletes firewall rules of GKE and of controllers (C(gke-...),
    C(k8s-...)), and the disks and Filestore instances of volumes.
  - In Google Cloud a resource belongs to the cluster if its name has the format of GKE or of a controller, and if it is
    in the cluster's network or belongs to a load balancer in that network. Disks must have the labels
    C(goog-k8s-cluster-name) and C(goog-k8s-cluster-location), and Filestore instances the labels of the CSI driver.
  - In Google Cloud the cluster must not exist, because its controllers would create the resources again. In check mode
    it can exist. If a network with the planned name has another owner, the task fails.
options:
  plan:
    description:
      - The plan of the cluster, as returned by P(modelplane.fleet.eks_plan#filter) or
        P(modelplane.fleet.gke_plan#filter). The module reads C(name), C(region), C(resources) and, in Google Cloud,
        C(project).
    type: dict
    required: true
  volumes:
    description:
      - Whether to delete disks and Filestore instances of volumes. B(Their data is lost), even if a volume has the
        reclaim policy C(Retain).
      - Only for O(provider=gke).
    type: bool
    default: true
extends_documentation_fragment:
  - modelplane.fleet.clouds
  - modelplane.fleet.clouds.waiting
attributes:
  check_mode:
    support: full
    description:
      - Reports the resources that would be deleted if the cluster did not exist. In Google Cloud, GKE
        deletes the cluster's own firewall rules with the cluster.
  diff_mode:
    support: full
    description: RV(ignore:diff) contains the deleted resources.
  idempotent:
    support: full
    description: A second run finds nothing to delete.
notes:
  - In Google Cloud the identity needs the roles C(roles/compute.networkAdmin), C(roles/compute.loadBalancerAdmin),
    C(roles/compute.securityAdmin) for firewall rules, C(roles/compute.storageAdmin) for disks, and
    C(roles/file.editor). If it has no permission to list disks or Filestore instances, the module warns.
seealso:
  - module: modelplane.fleet.cloud_resources
"""

EXAMPLES = r"""
- name: Delete orphaned cloud resources of the cluster
  modelplane.fleet.cloud_orphans:
    provider: gke
    plan: "{{ cluster | modelplane.fleet.gke_plan(project='fleet-prod') }}"
  register: orphans

- name: Fail if the network is still in use
  ansible.builtin.assert:
    that: orphans.left_alone == []
    fail_msg: "{{ orphans.left_alone | join('\n') }}"
"""

RETURN = r"""
removed:
  description: The deleted resources or, in check mode, the resources to delete.
  returned: success
  type: list
  elements: dict
  contains:
    kind:
      description: The kind of the resource, such as V(network load balancer), V(forwarding rule) or V(Filestore
        instance).
      type: str
      returned: always
    name:
      description: The name of the resource. For a network interface in AWS, the ID.
      type: str
      returned: always
    place:
      description: In AWS the VPC. In Google Cloud V(global), a region or a zone.
      type: str
      returned: always
  sample:
    - {kind: forwarding rule, name: a0123456789abcdef0123456789abcde, place: us-central1}
    - {kind: firewall rule, name: k8s-fw-a0123456789abcdef0123456789abcde, place: global}
left_alone:
  description: Resources that do not belong to the cluster and prevent the deletion of the network, each with a fix.
  returned: success
  type: list
  elements: str
  sample:
    - >-
      firewall rule allow-ssh is in the network modelplane-system-gke-us-central-gke-1a2b3 and was not created by the
      cluster, so it stays, and so does the network. Delete it when it is no longer needed
pending:
  description: Resources that the next run must delete, one line each. Only with O(wait=false).
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
  description: The deleted resources by kind and name.
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
    """Run the module with its arguments, and exit with its result."""
    orphans = BACKENDS[module.params["provider"]].orphans
    task.run(module, lambda changes, messages: orphans(module, changes, messages))


def main() -> None:
    work(AnsibleModule(**ARGUMENTS))


if __name__ == "__main__":
    main()
